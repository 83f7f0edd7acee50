"""Completion at the cursor: commands, arguments, member names, emoji. Pure functions; the composer shows them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len as cells

from zerochat.presentation.name_list import indexed
from zerochat.presentation.search_text import is_unspaced
from zerochat.rpc import AnnouncedCommand, MemberInfo
from zerochat.slash_commands import ALIASES, COMMANDS, named
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.composer.arguments import candidates, names_for
from zerochat.tui.composer.emoji import find

EMOJI_MAX = 12
LETTERS_MIN = 2
"""Minimum letters of a name inside a line, and of an emoji name."""
LINES_MAX = 3
"""Lines of the completion list."""
CONNECTION_COMMANDS = ("message", "messages")
"""Commands that take a connection."""


BOT_PREFIX = "!"
"""Prefix of a bot command."""
NAME_CELLS_MAX, USAGE_CELLS_MAX, NICK_CELLS_MAX = 32, 48, 16
HINT_CELLS_MAX = 110


@dataclass(frozen=True, slots=True)
class BotCommand:
    """A command announced by a bot of the open group."""

    name: Printable
    hint: Printable
    """Usage and help, as announced by the bot."""


@dataclass(frozen=True, slots=True)
class Completion:
    """`text` replaces the text before the cursor; `label` is shown in the list."""

    text: str
    label: Printable


def bot_commands(members: Iterable[MemberInfo]) -> list[BotCommand]:
    """The commands that these members announce as bots."""
    return [
        BotCommand(printable_line(command.name, NAME_CELLS_MAX), _hint(member, command))
        for member in members
        for command in member.commands
    ]


def _hint(member: MemberInfo, command: AnnouncedCommand) -> Printable:
    usage = printable_line(f"{command.name} {command.usage}".strip(), USAGE_CELLS_MAX)
    role = f" (for {printable_line(command.role, NICK_CELLS_MAX)})" if command.role else ""
    what = f": {printable_line(command.help)}" if command.help else ""
    return printable_line(
        f"{BOT_PREFIX}{usage}{role}  {printable_line(member.nick, NICK_CELLS_MAX)}{what}", HINT_CELLS_MAX
    )


def hints(text: str, bots: Iterable[BotCommand]) -> list[Printable]:
    """Usage hints for a bot command being typed."""
    word, space, _ = text.partition(" ")
    if not space or not word.startswith(BOT_PREFIX) or "\n" in word:
        return []
    return [each.hint for each in bots if f"{BOT_PREFIX}{each.name}" == word][:LINES_MAX]


def completions(
    before: str,
    names: Sequence[str],
    connections: Sequence[str] = (),
    bots: Sequence[BotCommand] = (),
    files: Sequence[str] = (),
) -> list[Completion] | None:
    """Completions of `before`, the text before the cursor. None: nothing here is completable; empty: no match."""
    if before.startswith("/") and not before.startswith("//"):
        if (found := candidates(before)) is not None:
            return [Completion(f"/{each} ", Printable(f"/{each}")) for each in found]
        if (words := _arguments(before, names, connections, files)) is not None:
            command = before.partition(" ")[0]
            return [Completion(f"{command} {each}", printable_line(each.rstrip())) for each in words]
    if before.startswith(BOT_PREFIX) and " " not in before and "\n" not in before:
        found_bots = [each for each in bots if each.name.startswith(before[1:].lower())]
        return [Completion(f"{BOT_PREFIX}{each.name} ", each.hint) for each in found_bots] or None
    return _word(before, names)


def _arguments(before: str, names: Sequence[str], connections: Sequence[str], files: Sequence[str]) -> list[str] | None:
    """Completions of a command's argument; None: free text."""
    if (found := names_for(before, names)) is not None:
        return found
    word, _, rest = before.partition(" ")
    rest = rest.lstrip()
    info = named(word[1:])
    if "\n" in before or info is None:
        return None
    name = info.name
    if name in ("save", "get"):
        return indexed(files).starting(rest)
    if name == "help" and " " not in rest:
        from zerochat.manual import topics

        every = dict.fromkeys(("keys", *COMMANDS, *ALIASES, *topics()))
        return [each for each in every if each.startswith(rest.lower().removeprefix("/"))]
    if name == "invite" and rest.partition(" ")[0] in ("", "r", "re", "rea", "read", "reade", "reader"):
        return ["reader"]
    if name in CONNECTION_COMMANDS and " " not in rest:
        return [f"{each} " for each in connections if each.casefold().startswith(rest.casefold())]
    if name == "react" and rest.isascii():
        return [emoji for emoji, _ in find(rest, EMOJI_MAX)] if len(rest.strip(":")) >= LETTERS_MIN else None
    return None


def _word(before: str, names: Sequence[str]) -> list[Completion] | None:
    """Completions of the last word."""
    word = before[max(before.rfind(" "), before.rfind("\n")) + 1 :]
    lead = before[: len(before) - len(word)]
    if word.startswith(":") and len(word) > LETTERS_MIN and word[1:].replace("_", "").replace("+", "").isalnum():
        found = find(word, EMOJI_MAX)
        return [Completion(f"{lead}{emoji} ", printable_line(f"{emoji} {name}")) for emoji, name in found] or None
    at = word.rfind("@")
    if at == 0 or (at > 0 and is_unspaced(word[at - 1])):
        lead, word = lead + word[:at], word[at:]
        return [
            Completion(f"{lead}@{each} ", printable_line(f"@{each}")) for each in indexed(names).starting(word[1:])
        ] or None
    begins = not lead.strip()
    if not word or (len(word) < LETTERS_MIN and not begins) or word.startswith("/"):
        return None
    behind = ": " if begins else " "
    return [Completion(f"{lead}{each}{behind}", printable_line(each)) for each in indexed(names).starting(word)] or None


def common_prefix(before: str, found: Iterable[Completion]) -> str:
    """The common prefix of the completions, if longer than `before`; else `before`."""
    texts = [each.text for each in found]
    start = texts[0]
    while not all(each.startswith(start) for each in texts):
        start = start[:-1]
    return start if len(start) > len(before) and start[: len(before)].casefold() == before.casefold() else before


def window(labels: Sequence[Printable], at: int, width: int) -> tuple[int, list[list[Printable]], bool]:
    """The page of the list that contains index `at` (-1: none selected): index of its first label, labels by line,
    whether more follow."""
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


def no_completion_text(before: str) -> Printable:
    """Why there is no completion, as a sentence."""
    if candidates(before) is not None:
        return printable_line(f"No command starts with {printable_line(before, 24)}.")
    info = named(before.partition(" ")[0][1:])
    takes_name = info is not None and (info.of_peer or info.name in CONNECTION_COMMANDS)
    return Printable("No one here has that name." if takes_name else "Nothing here has that name.")
