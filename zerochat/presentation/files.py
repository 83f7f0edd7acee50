"""Formats for attached files: name, size and transfer state."""

from zerochat.rpc import Attachment
from zerochat.terminal_text import cells, printable_line

NAME_CELLS = 48
NAME_CELLS_MIN = 16
"""Minimum width of a long name before its size is dropped."""


def format_size(size: int) -> str:
    """The size as `2.3 MB`, in decimal units."""
    if size < 1_000:
        return f"{size} B"
    units = (("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000))
    unit, factor = next((one for one in units if size < one[1] * 999.5), units[-1])
    return f"{size / factor:.1f} {unit}" if size < factor * 9.95 else f"{size / factor:.0f} {unit}"


def short_name(file: Attachment, width: int = NAME_CELLS) -> str:
    """The name in at most `width` cells; a longer one is shortened in the middle and keeps its suffix."""
    name = printable_line(file.name)
    if cells(name) <= width:
        return name
    suffix = cells(name[name.rfind(".") :]) if "." in name else 0
    room = max(width // 3, suffix if suffix <= width // 2 else 0)
    at = len(name)
    while at and cells(name[at - 1 :]) <= room:
        at -= 1
    while at < len(name) and not cells(name[at]):  # combining marks of the previous letter
        at += 1
    return printable_line(name, width - cells(name[at:])) + name[at:]


def transfer_state(file: Attachment, mine: bool = False) -> str:
    """The transfer state; `mine`: a file we sent, for which the recipients count."""
    match file.state:
        case "here" if mine and file.of:
            return f"received by {file.holders} of {file.of}"
        case "here":
            return "downloaded"
        case "getting" if file.fault:
            return f"stopped at {_percent(file)}: {printable_line(file.fault)}"
        case "getting":
            return _percent(file) if file.have or file.from_ else "waiting for a member that has it"
        case "gone":
            return "no member has it"
        case _:
            return printable_line(file.fault) if file.fault else "not downloaded"


def _short_words(file: Attachment, mine: bool) -> str:
    """The transfer state in few characters."""
    match file.state:
        case "here" if mine and file.of:
            return f"✓{file.holders}/{file.of}"
        case "getting" if file.fault:
            return "stopped"
        case "getting" if not (file.have or file.from_):
            return "waiting"
        case "gone":
            return "gone"
        case "offered":
            return "not here"
        case _:
            return transfer_state(file, mine)


def _percent(file: Attachment) -> str:
    return f"{file.have * 100 // file.size} %"


def name_and_state(file: Attachment, mine: bool = False, width: int | None = None) -> tuple[str, str]:
    """The name, and size and state. With a `width`, size and state are shortened before the name."""
    size, whole, short = format_size(file.size), transfer_state(file, mine), _short_words(file, mine)
    forms = [f"  {size} · {whole}", f"  {size} · {short}", f"  {short}"]
    if width is None:
        return short_name(file), forms[0]
    needed = cells(printable_line(file.name))
    rest = next((one for one in forms[:2] if needed + cells(one) <= width), None)
    rest = rest or next((one for one in forms[1:] if NAME_CELLS_MIN + cells(one) <= width), forms[-1])
    if rest == forms[1] and file.fault:  # as much of the error as fits
        rest = printable_line(forms[0], max(width - needed, cells(rest)))
    return short_name(file, max(width - cells(rest), 1)), rest


def file_line(file: Attachment, mine: bool = False, width: int | None = None) -> str:
    """Name, size and state on one line."""
    return "".join(name_and_state(file, mine, width))
