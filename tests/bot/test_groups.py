"""Bots in simulated groups: what they promise, over networks that lose and reorder, with agents and bots that end."""

import asyncio
import contextlib
import time
from itertools import pairwise

import pytest

from zerochat import Bot, Message, SyncMessage
from zerochat.bot import Delivered, Event, Joined, Reaction, SyncReaction
from zerochat.testing import Group, run


def test_a_command_is_answered_once_over_a_bad_network():
    bot = Bot(name="robo")

    @bot.command("add", help="add two numbers")
    async def add(m: Message, a: int, b: int):
        sent = await m.reply(f"{a + b}")
        report = await sent.delivered(timeout=120)
        assert report and len(list(report)) == report.of == 2
        await m.react("✅")

    async def story(seed):
        async with Group(2, bots=[bot], loss=0.3, duplicates=0.2, reorder=True, seed=seed) as group:
            asked = await group.say("alice", "!add 2 3")
            await group.say("bob", "!add two 3")
            await group.say("bob", "!help")
            await group.settle()
            assert group.converged()
            seen = await group.messages("bob")
            assert sorted(one.text for one in seen if one.author == "robo") == [
                "!add A B - add two numbers\n!help - what I can be asked",
                "5",
                "A is a whole number, and not two. Usage: !add A B",
            ]
            assert next(one for one in seen if one.id == asked).reactions == {"✅": ("robo",)}
            assert next(one for one in seen if one.text == "5").reply_to == asked
            assert seen == await group.messages("alice")

    for seed in (1, 2):
        run(story(seed))


def test_what_was_said_while_a_bot_was_away_is_handled_when_it_is_back_and_nothing_twice():
    bot, heard = Bot(name="robo"), []

    @bot.on_message
    async def hear(m: Message):
        heard.append((m.text, m.redelivered))

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "one")
            await group.settle()
            await group.stop("robo")
            await group.say("alice", "two")
            await group.pass_time("1h")
            await group.start("robo")
            await group.settle()
            await group.stop("robo")
            await group.start("robo")
            await group.settle()

    run(story())
    assert heard == [("one", False), ("two", False)]


def test_a_bot_that_is_killed_at_its_work_does_it_again_and_says_it_once():
    bot, begun = Bot(name="robo"), []

    @bot.command("work")
    async def work(m: Message):
        begun.append((m.text, m.redelivered))
        await m.reply("begun")
        if len(begun) < 3:
            await asyncio.sleep(3600)
        await m.reply(f"done at attempt {len(begun)}")

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "!work")
            for _ in range(2):
                await group.pass_time("10s")
                await group.kill("robo")
                await group.start("robo")
            await group.settle()
            assert await group.texts(by="robo") == ["begun", "done at attempt 3"]

    run(story())
    assert begun == [("!work", False), ("!work", True), ("!work", True)]


def test_what_ends_the_process_again_and_again_becomes_a_dead_letter():
    bot = Bot(name="robo")

    @bot.command("crash")
    async def crash(m: Message):
        await asyncio.sleep(3600)

    @bot.command("ping")
    async def ping(m: Message):
        await m.reply("pong")

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "!crash")
            await group.say("alice", "!ping")
            for _ in range(6):
                await group.pass_time("5s")
                await group.kill("robo")
                await group.start("robo")
            await group.settle()
            assert await group.texts(by="robo") == ["pong"]
            [letter] = bot.dead_letters()
            assert letter.handler == "crash" and "ended 5 times" in letter.error

    run(story())


def test_a_pattern_that_ends_the_process_again_and_again_makes_a_dead_letter():
    """As one does in which somebody's text takes so long that the process is killed."""

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

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "aaa")
            for _ in range(6):
                with contextlib.suppress(AssertionError):
                    await group.pass_time("5s")
                with contextlib.suppress(AssertionError):
                    await group.kill("robo")
                await group.start("robo")
            await group.say("alice", "still there?")
            await group.settle()
            assert {one.handler for one in bot.dead_letters()} == {"answer", "never"}
            assert await group.texts(by="robo") == ["heard", "heard"]

    run(story())


def test_a_handler_that_fails_is_tried_again_and_then_there_is_a_dead_letter():
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

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "!fail 2")
            await group.say("alice", "next")
            await group.settle()
            assert await group.texts(by="robo") == ["at it", "done", "heard"], "in order, and nothing twice"
            waited = [round(after - before) for (_, before), (_, after) in pairwise(times)]
            assert waited == [1, 5]
            assert not bot.dead_letters()
            await group.say("alice", "!fail 9")
            await group.settle()
            [letter] = bot.dead_letters()
            assert (letter.handler, letter.attempts) == ("fail", 3)
            assert letter.error == "ValueError: not ␛[31myet 3"
            assert not letter.body, "what was said stays in the journal"
            times.clear()
            assert bot.retry(letter) == 1
            await group.pass_time("60s")
            assert len(times) == 3, "it has failed again"
            assert [one.attempts for one in bot.dead_letters()] == [3]

    run(story())


