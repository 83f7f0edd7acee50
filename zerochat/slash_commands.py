"""Slash commands: the command table of both chats, and the parser of an input line.

A command is one row of COMMANDS: usage, help, completion and, for a command that only posts a text (`/me`), the post.
A line that looks like a command but is none is refused and never sent: a mistyped `/join` must not post an invitation.
`//x` sends "/x".
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from zerochat.errors import LocalError
from zerochat.terminal_text import Printable, printable_line


class SeveralNames(LocalError):
    """This begins with several names: {names}. The line was not sent: put the right one in quotes."""


@dataclass(frozen=True, slots=True)
class Post:
    """A text to send to the group; `action`: as in `/me`."""

    text: str
    action: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """`sentence`: why the line was not sent, and what to do instead."""

    sentence: Printable


Line: TypeAlias = Post | Command | Refusal | None


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """One row of the command table."""

    name: str
    argument: str
    help: str
    """What it does, without a full stop."""
    of_peer: bool = False
    """Whether its argument is the name of a member."""
    last: tuple[str, ...] = ()
    """Completions after the name, or alone; without `of_peer`, completions of the argument."""
    title: str = ""
    """Name in the command palette, for commands without a key."""
    drastic: bool = False
    """Whether it cannot be undone: a mistyped word is never corrected to it."""
    post: Callable[[str], Post] | None = None
    """For a command that only posts: its argument as a post. No client needs a handler for it."""
    aliases: tuple[str, ...] = ()
    """Its names in other chats, which do the same."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()

    @property
    def explained(self) -> str:
        """Its help with its other names."""
        others = ", ".join(f"/{alias}" for alias in self.aliases)
        return f"{self.help} (also {others})" if others else self.help


