"""Effects: the outputs of the core, performed in order by the I/O layer or the simulator.

The I/O layer performs them only after the journal has stored the `JournalEffect`s of the same batch. A *link* is the
16-byte name of one relationship's connection: the pair link (one DEALER to the peer's ROUTER, or the connection that
the peer dialled) and the peer's queue for us.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import Invitation
from zerochat.errors import LocalError
from zerochat.group.notifications import Notification
from zerochat.group.tlog.queries import TlogQuery
from zerochat.limits import RECEIPTS_MAX

# --- the network ----------------------------------------------------------------------------------------------------


class AllowClient(Struct, frozen=True):
    """Accept connections that authenticate with this CURVE client key, under the name `link`."""

    link: bytes
    client_key: bytes
    queues: tuple[bytes, ...] = ()
    """The queues that this client may subscribe to, and no others."""
    guest: bool = False
    """The key belongs to the holder of an invitation, not to a member: its buffers are small."""


class RevokeClient(Struct, frozen=True):
    """Stop accepting this CURVE client key, and close its connections."""

    client_key: bytes


class Dial(Redacted, frozen=True):
    """Open the link to a peer, or reopen it when any field differs."""

    REDACTED = ("client_secret",)

    link: bytes
    pair: Endpoint
    server_key: bytes
    client_secret: bytes
    """Our CURVE secret key for this link, 32 bytes."""
    queue_at: Endpoint | None = None
    """Where the peer publishes; None: open no subscription."""
    queues: tuple[bytes, ...] = ()
    """The queues to subscribe to there, 32 bytes each."""
    defer: bool = False
    """The peer has just dialled us as well: wait for its connection, since one is enough (simultaneous open)."""


class Disconnect(Struct, frozen=True):
    """Close the connection that `Dial` opened."""

    link: bytes


class SendEnvelope(Struct, frozen=True):
    """Send an envelope to one peer over its pair link. Lost without an error when the link is down; retransmission
    follows."""

    link: bytes
    envelope: bytes


class Reply(Struct, frozen=True):
    """Send an envelope back on the connection on which one was received."""

    handle: bytes
    envelope: bytes


class Publish(Struct, frozen=True):
    """Publish an envelope on one of our queues, once for all its subscribers.

    A member of `links` that has not subscribed yet receives it over the pair link, so nothing depends on when a
    subscription arrives. Lost for a subscriber that is offline or slow; retransmission follows.
    """

    queue: bytes
    envelope: bytes
    links: tuple[bytes, ...] = ()
    """The links of the recipients."""


class WebPost(Struct, frozen=True):
    """Post an envelope to a URI (HTTP POST or WebSocket), following no redirect. `WebPostFailed` reports a failure, and
    for a post with a reference `WebPostDelivered` a success."""

    uri: str
    envelope: bytes
    media_type: str
    return_route: bool = False
    """An envelope may come back over the same connection, as `WebReceived`."""
    nearest: AddressKind = AddressKind.PUBLIC
    """The nearest kind of address that may be dialled, checked again when a name is resolved."""
    reference: str = ""
    """A name of this post for its result."""


class WebReply(Struct, frozen=True):
    """Send an envelope back over the HTTP or WebSocket connection on which one was received, if it is still open."""

    handle: int
    envelope: bytes
    media_type: str
    reference: str = ""
    """On a WebSocket: a name of this post for its result, as in `WebPost`."""


class OpenWebSocket(Struct, frozen=True):
    """Keep a WebSocket to this URI open, for a mediator's live delivery. `WebSocketUp` and `WebSocketDown` report its
    state."""

    uri: str


class CloseWebSocket(Struct, frozen=True):
    """Close the WebSocket that `OpenWebSocket` opened."""

    uri: str


# --- time and memory ------------------------------------------------------------------------------------------------


class SetTimer(Struct, frozen=True):
    """Fire `key` once, `delay_ms` from now. A second timer with the same key replaces the first."""

    key: str
    delay_ms: int
    if_unset: bool = False
    """Do nothing if a timer with this key is set already."""


class StoreEvent(Struct, frozen=True):
    """Append one delivered event to the group's log on disk."""

    group: str
    id: str
    author: str
    seq: int
    lamport: int
    type: str
    record: bytes
    """The canonical record, exactly as hashed (`event_log/event.py`), with its signature."""
    received: int
    """UTC milliseconds."""
    late: bool
    """True when an event with a greater Lamport time was in the log already."""
    relayed_by: str = ""
    """The DID of the member that relayed it, until its author confirms it; empty: received from its author."""
    history: bool = False
    """From before we joined: no news for the user."""
    target: str = ""
    """The subject of an annotation, topic or announcement (`bodies.target_of`)."""


