"""What the core tells the faces. Frozen values, so that threads and processes share them without locks."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Delivered:
    """An event took its place in the log (one's own as well as others')."""

    group: str
    id: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """`member` has every event of `author` up to `upto`; before, it was known to have them up to `after`."""

    group: str
    member: str
    author: str
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class PeerUp:
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class PeerDown:
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """Somebody joined or left, or a member's view began to agree or to differ."""

    group: str


JoinPhase: TypeAlias = Literal["dialling", "exchanging", "asking", "connecting", "joined", "failed"]


@dataclass(frozen=True, slots=True)
class JoinProgress:
    join: str
    phase: JoinPhase
    text: str
    """One sentence for a person."""
    group: str = ""
    connected: int = 0
    members: int = 0
    error: str = ""
    """The error's code, when failed."""


@dataclass(frozen=True, slots=True)
class InvitationUsed:
    """Somebody answered an invitation of ours; `uses_left` of it remain."""

    group: str
    label: str
    uses_left: int


@dataclass(frozen=True, slots=True)
class Forked:
    """Two different events claim the same place in one author's chain; the later one was set aside."""

    group: str
    author: str
    seq: int


Notice: TypeAlias = Delivered | Receipt | PeerUp | PeerDown | ViewChanged | JoinProgress | InvitationUsed | Forked
