"""Silver: rows that can be believed, each once, words as numbers; and who was to hear whom, when.

A roster is a mask of bits. Every member that a group has ever had gets a number in it, and stands for one bit of a few
64-bit words, so that "whom did it reach" is one OR over rows, and "who lacks it" one AND NOT: no rows are joined with
themselves. Words are columns called `PREFIX0`, `PREFIX1`, …
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from analytics.pipeline.read import DAY_US, Bronze
from analytics.pipeline.schema import KINDS, KINDS_ADDED, WORDS, struct
from analytics.pipeline.skew import agreed
from analytics.pipeline.store import SLASHES, exactly, one_form

TIME_US_MIN, TIME_US_MAX = 946_684_800_000_000, 7_258_118_400_000_000
"""2000 and 2200: a time outside is nobody's."""
DURATION_US_MAX = 10**13
"""Four months."""
TOOK_US_MAX = 10**15
"""Thirty years: what newcomers get as history may be old, and nothing was on its way for longer than that."""
SIZE_MAX = 2**32
SEQ_MAX = 2**53
MEMBERS_MAX = 4095
ROSTER_MAX = 64
"""Members of a group at one time: zerochat lets no more in."""
BITS = 64
EVER_MAX = 1_024
SETTLE_US = 60_000_000
"""What was sent less than this before an observer's export ends need not have arrived in it."""
APART_US = 1_000_000
"""Spans of recording that are no further apart are one: people who export alone have times to the second."""
SPANS_MAX = 2_000
"""Times of one member in one group in which its receipts are known, apart from each other: a start every twenty minutes
for thirty days. Each of them is two moments at which whom everybody's messages are due to changes."""
ALWAYS_US = TIME_US_MIN
RECEIPT = (
    *("observer", "group", "sender", "seq", "keys", "n", "t_send_us", "t_recv_us", "hold_us", "path", "dup", "late"),
)
"""What of `recv` every part of the pipeline uses; nothing else of a row is looked at before it is believed."""


def code(kind: str, column: str) -> Column:
    """A word as its place in its closed list; -1 for one that is not in it."""
    told = f.lit(-1)
    for place, word in reversed(list(enumerate(WORDS[kind, column]))):
        told = f.when(f.col(column) == word, place).otherwise(told)
    return told


def word(kind: str, column: str, number: Column) -> Column:
    """The word for a number that `code` gave."""
    words = f.array(*map(f.lit, WORDS[kind, column]))
    return f.when(number >= 0, f.element_at(words, number.cast("int") + 1)).otherwise("unknown")


def believable(kind: str) -> Column:
    """Whether a row has all that it must have, and no number is out of its range. Of `recv`, whose rows are millions,
    only what is used is looked at."""
    checks = []
    for column in KINDS[kind]:
        if kind == "recv" and column.name not in RECEIPT:
            continue
        cell, name = f.col(column.name), column.name
        if column.kind == "longs":
            check = cell.isNotNull() & (f.size(cell) <= ROSTER_MAX)
        elif column.kind in ("text", "bool"):
            check = cell.isNotNull()
        elif name.startswith("t_"):
            check = cell.between(TIME_US_MIN, TIME_US_MAX)
        elif name.endswith("_us") or name == "us":
            check = cell.between(0, DURATION_US_MAX)
        elif name.endswith("_b") or name in ("rows", "high", "drops"):
            check = cell.between(0, SIZE_MAX)
        elif name in ("seq", "upto", "after", "attempt"):
            check = cell.between(0, SEQ_MAX)
        elif name in ("n", "members", "sections", "envelopes", "batch", "cuts"):
            check = cell.between(0, MEMBERS_MAX)
        else:
            check = cell.isNotNull()
        checks.append(cell.isNull() | check if column.optional else check)
    if kind == "recv":
        # Both are times of a person's life by now, so that their difference is a number.
        checks.append(f.abs(f.col("t_recv_us") - f.col("t_send_us")) <= TOOK_US_MAX)
    return f.coalesce(reduce(Column.__and__, checks), f.lit(False))


