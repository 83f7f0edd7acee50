"""What an export's tables look like, and what the pipeline's own do: names, types, and what may be missing.

Names say their units: `_us` microseconds (`t_*_us`: since 1970, UTC), `_b` bytes. Pseudonyms are 64-bit numbers.
"""

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

FORMAT = "zerochat-telemetry"
VERSIONS = (1, 2, 3)
"""Of what a recorder writes. Columns that a version does not have yet are null in its rows."""
ADDED = {("send", "kind"): 2}
"""From which version on a column is there, if not from the first."""
KINDS_ADDED = {"span": 3}
"""The same of kinds of facts."""
VERSION_KEY = b"zerochat_schema_version"
"""Under which a Parquet file's footer says which version its rows have."""

TYPES: dict[str, tuple[DataType, str]] = {
    "long": (LongType(), "int64"),
    "int": (IntegerType(), "int32"),
    "text": (StringType(), "string"),
    "bool": (BooleanType(), "bool"),
    "longs": (ArrayType(LongType(), containsNull=True), "list<int64>"),
}
"""By our own short names: Spark's type, and Arrow's name for it."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: str
    optional: bool = False


def _columns(text: str) -> tuple[Column, ...]:
    """`name kind, name kind?` as columns."""
    words = (part.split() for part in text.split(","))
    return tuple(Column(name, kind.removesuffix("?"), kind.endswith("?")) for name, kind in words)


KINDS: dict[str, tuple[Column, ...]] = {
    "send": _columns(
        "observer long, group long, seq long, keys text, path text, accountability text, n int, batch int,"
        " t_send_us long, queue_us long, plain_b long, env_b long, envelopes int, kind text?"
    ),
    "recv": _columns(
        "observer long, group long, sender long, seq long, keys text, kind text, n int, t_send_us long,"
        " t_recv_us long, decrypt_us long, hold_us long, display_us long?, path text, dup bool, late bool,"
        " env_b long, plain_b long"
    ),
    "ack": _columns("observer long, group long, member long, upto long, t_ack_us long, path text"),
    "repair": _columns(
        "observer long, group long, sender long, asked long, after long, upto long, t_us long, us long?, outcome text"
    ),
    "join": _columns(
        "observer long, group long, attempt long, role text, connected bool, phase text, us long, members int,"
        " outcome text, t_us long, rtt_us long?"
    ),
    "snapshot": _columns(
        "observer long, group long, rows long, bytes_b long, us long, cuts int, outcome text, t_us long"
    ),
    "state": _columns("observer long, group long, sections int, raw_b long, zstd_b long, t_us long"),
    "link": _columns("observer long, peer long, up bool, reason text, us long, t_us long"),
    "queue": _columns("observer long, name text, high long, drops long, t_us long"),
    "view": _columns("observer long, group long, roster longs, checksum long, t_us long"),
    "span": _columns("observer long, t_from_us long, t_us long"),
}
"""The kinds of facts in an export, and the columns of each."""

WORDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("send", "keys"): ("pairwise-multi", "pairwise-single", "sender-key"),
    ("send", "path"): ("direct", "mediator", "mixed"),
    ("send", "kind"): ("message", "membership", "remark"),
    ("recv", "keys"): ("pairwise-multi", "pairwise-single", "sender-key"),
    ("recv", "path"): ("direct", "repair", "history", "mediator"),
    ("recv", "kind"): ("message", "membership", "remark"),
    ("join", "phase"): ("request", "view", "exchanges", "subscriptions", "announce", "whole"),
    ("join", "outcome"): ("joined", "failed", "cancelled"),
    ("repair", "outcome"): ("answered", "unanswered"),
}
"""Closed lists: a place in its list stands for the word wherever millions of rows are counted."""

PHASES = WORDS["join", "phase"]


def struct(kind: str) -> StructType:
    """Spark's schema of one kind of facts, as it is declared: nothing is inferred."""
    return StructType([StructField(column.name, TYPES[column.kind][0], nullable=True) for column in KINDS[kind]])


def arrow_types(kind: str, version: int) -> dict[str, str]:
    """What Arrow calls the types of the columns that one kind has in a version, by column."""
    return {
        column.name: TYPES[column.kind][1] for column in KINDS[kind] if ADDED.get((kind, column.name), 1) <= version
    }
