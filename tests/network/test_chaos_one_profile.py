"""Chat, tail, send and bots as processes on one profile: each gets every event once, in order.

A slice takes six seconds of talking (`pytest -m chaos`); `--budget 10` makes it a minute.
"""

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.support.machines import DEADLINE_S, GROUP, Machine, machines, meet, until
from tests.support.screen import Picture
from tests.support.terminals import COLUMNS, LINES, Terminal, terminal

pytestmark = pytest.mark.chaos

TALK_S = 6
BOT = """
import asyncio
from zerochat import Bot, Message
bot = Bot(name={name!r}, include=("self", "bots"), credit={credit})
@bot.on_message
async def heard(m: Message) -> None:
    await asyncio.sleep({sleep_s})
    print(m.id, m.text, flush=True)
bot.run()
"""
BOTS = {"quick": (256, 0.0), "slow": (4, 0.005), "lazy": (64, 0.001)}
"""By name: its credit, and how long it takes for a message."""
MARK = re.compile(r"\b[bcv]\d{6}\b")
"""What each message says, once: of bob, of the chat, of the verb."""
HAND_S = 0.3
"""What comes at once is no typing, but a paste."""
QUIET_S = 0.4
"""A screen on which nothing has changed for so long shows what it has to show."""


class Reader:
    """The lines of a process, as they come."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line for line in self.process.stdout)

    def end(self) -> None:
        self.process.terminate()
        said = self.process.communicate(timeout=DEADLINE_S)[1] if self.process.stderr else ""
        self._thread.join(DEADLINE_S)
        assert self.process.returncode in (0, 143), said[-2000:]


@contextmanager
def reading(command: list[str], machine: Machine) -> Iterator[Reader]:
    reader = Reader([sys.executable, *command], machine.environment)
    try:
        yield reader
        reader.end()
    finally:
        reader.process.kill()


class Screen:
    """What the chat's terminal shows."""

    def __init__(self, chat: Terminal) -> None:
        self._chat, self._read = chat, 0
        self._picture = Picture(LINES, COLUMNS)

    def marks(self) -> list[str]:
        """The messages on it, from the top, when nothing moves any more."""
        while True:
            said = len(self._chat.shown)
            time.sleep(QUIET_S)
            if (shown := self._chat.shown) and len(shown) == said:
                break
        self._picture.write(shown[self._read :])
        self._read = len(shown)
        return [found[0] for line in self._picture.text if (found := MARK.search(line))]


def talk(over: threading.Event, say: Callable[[str], object], letter: str, pause_s: float) -> int:
    """Say one thing after another until it is over; how many that were."""
    dice, count = random.Random(letter), 0
    while not over.wait(dice.random() * pause_s):
        say(f"{letter}{count:06}")
        count += 1
    return count


def test_clients_of_one_profile_get_everything_once_in_order(tmp_path: Path, budget: Callable[[float], int]) -> None:
    with machines(tmp_path, ["alice", "bob"]) as (alice, bob), ExitStack() as stack:
        meet(alice, bob)
        programs = {}
        for name, (credit, sleep_s) in BOTS.items():
            programs[name] = tmp_path / f"{name}.py"
            programs[name].write_text(BOT.format(name=name, credit=credit, sleep_s=sleep_s))
        bots = {name: stack.enter_context(reading([str(program)], alice)) for name, program in programs.items()}
        until(
            lambda: {one.consumer for one in alice.client.list_consumers() if one.connected} >= BOTS.keys(), "the bots"
        )
        tail = stack.enter_context(
            reading(["-m", "zerochat", "tail", GROUP, "--since", "0", "--format", "jsonl"], alice)
        )
        chat = stack.enter_context(terminal(alice, "chat", GROUP))
        until(lambda: f"Message {GROUP}" in chat.shown, "the chat")

        def verb(text: str) -> None:
            command = [sys.executable, "-m", "zerochat", "send", GROUP, "-m", text, "--key", text]
            subprocess.run(command, env=alice.environment, check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE_S)

        says = {"v": (verb, 0.0), "b": (lambda text: bob.client.send_message(GROUP, text), 0.2)}

        def typed(text: str) -> None:
            chat.type(text)
            time.sleep(HAND_S)
            chat.type("\r")
            newest = partial(alice.client.get_history, GROUP, limit=50)
            until(lambda: any(one.body.get("text") == text for one in newest().events), "what was typed")

        says["c"] = (typed, 1.0)
        over, said = threading.Event(), dict.fromkeys(says, 0)
        faults: list[BaseException] = []

        def talking(letter: str) -> None:
            try:
                said[letter] = talk(over, says[letter][0], letter, says[letter][1])
            except BaseException as error:  # noqa: BLE001  # it is shown by whoever waits
                faults.append(error)

        threads = [threading.Thread(target=talking, args=(letter,)) for letter in says]
        for thread in threads:
            thread.start()
        over.wait(budget(TALK_S))
        over.set()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not faults and all(said.values()), (faults, said)

        def both() -> bool:
            return len(messages(alice)) == len(messages(bob)) == sum(said.values())

        until(both, "that both have everything")
        ordered = messages(alice)
        heard = sorted(ordered, key=lambda one: one[0])  # as the agent was told
        ids, marks = [id for _, id, _ in heard], [text for _, _, text in heard]
        assert sorted(marks) == sorted(f"{letter}{n:06}" for letter, count in said.items() for n in range(count))

        for name, reader in bots.items():
            until(lambda r=reader: len(r.lines) >= len(ids), f"that {name} has handled all")
            assert [line.split() for line in reader.lines] == [list(pair) for pair in zip(ids, marks, strict=True)], (
                name
            )
        until(lambda: told(tail) and len(told(tail)) >= len(ids), "that tail has printed all")
        assert told(tail) == ids
        seen_in_order(chat, [text for _, _, text in ordered])
        print(f"{len(ids)} messages in {budget(TALK_S)} s: {said}")


def messages(machine: Machine) -> list[tuple[int, str, str]]:
    """Local number, id and text of all that was said, in the order in which it is shown."""
    return [(one.seq, one.id, one.body["text"]) for one in machine.events() if one.type == "message"]


def told(tail: Reader) -> list[str]:
    events = [json.loads(line) for line in list(tail.lines)]
    return [one["id"] for one in events if one.get("type") == "message" and "seq" in one]


def seen_in_order(chat: Terminal, wanted: list[str]) -> None:
    """Read the chat from the end to the beginning, page by page: every page is a stretch of what was said, without a
    gap and with nothing twice, and together they are all of it."""
    screen, place, seen = Screen(chat), {text: at for at, text in enumerate(wanted)}, set[str]()
    until(lambda: screen.marks()[-1:] == wanted[-1:], f"the last message on the screen, after {screen.marks()}")
    for _ in range(len(wanted)):
        page = screen.marks()
        assert page == wanted[place[page[0]] : place[page[0]] + len(page)], page
        seen.update(page)
        if page[0] == wanted[0]:
            break
        chat.type("\x1b[5~")
    assert seen == set(wanted)
