"""Everything that the core hears: commands from a face, and inputs from the machine room.

The core is one function, `step(agent, stimulus, moment) -> (agent, effects)` (`engine.py`). A *stimulus* is what it
hears; what it says back are *effects* (`effects.py`). The clock and the dice come in as a `Moment`, so that the same
stimuli always give the same agent: that is what the simulator, the tests and the journal rely on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from zerochat.didcomm.invitation import Endpoint, Invitation


@dataclass(frozen=True, slots=True)
class Moment:
    """All that a step may know of the world outside: one reading of the clock, one source of randomness."""

    now: int
    """UTC, milliseconds since 1970."""
    random: Callable[[int], bytes]
    """`random(n)` gives n fresh unpredictable bytes."""


# --- commands: a person or a program at this machine wants something ------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateGroup:
    name: str
    label: str
    """What the others will call me in this group."""


@dataclass(frozen=True, slots=True)
class CreateInvitation:
    group: str
    lifetime_s: int
    uses: int


@dataclass(frozen=True, slots=True)
class AcceptInvitation:
    invitation: Invitation
    label: str


@dataclass(frozen=True, slots=True)
class SendPost:
    group: str
    text: str


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group: str


Command: TypeAlias = CreateGroup | CreateInvitation | AcceptInvitation | SendPost | LeaveGroup


@dataclass(frozen=True, slots=True)
class Ask:
    """A command with the ticket under which its `Answer` or `Refuse` comes back."""

    ticket: int
    command: Command


# --- inputs: the machine room saw something -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The sockets are bound; this is where others reach them from now on."""

    pair: Endpoint
    queue: Endpoint
    server_key: bytes
    """The CURVE public key of both bound sockets, 32 bytes."""


@dataclass(frozen=True, slots=True)
class Received:
    """One envelope came in over `link`. `handle` is set when it came in on a connection that the peer dialled."""

    link: bytes
    envelope: bytes
    handle: bytes | None = None


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The pair link to this peer has finished its handshake (either side may have dialled)."""

    link: bytes


@dataclass(frozen=True, slots=True)
class LinkDown:
    link: bytes


@dataclass(frozen=True, slots=True)
class TimerFired:
    key: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """The answer to a `Recall`: canonical event records, in the order of the author's chain."""

    group: str
    member: str
    records: tuple[bytes, ...]


Input: TypeAlias = Started | Received | LinkUp | LinkDown | TimerFired | Recalled
Stimulus: TypeAlias = Ask | Input