class DuplicateEvent(Struct, frozen=True):
    """A stored event was received again from its author: its only consequence is another acknowledgement."""

    group: str
    author: str
    seq: int
    type: str
    record: bytes
    """As in `StoreEvent`."""


class ConfirmEvents(Struct, frozen=True):
    """The events of this author's chain after place `after`, up to `upto`, are confirmed by their author."""

    group: str
    author: str
    after: int
    upto: int


class RefuteEvents(Struct, frozen=True):
    """The relayed events of this author's chain after place `after`, up to `upto`, are not, or not certainly, the
    author's. They stay on disk, marked, and are hidden until they are stored anew."""

    group: str
    author: str
    after: int
    upto: int


class StoreReceipt(Struct, frozen=True):
    """A member is known to have an author's chain up to `upto`."""

    group: str
    member: str
    author: str
    upto: int
    at: int
    """Since when that is known, UTC milliseconds."""
    via: str = ""
    """How the acknowledgement came: `link`, `mediator`, or the DID of the member that reported it; empty: unknown."""
    kept_max: int = RECEIPTS_MAX
    """How many receipts of this member are kept."""


class DeleteLog(Struct, frozen=True):
    """Delete a group's log and its delivery receipts."""

    group: str


class EraseContent(Struct, frozen=True):
    """Erase the content of a group's posts and annotations with an earlier Lamport time than `before`: their bodies,
    the words in the index, signed messages, drafts and receipts. In bounded slices, after the commit."""

    group: str
    before: int
    ruled: int
    """The same under the group's rule alone, which is not later."""
    me: str
    own_upto: int
    """Our own events after this position are erased before `ruled` only: a member lacks them."""


class StoreSignedMessage(Redacted, frozen=True):
    """Store a signed message of a stream (`evidence/messages.py`) for as long as the group: our own, for retransmission
    and proofs, or one that we have accepted."""

    REDACTED = ("message", "key")

    group: str
    author: str
    alias: bytes
    """The stream's alias, 16 bytes."""
    time: int
    """The message's `T`, which grows with every message of a stream."""
    before: bytes
    """`Pre`, the signature of the previous message, 64 bytes."""
    signature: bytes
    upto: int
    """The last place of the author's chain that the stream covers with this message."""
    message: bytes
    """The bytes on the wire."""
    key: bytes
    """The 32-byte key that opens this message alone; empty: it carries a new key and no events."""
    hash: bytes = b""
    """SHA-256 of the message if the group has a tlog in which it could be recorded; else empty."""


class StoreStatement(Struct, frozen=True):
    """Store a signed statement about a subscription between us and a member (`evidence/handshake.py`)."""

    group: str
    member: str
    """The other party."""
    kind: str
    """The statement's tag: `request`, `accept`, `confirm` or `close`."""
    digest: str
    statement: bytes
    at: int
    """When it was received or made, UTC milliseconds."""


class StoreSignedAck(Struct, frozen=True):
    """Store a member's signed acknowledgement of a message of ours in place of its last one, if the message exists and
    the acknowledgement is later."""

    group: str
    author: str
    """Our own DID."""
    member: str
    alias: bytes
    time: int
    of: bytes
    """The signature of the acknowledged message."""
    ack: bytes
    """Encoded as in `evidence/messages.py`."""
    before: int = 0
    """The acknowledgement covers messages up to this `T`, before the member's present subscription, and replaces no
    acknowledgement of the present one. 0: it belongs to the present one."""


class FreezeSignedAcks(Struct, frozen=True):
    """A member's subscription to our stream has ended: keep its signed acknowledgements as they are."""

    group: str
    member: str
    alias: bytes
    upto: int
    """`T` of the last message of that subscription."""


class StoreTlog(Struct, frozen=True):
    """Store that a group has this tlog, and its rules."""

    group: str
    origin: str
    rules: bytes
    """`case.Rules`, as canonical JSON."""
    at: int
    """When it came into force here, UTC milliseconds."""


class StoreTlogEntries(Struct, frozen=True):
    """Store entries of a tlog at their places. Places that are filled stay unchanged."""

    group: str
    origin: str
    after: int
    """The number of entries before them."""
    records: tuple[bytes, ...]


class StoreCheckpoint(Struct, frozen=True):
    """Store a checkpoint with the cosignatures of a quorum."""

    group: str
    origin: str
    size: int
    at: int
    """The checkpoint covers all entries up to this time, UTC milliseconds (`witness.Quorum.complete_until_ms`)."""
    note: str


