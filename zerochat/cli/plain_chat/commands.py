"""What the commands do in the chat of lines. Most are the verbs of the same name, with the open group put in: they
read, ask and print as in a shell. The others are about this conversation itself.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, name_of, narrate, near_time, wanted_out
from zerochat.cli.parser import parse as parse_verb
from zerochat.errors import LocalError
from zerochat.presentation import delivery, group_rules
from zerochat.rpc import Event, MemberDelivery, MemberInfo
from zerochat.slash_commands import COMMANDS, CommandInfo, message_and_path
from zerochat.terminal_text import printable, printable_line

if TYPE_CHECKING:
    from zerochat.cli.plain_chat.chat import Chat

HISTORY_EVENTS = 20
HISTORY_EVENTS_MAX = 500
NEWEST_EVENTS = 50
"""Among so many the newest message is looked for."""
QUOTE_CELLS = 60


_ID = re.compile("[A-Za-z0-9_-]{43}")
"""Of an event or a group."""


class NoGroup(LocalError):
    """There is no group open: /switch GROUP opens one, /new NAME creates one, /join INVITATION joins one."""


class OnTheScreen(LocalError):
    """/{name} is for the chat with a screen: `zerochat`. Here, /help lists what there is."""


class NoMessage(LocalError):
    """Nobody has said anything here yet, as far as is known."""


class NotSo(LocalError):
    """{usage}"""


MORE = {
    info.name: info
    for info in (
        CommandInfo("switch", "GROUP", "write to another group; no GROUP: which there are"),
        CommandInfo("history", "[N]", "the last N lines again"),
        CommandInfo("draft", "[send|drop]", "what you have begun here: show it, send it, or forget it"),
        CommandInfo("admit", "NAME", "let somebody in who asks to join"),
        CommandInfo("refuse", "NAME", "do not let somebody in who asks to join"),
    )
}
"""Commands that the chat with a screen needs no words for."""


def do(chat: "Chat", name: str, rest: str) -> None:
    """Do one command. Raises LocalError with the sentence for the person."""
    if name in _OWN:
        _OWN[name](chat, rest)
    elif name in _VERBS:
        _run(chat, _VERBS[name](chat, rest))
    else:
        raise OnTheScreen(name=name)


def known() -> list[str]:
    """The commands that there are, in the order of the table."""
    return [name for name in (*COMMANDS, *MORE) if name in _OWN or name in _VERBS]


def _run(chat: "Chat", words: list[str]) -> ExitCode | int:
    """A verb of the command line, about the same profile."""
    profile = ["--profile", chat.options.profile] if chat.options.profile else []
    try:
        options = parse_verb([*profile, "--format", chat.options.format, *words])
    except SystemExit:  # what was wrong has been said
        return ExitCode.USAGE
    options.listen, options.advertise = chat.options.listen, chat.options.advertise
    return chat.run_verb(options, Spoken(options.format))


class Spoken(Output):
    """Without the ids that a script would read: here they would be read out."""

    def data_list(self, values: Sequence[Struct | dict[str, object]], text: Iterable[str]) -> None:
        super().data_list(values, [line for line in text if not _ID.fullmatch(line)])


# --- verbs ----------------------------------------------------------------------------------------------------------


def _here(chat: "Chat") -> str:
    """The open group, by its name where no other has that. Raises NoGroup."""
    if not chat.group:
        raise NoGroup
    names = [one.name for one in chat.groups.values()]
    name = chat.groups[chat.group].name
    return name if names.count(name) == 1 else chat.group


def _needed(name: str, rest: str) -> str:
    if not rest:
        info = {**COMMANDS, **MORE}[name]
        raise NotSo(usage=f"{info.usage}: {info.help}.")
    return rest


def _about_group(verb: str, *options: str) -> Callable[["Chat", str], list[str]]:
    return lambda chat, rest: [verb, *options, _here(chat)]


def _about_member(verb: str) -> Callable[["Chat", str], list[str]]:
    return lambda chat, rest: [verb, "--", _here(chat), _needed(verb, rest)]


def _about_peer(verb: str) -> Callable[["Chat", str], list[str]]:
    """A member of the open group, or else a connection."""

    def words(chat: "Chat", rest: str) -> list[str]:
        wanted = _needed(verb, rest)
        members = chat.client.members(chat.group) if chat.group else []
        here = any(wanted.casefold() == one.nick.casefold() for one in members)
        return [verb, "--", f"{chat.group}/{wanted}" if here else wanted]

    return words


def _invite(chat: "Chat", rest: str) -> list[str]:
    words = rest.split()
    reader = ["--read-only"] if words[-1:] == ["reader"] else []
    uses = words[: len(words) - len(reader)]
    return ["invite", *reader, *(["--uses", uses[0]] if uses else []), "--", _here(chat), *uses[1:]]


def _role(chat: "Chat", rest: str) -> list[str]:
    name, _, role = _needed("role", rest).rpartition(" ")
    return ["role", "--", _here(chat), *([name.strip()] if name else []), role]


def _why(chat: "Chat", rest: str) -> list[str]:
    return ["why", "--", _here(chat), _last(rest)]


def _last(who: str) -> str:
    """The last message of somebody, or one's own, as a verb wants it; whoever knows the verbs may say it so already."""
    return who if who == "last" or who.startswith("last:") else f"last:{who}" if who else "last"


