"""The group protocol's messages, as they stand in DIDComm plaintexts, and the limits on reading them.

requester                     acceptor                      the other members
    | -- didexchange request --> |                                |
    | <-- response, from_prior - |        (didcomm/exchange.py)   |
    | -- complete -------------> |                                |
    | -- join-request ---------> |                                |
    | <- join-pending ---------- | (where a member has to decide) |
    | -- problem-report -------> | (gives up: joining/cancellation.py) |
    |                            | -- status: add --------------> |
    | <-- welcome -------------- |                                |
    | -- didexchange request, response, complete with each -----> |
    | -- seating --------------> |                                |
    | <============ events, status, sync, between all ===========> |
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import msgspec

from zerochat.didcomm.did import DID_CHARS_MAX
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX
from zerochat.evidence.messages import ACK_BYTES, DATA_BYTES_MAX
from zerochat.group.event_log.event import CONTROL_BYTES_MAX, DEPS_MAX, Did, Id
from zerochat.group.links.contact import CONTACT_CHARS_MAX, ROUTES_MAX, ROUTING_KEYS_MAX, URI_CHARS_MAX
from zerochat.group.membership import CONTROL_MAX, MEMBERS_MAX
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX, RUNS_MAX, Run

PROTOCOL = "https://zerochat.org/group/1.0/"
EVENTS = PROTOCOL + "events"
SIGNED = PROTOCOL + "signed"
STATUS = PROTOCOL + "status"
SYNC = PROTOCOL + "sync"
JOIN_REQUEST = PROTOCOL + "join-request"
JOIN_PENDING = PROTOCOL + "join-pending"
WELCOME = PROTOCOL + "welcome"
SEATING = PROTOCOL + "seating"
NEED = PROTOCOL + "need"
SHARE = PROTOCOL + "share"
COMPARE = PROTOCOL + "compare"
PROOF = PROTOCOL + "proof"
PROBLEM = "https://didcomm.org/report-problem/2.0/problem-report"

WELCOME_BYTES_MAX = 64 * 1024
"""Records in one part of a welcome: it must fit a message after three forwards, each of which adds a third."""
WELCOME_PARTS_MAX = CONTROL_MAX * CONTROL_BYTES_MAX // WELCOME_BYTES_MAX * 2

HAVE_MAX = MEMBERS_MAX * 2
"""People who join at the same moment through different members may make a group larger than it should be."""
HEADS_MAX = DEPS_MAX * 4
WANT_MAX = 64
"""Chains in one need."""
PAGES_MAX = 8
"""Answers to one need."""
HEIGHTS_MAX = 64
UNREACHED_MAX = 8
COMPARE_BYTES_MAX = 48 * 1024
"""In one message of a comparison, before it is base64."""

STATEMENTS_MAX = 3

_Statement = Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Checksum = Annotated[str, msgspec.Meta(max_length=22)]
_Uri = Annotated[str, msgspec.Meta(max_length=64)]
_Did = Annotated[str, msgspec.Meta(max_length=DID_CHARS_MAX)]


class EventsBody(msgspec.Struct, frozen=True):
    """Some events, and what their sender has of everybody's chains."""

    view: _Checksum
    """The sender's view."""
    have: Annotated[list[_Count], msgspec.Meta(max_length=HAVE_MAX)]
    """How far the sender has each member's chain, members in the order of their DIDs; readable by who has that view."""
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)] = []
    packed: str = ""
    """The same as compressed JSON, in base64url."""


class SignedBody(msgspec.Struct, frozen=True):
    """A message of the sender's stream (`streams/`), where it cannot travel as it is: over mediators."""

    message: Annotated[str, msgspec.Meta(max_length=DATA_BYTES_MAX * 4 // 3 + 2)]
    """base64url."""


class RouteBody(msgspec.Struct, frozen=True):
    """A way to the sender over mediators: where to post, and the keys to wrap for, the outermost first."""

    uri: Annotated[str, msgspec.Meta(max_length=URI_CHARS_MAX)]
    keys: Annotated[list[_Did], msgspec.Meta(max_length=ROUTING_KEYS_MAX)]


class ReachBody(msgspec.Struct, frozen=True):
    """Where the sender is reached now."""

    pair: _Uri
    queue: _Uri
    """Empty: it only dials out."""
    at: _Count
    """When the sender said so, UTC ms: by mail, older words may come after newer ones."""
    key: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The CURVE public key of both, for whoever does not know it: a contact that was made in hiding has none."""
    mail: Annotated[list[RouteBody], msgspec.Meta(max_length=ROUTES_MAX)] = []


class StatusBody(msgspec.Struct, frozen=True):
    """What its sender has to say of the group to everybody: the membership events that are new, and its own state. To
    hear it twice changes nothing."""

    group: Id
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)]
    view: _Checksum
    have: Annotated[list[_Count], msgspec.Meta(max_length=HAVE_MAX)]
    reach: ReachBody | None = None
    """None: as it said last."""


class SyncBody(msgspec.Struct, frozen=True):
    """Everything that its sender has, wants, and owes to the one reader: acknowledgement and request in one."""

    group: Id
    view: _Checksum
    have: Annotated[list[_Count], msgspec.Meta(max_length=HAVE_MAX)]
    since: _Count
    """The sender's own chain begins, for the reader, after this event."""
    yours: _Count
    """How far the sender has the reader's chain, by the reader's own word."""
    heads: Annotated[list[Id], msgspec.Meta(max_length=HEADS_MAX)]
    """The heads of the sender's membership events."""
    reach: ReachBody
    word: Annotated[str, msgspec.Meta(max_length=86)] = ""
    """The sender's signature on `heads` (`agreement.sign_heads`)."""
    told: _Checksum = ""
    """The view that the reader told last, as far as the sender has heard."""
    pre: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The id of the event `since`: by it, whatever others have of the chain up to there can be checked."""
    gap: bool = False
    """The sender misses something of the reader's chain: do not wait for the timer."""
    former: Annotated[list[tuple[Did, _Count]], msgspec.Meta(max_length=HEIGHTS_MAX)] = []
    """How far the sender has the chains of those who are members no more; as many as go in."""
    seen: _Count = 0
    """The last place of the reader's chain of which the sender has anything at all, if that is more than `yours`."""
    by: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """By which answer of the sender's the reader hears its stream (`streams/`); empty: by none."""
    signed: _Count = 0
    """`T` of the last message of its stream for which the sender has the reader's signature, or needs none."""
    say: Annotated[list[_Statement], msgspec.Meta(max_length=STATEMENTS_MAX)] = []
    """Signed statements about the two's subscriptions (`evidence/handshake.py`), as canonical JSON."""
    ack: Annotated[str, msgspec.Meta(max_length=ACK_BYTES * 4 // 3)] = ""
    """The sender's signed acknowledgement of the reader's stream, base64url."""
    log: _Count = 0
    """How many entries the sender has of the log by the terms in force, where the group keeps one."""
    tips: Annotated[str, msgspec.Meta(max_length=HAVE_MAX * 3)] = ""
    """What stands at the ends of all chains that `have` tells of, two bytes each (`sync/chain_heads.py`)."""
    last: tuple[_Count, Id] | None = None
    """The sender's own last event, for a reader who may have all that leads up to it from others: its place and id."""
    unreached: Annotated[list[_Count], msgspec.Meta(max_length=UNREACHED_MAX)] = []
    """Who lacks something of the sender's and cannot be reached by it, by their places in its view (`relay.py`)."""


class SaidBody(msgspec.Struct, frozen=True):
    """A message inside another one."""

    id: Annotated[str, msgspec.Meta(max_length=64)]
    body: dict[str, object]


class ResponseBody(msgspec.Struct, frozen=True):
    """What a member answers to a request for an exchange."""

    sync: SaidBody | None = None
    """What it says first (`SyncBody`), without an envelope of its own: where many meet, that is one less for each pair
    of them."""


class NeedBody(msgspec.Struct, frozen=True):
    """The sender wants stretches of some chains; the answer is a `share` in the same thread, or some (`pages`)."""

    group: Id
    want: Annotated[
        list[tuple[Did, _Count, Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]]],
        msgspec.Meta(min_length=1, max_length=WANT_MAX),
    ]
    """Authors, and of each the places after the first number, up to the second."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=RUN_EVENTS_MAX)]
    back: bool = False
    """The newest first, as the log is shown; else as the reader has delivered them."""
    pages: Annotated[int, msgspec.Meta(ge=1, le=PAGES_MAX)] = 1
    """Of what goes back: so many answers, each where the one before has ended, without waiting to be asked for each."""


class ShareBody(msgspec.Struct, frozen=True):
    """What the reader has asked for, as far as the sender has it and may give it."""

    group: Id
    more: bool
    """There is more of it that the reader may have."""
    page: Annotated[int, msgspec.Meta(ge=0, lt=PAGES_MAX)] = 0
    """Which of the answers this is."""
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUN_EVENTS_MAX)] = []
    packed: str = ""
    """The same as compressed JSON, in base64url."""


class CompareBody(msgspec.Struct, frozen=True):
    """A step of a comparison of two members' posts, those with a Lamport time of `since` or more: a message of the
    Negentropy protocol. The answer comes in the same thread."""

    group: Id
    since: _Count
    message: Annotated[str, msgspec.Meta(max_length=COMPARE_BYTES_MAX * 4 // 3)]
    """base64url."""


class JoinRequestBody(msgspec.Struct, frozen=True):
    """The newcomer's keys for this group, and its own signature that it wants to join with them."""

    group: Id
    member: Did
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    contact: Annotated[str, msgspec.Meta(max_length=CONTACT_CHARS_MAX)]
    role: Literal["reader", "writer"]
    transport: Annotated[str, msgspec.Meta(min_length=43, max_length=43)]
    possession: Annotated[str, msgspec.Meta(max_length=86)]
    """As in the add event that follows (`membership.AddBody`)."""
    consent: Annotated[str, msgspec.Meta(max_length=86)]
    proof: Annotated[str, msgspec.Meta(max_length=86)]
    """That the DID which asks is this member's own (`contact.sign_proof`)."""


class PendingBody(msgspec.Struct, frozen=True):
    """A member was asked whether the newcomer may join, and has until then (UTC ms) to say so."""

    group: Id
    until: _Count


class WordBody(msgspec.Struct, frozen=True):
    """What a member has signed about the membership events that it has."""

    member: Did
    heads: Annotated[list[Id], msgspec.Meta(max_length=HEADS_MAX)]
    word: Annotated[str, msgspec.Meta(max_length=86)]


class WelcomeBody(msgspec.Struct, frozen=True):
    """The event that brings the newcomer in, and all its past, causes first: the evidence for the view. In parts,
    because a message has a greatest size and a group's past has none."""

    group: Id
    since: _Count
    part: Annotated[int, msgspec.Meta(ge=0, lt=WELCOME_PARTS_MAX)]
    parts: Annotated[int, msgspec.Meta(ge=1, le=WELCOME_PARTS_MAX)]
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)] = []
    packed: str = ""
    """The runs and the words as compressed JSON, in base64url."""
    words: Annotated[list[WordBody], msgspec.Meta(max_length=HAVE_MAX)] = []
    """What the others have signed of it, as far as the sender knows, and the sender's own word that this is all."""


class SeatingBody(msgspec.Struct, frozen=True):
    """With how many of the other members the newcomer is connected: news for whoever has let it in."""

    group: Id
    connected: Annotated[int, msgspec.Meta(ge=0, le=HAVE_MAX)]
    members: Annotated[int, msgspec.Meta(ge=0, le=HAVE_MAX)]


class ProofBody(msgspec.Struct, frozen=True):
    """Membership events that prove that somebody has signed two histories, with what the reader may lack of their past,
    causes first."""

    group: Id
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)]


