"""Everything that the core hears: commands from a face, and inputs from the machine room.

The core is one function, `step(agent, stimulus, moment) -> (agent, effects)` (`engine.py`). A *stimulus* is what it
hears; what it says back are *effects* (`effects.py`). The clock and the dice come in as a `Moment`, so that the same
stimuli always give the same agent: that is what the simulator, the tests and the journal rely on.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import Invitation
from zerochat.didcomm.protocols.oob_read import OutOfBand
from zerochat.group.files.descriptor import File
from zerochat.group.files.quota import FileRules
from zerochat.group.key_rotation import Rotation
from zerochat.group.membership import Policy
from zerochat.group.membership.bot_announcement import Announcement
from zerochat.group.messages.bodies import Delete, Edit, React, Topic
from zerochat.group.messages.sharing import Sharing
from zerochat.group.tlog.lookups import Found, Lookup
from zerochat.group.tlog.verdicts import Verdict


class Moment(Struct, frozen=True):
    """All that a step may know of the world outside: one reading of the clock, one source of randomness."""

    now: int
    """UTC, milliseconds since 1970."""
    random: Callable[[int], bytes]
    """`random(n)` gives n fresh unpredictable bytes."""


# --- commands: a person or a program at this machine wants something ------------------------------------------------


class CreateGroup(Struct, frozen=True):
    name: str
    label: str
    """What the others will call me in this group."""
    envelope: str = "didcomm/v2"
    """The kind of envelopes that everything in this group travels in."""
    keys: str = "pairwise-multi"
    policy: Policy = Policy()
    accountability: str = "acks"
    """How it is known who has what: `acks`, or `ledger`, by a log with witnesses."""


class CreateInvitation(Struct, frozen=True):
    group: str
    lifetime_s: int
    uses: int
    role: str = "writer"
    """What whoever accepts it may be at the most: reader or writer."""
    history: str = "all"
    """What it may have of what was said before it came, as far as the group's own rule allows it (`Policy.history`)."""


class RevokeInvitation(Struct, frozen=True):
    """Take an open invitation of ours back. `invitation`: its name (`joining/revocation.py`), or the beginning of it."""

    group: str
    invitation: str


class AcceptInvitation(Struct, frozen=True):
    invitation: Invitation
    label: str
    role: str = "writer"
    """What we want to be in the group: reader or writer."""


class CancelJoin(Struct, frozen=True):
    """Give up a join that is under way."""

    join: str
    """Its id or the beginning of it, or the group's name; empty: the only one."""


class AnswerRequest(Struct, frozen=True):
    """Let somebody in who waits for an answer, or not."""

    group: str
    who: str
    """The label under which it asks, or its DID."""
    admit: bool
    label: str = ""
    role: str = ""
    """What it asks for, as the person was shown it: only that is admitted. Empty: whatever it asks for."""


class RemoveMember(Struct, frozen=True):
    """Put a member out, or vote for it where that takes several."""

    group: str
    member: str
    """A label or a DID."""


class ChangeRole(Struct, frozen=True):
    group: str
    member: str
    """A label or a DID; empty: ourselves."""
    role: str


class ChangeLabel(Struct, frozen=True):
    """Go by another name in a group."""

    group: str
    label: str


class VerifyMember(Struct, frozen=True):
    """The safety words were compared out of band and are the same; or that is taken back."""

    group: str
    member: str
    verified: bool


class SendPost(Struct, frozen=True):
    group: str
    text: str
    reply: str = ""
    """The id of the post that it answers; empty: none."""
    action: bool = False
    mentions: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    """What comes with it, and is on disk here."""


class Say(Struct, frozen=True):
    """Say something else than a post. Whether the post that it is about is there, whoever asks has looked up."""

    group: str
    what: Edit | Delete | React | Topic | Announcement | Verdict


class GetFile(Struct, frozen=True):
    """Fetch a file that was posted in a group."""

    group: str
    file: File
    author: str
    """Who has posted it."""
    event: str
    """The id of that post."""


class DropFile(Struct, frozen=True):
    """Keep a file here no more."""

    group: str
    file: str
    """Its id."""


class LeaveGroup(Struct, frozen=True):
    group: str


class ForgetGroup(Struct, frozen=True):
    """Delete what is kept here of a group that we are not in any more."""

    group: str


