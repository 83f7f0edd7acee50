"""Connections: relationships outside of any group, with mediators and with agents that may be somebody else's program.

    v2:  invitation --> first message from a new DID --> established; the inviter's answer rotates its public DID away
    v1:  invitation --> DID Exchange: request, response, complete (RFC 0023) --> established

Whoever has no address of its own asks for the answer on the connection on which it has asked (`return_route`).
"""

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, did_key_bytes
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm.did import new_peer2, new_peer4, resolve, same_did, short_form
from zerochat.didcomm.invitation import WEB_SCHEMES
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer, Profile
from zerochat.didcomm.protocols import didexchange, empty, oob_read, oob_write, ping, problem, routing
from zerochat.didcomm.protocols import rotate as did_rotate
from zerochat.didcomm.protocols.oob_read import OutOfBand
from zerochat.didcomm.service import Route, deliverables, routes
from zerochat.errors import LocalError, Malformed, Overloaded, Refused, RemoteError
from zerochat.group.effects import Answered, Measure, Notify, Post
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import Relationship, check_peer, farewell, pack, rotate, unpack
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state import Connection
from zerochat.group.transaction import Turn
from zerochat.group.wire.envelope import open_first, pack_to

CONNECTIONS_MAX = 256
PROFILES: tuple[Profile, ...] = ("didcomm/v2", "didcomm/v1")
"""The kinds of envelopes, the preferred one first."""
LABEL_CHARS_MAX = 64


class CannotConnect(LocalError):
    """There is no connecting with this invitation: {why}."""


class NoAddress(LocalError):
    """Nobody could answer this invitation, because this agent takes nothing in over HTTP. Set `network.web` in the
    settings (`zerochat locate config` names the file), as in web = "192.0.2.7:8080", and start it again."""


class AlreadyConnected(LocalError):
    """There is a connection with whoever made this invitation already: {label}. End it first (`zerochat disconnect`)
    to begin anew."""


class OwnInvitation(LocalError):
    """This invitation is your own. Give it to whoever should connect with you."""


# --- beginning ------------------------------------------------------------------------------------------------------


def accept(turn: Turn, invitation: OutOfBand, label: str, mediate: bool) -> str:
    """Begin a connection with whoever made the invitation. Returns its id. Raises a LocalError."""
    if len(turn.agent.connections) >= CONNECTIONS_MAX:
        raise Overloaded(what="The number of connections", limit=CONNECTIONS_MAX)
    try:
        envelope, theirs, way = _chosen(turn, invitation, ("didcomm/v2",) if mediate else PROFILES)
        if mediate and not any(one.uri.startswith(("ws://", "wss://")) for one in routes(resolve(theirs))):
            raise CannotConnect(why="whoever made it takes no WebSocket, over which a mediator would be asked")
        _check_writable(turn, envelope, theirs, way)
    except Malformed as error:
        raise CannotConnect(why=str(error.fields["why"])) from None
    for known in turn.agent.connections.values():
        if known.state == "offered" and known.pthid == invitation.id:
            raise OwnInvitation()
        if known.state != "ended" and same_did(known.relationship.asked, theirs):
            raise AlreadyConnected(label=known.label)
    identity = new_peer4(turn.moment.random, services(turn, envelope, "#key-1"))
    name = b64url(turn.moment.random(9))
    relationship = Relationship("", identity, theirs, name, theirs, requester=True)
    one = Connection(
        id=name,
        label=(label or invitation.label or _host(way.uri))[:LABEL_CHARS_MAX],
        envelope=envelope,
        relationship=relationship,
        state="requested",
        pthid=invitation.id,
        begun=turn.now,
        route=way,
    )
    _put(turn, one)
    if envelope == "didcomm/v1":
        _request(turn, one)
    elif not mediate:
        send(turn, name, replace(ping.ping(turn.moment.random), pthid=invitation.id))
    return name


def _chosen(turn: Turn, invitation: OutOfBand, profiles: tuple[Profile, ...]) -> tuple[Profile, str, Route]:
    """Which envelopes to write, to which DID, over which route: the first that both sides have."""
    for inviter in invitation.inviters:
        for theirs, way in _ends(inviter):
            for direct in deliverables(way, resolve):
                profile = next((one for one in profiles if direct.takes(one)), None)
                if profile is not None and direct.uri.startswith(WEB_SCHEMES):
                    return profile, theirs, direct
    raise CannotConnect(why="it names no address and no kind of envelopes that can be used here")


