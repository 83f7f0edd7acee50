"""Sequences of messages in virtual time, what they cost, and the bounds that no sequence may exceed.

A search has three parts. Each kind is tried alone in a few shapes: so the costliest shape of each is known. Then come
sequences of several kinds in costly shapes. Where the core limits the rate, the same envelopes come again after each
batch at the permitted rate, as from a sender that keeps to none. Last, some kinds are sent for long: what a message
costs must not grow with what is stored.
"""

import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct, field

from fuzzing.work import (  # noqa: F401  # they fill the table
    dcgka_kinds,
    mediator_kinds,
    member_kinds,
    outsider_kinds,
    ring_kinds,
    tlog_kinds,
)
from fuzzing.work.kinds import KINDS, Kind
from fuzzing.work.machine import BATCH, Machine
from fuzzing.work.mediator_kinds import MediatorMachine, MediatorSpeaker
from fuzzing.work.meters import Work
from fuzzing.work.scene import scene
from fuzzing.work.speaker import Speaker
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify
from zerochat.group.inputs import Received
from zerochat.group.links.rate_limits import BYTES_PER_S, ENVELOPES_PER_S

FLOOD = 2
"""How often each batch comes again, against the rate."""
TURN_MS = 1000 * BATCH // ENVELOPES_PER_S
"""The virtual time in which a batch comes at the permitted rate."""
TRIAL, MIXED, GROWN = 10, 60, 240
"""Batches in a trial of one kind, in a sequence of several, and in one that lets the stored state grow."""
GROWTH = 3.0
"""What a message of the last quarter of a grown sequence may cost, by one of the first quarter."""
GROWN_KINDS = 2
"""Kinds whose stored state grows, under one seed."""
MIXED_KINDS = 3


class Bounds(Struct, frozen=True):
    """What the messages of one party may cause in a second, whatever they are."""

    cpu: float = 0.6
    """Of a processor as fast as that on which the work was estimated: a tenth is charged, and the rest is for opening
    and parsing a hundred envelopes; three times that, because a machine may be busy."""
    signatures: int = 2_600
    """A thousand are charged in each of the two groups; the rest is in messages that cost less than a charge."""
    agreements: int = 1_500
    sql: int = 15_000
    written: int = 24 << 20
    sent: int = 24 << 20
    """Files take most of it (`files/upload.py`)."""
    notices: int = 3_000


class Exceeded(Struct, frozen=True):
    """A sequence that costs more than the bounds allow."""

    measure: str
    value: float
    bound: float
    shapes: tuple[tuple[str, int], ...]
    seed: int

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} (shape {shape})" for name, shape in self.shapes)
        return f"{self.measure}: {self.value:,.1f} a second, of at most {self.bound:,.1f}, by {kinds}, seed {self.seed}"


class Report(Struct):
    """The result of a search."""

    kinds: dict[str, Work] = field(default_factory=dict)
    """What the messages of each kind have cost."""
    exceeded: list[Exceeded] = field(default_factory=list)
    sequences: int = 0

    def table(self) -> Iterator[str]:
        """The messages with the highest cost for each byte received, by each measure."""
        known = {name: work for name, work in self.kinds.items() if KINDS[name].type and work.received}
        for measure, unit in (("cpu_ns", "ns of CPU"), ("written", "bytes written"), ("sent", "bytes sent")):
            shares = {name: getattr(work, measure) / work.received for name, work in known.items()}
            first = sorted(shares, key=lambda name: -shares[name])[:5]
            yield f"{unit} a byte: " + ", ".join(f"{name} {shares[name]:,.1f}" for name in first)


Shape = tuple[str, int]
"""A kind of message, and the seed of its shape."""


def play(shapes: Sequence[Shape], seed: int, batches: int, report: Report) -> Work:
    """One sequence of such messages; what it has cost."""
    works = list(_played(shapes, seed, batches, report, flood=FLOOD))
    report.sequences += 1
    return _sum(works)


