"""The chat's commands, which are those of every face (`zerochat/commands` has the table), and how they go on."""

from collections.abc import Sequence

from zerochat.slash_commands import COMMANDS, ELSEWHERE, IN_A_SHELL, Command, CommandInfo, Line, Refusal, Say, parse
from zerochat.tui.composer.paths import paths_for
from zerochat.tui.composer.setting_completion import words_for

__all__ = [
    "COMMANDS",
    "ELSEWHERE",
    "IN_A_SHELL",
    "Command",
    "CommandInfo",
    "Line",
    "Refusal",
    "Say",
    "candidates",
    "complete",
    "names_for",
    "parse",
]


def candidates(text: str) -> list[str] | None:
    """The commands that the composer's text can become; None when it is not the beginning of a command."""
    if not text.startswith("/") or text.startswith("//") or " " in text or "\n" in text:
        return None
    return [each for each in COMMANDS if each.startswith(text[1:].lower())]


def names_for(text: str, names: Sequence[str]) -> list[str] | None:
    """Those of `names` that the composer's text can become; None when it is not a command about somebody."""
    if (words := words_for(text)) is not None:
        return words
    word, space, start = text.partition(" ")
    if word.lower() == "/send" and space and "\n" not in text:
        return paths_for(start.lstrip())
    if word.lower() == "/proof" and space and "\n" not in text:
        return _proof_words(start.lstrip())
    info = COMMANDS.get(word[1:].lower()) if word.startswith("/") else None
    if info is None or not (info.of_peer or info.last) or not space or "\n" in text:
        return None
    typed = start.lstrip().casefold()
    if info.name == "telemetry" and typed.startswith("export "):
        return [f"export {each}" for each in paths_for(start.lstrip().partition(" ")[2].lstrip())]
    if not info.of_peer:
        names = ()
    behind = [f"{each} {last}" for each in names if typed.startswith(f"{each.casefold()} ") for last in info.last]
    return [each for each in (*names, *info.last, *behind) if each.casefold().startswith(typed)]


def _proof_words(typed: str) -> list[str]:
    """A message, or a path; behind a message, a path."""
    first, space, path = typed.partition(" ")
    if space and (first == "last" or first.startswith("last:")):
        return [f"{first} {each}" for each in paths_for(path.lstrip())]
    return [*(["last "] if typed and "last".startswith(typed) else []), *paths_for(typed)]


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
