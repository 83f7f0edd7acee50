"""Who is shut out for a while, because what it sends is refused over and over.

A refused envelope changes nothing, but it takes a key agreement to find that out, and a member can send many. So each
refusal is a strike against the link that it came over, and after too many within a minute the link is closed on both
sides: `transport.py` lets its keys in no more and does not dial. When the time is over everything is as before.

Strangers do not come this far; they have a bucket of their own at the doorkeeper (`zap.py`). A member that says more
than it should is not shut out but heard less (`group/links/rate_limits.py`); what is refused does not count there.

An invitation for several people is one link, and one key that all of them have: whoever among them sends junk shuts it
for all, for as long, and so does whoever asks to come in again and again without end. That is so because nobody can
tell them apart before they have said who they are.
"""

from collections import OrderedDict
from collections.abc import Sequence

from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.group.dispatch import whose
from zerochat.group.effects import Effect, Measure
from zerochat.group.event_log.lamport import AheadOfTime
from zerochat.group.inputs import Received
from zerochat.group.links.rate_limits import TooOften
from zerochat.group.state import Agent
from zerochat.group.wire.frame import is_frame

STRIKES_MAX = 200
"""Refusals within `STRIKES_S` that one link may have. What goes wrong between honest agents (an answer that is late or
comes twice, a message that a removal has overtaken) is a handful."""
STRIKES_S = 60.0
BAN_S = 600.0
LINKS_MAX = 1024
"""Links with strikes, and links that are shut, of which there may be so many at once. Beyond that the strikes that
began longest ago are forgotten, and nobody more is shut out."""

EXCUSABLE = 1 / 50
"""What a refusal counts for that an honest peer may cause often. Ten thousand a minute shut it out, too; of what is
within bounds a member says seven thousand at the most (`group/links/rate_limits.py`)."""
HASTY = 1 / 4
"""What it counts for that too much is said under an invitation, or that we fail over it by a fault of our own: honest
peers may cause that for a moment, as many joiners do that are kept waiting; but not eight hundred times a minute."""


def gravity(agent: Agent, received: Received, effects: Sequence[Effect]) -> float:
    """How much of a strike this was: nothing unless the core has refused it, and little if an honest peer may have had
    a reason.

    An honest member goes on talking while its exchange with us is not over, or its answer to us is lost; a frame that
    opens for nobody may be for all the others; and clocks differ.
    """
    match effects:
        case [Measure("dropped", AheadOfTime.__name__)]:
            return EXCUSABLE
        case [Measure("dropped", TooOften.__name__)]:
            return HASTY
        case [Measure("dropped", Malformed.__name__ | Unauthentic.__name__ | Refused.__name__)]:
            return EXCUSABLE if is_frame(received.envelope) or _half_met(agent, received.link) else 1
    return 0


def _half_met(agent: Agent, link: bytes) -> bool:
    """Whether there is a member behind this link with whom our exchange is not over."""
    found = whose(agent, link)
    if found is None:
        return False
    group, member = found
    relationship = agent.groups[group].relationships.get(member)
    return relationship is None or not relationship.established


class Bans:
    """Strikes, and who is shut out until when. Every `now` is in seconds, monotonic."""

    def __init__(self) -> None:
        self._strikes: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        """When the minute of each link began, and its strikes since."""
        self._until: dict[bytes, float] = {}

    def __contains__(self, link: bytes) -> bool:
        return link in self._until

    def __len__(self) -> int:
        return len(self._until)

    @property
    def due(self) -> float:
        """When somebody may come back."""
        return min(self._until.values(), default=float("inf"))

    def strike(self, link: bytes, now: float, weight: float = 1) -> bool:
        """Count one refusal of this gravity; True when it was the one too many, and the link is shut from now on."""
        if link in self._until:
            return False  # it had been read before the link was shut
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

    def forgive(self, now: float) -> list[bytes]:
        """The links whose time is over; they are open from now on."""
        over = [link for link, until in self._until.items() if until <= now]
        for link in over:
            del self._until[link]
        return over
