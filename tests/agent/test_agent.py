"""Whole agents over real sockets on loopback: journal, transport, core and control socket together."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from zerochat.agent import loop
from zerochat.agent.api.client import AgentError, connect
from zerochat.agent.loop import AgentThread
from zerochat.agent.storage.journal import DiskFull, Journal
from zerochat.agent.storage.paths import places
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.demo import run_script
from zerochat.errors import Malformed
from zerochat.group.effects import Fetch, LookUp, Recall
from zerochat.group.tlog.lookups import Piece
from zerochat.rpc import Event

DEADLINE_S = 30.0


def until(condition, what, within_s=DEADLINE_S):
    """Wait for a condition; fail with its name when it does not come."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)
    return found


class Person:
    """A profile with its agent thread and a client of it."""

    def __init__(self, folder, name):
        self.places = places(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(self.places, name, None)
        self.name = name

    def wake(self):
        self.thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1")
        self.thread.start()
        self.client = connect(self.places, "test")
        return self

    def sleep(self):
        self.client.close()
        self.thread.stop()
        assert not self.thread.is_alive()

    def texts(self, group="friends"):
        return [e.body["text"] for e in self.client.history(group, limit=500).events if e.type == "message"]

    def ids(self, group="friends"):
        return [e.id for e in self.client.history(group, limit=500).events]


@pytest.fixture
def people(tmp_path):
    awake = []

    def make(*names):
        awake.extend(Person(tmp_path, name).wake() for name in names)
        return awake[-len(names) :]

    yield make
    for person in awake:
        with contextlib.suppress(Exception):
            person.sleep()


def meet(host, *guests, group="friends"):
    host.client.new(group)
    for guest in guests:
        guest.client.subscribe()
        guest.client.join(host.client.invite(group).url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.groups()), "joining")
    everybody = [host, *guests]
    until(
        lambda: all(
            m.connection in ("self", "connected") and m.view_agrees is not False
            for person in everybody
            for m in person.client.members(group)
        ),
        "meeting",
    )


