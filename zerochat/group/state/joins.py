"""Invitations and joins in progress, on either side (`group/joining/`)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import Identity
from zerochat.didcomm.invitation import Invitation
from zerochat.group.composite import Composite
from zerochat.group.links.relationship import Relationship
from zerochat.group.state.peers import RateLimit
from zerochat.group.state.private import PrivateInvitation, Voucher
from zerochat.group.state.trust import AttestationConflict, ViewAttestation
from zerochat.group.wire.messages import JoinRequestBody


class JoinState(StrEnum):
    """The states of a join on the joiner's side."""

    EXCHANGING = "exchanging"
    """DID exchange with the inviter."""
    REQUESTING = "requesting"
    """The join request is sent; the welcome is awaited."""
    PENDING = "pending"
    """A member has to decide on the request."""
    CONNECTING = "connecting"
    """Admitted; links to the other members come up."""
    JOINED = "joined"
    CANCELLING = "cancelling"
    """Failed; the withdrawal is retransmitted."""
    FAILED = "failed"


_S = JoinState
ENDS: Final = frozenset({_S.CANCELLING, _S.FAILED})
JOIN_TRANSITIONS: Final[Mapping[JoinState, frozenset[JoinState]]] = {
    _S.EXCHANGING: ENDS | {_S.REQUESTING},
    _S.REQUESTING: ENDS | {_S.PENDING, _S.CONNECTING},
    _S.PENDING: ENDS | {_S.REQUESTING, _S.CONNECTING},
    _S.CONNECTING: frozenset({_S.JOINED, _S.FAILED}),
    _S.JOINED: frozenset({_S.FAILED}),
    _S.CANCELLING: frozenset({_S.FAILED, _S.EXCHANGING, _S.REQUESTING}),
    _S.FAILED: frozenset({_S.EXCHANGING, _S.REQUESTING}),
}
"""A failed join can be retried with the same keys; CONNECTING and JOINED fail when the joiner leaves at once."""
AWAITING_INVITER: Final = frozenset({_S.EXCHANGING, _S.REQUESTING, _S.PENDING})
REQUESTED: Final = frozenset({_S.REQUESTING, _S.PENDING})
ADMITTED: Final = frozenset({_S.CONNECTING, _S.JOINED})


class InvitationState(StrEnum):
    """The states of an open invitation of ours; an expired or used one is closed when its timer fires."""

    OPEN = "open"
    CLAIMED = "claimed"
    """All uses are claimed; OPEN again if a joiner cancels."""
    USED_UP = "used up"
    """All uses led to a join."""
    EXPIRED = "expired"


class Claim(Struct, frozen=True):
    """One joiner's use of an invitation; its member key is unproven until its join request is verified."""

    relationship: Relationship
    admitted: bool = False
    welcomed_at: int = 0
    """When the last welcome was sent, UTC ms."""
    claimed_at: int = 0
    """When it began, UTC ms."""


class ShortLink(Redacted, frozen=True):
    """The short link of an invitation of ours, served by a mediator (`external/short_links.py`)."""

    REDACTED = ("key",)

    oobid: str
    key: bytes
    """Seals the invitation; only the link contains it."""
    connection: str
    """The connection with the mediator."""
    asked: str = ""
    """The id of the message that published it; empty: not sent since the last reconnection."""
    page: str = ""
    """Where the mediator serves it; empty: it has not answered, or refused."""
    why: str = ""
    """Why the mediator refused (`short_links.REFUSALS`)."""


