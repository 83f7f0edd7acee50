"""Least-squares fit of member clocks to pairwise offsets.

Each pair states an offset between two clocks. Within a component (members connected by pairs), all pairs are fitted at
once, so that the offsets of all members refer to one mean, even where some pairs are missing. Clocks of different
components cannot be compared.

Tens of thousands of pairs are few, so numpy does this in the driver.
"""

from typing import Any

import numpy as np
import pyarrow as pa

PEERS_MIN = 2
"""With fewer peers, a slow route would look like a clock offset."""
SLOPE_PARTS = 10**15
"""Unit of a pair's slope: one part in so many."""
DRIFT_MAX = SLOPE_PARTS // 100
"""Largest drift of a pair: more is a wrong clock."""
COMPONENT_MAX = 1_024
"""Largest component; larger ones are malicious, since a group has 64 members, and are skipped."""
PARTS_BASE, PARTS_SLOPE = 1_024, 64
"""Results are rounded to fractions of a microsecond and of a slope unit: below, they depend on the CPU."""
TABLE = pa.schema(
    [
        *(("member", pa.int64()), ("component", pa.int64()), ("peers", pa.int32()), ("windows", pa.int32())),
        *(("base_us", pa.float64()), ("slope", pa.float64()), ("start_us", pa.int64()), ("at_us", pa.int64())),
    ]
)


def fit_clocks(pairs: pa.Table) -> pa.Table:
    """One row per member with a known clock (`clock_skew.clock_lines`), from one row per pair: (member, peer, start_us,
    windows, begin_us, end_us, base_us, slope), in whole µs and SLOPE_PARTS; `start_us` is the same in all."""
    slope = pairs["slope"].to_numpy()
    pairs = pairs.filter(pa.array((slope <= DRIFT_MAX) & (slope >= -DRIFT_MAX)))
    pairs = _drop_sparse(pairs.sort_by([("member", "ascending"), ("peer", "ascending")]))
    if not len(pairs):
        return TABLE.empty_table()
    column = {name: pairs[name].to_numpy() for name in pairs.column_names}
    names, one, other = _indices(pairs)
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
        np.split(by_label, _boundaries(label[by_label])),
        np.split(pairs_by_label, _boundaries(label[one][pairs_by_label])),
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


def _indices(pairs: pa.Table) -> tuple[Any, Any, Any]:
    """All members in order, and the indices of both members of each pair."""
    names, places = np.unique(
        np.concatenate([pairs["member"].to_numpy(), pairs["peer"].to_numpy()]), return_inverse=True
    )
    return names, places[: len(pairs)], places[len(pairs) :]


def _drop_sparse(pairs: pa.Table) -> pa.Table:
    """The pairs whose members have PEERS_MIN peers, repeated until stable."""
    while len(pairs):
        _, one, other = _indices(pairs)
        peers = np.bincount(np.concatenate([one, other]))
        enough = (peers[one] >= PEERS_MIN) & (peers[other] >= PEERS_MIN)
        if enough.all():
            break
        pairs = pairs.filter(pa.array(enough))
    return pairs


def _components(one: Any, other: Any, count: int) -> Any:
    """Index of the first member of each member's component, by label propagation."""
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


def _boundaries(ordered: Any) -> Any:
    """Where the value changes."""
    return np.flatnonzero(np.diff(ordered)) + 1


def _least_squares(one: Any, other: Any, ahead: Any, count: int) -> Any:
    """The values of mean 0 whose differences (`one` less `other`) are closest to `ahead`, per column."""
    normal: Any = np.zeros((count, count))
    right: Any = np.zeros((count, ahead.shape[1]))
    np.add.at(normal, (one, one), 1)
    np.add.at(normal, (other, other), 1)
    np.add.at(normal, (one, other), -1)
    np.add.at(normal, (other, one), -1)
    np.add.at(right, one, ahead)
    np.subtract.at(right, other, ahead)
    # Differences do not determine the mean: one more equation makes it 0.
    return np.linalg.solve(normal + 1 / count, right)