class ResumeGroup(Struct, frozen=True):
    """Go on in a group where this profile may be an older copy of itself, whatever others may have heard of us
    (`sync/stale_profile.py`)."""

    group: str


class ImportEvents(Struct, frozen=True):
    """Take in what is missing here of a page of a group's log out of a file (`sync/archive_import.py`)."""

    group: str
    records: tuple[bytes, ...]
    back: bool = False
    """They go from the newest to the oldest, down from what is here, and not up."""


class DismissDoubts(Struct, frozen=True):
    """Somebody here has seen what casts doubt on what the members say (`agreement.doubts`)."""

    group: str
    member: str
    """About whom, a label or a DID; empty: all of it."""


class SetTerms(Struct, frozen=True):
    """Say who operates and who witnesses a group's log from now on (`group/tlog/terms.py`)."""

    group: str
    operator: str
    """A label or a DID."""
    witnesses: tuple[str, ...]
    """Labels or DIDs."""


class PostToLog(Struct, frozen=True):
    """Have an entry put in a group's log. It is answered as soon as it is kept here: from then on it is repeated until
    it has its place."""

    group: str
    kind: Literal["accusation", "defence", "close"]
    blob: bytes
    """What the entry speaks of; the witnesses hold it."""
    about: str = ""
    """Of a defence: the digest of the accusation."""
    origin: str = ""
    """Which log; empty: the one that is in force."""


class ShareTyping(Struct, frozen=True):
    """Tell the others that we are writing something, if a person wants that to be told."""

    group: str


class ShareRead(Struct, frozen=True):
    """Tell the others up to which Lamport time we have read, if a person wants that to be told."""

    group: str
    upto: int


class PingPeer(Struct, frozen=True):
    """Trust Ping to a member or a connection."""

    peer: str
    """A connection's label or id, a member's label or DID, or `group/label` where that alone is not clear."""


class AskFeatures(Struct, frozen=True):
    """Discover Features of a member or a connection."""

    peer: str
    match: str
    """Protocols whose URI matches this; `*` at the end stands for anything."""


class RotateDid(Struct, frozen=True):
    """Replace the DID that a member or a connection knows us by."""

    peer: str


class Tell(Struct, frozen=True):
    """A basic message to a connection."""

    peer: str
    text: str


class Connect(Struct, frozen=True):
    """Accept an out-of-band invitation of an agent that may be anybody's."""

    invitation: OutOfBand
    label: str
    mediate: bool = False
    """Ask that agent to be our mediator."""


class OfferConnection(Struct, frozen=True):
    """Make an out-of-band invitation to connect, outside of any group."""

    envelope: str
    label: str
    lifetime_s: int


class EndConnection(Struct, frozen=True):
    peer: str


Command: TypeAlias = (
    CreateGroup
    | CreateInvitation
    | RevokeInvitation
    | AcceptInvitation
    | CancelJoin
    | AnswerRequest
    | RemoveMember
    | ChangeRole
    | ChangeLabel
    | VerifyMember
    | SendPost
    | GetFile
    | DropFile
    | Say
    | LeaveGroup
    | ForgetGroup
    | ResumeGroup
    | ImportEvents
    | DismissDoubts
    | SetTerms
    | PostToLog
    | ShareTyping
    | ShareRead
    | PingPeer
    | AskFeatures
    | RotateDid
    | Tell
    | Connect
    | OfferConnection
    | EndConnection
)


class Ask(Struct, frozen=True):
    """A command with the ticket under which its `Answer` or `Refuse` comes back."""

    ticket: int
    command: Command


# --- inputs: the machine room saw something -------------------------------------------------------------------------


class Started(Struct, frozen=True):
    """The sockets are bound; this is where others reach them from now on."""

    pair: Endpoint
    queue: Endpoint
    server_key: bytes
    """The CURVE public key of both bound sockets, 32 bytes."""
    web: tuple[str, ...] = ()
    """The URIs at which envelopes come in over HTTP and WebSocket; none unless asked for."""
    hidden: bool = False
    """Nobody can dial us, so `pair` and `queue` are told to nobody."""
    cover: bool = False
    """Say something that means nothing now and then (`sync.cover`)."""
    restored: bool = False
    """The profile comes from a backup: we may have said more than we know (`sync/stale_profile.py`)."""
    anew: bool = False
    """The machine has started since the profile was last open, so nothing tells what its clock was then."""
    files: FileRules = FileRules()
    """How much of others' files this machine takes."""
    sharing: Sharing = Sharing()
    """What others are told of what a person here reads and writes."""
    rotation: Rotation = Rotation()
    """When a new key is drawn for what is said here, in groups whose keys sign."""


