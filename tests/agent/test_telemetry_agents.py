"""Recording and the agent: whatever becomes of it, the agent goes on, and says what has become of it. And what only
whole agents bring about: joins that fail, mail, and a stranger at the control socket."""

import contextlib
import os
import stat
import sys
import time
from typing import Any

import apsw
import pytest

from tests.agent import test_agent, test_behind_a_mediator
from tests.agent.test_agent import Person, meet, until
from tests.agent.test_telemetry import _may_be_recorded, kept, of, record, reopened  # noqa: F401  # one is a fixture
from zerochat.agent.api.client import AgentError
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.storage.journal import DiskFull, Journal, JournalDamaged, JournalInUse
from zerochat.agent.storage.paths import places
from zerochat.agent.telemetry import collection, handlers, message_facts, recorder
from zerochat.agent.telemetry.schema import Ack, Join, Recv, Send, View
from zerochat.agent.telemetry.store import Store
from zerochat.cli import main
from zerochat.rpc.telemetry import TelemetryStatus

people = test_agent.people
mediator = test_behind_a_mediator.mediator
behind = test_behind_a_mediator.people
DAY_S = 86_400


def says(person: Person, text: str, group: str = "friends") -> None:
    """The chat goes on."""
    assert person.client.wait(group, person.client.send(group, text).id).complete


def status(person: Person) -> TelemetryStatus:
    found: TelemetryStatus = person.client.call("telemetry")
    return found


def forgotten(person: Person, group: str) -> bool:
    """Forget it, unless the others have not heard yet that it was left."""
    with contextlib.suppress(AgentError):
        person.client.forget(group)
    return group not in [one.id for one in person.client.groups()]


def lives(person: Person) -> bool:
    return person.thread.is_alive() and person.thread.failure is None


# --- whatever goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "error", "said"),
    [
        (recorder.Recorder, "_facts_of", KeyError("a secret"), "a fault of its own"),
        (recorder.Recorder, "told", MemoryError(), "a fault of its own"),
        (message_facts.Arrivals, "come", RecursionError("a secret"), "a fault of its own"),
        (Store, "number", JournalDamaged(path="journal.db", why="a page"), "damaged"),
        (Store, "append", JournalInUse(path="journal.db"), "open"),
        (Store, "_shed", apsw.FullError("a secret"), "full"),
        (Store, "_shed", apsw.SQLError("a secret"), "a fault of its own"),
    ],
)
def test_what_fails_in_recording_ends_recording_and_is_said(people, monkeypatch, owner, name, error, said):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice, bob)
    says(alice, "before")
    called = []

    def fails(*rest: object, **more: object) -> None:
        called.append(name)
        raise error

    with monkeypatch.context() as while_it_fails:
        while_it_fails.setattr(owner, name, fails)
        while_it_fails.setattr(recorder, "FLUSH_US", 0)
        while_it_fails.setattr(recorder, "MEBIBYTE", 0)  # there is no room, so something has to go
        says(bob, "meanwhile")
        says(alice, "meanwhile, too")
        until(lambda: not status(alice).recording, "the end of recording")
    assert called and lives(alice) and lives(bob)
    told = status(alice)
    assert told.on and said in told.fault and "secret" not in told.fault + alice.places.log.read_text()
    says(alice, "after")
    assert [event.body["text"] for event in bob.client.history("friends", limit=4).events][-1] == "after"
    again = alice.client.call("telemetry_set", on=True, consent=told.consent)
    assert (again.recording, again.fault) == (True, "")
    says(alice, "on record")
    assert of(alice, Send)[-1].plain_b == len("on record")


def test_nor_does_what_fails_before_the_recorder_has_it(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)

    def fails(*rest: object) -> None:
        raise KeyError("a secret")

    monkeypatch.setattr(Transport, "reason", fails)
    bob.sleep()
    until(lambda: not status(alice).recording, "the end of recording")
    bob.wake()
    says(alice, "after")
    assert "a fault of its own" in status(alice).fault and lives(alice)


def test_a_start_is_no_worse_for_recording_that_cannot_begin(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)
    telemetry = Journal.telemetry

    def damaged(journal: Journal) -> Store:
        raise JournalDamaged(path=journal.path, why="a page is not as it was written")

    alice.sleep()
    with monkeypatch.context() as while_it_fails:
        while_it_fails.setattr(Journal, "telemetry", damaged)
        alice.wake()
        says(alice, "none the less")
    told = status(alice)
    assert told.on and not told.recording and "damaged" in told.fault
    alice.sleep()
    with monkeypatch.context() as while_it_fails:  # as where another version is being installed over this one
        while_it_fails.setitem(sys.modules, "zerochat.agent.telemetry.handlers", None)
        while_it_fails.delattr("zerochat.agent.telemetry.handlers")
        alice.wake()
        says(alice, "still")
        with pytest.raises(AgentError, match="fault"):
            status(alice)
        says(alice, "and still")
    assert lives(alice) and not status(alice).recording and Journal.telemetry is telemetry
    alice.sleep()
    alice.wake()
    assert status(alice).recording, "the next start begins it again"


