"""Gold table of messages: expected recipients, deliveries, latency.

Millions of receipts are read twice: here (`receipts_by_message`) and by pair and latency (`pairs.histogram`).
Everything else follows from these two small tables.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.clock_skew import offset_us
from analytics.pipeline.schema import WORDS
from analytics.pipeline.silver import Counter, Masks, uncounted, word_at

DIRECT, HISTORY, MEDIATOR = map(WORDS["recv", "path"].index, ("direct", "history", "mediator"))
GAP_MAX = 10_000
"""Longest gap that counts as losses; a larger one is a jump of a counter."""
GAPS_MAX, GAPS_EVER_MAX = 100_000, 5_000_000
"""Most inferred losses of one author, and of all."""


def receipts_by_message(deliveries: DataFrame, masks: Masks, within_us: int) -> DataFrame:
    """One row for each received (author, seq).

    Masks: `seen`, `direct` (arrived directly), `within` (took at most `within_us`), `mail` (so, by mediator).
    """
    came = ~f.col("dup")
    took = f.col("took_us")
    return deliveries.groupBy("author", "seq").agg(
        *masks.collect_bits(came, "seen"),
        *masks.collect_bits(came & (f.col("path") == DIRECT), "direct"),
        *masks.collect_bits(came & (took <= within_us), "within"),
        *masks.collect_bits(came & (f.col("path") == MEDIATOR) & (took <= within_us), "mail"),
        f.min("t_send_us").alias("said_us"),
        f.max("n").alias("said_n"),
        f.max("keys").alias("said_keys"),
        f.max("kind").alias("kind"),
        f.max(f.when(came, took)).alias("max_us"),
        f.max(f.when(came & (f.col("path") != HISTORY), took)).alias("max_then_us"),
        f.max(f.when(came & (f.col("path") != HISTORY), took + f.col("display_us"))).alias("shown_us"),
        f.min(f.when(came, took)).alias("first_us"),
        # null if it exceeds 64 bits
        f.try_sum(f.when(came, took)).alias("sum_us"),
        f.count_if(came).alias("came"),
        f.count_if(came & ~f.col("corrected")).alias("uncorrected"),
        f.count_if(f.col("dup")).alias("dups"),
        f.count_if(came & f.col("late")).alias("late"),
        f.try_sum(f.when(came, f.col("hold_us"))).alias("hold_us"),
        f.max(f.when(came, f.col("hold_us"))).alias("hold_max_us"),
    )


def inferred_losses(
    heard: DataFrame, authors: DataFrame, uncovered: DataFrame, masks: Masks, watch: Counter = uncounted
) -> DataFrame:
    """Messages without any receipt, of authors without an export: those between two received ones. (author, seq,
    said_us, said_n, said_keys, kind, away*), as of the next received one.

    `away`: members who did not record all the time between the two (`coverage_gaps`): they may have received them. The
    clocks of such authors are unknown, so latencies are by the recipients' clocks.

    `watch` receives every gap; those with `lost` count. The smallest come first, until GAPS_MAX or GAPS_EVER_MAX is
    reached.
    """
    of_next = ("said_us", "said_n", "said_keys", "kind")
    silent = authors.where(~f.col("told")).select("author", "group")
    order = Window.partitionBy("author").orderBy("seq")
    small = f.col("width") < GAP_MAX
    width = f.when(small, f.col("width"))
    mine = f.sum(width).over(Window.partitionBy("author").orderBy("width", "seq"))
    every = f.sum(width).over(Window.orderBy("width", "author", "seq"))
    came = {
        "first_came_us": f.col("said_us") + f.col("first_us"),
        "last_came_us": f.col("said_us") + f.coalesce("max_then_us", "max_us"),
    }
    first = f.least("first_came_us", f.lag("first_came_us").over(order))
    last = f.greatest("last_came_us", f.lag("last_came_us").over(order))
    found = (
        heard.join(f.broadcast(silent), "author")
        .withColumns(came)
        .withColumns({"before": f.lag("seq").over(order), "begun_us": first, "ended_us": last})
        .select("author", "group", "seq", "before", "begun_us", "ended_us", *of_next)
        .withColumn("width", f.col("seq") - f.col("before") - 1)
        .where("width > 0")
        .withColumn("lost", small & (mine <= GAPS_MAX) & (every <= GAPS_EVER_MAX))
    )
    jumps = watch(found).where("lost")
    away = (jumps["group"] == uncovered["group"]) & (
        (uncovered["hole_from_us"] < jumps["ended_us"]) & (uncovered["hole_to_us"] > jumps["begun_us"])
    )
    return (
        jumps.join(f.broadcast(uncovered), away, "left")
        .groupBy("author", "seq", "before", *of_next)
        .agg(*masks.collect_bits(f.lit(True), "away"))
        .select(
            "author",
            f.explode(f.sequence(f.col("before") + 1, f.col("seq") - 1)).alias("seq"),
            *(*of_next, *masks.names("away")),
        )
    )


def _recorded(sends: DataFrame, heard: DataFrame, authors: DataFrame, few: DataFrame, start_us: int) -> DataFrame:
    """One row per message: what its author and its recipients recorded, and its time on the common clock."""
    sent = sends.join(f.broadcast(authors.select("author", "group", "sender")), ["group", "sender"]).drop(
        "group", "sender"
    )
    return (
        sent.join(heard, ["author", "seq"], "full")
        .withColumn("t_send_us", f.coalesce("t_send_us", "said_us"))
        .withColumn("keys", f.coalesce("keys", "said_keys"))
        .withColumn("kind", f.coalesce("sent_kind", "kind"))
        .join(few.select("author", "place", "bit", "base_us", "slope"), "author")
        .withColumn("agreed_us", f.col("t_send_us") - offset_us(f.col("t_send_us"), start_us))
    )


def _with_rosters(recorded: DataFrame, rosters: DataFrame, few: DataFrame, masks: Masks) -> DataFrame:
    """The messages with `state`: the last roster step of the viewer before each; both are sorted together."""
    state = f.struct("size", *masks.names("all"), *masks.names("heard")).alias("state")
    mine = (rosters["group"] == few["group"]) & rosters["viewer"].eqNullSafe(few["viewer"])
    steps = rosters.join(few, mine).select("author", f.col("from_us").alias("agreed_us"), state)
    order = Window.partitionBy("author").orderBy("agreed_us", f.col("seq").asc_nulls_first())
    return (
        recorded.unionByName(steps, allowMissingColumns=True)
        .withColumn("state", f.last("state", ignorenulls=True).over(order))
        .where("seq is not null")
    )


def reach(
    sends: DataFrame,
    heard: DataFrame,
    authors: DataFrame,
    rosters: DataFrame,
    start_us: int,
    masks: Masks,
    uncovered: DataFrame | None = None,
    watch: Counter = uncounted,
) -> DataFrame:
    """One row per message: what its author and its recipients recorded, and the expected recipients. `uncovered`
    (`silver.coverage_gaps`) is given if some author has no export: only then are losses inferred, which reads all
    receipts again (`watch`: see `inferred_losses`).

    Masks: `exp` (receipts are known, so a missing one is a loss), `lost`, `slow` (lost or late), `indirect` (not
    direct), `mailed` (by mediator in time), `unheard` (in the roster, receipts unknown), `beyond` (received, not in the
    roster: joiners), `there` (`exp`, and the author if its receipts are known).
    """
    few = f.broadcast(authors.select("author", "group", "sender", "viewer", "place", "bit", "base_us", "slope"))
    came = heard
    if uncovered is not None:
        came = heard.unionByName(inferred_losses(heard, authors, uncovered, masks, watch), allowMissingColumns=True)
    rows = _with_rosters(_recorded(sends, came, authors, few, start_us), rosters, few, masks)
    none = f.lit(0).cast("long")
    shape = {
        **{
            name: f.coalesce(name, none)
            for prefix in ("seen", "direct", "within", "mail")
            for name in masks.names(prefix)
        },
        **{name: f.coalesce(f"state.{name}", none) for prefix in ("all", "heard") for name in masks.names(prefix)},
        **{
            name: f.when(f.col("place") == number, f.col("bit")).otherwise(none)
            for number, name in enumerate(masks.names("self"))
        },
        "n": f.coalesce("n", f.col("state.size") - 1, "said_n").cast("int"),
    }
    rows = rows.withColumns(shape)
    if uncovered is not None:
        away = {name: f.coalesce(name, none) for name in masks.names("away")}
        rows = rows.withColumns(away).withColumns(masks.each("heard", "heard & ~away")).drop(*away)
    for into, formula in (
        ("exp", "(heard | (seen & all)) & ~self"),
        ("lost", "exp & ~seen"),
        ("slow", "exp & ~within"),
        ("indirect", "exp & ~direct"),
        ("mailed", "exp & mail"),
        ("unheard", "all & ~exp & ~self"),
        ("beyond", "seen & ~exp"),
        ("there", "exp | (heard & self)"),
    ):
        rows = rows.withColumns(masks.each(into, formula))
    return rows.drop(
        "state", "place", "bit", "base_us", "slope", "agreed_us", "said_us", "said_n", "said_keys", "sent_kind"
    )


def messages(reach: DataFrame, authors: DataFrame, people: DataFrame, masks: Masks) -> DataFrame:
    """Delivery of each message. `whole_us`: until the last expected recipient had it, without joiners' history;
    `shown_us`: until the last client showed it; both null if a delivery is missing or happened only as history. `kind`:
    "message", "membership" or "annotation". `missing`, `slow_for`: pseudonyms."""
    names = people.groupBy("group").agg(f.sort_array(f.collect_list(f.struct("number", "member"))).alias("everybody"))
    few = authors.select("author", "group", "sender").join(names, "group")
    lost, slow, expected, beyond = (masks.count(prefix) for prefix in ("lost", "slow", "exp", "beyond"))

    def of(prefix: str) -> Column:
        told = f.transform(masks.numbers(prefix), lambda number: f.element_at("everybody", number + 1)["member"])
        return f.when(masks.count(prefix) == 0, f.array().cast("array<bigint>")).otherwise(told)

    kind = word_at("recv", "kind", f.coalesce("kind", f.lit(-1)))
    last_us = f.when(beyond == 0, f.col("max_us")).otherwise(f.col("max_then_us"))

    def until(last: Column) -> Column:
        # `greatest` ignores null and would turn an unknown duration into 0.
        return f.when(f.col("complete") & last.isNotNull(), f.greatest(last, f.lit(0)))

    return (
        reach.join(f.broadcast(few), "author")
        .withColumns({"lacking": lost, "expected": expected, "unheard": masks.count("unheard")})
        .withColumn("complete", (f.col("expected") > 0) & (f.col("lacking") == 0))
        .select(
            *("group", "sender", "seq", "t_send_us", kind.alias("kind")),
            word_at("send", "keys", f.coalesce("keys", f.lit(-1))).alias("keys"),
            word_at("send", "path", f.coalesce("path", f.lit(-1))).alias("path"),
            f.coalesce("accountability", f.lit("unknown")).alias("accountability"),
            *("n", "batch", "expected", (f.col("expected") - f.col("lacking")).cast("int").alias("delivered")),
            (f.col("expected") - masks.count("indirect")).cast("int").alias("direct"),
            *(beyond.alias("newcomers"), "unheard", "complete", (slow == 0).alias("in_time")),
            *("first_us", until(last_us).alias("whole_us"), "sum_us", "came"),
            until(f.col("shown_us")).alias("shown_us"),
            *(f.coalesce(name, f.lit(0)).alias(name) for name in ("uncorrected", "late", "dups")),
            *("hold_us", "hold_max_us", of("lost").alias("missing"), of("slow").alias("slow_for")),
            *("queue_us", "plain_b", "env_b", "envelopes"),
        )
    )
