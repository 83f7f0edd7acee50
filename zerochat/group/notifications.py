"""What the core tells the faces. Frozen values, so that threads and processes share them without locks."""

from typing import Literal, TypeAlias

from msgspec import Struct


class Delivered(Struct, frozen=True):
    """An event took its place in the log (one's own as well as others')."""

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
    """Somebody joined or left, or a member's view began to agree or to differ."""

    group: str


JoinPhase: TypeAlias = Literal["dialling", "exchanging", "asking", "connecting", "joined", "failed"]


class JoinProgress(Struct, frozen=True):
    join: str
    phase: JoinPhase
    text: str
    """One sentence for a person."""
    group: str = ""
    connected: int = 0
    members: int = 0
    error: str = ""
    """The error's code, when failed."""


class InvitationUsed(Struct, frozen=True):
    """Somebody answered the invitation of ours on this link; `uses_left` of it remain."""

    group: str
    label: str
    uses_left: int
    link: bytes = b""


class JoinAsked(Struct, frozen=True):
    """Somebody wants to join a group of ours, and a member has to say whether it may (`AnswerRequest`)."""

    group: str
    member: str
    """Its group key, a did:key."""
    label: str
    role: str


class JoinAnswered(Struct, frozen=True):
    """A request to join was answered, or has expired."""

    group: str
    member: str
    label: str
    admitted: bool


class Seating(Struct, frozen=True):
    """How far somebody whom we have let in is with the others."""

    group: str
    member: str
    connected: int
    members: int


class Removed(Struct, frozen=True):
    """We have been put out of a group."""

    group: str
    by: str


class TrustChanged(Struct, frozen=True):
    """A member was verified, or is not any more."""

    group: str
    member: str


class Disagreement(Struct, frozen=True):
    """The members' views of a group that we have just joined differ, or one of them has signed two histories."""

    group: str
    member: str
    """Who says something else than the others, as far as that can be told; empty: that cannot be told."""
    text: str
    """One sentence for a person."""


class Forked(Struct, frozen=True):
    """Two different events claim the same place in one author's chain; the later one was set aside."""

    group: str
    author: str
    seq: int


class Rotated(Struct, frozen=True):
    """A DID of one relationship was replaced: the member's, or (`mine`) ours, once the member has shown to know."""

    group: str
    member: str
    mine: bool = False


Way: TypeAlias = Literal["direct", "mediator", "web"]
"""How an answer came."""


class Pong(Struct, frozen=True):
    """The answer to a trust ping, and what it proves."""

    thread: str
    peer: str
    rtt_ms: int
    envelope: str
    """How the answer was protected, as `didcomm/v2 ECDH-1PU+A256KW A256CBC-HS512`."""
    their_key: str
    """The key id of the peer that the answer was authenticated with."""
    my_key: str
    """The key id of ours that it was encrypted to."""
    way: Way


class FeaturesDisclosed(Struct, frozen=True):
    """The answer to a query for features: pairs of feature type and id."""

    thread: str
    peer: str
    features: tuple[tuple[str, str], ...]


class ConnectionChanged(Struct, frozen=True):
    """A connection began, was established, became our mediator, or ended."""

    connection: str
    text: str
    """One sentence for a person."""


class Told(Struct, frozen=True):
    """A basic message has come from a connection."""

    connection: str
    text: str


class ProblemReported(Struct, frozen=True):
    """A peer says that something went wrong on its side."""

    peer: str
    code: str
    comment: str


GapState: TypeAlias = Literal["asked", "lost", "filled"]


class Gap(Struct, frozen=True):
    """Events of an author that others have and we have not: those after place `after` of its chain, up to `upto`."""

    group: str
    author: str
    after: int
    upto: int
    state: GapState
    """Others were asked for them; nobody who was asked has them (asking goes on, rarely); they are here."""


class Completed(Struct, frozen=True):
    """Nothing is missing here any more of what anybody has told us of."""

    group: str
    upto: int
    """The Lamport time of the newest event."""
    at: int
    """UTC ms."""


class Confirmed(Struct, frozen=True):
    """The events of an author's chain after place `after`, up to `upto`, are its own word now, whoever has handed them
    over."""

    group: str
    author: str
    after: int
    upto: int


class Refuted(Struct, frozen=True):
    """What was handed over of an author's chain, after place `after` up to `upto`, counts no more: the author says
    something else, or nobody can tell yet whether it says the same; in that case it comes anew when it does."""

    group: str
    author: str
    by: str
    """Who has handed over what the author has not said; empty: nobody is known to have."""
    after: int
    upto: int


class Recounted(Struct, frozen=True):
    """What an author may have said after place `after` of its chain, up to `upto`, does not count any more, or does
    again: somebody has put it out, or made it a reader, as of an earlier place (or that does not count itself)."""

    group: str
    author: str
    after: int
    upto: int
    counts: bool


class Differs(Struct, frozen=True):
    """A member has something else than we in this place of an author's chain: the author has said two things, or
    somebody says what is not so."""

    group: str
    author: str
    seq: int
    member: str
    by: str = ""
    """Who has handed ours over; empty: it is the author's own word."""


class HistoryFetched(Struct, frozen=True):
    """More of the history from before our time is here."""

    group: str
    got: int
    """Events, in all."""
    left: int
    """How many more there are, whether we may have them or not."""
    done: bool


class Regained(Struct, frozen=True):
    """This profile had lost some of its own words, or may have, and can go on: it has them again, or nobody had any to
    show, or a person at this machine has decided so."""

    group: str
    upto: int
    """How many events of our own there are."""


class Typing(Struct, frozen=True):
    """A member is writing something."""

    group: str
    member: str


class FileMoved(Struct, frozen=True):
    """A file has come on its way, or somebody else has it, or it is fetched no more."""

    group: str
    file: str


class TermsSet(Struct, frozen=True):
    """Who operates and who witnesses a group's log is another matter than before (`View.terms`)."""

    group: str
    origin: str
    """The name of the log; empty: the group has none for now, and goes by acknowledgements alone."""
    operator: str
    witnesses: tuple[str, ...]
    by: str
    """Who has said so; empty where there is none."""


class Logged(Struct, frozen=True):
    """A log that we follow has grown by a whole checkpoint, or by a part of one."""

    group: str
    origin: str
    entries: tuple[tuple[int, bytes], ...]
    """What is new: places, from 0, and records (`evidence/witness.py`)."""
    size: int
    """How many entries there are now."""


class LogStalled(Struct, frozen=True):
    """An entry of ours has had no place in the log for long."""

    group: str
    origin: str
    since: int
    """When it was posted, UTC ms."""


class LogSplit(Struct, frozen=True):
    """The operator of a group's log has signed two of them: its signatures below both texts convict it
    (`witness.is_split`). We post in neither."""

    group: str
    origin: str
    operator: str
    one: str
    other: str


Notice: TypeAlias = (
    Delivered
    | Receipt
    | PeerUp
    | PeerDown
    | ViewChanged
    | JoinProgress
    | InvitationUsed
    | JoinAsked
    | JoinAnswered
    | Seating
    | Removed
    | TrustChanged
    | Disagreement
    | Forked
    | Rotated
    | Pong
    | FeaturesDisclosed
    | ConnectionChanged
    | Told
    | ProblemReported
    | Gap
    | Completed
    | Confirmed
    | Refuted
    | Recounted
    | Differs
    | HistoryFetched
    | Regained
    | Typing
    | FileMoved
    | TermsSet
    | Logged
    | LogStalled
    | LogSplit
)
