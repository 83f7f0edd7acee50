"""A busy or stopped client does not block its agent.

The real chat in a real terminal is given posts of the maximum size; the agent's response times for other clients are
printed (`pytest -m chaos -rP`).
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from tests.support.load_gauge import SLACK_MB, p99
from tests.support.machines import GROUP, acknowledged, check, everybody_has, machines, meet, until
from zerochat.agent.api.client import connect
from zerochat.agent.api.server import BACKLOG_BYTES_MAX

pytestmark = pytest.mark.chaos

ANSWERS_MIN = 50
"""Answers for another client while the chat is busy."""
GROWTH_MB_MAX = SLACK_MB + BACKLOG_BYTES_MAX / 2**20
"""What the agent keeps for a client that does not read, until it disconnects it."""
LINES, COLUMNS = 40, 120
POST_BYTES = 60_000
TEXTS = {
    "lines": "begin" + "\n" * (POST_BYTES // 3) + "end",
    "one word": "x" * POST_BYTES,
    "emoji": "\U0001f469\u200d\U0001f680" * (POST_BYTES // 11),
    "accents": ("a" + "\u0301" * 20) * (POST_BYTES // 41),
    "markup": "[bold][/][@click=app.quit]" * (POST_BYTES // 26),
}


@contextmanager
def chat(machine):
    """`zerochat chat` of this profile in a terminal whose other end reads all; gives a list of what it has read."""
    main, line = pty.openpty()
    fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "zerochat", "chat"]
    environment = {**machine.environment, "TERM": "xterm-256color", "ZEROCHAT_CHAT__TOUR": "false"}
    process = subprocess.Popen(command, env=environment, stdin=line, stdout=line, stderr=line, start_new_session=True)
    os.close(line)
    got: list[bytes] = []

    def read():
        with suppress(OSError):  # what Linux says at the end of a terminal
            while piece := os.read(main, 65_536):
                got.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process, got
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)
        reader.join(20)
        os.close(main)


def answers(places, seconds, talk):
    """How long each of so many questions took to be answered, while `talk` goes on; seconds."""
    talking = threading.Thread(target=talk)
    times = []
    with connect(places, "test") as client:
        talking.start()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s or talking.is_alive() or len(times) < ANSWERS_MIN:
            begun = time.monotonic()
            client.get_status()
            times.append(time.monotonic() - begun)
            time.sleep(0.005)
    talking.join(60)
    return times


@pytest.mark.parametrize("own", [False, True], ids=["an agent of its own", "in the chat's process"])
def test_a_busy_chat_does_not_delay_its_agent(tmp_path, own, budget):
    with machines(tmp_path, ("alice", "bob")) as (alice, bob):
        meet(alice, bob)
        alice.say("here I am")
        acknowledged((alice, bob))

        def talk():
            for _ in range(budget(3)):
                for text in TEXTS.values():
                    bob.client.send_message(GROUP, text)
                    bob.said.append(text)

        if own:
            alice.kill()
        with chat(alice) as (process, got):
            if own:

                def there():
                    with suppress(Exception):  # it is still starting, or says that it is busy
                        alice.client = connect(alice.places, "test")
                        return True
                    return False

                until(there, "the agent in the chat")
                until(lambda: alice.group().connected == 1, "meeting again")
            until(lambda: b"here" in b"".join(got), "the conversation on the screen")
            alice.client.get_status()
            times = answers(alice.places, 2.0, talk)
            everybody_has([alice], len(bob.said) + 1, 60)
            assert process.poll() is None, b"".join(got)[-2000:]
            print(f"{sum(map(len, bob.said)) / 2**20:.1f} M characters shown; {len(times)} answers, ", end="")
            print(f"p99 {p99(times) * 1000:.0f} ms, at most {max(times) * 1000:.0f} ms")
            if own:
                alice.client.close()


def test_an_unread_terminal_blocks_only_its_chat(tmp_path, budget):
    """Flow control, a stopped pager, a laptop whose lid is closed: the chat waits, and its agent does not."""
    with machines(tmp_path, ("alice", "bob")) as everybody:
        alice, bob = everybody
        meet(alice, bob)
        main, line = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "zerochat", "chat"],
            env={**alice.environment, "TERM": "xterm-256color"},
            stdin=line,
            stdout=line,
            stderr=line,
            start_new_session=True,
        ) as process:
            try:
                os.close(line)
                before_mb = alice.rss_mb()
                for number in range(budget(150)):
                    bob.say(f"{number} {'x' * 20_000}")
                everybody_has(everybody, len(bob.said), 60)
                grown_mb = alice.rss_mb() - before_mb
                print(f"{len(bob.said)} posts that nobody reads: the agent has grown by {grown_mb:.1f} MB")
                assert process.poll() is None and grown_mb < GROWTH_MB_MAX
            finally:
                process.kill()
                os.close(main)
        acknowledged(everybody)
        check(everybody)
