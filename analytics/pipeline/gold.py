"""Gold: what became of every message, between every two members, at which speed.

Millions of rows of what was received are gone through twice: once by message (`heard`: how many, who, how late), once
by pair and latency (`histogram`). Everything else follows from these two, which are small. A latency is counted in the
bin floor(50 ln µs), so that each is known to 2 % and histograms of many exports can be added.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.pipeline.schema import WORDS
from analytics.pipeline.silver import Masks, word
from analytics.pipeline.skew import rounded

BINS_PER_E = 50
DIRECT, HISTORY = WORDS["recv", "path"].index("direct"), WORDS["recv", "path"].index("history")
GAP_MAX = 10_000
"""Messages that are taken for lost between two that came; a larger gap is rather a counter that has jumped."""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
EDGE_BITS = {"n": (20, 12), "path": (17, 3), "keys": (15, 2), "dup": (14, 1), "bin": (0, 14)}
"""Where in a histogram's key each number stands: from which bit on, and how many. The pair stands above bit 32."""


def bin_of(latency_us: Column) -> Column:
    return f.floor(f.log(f.greatest(latency_us, f.lit(1)).cast("double")) * BINS_PER_E).cast("int")


def middle_of(bin_: Column) -> Column:
    """The latency (µs) that stands for all in a bin: its middle on the scale of logarithms."""
    return rounded(f.exp((bin_ + 0.5) / BINS_PER_E))


def percentiles(histogram: DataFrame, keys: list[str], prefix: str = "") -> DataFrame:
    """`keys`, and `PREFIXp50_us`, …: the bin in which so many of the `rows` are reached, from (keys, bin, rows)."""
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


# --- who and whom -----------------------------------------------------------------------------------------------------


def authors(pairs: DataFrame, sends: DataFrame, people: DataFrame, viewers: DataFrame) -> DataFrame:
    """A number for each author in each group: (author, group, sender, told, viewer, number, place,
    bit).

    `told`: whether an export has what this author sent. `viewer`: by whose view we know who was to hear it: the
    author's own, else that of the observer with the least pseudonym.
    """
    everyone = pairs.select("group", "sender").distinct()
    telling = sends.select("group", "sender").distinct().withColumn("told", f.lit(True))
    least = viewers.groupBy("group").agg(f.min("viewer").alias("other"))
    own = viewers.select("group", f.col("viewer").alias("sender"), f.col("viewer"))
    return (
        everyone.unionByName(telling.drop("told"))
        .distinct()
        .join(telling, ["group", "sender"], "left")
        .join(own, ["group", "sender"], "left")
        .join(least, "group", "left")
        .join(people.withColumnRenamed("member", "sender"), ["group", "sender"])
        .select(
            f.row_number().over(Window.orderBy("group", "sender")).alias("author"),
            *("group", "sender"),
            f.coalesce("told", f.lit(False)).alias("told"),
            f.coalesce("viewer", "other").alias("viewer"),
            *("number", "place", "bit"),
        )
    )


def edges(pairs: DataFrame, authors: DataFrame, people: DataFrame, lines: DataFrame) -> DataFrame:
    """Every two of whom one has heard the other: (edge, author, group, sender, observer, number, place, bit, corrected,
    base_us, slope).

    `base_us` + `slope` * (time - start_us) is the observer's clock less the sender's; 0 where not `corrected`.
    `number`, `place` and `bit` are the observer's.
    """
    of_sender = lines.select(f.col("member").alias("sender"), f.col("base_us").alias("sb"), f.col("slope").alias("ss"))
    of_observer = lines.select(
        f.col("member").alias("observer"), f.col("base_us").alias("ob"), f.col("slope").alias("os")
    )
    known = f.col("sb").isNotNull() & f.col("ob").isNotNull()
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
    """What was received, with numbers for who and whom, and with what it took by clocks that agree (`took_us`); their
    lines (`skew.lines`) are about `start_us`."""
    ahead = f.col("base_us") + f.col("slope") * (f.col("t_send_us") - start_us).cast("double")
    took = f.col("t_recv_us") - f.col("t_send_us") - rounded(ahead)
    few = edges.select("group", "sender", "observer", "edge", "author", "place", "bit", "corrected", "base_us", "slope")
    return received.join(f.broadcast(few), ["group", "sender", "observer"]).select(
        *(
            "edge",
            "author",
            "place",
            "bit",
            "corrected",
            "seq",
            "n",
            "keys",
            "path",
            "dup",
            "late",
            "hold_us",
            "t_send_us",
        ),
        took.alias("took_us"),
    )


