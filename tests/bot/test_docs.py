"""Every example in the manual of bots is run, and every command in it is one that there is."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.project.test_docs import README, commands
from zerochat.bot import bot as bot_module
from zerochat.bot.launch import load
from zerochat.cli import bot as cli_bot
from zerochat.cli.parser import parse
from zerochat.testing import Group, run

MANUAL = Path(__file__).parents[2] / "zerochat" / "bot" / "README.md"
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", MANUAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
PROGRAMS = [text for kind, text in BLOCKS if kind == "python"]
TEN, COMMANDS, OTHERS, SCRIPT, TESTING = PROGRAMS


@pytest.fixture
def bot_of(tmp_path):
    def read(text):
        path = tmp_path / "app.py"
        path.write_text(text)
        return load(path)

    return read


@pytest.mark.parametrize(
    "call", [call for kind, text in BLOCKS if kind == "sh" for call in commands(text)], ids=" ".join
)
def test_every_command_is_understood(call):
    parse(call)


def test_ten_lines(bot_of):
    assert len([line for line in TEN.splitlines() if line.strip()]) <= 10
    guarded = TEN.replace("bot.run()", 'if __name__ == "__main__":\n    bot.run()')
    assert cli_bot.APP.format(name="greeter") == guarded, "what `zerochat bot new` writes is the same"
    assert f"```python\n{TEN}```" in README, "and so is what the project's first page shows"
    bot = bot_of(TEN)

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "!hello")
            await group.say("bob", '!hello "dear all"')
            await group.settle()
            assert sorted(await group.texts(by="greeter")) == ["Hello, alice!", "Hello, dear all!"]

    run(story())


def test_commands(bot_of):
    bot = bot_of(COMMANDS)

    async def story():
        async with Group(2, bots=[bot], roles="admins") as group:
            for who, text in (
                ("alice", "!deploy live 7"),
                ("alice", "!deploy everywhere 7"),
                ("bob", "!deploy live 8"),
                ("bob", "!note bread buy  some"),
                ("bob", "!sum 1 2.5"),
            ):
                await group.say(who, text)
                await group.settle()
            assert await group.texts(by="ops") == [
                "version 7 goes to live",
                "Where is one of test, live, and not everywhere. Usage: !deploy test|live VERSION [DRY]",
                "Only an admin may ask me for that.",
                "3.5",
            ]
            assert bot.kv["bread"] == ["buy  some"]
            group.partition("bob")
            await group.say("alice", "!deploy test 9 yes")
            await group.pass_time("2m")
            assert (await group.texts(by="ops"))[-2:] == ["version 9 goes to test, in theory", "not heard by bob"]

    run(story())


@pytest.mark.slow
def test_everything_else(bot_of):
    bot = bot_of(OTHERS)

    async def story():
        async with Group(2, bots=[bot]) as group:
            told = await group.say("alice", "Good Morning everybody")
            await group.react("alice", told, "👍")
            await group.settle()
            await group.pass_time("1h")
            await group.settle()
            assert set(await group.texts(by="host")) == {"Good morning, alice.", "Glad you like it.", "Still here."}
            assert bot.kv["heard"] in ("alice", "bob")
            await group.pass_time("18h")
            assert "Stand-up!" in await group.texts(by="host"), "on Monday at nine in Berlin"

    run(story())


def test_testing():
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(TESTING, "README.md", "exec"), names)
    names["test_ping"]()


def test_a_script(monkeypatch):
    """On a simulated agent would be no script; so its calls are heard by one that pretends."""
    said: list[Any] = []

    class Pretending:
        def __init__(self, profile, name):
            said.append((profile, name))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            said.append("bye")

        def say(self, group, text):
            said.append((group, text))
            return self

        def delivered(self, timeout):
            said.append(timeout)

        def messages(self, within):
            for text in ("one", "enough", "too much"):
                message = type("M", (), {"text": text, "reply": lambda self, text: said.append((self.text, text))})()
                yield message

        def done(self, message):
            said.append(("done", message.text))

    monkeypatch.setattr("zerochat.bot.script.SyncBot", Pretending)
    exec(compile(SCRIPT, "README.md", "exec"), {})
    assert said == [
        *(("ci", "script"), ("ops", "the night shift begins"), 30),
        *(("one", "heard"), ("enough", "heard"), ("done", "enough"), "bye"),
    ]


def test_what_the_manual_says_of_limits_is_so():
    from zerochat.bot import dispatcher, handlers, runner, store
    from zerochat.rpc import subscriptions

    text = MANUAL.read_text(encoding="utf-8")
    assert subscriptions.HAPPENINGS_MAX == subscriptions.KEYS_MAX == store.VALUES_MAX == 10_000 and "10,000" in text
    assert store.VALUE_BYTES_MAX == 64 * 1024 and store.KEY_CHARS_MAX == 256
    assert bot_module.RETRIES == ("1s", "5s", "30s") and "1, 5 and 30 seconds" in text
    assert dispatcher.BEGUN_MAX == 5 and runner.DRAIN_S == 10 and handlers.COMMANDS_MAX == 32
    assert asyncio.iscoroutinefunction(bot_module.Bot.call)
