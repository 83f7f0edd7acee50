"""A group of whole agents of which two only dial out: real sockets, a real mediator in its own process, and kill -9."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from tests.agent.test_agent import until
from zerochat.agent.api.client import connect
from zerochat.agent.loop import AgentThread
from zerochat.agent.storage.paths import places
from zerochat.agent.storage.profiles import create_profile, unlock


class MediatorProcess:
    """`zerochat mediator` on loopback; it can be killed and comes back with what it had."""

    def __init__(self, folder, name="mediator", *options):
        self.home = folder / name
        self.port = "0"
        self.start(*options)

    def start(self, *options):
        command = [sys.executable, "-m", "zerochat", "mediator", "--format", "jsonl"]
        self.process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self.port}", *options],
            env={**os.environ, "ZEROCHAT_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        ready = json.loads(self.process.stdout.readline())
        assert ready["event"] == "ready"
        self.link, self.port = ready["link"], ready["uri"].rpartition(":")[2].strip("/")
        self.rest = []  # of what it says: a full pipe must not stop it
        self.reader = threading.Thread(target=self.rest.extend, args=(self.process.stdout,), daemon=True)
        self.reader.start()

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(10)
        self.reader.join(10)
        self.process.stdout.close()

    def stop(self):
        self.kill(signal.SIGTERM)

    def ended(self):
        """Stop it: what it has counted since it was started."""
        self.stop()
        return [event["counts"] for event in map(json.loads, self.rest) if event["event"] == "counts"][-1]


class Person:
    """A profile with its agent thread and a client of it."""

    def __init__(self, folder, name, *, hidden):
        self.places = places(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(self.places, name, None)
        self.name, self.hidden = name, hidden
        self.wake()

    def wake(self):
        self.thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1", hidden=self.hidden)
        self.thread.start()
        self.client = connect(self.places, "test")

    def sleep(self):
        self.client.close()
        self.thread.stop()

    def events(self):
        """All of them, page by page."""
        events, more = [], True
        while more:
            page = self.client.history("friends", limit=500, before=events[0].id if events else None)
            events, more = [*page.events, *events], page.more
        return events

    def texts(self):
        return [event.body["text"] for event in self.events() if event.type == "message"]

    def reaches(self):
        return {member.nick: member.via for member in self.client.members("friends") if member.nick != self.name}


@pytest.fixture
def mediator(tmp_path):
    process = MediatorProcess(tmp_path)
    yield process
    process.stop()


@pytest.fixture
def people(tmp_path, mediator):
    """Alice and Bob, behind the mediator, and Carol, before it; all of them in one group of Alice's."""
    everybody = []
    try:
        for name, hidden in (("alice", True), ("bob", True), ("carol", False)):
            everybody.append(Person(tmp_path, name, hidden=hidden))
        alice, bob, carol = everybody
        for person in (alice, bob):
            person.client.call("connect", invitation=mediator.link, mediate=True)
            until(lambda person=person: person.client.call("connections")[0].mediator == "granted", "mediation")
        alice.client.new("friends")
        for guest in (bob, carol):
            guest.client.join(alice.client.invite("friends").url)
            until(lambda guest=guest: any(g.state == "active" for g in guest.client.groups()), "joining")
        until(
            lambda: (
                all(
                    member.connection in ("self", "connected") and member.view_agrees is not False
                    for person in everybody
                    for member in person.client.members("friends")
                )
                and all(len(person.client.members("friends")) == 3 for person in everybody)
            ),
            "meeting",
        )
        yield everybody
    finally:
        for person in everybody:
            with contextlib.suppress(Exception):
                person.sleep()


@pytest.mark.slow
def test_everybody_is_reached_and_nobody_needs_to_know_how(people):
    alice, bob, carol = people
    assert alice.reaches() == {"bob": "mediator", "carol": "link"}
    assert carol.reaches() == {"alice": "link", "bob": "link"}, "they dial her"
    for person in people:
        sent = person.client.send("friends", f"hello from {person.name}")
        report = person.client.wait("friends", sent.id)
        assert (report.complete, report.delivered) == (True, 2)
    assert alice.texts() == bob.texts() == carol.texts()


