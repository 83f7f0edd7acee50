"""Gold tables of outages, joins, sizes and gaps."""

from functools import partial, reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.pairs import count_bits
from analytics.pipeline.schema import PHASES
from analytics.pipeline.silver import Masks

MINUTE_US = 60_000_000
APART_MIN, SILENT_MIN = 3, 15
"""Bad minutes that are further apart belong to two outages: this far if deliveries were in time between them, and this
far if nothing was sent."""
EXPECTED_MIN = 3
"""Fewest missed messages of an outage: a single loss is none."""


def minutes(reach: DataFrame, authors: DataFrame, people: DataFrame, masks: Masks) -> DataFrame:
    """Expected, direct and mediated deliveries per observer and minute: (observer, minute, expected, direct, mailed). A
    message counts in the minute since 1970 in which it was sent."""
    timed = reach.withColumn("minute", f.floor(f.col("t_send_us") / MINUTE_US).cast("long")).join(
        f.broadcast(authors.select("author", "group", f.col("number").alias("own"))), "author"
    )
    key = ["group", "minute"]
    own = (
        timed.where(masks.count("there") > masks.count("exp"))
        .groupBy(*key, f.col("own").alias("number"))
        .agg(f.count(f.lit(1)).alias("own"))
    )
    # All present members, less an author's own messages, so that all authors of a minute are counted together.
    counts = (
        count_bits(prefix, masks, timed, key).select(*key, "number", f.col("times").alias(prefix))
        for prefix in ("there", "indirect", "mailed")
    )
    there, one_s_own, indirect, mailed = (
        f.coalesce(f.sum(name), f.lit(0)) for name in ("there", "own", "indirect", "mailed")
    )
    expected = there - one_s_own
    return (
        reduce(partial(DataFrame.unionByName, allowMissingColumns=True), counts, own)
        .join(f.broadcast(people.select("group", "number", f.col("member").alias("observer"))), ["group", "number"])
        .groupBy("observer", "minute")
        .agg(expected.alias("expected"), (expected - indirect).alias("direct"), mailed.alias("mailed"))
        .where("expected > 0")
    )


def outages(minutes: DataFrame) -> DataFrame:
    """Periods in which less than half of the messages arrived directly or by mediator in time, by gaps and islands:
    (observer, t_from_us, t_to_us, bad_minutes, expected, direct, mailed). A member that is served by a mediator is not
    offline; mail that arrives late is no sign of a connection."""
    order = Window.partitionBy("observer").orderBy("minute")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    came = f.col("direct") + f.col("mailed")
    bad = came * 2 < f.col("expected")
    last_bad, last_good = (f.max(f.when(when, f.col("minute"))).over(before) for when in (bad, ~bad))
    apart = f.col("minute") - f.col("last_bad")
    recovered = f.coalesce(f.col("last_good") > f.col("last_bad"), f.lit(False))
    begins = ((apart > APART_MIN) & recovered) | (apart > SILENT_MIN)
    return (
        minutes.withColumns({"last_bad": last_bad, "last_good": last_good})
        .where(bad)
        .withColumn("begins", f.coalesce(begins, f.lit(True)).cast("int"))
        .withColumn("episode", f.sum("begins").over(order))
        .groupBy("observer", "episode")
        .agg(
            (f.min("minute") * MINUTE_US).alias("t_from_us"),
            ((f.max("minute") + 1) * MINUTE_US).alias("t_to_us"),
            f.count(f.lit(1)).alias("bad_minutes"),
            f.sum("expected").alias("expected"),
            f.sum("direct").alias("direct"),
            f.sum("mailed").alias("mailed"),
        )
        .where(f.col("expected") - came >= EXPECTED_MIN)
        .drop("episode")
    )


def joins(rows: DataFrame, views: DataFrame) -> DataFrame:
    """Join attempts as in the thesis's Tables 6 and 7: phases, and the whole in round trips of the slowest connection.

    `members`: members besides the joiner, at the end. `found`: those in the joiner's first view; null if unknown and
    for inviters.
    """
    key = ["observer", "group", "attempt", "role"]
    phases = [f.max(f.when(f.col("phase") == phase, f.col("us"))).alias(f"{phase}_us") for phase in PHASES]
    told = rows.groupBy(*key).agg(
        f.max("connected").alias("connected"),
        f.max("members").alias("members"),
        f.max_by("outcome", f.struct(f.col("phase") == "whole", "t_us", "outcome")).alias("outcome"),
        f.max("rtt_us").alias("rtt_us"),
        f.min("t_us").alias("t_us"),
        f.max("t_us").alias("ended_us"),
        *phases,
    )
    first = views.groupBy("observer", "group").agg((f.min_by(f.size("roster"), "t_us") - 1).alias("found"))
    told = told.join(f.broadcast(first), ["observer", "group"], "left").withColumn(
        "found", f.when(f.col("role") == "joiner", f.col("found"))
    )
    return told.withColumn("whole_rtts", f.when(f.col("rtt_us") > 0, f.col("whole_us") / f.col("rtt_us")))


def sizes(messages: DataFrame, states: DataFrame) -> DataFrame:
    """Bytes on the wire as in the thesis's Figures 31 and 32: (kind, keys, of, rows, min_b, max_b, sum_b, envelopes,
    raw_b).

    "message": by key mode and text length (`of`), one envelope for one recipient. "change": all envelopes of a
    membership change, by key mode and recipients. "state": the membership state for a joiner, by members, before
    (`raw_b`) and after zstd.
    """
    change = f.col("kind") == "membership"
    sent = messages.where("envelopes > 0 and kind != 'annotation'").select(
        f.when(change, "change").otherwise("message").alias("kind"),
        "keys",
        f.when(change, f.col("n").cast("long")).otherwise(f.col("plain_b")).alias("of"),
        f.when(change, f.col("env_b")).otherwise((f.col("env_b") / f.col("envelopes")).cast("long")).alias("each_b"),
        *("env_b", f.col("envelopes").cast("long").alias("envelopes")),
        f.lit(None).cast("long").alias("raw_b"),
    )
    told = states.select(
        f.lit("state").alias("kind"),
        f.lit(None).cast("string").alias("keys"),
        f.col("members").cast("long").alias("of"),
        f.col("zstd_b").alias("each_b"),
        f.col("zstd_b").alias("env_b"),
        f.lit(None).cast("long").alias("envelopes"),
        "raw_b",
    )
    return (
        sent.unionByName(told)
        .groupBy("kind", "keys", "of")
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.min("each_b").alias("min_b"),
            f.max("each_b").alias("max_b"),
            f.sum("env_b").alias("sum_b"),
            f.sum("envelopes").alias("envelopes"),
            f.sum("raw_b").alias("raw_b"),
        )
    )


def gaps(rows: DataFrame) -> DataFrame:
    """Gaps by author, with the latency of their responses: (observer, group, sender, requested, answered, sum_us,
    max_us, messages)."""
    answered = f.col("outcome") == "answered"
    return rows.groupBy("observer", "group", "sender").agg(
        f.count(f.lit(1)).alias("requested"),
        f.count_if(answered).alias("answered"),
        f.try_sum(f.when(answered, f.col("us"))).alias("sum_us"),
        f.max(f.when(answered, f.col("us"))).alias("max_us"),
        f.try_sum(f.greatest(f.col("upto") - f.col("after"), f.lit(0))).alias("messages"),
    )
