"""Files in words, as every face says them: how large, and how far they have come."""

from zerochat.agent.schema import Attachment
from zerochat.terminal import cells, printable_line

NAME_CELLS = 48
NAME_CELLS_MIN = 8


def size_words(size: int) -> str:
    """`2.3 MB`, as people and shops count: a kilobyte has a thousand bytes."""
    if size < 1_000:
        return f"{size} B"
    units = (("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000))
    unit, factor = next((one for one in units if size < one[1] * 999.5), units[-1])
    return f"{size / factor:.1f} {unit}" if size < factor * 9.95 else f"{size / factor:.0f} {unit}"


def name_words(file: Attachment) -> str:
    """Its name, fit for a line of a screen."""
    return printable_line(file.name, NAME_CELLS)


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


def _percent(file: Attachment) -> str:
    return f"{file.have * 100 // file.size} %"


def line(file: Attachment, mine: bool = False, width: int | None = None) -> str:
    """All of it; where there are only so many cells, the name is the first to be cut."""
    name, rest = name_words(file), f"  {size_words(file.size)} · {standing_words(file, mine)}"
    if width is not None and cells(name) + cells(rest) > width:
        name = printable_line(name, max(NAME_CELLS_MIN, width - cells(rest)))
    return name + rest
