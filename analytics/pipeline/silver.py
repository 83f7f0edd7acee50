"""Silver: validated, deduplicated rows, vocabulary as numbers, and expected recipients.

A roster is a bit mask. Each member that a group ever had gets a number and one bit in a few 64-bit columns (`PREFIX0`,
`PREFIX1`, …), so that "who received it" is a bitwise OR over rows and "who lacks it" an AND NOT, without self-joins.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from analytics.pipeline.clock_skew import to_common_clock
from analytics.pipeline.read import DAY_US, Bronze
from analytics.pipeline.schema import KINDS, WORDS, struct
from analytics.pipeline.store import SLASHES, escape_glob, normalise_path
from zerochat import limits

TIME_US_MIN, TIME_US_MAX = 946_684_800_000_000, 7_258_118_400_000_000
"""Valid times: 2000 to 2200."""
DURATION_US_MAX = 10**13
"""Four months."""
TOOK_US_MAX = 10**15
"""Thirty years: a joiner's history may be old."""
SIZE_MAX = 2**32
SEQ_MAX = 2**53
MEMBERS_MAX = 4095
ROSTER_MAX = limits.MEMBERS_MAX
"""Most members of a group at a time."""
BITS = 64
EVER_MAX = 1_024
SETTLE_US = 60_000_000
"""Messages sent less than this before an observer's recording ends are not expected in it."""
APART_US = 1_000_000
"""Recording times this close are merged: single exports have times to the second."""
SPANS_MAX = 2_000
"""Most recording times per member and group: a start every twenty minutes for thirty days. Each is two moments at which
all rosters change."""
ALWAYS_US = TIME_US_MIN
RECEIPT_COLUMNS = (
    *("observer", "group", "sender", "seq", "keys", "n", "t_send_us", "t_recv_us", "hold_us", "path", "dup", "late"),
)
"""The columns of `recv` that the pipeline uses; only these are validated."""


def word_index(kind: str, column: str) -> Column:
    """Index of a word in its vocabulary; -1 if it is unknown."""
    told = f.lit(-1)
    for place, word in reversed(list(enumerate(WORDS[kind, column]))):
        told = f.when(f.col(column) == word, place).otherwise(told)
    return told


def word_at(kind: str, column: str, number: Column) -> Column:
    """The word with this index."""
    words = f.array(*map(f.lit, WORDS[kind, column]))
    return f.when(number >= 0, f.element_at(words, number.cast("int") + 1)).otherwise("unknown")


def valid_row(kind: str) -> Column:
    """Whether a row is complete and in range. Of `recv`, only the used columns are checked."""
    checks = []
    for column in KINDS[kind]:
        if kind == "recv" and column.name not in RECEIPT_COLUMNS:
            continue
        cell, name = f.col(column.name), column.name
        if column.type == "list<int64>":
            check = cell.isNotNull() & (f.size(cell) <= ROSTER_MAX)
        elif column.type in ("string", "bool"):
            check = cell.isNotNull()
        elif name.startswith("t_"):
            check = cell.between(TIME_US_MIN, TIME_US_MAX)
        elif name.endswith("_us") or name == "us":
            check = cell.between(0, DURATION_US_MAX)
        elif name.endswith("_b") or name in ("rows", "high", "drops"):
            check = cell.between(0, SIZE_MAX)
        elif name in ("seq", "upto", "after", "attempt"):
            check = cell.between(0, SEQ_MAX)
        elif name in ("n", "members", "envelopes", "batch", "disconnects"):
            check = cell.between(0, MEMBERS_MAX)
        else:
            check = cell.isNotNull()
        checks.append(cell.isNull() | check if column.optional else check)
    if kind == "recv":
        # both times are valid here, so their difference is a number
        checks.append(f.abs(f.col("t_recv_us") - f.col("t_send_us")) <= TOOK_US_MAX)
    return f.coalesce(reduce(Column.__and__, checks), f.lit(False))


def sends(rows: DataFrame) -> DataFrame:
    """Sent messages from rows of `send`, each once; `keys` and `path` as indices."""
    first = Window.partitionBy("sender", "group", "seq").orderBy("t_send_us", "queue_us", "plain_b", "env_b")
    return (
        rows.where(valid_row("send"))
        .select(
            f.col("observer").alias("sender"),
            *("group", "seq", "n", "batch", "t_send_us", "queue_us", "plain_b", "env_b", "envelopes"),
            "accountability",
            word_index("send", "keys").alias("keys"),
            word_index("send", "path").alias("path"),
            f.nullif(word_index("send", "kind"), f.lit(-1)).alias("sent_kind"),
        )
        .withColumn("place", f.row_number().over(first))
        .where("place = 1")
        .drop("place")
    )