def test_neither_a_reload_nor_the_end_of_it_nor_the_agents_own_end_is_the_worse_for_it(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice, bob)

    def fails(*rest: object) -> None:
        raise DiskFull(path="journal.db")

    monkeypatch.setattr(handlers, "bounds", fails)
    alice.client.call("set", name="telemetry.days", value="3")
    alice.thread.reload()
    until(lambda: not status(alice).recording, "the end of recording")
    assert "full" in status(alice).fault
    says(alice, "none the less")
    monkeypatch.setattr(recorder.Recorder, "close", fails)
    bob.sleep()
    assert bob.thread.failure is None
    bob.wake()
    assert lives(alice) and lives(bob)


def test_a_clock_that_is_set_spoils_no_fact_and_ends_nothing(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice, bob)
    monkeypatch.setattr(recorder, "FLUSH_US", 0)
    right = time.time_ns
    for days in (0, -400, 0, 40_000, 0, -30_000):
        monkeypatch.setattr(time, "time_ns", lambda days=days: right() + days * DAY_S * 10**9)
        says(alice, f"{days} days off")
        assert status(alice).recording and status(bob).recording
    for row in (*kept(alice), *kept(bob)):
        spans = {name: getattr(row, name) for name in row.__struct_fields__ if name.endswith("_us")}
        assert all(value is None or value >= 0 for name, value in spans.items() if not name.startswith("t_")), row
    assert lives(alice) and lives(bob)


def test_groups_that_are_left_and_forgotten_meanwhile_leave_no_name(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    alice.client.new("others")
    bob.client.join(alice.client.invite("others").url)
    until(lambda: [group.state for group in bob.client.groups()] == ["active"] * 2, "joining the others")
    record(alice, bob)
    gone = {group.id for group in alice.client.groups() if group.name == "others"}
    says(alice, "the last word", "others")
    for person in (alice, bob):
        (group,) = [group.id for group in person.client.groups() if group.name == "others"]
        person.client.leave(group)
        until(lambda person=person, group=group: forgotten(person, group), "forgetting it")
    says(alice, "elsewhere")
    assert status(alice).recording and status(bob).recording
    named = {one.group for one in collection.names(alice.client.call).values()}
    assert named and not named & gone
    assert len(of(alice, Send)) >= 2, "what was pending is there"


@pytest.mark.slow
def test_it_is_bounded_and_deleted_and_read_while_it_is_recorded(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice, bob)
    monkeypatch.setattr(recorder, "FLUSH_US", 0)
    for number in range(12):
        says(alice, f"{number}")
    pages = collection.batches(alice.client.call, collection.end_of(alice.client.call))
    assert next(pages)
    monkeypatch.setattr(recorder, "MEBIBYTE", 10)  # 640 bytes are kept: the oldest go while somebody reads them
    for number in range(12):
        says(alice, f"more {number}")
    assert all(isinstance(rows, list) for rows in pages)
    told = status(alice)
    assert told.recording and 0 < told.bytes <= 640
    for number in range(3):  # whatever waits to be written when it is turned off, is
        says(alice, f"{number} of those on record")
        alice.client.call("telemetry_set", on=False)
        says(alice, "off the record")
        record(alice)
    monkeypatch.setattr(recorder, "MEBIBYTE", 1 << 20)
    alice.client.call("telemetry_delete")
    says(alice, "x" * 77)
    alice.client.call("telemetry_set", on=False)
    says(alice, "off the record")
    assert [row.plain_b for row in of(alice, Send)] == [77]
    assert lives(alice) and lives(bob)


def test_a_restored_profile_goes_on_recording(people, tmp_path, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)
    says(alice, "before")
    rows = status(alice).rows
    monkeypatch.setenv("ZEROCHAT_HOME", str(alice.places.data.parent.parent))
    assert main(["--profile", "alice", "backup", str(tmp_path / "copy.tar")]) == 0
    alice.sleep()
    assert main(["--profile", "again", "restore", str(tmp_path / "copy.tar")]) == 0
    again = Person.__new__(Person)
    again.places, again.name = places("again", {"ZEROCHAT_HOME": os.environ["ZEROCHAT_HOME"]}), "again"
    again.wake()
    try:
        assert status(again).recording and status(again).rows >= rows > 0
        until(lambda: any(member.connection == "connected" for member in again.client.members("friends")), "bob")
        until(lambda: len(of(again, View)) > 1, "who is in, as it begins anew")
    finally:
        again.sleep()


# --- who may ask, and for what ----------------------------------------------------------------------------------------


def test_what_forbids_it_forbids_recording_and_hides_nothing_from_its_owner(people, monkeypatch):
    """Whoever may open the control socket owns the profile: 0600, and the same user (`agent/api/server.py`)."""
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)
    says(alice, "before")
    alice.sleep()
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    alice.wake()
    assert stat.S_IMODE(alice.places.socket.stat().st_mode) == 0o600
    before = kept(alice)
    names = collection.names(alice.client.call)
    assert any(isinstance(row, Send) for row in before) and any(one.did for one in names.values())
    says(alice, "not on record")
    assert kept(alice) == before, "nothing is recorded"
    with pytest.raises(AgentError) as caught:
        alice.client.call("telemetry_set", on=True, consent=status(alice).consent)
    assert caught.value.code == "TelemetryForbidden"
    assert not alice.client.call("telemetry_set", on=False).on, "to take it back is always allowed"
    assert alice.client.call("telemetry_delete").deleted == len(before)
    assert kept(alice) == [] and collection.names(alice.client.call) == {}


