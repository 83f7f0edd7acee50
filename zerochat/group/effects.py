"""Everything that the core says: what to send, to admit, to remember, to tell.

Effects are values; the machine room (`agent/`) or the simulator (`sim.py`) performs them, in order, and only after the
journal has what is to be remembered. A *link* is the 16-byte name of one relationship's connection: the pair link (one
DEALER to the peer's ROUTER, or the connection that the peer dialled to ours) and the peer's queue for us.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import Invitation
from zerochat.errors import LocalError
from zerochat.group.notifications import Notice
from zerochat.group.tlog.lookups import Lookup

# --- the network ----------------------------------------------------------------------------------------------------


class Admit(Struct, frozen=True):
    """Let whoever proves this CURVE client key connect, and call that connection `link`."""

    link: bytes
    client_key: bytes
    queues: tuple[bytes, ...] = ()
    """The queues that this client may subscribe to, and no others."""
    guest: bool = False
    """Whoever this is has an invitation and is no member yet: little may wait of what it sends, and for it."""


class Revoke(Struct, frozen=True):
    """Let this CURVE client key in no longer, and cut its live connections."""

    client_key: bytes


class Dial(Veiled, frozen=True):
    """Open (or, when anything differs, reopen) the link to a peer."""

    VEILED = ("client_secret",)

    link: bytes
    pair: Endpoint
    server_key: bytes
    client_secret: bytes
    """Our CURVE secret key for this link, 32 bytes."""
    queue_at: Endpoint | None = None
    """Where the peer publishes; None: open no subscription."""
    queues: tuple[bytes, ...] = ()
    """The queues to subscribe to there, 32 bytes each."""
    second: bool = False
    """The peer has just come to dial us as well, and one connection will do for now: let it go first."""


class Hangup(Struct, frozen=True):
    """Close whatever `Dial` opened."""

    link: bytes


class Dispatch(Struct, frozen=True):
    """Send an envelope to one peer over its pair link. Lost without a word when the link is down: the log repairs."""

    link: bytes
    envelope: bytes


class Reply(Struct, frozen=True):
    """Send an envelope back on the connection from which one came in."""

    handle: bytes
    envelope: bytes


class Publish(Struct, frozen=True):
    """Put an envelope on one of our queues, once for all who have subscribed to it.

    It goes over the pair link to whichever of `links` has not subscribed (yet), so nothing depends on when a
    subscription comes. Lost for a subscriber who is away or slow: the log repairs.
    """

    queue: bytes
    envelope: bytes
    links: tuple[bytes, ...] = ()
    """Those whom it is for."""


class Post(Struct, frozen=True):
    """Hand an envelope over at a URI (HTTP POST, or a WebSocket). `PostFailed` comes back when that did not work."""

    uri: str
    envelope: bytes
    media_type: str
    return_route: bool = False
    """Whether something may come back over the same connection; it comes as `Mailed`."""


class Answered(Struct, frozen=True):
    """Send an envelope back where one came in over the web, if that way is still open."""

    handle: int
    envelope: bytes
    media_type: str


class Hold(Struct, frozen=True):
    """Keep a WebSocket to this URI open, for what a mediator has for us. `WebUp` and `WebDown` tell how it is."""

    uri: str


class Release(Struct, frozen=True):
    """Close what `Hold` opened."""

    uri: str


# --- time and memory ------------------------------------------------------------------------------------------------


class SetTimer(Struct, frozen=True):
    """Fire `key` once, `delay_ms` from now. A second timer with the same key replaces the first."""

    key: str
    delay_ms: int
    keep: bool = False
    """Do nothing where a timer with this key is set already."""


class Remember(Struct, frozen=True):
    """Append one delivered event to the group's log on disk."""

    group: str
    id: str
    author: str
    seq: int
    lamport: int
    type: str
    record: bytes
    """The canonical record, exactly as hashed (`event.py`), with its signature."""
    received: int
    """UTC milliseconds."""
    late: bool
    """True when something newer in Lamport order was already there."""
    vouched: str = ""
    """The DID of the member who handed it over, as long as its author has not confirmed it; empty: it has."""
    history: bool = False
    """From before our time: nobody waits for it as for news."""
    target: str = ""
    """What it is about, where it is about a post, the topic or its author (`saying.target_of`)."""


