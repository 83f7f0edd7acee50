"""Notifications of the core to clients: frozen values, so threads and processes share them without locks."""

from typing import Literal, TypeAlias

from msgspec import Struct


class Delivered(Struct, frozen=True):
    """An event was stored in the log, our own or another member's."""

    group: str
    id: str


class Receipt(Struct, frozen=True):
    """`member` has every event of `author` up to `upto`; before, it was known to have them up to `after`."""

    group: str
    member: str
    author: str
    after: int
    upto: int


class PeerUp(Struct, frozen=True):
    group: str
    member: str


class PeerDown(Struct, frozen=True):
    group: str
    member: str


class ViewChanged(Struct, frozen=True):
    """A member joined or left, a member's view began to match or to differ from ours, the gap before a known membership
    event is closed, or content stays here for another time."""

    group: str


JoinPhase: TypeAlias = Literal["dialling", "exchanging", "asking", "connecting", "joined", "failed"]


class JoinProgress(Struct, frozen=True):
    join: str
    phase: JoinPhase
    text: str
    """One sentence for the user."""
    group: str = ""
    connected: int = 0
    members: int = 0
    error: str = ""
    """The error code if the join failed."""


class InvitationUsed(Struct, frozen=True):
    """A joiner used the invitation of ours on this link; `uses_left` uses remain."""

    group: str
    label: str
    uses_left: int
    link: bytes = b""


class JoinRequested(Struct, frozen=True):
    """A joiner asks to join a group of ours, and a member has to decide (`AnswerJoinRequest`)."""

    group: str
    member: str
    """Its group key, a did:key."""
    label: str
    role: str


class JoinRequestAnswered(Struct, frozen=True):
    """A join request was answered, or has expired."""

    group: str
    member: str
    label: str
    admitted: bool


class PrivateInvited(Struct, frozen=True):
    """A member invites us to a private conversation (`AnswerPrivateInvitation`)."""

    group: str
    member: str


class PrivateInvitationAnswered(Struct, frozen=True):
    """A private invitation was answered, or is void."""

    group: str
    member: str
    accepted: bool


class ConversationMoved(Struct, frozen=True):
    """Both members had begun a private conversation: ours is gone, and our posts are in the other one."""

    group: str
    """The one that remains."""
    former: str


class MemberConnections(Struct, frozen=True):
    """With how many members an admitted joiner is connected."""

    group: str
    member: str
    connected: int
    members: int


class RemovedFromGroup(Struct, frozen=True):
    """We were removed from a group."""

    group: str
    by: str


class VerificationChanged(Struct, frozen=True):
    """A member was marked as verified, or is no longer."""

    group: str
    member: str


class IgnoredChanged(Struct, frozen=True):
    """The user ignores a member, or no longer."""

    group: str
    member: str


class ViewDisagreement(Struct, frozen=True):
    """The members' views of a group that we have just joined differ, or a member has signed two histories."""

    group: str
    member: str
    """The dissenting member; empty: that cannot be determined."""
    text: str
    """One sentence for the user."""


class ForkDetected(Struct, frozen=True):
    """An author signed or sent two events with the same place in its chain; the later one was rejected."""

    group: str
    author: str
    seq: int


class DidRotated(Struct, frozen=True):
    """A DID of one relationship was rotated: the member's, or (`mine`) ours, once the member has used the new one."""

    group: str
    member: str
    mine: bool = False


Transport: TypeAlias = Literal["direct", "mediator", "web"]
"""How an answer came."""


class Pong(Struct, frozen=True):
    """The answer to a Trust Ping, and what it proves."""

    thread: str
    peer: str
    rtt_ms: int
    envelope: str
    """The protection of the answer, such as `didcomm/v2 ECDH-1PU+A256KW A256CBC-HS512`."""
    their_key: str
    """The peer's key id that authenticated the answer."""
    my_key: str
    """Our key id that it was encrypted to."""
    transport: Transport


class FeaturesDisclosed(Struct, frozen=True):
    """The answer to a feature query: pairs of feature type and id."""

    thread: str
    peer: str
    features: tuple[tuple[str, str], ...]


class ConnectionChanged(Struct, frozen=True):
    """A connection was requested, established, became our mediator, or ended."""

    connection: str
    text: str
    """One sentence for the user."""


class BasicMessageReceived(Struct, frozen=True):
    """A basic message was received from a connection."""

    connection: str
    text: str
    attachments: tuple[str, ...] = ()
    """What the sender calls its attachments."""


class MessageSettled(Struct, frozen=True):
    """A basic message of ours was accepted by the peer's endpoint, acknowledged by the peer's agent, or is given up."""

    connection: str
    id: str
    status: Literal["delivered", "received", "failed"]