# --- by message -------------------------------------------------------------------------------------------------------


def heard(deliveries: DataFrame, masks: Masks, within_us: int) -> DataFrame:
    """What observers say of each message: one row for each (author, seq) that anybody has received.

    Masks: `seen`, `direct` (came directly), `within` (took no longer than `within_us`).
    """
    came = ~f.col("dup")
    took = f.col("took_us")
    return deliveries.groupBy("author", "seq").agg(
        *masks.gather(came, "seen"),
        *masks.gather(came & (f.col("path") == DIRECT), "direct"),
        *masks.gather(came & (took <= within_us), "within"),
        f.min("t_send_us").alias("said_us"),
        f.max("n").alias("said_n"),
        f.max("keys").alias("said_keys"),
        f.max(f.when(came, took)).alias("max_us"),
        f.max(f.when(came & (f.col("path") != HISTORY), took)).alias("max_then_us"),
        f.min(f.when(came, took)).alias("first_us"),
        f.sum(f.when(came, took)).alias("sum_us"),
        f.count_if(came).alias("came"),
        f.count_if(came & ~f.col("corrected")).alias("uncorrected"),
        f.count_if(f.col("dup")).alias("dups"),
        f.count_if(came & f.col("late")).alias("late"),
        f.sum(f.when(came, f.col("hold_us"))).alias("hold_us"),
        f.max(f.when(came, f.col("hold_us"))).alias("hold_max_us"),
    )


def gaps(heard: DataFrame, authors: DataFrame) -> DataFrame:
    """Messages that nobody has received, of authors without an export: what lies between two that came. (author, seq,
    said_us, said_n, said_keys), as of the next one that came."""
    silent = authors.where(~f.col("told")).select("author")
    order = Window.partitionBy("author").orderBy("seq")
    before = f.col("before") + 1
    return (
        heard.join(f.broadcast(silent), "author")
        .select("author", "seq", "said_us", "said_n", "said_keys", f.lag("seq").over(order).alias("before"))
        .where((f.col("seq") - f.col("before")).between(2, GAP_MAX))
        .select(
            "author", f.explode(f.sequence(before, f.col("seq") - 1)).alias("seq"), "said_us", "said_n", "said_keys"
        )
    )


def reach(sends: DataFrame, heard: DataFrame, authors: DataFrame, rosters: DataFrame, masks: Masks) -> DataFrame:
    """One row for each message that there was: what its author says of it, what observers do, and who was to get it.

    Masks: `exp` (receipts of these are known, so what lacks is lost), `lost`, `slow` (lost, or too late), `indirect`
    (came otherwise, or not), `unheard` (in the roster, but no export of theirs says anything), `beyond` (have it and
    were not in the roster: newcomers), `there` (`exp`, and the author where its receipts are known too).
    """
    few = f.broadcast(authors.select("author", "group", "sender", "viewer", "place", "bit"))
    sent = sends.join(f.broadcast(authors.select("author", "group", "sender")), ["group", "sender"]).drop(
        "group", "sender"
    )
    told = (
        sent.join(heard.unionByName(gaps(heard, authors), allowMissingColumns=True), ["author", "seq"], "full")
        .withColumn("t_send_us", f.coalesce("t_send_us", "said_us"))
        .withColumn("keys", f.coalesce("keys", "said_keys"))
    )
    # Who was to get it: of the steps of the viewer's roster, the last one before. Both go by in one order.
    state = f.struct("size", *masks.names("all"), *masks.names("heard")).alias("state")
    steps = rosters.join(few.select("author", "group", "viewer"), ["group", "viewer"]).select(
        "author", f.col("from_us").alias("t_send_us"), state
    )
    order = Window.partitionBy("author").orderBy("t_send_us", f.col("seq").asc_nulls_first())
    rows = (
        told.unionByName(steps, allowMissingColumns=True)
        .withColumn("state", f.last("state", ignorenulls=True).over(order))
        .where("seq is not null")
        .join(few.select("author", "place", "bit"), "author")
    )
    none = f.lit(0).cast("long")
    shape = {
        **{name: f.coalesce(name, none) for prefix in ("seen", "direct", "within") for name in masks.names(prefix)},
        **{name: f.coalesce(f"state.{name}", none) for prefix in ("all", "heard") for name in masks.names(prefix)},
        **{
            name: f.when(f.col("place") == number, f.col("bit")).otherwise(none)
            for number, name in enumerate(masks.names("self"))
        },
        "n": f.coalesce("n", f.col("state.size") - 1, "said_n").cast("int"),
    }
    rows = rows.withColumns(shape)
    for into, formula in (
        ("exp", "(heard | (seen & all)) & ~self"),
        ("lost", "exp & ~seen"),
        ("slow", "exp & ~within"),
        ("indirect", "exp & ~direct"),
        ("unheard", "all & ~exp & ~self"),
        ("beyond", "seen & ~exp"),
        ("there", "exp | (heard & self)"),
    ):
        rows = rows.withColumns(masks.each(into, formula))
    return rows.drop("state", "place", "bit", "said_us", "said_n", "said_keys")