class Repeated(Struct, frozen=True):
    """An event that is here already has come once more from its author; nothing follows from that but a new
    acknowledgement."""

    group: str
    author: str
    seq: int
    type: str
    record: bytes
    """As in `Remember`."""


class Confirm(Struct, frozen=True):
    """The events of this author's chain after place `after`, up to `upto`, are its own word now."""

    group: str
    author: str
    after: int
    upto: int


class Refute(Struct, frozen=True):
    """What others have handed over of this author's chain after place `after`, up to `upto`, is not what the author
    says, or cannot be told to be. It stays on disk, marked, and is shown no more until it is remembered anew."""

    group: str
    author: str
    after: int
    upto: int


class Receipt(Struct, frozen=True):
    """A member is known to have an author's chain up to `upto`."""

    group: str
    member: str
    author: str
    upto: int
    at: int
    """Since when that is known, UTC milliseconds."""
    via: str = ""
    """A short word for the way; empty: unknown."""


class Forget(Struct, frozen=True):
    """Delete a group's log, and all that is known of who has what of it."""

    group: str


class KeepMessage(Veiled, frozen=True):
    """Keep a signed message of a stream (`evidence/messages.py`) for as long as the group: our own, to be sent again
    and to prove by, or one that we have taken in."""

    VEILED = ("message", "key")

    group: str
    author: str
    alias: bytes
    """Of the stream, 16 bytes."""
    time: int
    """`T` of the message, greater with each one of a stream."""
    before: bytes
    """`Pre`, the signature of the message before, 64 bytes."""
    signature: bytes
    upto: int
    """The place in the author's chain of events up to which all is said with this message."""
    message: bytes
    """As it travels."""
    key: bytes
    """The 32 bytes that open this message and no other one; empty: it brought a new key, and no events."""
    hash: bytes = b""
    """SHA-256 of the message, where the group keeps a log in which it could stand; else empty."""


class KeepStatement(Struct, frozen=True):
    """Keep a signed statement about a subscription (`evidence/handshake.py`) between us and a member."""

    group: str
    member: str
    """The other one of the two."""
    says: str
    """Its tag: `request`, `accept`, `confirm` or `close`."""
    digest: str
    statement: bytes
    at: int
    """When it came, or was made, UTC milliseconds."""


class KeepAck(Struct, frozen=True):
    """Keep a member's signed acknowledgement of a message of ours in the place of its last one, if there is such a
    message, and it is later."""

    group: str
    author: str
    """Ourselves."""
    member: str
    alias: bytes
    time: int
    of: bytes
    """The signature of the message."""
    ack: bytes
    """As it stands in `evidence/messages.py`."""
    before: int = 0
    """It is of what was said up to this `T`, before the subscription by which the member hears us now: of this one it
    keeps the place of none. 0: it is of what has come by that."""


class SealAcks(Struct, frozen=True):
    """A member's subscription to our stream is over: what it has signed of that stays as it is, whatever it signs
    later."""

    group: str
    member: str
    alias: bytes
    upto: int
    """`T` of the last message by that subscription."""


class KeepLog(Struct, frozen=True):
    """Keep that there is a log of a group, and by what rules."""

    group: str
    origin: str
    rules: bytes
    """`case.Rules`, as canonical JSON."""
    at: int
    """When it came into force here, UTC milliseconds."""


class KeepEntries(Struct, frozen=True):
    """Keep entries of a log, in their places. What has its place already is left as it is."""

    group: str
    origin: str
    after: int
    """How many entries stand before them."""
    records: tuple[bytes, ...]


class KeepNote(Struct, frozen=True):
    """Keep a checkpoint that a quorum has cosigned."""

    group: str
    origin: str
    size: int
    at: int
    """When nothing more was in the log, UTC milliseconds (`witness.Quorum.whole_ms`)."""
    note: str


