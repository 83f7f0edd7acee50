"""Our knowledge of the other members of a group, and our links to them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.didcomm.protocols.problem import Breaker
from zerochat.group.composite import Composite
from zerochat.group.links.contact import Reach
from zerochat.group.links.relationship import Relationship
from zerochat.group.state.content_keys import PeerContentKey


class RateLimit(Struct, frozen=True, eq=False):
    """The contents of a peer's token buckets (`links/rate_limits.py`).

    No part of the group's state proper: it also counts rejected messages, which must change nothing else. So any two
    are equal.
    """

    envelopes: int = 0
    bytes: int = 0
    at: int = 0
    """When the two were computed, UTC ms; 0: both buckets are full."""
    work: int = 0
    work_at: int = 0
    """The processor time that it may still cause, us, and when that was computed, UTC ms; 0: the bucket is full."""
    given: int = 0
    given_at: int = 0
    """The bytes of files that it may still receive, and when that was computed (`files/upload.py`)."""
    statements: int = 0
    statements_at: int = 0
    """The signed statements that it may still cause, and when that was computed."""
    moves: int = 0
    moves_at: int = 0
    """The changes of its addresses that count, and when that was computed."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RateLimit)

    def __hash__(self) -> int:
        return 0


class StoredBytes(Struct, frozen=True):
    """What a member has had stored here of its daily quota (`links/storage_quota.py`)."""

    used: int = 0
    """Bytes in the bucket."""
    at: int = 0
    """When that was computed, UTC ms."""
    is_full: bool = False
    """Posts were refused; more are accepted once a part of the bucket is free."""
    refused_upto: int = 0
    """The greatest place of its chain that was refused."""


class StoredAtMediator(Struct, frozen=True):
    """What a member's mediator has signed that it holds until the member fetches it (`links/mediator_receipts.py`)."""

    upto: int = 0
    """The mediator holds all of our events that the member has not acknowledged, up to this place; 0: unknown."""
    until: int = 0
    """When it deletes the first of them, UTC ms."""


class PeerAcks(Struct, frozen=True):
    """What a member has acknowledged (`sync/acknowledgements.py`)."""

    upto: dict[int, int] = field(default_factory=dict)
    """The place up to which this member has acknowledged each author's chain, by the author's number in
    `Links.numbers`: a DID for each of so many entries would be most of the state."""
    regressed_since: int = 0
    """Since when it reports less of our chain than it had acknowledged, UTC ms; 0: it does not."""
    written_at: int = 0
    """When it wrote the newest state that we have received, UTC ms by its own clock."""
    told: int = 0
    """The number of the last change of our acknowledgement sets that it was told (`sync/aggregation.py`)."""


class PeerRetransmission(Struct, frozen=True):
    """The retransmission of our events to a member, and the retries of our DID exchange with it."""

    upto: int = 0
    """The last of our own events in the last retransmission."""
    retry_at: int = 0
    """Do not retransmit before this time, UTC ms."""
    tries: int = 0
    no_room_until: int = 0
    """The member stores no more of us until then: its daily quota is used up. UTC ms; 0: it does."""


class PeerExchange(Struct, frozen=True):
    """The DID exchanges with a member (`links/pairing.py`)."""

    requested_at: int = 0
    """When we last requested a DID exchange from it, UTC ms."""
    answered_at: int = 0
    """When we last answered its request for a DID exchange, UTC ms."""
    greeting_due: bool = False
    """It has answered our DID exchange request, and we have sent nothing in the new relationship yet."""
    ended_at: int = 0
    """When it last ended its DID without a successor, UTC ms; 0: never."""


class PeerAntiEntropy(Struct, frozen=True):
    """The comparison of membership views with a member (`sync/anti_entropy.py`)."""

    view: str = ""
    """The checksum of the view that it reported last, if it did since ours changed."""
    view_answered_at: int = 0
    """When we last sent it membership events that it lacked, UTC ms."""
    sync_sent_at: int = 0
    """When we last sent it our state because we lacked events of its own, UTC ms."""
    heads: tuple[str, ...] = ()
    """On the ring: the last heads that it reported of which we had all. It has their past."""
    unknown_rounds: int = 0
    """On the ring: our answers since then, to reports of heads of which we lacked some."""


class PeerDisplay(Struct, frozen=True):
    """What is only shown to the user of a member; the protocol does not depend on it."""

    clock_ahead_ms: int | None = None
    """By how much its clock was ahead of ours when it last sent its state over a link, give or take the latency, ms;
    None: it has not yet. Only shown to the user."""
    read_upto: int = 0
    """The Lamport time up to which it has read, by its read receipts. Only shown to the user."""
    mediator_receipt: StoredAtMediator = StoredAtMediator()
    """What its mediator holds for it. Only shown to the user: retransmission goes by the member's own acknowledgements.
    """


