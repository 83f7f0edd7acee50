"""`zerochat.testing`: groups in virtual time, and the pytest plugin."""

import asyncio
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from zerochat import Bot, Message
from zerochat.agent.api.client_protocol import AgentError
from zerochat.bot import Joined, Left
from zerochat.testing import Deadlock, Group, NotSettled, run

ROOT = Path(__file__).parents[2]


def echo() -> Bot:
    bot = Bot(name="echo")

    @bot.on_message
    async def again(m: Message):
        await m.reply(m.text)

    return bot


async def chatter(seed, **network):
    async with Group(3, bots=[echo()], seed=seed, **network) as group:
        for number in range(4):
            await group.send(group.members[number % 3], f"word {number}")
            await group.advance("1s")
        await group.settle()
        assert group.converged()
        return group.world.digest.hexdigest(), await group.texts("bob"), group.now


@pytest.mark.slow
def test_seed_determines_the_run():
    bad = {"loss": 0.3, "duplicates": 0.3, "reorder": True}
    first, other = run(chatter(1, **bad)), run(chatter(2, **bad))
    assert first == run(chatter(1, **bad)) and first[0] != other[0]
    assert sorted(first[1]) == sorted(other[1]) == sorted(2 * [f"word {number}" for number in range(4)])


def test_partition_lasts_until_healed():
    async def scenario():
        async with Group(("ann", "ben", "cleo"), seed=1) as group:
            group.partition("ann", ("ben", "cleo"))
            await group.send("ann", "hello?")
            await group.send("ben", "here")
            await group.advance("5m")
            verdict = group.converged()
            assert not verdict and "ben lacks a post of ann" in repr(verdict)
            assert await group.texts("cleo") == ["here"]
            with pytest.raises(NotSettled, match="cleo lacks a post of ann"):
                await group.settle(within="10s")
            group.heal()
            await group.settle()
            assert group.converged() and set(await group.texts("cleo")) == {"here", "hello?"}

    run(scenario())


def test_members_see_posts_reactions_and_edits():
    async def scenario():
        async with Group(2) as group:
            first = await group.send("alice", "hallo")
            await group.settle()
            await group.react("bob", first, "👍")
            await group.send("bob", "to you", reply_to=first)
            await group.edit("alice", first, "hello")
            gone = await group.send("alice", "no")
            await group.delete("alice", gone)
            await group.settle()
            seen = {one.id: one for one in await group.messages("bob")}
            [answer] = [one for one in seen.values() if one.author == "bob"]
            assert (seen[first].text, seen[first].reactions, str(answer)) == ("hello", {"👍": ("bob",)}, "bob: to you")
            assert answer.reply_to == first and seen[gone].deleted and len(seen) == 3
            with pytest.raises(KeyError, match="no member carol"):
                await group.send("carol", "x")
            with pytest.raises(AgentError, match="Pictures are not decoded"):
                await group.call("alice", "render_picture", group="friends", file="x", width=1, height=1)

    run(scenario())


def test_members_join_leave_and_return():
    bot = Bot(name="host")

    @bot.on_join
    async def welcome(j: Joined):
        await j.send(f"Welcome, {j.member}!")

    @bot.on_leave
    async def goodbye(e: Left):
        await e.group.send(f"{e.member} {'was removed' if e.removed else 'has left'}.")

    async def scenario():
        async with Group(2, bots=[bot], loss=0.2, reorder=True, seed=2) as group:
            await group.join("dave")
            await group.send("dave", "hello")
            await group.settle()
            assert group.members == ("alice", "bob", "host", "dave") and (await group.texts("dave"))[-1] == "hello"
            await group.leave("dave")
            await group.settle()
            await group.send("alice", "and now?")
            await group.settle()
            assert "and now?" not in await group.texts("dave")
            await group.join("dave", by="bob")
            await group.settle()
            assert await group.texts(by="host") == ["Welcome, dave!", "dave has left.", "Welcome, dave!"]
            await group.leave("dave")
            await group.settle()
            group.partition("alice")
            with pytest.raises(NotSettled, match="dave has not joined friends"):
                await group.join("dave")

    run(scenario())


def test_a_member_that_is_removed_or_never_came_is_not_waited_for():
    async def scenario():
        async with Group(3, roles="admins") as group:
            group.power_off("carol", "1h")
            await group.remove("alice", "carol")
            await group.send("bob", "without carol")
            assert repr(group.converged()).startswith("carol is off")
            group.heal()
            await group.settle()
            assert await group.texts("bob") == ["without carol"] and await group.texts("carol") == []

    run(scenario())


