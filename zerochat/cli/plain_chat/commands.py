"""Slash commands of the plain chat: most run the verb of the same name for the current group."""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from msgspec import Struct

from zerochat.agent.api.client import Client
from zerochat.agent.storage.paths import user_path
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import name_of
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.cli.plain_chat import members
from zerochat.errors import LocalError
from zerochat.manual import read_page, topics
from zerochat.presentation import group_kinds, keep_rules, private
from zerochat.rpc import Event, GroupInfo
from zerochat.slash_commands import (
    ALIASES,
    COMMANDS,
    CommandInfo,
    invite_arguments,
    message_and_path,
    name_and_text,
    usage_of,
)
from zerochat.terminal_text import printable, printable_line

HISTORY_EVENTS = 20
HISTORY_EVENTS_MAX = 500
NEWEST_EVENTS = 50
"""Number of events in which the newest message is searched."""
QUOTE_CELLS = 60


_ID = re.compile("[A-Za-z0-9_-]{43}")
"""An id of an event or a group."""
_SHELL_COMMAND = re.compile("`zerochat\\s([^`]+)`")


class Session(Protocol):
    """The parts of the plain chat that commands use."""

    options: Options
    out: Output
    group: str
    groups: dict[str, GroupInfo]
    drafts: dict[str, str]
    over: bool

    @property
    def client(self) -> Client: ...

    def group_name(self, group: str) -> str: ...

    def refresh(self) -> None: ...

    def switch(self, group: str) -> None: ...

    def history(self, count: int, *, again: bool = False) -> None: ...

    def find(self, wanted: str) -> str: ...

    def send(self, text: str, *, reply_to: str | None = None, action: bool = False) -> None: ...


class NoGroup(LocalError):
    """There is no current group: use /switch GROUP, /new NAME or /join INVITATION."""


class NotInPlainChat(LocalError):
    """/{name} works only in the full-screen chat (`zerochat`). /help lists the commands."""


class NoMessage(LocalError):
    """There are no messages in this group yet."""


class BadUsage(LocalError):
    """{usage}"""


OWN_COMMANDS = {
    info.name: info
    for info in (
        CommandInfo("switch", "[GROUP]", "switch to another group; without GROUP: list the groups"),
        CommandInfo("history", "[N]", "print the last N events again"),
        CommandInfo("draft", "[send|drop]", "show, send or delete your draft"),
        CommandInfo("admit", "NAME", "accept a join request"),
        CommandInfo("refuse", "NAME", "refuse a join request"),
        CommandInfo("accept", "NAME", "accept a member's invitation to a private conversation"),
        CommandInfo("decline", "NAME", "decline it, without a word to the member"),
    )
}
"""Commands that the TUI does not need."""


def run(chat: Session, name: str, rest: str) -> None:
    """Run a command. Raises LocalError."""
    if name in _HANDLERS:
        _HANDLERS[name](chat, rest)
    elif name in _VERBS:
        _run(chat, _VERBS[name](chat, rest))
    else:
        raise NotInPlainChat(name=name)


def names() -> list[str]:
    """The available commands, in the order of the table."""
    posting = {name for name, info in COMMANDS.items() if info.post is not None}
    return [name for name in (*COMMANDS, *OWN_COMMANDS) if name in _HANDLERS or name in _VERBS or name in posting]


def in_slash_words(sentence: str, group: str) -> str:
    """A sentence whose shell commands are slash commands where there is one for the current group, named `group`."""

    def slash(match: re.Match[str]) -> str:
        try:
            verb, *rest = shlex.split(match[1])
        except ValueError:  # the sentence contains a name with a quotation mark
            return match[0]
        if verb not in names() or (rest and rest.pop(0) not in ("GROUP", group)):
            return match[0]
        return " ".join([f"/{verb}", *rest])

    return _SHELL_COMMAND.sub(slash, sentence)


def _run(chat: Session, words: list[str]) -> ExitCode | int:
    """Run a verb of the command line for the same profile."""
    profile = ["--profile", chat.options.profile] if chat.options.profile else []
    try:
        options = chat.options.parse_verb([*profile, "--format", chat.options.format, *words])
    except SystemExit:  # the error was printed
        return ExitCode.USAGE
    options.listen, options.advertise = chat.options.listen, chat.options.advertise
    options.in_chat = True
    out = WithoutIds(options.format)
    code = options.run(options, out)
    if out.failure is not None:
        raise out.failure
    return code


