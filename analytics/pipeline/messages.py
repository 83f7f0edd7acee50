"""Gold, by message: who was to get it, who has it, and how long that took.

Millions of rows of what was received are gone through twice: once here (`heard`: how many, who, how late), once by pair
and latency (`pairs.histogram`). Everything else follows from these two, which are small.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.schema import WORDS
from analytics.pipeline.silver import Masks, Watched, unwatched, word
from analytics.pipeline.skew import ahead

DIRECT, HISTORY, MEDIATOR = map(WORDS["recv", "path"].index, ("direct", "history", "mediator"))
GAP_MAX = 10_000
"""Messages that are taken for lost between two that came; a larger gap is rather a counter that has jumped."""
GAPS_MAX, GAPS_EVER_MAX = 100_000, 5_000_000
"""Messages that are taken for lost of one author, and of all: nor are they lost where a counter jumps all the time."""


def heard(deliveries: DataFrame, masks: Masks, within_us: int) -> DataFrame:
    """What observers say of each message: one row for each (author, seq) that anybody has received.

    Masks: `seen`, `direct` (came directly), `within` (took no longer than `within_us`), `mail` (that, by a mediator).
    """
    came = ~f.col("dup")
    took = f.col("took_us")
    return deliveries.groupBy("author", "seq").agg(
        *masks.gather(came, "seen"),
        *masks.gather(came & (f.col("path") == DIRECT), "direct"),
        *masks.gather(came & (took <= within_us), "within"),
        *masks.gather(came & (f.col("path") == MEDIATOR) & (took <= within_us), "mail"),
        f.min("t_send_us").alias("said_us"),
        f.max("n").alias("said_n"),
        f.max("keys").alias("said_keys"),
        f.max("kind").alias("kind"),
        f.max(f.when(came, took)).alias("max_us"),
        f.max(f.when(came & (f.col("path") != HISTORY), took)).alias("max_then_us"),
        f.max(f.when(came & (f.col("path") != HISTORY), took + f.col("display_us"))).alias("shown_us"),
        f.min(f.when(came, took)).alias("first_us"),
        # Null where it is no number of 64 bits: nobody waits so long.
        f.try_sum(f.when(came, took)).alias("sum_us"),
        f.count_if(came).alias("came"),
        f.count_if(came & ~f.col("corrected")).alias("uncorrected"),
        f.count_if(f.col("dup")).alias("dups"),
        f.count_if(came & f.col("late")).alias("late"),
        f.try_sum(f.when(came, f.col("hold_us"))).alias("hold_us"),
        f.max(f.when(came, f.col("hold_us"))).alias("hold_max_us"),
    )


def gaps(
    heard: DataFrame, authors: DataFrame, uncovered: DataFrame, masks: Masks, watch: Watched = unwatched
) -> DataFrame:
    """Messages that nobody has received, of authors without an export: what lies between two that came. (author, seq,
    said_us, said_n, said_keys, kind, away*), as of the next one that came.

    `away`: whoever did not record all the time from when the one before came until the next one did (`uncovered`): it
    may have got them in between, and nobody knows. Of such an author no clock is known, so that what a message took is
    by the clock of whoever got it, and it came when it was said and as much later.

    `watch` gets every gap, `lost` or not: the smallest come first, and count until GAPS_MAX or GAPS_EVER_MAX is full.
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
        .agg(*masks.gather(f.lit(True), "away"))
        .select(
            "author",
            f.explode(f.sequence(f.col("before") + 1, f.col("seq") - 1)).alias("seq"),
            *(*of_next, *masks.names("away")),
        )
    )


