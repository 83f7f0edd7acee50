"""Invitations and joins that are under way, at either end (`group/joining/`)."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.did import Identity
from zerochat.didcomm.invitation import Invitation
from zerochat.group.links.relationship import Relationship
from zerochat.group.state.groups import Conduct, Contradiction, Word

JoinState: TypeAlias = Literal["exchanging", "asking", "done", "failed"]


class Claim(Struct, frozen=True):
    """One joiner's use of an invitation: its key is only claimed until it has proved it by joining."""

    relationship: Relationship
    joined: bool = False
    welcomed: int = 0
    """When the evidence for the group was last sent there, UTC ms."""
    at: int = 0
    """When it began, UTC ms."""


class OpenInvitation(Veiled, frozen=True):
    """An invitation of ours that can still be answered."""

    VEILED = ("seed",)

    invitation: Invitation
    seed: bytes
    """The seed of the invitation's Ed25519 key."""
    knock_key: bytes
    """The CURVE public key that its holders knock with."""
    group: str
    uses: int
    """0: as many as come, until it expires."""
    role: str = "writer"
    """What whoever uses it may be at the most."""
    nonce: bytes = b""
    """What binds its id to the group (`bound_id`)."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """Who has used it, by the short form of the joiner's DID."""
    given_back: int = 0
    """How many uses were given back by joiners who changed their minds."""
    history: str = "all"
    """What whoever uses it may have of what was said before, as far as the group's own rule allows it."""
    conduct: Conduct = Conduct()
    """What its holders may still say at once (`conduct.spend_knock`)."""

    @property
    def used_up(self) -> bool:
        """Whether everybody whom it was for has joined."""
        return 0 < self.uses <= sum(claim.joined for claim in self.claims.values())


class Join(Veiled, frozen=True):
    """A join that is under way, on the joiner's side."""

    VEILED = ("seed",)

    id: str
    invitation: Invitation
    label: str
    relationship: Relationship
    seed: bytes
    """The seed of the Ed25519 key that will be our member key."""
    me: str
    deadline: int
    """UTC ms; after this the join has failed."""
    phase: JoinState
    group: str = ""
    name: str = ""
    contact: Identity | None = None
    """Our contact in that group, once it is known which one it is."""
    role: str = "writer"
    """What we want to be."""
    pending: int = 0
    """How often we have asked since we were told that a member has to decide; 0: nobody has told us so."""
    evidence: dict[int, list[bytes]] = field(default_factory=dict)
    """The parts of the welcome that have come."""
    words: dict[str, Word] = field(default_factory=dict)
    """What came with them: the members' signed words."""
    contradiction: Contradiction | None = None
    """Why we did not stay, or whom we do not trust."""
    connected: int = 0
    """How many members were connected when it was last told."""
    most: int = 0
    """The most that ever were."""
    seated: bool = False
    """True when the joiner has been told that it is in."""
    begun: int = 0
    """Since when it tries, UTC ms."""
    unanswered: int = 0
    """How often it has asked since it was last answered."""
    parting: int = 0
    """Until then (UTC ms) it tells whoever invited us that it is given up; 0: there is nothing to tell."""
    farewell: bytes = b""
    """The event with which it has left again: this key has gone, and is used no more."""