_ROLES = ("reader", "writer", "admin")
COMMANDS = {
    info.name: info
    for info in (
        CommandInfo("help", "[COMMAND|TOPIC]", "list the commands, explain one, or show a page of the manual"),
        CommandInfo(
            "new", "NAME [--kind KIND]", "create a group, by default `private`; up to 64 members, `large` up to 1,000"
        ),
        CommandInfo("join", "INVITATION", "join a group with an invitation link or ZC: code"),
        CommandInfo("cancel", "[GROUP]", "cancel a pending join", title="Cancel a join"),
        CommandInfo(
            "invite", "[USES] [reader] [NAME]", "create an invitation, for one member or USES; NAME: what you call it"
        ),
        CommandInfo("invitations", "", "list the open invitations and who used them", title="Open invitations"),
        CommandInfo("requests", "", "answer join requests and private invitations"),
        CommandInfo(
            "members",
            "[NAME]",
            "list the members and their connections, or find some by a part of the name",
            True,
            aliases=("names", "who", "whois"),
        ),
        CommandInfo(
            "msg",
            "NAME [TEXT]",
            "open the private conversation with a member, and send TEXT there",
            True,
            title="Private conversation",
            aliases=("query", "dm"),
        ),
        CommandInfo(
            "verify", "[NAME]", "compare safety words with a member, or with all", True, title="Verify a member"
        ),
        CommandInfo("role", "[NAME] ROLE", "set a role; without NAME: yours", True, _ROLES, "Change a role"),
        CommandInfo(
            "transfer", "NAME", "make a member the owner in your place", True, title="Hand over the group", drastic=True
        ),
        CommandInfo(
            "remove",
            "NAME",
            "remove a member, or vote for it",
            True,
            (),
            "Remove a member",
            drastic=True,
            aliases=("kick",),
        ),
        CommandInfo(
            "ignore",
            "[NAME]",
            "hide the messages of a member from you; alone: list the ignored",
            True,
            title="Ignore a member",
        ),
        CommandInfo("unignore", "NAME", "show the messages of a member again", True, title="Stop ignoring a member"),
        CommandInfo("dismiss", "", "dismiss the warning above the messages", title="Dismiss a warning"),
        CommandInfo(
            "rename",
            "NAME",
            "change your display name in this group",
            title="Change your name here",
            aliases=("nick",),
        ),
        CommandInfo(
            "me", "TEXT", "send an action: * alice waves", title="Send an action", post=lambda text: Post(text, True)
        ),
        CommandInfo("topic", "[TEXT]", "show or set the topic; - removes it", title="Change the topic"),
        CommandInfo(
            "keep",
            "[TIME]",
            "show or set how long messages stay on this machine: 12h, 30d, 4w or forever",
            last=("1d", "1w", "30d", "forever"),
            title="Disappearing messages",
        ),
        CommandInfo("reply", "[TEXT]", "reply to the selected message, or the newest"),
        CommandInfo("react", "[EMOJI]", "react with an emoji or its name; again withdraws it"),
        CommandInfo("edit", "[TEXT]", "edit your selected message, or your newest"),
        CommandInfo("delete", "", "delete your message for all; copies may remain", drastic=True),
        CommandInfo("pin", "", "pin the selected message, or the newest, for all members", title="Pin a message"),
        CommandInfo("unpin", "", "unpin the selected message, or the newest", title="Unpin a message"),
        CommandInfo("pins", "", "list the pinned messages and jump to one", title="Pinned messages"),
        CommandInfo("copy", "", "copy the selected message, or the newest"),
        CommandInfo(
            "overlay",
            "",
            "show whom you are linked to here, and what each link has carried",
            title="Connections of this group",
        ),
        CommandInfo(
            "lan",
            "[on|off]",
            "find the members here on networks of this machine, without internet",
            last=("on", "off"),
            title="Members nearby",
        ),
        CommandInfo("info", "", "show the selected message, or the newest, with its recipients"),
        CommandInfo("send", "PATH", "send a file", title="Send a file"),
        CommandInfo("files", "", "list the files of this group", title="Files"),
        CommandInfo("get", "[FILE]", "download a file", title="Download a file"),
        CommandInfo("save", "[FILE]", "save a file to your downloads folder"),
        CommandInfo("delivery", "[NAME]", "show who has received your last message, or a member's", of_peer=True),
        CommandInfo(
            "why",
            "[NAME]",
            "explain the state of your last message, or a member's",
            of_peer=True,
            title="Explain a message's state",
        ),
        CommandInfo("evidence", "[MSG]", "show what can be proven here, or about a message"),
        CommandInfo("proof", "[MSG] PATH", "write a proof of a message to a file", title="Write a proof"),
        CommandInfo("export", "[PATH]", "write the log of this group to a new file", title="Export this group"),
        CommandInfo("accuse", "NAME", "accuse a member of withholding a message", True, (), "Accuse a member"),
        CommandInfo("cases", "", "list the accusations and their outcomes", title="Cases"),
        CommandInfo("ping", "NAME", "check whether a member answers", True, title="Ping"),
        CommandInfo("features", "NAME", "list the protocols of a member's agent", True, title="Features of an agent"),
        CommandInfo("rotate", "NAME", "rotate your DID and keys towards a member", True, title="Rotate my keys"),
        CommandInfo("connections", "", "list the connections outside of groups", title="Connections"),
        CommandInfo(
            "message",
            "NAME TEXT",
            "send a message to a connection outside of groups",
            title="Message a connection",
        ),
        CommandInfo("messages", "NAME", "show the messages of a connection", title="Messages of a connection"),
        CommandInfo(
            "mediator",
            "[LINK|remove NAME]",
            "receive messages through a mediator; alone: list yours",
            last=("remove ",),
            title="Mediators",
            aliases=("route",),
        ),
        CommandInfo("search", "[WORDS]", "search messages by words, authors and dates"),
        CommandInfo("mentions", "[WORDS]", "list the messages that mention you", title="Mentions of me"),
        CommandInfo("read", "[all]", "mark this group as read, or all groups", last=("all",), title="Mark as read"),
        CommandInfo(
            "goto",
            "DATE",
            "jump to a date: 2026-03-01, 14:00, yesterday, 7d",
            title="Go to a date",
            aliases=("date", "jump"),
        ),
        CommandInfo("status", "", "show the state of the agent"),
        CommandInfo("leave", "", "leave this group", drastic=True, aliases=("part",)),
        CommandInfo("forget", "", "delete this group, after you have left it", title="Forget a group", drastic=True),
        CommandInfo(
            "upgrade",
            "",
            "agree to upgrade the keys of this group, for good",
            title="Upgrade the keys",
            drastic=True,
        ),
        CommandInfo("rekey", "", "renew the keys of this group", title="Renew the keys"),
        CommandInfo("resume", "", "allow posting here after a restore", title="Resume after a restore", drastic=True),
        CommandInfo("set", "[NAME [VALUE]]", "show or change settings; - as VALUE: the default", title="Settings"),
        CommandInfo(
            "mute",
            "[none|mentions|all|for 2h]",
            "set the notifications of this group",
            last=("none", "mentions", "all", "for "),
            title="Mute this group",
        ),
        CommandInfo("unmute", "", "turn the notifications of this group on again", title="Unmute this group"),
        CommandInfo("profile", "", "show the profile and its paths", title="This profile"),
        CommandInfo("tour", "", "show the tour of the screen, in five steps", title="The tour"),
        CommandInfo(
            "telemetry",
            "[on|off|show|export DIR|delete]",
            "record delivery statistics on this machine",
            last=("on", "off", "status", "show", "export ", "delete"),
            title="Telemetry",
        ),
        CommandInfo("quit", "", "quit zerochat", aliases=("exit",)),
    )
}


