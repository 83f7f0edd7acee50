"""All layers in a row: from a folder with exports to the tables of a study.

A run is remembered in run.json: what it was made from (checksums of all files), and which tables are whole. The same
input again changes nothing; after an interruption, what is whole is kept and the rest is made; anything new in the
input makes everything anew, as one late export may change what is known of every message.
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

from analytics.errors import NoExports, NotOurs
from analytics.looks import Ahead
from analytics.pipeline import batches, facts, levels, messages, pairs, quality, silver, skew, who
from analytics.pipeline.read import Bronze, bronze, unreadable
from analytics.pipeline.schema import KINDS_ADDED, WORDS
from analytics.pipeline.silver import Masks
from analytics.pipeline.store import Store
from analytics.progress import Progress
from analytics.results import apart
from analytics.summary import count

FORMAT, VERSION = "zerochat-analytics", 5
"""Of what a run writes. Another version makes everything anew."""
STEPS = 24
COMPILED_ROWS = 100_000
"""Over fewer rows than that, making a program of a plan takes longer than going through the plan itself."""
FEW_ROWS = 20_000
"""A table of no more stands in the plans of what is made of it, instead of being read for each of these again."""
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
        "repair",
        "member",
        "slo",
    ),
)
DELIVERIES = ("message", "edge_hist", "edge", "minute", "outage")
"""What is made of receipts, which are millions; the rest of gold follows from these and from what is little."""
WITHIN_S = 30


@dataclass(frozen=True, slots=True)
class Options:
    """`within_s`: what counts as in time. `again`: make everything anew, also where nothing has changed. `deliveries`:
    of gold, only DELIVERIES; such a study is not whole, and the same exports without it go on with the rest."""

    within_s: int = WITHIN_S
    again: bool = False
    deliveries: bool = False


class Run:
    """A run under way: tables are made in order, and those that an interrupted run has finished are only read."""

    def __init__(self, spark: SparkSession, store: Store, progress: Progress, state: dict[str, Any]) -> None:
        self.spark, self.store, self.progress, self.state = spark, store, progress, state
        self.watch = quality.Watch()

    def table(
        self,
        layer: str,
        name: str,
        make: Callable[[], DataFrame],
        files: int = 1,
        over: int = 0,
        few: bool = False,
    ) -> DataFrame:
        """`over`: about so many rows are gone through for it. `few`: it is used often, and mostly small."""
        known = f"{layer}/{name}"
        _compile(self.spark, over)
        with self.progress.step(known):
            if known in self.state["done"] and self.store.has_table(layer, name):
                table = self.store.table(layer, name)
            else:
                made = make()
                if few and not self.watch.watches:
                    # What is here by then is written faster than what is written is read.
                    made = at_hand(self.spark, made)
                table = self.store.write(layer, name, made, files)
                self.watch.gather()
                self.state["counts"] |= self.watch.counts
                self.state["done"].append(known)
                self.store.write_json("run.json", self.state)
                if made.isLocal():
                    return made
            return at_hand(self.spark, table) if few else table


def at_hand(spark: SparkSession, table: DataFrame) -> DataFrame:
    """The same table, with its rows here where they are few."""
    rows = table.limit(FEW_ROWS + 1).toArrow()
    return table if rows.num_rows > FEW_ROWS else spark.createDataFrame(rows, table.schema)


def _compile(spark: SparkSession, over: int) -> None:
    """Have Spark make programs of its plans where they go over so many rows."""
    compiled = over >= COMPILED_ROWS
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")


def run(
    spark: SparkSession, place: str, out: str, options: Options, progress: Progress, ahead: Ahead | None = None
) -> dict[str, Any]:
    """Make the tables of a study, and give the quality report; `ahead` may have looked through `place` by now.

    Raises NothingToRead, NoExports, NotOurs, InsideEachOther.
    """
    apart(place, out)
    store = Store(spark, out)
    before = store.read_json("run.json")
    if (before is None or before.get("format") != FORMAT) and not store.is_empty():
        raise NotOurs(place=out)
    with progress.step("looking for exports, checking their files"):
        found = bronze(spark, place, ahead)
    fingerprint = hashlib.sha256(f"{VERSION} {options.within_s} {found.fingerprint()}".encode()).hexdigest()
    if before is not None and before.get("fingerprint") == fingerprint and not options.again:
        if before.get("whole") and all(store.has_table("gold", name) for name in GOLD):
            progress.say("Nothing has changed since the last run: its tables stay as they are.")
            return store.read_json("quality.json") or quality.report(found, {}, [])
        progress.say("Going on where the last run was interrupted: what is whole is kept.")
        state = before
    else:
        if before is not None:
            progress.say(
                "The exports, or what is asked of them, are not those of the last run: everything is made anew."
            )
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
        usable.leave_out(state["left_out"])
        try:
            told = _make(spark, store, progress, state, usable, options)
            store.write_json("quality.json", told)
            store.write_json("run.json", state | {"whole": not options.deliveries})
            return told
        except quality.Crowded:
            more = quality.crowding(spark, usable, silver.EVER_MAX)
        except (PySparkException, Py4JError):
            with progress.step("looking for what cannot be read"):
                more = unreadable(spark, usable)
            if not more:
                raise
        progress.say(f"Everything is made anew, without {count(len(more), 'export')} that cannot be used.")
        progress.begin_again()
        state |= {"done": [], "counts": {}, "left_out": state["left_out"] | more}


def _make(
    spark: SparkSession, store: Store, progress: Progress, state: dict[str, Any], found: Bronze, options: Options
) -> dict[str, Any]:
    """Make the tables of exports that are whole, one by one, and give the quality report.

    Raises Crowded, and whatever Spark raises, for an export of which that was not to be seen before; NoExports.
    """
    with progress.step("comparing exports"):
        _compile(spark, found.rows("recv"))
        successions = quality.set_clashes_aside(spark, found) if found.exports else 0
    if not found.exports:
        why = (
            f"{count(len(found.aside), 'file')} set aside, the first one because it {found.aside[0].why}"
            if found.aside
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
        notes.append(f"Some times are rounded to {max(units) / 1e6:g} s, so latencies are no finer than that.")
    studies = {export.study for export in found.exports}
    if len(studies) > 1:
        notes.append(f"The exports are of {len(studies)} studies, in which the same person has different pseudonyms.")
    if not any(export.together for export in found.exports):
        notes.append(
            "No two exports belong together, so clocks cannot be compared, and nobody else's receipts are known. "
            "Members who export with the same words (`zerochat telemetry export --study`) are in one study."
        )
    if successions:
        notes.append(
            f"Of {successions} members two profiles tell, one after the other, as after `zerochat telemetry delete`: "
            "nothing here says whether both are of one person."
        )
    old = [export for export in found.exports if export.version < KINDS_ADDED["span"]]
    if old:
        notes.append(
            f"{len(old)} of {len(found.exports)} exports are of a schema version before {KINDS_ADDED['span']}: "
            "in these, a pause of the recording cannot be told from loss."
        )
    spanned = {export.place for export in found.exports if any(file.kind == "span" for file in export.files)}
    bare = [export for export in found.exports if export not in old and export.place not in spanned]
    if bare:
        names = ", ".join(export.place.rpartition("/")[2] for export in bare)
        notes.append(f"Nothing says when these have recorded, so nothing counts as lost in them: {names}.")
    return notes


def _tables(run: Run, found: Bronze, options: Options) -> None:
    spark, watch, within_us = run.spark, run.watch, options.within_s * 1_000_000
    # Receipts by the million, messages by the thousand; whatever else there is, is little beside them.
    receipts, sent = found.rows("recv"), found.rows("send")

    def counted(kind: str) -> DataFrame:
        table = found.read(spark, kind)
        return watch.rows(table, kind) if found.rows(kind) else table

    def rows(kind: str) -> DataFrame:
        return counted(kind).where(silver.believable(kind))

    def spans() -> DataFrame:
        table = silver.of_exports(spark, found, "span")
        watched = watch.rows(table, "span") if found.rows("span") else table
        return watched.where(silver.believable("span"))

    run.table("bronze", "file", lambda: spark.createDataFrame(found.listing()))
    run.state["counts"] |= quality.of_few({kind: found.read(spark, kind) for kind in ("view", "ack")})
    recv = found.read(spark, "recv")
    if found.overlapping and receipts:
        # What several exports tell is found out once, and then read three times.
        recv = run.table("silver", "recv", lambda: found.read(spark, "recv"), files=0, over=receipts)
        receipts = recv.count()
    direct = WORDS["recv", "path"].index("direct")
    # --- silver
    every_pair = run.table(
        "silver",
        "pair",
        lambda: skew.pairs(silver.receipts(recv), direct),
        over=receipts,
    )
    if receipts:
        run.state["counts"] |= quality.of_receipts(every_pair, receipts)
    pair = every_pair.where(quality.OF_OTHERS)
    send = run.table("silver", "send", lambda: silver.sends(counted("send")), over=sent)
    view = at_hand(spark, silver.views(spark, found))
    people = run.table(
        "silver",
        "member",
        lambda: silver.members(
            view.select("group", f.explode("roster").alias("member"))
            .union(view.select("group", "observer"))
            .union(pair.select("group", "sender"))
            .union(pair.select("group", "observer"))
            .union(send.select("group", "sender"))
        ),
        few=True,
    )
    line = run.table("silver", "skew", lambda: skew.lines(skew.differences(pair)), few=True, over=receipts)
    covered = run.table(
        "silver", "coverage", lambda: silver.coverage(spark, found, view, spans(), watch.times), few=True
    )
    known = people.agg(f.max("number").alias("value")).union(line.agg(f.max("start_us"))).collect()
    last, start_us = (row["value"] or 0 for row in known)
    if last >= silver.EVER_MAX:
        raise quality.Crowded
    masks = Masks(last // silver.BITS + 1, last + 1)
    viewers = view.select("group", f.col("observer").alias("viewer")).distinct()
    author = run.table("silver", "author", lambda: who.authors(pair, send, people, viewers, line), few=True)
    [(anybody, silent)] = author.select(f.bool_or(f.expr("viewer is null")), f.bool_or(f.expr("not told"))).collect()
    roster = run.table(
        "silver", "roster", lambda: silver.rosters(view, covered, people, line, start_us, masks, bool(anybody))
    )
    edges = run.table("silver", "edge", lambda: who.edges(pair, author, people, line), few=True)
    acks = found.read(spark, "ack").where(silver.believable("ack"))
    # --- gold
    delivered = who.deliveries(silver.receipts(recv), edges, start_us)
    uncovered = silver.uncovered(covered, people) if silent else None
    heard = messages.heard(delivered, masks, within_us)
    reach = run.table(
        "silver",
        "reach",
        lambda: messages.reach(send, heard, author, roster, start_us, masks, uncovered, watch.jumps),
        files=0,
        over=receipts,
    )
    message = run.table("gold", "message", lambda: messages.messages(reach, author, people, masks), files=0, over=sent)
    histogram = run.table("gold", "edge_hist", lambda: pairs.histogram(delivered, edges), files=0, over=receipts)
    edge = run.table(
        "gold",
        "edge",
        lambda: pairs.edge(
            histogram,
            pairs.expectations(reach, masks),
            pairs.acknowledged(reach, acks, author, people, masks),
            edges,
            author,
            people,
        ),
        over=receipts,
    )
    minute = run.table("gold", "minute", lambda: facts.minutes(reach, author, people, masks), over=receipts)
    outage = run.table("gold", "outage", lambda: facts.outages(minute), over=receipts)
    if options.deliveries:
        return
    run.table("gold", "keys_path_size", lambda: batches.keys_path_size(message, histogram), over=sent)
    run.table("gold", "burst", lambda: batches.bursts(message), over=sent)
    run.table("gold", "join", lambda: facts.joins(rows("join"), view))
    run.table("gold", "sizes", lambda: facts.sizes(message, rows("state")), over=sent)
    run.table("gold", "repair", lambda: facts.repairs(rows("repair")))
    run.table("gold", "member", lambda: levels.members(message, edge, histogram, line, covered, outage), over=sent)
    run.table("gold", "slo", lambda: levels.levels(message, edge, within_us), over=sent)
