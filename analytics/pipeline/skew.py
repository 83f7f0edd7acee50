"""Clocks: by how much each member's differs from the others', and how it drifts, from messages in both directions.

Whatever a message from a to b seems to take is its way plus b's clock less a's; and from b to a, the way back plus a's
clock less b's. Of each pair, in each window of six hours, the least of both is taken. Half their difference is what the
clocks differ by, at the time in the middle between the two messages (clocks drift, in straight lines), as far as both
ways are equally long: where one is longer, half of that remains as an error that nobody can see from here. A line
through a pair's windows gives the difference and its drift; what agrees best with all pairs (`fit`) is each member's
own clock against their mean. All sums are of whole numbers, so that the result does not hang on their order.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.fit import SLOPE_PARTS, fitted

WINDOW_US = 6 * 3_600_000_000
SECOND_US = 1_000_000
TIMES_MIN = 3
"""Direct messages each way in a window, for a pair to count there."""
DIFFERENCE_US_MAX = 24 * 3_600_000_000
"""A clock that is off by more than a day is wrong, not skewed."""
AT_BITS = 15
"""Under the least that was taken, in one number with it: at which second of its window that was."""


def pairs(received: DataFrame, direct: int) -> DataFrame:
    """Who heard whom in which window: (group, sender, observer, window, rows, times, least_us, at_s, before_sent,
    unknown_words).

    `times`, `least_us` (the least that a message seemed to take) and `at_s` (when that was, in seconds since 1970) are
    of direct messages that came once. `direct` is the number of that path. The last two count rows for the report of
    quality: what came before it was sent, and words that are in no list.
    """
    plain = (f.col("path") == direct) & ~f.col("dup")
    took = f.col("t_recv_us") - f.col("t_send_us")
    near = plain & took.between(-DIFFERENCE_US_MAX, DIFFERENCE_US_MAX)
    second = f.floor(f.col("t_send_us") % WINDOW_US / SECOND_US).cast("long")
    window_s = f.col("window").cast("long") * f.lit(WINDOW_US // SECOND_US)
    return (
        received.withColumn("window", f.floor(f.col("t_send_us") / WINDOW_US).cast("int"))
        .groupBy("group", "sender", "observer", "window")
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.count_if(near).alias("times"),
            f.min(f.when(near, f.shiftleft(took, AT_BITS) + second)).alias("least"),
            f.count_if(took < 0).alias("before_sent"),
            f.count_if((f.col("keys") < 0) | (f.col("path") < 0)).alias("unknown_words"),
        )
        .select(
            *("group", "sender", "observer", "window", "rows", "times"),
            f.shiftright("least", AT_BITS).alias("least_us"),
            (window_s + f.col("least").bitwiseAND(2**AT_BITS - 1)).alias("at_s"),
            *("before_sent", "unknown_words"),
        )
    )


def differences(pairs: DataFrame) -> DataFrame:
    """What the clocks of two members differ by, where both have heard each other: (member, peer, window, diff2_us,
    at2_s): twice the member's clock less the peer's, at half of `at2_s`, so that both are whole. Of the two, `member`
    is the one whose number is less."""
    member, peer = f.least("sender", "observer"), f.greatest("sender", "observer")
    least = f.struct("least_us", "at_s")
    return (
        pairs.where((f.col("times") >= TIMES_MIN) & (f.col("sender") != f.col("observer")))
        # People can be in several groups together.
        .groupBy(member.alias("member"), peer.alias("peer"), "window")
        .agg(
            f.min(f.when(f.col("sender") > f.col("observer"), least)).alias("to"),
            f.min(f.when(f.col("sender") < f.col("observer"), least)).alias("back"),
        )
        .where("to is not null and back is not null")
        .select(
            *("member", "peer", "window"),
            (f.col("to.least_us") - f.col("back.least_us")).alias("diff2_us"),
            (f.col("to.at_s") + f.col("back.at_s")).alias("at2_s"),
        )
    )


def lines(differences: DataFrame) -> DataFrame:
    """The clock of each member: (member, component, peers, windows, base_us, slope, start_us, at_us).

    At a time t (µs) it is ahead of the mean by base_us + slope * (t - start_us); a slope of 1e-6 is one part in a
    million. `start_us`, the middle of all windows, is the same for everybody, and may be far from when this member said
    anything; `at_us` is the middle of its own. The mean is that of a `component` (its least member): of two members in
    different ones nobody knows how their clocks differ. Whoever has fewer than `fit.PEERS_MIN` peers is left out.
    """
    exact = "decimal(38,0)"
    everywhere = Window.partitionBy()
    windows = (f.min("window").over(everywhere) + f.max("window").over(everywhere) + 1).cast("long")
    x, y = f.col("x").cast(exact), f.col("diff2_us").cast(exact)
    sums = (
        differences.withColumn("start2_s", windows * f.lit(WINDOW_US // SECOND_US))
        .withColumn("x", f.col("at2_s") - f.col("start2_s"))
        .groupBy("member", "peer", "start2_s")
        .agg(
            f.count(f.lit(1)).cast("int").alias("windows"),
            *(f.min("window").alias("first"), f.max("window").alias("last")),
            f.sum("x").cast("double").alias("sx"),
            f.sum("diff2_us").cast("double").alias("sy"),
            f.sum((x * x).cast(exact)).cast("double").alias("sxx"),
            f.sum((x * y).cast(exact)).cast("double").alias("sxy"),
        )
    )
    n = f.col("windows").cast("double")
    spread = n * f.col("sxx") - f.col("sx") * f.col("sx")
    # µs in a second: twice over twice.
    step = f.when(spread <= 0, f.lit(0.0)).otherwise((n * f.col("sxy") - f.col("sx") * f.col("sy")) / spread)
    base = (f.col("sy") - f.col("step") * f.col("sx")) / n / 2.0
    of_pairs = sums.withColumn("step", step).select(
        *("member", "peer", "windows", (f.col("start2_s") * (SECOND_US // 2)).alias("start_us")),
        (f.col("first").cast("long") * WINDOW_US).alias("begin_us"),
        ((f.col("last") + 1).cast("long") * WINDOW_US).alias("end_us"),
        rounded(base).alias("base_us"),
        rounded(f.col("step") / float(SECOND_US) * float(SLOPE_PARTS)).alias("slope"),
    )
    return differences.sparkSession.createDataFrame(fitted(of_pairs.toArrow()))


def ahead(time: Column, start_us: int) -> Column:
    """By how many µs a clock is ahead when it says that (`base_us` and `slope`, of a line about `start_us`)."""
    return rounded(f.col("base_us") + f.col("slope") * (time - start_us).cast("double"))


def agreed(rows: DataFrame, who: str, times: list[str], lines: DataFrame, start_us: int) -> DataFrame:
    """`times` by the mean of all clocks instead of that of `who`; as they are where that clock is not known."""
    clocks = lines.select(f.col("member").alias(who), "base_us", "slope")
    means = {time: f.col(time) - f.coalesce(ahead(f.col(time), start_us), f.lit(0)) for time in times}
    return rows.join(f.broadcast(clocks), who, "left").withColumns(means).drop("base_us", "slope")


def rounded(value: Column) -> Column:
    """To the next whole number, halves up: what every engine can do alike."""
    return f.floor(value + 0.5).cast("long")