def receipts(rows: DataFrame) -> DataFrame:
    """Received messages from rows of `recv`."""
    return rows.where(valid_row("recv")).select(
        *("observer", "group", "sender", "seq", "n", "t_send_us", "t_recv_us", "hold_us", "dup", "late"),
        word_index("recv", "keys").alias("keys"),
        word_index("recv", "path").alias("path"),
        word_index("recv", "kind").alias("kind"),
        # no client, or an invalid value: as if shown at once
        f.when(f.col("display_us").between(0, DURATION_US_MAX), f.col("display_us")).otherwise(0).alias("display_us"),
    )


# --- expected recipients ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Masks:
    """Number of 64-bit words per roster in this run, and operations on masks. `people`: number of used bits; 0:
    unknown."""

    words: int
    people: int = 0

    def names(self, prefix: str) -> list[str]:
        return [f"{prefix}{number}" for number in range(self.words)]

    def cols(self, prefix: str) -> list[Column]:
        return [f.col(name) for name in self.names(prefix)]

    def collect_bits(self, when: Column, prefix: str, how: Callable[[Column], Column] = f.bit_or) -> list[Column]:
        """Aggregates: the bits (columns `place` and `bit`) of all rows for which `when` holds."""
        told = []
        for place, name in enumerate(self.names(prefix)):
            mine = when if self.words == 1 else when & (f.col("place") == place)
            told.append(f.coalesce(how(f.when(mine, f.col("bit"))), f.lit(0).cast("long")).alias(name))
        return told

    def union_bits(self, prefix: str) -> list[Column]:
        """Aggregates: the union over all rows."""
        return [f.coalesce(f.bit_or(name), f.lit(0).cast("long")).alias(name) for name in self.names(prefix)]

    def each(self, into: str, formula: str) -> dict[str, Column]:
        """The columns of `into`, from a formula of masks (`exp & ~seen`) applied word by word."""
        return {
            name: f.expr(re.sub(r"[a-z]+", rf"\g<0>{number}", formula)) for number, name in enumerate(self.names(into))
        }

    def count(self, prefix: str) -> Column:
        return reduce(Column.__add__, [f.bit_count(one) for one in self.cols(prefix)]).cast("int")

    def all_numbers(self) -> Column:
        """All numbers as an array."""
        return f.sequence(f.lit(0), f.lit((self.people or self.words * BITS) - 1))

    def contains(self, prefix: str, number: Column) -> Column:
        """Whether the mask contains this number."""
        there = f.lit(False)
        for place, one in enumerate(self.cols(prefix)):
            mine = number.between(place * BITS, place * BITS + BITS - 1)
            there = f.when(mine, f.getbit(one, number - place * BITS) == 1).otherwise(there)
        return there

    def numbers(self, prefix: str) -> Column:
        """The numbers in the mask as an array."""
        parts = []
        for place, one in enumerate(self.cols(prefix)):
            there = f.filter(f.sequence(f.lit(0), f.lit(BITS - 1)), partial(_is_set, one))
            numbers = there if place == 0 else f.transform(there, partial(_add, place * BITS))
            parts.append(f.when(one == 0, f.array().cast("array<int>")).otherwise(numbers))
        return f.concat(*parts)


def _is_set(word: Column, bit: Column) -> Column:
    return f.getbit(word, bit) == 1


def _add(number: int, bit: Column) -> Column:
    return bit + number


def number_members(rows: DataFrame) -> DataFrame:
    """A number for each member a group ever had, from 0, ordered by pseudonym, with its `place` and `bit` in a mask:
    (group, member, number, place, bit). `rows` has (group, member) with duplicates. Beyond EVER_MAX only one more is
    kept, as an indicator."""
    order = Window.partitionBy("group").orderBy("member")
    return (
        rows.distinct()
        .withColumn("number", (f.row_number().over(order) - 1).cast("int"))
        .where((f.col("number") <= EVER_MAX) & f.col("member").isNotNull())
        .withColumn("place", f.floor(f.col("number") / BITS).cast("int"))
        .withColumn("bit", f.expr(f"shiftleft(1L, number % {BITS})"))
    )


def rows_by_export(spark: SparkSession, bronze: Bronze, kind: str) -> DataFrame:
    """All rows of a small record kind with the number of their export."""
    paths = [
        (number, file.path)
        for number, export in enumerate(bronze.exports)
        for file in export.files
        if file.kind == kind
    ]
    if not paths:
        return spark.createDataFrame([], struct(kind)).select(f.lit(0).alias("export"), "*")
    names = spark.createDataFrame([(number, normalise_path(path)) for number, path in paths], "export int, path string")
    whence = f.regexp_replace(f.url_decode(f.replace(f.col("whence"), f.lit("+"), f.lit("%2B"))), SLASHES, "$1:/")
    return (
        spark.read.schema(struct(kind))
        .parquet(*(escape_glob(path) for _, path in paths))
        .select("*", f.col("_metadata.file_path").alias("whence"))
        .withColumn("path", whence)
        .join(f.broadcast(names), "path")
        .select("export", *(column.name for column in KINDS[kind]))
    )


