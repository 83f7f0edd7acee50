"""The pipeline's work in Polars: a second oracle for its results.

Only simulated exports are supported, as in `delivery_duckdb`, whose tables and vocabularies these are.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from benchmarks.peers.delivery_duckdb import (
    ALWAYS_US,
    APART_US,
    DAY_US,
    KEYS,
    LONG_US,
    MEMBERS_MAX,
    MINUTE_US,
    PATHS,
    SEQ_MAX,
    SETTLE_US,
    SIZE_MAX,
    TIMES,
    TIMES_MIN,
    WINDOW_S,
    check_claims,
    fitted,
    manifests,
)

EDGE = ["group", "sender", "observer"]
TWO = pl.lit(2, pl.UInt64)
"""In 64 bits: a literal 2 has 32, and so have its powers."""
RANGES: dict[str, tuple[int, int] | None] = {
    **dict.fromkeys(("observer", "group", "sender", "keys", "path", "dup", "late", "accountability", "checksum")),
    **dict.fromkeys(("t_send_us", "t_recv_us", "t_us", "t_from_us"), TIMES),
    **dict.fromkeys(("hold_us", "queue_us"), (0, LONG_US)),
    **dict.fromkeys(("plain_b", "env_b"), (0, SIZE_MAX)),
    **dict.fromkeys(("n", "batch", "envelopes"), (0, MEMBERS_MAX)),
    "seq": (0, SEQ_MAX),
}
"""Columns that an accepted row must have, with their bounds. Of `recv`, only the columns that are used."""
FILLED = ("seen", "direct", "inside", "mail", "late", "dups", "uncorrected")
"""Columns that are 0 for a message that no member received."""
UNUSED = {"recv": ("plain_b", "env_b")}
LINE = {"member": pl.Int64, "component": pl.Int64, "base_us": pl.Float64, "slope": pl.Float64, "start_us": pl.Int64}


def believable(kind: str, columns: Sequence[str]) -> pl.Expr:
    checks = [
        pl.col(name).is_between(*bounds) if (bounds := RANGES[name]) else pl.col(name).is_not_null()
        for name in columns
        if name in RANGES and name not in UNUSED.get(kind, ())
    ]
    if kind == "view":
        checks.append(pl.col("roster").list.len() <= MEMBERS_MAX)
    return pl.all_horizontal(checks)


def clocks(recv: pl.LazyFrame) -> pl.DataFrame:
    took = pl.col("t_recv_us") - pl.col("t_send_us")
    near = (pl.col("path") == "direct") & ~pl.col("dup") & (took.abs() <= DAY_US)
    second = pl.col("t_send_us") % (WINDOW_S * 1_000_000) // 1_000_000
    known = pl.col("keys").is_in(KEYS) & pl.col("path").is_in(PATHS)
    received = (
        recv.group_by("sender", "observer", (pl.col("t_send_us") // (WINDOW_S * 1_000_000)).alias("w"))
        .agg(
            near.sum().alias("times"),
            (took * 32_768 + second).filter(near).min().alias("least"),
            *(pl.len().alias("rows"), (took < 0).sum().alias("before_sent"), (~known).sum().alias("unknown_words")),
        )
        .filter(pl.col("times") >= TIMES_MIN)
        .select(
            *("sender", "observer", "w"),
            (pl.col("least") // 32_768).alias("least_us"),
            (pl.col("w") * WINDOW_S + pl.col("least") % 32_768).alias("at_s"),
        )
        .collect(engine="streaming")
    )
    there, back = ["sender", "observer", "w"], ["observer", "sender", "w"]
    both = received.join(received, left_on=there, right_on=back, suffix="_back")
    x = pl.col("at2") - pl.col("start2")
    sums = (
        both.select(
            pl.col("observer").alias("member"),
            pl.col("sender").alias("peer"),
            (pl.col("least_us") - pl.col("least_us_back")).alias("y"),
            (pl.col("at_s") + pl.col("at_s_back")).alias("at2"),
            ((pl.col("w").min() + pl.col("w").max() + 1) * WINDOW_S).alias("start2"),
        )
        .group_by("member", "peer", "start2")
        .agg(
            pl.len().cast(pl.Float64).alias("n"),
            x.sum().cast(pl.Float64).alias("sx"),
            pl.col("y").sum().cast(pl.Float64).alias("sy"),
            (x.cast(pl.Int128) * x).sum().cast(pl.Float64).alias("sxx"),
            (x.cast(pl.Int128) * pl.col("y")).sum().cast(pl.Float64).alias("sxy"),
        )
    )
    n, sx, sy, sxx, sxy = (pl.col(name) for name in ("n", "sx", "sy", "sxx", "sxy"))
    spread = n * sxx - sx * sx
    step = pl.when(spread <= 0).then(0.0).otherwise((n * sxy - sx * sy) / spread)
    offsets = (
        sums.with_columns(step=step)
        .filter(pl.col("member") < pl.col("peer"))
        .select(
            *("member", "peer"),
            ((sy - pl.col("step") * sx) / n / 2.0 + 0.5).floor().cast(pl.Int64).alias("base_us"),
            (pl.col("step") / 1e6 * 1e15 + 0.5).floor().cast(pl.Int64).alias("slope"),
            (pl.col("start2") * 500_000).alias("start_us"),
        )
        .sort("member", "peer")
    )
    return pl.DataFrame(fitted(offsets.rows()), schema=LINE, orient="row")


def to_mean_clock(table: pl.DataFrame, who: str, times: Sequence[str], line: pl.DataFrame, start: int) -> pl.DataFrame:
    """Times by the mean of all clocks, if the clock of the member in column `who` is known."""
    ahead = {
        name: (pl.col("base_us") + pl.col("slope") * (pl.col(name) - start).cast(pl.Float64) + 0.5).floor()
        for name in times
    }
    means = {name: pl.col(name) - one.fill_null(0.0).cast(pl.Int64) for name, one in ahead.items()}
    clocks = line.select(pl.col("member").alias(who), "base_us", "slope")
    return table.join(clocks, on=who, how="left").with_columns(**means).drop("base_us", "slope")


def recorded(spans: pl.DataFrame) -> pl.DataFrame:
    """The recorded intervals of each observer: adjoining spans are merged."""
    before = pl.col("t_us").cum_max().shift().over("observer")
    return (
        spans.sort("observer", "t_from_us", "t_us")
        .with_columns(begins=(pl.col("t_from_us") > before + APART_US).fill_null(value=True))
        .with_columns(place=pl.col("begins").cum_sum().over("observer"))
        .group_by("observer", "place")
        .agg(recorded_from=pl.col("t_from_us").min(), recorded_to=pl.col("t_us").max())
    )


def steps(view: pl.DataFrame, covered: pl.DataFrame, person: pl.DataFrame) -> pl.DataFrame:
    """Each viewer's roster from `from_us` on, and the members whose receipts are known then, as masks."""
    viewers = view.select("group", sender="observer").unique()
    ends = pl.concat(
        [
            covered.select("group", from_us="from_us"),
            covered.select("group", from_us=pl.col("to_us") - SETTLE_US),
            covered.select("group", from_us=pl.lit(ALWAYS_US)),
        ]
    ).unique()
    mine = view.select("group", pl.col("observer").alias("sender"), pl.col("t_us").alias("from_us"), "roster")
    filled = (
        viewers.join(ends, on="group")
        .join(mine, on=["group", "sender", "from_us"], how="full", coalesce=True)
        .sort("group", "sender", "from_us")
        .with_columns(pl.col("roster").forward_fill().backward_fill().over("group", "sender"))
    )
    within = (pl.col("begin") <= pl.col("from_us")) & (pl.col("from_us") < pl.col("to_us") - SETTLE_US)
    inside = within.fill_null(value=False).any()
    bit = TWO ** pl.col("number").cast(pl.UInt64)
    return (
        filled.explode("roster")
        .rename({"roster": "member"})
        .join(person, on=["group", "member"])
        .join(covered.select("group", "member", "to_us", begin="from_us"), on=["group", "member"], how="left")
        .group_by("group", "sender", "from_us", "number")
        .agg(inside.alias("inside"))
        .group_by("group", "sender", "from_us")
        .agg(
            bit.sum().alias("everybody"), pl.when("inside").then(bit).otherwise(0).cast(pl.UInt64).sum().alias("known")
        )
        .sort("from_us")
    )


