"""Delivery guarantees of bots in simulated groups with faults."""

import asyncio
import contextlib
import time
from itertools import pairwise

import pytest

from zerochat import Bot, Message, SyncMessage
from zerochat.bot import Delivered, Event, Joined, Reaction, SyncReaction
from zerochat.testing import Group, run


def test_command_is_answered_once_over_a_bad_network():
    bot = Bot(name="robo")

    @bot.command("add", help="add two numbers")
    async def add(m: Message, a: int, b: int):
        sent = await m.reply(f"{a + b}")
        report = await sent.delivered(timeout=120)
        assert report and len(list(report)) == report.of == 2
        await m.react("✅")

    async def scenario(seed):
        async with Group(2, bots=[bot], loss=0.3, duplicates=0.2, reorder=True, seed=seed) as group:
            asked = await group.send("alice", "!add 2 3")
            await group.send("bob", "!add two 3")
            await group.send("bob", "!help")
            await group.settle()
            assert group.converged()
            seen = await group.messages("bob")
            assert sorted(one.text for one in seen if one.author == "robo") == [
                "!add A B - add two numbers\n!help - list the commands",
                "5",
                "A must be a whole number, not two. Usage: !add A B",
            ]
            assert next(one for one in seen if one.id == asked).reactions == {"✅": ("robo",)}
            assert next(one for one in seen if one.text == "5").reply_to == asked
            assert seen == await group.messages("alice")

    for seed in (1, 2):
        run(scenario(seed))


def test_missed_events_are_handled_once_after_a_restart():
    bot, heard = Bot(name="robo"), []

    @bot.on_message
    async def hear(m: Message):
        heard.append((m.text, m.redelivered))

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "one")
            await group.settle()
            await group.stop("robo")
            await group.send("alice", "two")
            await group.advance("1h")
            await group.start("robo")
            await group.settle()
            await group.stop("robo")
            await group.start("robo")
            await group.settle()

    run(scenario())
    assert heard == [("one", False), ("two", False)]


def test_killed_handler_is_retried_and_sends_once():
    bot, begun = Bot(name="robo"), []

    @bot.command("work")
    async def work(m: Message):
        begun.append((m.text, m.redelivered))
        await m.reply("begun")
        if len(begun) < 3:
            await asyncio.sleep(3600)
        await m.reply(f"done at attempt {m.attempt}")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!work")
            for _ in range(2):
                await group.advance("10s")
                await group.kill("robo")
                await group.start("robo")
            await group.settle()
            assert await group.texts(by="robo") == ["begun", "done at attempt 3"]

    run(scenario())
    assert begun == [("!work", False), ("!work", True), ("!work", True)]


def test_repeated_crash_becomes_a_dead_letter():
    bot = Bot(name="robo")

    @bot.command("crash")
    async def crash(m: Message):
        await asyncio.sleep(3600)

    @bot.command("ping")
    async def ping(m: Message):
        await m.reply("pong")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!crash")
            await group.send("alice", "!ping")
            for _ in range(6):
                await group.advance("5s")
                await group.kill("robo")
                await group.start("robo")
            await group.settle()
            assert await group.texts(by="robo") == ["pong"]
            [letter] = bot.dead_letters()
            assert letter.handler == "crash" and "ended 5 times" in letter.error

    run(scenario())


def test_repeated_crash_in_a_pattern_becomes_a_dead_letter():
    """A hostile text makes pattern matching take so long that the process is killed."""

    class Pattern:
        def search(self, text: str):
            assert "aaa" not in text

    bot = Bot(name="robo")

    @bot.on_message
    async def answer(m: Message):
        await m.reply("heard")

    @bot.on_message(text="(a+)+$")
    async def never(m: Message): ...

    hopeless = next(one for one in bot._handlers if one.name == "never")
    object.__setattr__(hopeless, "pattern", Pattern())

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "aaa")
            for _ in range(6):
                with contextlib.suppress(AssertionError):
                    await group.advance("5s")
                with contextlib.suppress(AssertionError):
                    await group.kill("robo")
                await group.start("robo")
            await group.send("alice", "still there?")
            await group.settle()
            assert {one.handler for one in bot.dead_letters()} == {"answer", "never"}
            assert await group.texts(by="robo") == ["heard", "heard"]

    run(scenario())


