"""Bans: a link with too many refused envelopes is closed for a while.

A refused envelope changes nothing, but costs a key agreement, and a member can send many. So each refusal is a strike
against its link, and after too many within a minute the link is closed on both sides: `transport.py` refuses its keys
and does not dial. Afterwards the link works as before.

Unauthenticated clients have token buckets of their own (`zap.py`). A member that sends too many valid messages is not
banned but rate-limited (`group/links/rate_limits.py`).

An invitation for several people is one link with one shared key: a joiner that sends junk, or join requests without
end, closes the invitation for all of them, because joiners cannot be told apart before they are authenticated.
"""

from collections import OrderedDict
from collections.abc import Sequence

from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.group.dispatch import link_owner
from zerochat.group.effects import Effect, Measure
from zerochat.group.event_log.lamport import AheadOfTime
from zerochat.group.inputs import Received
from zerochat.group.links.rate_limits import RateLimited
from zerochat.group.state import Agent
from zerochat.group.wire.frame import is_frame

STRIKES_MAX = 200
"""Strikes of one link within `STRIKES_S`. Honest agents cause a handful (a late or duplicate answer, a message
overtaken by a removal)."""
STRIKES_S = 60.0
BAN_S = 600.0
LINKS_MAX = 1024
"""Links with strikes, and banned links, at once. Beyond that the oldest strikes are dropped, and no link is banned."""

EXCUSABLE = 1 / 50
"""Weight of a refusal that an honest peer may cause often: ten thousand a minute lead to a ban. The rate limit for
members allows seven thousand messages (`group/links/rate_limits.py`)."""
HASTY = 1 / 4
"""Weight of a message over an invitation's rate limit, and of a fault of ours while processing a message: honest peers
may cause some, as many waiting joiners do, but not eight hundred a minute."""


def strike_weight(agent: Agent, received: Received, effects: Sequence[Effect]) -> float:
    """The weight of the strike for an envelope, given the core's effects: 0 unless it was refused, and little if an
    honest peer may have sent it.

    An honest member continues to send while the relationship with us is not established, or when its answer is lost; a
    frame that does not open here may be for the other recipients; and clocks differ.
    """
    match effects:
        case [Measure("dropped", AheadOfTime.__name__)]:
            return EXCUSABLE
        case [Measure("dropped", RateLimited.__name__)]:
            return HASTY
        case [Measure("dropped", Malformed.__name__ | Unauthentic.__name__ | Refused.__name__)]:
            return EXCUSABLE if is_frame(received.envelope) or _is_establishing(agent, received.link) else 1
    return 0


def _is_establishing(agent: Agent, link: bytes) -> bool:
    """Whether this link belongs to a member with whom the relationship is not established yet."""
    found = link_owner(agent, link)
    if found is None:
        return False
    group, member = found
    relationship = agent.groups[group].links.relationships.get(member)
    return relationship is None or not relationship.established


class Bans:
    """Strikes and banned links. Every `now` in seconds, monotonic."""

    def __init__(self) -> None:
        self._strikes: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        """By link: begin of the current minute, and the strikes since."""
        self._until: dict[bytes, float] = {}

    def __contains__(self, link: object) -> bool:
        return link in self._until

    def __len__(self) -> int:
        return len(self._until)

    @property
    def due(self) -> float:
        """When the next ban ends."""
        return min(self._until.values(), default=float("inf"))

    def strike(self, link: bytes, now: float, weight: float = 1) -> bool:
        """Count a strike of this weight; True when it was one too many, and the link is now banned."""
        if link in self._until:
            return False  # read before the ban
        begun, strikes = self._strikes.get(link, (now, 0.0))
        if now - begun > STRIKES_S:
            begun, strikes = now, 0.0
            del self._strikes[link]
        self._strikes[link] = (begun, strikes + weight)
        if len(self._strikes) > LINKS_MAX:
            self._strikes.popitem(last=False)
        if strikes + weight <= STRIKES_MAX or len(self._until) >= LINKS_MAX:
            return False
        del self._strikes[link]
        self._until[link] = now + BAN_S
        return True

    def lift_expired(self, now: float) -> list[bytes]:
        """Lift the bans whose time is over; their links."""
        over = [link for link, until in self._until.items() if until <= now]
        for link in over:
            del self._until[link]
        return over