def bits(table: pl.DataFrame, mask: str, by: list[str]) -> pl.DataFrame:
    """The number of rows that have each bit of a mask: (by…, number, rows)."""
    few = table.filter(pl.col(mask) != 0).group_by(*by, mask).agg(pl.len().cast(pl.Int64).alias("rows"))
    parts = [
        few.filter((pl.col(mask) // 2**number) % 2 == 1).select(*by, pl.lit(number, pl.Int64).alias("number"), "rows")
        for number in range(64)
    ]
    return pl.concat(parts).group_by(*by, "number").agg(pl.col("rows").sum())


def claims(paths: Sequence[str]) -> Iterable[tuple[str, int]]:
    """Each file and the observers of its rows."""
    rows = pl.scan_parquet(list(paths), hive_partitioning=False, include_file_paths="file")
    found: Iterable[tuple[str, int]] = rows.select("file", "observer").unique().collect().iter_rows()
    return found


def study(exports: Path, out: Path, within_us: int = 30_000_000) -> None:
    """Write the tables as OUT/NAME.parquet."""
    spans, files = manifests(exports)
    check_claims(exports, (claim for paths in files.values() for claim in claims(paths)))
    recv = pl.scan_parquet(files["recv"], hive_partitioning=False)
    recv = recv.filter(believable("recv", recv.collect_schema().names()))
    tables = {kind: pl.read_parquet(files[kind], hive_partitioning=False) for kind in ("send", "view", "span")}
    send, view, span = (table.filter(believable(kind, table.columns)) for kind, table in tables.items())
    exported = pl.DataFrame(spans, schema={"observer": pl.Int64, "begin": pl.Int64, "to_us": pl.Int64}, orient="row")
    line = clocks(recv)
    start = line["start_us"].max() or 0
    covered = to_mean_clock(_covered(view, exported, span), "member", ["from_us", "to_us"], line, start)
    view = to_mean_clock(view, "observer", ["t_us"], line, start)
    person = _numbered(view)
    assert person["group"].n_unique() == 1, "simulated exports have one group"
    pairs = _pairs(person, line)
    delivery = _deliveries(recv, pairs, start)
    reach = (
        _sent(send, _received(delivery, within_us), person)
        .with_columns(mean_us="t_send_us")
        .pipe(to_mean_clock, "sender", ["mean_us"], line, start)
        .pipe(_reach, steps(view, covered, person))
    )
    edge_hist = _histogram(delivery)
    minute = _minute(reach, person)
    results = {
        "message": _message(reach, person),
        "edge_hist": edge_hist,
        "edge": _edge(edge_hist, reach, person, pairs),
        "minute": minute,
        "outage": _outage(minute),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, table in results.items():
        table.write_parquet(out / f"{name}.parquet")


def _covered(view: pl.DataFrame, exported: pl.DataFrame, span: pl.DataFrame) -> pl.DataFrame:
    """The interval in which each member's receipts are known, by its own clock."""
    return (
        view.group_by("group", "observer")
        .agg(pl.col("t_us").min())
        .join(exported, on="observer")
        .join(recorded(span), on="observer")
        .select(
            *("group", pl.col("observer").alias("member")),
            pl.max_horizontal("t_us", "begin", "recorded_from").alias("from_us"),
            pl.min_horizontal("to_us", "recorded_to").alias("to_us"),
        )
        .filter(pl.col("to_us") > pl.col("from_us"))
    )


def _numbered(view: pl.DataFrame) -> pl.DataFrame:
    """All members, with the number of each one's bit in the masks."""
    return (
        view.select("group", member=pl.col("roster"))
        .explode("member")
        .unique()
        .sort("group", "member")
        .with_columns((pl.int_range(pl.len()).over("group")).alias("number"))
    )


def _pairs(person: pl.DataFrame, line: pl.DataFrame) -> pl.DataFrame:
    """Every sender and observer, with the difference of their clocks."""
    bit = TWO ** pl.col("number").cast(pl.UInt64)
    comparable = (pl.col("component_o") == pl.col("component")).fill_null(value=False)
    return (
        person.join(person, on="group", suffix="_of")
        .filter(pl.col("member") != pl.col("member_of"))
        .select("group", sender="member_of", observer="member", bit=bit)
        .join(line.rename({"member": "sender"}), on="sender", how="left")
        .join(line.rename({"member": "observer"}), on="observer", how="left", suffix="_o")
        .select(
            *EDGE,
            "bit",
            comparable.alias("corrected"),
            pl.when(comparable).then(pl.col("base_us_o") - pl.col("base_us")).otherwise(0.0).alias("base_us"),
            pl.when(comparable).then(pl.col("slope_o") - pl.col("slope")).otherwise(0.0).alias("slope"),
        )
    )


def _deliveries(recv: pl.LazyFrame, pairs: pl.DataFrame, start: int) -> pl.LazyFrame:
    """The received rows, with the time that each took by the mean clock."""
    ahead = pl.col("base_us") + pl.col("slope") * (pl.col("t_send_us") - start).cast(pl.Float64)
    took = pl.col("t_recv_us") - pl.col("t_send_us") - (ahead + 0.5).floor().cast(pl.Int64)
    shown = pl.when(pl.col("display_us").is_between(0, LONG_US)).then("display_us").otherwise(0)
    return recv.join(pairs.lazy(), on=EDGE).with_columns(took=took, display_us=shown)


def _received(delivery: pl.LazyFrame, within_us: int) -> pl.DataFrame:
    """Who received each message, as masks, and when."""
    came = ~pl.col("dup")
    none = pl.lit(0, pl.UInt64)

    def mask(when: pl.Expr) -> pl.Expr:
        return pl.when(when).then(pl.col("bit")).otherwise(none).sum()

    return (
        delivery.group_by("group", "sender", "seq")
        .agg(
            mask(came).alias("seen"),
            mask(came & (pl.col("path") == "direct")).alias("direct"),
            mask(came & (pl.col("took") <= within_us)).alias("inside"),
            mask(came & (pl.col("path") == "mediator") & (pl.col("took") <= within_us)).alias("mail"),
            (pl.col("took") + pl.col("display_us"))
            .filter(came & (pl.col("path") != "history"))
            .max()
            .alias("shown_us"),
            (came & ~pl.col("corrected")).sum().cast(pl.Int64).alias("uncorrected"),
            pl.col("kind").max().alias("recv_kind"),
            pl.col("took").filter(came).max().alias("max_us"),
            pl.col("took").filter(came & (pl.col("path") != "history")).max().alias("max_then_us"),
            pl.col("took").filter(came).min().alias("first_us"),
            pl.col("took").filter(came).sum().alias("sum_us"),
            came.sum().cast(pl.Int64).alias("came"),
            pl.col("dup").sum().cast(pl.Int64).alias("dups"),
            (pl.col("late") & came).sum().cast(pl.Int64).alias("late"),
            pl.col("hold_us").filter(came).sum().alias("hold_us"),
            pl.col("hold_us").filter(came).max().alias("hold_max_us"),
        )
        .collect(engine="streaming")
    )


def _sent(send: pl.DataFrame, received: pl.DataFrame, person: pl.DataFrame) -> pl.DataFrame:
    """Every sent message, with what was received of it."""
    bit = TWO ** pl.col("number").cast(pl.UInt64)
    return (
        send.rename({"observer": "sender"})
        .select(
            *("group", "sender", "seq", "n", "t_send_us", "kind", "keys", "path", "accountability", "batch"),
            *("queue_us", "plain_b", "env_b", "envelopes"),
        )
        .join(received, on=["group", "sender", "seq"], how="left")
        .with_columns(kind=pl.coalesce("kind", "recv_kind"))
        .join(person.select("group", sender="member", own=bit), on=["group", "sender"])
    )


def _reach(sent: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Who was expected to receive each message, and who did, as masks."""
    return (
        sent.sort("mean_us")
        .join_asof(known, left_on="mean_us", right_on="from_us", by=["group", "sender"], check_sortedness=False)
        .with_columns(pl.col(name).fill_null(0) for name in FILLED)
        .with_columns(exp=(pl.col("known") | (pl.col("seen") & pl.col("everybody"))) & ~pl.col("own"))
        .with_columns(
            lost=pl.col("exp") & ~pl.col("seen"),
            slow=pl.col("exp") & ~pl.col("inside"),
            indirect=pl.col("exp") & ~pl.col("direct"),
            mailed=pl.col("exp") & pl.col("mail"),
            beyond=pl.col("seen") & ~pl.col("exp"),
            unheard=pl.col("everybody") & ~pl.col("exp") & ~pl.col("own"),
            there=pl.col("exp") | (pl.col("known") & pl.col("own")),
        )
    )


def _message(reach: pl.DataFrame, person: pl.DataFrame) -> pl.DataFrame:
    names = {number: member for member, number in person.select("member", "number").iter_rows()}

    def count(name: str) -> pl.Expr:
        return pl.col(name).bitwise_count_ones().cast(pl.Int32)

    def members(mask: str, name: str) -> pl.DataFrame:
        return (
            bits(reach, mask, ["group", "sender", "seq"])
            .with_columns(member=pl.col("number").replace_strict(names, return_dtype=pl.Int64))
            .group_by("group", "sender", "seq")
            .agg(pl.col("member").sort().alias(name))
        )

    complete = (pl.col("exp") != 0) & (pl.col("lost") == 0)
    last = pl.when(pl.col("beyond") == 0).then(pl.col("max_us")).otherwise(pl.col("max_then_us"))
    return (
        reach.join(members("lost", "missing"), on=["group", "sender", "seq"], how="left")
        .join(members("slow", "slow_for"), on=["group", "sender", "seq"], how="left")
        .select(
            *("group", "sender", "seq", "t_send_us", "kind", "keys", "path", "accountability", "n", "batch"),
            count("exp").alias("expected"),
            (count("exp") - count("lost")).alias("delivered"),
            (count("exp") - count("indirect")).alias("direct"),
            count("beyond").alias("newcomers"),
            count("unheard").alias("unheard"),
            complete.alias("complete"),
            (pl.col("slow") == 0).alias("in_time"),
            "first_us",
            pl.when(complete & last.is_not_null()).then(pl.max_horizontal(last, 0)).alias("whole_us"),
            pl.when(complete & pl.col("shown_us").is_not_null())
            .then(pl.max_horizontal("shown_us", 0))
            .alias("shown_us"),
            *("sum_us", "came", "uncorrected", "late", "dups", "hold_us", "hold_max_us"),
            *(pl.col(name).fill_null([]) for name in ("missing", "slow_for")),
            *("queue_us", "plain_b", "env_b", "envelopes"),
        )
    )


def _histogram(delivery: pl.LazyFrame) -> pl.DataFrame:
    return (
        delivery.group_by(
            *(*EDGE, "keys", "path", "n", "dup"),
            (pl.max_horizontal("took", 1).cast(pl.Float64).log() * 50).floor().cast(pl.Int32).alias("bin"),
        )
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("late").sum().cast(pl.Int64),
            pl.col("hold_us").sum(),
            pl.col("hold_us").max().alias("hold_max_us"),
            pl.col("took").max().alias("max_us"),
        )
        .collect(engine="streaming")
    )


def _edge(edge_hist: pl.DataFrame, reach: pl.DataFrame, person: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    rows, came = pl.col("rows"), ~pl.col("dup")
    counts = edge_hist.group_by(EDGE).agg(
        *(rows.filter(came & (pl.col("path") == path)).sum().alias(path) for path in PATHS),
        rows.filter("dup").sum().alias("dups"),
        *(pl.col(name).filter(came).sum() for name in ("late", "hold_us")),
        pl.col("hold_max_us").max(),
        pl.col("max_us").filter(came & (pl.col("path") != "history")).max(),
    )
    upto = (
        edge_hist.filter(~pl.col("dup") & (pl.col("path") == "direct"))
        .group_by(*EDGE, "bin")
        .agg(rows.sum())
        .sort("bin")
        .with_columns(upto=rows.cum_sum().over(EDGE), total=rows.sum().over(EDGE))
    )
    speed = upto.group_by(EDGE).agg(
        (((pl.col("bin").filter(pl.col("upto") >= (pl.col("total") * share).ceil()).min() + 0.5) / 50).exp() + 0.5)
        .floor()
        .cast(pl.Int64)
        .alias(f"{name}_us")
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    )
    by = ["group", "sender"]
    return (
        bits(reach, "exp", by)
        .join(bits(reach, "lost", by), on=[*by, "number"], how="left", suffix="_lost")
        .join(person.select("group", "number", observer="member"), on=["group", "number"])
        .select(*EDGE, expected="rows", delivered=rows - pl.col("rows_lost").fill_null(0))
        .join(counts, on=EDGE, how="left")
        .join(pairs.select(*EDGE, "corrected"), on=EDGE, how="left")
        .join(speed, on=EDGE, how="left")
        .with_columns(pl.col(name).fill_null(0) for name in (*PATHS, "dups", "late", "hold_us"))
    )


def _minute(reach: pl.DataFrame, person: pl.DataFrame) -> pl.DataFrame:
    timed = reach.with_columns(minute=pl.col("t_send_us") // MINUTE_US)
    by = ["group", "minute"]
    own = (
        timed.filter(pl.col("there") != pl.col("exp"))
        .group_by(*by, pl.col("sender").alias("observer"))
        .agg(pl.len().cast(pl.Int64).alias("own"))
    )
    return (
        bits(timed, "there", by)
        .join(bits(timed, "indirect", by), on=[*by, "number"], how="left", suffix="_otherwise")
        .join(bits(timed, "mailed", by), on=[*by, "number"], how="left", suffix="_mailed")
        .join(person.select("group", "number", observer="member"), on=["group", "number"])
        .join(own, on=[*by, "observer"], how="left")
        .with_columns(expected=pl.col("rows") - pl.col("own").fill_null(0))
        .filter(pl.col("expected") > 0)
        .with_columns(direct=pl.col("expected") - pl.col("rows_otherwise").fill_null(0))
        .group_by("observer", "minute")
        .agg(pl.col("expected").sum(), pl.col("direct").sum(), pl.col("rows_mailed").sum().alias("mailed"))
    )


def _outage(minute: pl.DataFrame) -> pl.DataFrame:
    came = pl.col("direct") + pl.col("mailed")
    bad = came * 2 < pl.col("expected")
    last = {
        name: pl.when(when).then(pl.col("minute")).forward_fill().shift().over("observer")
        for name, when in (("last_bad", bad), ("last_good", ~bad))
    }
    gap = pl.col("minute") - pl.col("last_bad")
    recovered = (pl.col("last_good") > pl.col("last_bad")).fill_null(value=False)
    return (
        minute.sort("observer", "minute")
        .with_columns(**last)
        .filter(bad)
        .with_columns(begins=(((gap > 3) & recovered) | (gap > 15)).fill_null(value=True))
        .with_columns(episode=pl.col("begins").cum_sum().over("observer"))
        .group_by("observer", "episode")
        .agg(
            (pl.col("minute").min() * MINUTE_US).alias("t_from_us"),
            ((pl.col("minute").max() + 1) * MINUTE_US).alias("t_to_us"),
            pl.len().cast(pl.Int64).alias("bad_minutes"),
            pl.col("expected").sum(),
            pl.col("direct").sum(),
            pl.col("mailed").sum(),
        )
        .filter(pl.col("expected") - came >= 3)
        .drop("episode")
    )
