"""Peer links: connecting to the other members, their reach, and closing. Both sides dial; one connection suffices."""

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url_bytes
from zerochat.crypto.primitives import check_x25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.protocols.ack import empty
from zerochat.didcomm.service import Route
from zerochat.errors import Malformed
from zerochat.group.dcgka import channels
from zerochat.group.effects import AllowClient, Dial, Disconnect, Notify, RevokeClient
from zerochat.group.event_log.event import REMOVE
from zerochat.group.event_log.lamport import is_older
from zerochat.group.files import download
from zerochat.group.links import hosts, mailboxes, mediator_receipts, neighbours, outbox, pairing, rate_limits
from zerochat.group.links.contact import ROUTES_CHARS_MAX, Reach, check_route, member_link
from zerochat.group.links.mediator_mail import reach_of_member, reachable, seek, send
from zerochat.group.links.relationship import pack_end
from zerochat.group.membership import remove_of
from zerochat.group.notifications import PeerDown, PeerUp
from zerochat.group.signed_streams import publisher
from zerochat.group.state import Account, Group, Peer
from zerochat.group.sync import acknowledgements, aggregation, anti_entropy
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import HAVE_MAX, ReachBody
from zerochat.group.wire.queue_names import state_queue

PEERS_MAX = HAVE_MAX
"""Connections of one group; only simultaneous joins through different members exceed MEMBERS_MAX."""
CLOSE_DELAY_MS = 5_000
"""How long a member that left can still receive our last acknowledgement."""
CLOSE_CHECKS_MAX, IDLE_CLOSE_CHECKS_MAX = 120, 6
"""How many times that long to wait for a member that still retransmits events; fewer while nothing arrives."""
REMOVED_CLOSE_MS = 800
"""How long a removed member can still receive its removal, and send events that make it void; its other messages are
ignored."""


# --- connecting -----------------------------------------------------------------------------------------------------


def add_peer(tx: Transaction, name: str, member: str, *, chosen: bool = False, is_guest: bool = False) -> None:
    """A new member: allow its connections, dial it, and begin the exchange. A member whose removal is void is dialled
    again: our process may have started meanwhile, without it. On the ring only connections are allowed, unless it is a
    neighbour, or one of us has admitted the other, or is `chosen` by us, or as a guest has chosen us."""
    group = tx.group(name)
    if member in group.links.peers:
        dial_peer(tx, name, member)
        return
    is_ring = neighbours.is_ring(group)
    if is_ring and not (chosen or is_guest or neighbours.is_introduced(group, member)):
        allow_connections(tx, name, member)
        if not neighbours.is_neighbour(group, member):
            return
    if len(group.links.peers) >= PEERS_MAX:
        return
    is_ours = group.private is not None or (is_ring and pairing.is_requester(group, member))
    start = (0, "") if is_ours else (group.seq, group.chain(group.me).head_id)  # where it gets all of our chain, or not
    peer = Peer(member_link(name, group.me, member), *start)
    if is_ring:
        account = group.links.accounts.get(member) or Account()
        paid = account.rate_limit, account.stored
        peer = replace(peer, linked_at=tx.now, is_guest=is_guest, rate_limit=paid[0], stored=paid[1])
        group = tx.update_links(name, accounts={did: one for did, one in group.links.accounts.items() if did != member})
    tx.update_group(name, links=group.links.with_peer(member, peer))
    # The later joiner dials first, as it also requests first: both could, and one suffices.
    dial_peer(tx, name, member, second=not pairing.is_requester(group, member))
    pairing.request_exchange(tx, name, member)
    if peer.link in tx.agent.links_up:  # a joiner dials its inviter before it is admitted
        handle_link_up(tx, name, member)


def allow_connections(tx: Transaction, name: str, member: str) -> None:
    """Allow a member, linked to us or not, to connect to us."""
    group = tx.group(name)
    client_key = group.view.members[member].transport
    if not is_invitation_key(tx, client_key):
        tx.emit(AllowClient(member_link(name, group.me, member), client_key, _queues(group, group.me, member)))


def dial_peer(tx: Transaction, name: str, member: str, *, second: bool = False) -> None:
    """Open the link to a member with its queues, and allow its link to us. `second`: it dials us now, if it can."""
    group = tx.group(name)
    if group.state == "left" or member not in group.view.members:
        return
    link, reach = group.links.peers[member].link, reach_of_member(group, member)
    allow_connections(tx, name, member)
    if reach.pair is None or not reach.server_key or hosts.is_of_another(group, member, reach.server_key):
        return
    queues = _queues(group, member, group.me)
    second = second and tx.agent.reach is not None and tx.agent.reach.pair is not None
    tx.emit(Dial(link, reach.pair, reach.server_key, group.own_place.secret, reach.queue, queues, second))


