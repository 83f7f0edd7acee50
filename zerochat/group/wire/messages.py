"""The group protocol's messages: bodies of DIDComm plaintexts, and their limits.

joiner                        inviter                       the other members
    | -- didexchange request --> |                                |
    | <-- response, from_prior - |        (didcomm/exchange.py)   |
    | -- complete -------------> |                                |
    | -- join-request ---------> |                                |
    | <- join-pending ---------- | (where a member has to decide) |
    | -- problem-report -------> | (cancels: joining/cancellation.py) |
    |                            | -- status: add --------------> |
    | <-- welcome -------------- |                                |
    | -- didexchange request, response, complete with each -----> |
    | -- member-connections ---> |                                |
    | <============ events, status, sync, between all ===========> |

A private conversation is a group of two. Its invitation travels from one member of a group to another one, over their
relationship, again until it is used; the join is that above, and the join request has a voucher
(`joining/private_invitations.py`).
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from zerochat.didcomm.did import DID_CHARS_MAX
from zerochat.didcomm.invitation import INVITATION_CHARS_MAX
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX
from zerochat.evidence.messages import ACK_BYTES, DATA_BYTES_MAX
from zerochat.group.event_log.event import CONTROL_BYTES_MAX, DEPS_MAX, Did, Id
from zerochat.group.key_agreement.wire import DIRECT_BYTES_MAX, EVENT_BYTES_MAX
from zerochat.group.links.contact import CONTACT_CHARS_MAX, ROUTES_MAX, ROUTING_KEYS_MAX, URI_CHARS_MAX
from zerochat.group.membership import CONTROL_MAX
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX, RUNS_MAX, Run
from zerochat.group.wire.routed import ITEM_BYTES_MAX, ITEMS_MAX
from zerochat.limits import LATEST_AUTHORS_MAX, MEMBERS_MAX, MEMBERS_MAX_BY_PATH

PROTOCOL = "https://zerochat.org/group/1.0/"
EVENTS = PROTOCOL + "events"
SIGNED = PROTOCOL + "signed"
SEALED = PROTOCOL + "sealed"
KEY_EVENTS = PROTOCOL + "key-events"
CONTENT = PROTOCOL + "content"
KEY_COMPLAINT = PROTOCOL + "key-complaint"
ROUTED = PROTOCOL + "routed"
STATUS = PROTOCOL + "status"
SYNC = PROTOCOL + "sync"
ACK_SETS = PROTOCOL + "ack-sets"
JOIN_REQUEST = PROTOCOL + "join-request"
JOIN_PENDING = PROTOCOL + "join-pending"
WELCOME = PROTOCOL + "welcome"
MEMBER_CONNECTIONS = PROTOCOL + "member-connections"
HISTORY_REQUEST = PROTOCOL + "history-request"
HISTORY_RESPONSE = PROTOCOL + "history-response"
RECONCILE = PROTOCOL + "reconcile"
FORK_PROOF = PROTOCOL + "fork-proof"
TYPING = PROTOCOL + "typing"
READ = PROTOCOL + "read"
PRIVATE_INVITATION = PROTOCOL + "private-invitation"
PROBLEM = "https://didcomm.org/report-problem/2.0/problem-report"

WELCOME_BYTES_MAX = 64 * 1024
"""The records in one part of a welcome: it must fit a message after three forwards, each of which adds a third."""
WELCOME_PARTS_MAX = CONTROL_MAX * CONTROL_BYTES_MAX // WELCOME_BYTES_MAX * 2

HAVE_MAX = MEMBERS_MAX * 2
"""Simultaneous joins through different members may exceed the group's size limit."""
HEADS_MAX = DEPS_MAX * 4
RANGES_MAX = 64
"""Ranges in one history request."""
ACK_SETS_MAX = 32
"""Acknowledgement sets in one message."""
ACK_SET_CHARS_MAX = (2 * max(MEMBERS_MAX_BY_PATH.values()) // 8 * 4 + 2) // 3
"""Simultaneous joins may exceed the limit of members, as with `HAVE_MAX`."""
PAGES_MAX = 8
"""Responses to one history request."""
FORMER_MAX = 64
UNREACHABLE_MAX = 8
RECONCILE_BYTES_MAX = 48 * 1024
"""One message of a reconciliation, before base64."""

STATEMENTS_MAX = 3
KEY_EVENTS_MAX = 16
"""Key events in one message."""

_Statement = Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Checksum = Annotated[str, msgspec.Meta(max_length=22)]
ContentKey: TypeAlias = Annotated[str, msgspec.Meta(max_length=54)]
"""The sender's content key and its number in 8 bytes, base64url; empty: its group has none (`links/content_keys.py`).
"""
Sent: TypeAlias = tuple[Id, _Count, _Count] | None
"""Where keys heal: the sender's epoch, its messages in it, and the place up to which they and those before have its
events. None: it has sent none."""
_Uri = Annotated[str, msgspec.Meta(max_length=64)]
_Did = Annotated[str, msgspec.Meta(max_length=DID_CHARS_MAX)]


AckSetFields: TypeAlias = tuple[_Count, _Count, Annotated[str, msgspec.Meta(max_length=ACK_SET_CHARS_MAX)]]
"""An author's place in the sender's view, a position of its chain, and a bitmap of the members that have the chain up
to there, by place, in base64url (`overlay/ack_sets.py`); empty: all."""


class PositionsBody(msgspec.Struct, frozen=True):
    """How far the sender has the members' chains: acknowledgements, and requests for what it lacks."""

    view: _Checksum
    """The sender's view."""
    have: Annotated[list[_Count], msgspec.Meta(max_length=HAVE_MAX)]
    """Its positions in the members' chains, in the order of the members' DIDs in that view."""
    have_from: _Count = 0
    """At which member `have` begins; it goes round, where not all members fit."""
    latest: Annotated[list[tuple[_Count, _Count]], msgspec.Meta(max_length=LATEST_AUTHORS_MAX)] = []
    """Of the authors of the newest events, where `have` does not have all members: a member's place in the view, and
    the sender's position."""


class AckSetsBody(PositionsBody, frozen=True, kw_only=True):
    """Which members the sender knows to have which chains, in a group on the ring (`sync/aggregation.py`)."""

    group: Id
    ack_sets: Annotated[list[AckSetFields], msgspec.Meta(max_length=ACK_SETS_MAX)]


class EventsBody(PositionsBody, frozen=True, kw_only=True):
    """Some events, and the sender's acknowledgements."""

    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)] = []
    packed: str = ""
    """The runs as compressed JSON, in base64url."""
    sent: Sent = None


