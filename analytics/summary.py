"""Results of a study as sentences, for the terminal and the report."""

import math
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median

from analytics.results import Results, Row, short_id

SHOWN_MAX = 10
"""Limit for lists that could have thousands of entries."""
SLOW_TIMES, SLOW_AMONG, SLOW_US_MIN = 3, 3, 100_000
SLOW_AMONG_MAX = 256
"""Above this multiple of the median, and this duration, is slow; in groups of this many members."""


def sentences(results: Results) -> list[str]:
    """The results, most important first."""
    [slo] = results.rows("slo")
    members = results.rows("member")
    return [
        *_study(results, slo, members),
        *_arrival(slo),
        *_service(slo, members),
        *_speed(results, slo),
        *_slow(results, members),
        *_outages(results),
        *_order(slo),
        *_clocks(results, members, slo),
        *_joins(results),
        *_sizes(slo),
    ]


def _study(results: Results, slo: Row, members: list[Row]) -> Iterator[str]:
    exports = results.quality["exports"]
    if slo["t_from_us"] is not None:
        yield (
            f"{count(slo['messages'], 'message')} of {count(len(members), 'member')}, {utc_minute(slo['t_from_us'])} "
            "to "
            f"{utc_minute(slo['t_to_us'])}, from {count(len(exports), 'export')}."
        )
    rest = results.table("message").num_rows - slo["messages"]
    if rest:
        yield f"{count(rest, 'further message')} had no recipient with an export."


def _arrival(slo: Row) -> Iterator[str]:
    if slo["expected"]:
        lost = slo["expected"] - slo["delivered"]
        yield (
            f"{slo['delivered']:,} of {slo['expected']:,} expected deliveries arrived "
            f"({percent(slo['delivered'], slo['expected'])})" + (f"; {lost:,} did not." if lost else ".")
        )
        detour = slo["delivered"] > slo["direct"]
        others = ", the others by retransmission, history or mediator" if detour else ""
        yield f"{slo['direct']:,} of them were direct{others}."
    if slo["not_recorded"]:
        yield (
            f"{count(slo['not_recorded'], 'message')} of members without an export may have arrived while nothing was "
            "recorded; they do not count as lost."
        )
    if slo["acks_expected"]:
        yield (
            f"Of {slo['acks_expected']:,} deliveries to members without a recording, "
            f"{percent(slo['acks_delivered'], slo['acks_expected'])} were acknowledged."
        )


def _service(slo: Row, members: list[Row]) -> Iterator[str]:
    if not slo["messages"]:
        yield "No export names the recipients of a message, so losses are unknown."
        return
    said = (
        f"{percent(slo['in_time'], slo['messages'])} of messages reached all recipients within "
        f"{duration(slo['within_us'])}, "
        f"{percent(slo['complete'], slo['messages'])} reached all recipients at all"
    )
    worst = max(members, key=lambda member: member["explains"], default=None)
    if worst is not None and worst["explains"]:
        said += (
            f"; {short_id(worst['member'])} alone accounts for {worst['explains']:,} of the {slo['not_in_time']:,} "
            "late ones"
        )
    yield f"{said}."


def _speed(results: Results, slo: Row) -> Iterator[str]:
    table = results.table("message").select(["whole_us"]).column("whole_us").drop_null().to_pylist()
    if table:
        table.sort()
        unit = max(export["time_unit_us"] for export in results.quality["exports"])
        half, p99 = _took(median(table), unit), _took(table[math.ceil(0.99 * len(table)) - 1], unit)
        yield f"Time until all recipients had a message: median {half}, 99th percentile {p99}."
    if slo["uncorrected"]:
        yield (
            f"{slo['uncorrected']:,} latencies could not be corrected for clock offsets and mean little. That needs "
            "messages in both directions, and at least two other members with an export."
        )


def _took(us: float, unit_us: int) -> str:
    """A duration, no finer than the time unit of the exports."""
    return duration(us) if us >= unit_us else f"less than {duration(unit_us)}"


def _slow(results: Results, members: list[Row]) -> Iterator[str]:
    """Members whose direct deliveries are much slower than usual in their group, occasionally or always."""
    p99_us = {member["member"]: member["p99_us"] for member in members if member["p99_us"] is not None}
    usually_us: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for row in results.rows("edge"):
        if row["p50_us"] is not None:
            usually_us[row["group"]][row["sender"], row["observer"]] = row["p50_us"]
    for pairs in usually_us.values():
        people = sorted({member for pair in pairs for member in pair} & p99_us.keys())
        if not SLOW_AMONG <= len(people) <= SLOW_AMONG_MAX:
            continue
        usual = median(p99_us[member] for member in people)
        slow = [member for member in people if _is_slow(p99_us[member], usual)]
        for member in sorted(slow, key=lambda one: -p99_us[one])[:SHOWN_MAX]:
            yield (
                f"{short_id(member)} is slow: the 99th percentile of its direct deliveries is "
                f"{duration(p99_us[member])}, "
                f"while {duration(usual)} is usual."
            )
        # A member with a slow line delays everyone; what it receives does not show that alone.
        for member in people:
            mine = [us for pair, us in pairs.items() if member in pair]
            others = [us for pair, us in pairs.items() if member not in pair]
            if mine and others and _is_slow(median(mine), median(others)):
                yield (
                    f"{short_id(member)} is slow: the median latency to and from it is {duration(median(mine))}, "
                    f"while {duration(median(others))} is usual among the others."
                )