def views(spark: SparkSession, bronze: Bronze) -> DataFrame:
    """All views with their export: (export, observer, group, roster, t_us)."""
    return (
        rows_by_export(spark, bronze, "view")
        .where(valid_row("view"))
        .select("export", "observer", "group", f.array_distinct("roster").alias("roster"), "t_us")
    )


def merge_spans(spans: DataFrame, by: list[str], apart_us: int = 0) -> DataFrame:
    """Minimal set of time spans (`from_us`, `to_us`): overlapping and adjacent ones are merged."""
    order = Window.partitionBy(*by).orderBy("from_us", "to_us")
    before = f.max("to_us").over(order.rowsBetween(Window.unboundedPreceding, -1))
    begins = f.coalesce(f.col("from_us") > before + apart_us, f.lit(True))
    return (
        spans.withColumn("begins", begins.cast("int"))
        .withColumn("place", f.sum("begins").over(order))
        .groupBy(*by, "place")
        .agg(f.min("from_us").alias("from_us"), f.max("to_us").alias("to_us"))
        .drop("place")
    )


Counter: TypeAlias = Callable[[DataFrame], DataFrame]
"""Returns the same rows, counted."""


def uncounted(rows: DataFrame) -> DataFrame:
    return rows


def coverage(
    spark: SparkSession, bronze: Bronze, views: DataFrame, spans: DataFrame, watch: Counter = uncounted
) -> DataFrame:
    """When an observer's receipts are known: (group, member, from_us, to_us), to_us excluded, disjoint per member.

    From an export's first view of the group to its end, without rejected days and without times outside of the export's
    `spans` (export, t_from_us, t_us). Of more than SPANS_MAX, the longest; in the others nothing counts as lost.
    `watch` receives all of them with `counts`.
    """
    rows = []
    for number, export in enumerate(bronze.exports):
        begin = export.from_us
        for hole in sorted(set(export.missing_days)):
            rows.append((number, begin, hole))
            begin = max(begin, hole + DAY_US)
        rows.append((number, begin, export.to_us))
    days = spark.createDataFrame(rows or [(0, 0, 0)], "export int, from_us long, to_us long")
    first = views.groupBy("export", "observer", "group").agg(f.min("t_us").alias("first_us"))
    recorded = merge_spans(
        spans.select("export", f.col("t_from_us").alias("from_us"), f.col("t_us").alias("to_us")), ["export"], APART_US
    ).withColumnsRenamed({"from_us": "span_from_us", "to_us": "span_to_us"})
    covered = (
        first.join(f.broadcast(days), "export")
        .join(f.broadcast(recorded), "export")
        .select(
            *("group", f.col("observer").alias("member")),
            f.greatest("from_us", "first_us", "span_from_us").alias("from_us"),
            f.least("to_us", "span_to_us").alias("to_us"),
        )
        .where("to_us > from_us")
    )
    longest = Window.partitionBy("group", "member").orderBy((f.col("from_us") - f.col("to_us")).asc(), "from_us")
    ranked = merge_spans(covered, ["group", "member"]).withColumn("counts", f.row_number().over(longest) <= SPANS_MAX)
    return watch(ranked).where("counts").drop("counts")


def coverage_gaps(covered: DataFrame, people: DataFrame) -> DataFrame:
    """The complement of the coverage, for covered members: (group, place, bit, hole_from_us, hole_to_us)."""
    order = Window.partitionBy("group", "member").orderBy("from_us")
    before = f.coalesce(f.lag("to_us").over(order), f.lit(ALWAYS_US))
    last = covered.groupBy("group", "member").agg(
        f.max("to_us").alias("hole_from_us"), f.lit(TIME_US_MAX).alias("hole_to_us")
    )
    return (
        covered.select("group", "member", before.alias("hole_from_us"), f.col("from_us").alias("hole_to_us"))
        .unionByName(last)
        .join(f.broadcast(people), ["group", "member"])
        .select("group", "place", "bit", "hole_from_us", "hole_to_us")
    )


