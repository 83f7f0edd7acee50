"""A study in sentences: for the terminal, and for the head of the report."""

import math
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median

from analytics.results import Results, Row, tag

SHOWN = 10
"""Of anything that there may be thousands of."""
SLOW_TIMES, SLOW_AMONG, SLOW_US_MIN = 3, 3, 100_000
SLOW_AMONG_MAX = 256
"""So many times what is usual is slow, if it is so long at all; so few members have nothing usual, and a group in which
more have heard each other is none of people."""


def sentences(results: Results) -> list[str]:
    """What is to be said, the most important first."""
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
            f"{count(slo['messages'], 'message')} of {count(len(members), 'member')}, {moment(slo['t_from_us'])} to "
            f"{moment(slo['t_to_us'])}, from {count(len(exports), 'export')}."
        )
    rest = results.table("message").num_rows - slo["messages"]
    if rest:
        yield f"{count(rest, 'further message')} went to nobody of whom an export tells what came."


def _arrival(slo: Row) -> Iterator[str]:
    if slo["expected"]:
        lost = slo["expected"] - slo["delivered"]
        yield (
            f"Of {slo['expected']:,} deliveries that were due, {slo['delivered']:,} came "
            f"({percent(slo['delivered'], slo['expected'])})" + (f"; {lost:,} had not by the end." if lost else ".")
        )
        detour = slo["delivered"] > slo["direct"]
        others = ", the others by a detour (repair, history, mediator)" if detour else ""
        yield f"{slo['direct']:,} of them came directly{others}."
    if slo["not_recorded"]:
        yield (
            f"{count(slo['not_recorded'], 'message')} of members without an export may have come while nothing was "
            "recorded; nobody knows, and they do not count as lost."
        )
    if slo["acks_expected"]:
        yield (
            f"Of {slo['acks_expected']:,} deliveries to members who have no export, or recorded nothing then, "
            f"{percent(slo['acks_delivered'], slo['acks_expected'])} were acknowledged."
        )


def _service(slo: Row, members: list[Row]) -> Iterator[str]:
    if not slo["messages"]:
        yield "No export says who was to get any message, so nothing is known of losses."
        return
    said = (
        f"{percent(slo['in_time'], slo['messages'])} of messages reached everyone within {duration(slo['within_us'])}, "
        f"{percent(slo['complete'], slo['messages'])} reached everyone at all"
    )
    worst = max(members, key=lambda member: member["explains"], default=None)
    if worst is not None and worst["explains"]:
        said += f"; {tag(worst['member'])} alone explains {worst['explains']:,} of the {slo['not_in_time']:,} late ones"
    yield f"{said}."


def _speed(results: Results, slo: Row) -> Iterator[str]:
    table = results.table("message").select(["whole_us"]).column("whole_us").drop_null().to_pylist()
    if table:
        table.sort()
        unit = max(export["time_unit_us"] for export in results.quality["exports"])
        half, p99 = _took(median(table), unit), _took(table[math.ceil(0.99 * len(table)) - 1], unit)
        yield f"Until everyone had a message, half took {half}, and 99 of 100 took {p99}."
    if slo["uncorrected"]:
        yield (
            f"{slo['uncorrected']:,} latencies are by clocks that nobody could compare, and mean little: that needs "
            "messages in both directions, and at least two other members with an export."
        )


def _took(us: float, unit_us: int) -> str:
    """How long it took, where times are told in such units: whoever exports alone has whole seconds."""
    return duration(us) if us >= unit_us else f"less than {duration(unit_us)}"


def _slow(results: Results, members: list[Row]) -> Iterator[str]:
    """Members to whom even what comes directly takes much longer, now and then or always, than to most of their
    group."""
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
        for member in sorted(slow, key=lambda one: -p99_us[one])[:SHOWN]:
            yield (
                f"{tag(member)} is slow: one in a hundred that come to it directly takes {duration(p99_us[member])} or "
                f"more, where {duration(usual)} is usual."
            )
        # Whoever is at the end of a slow line makes everybody wait, and is not told by what comes to it alone.
        for member in people:
            mine = [us for pair, us in pairs.items() if member in pair]
            others = [us for pair, us in pairs.items() if member not in pair]
            if mine and others and _is_slow(median(mine), median(others)):
                yield (
                    f"{tag(member)} is slow: to it and from it, half of all takes {duration(median(mine))} or more, "
                    f"where {duration(median(others))} is usual among the others."
                )


