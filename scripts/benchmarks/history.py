"""History: bytes and round trips of set reconciliation between two members, and the transfer to a new member.

The transfer is `ours/transfer.py`. The sets come from seeded randomness, about half a minute between two events. The
figures are bytes of the messages before any envelope, and are the same on every machine.
"""

import random
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks import Figure, Report, Row, scaled
from benchmarks.group import say, terminated_politely
from benchmarks.ours.transfer import transfer_rows
from zerochat.group.sync.negentropy import Items, initial_message, process_response, respond

EVENTS, EVENTS_QUICK = 1_000_000, 100_000
MESSAGES, MESSAGES_QUICK = 100_000, 5_000
DIFFERENCES = 10
GAP_MS = 30_000
FRAME_BYTES = 64 * 1024
ID_BYTES = 32

EQUAL_BYTES, DIFFERENT_BYTES, TRIPS = 100, 10_000, 3
"""The goals."""

Event = tuple[int, bytes]


def measure(quick: bool) -> Report:
    begun = time.monotonic()
    rows = reconciliation_rows(scaled(quick, EVENTS, EVENTS_QUICK, 1_000))
    say(f"compared after {time.monotonic() - begun:.0f} s")
    with terminated_politely(), tempfile.TemporaryDirectory(prefix="zcb-") as folder:
        rows += transfer_rows(MESSAGES_QUICK if quick else MESSAGES, Path(folder), say)
    return Report(rows)


# --- reconciliation ---------------------------------------------------------------------------------------------------


def reconciliation_rows(count: int) -> list[Row]:
    """Bytes both ways and round trips until one member knows the difference. Differences are half on either side, those
    of one member between those of the other."""
    dice = random.Random(10)
    events = some_events(count, dice)
    scattered = sorted(dice.sample(range(count), DIFFERENCES))
    tail = range(count - DIFFERENCES, count)
    of = f"of {count:,} events"
    rows = reconciliation(f"{of} all are equal", events, (), EQUAL_BYTES, 1)
    rows += reconciliation(f"{of} {DIFFERENCES} of the last differ", events, tail, DIFFERENT_BYTES, TRIPS)
    rows += reconciliation(f"{of} {DIFFERENCES} differ, anywhere", events, scattered, DIFFERENT_BYTES, TRIPS)
    return rows


def some_events(count: int, dice: random.Random) -> list[Event]:
    stamp, events = 1_750_000_000_000, []
    for _ in range(count):
        stamp += 1 + int(dice.expovariate(1 / GAP_MS))
        events.append((stamp, dice.randbytes(ID_BYTES)))
    return events


def reconciliation(
    case: str, events: Sequence[Event], differing: Sequence[int], goal: int, trips_goal: int
) -> list[Row]:
    """One member lacks every other of these positions; the other member lacks the rest."""
    mine, theirs = without(events, differing[::2]), without(events, differing[1::2])
    size, trips, found = reconcile(mine, theirs)
    if found != {events[place][1] for place in differing}:
        raise SystemExit("the comparison has found something else than the difference")
    floor = Figure.of([ID_BYTES * len(differing)]) if differing else None
    return [
        Row(case, "B", "lower", Figure.of([size]), floor, "the ids that differ", goal=goal),
        Row(f"{case}: round trips", "round trips", "lower", Figure.of([trips]), Figure.of([1]), "one", goal=trips_goal),
    ]


def without(events: Sequence[Event], places: Collection[int]) -> Items:
    gone = frozenset(places)
    return Items(event for place, event in enumerate(events) if place not in gone)


def reconcile(mine: Items, theirs: Items) -> tuple[int, int, set[bytes]]:
    """The bytes both ways, the round trips, and the ids that differ."""
    size, trips, found = 0, 0, set[bytes]()
    message: bytes | None = initial_message(mine)
    while message is not None:
        reply = respond(theirs, message, FRAME_BYTES)
        size += len(message) + len(reply)
        trips += 1
        learned = process_response(mine, reply, FRAME_BYTES)
        found.update(learned.only_ours, learned.only_theirs)
        message = learned.next_message
    return size, trips, found