def test_failing_handler_is_retried_then_dead_letter():
    bot, times = Bot(name="robo", retries=("1s", "5s")), []

    @bot.command("fail")
    async def fail(m: Message, often: int):
        times.append((m.attempt, asyncio.get_running_loop().time()))
        await m.reply("at it")
        if m.attempt <= often:
            raise ValueError(f"not \x1b[31myet {m.attempt}")
        await m.reply("done")

    @bot.on_message
    async def other(m: Message):
        await m.reply("heard")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!fail 2")
            await group.send("alice", "next")
            await group.settle()
            assert await group.texts(by="robo") == ["at it", "done", "heard"], "in order, and nothing twice"
            waited = [round(after - before) for (_, before), (_, after) in pairwise(times)]
            assert waited == [1, 5]
            assert not bot.dead_letters()
            await group.send("alice", "!fail 9")
            await group.settle()
            [letter] = bot.dead_letters()
            assert (letter.handler, letter.attempts) == ("fail", 3)
            assert letter.error == "ValueError: not ␛[31myet 3"
            assert not letter.body, "what was said stays in the journal"
            times.clear()
            assert bot.retry(letter) == 1
            await group.advance("60s")
            assert len(times) == 3, "it has failed again"
            assert [one.attempts for one in bot.dead_letters()] == [3]

    run(scenario())


def test_waiting_handler_times_out_and_is_retried():
    bot, begun = Bot(name="robo", timeout="1m", retries=("1s",)), []

    @bot.command("wait")
    async def wait(m: Message):
        begun.append(bot.now())
        await asyncio.Event().wait()

    @bot.command("long", timeout=None)
    async def long(m: Message):
        await asyncio.sleep(3600)
        await m.reply("after an hour")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!wait")
            await group.send("alice", "!long")
            await group.settle(within="2h")
            assert await group.texts(by="robo") == ["after an hour"]
            [letter] = bot.dead_letters()
            assert letter.error.startswith("HandlerTimeout: wait did not finish within 60 s") and letter.attempts == 2

    run(scenario())
    assert round(begun[1] - begun[0]) == 61


def test_retried_dead_letter_is_deleted():
    bot, broken = Bot(name="robo", retries=()), [True]

    @bot.command("go")
    async def go(m: Message):
        if broken:
            raise RuntimeError("not yet")
        await m.reply("gone")

    @bot.on_delivery
    async def told(d: Delivered):
        if broken:
            raise RuntimeError("not yet")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!go")
            await group.advance("1m")
            assert {one.handler for one in bot.dead_letters()} == {"go", "told"}, "the announcement was delivered"
            broken.clear()
            bot.retry()
            await group.advance("5s")
            await group.settle()
            assert await group.texts(by="robo") == ["gone"] and not bot.dead_letters()

    run(scenario())


def test_first_text_of_a_repeated_reply_is_kept():
    bot, sent = Bot(name="robo", retries=("1s",)), []

    @bot.command("time")
    async def tell_time(m: Message):
        sent.append(await m.reply(f"it is {asyncio.get_running_loop().time()}"))
        if m.attempt == 1:
            raise RuntimeError("just after")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!time")
            await group.settle()
            assert len(await group.texts(by="robo")) == 1

    run(scenario())
    assert [one.duplicate for one in sent] == [False, True] and sent[0].id == sent[1].id


def test_agent_outage_is_hidden_from_handlers():
    bot = Bot(name="robo")

    @bot.command("slow")
    async def slow(m: Message):
        await m.reply("one")
        await asyncio.sleep(60)
        await m.reply("two")

    async def scenario():
        async with Group(2, bots=[bot], loss=0.1, seed=3) as group:
            await group.send("alice", "!slow")
            await group.advance("5s")
            group.power_off("robo", "10m")
            await group.advance("1s")
            await group.settle(within="1h")
            assert await group.texts(by="robo") == ["one", "two"] and not bot.dead_letters()

    run(scenario())


