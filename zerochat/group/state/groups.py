"""One group, as this member has it."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.did import Identity
from zerochat.didcomm.protocols.problem import Breaker
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes import MODES, Mode, Place
from zerochat.group.links.contact import Reach, transport_secret
from zerochat.group.links.relationship import Relationship
from zerochat.group.membership import View
from zerochat.group.state.chains import Chain, Limbo
from zerochat.group.state.files import Holding
from zerochat.group.state.streams import Asking, Early, OwnStream, Stream, Subscriber
from zerochat.group.state.sync import Comparison, Difference, Errand, Fetching, Need, Regain, Second, Unheard, Unmet
from zerochat.group.state.tlog import Ended, Log
from zerochat.group.wire.messages import JoinRequestBody

GroupState: TypeAlias = Literal["active", "leaving", "left"]
_NOTHING = Chain()
"""Of whom nothing has come: asked for so often that making another one each time would take longer than all else."""


class Profile(Struct, frozen=True):
    """What a group picked when it began."""

    keys: str = "pairwise-multi"
    path: str = "mesh"
    accountability: str = "acks"
    envelope: str = "didcomm/v2"


class Conduct(Struct, frozen=True, eq=False):
    """What a member may still send at once (`conduct.py`).

    It is not a part of what we know, so any two are equal: it also counts what was refused, which changes nothing else.
    """

    envelopes: int = 0
    bytes: int = 0
    at: int = 0
    """When the two were worked out, UTC ms; a first message finds them full."""
    given: int = 0
    given_at: int = 0
    """The bytes of files that it may still get at once, and when that was worked out (`files/upload.py`)."""
    statements: int = 0
    statements_at: int = 0
    """Requests and answers about streams that it may still cause at once, and when that was worked out."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conduct)

    def __hash__(self) -> int:
        return 0


class Custody(Struct, frozen=True):
    """What a member's mediator has signed that it keeps until the member fetches it (`custody.py`)."""

    upto: int = 0
    """All of our events that the member has not acknowledged, up to this position; 0: nothing is known of that."""
    until: int = 0
    """UTC ms: the first of them is thrown away then."""


class Peer(Struct, frozen=True):
    """What we know and owe of one other member."""

    link: bytes
    base: int
    """Our own events after this one are meant for this member; those before are not."""
    base_id: str = ""
    """The id of that event; empty: there is none, or we do not know any more."""
    acked: dict[str, int] = field(default_factory=dict)
    """Up to where this member has said that it has each author's chain."""
    less_at: int = 0
    """Since when it says that it has less of our chain than it had said before, UTC ms; 0: it does not."""
    said_at: int = 0
    """When it wrote the newest state that it has told us, in UTC ms by its own clock."""
    renewed_at: int = 0
    """When we last asked it for a relationship, UTC ms."""
    offered_at: int = 0
    """When we last answered such a request of its, UTC ms."""
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
    greet: bool = False
    """It has answered our request for a relationship, and we have said nothing in that yet."""
    ended: int = 0
    """When it last gave up its DID for nothing, UTC ms; 0: never."""
    conduct: Conduct = Conduct()
    """Not a part of what we know: it also counts what was refused, which changes nothing else."""
    breaker: Breaker = Breaker()
    """Problem reports between us: a conversation about errors must end."""
    ahead_ms: int | None = None
    """By how much its clock was ahead of ours when it last told us its state over a link, give or take the way; None:
    it has not yet. For people alone: it changes nothing else."""
    read: int = 0
    """It says that it has read whatever has this Lamport time or a lower one (`ephemeral.py`). For people alone."""
    custody: Custody = Custody()
    """What its mediator keeps for it. For people alone: we repeat what it has not acknowledged itself."""


class Offer(Struct, frozen=True):
    """A relationship that a member has asked for anew, and that counts as soon as it says something in it."""

    relationship: Relationship
    crossed: bool = False
    """We had asked for one ourselves when it came, and had heard nothing in that yet."""


class Waiting(Struct, frozen=True):
    """A membership event whose causes have not come yet, and who brought it."""

    sender: str
    record: bytes


class Request(Struct, frozen=True):
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


class Word(Veiled, frozen=True):
    """A member's signed word on which membership events it has (`agreement.py`)."""

    VEILED = ("sig",)

    heads: tuple[str, ...]
    """Those that no other one names."""
    sig: str
    """base64url of its Ed25519 signature."""
    at: int = 0
    """When it told us itself, UTC ms; 0: whoever let us in has handed it on."""
    agrees: bool = False
    """True: it stands for all that we began with; else that has to be looked up."""


class Contradiction(Struct, frozen=True):
    """What proves that members do not say the same of a group: their signatures on it."""

    group: str
    words: tuple[tuple[str, Word], ...]
    """Members, and what each has signed."""
    records: tuple[bytes, ...]
    """Membership events that the one has and the other has not, or that cannot both be."""


class Group(Veiled, frozen=True):
    """One group, as this member has it."""

    VEILED = ("seed",)

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
    """UTC ms, the genesis event's own time."""
    peers: dict[str, Peer] = field(default_factory=dict)
    relationships: dict[str, Relationship] = field(default_factory=dict)
    offers: dict[str, tuple[Offer, ...]] = field(default_factory=dict)
    """By member: relationships that we have offered it in the place of the one that there is (`pairing.py`)."""
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
    unheard: dict[str, Unheard] = field(default_factory=dict)
    """By author, what was left out because it could only read then."""
    unmet: dict[str, Unmet] = field(default_factory=dict)
    """By author, what others were asked for because it has never told us anything itself."""
    seconds: dict[str, Second] = field(default_factory=dict)
    """By author, where the newest that we have of its chain was handed over by somebody else."""
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """What we compare with members, by member."""
    differences: tuple[Difference, ...] = ()
    """What has come of that."""
    regain: Regain | None = None
    """None: as far as we have heard, nobody has more of what we have said than we have."""
    fetching: Fetching | None = None
    """None: nothing from before our time is to be fetched, or we may not have it."""
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
    files: dict[str, Holding] = field(default_factory=dict)
    """The files that were posted, by id."""
    stream: OwnStream | None = None
    """None: nothing was said yet, or the keys of this group do not sign."""
    subscribers: dict[str, Subscriber] = field(default_factory=dict)
    """The members who hear our stream."""
    streams: dict[str, Stream] = field(default_factory=dict)
    """By member: its stream."""
    asking: dict[str, Asking] = field(default_factory=dict)
    """By member: what we have asked it for."""
    early: dict[str, Early] = field(default_factory=dict)
    """By member: what has come of its stream before its time."""
    logs: dict[str, Log] = field(default_factory=dict)
    """Where the group keeps a log: the one by the terms in force, and the last ones before it, by their names
    (`tlog/adoption.py` has how many)."""
    left_logs: tuple[str, ...] = ()
    """The logs that we have nothing to do with any more: we sign nothing there again."""
    ended: tuple[Ended, ...] = ()
    """Subscriptions to our stream that were replaced, as long as what was owed by them may not be in the log yet."""
    terms_due: tuple[str, int] = ("", 0)
    """Why new terms have to be said, and since when (UTC ms); empty: they need not be."""
    stalls: int = 0
    """How many logs in a row have never come to a checkpoint, of those whose terms we have seen."""
    retired_at: int = 0
    """We may have signed more than we remember for logs whose terms have this Lamport time or a lower one; 0: never."""
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
        return self.chains.get(author, _NOTHING)