class ClockSet(Struct, frozen=True):
    """Somebody has set the clock of this machine: it says so many ms more than it would have otherwise."""

    by_ms: int


class Received(Struct, frozen=True):
    """One envelope came in over `link`. `handle` is set when it came in on a connection that the peer dialled."""

    link: bytes
    envelope: bytes
    handle: bytes | None = None
    queued: bool = False
    """It was on a queue, so nobody has sent it again. For measurements alone."""


class LinkUp(Struct, frozen=True):
    """The pair link to this peer has finished its handshake (either side may have dialled)."""

    link: bytes


class LinkDown(Struct, frozen=True):
    link: bytes


class TimerFired(Struct, frozen=True):
    key: str


class TurnOver(Struct, frozen=True):
    """Nothing more comes in this turn: what its steps have made for others goes out together."""


class Recalled(Struct, frozen=True):
    """The answer to a `Recall`: canonical event records, in the order of the author's chain."""

    group: str
    member: str
    records: tuple[bytes, ...]
    messages: tuple[tuple[int, bytes], ...] = ()
    """Messages of the stream, and up to which place in the chain all is said with each."""


class Fetched(Struct, frozen=True):
    """The answer to a `Fetch`: canonical event records, in the order that was asked for."""

    group: str
    member: str
    thread: str
    records: tuple[bytes, ...]
    back: bool
    more: bool
    """There are more of them."""
    want: tuple[tuple[str, int, int], ...] = ()
    page: int = 0
    pages: int = 1
    """As in the `Fetch`."""


class Compared(Struct, frozen=True):
    """What has come of a `Compare`."""

    group: str
    member: str
    thread: str
    ours: bool
    since: int
    message: bytes
    """What to say next; empty: nothing."""
    places: tuple[tuple[str, int, str], ...]
    """Of the authors that were asked about, the first event that the member lacks: author, place in its chain, id."""


class PartsRead(Veiled, frozen=True):
    """The answer to a `ReadParts`."""

    VEILED = ("parts",)

    group: str
    member: str
    file: str
    first: int
    parts: tuple[tuple[bytes, tuple[bytes, ...]], ...]
    """Each with its path to the root; empty: what is on disk is not what it must be."""


class PartsStored(Struct, frozen=True):
    """The parts of a file before this one are on disk."""

    group: str
    file: str
    upto: int


class FileWhole(Struct, frozen=True):
    """A file is whole, and has been checked."""

    group: str
    file: str


class FileFailed(Struct, frozen=True):
    """Something of a file could not be put on disk (`why` is the sentence), or is not what it must be (empty)."""

    group: str
    file: str
    why: str


class FilesFound(Struct, frozen=True):
    """What is on disk of files, after a start: by group and file, how many parts, and whether it is whole."""

    found: tuple[tuple[str, str, int, bool], ...]


class LookedUp(Struct, frozen=True):
    """The answer to a `LookUp`."""

    group: str
    origin: str
    what: Lookup
    found: Found


class Mailed(Struct, frozen=True):
    """One envelope came in over the web: posted to us, or on a WebSocket that we or somebody else opened."""

    envelope: bytes
    handle: int | None = None
    """Where an answer can go back at once; None: nowhere."""


class PostFailed(Struct, frozen=True):
    """An envelope could not be handed over at this URI."""

    uri: str


class WebUp(Struct, frozen=True):
    """The WebSocket that `Hold` asked for is open."""

    uri: str


class WebDown(Struct, frozen=True):
    uri: str


Input: TypeAlias = (
    Started
    | ClockSet
    | Received
    | LinkUp
    | LinkDown
    | TimerFired
    | TurnOver
    | Recalled
    | Fetched
    | Compared
    | PartsRead
    | PartsStored
    | FileWhole
    | FileFailed
    | FilesFound
    | LookedUp
    | Mailed
    | PostFailed
    | WebUp
    | WebDown
)
Stimulus: TypeAlias = Ask | Input