class KeepBlob(Veiled, frozen=True):
    """Keep what an entry of a log speaks of, for whoever lacks it, if there is room for more of its author's."""

    VEILED = ("blob",)

    group: str
    hash: str
    """base64url of its SHA-256."""
    author: str
    blob: bytes
    at: int
    """UTC milliseconds."""
    asked: bool = False
    """We have fetched it, since the log speaks of it, or it is ours: there is room for this beside what others bring by
    themselves."""


class DropBlobs(Struct, frozen=True):
    """Keep no longer what came before this time (UTC milliseconds)."""

    group: str
    before: int


class KeepRival(Veiled, frozen=True):
    """Keep a signed message that was not taken in, where it contradicts one that is kept, or the one `beside` it: it
    has the same place in the stream, or is not later than the one that it names. Of each author and kind the first such
    pair is enough, and no other one is kept."""

    VEILED = ("message", "beside")

    group: str
    author: str
    alias: bytes
    time: int
    before: bytes
    signature: bytes
    message: bytes
    at: int
    """When it came, UTC milliseconds."""
    beside: bytes = b""
    """Another message of the stream that is not kept either; empty: compare it with those that are."""


class KeepStray(Veiled, frozen=True):
    """Keep that a signed message has come which is not taken in: so it is not missing. Where it waits no longer for the
    one that it names, and that never came, its author may be accused by it (`evidence/judge.py`): of these the first
    few are kept as they were sent."""

    VEILED = ("signature", "message")

    group: str
    author: str
    alias: bytes
    time: int
    """`T` of the message."""
    signature: bytes
    message: bytes
    """Empty: nobody is accused by it."""
    at: int
    """UTC milliseconds."""


Remembered: TypeAlias = (
    Remember
    | Confirm
    | Refute
    | Receipt
    | Forget
    | KeepMessage
    | KeepStatement
    | KeepAck
    | SealAcks
    | KeepLog
    | KeepEntries
    | KeepNote
    | KeepBlob
    | DropBlobs
    | KeepRival
    | KeepStray
)
"""What goes into the journal with the turn that says it."""


class Recall(Struct, frozen=True):
    """Read own chain back from the log: at most `limit` records of `author` after `after`, to be sent to `member`."""

    group: str
    member: str
    author: str
    after: int
    limit: int
    alias: bytes = b""
    """And, of this stream of ours, the first messages that are later than `time`, in their order: at most `limit`, and
    no more than 256 KiB, but one in any case. Empty: none."""
    time: int = 0
    """`T` of the last message that the member has acknowledged by its signature."""


class LookUp(Struct, frozen=True):
    """Look something up in what is kept of a group's log; `LookedUp` brings it."""

    group: str
    origin: str
    what: Lookup


class Fetch(Struct, frozen=True):
    """Read what a member asks for out of the log (`history/`); `Fetched` brings it."""

    group: str
    member: str
    thread: str
    """Of the request."""
    want: tuple[tuple[str, int, int], ...]
    """Authors, and of each the places after the first number, up to the second."""
    back: bool
    """From the newest back, in the order in which the log is shown; else in the order in which it was delivered."""
    limit: int
    joined: int
    """The Lamport time of the event that brought the member in: it may have whatever is not older."""
    rules: tuple[str, ...]
    """What it may have of the rest (`sync/history_policy.py`): all of these must allow it."""
    page: int = 0
    """Which of the answers to this request it is, from 0."""
    pages: int = 1
    """How many answers may be given in all."""


class Compare(Struct, frozen=True):
    """Compare the posts of a log with what a member says of its own (`sync/fork_detection.py`); `Compared` brings what
    comes of it."""

    group: str
    member: str
    thread: str
    """Of the question; empty where we are to ask the first one."""
    ours: bool
    """Whether we ask and the member answers."""
    since: int
    """Only posts with this Lamport time or a later one."""
    message: bytes
    """What the member has said; empty where we are to begin."""
    authors: tuple[str, ...]
    """Of whom we want to know where something differs."""


class ReadParts(Struct, frozen=True):
    """Read parts of a file that is here, for a member; `PartsRead` brings them."""

    group: str
    member: str
    file: str
    size: int
    first: int
    count: int


