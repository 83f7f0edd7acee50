"""Clients of an agent that another client has started: they outlive it, and nothing is sent twice."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import until
from zerochat.agent.api import attach as attach_module
from zerochat.agent.api.attach import Attached, NotAnswered, attach
from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import AgentGone, NoAgent
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.rpc import Event, Item

Open = Callable[[], Attached]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens clients of one profile, which has a group."""
    places = profile_paths("p", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(places, "Alice", None)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(attach(places, listen="127.0.0.1", name="cli"))


def texts(client: Any) -> list[str]:
    return [each.body["text"] for each in client.get_history("g").events if each.type == "message"]


class LosesAnswers:
    """A socket whose connection breaks after a request was carried out and before its answer arrives."""

    def __init__(self, real: Any, done: Callable[[], object]) -> None:
        self._real, self._done = real, done

    def sendall(self, line: bytes) -> None:
        self._real.sendall(line)
        until(self._done, "the request")

    def recv(self, size: int) -> bytes:
        return b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_client_outlives_the_owner_of_its_agent(opened: Open) -> None:
    owner = opened()
    owner.client.create_group("g")
    guest = opened()
    assert [(each.own, each.owner) for each in (owner, guest)] == [(True, "cli"), (False, "cli")]
    guest.client.subscribe(["g"])
    first = owner.client.send_message("g", "one")
    owner.close()
    second = guest.client.send_message("g", "two")
    assert guest.own and not second.duplicate and texts(guest.client) == ["one", "two"]
    news = (each.params for each in guest.client.notifications(30) if isinstance(each.params, Event))
    assert [next(news).id, next(news).id] == [first.id, second.id]


def test_a_waiting_client_becomes_the_owner(opened: Open) -> None:
    owner = opened()
    owner.client.create_group("g")
    guest = opened()
    guest.client.subscribe(["g"])
    owner.close()
    assert guest.client.next_notification(0.1) is None  # the end of the agent is no news
    until(lambda: guest.client.next_notification(0.05) is None and guest.own, "the take-over")
    assert guest.client.create_group("h").name == "h"


def test_a_request_without_answer_is_not_sent_twice(opened: Open) -> None:
    owner = opened()
    owner.client.create_group("g")
    guest = opened()
    client: Any = guest.client
    client._socket = LosesAnswers(client._socket, lambda: texts(owner.client))
    assert not client.send_message("g", "once").duplicate
    assert texts(owner.client) == ["once"] and not guest.own
    client._socket = LosesAnswers(client._socket, lambda: len(owner.client.list_groups()) == 2)
    with pytest.raises(AgentGone):
        client.create_group("h")
    assert len(owner.client.list_groups()) == 2


def test_an_agent_that_no_client_owns_is_treated_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = profile_paths("p", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(places, "Alice", None)
    thread = AgentThread(places, unlock(places, None), listen="127.0.0.1")
    thread.start()
    with attach(places) as guest, connect(places) as other:
        client: Any = guest.client
        client.create_group("g")
        client._socket = LosesAnswers(client._socket, lambda: texts(other))
        assert not client.send_message("g", "once").duplicate and texts(other) == ["once"]
        client._socket = LosesAnswers(client._socket, lambda: len(texts(other)) == 2)
        monkeypatch.setattr(attach_module, "RESTART_S_MAX", 0.0)
        monkeypatch.setattr(client, "_open_again", partial(raises, NoAgent(profile="p")))
        with pytest.raises(NotAnswered, match=r"No agent is running.*not known whether") as error:
            client.send_message("g", "twice?")
        sent = other.send_message("g", "twice?", key=str(error.value.details["key"]))
        assert sent.duplicate and texts(other) == ["once", "twice?"]
        thread.stop()
        monkeypatch.undo()
        monkeypatch.setattr(attach_module, "RESTART_S_MAX", 0.1)
        assert not client.send_message("g", "after it").duplicate and guest.own
        assert texts(client) == ["once", "twice?", "after it"]


def test_a_request_that_ends_every_agent_is_given_up(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as owner, opened() as guest:
        tries: list[int] = []
        monkeypatch.setattr(Client, "call", lambda *about, **more: tries.append(1) or raises(AgentGone()))
        monkeypatch.setattr(guest.client, "_attach_again", lambda: None)
        with pytest.raises(AgentGone):
            guest.client.list_groups()
        assert len(tries) == 1 + attach_module.REPEATS_MAX and owner.own


def raises(error: Exception) -> None:
    raise error


@pytest.mark.slow
def test_commands_at_once_all_succeed(tmp_path: Path) -> None:
    environment = {**os.environ, "ZEROCHAT_HOME": str(tmp_path), "ZEROCHAT_PROFILE": "p"}
    places = profile_paths("p", environment)
    create_profile(places, "Alice", None)
    with attach(places, listen="127.0.0.1") as agent:
        agent.client.create_group("g")
        sending = [
            subprocess.Popen(
                [sys.executable, "-m", "zerochat", "send", "g", "-m", str(number)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for number in range(8)
        ]
    failed = [said for each in sending for said in [each.communicate(timeout=120)[1]] if each.returncode]
    assert not failed
    with attach(places) as agent:
        assert sorted(texts(agent.client)) == [str(number) for number in range(8)]


def test_a_consumer_continues_where_it_has_acknowledged(opened: Open) -> None:
    owner = opened()
    owner.client.create_group("g")
    ids = [owner.client.send_message("g", f"number {number}").id for number in range(6)]
    guest, seen = opened(), []
    guest.client.subscribe(["g"], "start", types=["message"], consumer="alerts", credit=4)
    for each in guest.client.notifications(30):
        if isinstance(item := each.params, Item):
            seen.append(item.id)
            guest.client.acknowledge("alerts", item.seq)
            if len(seen) == 2:
                owner.close()
            if item.id == ids[-1]:
                break
    assert guest.own and list(dict.fromkeys(seen)) == ids, "at least once, in order"


def test_a_replay_continues_with_the_next_agent(opened: Open) -> None:
    owner = opened()
    owner.client.create_group("g")
    ids = [owner.client.send_message("g", f"number {number}").id for number in range(6)]
    guest = opened()
    guest.client.subscribe(["g"], "start", types=["message"])
    owner.close()
    news = (each.params for each in guest.client.notifications(30) if isinstance(each.params, Event))
    assert [next(news).id for _ in ids] == ids


def test_a_client_takes_no_restarting_agents_place(tmp_path: Path) -> None:
    places = profile_paths("p", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(places, "Alice", None)
    key = unlock(places, None)
    first, second = (AgentThread(places, key, listen="127.0.0.1") for _ in range(2))
    first.start()
    with attach(places) as guest:
        guest.client.create_group("g")
        first.stop()
        restart = threading.Timer(0.3, second.start)
        restart.start()
        assert [group.name for group in guest.client.list_groups()] == ["g"] and not guest.own
        restart.join()
    second.stop()
