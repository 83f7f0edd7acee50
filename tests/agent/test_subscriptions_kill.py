"""`kill -9` of consumers and agents: at-least-once delivery, and idempotency keys survive."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.machines import DEADLINE_S, GROUP, Machine, machines, until
from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import AgentGone, NoAgent
from zerochat.rpc import Item

HANDLER = """
import os, sys
from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.rpc import Item

book = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
client = connect(profile_paths(os.environ["ZEROCHAT_PROFILE"], os.environ), "handler")
client.subscribe(consumer="ci", types=["message"], credit=8, take_over=True)
print("reading", flush=True)
for notification in client.notifications():
    item = notification.params
    if isinstance(item, Item):
        os.write(book, f"{item.seq} {item.body['text']} {item.attempt}\\n".encode())
        client.acknowledge("ci", item.seq)
"""
"""A bot that writes each item to a file, which survives the bot, and acknowledges it."""


def handled(book: Path) -> list[tuple[int, str, int]]:
    """What was handled: numbers, texts and attempts."""
    if not book.exists():
        return []
    lines = (line.split() for line in book.read_text().splitlines())
    return [(int(seq), text, int(attempt)) for seq, text, attempt in lines]


def acked(client: Client) -> int:
    return next(one.acked for one in client.list_consumers() if one.consumer == "ci")


@pytest.mark.slow
@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=pytest.mark.crash)])
def test_a_killed_consumer_handles_all_before_acknowledging(tmp_path: Path, kills: int) -> None:
    dice, book = random.Random(kills), tmp_path / "book"
    with machines(tmp_path, ["alice"]) as (alice,):
        alice.client.create_group(GROUP)
        alice.client.subscribe(consumer="ci", since="now")
        alice.client.subscribe()
        numbers: dict[int, str] = {}
        said = 0
        for round_ in range(kills + 1):
            command = [sys.executable, "-c", HANDLER, str(book)]
            with subprocess.Popen(command, env=alice.environment, stdout=subprocess.PIPE) as handler:
                assert handler.stdout is not None and handler.stdout.readline() == b"reading\n"
                before, more = len(handled(book)), dice.randrange(1, 30)
                for _ in range(more):
                    alice.client.send_message(GROUP, f"t{said}")
                    said += 1
                if round_ < kills:
                    enough = before + dice.randrange(1, more + 1)
                    until(lambda: len(handled(book)) >= enough, "handling", every_s=0.001)  # noqa: B023
                else:
                    until(lambda: len({text for _, text, _ in handled(book)}) >= said, "handling it all")  # noqa: B023
                    until(lambda: acked(alice.client) >= handled(book)[-1][0], "acknowledging all of it")
                handler.send_signal(signal.SIGKILL)
            upto, done = acked(alice.client), handled(book)
            for seq, text, _ in done:
                assert numbers.setdefault(seq, text) == text
            told = {event.seq for event in alice.events() if event.type == "message" and event.seq <= upto}
            assert told <= {seq for seq, _, _ in done}, "something was acknowledged that was not handled"
        firsts = list(dict.fromkeys(text for _, text, _ in handled(book)))
        assert firsts == [f"t{n}" for n in range(said)], "everything, and for the first time in order"
        assert any(attempt > 1 for _, _, attempt in handled(book)) or kills < 50


def again(machine: Machine, ask: Callable[[Client], object]) -> object:
    """Ask until there is an answer, whoever is killed meanwhile."""
    while True:
        with suppress(AgentGone, NoAgent), connect(machine.places, "again") as client:
            return ask(client)
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.crash)])
def test_a_killed_agent_loses_no_key_and_no_acknowledgement(tmp_path: Path, kills: int) -> None:
    dice = random.Random(kills)
    with machines(tmp_path, ["alice"]) as (alice,):
        alice.client.create_group(GROUP)
        alice.client.subscribe(consumer="ci", since="now")
        over = threading.Event()
        sent: list[str] = []
        best = [0]
        faults: list[BaseException] = []

        def talk(who: int) -> None:
            number = 0
            while not over.is_set():
                text = f"{who}.{number}"
                again(alice, lambda client: client.send_message(GROUP, text, key=f"key {text}"))  # noqa: B023
                sent.append(text)
                number += 1

        def read() -> None:
            while not over.is_set():
                with suppress(AgentGone, NoAgent), connect(alice.places, "reader") as client:
                    client.subscribe(consumer="ci", types=["message"], take_over=True)
                    while not over.is_set():
                        news = client.next_notification(0.2)
                        if news is not None and isinstance(news.params, Item):
                            assert news.params.seq > best[0], "what was acknowledged came again"
                            best[0] = client.acknowledge("ci", news.params.seq).acked
                time.sleep(0.01)

        def guarded(work: Callable[[], None]) -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001
                faults.append(error)
                over.set()

        threads = [threading.Thread(target=guarded, args=(lambda who=who: talk(who),)) for who in range(3)]
        threads.append(threading.Thread(target=guarded, args=(read,)))
        for thread in threads:
            thread.start()
        for _ in range(kills):
            enough = len(sent) + dice.randrange(1, 40)
            until(lambda: len(sent) >= enough or faults, "talking", every_s=0.002)  # noqa: B023
            alice.kill()
            alice.start()
        over.set()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        assert not faults, faults
        texts = alice.texts()
        assert len(texts) == len(set(texts)), "something was said twice"
        assert set(sent) <= set(texts), "something was answered and is not there"
        assert acked(alice.client) >= best[0] > 0
        for text in sent[-5:]:
            assert alice.client.send_message(GROUP, text, key=f"key {text}").duplicate
