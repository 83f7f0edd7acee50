"""History: what it costs two members to find out which events one of them lacks, and how long it takes to hand all of
them to a newcomer (`ours/transfer.py`).

The sets are thrown with dice that always fall the same way, half a minute or so between two events. The figures are
bytes of the messages themselves, before any envelope, and are the same on every machine.
"""

import random
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks import Figure, Report, Row
from benchmarks.group import say, terminated_politely
from benchmarks.ours.transfer import transfer_rows
from zerochat.group.sync.negentropy import Items, answer, ask, learn

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
    rows = reconciliation_rows(EVENTS_QUICK if quick else EVENTS)
    say(f"compared after {time.monotonic() - begun:.0f} s")
    with terminated_politely(), tempfile.TemporaryDirectory(prefix="zcb-") as folder:
        rows += transfer_rows(MESSAGES_QUICK if quick else MESSAGES, Path(folder), say)
    return Report(rows)


# --- reconciliation ---------------------------------------------------------------------------------------------------


def reconciliation_rows(count: int) -> list[Row]:
    """Bytes both ways and round trips until one member knows what each of the two lacks. Differences are half on either
    side, one member's between the other's."""
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
    """What one member lacks is every other of these places; the other one lacks the rest of them."""
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
    message: bytes | None = ask(mine)
    while message is not None:
        reply = answer(theirs, message, FRAME_BYTES)
        size += len(message) + len(reply)
        trips += 1
        learned = learn(mine, reply, FRAME_BYTES)
        found.update(learned.have, learned.need)
        message = learned.ask
    return size, trips, found
