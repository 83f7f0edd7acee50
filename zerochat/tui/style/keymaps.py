"""Keymaps: keys by action id, and checks of the user's own keys.

`default` uses the bindings as declared; other keymaps list the differences; `[chat.keys]` overrides both. Conflicts
between two actions are reported.
"""

import difflib
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple
from unicodedata import category

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import REPLACED_KEYS, Keys, _character_to_key, key_to_character
from textual.screen import Screen

from zerochat.terminal_text import printable

KEYMAPS: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "vim": {
        "view.messages": "escape,f6",
        "view.composer": "i",
        "view.command": "colon",
        "pane.top": "home,g",
        "message.original": "u",
        "message.info": "I",
        "messages.page_up": "pageup,ctrl+b",
        "messages.page_down": "pagedown,ctrl+f",
        "go.search": "f5,slash",
        "view.members": "f2",
        "members.find": "f",
        "list.up": "up,k",
        "list.down": "down,j",
        "list.first": "home,g",
        "list.last": "end,G",
    },
    "emacs": {
        "edit.left": "left,ctrl+b",
        "edit.right": "right,ctrl+f",
        "go.search": "f5,alt+s",
        "edit.up": "up,ctrl+p",
        "edit.down": "down,ctrl+n",
        "go.previous": "alt+up,alt+p",
        "go.next": "alt+down,alt+n",
        "view.members": "f2",
        "messages.page_up": "pageup,alt+v",
        "app.palette": "alt+x",
        "view.command": "alt+c",
    },
}
"""`vim`: Esc goes to the messages, where j, k, g and G move; i goes back. `emacs`: more readline keys in the composer,
M-x for all commands."""
LETTER_KEYMAPS: Final = ("vim",)
"""Keymaps in which letters are actions among the messages and never go to the composer."""

MODIFIERS: Final = frozenset({"ctrl", "alt", "shift", "super", "hyper", "meta"})


class BindingOwner(NamedTuple):
    """A class with bindings."""

    owner: type[DOMNode]
    bindings: tuple[Binding, ...]

    @property
    def global_scope(self) -> bool:
        """Whether its keys work at any focus."""
        return issubclass(self.owner, App) or self.owner.__name__ in ("ChatScreen", "Board")

    @property
    def exclusive(self) -> bool:
        """Whether it receives all keys while open."""
        return issubclass(self.owner, Screen) and not self.global_scope


def binding_owners() -> list[BindingOwner]:
    """All classes with own bindings. Imports every module of the application."""
    from importlib import import_module
    from pkgutil import walk_packages

    found: dict[type[DOMNode], BindingOwner] = {}
    for module in walk_packages([str(Path(__file__).parents[1])], "zerochat.tui."):
        for kind in vars(import_module(module.name)).values():
            if not (isinstance(kind, type) and issubclass(kind, DOMNode)) or "BINDINGS" not in vars(kind):
                continue
            if kind.__module__.startswith("zerochat.tui."):
                found[kind] = BindingOwner(kind, tuple(each for each in kind.BINDINGS if isinstance(each, Binding)))
    return sorted(found.values(), key=lambda each: each.owner.__name__)


def merged(keymap: str, own: Mapping[str, str]) -> dict[str, str]:
    """The keymap with the user's own keys on top."""
    return {**KEYMAPS[keymap], **own}


def normalised(key: str) -> str:
    """A key in Textual's notation: ":" is "colon"."""
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    last = _character_to_key(last) if len(last) == 1 else last
    return "+".join([*modifiers, last])


def keys_in(text: str) -> list[str]:
    return [normalised(key.strip()) for key in text.split(",") if key.strip()]


def is_key(key: str) -> bool:
    """Whether the key exists in Textual."""
    *modifiers, last = key.split("+")
    named = last in {each.value for each in Keys} | REPLACED_KEYS.keys() or key_to_character(last) is not None
    return bool(last) and MODIFIERS.issuperset(modifiers) and (len(last) == 1 or named)


def types_text(key: str) -> bool:
    """Whether the key, in Textual's notation, types a character."""
    character = key_to_character(REPLACED_KEYS.get(key, key))
    return character is not None and character.isprintable()


def is_letter(event: events.Key) -> bool:
    """Whether a key types its character; Alt+A also carries "a" but must not type it."""
    if event.key.startswith(("alt+", "ctrl+", "super+", "hyper+", "meta+")):
        return False
    return event.is_printable or (event.character is not None and _is_kept(event.character))


def _is_kept(character: str) -> bool:
    """Whether a space or format character that Python does not call printable is text: the joiners of Persian, Indic
    scripts and emoji, wide and unbreakable spaces. What the sanitiser drops from a paste cannot be typed either."""
    return (
        len(character) == 1 and category(character) in ("Zs", "Cf") and printable(f"あ{character}") == f"あ{character}"
    )


def keymap_warnings(keymap: str, own: Mapping[str, str]) -> list[str]:
    """Warnings about the user's own keys, in sentences."""
    unknown = [f"chat.keys: {each}" for each in unknown_names(own)]
    return unknown + list(_conflicts(binding_owners(), merged(keymap, own), own))


def unknown_names(own: Mapping[str, str]) -> Iterator[str]:
    """Sentences about actions and keys that do not exist."""
    known = {str(binding.id): binding for place in binding_owners() for binding in place.bindings}
    for id, text in own.items():
        if id not in known:
            nearest = difflib.get_close_matches(id, known, n=1)
            yield f"unknown action {id}." + (f" Did you mean {nearest[0]}?" if nearest else "")
        yield from (f"unknown key {key} for {id}." for key in keys_in(text) if not is_key(key))


def _conflicts(places: list[BindingOwner], keymap: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    """Warnings about keys bound to two simultaneously active actions, at least one of them by the user. Conflicts
    between default bindings are intended: the focused widget wins."""
    reported = set()
    usual = {str(binding.id): keys_in(binding.key) for place in places for binding in place.bindings}
    having = [
        (key, str(binding.id), place)
        for place in places
        for binding in place.bindings
        for key in keys_in(keymap.get(str(binding.id), binding.key))
    ]
    for (key, entry, here), (other_key, other, there) in combinations(having, 2):
        if key != other_key or entry == other or not {entry, other} & own.keys():
            continue
        if key in usual[entry] and key in usual[other]:
            continue
        together = here is there or (
            not (here.exclusive or there.exclusive) and (here.global_scope or there.global_scope)
        )
        pair = (key, *sorted((entry, other)))
        if together and pair not in reported:
            reported.add(pair)
            yield f"chat.keys: {key} is bound to both {pair[1]} and {pair[2]}."
