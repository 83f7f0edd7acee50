"""The root record: one user's or bot's agent."""

from msgspec import Struct, field

from zerochat.didcomm.address_kinds import AddressKind
from zerochat.group.links.contact import Reach
from zerochat.group.settings import FileRules, Indicators, KeyRotation, MailRules, StorageRules
from zerochat.group.state.external import (
    AwaitedReceipt,
    Connection,
    EndpointFailure,
    MediatorProof,
    PeerQuery,
    ProbeRecord,
    RelayedPost,
    RotationSchedule,
    WebSession,
)
from zerochat.group.state.groups import Group
from zerochat.group.state.joins import Join, OpenInvitation


class Agent(Struct, frozen=True):
    """One user's or bot's agent: its groups, open invitations, joins and connections."""

    label: str
    reach: Reach | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    invitations: dict[bytes, OpenInvitation] = field(default_factory=dict)
    """Our open invitations, by the link on which they are answered."""
    joins: dict[bytes, Join] = field(default_factory=dict)
    """Our joins, by the link on which they ask."""
    links_up: frozenset[bytes] = frozenset()
    """The links that are connected now."""
    connections: dict[str, Connection] = field(default_factory=dict)
    web_uris: tuple[str, ...] = ()
    """Where envelopes reach us over HTTP and WebSocket; empty unless configured."""
    websockets_up: frozenset[str] = frozenset()
    """Our WebSockets that are open now."""
    nearest: AddressKind = AddressKind.PUBLIC
    """The nearest kind of address that peers may name: that of our own address, or what the settings permit."""
    endpoint_failures: dict[str, EndpointFailure] = field(default_factory=dict)
    """The URIs whose last post failed."""
    mediator_proofs: dict[str, MediatorProof] = field(default_factory=dict)
    """The addresses of mediators that have proved themselves, by URI and the mediator's DID."""
    probes: dict[str, ProbeRecord] = field(default_factory=dict)
    """The probes of unproved addresses, by the peer that names them (`links/mediator_proof.py`)."""
    awaited_receipts: dict[bytes, AwaitedReceipt] = field(default_factory=dict)
    """By the digest of an envelope, the latest ones for which a mediator receipt may come. Not kept over a restart."""
    peer_queries: dict[str, PeerQuery] = field(default_factory=dict)
    """Open questions by thread. Not kept over a restart."""
    rotations: tuple[RotationSchedule, ...] = ()
    """The peers towards which our DID is replaced at intervals."""
    web_sessions: dict[str, WebSession] = field(default_factory=dict)
    """The WebSockets that connections have opened to us, by connection. Not kept over a restart."""
    clock_offset_ms: int = 0
    """The part of the last clock change that members have not confirmed, ms; our time is the clock minus this."""
    clock_confirmed_by: tuple[str, ...] = ()
    """The members that have confirmed it, as long as they are too few (`event_log/lamport.py`)."""
    file_rules: FileRules = FileRules()
    """The disk quota for files of other members."""
    storage_rules: StorageRules = StorageRules()
    """The daily disk quota of each member."""
    mail_rules: MailRules = MailRules()
    """What mediators are asked to do with our mail."""
    indicators: Indicators = Indicators()
    """Whether typing indicators and read receipts are on."""
    key_rotation: KeyRotation = KeyRotation()
    """When sender keys are replaced, in groups whose keys sign."""
    keep_ms: int = 0
    """How long content of all groups is kept here, ms; 0: for ever, or as a group's rule says."""
    trusted_time: int = 0
    """Up to when our clock was last believed (`retention.py`), UTC ms; 0: never."""
    unconfirmed_ms: int = 0
    """The part of our time that is not believed, ms; negative: our clock was set back."""
    is_time_known: bool = False
    """Whether a member has ever reported its time."""
    mediated_only: bool = False
    """Nothing is dialled but our own mediators, which post for us (`external/relayed_posts.py`)."""
    relayed_posts: dict[str, RelayedPost] = field(default_factory=dict)
    """The posts that our mediators make for us, by the id of the request. Not kept over a restart."""
    unrelaying: frozenset[str] = frozenset()
    """The connections with mediators that cannot post for us. Not kept over a restart."""
    joiner_links: dict[bytes, bytes] = field(default_factory=dict)
    """Joiners that answered by mail and that we dialled: our link to each, and the link of its invitation. Not kept
    over a restart."""
