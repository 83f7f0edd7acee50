"""The other members as neighbours: meeting them, exchanging DIDs with them, being connected, parting.

Of each pair, the one who joined later asks the other for the exchange: both can tell from the view who that is, so
requests never cross. Either side dials; one connection is enough.
"""

from dataclasses import replace

from zerochat.crypto.encoding import b64url_bytes
from zerochat.crypto.primitives import check_x25519_public
from zerochat.didcomm.did import Identity, same_did
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import empty, exchange
from zerochat.didcomm.rotation import Prior
from zerochat.didcomm.service import Route
from zerochat.errors import Malformed, Refused
from zerochat.group import outbox, sync
from zerochat.group.contact import (
    WAYS_CHARS_MAX,
    Reach,
    check_proof,
    checked_route,
    member_link,
    new_identity,
    reach_of_did,
    sign_proof,
)
from zerochat.group.effects import Admit, Dial, Hangup, Notify, Revoke
from zerochat.group.event import REMOVE
from zerochat.group.mail import by_mail, own_reach, reach_of_member, reachable, send
from zerochat.group.membership import remove_of
from zerochat.group.notices import PeerDown, PeerUp, Rotated
from zerochat.group.relationship import Relationship, pack
from zerochat.group.relationship import farewell as goodbye
from zerochat.group.relationship import rotate as rotated
from zerochat.group.state import Group, Peer
from zerochat.group.turn import Turn
from zerochat.group.wire.envelope import Opened, pack_to
from zerochat.group.wire.messages import HAVE_MAX, ReachBody
from zerochat.group.wire.queues import state_queue

MEET_MS, MEET_MS_MAX = 1_000, 30_000
"""An unanswered request for an exchange is repeated after this long, then ever more slowly."""
PEERS_MAX = HAVE_MAX
"""Connections that one group may cost; only people who join at once through different members get it that far."""
FAREWELL_MS = 5_000
"""How long a member who has left can still hear our last acknowledgement."""
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
    dial(turn, name, member)
    _request(turn, name, member)
    if peer.link in turn.agent.up:  # a newcomer has dialled whoever has invited it before it was let in
        link_up(turn, name, member)


def dial(turn: Turn, name: str, member: str) -> None:
    """Open the link to a member, with its queues, and let it open its own to us."""
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
    turn.say(Dial(link, reach.pair, reach.server_key, group.place.secret, reach.queue, queues))


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
        (_established(group, did), (group.view.members[did].joined, did) < mine) > (proved, False)
        and reach_of_did(group.view.members[did].contact).server_key == server_key
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
        if pair is None and before.pair is not None:
            turn.say(Hangup(group.peers[member].link))
        dial(turn, name, member)


def link_up(turn: Turn, name: str, member: str) -> None:
    """The link works: say where we stand, and repair at once what has waited for it."""
    turn.say(Notify(PeerUp(name, member)))
    turn.edit_peer(name, member, retry_at=turn.now, tries=0)
    relationship = turn.group(name).relationships.get(member)
    if relationship is not None and relationship.established:
        sync.send_sync(turn, name, member)
        sync.repair(turn, name)
    else:
        ask_again(turn, name, member)


def mail_up(turn: Turn, name: str, member: str) -> None:
    """A mediator on the way to this member may take mail again: like `link_up`, but that nobody is connected."""
    turn.edit_peer(name, member, retry_at=turn.now)
    relationship = turn.group(name).relationships.get(member)
    if relationship is not None and relationship.established:
        sync.send_sync(turn, name, member)
        sync.repair(turn, name)
    else:
        ask_again(turn, name, member)


def link_down(turn: Turn, name: str, member: str) -> None:
    turn.say(Notify(PeerDown(name, member)))
    sync.gossip_soon(turn, name)  # what it has said last may not have reached everybody


# --- the exchange of DIDs -------------------------------------------------------------------------------------------


def _request(turn: Turn, name: str, member: str) -> None:
    """Prepare the request for an exchange, where it is ours to ask; it goes out as soon as there is a way."""
    group = turn.group(name)
    mine, theirs = group.view.members.get(group.me), group.view.members.get(member)
    if mine is None or theirs is None or turn.agent.reach is None or member in group.relationships:
        return
    if (mine.joined, mine.did) < (theirs.joined, theirs.did) and not _unknown_way(turn, name, member):
        return
    identity = pair_identity(turn, group)
    request = exchange.request(identity, theirs.contact, name, {}, turn.moment.random)
    relationship = Relationship(member, identity, "", request.id, theirs.contact, requester=True)
    turn.edit(name, relationships={**group.relationships, member: relationship})
    ask_again(turn, name, member)