PREFIX_LETTERS_MIN = 3
"""Minimum length of an abbreviation: shorter ones (`/w`, `/op`) are often habits from other chats."""
NEAR_MIN = 0.65
"""Minimum similarity of a suggestion (ratio of difflib): /jion and /join pass, /date and /rotate do not."""
ALIASES = {alias: info.name for info in COMMANDS.values() for alias in info.aliases}
ELSEWHERE = {"ban": "remove", "op": "role"}
ELSEWHERE |= {"admit": "requests", "refuse": "requests"}
"""Commands of other chats and shells that take other arguments than their counterpart here."""
IN_A_SHELL = {
    *("agent", "audit", "backup", "bot", "case", "chat", "completion", "config", "connect", "demo"),
    *("didcomm", "disconnect", "doctor", "history", "import", "init", "judge", "man"),
    *("passphrase", "paths", "restore", "rpc", "sim", "tail", "tlog", "verify-proof"),
}
"""Verbs of the command line without a slash command; clients must not import the command line."""

NOT_SENT = "Not sent; // sends it as text."
_EVENT = re.compile("[A-Za-z0-9_-]{4,43}")
"""The id of an event, or a prefix of one."""


def named(name: str) -> CommandInfo | None:
    """The command with this name or alias, in any case."""
    name = name.lower()
    return COMMANDS.get(ALIASES.get(name, name))


def usage_of(info: CommandInfo) -> Printable:
    """The usage error of a command."""
    return Printable(f"Usage: {info.usage} ({info.help})")


def parse(text: str, own: Mapping[str, CommandInfo] = MappingProxyType({})) -> Line:
    """The meaning of an input line; None if it is empty. `own`: additional commands of the client."""
    stripped = text.strip()
    if not stripped:
        return None
    if text.startswith("//"):
        return Post(text[1:])
    if not stripped.startswith("/"):
        return Post(text.rstrip().lstrip("\n"))
    if not text.startswith("/"):
        return Refusal(Printable("Remove the spaces before the command, or type // to send it as text."))
    word, _, argument = stripped[1:].partition(" ")
    word, newline, more = word.partition("\n")
    argument = (more + " " + argument if newline else argument).strip()
    name = word.lower()
    known = {**COMMANDS, **{alias: COMMANDS[target] for alias, target in ALIASES.items()}, **own}
    matches = list(dict.fromkeys(info.name for word, info in known.items() if word.startswith(name))) if name else []
    if name in known:
        return _command(known[name], argument)
    if counterpart := ELSEWHERE.get(name):
        return Refusal(Printable(f"Use /{counterpart}. {NOT_SENT}"))
    if name in IN_A_SHELL:
        return Refusal(Printable(f"/{name} is not a chat command. In a shell: zerochat {name}"))
    if len(matches) == 1 and len(name) >= PREFIX_LETTERS_MIN and (not argument or known[matches[0]].argument):
        return _command(known[matches[0]], argument)
    return Refusal(_unknown(word, matches))


