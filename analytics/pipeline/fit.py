"""Clocks that agree best with what pairs of members say of them, by least squares.

Each pair says by how much one clock is ahead of the other's. Where every two have heard each other, a member's mean
over the others would do; where some have not, such means are about different others, and two of them cannot be
compared. So all pairs of a component (members who have heard each other, directly or over others) are fitted at once:
their clocks are against one mean, that of the component, and nothing is known of two in different components.

Tens of thousands of pairs are little, so this is done here, by numpy.
"""

from typing import Any

import numpy as np
import pyarrow as pa

PEERS_MIN = 2
"""With fewer, one slow route would pass for a clock."""
SLOPE_PARTS = 10**15
"""A pair's slope comes in units of so small a part."""
DRIFT_MAX = SLOPE_PARTS // 100
"""Of a pair: a clock that gains a hundredth of the time is wrong, not skewed, and would be anywhere at other times."""
COMPONENT_MAX = 1_024
"""Members: a group has 64 at a time. Of more, whoever has made that up, clocks are not compared."""
PARTS_BASE, PARTS_SLOPE = 1_024, 64
"""Results are rounded to such parts of a microsecond, and of a slope's unit: what is below hangs on the processor."""
TABLE = pa.schema(
    [
        *(("member", pa.int64()), ("component", pa.int64()), ("peers", pa.int32()), ("windows", pa.int32())),
        *(("base_us", pa.float64()), ("slope", pa.float64()), ("start_us", pa.int64()), ("at_us", pa.int64())),
    ]
)


def fitted(pairs: pa.Table) -> pa.Table:
    """A row for each member whose clock can be told (`skew.lines`), from one row for each pair: (member, peer,
    start_us, windows, begin_us, end_us, base_us, slope), in whole µs and in whole SLOPE_PARTS; `start_us` is the same
    in all."""
    slope = pairs["slope"].to_numpy()
    pairs = pairs.filter(pa.array((slope <= DRIFT_MAX) & (slope >= -DRIFT_MAX)))
    pairs = _without_few(pairs.sort_by([("member", "ascending"), ("peer", "ascending")]))
    if not len(pairs):
        return TABLE.empty_table()
    column = {name: pairs[name].to_numpy() for name in pairs.column_names}
    names, one, other = _ends(pairs)
    both = np.concatenate([one, other])
    begin_us, end_us = np.full(len(names), np.iinfo(np.int64).max), np.full(len(names), np.iinfo(np.int64).min)
    windows: Any = np.zeros(len(names), np.int32)
    np.minimum.at(begin_us, both, np.tile(column["begin_us"], 2))
    np.maximum.at(end_us, both, np.tile(column["end_us"], 2))
    np.maximum.at(windows, both, np.tile(column["windows"], 2))
    label = _components(one, other, len(names))
    clocks: Any = np.full((len(names), 2), np.nan)
    said = np.column_stack([column["base_us"], column["slope"]]).astype(np.float64)
    by_label = np.argsort(label, kind="stable")
    pairs_by_label = np.argsort(label[one], kind="stable")
    for who, which in zip(
        np.split(by_label, _changes(label[by_label])),
        np.split(pairs_by_label, _changes(label[one][pairs_by_label])),
        strict=True,
    ):
        if len(who) <= COMPONENT_MAX:
            clocks[who] = _least_squares(
                np.searchsorted(who, one[which]), np.searchsorted(who, other[which]), said[which], len(who)
            )
    columns = {
        "member": names,
        "component": names[label],
        "peers": np.bincount(both).astype(np.int32),
        "windows": windows,
        "base_us": np.rint(clocks[:, 0] * PARTS_BASE) / PARTS_BASE,
        "slope": np.rint(clocks[:, 1] * PARTS_SLOPE) / PARTS_SLOPE / SLOPE_PARTS,
        "start_us": np.full(len(names), column["start_us"][0]),
        "at_us": (begin_us + end_us) // 2,
    }
    return pa.table(columns, schema=TABLE).filter(pa.array(~np.isnan(clocks[:, 0])))


def _ends(pairs: pa.Table) -> tuple[Any, Any, Any]:
    """All members, in order, and of each pair the places of both."""
    names, places = np.unique(
        np.concatenate([pairs["member"].to_numpy(), pairs["peer"].to_numpy()]), return_inverse=True
    )
    return names, places[: len(pairs)], places[len(pairs) :]


def _without_few(pairs: pa.Table) -> pa.Table:
    """The pairs of those who have PEERS_MIN peers, who have so many themselves."""
    while len(pairs):
        _, one, other = _ends(pairs)
        peers = np.bincount(np.concatenate([one, other]))
        enough = (peers[one] >= PEERS_MIN) & (peers[other] >= PEERS_MIN)
        if enough.all():
            break
        pairs = pairs.filter(pa.array(enough))
    return pairs


def _components(one: Any, other: Any, count: int) -> Any:
    """Of each member the place of the first one of its component: whoever knows of an earlier one tells the others."""
    label = np.arange(count)
    while True:
        earliest = np.minimum(label[one], label[other])
        told = label.copy()
        np.minimum.at(told, one, earliest)
        np.minimum.at(told, other, earliest)
        told = told[told]
        if (told == label).all():
            return label
        label = told


def _changes(ordered: Any) -> Any:
    """Where another value begins."""
    return np.flatnonzero(np.diff(ordered)) + 1


def _least_squares(one: Any, other: Any, ahead: Any, count: int) -> Any:
    """The values, of mean 0, whose differences (of `one` less `other`) come nearest to `ahead`; column by column."""
    normal: Any = np.zeros((count, count))
    right: Any = np.zeros((count, ahead.shape[1]))
    np.add.at(normal, (one, one), 1)
    np.add.at(normal, (other, other), 1)
    np.add.at(normal, (one, other), -1)
    np.add.at(normal, (other, one), -1)
    np.add.at(right, one, ahead)
    np.subtract.at(right, other, ahead)
    # Differences say nothing of the mean: it is one equation more, which makes it 0.
    return np.linalg.solve(normal + 1 / count, right)