@pytest.mark.slow
def test_the_mediator_signs_that_it_keeps_what_is_for_whoever_is_away(people, mediator):
    alice, bob, _carol = people
    bob.sleep()
    sent = alice.client.send("friends", "for when you are back")

    def states():
        return {one.nick: one for one in alice.client.delivery("friends", sent.id).members}

    until(lambda: (states()["bob"].state, states()["carol"].state) == ("held", "delivered"), "the receipt", 20)
    told = states()["bob"]
    assert not told.delivered and told.via == "mediator"
    assert datetime.fromisoformat(told.held_until) > datetime.now(UTC) + timedelta(days=1)
    bob.wake()
    until(lambda: states()["bob"].state == "delivered", "its own word", 20)
    assert states()["bob"].held_until is None and bob.texts() == ["for when you are back"]
    assert mediator.ended()["receipts"]
    mediator.start()


@pytest.mark.slow
@pytest.mark.parametrize("count", [90, pytest.param(1000, marks=pytest.mark.long)])
def test_nothing_is_lost_and_nothing_comes_twice_when_the_mediator_is_killed(people, mediator, count):
    said = []
    for number in range(count):
        if number == count // 2:
            mediator.kill()
        if number == count * 2 // 3:
            mediator.start()
        person = people[number % 3]
        text = f"{person.name} says {number}"
        said.append(text)
        person.client.send("friends", text)
    for person in people:
        until(lambda person=person: len(person.texts()) >= count, f"delivery to {person.name}", 120)
    for person in people:
        assert sorted(person.texts()) == sorted(said)
    ids = [[event.id for event in person.events()] for person in people]
    assert ids[0] == ids[1] == ids[2]
    last = people[0].client.send("friends", "and all is well")
    assert people[0].client.wait("friends", last.id).complete
    mediator.stop()
    kept = b"".join(path.read_bytes() for path in mediator.home.rglob("*") if path.is_file())
    secrets = [b"says", b"did:", b"protected", b"didcomm", b"friends", b"ciphertext"]
    readable = [word for word in secrets if word in kept.replace(mediator.link.encode(), b"")]
    assert not readable, "the mediator's disk must hold nothing that can be read"
    mediator.start()


# --- a chain of two mediators ---------------------------------------------------------------------------------------


@pytest.fixture
def chain(tmp_path):
    """Two mediators in a row: others write to the inner one over the outer one, from which it fetches."""
    outer = MediatorProcess(tmp_path, "outer")
    inner = MediatorProcess(tmp_path, "inner", "--behind", outer.link)
    yield outer, inner
    for each in (inner, outer):
        each.stop()


@pytest.fixture
def pair(tmp_path, chain):
    """Alice, who can be dialled by nobody and has the outer mediator, and Bob, who has the inner one."""
    everybody = []
    try:
        for name, mediator in zip(("alice", "bob"), chain, strict=True):
            person = Person(tmp_path, name, hidden=True)
            everybody.append(person)
            person.client.call("connect", invitation=mediator.link, mediate=True)
            until(lambda person=person: person.client.call("connections")[0].mediator == "granted", "mediation")
        alice, bob = everybody
        alice.client.new("friends")
        bob.client.join(alice.client.invite("friends").url)
        until(lambda: any(group.state == "active" for group in bob.client.groups()), "joining")
        until(lambda: all(len(person.client.members("friends")) == 2 for person in everybody), "meeting")
        yield everybody
    finally:
        for person in everybody:
            with contextlib.suppress(Exception):
                person.sleep()


@pytest.mark.slow
def test_two_mediators_in_a_row_and_each_of_them_is_killed(pair, chain):
    (alice, bob), (outer, inner) = pair, chain
    assert alice.reaches() == {"bob": "mediator"} and bob.reaches() == {"alice": "mediator"}
    said = []
    for number in range(60):
        match number:
            case 10:
                outer.kill()
            case 20:
                until(lambda: alice.reaches()["bob"] != "mediator", "noticing that it is gone")
                assert not set(said[10::2]) & set(bob.texts()), "there is no other way"
                outer.start()
            case 35:
                inner.kill()
            case 45:
                inner.start()
        person = pair[number % 2]
        said.append(f"{person.name} says {number}")
        person.client.send("friends", said[-1])
    for person in pair:
        until(lambda person=person: len(person.texts()) >= len(said), f"delivery to {person.name}", 120)
        assert sorted(person.texts()) == sorted(said)
    last = alice.client.send("friends", "and all is well")
    assert alice.client.wait("friends", last.id).complete
    kept = [mediator.ended()["kept"] for mediator in (inner, outer)]
    assert all(kept), "everything for Bob went through both"
    for mediator in chain:
        mediator.start()
