"""The other members as neighbours: meeting, being connected, parting. Either side dials; one connection is enough."""

from zerochat.crypto.encoding import b64url_bytes
from zerochat.crypto.primitives import check_x25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.protocols import empty
from zerochat.didcomm.service import Route
from zerochat.errors import Malformed
from zerochat.group.effects import Admit, Dial, Hangup, Notify, Revoke
from zerochat.group.event_log.event import REMOVE
from zerochat.group.files import download
from zerochat.group.links import mediator_receipts, outbox, pairing
from zerochat.group.links.contact import WAYS_CHARS_MAX, Reach, checked_route, member_link, reach_of_did
from zerochat.group.links.mediator_mail import reach_of_member, reachable, send
from zerochat.group.links.relationship import farewell as goodbye
from zerochat.group.membership import remove_of
from zerochat.group.notifications import PeerDown, PeerUp
from zerochat.group.signed_streams import publisher as own
from zerochat.group.state import Group, Peer
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Turn
from zerochat.group.wire.envelope import Opened
from zerochat.group.wire.messages import HAVE_MAX, ReachBody
from zerochat.group.wire.queue_names import state_queue

PEERS_MAX = HAVE_MAX
"""Connections that one group may cost; only people who join at once through different members get it that far."""
FAREWELL_MS = 5_000
"""How long a member who has left can still hear our last acknowledgement."""
FAREWELLS_MAX, FAREWELLS_IN_VAIN = 120, 6
"""So many times as long for whoever has still something to say that it had said before, and where nothing of that has
come in the meantime."""
REMOVED_MS = 800
"""How long one who was put out can still hear that, and say what makes it void if there is something; nothing else that
it says is heard."""


# --- meeting and connecting -----------------------------------------------------------------------------------------


def meet(turn: Turn, name: str, member: str) -> None:
    """Somebody is in the group from now on: let it in, dial it, and see to it that there is a relationship."""
    group = turn.group(name)
    if member in group.peers or len(group.peers) >= PEERS_MAX:
        return
    peer = Peer(member_link(name, group.me, member), base=group.seq, base_id=group.chain(group.me).tip)
    turn.edit(name, peers={**group.peers, member: peer})
    # Of two who have just met, the later one dials first, as it asks first: both could, and neither need to.
    dial(turn, name, member, second=not pairing.is_later(group, member))
    pairing.request(turn, name, member)
    if peer.link in turn.agent.up:  # a newcomer has dialled whoever has invited it before it was let in
        link_up(turn, name, member)


def dial(turn: Turn, name: str, member: str, *, second: bool = False) -> None:
    """Open the link to a member, with its queues, and let it open its own to us. `second`: it dials us now, if we can
    be dialled."""
    group = turn.group(name)
    if group.state == "left" or member not in group.view.members:
        return
    link, reach = group.peers[member].link, reach_of_member(group, member)
    client_key = group.view.members[member].transport
    if not opens_an_invitation(turn, client_key):
        turn.say(Admit(link, client_key, _queues(group, group.me, member)))
    if reach.pair is None or not reach.server_key or _is_double(group, member, reach.server_key):
        return
    queues = _queues(group, member, group.me)
    second = second and turn.agent.reach is not None and turn.agent.reach.pair is not None
    turn.say(Dial(link, reach.pair, reach.server_key, group.place.secret, reach.queue, queues, second))


def _queues(group: Group, publisher: str, subscriber: str) -> tuple[bytes, ...]:
    """The queues of one of us for the other: what is said of the group, and posts."""
    other = subscriber if publisher == group.me else publisher
    transport = group.view.members[other].transport
    return state_queue(group.id, publisher), group.mode.queue(group.place, publisher, subscriber, transport)


def opens_an_invitation(turn: Turn, client_key: bytes) -> bool:
    """Whether this transport key belongs to an open invitation: its holder could make it a member's key as well."""
    return any(client_key == open_.knock_key for open_ in turn.agent.invitations.values())