def _is_slow(us: float, usual_us: float) -> bool:
    return us > max(SLOW_TIMES * usual_us, SLOW_US_MIN)


def _outages(results: Results) -> Iterator[str]:
    outages = sorted(results.rows("outage"), key=lambda row: row["t_from_us"] - row["t_to_us"])
    for row in outages[:SHOWN_MAX]:
        yield (
            f"{short_id(row['observer'])} was offline from {utc_minute(row['t_from_us'])} to "
            f"{utc_minute(row['t_to_us'])}: of "
            f"{row['expected']:,} messages, {row['direct']:,} arrived directly"
            + (f", {row['mailed']:,} by mediator in time." if row["mailed"] else ".")
        )
    if len(outages) > SHOWN_MAX:
        yield f"{len(outages) - SHOWN_MAX:,} shorter outages are not listed."


def _order(slo: Row) -> Iterator[str]:
    if slo["came"]:
        yield (
            f"{percent(slo['late'], slo['came'])} arrived out of order, "
            f"{percent(slo['dups'], slo['came'])} were duplicates; {count(slo['held'], 'message')} waited for "
            "earlier ones."
        )


def _clocks(results: Results, members: list[Row], slo: Row) -> Iterator[str]:
    known = [member for member in members if member["clock_us"] is not None]
    if known:
        worst = max(known, key=lambda member: abs(member["clock_us"]))
        way = "ahead of" if worst["clock_us"] > 0 else "behind"
        yield (
            f"The clocks of {len(known)} members could be compared. The largest offset is "
            f"{short_id(worst['member'])}'s, "
            f"{duration(abs(worst['clock_us']))} {way} the mean, drifting by {worst['drift_ppm']:.1f} ppm. "
            "Asymmetric paths between two members distort these figures by half of the asymmetry."
        )


def _joins(results: Results) -> Iterator[str]:
    joins = [row for row in results.rows("join") if row["role"] == "joiner"]
    done = [row for row in joins if row["outcome"] == "joined" and row["whole_us"] is not None]
    if joins:
        said = f"{len(done):,} of {count(len(joins), 'attempt')} to join succeeded"
        if done:
            said += f", in {duration(median(row['whole_us'] for row in done))} (median)"
        trips = [row["whole_rtts"] for row in done if row["whole_rtts"] is not None]
        if trips:
            said += f", {median(trips):.1f} round trips of the slowest member"
        yield f"{said}."


def _sizes(slo: Row) -> Iterator[str]:
    if slo["envelopes"] and slo["sized"]:
        yield (
            f"On average, a message of {slo['plain_b'] / slo['sized']:,.0f} B becomes an envelope of "
            f"{slo['env_b'] / slo['envelopes']:,.0f} B per recipient."
        )


def caveats(results: Results) -> list[str]:
    """What limits the validity of the results: skipped files and rows."""
    quality = results.quality
    said = list(quality["notes"])
    aside = quality["aside"]
    if aside:
        what = "1 file or export was" if len(aside) == 1 else f"{len(aside):,} files or exports were"
        said.append(f"{what} skipped; see quality.json.")
        said += [f"{one['path'].rpartition('/')[2]} {one['why']}: {one['path']}" for one in aside[:SHOWN_MAX]]
    names = {
        "unbelievable": "rows are incomplete or out of range and were skipped",
        "from_oneself": (
            "rows have the same sender and observer, as two people with one pseudonym would, and were skipped"
        ),
        "unknown_words": "rows have an unknown value",
    }
    for name, number in sorted(quality["counts"].items()):
        kind, _, what = name.partition(".")
        if number and what in names:
            said.append(f"{number:,} of {quality['counts'][f'{kind}.rows']:,} {kind} {names[what]}.")
    jumps = quality["counts"].get("recv.jumps")
    if jumps:
        said.append(
            f"{count(jumps, 'gap')} in the messages of members without an export are too large or too many for losses, "
            "so they are taken for jumps of a counter. Nothing in them counts as lost."
        )
    if times := quality["counts"].get("coverage.left_out"):
        said.append(
            f"{count(times, 'time')} of recording, the shortest of members who paused thousands of times, were "
            "skipped: nothing that was expected then counts as lost."
        )
    return said


# --- formatting -------------------------------------------------------------------------------------------------------


def percent(part: int, whole: int) -> str:
    """A percentage that is never rounded to 0 or 100."""
    if not whole:
        return "0 %"
    share = 100 * part / whole
    text = f"{share:.2f}" if 0.005 <= share <= 99.995 or part in (0, whole) else f"{share:.6f}".rstrip("0")
    return f"{text.removesuffix('.00')} %"


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(us: float) -> str:
    for unit, name in ((86_400e6, "d"), (3_600e6, "h"), (60e6, "min"), (1e6, "s"), (1e3, "ms")):
        if us >= unit * (1 if name in ("s", "ms") else 2):
            return f"{us / unit:.3g} {name}"
    return f"{us:.0f} µs"


def utc_minute(us: int) -> str:
    """A time in UTC, to the minute."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")
