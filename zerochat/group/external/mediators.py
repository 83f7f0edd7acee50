"""Our mediators: requesting mediation, registering mailboxes, and picking up stored envelopes over a WebSocket.

A mediator is a connection that we only dial out to, over a WebSocket that stays open; the protocol itself is in
`didcomm/protocols/mediation_client.py`. Delivered envelopes go through the core like all others, and are acknowledged
in the same step: the acknowledgement leaves after the commit, so the mediator deletes only what is on our disk.
"""

from collections.abc import Callable

from msgspec.structs import replace

from zerochat.didcomm.did import resolve_pinned
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import mediation, mediation_client, pickup, problem
from zerochat.didcomm.protocols.mediation_client import MediationState, MediationStep
from zerochat.didcomm.service import routes
from zerochat.errors import RemoteError
from zerochat.group.effects import CloseWebSocket, Measure, Notify, OpenWebSocket
from zerochat.group.external import connections, key_mediation, mailbox_shares, sending, short_links
from zerochat.group.links import mailboxes, mediator_mail
from zerochat.group.links.relationship import Relationship
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state import Connection
from zerochat.group.state.external import ConnectionState
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

POLL_MS = 300_000
"""How often a mediator is polled in spite of live delivery, in case a message was lost."""
EXCHANGE_MS = 1_000
"""How often a mediator of v1 is tried until the DID exchange with it has ended."""


def websocket_uri(one: Connection) -> str:
    """The mediator's WebSocket URI; empty if it has none, or has ended the connection."""
    candidates = list(routes(resolve_pinned(one.relationship.theirs))) if one.relationship.established else []
    if candidates and one.envelope == "didcomm/v1" and one.route is not None:
        candidates += [one.route, *one.spare]  # its own DID may have fewer addresses than its invitation
    return next((route.uri for route in candidates if route.uri.startswith(("ws://", "wss://"))), "")


def request_mediation(tx: Transaction, name: str) -> None:
    """Request mediation from a new connection; in v1 after its DID exchange (`handle_rotation`). Raises
    CannotConnect."""
    one = tx.agent.connections[name]
    if one.envelope == "didcomm/v1":
        _put_state(tx, one, MediationState("", one.relationship.mine.did, version="1.0"))
        return
    if not websocket_uri(one):
        raise connections.CannotConnect(why="the other side offers no mediation over a WebSocket")
    begin_mediation(tx, name)


def begin_mediation(tx: Transaction, name: str) -> None:
    """Request mediation as soon as the mediator can be reached; after a restart, reconnect."""
    one = tx.agent.connections[name]
    state = one.mediation or MediationState(one.relationship.theirs, one.relationship.mine.did, one.pthid)
    _put_state(tx, one, mediation_client.disconnected(state))
    if uri := websocket_uri(one):
        tx.emit(OpenWebSocket(uri))
        tx.set_timer(TimerKind.MEDIATOR, name, POLL_MS)
        if uri in tx.agent.websockets_up:  # another relationship with the same mediator keeps it open
            _start_session(tx, tx.agent.connections[name])


def end_mediation(tx: Transaction, name: str) -> None:
    """Stop using this mediator."""
    short_links.withdraw_all(tx, name)
    _unregister(tx, tx.agent.connections[name])
    _release(tx, name, websocket_uri(tx.agent.connections[name]))
    tx.update_agent(
        connections={
            **tx.agent.connections,
            name: replace(tx.agent.connections[name], mediation=None, shares=(), shares_asked=""),
        },
    )
    announce_reach(tx)
    mailboxes.finish_changes(tx)


def _unregister(tx: Transaction, one: Connection) -> None:
    """Remove our mailboxes; otherwise a later connection to the same mediator could not register them."""
    state = one.mediation
    if state is None or not state.connected or not sending.reachable(tx, one.id):
        return
    left = state.registered | state.pending
    while left:
        fresh = replace(state, registered=left, refused=frozenset(), pending=frozenset())
        output = mediation_client.set_dids(fresh, (), tx.context.random)
        if not output.messages:
            return
        for message in output.messages:
            sending.send(tx, one.id, message)
        left -= output.state.pending


