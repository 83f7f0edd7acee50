"""The fuzzer of work: every kind of message has a generator, and a receiver that charges nothing is found."""

from random import Random

import pytest

from fuzzing.work.kinds import KINDS, group_types, mediator_types
from fuzzing.work.mediator_kinds import MediatorMachine, MediatorSpeaker
from fuzzing.work.meters import Work
from fuzzing.work.scene import scene
from fuzzing.work.search import TRIAL, Bounds, Report, check, growth, play, search
from fuzzing.work.speaker import Speaker
from zerochat.agent.mediator.protocol_handlers import ProtocolHandlers
from zerochat.agent.storage import tlog
from zerochat.didcomm.protocols import STANDARD
from zerochat.group.links import rate_limits
from zerochat.group.wire import messages

NO_CPU = Bounds(cpu=1e9)
"""What is counted is the same in every run; how long it takes is not."""


def seeded(*shapes, batches=TRIAL, seed=1):
    """What a sequence of these costs, and the bounds that it exceeds, apart from CPU time."""
    work = play(shapes, seed, batches, Report())
    return work, {one.measure for one in check(work, shapes, seed, batches, NO_CPU)}


# --- the table of kinds -----------------------------------------------------------------------------------------------


def test_every_message_type_has_a_generator():
    made = {kind.type for kind in KINDS.values()}
    lacking = {name for type_, name in group_types().items() if type_ not in made and type_ != messages.PROBLEM}
    assert not lacking, "add a generator to scripts/fuzzing/work"
    assert not mediator_types() - made
    standard = {protocol for protocol, _ in STANDARD.protocols if "/1.0" not in protocol or "empty" in protocol}
    assert not {one for one in standard if not any(type_.startswith(one) for type_ in made)}
    assert len(group_types()) > 20 and len(mediator_types()) >= 9


def test_a_new_message_type_lacks_a_generator(monkeypatch):
    monkeypatch.setattr(messages, "NOVELTY", messages.PROTOCOL + "novelty", raising=False)
    with pytest.raises(AssertionError, match="NOVELTY"):
        test_every_message_type_has_a_generator()


NOT_GENUINE = {"garbage", "inviter garbage", "stranger garbage", "join request", "stranger join"}
"""Bytes of no meaning, and proofs that are too short or random."""


@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS.items() if kind.party in ("member", "inviter", "holder")]
)
def test_messages_are_genuine(name, tmp_path):
    """They are authentic and well-formed, in every shape; whether they may be sent is another matter."""
    machine = scene().machine(tmp_path)
    speaker = Speaker(scene(), machine, Random(7))
    for shape in range(6):
        machine.advance(machine.now + 60_000)
        speaker.resume()
        machine.process([KINDS[name].make(speaker, Random(shape))])
    machine.close()
    wrong = {why: count for why, count in machine.dropped.items() if why in ("Malformed", "Unauthentic")}
    assert bool(wrong) == (name in NOT_GENUINE), machine.dropped


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.party in ("user", "sender")])
def test_messages_to_a_mediator_are_genuine(name, tmp_path):
    machine = MediatorMachine(tmp_path)
    speaker = MediatorSpeaker(machine, Random(7))
    for shape in range(6):
        machine.advance(machine.now + 60_000)
        machine.process([KINDS[name].make(speaker, Random(shape))])
    machine.close()
    assert bool(machine.dropped["unreadable"]) == (name == "mediator garbage"), machine.dropped
    answers = sum(machine.dropped[what] for what in ("answered", "kept", "shared"))
    assert answers >= 3 or name in ("mediator garbage", "link keep")


# --- the meters -------------------------------------------------------------------------------------------------------


def test_counted_work_is_the_same_each_time():
    shapes = [("posts", 1), ("history request", 2), ("tlog submit", 1)]
    first, second = (seeded(*shapes)[0] for _ in range(2))
    counted = [name for name in Work.__struct_fields__ if name not in ("cpu_ns", "agreements")]
    assert [getattr(first, name) for name in counted] == [getattr(second, name) for name in counted]
    assert first.sql and first.written and first.sent and first.messages


# --- the bounds -------------------------------------------------------------------------------------------------------

COSTLY = [("tlog extension", 1), ("tlog submit", 1), ("packed posts", 1)]
"""Shapes that are charged the most."""


def test_costly_kinds_stay_within_the_bounds():
    for shape in COSTLY:
        assert seeded(shape)[1] == set(), shape


def test_a_receiver_that_charges_nothing_is_found(monkeypatch):
    monkeypatch.setattr(rate_limits, "charge_work", lambda *given, **named: None)
    monkeypatch.setattr(rate_limits, "settle_work", lambda *given: None)
    assert seeded(("tlog extension", 1))[1] == {"signatures"}
    assert "sql" in seeded(("tlog submit", 1))[1]


def test_a_receiver_without_any_limit_is_found(monkeypatch):
    for name in ("charge_work", "charge_bytes", "settle_work"):
        monkeypatch.setattr(rate_limits, name, lambda *given, **named: None)
    monkeypatch.setattr(rate_limits, "spend_envelope", lambda *given: True)
    assert {"sql", "written"} & seeded(("packed posts", 1))[1]


@pytest.mark.slow
def test_work_that_grows_with_what_is_stored_is_found(monkeypatch):
    """The quota of blobs was checked by a sum over all of them."""
    assert growth(("tlog submit", 1), 1, Report(), batches=160) == []
    old = tlog._BLOB.replace("WHERE NOT EXISTS", "WHERE (SELECT total(size) FROM log_blobs) >= 0 AND NOT EXISTS", 1)
    monkeypatch.setattr(tlog, "_BLOB", old)
    (found,) = growth(("tlog submit", 1), 1, Report(), batches=160)
    assert found.measure == "growth of sql"


def test_a_mediator_that_charges_nothing_is_found(monkeypatch):
    assert seeded(("mediate update", 1), batches=20)[1] == set()
    monkeypatch.setattr(ProtocolHandlers, "_charge_more", lambda *given: True)
    assert "sql" in seeded(("mediate update", 1), batches=20)[1]


@pytest.mark.fuzz
def test_no_sequence_exceeds_the_bounds(budget):
    """One seed in a slice; `scripts/fuzz work` prints what costs most."""
    for seed in range(1, 1 + budget(1)):
        found = search(seed)
        assert not found.exceeded, [str(one) for one in found.exceeded]
