"""Builds the tables of a study from a folder of exports, layer by layer.

run.json records the input (checksums of all files) and the finished tables. The same input changes nothing; an
interrupted run is continued; new input rebuilds everything, because one late export can change every message.
"""

import hashlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.errors import ForeignFolder, NoExports
from analytics.file_scan import BackgroundScan
from analytics.pipeline import aggregates, authors, bursts, clock_skew, messages, pairs, quality, service_levels, silver
from analytics.pipeline.read import Bronze, scan_bronze, unreadable
from analytics.pipeline.schema import WORDS
from analytics.pipeline.silver import Masks
from analytics.pipeline.store import Store
from analytics.progress import Progress
from analytics.results import check_disjoint
from analytics.summary import count

FORMAT, VERSION = "zerochat-analytics", 5
"""Format of the output; another version rebuilds everything."""
STEPS = 24
COMPILED_ROWS = 100_000
"""Below this number of rows, compiling a query takes longer than interpreting it."""
FEW_ROWS = 20_000
"""Tables up to this size are kept in memory and inlined into later queries."""
GOLD = (
    *(
        "message",
        "edge",
        "edge_hist",
        "keys_path_size",
        "burst",
        "minute",
        "outage",
        "join",
        "sizes",
        "gap",
        "member",
        "slo",
    ),
)
DELIVERIES = ("message", "edge_hist", "edge", "minute", "outage")
"""Tables that are computed from receipts, of which there are millions; the other gold tables follow from these."""
WITHIN_S = 30


@dataclass(frozen=True, slots=True)
class Options:
    """`within_s`: deliveries within this time are in time. `rebuild`: recompute everything. `deliveries`: of gold, only
    DELIVERIES; the study is then incomplete, and a run without this option continues it."""

    within_s: int = WITHIN_S
    rebuild: bool = False
    deliveries: bool = False


class Run:
    """A run: tables are built in order, and those of an interrupted run are reused."""

    def __init__(self, spark: SparkSession, store: Store, progress: Progress, state: dict[str, Any]) -> None:
        self.spark, self.store, self.progress, self.state = spark, store, progress, state
        self.counter = quality.RowCounter()

    def table(
        self,
        layer: str,
        name: str,
        make: Callable[[], DataFrame],
        files: int = 1,
        over: int = 0,
        few: bool = False,
    ) -> DataFrame:
        """`over`: approximate number of rows read for it. `few`: used often and usually small."""
        known = f"{layer}/{name}"
        _set_codegen(self.spark, over)
        with self.progress.step(known):
            if known in self.state["done"] and self.store.has_table(layer, name):
                table = self.store.table(layer, name)
            else:
                made = make()
                if few and not self.counter.active:
                    # A table in memory is written faster than a written one is read.
                    made = cached(self.spark, made)
                table = self.store.write(layer, name, made, files)
                self.counter.gather()
                self.state["counts"] |= self.counter.counts
                self.state["done"].append(known)
                self.store.write_json("run.json", self.state)
                if made.isLocal():
                    return made
            return cached(self.spark, table) if few else table


def cached(spark: SparkSession, table: DataFrame) -> DataFrame:
    """The table with its rows in memory if they are few."""
    rows = table.limit(FEW_ROWS + 1).toArrow()
    return table if rows.num_rows > FEW_ROWS else spark.createDataFrame(rows, table.schema)


def _set_codegen(spark: SparkSession, over: int) -> None:
    """Let Spark compile queries over this many rows."""
    compiled = over >= COMPILED_ROWS
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")


def run(
    spark: SparkSession, place: str, out: str, options: Options, progress: Progress, ahead: BackgroundScan | None = None
) -> dict[str, Any]:
    """Build the tables of a study and return the quality report; `ahead`: a scan of `place` that may be finished.

    Raises InputUnreadable, NoExports, ForeignFolder, NestedFolders.
    """
    check_disjoint(place, out)
    store = Store(spark, out)
    before = store.read_json("run.json")
    if (before is None or before.get("format") != FORMAT) and not store.is_empty():
        raise ForeignFolder(place=out)
    with progress.step("finding and validating exports"):
        found = scan_bronze(spark, place, ahead)
    fingerprint = hashlib.sha256(f"{VERSION} {options.within_s} {found.fingerprint()}".encode()).hexdigest()
    if before is not None and before.get("fingerprint") == fingerprint and not options.rebuild:
        if before.get("whole") and all(store.has_table("gold", name) for name in GOLD):
            progress.line("Nothing has changed since the last run.")
            return store.read_json("quality.json") or quality.report(found, {}, [])
        progress.line("Continuing the interrupted run.")
        state = before
    else:
        if before is not None:
            progress.line("The exports or options have changed since the last run: rebuilding everything.")
        state = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": fingerprint,
            "done": [],
            "counts": {},
            "left_out": {},
        }
    state["whole"] = False
    while True:
        usable = deepcopy(found)
        usable.reject(state["left_out"])
        try:
            told = _build(spark, store, progress, state, usable, options)
            store.write_json("quality.json", told)
            store.write_json("run.json", state | {"whole": not options.deliveries})
            return told
        except quality.TooManyMembers:
            more = quality.oversized_groups(spark, usable, silver.EVER_MAX)
        except (PySparkException, Py4JError):
            with progress.step("finding unreadable files"):
                more = unreadable(spark, usable)
            if not more:
                raise
        progress.line(f"Rebuilding everything without {count(len(more), 'unusable export')}.")
        progress.restart()
        state |= {"done": [], "counts": {}, "left_out": state["left_out"] | more}


