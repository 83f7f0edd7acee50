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
            with pytest.raises(AgentError, match="Files are not simulated"):
                await group.call("alice", "fetch_file", group="friends", file="x")

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
