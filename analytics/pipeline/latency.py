"""Latency histograms, percentiles, ratios.

A latency is counted in the bin floor(50 ln µs), so it is known to 2 %, and histograms of many exports can be added.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.clock_skew import rounded

BINS_PER_E = 50
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def bin_of(latency_us: Column) -> Column:
    return f.floor(f.log(f.greatest(latency_us, f.lit(1)).cast("double")) * BINS_PER_E).cast("int")


def middle_of(bin_: Column) -> Column:
    """The latency (µs) that represents a bin: its middle on a logarithmic scale."""
    return rounded(f.exp((bin_ + 0.5) / BINS_PER_E))


def percentiles(histogram: DataFrame, keys: list[str], prefix: str = "") -> DataFrame:
    """`keys`, and `PREFIXp50_us`, … from (keys, bin, rows)."""
    up_to = Window.partitionBy(*keys).orderBy("bin")
    all_ = Window.partitionBy(*keys)
    counted = (
        histogram.groupBy(*keys, "bin")
        .agg(f.sum("rows").alias("rows"))
        .withColumn("upto", f.sum("rows").over(up_to))
        .withColumn("total", f.sum("rows").over(all_))
    )
    reached = [
        middle_of(f.min(f.when(f.col("upto") >= f.ceil(f.col("total") * share), f.col("bin")))).alias(
            f"{prefix}{name}_us"
        )
        for name, share in QUANTILES.items()
    ]
    return counted.groupBy(*keys).agg(*reached)


def ratio(part: str, whole: str) -> Column:
    """part / whole; null if the whole is 0."""
    return f.when(f.col(whole) > 0, f.col(part).cast("double") / f.col(whole).cast("double"))