# --- joins ------------------------------------------------------------------------------------------------------------


def joins(person: Person) -> list[Join]:
    return of(person, Join)


def test_a_join_says_how_long_the_line_is(people):
    alice, bob, carol = people("alice", "bob", "carol")
    record(alice, bob, carol)
    meet(alice, bob, carol)
    for joiner in (bob, carol):
        rows = joins(joiner)
        whole = next(row for row in rows if row.phase == "whole")
        (trip,) = {row.rtt_us for row in rows}
        assert trip is not None and 0 < 3 * trip <= whole.us + 3
        assert {row.phase for row in rows} == {"request", "view", "exchanges", "whole"}
        assert {row.connected for row in rows} == {False}
    assert {row.connected for row in joins(alice)} == {False}
    assert {row.phase for row in joins(alice)} == {"request", "announce", "exchanges", "whole"}


def test_a_join_says_whether_its_members_were_connected_before(people):
    """In another group; and its links ride on those connections, which is no round trip."""
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob)
    record(alice, bob, carol)
    alice.client.new("known")
    bob.client.join(alice.client.invite("known").url)
    until(lambda: all(any(row.phase == "whole" for row in joins(one)) for one in (alice, bob)), "both ends")
    for person in (alice, bob):
        assert {row.connected for row in joins(person)} == {True}
    whole = next(row for row in joins(bob) if row.phase == "whole")
    assert whole.rtt_us is None or 0 < 3 * whole.rtt_us <= whole.us + 3
    carol.client.subscribe()
    carol.client.join(alice.client.invite("known").url)
    until(lambda: any(row.phase == "whole" for row in joins(carol)), "a stranger's join")
    assert {row.connected for row in joins(carol)} == {False}
    until(lambda: len({row.attempt for row in joins(alice)}) == 2, "the acceptor's word")
    assert [row.connected for row in joins(alice) if row.phase == "whole"] == [True, False]


def test_joins_that_fail_and_that_are_given_up_are_told_apart(people):
    alice, bob = people("alice", "bob")
    record(alice, bob)
    alice.client.new("friends")
    bob.client.subscribe()
    bob.client.join(alice.client.invite("friends").url, name="alice")  # who is there already
    until(lambda: joins(bob), "the failure")
    assert {(row.role, row.outcome, row.group, row.connected) for row in joins(bob)} == {("joiner", "failed", 0, False)}
    assert joins(bob)[-1].phase == "whole" and joins(alice) == []
    open_ = alice.client.invite("friends")
    alice.sleep()
    bob.client.join(open_.url)
    bob.client.cancel()
    until(lambda: {row.outcome for row in joins(bob)} == {"failed", "cancelled"}, "giving it up")
    assert len({row.attempt for row in joins(bob)}) == 2
    alice.wake()


# --- mail -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_comes_by_mail_is_recorded_as_that(behind: list[Any]):
    record(*behind)
    texts = {person.name: "x" * (100 + number) for number, person in enumerate(behind)}
    for person in behind:
        says(person, texts[person.name])
    ways = {
        person.name: {row.plain_b: row.path for row in of(person, Recv) if row.kind == "message"} for person in behind
    }
    size = {name: len(text) for name, text in texts.items()}
    assert ways["bob"][size["alice"]] == "mediator" == ways["alice"][size["bob"]]
    assert ways["carol"] == {size["alice"]: "direct", size["bob"]: "direct"}
    assert ways["alice"][size["carol"]] == "direct" == ways["bob"][size["carol"]]
    sent = {person.name: {row.path for row in of(person, Send)} for person in behind}
    assert sent == {"alice": {"mixed"}, "bob": {"mixed"}, "carol": {"direct"}}
    for person, expected in zip(behind, ({"direct", "mediator"}, {"direct", "mediator"}, {"direct"}), strict=True):
        assert {row.path for row in of(person, Ack)} == expected