def growth(shape: Shape, seed: int, report: Report, batches: int = GROWN) -> list[Exceeded]:
    """Whether messages of one shape cost the more, the more there were before: in instructions of SQLite, in bytes
    written or in signatures."""
    works = list(_played([shape], seed, batches, report, flood=0))
    first, last = _sum(works[: batches // 4]), _sum(works[-batches // 4 :])
    report.sequences += 1
    found = []
    for measure, least in (("sql", 20), ("written", 16_384), ("signatures", 2)):
        before, after = (max(getattr(one, measure) / max(one.messages, 1), least) for one in (first, last))
        if after > GROWTH * before:
            found.append(Exceeded(f"growth of {measure}", after / before, GROWTH, (shape,), seed))
    return found


def _sum(works: Iterable[Work]) -> Work:
    total = Work()
    for work in works:
        total.add(work)
    return total


def _played(shapes: Sequence[Shape], seed: int, batches: int, report: Report, flood: int) -> Iterator[Work]:
    """The cost of each batch of a sequence."""
    dice = Random(f"work {seed}")
    kinds = [(KINDS[name], shape) for name, shape in shapes]
    with tempfile.TemporaryDirectory() as folder:
        machine: Any
        speaker: Any
        if kinds[0][0].party in ("user", "sender"):
            machine = MediatorMachine(Path(folder))
            speaker = MediatorSpeaker(machine, dice)
        else:
            machine = scene().machine(Path(folder))
            speaker = Speaker(scene(), machine, dice)
        begun, total = machine.now, _total(machine)
        try:
            for turn in range(1, batches + 1):
                before = total.copy()
                machine.advance(begun + turn * TURN_MS)
                kind, shape = dice.choice(kinds)
                inputs = _batch(kind, shape, speaker)
                for again in range(1 + flood * (kind.party in ("member", "inviter", "holder"))):
                    machine.process(inputs)
                    if not again:
                        total.messages += len(inputs)
                        total.received += sum(len(each.envelope) for each in inputs)
                work = total.since(before)
                report.kinds.setdefault(kind.name, Work()).add(work)
                yield work
        finally:
            machine.close()


def _total(machine: Machine | MediatorMachine) -> Work:
    return machine.meter.total


def _batch(kind: Kind, shape: int, speaker: Any) -> list[Received]:
    """As many messages as come within a turn of the loop at the permitted rate."""
    speaker.resume()
    room, inputs = BYTES_PER_S * BATCH // ENVELOPES_PER_S, list[Received]()
    for _ in range(BATCH):
        made = kind.make(speaker, Random(f"{kind.name} {shape}"))
        room -= len(made.envelope)
        if inputs and room < 0:
            break
        inputs.append(made)
    return inputs


def check(work: Work, shapes: Sequence[Shape], seed: int, batches: int, bounds: Bounds) -> list[Exceeded]:
    """The bounds that a sequence exceeds."""
    seconds = batches * TURN_MS / 1000
    values = {name: getattr(work, name) / seconds for name in Bounds.__struct_fields__ if name != "cpu"}
    values["cpu"] = work.cpu_ns / 1e9 / seconds * speed_now()
    return [
        Exceeded(name, value, getattr(bounds, name), tuple(shapes), seed)
        for name, value in values.items()
        if value > getattr(bounds, name)
    ]


def search(
    seed: int, bounds: Bounds | None = None, *, shapes: int = 1, mixed: int = 4, names: Iterable[str] = KINDS
) -> Report:
    """Try so many shapes of these kinds, mix the costly ones in so many sequences, and let some grow."""
    bounds, report, dice = bounds or Bounds(), Report(), Random(f"search {seed}")
    costly: list[tuple[Shape, Work]] = []
    for name in names:
        for number in range(shapes):
            shape = name, seed * shapes + number
            work = _judged(report, [shape], seed, TRIAL, bounds)
            costly.append((shape, work))
    for number in range(mixed):
        measure = dice.choice(("cpu_ns", "signatures", "sql", "written", "sent"))
        is_mediator = number % 4 == 3
        mine = [one for one in costly if (KINDS[one[0][0]].party in ("user", "sender")) == is_mediator]
        ranked = sorted(mine, key=lambda one: -getattr(one[1], measure))[: 4 * MIXED_KINDS]
        if ranked:
            chosen = [shape for shape, _ in dice.sample(ranked, min(MIXED_KINDS, len(ranked)))]
            _judged(report, chosen, seed + number, MIXED, bounds)
    grown = [shape for shape, _ in costly if KINDS[shape[0]].type]
    for shape in dice.sample(grown, min(GROWN_KINDS, len(grown))):
        report.exceeded += growth(shape, seed, report)
    return report


def _judged(report: Report, shapes: Sequence[Shape], seed: int, batches: int, bounds: Bounds) -> Work:
    work = play(shapes, seed, batches, report)
    found = check(work, shapes, seed, batches, bounds)
    if [one.measure for one in found] == ["cpu"]:  # others may have the machine: it counts if it is so again
        gc.collect()
        work = play(shapes, seed, batches, Report())
        found = check(work, shapes, seed, batches, bounds)
    report.exceeded += found
    return work


def speed_now() -> float:
    """How fast this machine is now, in signatures: 1 where a verification takes SIGNATURE_US."""
    return SIGNATURE_US * 1000 / _fastest(_verify)


SIGNATURE_US = 60


def _verify() -> None:
    ed25519_verify(_PUBLIC, b"x" * 200, _SIGNATURE)


_PUBLIC, _SIGNATURE = ed25519_public(bytes(32)), ed25519_sign(bytes(32), b"x" * 200)


def _fastest(what: Callable[[], None]) -> int:
    """The CPU time of a call, ns: the least of some."""
    spent = []
    for _ in range(20):
        begin = time.thread_time_ns()
        what()
        spent.append(time.thread_time_ns() - begin)
    return min(spent)