def handle_rotation(tx: Transaction, name: str, before: Relationship) -> None:
    """A message has come: if the mediator has a DID now, or another one, its WebSocket may have changed or be gone."""
    one = tx.agent.connections[name]
    if one.mediation is not None and one.state is ConnectionState.ENDED and one.mediation.phase == "requested":
        _put_state(tx, one, replace(one.mediation, phase="denied"))  # v1: the answer to our exchange request
        return
    if one.mediation is None or one.relationship.theirs == before.theirs:
        return
    if not one.relationship.established:
        end_mediation(tx, name)
        return
    uri = websocket_uri(one)
    if uri != (old := websocket_uri(replace(one, relationship=before))):
        _release(tx, name, old)
        begin_mediation(tx, name)


def _release(tx: Transaction, name: str, uri: str) -> None:
    """Close a WebSocket unless another mediator uses it too."""
    others = (other for key, other in tx.agent.connections.items() if key != name and other.mediation is not None)
    if uri and all(websocket_uri(other) != uri for other in others):
        tx.emit(CloseWebSocket(uri))


def handle_websocket_up(tx: Transaction, uri: str) -> None:
    """A WebSocket of ours is open: send pending requests, and pick up stored envelopes."""
    for one in _mediators_at(tx, uri):
        _start_session(tx, one)


def _start_session(tx: Transaction, one: Connection) -> None:
    state = one.mediation
    assert state is not None
    if one.outbox:  # the end of the DID exchange, without which a mediator of v1 refuses what follows
        tx.set_timer(TimerKind.MEDIATOR, one.id, EXCHANGE_MS)
        return
    _use_long_did(tx, one)
    wanting = replace(state, mediator=one.relationship.theirs, desired=_desired(tx, state))
    _apply_output(tx, one, mediation_client.connected(wanting, tx.context.random))
    short_links.reconnected(tx, one.id)
    mailbox_shares.reconnected(tx, one.id)


def _use_long_did(tx: Transaction, one: Connection) -> None:
    """The mediator may have forgotten us: with our DID's long form it can still decrypt our messages, and reply."""
    fresh = replace(one, relationship=replace(one.relationship, acknowledged=False))
    tx.update_agent(connections={**tx.agent.connections, one.id: fresh})


def handle_websocket_down(tx: Transaction, uri: str) -> None:
    for one in _mediators_at(tx, uri):
        assert one.mediation is not None
        _put_state(tx, one, mediation_client.disconnected(one.mediation))


def _mediators_at(tx: Transaction, uri: str) -> list[Connection]:
    return [one for one in tx.agent.connections.values() if one.mediation is not None and websocket_uri(one) == uri]


def poll_mediator(tx: Transaction, name: str) -> None:
    """The timer: query the mediator's status."""
    one = tx.agent.connections.get(name)
    if one is None or one.mediation is None:
        return
    tx.set_timer(TimerKind.MEDIATOR, name, POLL_MS)
    if not one.mediation.connected and websocket_uri(one) in tx.agent.websockets_up:
        _start_session(tx, one)
    else:
        _apply_output(tx, one, mediation_client.poll(one.mediation, tx.context.random))
        mailbox_shares.polled(tx, name)


def update_mailboxes(tx: Transaction) -> None:
    """Groups, joins or invitations may have changed: register the present mailboxes with every mediator."""
    for one in list(tx.agent.connections.values()):
        if one.mediation is not None and one.mediation.desired != (desired := _desired(tx, one.mediation)):
            _apply_output(tx, one, mediation_client.set_dids(one.mediation, desired, tx.context.random))


def _desired(tx: Transaction, state: MediationState) -> frozenset[str]:
    """What this mediator should serve."""
    return key_mediation.keys(tx.agent, state) if state.version == "1.0" else mediator_mail.mailboxes(tx.agent)