class StoreBlob(Redacted, frozen=True):
    """Store the bytes behind a tlog entry, to serve them to others, if its author's quota has room."""

    REDACTED = ("blob",)

    group: str
    hash: str
    """base64url of its SHA-256."""
    author: str
    blob: bytes
    at: int
    """UTC milliseconds."""
    requested: bool = False
    """Requested by us because the tlog names it, or our own: it does not count against the author's quota."""


class DeleteBlobs(Struct, frozen=True):
    """Delete blobs received before this time (UTC milliseconds)."""

    group: str
    before: int


class StoreConflictingMessage(Redacted, frozen=True):
    """Store a rejected signed message that contradicts a stored one, or `beside`: equal place in the stream, or not
    later than its predecessor. One such pair per author and kind is kept."""

    REDACTED = ("message", "beside")

    group: str
    author: str
    alias: bytes
    time: int
    before: bytes
    signature: bytes
    message: bytes
    at: int
    """When it was received, UTC milliseconds."""
    beside: bytes = b""
    """Another message of the stream that is not stored either; empty: compare with the stored ones."""


class StoreRejectedMessage(Redacted, frozen=True):
    """Record that a signed message was received and rejected, so it is not missing. If its predecessor never arrived,
    it can prove an accusation against its author (`evidence/judge.py`): the first few are stored verbatim."""

    REDACTED = ("signature", "message")

    group: str
    author: str
    alias: bytes
    time: int
    """`T` of the message."""
    signature: bytes
    message: bytes
    """Empty: no accusation rests on it."""
    at: int
    """UTC milliseconds."""


JournalEffect: TypeAlias = (
    StoreEvent
    | ConfirmEvents
    | RefuteEvents
    | StoreReceipt
    | DeleteLog
    | EraseContent
    | StoreSignedMessage
    | StoreStatement
    | StoreSignedAck
    | FreezeSignedAcks
    | StoreTlog
    | StoreTlogEntries
    | StoreCheckpoint
    | StoreBlob
    | DeleteBlobs
    | StoreConflictingMessage
    | StoreRejectedMessage
)
"""The effects that the journal stores, in one commit with the batch that emits them."""


class ReadOwnEvents(Struct, frozen=True):
    """Read our own chain: at most `limit` records of `author` after `after`, for a retransmission to `member`."""

    group: str
    member: str
    author: str
    after: int
    limit: int
    alias: bytes = b""
    """Also read the first messages of this stream of ours that are later than `time`, in order: at most `limit`, at
    most 256 KiB, at least one. Empty: none."""
    time: int = 0
    """`T` of the last message for which the member has sent a signed acknowledgement."""


class QueryTlog(Struct, frozen=True):
    """Look something up in the stored tlog; the answer is `TlogQueried`."""

    group: str
    origin: str
    query: TlogQuery


class ReadHistory(Struct, frozen=True):
    """Read the events that a history request names; the answer is `HistoryRead`."""

    group: str
    member: str
    thread: str
    """The id of the request."""
    ranges: tuple[tuple[str, int, int], ...]
    """Authors with a half-open range of their chain each: after, up to."""
    backwards: bool
    """From the newest event back in display order; else in the order of delivery."""
    limit: int
    joined: int
    """The Lamport time of the event that admitted the member: it may have everything from then on."""
    rules: tuple[str, ...]
    """The history rules that limit what it may have from before (`sync/history_policy.py`): all must allow an event."""
    page: int = 0
    """The number of this response, from 0."""
    pages: int = 1
    """The most responses to the request."""


class Reconcile(Struct, frozen=True):
    """Run one round of set reconciliation against a member's message (`sync/fork_detection.py`); the answer is
    `Reconciled`."""

    group: str
    member: str
    thread: str
    """The id of the question; empty: we are to ask the first one."""
    initiator: bool
    """True: we ask and the member answers."""
    since: int
    """Only posts with this Lamport time or a later one."""
    message: bytes
    """The member's last message; empty: begin."""
    authors: tuple[str, ...]
    """The authors whose differences we look for."""


class ReadParts(Struct, frozen=True):
    """Read parts of a stored file for a member; the answer is `PartsRead`."""

    group: str
    member: str
    file: str
    size: int
    first: int
    count: int


class StoreParts(Redacted, frozen=True):
    """Write a part of a file to disk; the answer is `PartsStored` or `FileFailed`."""

    REDACTED = ("data",)

    group: str
    file: str
    size: int
    """The size of the whole file, in bytes."""
    first: int
    """The number of the part."""
    data: bytes


class VerifyFile(Struct, frozen=True):
    """All parts are on disk: check the file against its hash and publish it. The answer is `FileVerified` or
    `FileFailed`."""

    group: str
    file: str
    root: str
    size: int


