"""Quality of the input: conflicting exports, counts of invalid rows, the quality report.

Skipped files are listed with the reason (`read`); invalid rows are counted by kind; of exports that claim one pseudonym
for two people, both are skipped, because either may be wrong.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as f

from analytics.file_scan import OBSERVERS_MAX
from analytics.pipeline.read import Bronze, Export, read_files, with_path
from analytics.pipeline.schema import KINDS, struct
from analytics.pipeline.silver import TIME_US_MAX, TIME_US_MIN, valid_row, word_index
from analytics.pipeline.store import SLASHES, decode_path

MESSAGE_CONFLICT = "uses a pseudonym that another export of the study uses for other messages: {other}"
OBSERVER_CONFLICT = "uses a pseudonym that an export of another profile uses: {other}"
TOO_MANY_OBSERVERS = "has rows of more than {most:,} observers"
TOO_MANY_MEMBERS = (
    "names {members:,} members of a group, which would then have {ever:,}, more than {most:,}: of "
    "all exports it names most members that no other names"
)
SUCCESSION_US = 60_000_000
"""Rows may be written this long after a profile's pseudonym was renewed."""


class TooManyMembers(Exception):
    """Groups have had more members than supported."""


def same_observer(bronze: Bronze) -> list[list[Export]]:
    """Exports of one observer in one study, where there are several."""
    by_whom = defaultdict(list)
    for export in bronze.exports:
        by_whom[export.study, export.observer].append(export)
    return [exports for exports in by_whom.values() if len(exports) > 1]


def reject_conflicts(spark: SparkSession, bronze: Bronze) -> int:
    """Reject exports that represent one member for two people. Returns for how many members two exports follow each
    other in time, which is legitimate (`reject_conflicting_observers`)."""
    reject_conflicting_messages(spark, bronze)
    return reject_conflicting_observers(spark, bronze)


def reject_conflicting_messages(spark: SparkSession, bronze: Bronze) -> None:
    """Reject exports of one pseudonym with different messages under one number."""
    clashing: dict[str, str] = {}
    for exports in same_observer(bronze):
        tables = [
            read_files(spark, "send", [file.path for file in export.of_kind("send")])
            .select("group", "seq", "t_send_us", "plain_b")
            .withColumn("place", f.lit(export.place))
            for export in exports
        ]
        rows = tables[0]
        for table in tables[1:]:
            rows = rows.unionByName(table)
        two = f.count_distinct(f.struct("t_send_us", "plain_b")) > 1
        told = rows.groupBy("group", "seq").agg(two.alias("two"), f.collect_set("place").alias("places")).where("two")
        places = sorted({place for row in told.select("places").distinct().collect() for place in row["places"]})
        if len(places) > 1:
            clashing |= {place: next(other for other in places if other != place) for place in places}
    bronze.reject({place: MESSAGE_CONFLICT.format(other=other) for place, other in clashing.items()})


def reject_conflicting_observers(spark: SparkSession, bronze: Bronze) -> int:
    """Reject exports of different profiles with rows of one observer: each would speak for the other.

    A manifest's observer identifies the profile; the observers of rows identify it in each group and are known to every
    member. A profile has two numbers, before and after `zerochat telemetry delete`, but not at the same time: such
    exports do not overlap, and both are used. Whether one of them is forged cannot be known, so the number of such
    members is returned. Numbers of different studies never coincide.
    """
    if len({_profile(export) for export in bronze.exports}) < 2:
        return 0
    whose = _observers(spark, bronze)
    aside = {
        place: TOO_MANY_OBSERVERS.format(most=OBSERVERS_MAX)
        for place, some in whose.items()
        if len(some) > OBSERVERS_MAX
    }
    claims: dict[int, list[Export]] = defaultdict(list)
    for export in bronze.exports:
        for observer in whose[export.place] if export.place not in aside else ():
            claims[observer].append(export)
    disputed = {observer: some for observer, some in claims.items() if len({_profile(one) for one in some}) > 1}
    spans = _spans(spark, disputed)
    successions = 0
    for observer, some in disputed.items():
        if len({export.study for export in some}) == 1 and not _overlap(spans[observer]):
            successions += 1
            continue
        for one in some:
            other = next(other for other in some if _profile(other) != _profile(one))
            aside.setdefault(one.place, OBSERVER_CONFLICT.format(other=other.place))
    bronze.reject(aside)
    return successions


def _profile(export: Export) -> tuple[str, int]:
    return export.study, export.observer


def _observers(spark: SparkSession, bronze: Bronze) -> dict[str, set[int]]:
    """Observers of the rows of each export, by place; per file at most one more than allowed."""
    found: dict[str, set[int]] = {export.place: set() for export in bronze.exports}
    places = {file.path: export.place for export in bronze.exports for file in export.files}
    for path in places.keys() & bronze.observers.keys():
        found[places[path]].update(bronze.observers[path])
    rest = places.keys() - bronze.observers.keys()
    exports = [replace(one, files=[file for file in one.files if file.path in rest]) for one in bronze.exports]
    for path, observer in _observers_in_spark(spark, exports):
        if observer:  # 0 means none, and null is invalid
            found[places[path]].add(observer)
    return found


