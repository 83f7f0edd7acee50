"""Standard DIDComm protocols with peers: trust ping, feature discovery, basic messages, problem reports.

Answers take the route of all messages to that peer. A query is remembered until it is answered, to measure the round
trip; nothing waits for the answer.
"""

from msgspec.structs import replace

from zerochat.crypto.encoding import compact_json
from zerochat.didcomm.did import resolve_pinned, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, Packer, Profile
from zerochat.didcomm.protocols import (
    STANDARD,
    ack,
    basic,
    didexchange,
    exchange,
    features,
    mediation,
    oob_read,
    ping,
    problem,
    rotate,
    routing,
    standard_answer,
)
from zerochat.didcomm.protocols.features import Features
from zerochat.didcomm.protocols.problem import Breaker
from zerochat.didcomm.uri import parse_type
from zerochat.errors import LocalError, PostTooLong
from zerochat.group.effects import Notify
from zerochat.group.event_log.event import RECORD_BYTES_MAX
from zerochat.group.external import mediators, outbox, sending
from zerochat.group.external.changes import put
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import Relationship, own_key, pack
from zerochat.group.notifications import BasicMessageReceived, FeaturesDisclosed, Pong, ProblemReported, Transport
from zerochat.group.state import BasicMessage, PeerQuery, PeerRef
from zerochat.group.state.external import ConnectionState
from zerochat.group.transaction import Transaction
from zerochat.group.wire import messages
from zerochat.limits import POST_BYTES_MAX

PEER_QUERIES_MAX = 256
QUERY_MS_MAX = 600_000
"""A later answer is ignored."""
FEATURES_SHOWN_MAX = 256
MESSAGES_MAX, MESSAGES_CHARS_MAX = 200, 256 * 1024
"""Basic messages that are kept of one connection, oldest dropped first, except those in its outbox, which has its
own limits."""
UNSUPPORTED, EXPIRED = "e.m.msg.unsupported", "e.m.req.time"

CONNECTION_FEATURES = STANDARD | Features(
    protocols=(
        (basic.PROTOCOL, ("sender", "receiver")),
        (basic.PROTOCOL_V1, ("sender", "receiver")),
        (oob_read.PROTOCOL, ("sender", "receiver")),
        (oob_read.PROTOCOL_V1, ("sender", "receiver")),
        (didexchange.PROTOCOLS["1.0"], ("requester", "responder")),
        (didexchange.PROTOCOLS["1.1"], ("requester", "responder")),
        (rotate.PROTOCOL, ("rotating_party", "observing_party")),
        (routing.PROTOCOL, ("sender", "recipient")),
    ),
    max_receive_bytes=ENVELOPE_BYTES_MAX,
)
"""The features disclosed to a connection, which it could also find out by trying."""
PUB_SUB = "https://didcomm.org/pub-sub/1.0"
"""How the thesis calls its protocol of groups, whose queues ours have."""
MEMBER_FEATURES = STANDARD | Features(
    protocols=(
        (exchange.PROTOCOL.rstrip("/"), ("requester", "responder")),
        (messages.PROTOCOL.rstrip("/"), ("member",)),
        (PUB_SUB, ("publisher", "subscriber")),
    )
)
"""The features disclosed to a member: nothing that would link it to other groups or connections."""


class NotConnected(LocalError):
    """{peer} cannot be reached now. A member has to be connected (`zerochat members GROUP` shows who is); a connection
    without an address of its own can only receive answers."""


# --- queries --------------------------------------------------------------------------------------------------------


def send_ping(tx: Transaction, peer: PeerRef) -> str:
    """Ping a peer. Returns the thread of the answer. Raises NotConnected."""
    message = ping.ping(tx.context.random, _profile(tx, peer))
    return _send_query(tx, peer, message, PeerQuery("ping", peer, tx.now))


def query_features(tx: Transaction, peer: PeerRef, match: str) -> str:
    """Query a peer's features. Returns the thread of the answer. Raises NotConnected."""
    if _profile(tx, peer) == "didcomm/v1":
        message = features.query_v1(tx.context.random, match)
    else:
        message = features.queries(tx.context.random, features.Query("protocol", match))
    return _send_query(tx, peer, message, PeerQuery("features", peer, tx.now))