def rosters(
    views: DataFrame,
    covered: DataFrame,
    people: DataFrame,
    lines: DataFrame,
    start_us: int,
    masks: Masks,
    anybody: bool,
) -> DataFrame:
    """Expected recipients from a moment until the next, by viewer: (group, viewer, from_us, size, all*, heard*).

    `all*`: the roster. `heard*`: members of it whose receipts are known from then on, so that a missing one is a loss.
    Moments are the viewer's views and the starts and ends of receipts, by the common clock
    (`clock_skew.to_common_clock`) where possible.

    Rows with `viewer` null (only if `anybody`) serve authors without views: the latest view of all members whose
    receipts are known then and who are in it, so that a former member does not decide.
    """
    seen = to_common_clock(
        views.select("group", f.col("observer").alias("viewer"), f.col("t_us").alias("from_us"), "roster"),
        *("viewer", ["from_us"], lines, start_us),
    )
    mine = (
        seen.groupBy("group", "viewer", "from_us")
        .agg(f.max("roster").alias("roster"))
        .select("group", "viewer", "from_us", f.size("roster").alias("size"), f.explode("roster").alias("member"))
        .join(f.broadcast(people), ["group", "member"])
        .groupBy("group", "viewer", "from_us")
        .agg(f.max("size").alias("size"), *masks.collect_bits(f.lit(True), "all"))
        .select(
            *("group", "viewer", "from_us"),
            f.struct("size", f.col("from_us").alias("since_us"), *masks.names("all")).alias("seen"),
        )
    )
    known = _receipts_known(to_common_clock(covered, "member", ["from_us", "to_us"], lines, start_us), people, masks)
    viewers = mine.select("group", "viewer").distinct()
    # Messages before the first view use that view, and their receipts are unknown.
    always = viewers.select("group", f.lit(ALWAYS_US).alias("from_us")).distinct()
    moments = known.unionByName(always, allowMissingColumns=True)
    steps = _steps(mine, viewers.join(moments, "group"), masks)
    if anybody:
        more = mine.select("group", "from_us").distinct()
        every = viewers.join(moments.unionByName(more, allowMissingColumns=True), "group")
        steps = steps.unionByName(_any_viewer(_steps(mine, every, masks), people, masks))
    return steps.withColumns(masks.each("heard", "all & known")).select(
        "group", "viewer", "from_us", "size", *masks.names("all"), *masks.names("heard")
    )


def _receipts_known(covered: DataFrame, people: DataFrame, masks: Masks) -> DataFrame:
    """Whose receipts are known from a moment on: (group, from_us, known), a struct of masks. Each start and end flips a
    bit."""
    order = Window.partitionBy("group").orderBy("from_us")
    return (
        covered.withColumn("to_us", f.col("to_us") - SETTLE_US)
        .where("to_us > from_us")
        .select("group", "member", f.explode(f.array("from_us", "to_us")).alias("from_us"))
        .join(f.broadcast(people), ["group", "member"])
        .groupBy("group", "from_us")
        .agg(*masks.collect_bits(f.lit(True), "flip", f.bit_xor))
        .select(
            *("group", "from_us"),
            f.struct(
                *(
                    f.bit_xor(flip).over(order).alias(name)
                    for flip, name in zip(masks.cols("flip"), masks.names("known"), strict=True)
                )
            ).alias("known"),
        )
    )


def _steps(mine: DataFrame, moments: DataFrame, masks: Masks) -> DataFrame:
    """What each viewer sees from each moment on, and known receipts: (group, viewer, from_us, size, since_us, all*,
    known*), from views (group, viewer, from_us, seen) and moments (group, viewer, from_us, known)."""
    before = Window.partitionBy("group", "viewer").orderBy("from_us")
    seen = f.last("seen", ignorenulls=True).over(before)
    first = f.first("seen", ignorenulls=True).over(before.rowsBetween(*EVERYWHERE))
    none = f.lit(0).cast("long")
    return (
        mine.unionByName(moments, allowMissingColumns=True)
        .groupBy("group", "viewer", "from_us")
        .agg(f.max("seen").alias("seen"), f.max("known").alias("known"))
        .withColumns({"seen": f.coalesce(seen, first), "known": f.last("known", ignorenulls=True).over(before)})
        .select(
            *("group", "viewer", "from_us", "seen.*"),
            *(f.coalesce(f"known.{name}", none).alias(name) for name in masks.names("known")),
        )
    )


def _any_viewer(steps: DataFrame, people: DataFrame, masks: Masks) -> DataFrame:
    """The step to use at each moment for authors without views."""
    number = people.select("group", f.col("member").alias("viewer"), "number")
    inside = masks.contains("all", f.col("number"))
    since = f.col("since_us")
    rank = f.struct(
        (inside & masks.contains("known", f.col("number"))).alias("known"),
        inside.alias("inside"),
        # Before the first view, the first of them.
        f.when(since <= f.col("from_us"), since).otherwise(-since).alias("since"),
        "viewer",
    )
    state = f.struct("size", "since_us", *masks.names("all"), *masks.names("known"))
    return (
        steps.join(f.broadcast(number), ["group", "viewer"])
        .groupBy("group", "from_us")
        .agg(f.max_by(state, rank).alias("state"))
        .select("group", f.lit(None).cast("long").alias("viewer"), "from_us", "state.*")
    )


EVERYWHERE = (Window.unboundedPreceding, Window.unboundedFollowing)
