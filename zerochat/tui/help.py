"""The help sheet, made from the bindings and the commands themselves, so that it cannot say what is not so."""

from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode

from zerochat.terminal import Printable
from zerochat.tui.commands import COMMANDS
from zerochat.tui.sheet import Sheet, rows

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


def help_sheet(*nodes: DOMNode) -> Sheet:
    """Everything that can be pressed on `nodes`, and typed into the composer."""
    parts: list[Content] = []
    for node in nodes:
        bindings = own_bindings(node)
        pairs = [(key_text(each.key), each.description) for each in bindings if not _goes_without_saying(str(each.id))]
        if any(each.id == "go.1" for each in bindings):
            pairs.insert(4, ("Alt+1 … Alt+9", "Conversation by its number"))
        title = node.BINDING_GROUP_TITLE or "Application"
        parts += [Content.styled(title, "bold $text-accent"), rows(pairs, 20), Content("")]
    commands = [(info.usage, info.help) for info in COMMANDS.values()]
    parts += [Content.styled("Commands", "bold $text-accent"), rows([*commands, ("//TEXT", 'say "/TEXT"')], 20)]
    return Sheet(Printable("Help"), Content("\n").join(parts))
