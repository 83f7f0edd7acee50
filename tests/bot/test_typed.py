"""Typed arguments, subcommands, typed events, moderation and failure handlers, in simulated groups."""

from enum import Enum

from zerochat import Bot, Message, SyncMessage
from zerochat.bot import Deleted, Edited, Failure, Left, Member, SyncMember
from zerochat.testing import Group, run


class Colour(Enum):
    RED = 1
    GREEN = 2


def test_members_enums_and_lists_are_arguments():
    bot = Bot("robo")

    @bot.command
    async def paint(m: Message, who: Member, colour: Colour, numbers: list[int]):
        await m.reply(f"{who} {who.role} {colour.name} {sum(numbers)}")

    @bot.command
    async def sizes(m: Message, numbers: list[float] | None = None):
        await m.reply(f"{numbers}")

    @bot.command
    def greet(m: SyncMessage, *who: Member):
        assert all(isinstance(one, SyncMember) for one in who)
        m.reply(" and ".join(one.nick for one in who) or "no one")

    async def scenario():
        async with Group(3, bots=[bot], roles="admins") as group:
            carol = next(
                one.did for one in await group.call("alice", "list_members", group="friends") if one.nick == "carol"
            )
            for text in ("bob red 1 2", f"{carol[:20]} GREEN 3", "@Carol blue 1", "dave red 1", "@bob red"):
                await group.send("alice", f"!paint {text}")
            for text in ("!sizes", "!sizes 1 2.5", "!greet @bob carol", "!greet", "!help"):
                await group.send("alice", text)
            await group.settle()
            usage = "Usage: !paint WHO red|green NUMBERS..."
            assert await group.texts(by="robo") == [
                "bob writer RED 3",
                "carol writer GREEN 3",
                f"Colour must be one of red, green, not blue. {usage}",
                f"Who must be a member, and no member is called dave. {usage}",
                f"Numbers is missing. {usage}",
                "None",
                "[1.0, 2.5]",
                "bob and carol",
                "no one",
                "!paint WHO red|green NUMBERS...\n!sizes [NUMBERS...]\n!greet [WHO...]\n!help - list the commands",
            ]

    run(scenario())


def test_aliases_and_subcommands():
    bot, heard = Bot("robo"), []

    @bot.command("db migrate", role="admin", help="move the data")
    async def migrate(m: Message, to: int): ...

    @bot.command("db status", aliases=("ds", "db st"))
    async def status(m: Message):
        await m.reply("fine")

    @bot.on_message
    async def other(m: Message):
        heard.append(m.text)

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            for text in ("!db  Status", "!ds", "!db st", "!db", "!db drop 7", "!dbs", "!db migrate", "!", "! db"):
                await group.send("alice", text)
            await group.settle()
            usage = "Usage: !db migrate TO | !db status"
            missing = "To is missing. Usage: !db migrate TO"
            assert await group.texts(by="robo") == ["fine"] * 3 + [usage, usage, missing]
            robo = next(one for one in await group.call("alice", "list_members", group="friends") if one.bot)
            assert [(one.name, one.usage, one.role) for one in robo.commands] == [
                ("db", "migrate TO | status", ""),
                ("help", "", ""),
            ]

    run(scenario())
    assert heard == ["!dbs", "!", "! db"]