def test_several_groups_share_users_bots_and_time():
    bot = Bot(name="echo")

    @bot.command("where")
    async def where(m: Message):
        await m.reply(f"in {m.group}, beside {len(bot.groups) - 1}")

    async def scenario():
        async with Group(2, bots=[bot], seed=1) as first:
            other = await first.new_group("others", ("bob", "echo", "carol"), roles="admins")
            assert (other.members, first.members) == (("bob", "echo", "carol"), ("alice", "bob", "echo"))
            await other.send("carol", "!where")
            await first.send("alice", "!where")
            await first.settle()
            assert await other.texts(by="echo") == ["in others, beside 1"]
            assert await first.texts(by="echo") == ["in friends, beside 1"]
            with pytest.raises(AgentError):
                await other.texts("alice")
            other.partition("carol")
            await other.send("bob", "hello?")
            await first.advance("1m")
            assert not first.converged() and "carol lacks a post of bob" in repr(other.converged())
            other.heal()
            await other.settle()
            await other.set_role("bob", "carol", "reader")
            await other.remove("bob", "echo")
            await other.settle()
            assert first.converged() and other.converged() and [one.name for one in bot.groups] == ["friends"]
            await first.leave("echo")
            await first.settle()
            assert bot.groups == []
            await first.join("echo")
            await first.settle()
            assert [one.name for one in bot.groups] == ["friends"]
            assert (await first.new_group("third", ("dave",))).members == ("dave",)
            with pytest.raises(KeyError, match="no member mallory"):
                await first.leave("mallory")

    run(scenario())


def test_files_arrive_whole(tmp_path):
    bot, saved = Bot(name="keeper"), []

    @bot.on_message
    async def keep(m: Message):
        saved.extend(await m.save(tmp_path / "kept"))
        await m.reply("kept", files=saved)

    (tmp_path / "kept").mkdir()
    small, large = tmp_path / "small.txt", tmp_path / "large.bin"
    small.write_text("a few words")
    large.write_bytes(bytes(range(256)) * 4100)  # it is not fetched before it is wanted

    async def scenario():
        async with Group(2, bots=[bot], loss=0.1, seed=1) as group:
            await group.send("alice", "look", files=[small, large])
            await group.advance("1s")
            await group.kill("keeper")
            group.power_off("keeper", "1m")
            await group.advance("2m")
            await group.start("keeper")
            await group.settle()
            _, answer = await group.messages("bob")
            assert answer.files == ("small.txt", "large.bin") and [one.name for one in saved] == [*answer.files]
            assert await group.files("bob", answer.id) == {
                small.name: small.read_bytes(),
                large.name: large.read_bytes(),
            }
            group.power_off("bob", "1h")
            await group.send("alice", files=[small])
            assert "bob is off" in group.pending()
            group.heal()
            await group.settle()
            assert [one.files for one in await group.messages("bob")][2:3] == [("small.txt",)]
            with pytest.raises(AgentError, match="no such file"):
                await group.send("alice", "look", files=[tmp_path / "none"])

    run(scenario())


def test_deadlock_and_missing_virtual_time_raise():
    async def forever():
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(forever())

    async def outside():
        async with Group(2):
            pass

    with pytest.raises(TypeError, match="virtual time"):
        asyncio.run(outside())
    for wrong in ({"members": 1}, {"members": 99}, {"members": ("a", "a")}):
        with pytest.raises(ValueError, match=r"members"):
            Group(**wrong)


def test_failing_start_is_reported():
    async def scenario():
        async with Group(2, bots=[Bot("greedy", credit=9_999)]):
            pass

    with pytest.raises(AgentError, match="between 1 and 4096"):
        run(scenario())


TEST = """
from zerochat import Bot, Message

bot = Bot(name="robo")


@bot.command("ping")
async def ping(m: Message):
    await m.reply("pong")


async def test_ping(zerochat_group, tmp_path):
    async with zerochat_group(members=2, bots=[bot], loss=0.2, reorder=True, seed=1) as group:
        await group.send("alice", "!ping")
        await group.settle()
        assert (await group.texts("alice"))[-1] == "pong" and tmp_path.exists()


async def test_that_fails(zerochat_group):
    async with zerochat_group(members=2) as group:
        assert await group.texts() == ["nothing was said"]
"""


@pytest.mark.slow
def test_the_plugin_runs_coroutines_in_virtual_time(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "nothing was said" in ran.stdout


PLUGIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]["zerochat"]


def test_plugin_imports_nothing_heavy():
    """It is loaded in every pytest run where zerochat is installed."""
    assert import_module(PLUGIN).FIXTURE == "zerochat_group"
    heavy = "('apsw', 'zmq', 'nacl', 'msgspec')"
    program = f"import sys, pytest; import {PLUGIN}; print([n for n in {heavy} if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr
