"""External connections: relationships with mediators and other agents, outside of any group.

    v2:  invitation --> first message from a new DID --> established; the inviter's answer rotates its public DID away
    v1:  invitation --> DID Exchange: request, response, complete (RFC 0023) --> established

An agent without an address of its own requests the answer on the same connection (`return_route`).
"""

import re

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, did_key_bytes
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import Identity, new_peer2, new_peer4, resolve, resolve_pinned, same_did, short_form
from zerochat.didcomm.invitation import WEB_SCHEMES
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import OwnKey, Packer, Profile
from zerochat.didcomm.protocols import basic, didexchange, oob_read, oob_write, ping, problem
from zerochat.didcomm.protocols import rotate as did_rotate
from zerochat.didcomm.protocols.ack import empty
from zerochat.didcomm.protocols.oob_read import OutOfBand
from zerochat.didcomm.service import Route, deliverables, routes
from zerochat.errors import LocalError, Malformed, Overloaded, PostTooLong, Refused
from zerochat.group.effects import Notify
from zerochat.group.external import invited_requests, key_mediation, outbox, v1_rotation
from zerochat.group.external.changes import notify, put
from zerochat.group.external.sending import (
    ANSWERS_MAX,
    RELAYED_SCHEMES,
    post,
    reachable,
    send,
    usable_handle,
    wrap,
)
from zerochat.group.inputs import OfferConnection
from zerochat.group.links.mediator_proof import AMPLIFICATION
from zerochat.group.links.relationship import Relationship, RelationshipState, check_peer, pack_end, rotate, unpack
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state import Connection
from zerochat.group.state.external import ConnectionState, InvitedRequest
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.envelope import open_first
from zerochat.names import without_hidden

CONNECTIONS_MAX = 256
PROFILES: tuple[Profile, ...] = ("didcomm/v2", "didcomm/v1")
"""The supported envelope profiles, the preferred one first."""
LABEL_CHARS_MAX = 64
_WEB = re.compile("^ws")
ROUTES_MAX = 8
"""Endpoints of one invitation that are tried."""


class CannotConnect(LocalError):
    """You cannot connect with this invitation: {why}."""


class NoAddress(LocalError):
    """An invitation from here could not be answered, because this agent accepts no HTTP connections. Set `network.web`
    in the settings (`zerochat paths config` shows the file), for example web = "192.0.2.7:8080", and restart the
    agent."""


class AlreadyConnected(LocalError):
    """You are already connected with the author of this invitation: {label}. To connect again, end that connection
    first (`zerochat disconnect`)."""


class OwnInvitation(LocalError):
    """This is your own invitation. Give it to the person who should connect with you."""


# --- invitations ----------------------------------------------------------------------------------------------------


def accept_invitation(tx: Transaction, invitation: OutOfBand, label: str, mediate: bool) -> str:
    """Begin a connection with the inviter. Returns its id. Raises a LocalError."""
    if len(tx.agent.connections) >= CONNECTIONS_MAX:
        raise Overloaded(what="The number of connections", limit=CONNECTIONS_MAX)
    if invitation.version[0] == 1:
        _check_handshake(invitation)
    try:
        envelope, theirs, (route, *spare) = _choose_routes(tx, invitation, mediate=mediate)
        named = routes(resolve_pinned(theirs)) if envelope == "didcomm/v2" else (route, *spare)
        if mediate and not any(one.uri.startswith(("ws://", "wss://")) for one in named):
            raise CannotConnect(why="its author offers no WebSocket, which a mediator needs")
        _check_writable(tx, envelope, theirs, route)
    except Malformed as error:
        raise CannotConnect(why=str(error.fields["why"])) from None
    for known in tx.agent.connections.values():
        if known.state is ConnectionState.OFFERED and known.pthid == invitation.id:
            raise OwnInvitation()
        if known.state is not ConnectionState.ENDED and same_did(known.relationship.invited_by, theirs):
            raise AlreadyConnected(label=known.label)
    request = b"" if mediate else invited_requests.chosen(invitation.requests, tx.packer(envelope))
    is_v1 = envelope == "didcomm/v1"
    # A mediator of v1 would send what is for us to an address of ours, instead of storing it.
    own = new_peer4(tx.context.random, key_mediation.services((), [])) if mediate and is_v1 else None
    identity = own or _new_identity(tx, envelope, theirs, mediates=mediate)
    name = b64url(tx.context.random(9))
    relationship = Relationship("", identity, theirs, name, theirs, requester=True)
    one = Connection(
        id=name,
        label=_shown_label(label) or _shown_label(invitation.label or "") or _host(route.uri)[:LABEL_CHARS_MAX],
        envelope=envelope,
        relationship=relationship,
        state=ConnectionState.REQUESTED,
        pthid=invitation.id,
        begun=tx.now,
        route=route,
        spare=tuple(spare),
        request=InvitedRequest(request) if request else None,
    )
    put(tx, one)
    if is_v1:
        _send_request(tx, one)
    elif not mediate:
        outbox.submit(tx, name, replace(ping.ping(tx.context.random), pthid=invitation.id))
    return name