def messages(reach: DataFrame, authors: DataFrame, people: DataFrame, masks: Masks) -> DataFrame:
    """What became of each message. `whole_us`: until the last of those expected had it (null where somebody lacks it);
    what newcomers got later as history does not count for that. `missing`, `slow_for`: pseudonyms."""
    names = people.groupBy("group").agg(f.sort_array(f.collect_list(f.struct("number", "member"))).alias("everybody"))
    few = authors.select("author", "group", "sender").join(names, "group")
    lost, slow, expected, beyond = (masks.count(prefix) for prefix in ("lost", "slow", "exp", "beyond"))

    def of(prefix: str) -> Column:
        told = f.transform(masks.numbers(prefix), lambda number: f.element_at("everybody", number + 1)["member"])
        return f.when(masks.count(prefix) == 0, f.array().cast("array<bigint>")).otherwise(told)

    last_us = f.when(beyond == 0, f.col("max_us")).otherwise(f.col("max_then_us"))
    return (
        reach.join(f.broadcast(few), "author")
        .withColumns({"lacking": lost, "expected": expected, "unheard": masks.count("unheard")})
        .withColumn("complete", (f.col("expected") > 0) & (f.col("lacking") == 0))
        .select(
            *("group", "sender", "seq", "t_send_us"),
            word("send", "keys", f.coalesce("keys", f.lit(-1))).alias("keys"),
            word("send", "path", f.coalesce("path", f.lit(-1))).alias("path"),
            f.coalesce("accountability", f.lit("unknown")).alias("accountability"),
            *("n", "batch", "expected", (f.col("expected") - f.col("lacking")).cast("int").alias("delivered")),
            (f.col("expected") - masks.count("indirect")).cast("int").alias("direct"),
            *(beyond.alias("newcomers"), "unheard", "complete", (slow == 0).alias("in_time")),
            *("first_us", f.when(f.col("complete"), f.greatest(last_us, f.lit(0))).alias("whole_us"), "sum_us", "came"),
            *(f.coalesce(name, f.lit(0)).alias(name) for name in ("uncorrected", "late", "dups")),
            *("hold_us", "hold_max_us", of("lost").alias("missing"), of("slow").alias("slow_for")),
            *("queue_us", "plain_b", "env_b", "envelopes"),
        )
    )


# --- by pair ----------------------------------------------------------------------------------------------------------


def histogram(deliveries: DataFrame, edges: DataFrame) -> DataFrame:
    """How many deliveries of each pair took how long: (group, sender, observer, keys, path, n, dup, bin, rows, late,
    hold_us, hold_max_us, max_us). While it is counted, all of what it is by stands in one number."""

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
            f.sum("hold_us").alias("hold_us"),
            f.max("hold_us").alias("hold_max_us"),
            f.max("took_us").alias("max_us"),
        )
    )
    return (
        counted.withColumn("edge", f.shiftright("key", 32).cast("int"))
        .join(f.broadcast(edges.select("edge", "group", "sender", "observer")), "edge")
        .select(
            *("group", "sender", "observer"),
            word("recv", "keys", get("keys") - 1).alias("keys"),
            word("recv", "path", get("path") - 1).alias("path"),
            *(get("n").alias("n"), (get("dup") == 1).alias("dup"), get("bin").alias("bin")),
            *("rows", "late", "hold_us", "hold_max_us", "max_us"),
        )
    )


