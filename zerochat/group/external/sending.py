"""Sending to external connections: the envelope, the route, and the limit of answers.

A peer may name any host as its own. Such a host gets what our user sends, which includes the exchange that our user has
begun or invited to, and answers of at most twice the bytes that came from the peer.
"""

from collections.abc import Callable
from functools import lru_cache

from msgspec.structs import replace

from zerochat.didcomm.address_kinds import AddressKind, authority, kind_of_uri
from zerochat.didcomm.did import resolve, resolve_pinned
from zerochat.didcomm.invitation import WEB_SCHEMES
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer, Profile
from zerochat.didcomm.protocols import routing
from zerochat.didcomm.service import Route, routes
from zerochat.errors import Refused, RemoteError
from zerochat.group.effects import Measure, WebPost, WebReply
from zerochat.group.external import key_mediation
from zerochat.group.external.changes import put
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.state import Connection
from zerochat.group.state.external import ConnectionState
from zerochat.group.transaction import Transaction
from zerochat.group.wire.envelope import pack_first

RELAYED_SCHEMES = ("http://", "https://")
"""What a mediator of ours can post to (`relayed_posts.py`)."""
ANSWERS_MAX = 16 * 1024
"""The bytes of answers that a peer can save up. One that answers our invitation has them at once, however short its
message: our answer rotates our DID, and has several long ones in it."""


def send(
    tx: Transaction,
    name: str,
    message: Message,
    handle: int | None = None,
    *,
    by_user: bool = False,
    reference: str = "",
) -> None:
    """Send a message to a connection; with a handle, as the response on the connection of its last message. What our
    user sends goes to any host that the peer has named. `reference`: for the result of the post. Raises RemoteError."""
    one = tx.agent.connections[name]
    packer = tx.packer(one.envelope)
    if not tx.agent.web_uris:
        message = replace(message, return_route="all")
    named, us = one.envelope != "didcomm/v1", one.relationship
    if us.theirs:
        envelope = pack(_as_sender(one), message, packer, tx.context.random, named=named)
    elif one.state is ConnectionState.ENDED:
        raise Refused(why="a connection that has ended")
    else:
        envelope = pack_first(us.mine, us.invited_by, message, packer, tx.context, named=named)
    post(tx, one, packer, envelope, handle, by_user=by_user, reference=reference)


def _as_sender(one: Connection) -> Relationship:
    """The relationship to send with. v1: the prior DID sends until the peer has acknowledged the new one."""
    if one.envelope == "didcomm/v1" and one.relationship.rotation is not None:
        return replace(one.relationship, mine=one.relationship.rotation.old)
    return one.relationship


def post(
    tx: Transaction,
    one: Connection,
    packer: Packer,
    envelope: bytes,
    handle: int | None = None,
    *,
    by_user: bool = False,
    reference: str = "",
) -> None:
    """Send an envelope to a connection, as `send` does with a message."""
    session = tx.agent.web_sessions.get(one.id)
    if handle is None and session is not None and session.handle:
        handle = session.handle
    if handle is not None:
        tx.emit(WebReply(handle, envelope, packer.media_type, reference))
        return
    route = route_of(tx, one, any_state=by_user)
    if route is None:
        raise Refused(why="a connection without a route")
    try:
        envelope = wrap(tx, one.envelope, one.relationship.theirs or one.relationship.invited_by, route, envelope)
    except RemoteError:
        if reference:
            raise
        # A peer that announces a route with invalid keys receives nothing, without further effect.
        tx.emit(Measure("dropped", "CannotWrap"))
        return
    if not (by_user or _is_accepted(one, route.uri) or _spend_credit(tx, one.id, len(envelope))):
        tx.emit(Measure("dropped", "NoCredit"))
        return
    tx.emit(WebPost(route.uri, envelope, packer.media_type, nearest=_nearest(tx, one, route.uri), reference=reference))


def _is_accepted(one: Connection, uri: str) -> bool:
    """Whether our user has chosen this host: by accepting its invitation, or the peer as a mediator. Other hosts of the
    invitation (`spare`) do not count, because the inviter can hide them behind the first one."""
    return one.mediation is not None or (one.route is not None and authority(uri) == authority(one.route.uri))


def _accepted(one: Connection) -> tuple[Route, ...]:
    """The routes of the invitation that our user has accepted, the first one first."""
    return () if one.route is None else (one.route, *one.spare)