def _check_writable(turn: Turn, envelope: str, theirs: str, way: Route) -> None:
    """Raise Malformed for an inviter with keys, or on a way with keys, that nothing can be encrypted to from here."""
    if envelope == "didcomm/v1":
        turn.packer(envelope).their_key(resolve(theirs), theirs)
    else:
        check_peer(theirs)
    _wrap(turn, envelope, theirs, way, b"{}")


def _ends(inviter: oob_read.Inviter) -> list[tuple[str, Route]]:
    if inviter.route is not None:
        return [(key, inviter.route) for key in inviter.route.recipient_keys]
    did = (inviter.did or "").partition("#")[0]
    return [(did, way) for way in routes(resolve(did))]


def _host(uri: str) -> str:
    """What to call somebody of whom nothing is known but an address."""
    return uri.partition("://")[2].partition("/")[0]


def offer(turn: Turn, envelope: str, label: str, lifetime_s: int) -> tuple[str, str, int]:
    """Make an invitation to connect: the connection's id, the link, and its end in UTC seconds."""
    if not turn.agent.web:
        raise NoAddress()
    if len(turn.agent.connections) >= CONNECTIONS_MAX:
        raise Overloaded(what="The number of connections", limit=CONNECTIONS_MAX)
    identity = new_peer2(turn.moment.random, services(turn, envelope, "#key-1"))
    name, expires = b64url(turn.moment.random(9)), turn.now // 1000 + lifetime_s
    if envelope == "didcomm/v1":
        invitation = oob_write.invitation_v1([identity.did], label, turn.moment.random, expires_time=expires)
    else:
        invitation = oob_write.invitation(identity.did, turn.moment.random, goal=label, expires_time=expires)
    url = oob_write.link(turn.agent.web[0], invitation)
    relationship = Relationship("", identity, "", name, identity.did, requester=False)
    one = Connection(name, "", envelope, relationship, "offered", invitation.id, turn.now, expires=expires * 1000)
    _put(turn, one)
    await_answer(turn, name)
    return name, url, expires


def await_answer(turn: Turn, name: str) -> None:
    """An invitation of ours that nobody has answered has its end, also after a restart."""
    one = turn.agent.connections[name]
    if one.state == "offered":
        turn.timer("offer", name, one.expires - turn.now)


def services(turn: Turn, envelope: str, verkey: str) -> list[dict[str, object]]:
    """What our DID documents say of where we are reached over the web; nothing where we are not."""
    uris = list(turn.agent.web)
    if envelope == "didcomm/v2":
        ways: list[dict[str, object]] = [{"uri": uri, "accept": [envelope]} for uri in uris]
        return [{"id": "#didcomm", "type": "DIDCommMessaging", "serviceEndpoint": ways}] if ways else []
    return [
        {
            "id": f"#didcomm-{number}",
            "type": "did-communication",
            "priority": number,
            "recipientKeys": [verkey],
            "routingKeys": [],
            "accept": ["didcomm/aip2;env=rfc19", "didcomm/aip1"],
            "serviceEndpoint": uri,
        }
        for number, uri in enumerate(uris or ["didcomm:transport/queue"])
    ]


# --- talking --------------------------------------------------------------------------------------------------------


def send(turn: Turn, name: str, message: Message, handle: int | None = None) -> None:
    """Send a message to a connection; with a handle, back where its last one came from."""
    one = turn.agent.connections[name]
    packer = turn.packer(one.envelope)
    if not turn.agent.web:
        message = replace(message, return_route="all")
    named = one.envelope != "didcomm/v1"
    _post(turn, one, packer, pack(one.relationship, message, packer, turn.moment.random, named=named), handle)


def _post(turn: Turn, one: Connection, packer: Packer, envelope: bytes, handle: int | None = None) -> None:
    if handle is not None:
        turn.say(Answered(handle, envelope, packer.media_type))
        return
    way = _way(turn, one)
    if way is None:
        raise Refused(why="a connection that nothing can be sent to")
    try:
        envelope = _wrap(turn, one.envelope, one.relationship.theirs or one.relationship.asked, way, envelope)
    except RemoteError:
        # Whoever says that it is reached over keys that are none gets nothing, and that is all that it brings about.
        turn.say(Measure("dropped", "CannotWrap"))
        return
    turn.say(Post(way.uri, envelope, packer.media_type))


def _wrap(turn: Turn, kind: str, theirs: str, way: Route, envelope: bytes) -> bytes:
    """The envelope in a layer for everybody on the way. Raises Malformed."""
    if not way.routing_keys:
        return envelope
    profile: Profile = "didcomm/v1" if kind == "didcomm/v1" else "didcomm/v2"
    return routing.wrap(envelope, way, theirs, resolve=resolve, random=turn.moment.random, profile=profile)