def _of(prefix: str, masks: Masks, reach: DataFrame, by: list[str]) -> DataFrame:
    """How many messages have each bit of a mask: (by…, number, rows)."""
    few = reach.where(masks.count(prefix) > 0).groupBy(*by, *masks.names(prefix)).agg(f.count(f.lit(1)).alias("times"))
    return (
        few.select(*by, "times", f.explode(masks.numbers(prefix)).alias("number"))
        .groupBy(*by, "number")
        .agg(f.sum("times").alias("rows"))
    )


def expectations(reach: DataFrame, masks: Masks) -> DataFrame:
    """Of each author, towards each member by its number: (author, number, expected, lost)."""
    expected = _of("exp", masks, reach, ["author"]).withColumnRenamed("rows", "expected")
    lost = _of("lost", masks, reach, ["author"]).withColumnRenamed("rows", "lost")
    return expected.join(lost, ["author", "number"], "left").na.fill({"lost": 0})


def edge(
    histogram: DataFrame,
    expectations: DataFrame,
    acknowledged: DataFrame,
    edges: DataFrame,
    authors: DataFrame,
    people: DataFrame,
) -> DataFrame:
    """What got from each member to each other one. `evidence`: "receipts" (the observer's export has them), or "acks"
    (it has none; the author's has acknowledgements, which say whether, and not when). Latencies without history."""
    key = ["group", "sender", "observer"]
    came = ~f.col("dup")
    taken = histogram.where(came & (f.col("path") != "history"))
    by_path = [
        f.sum(f.when(came & (f.col("path") == path), f.col("rows")).otherwise(0)).alias(path)
        for path in WORDS["recv", "path"]
    ]
    speed = percentiles(taken, key)
    counts = histogram.groupBy(*key).agg(
        *by_path,
        f.sum(f.when(f.col("dup"), f.col("rows")).otherwise(0)).alias("dups"),
        f.sum(f.when(came, f.col("late")).otherwise(0)).alias("late"),
        f.sum(f.when(came, f.col("hold_us")).otherwise(0)).alias("hold_us"),
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
        .join(edges.select(*key, "corrected"), key, "left")
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
    """Of what told authors have said to members without receipts: (author, number, expected, delivered)."""
    upto = (
        acks.groupBy(f.col("observer").alias("sender"), "group", "member")
        .agg(f.max("upto").alias("upto"))
        .join(authors.where("told").select("author", "group", "sender"), ["group", "sender"])
        .join(people.select("group", "member", "number"), ["group", "member"])
        .select("author", "number", "upto")
    )
    return (
        reach.where(masks.count("unheard") > 0)
        .join(f.broadcast(authors.where("told").select("author")), "author")
        .select("author", "seq", f.explode(masks.numbers("unheard")).alias("number"))
        .join(f.broadcast(upto), ["author", "number"], "left")
        .groupBy("author", "number")
        .agg(
            f.count(f.lit(1)).alias("expected"),
            f.count_if(f.coalesce(f.col("seq") <= f.col("upto"), f.lit(False))).alias("delivered"),
        )
    )


def keys_path_size(messages: DataFrame, histogram: DataFrame) -> DataFrame:
    """By keys, path, number of members and batch, as the thesis' Table 8: how much arrived, and how long it took.

    `grain` "message": one row of counts over messages, by the path that their author took; `whole_*` until all had it.
    `grain` "delivery": over single deliveries, by the path on which each came; `batch` is not known there.
    """
    by = ["keys", "path", "n", "batch"]
    told = messages.where("expected > 0")
    counts = told.groupBy(*by).agg(
        f.count(f.lit(1)).alias("messages"),
        f.sum("expected").alias("expected"),
        f.sum("delivered").alias("delivered"),
        f.count_if("complete").alias("complete"),
        f.sum("whole_us").alias("whole_sum_us"),
        f.max("whole_us").alias("whole_max_us"),
        f.sum("env_b").alias("env_b"),
        f.sum("plain_b").alias("plain_b"),
    )
    whole = told.where("complete").select(*by, bin_of(f.col("whole_us")).alias("bin"), f.lit(1).alias("rows"))
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


def ratio(part: str, whole: str) -> Column:
    """A share; null of nothing."""
    return f.when(f.col(whole) > 0, f.col(part).cast("double") / f.col(whole).cast("double"))