def _build(
    spark: SparkSession, store: Store, progress: Progress, state: dict[str, Any], found: Bronze, options: Options
) -> dict[str, Any]:
    """Build the tables of validated exports and return the quality report.

    Raises TooManyMembers, any error of Spark that validation could not foresee, and NoExports.
    """
    with progress.step("comparing exports"):
        _set_codegen(spark, found.rows("recv"))
        successions = quality.reject_conflicts(spark, found) if found.exports else 0
    if not found.exports:
        why = (
            f"{count(len(found.rejected), 'file')} skipped, the first one because it {found.rejected[0].why}"
            if found.rejected
            else "it is empty"
        )
        raise NoExports(place=found.place, why=why)
    found.overlapping = quality.overlapping(found)
    store.write_json("run.json", state)
    _tables(Run(spark, store, progress, state), found, options)
    return quality.report(found, state["counts"], _notes(found, successions))


def _notes(found: Bronze, successions: int) -> list[str]:
    notes = []
    units = {export.time_unit_us for export in found.exports}
    if max(units) > 1:
        notes.append(f"Some times are rounded to {max(units) / 1e6:g} s, which limits the precision of latencies.")
    studies = {export.study for export in found.exports}
    if len(studies) > 1:
        notes.append(
            f"The exports belong to {len(studies)} studies, in which the same person has different pseudonyms."
        )
    if not any(export.shared for export in found.exports):
        notes.append(
            "No two exports share a study, so clocks cannot be compared, and receipts of others are unknown. "
            "Members who export with the same passphrase (`zerochat telemetry export --study`) share a study."
        )
    if successions:
        notes.append(
            f"For {count(successions, 'member')} there are two consecutive profiles, as after "
            "`zerochat telemetry delete`. It is unknown whether both belong to one person."
        )
    spanned = {export.place for export in found.exports if any(file.kind == "span" for file in export.files)}
    bare = [export for export in found.exports if export.place not in spanned]
    if bare:
        names = ", ".join(export.place.rpartition("/")[2] for export in bare)
        notes.append(f"The recording times of these exports are unknown, so nothing counts as lost in them: {names}.")
    return notes


@dataclass(frozen=True, slots=True)
class _Silver:
    """The tables and facts that gold is computed from."""

    recv: DataFrame
    """Receipts, each once."""
    receipts: int
    sent: int
    """Approximate numbers of rows of `recv` and `send`."""
    send: DataFrame
    view: DataFrame
    people: DataFrame
    line: DataFrame
    """The clock of each observer."""
    covered: DataFrame
    author: DataFrame
    roster: DataFrame
    edges: DataFrame
    start_us: int
    masks: Masks
    silent: bool
    """Some author has no export."""


def _tables(run: Run, found: Bronze, options: Options) -> None:
    run.table("bronze", "file", lambda: run.spark.createDataFrame(found.listing()))
    run.state["counts"] |= quality.count_small({kind: found.read(run.spark, kind) for kind in ("view", "ack")})
    _gold(run, found, _silver(run, found), options)


def _counted(run: Run, found: Bronze, kind: str, table: DataFrame | None = None) -> DataFrame:
    """The rows of a kind (or this table of them), counted as they are read."""
    table = found.read(run.spark, kind) if table is None else table
    return run.counter.rows(table, kind) if found.rows(kind) else table


def _valid(run: Run, found: Bronze, kind: str) -> DataFrame:
    return _counted(run, found, kind).where(silver.valid_row(kind))


def _receipts(run: Run, found: Bronze) -> tuple[DataFrame, int]:
    """The receipts, each once, and their approximate number."""
    recv, receipts = found.read(run.spark, "recv"), found.rows("recv")
    if found.overlapping and receipts:
        # Deduplicated once, then read three times.
        recv = run.table("silver", "recv", lambda: found.read(run.spark, "recv"), files=0, over=receipts)
        receipts = recv.count()
    return recv, receipts


