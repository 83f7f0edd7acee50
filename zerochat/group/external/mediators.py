"""Our mediators: asking them to take in what is for us, saying for which mailboxes, and fetching what they have.

A mediator is a connection that we only ever dial out to, over a WebSocket that is held open; what is said on it is
decided in `didcomm/protocols/mediation_client.py`. What it delivers goes through the core like anything else, and is
acknowledged in the same step, so the acknowledgement leaves after the commit and the mediator forgets nothing that is
not on our disk.
"""

from collections.abc import Callable

from msgspec.structs import replace

from zerochat.didcomm.did import resolve
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import mediation, mediation_client, pickup
from zerochat.didcomm.protocols.mediation_client import Mediated, Said
from zerochat.didcomm.service import routes
from zerochat.errors import RemoteError
from zerochat.group.effects import Hold, Measure, Notify, Release
from zerochat.group.external import connections
from zerochat.group.links import mediator_mail, pairing
from zerochat.group.links.relationship import Relationship
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state import Connection
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Turn

POLL_MS = 300_000
"""How often a mediator is asked although it should have told: in case an answer was lost."""


def live_uri(one: Connection) -> str:
    """Where the mediator takes WebSockets; empty where it does not, or has ended the connection."""
    ways = routes(resolve(one.relationship.theirs)) if one.relationship.established else ()
    return next((way.uri for way in ways if way.uri.startswith(("ws://", "wss://"))), "")


def ask(turn: Turn, name: str) -> None:
    """Ask whoever is behind a new connection to be our mediator. Raises CannotConnect."""
    one = turn.agent.connections[name]
    if one.envelope != "didcomm/v2" or not live_uri(one):
        raise connections.CannotConnect(why="it leads to nobody who could take in what is for you over a WebSocket")
    begin(turn, name)


def begin(turn: Turn, name: str) -> None:
    """Ask a mediator to take us in, as soon as it can be reached; after a start, be there again."""
    one = turn.agent.connections[name]
    state = one.mediation or Mediated(one.relationship.theirs, one.relationship.mine.did, one.pthid)
    _put(turn, one, mediation_client.closed(state))
    if uri := live_uri(one):
        turn.say(Hold(uri))
        turn.timer("mediator", name, POLL_MS)
        if uri in turn.agent.web_up:  # another relationship with the same mediator has left it open
            _open(turn, turn.agent.connections[name])


def end(turn: Turn, name: str) -> None:
    """We do without this mediator from now on."""
    _unregister(turn, turn.agent.connections[name])
    _release(turn, name, live_uri(turn.agent.connections[name]))
    turn.change(
        connections={**turn.agent.connections, name: replace(turn.agent.connections[name], mediation=None)},
    )
    tell_groups(turn)


def _unregister(turn: Turn, one: Connection) -> None:
    """Give our mailboxes up, or a later connection to the same mediator could not have them."""
    state = one.mediation
    if state is None or not state.connected or not connections.reachable(turn, one.id):
        return
    left = state.registered | state.asked
    while left:
        fresh = replace(state, registered=left, refused=frozenset(), asked=frozenset())
        said = mediation_client.want(fresh, (), turn.moment.random)
        if not said.messages:
            return
        for message in said.messages:
            connections.send(turn, one.id, message)
        left -= said.state.asked


def moved(turn: Turn, name: str, before: Relationship) -> None:
    """A message has come: if the mediator has another DID by now, it may be reached elsewhere, or not at all."""
    one = turn.agent.connections[name]
    if one.mediation is None or one.relationship.theirs == before.theirs:
        return
    if not one.relationship.established:
        end(turn, name)
        return
    uri = live_uri(one)
    if uri != (old := live_uri(replace(one, relationship=before))):
        _release(turn, name, old)
        begin(turn, name)


def _release(turn: Turn, name: str, uri: str) -> None:
    """Close a WebSocket unless another mediator is reached over it too."""
    others = (other for key, other in turn.agent.connections.items() if key != name and other.mediation is not None)
    if uri and all(live_uri(other) != uri for other in others):
        turn.say(Release(uri))


def web_up(turn: Turn, uri: str) -> None:
    """A WebSocket of ours is open: say what is due, and fetch what waits."""
    for one in _at(turn, uri):
        _open(turn, one)


def _open(turn: Turn, one: Connection) -> None:
    state = one.mediation
    assert state is not None
    _introduce(turn, one)
    wanting = replace(state, wanted=mediator_mail.mailboxes(turn.agent))
    _follow(turn, one, mediation_client.opened(wanting, turn.moment.random))


