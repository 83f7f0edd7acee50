"""Inputs of the core: commands from clients, and I/O events.

The core is one function, `step(agent, input, context) -> (agent, effects)` (`engine.py`). The clock and the source of
randomness come in as a `StepContext`, so equal inputs always give equal agents: the simulator, the tests and the
journal rely on that.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.crypto.keys import KeyKind
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import Invitation
from zerochat.didcomm.protocols.oob_read import OutOfBand
from zerochat.group.files.descriptor import File
from zerochat.group.membership import Policy
from zerochat.group.membership.bot_announcement import Announcement
from zerochat.group.messages.bodies import Delete, Edit, Pins, React, Topic
from zerochat.group.settings import FileRules, Indicators, KeyRotation, MailRules, StorageRules
from zerochat.group.tlog.queries import TlogQuery, TlogResult
from zerochat.group.tlog.verdicts import Verdict
from zerochat.limits import KEYS_DEFAULT


class StepContext(Struct, frozen=True):
    """The non-deterministic inputs of a step: one clock reading, one source of randomness."""

    now: int
    """UTC milliseconds since 1970."""
    random: Callable[[int], bytes]
    """`random(n)` returns n fresh unpredictable bytes."""


# --- commands ---------------------------------------------------------------------------------------------------------


class CreateGroup(Struct, frozen=True):
    name: str
    label: str
    """Our display name in this group."""
    envelope: str = "didcomm/v2"
    """The envelope format of the group's messages."""
    keys: str = KEYS_DEFAULT
    policy: Policy = Policy()
    accountability: str = "acks"
    """`acks`: delivery is known by acknowledgements; `tlog`: also by a witnessed transparency log."""
    path: str = "mesh"
    """`mesh`: each member is linked to each; `ring`: to its neighbours (`overlay/ring.py`)."""


class CreateInvitation(Struct, frozen=True):
    group: str
    lifetime_s: int
    uses: int | None
    """How many joiners can use it; None: one, or without limit in a group that is open to every invitee."""
    role: str = "writer"
    """The highest role that a joiner gets: reader or writer."""
    history: str = "all"
    """The history rule of its joiners, within the limits of the group's rule (`Policy.history`)."""
    name: str = ""
    """What the inviter calls it, for example "for Bob"; its users do not see it."""


class RevokeInvitation(Struct, frozen=True):
    """Revoke an open invitation of ours. `invitation`: its name (`joining/requests.py`) or a prefix of it."""

    group: str
    invitation: str


class AcceptInvitation(Struct, frozen=True):
    invitation: Invitation
    label: str
    role: str = "writer"
    """The role that we ask for: reader or writer."""


class CancelJoin(Struct, frozen=True):
    """Cancel a join under way."""

    join: str
    """Its id, a prefix of the id, or the group's name; empty: the only one."""


class AnswerJoinRequest(Struct, frozen=True):
    """Admit a joiner that waits for an answer, or refuse it."""

    group: str
    joiner: str
    """Its display name or DID."""
    admit: bool
    label: str = ""
    role: str = ""
    """The role that the user was shown: no other role is admitted. Empty: the one that it asks for."""


class OpenConversation(Struct, frozen=True):
    """Find or begin the private conversation with a member, and invite it unless it has joined."""

    group: str
    member: str
    """A display name or DID."""


class AnswerPrivateInvitation(Struct, frozen=True):
    """Accept or decline a member's invitation to a private conversation."""

    group: str
    member: str
    """A display name or DID."""
    accept: bool


class RemoveMember(Struct, frozen=True):
    """Remove a member, or vote to remove it where removal takes several votes."""

    group: str
    member: str
    """A display name or DID."""


class UpgradeKeys(Struct, frozen=True):
    """Agree that a group of older keys gets keys that heal (`group/membership/upgrades.py`)."""

    group: str


class ChangeRole(Struct, frozen=True):
    group: str
    member: str
    """A display name or DID; empty: ourselves."""
    role: str


class ChangeLabel(Struct, frozen=True):
    """Change our display name in a group."""

    group: str
    label: str