def test_roles_rates_age_and_groups_are_checked():
    bot, done = Bot(name="robo"), []

    @bot.command("deploy", role="admin")
    async def deploy(m: Message):
        done.append(f"deploy {m.author}")

    @bot.command("often", rate="2/min")
    async def often(m: Message):
        done.append(f"often {m.author}")

    @bot.command("fresh", max_age="10m")
    async def fresh(m: Message):
        done.append("fresh")

    @bot.command("secret", allow=["did:key:nobody"])
    async def secret(m: Message):
        done.append("secret")

    @bot.command("close", verified=True)
    async def close(m: Message):
        done.append("close")

    async def scenario():
        async with Group(3, bots=[bot], roles="admins") as group:
            await group.send("bob", "!deploy")
            await group.settle()
            assert await group.texts(by="robo") == ["You need the role admin to use this command."] and not done
            await group.set_role("alice", "bob", "admin")
            await group.settle()
            for who in ("alice", "bob", "carol"):
                await group.send(who, "!deploy")
            await group.settle()
            assert sorted(done) == ["deploy alice", "deploy bob"]
            done.clear()
            for _ in range(5):
                await group.send("carol", "!often")
            await group.send("bob", "!often")
            await group.settle()
            assert sorted(done) == ["often bob", "often carol", "often carol"]
            assert sum("Rate limit" in text for text in await group.texts(by="robo")) == 1, "told once"
            done.clear()
            await group.stop("robo")  # and a new run counts anew
            await group.send("alice", "!fresh")
            await group.advance("11m")
            await group.start("robo")
            await group.send("alice", "!fresh")
            await group.send("alice", "!secret")
            await group.send("alice", "!close")
            await group.settle()
            assert done == ["fresh"]

    run(scenario())


def test_own_and_bot_events_are_excluded_by_default():
    one, two, nosy = Bot(name="one"), Bot(name="two"), Bot(name="nosy", include=("self", "bots"))
    heard = []
    for bot in (one, two):

        @bot.on_message
        async def answer(m: Message):
            await m.reply(f"I heard {m.text}")

    @nosy.on_message
    async def listen(m: Message):
        heard.append(f"{m.author}: {m.text}" + (" (own)" if m.own else ""))
        if not m.own and not m.author.bot:
            await m.reply("aha")

    async def scenario():
        async with Group(1, bots=[one, two, nosy]) as group:
            await group.settle()  # everybody has heard who is a bot
            await group.send("alice", "hello")
            await group.settle()

    run(scenario())
    assert sorted(heard) == ["alice: hello", "nosy: aha (own)", "one: I heard hello", "two: I heard hello"]


def test_history_is_replayed_on_request_only():
    heard = []
    new, curious = Bot(name="new"), Bot(name="curious", include=("replayed",))

    @new.on_message
    async def hear(m: Message):
        heard.append(f"new {m.text}")

    @curious.on_message
    async def hear_all(m: Message):
        heard.append(f"curious {m.text}")

    async def scenario():
        async with Group(2, bots={"carol": Bot(name="idle")}) as group:
            await group.send("alice", "before")
            await group.settle()
            for bot in (new, curious):
                await group.stop("carol")
                group.bots["carol"] = bot
                await group.start("carol")
                await group.settle()
            await group.stop("carol")
            await group.start("carol")
            await group.settle()

    run(scenario())
    assert heard == ["curious before"]


def test_other_event_types():
    bot, seen = Bot(name="robo"), []

    @bot.on_reaction(emoji="👍")
    async def thumbs(r: Reaction):
        seen.append(f"{r.author} {r.emoji}")
        await r.reply("thank you")

    @bot.on_join
    async def joined(j: Joined):
        seen.append(f"{j.member} joins")

    @bot.on("topic_changed", "commands_announced")
    async def others(e: Event):
        seen.append(e.type)

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            told = await group.send("alice", "hello")
            await group.settle()
            await group.react("bob", told, "👍")
            await group.react("alice", told, "🎉")
            await group.react("bob", told, "👍", on=False)
            await group.call("alice", "set_topic", group="friends", text="bread")
            await group.settle()
            [thanks] = [one for one in await group.messages() if one.author == "robo"]
            assert thanks.reply_to == told

    run(scenario())
    assert seen == ["bob 👍", "topic_changed"]