class ProblemBody(msgspec.Struct, frozen=True):
    """Report Problem 2.0: a code for programs, a comment for people."""

    code: Annotated[str, msgspec.Meta(max_length=128)]
    comment: Annotated[str, msgspec.Meta(max_length=512)] = ""


PROBLEMS: Mapping[str, str] = {
    "e.p.req.time": "the invitation has expired",
    "e.p.req.used": "the invitation has been used already",
    "e.p.req.name-taken": "somebody in the group has this name already",
    "e.p.req.full": "the group is full",
    "e.p.req.closed": "whoever invited you has left the group",
    "e.p.req.role": "the invitation lets you read and not write",
    "e.p.req.busy": "too many others wait to be let in",
    "e.p.req.refused": "whoever was asked did not want to let you in",
    "e.p.req.removed": "you were let in, and put out again before you could hear of it",
    "e.p.req.withdrawn": "whoever has asked does not want to join any more",
    "e.p.req.late": "nobody has answered whether you may come in",
    "e.p.req.older": "whoever invited you has an older copy of its profile in use, and can let nobody in for now",
    "e.p.msg": "the inviter could not read the request; the two versions of zerochat may differ",
}
"""The report-problem codes of this protocol, with what they mean to a person."""


_S = TypeVar("_S", bound=msgspec.Struct)


def read_body(message: Message, shape: type[_S]) -> _S:
    """The body of a message in its shape. Raises Malformed."""
    try:
        return msgspec.convert(message.body, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"{message.type.rsplit('/', 1)[-1]}: {error}") from None