class WithoutIds(Output):
    """Output without ids, which a screen reader would read out."""

    def data_list(self, values: Sequence[Struct | dict[str, object]], text: Iterable[str]) -> None:
        super().data_list(values, [line for line in text if not _ID.fullmatch(line)])


# --- verbs ----------------------------------------------------------------------------------------------------------


def _here(chat: Session) -> str:
    """The current group: its name if that is unambiguous, otherwise its id. Raises NoGroup."""
    if not chat.group:
        raise NoGroup
    names = [one.name for one in chat.groups.values()]
    name = chat.groups[chat.group].name
    return name if names.count(name) == 1 else chat.group


def _needed(name: str, rest: str) -> str:
    if not rest:
        info = {**COMMANDS, **OWN_COMMANDS}[name]
        if info.argument.startswith("[") and info.argument.endswith("]"):  # optional in the full-screen chat only
            info = replace(info, argument=info.argument[1:-1])
        raise BadUsage(usage=usage_of(info))
    return rest


def _about_group(verb: str, *options: str) -> Callable[[Session, str], list[str]]:
    return lambda chat, rest: [verb, *options, _here(chat)]


def _about_member(verb: str) -> Callable[[Session, str], list[str]]:
    return lambda chat, rest: [verb, "--", _here(chat), _needed(verb, rest)]


def _about_peer(verb: str) -> Callable[[Session, str], list[str]]:
    """A member of the current group, or else a connection."""

    def words(chat: Session, rest: str) -> list[str]:
        wanted = _needed(verb, rest)
        found = chat.client.list_members(chat.group, query=wanted) if chat.group else []
        here = any(wanted.casefold() == one.nick.casefold() for one in found)
        return [verb, "--", f"{chat.group}/{wanted}" if here else wanted]

    return words


def _invite(chat: Session, rest: str) -> list[str]:
    if (arguments := invite_arguments(rest)) is None:
        raise BadUsage(usage=usage_of(COMMANDS["invite"]))
    uses, reader, name = arguments
    options = [*(["--read-only"] if reader else []), *(["--uses", str(uses)] if uses else [])]
    return ["invite", *options, *([f"--name={name}"] if name else []), "--", _here(chat)]


def _role(chat: Session, rest: str) -> list[str]:
    name, _, role = _needed("role", rest).rpartition(" ")
    return ["role", "--", _here(chat), *([name.strip()] if name else []), role]


def _why(chat: Session, rest: str) -> list[str]:
    return ["why", "--", _here(chat), _last(rest)]


def _last(who: str) -> str:
    """The reference to the last message of a member, or to our own."""
    return who if who == "last" or who.startswith("last:") else f"last:{who}" if who else "last"


def _file(what: str) -> Callable[[Session, str], list[str]]:
    return lambda chat, rest: ["files", what, "--", _here(chat), _needed(what, rest)]


def _newest(chat: Session) -> Event:
    """The newest message of the current group. Raises NoMessage."""
    page = chat.client.get_history(_here(chat), limit=NEWEST_EVENTS)
    found = [one for one in page.events if one.type == "message" and not (one.deleted or one.ignored)]
    if not found:
        raise NoMessage
    return found[-1]


def _react(chat: Session, rest: str) -> list[str]:
    emoji = _needed("react", rest)
    return ["react", "--", _here(chat), _newest(chat).id, emoji]


def _unignore(chat: Session, rest: str) -> list[str]:
    return ["ignore", "--undo", "--", _here(chat), _needed("unignore", rest)]


def _read(chat: Session, rest: str) -> list[str]:
    if rest not in ("", "all"):
        raise BadUsage(usage=usage_of(COMMANDS["read"]))
    return ["read", "--all"] if rest else ["read", "--", _here(chat)]


def _topic(chat: Session, rest: str) -> list[str]:
    return ["topic", "--", _here(chat), *([rest.removeprefix("-") if rest == "-" else rest] if rest else [])]


def _edit(chat: Session, rest: str) -> list[str]:
    return ["edit", f"--message={_needed('edit', rest)}", "--", _here(chat), "last"]


def _send(chat: Session, rest: str) -> list[str]:
    return ["send", f"--file={user_path(_needed('send', rest))}", "--", _here(chat)]


def _message(chat: Session, rest: str) -> list[str]:
    name, _, text = _needed("message", rest).partition(" ")
    return ["message", "--", name, _needed("message", text.strip())]


def _mediator(chat: Session, rest: str) -> list[str]:
    word, _, name = rest.partition(" ")
    if word == "remove":
        return ["route", "remove", "--", _needed("mediator", name.strip())]
    return ["route", "add", "--", rest] if rest else ["route"]


