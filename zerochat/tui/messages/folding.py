"""Joins, leaves and new names that follow each other, in one line: nobody has to read past ten of them.

Who was put out, and what somebody may do, is never folded away.
"""

from collections.abc import Sequence
from dataclasses import replace

from zerochat.terminal_text import Printable
from zerochat.tui.messages.row import Row
from zerochat.tui.style.text import key_suffix

FOLD_MIN = 3
"""Lines that follow each other; fewer stand as they are."""
NAMED_MAX = 3
"""Names of one kind; of others the number is told."""
SIGN = "▸"
"""Before a line that a click unfolds."""


def follows(above: Row, row: Row) -> bool:
    """Whether a row can stand in one line with the row above it."""
    return above.change is not None and row.change is not None and above.day == row.day


def summary(rows: Sequence[Row]) -> Row:
    """The row that stands for all of these, in the place of the first."""
    by_kind: dict[str, dict[tuple[str, str], str]] = {}
    changes = [row.change for row in rows if row.change is not None]
    bearers: dict[str, set[str]] = {}
    for one in changes:
        bearers.setdefault(one.who, set()).add(one.did)
    for one in changes:
        shared = len(bearers[one.who]) > 1
        name = f"{one.who}·{key_suffix(one.did)}" if shared else one.who
        by_kind.setdefault(one.kind, {})[one.did, one.who] = name
    said = "; ".join(f"{_listed(list(names.values()))} {_VERBS[kind]}" for kind, names in by_kind.items())
    return replace(rows[0], text=Printable(f"{SIGN} {said}"), fold=len(rows))


_VERBS = {"joined": "joined", "left": "left", "renamed": "changed names"}


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    shown = [*names[:NAMED_MAX], *([f"{more} more"] if more > 0 else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