class VerifyMember(Struct, frozen=True):
    """Record that a member's safety words were compared and match, or withdraw that."""

    group: str
    member: str
    verified: bool


class IgnoreMember(Struct, frozen=True):
    """Hide a member's messages from the clients of this profile, or show them again."""

    group: str
    member: str
    ignored: bool


class ChooseRetention(Struct, frozen=True):
    """Keep the content of this conversation here for so many ms, or as long as the group's rule says if that is
    shorter; 0: as the group's rule says. `group/retention.py`."""

    group: str
    keep_ms: int


class SendPost(Struct, frozen=True):
    group: str
    text: str
    reply: str = ""
    """The id of the post that it answers; empty: none."""
    action: bool = False
    mentions: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    """Its attachments, stored on disk here."""
    hops: int = 0
    """Its hop count (`messages/bodies.py`)."""


class SendContent(Struct, frozen=True):
    """Send content other than a post. The caller has checked that its target exists."""

    group: str
    content: Edit | Delete | React | Topic | Pins | Announcement | Verdict


class DownloadFile(Struct, frozen=True):
    """Download a file that was posted in a group."""

    group: str
    file: File
    author: str
    """The author of the post."""
    event: str
    """The id of the post."""


class DeleteFile(Struct, frozen=True):
    """Delete a file's data here."""

    group: str
    file: str
    """Its id."""


class LeaveGroup(Struct, frozen=True):
    group: str


class ForgetGroup(Struct, frozen=True):
    """Delete the data of a group that we have left."""

    group: str


class ResumeGroup(Struct, frozen=True):
    """Resume sending in a group where this profile may be a stale copy of itself (`sync/stale_profile.py`)."""

    group: str


class ImportEvents(Struct, frozen=True):
    """Import the missing events of a page of an exported log (`sync/archive_import.py`)."""

    group: str
    records: tuple[bytes, ...]
    backwards: bool = False
    """From the newest to the oldest, below the stored events; else upwards."""


class DismissDoubts(Struct, frozen=True):
    """The user has seen the warnings about what members attest."""

    group: str
    member: str
    """The member that the warnings are about, a display name or DID; empty: all."""


class SetTlogTerms(Struct, frozen=True):
    """Set the operator and the witnesses of a group's tlog (`group/tlog/terms.py`)."""

    group: str
    operator: str
    """A display name or DID."""
    witnesses: tuple[str, ...]
    """Display names or DIDs."""


class SubmitTlogEntry(Struct, frozen=True):
    """Submit an entry to a group's tlog. Answered as soon as it is stored here; submission is retried until the entry
    has its place."""

    group: str
    kind: Literal["accusation", "defence", "close"]
    blob: bytes
    """The bytes behind the entry, which the witnesses store."""
    about: str = ""
    """For a defence: the digest of the accusation."""
    origin: str = ""
    """The tlog; empty: the one in force."""


class SendTyping(Struct, frozen=True):
    """Send a typing indicator, if typing indicators are on."""

    group: str


class SendReadReceipt(Struct, frozen=True):
    """Send a read receipt up to a Lamport time, if read receipts are on."""

    group: str
    upto: int


class PingPeer(Struct, frozen=True):
    """Send a Trust Ping to a member or a connection."""

    peer: str
    """A connection's label or id, a member's display name or DID, or `group/name` where that is ambiguous."""


class QueryFeatures(Struct, frozen=True):
    """Send a Discover Features query to a member or a connection."""

    peer: str
    match: str
    """A pattern of protocol URIs; a trailing `*` matches any suffix."""


class Rekey(Struct, frozen=True):
    """Renew the keys of a group whose keys heal, before they are due."""

    group: str
    """Id, name, or beginning of the id."""


class RotateDid(Struct, frozen=True):
    """Replace the DID that a member or a connection knows us by."""

    peer: str
    every_ms: int | None = None
    """And again at this interval; 0: not now, and never again by itself; None: once, the interval stays as it is."""


class SendBasicMessage(Struct, frozen=True):
    """Send a DIDComm basic message to a connection."""

    peer: str
    text: str