def test_a_handler_that_waits_for_ever_is_given_up_and_tried_again():
    bot, begun = Bot(name="robo", timeout="1m", retries=("1s",)), []

    @bot.command("wait")
    async def wait(m: Message):
        begun.append(bot.now())
        await asyncio.Event().wait()

    @bot.command("long", timeout=None)
    async def long(m: Message):
        await asyncio.sleep(3600)
        await m.reply("after an hour")

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "!wait")
            await group.say("alice", "!long")
            await group.settle(within="2h")
            assert await group.texts(by="robo") == ["after an hour"]
            [letter] = bot.dead_letters()
            assert letter.error.startswith("TookTooLong: wait was not done after 60 seconds") and letter.attempts == 2

    run(story())
    assert round(begun[1] - begun[0]) == 61


def test_a_dead_letter_that_is_tried_again_and_handled_is_gone():
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

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "!go")
            await group.pass_time("1m")
            assert {one.handler for one in bot.dead_letters()} == {"go", "told"}, "the announcement was delivered"
            broken.clear()
            bot.retry()
            await group.pass_time("5s")
            await group.settle()
            assert await group.texts(by="robo") == ["gone"] and not bot.dead_letters()

    run(story())


def test_a_reply_that_differs_the_second_time_stands_as_it_was_said_first():
    bot, sent = Bot(name="robo", retries=("1s",)), []

    @bot.command("time")
    async def tell_time(m: Message):
        sent.append(await m.reply(f"it is {asyncio.get_running_loop().time()}"))
        if m.attempt == 1:
            raise RuntimeError("just after")

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.say("alice", "!time")
            await group.settle()
            assert len(await group.texts(by="robo")) == 1

    run(story())
    assert [one.again for one in sent] == [False, True] and sent[0].id == sent[1].id


def test_an_agent_that_is_away_is_no_matter_of_the_handler():
    bot = Bot(name="robo")

    @bot.command("slow")
    async def slow(m: Message):
        await m.reply("one")
        await asyncio.sleep(60)
        await m.reply("two")

    async def story():
        async with Group(2, bots=[bot], loss=0.1, seed=3) as group:
            await group.say("alice", "!slow")
            await group.pass_time("5s")
            group.switch_off("robo", "10m")
            await group.pass_time("1s")
            await group.settle(within="1h")
            assert await group.texts(by="robo") == ["one", "two"] and not bot.dead_letters()

    run(story())


def test_roles_and_rates_and_age_and_names_are_looked_at():
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

    async def story():
        async with Group(3, bots=[bot], roles="admins") as group:
            await group.say("bob", "!deploy")
            await group.settle()
            assert await group.texts(by="robo") == ["Only an admin may ask me for that."] and not done
            await group.role("alice", "bob", "admin")
            await group.settle()
            for who in ("alice", "bob", "carol"):
                await group.say(who, "!deploy")
            await group.settle()
            assert sorted(done) == ["deploy alice", "deploy bob"]
            done.clear()
            for _ in range(5):
                await group.say("carol", "!often")
            await group.say("bob", "!often")
            await group.settle()
            assert sorted(done) == ["often bob", "often carol", "often carol"]
            assert sum("Not so often" in text for text in await group.texts(by="robo")) == 1, "told once"
            done.clear()
            await group.stop("robo")  # and a new run counts anew
            await group.say("alice", "!fresh")
            await group.pass_time("11m")
            await group.start("robo")
            await group.say("alice", "!fresh")
            await group.say("alice", "!secret")
            await group.say("alice", "!close")
            await group.settle()
            assert done == ["fresh"]

    run(story())


def test_a_bot_hears_neither_itself_nor_other_bots_unless_it_asks_for_that():
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

    async def story():
        async with Group(1, bots=[one, two, nosy]) as group:
            await group.settle()  # everybody has heard who is a bot
            await group.say("alice", "hello")
            await group.settle()

    run(story())
    assert sorted(heard) == ["alice: hello", "nosy: aha (own)", "one: I heard hello", "two: I heard hello"]


