"""zerochat's core alone in a full mesh: the processor time of its steps, by their kind.

A simulated world without faults. Envelopes are not encrypted and signatures are checked once, so that neither network
nor cryptography hides what grows with the group. The members join one after the other, then post.
"""

import argparse
import functools
import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import zerochat.limits

SETTLE_MS = 150_000
"""Virtual time in which the last timers of the joins are over."""
ROUND_MS = 5_000
"""Virtual time in which a post is delivered and acknowledged."""
CHAT_MS = 1_000
"""Virtual time in which every member posts once."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor time of the cores of all members, us."""

    post: float
    """Of a member's post, for each recipient."""
    delivery: float
    """Of an envelope with a post, for its recipient."""
    acknowledging: float
    """Of sending an acknowledgement."""
    acknowledged: float
    """Of receiving one."""
    each: float
    """All of this for one delivery, with the timers meanwhile."""
    chat: float
    """The same where all members post within a second."""
    join: float
    """Of all joins, for each pair of members."""
    joins_s: float
    """All joins with the simulated world, s."""
    state_bytes: float
    """One member's state, as the journal has it."""
    written_bytes: float
    """What the journals of all members write of it for one delivery."""


def measure(members: int, posts: int, keys: str, begin: Callable[[str], None] = lambda phase: None) -> Costs:
    """Found a group of so many, then post. `begin` is called with the name of each phase; empty: the end."""
    # The modules that are imported from here on take their limits from this one.
    zerochat.limits.MEMBERS_MAX = max(zerochat.limits.MEMBERS_MAX, members)
    zerochat.limits.MEMBERS_MAX_BY_PATH["mesh"] = zerochat.limits.MEMBERS_MAX
    with larger_caches(members):
        from benchmarks.ours.timed_world import TimedWorld
        from zerochat.sim.fast_crypto import cached_signatures
    gc.disable()  # a collection looks at the states of all members, of which an agent has one
    with cached_signatures():
        world = TimedWorld(members)
        begin("join")
        begun = time.thread_time()
        world.gather(keys)
        joins_s = time.thread_time() - begun
        begin("")
        join, _ = world.taken()
        world.run(for_ms=SETTLE_MS)
        for name in world.nodes:
            world.post(name)
            world.run(for_ms=ROUND_MS // members)
        world.run(for_ms=SETTLE_MS)
        world.taken()
        world.weighs = True
        begin("post")
        for number in range(posts):
            world.post(f"n{number % members}")
            world.run(for_ms=ROUND_MS)
        spent, steps = world.taken()
        world.weighs = False
        begin("chat")
        for number in range(members):
            world.post(f"n{number}")
            world.run(for_ms=CHAT_MS // members)
        world.run(for_ms=ROUND_MS)
        chat, _ = world.taken()
        begin("")
    pairs, deliveries = members * (members - 1) / 2, posts * (members - 1)
    assert steps["delivery"] == deliveries, steps
    return Costs(
        spent["post"] / deliveries,
        spent["delivery"] / deliveries,
        spent["acknowledging"] / steps["acknowledging"],
        spent["acknowledged"] / steps["acknowledged"],
        sum(spent.values()) / deliveries,
        sum(chat.values()) / (2 * pairs),
        sum(join.values()) / pairs,
        joins_s,
        world.state_bytes(),
        world.written / deliveries,
    )


@contextmanager
def larger_caches(times: int) -> Iterator[None]:
    """Caches of modules that are imported within the block have so many times their size: as many agents share them
    here."""
    lru_cache = functools.lru_cache

    def larger(maxsize: Any = 128, typed: bool = False) -> Any:
        return lru_cache(maxsize * times if isinstance(maxsize, int) else maxsize, typed)

    functools.lru_cache = larger
    try:
        yield
    finally:
        functools.lru_cache = lru_cache
    from zerochat.group.membership.resolve import RecentCache

    for one in gc.get_objects():
        if isinstance(one, RecentCache):
            one.most *= times


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("members", type=int)
    parser.add_argument("posts", type=int)
    parser.add_argument("keys")
    arguments = parser.parse_args()
    print(json.dumps(asdict(measure(arguments.members, arguments.posts, arguments.keys))))
