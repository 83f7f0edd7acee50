"""Folding of consecutive joins, leaves and renames into one row. Removals and role changes are never folded."""

from collections.abc import Sequence
from dataclasses import replace

from zerochat.terminal_text import Printable
from zerochat.tui.messages.row import Row
from zerochat.tui.style.text import key_suffix

FOLD_MIN = 3
"""Minimum number of consecutive rows."""
NAMED_MAX = 3
"""Names listed of one kind; the rest is counted."""
SIGN = "▸"
"""Prefix of a folded row; a click unfolds it."""


def can_fold(above: Row, row: Row) -> bool:
    """Whether a row can be folded together with the row above."""
    return above.change is not None and row.change is not None and above.day == row.day


def summary(rows: Sequence[Row]) -> Row:
    """The folded row in the place of the first."""
    by_kind: dict[str, dict[tuple[str, str], str]] = {}
    changes = [row.change for row in rows if row.change is not None]
    bearers: dict[str, set[str]] = {}
    for change in changes:
        bearers.setdefault(change.who, set()).add(change.did)
    for change in changes:
        shared = len(bearers[change.who]) > 1
        name = f"{change.who}·{key_suffix(change.did)}" if shared else change.who
        by_kind.setdefault(change.kind, {})[change.did, change.who] = name
    text = "; ".join(f"{_listed(list(names.values()))} {_VERBS[kind]}" for kind, names in by_kind.items())
    return replace(rows[0], text=Printable(f"{SIGN} {text}"), fold=len(rows))


_VERBS = {"joined": "joined", "left": "left", "renamed": "changed names"}


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    shown = [*names[:NAMED_MAX], *([f"{more} more"] if more > 0 else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
