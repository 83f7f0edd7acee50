"""Bots that answer each other: chains end, and nothing is sent faster than the limit."""

import pytest

from zerochat import Bot, Message
from zerochat.bot.bot import BadBot
from zerochat.bot.loops import HOPS_MAX
from zerochat.testing import Group, run


def test_bots_that_answer_each_other_stop():
    bots = [Bot(name, include=("bots",)) for name in ("ping", "pong")]
    for one in bots:

        @one.on_message
        async def answer(m: Message):
            await m.reply("again")

    async def scenario():
        async with Group(2, bots=bots) as group:
            await group.send("alice", "hello")
            await group.settle()
            answers = [one for one in await group.messages() if one.text == "again"]
            assert len(answers) == 2 * HOPS_MAX, "each bot begins one chain"

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
