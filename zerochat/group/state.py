"""What the core knows: frozen, serialisable values, changed only by replacing them.

The journal writes each field that changed as a row of its own (and each entry of a dict of these values), so a field
is the unit of what one turn costs on disk. Connections are not here for long: "I want to reach her" is state, "I
reach her" is news, and `up` is empty after every start.
"""

from dataclasses import dataclass, field
from typing import Literal, Self, TypeAlias

from zerochat.didcomm.did import Identity
from zerochat.didcomm.invitation import Invitation
from zerochat.didcomm.protocols.didexchange import Requester
from zerochat.didcomm.protocols.mediated import Mediated
from zerochat.didcomm.protocols.problem import Breaker
from zerochat.didcomm.service import Route
from zerochat.group.contact import Reach, transport_secret
from zerochat.group.event import Event
from zerochat.group.membership import View
from zerochat.group.modes import MODES, Mode, Place
from zerochat.group.relationship import Relationship
from zerochat.group.wire.messages import JoinRequestBody

GroupState: TypeAlias = Literal["active", "leaving", "left"]
JoinState: TypeAlias = Literal["exchanging", "asking", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a group picked when it began."""

    keys: str = "pairwise-multi"
    path: str = "mesh"
    accountability: str = "acks"
    envelope: str = "didcomm/v2"


@dataclass(frozen=True, slots=True)
class Conduct:
    """What a member may still send at once (`conduct.py`)."""

    envelopes: int = 0
    bytes: int = 0
    at: int = 0
    """When the two were worked out, UTC ms; a first message finds them full."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What we know and owe of one other member."""

    link: bytes
    base: int
    """Our own events after this one are meant for this member; those before are not."""
    base_id: str = ""
    """The id of that event; empty: there is none, or we do not know any more."""
    acked: dict[str, int] = field(default_factory=dict)
    """Up to where this member has said that it has each author's chain."""
    view: str = ""
    """The checksum of the view that it last told, if it has told of one since ours changed."""
    heard: int = 0
    """When its last authentic message came, UTC ms; 0: never."""
    reach: Reach | None = None
    """Where it last said that it is reached; None: as its contact says."""
    reach_at: int = 0
    """When it said so, in UTC ms by its own clock: an older word, which somebody may send again, does not count."""
    repaired: int = 0
    """The last of our own events that the last repair brought."""
    retry_at: int = 0
    """Do not repair before this time, UTC ms."""
    tries: int = 0
    asked_at: int = 0
    """When we last told it our heads because we lacked some of its own, UTC ms."""
    answered_at: int = 0
    """When we last sent it what it lacked of the membership events, UTC ms."""
    ended: int = 0
    """When it last gave up its DID for nothing, UTC ms; 0: never."""
    conduct: Conduct = field(default=Conduct(), compare=False)
    """Not a part of what we know: it also counts what was refused, which changes nothing else."""
    breaker: Breaker = Breaker()
    """Problem reports between us: a conversation about errors must end."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in an author's chain."""

    seq: int = 0
    tip: str = ""
    """The id of the event there; empty: unknown."""
    lamport: int = 0


@dataclass(frozen=True, slots=True)
class Past:
    """How far back an author's chain has been fetched, from where it began to come to us by itself."""

    first: int = 1
    """The first place of the unbroken stretch that we have."""
    before: str = ""
    """The id that the event before it must have; empty: nobody has said."""
    anchored: bool = False
    """Whether the author itself says so, by something that it has signed or said to us."""
    top: Spot | None = None
    """The newest of what was fetched, until the author's own word confirms it; None: there is nothing to confirm."""
    by: str = ""
    """Who has handed that over."""


@dataclass(frozen=True, slots=True)
class Chain:
    """How far one author's chain has been delivered here."""

    seq: int = 0
    tip: str = ""
    """The id of event `seq`; empty where the chain began before we were meant to hear it."""
    lamport: int = 0
    begun: bool = False
    """True once a post has been delivered, and not only membership events, which everybody gets."""
    forked: int = 0
    """The last place for which the author has been accused of two different events; 0: none."""
    own: Spot | None = None
    """Up to where this is the author's own word, where others have handed over what follows; None: all of it is."""
    by: str = ""
    """Who has handed over the last of that."""
    past: Past | None = None
    """None: it has come to us from its beginning."""
    untold: bool = False
    """Whether others have told us of it, and not yet its author from where on it is for us."""

    @classmethod
    def after(cls, since: int) -> Self:
        """One of which what comes after this place is for us."""
        return cls(since, past=Past(since + 1) if since else None)

    @property
    def sure(self) -> int:
        """Up to where this is the author's own word, or confirmed by it; 0 as long as it may want to begin earlier."""
        if self.untold:
            return 0
        return self.seq if self.own is None else self.own.seq


@dataclass(frozen=True, slots=True)
class Limbo:
    """One author's events that came too early: their records by seq."""

    records: dict[int, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Need:
    """A stretch of an author's chain that others have and we have not."""

    upto: int
    tries: int = 0
    """How often somebody was asked for it."""
    at: int = 0
    """Do not ask again before this, UTC ms."""
    since: int = 0
    """When it was first found missing, UTC ms."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What we have asked one member for (`history/`): only its answer to that is listened to."""

    thread: str
    want: tuple[tuple[str, int, int], ...]
    until: int
    """UTC ms; then somebody else is asked."""
    back: bool = False
    page: int = 0
    """The number of the answer that comes next."""
    pages: int = 1
    """How many there may be."""
    purpose: Literal["", "compare", "second"] = ""
    """Not empty where we only want to see what the member has there, and take nothing in (`history/compare.py`,
    `history/seconds.py`)."""


@dataclass(frozen=True, slots=True)
class Regain:
    """What we know of our own words that we may have lost (`history/regain.py`)."""

    unsure: bool = False
    """This profile was restored from a backup, and nobody has told us yet where we stand."""
    claims: dict[str, int] = field(default_factory=dict)
    """How far members say that they have our chain."""
    tries: int = 0
    """How often in a row we have asked for it in vain."""
    away: int = 0
    """How often in a row there was nobody there to ask, of those who have claimed that."""
    ignored: frozenset[str] = frozenset()
    """Members who have claimed that, and had nothing to show."""
    since: int = 0
    """When the first of them has said so, UTC ms."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far we are in comparing our log with a member's (`history/compare.py`)."""

    noticed: int = 0
    """Since when it seems that the member has something else, UTC ms; 0: it does not."""
    begun: int = 0
    """When we last began to compare, UTC ms."""
    authors: tuple[str, ...] = ()
    """Of whom it is about; none: nothing is compared now."""
    thread: str = ""
    """The question that it has not answered yet."""
    rounds: int = 0
    """How many we have asked."""
    places: tuple[tuple[str, int, str], ...] = ()
    """Of each author, the first place where we have something that the member lacks, and the id of that."""
    asked: int = 0
    """Since when the member's own questions are counted, UTC ms."""
    answers: int = 0
    """How many of those we have answered since."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A member has something else than we in this place of an author's chain."""

    author: str
    seq: int
    member: str
    at: int
    """Since when we know, UTC ms."""
    by: str = ""
    """Who has handed ours over; empty: the author itself."""


@dataclass(frozen=True, slots=True)
class Second:
    """Whether anybody else has the same as what a member has handed over (`history/seconds.py`)."""

    seq: int
    id: str
    """The newest event of that."""
    by: str
    """Who has handed it over."""
    asked: tuple[str, ...] = ()
    """Who was asked."""
    member: str = ""
    """Who has the same; empty: nobody has said so."""


@dataclass(frozen=True, slots=True)
class Fetching:
    """The history from before our time, as far as it has been fetched."""

    done: bool = False
    """There is no more that we may have, as far as those say who could be asked."""
    waited: int = 0
    """How often in a row there was nobody to ask."""
    asked: frozenset[str] = frozenset()
    """The authors of whose chains we have asked for more."""
    got: int = 0
    """Events."""
    tries: int = 0
    """How often in a row nobody has answered, or with nothing new."""
    pages: int = 1
    """How many answers we ask for at once: ever more, as long as none is lost."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A membership event whose causes have not come yet, and who brought it."""

    sender: str
    record: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody who wants to join, and waits for a member to say whether it may."""

    member: str
    """Its group key, a did:key."""
    label: str
    role: str
    at: int
    """When it asked, UTC ms."""
    link: bytes
    """The link of the invitation that it uses."""
    claimant: str
    """Its claim of that invitation."""
    until: int
    """After this it is over, UTC ms."""
    asked: JoinRequestBody
    """What it said."""
    thread: str
    """The id of the message that said so."""
    handle: bytes = b""
    """Where it last asked from; empty: by mail, or over a link that we have opened."""
    refused: bool = False
    """The answer was no, and is no again if it asks again."""


@dataclass(frozen=True, slots=True)
class Word:
    """A member's signed word on which membership events it has (`agreement.py`)."""

    heads: tuple[str, ...]
    """Those that no other one names."""
    sig: str = field(repr=False)
    """base64url of its Ed25519 signature."""
    at: int = 0
    """When it told us itself, UTC ms; 0: whoever let us in has handed it on."""
    agrees: bool = False
    """True: it stands for all that we began with; else that has to be looked up."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What proves that members do not say the same of a group: their signatures on it."""

    group: str
    words: tuple[tuple[str, Word], ...]
    """Members, and what each has signed."""
    records: tuple[bytes, ...]
    """Membership events that the one has and the other has not, or that cannot both be."""


@dataclass(frozen=True, slots=True)
class Group:
    """One group, as this member has it."""

    id: str
    name: str
    profile: Profile
    state: GroupState
    me: str
    seed: bytes = field(repr=False)
    """The seed of the Ed25519 key that is `me`; our CURVE key for this group derives from it (`transport_secret`)."""
    contact: Identity
    control: dict[str, Event]
    """Every membership event, by id."""
    view: View
    created: int
    """UTC ms, the genesis event's own time."""
    peers: dict[str, Peer] = field(default_factory=dict)
    relationships: dict[str, Relationship] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    lamport: int = 0
    heads: tuple[str, ...] = ()
    """The delivered events that no delivered event names yet, sorted."""
    named: tuple[str, ...] = ()
    """The heads of the membership events that my own chain has named already: they need not be named again."""
    limbo: dict[str, Limbo] = field(default_factory=dict)
    """Authentic events that wait for the one before them, by author."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Membership events that wait for their causes, by id."""
    needs: dict[str, Need] = field(default_factory=dict)
    """What others have of an author's chain and we have not, by author."""
    errands: dict[str, Errand] = field(default_factory=dict)
    """What we have asked members for, by member: one thing at a time."""
    seconds: dict[str, Second] = field(default_factory=dict)
    """By author, where the newest that we have of its chain was handed over by somebody else."""
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """What we compare with members, by member."""
    differences: tuple[Difference, ...] = ()
    """What has come of that."""
    regain: Regain | None = None
    """None: as far as we have heard, nobody has more of what we have said than we have."""
    fetching: Fetching | None = None
    """None: there is no history to fetch, or we may not have it."""
    owed: frozenset[str] = frozenset()
    """The authors who have not yet been told what we have of theirs."""
    verified: dict[str, str] = field(default_factory=dict)
    """The members whose safety words were compared and found the same: their DIDs, and what each was called then."""
    requests: dict[str, Request] = field(default_factory=dict)
    """Who waits to be let in, by group key."""
    entry: str = ""
    """The event that brought us in, with whose past we began; empty: we have founded the group."""
    agree_by: int = 0
    """Until then (UTC ms) a newcomer waits for somebody to confirm what it was told; 0: that is settled."""
    words: dict[str, Word] = field(default_factory=dict)
    """What each member has last signed about the membership events that it has."""
    quarantine: tuple[str, ...] = ()
    """Members of whom a newcomer knows only from whoever has brought them in or has let it in itself: it has nothing to
    do with them until somebody else confirms them."""
    disputed: tuple[str, ...] = ()
    """Members who have signed something else than what we began with."""
    accused: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """By author: two of its membership events that prove that it has signed two histories, as we were shown by somebody
    who has both (`proof.py`)."""
    shown: tuple[str, ...] = ()
    """Whom we have shown such proof."""
    dismissed: tuple[str, ...] = ()
    """The doubts (`agreement.doubts`) that a person here has seen and wants to see no more."""
    removed_by: str = ""
    """Who has put us out; empty: nobody."""
    fresh: tuple[Event, ...] = ()
    """Our own events of this turn, which go out together at its end; empty between turns."""

    @property
    def mode(self) -> Mode:
        """What the group does with its keys."""
        return MODES[self.profile.keys]

    @property
    def place(self) -> Place:
        return Place(self.id, self.me, transport_secret(self.seed))

    @property
    def seq(self) -> int:
        """How many events this member has made itself."""
        chain = self.chains.get(self.me)
        return chain.seq if chain else 0

    @property
    def others(self) -> list[str]:
        return [did for did in self.view.members if did != self.me]

    def chain(self, author: str) -> Chain:
        """How far this author's chain has been delivered here."""
        return self.chains.get(author, Chain())


@dataclass(frozen=True, slots=True)
class Claim:
    """One joiner's use of an invitation: its key is only claimed until it has proved it by joining."""

    relationship: Relationship
    joined: bool = False
    welcomed: int = 0
    """When the evidence for the group was last sent there, UTC ms."""
    at: int = 0
    """When it began, UTC ms."""


@dataclass(frozen=True, slots=True)
class OpenInvitation:
    """An invitation of ours that can still be answered."""

    invitation: Invitation
    seed: bytes = field(repr=False)
    """The seed of the invitation's Ed25519 key."""
    knock_key: bytes
    """The CURVE public key that its holders knock with."""
    group: str
    uses: int
    """0: as many as come, until it expires."""
    role: str = "writer"
    """What whoever uses it may be at the most."""
    nonce: bytes = b""
    """What binds its id to the group (`bound_id`)."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """Who has used it, by the short form of the joiner's DID."""
    given_back: int = 0
    """How many uses were given back by joiners who changed their minds."""
    history: str = "all"
    """What whoever uses it may have of what was said before, as far as the group's own rule allows it."""

    @property
    def used_up(self) -> bool:
        """Whether everybody whom it was for has joined."""
        return 0 < self.uses <= sum(claim.joined for claim in self.claims.values())


@dataclass(frozen=True, slots=True)
class Join:
    """A join that is under way, on the joiner's side."""

    id: str
    invitation: Invitation
    label: str
    relationship: Relationship
    seed: bytes = field(repr=False)
    """The seed of the Ed25519 key that will be our member key."""
    me: str
    deadline: int
    """UTC ms; after this the join has failed."""
    phase: JoinState
    group: str = ""
    name: str = ""
    contact: Identity | None = None
    """Our contact in that group, once it is known which one it is."""
    role: str = "writer"
    """What we want to be."""
    pending: int = 0
    """How often we have asked since we were told that a member has to decide; 0: nobody has told us so."""
    evidence: dict[int, list[bytes]] = field(default_factory=dict)
    """The parts of the welcome that have come."""
    words: dict[str, Word] = field(default_factory=dict)
    """What came with them: the members' signed words."""
    contradiction: Contradiction | None = None
    """Why we did not stay, or whom we do not trust."""
    connected: int = 0
    """How many members were connected when it was last told."""
    seated: bool = False
    """True when the joiner has been told that it is in."""
    begun: int = 0
    """Since when it tries, UTC ms."""
    unanswered: int = 0
    """How often it has asked since it was last answered."""
    parting: int = 0
    """Until then (UTC ms) it tells whoever invited us that it is given up; 0: there is nothing to tell."""
    farewell: bytes = b""
    """The event with which it has left again: this key has gone, and is used no more."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A basic message: a line of text to or from a connection."""

    id: str
    at: int
    """When it was sent, or came, UTC ms."""
    mine: bool
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Connection:
    """A relationship outside of any group: with a mediator, or with an agent that may be somebody else's program."""

    id: str
    label: str
    envelope: str
    relationship: Relationship
    state: Literal["offered", "requested", "established", "ended"]
    pthid: str
    """The id of the invitation that it began with."""
    begun: int
    """UTC ms."""
    route: Route | None = None
    """Where the peer is reached; None: only where it has just written from."""
    exchange: Requester | None = None
    """v1: the DID exchange that we have asked for, until it is answered."""
    mediation: Mediated | None = None
    """What it does for us as our mediator; None: it is none."""
    expires: int = 0
    """When an invitation of ours that nobody has answered is over, UTC ms."""
    breaker: Breaker = Breaker()
    """Problem reports between us: a conversation about errors must end."""
    letters: tuple[Letter, ...] = ()
    """The last basic messages, both ways, oldest first."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A URI that did not take what we posted."""

    tries: int
    """How often in a row."""
    until: int
    """Leave it alone before this time, UTC ms."""


@dataclass(frozen=True, slots=True)
class Whom:
    """One peer: a member of a group, or a connection."""

    group: str = ""
    member: str = ""
    connection: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """Something that we asked a peer, and when (UTC ms)."""

    about: Literal["ping", "features"]
    whom: Whom
    at: int


@dataclass(frozen=True, slots=True)
class Agent:
    """One person's or bot's agent: its groups, its open invitations and its joins."""

    label: str
    reach: Reach | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    invitations: dict[bytes, OpenInvitation] = field(default_factory=dict)
    """By the link on which they are answered."""
    joins: dict[bytes, Join] = field(default_factory=dict)
    """By the link on which they knock."""
    up: frozenset[bytes] = frozenset()
    """The links that are connected right now."""
    connections: dict[str, Connection] = field(default_factory=dict)
    web: tuple[str, ...] = ()
    """Where envelopes reach us over HTTP and WebSocket; empty unless asked for."""
    web_up: frozenset[str] = frozenset()
    """The WebSockets of ours that are open right now."""
    faults: dict[str, Fault] = field(default_factory=dict)
    """By URI: those that did not take what we posted."""
    questions: dict[str, Question] = field(default_factory=dict)
    """By thread; as short-lived as the connections they went over."""
    calls: dict[bytes, bytes] = field(default_factory=dict)
    """Joiners whom we have dialled because they answered by mail (`invite.call`): our link to each, and the link of
    the invitation that it has answered. As short-lived as any connection."""