def _telemetry(chat: Session, rest: str) -> list[str]:
    word, _, where = rest.strip().partition(" ")
    if word == "export":
        return ["telemetry", "export", "--output", where.strip() or "telemetry"]
    return ["telemetry", *(rest.split() or ["status"])]


def _evidence(chat: Session, rest: str) -> list[str]:
    return ["evidence", "--", _here(chat), *([rest] if rest else [])]


def _proof(chat: Session, rest: str) -> list[str]:
    message, path = message_and_path(_needed("proof", rest))
    out = user_path(_needed("proof", path))
    return ["proof", f"--output={out}", "--", _here(chat), message or _newest(chat).id]


def _export(chat: Session, rest: str) -> list[str]:
    return ["export", *([f"--output={user_path(rest)}"] if rest else []), "--", _here(chat)]


_VERBS: dict[str, Callable[[Session, str], list[str]]] = {
    "cancel": lambda chat, rest: ["join", "--cancel", *([rest] if rest else [])],
    "invite": _invite,
    "requests": _about_group("requests"),
    "admit": _about_member("admit"),
    "accept": lambda chat, rest: ["msg", "--accept", "--", _needed("accept", rest)],
    "decline": lambda chat, rest: ["msg", "--decline", "--", _needed("decline", rest)],
    "refuse": _about_member("refuse"),
    "verify": lambda chat, rest: ["verify", "--", _here(chat), *([rest] if rest else [])],
    "role": _role,
    "remove": _about_member("remove"),
    "transfer": _about_member("transfer"),
    "ignore": lambda chat, rest: ["ignore", "--", _here(chat), *([rest] if rest else [])],
    "unignore": _unignore,
    "dismiss": _about_group("members", "--dismiss"),
    "rename": _about_member("rename"),
    "why": _why,
    "evidence": _evidence,
    "proof": _proof,
    "export": _export,
    "accuse": _about_member("accuse"),
    "cases": _about_group("cases"),
    "info": lambda chat, rest: ["why", "--", _here(chat), _newest(chat).id],
    "react": _react,
    "pin": lambda chat, rest: ["pin", "--", _here(chat), _newest(chat).id],
    "unpin": lambda chat, rest: ["pin", "--off", "--", _here(chat), _newest(chat).id],
    "pins": _about_group("pins"),
    "edit": _edit,
    "delete": lambda chat, rest: ["delete", "--", _here(chat), "last"],
    "topic": _topic,
    "mentions": lambda chat, rest: ["mentions", "--", *rest.split()],
    "read": _read,
    "search": lambda chat, rest: ["search", "--", *_needed("search", rest).split()],
    "profile": lambda chat, rest: ["paths"],
    "send": _send,
    "files": _about_group("files", "list"),
    "get": _file("get"),
    "save": _file("save"),
    "ping": _about_peer("ping"),
    "features": _about_peer("features"),
    "rotate": _about_peer("rotate"),
    "connections": lambda chat, rest: ["connections"],
    "message": _message,
    "messages": lambda chat, rest: ["messages", "--", _needed("messages", rest)],
    "status": lambda chat, rest: ["status"],
    "mediator": _mediator,
    "telemetry": _telemetry,
    **{verb: _about_group(verb) for verb in ("leave", "forget", "resume", "upgrade", "rekey")},
}


# --- session ------------------------------------------------------------------------------------------------------


def _help(chat: Session, rest: str) -> None:
    wanted = rest.lower().removeprefix("/")
    wanted = ALIASES.get(wanted, wanted)
    found = [wanted] if wanted in names() else [known for known in names() if known.startswith(wanted)]
    for name in found if not wanted or wanted not in topics() or wanted in found else ():
        info = COMMANDS.get(name) or OWN_COMMANDS[name]
        narrate(f"{info.usage}: {info.explained}.")
    if not wanted:
        narrate("//TEXT sends /TEXT. All other lines are sent to the group. `zerochat help` lists the manual's pages.")
    elif wanted in topics():
        narrate(printable(read_page(wanted)))
    elif not found:
        narrate(f"No help on {printable_line(rest, 24)}. /help lists the commands, `zerochat help` the manual's pages.")


def _quit(chat: Session, rest: str) -> None:
    chat.over = True