def test_edits_deletions_departures_mentions_and_quotes():
    bot = Bot("robo")
    heard: list[tuple[object, ...]] = []

    @bot.on_edit
    async def edited(e: Edited):
        heard.append(("edited", e.message, e.text, e.author.nick))

    @bot.on_delete(group="friends")
    async def deleted(e: Deleted):
        heard.append(("deleted", e.message))

    @bot.on_leave
    async def left(e: Left):
        heard.append(("left", e.member.nick, e.removed, e.author.nick))

    @bot.on_mention
    async def mentioned(m: Message):
        heard.append(("mentioned", m.text, m.quoted and (m.quoted.text, str(m.quoted.author))))

    @bot.on_message(max_age="1h")
    async def recent(m: Message):
        heard.append(("recent", m.text))

    async def scenario():
        async with Group(4, bots=[bot], roles="admins") as group:
            first = await group.send("alice", "hello")
            await group.settle()
            await group.send("bob", "@robo look", reply_to=first)
            await group.edit("alice", first, "hello, all")
            await group.settle()
            await group.delete("alice", first)
            await group.leave("bob")
            await group.remove("alice", "carol")
            await group.settle()
            await group.stop("robo")
            await group.send("alice", "long ago")
            await group.advance("2h")
            await group.start("robo")
            await group.settle()
            assert [one.name for one in bot.groups] == ["friends"]
        return first

    first = run(scenario())
    assert heard == [
        ("recent", "hello"),
        ("mentioned", "@robo look", ("hello", "alice")),
        ("recent", "@robo look"),
        ("edited", first, "hello, all", "alice"),
        ("deleted", first),
        ("left", "bob", False, "bob"),
        ("left", "carol", True, "alice"),
    ]


def test_a_bot_moderates():
    bot = Bot("robo")

    @bot.command(role="admin")
    async def mute(m: Message, who: Member):
        await who.set_role("reader")
        assert (await m.group.set_role(who.did, "writer")).role == "writer"
        await who.set_role("reader")

    @bot.command
    def kick(m: SyncMessage, who: SyncMember):
        who.remove()
        bot.sync.remove(m.group, who)  # a repeated removal has no effect

    async def scenario():
        async with Group(3, bots=[bot], roles="admins") as group:
            await group.set_role("alice", "robo", "admin")
            await group.settle()
            await group.send("alice", "!mute bob")
            await group.send("alice", "!kick carol")
            await group.settle()
            found = await group.call("alice", "list_members", group="friends")
            assert {one.nick: one.role for one in found} == {"alice": "owner", "bob": "reader", "robo": "admin"}

    run(scenario())


def test_failures_are_reported():
    bot, heard = Bot("robo", retries=("1s",)), []

    @bot.on_message
    async def fails(m: Message):
        raise RuntimeError("no")

    @bot.every("1h")
    async def ticks():
        raise RuntimeError("tock")

    @bot.on_error
    async def error(f: Failure):
        heard.append((f.handler, str(f.error), f.event and f.event.type, f.attempt, f.dead_letter))
        raise RuntimeError("this is logged")

    @bot.on_dead_letter
    def dead(f: Failure):
        assert isinstance(f.event, SyncMessage)
        f.event.reply(f"I cannot: {f.error}")

    async def scenario():
        async with Group(2, bots=[bot]) as group:
            await group.send("alice", "hello")
            await group.settle()
            assert await group.texts(by="robo") == ["I cannot: no"]
            await group.advance("61m")

    run(scenario())
    assert heard == [
        ("fails", "no", "message", 1, False),
        ("fails", "no", "message", 2, True),
        ("ticks", "tock", None, 1, False),
        ("ticks", "tock", None, 2, False),
    ]


def test_a_newcomer_learns_what_is_wrong(caplog):
    bot = Bot("robo", retries=())

    @bot.on_message(group="hikerz")
    async def never(m: Message): ...

    @bot.command(role="admin")
    async def kick(m: Message): ...

    @bot.command
    def fails(m: SyncMessage):
        raise RuntimeError("fails")

    async def scenario():
        async with Group(1, bots=[bot]) as group:
            await group.send("alice", "!kick")
            await group.send("alice", "!fails")
            await group.settle()
            assert await group.texts(by="robo") == [
                "You need the role admin to use this command. No member of this group has it."
            ]

    run(scenario())
    assert "this profile is not in hikerz yet" in caplog.text
    assert 'raise RuntimeError("fails")' in caplog.text and "threads.py" not in caplog.text