def _queues(group: Group, publisher: str, subscriber: str) -> tuple[bytes, ...]:
    """The queues of one of us for the other: status, and posts; after an upgrade also posts from before it."""
    other = subscriber if publisher == group.me else publisher
    transport = group.view.members[other].transport
    modes = (group.mode, group.first_mode)
    posts = (mode.queue(group.own_place, publisher, subscriber, transport) for mode in modes)
    return tuple(dict.fromkeys((state_queue(group.id, publisher), *posts)))


def is_invitation_key(tx: Transaction, client_key: bytes) -> bool:
    """Whether this transport key belongs to an open invitation, whose holder could claim it as a member key."""
    return any(client_key == open_.client_key for open_ in tx.agent.invitations.values())


def handle_answer(tx: Transaction, name: str, member: str, host: bytes) -> None:
    """An authentic message of this member came over a connection to this host, whose key it has thereby proved. It
    keeps the connections to that host; the other claimants' are closed. `host`: as in `Received`."""
    group = tx.group(name)
    peer = group.links.peers.get(member)
    if not host or peer is None or peer.answered_key == host or member not in hosts.claimants(group, host):
        return
    tx.update_peer(name, member, answered_key=host)
    group = tx.group(name)
    others = [did for did in hosts.claimants(group, host) if hosts.is_of_another(group, did, host)]
    for did in others:
        tx.emit(Disconnect(group.links.peers[did].link))
    if others:
        dial_peer(tx, name, member)


def update_reach(tx: Transaction, name: str, member: str, body: ReachBody) -> None:
    """A member announces new endpoints or routes. Raises Malformed."""
    if sum(len(route.uri) + sum(map(len, route.keys)) for route in body.mail) > ROUTES_CHARS_MAX:
        raise Malformed(why="sync: more routes than fit a contact")
    routes = tuple(check_route(Route(route.uri, tuple(route.keys), (), "final")) for route in body.mail)
    pair, queue = (Endpoint.parse(uri) if uri else None for uri in (body.pair, body.queue))
    if (pair is None) != (queue is None):
        raise Malformed(why="sync: only one of two endpoints")
    if body.key:
        check_x25519_public(b64url_bytes(body.key))
    group = tx.group(name)
    if member not in group.view.members or is_older(body.at, group.links.peers[member].reach_at, tx.now):
        return
    before = reach_of_member(group, member)
    shared = tuple(route.shared for route in body.mail) if any(route.shared for route in body.mail) else ()
    reach = Reach(b64url_bytes(body.key) or before.server_key, pair, queue, routes, shared)
    if reach != before and replace(reach, shared=before.shared) == before:  # no move: others' updates may cause it
        tx.update_peer(name, member, reach=reach, reach_at=body.at)
    elif reach != before and rate_limits.spend_move(tx, name, member):
        tx.update_peer(name, member, reach=reach, reach_at=body.at)
        if routes != before.routes:
            mediator_receipts.invalidate(tx, name, member)
        if pair is None and before.pair is not None:
            tx.emit(Disconnect(group.links.peers[member].link))
        dial_peer(tx, name, member)
        seek(tx, name, member)


def handle_link_up(tx: Transaction, name: str, member: str) -> None:
    """The link is up: send our state, and retransmit unacknowledged events at once."""
    tx.emit(Notify(PeerUp(name, member)))
    tx.update_retransmission(name, member, tries=0)
    aggregation.link_up(tx, name, member)
    handle_mail_up(tx, name, member)
    pairing.watch_for_silence(tx, name, member)


def handle_mail_up(tx: Transaction, name: str, member: str) -> None:
    """A route to this member may work again: send our state, and retransmit at once, or retry the DID exchange."""
    tx.update_retransmission(name, member, retry_at=tx.now)
    relationship = tx.group(name).links.relationships.get(member)
    if relationship is not None and relationship.established:
        acknowledgements.send_sync(tx, name, member)
        acknowledgements.retransmit(tx, name, synced=member)
        download.handle_member_up(tx, name, member)
    else:
        pairing.retry_request(tx, name, member)


def handle_link_down(tx: Transaction, name: str, member: str) -> None:
    tx.emit(Notify(PeerDown(name, member)))
    download.handle_member_down(tx, name, member)
    seek(tx, name, member)
    anti_entropy.run_soon(tx, name)  # its last events may not have reached every member
    if neighbours.is_ring(tx.group(name)):
        tx.set_timer(TimerKind.NEIGHBOURS, name, neighbours.AWAIT_MS, if_unset=True)


# --- closing --------------------------------------------------------------------------------------------------------


def begin_close(tx: Transaction, name: str, member: str) -> None:
    """A member left or was removed: send the last acknowledgement or the removal, then close the link."""
    group = tx.group(name)
    if member not in group.links.peers:
        if neighbours.is_ring(group):
            revoke_access(tx, name, member)
            rest = {did: account for did, account in group.links.accounts.items() if did != member}
            tx.update_links(name, accounts=rest)
        return
    why = [event for event in group.control.values() if event.type == REMOVE and remove_of(event).member == member]
    if why:
        # It may not have the votes, so they are included. It is disconnected in any case.
        causes = [group.control[cause] for event in why for cause in event.deps]
        outbox.send_events(tx, name, member, [*causes, *why])
    else:
        acknowledgements.send_sync(tx, name, member)
    delay_ms = REMOVED_CLOSE_MS if member in group.view.removed else CLOSE_DELAY_MS
    tx.set_timer(TimerKind.CLOSE_PEER, f"{name} {member}", delay_ms)


def close_when_complete(tx: Transaction, name: str, member: str, had: int = -1, looked: int = 0) -> None:
    """Close the link of a former member, unless its removal was void. A leave event can arrive before the member's last
    posts; so the link stays while more of them arrive, and for a while without any. `had`: the position at the last
    check; `looked`: the number of checks."""
    group = tx.group(name)
    if member in group.view.members or member not in group.links.peers:
        return
    seq, until = group.chain(member).seq, group.view.former[member].until if member in group.view.former else None
    coming = until is not None and seq < until and member not in group.view.removed
    if coming and looked < CLOSE_CHECKS_MAX:
        looked += 1 if seq != had else CLOSE_CHECKS_MAX // IDLE_CLOSE_CHECKS_MAX
        tx.set_timer(TimerKind.CLOSE_PEER, f"{name} {member} {seq} {looked}", CLOSE_DELAY_MS)
    else:
        close_peer(tx, name, member)
        mailboxes.change_soon(tx, name)


def close_peer(tx: Transaction, name: str, member: str) -> None:
    """Close everything towards a member, current or former. On the ring a member stays one without the link: it may
    connect again, and what we have from it and of its keys stays."""
    group = tx.group(name)
    peer = group.links.peers.get(member)
    if peer is None:
        return
    end_relationship(tx, name, member)
    publisher.forget_member(tx, name, member)
    tx.emit(Disconnect(peer.link))
    if not (neighbours.is_ring(group) and member in group.view.members):
        _forget_member(tx, name, member)
    group = tx.group(name)
    tx.update_links(name, peers={did: other for did, other in group.links.peers.items() if did != member})
    if neighbours.is_ring(group) and member in group.view.members:  # it still owes us that
        tx.update_payer(name, member, rate_limit=peer.rate_limit, stored=peer.stored)
    tx.update_sync(name, pull_requests={did: open_ for did, open_ in group.sync.pull_requests.items() if did != member})
    for other in hosts.claimants(tx.group(name), peer.answered_key) if peer.answered_key else ():
        if group.links.peers[other].link not in tx.agent.links_up:
            dial_peer(tx, name, other)


def _forget_member(tx: Transaction, name: str, member: str) -> None:
    """Refuse the connections of a member, and drop what waits of it."""
    if tx.group(name).mode.heals:
        channels.forget(tx, name, member)
    revoke_access(tx, name, member)
    group = tx.group(name)
    tx.update_log(
        name,
        reorder_buffers={did: held for did, held in group.log.reorder_buffers.items() if did != member},
        blocked={key: event for key, event in group.log.blocked.items() if event.sender != member},
    )


def revoke_access(tx: Transaction, name: str, member: str) -> None:
    """Refuse this member's connections from now on."""
    known = tx.group(name).view.known(member)
    if known is not None and not is_invitation_key(tx, known.transport):
        tx.emit(RevokeClient(known.transport))


def end_relationship(tx: Transaction, name: str, member: str) -> None:
    """End the relationship with a member: our DID is rotated to nothing, and the peer is informed if it can be reached.
    Membership is not affected."""
    relationship = tx.group(name).links.relationships.get(member)
    if relationship is None:
        return
    if relationship.established and reachable(tx, name, member):
        message = empty(tx.context.random)
        packer, now_s = tx.packer_of(name), tx.now // 1000
        send(tx, name, member, pack_end(relationship, message, packer, tx.context.random, now_s))
    pairing.forget_relationship(tx, name, member)