class StoreParts(Veiled, frozen=True):
    """Put a part of a file on disk, at its place; `PartsStored` comes back, or `FileFailed`."""

    VEILED = ("data",)

    group: str
    file: str
    size: int
    """Of the whole file."""
    first: int
    """The number of the part."""
    data: bytes


class FinishFile(Struct, frozen=True):
    """All parts are on disk: look whether they are the file, and only then call it whole. `FileWhole` comes back, or
    `FileFailed`."""

    group: str
    file: str
    root: str
    size: int


class DropFile(Struct, frozen=True):
    """Remove what is on disk of a file."""

    group: str
    file: str


# --- people and programs --------------------------------------------------------------------------------------------


class GroupCreated(Struct, frozen=True):
    group: str


class InvitationCreated(Struct, frozen=True):
    group: str
    invitation: Invitation


class JoinStarted(Struct, frozen=True):
    join: str
    """The id under which `JoinProgress` notices follow."""


class JoinEnded(Struct, frozen=True):
    join: str


class Posted(Struct, frozen=True):
    group: str
    id: str
    seq: int
    lamport: int


class Left(Struct, frozen=True):
    group: str


class Forgotten(Struct, frozen=True):
    group: str


Outcome: TypeAlias = Literal["new", "known", "taken", "apart", "causes", "contradiction", "invalid", "stranger", "own"]
"""What has become of a record out of a file. `taken`: something has its place, and the log knows whether it is this
one. `apart`: it does not join on to what is here of its author's chain. `causes`: a membership event that it rests on
is not here. `contradiction`: something else is here in its place, or is named there. `invalid`: it is not as it must
be. `stranger`: its author is no member, or was none any more. `own`: it says that it is my own."""


class Imported(Struct, frozen=True):
    """A page of a file was looked through: what has become of each record."""

    group: str
    outcomes: tuple[Outcome, ...]


class FileChanged(Struct, frozen=True):
    """A file is asked for, or is here no more."""

    group: str
    file: str


class Changed(Struct, frozen=True):
    """The group is as it was asked to be, or will be as soon as the others have heard it."""

    group: str


class Shared(Struct, frozen=True):
    """So many members are told in passing what we do; none where nobody is near, or a person does not want it."""

    members: int


class Voted(Struct, frozen=True):
    """We want this member out; it goes with the last vote that is needed."""

    group: str
    member: str
    votes: int
    needed: int
    """As many as `votes` or fewer: it is out."""


class Asked(Struct, frozen=True):
    """A question is on its way to a peer; the answer comes as a notice with this thread."""

    thread: str


class Connected(Struct, frozen=True):
    """A connection was begun, changed or ended."""

    connection: str


class Offered(Struct, frozen=True):
    """An invitation to connect: an out-of-band link."""

    connection: str
    url: str
    expires: int
    """UTC seconds."""


Result: TypeAlias = (
    GroupCreated
    | InvitationCreated
    | JoinStarted
    | JoinEnded
    | Posted
    | Left
    | Forgotten
    | Imported
    | FileChanged
    | Changed
    | Shared
    | Voted
    | Asked
    | Connected
    | Offered
)


class Answer(Struct, frozen=True):
    ticket: int
    result: Result


class Refuse(Struct, frozen=True):
    ticket: int
    error: LocalError


class Notify(Struct, frozen=True):
    notice: Notice


class Measure(Struct, frozen=True):
    """Count something for diagnosis. Never carries keys, text or anybody's DID."""

    name: str
    detail: str = ""


Effect: TypeAlias = (
    Admit
    | Revoke
    | Dial
    | Hangup
    | Dispatch
    | Reply
    | Publish
    | Post
    | Answered
    | Hold
    | Release
    | SetTimer
    | Remember
    | Repeated
    | Confirm
    | Refute
    | Receipt
    | Forget
    | KeepMessage
    | KeepStatement
    | KeepAck
    | SealAcks
    | KeepLog
    | KeepEntries
    | KeepNote
    | KeepBlob
    | DropBlobs
    | LookUp
    | KeepRival
    | KeepStray
    | Recall
    | Fetch
    | Compare
    | ReadParts
    | StoreParts
    | FinishFile
    | DropFile
    | Answer
    | Refuse
    | Notify
    | Measure
)