def _unknown_way(turn: Turn, name: str, member: str) -> bool:
    """Whether a member whom nobody can dial cannot ask us, because we have got our mediator after our contact was made:
    then no request of its own can cross ours."""
    group = turn.group(name)
    ours, theirs = reach_of_did(group.contact.did), reach_of_member(group, member)
    if ours.pair is not None or ours.mail or theirs.pair is not None or not by_mail(turn, name, member):
        return False
    return turn.agent.reach is not None and turn.agent.reach.pair is None and bool(own_reach(turn, group.seed).mail)


def ask_again(turn: Turn, name: str, member: str) -> None:
    """Send the request for an exchange, if it is ours to ask, until it is answered."""
    group = turn.group(name)
    relationship, peer = group.relationships.get(member), group.peers.get(member)
    if relationship is None and peer is not None:
        _request(turn, name, member)
        return
    if relationship is None or peer is None or relationship.established or not relationship.requester:
        return
    if member not in group.view.members:
        return  # it has left before it answered
    if reachable(turn, name, member):
        proof = sign_proof(group.seed, name, relationship.mine.did, relationship.asked, member)
        message = Message(
            type=exchange.REQUEST,
            id=relationship.thid,
            thid=relationship.thid,
            pthid=name,
            body={"goal_code": "org.zerochat.contact", "member": group.me, "proof": proof},
        )
        packer = turn.packer_of(name)
        send(turn, name, member, pack_to(relationship.mine, relationship.asked, message, packer, turn.moment))
    turn.edit_peer(name, member, tries=peer.tries + 1)
    turn.timer("meet", f"{name} {member}", min(MEET_MS << min(peer.tries, 10), MEET_MS_MAX))


def ask_anew(turn: Turn, name: str, member: str) -> None:
    """Where we are reached has changed: a request that is under way says so anew, in a new DID's document."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    if relationship is None:
        _request(turn, name, member)
    elif not relationship.established and relationship.requester:
        _forget(turn, name, member)
        _request(turn, name, member)


def hear_exchange(turn: Turn, name: str, member: str, opened: Opened) -> None:
    """A message of the DID exchange with another member. Raises RemoteError."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    message = opened.message
    match message.type:
        case exchange.REQUEST if opened.recipient == group.contact:
            _answer(turn, name, member, opened, relationship)
        case exchange.RESPONSE if relationship is not None and relationship.requester:
            if message.thid != relationship.thid or opened.recipient != relationship.mine:
                raise Refused(why="an answer to another request")
            if relationship.established:
                return
            exchange.check_response(message, asked=relationship.asked, sender=opened.sender)
            _learn_reach(turn, name, member, opened.sender)
            established(turn, name, replace(relationship, theirs=opened.sender, greeted=True))
            complete = exchange.complete(relationship.thid, name, turn.moment.random)
            settled = turn.group(name).relationships[member]
            envelope = pack(settled, complete, turn.packer_of(name), turn.moment.random)
            send(turn, name, member, envelope)
        case _:
            raise Refused(why="a DID exchange message out of turn")


def hear_another(turn: Turn, name: str, member: str, there: str, opened: Opened) -> None:
    """Over the link to one member another one asks for an exchange: both say that they are reached there. Whoever joins
    twice, because the first time came to nothing, is such a case. What counts is the proof. Raises RemoteError."""
    hear_exchange(turn, name, there, opened)
    group = turn.group(name)
    if not _established(group, member) and group.peers[member].link in turn.agent.up:
        turn.say(Hangup(group.peers[member].link))
        dial(turn, name, there)