def _file(what: str) -> Callable[["Chat", str], list[str]]:
    return lambda chat, rest: ["files", what, "--", _here(chat), _needed(what, rest)]


def _newest(chat: "Chat") -> Event:
    """The newest message of the open group. Raises NoMessage."""
    page = chat.client.history(_here(chat), limit=NEWEST_EVENTS)
    found = [one for one in page.events if one.type == "message" and not one.deleted]
    if not found:
        raise NoMessage
    return found[-1]


def _react(chat: "Chat", rest: str) -> list[str]:
    emoji = _needed("react", rest)
    return ["react", "--", _here(chat), _newest(chat).id, emoji]


def _topic(chat: "Chat", rest: str) -> list[str]:
    return ["topic", "--", _here(chat), *([rest.removeprefix("-") if rest == "-" else rest] if rest else [])]


def _edit(chat: "Chat", rest: str) -> list[str]:
    return ["edit", f"--message={_needed('edit', rest)}", "--", _here(chat), "last"]


def _send(chat: "Chat", rest: str) -> list[str]:
    return ["send", f"--file={Path(_needed('send', rest)).expanduser()}", "--", _here(chat)]


def _tell(chat: "Chat", rest: str) -> list[str]:
    name, _, text = _needed("tell", rest).partition(" ")
    return ["tell", "--", name, _needed("tell", text.strip())]


def _telemetry(chat: "Chat", rest: str) -> list[str]:
    word, _, where = rest.strip().partition(" ")
    if word == "export":
        return ["telemetry", "export", "--out", where.strip() or "telemetry"]
    return ["telemetry", *(rest.split() or ["status"])]


def _evidence(chat: "Chat", rest: str) -> list[str]:
    return ["evidence", "--", _here(chat), *([rest] if rest else [])]


def _proof(chat: "Chat", rest: str) -> list[str]:
    message, path = message_and_path(_needed("proof", rest))
    out = Path(_needed("proof", path)).expanduser()
    return ["proof", f"--out={out}", "--", _here(chat), message or _newest(chat).id]


_VERBS: dict[str, Callable[["Chat", str], list[str]]] = {
    "cancel": lambda chat, rest: ["join", "--cancel", *([rest] if rest else [])],
    "invite": _invite,
    "requests": _about_group("requests"),
    "admit": _about_member("admit"),
    "refuse": _about_member("refuse"),
    "verify": lambda chat, rest: ["verify", "--", _here(chat), *([rest] if rest else [])],
    "role": _role,
    "remove": _about_member("remove"),
    "dismiss": _about_group("members", "--dismiss"),
    "rename": _about_member("rename"),
    "why": _why,
    "evidence": _evidence,
    "proof": _proof,
    "accuse": _about_member("accuse"),
    "cases": _about_group("cases"),
    "info": lambda chat, rest: ["why", "--", _here(chat), _newest(chat).id],
    "react": _react,
    "edit": _edit,
    "delete": lambda chat, rest: ["delete", "--", _here(chat), "last"],
    "topic": _topic,
    "search": lambda chat, rest: ["search", "--", *_needed("search", rest).split()],
    "profile": lambda chat, rest: ["locate"],
    "send": _send,
    "files": _about_group("files", "list"),
    "get": _file("get"),
    "save": _file("save"),
    "ping": _about_peer("ping"),
    "features": _about_peer("features"),
    "rotate": _about_peer("rotate"),
    "connections": lambda chat, rest: ["connections"],
    "tell": _tell,
    "letters": lambda chat, rest: ["letters", "--", _needed("letters", rest)],
    "status": lambda chat, rest: ["status"],
    "telemetry": _telemetry,
    "leave": _about_group("leave"),
    "forget": _about_group("forget"),
    "resume": _about_group("resume"),
}


# --- this conversation ----------------------------------------------------------------------------------------------