def reachable(turn: Turn, name: str) -> bool:
    """Whether something can be sent to a connection that has not just asked for it."""
    one = turn.agent.connections[name]
    return one.relationship.established and _way(turn, one) is not None


def _way(turn: Turn, one: Connection) -> Route | None:
    """Over the WebSocket that is open, else where the peer says that it is reached."""
    ways = list(routes(resolve(one.relationship.theirs))) if one.relationship.established else []
    ways = [way for way in ways if way.uri.startswith(WEB_SCHEMES)]
    held = next((way for way in ways if way.uri in turn.agent.web_up), None)
    return held or next((way for way in ways if mediator_mail.works(turn, way.uri)), one.route)


def hear(turn: Turn, name: str, envelope: bytes, handle: int | None) -> Message | None:
    """The message in an envelope that is addressed to this connection; None when the exchange took it, or when it was
    the peer's last. Raises RemoteError."""
    one = turn.agent.connections[name]
    packer = turn.packer(one.envelope)
    match one.state, one.envelope:
        case "offered", _ if one.expires <= turn.now:
            raise Refused(why="an answer to an invitation that is over")
        case "ended", _:
            raise Refused(why="a word on a connection that has ended")
        case "offered", "didcomm/v1":
            _answer(turn, one, envelope, packer, handle)
            return None
        case "requested", "didcomm/v1":
            _hear_response(turn, one, envelope, packer)
            return None
        case "offered", _:
            return _greet(turn, one, envelope, packer)
    relationship, message = unpack(one.relationship, envelope, packer, layered=True)
    if relationship is not one.relationship or one.state != "established":
        fresh = replace(one, relationship=relationship, state="established" if relationship.established else "ended")
        _put(turn, fresh)
        if fresh.state != one.state:
            _tell(turn, fresh)
    if relationship.established and one.envelope == "didcomm/v1" and _hear_rotation(turn, name, message, handle):
        return None
    return message if relationship.established else None


def can_rotate(turn: Turn, name: str) -> bool:
    """Whether the peer can hear of a new DID: v2 says it with whatever is said next, v1 says it now or never."""
    return turn.agent.connections[name].envelope != "didcomm/v1" or reachable(turn, name)