def _introduce(turn: Turn, one: Connection) -> None:
    """A mediator may have forgotten us: with our DID's long form it can still read what we say, and say so."""
    fresh = replace(one, relationship=replace(one.relationship, greeted=False))
    turn.change(connections={**turn.agent.connections, one.id: fresh})


def web_down(turn: Turn, uri: str) -> None:
    for one in _at(turn, uri):
        assert one.mediation is not None
        _put(turn, one, mediation_client.closed(one.mediation))


def _at(turn: Turn, uri: str) -> list[Connection]:
    return [one for one in turn.agent.connections.values() if one.mediation is not None and live_uri(one) == uri]


def poll(turn: Turn, name: str) -> None:
    """The timer: ask what is waiting."""
    one = turn.agent.connections.get(name)
    if one is not None and one.mediation is not None:
        _follow(turn, one, mediation_client.poll(one.mediation, turn.moment.random))
        turn.timer("mediator", name, POLL_MS)


def settle(turn: Turn) -> None:
    """Groups, joins or invitations may have come or gone: tell every mediator which mailboxes it should keep."""
    for one in list(turn.agent.connections.values()):
        if one.mediation is not None and one.mediation.wanted != (wanted := mediator_mail.mailboxes(turn.agent)):
            _follow(turn, one, mediation_client.want(one.mediation, wanted, turn.moment.random))


def hear(turn: Turn, name: str, message: Message, take: Callable[[bytes], None]) -> bool:
    """A message from a connection: was it for its mediation? `take` hears one envelope. Raises RemoteError."""
    one = turn.agent.connections[name]
    if one.mediation is None or (mediation.kind_of(message) is None and pickup.kind_of(message) is None):
        return False
    before = one.mediation.phase
    said = _checked(mediation_client.hear(one.mediation, message, turn.moment.random))
    _follow(turn, one, said)
    for parcel in said.parcels:
        _take(turn, parcel.envelope, take)
    one = turn.agent.connections[name]
    if said.parcels and one.mediation is not None:
        ids = [parcel.id for parcel in said.parcels]
        _follow(turn, one, mediation_client.acknowledge(one.mediation, ids, turn.moment.random))
    if said.state.phase != before and said.state.phase == "granted":
        text = f"{one.label} takes in what is for you from now on, and the members of your groups are told so."
        turn.say(Notify(ConnectionChanged(name, text)))
        tell_groups(turn)
    elif said.state.phase != before:
        turn.say(Notify(ConnectionChanged(name, f"{one.label} does not want to take in what is for you.")))
    return True


def _checked(said: Said) -> Said:
    """What is granted must be of use: an address where nobody could post would be told to everybody."""
    state = said.state
    if state.phase != "granted" or (state.routing_did and mediator_mail.way_over(state.mediator, state.routing_did)):
        return said
    return Said(replace(state, phase="denied", routing_did=None))


def refused(turn: Turn, name: str) -> None:
    """A mediator has a problem with us: it may have forgotten us after a long time, so ask it again to take us in."""
    one = turn.agent.connections[name]
    if one.mediation is not None and one.mediation.phase == "granted" and one.mediation.connected:
        asking = replace(one.mediation, phase="asking", registered=frozenset())
        _introduce(turn, one)
        _follow(turn, one, mediation_client.opened(asking, turn.moment.random))


def _take(turn: Turn, envelope: bytes, take: Callable[[bytes], None]) -> None:
    """Hear one envelope. One that is refused now would be refused for ever, so it is acknowledged like the others."""
    before = turn.agent, list(turn.effects)
    try:
        take(envelope)
    except RemoteError as error:
        turn.agent, turn.effects = before
        turn.say(Measure("dropped", error.code))


def tell_groups(turn: Turn) -> None:
    """Where we are reached has changed: every member hears it."""
    for name, group in turn.agent.groups.items():
        if group.state != "left":
            for member in group.peers:
                pairing.ask_anew(turn, name, member)
            acknowledgements.tell_reach(turn, name)


def _follow(turn: Turn, one: Connection, said: Said) -> None:
    _put(turn, one, said.state)
    keys, us = mediator_mail.mailbox_keys(turn.agent), turn.agent.connections[one.id].relationship
    for message in said.messages:
        addressed = replace(message, from_=us.mine.did, to=(us.theirs,))
        connections.send(turn, one.id, mediation.with_proofs(addressed, keys))


def _put(turn: Turn, one: Connection, state: Mediated) -> None:
    now = turn.agent.connections[one.id]
    turn.change(connections={**turn.agent.connections, one.id: replace(now, mediation=state)})
