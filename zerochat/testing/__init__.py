"""Tests for bots: a group of users and bots in one process, with the real core in virtual time.

    async def test_ping(zerochat_group):
        async with zerochat_group(members=2, bots=[bot], loss=0.2, reorder=True, seed=1) as group:
            await group.send("alice", "!ping")
            await group.settle()
            assert group.converged()
            assert (await group.texts("alice"))[-1] == "pong"

Time is virtual: an hour passes in a moment, and a seed determines the run. Each member has the core, journal and
request handlers of a real agent; bots use the requests and items of the control socket. Network, clocks and machines
are simulated. Members join and leave, send files, and have further groups.

    group            `Group`: its members and its network
    simulated_group  the simulated world, with request handlers and a journal for every member
    agent_link       a bot's link to its member
    loop             the event loop in virtual time
    plugin           the pytest fixture `zerochat_group`; tests that use it may be coroutines
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerochat.bot.launch import load
    from zerochat.testing.group import Convergence, Group, MessageView, NotSettled
    from zerochat.testing.loop import Deadlock, VirtualLoop, run

__all__ = ["Convergence", "Deadlock", "Group", "MessageView", "NotSettled", "VirtualLoop", "load", "run"]

_HOMES = {
    "Convergence": "zerochat.testing.group",
    "Group": "zerochat.testing.group",
    "NotSettled": "zerochat.testing.group",
    "MessageView": "zerochat.testing.group",
    "Deadlock": "zerochat.testing.loop",
    "VirtualLoop": "zerochat.testing.loop",
    "load": "zerochat.bot.launch",
    "run": "zerochat.testing.loop",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
