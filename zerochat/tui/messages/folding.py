"""Folding of consecutive joins, leaves and renames into one row. Removals and role changes are never folded."""

from collections.abc import Sequence
from dataclasses import replace

from zerochat.terminal_text import Printable
from zerochat.tui.messages.events import Subject
from zerochat.tui.messages.row import Row

FOLD_MIN = 3
"""Minimum number of consecutive rows."""
NAMED_MAX = 3
"""Names listed of one kind; the rest is counted."""
ARROW = " → "
"""Between an old and a new name."""
SIGN = "▸"
"""Prefix of a folded row; a click unfolds it."""


def can_fold(above: Row, row: Row) -> bool:
    """Whether a row can be folded together with the row above."""
    return above.change is not None and row.change is not None and above.day == row.day


def summary(rows: Sequence[Row]) -> Row:
    """The folded row in the place of the first."""
    by_kind: dict[str, dict[tuple[str, tuple[Printable, ...]], None]] = {}
    for change in (row.change for row in rows if row.change is not None):
        by_kind.setdefault(change.kind, {})[change.did, change.names] = None
    text, subjects = f"{SIGN} ", list[Subject]()
    for kind, changes in by_kind.items():
        text += "; " if subjects else ""
        shown = list(changes)[:NAMED_MAX]
        for number, (did, names) in enumerate(shown):
            text += _separator(number, len(changes))
            for is_later, name in enumerate(names):
                text += ARROW * is_later
                subjects.append(Subject(did, name, len(text)))
                text += name
        more = len(changes) - len(shown)
        text += f"{f' and {more} more' if more else ''} {_VERBS[kind]}"
    return replace(rows[0], text=Printable(text), subjects=tuple(subjects), fold=len(rows))


_VERBS = {"joined": "joined", "left": "left", "renamed": "changed names"}


def _separator(number: int, count: int) -> str:
    """What stands before a name in a list of `count`, of which NAMED_MAX are shown."""
    if number == 0:
        return ""
    return " and " if number == count - 1 else ", "