def sends(rows: DataFrame) -> DataFrame:
    """What was sent, each message once, from rows of `send`; `keys` and `path` as numbers."""
    first = Window.partitionBy("sender", "group", "seq").orderBy("t_send_us", "queue_us", "plain_b", "env_b")
    return (
        rows.where(believable("send"))
        .select(
            f.col("observer").alias("sender"),
            *("group", "seq", "n", "batch", "t_send_us", "queue_us", "plain_b", "env_b", "envelopes"),
            "accountability",
            code("send", "keys").alias("keys"),
            code("send", "path").alias("path"),
            f.nullif(code("send", "kind"), f.lit(-1)).alias("sent_kind"),
        )
        .withColumn("place", f.row_number().over(first))
        .where("place = 1")
        .drop("place")
    )


def receipts(rows: DataFrame) -> DataFrame:
    """What was received, from rows of `recv`."""
    return rows.where(believable("recv")).select(
        *("observer", "group", "sender", "seq", "n", "t_send_us", "t_recv_us", "hold_us", "dup", "late"),
        code("recv", "keys").alias("keys"),
        code("recv", "path").alias("path"),
        code("recv", "kind").alias("kind"),
        # Of no face that was there, or of none that can be believed: as if it had been told at once.
        f.when(f.col("display_us").between(0, DURATION_US_MAX), f.col("display_us")).otherwise(0).alias("display_us"),
    )


# --- who was to hear whom ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Masks:
    """How many words a roster has in this run, and what is done with them. `people`: how many bits of all of them are
    used at the most; 0: that is not known."""

    words: int
    people: int = 0

    def names(self, prefix: str) -> list[str]:
        return [f"{prefix}{number}" for number in range(self.words)]

    def cols(self, prefix: str) -> list[Column]:
        return [f.col(name) for name in self.names(prefix)]

    def gather(self, when: Column, prefix: str, how: Callable[[Column], Column] = f.bit_or) -> list[Column]:
        """Aggregates: the bits (columns `place` and `bit`) of all rows for which `when` holds."""
        told = []
        for place, name in enumerate(self.names(prefix)):
            mine = when if self.words == 1 else when & (f.col("place") == place)
            told.append(f.coalesce(how(f.when(mine, f.col("bit"))), f.lit(0).cast("long")).alias(name))
        return told

    def union(self, prefix: str) -> list[Column]:
        """Aggregates: all bits of all rows."""
        return [f.coalesce(f.bit_or(name), f.lit(0).cast("long")).alias(name) for name in self.names(prefix)]

    def each(self, into: str, formula: str) -> dict[str, Column]:
        """Word by word, what a formula of masks comes to (`exp & ~seen`), as the columns of `into`."""
        return {
            name: f.expr(re.sub(r"[a-z]+", rf"\g<0>{number}", formula)) for number, name in enumerate(self.names(into))
        }

    def count(self, prefix: str) -> Column:
        return reduce(Column.__add__, [f.bit_count(one) for one in self.cols(prefix)]).cast("int")

    def everybody(self) -> Column:
        """All numbers that there are, as an array."""
        return f.sequence(f.lit(0), f.lit((self.people or self.words * BITS) - 1))

    def has(self, prefix: str, number: Column) -> Column:
        """Whether the one with this number is in."""
        there = f.lit(False)
        for place, one in enumerate(self.cols(prefix)):
            mine = number.between(place * BITS, place * BITS + BITS - 1)
            there = f.when(mine, f.getbit(one, number - place * BITS) == 1).otherwise(there)
        return there

    def numbers(self, prefix: str) -> Column:
        """The numbers of those who are in, as an array."""
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


def members(rows: DataFrame) -> DataFrame:
    """A number for each member that a group has ever had, from 0, in order of pseudonyms, with its `place` and `bit` in
    a mask: (group, member, number, place, bit). `rows` has (group, member), each as often as it likes. Of more
    than EVER_MAX, which would be many words for every message, only one more is looked at: it tells that they are."""
    order = Window.partitionBy("group").orderBy("member")
    return (
        rows.distinct()
        .withColumn("number", (f.row_number().over(order) - 1).cast("int"))
        .where((f.col("number") <= EVER_MAX) & f.col("member").isNotNull())
        .withColumn("place", f.floor(f.col("number") / BITS).cast("int"))
        .withColumn("bit", f.expr(f"shiftleft(1L, number % {BITS})"))
    )