class AcceptConnection(Struct, frozen=True):
    """Accept an out-of-band invitation to connect."""

    invitation: OutOfBand
    label: str
    mediate: bool = False
    """Ask that agent to be our mediator."""


class OfferConnection(Struct, frozen=True):
    """Create an out-of-band invitation to connect."""

    envelope: str
    label: str
    """Our name for the peer to see."""
    lifetime_s: int
    name: str = ""
    """The local name of the connection; empty: what the peer says."""
    curve: KeyKind = "X25519"
    """The curve of an agreement key beside X25519."""
    signed: bool = False
    """Whether the invitation is signed (DIDComm v2 only)."""
    message: str = ""
    """A text that the invitation carries."""


class EndConnection(Struct, frozen=True):
    peer: str


Command: TypeAlias = (
    CreateGroup
    | CreateInvitation
    | RevokeInvitation
    | AcceptInvitation
    | CancelJoin
    | AnswerJoinRequest
    | OpenConversation
    | AnswerPrivateInvitation
    | RemoveMember
    | UpgradeKeys
    | ChangeRole
    | ChangeLabel
    | VerifyMember
    | IgnoreMember
    | ChooseRetention
    | SendPost
    | DownloadFile
    | DeleteFile
    | SendContent
    | LeaveGroup
    | ForgetGroup
    | ResumeGroup
    | ImportEvents
    | DismissDoubts
    | SetTlogTerms
    | SubmitTlogEntry
    | SendTyping
    | SendReadReceipt
    | PingPeer
    | QueryFeatures
    | Rekey
    | RotateDid
    | SendBasicMessage
    | AcceptConnection
    | OfferConnection
    | EndConnection
)


class CommandInput(Struct, frozen=True):
    """A command with the ticket that its `CommandDone` or `CommandFailed` carries."""

    ticket: int
    command: Command


# --- I/O events -------------------------------------------------------------------------------------------------------


class Started(Struct, frozen=True):
    """The sockets are bound to these endpoints."""

    pair: Endpoint
    queue: Endpoint
    server_key: bytes
    """The CURVE public key of both bound sockets, 32 bytes."""
    web: tuple[str, ...] = ()
    """The URIs at which envelopes are received over HTTP and WebSocket; empty unless configured."""
    outbound_only: bool = False
    """We cannot be dialled: `pair` and `queue` are not announced."""
    cover_traffic: bool = False
    """Send cover traffic (`anti_entropy.send_cover_traffic`)."""
    restored: bool = False
    """The profile was restored from a backup, so it may be a stale copy (`sync/stale_profile.py`)."""
    rebooted: bool = False
    """The machine has rebooted since the profile was last open, so the known clock offset is void."""
    file_rules: FileRules = FileRules()
    """The disk quota for files of other members."""
    indicators: Indicators = Indicators()
    """Whether typing indicators and read receipts are on."""
    key_rotation: KeyRotation = KeyRotation()
    """When sender keys are replaced, in groups whose keys sign."""
    storage_rules: StorageRules = StorageRules()
    """The daily disk quota of each member."""
    near_mediators: AddressKind = AddressKind.PUBLIC
    """The nearest kind of address that mediators of others may have although ours is not of that kind."""
    keep_ms: int = 0
    """How long content of all groups is kept here, ms; 0: for ever."""
    mail_rules: MailRules = MailRules()
    """What mediators are asked to do with our mail."""
    mediated_only: bool = False
    """Only our own mediators may be dialled; implies `outbound_only`."""


class MediatedOnly(Struct, frozen=True):
    """From now on only our own mediators may be dialled. All sockets have been closed."""


class ClockSet(Struct, frozen=True):
    """The machine's clock was set forward by so many ms (negative: back)."""

    by_ms: int


class Received(Struct, frozen=True):
    """One envelope was received over `link`. `handle` is set for a connection that the peer dialled."""

    link: bytes
    envelope: bytes
    handle: bytes | None = None
    from_queue: bool = False
    """Received on a queue, so it is no retransmission. Only telemetry uses this."""
    host: bytes = b""
    """The CURVE public key that the other end has proved, on a connection that we dialled; empty: it dialled us."""