class Peer(Struct, frozen=True):
    """Our knowledge of one other member, and our obligations to it."""

    link: bytes
    start_seq: int
    """Our own events after this place are meant for this member."""
    start_id: str = ""
    """The id of that event; empty: none, or unknown."""
    acks: PeerAcks = PeerAcks()
    retransmission: PeerRetransmission = PeerRetransmission()
    exchange: PeerExchange = PeerExchange()
    anti_entropy: PeerAntiEntropy = PeerAntiEntropy()
    last_received_at: int = 0
    """When its last authentic message was received, UTC ms; 0: never."""
    reach: Reach | None = None
    """The endpoints that it announced last; None: those in its contact."""
    reach_at: int = 0
    """When it announced them, UTC ms by its own clock: older announcements, possibly replayed, are ignored."""
    answered_key: bytes = b""
    """The CURVE server key under which it has answered on a connection that we dialled (`links/hosts.py`); empty: none.
    """
    content_key: PeerContentKey = PeerContentKey()
    rate_limit: RateLimit = RateLimit()
    """No part of the state proper: it also counts rejected messages."""
    stored: StoredBytes = StoredBytes()
    linked_at: int = 0
    """When this record was made, UTC ms; only in a group on the ring."""
    is_guest: bool = False
    """On the ring: it has chosen us, we have not chosen it (`links/ring_links.py`)."""
    breaker: Breaker = Breaker()
    """The circuit breaker for problem reports: a conversation about errors must end."""
    shown: PeerDisplay = PeerDisplay()


class Account(Struct, frozen=True):
    """What an author on the ring may cause here that is no peer of ours: others bring its messages."""

    rate_limit: RateLimit = RateLimit()
    """No part of the state proper, as that of a peer."""
    stored: StoredBytes = StoredBytes()


class RelationshipOffer(Struct, frozen=True):
    """A relationship offered in answer to a new exchange request; it replaces the present one when the member uses
    it."""

    relationship: Relationship
    simultaneous: bool = False
    """Our own request was open when the member's came (simultaneous exchange)."""


class Mailbox(Struct, frozen=True):
    """Our mediator mailbox in a group, and its change (`links/mailboxes.py`)."""

    number: int = 0
    """Of the mailbox that the members use; its key derives from it."""
    due: bool = False
    """A member is gone since it was last changed."""
    registering: bool = False
    """The next one is being registered with our mediators."""
    grace_until: int = 0
    """Until when the one before stays registered, UTC ms; 0: it is not."""


class BranchRate(Struct, frozen=True):
    """The token buckets for the membership events that a branch brings (`links/rate_limits.py`)."""

    full_at: int = 0
    """When the bucket for all of them is full again, UTC ms."""
    exceeding_full_at: int = 0
    """When the bucket for those that exceed the limits is full again, UTC ms."""


class PeerIndex:
    """The peers by what an envelope shows of its sender. A function of the peers and the view, made when it is first
    asked for; no part of the state."""

    def __init__(self, peers: dict[str, Peer]) -> None:
        self.by_link = {peer.link: member for member, peer in reversed(peers.items())}
        self.view: object = None
        """The view of which `by_host` is."""
        self.by_host: Mapping[bytes, Sequence[str]] = {}
        """By server key: the members that announce it (`links/hosts.py`)."""
        self.links_up: frozenset[bytes] | None = None
        """The links of which `unlinked` is."""
        self.unlinked: Sequence[str] = ()


class Links(Composite, frozen=True, dict=True):
    """The other members, and the DIDComm relationships with them (`group/links/`)."""

    peers: dict[str, Peer] = field(default_factory=dict)
    relationships: dict[str, Relationship] = field(default_factory=dict)
    offers: dict[str, tuple[RelationshipOffer, ...]] = field(default_factory=dict)
    """By member: relationships that we offer in place of the present one (`links/pairing.py`)."""
    mailbox: Mailbox = Mailbox()
    branch_rates: dict[str, BranchRate] = field(default_factory=dict)
    """By the member that a branch begins with: its buckets, unless both are full."""
    accounts: dict[str, Account] = field(default_factory=dict)
    """By author on the ring that is no peer of ours."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The authors whose chains were acknowledged, each with a number of ours that it keeps."""

    def acked(self, member: str, author: str) -> int:
        """The place up to which a member has acknowledged an author's chain."""
        return self.peers[member].acks.upto.get(self.numbers.get(author, -1), 0)

    def with_number(self, author: str) -> "Links":
        """The same with a number for this author."""
        known = self.numbers
        return self if author in known else replace(self, numbers={**known, author: len(known)})

    def with_acks(self, member: str, upto: Mapping[str, int]) -> "Links":
        """The same with other positions of a member, by author, all of them."""
        links = self
        for author in upto:
            links = links.with_number(author)
        numbered = {links.numbers[author]: place for author, place in upto.items()}
        peer = links.peers[member]
        return links.with_peer(member, replace(peer, acks=replace(peer.acks, upto=numbered)))

    def acks_of(self, member: str) -> dict[str, int]:
        """The positions of a member, by author."""
        upto = self.peers[member].acks.upto
        return {author: upto[number] for author, number in self.numbers.items() if number in upto}

    @property
    def index(self) -> PeerIndex:
        """The index of the peers."""
        found: PeerIndex | None = self.__dict__.get("index")
        if found is None:
            found = self.__dict__["index"] = PeerIndex(self.peers)
        return found

    def unlinked(self, links_up: frozenset[bytes]) -> Sequence[str]:
        """The peers whose link is none of these."""
        index = self.index
        if index.links_up is not links_up:
            index.unlinked = [member for member, peer in self.peers.items() if peer.link not in links_up]
            index.links_up = links_up
        return index.unlinked

    def with_peer(self, member: str, peer: Peer) -> "Links":
        """The same with another record of one peer. Most changes leave the index as it is."""
        known, links = self.peers.get(member), replace(self, peers={**self.peers, member: peer})
        if known is not None and known.link == peer.link and known.reach is peer.reach and "index" in self.__dict__:
            links.__dict__["index"] = self.__dict__["index"]
        return links