def reach(
    sends: DataFrame,
    heard: DataFrame,
    authors: DataFrame,
    rosters: DataFrame,
    start_us: int,
    masks: Masks,
    uncovered: DataFrame | None = None,
    watch: Watched = unwatched,
) -> DataFrame:
    """One row for each message that there was: what its author says of it, what observers do, and who was to get it.
    `uncovered` (`silver.uncovered`) is there where some author may have no export; gaps are looked for only then, as
    that goes through all receipts again (`watch`: see `gaps`).

    Masks: `exp` (receipts of these are known, so what lacks is lost), `lost`, `slow` (lost, or too late), `indirect`
    (came otherwise, or not), `mailed` (came by a mediator, in time), `unheard` (in the roster, but no export of theirs
    says anything), `beyond` (have it and were not in the roster: newcomers), `there` (`exp`, and the author where its
    receipts are known too).
    """
    few = f.broadcast(authors.select("author", "group", "sender", "viewer", "place", "bit", "base_us", "slope"))
    sent = sends.join(f.broadcast(authors.select("author", "group", "sender")), ["group", "sender"]).drop(
        "group", "sender"
    )
    came = heard
    if uncovered is not None:
        came = heard.unionByName(gaps(heard, authors, uncovered, masks, watch), allowMissingColumns=True)
    told = (
        sent.join(came, ["author", "seq"], "full")
        .withColumn("t_send_us", f.coalesce("t_send_us", "said_us"))
        .withColumn("keys", f.coalesce("keys", "said_keys"))
        .withColumn("kind", f.coalesce("sent_kind", "kind"))
        .join(few.select("author", "place", "bit", "base_us", "slope"), "author")
        .withColumn("agreed_us", f.col("t_send_us") - ahead(f.col("t_send_us"), start_us))
    )
    # Who was to get it: of the steps of the viewer's roster, the last one before. Both go by in one order.
    state = f.struct("size", *masks.names("all"), *masks.names("heard")).alias("state")
    mine = (rosters["group"] == few["group"]) & rosters["viewer"].eqNullSafe(few["viewer"])
    steps = rosters.join(few, mine).select("author", f.col("from_us").alias("agreed_us"), state)
    order = Window.partitionBy("author").orderBy("agreed_us", f.col("seq").asc_nulls_first())
    rows = (
        told.unionByName(steps, allowMissingColumns=True)
        .withColumn("state", f.last("state", ignorenulls=True).over(order))
        .where("seq is not null")
    )
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
    """What became of each message. `whole_us`: until the last of those expected had it (null where somebody lacks it);
    what newcomers got later as history does not count for that. `shown_us`: until the last one's face was told of it.
    Both are null where nobody got it but as history.
    `kind`: as its author says, or those who got it ("message", "membership", "remark"). `missing`, `slow_for`:
    pseudonyms."""
    names = people.groupBy("group").agg(f.sort_array(f.collect_list(f.struct("number", "member"))).alias("everybody"))
    few = authors.select("author", "group", "sender").join(names, "group")
    lost, slow, expected, beyond = (masks.count(prefix) for prefix in ("lost", "slow", "exp", "beyond"))

    def of(prefix: str) -> Column:
        told = f.transform(masks.numbers(prefix), lambda number: f.element_at("everybody", number + 1)["member"])
        return f.when(masks.count(prefix) == 0, f.array().cast("array<bigint>")).otherwise(told)

    kind = word("recv", "kind", f.coalesce("kind", f.lit(-1)))
    last_us = f.when(beyond == 0, f.col("max_us")).otherwise(f.col("max_then_us"))

    def until(last: Column) -> Column:
        # `greatest` leaves out what is null, and would make of nothing that it took no time.
        return f.when(f.col("complete") & last.isNotNull(), f.greatest(last, f.lit(0)))

    return (
        reach.join(f.broadcast(few), "author")
        .withColumns({"lacking": lost, "expected": expected, "unheard": masks.count("unheard")})
        .withColumn("complete", (f.col("expected") > 0) & (f.col("lacking") == 0))
        .select(
            *("group", "sender", "seq", "t_send_us", kind.alias("kind")),
            word("send", "keys", f.coalesce("keys", f.lit(-1))).alias("keys"),
            word("send", "path", f.coalesce("path", f.lit(-1))).alias("path"),
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