class LinkUp(Struct, frozen=True):
    """The pair link to this peer has completed its handshake, whichever side dialled."""

    link: bytes


class LinkDown(Struct, frozen=True):
    link: bytes


class TimerFired(Struct, frozen=True):
    key: str


class BatchEnded(Struct, frozen=True):
    """The batch is complete: the events that its steps have made are published together."""


class OwnEventsRead(Struct, frozen=True):
    """The answer to `ReadOwnEvents`: canonical event records in chain order."""

    group: str
    member: str
    records: tuple[bytes, ...]
    messages: tuple[tuple[int, bytes], ...] = ()
    """Messages of our stream, each with the last place of our chain that it covers."""


class HistoryRead(Struct, frozen=True):
    """The answer to `ReadHistory`: canonical event records in the requested order."""

    group: str
    member: str
    thread: str
    records: tuple[bytes, ...]
    backwards: bool
    more: bool
    """There are more events than fit this response."""
    ranges: tuple[tuple[str, int, int], ...] = ()
    page: int = 0
    pages: int = 1
    """As in `ReadHistory`."""


class Reconciled(Struct, frozen=True):
    """The answer to `Reconcile`."""

    group: str
    member: str
    thread: str
    initiator: bool
    since: int
    message: bytes
    """The next message to send; empty: none."""
    differing: tuple[tuple[str, int, str], ...]
    """For each requested author, the first event that the member lacks: author, place, id."""


class PartsRead(Redacted, frozen=True):
    """The answer to `ReadParts`."""

    REDACTED = ("parts",)

    group: str
    member: str
    file: str
    first: int
    parts: tuple[tuple[bytes, tuple[bytes, ...]], ...]
    """Each part with its path to the root; empty: the stored file is damaged."""


class PartsStored(Struct, frozen=True):
    """The parts of a file before this one are on disk."""

    group: str
    file: str
    upto: int


class FileVerified(Struct, frozen=True):
    """A file is complete and matches its hash."""

    group: str
    file: str


class FileFailed(Struct, frozen=True):
    """A file could not be written (`why` is the sentence), or does not match its hash (`why` is empty)."""

    group: str
    file: str
    why: str


class FilesFound(Struct, frozen=True):
    """The files on disk at start: group, file, number of parts, complete or not."""

    found: tuple[tuple[str, str, int, bool], ...]


class TlogQueried(Struct, frozen=True):
    """The answer to `QueryTlog`."""

    group: str
    origin: str
    query: TlogQuery
    result: TlogResult


class WebReceived(Struct, frozen=True):
    """One envelope was received over the web: an HTTP post, or a message on a WebSocket."""

    envelope: bytes
    handle: int | None = None
    """Where a reply can be sent at once; None: nowhere."""
    is_session: bool = False
    """Whether that is a WebSocket that the peer has opened, which takes several messages."""


class WebPostFailed(Struct, frozen=True):
    """A post to this URI failed, or one on a WebSocket of the peer."""

    uri: str
    """Empty: a WebSocket of the peer, or none is known."""
    reference: str = ""
    """That of the post."""
    rejected: bool = False
    """Whether the endpoint does not accept this envelope, at any time."""
    retry_after_s: int = 0
    """How long the endpoint asks to wait; 0: it does not say."""


class WebPostDelivered(Struct, frozen=True):
    """The endpoint has accepted the post with this reference."""

    reference: str


class WebSocketUp(Struct, frozen=True):
    """The WebSocket that `OpenWebSocket` requested is open."""

    uri: str


class WebSocketDown(Struct, frozen=True):
    uri: str


IoInput: TypeAlias = (
    Started
    | MediatedOnly
    | ClockSet
    | Received
    | LinkUp
    | LinkDown
    | TimerFired
    | BatchEnded
    | OwnEventsRead
    | HistoryRead
    | Reconciled
    | PartsRead
    | PartsStored
    | FileVerified
    | FileFailed
    | FilesFound
    | TlogQueried
    | WebReceived
    | WebPostFailed
    | WebPostDelivered
    | WebSocketUp
    | WebSocketDown
)
Input: TypeAlias = CommandInput | IoInput