class OpenInvitation(Redacted, frozen=True):
    """An invitation of ours that can still be used."""

    REDACTED = ("seed",)

    invitation: Invitation
    seed: bytes
    """The seed of the invitation's Ed25519 key."""
    client_key: bytes
    """The CURVE public key of its holders' connections."""
    group: str
    uses: int
    """0: unlimited, until it expires."""
    role: str = "writer"
    """The highest role of its users."""
    nonce: bytes = b""
    """Binds its id to the group (`bound_id`)."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """Its users, by the short form of the joiner's DID."""
    returned_uses: int = 0
    """Uses returned by joiners that cancelled."""
    history: str = "all"
    """The history that its users may read, as far as the group's own rule allows."""
    name: str = ""
    """What its inviter calls it; stays here."""
    short: ShortLink | None = None
    """Its short link; None: we have no mediator."""
    rate_limit: RateLimit = RateLimit()
    """The shared rate limit of its holders (`rate_limits.spend_join_envelope`)."""

    def state_at(self, now: int) -> InvitationState:
        """Its state at this time (UTC ms)."""
        if self.invitation.expires * 1000 <= now:
            return InvitationState.EXPIRED
        if not self.uses or len(self.claims) < self.uses:
            return InvitationState.OPEN
        admitted = sum(claim.admitted for claim in self.claims.values())
        return InvitationState.USED_UP if admitted >= self.uses else InvitationState.CLAIMED


class WelcomePart(Struct, frozen=True):
    """One part of a welcome: the records of membership events."""

    records: list[bytes]


class Join(Redacted, frozen=True):
    """A join in progress, on the joiner's side."""

    REDACTED = ("seed",)

    id: str
    invitation: Invitation
    label: str
    relationship: Relationship
    seed: bytes
    """The seed of the Ed25519 key that will be our member key."""
    me: str
    deadline: int
    """UTC ms; after this the join has failed."""
    state: JoinState
    group: str = ""
    name: str = ""
    contact: Identity | None = None
    """Our contact in that group, once the group is known."""
    role: str = "writer"
    """The role that we ask for."""
    pending_tries: int = 0
    """Requests since we learned that a member has to decide; 0: no decision is pending."""
    welcome_parts: dict[int, WelcomePart] = field(default_factory=dict)
    """The received parts of the welcome. The journal stores each by itself."""
    checking: bool = False
    """It is complete, and is being checked (`joining/evidence.py`)."""
    start_seq: int = 0
    """The position after which the inviter's chain begins for us."""
    attestations: dict[str, ViewAttestation] = field(default_factory=dict)
    """The members' attestations in the welcome."""
    conflict: AttestationConflict | None = None
    """The evidence of contradicting attestations."""
    connected: int = 0
    """How many members were connected at the last report."""
    most_connected: int = 0
    """The most that ever were."""
    begun_at: int = 0
    """When it began, UTC ms."""
    unanswered: int = 0
    """Requests since the last answer."""
    cancel_until: int = 0
    """Until when the withdrawal is retransmitted (UTC ms); 0: none."""
    leave_event: bytes = b""
    """The signed leave event after a cancellation; this key is not used again."""
    voucher: Voucher | None = None
    """Our proof that we are the invited member, in a private conversation."""
    rate_limit: RateLimit = RateLimit()
    """The rate limit of the inviter (`rate_limits.spend_inviter_envelope`)."""

    def moved_to(self, state: JoinState, **fields: Any) -> Self:
        """The join in this state, with these fields changed."""
        assert state is self.state or state in JOIN_TRANSITIONS[self.state], f"{self.state} -> {state}"
        return replace(self, state=state, **fields)


class JoinRequest(Struct, frozen=True):
    """A joiner that waits for a member's decision."""

    member: str
    """Its member key, a did:key."""
    label: str
    role: str
    at: int
    """When it asked, UTC ms."""
    link: bytes
    """The link of the invitation that it uses."""
    claimant: str
    """The key of its claim in that invitation."""
    until: int
    """When the request expires, UTC ms."""
    asked: JoinRequestBody
    """The request itself."""
    thread: str
    """The id of the message that carried it."""
    handle: bytes = b""
    """Where it last asked from; empty: by mail, or over a link that we opened."""
    refused: bool = False
    """Refused; repeated requests are refused again."""


class Admissions(Composite, frozen=True):
    """Our own admission to a group, and the joiners that want to be admitted."""

    event: str = ""
    """The event that admitted us; empty: we founded the group."""
    requests: dict[str, JoinRequest] = field(default_factory=dict)
    """By member key: the joiners that wait for a decision."""
    private: dict[str, PrivateInvitation] = field(default_factory=dict)
    """By member: its invitation to a private conversation, the latest."""