def _silver(run: Run, found: Bronze) -> _Silver:
    """Build the silver tables. Raises TooManyMembers."""
    # There are millions of receipts and thousands of messages; other kinds are small.
    spark, (recv, receipts), sent = run.spark, _receipts(run, found), found.rows("send")
    direct = WORDS["recv", "path"].index("direct")
    every_pair = run.table("silver", "pair", lambda: clock_skew.pairs(silver.receipts(recv), direct), over=receipts)
    if receipts:
        run.state["counts"] |= quality.count_receipts(every_pair, receipts)
    pair = every_pair.where(quality.OF_OTHERS)
    send = run.table("silver", "send", lambda: silver.sends(_counted(run, found, "send")), over=sent)
    view = cached(spark, silver.views(spark, found))
    people = run.table(
        "silver",
        "member",
        lambda: silver.number_members(
            view.select("group", f.explode("roster").alias("member"))
            .union(view.select("group", "observer"))
            .union(pair.select("group", "sender"))
            .union(pair.select("group", "observer"))
            .union(send.select("group", "sender"))
        ),
        few=True,
    )
    line = run.table(
        "silver", "skew", lambda: clock_skew.clock_lines(clock_skew.clock_differences(pair)), few=True, over=receipts
    )

    def spans() -> DataFrame:
        table = _counted(run, found, "span", silver.rows_by_export(spark, found, "span"))
        return table.where(silver.valid_row("span"))

    covered = run.table(
        "silver", "coverage", lambda: silver.coverage(spark, found, view, spans(), run.counter.times), few=True
    )
    known = people.agg(f.max("number").alias("value")).union(line.agg(f.max("start_us"))).collect()
    last, start_us = (row["value"] or 0 for row in known)
    if last >= silver.EVER_MAX:
        raise quality.TooManyMembers
    masks = Masks(last // silver.BITS + 1, last + 1)
    viewers = view.select("group", f.col("observer").alias("viewer")).distinct()
    author = run.table("silver", "author", lambda: authors.authors(pair, send, people, viewers, line), few=True)
    [(anybody, silent)] = author.select(f.bool_or(f.expr("viewer is null")), f.bool_or(f.expr("not told"))).collect()
    roster = run.table(
        "silver", "roster", lambda: silver.rosters(view, covered, people, line, start_us, masks, bool(anybody))
    )
    edges = run.table("silver", "edge", lambda: authors.edges(pair, author, people, line), few=True)
    return _Silver(
        recv, receipts, sent, send, view, people, line, covered, author, roster, edges, start_us, masks, bool(silent)
    )


def _gold(run: Run, found: Bronze, base: _Silver, options: Options) -> None:
    """Build the table of messages, and the gold tables."""
    sent, receipts, within_us = base.sent, base.receipts, options.within_s * 1_000_000
    author, people, masks = base.author, base.people, base.masks
    acks = found.read(run.spark, "ack").where(silver.valid_row("ack"))
    delivered = authors.deliveries(silver.receipts(base.recv), base.edges, base.start_us)
    uncovered = silver.coverage_gaps(base.covered, people) if base.silent else None
    heard = messages.receipts_by_message(delivered, masks, within_us)
    jumps = run.counter.jumps
    reach = run.table(
        "silver",
        "reach",
        lambda: messages.reach(base.send, heard, author, base.roster, base.start_us, masks, uncovered, jumps),
        files=0,
        over=receipts,
    )
    message = run.table("gold", "message", lambda: messages.messages(reach, author, people, masks), files=0, over=sent)
    histogram = run.table("gold", "edge_hist", lambda: pairs.histogram(delivered, base.edges), files=0, over=receipts)
    edge = run.table(
        "gold",
        "edge",
        lambda: pairs.edge(
            histogram,
            pairs.expectations(reach, masks),
            pairs.acknowledged(reach, acks, author, people, masks),
            base.edges,
            author,
            people,
        ),
        over=receipts,
    )
    minute = run.table("gold", "minute", lambda: aggregates.minutes(reach, author, people, masks), over=receipts)
    outage = run.table("gold", "outage", lambda: aggregates.outages(minute), over=receipts)
    if options.deliveries:
        return
    run.table("gold", "keys_path_size", lambda: bursts.keys_path_size(message, histogram), over=sent)
    run.table("gold", "burst", lambda: bursts.bursts(message), over=sent)
    run.table("gold", "join", lambda: aggregates.joins(_valid(run, found, "join"), base.view))
    run.table("gold", "sizes", lambda: aggregates.sizes(message, _valid(run, found, "state")), over=sent)
    run.table("gold", "gap", lambda: aggregates.gaps(_valid(run, found, "gap")))
    members = service_levels.members
    run.table("gold", "member", lambda: members(message, edge, histogram, base.line, base.covered, outage), over=sent)
    run.table("gold", "slo", lambda: service_levels.levels(message, edge, within_us), over=sent)