def _switch(chat: Session, rest: str) -> None:
    if rest:
        chat.switch(chat.find(rest))
        return
    chat.refresh()
    for one in chat.groups.values():
        here = ", current" if one.id == chat.group else ""
        left = ", you have left it" if one.state == "left" else ""
        members = "1 member" if one.members == 1 else f"{one.members} members"
        narrate(f"{chat.group_name(one.id)}: {members}, {one.connected} connected{left}{here}.")
    if not chat.groups:
        narrate("No groups yet. /new NAME creates one, /join INVITATION joins one.")


def _new(chat: Session, rest: str) -> None:
    name, named = group_kinds.name_and_kind(rest)
    kind = group_kinds.BY_NAME[named]
    info = chat.client.create_group(
        _needed("new", name), keys=kind.keys, path=kind.path, accountability=kind.accountability
    )
    chat.refresh()
    chat.switch(info.id)
    narrate("Invite others with /invite.")


def _join(chat: Session, rest: str) -> None:
    before = set(chat.groups)
    _run(chat, ["join", "--", _needed("join", rest)])
    chat.refresh()
    if new := [group for group, one in chat.groups.items() if group not in before and one.state == "active"]:
        chat.switch(new[-1])


def _msg(chat: Session, rest: str) -> None:
    _needed("msg", rest)
    nicks = [one.nick for one in chat.client.list_members(chat.group)] if chat.group else []
    titles = [one.name for one in chat.groups.values() if one.private is not None]
    name, text = name_and_text(rest, [*nicks, *titles])
    here = name.casefold() in [one.casefold() for one in nicks]
    info = chat.client.open_conversation(name, chat.group if here else "")
    chat.refresh()
    if info.id != chat.group:
        chat.switch(info.id)
    if info.private is not None and info.private.state != "joined":
        state = private.state_text(info, name_of)
        narrate(f"{state[:1].upper()}{state[1:]}.")
    if text:
        chat.send(text)


def _keep(chat: Session, rest: str) -> None:
    _here(chat)
    if rest:
        chat.client.set_retention(chat.group, keep_rules.read_keep(rest))
    chat.refresh()  # the setting may have changed elsewhere
    narrate(keep_rules.state_sentence(chat.groups[chat.group]))


def _history(chat: Session, rest: str) -> None:
    _here(chat)
    if rest and not (rest.isascii() and rest.isdigit() and 0 < int(rest[:9]) <= HISTORY_EVENTS_MAX):
        raise BadUsage(usage=f"Usage: /history [N], with N from 1 to {HISTORY_EVENTS_MAX}")
    chat.history(int(rest or HISTORY_EVENTS), again=True)


def _members(chat: Session, rest: str) -> None:
    group = _here(chat) and chat.group
    chat.refresh()
    found = chat.client.list_members(group, query=rest)
    members.show_members(chat.out, found, chat.groups[group], rest, _here(chat))


def _delivery(chat: Session, rest: str) -> None:
    members.show_delivery(chat.out, chat.client.get_delivery(_here(chat), _last(rest)))


def _overlay(chat: Session, rest: str) -> None:
    members.show_overlay(chat.out, chat.client.get_overlay(_here(chat)))


def _lan(chat: Session, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise BadUsage(usage="Usage: /lan [on|off]")
    if rest:
        chat.client.call("set_nearby", on=rest == "on", groups=[_here(chat)])
    members.show_nearby(chat.out, chat.client.call("get_nearby"))


def _reply(chat: Session, rest: str) -> None:
    text, about = _needed("reply", rest), _newest(chat)
    chat.send(text, reply_to=about.id)
    narrate(f"Replied to {name_of(about.author.nick)}: {printable_line(str(about.body.get('text', '')), QUOTE_CELLS)}")


def _draft(chat: Session, rest: str) -> None:
    group = _here(chat) and chat.group
    text = chat.drafts.get(group, "")
    if not text:
        narrate("There is no draft.")
    elif rest == "send":
        chat.send(text)
        del chat.drafts[group]
    elif rest == "drop":
        del chat.drafts[group]
        narrate("Deleted the draft.")
    elif rest:
        raise BadUsage(usage="Usage: /draft [send|drop]")
    else:
        for line in printable(text).split("\n"):
            narrate(f"  {line}")


_HANDLERS: dict[str, Callable[[Session, str], None]] = {
    "help": _help,
    "quit": _quit,
    "switch": _switch,
    "new": _new,
    "join": _join,
    "history": _history,
    "keep": _keep,
    "reply": _reply,
    "members": _members,
    "msg": _msg,
    "delivery": _delivery,
    "overlay": _overlay,
    "lan": _lan,
    "draft": _draft,
}