def of_exports(spark: SparkSession, bronze: Bronze, kind: str) -> DataFrame:
    """Every row of a kind of facts, whose files are not many, with the export that it is from (a number)."""
    paths = [
        (number, file.path)
        for number, export in enumerate(bronze.exports)
        for file in export.files
        if file.kind == kind
    ]
    if not paths:
        return spark.createDataFrame([], struct(kind)).select(f.lit(0).alias("export"), "*")
    names = spark.createDataFrame([(number, one_form(path)) for number, path in paths], "export int, path string")
    whence = f.regexp_replace(f.url_decode(f.replace(f.col("whence"), f.lit("+"), f.lit("%2B"))), SLASHES, "$1:/")
    return (
        spark.read.schema(struct(kind))
        .parquet(*(exactly(path) for _, path in paths))
        .select("*", f.col("_metadata.file_path").alias("whence"))
        .withColumn("path", whence)
        .join(f.broadcast(names), "path")
        .select("export", *(column.name for column in KINDS[kind]))
    )


def views(spark: SparkSession, bronze: Bronze) -> DataFrame:
    """Every view, with the export that it is from: (export, observer, group, roster, t_us)."""
    return (
        of_exports(spark, bronze, "view")
        .where(believable("view"))
        .select("export", "observer", "group", f.array_distinct("roster").alias("roster"), "t_us")
    )


def merged(spans: DataFrame, by: list[str], apart_us: int = 0) -> DataFrame:
    """Spans of time (`from_us`, `to_us`) as few as they can be: those that overlap, or are no further apart than that,
    are one."""
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


Watched: TypeAlias = Callable[[DataFrame], DataFrame]
"""The same rows, which somebody counts."""


def unwatched(rows: DataFrame) -> DataFrame:
    return rows


def coverage(
    spark: SparkSession, bronze: Bronze, views: DataFrame, spans: DataFrame, watch: Watched = unwatched
) -> DataFrame:
    """During which time an observer's receipts are known: (group, member, from_us, to_us), to_us not included, and no
    two of one member meeting.

    From the first view of the group that an export has, to the export's end, without the days that were set aside, and
    without the time in which nothing was recorded: what is in none of the export's `spans` (export, t_from_us, t_us).
    Exports of versions that have no spans say nothing of that. Of more than SPANS_MAX, the longest: in the others
    nothing counts as lost. `watch` gets every one, `counts` or not.
    """
    rows = []
    for number, export in enumerate(bronze.exports):
        told, begin = export.version >= KINDS_ADDED["span"], export.from_us
        for hole in sorted(set(export.holes)):
            rows.append((number, told, begin, hole))
            begin = max(begin, hole + DAY_US)
        rows.append((number, told, begin, export.to_us))
    days = spark.createDataFrame(rows or [(0, True, 0, 0)], "export int, told boolean, from_us long, to_us long")
    first = views.groupBy("export", "observer", "group").agg(f.min("t_us").alias("first_us"))
    recorded = merged(
        spans.select("export", f.col("t_from_us").alias("from_us"), f.col("t_us").alias("to_us")), ["export"], APART_US
    ).withColumnsRenamed({"from_us": "span_from_us", "to_us": "span_to_us"})
    covered = (
        first.join(f.broadcast(days), "export")
        .join(f.broadcast(recorded), "export", "left")
        .where("not told or span_from_us is not null")
        .select(
            *("group", f.col("observer").alias("member")),
            # Both leave out what is null: of an export that has no spans.
            f.greatest("from_us", "first_us", "span_from_us").alias("from_us"),
            f.least("to_us", "span_to_us").alias("to_us"),
        )
        .where("to_us > from_us")
    )
    longest = Window.partitionBy("group", "member").orderBy((f.col("from_us") - f.col("to_us")).asc(), "from_us")
    ranked = merged(covered, ["group", "member"]).withColumn("counts", f.row_number().over(longest) <= SPANS_MAX)
    return watch(ranked).where("counts").drop("counts")


