"""Slash commands: what a line in the composer means before anything is done with it.

A line that looks like a command and is none is refused, never said: a mistyped `/join` must not put an invitation into
the room. `//x` says "/x"; a slash behind spaces is refused with both ways out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zerochat.terminal import Printable, printable_line


@dataclass(frozen=True, slots=True)
class CommandInfo:
    name: str
    argument: str
    help: str
    """What it does, without a full stop."""
    of_peer: bool = False
    """Whether its argument is somebody's name."""
    last: tuple[str, ...] = ()
    """What may stand behind the name, or alone."""
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
        CommandInfo("help", "", "show the keys and the commands"),
        CommandInfo("new", "NAME", "create a group"),
        CommandInfo("join", "INVITATION", "join a group with a link or a ZC: code"),
        CommandInfo("cancel", "[GROUP]", "give a join up that is under way", title="Give a join up"),
        CommandInfo("invite", "[USES] [reader]", "make an invitation to this group, for one person or for USES"),
        CommandInfo("requests", "", "answer who asks to join"),
        CommandInfo("members", "", "who is here, and how they are connected"),
        CommandInfo("verify", "[NAME]", "compare words with somebody, or with all", True, title="Verify a member"),
        CommandInfo("role", "[NAME] ROLE", "reader, writer, admin; no NAME: you", True, _ROLES, "Change a role"),
        CommandInfo("remove", "NAME", "put somebody out, or vote for it", True, (), "Put a member out", drastic=True),
        CommandInfo("dismiss", "", "hide the warning above the messages for good", title="Dismiss a warning"),
        CommandInfo("rename", "NAME", "be called something else in this group", title="Change your name here"),
        CommandInfo("delivery", "[NAME]", "who has your last message, or somebody's", of_peer=True),
        CommandInfo("why", "[NAME]", "what has become of it, in sentences", True, title="What became of a message"),
        CommandInfo("ping", "NAME", "whether somebody is there, and what the answer proves", of_peer=True),
        CommandInfo("features", "NAME", "which protocols somebody's agent speaks", of_peer=True),
        CommandInfo("rotate", "NAME", "use a new DID, with new keys, towards somebody", of_peer=True),
        CommandInfo("connections", "", "whom you are connected with outside of groups"),
        CommandInfo("tell", "NAME TEXT", "send a line of text to a connection"),
        CommandInfo("letters", "NAME", "the last lines to and from a connection"),
        CommandInfo("status", "", "what the agent is doing"),
        CommandInfo("leave", "", "leave this group", drastic=True),
        CommandInfo("forget", "", "delete this group, once you have left it", title="Forget a group", drastic=True),
        CommandInfo(
            "resume", "", "go on here with an older copy of the profile", title="Go on with an older copy", drastic=True
        ),
        CommandInfo("quit", "", "end zerochat"),
    )
}


PREFIX_LETTERS_MIN = 3
"""Fewer letters of a command are a habit from elsewhere (`/me`, `/w`) as often as they are ours."""
ELSEWHERE = {"me": "", "msg": "", "nick": "rename", "kick": "remove", "ban": "remove", "op": "role"}
ELSEWHERE |= {"admit": "requests", "refuse": "requests"}
"""Commands that people know from other chats or from a shell, and what they are called here, if they are."""
IN_A_SHELL = {
    *("agent", "audit", "backup", "chat", "connect", "demo", "didcomm", "disconnect", "export", "history", "import"),
    *("info", "init", "locate", "mediator", "passphrase", "restore", "route", "send", "sim", "tail"),
}
"""The verbs of the command line that are nothing here; no face may look into that room."""


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


def parse(text: str) -> Line:
    """What `text` means; None when it is empty."""
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
    matches = [each for each in COMMANDS if each.startswith(name)] if name else []
    if name in COMMANDS:
        return Command(name, rest)
    if ours := ELSEWHERE.get(name):
        return Refusal(Printable(f"Here it is /{ours}. Nothing was sent; // says it as it is."))
    if name in ELSEWHERE:
        return Refusal(Printable(f"/{name} does not exist yet. Nothing was sent; // says it as it is."))
    if name in IN_A_SHELL:
        return Refusal(Printable(f"/{name} is not a command of the chat; in a shell: zerochat {name}"))
    if len(matches) == 1 and len(name) >= PREFIX_LETTERS_MIN and (not rest or COMMANDS[matches[0]].argument):
        return Command(matches[0], rest)
    return Refusal(_refuse(word, matches))


def _refuse(word: str, matches: list[str]) -> Printable:
    shown = printable_line(word, 24)
    way_out = "Not sent; // says it as it is."
    if matches:
        return Printable(f"/{shown} could be {' or '.join('/' + each for each in matches)}. {way_out}")
    from difflib import get_close_matches

    harmless = [each.name for each in COMMANDS.values() if not each.drastic]
    nearest = get_close_matches(word.lower()[:32], harmless, n=1, cutoff=0.5)
    advice = f"Did you mean /{nearest[0]}?" if nearest else "/help lists them."
    return Printable(f"No command /{shown}. {advice} {way_out}")


def candidates(text: str) -> list[str] | None:
    """The commands that the composer's text can become; None when it is not the beginning of a command."""
    if not text.startswith("/") or text.startswith("//") or " " in text or "\n" in text:
        return None
    return [each for each in COMMANDS if each.startswith(text[1:].lower())]


def names_for(text: str, names: Sequence[str]) -> list[str] | None:
    """Those of `names` that the composer's text can become; None when it is not a command about somebody."""
    word, space, start = text.partition(" ")
    info = COMMANDS.get(word[1:].lower()) if word.startswith("/") else None
    if info is None or not info.of_peer or not space or "\n" in text:
        return None
    typed = start.lstrip().casefold()
    behind = [f"{each} {last}" for each in names if typed.startswith(f"{each.casefold()} ") for last in info.last]
    return [each for each in (*names, *info.last, *behind) if each.casefold().startswith(typed)]


def complete(text: str, names: Sequence[str] = ()) -> str | None:
    """The composer's text with its command, or the name behind it, completed; None when there is nothing to complete.

    `names` are those of the people that a command may be about.
    """
    matches = candidates(text)
    if matches:
        return f"/{matches[0]} " if len(matches) == 1 else _longer(text, [f"/{each}" for each in matches])
    word = text.partition(" ")[0]
    named = names_for(text, names)
    return _longer(text, [f"{word} {each}" for each in named]) if named else None


def _longer(text: str, matches: list[str]) -> str | None:
    """What all matches begin with, when that says more than `text`."""
    common = matches[0]
    while not all(each.startswith(common) for each in matches):
        common = common[:-1]
    return common if len(common) > len(text) else None