@pytest.mark.slow
def test_two_people_talk_and_both_have_everything_after_a_restart(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    for n in range(5):
        report = alice.client.wait("friends", alice.client.send("friends", f"a{n}").id)
        assert (report.complete, report.delivered, report.of) == (True, 1, 1)
        assert bob.client.wait("friends", bob.client.send("friends", f"b{n}").id).complete
    before = alice.ids()
    assert before == bob.ids() and len(before) == 12
    alice.sleep()
    bob.sleep()
    alice.wake()
    bob.wake()
    assert alice.ids() == bob.ids() == before
    sent = bob.client.send("friends", "again")
    assert bob.client.wait("friends", sent.id).complete, "reconnected without a new invitation"
    assert alice.ids() == bob.ids()


def test_what_is_said_while_somebody_is_away_reaches_it_later(people):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    carol.sleep()
    sent = [alice.client.send("friends", f"while you were away {n}") for n in range(100)]
    assert alice.client.wait("friends", sent[-1].id, count=1).delivered == 1
    assert not alice.client.wait("friends", sent[-1].id, timeout_s=0.1).complete
    carol.wake()
    assert alice.client.wait("friends", sent[-1].id).complete
    assert carol.texts() == alice.texts() == bob.texts()


def test_an_agent_that_moves_to_other_ports_is_found_again(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    was = bob.client.status().pair
    bob.sleep()
    with Journal.open(bob.places.journal, unlock(bob.places, None)) as journal:
        for name in ("pair_port", "queue_port"):
            journal.meta_set(name, b"0")
    bob.wake()
    assert bob.client.status().pair != was
    assert alice.client.wait("friends", alice.client.send("friends", "where are you?").id).complete
    assert bob.client.wait("friends", bob.client.send("friends", "here").id).complete


@pytest.mark.slow
def test_a_full_disk_loses_nothing(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    commit, full = Journal.commit, {bob.places.journal}

    def limited(journal, *rest):
        if journal.path in full:
            raise DiskFull(path=journal.path)
        commit(journal, *rest)

    monkeypatch.setattr(Journal, "commit", limited)
    with pytest.raises(AgentError) as caught:
        bob.client.send("friends", "no room for this")
    assert caught.value.code == "DiskFull"
    sent = alice.client.send("friends", "did you get this?")
    assert not alice.client.wait("friends", sent.id, timeout_s=1.5).complete, (
        "nothing is acknowledged that is not on disk"
    )
    assert "friends" in [g.name for g in bob.client.groups()]
    assert bob.client.status().warning
    full.clear()
    assert alice.client.wait("friends", sent.id).complete
    assert bob.client.wait("friends", bob.client.send("friends", "now there is").id).complete
    assert bob.texts() == alice.texts() == ["did you get this?", "now there is"]
    assert not bob.client.status().warning


def test_leaving_does_not_make_an_undelivered_message_delivered(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    bob.sleep()
    sent = alice.client.send("friends", "bob?")
    alice.client.leave("friends")
    report = alice.client.wait("friends", sent.id, timeout_s=0.5)
    assert (report.delivered, report.of, report.complete) == (0, 1, False)


def test_text_that_does_not_fit_is_refused_in_words(people):
    (alice,) = people("alice")
    alice.client.new("friends")
    for text in ("x" * 65_537, "\n" * 60_000, "\x01" * 20_000):
        with pytest.raises(AgentError) as caught:
            alice.client.send("friends", text)
        assert caught.value.code == "PostTooLong"
    alice.client.send("friends", "x" * 65_536)
    assert alice.texts() == ["x" * 65_536]


@pytest.mark.slow
def test_a_subscriber_hears_every_event_once_and_in_order(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    with connect(bob.places, "tail") as tail:
        tail.subscribe(since=0)
        for n in range(300):
            alice.client.send("friends", f"{n}")
        heard = []
        for news in tail.news(DEADLINE_S):
            if isinstance(news.item, Event):
                heard.append(news.item)
            if len(heard) == 302:
                break
    assert [e.body["text"] for e in heard if e.type == "message"] == [str(n) for n in range(300)]
    assert [e.seq for e in heard] == sorted({e.seq for e in heard})
    assert [e.replayed for e in heard[:2]] == [True, True]


@pytest.mark.slow
def test_the_demonstration_delivers_everything():
    said = []
    assert run_script(said.append) == 0
    assert said[-1].startswith("9 messages, 0 missing; the order is the same")


# --- as a person at a shell would, with the processes killed ---------------------------------------------------------


class Shell:
    def __init__(self, home):
        self.environ = {**os.environ, "ZEROCHAT_HOME": str(home), "PYTHONUNBUFFERED": "1"}
        self.agents = {}

    def __call__(self, profile, *words, stdin="", code=0):
        done = subprocess.run(
            [sys.executable, "-m", "zerochat", "--profile", profile, *words],
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    def agent(self, profile):
        process = subprocess.Popen(
            [sys.executable, "-m", "zerochat", "--profile", profile, "agent", "--listen", "127.0.0.1"],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        assert process.stdout.readline(), "the agent says when it is ready"
        self.agents[profile] = process

    def kill(self, profile, how=signal.SIGKILL):
        process = self.agents.pop(profile)
        process.send_signal(how)
        process.wait(20)
        process.stdout.close()
        return process.returncode


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    for profile in list(shell.agents):
        shell.kill(profile)


@pytest.mark.slow
def test_two_profiles_by_the_command_line_alone_and_again_after_kill_9(shell):
    for name in ("alice", "bob"):
        shell(name, "init", "--name", name)
        shell(name, "status", code=6)
        shell.agent(name)
    shell("alice", "new", "friends")
    link = shell("alice", "invite", "friends", "--format", "url").strip()
    assert "\n" not in link
    shell("bob", "join", "-", stdin=link)
    shell("alice", "send", "friends", "-m", "hello bob", "--wait", "all", "--timeout", "30")
    shell("bob", "send", "friends", "--wait", "all", "--timeout", "30", stdin="hello alice\nfrom a pipe\n")

    def history(name):
        lines = shell(name, "history", "friends", "--format", "jsonl").splitlines()
        return [(e["id"], e["type"], e["author"]["did"], e["lamport"], e["body"]) for e in map(json.loads, lines)]

    before = history("alice")
    assert before == history("bob")
    assert [e[1] for e in before] == ["group_created", "member_joined", "message", "message"]
    assert [e[4].get("text") for e in before[2:]] == ["hello bob", "hello alice\nfrom a pipe"]
    for name in ("alice", "bob"):
        assert shell.kill(name) == -signal.SIGKILL
    for name in ("alice", "bob"):
        shell.agent(name)
    assert history("alice") == history("bob") == before
    shell("bob", "send", "friends", "-m", "still here", "--wait", "all", "--timeout", "30")
    assert history("alice") == history("bob") != before
    assert shell.kill("alice", signal.SIGTERM) == 0


def test_an_agent_that_is_kept_busy_looks_after_its_cases_all_the_same(monkeypatch):
    """Whoever accuses falsely could ask it something all the time until the time for an answer is over."""
    bare: Any = object.__new__(AgentThread)
    bare._agent, bare._clock, bare._plead_by = SimpleNamespace(leap=0), SimpleNamespace(now=lambda: 5), 0.0
    reviews, now = [], [100.0]
    bare._counsel = SimpleNamespace(review=lambda agent, at: reviews.append(at) or ["answer"])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bare._pending = ["something else"]
    bare._plead()
    assert bare._pending == ["something else", "answer"]
    bare._plead()
    assert len(reviews) == 1, "not each time"
    now[0] += loop.PLEAD_S
    bare._plead()
    assert len(reviews) == 2
    bare._pending = []
    bare._plead()
    assert len(reviews) == 3, "at once where there is nothing else to do"


@pytest.mark.parametrize("fault", [Malformed(why="bytes"), DiskFull(path="x"), ValueError("bytes")])
def test_no_fault_in_a_case_or_in_what_a_peer_asks_ends_the_agent(fault, caplog):
    def fails(*_):
        raise fault

    bare: Any = object.__new__(AgentThread)
    bare._agent, bare._clock, bare._plead_by = SimpleNamespace(leap=0), SimpleNamespace(now=lambda: 5), 0.0
    bare._log, bare._pending = logging.getLogger("bare"), []
    bare._counsel, bare._shares = SimpleNamespace(review=fails), SimpleNamespace(fetch=fails)
    bare._journal = SimpleNamespace(logbook=SimpleNamespace(answer=fails), chain=fails)
    bare._plead()
    bare._look_up(LookUp("group", "origin", Piece("", 0, 1)))
    bare._recall(Recall("group", "member", "author", 0, 1))
    bare._fetch(Fetch("group", "member", "thread", (), back=True, limit=1, joined=0, rules=()))
    assert not bare._pending and len(caplog.records) == 4