def _check_handshake(invitation: OutOfBand) -> None:
    """Raise CannotConnect unless a v1 invitation is to connect by DID Exchange."""
    try:
        version = oob_read.handshake(invitation)
    except Refused as error:
        raise CannotConnect(why=str(error.fields["why"])) from None
    if version is None:
        raise CannotConnect(why="it is a request without a connection, which this version does not support")


def _choose_routes(tx: Transaction, invitation: OutOfBand, *, mediate: bool) -> tuple[Profile, str, list[Route]]:
    """The profile and the DID that both sides support, the inviter's preferred ones, and the routes to it."""
    schemes = WEB_SCHEMES if mediate or not tx.agent.mediated_only else RELAYED_SCHEMES
    found: list[tuple[Profile, str, Route]] = []
    for theirs, route in (each for inviter in invitation.inviters for each in _endpoints_of(inviter)):
        try:
            ways = deliverables(route, resolve)
        except Malformed:
            if not found:
                raise
            continue
        for direct in ways:
            profile = next((one for one in PROFILES if direct.takes(one)), None)
            if profile is not None and direct.uri.startswith(schemes):
                found.append((profile, theirs, direct))
    if found:
        profile, theirs, _ = found[0]
        routes_there = [route for other, did, route in found if (other, did) == (profile, theirs)]
        return profile, theirs, routes_there[:ROUTES_MAX]
    raise CannotConnect(why="it has no address and envelope format that this version supports")


def _check_writable(tx: Transaction, envelope: str, theirs: str, route: Route) -> None:
    """Raise Malformed if the inviter or a hop on the route has no key to encrypt to."""
    if envelope == "didcomm/v1":
        tx.packer(envelope).their_key(resolve_pinned(theirs), theirs)
    else:
        check_peer(theirs, external=True)
    wrap(tx, envelope, theirs, route, b"{}")


def _endpoints_of(inviter: oob_read.Inviter) -> list[tuple[str, Route]]:
    if inviter.route is not None:
        return [(key, inviter.route) for key in inviter.route.recipient_keys]
    did = (inviter.did or "").partition("#")[0]
    return [(did, route) for route in routes(resolve_pinned(did))]


def _host(uri: str) -> str:
    """The default label of a connection of which only the address is known."""
    return uri.partition("://")[2].partition("/")[0]


def _new_identity(tx: Transaction, envelope: str, theirs: str, *, mediates: bool = False) -> Identity:
    """A fresh DID for one peer, with an agreement key of the peer's curve.

    Its method is one that the peer can read: did:peer:4 for peers that use it themselves, for v1 and for mediators,
    which all read it; else did:peer:2, which is older. Some agents read no newer one.
    """
    services = did_services(tx, envelope)
    if envelope == "didcomm/v1":
        return new_peer4(tx.context.random, services)
    curve = tx.packer(envelope).their_key(resolve_pinned(theirs), theirs).key.kind
    new = new_peer4 if mediates or theirs.startswith("did:peer:4") else new_peer2
    return new(tx.context.random, services, curve)


