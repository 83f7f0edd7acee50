"""The example bots, each in a simulated group."""

import asyncio
import importlib
import json
import sys

import pytest

from zerochat.cli.bot.new import EXAMPLES
from zerochat.testing import Group, run


@pytest.fixture
def example(monkeypatch):
    """A bot's module, read anew in this environment."""

    def load(name, **environment):
        for key, value in environment.items():
            monkeypatch.setenv(key, str(value))
        sys.modules.pop(f"zerochat.bot.examples.{name}", None)
        return importlib.import_module(f"zerochat.bot.examples.{name}")

    return load


def test_every_example_is_offered():
    import zerochat.bot.examples as there

    assert all(f"\n{name} " in (there.__doc__ or "") for name in EXAMPLES)


def test_ping_lists_missing_members(example):
    bot = example("ping").bot

    async def scenario():
        async with Group(3, bots=[bot], loss=0.1, seed=4) as group:
            await group.send("alice", "!ping")
            await group.settle()
            assert await group.texts(by="ping") == ["pong"]
            group.partition("carol")
            await group.send("alice", "!ping")
            await group.send("bob", "!echo two  words")
            await group.advance("1m")
            assert await group.texts("bob", by="ping") == [
                "pong",
                "pong",
                "Delivered to 2 of 3 members. Missing: carol",
                "two  words",
            ]
            group.heal()
            await group.settle()

    run(scenario())


def test_ci_reports_each_build_once(example, tmp_path):
    bot = example("ci", CI_RESULTS=tmp_path, CI_GROUP="friends").bot

    def built(number, ok, job="tests"):
        (tmp_path / f"{number}.json").write_text(json.dumps({"job": job, "ok": ok, "commit": f"c{number}"}))

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            for number, ok in enumerate((True, True, False, False, True)):
                built(number, ok)
                await group.advance("6s")
            (tmp_path / "9.json").write_text("{")
            await group.advance("6s")
            await group.kill("ci")
            built(10, True, "docs")
            await group.start("ci")
            await group.send("alice", "!builds")
            await group.advance("6s")
            await group.settle()
            assert await group.texts(by="ci") == [
                "🟢 tests passes c0",
                "🔴 tests fails again c2",
                "🔴 tests fails c3",
                "🟢 tests passes again c4",
                "🟢 tests c4",
                "🟢 docs passes c10",
            ]
            assert [path.name for path in tmp_path.iterdir()] == ["9.unreadable"]

    run(scenario())


@pytest.mark.slow
def test_reminder_survives_a_kill(example, utc):
    bot = example("reminder", REMINDER_GROUP="friends").bot

    async def scenario():
        async with Group(2, bots=[bot]) as group:  # on a Sunday, at 15:08
            asked = await group.send("alice", "!remind 20m the bread")
            await group.send("bob", "!remind soon x")
            await group.send("bob", "!reminders")
            await group.settle()
            assert next(one for one in await group.messages() if one.id == asked).reactions == {"⏰": ("reminder",)}
            await group.kill("reminder")
            await group.advance("30m")
            await group.start("reminder")
            await group.advance("31s")
            await group.settle()
            sorry, listed, reminded = await group.texts(by="reminder")
            assert sorry == "Sorry, 'soon' is not a duration like 30s, 5m, 1h or 2d."
            assert listed.endswith("UTC  the bread")
            assert reminded == "⏰ alice: the bread"
            assert not dict(bot.kv)
            await group.advance("18h")
            assert (await group.texts(by="reminder"))[-1] == "Good morning.", "on Monday"

    run(scenario())


@pytest.mark.slow
def test_one_failing_reminder_does_not_block_others(example):
    bot = example("reminder").bot

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            for number in range(22):
                await group.send("bob", f"!remind 300d {'x' * 400}{number}")
                await group.advance("10s")
            bot.kv["gone"] = {"due": 0, "group": "a group that is gone", "text": "", "nick": "m", "did": "m"}
            await group.send("alice", "!remind 1m the bread")
            await group.send("alice", "!reminders")
            await group.advance("2m")
            await group.settle()
            *full, listed, reminded = await group.texts(by="reminder")
            assert full == ["There are too many pending reminders."] * 2
            assert len(listed) < 3_000 and listed.endswith("And 1 more.")
            assert reminded == "⏰ alice: the bread" and "gone" not in bot.kv

    run(scenario())


def test_relay_batches_lines(example):
    module = example("relay", RELAY_GROUP="friends", RELAY_COMMAND="unused")

    async def lines():
        for number in range(70):
            yield f"line {number}"
        await asyncio.sleep(10)
        yield "x" * 1_000
        yield "✅ it has ended"

    async def scenario():
        module.bot._starts.clear()
        async with Group(2, bots=[module.bot]) as group:
            await module.relay(lines(), "friends")
            await group.settle()
            texts = await group.texts(by="relay")
            assert "\n".join(texts).split("\n")[:70] == [f"line {number}" for number in range(70)]
            assert len(texts) == 4 and texts[-1].endswith("…\n✅ it has ended") and len(texts[-1]) < 500

    run(scenario())


def test_relay_reads_command_output(example):
    module = example("relay")

    async def read(*command):
        return [line async for line in module.output_of(list(command))]

    program = "import sys; print('ä'); print('b', file=sys.stderr); sys.exit(3)"
    assert asyncio.run(read(sys.executable, "-uc", program)) == [
        "ä",
        "b",
        f"❌ {sys.executable.split('/')[-1]} exited with code 3.",
    ]
