"""Sizes: a text on the wire, and the bytes that members receive when a member joins or leaves.

The thesis' forms are rebuilt with its encryption, beside its published figures. Ours are the bytes of the real core.
The figures are the same on every machine.

With `--record DIR` such cores send them, observed by the product's own recorder (`ours/recording.py`).
"""

import random
from pathlib import Path

from analytics.thesis import MESSAGE_B, STATE_B
from benchmarks import Figure, Report, Row, scaled
from benchmarks.ours import recording
from benchmarks.ours.core import MULTI, SINGLE, Star, has_keys, sample_text
from benchmarks.ours.recorded import RecordedStar
from benchmarks.ours.recording import Recording
from benchmarks.peers import thesis
from zerochat.errors import LocalError

SAMPLES, SAMPLES_QUICK = 25, 7
GOAL_MEMBERS, GOAL_BYTES = 25, 5000
"""A state message for 25 members, the thesis' own example."""


options = recording.options


def measure(quick: bool, record: Path | None = None) -> Report:
    samples = scaled(quick, SAMPLES, SAMPLES_QUICK, 1)
    if record is not None:
        recorded = Recording(record)
        for keys in filter(has_keys, (MULTI, SINGLE)):
            say_all(keys, max(STATE_B), samples, recorded)
        recorded.close("sizes")
    rows, missing = message_rows(samples)
    return Report([*rows, *state_rows(samples)], missing)


def message_rows(samples: int) -> tuple[list[Row], list[str]]:
    """Fig. 31: one message for one member, in both of our modes."""
    rows, missing = [], []
    dice = random.Random(31)
    for keys in (MULTI, SINGLE):
        star = founded(keys)
        if star is None:
            missing.append(f"{keys} groups of ours")
            continue
        star.grow(2)
        for size, published in MESSAGE_B.items():
            text = sample_text(size)
            peers = {
                "thesis, published (Fig. 31)": exactly(published),
                "thesis, built again": Figure.of([len(thesis.authcrypt(text.encode(), dice)) for _ in range(samples)]),
            }
            ours = Figure.of([star.post_bytes(text) for _ in range(samples)])
            rows.append(Row(f"a message of {size} B to one member, {keys}", "B", "lower", ours, peers=peers))
    return rows, missing


def say_all(keys: str, members: int, samples: int, recorded: Recording) -> None:
    """Send every text in a group of two, then let it grow to this many members."""
    with RecordedStar(members, keys) as star:
        star.grow(2)
        for size in MESSAGE_B:
            for _ in range(samples):
                said = star.post(sample_text(size))
                recorded.runs.append({"kind": "message", "keys": keys, "of": size, "bytes": said})
        for told in range(1, members - 1):
            star.grow(told + 2)
            recorded.runs.append({"kind": "change", "keys": keys, "of": told, "bytes": star.state_bytes()})
        for name, batches, names in star.recorded():
            recorded.export(f"{keys}-{name}", batches, names)


def founded(keys: str) -> Star | None:
    """A group with these keys; None where this version of zerochat has none such."""
    if not has_keys(keys):
        return None
    try:
        return Star(max(STATE_B), keys)
    except LocalError:
        return None


def state_rows(samples: int) -> list[Row]:
    """Fig. 32: the bytes to all others when the last of this many members joins, and when one leaves."""
    star = Star(max(STATE_B))
    dice = random.Random(32)
    joined, left = [], []
    for members, published in STATE_B.items():
        star.grow(members)
        built = [thesis.state(members, dice) for _ in range(samples)]
        peers = {
            "thesis, published (Fig. 32)": exactly(published[1]),
            "thesis, built again": Figure.of([after for _, after in built]),
            "thesis, published, before zstd": exactly(published[0]),
            "thesis, built again, before zstd": Figure.of([before for before, _ in built]),
        }
        goal = GOAL_BYTES if members == GOAL_MEMBERS else None
        ours = exactly(star.state_bytes())
        if members > 2:  # the inviter of the second member has no one else to inform
            joined.append(
                Row(f"state message, the last of {members} members joins", "B", "lower", ours, None, "", peers, goal)
            )
        ours = Figure.of([star.leave_bytes() for _ in range(samples)])
        left.append(Row(f"state message, one of {members} members leaves", "B", "lower", ours, None, "", peers, goal))
    return [*joined, *left]


def exactly(value: float) -> Figure:
    return Figure.of([value])
