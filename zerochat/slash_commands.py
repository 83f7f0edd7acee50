"""Slash commands: what a line that somebody typed means before anything is done with it, for every face alike.

A line that looks like a command and is none is refused, never said: a mistyped `/join` must not put an invitation into
the room. `//x` says "/x"; a slash behind spaces is refused with both ways out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from zerochat.terminal_text import Printable, printable_line


@dataclass(frozen=True, slots=True)
class CommandInfo:
    name: str
    argument: str
    help: str
    """What it does, without a full stop."""
    of_peer: bool = False
    """Whether its argument is somebody's name."""
    last: tuple[str, ...] = ()
    """What may stand behind the name, or alone; in other commands, what their argument may be."""
    title: str = ""
    """What the palette calls it, where no key does the same."""
    drastic: bool = False
    """Whether it takes something away for good: a mistyped word never leads to it."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


_ROLES = ("reader", "writer", "admin")
COMMANDS = {
    info.name: info
    for info in (
        CommandInfo("help", "[COMMAND|keys]", "show the commands, all about one, or the keys"),
        CommandInfo("new", "NAME", "create a group"),
        CommandInfo("join", "INVITATION", "join a group with a link or a ZC: code"),
        CommandInfo("cancel", "[GROUP]", "give a join up that is under way", title="Give a join up"),
        CommandInfo("invite", "[USES] [reader]", "make an invitation to this group, for one person or for USES"),
        CommandInfo("invitations", "", "those that are open, and who uses them", title="Open invitations"),
        CommandInfo("requests", "", "answer who asks to join"),
        CommandInfo("members", "", "who is here, and how they are connected"),
        CommandInfo("verify", "[NAME]", "compare words with somebody, or with all", True, title="Verify a member"),
        CommandInfo("role", "[NAME] ROLE", "reader, writer, admin; no NAME: you", True, _ROLES, "Change a role"),
        CommandInfo("remove", "NAME", "put somebody out, or vote for it", True, (), "Put a member out", drastic=True),
        CommandInfo("dismiss", "", "hide the warning above the messages for good", title="Dismiss a warning"),
        CommandInfo("rename", "NAME", "be called something else in this group", title="Change your name here"),
        CommandInfo("me", "TEXT", "say what you do: * alice waves", title="Say what you do"),
        CommandInfo("topic", "[TEXT]", "what this group is about; - as TEXT: nothing", title="Change the topic"),
        CommandInfo("reply", "[TEXT]", "answer the message that is selected, else the newest"),
        CommandInfo("react", "[EMOJI]", "answer it with an emoji, or its name; again takes yours back"),
        CommandInfo("edit", "[TEXT]", "edit your message that is selected, else your newest"),
        CommandInfo("delete", "", "have your message shown no more: who has it may keep it", drastic=True),
        CommandInfo("copy", "", "copy the message that is selected, else the newest"),
        CommandInfo("info", "", "all about that message, and who has it"),
        CommandInfo("send", "PATH", "send a file: a photo, a document, anything", title="Send a file"),
        CommandInfo("files", "", "the files that were sent here, to fetch and save", title="Files"),
        CommandInfo("get", "[FILE]", "fetch a file that is not here yet", title="Fetch a file"),
        CommandInfo("save", "[FILE]", "save a file into your downloads; fetch it first"),
        CommandInfo("delivery", "[NAME]", "who has your last message, or somebody's", of_peer=True),
        CommandInfo("why", "[NAME]", "what has become of it, in sentences", True, title="What became of a message"),
        CommandInfo("evidence", "[MSG]", "what can be proven here, or of a message: the selected one"),
        CommandInfo("proof", "[MSG] PATH", "write a proof of that message into a file", title="Write a proof"),
        CommandInfo(
            "accuse", "NAME", "say in the group's log that somebody withholds a message", True, (), "Accuse a member"
        ),
        CommandInfo("cases", "", "who is accused of what here, and what has come of it", title="Cases"),
        CommandInfo("ping", "NAME", "whether somebody is there, and what the answer proves", True, title="Ping"),
        CommandInfo("features", "NAME", "which protocols somebody's agent speaks", True, title="Features of an agent"),
        CommandInfo("rotate", "NAME", "use a new DID, with new keys, towards somebody", True, title="Rotate my keys"),
        CommandInfo("connections", "", "whom you are connected with outside of groups", title="Connections"),
        CommandInfo("tell", "NAME TEXT", "send a line of text to a connection", title="Write to a connection"),
        CommandInfo("letters", "NAME", "the last lines to and from a connection", title="Read a connection's letters"),
        CommandInfo("search", "[WORDS]", "find what was said, by words, people and dates"),
        CommandInfo("goto", "DATE", "to what was said then: 2026-03-01, 14:00, yesterday, 7d", title="Go to a date"),
        CommandInfo("status", "", "what the agent is doing"),
        CommandInfo("leave", "", "leave this group", drastic=True),
        CommandInfo("forget", "", "delete this group, once you have left it", title="Forget a group", drastic=True),
        CommandInfo(
            "resume", "", "go on here with an older copy of the profile", title="Go on with an older copy", drastic=True
        ),
        CommandInfo("set", "[NAME [VALUE]]", "the settings; change one, - as VALUE: as usual", title="Settings"),
        CommandInfo(
            "mute",
            "[none|mentions|all|for 2h]",
            "what this group tells you of",
            last=("none", "mentions", "all", "for "),
            title="Mute this group",
        ),
        CommandInfo("unmute", "", "this group tells you what others do again", title="Unmute this group"),
        CommandInfo("profile", "", "which profile this is, and where it is kept", title="This profile"),
        CommandInfo("tour", "", "what is where, in five steps", title="The tour"),
        CommandInfo(
            "telemetry",
            "[on|off|show|export DIR|delete]",
            "whether it is recorded how messages fare",
            last=("on", "off", "status", "show", "export ", "delete"),
            title="Telemetry",
        ),
        CommandInfo("quit", "", "end zerochat"),
    )
}


PREFIX_LETTERS_MIN = 3
"""Fewer letters of a command are a habit from elsewhere (`/w`, `/op`) as often as they are ours."""
NEAR_MIN = 0.65
"""How alike what was typed and a command must be (the ratio of difflib): /jion and /join are, /date and /rotate not."""
ELSEWHERE = {"msg": "", "query": "", "dm": "", "nick": "rename", "kick": "remove", "ban": "remove", "op": "role"}
ELSEWHERE |= {"part": "leave", "who": "members", "names": "members", "whois": "members"}
ELSEWHERE |= {"admit": "requests", "refuse": "requests", "ignore": "mute", "exit": "quit"}
ELSEWHERE |= {"date": "goto", "jump": "goto"}
"""Commands that people know from other chats or from a shell, and what they are called here, if they are."""
IN_A_SHELL = {
    *("agent", "audit", "backup", "bot", "case", "chat", "completion", "config", "connect", "demo"),
    *("didcomm", "disconnect", "doctor", "export", "history", "import", "init", "judge", "locate", "log", "man"),
    *("mediator", "passphrase", "restore", "route", "rpc", "sim", "tail", "verify-proof"),
}
"""The verbs of the command line that are nothing here; no face may look into that room."""

_EVENT = re.compile("[A-Za-z0-9_-]{4,43}")
"""An event's id, or the beginning of one."""


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    rest: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """`sentence` says why, and what to do instead."""

    sentence: Printable