def _is_slow(us: float, usual_us: float) -> bool:
    return us > max(SLOW_TIMES * usual_us, SLOW_US_MIN)


def _outages(results: Results) -> Iterator[str]:
    outages = sorted(results.rows("outage"), key=lambda row: row["t_from_us"] - row["t_to_us"])
    for row in outages[:SHOWN]:
        yield (
            f"{tag(row['observer'])} was cut off from {moment(row['t_from_us'])} to {moment(row['t_to_us'])}: of "
            f"{row['expected']:,} messages {row['direct']:,} came directly"
            + (f", {row['mailed']:,} by a mediator in time." if row["mailed"] else ".")
        )
    if len(outages) > SHOWN:
        yield f"There are {len(outages) - SHOWN:,} shorter outages."


def _order(slo: Row) -> Iterator[str]:
    if slo["came"]:
        yield (
            f"{percent(slo['late'], slo['came'])} came after something that stands below them, "
            f"{percent(slo['dups'], slo['came'])} came twice; {count(slo['held'], 'message')} waited for others first."
        )


def _clocks(results: Results, members: list[Row], slo: Row) -> Iterator[str]:
    known = [member for member in members if member["clock_us"] is not None]
    if known:
        worst = max(known, key=lambda member: abs(member["clock_us"]))
        way = "ahead of" if worst["clock_us"] > 0 else "behind"
        yield (
            f"Clocks of {len(known)} members could be compared. The furthest off is {tag(worst['member'])}'s, "
            f"{duration(abs(worst['clock_us']))} {way} the mean, drifting by {worst['drift_ppm']:.1f} in a million. "
            "Where one way between two members is longer than the way back, half of that is hidden in these figures."
        )


def _joins(results: Results) -> Iterator[str]:
    joins = [row for row in results.rows("join") if row["role"] == "joiner"]
    done = [row for row in joins if row["outcome"] == "joined" and row["whole_us"] is not None]
    if joins:
        said = f"{len(done):,} of {count(len(joins), 'attempt')} to join succeeded"
        if done:
            said += f", in {duration(median(row['whole_us'] for row in done))} in the middle"
        trips = [row["whole_rtts"] for row in done if row["whole_rtts"] is not None]
        if trips:
            said += f", {median(trips):.1f} round trips of the slowest member"
        yield f"{said}."


def _sizes(slo: Row) -> Iterator[str]:
    if slo["envelopes"] and slo["sized"]:
        yield (
            f"On average, a message of {slo['plain_b'] / slo['sized']:,.0f} B became an envelope of "
            f"{slo['env_b'] / slo['envelopes']:,.0f} B for each member."
        )


def doubts(results: Results) -> list[str]:
    """What to know before one believes the rest: files set aside, rows left out."""
    quality = results.quality
    said = list(quality["notes"])
    aside = quality["aside"]
    if aside:
        what = "1 file or export was" if len(aside) == 1 else f"{len(aside):,} files or exports were"
        said.append(f"{what} set aside; quality.json names everything that was.")
        said += [f"{one['path'].rpartition('/')[2]} {one['why']}: {one['path']}" for one in aside[:SHOWN]]
    names = {
        "unbelievable": "rows lack something, or have a number out of its range, and were left out",
        "from_oneself": "rows say that somebody heard itself, as two people of one pseudonym would, and were left out",
        "unknown_words": "rows have a word that is in no list",
    }
    for name, number in sorted(quality["counts"].items()):
        kind, _, what = name.partition(".")
        if number and what in names:
            said.append(f"{number:,} of {quality['counts'][f'{kind}.rows']:,} {kind} {names[what]}.")
    jumps = quality["counts"].get("recv.jumps")
    if jumps:
        said.append(
            f"{count(jumps, 'gap')} in what came of members without an export are too large for losses, or too many "
            "together: rather a counter that has jumped. Nothing in them counts as lost."
        )
    if times := quality["counts"].get("coverage.left_out"):
        said.append(
            f"{count(times, 'time')} of recording, the shortest of members who paused thousands of times, were left "
            "out: nothing that was due then counts as lost."
        )
    return said


# --- words ------------------------------------------------------------------------------------------------------------


def percent(part: int, whole: int) -> str:
    """A share, never rounded up to all nor down to nothing."""
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


def moment(us: int) -> str:
    """A time as its minute, in UTC."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")