def _command(info: CommandInfo, argument: str) -> Line:
    if argument and not info.argument:  # as in `/leave work`, which would leave this group
        return Refusal(Printable(f"/{info.name} takes no argument. {NOT_SENT}"))
    if info.post is None:
        return Command(info.name, argument)
    return info.post(argument) if argument or info.argument.startswith("[") else Refusal(usage_of(info))


def message_and_path(argument: str) -> tuple[str, str]:
    """The message and the path in the argument of a command that takes both; either may be empty.

    A path that looks like an id and contains a space must be quoted, or start with ./.
    """
    argument = argument.strip()
    first, _, path = argument.partition(" ")
    if first == "last" or first.startswith("last:") or (path and _EVENT.fullmatch(first)):
        return first, path.strip()
    return "", argument


def name_and_text(argument: str, names: Iterable[str]) -> tuple[str, str]:
    """The name and the text in the argument of a command that takes both. Names may contain spaces, and are found in
    any case and with or without @; quotes delimit a name. Raises SeveralNames: members choose their names, and the text
    for "Bob" must not go to "Bob the"."""
    argument = argument.strip()
    if argument.startswith('"'):
        name, _, text = argument[1:].partition('"')
        return name.strip(), text.strip()
    argument = argument.removeprefix("@")
    folded = argument.casefold()
    known = [name for name in names if folded == name.casefold() or folded.startswith(f"{name.casefold()} ")]
    longest = max(known, key=len, default="")
    if folded != longest.casefold() and len({name.casefold() for name in known}) > 1:
        raise SeveralNames(names=", ".join(f'"{name}"' for name in sorted(known, key=len)[:3]))
    if longest:
        return argument[: len(longest)], argument[len(longest) :].strip()
    name, _, text = argument.partition(" ")
    return name, text.strip()


def _unknown(word: str, matches: list[str]) -> Printable:
    shown = printable_line(word, 24)
    if matches:
        return Printable(f"No command /{shown}. Did you mean {' or '.join('/' + name for name in matches)}? {NOT_SENT}")
    from difflib import get_close_matches

    harmless = [name for info in COMMANDS.values() if not info.drastic for name in (info.name, *info.aliases)]
    nearest = get_close_matches(word.lower()[:32], harmless, n=1, cutoff=NEAR_MIN)
    advice = f"Did you mean /{nearest[0]}?" if nearest else "See /help."
    return Printable(f"No command /{shown}. {advice} {NOT_SENT}")


def invite_arguments(text: str) -> tuple[int | None, bool, str] | None:
    """The arguments of /invite: uses (None: the default), whether read-only, and the name of the invitation. None: a
    misplaced or mistyped `reader`, or number, which must not become the name of an invitation to write."""
    words = text.split()
    uses = int(words.pop(0)) if words and re.fullmatch(r"[1-9][0-9]{0,2}", words[0], re.ASCII) else None
    reader = words[:1] == ["reader"]
    name = words[reader:]
    if (uses is None and name and name[0].isdigit()) or any(map(_means_reader, name)):
        return None
    return uses, reader, " ".join(name)


def _means_reader(word: str) -> bool:
    from difflib import get_close_matches

    word = word.lower().strip(".,")
    abbreviated = len(word) > 1 and "reader".startswith(word)
    return abbreviated or bool(get_close_matches(word, ("reader", "readonly", "read-only", "viewer"), 1, 0.75))