def uncovered(covered: DataFrame, people: DataFrame) -> DataFrame:
    """The rest of all time, of those of whom anything is covered: (group, place, bit, hole_from_us, hole_to_us)."""
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
    """Who is to hear what is said from a moment on, as somebody sees it, until the next such moment:
    (group, viewer, from_us, size, all*, heard*).

    `all*`: everybody in the roster. `heard*`: those of them whose receipts are known from then on, so that what is
    lacking is lost. Moments are those of the viewer's views, and those at which somebody's receipts begin or end; all
    by clocks that agree (`skew.agreed`), as far as they can be compared.

    Where `viewer` is null, it is as anybody sees it (only if `anybody`), for authors who tell of no views: the latest
    view of all whose receipts are known then and who are in it, so that nobody decides who has left.
    """
    seen = agreed(
        views.select("group", f.col("observer").alias("viewer"), f.col("t_us").alias("from_us"), "roster"),
        *("viewer", ["from_us"], lines, start_us),
    )
    mine = (
        seen.groupBy("group", "viewer", "from_us")
        .agg(f.max("roster").alias("roster"))
        .select("group", "viewer", "from_us", f.size("roster").alias("size"), f.explode("roster").alias("member"))
        .join(f.broadcast(people), ["group", "member"])
        .groupBy("group", "viewer", "from_us")
        .agg(f.max("size").alias("size"), *masks.gather(f.lit(True), "all"))
        .select(
            *("group", "viewer", "from_us"),
            f.struct("size", f.col("from_us").alias("since_us"), *masks.names("all")).alias("seen"),
        )
    )
    known = _known(agreed(covered, "member", ["from_us", "to_us"], lines, start_us), people, masks)
    viewers = mine.select("group", "viewer").distinct()
    # Whatever was said before the first view was said to those whom it has, and nothing is known of its receipts.
    always = viewers.select("group", f.lit(ALWAYS_US).alias("from_us")).distinct()
    moments = known.unionByName(always, allowMissingColumns=True)
    steps = _steps(mine, viewers.join(moments, "group"), masks)
    if anybody:
        more = mine.select("group", "from_us").distinct()
        every = viewers.join(moments.unionByName(more, allowMissingColumns=True), "group")
        steps = steps.unionByName(_of_anybody(_steps(mine, every, masks), people, masks))
    return steps.withColumns(masks.each("heard", "all & known")).select(
        "group", "viewer", "from_us", "size", *masks.names("all"), *masks.names("heard")
    )


def _known(covered: DataFrame, people: DataFrame, masks: Masks) -> DataFrame:
    """Whose receipts are known from a moment on: (group, from_us, known), a struct of masks. Whoever begins or ends
    changes its bit then."""
    order = Window.partitionBy("group").orderBy("from_us")
    return (
        covered.withColumn("to_us", f.col("to_us") - SETTLE_US)
        .where("to_us > from_us")
        .select("group", "member", f.explode(f.array("from_us", "to_us")).alias("from_us"))
        .join(f.broadcast(people), ["group", "member"])
        .groupBy("group", "from_us")
        .agg(*masks.gather(f.lit(True), "flip", f.bit_xor))
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
    """What each viewer sees from each moment on, and what is known then: (group, viewer, from_us, size, since_us, all*,
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


def _of_anybody(steps: DataFrame, people: DataFrame, masks: Masks) -> DataFrame:
    """Of all viewers' steps at each moment, the one to go by where it is nobody's in particular."""
    number = people.select("group", f.col("member").alias("viewer"), "number")
    inside = masks.has("all", f.col("number"))
    since = f.col("since_us")
    rank = f.struct(
        (inside & masks.has("known", f.col("number"))).alias("known"),
        inside.alias("inside"),
        # Before anybody's first view, the first of them.
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
