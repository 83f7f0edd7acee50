"""Spark schema of exports, generated from zerochat's telemetry schema (`zerochat/agent/telemetry/schema.py`).

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

from zerochat.agent.telemetry import schema

FORMAT = "zerochat-telemetry"
VERSION = schema.SCHEMA_VERSION
VERSION_KEY = b"zerochat_schema_version"
"""Footer key of a Parquet file for the schema version of its rows."""

SPARK_TYPES: dict[str, DataType] = {
    "int64": LongType(),
    "int32": IntegerType(),
    "string": StringType(),
    "bool": BooleanType(),
    "list<int64>": ArrayType(LongType(), containsNull=True),
}
"""Spark's type by Arrow's name."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """Arrow's name of the type."""
    optional: bool = False


KINDS: dict[str, tuple[Column, ...]] = {
    name: tuple(Column(one.name, one.type, one.optional) for one in schema.columns(kind))
    for name, kind in schema.KINDS.items()
}
"""The record kinds of an export and their columns."""

WORDS: dict[tuple[str, str], tuple[str, ...]] = {
    (name, one.name): one.words for name, kind in schema.KINDS.items() for one in schema.columns(kind) if one.words
}
"""Closed vocabularies: a word's index stands for the word wherever millions of rows are counted."""

PHASES = WORDS["join", "phase"]


def struct(kind: str) -> StructType:
    """Spark's schema of one record kind; nothing is inferred."""
    return StructType([StructField(column.name, SPARK_TYPES[column.type], nullable=True) for column in KINDS[kind]])


def arrow_types(kind: str) -> dict[str, str]:
    """Arrow's types of one record kind, by column."""
    return {column.name: column.type for column in KINDS[kind]}