def create_invitation(tx: Transaction, wanted: OfferConnection) -> tuple[str, str, int]:
    """Create an invitation to connect: the connection's id, the link, and its expiry in UTC seconds."""
    own = key_mediation.own_routes(tx.agent) if wanted.envelope == "didcomm/v1" else []
    pages = [*tx.agent.web_uris, *(_WEB.sub("http", route.uri) for route in own)]
    if not pages:
        raise NoAddress()
    if len(tx.agent.connections) >= CONNECTIONS_MAX:
        raise Overloaded(what="The number of connections", limit=CONNECTIONS_MAX)
    envelope, label = wanted.envelope, wanted.label or tx.agent.label
    identity = new_peer2(tx.context.random, did_services(tx, envelope), wanted.curve)
    name, expires = b64url(tx.context.random(9)), tx.now // 1000 + wanted.lifetime_s
    requests = _requests(tx, wanted)
    if envelope == "didcomm/v1":
        invitation = oob_write.invitation_v1(
            [identity.did], label, tx.context.random, expires_time=expires, requests=requests
        )
    else:
        invitation = oob_write.invitation(
            identity.did, tx.context.random, goal=label, expires_time=expires, requests=requests
        )
    signer = OwnKey(identity.kid_signing, SecretKey("Ed25519", identity.signing_seed)) if wanted.signed else None
    url = oob_write.link(pages[0], invitation, signer)
    relationship = Relationship("", identity, "", name, identity.did, requester=False)
    one = Connection(
        id=name,
        label=_shown_label(wanted.name),
        envelope=envelope,
        relationship=relationship,
        state=ConnectionState.OFFERED,
        pthid=invitation.id,
        begun=tx.now,
        expires=expires * 1000,
    )
    put(tx, one)
    set_expiry(tx, name)
    return name, url, expires


