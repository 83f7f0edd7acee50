"""An internal error outside of the core, as a peer might cause it: the agent goes on, and nothing else is lost."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from tests.support.agents import Person, meet, until
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.disputes.monitor import DisputeMonitor
from zerochat.agent.loop import AgentLoop
from zerochat.agent.network.web_adapter import WebAdapter
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.service.hook_feed import HookFeed
from zerochat.agent.storage.journal import Journal
from zerochat.group.effects import Publish, StoreEvent


@pytest.fixture
def pair(tmp_path) -> Iterator[tuple[Person, Person]]:
    alice, bob = (Person(tmp_path, name).wake() for name in ("alice", "bob"))
    meet(alice, bob)
    yield alice, bob
    for person in (alice, bob):
        person.sleep()


def break_once(monkeypatch, owner, name, fails):
    """Let the method raise while `fails(self, *args)`; how often it did."""
    method, failed = getattr(owner, name), []

    def broken(self, *args, **kwargs):
        if fails(self, *args):
            failed.append(name)
            raise KeyError("a test")
        return method(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, broken)
    return failed


def is_well(person):
    return person.thread.is_alive() and person.thread.failure is None


def exchange(alice, bob, text):
    for one, other in ((alice, bob), (bob, alice)):
        one.client.send_message("friends", f"{text} of {one.name}")
        until(lambda one=one, other=other: f"{text} of {one.name}" in other.texts(), "that it arrives")


GATHERING = [
    (RequestHandlers, "feed"),
    (RequestHandlers, "review"),
    (RequestHandlers, "take_file_posts"),
    (WebAdapter, "take"),
    (AgentLoop, "_watch_clients"),
    (HookFeed, "run"),
]
SENDING = [(RequestHandlers, "notify"), (DisputeMonitor, "observe"), (RequestHandlers, "committed")]


@pytest.mark.parametrize(("owner", "name"), [*GATHERING, *SENDING])
def test_an_error_while_gathering_or_sending_ends_nothing(pair, monkeypatch, owner, name):
    alice, bob = pair
    left = [None] * 3

    def fails(part, *_):
        ours = part is alice.thread.loop or part in vars(alice.thread.loop).values()
        return ours and bool(left) and not left.pop()

    with monkeypatch.context() as patched:
        failed = break_once(patched, owner, name, fails)
        alice.client.send_message("friends", "during it")
        until(lambda: len(failed) == 3 or alice.client.list_groups() is None, "that it fails")
    until(lambda: "during it" in bob.texts(), "that it arrives")
    exchange(alice, bob, "after it")
    assert is_well(alice)


def test_an_error_while_reading_from_the_network_leaves_the_rest_for_later(pair, monkeypatch):
    alice, bob = pair
    left = [None] * 3
    with monkeypatch.context() as patched:
        failed = break_once(
            patched,
            Transport,
            "_read_pair",
            lambda part, *_: part is alice.thread.loop.transport and left and not left.pop(),
        )
        failed += break_once(
            patched,
            Transport,
            "_read_dialed",
            lambda part, *_: part is alice.thread.loop.transport and left and not left.pop(),
        )
        bob.client.send_message("friends", "during it")
        until(lambda: not left, "that it fails")
    until(lambda: "during it" in alice.texts(), "that it arrives")
    exchange(alice, bob, "after it")
    assert is_well(alice)


def test_what_cannot_be_committed_is_dropped_alone(pair, monkeypatch):
    """One event of Bob's breaks the commit: what came with it is stored, and the others' messages go on."""
    alice, bob = pair

    def is_poison(journal, _after, effects=(), *_):
        return journal is alice.thread.loop.journal and any(
            isinstance(effect, StoreEvent) and "poison" in str(effect.record) for effect in effects
        )

    with monkeypatch.context() as patched:
        failed = break_once(patched, Journal, "commit", is_poison)
        bob.client.send_message("friends", "poison")
        until(lambda: failed, "that it fails")
        alice.client.send_message("friends", "of alice")
        with pytest.raises(AgentError, match="Internal error"):
            alice.client.send_message("friends", "poison of alice")
        until(lambda: "of alice" in bob.texts(), "that it arrives")
        assert "poison" not in alice.texts() and is_well(alice)
    until(lambda: "poison" in alice.texts(), "that it is sent again")
    exchange(alice, bob, "after it")
    assert "poison of alice" not in alice.texts()


def test_of_one_batch_only_the_input_that_fails_is_dropped(pair, monkeypatch):
    alice, bob = pair
    loop, sizes = alice.thread.loop, []

    def is_poison(journal, _after, effects=(), *_):
        texts = [str(effect.record) for effect in effects if isinstance(effect, StoreEvent)]
        if journal is loop.journal and texts:
            sizes.append(len(texts))
        return journal is loop.journal and any("poison" in text for text in texts)

    def counted(loop_, call):
        command = handle(loop_, call)
        if loop_ is loop and command is not None:
            commands.append(command)
        return command

    def together(loop_, *args):
        """One batch with all three commands, whenever they come."""
        first = wait(loop_, *args)
        while loop_ is loop and 0 < len(commands) < 3:
            first += wait(loop_, *args)
        return first

    wait, handle, commands = AgentLoop._wait, AgentLoop._handle, []
    answers: dict[str, str] = {}

    def post(client, text):
        try:
            client.send_message("friends", text)
            answers[text] = "done"
        except AgentError as error:
            answers[text] = error.code

    with contextlib.ExitStack() as stack, monkeypatch.context() as patched:
        clients = [stack.enter_context(contextlib.closing(connect(alice.places, "test"))) for _ in range(3)]
        patched.setattr(AgentLoop, "_handle", counted)
        patched.setattr(AgentLoop, "_wait", together)
        alice.client.list_groups()  # the loop waits by the patched method from then on
        break_once(patched, Journal, "commit", is_poison)
        threads = [
            threading.Thread(target=post, args=each)
            for each in zip(clients, ("first", "poison", "second"), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {"first": "done", "poison": "InternalFault", "second": "done"}
    assert sizes[0] == 3 and set(sizes[1:]) == {1}, "all at once, then each alone"
    until(lambda: {"first", "second"} <= set(bob.texts()), "that they arrive")


def test_an_effect_that_fails_stops_no_other(pair, monkeypatch):
    alice, bob = pair
    with monkeypatch.context() as patched:
        failed = break_once(
            patched,
            Transport,
            "perform",
            lambda part, effect: part is alice.thread.loop.transport and isinstance(effect, Publish),
        )
        alice.client.send_message("friends", "during it")
        until(lambda: failed, "that it fails")
    until(lambda: "during it" in bob.texts(), "that it is sent again")
    exchange(alice, bob, "after it")
    assert is_well(alice)


def test_a_client_is_told_that_its_answer_was_lost(pair, monkeypatch):
    alice, bob = pair
    with monkeypatch.context() as patched:
        break_once(patched, RequestHandlers, "_answer", lambda part, *_: part is alice.thread.loop.handlers)
        with pytest.raises(AgentError, match="It was done, but") as caught:
            alice.client.send_message("friends", "done")
    assert caught.value.code == "ResultLost"
    until(lambda: "done" in bob.texts(), "that it arrives")
    exchange(alice, bob, "after it")
