"""The help sheet, made from the bindings and the commands themselves, so that it cannot say what is not so."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from textual.app import App
from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.keys import key_to_character

from zerochat.terminal_text import Printable
from zerochat.tui.composer.commands import COMMANDS
from zerochat.tui.dialogs.dialog import Sheet, rows

LEGEND = (
    ("✓2/3, 0/3", "2 of the 3 others have your message; nobody yet"),
    ("late, vouched", "came after what stands below; not confirmed by its author"),
    ("void", "does not count: its author was put out, or made a reader, as of before"),
    ("F9: → ⇥ …", "on its way; held by that member's mediator; no way to it now"),
    ("│ bob: …", "above a message: what it answers; g goes there"),
    ("👍 2, [🎉 1]", "what others answered with; yours in brackets"),
    ("┃ ▌", "left of a message: it calls you by name; it is selected"),
    ("@2 5", "two of five unread call you by name"),
    ("3 missing", "known to be said, not here yet; F12 says whose"),
    ("2/3 connected", "of the others, how many are connected now"),
    ("● ◐ ○", "a member is connected, connecting, unreachable"),
    ("◎ mail 14:03", "reached over a mediator; only when it was last heard tells if it is there"),
    ("≈ before a name", "mixes scripts, or looks like another's: compare the end of the key"),
    ("✓ ! before a key", "you verified it; you verified somebody else so named"),
    ("§ behind a name", "was convicted, of withholding a message say: its sheet says of what"),
    ("1/2 out, forked", "one of two votes; has signed two histories"),
    ("reads", "a member who cannot write; admin and owner likewise"),
    ("? ?2", "somebody asks to join; two ask to join that group"),
    ("∅ @ * in the list", "tells nothing, only mentions, all while you do not look"),
    ("keys · path · …", "how the group works; F12 explains each"),
    ("view 3f9a12c4", "the same at all who see the same members"),
)
"""Signs of the chat screen. The header's last ones are there in wide windows."""
_BEFORE_NUMBERS = "Find a conversation"

_NAMES = {
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "up": "Up",
    "down": "Down",
    "home": "Home",
    "end": "End",
    "enter": "Enter",
    "tab": "Tab",
    "plus": "+",
    "minus": "-",
    "slash": "/",
}


def key_text(keys: str) -> str:
    """ "ctrl+n,alt+down" as it is written on keys: "Ctrl+N, Alt+Down"."""
    written = []
    for key in keys.split(","):
        *modifiers, last = key.split("+")
        sign = (key_to_character(last) or "").strip()
        if len(last) > 1 and last not in _NAMES and sign.isprintable() and sign:
            last = sign  # ":" is "colon" to the toolkit
        name = _NAMES.get(last, last.upper() if len(last) == 1 and modifiers else last)
        written.append("+".join([*(each.capitalize() for each in modifiers), name.upper() if name[0] == "f" else name]))
    return ", ".join(written)


def own_bindings(node: DOMNode) -> list[Binding]:
    """The bindings of ours that `node` has, with the person's own keys where they were changed."""
    return remapped(type(node), node.app)


def remapped(kind: type[DOMNode], app: App[object]) -> list[Binding]:
    """The bindings that a class of ours declares, with the keys that they have now."""
    own = [each for each in kind.BINDINGS if isinstance(each, Binding)]
    return [replace(each, key=app._keymap.get(str(each.id), each.key)) for each in own]


def keys_of_all(*nodes: DOMNode) -> dict[str, str]:
    """How the first key of each action is written, by the action's id."""
    found = [each for node in nodes for each in own_bindings(node)]
    return {str(each.id): key_text(each.key.split(",")[0]) for each in found}


def hints(keys: Mapping[str, str], usual: Sequence[str]) -> tuple[str, ...]:
    """The hints of the status line with other keys: each of `usual` is a key and the last word of an action's id."""
    ids = {id.rpartition(".")[2]: id for id in keys}
    words = [hint.partition(" ")[2] for hint in usual]
    return tuple(f"{keys[ids[word]].replace('Ctrl+', '^')} {word}" for word in words)


def _goes_without_saying(id: str) -> bool:
    """Plain cursor keys, and the digits, which have one line together."""
    return id.startswith("edit.") or id.removeprefix("go.").isdigit()


def _moves(id: str) -> bool:
    """What Up and Down do where there is nothing else that they could."""
    return id.rpartition(".")[2] in ("up", "down")


Section: TypeAlias = tuple[str, Content]
"""A heading, and what stands below it."""


def help_sheet(*nodes: DOMNode, sheets: Sequence[type[DOMNode]] = (), wanted: str = "") -> Sheet | None:
    """Everything that can be pressed on `nodes`, and on the `sheets` when they are open, and typed into the composer.

    What is `wanted` comes first: `keys`, a command, or the beginning of a heading; empty: the commands. None: there is
    nothing of that name.
    """
    keys, app = [_keys_of(node) for node in nodes], nodes[0].app
    typed = [("Commands", rows([*_commands(""), ("//TEXT", 'say "/TEXT"')], 20))]
    others = [("What stands where", rows(LEGEND, 20)), *(_keys_over(sheet, app) for sheet in sheets)]
    word = wanted.casefold().removeprefix("/")
    if word in ("keys", "key"):
        title, sections = "Help: the keys. /help shows the commands", [*keys, *typed, *others]
    elif not word:
        title, sections = "Help: the commands. F1 shows the keys", [*typed, *keys, *others]
    else:
        every = [*typed, *keys, *others]
        found = [(f"/{word}", rows(one, 20))] if (one := _commands(word)) else []
        found += [section for section in every if section[0].casefold().startswith(word)]
        if not found:
            return None
        title, sections = "Help", [*found, *(section for section in every if section not in found)]
    parts: list[Content] = []
    for heading, content in sections:
        parts += [Content.styled(heading, "bold $text-accent"), content, Content("")]
    return Sheet(Printable(title), Content("\n").join(parts[:-1]))


def _commands(start: str) -> list[tuple[str, str]]:
    """The commands that begin so; only the one where there is one that is called so."""
    names = [start] if start in COMMANDS else [name for name in COMMANDS if name.startswith(start)]
    found = [COMMANDS[name] for name in names]
    return [(info.usage, info.help) for info in found]


def _keys_of(node: DOMNode) -> Section:
    """The keys of what is always on the screen."""
    bindings = own_bindings(node)
    pairs = [(key_text(each.key), each.description) for each in bindings if not _goes_without_saying(str(each.id))]
    if any(each.id == "go.1" for each in bindings):
        at = next((at for at, pair in enumerate(pairs) if pair[1] == _BEFORE_NUMBERS), len(pairs) - 1)
        pairs.insert(at + 1, ("Alt+1 … Alt+9", "Conversation by its number"))
    return node.BINDING_GROUP_TITLE or "Application", rows(pairs, 20)


def _keys_over(sheet: type[DOMNode], app: App[object]) -> Section:
    """The keys of a sheet while it is open."""
    keys = [each for each in remapped(sheet, app) if not _moves(str(each.id))]
    return sheet.BINDING_GROUP_TITLE or "", rows([(key_text(each.key), each.description) for each in keys], 20)
