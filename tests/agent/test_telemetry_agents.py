"""Telemetry in whole agents: failures stop recording only; failed joins, mail, access control."""

import contextlib
import os
import stat
import sys
import time
from typing import Any

import apsw
import pytest

from tests.support import agents, mediated_agents
from tests.support.agents import Person, meet, until
from tests.support.telemetry_records import kept, of, record
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.storage.journal import DiskFull, Journal, JournalDamaged, JournalInUse
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.telemetry import collection, handlers, message_records, recorder
from zerochat.agent.telemetry.schema import Ack, Join, Recv, Send, View
from zerochat.agent.telemetry.store import TelemetryStore
from zerochat.cli import main
from zerochat.rpc.telemetry import TelemetryStatus

people = agents.people
mediator = mediated_agents.mediator
behind = mediated_agents.people
DAY_S = 86_400


def says(person: Person, text: str, group: str = "friends") -> None:
    """The chat still works."""
    assert person.client.wait_for_delivery(group, person.client.send_message(group, text).id).complete


def status(person: Person) -> TelemetryStatus:
    found: TelemetryStatus = person.client.call("get_telemetry")
    return found


def forgotten(person: Person, group: str) -> bool:
    """Forget the group, unless the others do not know yet that it was left."""
    with contextlib.suppress(AgentError):
        person.client.forget_group(group)
    return group not in [one.id for one in person.client.list_groups()]


def lives(person: Person) -> bool:
    return person.thread.is_alive() and person.thread.failure is None


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "error", "said"),
    [
        (recorder.Recorder, "_records_of", KeyError("a secret"), "an internal error"),
        (recorder.Recorder, "observe", MemoryError(), "an internal error"),
        (message_records.Arrivals, "received", RecursionError("a secret"), "an internal error"),
        (TelemetryStore, "number", JournalDamaged(path="journal.db", why="a page"), "damaged"),
        (TelemetryStore, "append", JournalInUse(path="journal.db"), "open"),
        (TelemetryStore, "_evict", apsw.FullError("a secret"), "full"),
        (TelemetryStore, "_evict", apsw.SQLError("a secret"), "an internal error"),
    ],
)
def test_recorder_failure_stops_recording_with_a_reason(people, monkeypatch, owner, name, error, said):
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
    assert [event.body["text"] for event in bob.client.get_history("friends", limit=4).events][-1] == "after"
    again = alice.client.call("set_telemetry", on=True, consent=told.consent)
    assert (again.recording, again.fault) == (True, "")
    says(alice, "on record")
    assert of(alice, Send)[-1].plain_b == len("on record")


def test_failure_before_the_recorder_is_contained(people, monkeypatch):
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
    assert "an internal error" in status(alice).fault and lives(alice)


def test_failing_telemetry_does_not_affect_the_start(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)
    telemetry = Journal.telemetry

    def damaged(journal: Journal) -> TelemetryStore:
        raise JournalDamaged(path=journal.path, why="a page fails authentication")

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
        with pytest.raises(AgentError, match="Internal error"):
            status(alice)
        says(alice, "and still")
    assert lives(alice) and not status(alice).recording and Journal.telemetry is telemetry
    alice.sleep()
    alice.wake()
    assert status(alice).recording, "the next start begins it again"


def test_failures_at_reload_and_stop_are_contained(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice, bob)

    def fails(*rest: object) -> None:
        raise DiskFull(path="journal.db")

    monkeypatch.setattr(handlers, "retention_limits", fails)
    alice.client.call("change_setting", name="telemetry.days", value="3")
    alice.thread.reload()
    until(lambda: not status(alice).recording, "the end of recording")
    assert "full" in status(alice).fault
    says(alice, "none the less")
    monkeypatch.setattr(recorder.Recorder, "close", fails)
    bob.sleep()
    assert bob.thread.failure is None
    bob.wake()
    assert lives(alice) and lives(bob)


def test_a_clock_change_spoils_no_record(people, monkeypatch):
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


