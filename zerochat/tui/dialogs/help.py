"""The help dialog, generated from the key bindings and the command table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from textual.app import App
from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.keys import key_to_character

from zerochat.manual import read_page, topics
from zerochat.slash_commands import COMMANDS, named
from zerochat.terminal_text import Printable, printable
from zerochat.tui.dialogs.dialog import TextDialog, rows

LEGEND = (
    ("✓2/3, 0/3", "delivered to 2 of the 3 other members; to none yet"),
    ("late, relayed", "arrived after newer ones; relayed, not yet confirmed by its author"),
    ("void", "does not count: its author had been removed or made a reader by then"),
    ("{group.delivery}: → ⇥ …", "sent; stored by that member's mediator; queued"),
    ("│ bob: …", "above a message: the one it replies to; {message.original} goes there"),
    ("👍 2, [🎉 1]", "reactions; yours in brackets"),
    ("┃ ▌", "left of a message: it mentions you; it is selected"),
    ("@2 5", "five unread messages, two of them mention you"),
    ("3 missing", "messages known to exist, not received yet; {agent.status} shows whose"),
    ("2/3 connected", "two of the three other members are connected now"),
    ("over 12 links", "a large group, in which you are linked to 12 members; /overlay lists them"),
    ("● ◐ ○", "a member is connected, connecting, unreachable"),
    ("◦", "a member of a large group that you are not linked to: others forward"),
    ("◎ mail 14:03", "reached via a mediator, with the time when it was last seen"),
    ("≈ before a name", "mixes scripts or looks like another name: compare the end of the key"),
    ("✓ ! before a key", "you verified this member; you verified another key under this name"),
    ("§ after a name", "convicted, for example of withholding a message; Enter shows details"),
    ("1/2 votes, forked", "one of two votes to remove; signed two histories"),
    ("reader", "a member who cannot post; admin and owner likewise"),
    ("? ?2", "a join request; two join requests for that group"),
    ("∅ @ * in the list", "notifications: off, mentions only, all"),
    ("keys · path · …", "how the group works; {agent.status} explains each"),
    ("view 3f9a12c4", "the same for all who see the same members"),
)
"""Symbols of the chat screen; the last header facts appear in wide windows only. An action id in braces stands for its
key."""
_BEFORE_NUMBERS = "Find a conversation"

_NAMES = {
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "space": "Space",
    "backspace": "Backspace",
    "delete": "Delete",
    "home": "Home",
    "end": "End",
    "enter": "Enter",
    "tab": "Tab",
    "plus": "+",
    "minus": "-",
    "slash": "/",
}


def key_text(keys: str) -> str:
    """The display form of a key list: "ctrl+n,alt+down" is "Ctrl+N, Alt+Down"."""
    written = []
    for key in keys.split(","):
        *modifiers, last = key.split("+")
        sign = (key_to_character(last) or "").strip()
        if len(last) > 1 and last not in _NAMES and sign.isprintable() and sign:
            last = sign  # Textual calls ":" "colon"
        name = _NAMES.get(last, last.upper() if len(last) == 1 and modifiers else last)
        written.append("+".join([*(each.capitalize() for each in modifiers), name.upper() if name[0] == "f" else name]))
    return ", ".join(written)


def bindings_of(node: DOMNode) -> list[Binding]:
    """The bindings of this node's class with the user's keys."""
    return bindings_of_class(type(node), node.app)


def bindings_of_class(kind: type[DOMNode], app: App[object]) -> list[Binding]:
    """The bindings declared by a class, with the current keymap applied."""
    own = [each for each in kind.BINDINGS if isinstance(each, Binding)]
    return [replace(each, key=app._keymap.get(str(each.id), each.key)) for each in own]


def first_keys(*nodes: DOMNode) -> dict[str, str]:
    """The display form of the first key of each action, by action id."""
    found = [each for node in nodes for each in bindings_of(node)]
    return {str(each.id): key_text(each.key.split(",")[0]) for each in found}


def with_keys(text: str, keys: Mapping[str, str]) -> str:
    """The text with the keys of the action ids in braces; `keys` as from `first_keys`."""
    for id, key in keys.items():
        text = text.replace(f"{{{id}}}", key)
    return text


def hints(keys: Mapping[str, str], usual: Sequence[str]) -> tuple[str, ...]:
    """The status line hints with the current keys; each of `usual` is "KEY WORD", WORD the last part of an action
    id."""
    ids = {id.rpartition(".")[2]: id for id in keys}
    words = [hint.partition(" ")[2] for hint in usual]
    return tuple(f"{keys[ids[word]].replace('Ctrl+', '^')} {word}" for word in words)


def _is_obvious(id: str) -> bool:
    """Plain cursor keys, and the digits, which share one line."""
    return id.startswith("edit.") or id.removeprefix("go.").isdigit()


def _is_line_move(id: str) -> bool:
    """Whether the action is plain Up or Down."""
    return id.rpartition(".")[2] in ("up", "down")


Section: TypeAlias = tuple[str, Content]
"""(heading, content)."""


def help_dialog(*nodes: DOMNode, dialogs: Sequence[type[DOMNode]] = (), wanted: str = "") -> TextDialog | None:
    """All keys of `nodes` and of the dialog classes `dialogs`, all commands, and the topics of the manual.

    The topic `wanted` comes first: `keys`, a command, a page of the manual, or the start of a heading; empty: the
    commands. None: no such topic.
    """
    keys, app = [_keys_of(node) for node in nodes], nodes[0].app
    typed = [("Commands", rows([*_commands(""), ("//TEXT", 'send "/TEXT" as text')], 20))]
    pages = topics()
    manual = ("Manual", rows([(f"/help {topic}", title) for topic, title in pages.items()], 24))
    actions = first_keys(*nodes)
    legend = [(with_keys(sign, actions), with_keys(meaning, actions)) for sign, meaning in LEGEND]
    others = [manual, ("Symbols", rows(legend, 20)), *(_keys_of_dialog(dialog, app) for dialog in dialogs)]
    word = wanted.casefold().removeprefix("/")
    if word in ("keys", "key"):
        title, sections = "Help: keys (/help shows the commands)", [*keys, *typed, *others]
    elif not word:
        title, sections = f"Help: commands ({actions['app.help']} shows the keys)", [*typed, *keys, *others]
    else:
        every = [*typed, *keys, *others]
        found = [(f"/{word}", rows(entry, 20))] if (entry := _commands(word)) else []
        found += [section for section in every if section[0].casefold().startswith(word)]
        if word in pages:
            found.append((f"Manual: {pages[word]}", Content(printable(read_page(word).partition("\n")[2].strip()))))
        if not found:
            return None
        title, sections = "Help", [*found, *(section for section in every if section not in found)]
    parts: list[Content] = []
    for heading, content in sections:
        parts += [Content.styled(heading, "bold $text-accent"), content, Content("")]
    return TextDialog(Printable(title), Content("\n").join(parts[:-1]))


def _commands(start: str) -> list[tuple[str, str]]:
    """(usage, help) of the command of this name, else of those that start with it."""
    one = named(start)
    found = [one] if one is not None else [info for info in COMMANDS.values() if info.name.startswith(start)]
    return [(info.usage, info.explained) for info in found]


def _keys_of(node: DOMNode) -> Section:
    """The keys of a permanent widget or screen."""
    bindings = bindings_of(node)
    pairs = [(key_text(each.key), each.description) for each in bindings if not _is_obvious(str(each.id))]
    if any(each.id == "go.1" for each in bindings):
        at = next((at for at, pair in enumerate(pairs) if pair[1] == _BEFORE_NUMBERS), len(pairs) - 1)
        pairs.insert(at + 1, ("Alt+1 … Alt+9", "Conversation by number"))
    return node.BINDING_GROUP_TITLE or "Application", rows(pairs, 20)


def _keys_of_dialog(dialog: type[DOMNode], app: App[object]) -> Section:
    """The keys of a dialog class."""
    keys = [each for each in bindings_of_class(dialog, app) if not _is_line_move(str(each.id))]
    return dialog.BINDING_GROUP_TITLE or "", rows([(key_text(each.key), each.description) for each in keys], 20)