def _is_double(group: Group, member: str, server_key: bytes) -> bool:
    """Whether a member says that it is reached where another one is: dialling it would connect us to that one twice.

    Anybody may say that; it counts of whoever has said so from the beginning, first of those who have proved who they
    are, then of those who came first.
    """
    proved = _established(group, member)
    mine = (group.view.members[member].joined, member)
    others = (did for did in group.peers if did != member and did in group.view.members)
    return any(
        reach_of_did(group.view.members[did].contact).server_key == server_key
        and (_established(group, did), (group.view.members[did].joined, did) < mine) > (proved, False)
        for did in others
    )


def _established(group: Group, member: str) -> bool:
    relationship = group.relationships.get(member)
    return relationship is not None and relationship.established


def moved(turn: Turn, name: str, member: str, body: ReachBody) -> None:
    """A member says where it is reached now. Raises Malformed."""
    if sum(len(way.uri) + sum(map(len, way.keys)) for way in body.mail) > WAYS_CHARS_MAX:
        raise Malformed(why="sync: more ways than anybody could tell of in its contact")
    ways = tuple(checked_route(Route(way.uri, tuple(way.keys), (), "final")) for way in body.mail)
    pair, queue = (Endpoint.parse(uri) if uri else None for uri in (body.pair, body.queue))
    if (pair is None) != (queue is None):
        raise Malformed(why="sync: half an address")
    if body.key:
        check_x25519_public(b64url_bytes(body.key))
    group = turn.group(name)
    if member not in group.view.members or body.at < group.peers[member].reach_at:
        return
    before = reach_of_member(group, member)
    reach = Reach(b64url_bytes(body.key) or before.server_key, pair, queue, ways)
    if reach != before:
        turn.edit_peer(name, member, reach=reach, reach_at=body.at)
        if ways != before.mail:
            mediator_receipts.lose(turn, name, member)
        if pair is None and before.pair is not None:
            turn.say(Hangup(group.peers[member].link))
        dial(turn, name, member)


def link_up(turn: Turn, name: str, member: str) -> None:
    """The link works: say where we stand, and repair at once what has waited for it."""
    turn.say(Notify(PeerUp(name, member)))
    turn.edit_peer(name, member, retry_at=turn.now, tries=0)
    relationship = turn.group(name).relationships.get(member)
    if relationship is not None and relationship.established:
        acknowledgements.send_sync(turn, name, member)
        acknowledgements.repair(turn, name)
        download.came(turn, name, member)
    else:
        pairing.ask_again(turn, name, member)
    pairing.listen_from_now(turn, name, member)


def mail_up(turn: Turn, name: str, member: str) -> None:
    """A mediator on the way to this member may take mail again: like `link_up`, but that nobody is connected."""
    turn.edit_peer(name, member, retry_at=turn.now)
    relationship = turn.group(name).relationships.get(member)
    if relationship is not None and relationship.established:
        acknowledgements.send_sync(turn, name, member)
        acknowledgements.repair(turn, name)
        download.came(turn, name, member)
    else:
        pairing.ask_again(turn, name, member)


def link_down(turn: Turn, name: str, member: str) -> None:
    turn.say(Notify(PeerDown(name, member)))
    download.went(turn, name, member)
    acknowledgements.gossip_soon(turn, name)  # what it has said last may not have reached everybody


def hear_another(turn: Turn, name: str, member: str, there: str, opened: Opened) -> None:
    """Over the link to one member another one asks for an exchange: both say that they are reached there. Whoever joins
    twice, because the first time came to nothing, is such a case. What counts is the proof. Raises RemoteError."""
    pairing.hear_exchange(turn, name, there, opened)
    group = turn.group(name)
    if not _established(group, member) and group.peers[member].link in turn.agent.up:
        turn.say(Hangup(group.peers[member].link))
        dial(turn, name, there)