def test_left_and_forgotten_groups_leave_no_name(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    alice.client.create_group("others")
    bob.client.join_group(alice.client.create_invitation("others").url)
    until(lambda: [group.state for group in bob.client.list_groups()] == ["active"] * 2, "joining the others")
    record(alice, bob)
    gone = {group.id for group in alice.client.list_groups() if group.name == "others"}
    says(alice, "the last word", "others")
    for person in (alice, bob):
        (group,) = [group.id for group in person.client.list_groups() if group.name == "others"]
        person.client.leave_group(group)
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
    pages = collection.batches(alice.client.call, collection.last_batch(alice.client.call))
    assert next(pages)
    monkeypatch.setattr(recorder, "MEBIBYTE", 10)  # 640 bytes are kept: the oldest are deleted during the read
    for number in range(12):
        says(alice, f"more {number}")
    assert all(isinstance(rows, list) for rows in pages)
    told = status(alice)
    assert told.recording and 0 < told.bytes <= 640
    for number in range(3):  # whatever waits to be written when it is turned off, is
        says(alice, f"{number} of those on record")
        alice.client.call("set_telemetry", on=False)
        says(alice, "off the record")
        record(alice)
    monkeypatch.setattr(recorder, "MEBIBYTE", 1 << 20)
    alice.client.call("delete_telemetry")
    says(alice, "x" * 77)
    alice.client.call("set_telemetry", on=False)
    says(alice, "off the record")
    assert [row.plain_b for row in of(alice, Send)] == [77]
    assert lives(alice) and lives(bob)


def test_restored_profile_continues_recording(people, tmp_path, monkeypatch):
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
    again.places, again.name = profile_paths("again", {"ZEROCHAT_HOME": os.environ["ZEROCHAT_HOME"]}), "again"
    again.wake()
    try:
        assert status(again).recording and status(again).rows >= rows > 0
        until(lambda: any(member.connection == "connected" for member in again.client.list_members("friends")), "bob")
        until(lambda: len(of(again, View)) > 1, "who is in, as it begins anew")
    finally:
        again.sleep()


# --- access -----------------------------------------------------------------------------------------------------------


def test_veto_hides_nothing_from_the_owner(people, monkeypatch):
    """Access to the control socket means ownership of the profile: 0600, and the same user (`agent/api/server.py`)."""
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
        alice.client.call("set_telemetry", on=True, consent=status(alice).consent)
    assert caught.value.code == "TelemetryForbidden"
    assert not alice.client.call("set_telemetry", on=False).on, "to take it back is always allowed"
    assert alice.client.call("delete_telemetry").deleted == len(before)
    assert kept(alice) == [] and collection.names(alice.client.call) == {}


# --- joins ------------------------------------------------------------------------------------------------------------


def joins(person: Person) -> list[Join]:
    return of(person, Join)


def test_join_records_the_round_trip_time(people):
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


def test_join_records_earlier_connections(people):
    """In another group; and its links ride on those connections, which is no round trip."""
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob)
    record(alice, bob, carol)
    alice.client.create_group("known")
    bob.client.join_group(alice.client.create_invitation("known").url)
    until(lambda: all(any(row.phase == "whole" for row in joins(one)) for one in (alice, bob)), "both ends")
    for person in (alice, bob):
        assert {row.connected for row in joins(person)} == {True}
    whole = next(row for row in joins(bob) if row.phase == "whole")
    assert whole.rtt_us is None or 0 < 3 * whole.rtt_us <= whole.us + 3
    carol.client.subscribe()
    carol.client.join_group(alice.client.create_invitation("known").url)
    until(lambda: any(row.phase == "whole" for row in joins(carol)), "a stranger's join")
    assert {row.connected for row in joins(carol)} == {False}
    until(lambda: len({row.attempt for row in joins(alice)}) == 2, "the acceptor's word")
    assert [row.connected for row in joins(alice) if row.phase == "whole"] == [True, False]


def test_failed_and_cancelled_joins_differ(people):
    alice, bob = people("alice", "bob")
    record(alice, bob)
    alice.client.create_group("friends")
    bob.client.subscribe()
    bob.client.join_group(alice.client.create_invitation("friends").url, name="alice")  # present members
    until(lambda: joins(bob), "the failure")
    assert {(row.role, row.outcome, row.group, row.connected) for row in joins(bob)} == {("joiner", "failed", 0, False)}
    assert joins(bob)[-1].phase == "whole" and joins(alice) == []
    open_ = alice.client.create_invitation("friends")
    alice.sleep()
    bob.client.join_group(open_.url)
    bob.client.cancel_join()
    until(lambda: {row.outcome for row in joins(bob)} == {"failed", "cancelled"}, "giving it up")
    assert len({row.attempt for row in joins(bob)}) == 2
    alice.wake()


# --- mail -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_mediator_mail_is_recorded_as_mediator_path(behind: list[Any]):
    record(*behind)
    texts = {person.name: "x" * (100 + number) for number, person in enumerate(behind)}
    for person in behind:
        says(person, texts[person.name])
    ways = {
        person.name: {row.plain_b: row.path for row in of(person, Recv) if row.kind == "message"} for person in behind
    }
    size = {name: len(text) for name, text in texts.items()}
    assert ways["bob"][size["alice"]] == "mediator" == ways["alice"][size["bob"]]
    linked = {"direct", "retransmission"}  # the first copy may come before the queue is subscribed
    assert set(ways["carol"].values()) <= linked and ways["carol"].keys() == {size["alice"], size["bob"]}
    assert {ways["alice"][size["carol"]], ways["bob"][size["carol"]]} <= linked
    sent = {person.name: {row.path for row in of(person, Send)} for person in behind}
    assert sent == {"alice": {"mixed"}, "bob": {"mixed"}, "carol": {"direct"}}
    for person, expected in zip(behind, ({"direct", "mediator"}, {"direct", "mediator"}, {"direct"}), strict=True):
        assert {row.path for row in of(person, Ack)} == expected
