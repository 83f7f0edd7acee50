"""The group protocol's messages, as they stand in DIDComm plaintexts, and the limits on reading them.

requester                     acceptor                      the other members
    | -- didexchange request --> |                                |
    | <-- response, from_prior - |        (didcomm/exchange.py)   |
    | -- complete -------------> |                                |
    | -- join-request ---------> |                                |
    |                            | -- event: add ---------------> |
    | <-- welcome -------------- |                                |
    | -- didexchange request, response, complete with each -----> |
    | <================ event, sync, between all ===============> |
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from zerochat.didcomm.did import DID_CHARS_MAX
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed
from zerochat.group.contact import CONTACT_CHARS_MAX, ROUTES_MAX, ROUTING_KEYS_MAX, URI_CHARS_MAX
from zerochat.group.event import CONTROL_BYTES_MAX, DEPS_MAX, Did, Id
from zerochat.group.membership import CONTROL_MAX, MEMBERS_MAX

PROTOCOL = "https://zerochat.org/group/1.0/"
EVENT = PROTOCOL + "event"
SYNC = PROTOCOL + "sync"
JOIN_REQUEST = PROTOCOL + "join-request"
WELCOME = PROTOCOL + "welcome"
PROBLEM = "https://didcomm.org/report-problem/2.0/problem-report"

WELCOME_BYTES_MAX = 64 * 1024
"""Records in one part of a welcome: it must fit a message after three forwards, each of which adds a third."""
WELCOME_PARTS_MAX = CONTROL_MAX * CONTROL_BYTES_MAX // WELCOME_BYTES_MAX * 2

HAVE_MAX = MEMBERS_MAX * 2
"""People who join at the same moment through different members may make a group larger than it should be."""
HEADS_MAX = DEPS_MAX * 4

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Checksum = Annotated[str, msgspec.Meta(max_length=22)]
_Uri = Annotated[str, msgspec.Meta(max_length=64)]
_Did = Annotated[str, msgspec.Meta(max_length=DID_CHARS_MAX)]


class EventBody(msgspec.Struct, frozen=True):
    """One event, and what its sender has of everybody's chains."""

    record: dict[str, Any]
    view: _Checksum
    """The sender's view."""
    have: Annotated[list[_Count], msgspec.Meta(max_length=HAVE_MAX)]
    """How far the sender has each member's chain, members in the order of their DIDs; readable by who has that view."""


class RouteBody(msgspec.Struct, frozen=True):
    """A way to the sender over mediators: where to post, and the keys to wrap for, the outermost first."""

    uri: Annotated[str, msgspec.Meta(max_length=URI_CHARS_MAX)]
    keys: Annotated[list[_Did], msgspec.Meta(max_length=ROUTING_KEYS_MAX)]


class SyncBody(msgspec.Struct, frozen=True):
    """Everything that its sender has, wants, and owes to the one reader: acknowledgement and request in one."""

    group: Id
    view: _Checksum
    have: Annotated[list[_Count], msgspec.Meta(max_length=HAVE_MAX)]
    since: _Count
    """The sender's own chain begins, for the reader, after this event."""
    yours: _Count
    """How far the sender has the reader's chain."""
    heads: Annotated[list[Id], msgspec.Meta(max_length=HEADS_MAX)]
    """The heads of the sender's membership events."""
    pair: _Uri
    queue: _Uri
    """Where the sender is reached now; empty: it only dials out."""
    key: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """The CURVE public key of both, for whoever does not know it: a contact that was made in hiding has none."""
    at: _Count = 0
    """When the sender said where it is reached, UTC ms: by mail, older words may come after newer ones."""
    mail: Annotated[list[RouteBody], msgspec.Meta(max_length=ROUTES_MAX)] = []
    gap: bool = False
    """The sender misses something of the reader's chain: do not wait for the timer."""


class JoinRequestBody(msgspec.Struct, frozen=True):
    """The newcomer's keys for this group, and its own signature that it wants to join with them."""

    group: Id
    member: Did
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    contact: Annotated[str, msgspec.Meta(max_length=CONTACT_CHARS_MAX)]
    consent: Annotated[str, msgspec.Meta(max_length=86)]
    proof: Annotated[str, msgspec.Meta(max_length=86)]
    """That the DID which asks is this member's own (`contact.sign_proof`)."""


class WelcomeBody(msgspec.Struct, frozen=True):
    """Every membership event of the group, causes first: the evidence for the view. In parts, because a message has a
    greatest size and a group's past has none."""

    group: Id
    records: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=CONTROL_MAX)]
    since: _Count
    part: Annotated[int, msgspec.Meta(ge=0, lt=WELCOME_PARTS_MAX)]
    parts: Annotated[int, msgspec.Meta(ge=1, le=WELCOME_PARTS_MAX)]


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