def test_the_past_comes_only_to_whoever_asks_for_it():
    heard = []
    new, curious = Bot(name="new"), Bot(name="curious", include=("replayed",))

    @new.on_message
    async def hear(m: Message):
        heard.append(f"new {m.text}")

    @curious.on_message
    async def hear_all(m: Message):
        heard.append(f"curious {m.text}")

    async def story():
        async with Group(2, bots={"carol": Bot(name="idle")}) as group:
            await group.say("alice", "before")
            await group.settle()
            for bot in (new, curious):
                await group.stop("carol")
                group.bots["carol"] = bot
                await group.start("carol")
                await group.settle()
            await group.stop("carol")
            await group.start("carol")
            await group.settle()

    run(story())
    assert heard == ["curious before"]


def test_what_happens_besides_words():
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

    async def story():
        async with Group(2, bots=[bot]) as group:
            told = await group.say("alice", "hello")
            await group.settle()
            await group.react("bob", told, "👍")
            await group.react("alice", told, "🎉")
            await group.react("bob", told, "👍", on=False)
            await group.call("alice", "topic", group="friends", text="bread")
            await group.settle()
            [thanks] = [one for one in await group.messages() if one.author == "robo"]
            assert thanks.reply_to == told

    run(story())
    assert seen == ["bob 👍", "topic_changed"]


def test_ordinary_functions_are_called_in_threads_and_time_waits_for_them():
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
        bot.sync.say("friends", "and told everybody")

    @bot.on_reaction
    def thanks(r: SyncReaction):
        r.reply("thanks")

    async def story(seed):
        async with Group(2, bots=[bot], loss=0.2, seed=seed) as group:
            told = await group.say("alice", "!count 3")
            await group.react("alice", told, "👍")
            await group.settle()
            assert sorted(await group.texts(by="robo")) == ["and told everybody", "counted to 3", "thanks"]
            assert bot.kv["number"] == 2
            return group.stage.digest.hexdigest()

    assert run(story(1)) == run(story(1)), "the same story, threads or not"
    assert names == ["alice", "bob", "robo"] * 2


@pytest.mark.slow
def test_timers_run_at_their_times_and_what_was_missed_is_made_up_for_once(utc):
    bot, ran = Bot(name="robo"), []

    @bot.every("1h")
    async def hourly():
        ran.append(f"hourly {bot.now() % 86_400 / 3600:.2f}")
        await bot.say("friends", "tick")

    @bot.at("18:00")
    def evening():
        ran.append("evening")

    async def story():
        async with Group(2, bots=[bot]) as group:  # it begins at 15:08
            await group.pass_time("2h")
            await group.settle()
            assert [one.split()[0] for one in ran] == ["hourly", "hourly"]
            await group.stop("robo")
            await group.pass_time("5h")
            ran.clear()
            await group.start("robo")
            await group.pass_time("1s")
            assert [one.split()[0] for one in ran] == ["hourly"], "one for five, and the evening is over"
            await group.pass_time("24h")
            assert ran.count("evening") == 1
            await group.settle()
            assert len(await group.texts(by="robo")) == 2 + 1 + 24

    run(story())


def test_groups_go_on_side_by_side_and_each_in_order():
    """What takes long in one group holds nobody up in another one; what is acknowledged is handled."""
    bot, done = Bot(name="robo"), []

    @bot.on_message
    async def work(m: Message):
        await asyncio.sleep(60 if m.text.startswith("slow") else 1)
        done.append(m.text)

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.call("robo", "new", group="other")
            await group.call("robo", "send", group="other", text="note")
            for text in ("slow 1", "quick 2", "quick 3"):
                await group.say("alice", text)
            await group.settle()

    run(story())
    assert done == ["slow 1", "quick 2", "quick 3"]


def test_a_failure_of_the_bot_itself_ends_it_and_acknowledges_nothing(monkeypatch):
    bot = Bot(name="robo")

    @bot.on_message
    async def work(m: Message):
        raise RuntimeError

    def full(*_):
        raise OSError(28, "No space left on device")

    async def story():
        group = Group(2, bots=[bot])
        async with group:
            monkeypatch.setattr("zerochat.bot.store.Store.bury", full)
            await group.say("alice", "one")
            with pytest.raises(OSError, match="No space"):
                await group.settle()
            [known] = await group.call("robo", "consumers")
            assert known.behind > 0

    run(story())


def test_what_is_to_be_done_at_the_start_is_done_at_each_start_and_said_once_under_a_key():
    bot, began = Bot(name="robo"), []

    @bot.on_start
    async def begin():
        began.append(bot.now())
        await bot.say("friends", "here I am", key="here")
        await asyncio.sleep(3600)
        raise ValueError("an hour was enough")

    async def story():
        async with Group(2, bots=[bot]) as group:
            await group.settle()
            await group.stop("robo")
            await group.start("robo")
            await group.settle()
            assert await group.texts(by="robo") == ["here I am"] and len(began) == 2
            await group.pass_time("1h")
            with pytest.raises(ValueError, match="an hour was enough"):
                await group.settle()

    run(story())