class ProblemReported(Struct, frozen=True):
    """A peer reports a problem on its side."""

    peer: str
    code: str
    comment: str


GapState: TypeAlias = Literal["asked", "held", "lost", "filled"]


class Gap(Struct, frozen=True):
    """Events of an author that other members have and we lack: after place `after` of its chain, up to `upto`."""

    group: str
    author: str
    after: int
    upto: int
    state: GapState
    """`asked`: requested; `held`: refused, as the author's daily quota is used up; `lost`: no member that was asked has
    them (retried rarely); `filled`: received."""


class GapsFilled(Struct, frozen=True):
    """Every event that any member has announced is here."""

    group: str
    upto: int
    """The Lamport time of the newest event."""
    at: int
    """UTC ms."""


class EventsConfirmed(Struct, frozen=True):
    """The events of an author's chain after place `after`, up to `upto`, are confirmed by their author."""

    group: str
    author: str
    after: int
    upto: int


class EventsRefuted(Struct, frozen=True):
    """The relayed events of an author's chain after place `after`, up to `upto`, are withdrawn: the author contradicts
    them, or does not confirm them yet. They come back if it does."""

    group: str
    author: str
    relayed_by: str
    """The member that relayed events which the author contradicts; empty: none is known."""
    after: int
    upto: int


class ValidityChanged(Struct, frozen=True):
    """The author's events after place `after` of its chain, up to `upto`, lose or regain validity: the author was
    removed or made a reader as of an earlier place, or that change itself became invalid."""

    group: str
    author: str
    after: int
    upto: int
    counts: bool


class DifferenceFound(Struct, frozen=True):
    """A member has another event than we at this place of an author's chain: the author equivocates, or the member
    lies."""

    group: str
    author: str
    seq: int
    member: str
    relayed_by: str = ""
    """The member that relayed our event; empty: its author confirmed it."""


class HistoryProgress(Struct, frozen=True):
    """Backfill progress: more events from before we joined are here."""

    group: str
    received: int
    """The number of events received so far."""
    remaining: int
    """The number of further events, whether we may have them or not."""
    done: bool


class RecoveryEnded(Struct, frozen=True):
    """Stale-profile recovery has ended and we may send again: our lost events are back, no member has any to show, or
    the user decided so."""

    group: str
    upto: int
    """The number of our own events."""


class Typing(Struct, frozen=True):
    """A member is typing."""

    group: str
    member: str


class FileProgress(Struct, frozen=True):
    """A download progressed or ended, or another member has the file."""

    group: str
    file: str


class ContentExpired(Struct, frozen=True):
    """Content has expired and is erased here (`Group.retention`)."""

    group: str


class TlogTermsChanged(Struct, frozen=True):
    """The operator and the witnesses of a group's tlog have changed (`View.terms`)."""

    group: str
    origin: str
    """The name of the tlog; empty: the group has none now, and relies on acknowledgements alone."""
    operator: str
    witnesses: tuple[str, ...]
    by: str
    """The member that set the terms; empty where there are none."""


class TlogExtended(Struct, frozen=True):
    """A tlog that we follow has grown by a checkpoint, or by a part of one."""

    group: str
    origin: str
    entries: tuple[tuple[int, bytes], ...]
    """The new entries: places from 0, and records (`evidence/witness.py`)."""
    size: int
    """The number of entries."""


class TlogStalled(Struct, frozen=True):
    """An entry of ours has waited long for its place in the tlog."""

    group: str
    origin: str
    since: int
    """When it was submitted, UTC ms."""


class TlogSplit(Struct, frozen=True):
    """The operator has signed a split view: its signatures below both texts convict it (`witness.is_split_view`). We
    submit to neither."""

    group: str
    origin: str
    operator: str
    one: str
    other: str


Notification: TypeAlias = (
    Delivered
    | Receipt
    | PeerUp
    | PeerDown
    | ViewChanged
    | JoinProgress
    | InvitationUsed
    | JoinRequested
    | JoinRequestAnswered
    | PrivateInvited
    | PrivateInvitationAnswered
    | ConversationMoved
    | MemberConnections
    | RemovedFromGroup
    | VerificationChanged
    | IgnoredChanged
    | ViewDisagreement
    | ForkDetected
    | DidRotated
    | Pong
    | FeaturesDisclosed
    | ConnectionChanged
    | BasicMessageReceived
    | MessageSettled
    | ProblemReported
    | Gap
    | GapsFilled
    | EventsConfirmed
    | EventsRefuted
    | ValidityChanged
    | DifferenceFound
    | HistoryProgress
    | RecoveryEnded
    | Typing
    | FileProgress
    | ContentExpired
    | TlogTermsChanged
    | TlogExtended
    | TlogStalled
    | TlogSplit
)
