"""The bots that come with zerochat, each in a simulated group."""

import asyncio
import importlib
import json
import sys

import pytest

from zerochat.cli.parser_bot import EXAMPLES
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


def test_ping_says_who_has_not_heard_it(example):
    bot = example("ping").bot

    async def story():
        async with Group(3, bots=[bot], loss=0.1, seed=4) as group:
            await group.say("alice", "!ping")
            await group.settle()
            assert await group.texts(by="ping") == ["pong"]
            group.partition("carol")
            await group.say("alice", "!ping")
            await group.say("bob", "!echo two  words")
            await group.pass_time("1m")
            assert await group.texts("bob", by="ping") == [
                "pong",
                "pong",
                "2 of 3 have heard me. Not yet: carol",
                "two  words",
            ]
            group.heal()
            await group.settle()

    run(story())


def test_ci_tells_each_build_once_and_what_was_mended(example, tmp_path):
    bot = example("ci", CI_RESULTS=tmp_path, CI_GROUP="friends").bot

    def built(number, ok, job="tests"):
        (tmp_path / f"{number}.json").write_text(json.dumps({"job": job, "ok": ok, "commit": f"c{number}"}))

    async def story():
        async with Group(2, bots=[bot]) as group:
            for number, ok in enumerate((True, True, False, False, True)):
                built(number, ok)
                await group.pass_time("6s")
            (tmp_path / "9.json").write_text("{")
            await group.pass_time("6s")
            await group.kill("ci")
            built(10, True, "docs")
            await group.start("ci")
            await group.say("alice", "!builds")
            await group.pass_time("6s")
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

    run(story())


@pytest.mark.slow
def test_reminder_reminds_also_when_it_was_killed_meanwhile(example, utc):
    bot = example("reminder", REMINDER_GROUP="friends").bot

    async def story():
        async with Group(2, bots=[bot]) as group:  # on a Sunday, at 15:08
            asked = await group.say("alice", "!remind 20m the bread")
            await group.say("bob", "!remind soon x")
            await group.say("bob", "!reminders")
            await group.settle()
            assert next(one for one in await group.messages() if one.id == asked).reactions == {"⏰": ("reminder",)}
            await group.kill("reminder")
            await group.pass_time("30m")
            await group.start("reminder")
            await group.pass_time("31s")
            await group.settle()
            sorry, listed, reminded = await group.texts(by="reminder")
            assert sorry.startswith("Sorry, 'soon' is not a time")
            assert listed.endswith("UTC  the bread")
            assert reminded == "⏰ alice: the bread"
            assert not dict(bot.kv)
            await group.pass_time("18h")
            assert (await group.texts(by="reminder"))[-1] == "Good morning.", "on Monday"

    run(story())


def test_nobody_keeps_others_from_being_reminded(example):
    bot = example("reminder").bot

    async def story():
        async with Group(2, bots=[bot]) as group:
            for number in range(22):
                await group.say("bob", f"!remind 300d {'x' * 400}{number}")
                await group.pass_time("10s")
            bot.kv["gone"] = {"due": 0, "group": "a group that is gone", "text": "", "who": "m", "did": "m"}
            await group.say("alice", "!remind 1m the bread")
            await group.say("alice", "!reminders")
            await group.pass_time("2m")
            await group.settle()
            *full, listed, reminded = await group.texts(by="reminder")
            assert full == ["I have too much to think of already."] * 2
            assert len(listed) < 3_000 and listed.endswith("And 1 more.")
            assert reminded == "⏰ alice: the bread" and "gone" not in bot.kv

    run(story())


def test_relay_relays_lines_some_at_a_time(example):
    module = example("relay", RELAY_GROUP="friends", RELAY_COMMAND="unused")

    async def lines():
        for number in range(70):
            yield f"line {number}"
        await asyncio.sleep(10)
        yield "x" * 1_000
        yield "✅ it has ended"

    async def story():
        module.bot._starts.clear()
        async with Group(2, bots=[module.bot]) as group:
            await module.relay(lines(), "friends")
            await group.settle()
            texts = await group.texts(by="relay")
            assert "\n".join(texts).split("\n")[:70] == [f"line {number}" for number in range(70)]
            assert len(texts) == 4 and texts[-1].endswith("…\n✅ it has ended") and len(texts[-1]) < 500

    run(story())


def test_relay_reads_what_a_command_prints(example):
    module = example("relay")

    async def read(*command):
        return [line async for line in module.output_of(list(command))]

    program = "import sys; print('ä'); print('b', file=sys.stderr); sys.exit(3)"
    assert asyncio.run(read(sys.executable, "-uc", program)) == [
        "ä",
        "b",
        f"❌ {sys.executable.split('/')[-1]} has ended with 3.",
    ]
