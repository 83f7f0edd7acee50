"""Files in words, as every face says them: how large, and how far they have come."""

from zerochat.rpc import Attachment
from zerochat.terminal_text import cells, printable_line

NAME_CELLS = 48
NAME_CELLS_MIN = 16
"""Of a long name, before its size goes."""


def size_words(size: int) -> str:
    """`2.3 MB`, as people and shops count: a kilobyte has a thousand bytes."""
    if size < 1_000:
        return f"{size} B"
    units = (("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000))
    unit, factor = next((one for one in units if size < one[1] * 999.5), units[-1])
    return f"{size / factor:.1f} {unit}" if size < factor * 9.95 else f"{size / factor:.0f} {unit}"


def name_words(file: Attachment, width: int = NAME_CELLS) -> str:
    """Its name, fit for so many cells of a line; one that is longer loses its middle, and keeps how it ends: that says
    what kind of file it is."""
    name = printable_line(file.name)
    if cells(name) <= width:
        return name
    suffix = cells(name[name.rfind(".") :]) if "." in name else 0
    room = max(width // 3, suffix if suffix <= width // 2 else 0)
    at = len(name)
    while at and cells(name[at - 1 :]) <= room:
        at -= 1
    while at < len(name) and not cells(name[at]):  # what belongs to the letter before it
        at += 1
    return printable_line(name, width - cells(name[at:])) + name[at:]


def standing_words(file: Attachment, mine: bool = False) -> str:
    """How far it has come; `mine`: I have posted it, so what matters is who else has it."""
    match file.state:
        case "here" if mine and file.of:
            return f"{file.holders} of {file.of} have it"
        case "here":
            return "here"
        case "getting" if file.fault:
            return f"stopped at {_percent(file)}: {printable_line(file.fault)}"
        case "getting":
            return _percent(file) if file.have or file.from_ else "waits for somebody who has it"
        case "gone":
            return "no member has it any more"
        case _:
            return printable_line(file.fault) if file.fault else "not here"


def _short_words(file: Attachment, mine: bool) -> str:
    """The same, where there is little room."""
    match file.state:
        case "here" if mine and file.of:
            return f"✓{file.holders}/{file.of}"
        case "getting" if file.fault:
            return "stopped"
        case "getting" if not (file.have or file.from_):
            return "waits"
        case "gone":
            return "gone"
        case "offered":
            return "not here"
        case _:
            return standing_words(file, mine)


def _percent(file: Attachment) -> str:
    return f"{file.have * 100 // file.size} %"


def parts(file: Attachment, mine: bool = False, width: int | None = None) -> tuple[str, str]:
    """Its name, and all the rest. Where there are only so many cells, the rest gets shorter before the name does."""
    size, whole, short = size_words(file.size), standing_words(file, mine), _short_words(file, mine)
    forms = [f"  {size} · {whole}", f"  {size} · {short}", f"  {short}"]
    if width is None:
        return name_words(file), forms[0]
    wanted = cells(printable_line(file.name))
    rest = next((one for one in forms[:2] if wanted + cells(one) <= width), None)
    rest = rest or next((one for one in forms[1:] if NAME_CELLS_MIN + cells(one) <= width), forms[-1])
    if rest == forms[1] and file.fault:  # as much of what went wrong as there is room for
        rest = printable_line(forms[0], max(width - wanted, cells(rest)))
    return name_words(file, max(width - cells(rest), 1)), rest


def line(file: Attachment, mine: bool = False, width: int | None = None) -> str:
    """All of it."""
    return "".join(parts(file, mine, width))