def send_message(tx: Transaction, name: str, text: str) -> str:
    """Send a basic message to a connection. Returns the message's id. Raises NotConnected or PostTooLong."""
    peer = PeerRef(connection=name)
    size = len(text.encode())
    # in JSON, control characters take six bytes
    if size > POST_BYTES_MAX or len(compact_json(text)) > RECORD_BYTES_MAX:
        raise PostTooLong(size=size, limit=POST_BYTES_MAX)
    if not _reachable(tx, peer):
        raise NotConnected(peer=label_of(tx, peer))
    message = basic.basic(text, tx.now // 1000, tx.context.random, _profile(tx, peer))
    message = replace(message, please_ack=("",))
    _store_message(tx, name, BasicMessage(message.id, tx.now, mine=True, text=text, status="waiting"))
    outbox.submit(tx, name, message)
    return message.id


def _store_message(tx: Transaction, name: str, message: BasicMessage) -> bool:
    """Store a sent or received basic message; the oldest are dropped, but none that waits to be sent: the user is told
    of its end. False: a duplicate."""
    one = tx.agent.connections[name]
    if any(message.id == known.id and message.mine == known.mine for known in one.messages):
        return False
    kept = (*one.messages, message)
    settled = [each for each in kept if each.status != "waiting"]
    del settled[: max(0, len(kept) - MESSAGES_MAX)]
    while sum(len(each.text) + sum(map(len, each.attachments)) for each in settled) > MESSAGES_CHARS_MAX:
        del settled[0]
    left = {(each.id, each.mine) for each in settled}
    kept = tuple(each for each in kept if each.status == "waiting" or (each.id, each.mine) in left)
    tx.update_agent(connections={**tx.agent.connections, name: replace(one, messages=kept)})
    return True


def _send_query(tx: Transaction, peer: PeerRef, message: Message, query: PeerQuery) -> str:
    if not _reachable(tx, peer):
        raise NotConnected(peer=label_of(tx, peer))
    kept = {k: one for k, one in tx.agent.peer_queries.items() if tx.now - one.at < QUERY_MS_MAX}
    for name in list(kept)[: max(0, len(kept) + 1 - PEER_QUERIES_MAX)]:
        del kept[name]
    tx.update_agent(peer_queries={**kept, message.id: query})
    _send(tx, peer, message, by_user=True)
    return message.id


def _send(
    tx: Transaction, peer: PeerRef, message: Message, handle: int | None = None, *, by_user: bool = False
) -> None:
    if peer.connection:
        sending.send(tx, peer.connection, message, handle, by_user=by_user)
        return
    relationship = tx.group(peer.group).links.relationships[peer.member]
    envelope = pack(relationship, message, tx.packer_of(peer.group), tx.context.random)
    mediator_mail.send(tx, peer.group, peer.member, envelope)


def _reachable(tx: Transaction, peer: PeerRef) -> bool:
    if peer.connection:
        return sending.reachable(tx, peer.connection)
    group = tx.group(peer.group)
    relationship = group.links.relationships.get(peer.member)
    return (
        relationship is not None and relationship.established and mediator_mail.reachable(tx, peer.group, peer.member)
    )


def _packer(tx: Transaction, peer: PeerRef) -> Packer:
    return tx.packer(tx.agent.connections[peer.connection].envelope) if peer.connection else tx.packer_of(peer.group)


def _profile(tx: Transaction, peer: PeerRef) -> Profile:
    """The DIDComm version that a peer uses."""
    return "didcomm/v1" if _packer(tx, peer).name == "didcomm/v1" else "didcomm/v2"


def label_of(tx: Transaction, peer: PeerRef) -> str:
    """The display name of a peer."""
    if peer.connection:
        return tx.agent.connections[peer.connection].label
    group = tx.group(peer.group)
    member = group.view.members.get(peer.member) or group.view.former.get(peer.member)
    return member.label if member else peer.member


# --- messages -------------------------------------------------------------------------------------------------------


def receive_message(
    tx: Transaction, peer: PeerRef, message: Message, relationship: Relationship, handle: int | None = None
) -> None:
    """An authentic message that belongs to no other protocol of ours. Raises RemoteError.

    An unknown message changes nothing: it may be of a later version, and is answered with a problem report.
    """
    if peer.connection and (acknowledged := ack.acknowledged(message)):
        outbox.acknowledged(tx, peer.connection, acknowledged)
    if ping.is_response(message):
        _receive_pong(tx, peer, message, relationship)
    elif features.is_disclosure(message):
        _receive_features(tx, peer, message)
    elif problem.is_problem(message):
        _receive_problem(tx, peer, message, handle)
    elif peer.connection and basic.is_basic(message):
        earlier = [each.id for each in tx.agent.connections[peer.connection].messages if not each.mine]
        _show_message(tx, peer.connection, message)
        if owed := ack.acks_to_send(message, earlier):
            _reply(tx, peer, ack.pure_ack(message, owed, tx.context.random, _profile(tx, peer)), handle)
    else:
        disclosed = CONNECTION_FEATURES if peer.connection else MEMBER_FEATURES
        reply = standard_answer(message, disclosed=disclosed, random=tx.context.random, profile=_profile(tx, peer))
        if reply is not None:
            _reply(tx, peer, reply, handle)
        elif not _is_supported(message):
            _report(tx, peer, message, UNSUPPORTED, handle)


def refuse_expired(tx: Transaction, peer: PeerRef, message: Message, handle: int | None) -> bool:
    """Whether a message has expired (`expires_time`), by our clock: then it is reported, and not processed."""
    if message.expires_time is None or tx.now // 1000 < message.expires_time:
        return False
    if problem.may_report(message):
        _report(tx, peer, message, EXPIRED, handle)
    return True


def answer_invitation(tx: Transaction, name: str) -> None:
    """Handle the request of the invitation that our user has accepted, once the connection is established. Raises
    RemoteError."""
    one = tx.agent.connections.get(name)
    if one is None or one.request is None or one.state is not ConnectionState.ESTABLISHED:
        return
    put(tx, replace(one, request=None))
    peer, message = PeerRef(connection=name), tx.packer(one.envelope).parse(one.request.plain)
    if message.expires_time is not None and message.expires_time <= tx.now // 1000:
        return
    if basic.is_basic(message):
        _show_message(tx, name, message)
        return
    profile = _profile(tx, peer)
    reply = standard_answer(message, disclosed=CONNECTION_FEATURES, random=tx.context.random, profile=profile)
    if reply is not None:
        outbox.submit(tx, name, replace(reply, pthid=one.pthid))


def _show_message(tx: Transaction, name: str, message: Message) -> None:
    """Store a basic message of a connection, and tell the user unless it is a copy. Raises Malformed."""
    found = basic.read_basic(message)
    received = BasicMessage(message.id, tx.now, mine=False, text=found.content, attachments=found.attachments)
    if _store_message(tx, name, received):
        tx.emit(Notify(BasicMessageReceived(name, found.content, found.attachments)))


def _reply(tx: Transaction, peer: PeerRef, reply: Message, handle: int | None) -> None:
    if handle is not None or _reachable(tx, peer):
        _send(tx, peer, reply, handle)


# --- problems -------------------------------------------------------------------------------------------------------


def _is_supported(message: Message) -> bool:
    """Whether the message type is known, now or in the past: late copies are no problem."""
    if ack.is_empty(message) or ping.is_ping(message) or not problem.may_report(message):
        return True
    return parse_type(message.type).protocol == "didexchange" or message.type.startswith(messages.PROTOCOL)


def _report(tx: Transaction, peer: PeerRef, about: Message, problem_code: str, handle: int | None) -> None:
    """Report a problem with a message, within the limit of problem reports."""
    breaker, code = _breaker(tx, peer).sending(problem_code, tx.now // 1000)
    _put_breaker(tx, peer, breaker)
    if code is not None:
        _send_problem(tx, peer, about, code, handle)


def _receive_problem(tx: Transaction, peer: PeerRef, message: Message, handle: int | None) -> None:
    """A problem report. It is never answered with another one, except the final one when the limit is reached."""
    report, before = problem.read_problem(message), _breaker(tx, peer)
    if before.is_broken:
        return
    breaker, code = before.receiving(tx.now // 1000)
    _put_breaker(tx, peer, breaker)
    tx.emit(Notify(ProblemReported(label_of(tx, peer), report.code, report.text)))
    if code is not None:
        _send_problem(tx, peer, message, code, handle)
    elif peer.connection and (problem.begins_with(report.code, "e.p.req") or report.code == mediation.NOT_GRANTED_V1):
        mediators.handle_problem(tx, peer.connection)


def _send_problem(tx: Transaction, peer: PeerRef, about: Message, code: str, handle: int | None) -> None:
    _reply(tx, peer, problem.report(code, about, tx.context.random, _profile(tx, peer)), handle)


def _breaker(tx: Transaction, peer: PeerRef) -> Breaker:
    """The problem counter of a peer; it is reset after an hour."""
    if peer.connection:
        breaker = tx.agent.connections[peer.connection].breaker
    else:
        breaker = tx.group(peer.group).links.peers[peer.member].breaker
    return breaker if tx.now // 1000 - breaker.since_s < problem.ERRORS_WINDOW_S else Breaker()


def _put_breaker(tx: Transaction, peer: PeerRef, breaker: Breaker) -> None:
    if peer.connection:
        one = replace(tx.agent.connections[peer.connection], breaker=breaker)
        tx.update_agent(connections={**tx.agent.connections, one.id: one})
    else:
        tx.update_peer(peer.group, peer.member, breaker=breaker)


# --- answers --------------------------------------------------------------------------------------------------------


def _take_question(tx: Transaction, peer: PeerRef, message: Message, about: str) -> PeerQuery | None:
    """The query that a message answers, which is removed."""
    query = tx.agent.peer_queries.get(message.thid or "")
    late = query is not None and tx.now - query.at >= QUERY_MS_MAX
    if query is None or late or query.kind != about or query.peer != peer:
        return None
    tx.update_agent(peer_queries={k: one for k, one in tx.agent.peer_queries.items() if k != message.thid})
    return query


def _receive_pong(tx: Transaction, peer: PeerRef, message: Message, relationship: Relationship) -> None:
    query = _take_question(tx, peer, message, "ping")
    if query is None or message.thid is None:
        return
    packer = _packer(tx, peer)
    theirs = packer.their_key(resolve_pinned(relationship.theirs), short_form(relationship.theirs))
    mine = own_key(packer, relationship.mine, relationship.mine.short, theirs).kid
    if peer.connection:
        way: Transport = "web"
    else:
        way = "mediator" if mediator_mail.goes_by_mail(tx, peer.group, peer.member) else "direct"
    protection = PROTECTIONS.get(packer.name, packer.name)
    tx.emit(Notify(Pong(message.thid, label_of(tx, peer), tx.now - query.at, protection, theirs.kid, mine, way)))


PROTECTIONS = {
    "didcomm/v2": "didcomm/v2 authcrypt (ECDH-1PU+A256KW, A256CBC-HS512)",
    "didcomm/v1": "didcomm/v1 authcrypt (RFC 0019: XSalsa20-Poly1305, ChaCha20-Poly1305)",
}
"""The cryptographic protection of each envelope format."""


def _receive_features(tx: Transaction, peer: PeerRef, message: Message) -> None:
    if message.thid is None or _take_question(tx, peer, message, "features") is None:
        return
    found = features.read_disclosure(message)
    listed = [("protocol", name) for name, _ in found.protocols]
    listed += [("goal-code", code) for code in found.goal_codes] + [("header", header) for header in found.headers]
    told = tuple(sorted(listed)[:FEATURES_SHOWN_MAX])
    tx.emit(Notify(FeaturesDisclosed(message.thid, label_of(tx, peer), told)))