def _answer(turn: Turn, name: str, member: str, opened: Opened, known: Relationship | None) -> None:
    group = turn.group(name)
    proof = opened.message.body.get("proof")
    if not isinstance(proof, str) or turn.agent.reach is None:
        raise Refused(why="a request for an exchange without proof of membership")
    check_proof(proof, member, name, opened.sender, group.contact.did, group.me)
    fresh = known is None or not known.established or not same_did(known.theirs, opened.sender)
    if known is None or fresh:
        if known is not None and known.greeted:
            raise Refused(why="a second relationship with the same member")
        identity = pair_identity(turn, group)
        known = Relationship(member, identity, opened.sender, opened.message.id, "", requester=False)
        _learn_reach(turn, name, member, opened.sender)
        turn.edit(name, relationships={**turn.group(name).relationships, member: known})
    prior = Prior(group.contact.short, group.contact.kid_signing_short, group.contact.signing_seed)
    answer = exchange.response(opened.message, known.mine, prior, {}, now_s=turn.now // 1000, random=turn.moment.random)
    envelope = pack(known, answer, turn.packer_of(name), turn.moment.random)
    send(turn, name, member, envelope)
    if fresh:
        established(turn, name, known)  # after the answer, or the other side could not read what is said first


def pair_identity(turn: Turn, group: Group) -> Identity:
    """A fresh DID for one other member. It says where we are reached only if our contact does not say the same: the
    first messages hold it several times over, and in a wide-area network their size is time."""
    reach = own_reach(turn, group.seed)
    said = reach_of_did(group.contact.did)
    nothing = Reach(b"", None, None)
    return new_identity(turn.moment.random, nothing if reach == said else reach, group.profile.envelope)


def _learn_reach(turn: Turn, name: str, member: str, did: str) -> None:
    """Whoever has never said where it is reached has since its contact was made (which lasts for ever) perhaps moved:
    the DID that it has just made for us says so."""
    group = turn.group(name)
    if member not in group.view.members or group.peers[member].reach is not None:
        return
    try:
        found = reach_of_did(did)
    except Malformed:
        return
    if found.pair is None and not found.mail:
        return  # as its contact says
    before = reach_of_member(group, member)
    if (found := replace(found, server_key=before.server_key or found.server_key)) != before:
        turn.edit_peer(name, member, reach=found)


def established(turn: Turn, name: str, relationship: Relationship) -> None:
    """There is a relationship with this member now: say where we stand."""
    group = turn.group(name)
    turn.edit(name, relationships={**group.relationships, relationship.member: relationship})
    sync.send_sync(turn, name, relationship.member)
    turn.edit_peer(name, relationship.member, retry_at=turn.now + sync.RETRY_MS, tries=0)
    sync.repair(turn, name)


def heard(turn: Turn, name: str, relationship: Relationship) -> None:
    """A message has come from this member: keep what it changed in the relationship."""
    group, member = turn.group(name), relationship.member
    before = group.relationships[member]
    if relationship == before:
        return
    turn.edit(name, relationships={**group.relationships, member: relationship})
    if not relationship.established:
        _forget(turn, name, member)
        turn.edit_peer(name, member, ended=turn.now)
    elif relationship.theirs != before.theirs:
        turn.say(Notify(Rotated(name, member)))
        sync.send_sync(turn, name, member)
    elif before.handover is not None and relationship.handover is None:
        turn.say(Notify(Rotated(name, member, mine=True)))


def rotate(turn: Turn, name: str, member: str) -> None:
    """Replace our own DID in the relationship with this member; it hears of it with our next message."""
    group = turn.group(name)
    identity = pair_identity(turn, group)
    relationship = rotated(group.relationships[member], identity, turn.now // 1000)
    turn.edit(name, relationships={**group.relationships, member: relationship})
    sync.send_sync(turn, name, member)


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
        sync.send_sync(turn, name, member)
    delay_ms = REMOVED_MS if member in group.view.removed else FAREWELL_MS
    turn.timer("farewell", f"{name} {member}", delay_ms)


def farewell(turn: Turn, name: str, member: str) -> None:
    """Close everything towards a member who has left, unless what put it out was void."""
    if member not in turn.group(name).view.members:
        close(turn, name, member)


def close(turn: Turn, name: str, member: str) -> None:
    """Close everything towards a member, whether it is one still or not."""
    peer = turn.group(name).peers.get(member)
    if peer is None:
        return
    end(turn, name, member)
    turn.say(Hangup(peer.link))
    shut(turn, name, member)
    group = turn.group(name)
    turn.edit(
        name,
        limbo={did: held for did, held in group.limbo.items() if did != member},
        waiting={key: one for key, one in group.waiting.items() if one.sender != member},
        peers={did: other for did, other in group.peers.items() if did != member},
    )


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
    _forget(turn, name, member)


def _forget(turn: Turn, name: str, member: str) -> None:
    relationships = turn.group(name).relationships
    turn.edit(name, relationships={did: one for did, one in relationships.items() if did != member})
