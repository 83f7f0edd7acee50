"""Completion of slash commands and their arguments: names, settings, paths."""

from collections.abc import Sequence
from typing import Final

from zerochat.agent.settings.options import KEYS, OPTIONS, full_name
from zerochat.agent.settings.values import LEVELS, SUBSTRING_CHARS_MIN
from zerochat.presentation import group_kinds
from zerochat.presentation.name_list import indexed
from zerochat.presentation.search_text import fold
from zerochat.slash_commands import ALIASES, COMMANDS, named
from zerochat.tui.composer.paths import paths_for

DEFAULT: Final = "-"
"""As the value of a setting: reset it to its default."""
_SHORT: Final = {name.partition(".")[2]: name for name in OPTIONS if name.startswith(("chat.", "share."))}
"""Frequently changed settings, also completed without their section."""


def candidates(text: str) -> list[str] | None:
    """The commands that start with the text; None when it is not the start of a command."""
    if not text.startswith("/") or text.startswith("//") or " " in text or "\n" in text:
        return None
    start = text[1:].lower()
    return [each for each in (*COMMANDS, *(ALIASES if start else ())) if each.startswith(start)]


def names_for(text: str, names: Sequence[str]) -> list[str] | None:
    """The arguments that complete the text; None when its command takes neither names nor fixed words."""
    if (words := setting_words(text)) is not None:
        return words
    word, space, start = text.partition(" ")
    if word.lower() in ("/send", "/export") and space and "\n" not in text:
        return paths_for(start.lstrip())
    if word.lower() == "/new" and space and "\n" not in text:
        return _kind_words(start)
    if word.lower() == "/proof" and space and "\n" not in text:
        return _proof_words(start.lstrip())
    info = named(word[1:]) if word.startswith("/") else None
    if info is None or not (info.of_peer or info.last) or not space or "\n" in text:
        return None
    typed = start.lstrip().casefold()
    if info.name == "telemetry" and typed.startswith("export "):
        return [f"export {each}" for each in paths_for(start.lstrip().partition(" ")[2].lstrip())]
    known = indexed(names if info.of_peer else ())
    behind = [f"{each} {last}" for each in known.heading(typed) for last in info.last] if info.last else []
    return [*known.starting(typed), *(each for each in (*info.last, *behind) if fold(each).startswith(fold(typed)))]


def _kind_words(typed: str) -> list[str]:
    """Completions of `NAME --kind KIND`."""
    name, option, kind = typed.rpartition(" --kind ")
    if option:
        return [f"{name}{option}{each}" for each in group_kinds.BY_NAME if each.startswith(kind.lower())]
    name, dashes, rest = typed.rpartition(" --")
    return [f"{name} --kind "] if dashes and "kind".startswith(rest) else []


def _proof_words(typed: str) -> list[str]:
    """Completions of `[MSG] PATH`."""
    first, space, path = typed.partition(" ")
    if space and (first == "last" or first.startswith("last:")):
        return [f"{first} {each}" for each in paths_for(path.lstrip())]
    return [*(["last "] if typed and "last".startswith(typed) else []), *paths_for(typed)]


def setting_words(text: str) -> list[str] | None:
    """Completions of the arguments of `/set` and `/mute`; None: another command."""
    word, space, start = text.partition(" ")
    start = start.lstrip()
    if not space or "\n" in text or word.lower() not in ("/set", "/mute"):
        return None
    if word.lower() == "/mute":
        return [each for each in (*LEVELS, "for 1h", "for 8h", "for 1d") if each.startswith(start.lower())]
    name, space, value = start.partition(" ")
    if space:
        option = OPTIONS.get(full_name(name))
        few = option.choices if option is not None else LEVELS if name.endswith(".notify") else ()
        return [f"{name} {each}" for each in few if each.startswith(value.lstrip().lower())]
    name = name.lower()
    names = [*_SHORT, *(each for each in OPTIONS if each not in _SHORT.values())]
    if name.startswith(("keys.", KEYS)):
        from zerochat.tui.style.keymaps import binding_owners

        prefix = KEYS if name.startswith(KEYS) else "keys."
        names = sorted({f"{prefix}{each.id}" for place in binding_owners() for each in place.bindings})
    elif "keys.".startswith(name):
        names.append("keys.")
    elif name.startswith(("chat.", "share.")):
        names = list(OPTIONS)
    begun = [each for each in names if each.startswith(name)]
    found = begun or [each for each in names if len(name) >= SUBSTRING_CHARS_MIN and name in each]
    return [f"{each} " if each != "keys." else each for each in found]
