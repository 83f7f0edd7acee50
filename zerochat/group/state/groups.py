"""A group and its peers, as this member sees them."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import Identity
from zerochat.didcomm.protocols.problem import Breaker
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes import MODES, Mode, OwnPlace
from zerochat.group.links.contact import Reach, transport_secret
from zerochat.group.links.relationship import Relationship
from zerochat.group.membership import View
from zerochat.group.state.chains import Chain, ReorderBuffer
from zerochat.group.state.files import FileEntry
from zerochat.group.state.streams import EarlyMessages, OwnStream, Stream, Subscriber, SubscriptionRequest
from zerochat.group.state.sync import (
    BackfillProgress,
    Comparison,
    Corroboration,
    Difference,
    MissingRange,
    PullRequest,
    Recovery,
    ReinstatedPosts,
    UnreachableAuthor,
)
from zerochat.group.state.tlog import EndedSubscription, TransparencyLog
from zerochat.group.wire.messages import JoinRequestBody

GroupState: TypeAlias = Literal["active", "leaving", "left"]
_EMPTY_CHAIN = Chain()
"""The chain of an author without events: requested so often that a shared object matters."""


class Profile(Struct, frozen=True):
    """The choices fixed at a group's creation."""

    keys: str = "pairwise-multi"
    path: str = "mesh"
    accountability: str = "acks"
    envelope: str = "didcomm/v2"


class RateLimit(Struct, frozen=True, eq=False):
    """The contents of a peer's token buckets (`links/rate_limits.py`).

    No part of the group's state proper: it also counts rejected messages, which must change nothing else. So any two
    are equal.
    """

    envelopes: int = 0
    bytes: int = 0
    at: int = 0
    """When the two were computed, UTC ms; 0: both buckets are full."""
    given: int = 0
    given_at: int = 0
    """The bytes of files that it may still receive, and when that was computed (`files/upload.py`)."""
    statements: int = 0
    statements_at: int = 0
    """The signed statements that it may still cause, and when that was computed."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RateLimit)

    def __hash__(self) -> int:
        return 0


class StoredAtMediator(Struct, frozen=True):
    """What a member's mediator has signed that it holds until the member fetches it (`links/mediator_receipts.py`)."""

    upto: int = 0
    """The mediator holds all of our events that the member has not acknowledged, up to this place; 0: unknown."""
    until: int = 0
    """When it deletes the first of them, UTC ms."""


class Peer(Struct, frozen=True):
    """Our knowledge of one other member, and our obligations to it."""

    link: bytes
    start_seq: int
    """Our own events after this place are meant for this member."""
    start_id: str = ""
    """The id of that event; empty: none, or unknown."""
    acked: dict[str, int] = field(default_factory=dict)
    """The place up to which this member has acknowledged each author's chain."""
    regressed_since: int = 0
    """Since when it reports less of our chain than it had acknowledged, UTC ms; 0: it does not."""
    state_written_at: int = 0
    """When it wrote the newest state that we have received, UTC ms by its own clock."""
    exchange_requested_at: int = 0
    """When we last requested a DID exchange from it, UTC ms."""
    exchange_answered_at: int = 0
    """When we last answered its request for a DID exchange, UTC ms."""
    view: str = ""
    """The checksum of the view that it reported last, if it did since ours changed."""
    last_received_at: int = 0
    """When its last authentic message was received, UTC ms; 0: never."""
    reach: Reach | None = None
    """The endpoints that it announced last; None: those in its contact."""
    reach_at: int = 0
    """When it announced them, UTC ms by its own clock: older announcements, possibly replayed, are ignored."""
    retransmitted_upto: int = 0
    """The last of our own events in the last retransmission."""
    retry_at: int = 0
    """Do not retransmit before this time, UTC ms."""
    tries: int = 0
    sync_sent_at: int = 0
    """When we last sent it our state because we lacked events of its own, UTC ms."""
    view_answered_at: int = 0
    """When we last sent it membership events that it lacked, UTC ms."""
    greeting_due: bool = False
    """It has answered our DID exchange request, and we have sent nothing in the new relationship yet."""
    ended_at: int = 0
    """When it last ended its DID without a successor, UTC ms; 0: never."""
    rate_limit: RateLimit = RateLimit()
    """No part of the state proper: it also counts rejected messages."""
    breaker: Breaker = Breaker()
    """The circuit breaker for problem reports: a conversation about errors must end."""
    clock_ahead_ms: int | None = None
    """By how much its clock was ahead of ours when it last sent its state over a link, give or take the latency, ms;
    None: it has not yet. Only shown to the user."""
    read_upto: int = 0
    """The Lamport time up to which it has read, by its read receipts. Only shown to the user."""
    mediator_receipt: StoredAtMediator = StoredAtMediator()
    """What its mediator holds for it. Only shown to the user: retransmission goes by the member's own acknowledgements.
    """


