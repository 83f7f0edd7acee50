"""What can stand where the cursor is: commands and what they take, the people here, emoji by their names.

Plain values in and out; which of them is taken, and how they are shown, is the composer's business.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zerochat.rpc import AnnouncedCommand, MemberInfo
from zerochat.terminal_text import Printable, cells, printable_line
from zerochat.tui.composer.commands import COMMANDS, candidates, names_for
from zerochat.tui.composer.emoji import find

EMOJI_MAX = 12
LETTERS_MIN = 2
"""Of a name in the middle of a line, and of an emoji: with fewer, there is nothing to complete."""
LINES_MAX = 3
"""Of the list above the composer."""
NAMED = ("tell", "letters")
"""The commands that are about a connection."""


BOT = "!"
"""What a message to a bot begins with."""
NAME_CELLS_MAX, USAGE_CELLS_MAX, NICK_CELLS_MAX = 32, 48, 16
HINT_CELLS_MAX = 110


@dataclass(frozen=True, slots=True)
class Asking:
    """A command that a bot of this group listens to."""

    name: Printable
    hint: Printable
    """The command with what is typed behind it, and what it does, as the bot says."""


@dataclass(frozen=True, slots=True)
class Offer:
    """`text`: what stands before the cursor then. `label`: how it is called in the list."""

    text: str
    label: Printable


def asking(members: Iterable[MemberInfo]) -> list[Asking]:
    """What can be asked of those among these who are bots."""
    return [
        Asking(printable_line(one.name, NAME_CELLS_MAX), _hint(member, one))
        for member in members
        for one in member.commands
    ]


def _hint(member: MemberInfo, one: AnnouncedCommand) -> Printable:
    usage = printable_line(f"{one.name} {one.usage}".strip(), USAGE_CELLS_MAX)
    role = f" (for {printable_line(one.role, NICK_CELLS_MAX)})" if one.role else ""
    what = f": {printable_line(one.help)}" if one.help else ""
    return printable_line(f"{BOT}{usage}{role}  {printable_line(member.nick, NICK_CELLS_MAX)}{what}", HINT_CELLS_MAX)


def hints(text: str, bots: Iterable[Asking]) -> list[Printable]:
    """How what is typed goes on, where it is a command to a bot."""
    word, space, _ = text.partition(" ")
    if not space or not word.startswith(BOT) or "\n" in word:
        return []
    return [each.hint for each in bots if f"{BOT}{each.name}" == word][:LINES_MAX]


def offers(
    before: str,
    names: Sequence[str],
    connections: Sequence[str] = (),
    bots: Sequence[Asking] = (),
    files: Sequence[str] = (),
) -> list[Offer] | None:
    """What `before`, the text before the cursor, can become. None: nothing here is completed; none at all: it is the
    beginning of something that there is not."""
    if before.startswith("/") and not before.startswith("//"):
        if (found := candidates(before)) is not None:
            return [Offer(f"/{each} ", Printable(f"/{each}")) for each in found]
        if (words := _arguments(before, names, connections, files)) is not None:
            command = before.partition(" ")[0]
            return [Offer(f"{command} {each}", printable_line(each.rstrip())) for each in words]
    if before.startswith(BOT) and " " not in before and "\n" not in before:
        found_bots = [each for each in bots if each.name.startswith(before[1:].lower())]
        return [Offer(f"{BOT}{each.name} ", each.hint) for each in found_bots] or None
    return _word(before, names)


def _arguments(before: str, names: Sequence[str], connections: Sequence[str], files: Sequence[str]) -> list[str] | None:
    """What can stand behind a command; None: anything."""
    if (found := names_for(before, names)) is not None:
        return found
    word, _, rest = before.partition(" ")
    rest = rest.lstrip()
    name = word[1:].lower()
    if "\n" in before or name not in COMMANDS:
        return None
    if name in ("save", "get"):
        return _begun(rest, files)
    if name == "help" and " " not in rest:
        return [each for each in ("keys", *COMMANDS) if each.startswith(rest.lower().removeprefix("/"))]
    if name == "invite" and rest.partition(" ")[0] in ("", "r", "re", "rea", "read", "reade", "reader"):
        return ["reader"]
    if name in NAMED and " " not in rest:
        return [f"{each} " for each in connections if each.casefold().startswith(rest.casefold())]
    if name == "react" and rest.isascii():
        return [emoji for emoji, _ in find(rest, EMOJI_MAX)] if len(rest.strip(":")) >= LETTERS_MIN else None
    return None


def _word(before: str, names: Sequence[str]) -> list[Offer] | None:
    """By the last word."""
    word = before[max(before.rfind(" "), before.rfind("\n")) + 1 :]
    lead = before[: len(before) - len(word)]
    if word.startswith(":") and len(word) > LETTERS_MIN and word[1:].replace("_", "").replace("+", "").isalnum():
        found = find(word, EMOJI_MAX)
        return [Offer(f"{lead}{emoji} ", printable_line(f"{emoji} {name}")) for emoji, name in found] or None
    if word.startswith("@"):
        return [Offer(f"{lead}@{each} ", printable_line(f"@{each}")) for each in _begun(word[1:], names)] or None
    begins = not lead.strip()
    if not word or (len(word) < LETTERS_MIN and not begins) or word.startswith("/"):
        return None
    behind = ": " if begins else " "
    return [Offer(f"{lead}{each}{behind}", printable_line(each)) for each in _begun(word, names)] or None


def _begun(typed: str, names: Sequence[str]) -> list[str]:
    return [each for each in names if each.casefold().startswith(typed.casefold())]


def common(before: str, found: Iterable[Offer]) -> str:
    """What all of them begin with, where that says more than `before`; else `before`."""
    texts = [each.text for each in found]
    start = texts[0]
    while not all(each.startswith(start) for each in texts):
        start = start[:-1]
    return start if len(start) > len(before) and start[: len(before)].casefold() == before.casefold() else before


def window(labels: Sequence[Printable], at: int, width: int) -> tuple[int, list[list[Printable]], bool]:
    """The part of the list in which number `at` is (-1: none yet): the number of its first, the labels by line, and
    whether there are more behind."""
    first = 0
    while True:
        lines: list[list[Printable]] = []
        index = first
        while index < len(labels) and len(lines) < LINES_MAX:
            line = [labels[index]]
            index += 1
            while index < len(labels) and sum(map(cells, line)) + 2 * len(line) + cells(labels[index]) <= width:
                line.append(labels[index])
                index += 1
            lines.append(line)
        if at < index or index >= len(labels):
            return first, lines, index < len(labels)
        first = index


def nothing(before: str) -> Printable:
    """Why there is no offer."""
    if candidates(before) is not None:
        return printable_line(f"No command begins with {printable_line(before, 24)}.")
    command = before.partition(" ")[0][1:].lower()
    whom = command in NAMED or (command in COMMANDS and COMMANDS[command].of_peer)
    return Printable("Nobody here is called that." if whom else "Nothing here is called that.")
