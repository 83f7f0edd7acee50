"""Hybrid dissemination: forwarding along the ring and over random shortcuts, and duplicate suppression.

The rule is RingCast's (Voulgaris and van Steen, "Hybrid Dissemination", Middleware 2007): the two ring links carry a
message to every member as long as the ring is whole, in both directions from wherever it is; the random ones carry it
far, so that the number of hops grows with the logarithm of the members. With fan-out F each member sends F copies of a
message, so F copies are sent per delivery.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from zerochat.overlay.ring import Links

T = TypeVar("T")

FAN_OUT = 3
FAN_OUT_MIN = 2
SEEN_MAX = 65_536
SEEN_MS = 600_000


def targets(
    links: Links, bearer: str | None, random: Callable[[int], bytes], fan_out: int = FAN_OUT, *, direct: bool = False
) -> tuple[str, ...]:
    """The links that a new message goes to. `bearer`: the member that brought it, which never gets it back; None for
    the author. `links`: those that are up. `random(n)` returns n random bytes. Raises ValueError for a fan-out below
    `FAN_OUT_MIN`.

    They are the next members in both directions of the ring and as many random shortcuts as make `fan_out`. From the
    predecessor it therefore goes to the successor and `fan_out - 1` shortcuts, and conversely; from a shortcut, or from
    a member that is no link of ours in this view, to both and `fan_out - 2` shortcuts. Which side of the ring a bearer
    is on is never computed, so nothing depends on where the ring wraps around.

    In a mesh the author sends to each member and says so. `direct`: the bearer is the author, and has said so; then no
    member forwards. The author's view decides, so members whose views are on both sides of `MESH_MEMBERS_MAX` do not
    lose the message. From any other bearer the word must not count, or one member could silence another."""
    if fan_out < FAN_OUT_MIN:
        raise ValueError(f"a fan-out of {fan_out} does not cover both directions of the ring")
    if bearer is None and links.mesh:
        return links.all
    if direct:
        return ()
    chosen = [one for one in links.successors[:1] + links.predecessors[:1] if one != bearer]
    pool = [one for one in links.shortcuts if one != bearer]
    missing = fan_out - len(chosen)
    if len(pool) < missing:  # nearly a mesh, or many links are down
        pool += [one for one in links.successors[1:] + links.predecessors[1:] if one != bearer]
    return (*chosen, *sample(pool, missing, random))


def sample(pool: list[T], count: int, random: Callable[[int], bytes]) -> list[T]:
    """`count` of these in random order, or all; a partial Fisher-Yates shuffle of the list in place."""
    count = min(count, len(pool))
    lots = random(4 * count)
    for place in range(count):
        lot = int.from_bytes(lots[4 * place : 4 * place + 4], "big") % (len(pool) - place)
        pool[place], pool[place + lot] = pool[place + lot], pool[place]
    return pool[:count]


class SeenMessages:
    """Timed memory of message ids, bounded: the oldest of `most` ids leaves for a new one, and each after `keep_ms`.

    It is no part of the state of the core, and may be lost: then a duplicate costs `FAN_OUT` copies more. Remember an
    id only once the step that took the message has been committed."""

    def __init__(self, most: int = SEEN_MAX, keep_ms: float = SEEN_MS) -> None:
        self._most, self._keep_ms = most, keep_ms
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def holds(self, message: str, now: float) -> bool:
        """Whether this id is remembered at `now` (ms)."""
        return self._until.get(message, now) > now

    def remember(self, message: str, now: float) -> bool:
        """Whether this id is new at `now` (ms); then it is remembered. Constant time, amortised."""
        until = self._until
        while until and next(iter(until.values())) <= now:
            until.popitem(last=False)
        if message in until:
            return False
        until[message] = now + self._keep_ms
        if len(until) > self._most:
            until.popitem(last=False)
        return True
