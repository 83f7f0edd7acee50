"""Consumers and their lag in `bot list`, `bot status` and `status --check`; `tail --consumer` over restarts."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from tests.support.agents import meet, until
from tests.support.bot_processes import connected, consumer, environment, running
from zerochat import Bot, Message
from zerochat.cli import bot_state, main


@pytest.fixture
def pair(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    return alice, bob


def test_bots_and_their_lag_are_listed(pair, monkeypatch, tmp_path, caplog):
    alice, bob = pair

    def verb(*words):
        with (
            patch.dict(os.environ, environment(bob, tmp_path), clear=True),
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
        ):
            code = main(words)
        return code, out.getvalue(), err.getvalue()

    assert verb("bot", "list")[0] == 0 and "No bot has run" in verb("bot", "list")[2]
    assert verb("bot", "status")[0] == 1 and "No bot has run in this profile." in verb("bot", "status")[2]
    assert "No bot worker has run" in verb("bot", "status", "--bot", "worker")[2]
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    bot = Bot("worker", profile="bob", retries=())

    @bot.on_message
    async def fails(m: Message):
        raise RuntimeError

    with running(bot):
        alice.client.send_message("friends", "one")
        until(bot.dead_letters, "a dead letter")
        assert "dead letter (`zerochat --profile bob bot dead-letters --bot worker`)" in caplog.text
        code, shown, _ = verb("bot", "list")
        assert (
            code == 0 and "DEAD LETTERS" in shown and shown.splitlines()[1].split() == ["worker", "running", "0", "1"]
        )
        assert verb("bot", "status", "--bot", "worker")[0] == 0
    until(lambda: not connected(bob), "its end")
    for text in ("two", "three"):
        alice.client.send_message("friends", text)
    until(lambda: consumer(bob).behind >= 2, "the lag")
    broken = bob.places.data / "bots" / "broken.db"
    broken.write_bytes(b"not a database" * 100)
    code, shown, said = verb("bot", "list")
    assert code == 0 and [line.split() for line in shown.splitlines()[1:]] == [
        ["broken", "never", "connected", "0", "?"],
        ["worker", "stopped", str(consumer(bob).behind), "1"],
    ]
    assert f"database {broken} cannot be used: file is not a database" in said
    code, shown, said = verb("bot", "status", "--bot", "broken", "--format", "json")
    assert code == 6 and json.loads(shown)["dead_letters"] is None and "StoreUnusable" in said
    code, _, said = verb("bot", "status")
    assert code == 2 and "Several bots have run in this profile: broken, worker." in said
    broken.unlink()
    code, shown, _ = verb("bot", "dead-letters")
    assert code == 0 and "RuntimeError" in shown, "of the only bot"
    code, shown, _ = verb("bot", "status", "--bot", "worker", "--format", "json")
    assert code == 1 and json.loads(shown)["state"] == "stopped" and json.loads(shown)["behind"] >= 2
    assert "worker" in verb("status")[1] and verb("status", "--check")[0] == 0
    assert verb("status", "--check", "--max-behind", "1")[0] == 1
    with patch.object(bot_state, "NOTIFICATIONS_MAX", 0):
        assert verb("status", "--check")[0] == 1 and "losing events soon" in verb("bot", "list")[1]


def test_tail_with_a_consumer_survives_the_agent(pair, tmp_path):
    """Each event is printed, over a restart of the agent and one of tail itself."""
    alice, bob = pair
    command = [sys.executable, "-m", "zerochat", "tail", "friends", "--consumer", "alerts", "--format", "jsonl"]
    path = tmp_path / "printed"

    def texts() -> list[str]:
        lines = map(json.loads, path.read_text().splitlines())
        return [one["body"]["text"] for one in lines if one["type"] == "message"]

    def acknowledged() -> bool:
        known = consumer(bob, "alerts")
        return known is not None and known.behind == 0

    def start() -> subprocess.Popen[bytes]:
        with path.open("ab") as out, (tmp_path / "said").open("ab") as err:
            return subprocess.Popen(command, env=environment(bob, tmp_path), stdout=out, stderr=err)

    process = start()
    try:
        until(lambda: connected(bob, "alerts"), "the subscription")
        alice.client.send_message("friends", "one")
        until(lambda: texts() == ["one"], "the first one")
        until(acknowledged, "its acknowledgement")  # else it is printed again after the restart
        bob.sleep()
        alice.client.send_message("friends", "two")
        bob.wake()
        until(lambda: texts() == ["one", "two"], "the second one, after the restart")
        until(acknowledged, "the acknowledgement")
        assert process.poll() is None
        process.terminate()
        process.wait(20)
        alice.client.send_message("friends", "three")
        process = start()
        until(lambda: texts() == ["one", "two", "three"], "the third one")
        until(lambda: connected(bob, "alerts"), "the subscription")
        bob.client.subscribe(consumer="alerts", take_over=True)
        assert process.wait(20) == 1 and "taken over" in (tmp_path / "said").read_text()
    finally:
        process.kill()
        process.wait()
