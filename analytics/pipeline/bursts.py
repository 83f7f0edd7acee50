"""Gold tables as in the thesis's Table 8: by key mode, path, group size, and burst."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.latency import QUANTILES, bin_of, percentiles, ratio

QUIET_US = 1_000_000
"""A pause of an author that ends a burst."""


def keys_path_size(messages: DataFrame, histogram: DataFrame) -> DataFrame:
    """Delivery and latency by key mode, path, recipients and batch, as in the thesis's Table 8.

    `grain` "message": counts over messages, by the author's path; `whole_*` is the time until all had it. `grain`
    "delivery": counts over deliveries, by their path; `batch` is unknown there.
    """
    by = ["keys", "path", "n", "batch"]
    told = messages.where("expected > 0")
    counts = told.groupBy(*by).agg(
        f.count(f.lit(1)).alias("messages"),
        f.sum("expected").alias("expected"),
        f.sum("delivered").alias("delivered"),
        f.count_if("complete").alias("complete"),
        f.try_sum("whole_us").alias("whole_sum_us"),
        f.max("whole_us").alias("whole_max_us"),
        f.sum("env_b").alias("env_b"),
        f.sum("plain_b").alias("plain_b"),
    )
    whole = told.where("whole_us is not null").select(
        *by, bin_of(f.col("whole_us")).alias("bin"), f.lit(1).alias("rows")
    )
    speed = percentiles(whole, by, "whole_").withColumnsRenamed({name: f"of_{name}" for name in by})
    same = reduce(Column.__and__, [counts[name].eqNullSafe(speed[f"of_{name}"]) for name in by])
    of_messages = counts.join(speed, same, "left").drop(*(f"of_{name}" for name in by))
    taken = histogram.where(~f.col("dup")).groupBy("keys", "path", "n", "bin").agg(f.sum("rows").alias("rows"))
    of_deliveries = (
        taken.groupBy("keys", "path", "n")
        .agg(f.sum("rows").alias("delivered"))
        .join(percentiles(taken, ["keys", "path", "n"]), ["keys", "path", "n"])
    )
    return (
        of_messages.withColumn("grain", f.lit("message"))
        .unionByName(of_deliveries.withColumn("grain", f.lit("delivery")), allowMissingColumns=True)
        .select(
            *("grain", *by, "messages", "expected", "delivered", ratio("delivered", "expected").alias("ratio")),
            *("complete", "whole_sum_us", "whole_max_us", *(f"whole_{name}_us" for name in QUANTILES)),
            *(f"{name}_us" for name in QUANTILES),
            *("plain_b", "env_b"),
        )
    )


def bursts(messages: DataFrame) -> DataFrame:
    """Messages of an author without a pause of a second: (group, sender, keys, n, messages, t_from_us, t_to_us,
    expected, delivered, complete, whole_us, shown_us, plain_b, env_b, envelopes).

    `whole_us`: from the first message until all recipients had all; `shown_us`: until all clients showed them; null if
    a delivery is missing or happened only as history. Unknown kinds count as messages.
    """
    order = Window.partitionBy("group", "sender").orderBy("t_send_us", "seq")
    apart = f.coalesce(f.col("t_send_us") - f.lag("t_send_us").over(order) > QUIET_US, f.lit(True))
    begun, whole = f.min("t_send_us"), f.bool_and("complete")

    def until(name: str) -> Column:
        known = whole & f.bool_and(f.col(name).isNotNull())
        return f.when(known, f.max(f.col("t_send_us") + f.col(name)) - begun).alias(name)

    return (
        messages.where("kind in ('message', 'unknown') and expected > 0")
        .withColumn("begins", apart.cast("int"))
        .withColumn("burst", f.sum("begins").over(order))
        .groupBy("group", "sender", "burst")
        .agg(
            f.min("keys").alias("keys"),
            f.max("n").alias("n"),
            f.count(f.lit(1)).alias("messages"),
            begun.alias("t_from_us"),
            f.max("t_send_us").alias("t_to_us"),
            f.sum("expected").alias("expected"),
            f.sum("delivered").alias("delivered"),
            whole.alias("complete"),
            until("whole_us"),
            until("shown_us"),
            f.sum("plain_b").alias("plain_b"),
            f.sum("env_b").alias("env_b"),
            f.sum("envelopes").alias("envelopes"),
        )
        .drop("burst")
    )