def _observers_in_spark(spark: SparkSession, exports: list[Export]) -> Iterator[tuple[str, int | None]]:
    if not any(export.files for export in exports):
        return
    first = f.row_number().over(Window.partitionBy("whence").orderBy("observer")) <= OBSERVERS_MAX + 1
    rows = _rows_of(spark, exports, KINDS, lambda rows, kind: rows.select("whence", "observer"))
    for row in rows.distinct().withColumn("first", first).where("first").collect():
        yield decode_path(row["whence"]), row["observer"]


Spans = dict[int, dict[tuple[str, int], tuple[int, int]]]
"""First and last time of an export's rows, by observer and profile."""


def _spans(spark: SparkSession, disputed: Mapping[int, list[Export]]) -> Spans:
    found: Spans = {observer: {} for observer in disputed}
    if not disputed:
        return found
    exports = list({export.place: export for some in disputed.values() for export in some}.values())
    whose = {file.path: _profile(export) for export in exports for file in export.files}
    rows = (
        _rows_of(spark, exports, KINDS, lambda rows, kind: rows.select("whence", "observer", _time(kind)))
        .where(f.col("t_us").between(TIME_US_MIN, TIME_US_MAX))
        .join(f.broadcast(spark.createDataFrame([(one,) for one in disputed], "observer long")), "observer")
        .groupBy("whence", "observer")
        .agg(f.min("t_us").alias("from_us"), f.max("t_us").alias("to_us"))
        .collect()
    )
    for row in rows:
        spans, profile = found[row["observer"]], whose[decode_path(row["whence"])]
        begin, end = spans.get(profile, (row["from_us"], row["to_us"]))
        spans[profile] = (min(begin, row["from_us"]), max(end, row["to_us"]))
    return found


def _overlap(spans: Mapping[tuple[str, int], tuple[int, int]]) -> bool:
    """Whether two spans overlap by more than a late write explains."""
    upto = TIME_US_MIN
    for begin, end in sorted(spans.values()):
        if begin < upto - SUCCESSION_US:
            return True
        upto = max(upto, end)
    return False


def oversized_groups(spark: SparkSession, bronze: Bronze, most: int) -> dict[str, str]:
    """Exports to reject so that no group has more than `most` members, by place, with the reason: those that name most
    members whom no other export names."""
    exports = dict(enumerate(bronze.exports))
    people = {
        "view": f.array_append("roster", f.col("observer")),
        "recv": f.array("sender", "observer"),
        "send": f.array("observer"),
    }

    def named(rows: DataFrame, kind: str) -> DataFrame:
        return rows.where(valid_row(kind)).select("whence", "group", f.explode(people[kind]).alias("member"))

    told = (
        _with_export(
            spark,
            exports,
            _rows_of(spark, bronze.exports, people, named).where("member is not null").distinct(),
        )
        .select("export", "group", "member")
        .distinct()
    )
    by_whom = Window.partitionBy("group", "member")
    alone = (f.count(f.lit(1)).over(by_whom) == 1).cast("int")
    rows = (
        told.withColumn("alone", alone)
        .groupBy("group", "export")
        .agg(f.count(f.lit(1)).alias("members"), f.sum("alone").alias("alone"))
        .join(told.groupBy("group").agg(f.count_distinct("member").alias("ever")).where(f.col("ever") > most), "group")
        .orderBy("group", f.desc("alone"), f.desc("members"), "export")
        .collect()
    )
    found: dict[str, str] = {}
    left: dict[int, int] = {}
    for row in rows:
        ever = left.setdefault(row["group"], int(row["ever"]))
        if ever > most:
            left[row["group"]] -= row["alone"]
            place = exports[row["export"]].place
            found.setdefault(place, TOO_MANY_MEMBERS.format(ever=row["ever"], most=most, members=row["members"]))
    return found


def _time(kind: str) -> Column:
    """The column that dates a row: the last of its times."""
    return f.col([column.name for column in KINDS[kind] if column.name.startswith("t_")][-1]).alias("t_us")


def _rows_of(
    spark: SparkSession,
    exports: list[Export],
    kinds: Iterable[str],
    some: Callable[[DataFrame, str], DataFrame],
) -> DataFrame:
    """`some` of the rows of these kinds, each with its file as `whence`."""
    paths = {kind: [file.path for export in exports for file in export.of_kind(kind)] for kind in kinds}
    tables = [some(with_path(spark, kind, told), kind) for kind, told in paths.items() if told]
    if tables:
        return reduce(DataFrame.unionByName, tables)
    return some(spark.createDataFrame([], struct("view")).withColumn("whence", f.lit("")), "view")