Line: TypeAlias = Say | Command | Refusal | None


def parse(text: str, own: Mapping[str, CommandInfo] = MappingProxyType({})) -> Line:
    """What `text` means; None when it is empty. `own`: commands that only one face has."""
    stripped = text.strip()
    if not stripped:
        return None
    if text.startswith("//"):
        return Say(text[1:])
    if not stripped.startswith("/"):
        return Say(text.rstrip().lstrip("\n"))
    if not text.startswith("/"):
        return Refusal(Printable("Spaces before a slash: // says it as it is; without them it is a command."))
    word, _, rest = stripped[1:].partition(" ")
    word, newline, more = word.partition("\n")
    rest = (more + " " + rest if newline else rest).strip()
    name = word.lower()
    known = {**COMMANDS, **own}
    matches = [each for each in known if each.startswith(name)] if name else []
    if name in known:
        return Command(name, rest)
    if ours := ELSEWHERE.get(name):
        return Refusal(Printable(f"Here it is /{ours}. Nothing was sent; // says it as it is."))
    if name in ELSEWHERE:
        return Refusal(Printable(f"/{name} does not exist yet. Nothing was sent; // says it as it is."))
    if name in IN_A_SHELL:
        return Refusal(Printable(f"/{name} is not a command of the chat; in a shell: zerochat {name}"))
    if len(matches) == 1 and len(name) >= PREFIX_LETTERS_MIN and (not rest or known[matches[0]].argument):
        return Command(matches[0], rest)
    return Refusal(_refuse(word, matches))


def message_and_path(rest: str) -> tuple[str, str]:
    """The message and the path that somebody has typed behind a command that takes both; either may be empty. A path
    that looks as an id does, and has a space in it, needs quotes, or ./ before it."""
    rest = rest.strip()
    first, _, path = rest.partition(" ")
    if first == "last" or first.startswith("last:") or (path and _EVENT.fullmatch(first)):
        return first, path.strip()
    return "", rest


def _refuse(word: str, matches: list[str]) -> Printable:
    shown = printable_line(word, 24)
    way_out = "Not sent; // says it as it is."
    if matches:
        return Printable(f"/{shown} could be {' or '.join('/' + each for each in matches)}. {way_out}")
    from difflib import get_close_matches

    harmless = [each.name for each in COMMANDS.values() if not each.drastic]
    nearest = get_close_matches(word.lower()[:32], harmless, n=1, cutoff=NEAR_MIN)
    advice = f"Did you mean /{nearest[0]}?" if nearest else "/help lists them."
    return Printable(f"No command /{shown}. {advice} {way_out}")
