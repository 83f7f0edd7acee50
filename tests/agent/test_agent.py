"""Whole agents over real sockets on loopback: journal, transport, core and control socket together."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import DEADLINE_S, meet
from zerochat.agent import effects
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.deferred_inputs import RETRY_MS, DeferredConnectivity
from zerochat.agent.effects import EffectExecutor
from zerochat.agent.fair_queue import FairQueue
from zerochat.agent.input_sources import source_of
from zerochat.agent.loop import (
    DISPUTE_REVIEW_S,
    QUEUE_BYTES_MAX,
    QUEUE_MAX,
    READ_MIN,
    AgentLoop,
)
from zerochat.agent.network.zmq.transport import INPUTS_MAX
from zerochat.agent.storage.journal import DiskFull, Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.demo import run_script
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed
from zerochat.group.effects import QueryTlog, ReadHistory, ReadOwnEvents
from zerochat.group.inputs import HistoryRead, LinkDown, LinkUp, Received, TimerFired, WebReceived, WebSocketUp
from zerochat.group.tlog.queries import ExtensionQuery
from zerochat.rpc import Event

people = agents.people


@pytest.mark.slow
def test_two_users_talk_and_restart_without_loss(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    for n in range(5):
        report = alice.client.wait_for_delivery("friends", alice.client.send_message("friends", f"a{n}").id)
        assert (report.complete, report.delivered, report.of) == (True, 1, 1)
        assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", f"b{n}").id).complete
    before = alice.ids()
    assert before == bob.ids() and len(before) == 12
    alice.sleep()
    bob.sleep()
    alice.wake()
    bob.wake()
    assert alice.ids() == bob.ids() == before
    sent = bob.client.send_message("friends", "again")
    assert bob.client.wait_for_delivery("friends", sent.id).complete, "reconnected without a new invitation"
    assert alice.ids() == bob.ids()


def test_messages_sent_during_an_absence_arrive_later(people):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    carol.sleep()
    sent = [alice.client.send_message("friends", f"while you were away {n}") for n in range(100)]
    assert alice.client.wait_for_delivery("friends", sent[-1].id, count=1).delivered == 1
    assert not alice.client.wait_for_delivery("friends", sent[-1].id, timeout_s=0.1).complete
    carol.wake()
    assert alice.client.wait_for_delivery("friends", sent[-1].id).complete
    assert carol.texts() == alice.texts() == bob.texts()


def test_an_agent_on_new_ports_is_reconnected(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    was = bob.client.get_status().pair
    bob.sleep()
    with Journal.open(bob.places.journal, unlock(bob.places, None)) as journal:
        for name in ("pair_port", "queue_port"):
            journal.meta_set(name, b"0")
    bob.wake()
    assert bob.client.get_status().pair != was
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "where are you?").id).complete
    assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "here").id).complete


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
        bob.client.send_message("friends", "no room for this")
    assert caught.value.code == "DiskFull"
    sent = alice.client.send_message("friends", "did you get this?")
    assert not alice.client.wait_for_delivery("friends", sent.id, timeout_s=1.5).complete, (
        "nothing is acknowledged that is not on disk"
    )
    assert "friends" in [g.name for g in bob.client.list_groups()]
    assert bob.client.get_status().warning
    full.clear()
    assert alice.client.wait_for_delivery("friends", sent.id).complete
    assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "now there is").id).complete
    assert bob.texts() == alice.texts() == ["did you get this?", "now there is"]
    assert not bob.client.get_status().warning


def test_leaving_does_not_make_an_undelivered_message_delivered(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    bob.sleep()
    sent = alice.client.send_message("friends", "bob?")
    alice.client.leave_group("friends")
    report = alice.client.wait_for_delivery("friends", sent.id, timeout_s=0.5)
    assert (report.delivered, report.of, report.complete) == (0, 1, False)


def test_text_that_does_not_fit_is_refused_with_a_reason(people):
    (alice,) = people("alice")
    alice.client.create_group("friends")
    for text in ("x" * 65_537, "\n" * 60_000, "\x01" * 20_000):
        with pytest.raises(AgentError) as caught:
            alice.client.send_message("friends", text)
        assert caught.value.code == "PostTooLong"
    alice.client.send_message("friends", "x" * 65_536)
    assert alice.texts() == ["x" * 65_536]


@pytest.mark.slow
def test_a_subscriber_gets_every_event_once_and_in_order(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    with connect(bob.places, "tail") as tail:
        tail.subscribe(since=0)
        for n in range(300):
            alice.client.send_message("friends", f"{n}")
        heard = []
        for news in tail.notifications(DEADLINE_S):
            if isinstance(news.params, Event):
                heard.append(news.params)
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
def test_two_profiles_on_the_command_line_survive_kill_9(shell):
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


def bare_executor() -> Any:
    executor: Any = object.__new__(EffectExecutor)
    executor.pending, executor._reads = [], {}
    return executor


def bare_loop(**parts: Any) -> Any:
    loop: Any = object.__new__(AgentLoop)
    loop.agent, loop.clock = SimpleNamespace(clock_offset_ms=0, groups={}), SimpleNamespace(now=lambda: 5)
    loop._review_at = 0.0
    loop.executor = bare_executor()
    for name, part in parts.items():
        setattr(loop, name, part)
    return loop


def test_a_busy_agent_reviews_its_disputes(monkeypatch):
    """A false accuser must not keep it busy until the deadline of its defence."""
    reviews, now = [], [100.0]
    loop = bare_loop(disputes=SimpleNamespace(review=lambda agent, at: reviews.append(at) or ["answer"]))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    loop.executor.pending = ["something else"]
    loop._review_disputes()
    assert loop.executor.pending == ["something else", "answer"]
    loop._review_disputes()
    assert len(reviews) == 1, "not each time"
    now[0] += DISPUTE_REVIEW_S
    loop._review_disputes()
    assert len(reviews) == 2
    loop.executor.pending = []
    loop._review_disputes()
    assert len(reviews) == 3, "at once when idle"


@pytest.mark.parametrize("fault", [Malformed(why="bytes"), DiskFull(path="x"), ValueError("bytes")])
def test_no_fault_in_a_case_or_a_read_ends_the_agent(fault, caplog, monkeypatch):
    monkeypatch.setattr(effects, "READ_S", 60.0)  # a traceback may take longer than a turn has

    def fails(*_):
        raise fault

    log = logging.getLogger("bare")
    loop = bare_loop(log=log, disputes=SimpleNamespace(review=fails))
    loop._review_disputes()
    executor = bare_executor()
    executor.log = log
    executor.history = SimpleNamespace(answer_pull=fails)
    executor.journal = SimpleNamespace(tlog=SimpleNamespace(answer=fails), chain=fails)
    executor._perform(QueryTlog("group", "origin", ExtensionQuery("", 0, 1)))
    executor._perform(ReadOwnEvents("group", "member", "author", 0, 1))
    executor._perform(ReadHistory("group", "member", "thread", (), backwards=True, limit=1, joined=0, rules=()))
    results: list[object] = []
    while executor.busy:
        results += [result for _, result, _ in executor.read(lambda owner: False)]
    assert results == [None] * 3
    assert not loop.executor.busy and len(caplog.records) == 4


def test_members_take_turns_in_reading_the_journal(monkeypatch):
    executor = bare_executor()
    executor.history = SimpleNamespace(answer_pull=lambda asked: (asked.member, asked.thread))
    monkeypatch.setattr(effects, "READ_S", 0.0)
    for member, thread in (("m", "1"), ("m", "2"), ("m", "3"), ("n", "4")):
        executor._perform(ReadHistory("group", member, thread, (), True, 1, 0, ()))
    turns: list[list[object]] = []

    def is_busy(owner):
        return owner[1] == "n" and len(turns) < 2

    while len(turns) < 4:
        turns.append([result for _, result, _ in executor.read(is_busy)])
    assert turns == [[("m", "1")], [("m", "2")], [("n", "4")], [("m", "3")]], "n was busy; one in a turn without time"
    assert not executor.busy


def turning_loop(now, cost_s, **parts):
    """A loop on a clock of the test, whose steps take `cost_s`; the batches that it commits."""
    steps: list[object] = []
    committed: list[list[object]] = []

    def step(each):
        steps.append(each)
        now[0] += cost_s(each)
        return []

    def commit(*_):
        committed.append(steps.copy())
        steps.clear()

    loop = bare_loop(
        handlers=SimpleNamespace(
            prepare_commit=lambda *_: [], committed=lambda *_: None, subscriptions=SimpleNamespace(pending=False)
        ),
        journal=SimpleNamespace(commit=commit),
        history=SimpleNamespace(note_stored=lambda _: None),
        disputes=SimpleNamespace(observe=lambda _: None),
        web=SimpleNamespace(acknowledge=lambda inputs, kept: None),
        recording=SimpleNamespace(on=False, committed=lambda: None),
        restored=False,
        deferred=DeferredConnectivity(),
        _queue=FairQueue(),
        log=logging.getLogger("nowhere"),
        _suspects=deque(),
        _step=step,
        **parts,
    )
    loop.executor.execute = lambda *_: None
    return loop, committed


def served(batch):
    return [each.envelope for each in batch if isinstance(each, Received)]


def test_a_turn_ends_when_its_time_is_up(monkeypatch):
    now = [100.0]
    for clock in ("monotonic", "thread_time"):
        monkeypatch.setattr(time, clock, lambda: now[0])
    transport = SimpleNamespace(poll=lambda *_: ([], []))
    loop, committed = turning_loop(now, lambda each: 0.02 if isinstance(each, Received) else 0, transport=transport)
    loop._put([Received(b"link", letter) for letter in (b"a", b"b", b"c", b"d", b"e")])
    loop._process([])
    assert len(loop._queue) == 2 and [served(batch) for batch in committed] == [[b"a", b"b", b"c"]]


def test_a_member_waits_for_one_step_of_a_flood(monkeypatch):
    """What came in while the flood was being processed is served next, and committed at once."""
    now = [100.0]
    for clock in ("monotonic", "thread_time"):
        monkeypatch.setattr(time, clock, lambda: now[0])
    sockets = [[Received(b"bob", b"hello")], []]
    transport = SimpleNamespace(poll=lambda *_: (sockets.pop(0) if sockets else [], []))
    loop, committed = turning_loop(now, lambda each: 0.006 if isinstance(each, Received) else 0, transport=transport)
    loop._put([Received(b"mallory", b"%d" % number) for number in range(200)])
    loop._process([])
    assert [served(batch) for batch in committed] == [[b"0", b"hello"]]
    loop._process([])
    assert len(served(committed[1])) > 5, "no other source waits"


def test_a_turn_ends_when_a_client_waits(monkeypatch):
    now = [100.0]
    for clock in ("monotonic", "thread_time"):
        monkeypatch.setattr(time, clock, lambda: now[0])
    transport = SimpleNamespace(poll=lambda *_: ([], [7]))
    loop, committed = turning_loop(now, lambda each: 0.006 if isinstance(each, Received) else 0, transport=transport)
    loop._put([Received(b"mallory", b"%d" % number) for number in range(200)])
    loop._process([])
    assert [served(batch) for batch in committed] == [[b"0"]]


def test_something_is_read_however_much_waits():
    asked = []
    transport = SimpleNamespace(poll=lambda *limits: asked.append(limits[1:]) or ([], []))
    loop = bare_loop(transport=transport, _queue=FairQueue())
    for count in (0, INPUTS_MAX, QUEUE_MAX - 1, QUEUE_MAX):
        loop._put([Received(b"mallory", b"x")] * (count - len(loop._queue)))
        loop._poll(0)
    assert [limits[0] for limits in asked] == [INPUTS_MAX, READ_MIN, READ_MIN, 0]
    loop = bare_loop(transport=transport, _queue=FairQueue())
    loop._put([Received(b"mallory", bytes(ENVELOPE_BYTES_MAX))] * (QUEUE_BYTES_MAX // ENVELOPE_BYTES_MAX + 1))
    loop._poll(0)
    assert asked[-1][0] == 0


def test_sources_of_inputs():
    """What a member causes is charged to its link, also what is read from the journal for it."""
    group = SimpleNamespace(links=SimpleNamespace(peers={"did": SimpleNamespace(link=b"link")}))
    agent: Any = SimpleNamespace(groups={"group": group})

    def read(member):
        return HistoryRead("group", member, "", (), False, False)

    link = [Received(b"link", b""), LinkDown(b"link"), read("did")]
    own = [read("gone"), TimerFired("x")]
    web = [WebReceived(b""), WebSocketUp("wss://m")]
    assert [source_of(agent, each) for each in (*link, *own, *web)] == [b"link"] * 3 + ["own"] * 2 + ["web"] * 2


def test_a_change_in_the_queue_is_newer_than_a_deferred_one(monkeypatch):
    """A link came up in a batch that was rolled back, and went down before the queue was served again."""
    now = [100.0]
    for clock in ("monotonic", "thread_time"):
        monkeypatch.setattr(time, clock, lambda: now[0])
    transport = SimpleNamespace(poll=lambda *_: ([], []))
    loop, committed = turning_loop(now, lambda each: 0, transport=transport)
    loop.deferred.put(LinkUp(b"link"))
    loop._put([LinkDown(b"link")])
    loop._process([])
    now[0] += RETRY_MS
    assert LinkDown(b"link") in committed[0] and loop.deferred.pop_due(now[0]) == []
