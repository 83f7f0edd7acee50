"""Clock offset and drift of each member, estimated from messages in both directions.

An apparent latency from a to b is the path delay plus b's offset minus a's. For each pair and window of six hours, the
minima of both directions are taken; half of their difference is the clock offset at the time between the two messages,
if both paths are equally long. An asymmetry remains as an error of half its size. A line through a pair's windows gives
offset and drift; a least-squares fit (`clock_fit`) gives each member's clock relative to the mean. All sums are
integers, so results do not depend on their order.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.clock_fit import SLOPE_PARTS, fit_clocks

WINDOW_US = 6 * 3_600_000_000
SECOND_US = 1_000_000
TIMES_MIN = 3
"""Direct messages needed in each direction of a window."""
DIFFERENCE_US_MAX = 24 * 3_600_000_000
"""Offsets of more than a day are wrong clocks."""
AT_BITS = 15
"""Bits below the minimum that hold its second within the window."""


def pairs(received: DataFrame, direct: int) -> DataFrame:
    """Receipts by pair and window: (group, sender, observer, window, rows, times, least_us, at_s, before_sent,
    unknown_words).

    `times`, `least_us` (minimal apparent latency) and `at_s` (its time, seconds since 1970) cover direct messages
    without duplicates. `direct` is the index of that path. The last two columns count rows for the quality report:
    received before sent, and unknown vocabulary.
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


def clock_differences(pairs: DataFrame) -> DataFrame:
    """Clock differences of pairs with messages in both directions: (member, peer, window, diff2_us, at2_s): twice the
    offset of `member` relative to `peer`, at half of `at2_s`, so that both are integers. `member` is the smaller of the
    two."""
    member, peer = f.least("sender", "observer"), f.greatest("sender", "observer")
    least = f.struct("least_us", "at_s")
    return (
        pairs.where((f.col("times") >= TIMES_MIN) & (f.col("sender") != f.col("observer")))
        # Members can share several groups.
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


def clock_lines(differences: DataFrame) -> DataFrame:
    """The clock of each member: (member, component, peers, windows, base_us, slope, start_us, at_us).

    At time t (µs) it is ahead of the component's mean by base_us + slope * (t - start_us); a slope of 1e-6 is 1 ppm.
    `start_us`, the middle of all windows, is the same for all members; `at_us` is the middle of the member's own.
    Clocks of different components cannot be compared. Members with fewer than `clock_fit.PEERS_MIN` peers are left
    out.
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
    # µs per second; both factors of two cancel.
    step = f.when(spread <= 0, f.lit(0.0)).otherwise((n * f.col("sxy") - f.col("sx") * f.col("sy")) / spread)
    base = (f.col("sy") - f.col("step") * f.col("sx")) / n / 2.0
    of_pairs = sums.withColumn("step", step).select(
        *("member", "peer", "windows", (f.col("start2_s") * (SECOND_US // 2)).alias("start_us")),
        (f.col("first").cast("long") * WINDOW_US).alias("begin_us"),
        ((f.col("last") + 1).cast("long") * WINDOW_US).alias("end_us"),
        rounded(base).alias("base_us"),
        rounded(f.col("step") / float(SECOND_US) * float(SLOPE_PARTS)).alias("slope"),
    )
    return differences.sparkSession.createDataFrame(fit_clocks(of_pairs.toArrow()))


def offset_us(time: Column, start_us: int) -> Column:
    """The offset (µs) of a clock that shows `time`, from `base_us` and `slope`."""
    return rounded(f.col("base_us") + f.col("slope") * (time - start_us).cast("double"))


def to_common_clock(rows: DataFrame, who: str, times: list[str], lines: DataFrame, start_us: int) -> DataFrame:
    """`times` by the mean of all clocks instead of the clock of `who`; unchanged if that is unknown."""
    clocks = lines.select(f.col("member").alias(who), "base_us", "slope")
    means = {time: f.col(time) - f.coalesce(offset_us(f.col(time), start_us), f.lit(0)) for time in times}
    return rows.join(f.broadcast(clocks), who, "left").withColumns(means).drop("base_us", "slope")


def rounded(value: Column) -> Column:
    """Rounded half up, which every engine does alike."""
    return f.floor(value + 0.5).cast("long")