def rotated(turn: Turn, name: str) -> None:
    """Replace our DID. v2 says so with every message from now on, v1 with a message of its own (RFC 0794)."""
    one = turn.agent.connections[name]
    identity = new_peer4(turn.moment.random, services(turn, one.envelope, "#key-1"))
    relationship = rotate(one.relationship, identity, turn.now // 1000)
    if one.envelope == "didcomm/v1":
        send(turn, name, did_rotate.rotate(identity.did, turn.moment.random))
    _put(turn, replace(one, relationship=relationship))


def _hear_rotation(turn: Turn, name: str, message: Message, handle: int | None) -> bool:
    """v1: the peer replaces its DID, or gives it up. False: the message is about something else. Raises RemoteError."""
    one = turn.agent.connections[name]
    if did_rotate.is_rotate(message):
        theirs = did_rotate.read_rotate(message)
        turn.packer(one.envelope).their_key(resolve(theirs), theirs)  # it must be one that can be written to
        _put(turn, replace(one, relationship=replace(one.relationship, theirs=theirs)))
        back = handle if message.return_route in ("all", "thread") else None
        if back is not None or reachable(turn, name):
            send(turn, name, did_rotate.ack(message, turn.moment.random), back)
        return True
    if did_rotate.is_hangup(message):
        fresh = replace(one, relationship=replace(one.relationship, theirs=""), state="ended")
        _put(turn, fresh)
        _tell(turn, fresh)
        return True
    return did_rotate.is_ack(message)


def end(turn: Turn, name: str) -> None:
    """Rotate our DID to nothing, and forget the connection."""
    one = turn.agent.connections[name]
    if one.state != "ended" and one.envelope == "didcomm/v1" and reachable(turn, name):
        send(turn, name, did_rotate.hangup(turn.moment.random))
    elif one.state != "ended" and reachable(turn, name):
        packer = turn.packer(one.envelope)
        message = empty.empty(turn.moment.random)
        envelope = farewell(one.relationship, message, packer, turn.moment.random, turn.now // 1000)
        _post(turn, one, packer, envelope)
    turn.change(connections={key: other for key, other in turn.agent.connections.items() if key != name})


def expire(turn: Turn, name: str) -> None:
    """Nobody has answered an invitation of ours in time."""
    one = turn.agent.connections.get(name)
    if one is not None and one.state == "offered" and one.expires <= turn.now:
        turn.change(connections={key: other for key, other in turn.agent.connections.items() if key != name})


# --- first contact --------------------------------------------------------------------------------------------------


def _greet(turn: Turn, one: Connection, envelope: bytes, packer: Packer) -> Message:
    """v2: the first message to an invitation's DID. From now on a DID speaks that nobody else has seen."""
    opened = open_first([one.relationship.mine], envelope, packer)
    if opened.message.pthid != one.pthid:
        raise Refused(why="a message that is not bound to the invitation")
    identity = new_peer4(turn.moment.random, services(turn, one.envelope, "#key-1"))
    answering = replace(one.relationship, theirs=opened.sender, greeted=True)
    relationship = rotate(answering, identity, turn.now // 1000)
    fresh = replace(one, relationship=relationship, state="established", label=short_form(opened.sender)[:24])
    _put(turn, fresh)
    _tell(turn, fresh)
    return opened.message


def _request(turn: Turn, one: Connection) -> None:
    """v1: ask for an exchange of DIDs."""
    mine, asked = one.relationship.mine, one.relationship.asked
    signers = tuple(method.key for method in resolve(asked).authentication if method.key.kind == "Ed25519")
    invited_by = None if asked.startswith("did:key:") else asked
    requester, message = didexchange.request(
        mine.did, turn.agent.label, signers, turn.moment.random, pthid=one.pthid, invited_by=invited_by
    )
    packer = turn.packer(one.envelope)
    if not turn.agent.web:
        message = replace(message, return_route="all")
    envelope = pack_to(mine, asked, message, packer, turn.moment, named=False)
    _put(turn, replace(one, relationship=replace(one.relationship, theirs=""), exchange=requester))
    _post(turn, one, packer, envelope)


def _hear_response(turn: Turn, one: Connection, envelope: bytes, packer: Packer) -> None:
    """v1: the answer to our request, or a refusal of it."""
    opened = open_first([one.relationship.mine], envelope, packer)
    if one.exchange is None:
        raise Refused(why="an answer that nobody waits for")
    if problem.is_problem(opened.message):
        refused = didexchange.receive_problem(one.exchange, opened.message)
        why = refused.problem.text or refused.problem.code if refused.problem else ""
        _put(turn, replace(one, state="ended", exchange=None))
        turn.say(Notify(ConnectionChanged(one.id, f"{one.label} refuses to connect: {why}")))
        return
    done, complete = didexchange.receive_response(
        one.exchange, opened.message, _verkey(opened.sender), turn.moment.random
    )
    assert done.peer is not None
    relationship = replace(one.relationship, theirs=done.peer.did, greeted=True)
    fresh = replace(one, relationship=relationship, state="established", exchange=None)
    _put(turn, fresh)
    send(turn, one.id, complete)
    _tell(turn, fresh)


def _answer(turn: Turn, one: Connection, envelope: bytes, packer: Packer, handle: int | None) -> None:
    """v1: somebody answers our invitation with a request."""
    invited = one.relationship.mine
    opened = open_first([invited], envelope, packer)
    responder = didexchange.receive_request(opened.message, one.pthid, _verkey(opened.sender))
    identity = new_peer4(turn.moment.random, services(turn, one.envelope, "#key-1"))
    _, response = didexchange.respond(
        responder, identity.did, SecretKey("Ed25519", invited.signing_seed), turn.moment.random
    )
    relationship = replace(one.relationship, mine=identity, theirs=responder.peer.did, thid=opened.message.thread)
    label = responder.peer.label[:LABEL_CHARS_MAX] or short_form(responder.peer.did)[:24]
    fresh = replace(one, relationship=relationship, state="established", label=label)
    _put(turn, fresh)
    send(turn, one.id, response, handle if opened.message.return_route == "all" else None)
    _tell(turn, fresh)


def _verkey(sender: str) -> PublicKey:
    """The Ed25519 key of a v1 sender who is known by its key alone."""
    return PublicKey("Ed25519", did_key_bytes(sender))


def _put(turn: Turn, one: Connection) -> None:
    turn.change(connections={**turn.agent.connections, one.id: one})


def _tell(turn: Turn, one: Connection) -> None:
    text = f"Connected with {one.label}." if one.state == "established" else f"{one.label} has ended the connection."
    turn.say(Notify(ConnectionChanged(one.id, text)))
