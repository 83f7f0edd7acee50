"""Silver tables of authors and pairs, and receipts keyed by their numbers."""

import secrets
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.clock_skew import offset_us


def authors(pairs: DataFrame, sends: DataFrame, people: DataFrame, viewers: DataFrame, lines: DataFrame) -> DataFrame:
    """A number for each author in each group: (author, group, sender, told, viewer, number, place, bit, base_us,
    slope).

    `told`: whether an export has what this author sent. `viewer`: whose views determine the recipients: the author's
    own, or null if it has none, so that any will do. `base_us`, `slope`: its clock; 0 if unknown.
    """
    everyone = pairs.select("group", "sender").distinct()
    telling = sends.select("group", "sender").distinct().withColumn("told", f.lit(True))
    own = viewers.select("group", f.col("viewer").alias("sender"), f.col("viewer"))
    return (
        everyone.unionByName(telling.drop("told"))
        .distinct()
        .join(telling, ["group", "sender"], "left")
        .join(own, ["group", "sender"], "left")
        .join(people.withColumnRenamed("member", "sender"), ["group", "sender"])
        .join(lines.select(f.col("member").alias("sender"), "base_us", "slope"), "sender", "left")
        .select(
            f.row_number().over(Window.orderBy("group", "sender")).alias("author"),
            *("group", "sender"),
            f.coalesce("told", f.lit(False)).alias("told"),
            *("viewer", "number", "place", "bit"),
            *(f.coalesce(name, f.lit(0.0)).alias(name) for name in ("base_us", "slope")),
        )
    )


def edges(pairs: DataFrame, authors: DataFrame, people: DataFrame, lines: DataFrame) -> DataFrame:
    """Pairs of which one has received from the other: (edge, author, group, sender, observer, number, place, bit,
    corrected, base_us, slope).

    `base_us` + `slope` * (time - start_us): the observer's clock offset relative to the sender; 0 if not
    `corrected`, because a clock is unknown or the two are in different components. `number`, `place` and `bit` are
    the observer's.
    """
    of_sender = lines.select(
        *(f.col("member").alias("sender"), f.col("component").alias("sc")),
        *(f.col("base_us").alias("sb"), f.col("slope").alias("ss")),
    )
    of_observer = lines.select(
        *(f.col("member").alias("observer"), f.col("component").alias("oc")),
        *(f.col("base_us").alias("ob"), f.col("slope").alias("os")),
    )
    known = f.coalesce(f.col("sc") == f.col("oc"), f.lit(False))
    return (
        pairs.select("group", "sender", "observer")
        .distinct()
        .join(authors.select("author", "group", "sender"), ["group", "sender"])
        .join(people.withColumnRenamed("member", "observer"), ["group", "observer"])
        .join(of_sender, "sender", "left")
        .join(of_observer, "observer", "left")
        .select(
            f.row_number().over(Window.orderBy("group", "sender", "observer")).alias("edge"),
            *("author", "group", "sender", "observer", "number", "place", "bit"),
            known.alias("corrected"),
            f.when(known, f.col("ob") - f.col("sb")).otherwise(0.0).alias("base_us"),
            f.when(known, f.col("os") - f.col("ss")).otherwise(0.0).alias("slope"),
        )
    )


def deliveries(received: DataFrame, edges: DataFrame, start_us: int) -> DataFrame:
    """Receipts with numbers for author and pair, and the latency corrected for clock offsets (`took_us`); clock lines
    refer to `start_us`."""
    took = f.col("t_recv_us") - f.col("t_send_us") - offset_us(f.col("t_send_us"), start_us)
    pair = ("group", "sender", "observer")
    # Random for each run, so that nobody can prepare hash collisions.
    by_hash = f.xxhash64(f.lit(secrets.randbits(63)), *pair)
    few = edges.select(
        by_hash.alias("pair"),
        *(f.col(name).alias(f"its_{name}") for name in pair),
        *("edge", "author", "place", "bit", "corrected", "base_us", "slope"),
    )
    # A lookup of one hash is faster than of three numbers; matches are then compared.
    unlike = [f.col(name).bitwiseXOR(f.col(f"its_{name}")) for name in pair]
    same = (by_hash == f.col("pair")) & (reduce(Column.bitwiseOR, unlike) == 0)
    return received.join(f.broadcast(few), same).select(
        *("edge", "author", "place", "bit", "corrected", "seq", "n", "keys", "path", "kind", "dup", "late", "hold_us"),
        *("display_us", "t_send_us", took.alias("took_us")),
    )