def _requests(tx: Transaction, wanted: OfferConnection) -> list[Attachment]:
    if not wanted.message:
        return []
    size = len(wanted.message.encode())
    if size > invited_requests.TEXT_BYTES_MAX:
        raise PostTooLong(size=size, limit=invited_requests.TEXT_BYTES_MAX)
    profile: Profile = "didcomm/v1" if wanted.envelope == "didcomm/v1" else "didcomm/v2"
    message = basic.basic(wanted.message, tx.now // 1000, tx.context.random, profile)
    return [invited_requests.attached(message, tx.packer(wanted.envelope))]


def set_expiry(tx: Transaction, name: str) -> None:
    """Set the timer of an unanswered invitation, also after a restart."""
    one = tx.agent.connections[name]
    if one.state is ConnectionState.OFFERED:
        tx.set_timer(TimerKind.CONNECTION_INVITATION, name, one.expires - tx.now)


def did_services(tx: Transaction, envelope: str) -> list[dict[str, object]]:
    """The service entries of our DID documents; in v2 empty where we are not reachable over the web."""
    if envelope == "didcomm/v2":
        endpoints: list[dict[str, object]] = [{"uri": uri, "accept": [envelope]} for uri in tx.agent.web_uris]
        return [{"id": "#didcomm", "type": "DIDCommMessaging", "serviceEndpoint": endpoints}] if endpoints else []
    return key_mediation.services(tx.agent.web_uris, key_mediation.own_routes(tx.agent))


# --- messages -------------------------------------------------------------------------------------------------------


def receive_envelope(tx: Transaction, name: str, envelope: bytes, handle: int | None) -> Message | None:
    """The message in an envelope for this connection; None when the exchange processed it, or when it was the peer's
    last. Raises RemoteError."""
    one = tx.agent.connections[name]
    packer = tx.packer(one.envelope)
    if (credit := min(ANSWERS_MAX, one.credit + AMPLIFICATION * len(envelope))) > one.credit:
        one = replace(one, credit=credit)
        put(tx, one)
    match one.state, one.envelope:
        case ConnectionState.OFFERED, _ if one.expires <= tx.now:
            raise Refused(why="an answer to an expired invitation")
        case ConnectionState.ENDED, _:
            raise Refused(why="a message on an ended connection")
        case ConnectionState.OFFERED, "didcomm/v1":
            _answer_request(tx, one, envelope, packer, handle)
            return None
        case ConnectionState.REQUESTED, "didcomm/v1":
            _receive_response(tx, one, envelope, packer)
            return None
        case ConnectionState.OFFERED, _:
            return _receive_first(tx, one, envelope, packer)
    relationship, message = unpack(one.relationship, envelope, packer, layered=True)
    relationship = _fitted(tx, one.envelope, relationship, mediates=one.mediation is not None)
    if one.state is ConnectionState.REQUESTED:
        one = outbox.clear(tx, one)
    if relationship is not one.relationship or one.state is not ConnectionState.ESTABLISHED:
        state = ConnectionState.ESTABLISHED if relationship.established else ConnectionState.ENDED
        fresh = one.moved_to(state, relationship=relationship)
        fresh = fresh if relationship.established else outbox.clear(tx, fresh)
        put(tx, fresh)
        if fresh.state != one.state:
            notify(tx, fresh)
    if not relationship.established:
        return None
    is_rotation = one.envelope == "didcomm/v1" and v1_rotation.receive_rotation(tx, name, message, handle)
    return None if is_rotation else message


def _fitted(tx: Transaction, envelope: str, relationship: Relationship, *, mediates: bool) -> Relationship:
    """The relationship, with a DID of ours that has a key of the peer's curve: the peer may have rotated to another."""
    if envelope == "didcomm/v1" or relationship.state is not RelationshipState.ESTABLISHED:
        return relationship
    theirs = tx.packer(envelope).their_key(resolve_pinned(relationship.theirs), relationship.theirs).key
    second = relationship.mine.second_agreement
    if theirs.kind == "X25519" or (second is not None and second.kind == theirs.kind):
        return relationship
    identity = _new_identity(tx, envelope, relationship.theirs, mediates=mediates)
    return rotate(relationship, identity, tx.now // 1000)


def can_rotate(tx: Transaction, name: str) -> bool:
    """Whether the peer can be informed of a new DID: v2 does so in the next message, v1 only at once."""
    return tx.agent.connections[name].envelope != "didcomm/v1" or reachable(tx, name)


def rotate_own_did(tx: Transaction, name: str) -> None:
    """Replace our DID. v2 announces it in every message from now on, v1 in a message of its own (RFC 0794)."""
    one = tx.agent.connections[name]
    identity = _new_identity(tx, one.envelope, one.relationship.theirs, mediates=one.mediation is not None)
    relationship = rotate(one.relationship, identity, tx.now // 1000)
    if one.envelope == "didcomm/v1":
        announcement = did_rotate.rotate(identity.did, tx.context.random)
        assert relationship.rotation is not None
        relationship = replace(relationship, rotation=replace(relationship.rotation, thread=announcement.id))
        put(tx, replace(one, relationship=relationship))
        outbox.submit(tx, name, announcement)
    else:
        put(tx, replace(one, relationship=relationship))


def end_connection(tx: Transaction, name: str) -> None:
    """Rotate our DID to nothing, and delete the connection."""
    one = tx.agent.connections[name]
    if one.state is not ConnectionState.ENDED and one.envelope == "didcomm/v1" and reachable(tx, name):
        send(tx, name, did_rotate.hangup(tx.context.random), by_user=True)
    elif one.state is not ConnectionState.ENDED and reachable(tx, name):
        packer = tx.packer(one.envelope)
        message = empty(tx.context.random)
        envelope = pack_end(one.relationship, message, packer, tx.context.random, tx.now // 1000)
        post(tx, one, packer, envelope, by_user=True)
    tx.update_agent(connections={key: other for key, other in tx.agent.connections.items() if key != name})


def expire_invitation(tx: Transaction, name: str) -> None:
    """An invitation of ours was not answered in time."""
    one = tx.agent.connections.get(name)
    if one is not None and one.state is ConnectionState.OFFERED and one.expires <= tx.now:
        tx.update_agent(connections={key: other for key, other in tx.agent.connections.items() if key != name})


# --- first contact --------------------------------------------------------------------------------------------------


def _receive_first(tx: Transaction, one: Connection, envelope: bytes, packer: Packer) -> Message:
    """v2: the first message to an invitation's DID. We rotate to a DID that only this peer knows."""
    opened = open_first([one.relationship.mine], envelope, packer, layered=True)
    if opened.message.pthid != one.pthid:
        raise Refused(why="a message for another invitation")
    identity = _new_identity(tx, one.envelope, opened.sender)
    answering = replace(one.relationship, theirs=opened.sender, acknowledged=True)
    relationship = rotate(answering, identity, tx.now // 1000)
    label = one.label or short_form(opened.sender)[:24]
    fresh = one.moved_to(ConnectionState.ESTABLISHED, relationship=relationship, label=label, credit=ANSWERS_MAX)
    put(tx, fresh)
    notify(tx, fresh)
    return opened.message


def _send_request(tx: Transaction, one: Connection) -> None:
    """v1: send a DID exchange request."""
    mine, asked = one.relationship.mine, one.relationship.invited_by
    signers = tuple(method.key for method in resolve_pinned(asked).authentication if method.key.kind == "Ed25519")
    invited_by = None if asked.startswith("did:key:") else asked
    requester, message = didexchange.request(
        mine.did, tx.agent.label, signers, tx.context.random, pthid=one.pthid, invited_by=invited_by
    )
    put(tx, replace(one, relationship=replace(one.relationship, theirs=""), exchange=requester))
    outbox.submit(tx, one.id, message)


def _receive_response(tx: Transaction, one: Connection, envelope: bytes, packer: Packer) -> None:
    """v1: the response to our request, or a refusal."""
    opened = open_first([one.relationship.mine], envelope, packer)
    if one.exchange is None:
        raise Refused(why="an unexpected response")
    if problem.is_problem(opened.message):
        refused = didexchange.receive_problem(one.exchange, opened.message)
        why = refused.problem.text or refused.problem.code if refused.problem else ""
        put(tx, outbox.clear(tx, one.moved_to(ConnectionState.ENDED, exchange=None)))
        tx.emit(Notify(ConnectionChanged(one.id, f"{one.label} refused the connection: {why}")))
        return
    done, complete = didexchange.receive_response(
        one.exchange, opened.message, _verkey(opened.sender), tx.context.random
    )
    assert done.peer is not None
    relationship = replace(one.relationship, theirs=done.peer.stored, acknowledged=True)
    fresh = outbox.clear(tx, one.moved_to(ConnectionState.ESTABLISHED, relationship=relationship, exchange=None))
    put(tx, fresh)
    outbox.submit(tx, one.id, complete)
    notify(tx, fresh)


def _shown_label(label: str) -> str:
    """A label without the characters that no screen shows, so that no two connections differ in these alone."""
    return without_hidden(label).strip()[:LABEL_CHARS_MAX]


def _answer_request(tx: Transaction, one: Connection, envelope: bytes, packer: Packer, handle: int | None) -> None:
    """v1: a request in answer to our invitation."""
    invited = one.relationship.mine
    opened = open_first([invited], envelope, packer)
    responder = didexchange.receive_request(opened.message, one.pthid, _verkey(opened.sender))
    identity = new_peer4(tx.context.random, did_services(tx, one.envelope))
    _, response = didexchange.respond(
        responder, identity.did, SecretKey("Ed25519", invited.signing_seed), tx.context.random
    )
    relationship = replace(one.relationship, mine=identity, theirs=responder.peer.stored, thid=opened.message.thread)
    label = one.label or _shown_label(responder.peer.label) or short_form(responder.peer.did)[:24]
    fresh = one.moved_to(ConnectionState.ESTABLISHED, relationship=relationship, label=label)
    put(tx, fresh)
    handle = usable_handle(tx, one.id, handle)
    if handle is not None and opened.message.return_route == "all":
        send(tx, one.id, response, handle)
    elif reachable(tx, one.id):
        outbox.submit(tx, one.id, response)
    notify(tx, fresh)


def _verkey(sender: str) -> PublicKey:
    """The Ed25519 key of a v1 sender that is known by its key alone."""
    return PublicKey("Ed25519", did_key_bytes(sender))
