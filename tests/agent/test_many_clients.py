"""Chat, tail, send and three bots on one profile at once: each gets every event once, in order."""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.machines import DEADLINE_S, GROUP, Machine, machines, meet, until
from zerochat.agent.api.client import connect
from zerochat.rpc import Event, Item

Heard = list[tuple[int, str]]


class Crowd:
    """What runs beside each other; the first fault of any ends all."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.faults: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def run(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  # it is shown by whoever waits
                self.faults.append(error)
                self.over.set()

        self._threads.append(threading.Thread(target=guarded))
        self._threads[-1].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        assert not self.faults, self.faults


def face(machine: Machine, crowd: Crowd, heard: Heard) -> None:
    """What the chat does: it follows the log, and asks for pages of it now and then."""
    with connect(machine.places, "face") as client:
        client.subscribe(since=0)
        while not crowd.over.is_set():
            news = client.next_notification(0.1)
            if news is not None and news.method == "event":
                assert isinstance(news.params, Event)
                heard.append((news.params.seq, news.params.id))
                if news.params.seq % 16 == 0:
                    client.get_history(GROUP, limit=50)
                    client.list_members(GROUP)


def bot(machine: Machine, crowd: Crowd, heard: Heard, name: str, credit: int, every: int, dice: random.Random) -> None:
    """Reads as a consumer, acknowledges every so many items, and comes back now and then."""
    done = 0
    while not crowd.over.is_set():
        with connect(machine.places, name) as client:
            # Another connection of its own may not have been seen to be gone.
            client.subscribe(
                consumer=name, since="start" if not heard and not done else None, credit=credit, take_over=True
            )
            unacked = 0
            while not crowd.over.is_set():
                news = client.next_notification(0.1)
                if news is None:
                    if unacked:
                        client.acknowledge(name, done)
                        unacked = 0
                    continue
                if not isinstance(news.params, Item):
                    continue
                assert news.params.seq > done or news.params.redelivered
                if news.params.author is not None:
                    heard.append((news.params.seq, news.params.id))
                done, unacked = news.params.seq, unacked + 1
                if unacked >= every:
                    client.acknowledge(name, done)
                    unacked = 0
                    if dice.random() < 0.05:
                        break  # all is acknowledged, so nothing may come again


@contextmanager
def tail(machine: Machine) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "zerochat", "tail", GROUP, "--since", "0", "--format", "jsonl"]
    with subprocess.Popen(command, env=machine.environment, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.terminate()


def send(machine: Machine, crowd: Crowd, sent: list[str]) -> None:
    """The verb, again and again."""
    while not crowd.over.is_set():
        text = f"verb {len(sent)}"
        command = [sys.executable, "-m", "zerochat", "send", GROUP, "-m", text, "--key", text]
        subprocess.run(command, env=machine.environment, check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE_S)
        sent.append(text)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2.0, pytest.param(60.0, marks=pytest.mark.long)])
def test_every_client_gets_everything_once_and_in_order(tmp_path: Path, seconds: float) -> None:
    dice = random.Random(9)
    heard: dict[str, Heard] = {name: [] for name in ("face", "tail", "quick", "slow", "lazy")}
    sent: list[str] = []
    said = [0]
    with machines(tmp_path, ["alice", "bob"]) as (alice, bob), Crowd() as crowd, Crowd() as talking:
        meet(alice, bob)
        with tail(alice) as tailing:
            assert tailing.stdout is not None
            lines = tailing.stdout

            def read_tail() -> None:
                for line in lines:
                    event: dict[str, Any] = json.loads(line)
                    if "seq" in event:
                        heard["tail"].append((event["seq"], event["id"]))

            def talk(machine: Machine) -> None:
                own = random.Random(machine.name)
                while not talking.over.is_set():
                    for _ in range(own.randrange(1, 8)):
                        last = machine.client.send_message(GROUP, f"{machine.name} {said[0]}")
                        said[0] += 1
                        if own.random() < 0.2:
                            machine.client.react(GROUP, last.id, "👍")
                    time.sleep(own.random() / 20)

            crowd.run(read_tail)
            crowd.run(lambda: face(alice, crowd, heard["face"]))
            for name, credit, every in (("quick", 256, 1), ("slow", 4, 3), ("lazy", 64, 50)):
                own = random.Random(dice.random())
                crowd.run(lambda n=name, c=credit, e=every, d=own: bot(alice, crowd, heard[n], n, c, e, d))
            talking.run(lambda: send(alice, talking, sent))
            for machine in (alice, bob):
                talking.run(lambda one=machine: talk(one))
            crowd.over.wait(seconds)
            until(lambda: sent or talking.faults or crowd.faults, "the verb")
            # Everybody stops talking, and is heard to the end.
            talking.end()
            events = until(lambda: settled(alice, bob), "that both have the same")
            wanted = [(event.seq, event.id) for event in sorted(events, key=lambda one: one.seq)]
            for name, found in heard.items():
                until(lambda f=found: len(f) >= len(wanted) or crowd.faults, f"that {name} hears all")
            tailing.terminate()
            crowd.end()
        assert len(wanted) > 20 and sum(event.type == "message" for event in events) >= said[0] + len(sent)
        for name, found in heard.items():
            assert found == wanted, f"{name} heard something else"


def settled(*everybody: Machine) -> list[Event] | None:
    """The first one's log, if all have the same."""
    logs = [machine.events() for machine in everybody]
    return logs[0] if len({tuple(event.id for event in log) for log in logs}) == 1 else None