def _help(chat: "Chat", rest: str) -> None:
    one = rest.lower().removeprefix("/")
    for name in [each for each in known() if each.startswith(one)] or known():
        info = COMMANDS.get(name) or MORE[name]
        narrate(f"{info.usage}: {info.help}.")
    narrate("//WORDS says /WORDS. What is not a command goes to the group.")


def _quit(chat: "Chat", rest: str) -> None:
    chat.over = True


def _switch(chat: "Chat", rest: str) -> None:
    if rest:
        chat.go(chat.meant(rest))
        return
    chat.refresh()
    for one in chat.groups.values():
        here = ", open" if one.id == chat.group else ""
        left = ", you are no longer in it" if one.state == "left" else ""
        narrate(f"{chat.called(one.id)}: {one.members} members, {one.connected} connected{left}{here}.")
    if not chat.groups:
        narrate("No groups yet. /new NAME creates one, /join INVITATION joins one.")


def _new(chat: "Chat", rest: str) -> None:
    info = chat.client.new(_needed("new", rest))
    chat.refresh()
    chat.go(info.id)
    narrate("/invite brings others in.")


def _join(chat: "Chat", rest: str) -> None:
    before = set(chat.groups)
    _run(chat, ["join", "--", _needed("join", rest)])
    chat.refresh()
    if new := [group for group, one in chat.groups.items() if group not in before and one.state == "active"]:
        chat.go(new[-1])


def _history(chat: "Chat", rest: str) -> None:
    _here(chat)
    if rest and not (rest.isascii() and rest.isdigit() and 0 < int(rest[:9]) <= HISTORY_EVENTS_MAX):
        raise NotSo(usage=f"/history takes how many lines, from 1 to {HISTORY_EVENTS_MAX}.")
    chat.history(int(rest or HISTORY_EVENTS), again=True)


def _members(chat: "Chat", rest: str) -> None:
    group = _here(chat) and chat.group
    members = chat.client.members(group)
    chat.out.data_list(members, [_member(one) for one in members])
    chat.refresh()
    for line in wanted_out(chat.groups[group]):
        narrate(f"{line}.")


def _member(one: MemberInfo) -> str:
    """Somebody in one sentence, which can be listened to."""
    said = ["you" if one.connection == "self" else one.connection if one.arrived else "has never arrived", one.role]
    said += ["a bot"] * one.bot + ["keeps the history"] * one.keeper
    said += ["verified"] * (one.trust == "verified") + ["NOT whom you have verified"] * (one.trust == "changed")
    said += [group_rules.guilt(one)] * bool(one.guilty)
    said += ["has signed two histories"] * one.forked
    if one.connection != "self":
        said.append(f"last heard {near_time(one.last_heard)}" if one.last_heard else "never heard")
    return f"{name_of(one.nick)}: {', '.join(said)}."


def _delivery(chat: "Chat", rest: str) -> None:
    report = chat.client.delivery(_here(chat), _last(rest))
    lines = [_has(one) for one in report.members if one.connection != "self"]
    chat.out.data(report, [*lines, f"{report.delivered} of {report.of} have it."])


def _has(one: MemberDelivery) -> str:
    if one.delivered:
        return f"{name_of(one.nick)} has it{f' since {near_time(one.at)}' if one.at else ''}."
    how = f"held by its mediator until {near_time(one.held_until)}" if one.held_until else delivery.STATES[one.state]
    return f"{name_of(one.nick)} does not have it, as far as is known: {how}."


def _me(chat: "Chat", rest: str) -> None:
    chat.say(_needed("me", rest), action=True)


def _reply(chat: "Chat", rest: str) -> None:
    text, about = _needed("reply", rest), _newest(chat)
    chat.say(text, reply_to=about.id)
    narrate(
        f"An answer to {name_of(about.author.nick)}: {printable_line(str(about.body.get('text', '')), QUOTE_CELLS)}"
    )


def _draft(chat: "Chat", rest: str) -> None:
    group = _here(chat) and chat.group
    text = chat.aside.get(group, "")
    if not text:
        narrate("Nothing is begun here.")
    elif rest == "send":
        chat.say(text)
        del chat.aside[group]
    elif rest == "drop":
        del chat.aside[group]
        narrate("Forgotten.")
    elif rest:
        raise NotSo(usage="/draft shows it, /draft send sends it, /draft drop forgets it.")
    else:
        for line in printable(text).split("\n"):
            narrate(f"  {line}")


_OWN: dict[str, Callable[["Chat", str], None]] = {
    "help": _help,
    "quit": _quit,
    "switch": _switch,
    "new": _new,
    "join": _join,
    "history": _history,
    "me": _me,
    "reply": _reply,
    "members": _members,
    "delivery": _delivery,
    "draft": _draft,
}