def test_functions_run_in_threads_in_virtual_time():
    bot, names = Bot(name="robo"), []

    @bot.command("count")
    def count(m: SyncMessage, upto: int):
        """Count, slowly."""
        for number in range(upto):
            time.sleep(0.01)
            bot.kv["number"] = number
        sent = m.reply(f"counted to {upto}")
        assert sent.delivered(timeout=60)
        names.extend(one.nick for one in bot.sync.members(m.group))
        bot.sync.send("friends", "and told everybody")

    @bot.on_reaction
    def thanks(r: SyncReaction):
        r.reply("thanks")

    async def scenario(seed):
        async with Group(2, bots=[bot], loss=0.2, seed=seed) as group:
            told = await group.send("alice", "!count 3")
            await group.react("alice", told, "👍")
            await group.settle()
            assert sorted(await group.texts(by="robo")) == ["and told everybody", "counted to 3", "thanks"]
            assert bot.kv["number"] == 2
            return group.world.digest.hexdigest()

    assert run(scenario(1)) == run(scenario(1)), "the same scenario, threads or not"
    assert names == ["alice", "bob", "robo"] * 2


@pytest.mark.slow
def test_timers_make_up_for_missed_calls_once(utc):
    bot, ran = Bot(name="robo"), []

    @bot.every("1h")
    async def hourly():
        ran.append(f"hourly {bot.now() % 86_400 / 3600:.2f}")
        await bot.send("friends", "tick")

    @bot.at("18:00")
    def evening():
        ran.append("evening")

    async def scenario():
        async with Group(2, bots=[bot]) as group:  # it begins at 15:08
            await group.advance("2h")
            await group.settle()
            assert [one.split()[0] for one in ran] == ["hourly", "hourly"]
            await group.stop("robo")
            await group.advance("5h")
            ran.clear()
            await group.start("robo")
            await group.advance("1s")
            assert [one.split()[0] for one in ran] == ["hourly"], "one for five, and the evening is over"
            await group.advance("24h")
            assert ran.count("evening") == 1
            await group.settle()
            assert len(await group.texts(by="robo")) == 2 + 1 + 24

    run(scenario())


def test_groups_run_concurrently_and_in_order():
    """A slow group does not block another one; what is acknowledged is handled."""
    bot, done = Bot(name="robo"), []

    @bot.on_message
    async def work(m: Message):
        await asyncio.sleep(60 if m.text.startswith("slow") else 1)
        done.append(m.text)

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.call("robo", "create_group", group="other")
            await group.call("robo", "send_message", group="other", text="note")
            for text in ("slow 1", "quick 2", "quick 3"):
                await group.send("alice", text)
            await group.settle()

    run(scenario())
    assert done == ["slow 1", "quick 2", "quick 3"]


def test_internal_failure_ends_the_bot_without_acks(monkeypatch):
    bot = Bot(name="robo")

    @bot.on_message
    async def work(m: Message):
        raise RuntimeError

    def full(*_):
        raise OSError(28, "No space left on device")

    async def scenario():
        group = Group(2, bots=[bot])
        async with group:
            monkeypatch.setattr("zerochat.bot.store.Store.add_dead_letter", full)
            await group.send("alice", "one")
            with pytest.raises(OSError, match="No space"):
                await group.settle()
            [known] = await group.call("robo", "list_consumers")
            assert known.behind > 0

    run(scenario())


def test_start_handlers_run_at_each_start():
    bot, began = Bot(name="robo"), []

    @bot.on_start
    async def begin():
        began.append(bot.now())
        await bot.send("friends", "here I am", key="here")
        await asyncio.sleep(3600)
        raise ValueError("an hour was enough")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.settle()
            await group.stop("robo")
            await group.start("robo")
            await group.settle()
            assert await group.texts(by="robo") == ["here I am"] and len(began) == 2
            await group.advance("1h")
            with pytest.raises(ValueError, match="an hour was enough"):
                await group.settle()

    run(scenario())
