"""Bots that answer each other: loops end, and nothing is sent faster than the limit."""

import logging

import pytest

from zerochat import Bot, Event, Message
from zerochat.agent.api.client_protocol import AgentError
from zerochat.bot import Reaction, TimerEvent
from zerochat.bot.bot import BadBot
from zerochat.bot.loops import HOPS_LIMIT
from zerochat.testing import Group, run


def by_replies(bot: Bot):
    @bot.on_message
    async def answer(m: Message):
        await m.reply("again")


def by_messages(bot: Bot):
    @bot.on_message
    async def answer(m: Message):
        await m.group.send("again")


def by_threads(bot: Bot):
    @bot.on_message
    def answer(m: Message):
        bot.sync.send(m.group, "again")


def by_reactions(bot: Bot):
    @bot.on_message
    async def react(m: Message):
        await m.react("👍")

    @bot.on_reaction
    async def answer(r: Reaction):
        await r.group.send("again")


def by_topics(bot: Bot):
    @bot.on("topic_changed")
    async def answer(e: Event):
        await e.group.send("again")

    @bot.on_message
    async def change(m: Message):
        await bot.set_topic(m.group, m.id)


def by_timers(bot: Bot):
    @bot.on_message
    async def wait(m: Message):
        bot.set_timer("answer", "1m", data=m.group.id)

    @bot.on_timer
    async def due(t: TimerEvent):
        await bot.send(t.data, "again")


@pytest.mark.parametrize("way", [by_replies, by_messages, by_threads, by_reactions, by_topics, by_timers])
def test_bots_that_answer_each_other_stop(way, caplog):
    bots = [Bot(name, include=("bots",), send_rate=None) for name in ("ping", "pong")]
    for one in bots:
        way(one)

    async def scenario():
        async with Group(2, bots=bots) as group:
            await group.send("alice", "hello")
            for _ in range(2 * HOPS_LIMIT):
                await group.advance("1m")
                await group.settle()
            return await group.texts()

    caplog.set_level(logging.WARNING)
    texts = run(scenario())
    assert 2 <= texts.count("again") <= 4 * HOPS_LIMIT, texts
    loops = [one.name for one in caplog.records if "answer each other" in one.message]
    assert sorted(loops) == ["zerochat.bot.ping", "zerochat.bot.pong"], "each says so once"


def test_handlers_see_the_hop_count():
    seen, bots = [], [Bot("echo", include=("bots",)), Bot("late", include=("bots",))]

    @bots[0].on_message
    async def echo(m: Message):
        if m.text.startswith("hello"):
            await m.group.send("echo")

    @bots[1].on_message
    async def late(m: Message):
        seen.append((m.text, m.hops))

    @bots[1].every("1h")
    async def hourly():
        await bots[1].send("friends", "hello of a timer")

    async def scenario():
        async with Group(2, bots=bots) as group:
            await group.send("alice", "hello")
            await group.call("bob", "send_message", group="friends", text="hello of a script", hops=HOPS_LIMIT - 1)
            await group.call("bob", "send_message", group="friends", text="the last", hops=HOPS_LIMIT)
            for wrong in (-1, 256, "1", 0.5):
                with pytest.raises(AgentError, match="hops"):
                    await group.call("bob", "send_message", group="friends", text="x", hops=wrong)
            await group.settle()
            assert sorted(seen) == [("echo", 1), ("hello", 0), ("hello of a script", HOPS_LIMIT - 1)]
            await group.advance("61m")
            await group.settle()
            assert seen[3:] == [("echo", 1)], "a timer answers nothing"

    run(scenario())


def test_messages_above_the_rate_wait():
    bot, sent = Bot("robo", send_rate="2/min"), []

    @bot.command
    async def count(m: Message):
        for number in range(5):
            await m.reply(f"{number}")
            sent.append(bot.now())

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "!count")
            await group.settle()
            assert await group.texts(by="robo") == ["0", "1", "2", "3", "4"]

    run(scenario())
    assert sent[2] - sent[0] >= 59 and sent[4] - sent[0] >= 119
    with pytest.raises(BadBot):
        Bot(send_rate="often")