class RelationshipOffer(Struct, frozen=True):
    """A relationship offered in answer to a new exchange request; it replaces the present one when the member uses
    it."""

    relationship: Relationship
    simultaneous: bool = False
    """Our own request was open when the member's came (simultaneous exchange)."""


class BlockedEvent(Struct, frozen=True):
    """A membership event whose dependencies are missing, and its sender."""

    sender: str
    record: bytes


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


class ViewAttestation(Redacted, frozen=True):
    """A member's signed attestation of the membership events that it has (`membership/attestation.py`)."""

    REDACTED = ("sig",)

    heads: tuple[str, ...]
    """The heads of those events."""
    sig: str
    """base64url of its Ed25519 signature."""
    at: int = 0
    """When the member sent it to us itself, UTC ms; 0: relayed by our inviter."""
    confirms: bool = False
    """True: it covers all that we began with; else that has to be looked up."""


class AttestationConflict(Struct, frozen=True):
    """Proof that members attest different membership histories: their signatures."""

    group: str
    attestations: tuple[tuple[str, ViewAttestation], ...]
    """Members with the attestation of each."""
    records: tuple[bytes, ...]
    """Membership events that only one of them has, or that exclude each other."""


class Group(Redacted, frozen=True):
    """One group, as this member sees it."""

    REDACTED = ("seed",)

    id: str
    name: str
    profile: Profile
    state: GroupState
    me: str
    seed: bytes
    """The seed of the Ed25519 key that is `me`; our CURVE key for this group derives from it (`transport_secret`)."""
    contact: Identity
    control: dict[str, Event]
    """Every membership event, by id."""
    view: View
    created: int
    """The genesis event's own time, UTC ms."""
    peers: dict[str, Peer] = field(default_factory=dict)
    relationships: dict[str, Relationship] = field(default_factory=dict)
    offers: dict[str, tuple[RelationshipOffer, ...]] = field(default_factory=dict)
    """By member: relationships that we offer in place of the present one (`links/pairing.py`)."""
    chains: dict[str, Chain] = field(default_factory=dict)
    lamport: int = 0
    heads: tuple[str, ...] = ()
    """The delivered events that no delivered event names yet, sorted."""
    covered_heads: tuple[str, ...] = ()
    """The heads of the membership events that our own chain has named: they need not be named again."""
    reorder_buffers: dict[str, ReorderBuffer] = field(default_factory=dict)
    """By author: events that wait for their predecessor."""
    blocked: dict[str, BlockedEvent] = field(default_factory=dict)
    """By id: membership events that wait for their dependencies."""
    gaps: dict[str, MissingRange] = field(default_factory=dict)
    """By author: the missing part of its chain that other members have."""
    pull_requests: dict[str, PullRequest] = field(default_factory=dict)
    """By member: the open pull request, at most one each."""
    reinstated_posts: dict[str, ReinstatedPosts] = field(default_factory=dict)
    """By author: posts that were left out because the author was a reader, and that may be valid after all."""
    unreachable_authors: dict[str, UnreachableAuthor] = field(default_factory=dict)
    """By author: the answers of other members about an author that has never reached us itself."""
    corroborations: dict[str, Corroboration] = field(default_factory=dict)
    """By author: the corroboration of the newest relayed part of its chain."""
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """By member: the state of our set reconciliation with it."""
    differences: tuple[Difference, ...] = ()
    """The differences that reconciliation has found."""
    recovery: Recovery | None = None
    """Stale-profile recovery; None: no member claims to have more of our chain than we have."""
    backfill: BackfillProgress | None = None
    """The backfill; None: there is nothing from before we joined that we may have."""
    acks_due: frozenset[str] = frozenset()
    """The authors to which an acknowledgement is due."""
    verified: dict[str, str] = field(default_factory=dict)
    """The members whose safety words were verified: their DIDs, and their display names then."""
    join_requests: dict[str, JoinRequest] = field(default_factory=dict)
    """By member key: the joiners that wait for a decision."""
    join_event: str = ""
    """The event that admitted us; empty: we founded the group."""
    attestation_deadline: int = 0
    """Until then (UTC ms) a new member waits for attestations of its inviter's account; 0: settled."""
    attestations: dict[str, ViewAttestation] = field(default_factory=dict)
    """By member: its latest view attestation."""
    quarantine: tuple[str, ...] = ()
    """Members known only from our inviter, or from the member that admitted them: no contact until another member
    attests them."""
    dissenting: tuple[str, ...] = ()
    """Members whose attestation contradicts what we began with."""
    fork_proofs: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """By author: two of its membership events that prove an equivocation, as relayed to us
    (`membership/fork_proof.py`)."""
    proof_recipients: tuple[str, ...] = ()
    """The members to which we have sent such a proof."""
    dismissed_warnings: tuple[str, ...] = ()
    """The warnings that the user has dismissed (`membership/attestation.py`)."""
    removed_by: str = ""
    """The member that removed us; empty: none."""
    files: dict[str, FileEntry] = field(default_factory=dict)
    """The files that were posted, by id."""
    own_stream: OwnStream | None = None
    """Our own signed stream; None: nothing was posted, or the group's keys do not sign."""
    subscribers: dict[str, Subscriber] = field(default_factory=dict)
    """By member: its subscription to our stream."""
    streams: dict[str, Stream] = field(default_factory=dict)
    """By member: its stream."""
    subscription_requests: dict[str, SubscriptionRequest] = field(default_factory=dict)
    """By member: our open subscription request."""
    early_messages: dict[str, EarlyMessages] = field(default_factory=dict)
    """By member: signed messages that arrived before their predecessor."""
    tlogs: dict[str, TransparencyLog] = field(default_factory=dict)
    """By name: the tlog of the terms in force, and its latest predecessors (`tlog/adoption.py`)."""
    abandoned_tlogs: tuple[str, ...] = ()
    """The tlogs that we have given up: we sign nothing there again."""
    ended_subscriptions: tuple[EndedSubscription, ...] = ()
    """Replaced subscriptions to our stream whose obligations may not be in the tlog yet."""
    terms_due: tuple[str, int] = ("", 0)
    """Why new terms are due, and since when (UTC ms); empty: they are not."""
    stalled_terms: int = 0
    """How many tlogs in a row never reached a checkpoint."""
    retired_at: int = 0
    """We may have signed more than we remember in tlogs whose terms have at most this Lamport time; 0: none."""
    unpublished: tuple[Event, ...] = ()
    """Our own events of this batch, published together at its end; empty between batches."""

    @property
    def mode(self) -> Mode:
        """The operations of the group's key mode."""
        return MODES[self.profile.keys]

    @property
    def own_place(self) -> OwnPlace:
        return OwnPlace(self.id, self.me, transport_secret(self.seed))

    @property
    def seq(self) -> int:
        """The number of our own events."""
        chain = self.chains.get(self.me)
        return chain.seq if chain else 0

    @property
    def others(self) -> list[str]:
        return [did for did in self.view.members if did != self.me]

    def chain(self, author: str) -> Chain:
        """How far this author's chain is delivered here."""
        return self.chains.get(author, _EMPTY_CHAIN)
