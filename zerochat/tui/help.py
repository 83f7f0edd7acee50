"""The help sheet, made from the bindings and the commands themselves, so that it cannot say what is not so."""

from collections.abc import Sequence

from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode

from zerochat.terminal import Printable
from zerochat.tui.commands import COMMANDS
from zerochat.tui.sheet import Sheet, rows

LEGEND = (
    ("✓2/3, 0/3", "2 of the 3 others have your message; nobody yet"),
    ("late, vouched", "came after what stands below; not confirmed by its author"),
    ("3 missing", "known to be said, not here yet; F12 says whose"),
    ("2/3 connected", "of the others, how many are connected now"),
    ("● ◐ ○", "a member is connected, connecting, unreachable"),
    ("≈ before a name", "mixes scripts, or looks like another's: compare the end of the key"),
    ("✓ ! before a key", "you verified it; you verified somebody else so named"),
    ("1/2 out, forked", "one of two votes; has signed two histories"),
    ("reads", "a member who cannot write; admin and owner likewise"),
    ("? ?2", "somebody asks to join; two ask to join that group"),
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
}


def key_text(keys: str) -> str:
    """ "ctrl+n,alt+down" as it is written on keys: "Ctrl+N, Alt+Down"."""
    written = []
    for key in keys.split(","):
        *modifiers, last = key.split("+")
        name = _NAMES.get(last, last.upper() if len(last) == 1 and modifiers else last)
        written.append("+".join([*(each.capitalize() for each in modifiers), name.upper() if name[0] == "f" else name]))
    return ", ".join(written)


def own_bindings(node: DOMNode) -> list[Binding]:
    """The bindings of ours that `node` has, with the person's own keys where they were changed."""
    own = {each.id for each in type(node).BINDINGS if isinstance(each, Binding)}
    found: dict[str, list[Binding]] = {}
    for _, binding in node._bindings:
        if binding.id in own and binding.id is not None:
            found.setdefault(binding.id, []).append(binding)
    return [
        Binding(",".join(each.key for each in same), same[0].action, same[0].description, id=id)
        for id, same in found.items()
    ]


def _goes_without_saying(id: str) -> bool:
    """Plain cursor keys, and the digits, which have one line together."""
    return id.startswith("edit.") or id.removeprefix("go.").isdigit()


def help_sheet(*nodes: DOMNode, sheets: Sequence[type[DOMNode]] = ()) -> Sheet:
    """Everything that can be pressed on `nodes`, and on the `sheets` when they are open, and typed into the
    composer."""
    commands = [(info.usage, info.help) for info in COMMANDS.values()]
    parts: list[Content] = []
    for node in nodes:
        bindings = own_bindings(node)
        pairs = [(key_text(each.key), each.description) for each in bindings if not _goes_without_saying(str(each.id))]
        if any(each.id == "go.1" for each in bindings):
            at = next((at for at, pair in enumerate(pairs) if pair[1] == _BEFORE_NUMBERS), len(pairs) - 1)
            pairs.insert(at + 1, ("Alt+1 … Alt+9", "Conversation by its number"))
        title = node.BINDING_GROUP_TITLE or "Application"
        parts += [Content.styled(title, "bold $text-accent"), rows(pairs, 20), Content("")]
    parts += [
        Content.styled("Commands", "bold $text-accent"),
        *(rows([*commands, ("//TEXT", 'say "/TEXT"')], 20), Content("")),
        *(Content.styled("What stands where", "bold $text-accent"), rows(LEGEND, 20), Content("")),
    ]
    for sheet in sheets:
        shown = [each for each in sheet.BINDINGS if isinstance(each, Binding) and each.show]
        pairs = [(key_text(each.key), each.description) for each in shown]
        parts += [Content.styled(sheet.BINDING_GROUP_TITLE or "", "bold $text-accent"), rows(pairs, 20), Content("")]
    return Sheet(Printable("Help"), Content("\n").join(parts[:-1]))
