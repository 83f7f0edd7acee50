"""Gold tables of pairs: deliveries from each member to each other, by path, with latency."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from analytics.pipeline.latency import QUANTILES, bin_of, percentiles, ratio
from analytics.pipeline.schema import WORDS
from analytics.pipeline.silver import Masks, word_at

EDGE_BITS = {"n": (20, 12), "path": (17, 3), "keys": (15, 2), "dup": (14, 1), "bin": (0, 14)}
"""First bit and number of bits of each number in a histogram's key; the pair is above bit 32."""


def histogram(deliveries: DataFrame, edges: DataFrame) -> DataFrame:
    """Deliveries by pair and latency: (group, sender, observer, keys, path, n, dup, bin, rows, late, hold_us,
    hold_max_us, max_us). The grouping key is packed into one number."""

    def put(name: str, value: Column) -> Column:
        return f.shiftleft(value.cast("long"), EDGE_BITS[name][0])

    def get(name: str) -> Column:
        low, bits = EDGE_BITS[name]
        return f.shiftright("key", low).bitwiseAND(2**bits - 1).cast("int")

    parts = {
        "n": f.col("n"),
        "path": f.col("path") + 1,
        "keys": f.col("keys") + 1,
        "dup": f.col("dup").cast("int"),
        "bin": bin_of(f.col("took_us")),
    }
    key = f.shiftleft(f.col("edge").cast("long"), 32)
    for name, value in parts.items():
        key = key + put(name, value)
    counted = (
        deliveries.select(key.alias("key"), "late", "hold_us", "took_us")
        .groupBy("key")
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.count_if("late").alias("late"),
            f.try_sum("hold_us").alias("hold_us"),
            f.max("hold_us").alias("hold_max_us"),
            f.max("took_us").alias("max_us"),
        )
    )
    return (
        counted.withColumn("edge", f.shiftright("key", 32).cast("int"))
        .join(f.broadcast(edges.select("edge", "group", "sender", "observer")), "edge")
        .select(
            *("group", "sender", "observer"),
            word_at("recv", "keys", get("keys") - 1).alias("keys"),
            word_at("recv", "path", get("path") - 1).alias("path"),
            *(get("n").alias("n"), (get("dup") == 1).alias("dup"), get("bin").alias("bin")),
            *("rows", "late", "hold_us", "hold_max_us", "max_us"),
        )
    )


def count_bits(prefix: str, masks: Masks, reach: DataFrame, by: list[str], *further: str) -> DataFrame:
    """Messages with each bit of a mask: (by…, number, times), one row per distinct roster, to be summed. `further`
    masks of the same messages are kept."""
    names = [name for one in (prefix, *further) for name in masks.names(one)]
    few = reach.where(masks.count(prefix) > 0).groupBy(*by, *names).agg(f.count(f.lit(1)).alias("times"))
    return few.select("*", f.explode(masks.all_numbers()).alias("number")).where(
        masks.contains(prefix, f.col("number"))
    )


def expectations(reach: DataFrame, masks: Masks) -> DataFrame:
    """By author and member number: (author, number, expected, lost)."""
    lost = f.when(masks.contains("lost", f.col("number")), f.col("times")).otherwise(0)
    return (
        count_bits("exp", masks, reach, ["author"], "lost")
        .groupBy("author", "number")
        .agg(f.sum("times").alias("expected"), f.sum(lost).alias("lost"))
    )


def edge(
    histogram: DataFrame,
    expectations: DataFrame,
    acknowledged: DataFrame,
    edges: DataFrame,
    authors: DataFrame,
    people: DataFrame,
) -> DataFrame:
    """Deliveries of each pair. `evidence`: "receipts" (the observer's export) or "acks" (acknowledgements in the
    author's export, without times). `p50_us`, … cover direct deliveries, `max_us` all but history."""
    key = ["group", "sender", "observer"]
    came = ~f.col("dup")
    taken = histogram.where(came & (f.col("path") == "direct"))
    by_path = [
        f.sum(f.when(came & (f.col("path") == path), f.col("rows")).otherwise(0)).alias(path)
        for path in WORDS["recv", "path"]
    ]
    speed = percentiles(taken, key)
    counts = histogram.groupBy(*key).agg(
        *by_path,
        f.sum(f.when(f.col("dup"), f.col("rows")).otherwise(0)).alias("dups"),
        f.sum(f.when(came, f.col("late")).otherwise(0)).alias("late"),
        f.try_sum(f.when(came, f.col("hold_us")).otherwise(0)).alias("hold_us"),
        f.max("hold_max_us").alias("hold_max_us"),
        f.max(f.when(came & (f.col("path") != "history"), f.col("max_us"))).alias("max_us"),
    )
    names = authors.select("author", "group", "sender").join(people.select("group", "number", "member"), "group")
    named = names.withColumnRenamed("member", "observer")
    told = (
        expectations.join(named, ["author", "number"])
        .select(*key, "expected", (f.col("expected") - f.col("lost")).alias("delivered"))
        .join(counts, key, "full")
        .join(speed, key, "left")
        .join(f.broadcast(edges.select(*key, "corrected")), key, "left")
        .withColumn("evidence", f.lit("receipts"))
    )
    by_acks = acknowledged.join(named, ["author", "number"]).select(*key, "expected", "delivered")
    return (
        told.unionByName(by_acks.withColumn("evidence", f.lit("acks")), allowMissingColumns=True)
        .na.fill(0, ["expected", "delivered", *WORDS["recv", "path"], "dups", "late", "hold_us"])
        .na.fill(False, ["corrected"])
        .select(
            *(*key, "evidence", "expected", "delivered", ratio("delivered", "expected").alias("ratio")),
            *(*WORDS["recv", "path"], "dups", "late", "hold_us", "hold_max_us", "corrected"),
            *(f"{name}_us" for name in QUANTILES),
            "max_us",
        )
    )


def acknowledged(reach: DataFrame, acks: DataFrame, authors: DataFrame, people: DataFrame, masks: Masks) -> DataFrame:
    """Messages of exporting authors to members without receipts: (author, number, expected, delivered).

    Acknowledgements take time, so messages of the last minute before the author's export ends, or before a pause, count
    in neither.
    """
    upto = (
        acks.groupBy(f.col("observer").alias("sender"), "group", "member")
        .agg(f.max("upto").alias("upto"))
        .join(authors.where("told").select("author", "group", "sender"), ["group", "sender"])
        .join(people.select("group", "member", "number"), ["group", "member"])
        .select("author", "number", "upto")
    )
    return (
        reach.withColumns(masks.each("settled", "heard & self"))
        .where((masks.count("unheard") > 0) & (masks.count("settled") > 0))
        .join(f.broadcast(authors.where("told").select("author")), "author")
        .select("author", "seq", f.explode(masks.numbers("unheard")).alias("number"))
        .join(f.broadcast(upto), ["author", "number"], "left")
        .groupBy("author", "number")
        .agg(
            f.count(f.lit(1)).alias("expected"),
            f.count_if(f.coalesce(f.col("seq") <= f.col("upto"), f.lit(False))).alias("delivered"),
        )
    )