class SignedBody(msgspec.Struct, frozen=True):
    """A message of the sender's signed stream, where it cannot travel as it is: over mediators."""

    message: Annotated[str, msgspec.Meta(max_length=DATA_BYTES_MAX * 4 // 3 + 2)]
    """base64url."""


class SealedBody(msgspec.Struct, frozen=True):
    """A message of the sender under its key ratchet, where it cannot travel as it is: over mediators."""

    message: Annotated[str, msgspec.Meta(max_length=ENVELOPE_BYTES_MAX * 4 // 3 + 2)]
    """base64url."""


class KeyEventsBody(msgspec.Struct, frozen=True):
    """Key events of the sender that the recipient has not acknowledged, in order."""

    group: Id
    events: Annotated[
        list[
            tuple[
                Annotated[str, msgspec.Meta(max_length=EVENT_BYTES_MAX * 4 // 3 + 2)],
                Annotated[str, msgspec.Meta(max_length=DIRECT_BYTES_MAX * 4 // 3 + 2)],
            ]
        ],
        msgspec.Meta(min_length=1, max_length=KEY_EVENTS_MAX),
    ]
    """Each in base64url, with the recipient's direct message; empty: it has none."""
    before: _Count
    """The number of the event before the first one that the sender still keeps for the recipient; 0: there is none."""
    content_key: ContentKey = ""


class RoutedBody(msgspec.Struct, frozen=True):
    """Items of any members on their way (`routed.py`)."""

    group: Id
    items: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=ITEM_BYTES_MAX * 4 // 3 + 2)]],
        msgspec.Meta(min_length=1, max_length=ITEMS_MAX),
    ]
    """base64url."""


class ContentBody(msgspec.Struct, frozen=True):
    """Another message with content, sealed to the recipient's content key (`links/content_keys.py`)."""

    key: Annotated[str, msgspec.Meta(min_length=11, max_length=11)]
    """The id of the content key, base64url."""
    sealed: str
    """base64url."""


class KeyComplaintBody(msgspec.Struct, frozen=True):
    """Proof that an update of another member has brought the victim a different seed; bytes in base64url."""

    group: Id
    event: Annotated[str, msgspec.Meta(max_length=EVENT_BYTES_MAX * 4 // 3 + 2)]
    direct: Annotated[str, msgspec.Meta(max_length=DIRECT_BYTES_MAX * 4 // 3 + 2)]
    """The victim's direct message."""
    key: Annotated[str, msgspec.Meta(max_length=64)]
    """Its content key."""
    victim: _Did = ""
    """On the ring, where any member passes it on; empty: the sender."""


class RouteBody(msgspec.Struct, frozen=True):
    """A route to the sender over mediators: where to post, and the routing keys, the outermost first."""

    uri: Annotated[str, msgspec.Meta(max_length=URI_CHARS_MAX)]
    keys: Annotated[list[_Did], msgspec.Meta(max_length=ROUTING_KEYS_MAX)]
    shared: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The id of the update whose exported secret the sender shares a mailbox there by; empty: it shares none."""


class ReachBody(msgspec.Struct, frozen=True):
    """Where the sender is reached now."""

    pair: _Uri
    queue: _Uri
    """Empty: it only dials out."""
    at: _Count
    """When the sender wrote this, UTC ms: mail may be reordered."""
    key: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The CURVE public key of both endpoints; a contact created without endpoints does not contain it."""
    mail: Annotated[list[RouteBody], msgspec.Meta(max_length=ROUTES_MAX)] = []


class StatusBody(PositionsBody, frozen=True, kw_only=True):
    """A broadcast about the group: new membership events, and the sender's state. Idempotent."""

    group: Id
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)]
    reach: ReachBody | None = None
    """None: unchanged."""


class SyncBody(PositionsBody, frozen=True, kw_only=True):
    """The sender's state for one recipient: acknowledgement and request in one."""

    group: Id
    start_seq: _Count
    """The sender's own chain begins, for the recipient, after this place."""
    acked: _Count
    """How far the sender has the recipient's chain, confirmed."""
    heads: Annotated[list[Id], msgspec.Meta(max_length=HEADS_MAX)]
    """The heads of the sender's membership events."""
    reach: ReachBody
    attestation: Annotated[str, msgspec.Meta(max_length=86)] = ""
    """The sender's signature on `heads` (`attestation.sign_heads`)."""
    your_view: _Checksum = ""
    """The recipient's view as last received by the sender."""
    start_id: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The id of the event at `start_seq`: it verifies relayed events up to there."""
    gap: bool = False
    """The sender lacks events of the recipient's chain: retransmit without waiting for the timer."""
    former: Annotated[list[tuple[Did, _Count]], msgspec.Meta(max_length=FORMER_MAX)] = []
    """How far the sender has the chains of former members, as many as fit."""
    highest_seen: _Count = 0
    """The last place of the recipient's chain of which the sender has any event, if beyond `acked`."""
    subscription: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The digest of the sender's answer by which the recipient is subscribed to its stream; empty: not subscribed."""
    signed_upto: _Count = 0
    """`T` of the last message of its stream that the recipient has signed for, or need not."""
    statements: Annotated[list[_Statement], msgspec.Meta(max_length=STATEMENTS_MAX)] = []
    """Signed statements about the two subscriptions (`evidence/handshake.py`), as canonical JSON."""
    signed_ack: Annotated[str, msgspec.Meta(max_length=ACK_BYTES * 4 // 3)] = ""
    """The sender's signed acknowledgement of the recipient's stream, base64url."""
    tlog_size: _Count = 0
    """The number of entries that the sender has of the tlog in force, if the group has one."""
    head_digests: Annotated[str, msgspec.Meta(max_length=(HAVE_MAX + LATEST_AUTHORS_MAX) * 3)] = ""
    """The digests of the chain heads at the positions in `have` and `latest`, two bytes each (`sync/chain_heads.py`).
    """
    room_ms: _Count = 0
    """The sender stores no more of the recipient's events for so long, ms: the recipient's daily quota is used up."""
    prekey: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The sender's one-time pre-key that begins its channel with the recipient, where keys heal (`group/dcgka/`)."""
    prekey_used: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The recipient's pre-key with which the sender has begun that channel; empty: none."""
    key_events: _Count = 0
    """The number of the recipient's last key event that the sender has."""
    keys_lost: bool = False
    """The sender does not follow the recipient's key ratchet."""
    head: tuple[_Count, Id] | None = None
    """Place and id of the sender's own last event, for a recipient that may have what leads up to it from others."""
    unreachable: Annotated[list[_Count], msgspec.Meta(max_length=UNREACHABLE_MAX)] = []
    """The members that lack events of the sender's and that it cannot reach, by their places in its view
    (`sync/relay.py`)."""
    content_key: ContentKey = ""
    sent: Sent = None
    ack_sets: Annotated[list[AckSetFields], msgspec.Meta(max_length=ACK_SETS_MAX)] = []
    """On the ring: which members the sender knows to have which chains."""
    guest: bool = False
    """On the ring: the sender keeps the link only for the recipient, by which it was chosen (`links/ring_links.py`)."""


class EmbeddedMessage(msgspec.Struct, frozen=True):
    """A message inside another one."""

    id: Annotated[str, msgspec.Meta(max_length=64)]
    body: dict[str, object]


class ResponseBody(msgspec.Struct, frozen=True):
    """A member's answer to a DID exchange request."""

    sync: EmbeddedMessage | None = None
    """The responder's first `sync`, without an envelope of its own: one less for each pair."""


class HistoryRequestBody(msgspec.Struct, frozen=True):
    """The sender requests ranges of some chains; `history-response` messages answer in the same thread."""

    group: Id
    ranges: Annotated[
        list[tuple[Did, _Count, Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]]],
        msgspec.Meta(min_length=1, max_length=RANGES_MAX),
    ]
    """Authors with a half-open range of their chain each: after, up to."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=RUN_EVENTS_MAX)]
    backwards: bool = False
    """The newest first, in display order; else in the recipient's order of delivery."""
    pages: Annotated[int, msgspec.Meta(ge=1, le=PAGES_MAX)] = 1
    """With `backwards`: the most responses, each of which continues the one before without a new request."""
    content_key: ContentKey = ""


class HistoryResponseBody(msgspec.Struct, frozen=True):
    """The requested events that the sender has and the recipient may have."""

    group: Id
    more: bool
    """There are more that the recipient may have."""
    page: Annotated[int, msgspec.Meta(ge=0, lt=PAGES_MAX)] = 0
    """The number of this response."""
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUN_EVENTS_MAX)] = []
    packed: str = ""
    """The runs as compressed JSON, in base64url."""


class ReconcileBody(msgspec.Struct, frozen=True):
    """One message of a set reconciliation (Negentropy) of the two members' posts with a Lamport time of at least
    `since`. Answers come in the same thread."""

    group: Id
    since: _Count
    message: Annotated[str, msgspec.Meta(max_length=RECONCILE_BYTES_MAX * 4 // 3)]
    """base64url."""


class JoinRequestBody(msgspec.Struct, frozen=True):
    """The joiner's keys for this group, with its signature that it wants to join with them."""

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
    """Proof that the requesting DID belongs to this member (`contact.sign_proof`)."""
    voucher: Annotated[str, msgspec.Meta(max_length=86)] = ""
    """In a private conversation: proof that this is the invited member (`contact.sign_voucher`)."""


class PendingBody(msgspec.Struct, frozen=True):
    """A member was asked for a decision on the join request, until this time (UTC ms)."""

    group: Id
    until: _Count


class AttestationBody(msgspec.Struct, frozen=True):
    """A member's signed attestation of the membership events that it has."""

    member: Did
    heads: Annotated[list[Id], msgspec.Meta(max_length=HEADS_MAX)]
    signature: Annotated[str, msgspec.Meta(max_length=86)]


class WelcomeBody(msgspec.Struct, frozen=True):
    """The event that admits the joiner, and its whole past, dependencies first: the evidence for the view. In parts,
    since messages have a size limit."""

    group: Id
    start_seq: _Count
    part: Annotated[int, msgspec.Meta(ge=0, lt=WELCOME_PARTS_MAX)]
    parts: Annotated[int, msgspec.Meta(ge=1, le=WELCOME_PARTS_MAX)]
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)] = []
    packed: str = ""
    """The runs and the attestations as compressed JSON, in base64url."""
    attestations: Annotated[list[AttestationBody], msgspec.Meta(max_length=HAVE_MAX)] = []
    """Attestations of other members that the sender has, and the sender's own that this is all."""


class MemberConnectionsBody(msgspec.Struct, frozen=True):
    """With how many members the joiner is connected: news for its inviter."""

    group: Id
    connected: Annotated[int, msgspec.Meta(ge=0, le=HAVE_MAX)]
    members: Annotated[int, msgspec.Meta(ge=0, le=HAVE_MAX)]


class ForkProofBody(msgspec.Struct, frozen=True):
    """Membership events that prove an equivocation, with missing parts of their past, dependencies first."""

    group: Id
    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)]


class TypingBody(msgspec.Struct, frozen=True):
    """The sender is typing in this group."""

    group: Id


class ReadBody(msgspec.Struct, frozen=True):
    """The sender has read everything that it has up to this Lamport time."""

    group: Id
    upto: _Count


class PrivateInvitationBody(msgspec.Struct, frozen=True):
    """The sender invites the recipient to a private conversation: a group of the two."""

    group: Id
    """The group in which both are members."""
    conversation: Id
    """The group of the two."""
    founder: Annotated[str, msgspec.Meta(max_length=86)]
    """Proof that its founder is the sender (`contact.sign_founder`)."""
    invitation: Annotated[str, msgspec.Meta(max_length=INVITATION_CHARS_MAX)]
    """The link."""


class ProblemBody(msgspec.Struct, frozen=True):
    """Report Problem 2.0: a code for programs, a comment for users."""

    code: Annotated[str, msgspec.Meta(max_length=128)]
    comment: Annotated[str, msgspec.Meta(max_length=512)] = ""


PROBLEMS: Mapping[str, str] = {
    "e.p.req.time": "the invitation has expired",
    "e.p.req.used": "the invitation has been used already",
    "e.p.req.name-taken": "this name is taken in the group",
    "e.p.req.full": "the group is full, or the seats are reserved for those whom others invite",
    "e.p.req.closed": "the inviter has left the group",
    "e.p.req.role": "the invitation admits readers only",
    "e.p.req.other": "the invitation is for another member",
    "e.p.req.busy": "too many join requests are waiting",
    "e.p.req.refused": "a member refused your request",
    "e.p.req.removed": "you were admitted, and removed again at once",
    "e.p.req.withdrawn": "the joiner cancelled the join",
    "e.p.req.late": "your request was not answered in time",
    "e.p.req.older": "the inviter uses an older copy of its profile and cannot admit anyone now",
    "e.p.msg": "the inviter could not read the request; the two versions of zerochat may differ",
}
"""The report-problem codes of this protocol, with a sentence for users."""


_S = TypeVar("_S", bound=msgspec.Struct)


def read_body(message: Message, shape: type[_S]) -> _S:
    """The body of a message in its shape. Raises Malformed."""
    try:
        return msgspec.convert(message.body, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"{message.type.rsplit('/', 1)[-1]}: {error}") from None
