"""Keymaps: which keys do what, by the ids of the actions.

`default` is what stands at the bindings themselves. The others say what is different, and what `[chat.keys]` says wins
over both. A remap takes the keys of an action away and gives it others. Where two actions come to have one key, the
person is told: only one of them can be meant.
"""

import difflib
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import REPLACED_KEYS, Keys, _character_to_key, key_to_character
from textual.screen import Screen

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
"""`vim`: Esc leads to the messages, where j, k, g and G move, and i leads back. `emacs`: the rest of readline's keys in
the composer, and M-x for all commands."""
LETTERS_STAY: Final = ("vim",)
"""Where letters mean something among the messages, none of them goes over to the composer."""

MODIFIERS: Final = frozenset({"ctrl", "alt", "shift", "super", "hyper", "meta"})


class Place(NamedTuple):
    """A class that has bindings."""

    owner: type[DOMNode]
    bindings: tuple[Binding, ...]

    @property
    def spans_others(self) -> bool:
        """Whether its keys work while something else has the focus."""
        return issubclass(self.owner, App) or self.owner.__name__ in ("ChatScreen", "Board")

    @property
    def alone(self) -> bool:
        """Whether nothing but itself hears keys while it is open."""
        return issubclass(self.owner, Screen) and not self.spans_others


def places_of_bindings() -> list[Place]:
    """Every class of this face with bindings of its own. Imports all of them: only where it is asked for."""
    from importlib import import_module
    from pkgutil import walk_packages

    found: dict[type[DOMNode], Place] = {}
    for module in walk_packages([str(Path(__file__).parents[1])], "zerochat.tui."):
        for kind in vars(import_module(module.name)).values():
            if not (isinstance(kind, type) and issubclass(kind, DOMNode)) or "BINDINGS" not in vars(kind):
                continue
            if kind.__module__.startswith("zerochat.tui."):
                found[kind] = Place(kind, tuple(each for each in kind.BINDINGS if isinstance(each, Binding)))
    return sorted(found.values(), key=lambda each: each.owner.__name__)


def merged(keymap: str, own: Mapping[str, str]) -> dict[str, str]:
    """The keymap with what the person has said on top."""
    return {**KEYMAPS[keymap], **own}


def spelled(key: str) -> str:
    """A key as the toolkit calls it: ":" is "colon"."""
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    last = _character_to_key(last) if len(last) == 1 else last
    return "+".join([*modifiers, last])


def keys_in(text: str) -> list[str]:
    return [spelled(key.strip()) for key in text.split(",") if key.strip()]


def is_key(key: str) -> bool:
    """Whether there is such a key, as far as anybody can know."""
    *modifiers, last = key.split("+")
    named = last in {each.value for each in Keys} | REPLACED_KEYS.keys() or key_to_character(last) is not None
    return bool(last) and MODIFIERS.issuperset(modifiers) and (len(last) == 1 or named)


def doubts(keymap: str, own: Mapping[str, str]) -> list[str]:
    """What is wrong with a person's own keys, in sentences."""
    places = places_of_bindings()
    known = {str(binding.id): binding for place in places for binding in place.bindings}
    said = []
    for id, text in own.items():
        if id not in known:
            nearest = difflib.get_close_matches(id, known, n=1)
            said.append(f"chat.keys: no action is called {id}." + (f" Did you mean {nearest[0]}?" if nearest else ""))
        said += [f"chat.keys: there is no key {key} (for {id})." for key in keys_in(text) if not is_key(key)]
    return said + list(_conflicts(places, merged(keymap, own), own))


def _conflicts(places: list[Place], keymap: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    """Two actions that can be meant by one key at the same time, where one of them has it from the person, and not as
    usual: there, what has the focus goes before what is everywhere."""
    told = set()
    usual = {str(binding.id): keys_in(binding.key) for place in places for binding in place.bindings}
    having = [
        (key, str(binding.id), place)
        for place in places
        for binding in place.bindings
        for key in keys_in(keymap.get(str(binding.id), binding.key))
    ]
    for (key, one, here), (other_key, other, there) in combinations(having, 2):
        if key != other_key or one == other or not {one, other} & own.keys():
            continue
        if key in usual[one] and key in usual[other]:
            continue
        together = here is there or (not (here.alone or there.alone) and (here.spans_others or there.spans_others))
        pair = (key, *sorted((one, other)))
        if together and pair not in told:
            told.add(pair)
            yield f"chat.keys: {key} is for both {pair[1]} and {pair[2]}."
