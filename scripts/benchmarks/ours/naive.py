"""The pipeline's work in Spark in its simplest form and with default settings, as a baseline for the tuned pipeline.

Each intended delivery is a row, joined with the received messages, by strings and again for each table; schemas are
inferred, percentiles exact, partitions 200. It counts the same deliveries, which is checked.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from analytics.pipeline import clock_skew
from analytics.pipeline.latency import bin_of
from analytics.pipeline.silver import APART_US, merge_spans, word_index
from benchmarks.peers.delivery_duckdb import MINUTE_US, SETTLE_US, manifests

EDGE = ["group", "sender", "observer"]


def study(spark: SparkSession, exports: Path, out: Path, partitions: int = 200, within_us: int = 30_000_000) -> None:
    """Write `message`, `edge`, `edge_hist` and `minute` below OUT/gold."""
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spans, files = manifests(exports)
    recv, send, view = (spark.read.parquet(*files[kind]) for kind in ("recv", "send", "view"))
    span = spark.createDataFrame(spans, "observer long, begin long, end long")
    recorded = merge_spans(
        spark.read.parquet(*files["span"]).select(
            "observer", f.col("t_from_us").alias("from_us"), f.col("t_us").alias("to_us")
        ),
        *(["observer"], APART_US),
    )
    pairs = clock_skew.pairs(recv.withColumns({name: word_index("recv", name) for name in ("keys", "path")}), 0)
    line = clock_skew.clock_lines(clock_skew.clock_differences(pairs))
    came = due(recv, send, view, span.join(recorded, "observer"), line)
    timed = corrected(came, line)
    message = timed.groupBy("group", "sender", "seq").agg(
        f.count(f.lit(1)).alias("expected"),
        f.count("t_recv_us").alias("delivered"),
        f.max("took").alias("whole_us"),
        f.count_if(f.col("took") <= within_us).alias("in_time"),
        f.collect_set(f.when(f.col("t_recv_us").isNull(), f.col("observer"))).alias("missing"),
    )
    edge = timed.groupBy(*EDGE).agg(
        f.count(f.lit(1)).alias("expected"),
        f.count("t_recv_us").alias("delivered"),
        f.percentile("took", f.array(f.lit(0.5), f.lit(0.9), f.lit(0.99))).alias("percentiles"),
    )
    histogram = timed.groupBy(*EDGE, "keys", "path", "n", bin_of(f.col("took")).alias("bin")).count()
    minute = timed.groupBy("observer", f.floor(f.col("t_send_us") / MINUTE_US).alias("minute")).agg(
        f.count(f.lit(1)).alias("expected"), f.count_if(f.col("path") == "direct").alias("direct")
    )
    tables = {"message": message, "edge": edge, "edge_hist": histogram, "minute": minute}
    for name, table in tables.items():
        table.write.mode("overwrite").parquet(str(out / "gold" / name))


def due(recv: DataFrame, send: DataFrame, view: DataFrame, span: DataFrame, line: DataFrame) -> DataFrame:
    """A row for each intended delivery, with its receipt if there is one."""
    start_us = line.agg(f.max("start_us")).first()[0] or 0
    said = send.select("group", f.col("observer").alias("sender"), "seq", "t_send_us", f.col("n").alias("size"))
    seen = view.select("group", f.col("observer").alias("sender"), "roster", "t_us")
    latest = Window.partitionBy("group", "sender", "seq").orderBy(
        f.desc(f.col("t_us") <= f.col("t_send_us")), f.desc("t_us")
    )
    to_whom = (
        said.join(seen, ["group", "sender"])
        .withColumn("place", f.row_number().over(latest))
        .where("place = 1")
        .withColumn("observer", f.explode("roster"))
        .where("observer != sender")
    )
    own = view.groupBy("group", "observer").agg(f.min("t_us").alias("first")).join(span, "observer")
    times = {"from_us": f.greatest("first", "begin", "from_us"), "to_us": f.least("end", "to_us")}
    covered = clock_skew.to_common_clock(
        own.withColumns(times).where("to_us > from_us"), "observer", list(times), line, start_us
    )
    to_whom = clock_skew.to_common_clock(
        to_whom.withColumn("when_us", f.col("t_send_us")), "sender", ["when_us"], line, start_us
    )
    got = recv.where("not dup").select(*EDGE, "seq", "keys", "path", "n", "t_recv_us", "hold_us", "late")
    strings = [f.col(name).cast("string").alias(name) for name in EDGE]

    def named(table: DataFrame) -> DataFrame:
        return table.select(*strings, *[name for name in table.columns if name not in EDGE])

    there = covered.select(
        *(f.col("group").cast("string").alias("g"), f.col("observer").cast("string").alias("o"), "from_us", "to_us")
    )
    at = f.col("when_us")
    known = (
        (f.col("group") == f.col("g"))
        & (f.col("observer") == f.col("o"))
        & ((f.col("from_us") <= at) & (at < f.col("to_us") - SETTLE_US))
    )
    return (
        named(to_whom)
        .join(named(got), [*EDGE, "seq"], "left")
        .join(there, known, "left")
        .where(f.col("o").isNotNull() | f.col("t_recv_us").isNotNull())
    )


def corrected(came: DataFrame, line: DataFrame) -> DataFrame:
    """The same with latencies by reconciled clocks."""
    mine = line.select(
        f.col("member").cast("string").alias("sender"),
        "component",
        f.col("base_us").alias("b"),
        f.col("slope").alias("s"),
        "start_us",
    )
    theirs = line.select(
        *(f.col("member").cast("string").alias("observer"), "component"),
        *(f.col("base_us").alias("c"), f.col("slope").alias("t")),
    )
    ahead = f.col("c") - f.col("b") + (f.col("t") - f.col("s")) * (f.col("t_send_us") - f.col("start_us"))
    took = f.col("t_recv_us") - f.col("t_send_us") - f.coalesce(clock_skew.rounded(ahead), f.lit(0))
    return came.join(mine, "sender", "left").join(theirs, ["observer", "component"], "left").withColumn("took", took)