def receive_mediation(tx: Transaction, name: str, message: Message, take: Callable[[bytes], None]) -> bool:
    """Process a mediation message of a connection; False for any other. `take` processes one envelope. Raises
    RemoteError."""
    one = tx.agent.connections[name]
    if one.mediation is not None and one.mediation.version == "1.0" and problem.is_problem(message):
        refused = mediation_client.refuse_pickup(one.mediation, problem.read_problem(message).thread)
        if refused is not None:
            _put_state(tx, one, refused)
        return refused is not None
    if one.mediation is None or (mediation.kind_of(message) is None and pickup.kind_of(message) is None):
        return False
    before = one.mediation.phase
    output = _check_grant(mediation_client.receive(one.mediation, message, tx.context.random))
    _apply_output(tx, one, output)
    for parcel in output.parcels:
        _deliver(tx, parcel.envelope, take)
    one = tx.agent.connections[name]
    if output.parcels and one.mediation is not None:
        ids = [parcel.id for parcel in output.parcels]
        _apply_output(tx, one, mediation_client.acknowledge(one.mediation, ids, tx.context.random))
    mailboxes.finish_changes(tx)
    if output.state.version == "1.0" and mediation.kind_of(message) is not None:
        for key, other in tx.agent.connections.items():
            if other.outbox and key_mediation.is_mediated(other):
                tx.set_timer(TimerKind.EXTERNAL_OUTBOX, key, 1)
    if output.state.phase != before and output.state.phase == "granted":
        text = (
            f"{one.label} now stores messages for you while you are offline; the members of your groups are informed."
            if output.state.routing_did is not None
            else f"{one.label} now stores messages of connections in DIDComm v1 for you; groups need another mediator."
        )
        tx.emit(Notify(ConnectionChanged(name, text)))
        announce_reach(tx)
    elif output.state.phase != before:
        tx.emit(Notify(ConnectionChanged(name, f"{one.label} refused to be your mediator.")))
    return True


def _check_grant(output: MediationStep) -> MediationStep:
    """A grant must name a usable address; an unusable one would be announced to every member."""
    state = output.state
    if state.phase != "granted" or (state.routing_did and mediator_mail.route_over(state.mediator, state.routing_did)):
        return output
    if key_mediation.route_over(state) is not None:
        return output
    return MediationStep(replace(state, phase="denied", routing_did=None, endpoint="", routing_keys=()))


def handle_problem(tx: Transaction, name: str) -> None:
    """A mediator reports a problem: it may have forgotten us after a long time, so request mediation again."""
    one = tx.agent.connections[name]
    if one.mediation is not None and one.mediation.phase == "granted" and one.mediation.connected:
        _use_long_did(tx, one)
        _apply_output(tx, one, mediation_client.restart(one.mediation, tx.context.random))


def _deliver(tx: Transaction, envelope: bytes, take: Callable[[bytes], None]) -> None:
    """Process one envelope. One that is refused would be refused again, so it is acknowledged like the others."""
    before = tx.agent, list(tx.effects)
    try:
        take(envelope)
    except RemoteError as error:
        tx.agent, tx.effects = before
        tx.emit(Measure("dropped", error.code))


def announce_reach(tx: Transaction) -> None:
    """Our routes have changed: inform every member."""
    for name, group in tx.agent.groups.items():
        if group.state != "left":
            mailboxes.announce(tx, name)


def _apply_output(tx: Transaction, one: Connection, output: MediationStep) -> None:
    _put_state(tx, one, output.state)
    keys, us = mediator_mail.mailbox_keys(tx.agent), tx.agent.connections[one.id].relationship
    for message in output.messages:
        if one.envelope == "didcomm/v1":  # where no DIDs are named
            sending.send(tx, one.id, replace(message, from_=None, to=()))
            continue
        addressed = replace(message, from_=us.mine.did, to=(us.theirs,))
        sending.send(tx, one.id, mediation.with_proofs(addressed, keys))


def _put_state(tx: Transaction, one: Connection, state: MediationState) -> None:
    now = tx.agent.connections[one.id]
    tx.update_agent(connections={**tx.agent.connections, one.id: replace(now, mediation=state)})