# --- parting --------------------------------------------------------------------------------------------------------


def part(turn: Turn, name: str, member: str) -> None:
    """A member is out: acknowledge its last word, or tell it why, then close the link."""
    group = turn.group(name)
    if member not in group.peers:
        return
    why = [event for event in group.control.values() if event.type == REMOVE and remove_of(event).member == member]
    if why:
        # It need not have heard the votes, so they go along. It is cut whether it hears any of this or not.
        causes = [group.control[cause] for event in why for cause in event.deps]
        outbox.send(turn, name, member, [*causes, *why])
    else:
        acknowledgements.send_sync(turn, name, member)
    delay_ms = REMOVED_MS if member in group.view.removed else FAREWELL_MS
    turn.timer("farewell", f"{name} {member}", delay_ms)


def farewell(turn: Turn, name: str, member: str, had: int = -1, looked: int = 0) -> None:
    """Close everything towards a member who has left, unless what put it out was void. Its farewell comes before what
    it said last, where that is much; so the link stays as long as there is ever more of that, and for a while where it
    is down or nothing comes. `had`: up to which place it was here when we looked before; `looked`: what that counted.
    """
    group = turn.group(name)
    if member in group.view.members or member not in group.peers:
        return
    seq, until = group.chain(member).seq, group.view.former[member].until if member in group.view.former else None
    coming = until is not None and seq < until and member not in group.view.removed
    if coming and looked < FAREWELLS_MAX:
        looked += 1 if seq != had else FAREWELLS_MAX // FAREWELLS_IN_VAIN
        turn.timer("farewell", f"{name} {member} {seq} {looked}", FAREWELL_MS)
    else:
        close(turn, name, member)


def close(turn: Turn, name: str, member: str) -> None:
    """Close everything towards a member, whether it is one still or not."""
    peer = turn.group(name).peers.get(member)
    if peer is None:
        return
    end(turn, name, member)
    own.forget(turn, name, member)
    turn.say(Hangup(peer.link))
    shut(turn, name, member)
    group = turn.group(name)
    turn.edit(
        name,
        limbo={did: held for did, held in group.limbo.items() if did != member},
        waiting={key: one for key, one in group.waiting.items() if one.sender != member},
        peers={did: other for did, other in group.peers.items() if did != member},
        errands={did: one for did, one in group.errands.items() if did != member},
    )
    known = group.view.known(member)
    if known is not None:
        _dial_doubles(turn, name, reach_of_did(known.contact).server_key)


def _dial_doubles(turn: Turn, name: str, server_key: bytes) -> None:
    """Whoever is reached where somebody has gone was not dialled because of that one (`_is_double`): dial it now.
    Whoever joins twice, because it did not hear that it was let in the first time, is such a case."""
    group = turn.group(name)
    for member, peer in group.peers.items():
        if peer.link in turn.agent.up or member not in group.view.members:
            continue
        if reach_of_did(group.view.members[member].contact).server_key == server_key:
            dial(turn, name, member)


def shut(turn: Turn, name: str, member: str) -> None:
    """Let this member in no more, whether or not it is one still."""
    known = turn.group(name).view.known(member)
    if known is not None and not opens_an_invitation(turn, known.transport):
        turn.say(Revoke(known.transport))


def end(turn: Turn, name: str, member: str) -> None:
    """End the relationship with a member: our DID is given up for nothing, which the other side hears if it can be
    reached. Whether it is in the group is another matter, for which there are membership events."""
    relationship = turn.group(name).relationships.get(member)
    if relationship is None:
        return
    if relationship.established and reachable(turn, name, member):
        message = empty.empty(turn.moment.random)
        packer, now_s = turn.packer_of(name), turn.now // 1000
        send(turn, name, member, goodbye(relationship, message, packer, turn.moment.random, now_s))
    pairing.forget(turn, name, member)