def _spend_credit(tx: Transaction, name: str, size: int) -> bool:
    one = tx.agent.connections.get(name)
    if one is None or one.credit < size:
        return False
    put(tx, replace(one, credit=one.credit - size))
    return True


def wrap(tx: Transaction, kind: str, theirs: str, route: Route, envelope: bytes) -> bytes:
    """The envelope wrapped for each hop on the route. Raises Malformed."""
    return _wrapped(kind, theirs, route, envelope, tx.context.random)


def _wrapped(kind: str, theirs: str, route: Route, envelope: bytes, random: Callable[[int], bytes]) -> bytes:
    if not route.routing_keys:
        return envelope
    profile: Profile = "didcomm/v1" if kind == "didcomm/v1" else "didcomm/v2"
    return routing.wrap(envelope, route, theirs, resolve=resolve, random=random, profile=profile)


def reachable(tx: Transaction, name: str) -> bool:
    """Whether an unsolicited message can be sent to a connection."""
    one = tx.agent.connections[name]
    session = tx.agent.web_sessions.get(name)
    has_session = session is not None and session.handle > 0
    return one.relationship.established and (has_session or route_of(tx, one, any_state=True) is not None)


def end_session(tx: Transaction, name: str) -> None:
    """Send over the WebSocket of this peer to us no more."""
    if name in tx.agent.web_sessions:
        tx.update_agent(web_sessions={key: each for key, each in tx.agent.web_sessions.items() if key != name})


def usable_handle(tx: Transaction, name: str, handle: int | None) -> int | None:
    """The handle to answer a connection on; None: answer by its route. A message that came over a mediator of v1 may
    have the handle of the mediator's WebSocket, where the peer does not listen."""
    one = tx.agent.connections[name]
    return None if key_mediation.is_mediated(one) and reachable(tx, name) else handle


def endpoints(tx: Transaction, name: str) -> int:
    """The number of the peer's endpoints, at least 1."""
    return max(1, len(_candidates(tx, tx.agent.connections[name])))


def route_of(tx: Transaction, one: Connection, *, any_state: bool = False) -> Route | None:
    """The open WebSocket, else a route in the peer's DID document that works; `any_state`: else one that has failed."""
    candidates = _candidates(tx, one)
    held = next((route for route in candidates if route.uri in tx.agent.websockets_up), None)
    working = (route for route in candidates if mediator_mail.is_working(tx, route.uri))
    return held or next(working, one.route) or (candidates[0] if any_state and candidates else None)


def _candidates(tx: Transaction, one: Connection) -> list[Route]:
    """The usable routes in the peer's DID document, and those of the invitation."""
    found = routes(resolve_pinned(one.relationship.theirs)) if one.relationship.established else ()
    theirs = one.relationship.theirs or one.relationship.invited_by
    usable = [route for route in found if route.uri.startswith(WEB_SCHEMES) and _counts(tx, one, route.uri)]
    usable = [route for route in usable if _has_keys(one.envelope, theirs, route)]
    known = {route.uri for route in usable}
    accepted = (route for route in _accepted(one) if route.uri not in known)
    return usable + [route for route in accepted if _has_keys(one.envelope, theirs, route)]


@lru_cache(maxsize=256)
def _has_keys(kind: str, theirs: str, route: Route) -> bool:
    """Whether an envelope can be wrapped for each hop on the route: one with an unusable key would fail each time."""
    try:
        _wrapped(kind, theirs, route, b"{}", bytes)
    except RemoteError:
        return False
    return True


def _counts(tx: Transaction, one: Connection, uri: str) -> bool:
    """Whether a URI that the peer names counts: without a query, and no nearer than an address that it may name."""
    if uri in [route.uri for route in _accepted(one)]:
        return True
    if tx.agent.mediated_only and one.mediation is None and not uri.startswith(RELAYED_SCHEMES):
        return False
    kind = kind_of_uri(uri)
    return not any(mark in uri for mark in "?#@") and (kind is None or kind <= _nearest(tx, one, uri))


def _nearest(tx: Transaction, one: Connection, uri: str) -> AddressKind:
    """The nearest kind of address behind this URI: any, at the host whose invitation the user has accepted."""
    accepted = [] if one.route is None else [one.route.uri]
    if authority(uri) in [authority(each) for each in accepted]:
        return AddressKind.LOOPBACK
    kinds = [kind_of_uri(each) for each in (*tx.agent.web_uris, *accepted)]
    return max([tx.agent.nearest, *(kind for kind in kinds if kind is not None)])
