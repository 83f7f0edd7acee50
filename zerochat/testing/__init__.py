"""For those who write bots: a group of people and bots in one process, with the real core and no network.

    async def test_ping(zerochat_group):
        async with zerochat_group(members=2, bots=[bot], loss=0.2, reorder=True, seed=1) as group:
            await group.say("alice", "!ping")
            await group.settle()
            assert group.converged()
            assert (await group.texts("alice"))[-1] == "pong"

Time is virtual: an hour passes in a moment, and one seed gives one story. Members are real: each has the core, the
journal and the desk that a real agent has, and bots talk to theirs in the very requests and items of the control
socket. Simulated are the network, the clocks and the machines. Files are not there.

    group    `Group`, its people and its network
    stage    the simulated world, with a desk and a journal for every member
    line     a bot's line to its member
    loop     the event loop in virtual time
    plugin   the pytest fixture `zerochat_group`; tests that ask for it may be coroutines
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerochat.bot.launch import load
    from zerochat.testing.group import Group, NotSettled, Said
    from zerochat.testing.loop import Stuck, VirtualLoop, run

__all__ = ["Group", "NotSettled", "Said", "Stuck", "VirtualLoop", "load", "run"]

_HOMES = {
    "Group": "zerochat.testing.group",
    "NotSettled": "zerochat.testing.group",
    "Said": "zerochat.testing.group",
    "Stuck": "zerochat.testing.loop",
    "VirtualLoop": "zerochat.testing.loop",
    "load": "zerochat.bot.launch",
    "run": "zerochat.testing.loop",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