class DeleteFileData(Struct, frozen=True):
    """Delete a file's data from disk."""

    group: str
    file: str


# --- answers to commands, and news for clients ------------------------------------------------------------------------


class GroupCreated(Struct, frozen=True):
    group: str


class InvitationCreated(Struct, frozen=True):
    group: str
    invitation: Invitation


class JoinStarted(Struct, frozen=True):
    join: str
    """The id in the `JoinProgress` notifications that follow."""


class JoinCancelled(Struct, frozen=True):
    join: str


class Posted(Struct, frozen=True):
    group: str
    id: str
    seq: int
    lamport: int


class GroupLeft(Struct, frozen=True):
    group: str


class GroupForgotten(Struct, frozen=True):
    group: str


ImportOutcome: TypeAlias = Literal[
    "new", "known", "occupied", "detached", "missing-causes", "contradiction", "invalid", "not-a-member", "own"
]
"""The outcome of one imported record. `occupied`: its place is filled, and only the log knows whether by this event.
`detached`: not adjacent to the stored part of its author's chain. `missing-causes`: a membership event that it names is
unknown. `contradiction`: its place holds another event, or a hash names another one. `invalid`: malformed.
`not-a-member`: its author is no member, or was none any more. `own`: claims to be our own event."""


class EventsImported(Struct, frozen=True):
    """One page of an import was processed: the outcome of each record."""

    group: str
    outcomes: tuple[ImportOutcome, ...]


class FileChanged(Struct, frozen=True):
    """A download was requested, or the file was deleted."""

    group: str
    file: str


class GroupChanged(Struct, frozen=True):
    """The change is made here; the other members receive it next."""

    group: str


class IndicatorSent(Struct, frozen=True):
    """The number of members that were sent a typing or read indicator; 0: none is connected, or indicators are off."""

    members: int


class ConversationOpened(Struct, frozen=True):
    """The private conversation with a member; it may not have joined yet."""

    group: str


class Voted(Struct, frozen=True):
    """Our vote to remove a member was counted; the last vote that is needed removes it."""

    group: str
    member: str
    votes: int
    needed: int
    """The votes that removal takes; at most `votes`: the member is removed."""


class QuestionSent(Struct, frozen=True):
    """A question was sent to a peer; the answer comes as a notification with this thread."""

    thread: str


class ConnectionUpdated(Struct, frozen=True):
    """A connection was opened, changed or ended."""

    connection: str


class ConnectionOffered(Struct, frozen=True):
    """An out-of-band invitation to connect."""

    connection: str
    url: str
    expires: int
    """UTC seconds."""


Result: TypeAlias = (
    GroupCreated
    | InvitationCreated
    | JoinStarted
    | JoinCancelled
    | Posted
    | GroupLeft
    | GroupForgotten
    | EventsImported
    | FileChanged
    | GroupChanged
    | IndicatorSent
    | ConversationOpened
    | Voted
    | QuestionSent
    | ConnectionUpdated
    | ConnectionOffered
)


class CommandDone(Struct, frozen=True):
    ticket: int
    result: Result


class CommandFailed(Struct, frozen=True):
    ticket: int
    error: LocalError


class Notify(Struct, frozen=True):
    notification: Notification


class Measure(Struct, frozen=True):
    """Increment a diagnostic counter. Never carries keys, text or DIDs."""

    name: str
    detail: str = ""


class Rejected(Measure, frozen=True):
    """The input was rejected: nothing has changed, except for what its sender may still send (`rate_limits.py`)."""


Effect: TypeAlias = (
    AllowClient
    | RevokeClient
    | Dial
    | Disconnect
    | SendEnvelope
    | Reply
    | Publish
    | WebPost
    | WebReply
    | OpenWebSocket
    | CloseWebSocket
    | SetTimer
    | StoreEvent
    | DuplicateEvent
    | ConfirmEvents
    | RefuteEvents
    | StoreReceipt
    | DeleteLog
    | EraseContent
    | StoreSignedMessage
    | StoreStatement
    | StoreSignedAck
    | FreezeSignedAcks
    | StoreTlog
    | StoreTlogEntries
    | StoreCheckpoint
    | StoreBlob
    | DeleteBlobs
    | QueryTlog
    | StoreConflictingMessage
    | StoreRejectedMessage
    | ReadOwnEvents
    | ReadHistory
    | Reconcile
    | ReadParts
    | StoreParts
    | VerifyFile
    | DeleteFileData
    | CommandDone
    | CommandFailed
    | Notify
    | Measure
)
