"""Gold tables of members and of the whole study."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.pipeline.latency import QUANTILES, percentiles, ratio


def members(
    messages: DataFrame, edge: DataFrame, histogram: DataFrame, lines: DataFrame, covered: DataFrame, outage: DataFrame
) -> DataFrame:
    """Results per member: as recipient, as author, its clock, and its share of slow messages.

    Latencies (`p50_us`, …) cover direct deliveries to it, `clock_us` is for the middle of its time. `slow_in`: messages
    that did not reach it in time. `explains`: those that reached all others in time.
    """
    reader = (
        edge.where("evidence = 'receipts'")
        .groupBy(f.col("observer").alias("member"))
        .agg(
            f.sum("expected").alias("expected"),
            f.sum("delivered").alias("delivered"),
            f.sum("late").alias("late"),
            f.sum("dups").alias("dups"),
            f.try_sum("hold_us").alias("hold_us"),
        )
    )
    author = messages.groupBy(f.col("sender").alias("member")).agg(
        f.count(f.lit(1)).alias("said"),
        f.sum("expected").alias("to_deliver"),
        f.sum("delivered").alias("reached"),
        f.count_if("complete").alias("complete"),
    )
    blamed = messages.where(f.size("slow_for") > 0).select(
        f.explode("slow_for").alias("member"), (f.size("slow_for") == 1).cast("int").alias("alone")
    )
    slow = blamed.groupBy("member").agg(f.count(f.lit(1)).alias("slow_in"), f.sum("alone").alias("explains"))
    came = histogram.where("not dup and path = 'direct'").select(f.col("observer").alias("member"), "bin", "rows")
    ahead_us = f.col("base_us") + f.col("slope") * (f.col("at_us") - f.col("start_us")).cast("double")
    clock = lines.select("member", f.round(ahead_us).cast("long").alias("clock_us"), "slope", "windows", "peers")
    away = outage.groupBy(f.col("observer").alias("member")).agg(
        f.count(f.lit(1)).alias("outages"), f.try_sum(f.col("t_to_us") - f.col("t_from_us")).alias("outage_us")
    )
    told = covered.select("member").distinct().withColumn("exported", f.lit(True))
    table = told
    for other in (reader, author, slow, percentiles(came, ["member"]), clock, away):
        table = table.join(other, "member", "full")
    zero = ["expected", "delivered", "late", "dups", "hold_us", "said", "to_deliver", "reached", "complete"]
    return (
        table.na.fill(0, [*zero, "slow_in", "explains", "outages", "outage_us"])
        .na.fill(False, ["exported"])
        .select(
            *("member", "exported", "expected", "delivered", ratio("delivered", "expected").alias("ratio"), "late"),
            *("dups", "hold_us", *(f"{name}_us" for name in QUANTILES), "said", "to_deliver", "reached", "complete"),
            *("slow_in", "explains", "clock_us", (f.col("slope") * 1e6).alias("drift_ppm"), "windows", "peers"),
            *("outages", "outage_us"),
        )
    )


def levels(messages: DataFrame, edge: DataFrame, within_us: int) -> DataFrame:
    """One row with the figures of `summary.sentences`."""
    told = messages.where("expected > 0").agg(
        f.count(f.lit(1)).alias("messages"),
        f.count_if("complete").alias("complete"),
        f.count_if("in_time").alias("in_time"),
        f.count_if(~f.col("in_time")).alias("not_in_time"),
        f.lit(within_us).alias("within_us"),
        f.sum("expected").alias("expected"),
        f.sum("delivered").alias("delivered"),
        f.sum("direct").alias("direct"),
        f.sum("came").alias("came"),
        f.sum("late").alias("late"),
        f.sum("dups").alias("dups"),
        f.sum("uncorrected").alias("uncorrected"),
        f.try_sum("hold_us").alias("hold_us"),
        f.count_if(f.col("hold_us") > 0).alias("held"),
        f.min("t_send_us").alias("t_from_us"),
        f.max("t_send_us").alias("t_to_us"),
        f.sum("plain_b").alias("plain_b"),
        # Sizes are unknown for authors without an export.
        f.count("plain_b").alias("sized"),
        f.sum("env_b").alias("env_b"),
        f.sum("envelopes").alias("envelopes"),
    )
    acks = edge.where("evidence = 'acks'").agg(
        f.sum("expected").alias("acks_expected"), f.sum("delivered").alias("acks_delivered")
    )
    # Authors without an export: messages between two received ones, in a time that was not recorded completely.
    unknown = (f.col("expected") == 0) & f.col("came").isNull() & f.col("env_b").isNull()
    return told.crossJoin(acks).crossJoin(messages.agg(f.count_if(unknown).alias("not_recorded")))
