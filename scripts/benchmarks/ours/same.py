"""Whether several engines have found the same: the tables of a study, compared row by row, column by column."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

EDGE = ("group", "sender", "observer")
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "message": (
        ("group", "sender", "seq"),
        (
            *("t_send_us", "kind", "keys", "path", "accountability", "n", "batch", "expected", "delivered", "direct"),
            *("newcomers", "unheard", "complete", "in_time", "first_us", "whole_us", "sum_us", "came", "shown_us"),
            *("uncorrected", "late", "dups", "hold_us", "hold_max_us", "missing", "slow_for"),
            *("queue_us", "plain_b", "env_b", "envelopes"),
        ),
    ),
    "edge_hist": ((*EDGE, "keys", "path", "n", "dup", "bin"), ("rows", "late", "hold_us", "hold_max_us", "max_us")),
    "edge": (
        EDGE,
        (
            *("expected", "delivered", "direct", "retransmission", "history", "mediator", "dups", "late", "hold_us"),
            *("hold_max_us", "corrected", "p50_us", "p90_us", "p99_us", "max_us"),
        ),
    ),
    "minute": (("observer", "minute"), ("expected", "direct", "mailed")),
    "outage": (("observer", "t_from_us"), ("t_to_us", "bad_minutes", "expected", "direct", "mailed")),
}
"""By table: the columns of the key, and the columns to compare."""


def table(place: Path, name: str) -> pa.Table:
    """One table in one order and with one kind of numbers; `place` is a study of Spark's, or a folder of files."""
    folder = place / "gold" / name
    files = sorted(folder.glob("*.parquet")) if folder.is_dir() else [place / f"{name}.parquet"]
    whole = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
    if name == "edge" and "evidence" in whole.column_names:
        whole = whole.filter(pc.equal(whole["evidence"], "receipts"))
    keys, values = TABLES[name]
    columns: dict[str, Any] = {}
    for column in (*keys, *values):
        there = whole[column]
        kind = there.type
        if pa.types.is_dictionary(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            there = there.cast(pa.string())
        elif pa.types.is_integer(kind):
            there = there.cast(pa.int64())
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            there = pa.chunked_array([[",".join(map(str, sorted(one))) for one in there.to_pylist()]], pa.string())
        columns[column] = there
    return pa.table(columns).sort_by([(key, "ascending") for key in keys]).combine_chunks()


def differences(one: Path, other: Path) -> list[str]:
    """The differences in words; empty if there are none."""
    said = []
    for name, (_, values) in TABLES.items():
        mine, theirs = table(one, name), table(other, name)
        if len(mine) != len(theirs):
            said.append(f"{name} has {len(mine)} rows here and {len(theirs)} there")
            continue
        for column in mine.column_names:
            if not mine[column].equals(theirs[column]):
                what = "rows" if column not in values else column
                unlike = [
                    n
                    for n, (a, b) in enumerate(zip(mine[column].to_pylist(), theirs[column].to_pylist(), strict=True))
                    if a != b
                ]
                said.append(f"{name} has other {what} ({column}) in {len(unlike)} of {len(mine)} rows")
    return said
