"""Runs every example of the bot manual and parses every command in it."""

import asyncio
from typing import Any

import pytest

from tests.support.doc_pages import commands
from tests.support.manual_blocks import BLOCKS, MANUAL
from zerochat.bot import bot as bot_module
from zerochat.bot.launch import load
from zerochat.cli.bot.new import APP
from zerochat.cli.parser import parse
from zerochat.testing import Group, run

PROGRAMS = [text for kind, text in BLOCKS if kind == "python"]
TEN, COMMANDS, OTHERS, SCRIPT, TESTING, GROUPS = PROGRAMS


@pytest.fixture
def load_bot(tmp_path):
    def read(text):
        path = tmp_path / "app.py"
        path.write_text(text)
        return load(path)

    return read


@pytest.mark.parametrize(
    "call", [call for kind, text in BLOCKS if kind == "sh" for call in commands(text)], ids=" ".join
)
def test_every_command_parses(call):
    parse(call)


def test_ten_lines(load_bot):
    assert len([line for line in TEN.splitlines() if line.strip()]) <= 10
    guarded = TEN.replace("bot.run()", 'if __name__ == "__main__":\n    bot.run()')
    assert APP.format(name="greeter") == guarded, "what `zerochat bot new` writes is the same"
    bot = load_bot(TEN)

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!hello")
            await group.send("bob", '!hello "dear all"')
            await group.settle()
            assert sorted(await group.texts(by="greeter")) == ["Hello, alice!", "Hello, dear all!"]

    run(scenario())


def test_commands(load_bot):
    bot = load_bot(COMMANDS)

    async def scenario():
        async with Group(2, bots=[bot], roles="admins") as group:
            for who, text in (
                ("alice", "!deploy live 7"),
                ("alice", "!deploy everywhere 7"),
                ("bob", "!deploy live 8"),
                ("bob", "!note bread buy  some"),
                ("bob", "!sum 1 2.5"),
                ("bob", "!grow large a b"),
            ):
                await group.send(who, text)
                await group.settle()
            assert await group.texts(by="ops") == [
                "deploying version 7 to live",
                "Where must be one of test, live, not everywhere. Usage: !deploy test|live VERSION [DRY]",
                "You need the role admin to use this command.",
                "3.5",
                "a, b: 10 GB more",
            ]
            assert bot.kv["bread"] == ["buy  some"]
            group.partition("bob")
            await group.send("alice", "!deploy test 9 yes")
            await group.advance("2m")
            assert (await group.texts(by="ops"))[-2:] == [
                "deploying version 9 to test (dry run)",
                "not delivered to bob",
            ]

    run(scenario())


@pytest.mark.slow
def test_everything_else(load_bot):
    bot = load_bot(OTHERS)

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            told = await group.send("alice", "Good Morning everybody")
            await group.react("alice", told, "👍")
            await group.settle()
            await group.advance("1h")
            await group.settle()
            assert set(await group.texts(by="host")) == {"Good morning, alice.", "Glad you like it.", "Still here."}
            assert bot.kv["delivered"] in ("alice", "bob")
            await group.advance("18h")
            assert "Stand-up!" in await group.texts(by="host"), "on Monday at nine in Berlin"

    run(scenario())


def test_testing():
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(TESTING, "bots.md", "exec"), names)
    names["test_ping"]()


def test_testing_with_groups_members_and_files(tmp_path):
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(GROUPS, "bots.md", "exec"), names)
    run(names["test_pictures_are_shared"](Group, tmp_path))


def test_a_script(monkeypatch):
    """A fake `SyncBot` records the calls of the script."""
    calls: list[Any] = []

    class FakeSyncBot:
        def __init__(self, profile, name):
            calls.append((profile, name))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            calls.append("bye")

        def send(self, group, text):
            calls.append((group, text))
            return self

        def delivered(self, timeout):
            calls.append(timeout)

        def messages(self, within):
            for text in ("one", "stop", "too much"):
                message = type("M", (), {"text": text, "reply": lambda self, text: calls.append((self.text, text))})()
                yield message

        def done(self, message):
            calls.append(("done", message.text))

    monkeypatch.setattr("zerochat.bot.script.SyncBot", FakeSyncBot)
    exec(compile(SCRIPT, "bots.md", "exec"), {})
    assert calls == [
        *(("ci", "script"), ("ops", "nightly build started"), 30),
        *(("one", "received"), ("stop", "received"), ("done", "stop"), "bye"),
    ]


def test_limits_in_the_manual_match_the_code():
    from zerochat.bot import dispatcher, handlers, runner, store
    from zerochat.rpc import subscriptions

    text = MANUAL.read_text(encoding="utf-8")
    assert subscriptions.NOTIFICATIONS_MAX == subscriptions.KEYS_MAX == store.VALUES_MAX == 10_000 and "10,000" in text
    assert store.VALUE_BYTES_MAX == 64 * 1024 and store.KEY_CHARS_MAX == 256
    assert bot_module.RETRIES == ("1s", "5s", "30s") and "1, 5 and 30 seconds" in text
    assert dispatcher.STARTS_MAX == 5 and runner.DRAIN_S_MAX == 10 and handlers.COMMANDS_MAX == 32
    assert asyncio.iscoroutinefunction(bot_module.Bot.call)