def _with_export(spark: SparkSession, exports: Mapping[int, Export], rows: DataFrame) -> DataFrame:
    """Rows with the number of the export that their file (`whence`) belongs to."""
    numbers = [(number, file.path) for number, export in exports.items() for file in export.files]
    table = spark.createDataFrame(numbers, "export int, path string")
    path = f.regexp_replace(f.url_decode(f.replace(f.col("whence"), f.lit("+"), f.lit("%2B"))), SLASHES, "$1:/")
    return rows.withColumn("path", path).join(f.broadcast(table), "path").drop("whence", "path")


def overlapping(bronze: Bronze) -> set[str]:
    """Places of exports of one observer that cover the same time, so that rows may be in several."""
    found = set()
    for exports in same_observer(bronze):
        spans = sorted(exports, key=lambda export: (export.from_us, export.to_us))
        upto, last = -(2**63), spans[0]
        for export in spans:
            if export.from_us < upto:
                found |= {last.place, export.place}
            if export.to_us >= upto:
                upto, last = export.to_us, export
    return found


class RowCounter:
    """Counts rows while they are read for another purpose."""

    def __init__(self) -> None:
        self._running: dict[str, Observation] = {}
        self.counts: dict[str, int] = {}

    @property
    def active(self) -> bool:
        """Whether a table is being counted, so it must be read once and completely."""
        return bool(self._running)

    def rows(self, table: DataFrame, kind: str) -> DataFrame:
        """The table; its next complete reading is counted as rows of this kind."""
        told = Observation(f"rows of {kind}")
        self._running[kind] = told
        counts = [
            f.count(f.lit(1)).alias("rows"),
            f.count_if(~valid_row(kind)).alias("unbelievable"),
        ]
        if kind == "send":
            counts.append(
                f.count_if((word_index(kind, "keys") < 0) | (word_index(kind, "path") < 0)).alias("unknown_words")
            )
        return table.observe(told, *counts)

    def jumps(self, gaps: DataFrame) -> DataFrame:
        """The gaps; those that are not `lost` are counted as counter jumps."""
        told = self._running["recv"] = Observation("jumps of counters")
        return gaps.observe(told, f.count_if(~f.col("lost")).alias("jumps"))

    def times(self, covered: DataFrame) -> DataFrame:
        """The recording times; those that do not count are counted (`silver.SPANS_MAX`)."""
        told = self._running["coverage"] = Observation("times of recording")
        return covered.observe(told, f.count_if(~f.col("counts")).alias("left_out"))

    def gather(self) -> None:
        """Collect the counts after the tables were read."""
        for kind, told in self._running.items():
            self.counts |= {f"{kind}.{name}": int(value or 0) for name, value in told.get.items()}
        self._running.clear()


def count_small(few: Mapping[str, DataFrame]) -> dict[str, int]:
    """The same counts for small kinds that are read several times, or possibly not at all."""
    tables = [
        rows.agg(
            f.lit(kind).alias("kind"),
            f.count(f.lit(1)).alias("rows"),
            f.count_if(~valid_row(kind)).alias("unbelievable"),
        )
        for kind, rows in few.items()
    ]
    told = reduce(DataFrame.unionByName, tables).collect()
    return {f"{row['kind']}.{name}": int(row[name]) for row in told for name in ("rows", "unbelievable")}


OF_OTHERS = "sender != observer"
"""A pair of two members; a member receives its own messages only if two people have one pseudonym."""


def count_receipts(pairs: DataFrame, rows: int) -> dict[str, int]:
    """The same counts for `recv`, from its pairs (`clock_skew.pairs`): observed tables are not compiled, which is too
    slow for millions of rows."""
    sums = {
        "believable": f.sum("rows"),
        "from_oneself": f.sum(f.when(f.col("sender") == f.col("observer"), f.col("rows"))),
        "before_sent": f.sum("before_sent"),
        "unknown_words": f.sum("unknown_words"),
    }
    [told] = pairs.agg(*(value.alias(name) for name, value in sums.items())).collect()
    counts = {f"recv.{name}": int(told[name] or 0) for name in sums}
    return {"recv.rows": rows, "recv.unbelievable": rows - counts.pop("recv.believable"), **counts}


def report(bronze: Bronze, counts: dict[str, int], notes: list[str]) -> dict[str, Any]:
    """The quality report (quality.json)."""
    return {
        "place": bronze.place,
        "exports": [
            {
                "place": export.place,
                "software": export.software,
                "study": "shared" if export.shared else "single",
                "study_fingerprint": export.study,
                "observer": str(export.observer),
                "time_unit_us": export.time_unit_us,
                "files": len(export.files),
                "rows": sum(file.rows for file in export.files),
            }
            for export in bronze.exports
        ],
        "aside": [asdict(one) for one in bronze.rejected],
        "counts": counts,
        "notes": notes,
    }
