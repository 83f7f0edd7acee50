"""Forwarding on the ring: our messages, and those that neighbours bring, go on to a few neighbours each.

The rule and the fan-out are those of `overlay/forwarding.py`; the wire form is `key_modes/forwarded.py`. A member
forwards what it stores, opened or waiting for its key event, and it knows what it has stored by its log: so each member
forwards a message once, and needs no memory of its own for duplicates. A message that it does not store, since its
author is unknown or exceeds a limit, ends there.
"""

from collections.abc import Container, Sequence

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.effects import Measure, SendEnvelope
from zerochat.group.key_modes import forwarded
from zerochat.group.key_modes.forwarded import Forwarded
from zerochat.group.links import mediator_mail, neighbours, rate_limits, shared_mailboxes
from zerochat.group.links.relationship import pack
from zerochat.group.links.shared_mailboxes import SharedBox
from zerochat.group.state import Group
from zerochat.group.state.chains import ReorderBuffer
from zerochat.group.state.dcgka import EarlyPosts
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SEALED
from zerochat.overlay.forwarding import targets
from zerochat.overlay.ring import REACH, Links


def publish(tx: Transaction, name: str, sealed: bytes, end: int) -> None:
    """Send a sealed message of ours to some neighbours. `end`: the place of its last event."""
    group = tx.group(name)
    _send(tx, name, forwarded.sign(group.seed, group.me, name, end, sealed), None)


def is_stored(group: Group, one: Forwarded) -> bool:
    """Whether we have the events of a message, or the message itself until its key event comes."""
    if one.end <= group.chain(one.author).seq:
        return True
    buffered = group.log.reorder_buffers.get(one.author, ReorderBuffer()).events
    return one.end in buffered or one.header in group.dcgka.early.get(one.author, EarlyPosts()).messages


def checked(tx: Transaction, name: str, bearer: str, envelope: bytes) -> Forwarded | None:
    """The message that a neighbour brings, if it is new, its author has signed it, and that is within its rate limit:
    from here on the author pays. The bearer pays for a duplicate, and for each error. Raises RemoteError."""
    group = tx.group(name)
    if rate_limits.is_exhausted(tx, name, bearer):
        return None
    if not neighbours.is_ring(group):
        raise Refused(why="a forwarded message in a group that is no ring")
    one = forwarded.parse(envelope)
    if one.author == group.me or is_stored(group, one):
        tx.emit(Measure("duplicate", "forwarded"))
        rate_limits.spend_envelope(tx, name, bearer, len(envelope))
        return None
    if one.author not in group.view.members:
        raise Refused(why="a forwarded message of a non-member")
    one.check(name)
    return one if rate_limits.spend_envelope(tx, name, one.author, len(envelope)) else None


def forward(tx: Transaction, name: str, bearer: str, envelope: bytes, one: Forwarded, shared: SharedBox | None) -> None:
    """Send a message on, if we have stored it. `shared`: the shared mailbox that it came out of; None: a peer has
    brought it."""
    if is_stored(tx.group(name), one):
        _send(tx, name, envelope, bearer, shared)


def next_members(tx: Transaction, name: str, bearer: str | None) -> Sequence[str]:
    """The peers to which something new goes next. `bearer`: the member that brought it; None: it is ours."""
    return targets(_links_up(tx, tx.group(name), ()), bearer, tx.context.random)


def _links_up(tx: Transaction, group: Group, left_out: Container[str]) -> Links:
    """Our links that are up: the nearest peers in both directions, and all others as shortcuts; without these."""
    relationships = group.links.relationships
    ready = [
        did
        for did in group.links.peers
        if did in group.view.members
        and did not in left_out
        and did in relationships
        and relationships[did].established
        and mediator_mail.reachable(tx, group.id, did)
    ]
    if group.me not in group.view.members:  # we are leaving
        return Links(shortcuts=tuple(ready))
    order = neighbours.ring_of(group).in_order(group.me, ready)
    successors, rest = order[:REACH], order[REACH:]
    middle = max(0, len(rest) - REACH)
    return Links(tuple(successors), tuple(reversed(rest[middle:])), tuple(rest[:middle]))


def _send(
    tx: Transaction, name: str, envelope: bytes, bearer: str | None, came_out_of: SharedBox | None = None
) -> None:
    """Send a message on along our links, of which a shared mailbox is one, however many members it is for."""
    group = tx.group(name)
    present = group.links.peers.keys() & group.view.members.keys() if group.me in group.view.members else ()
    ways = {did: way for did in present if (way := shared_mailboxes.way_to(tx, name, did)) is not None}
    left_out, served = set[str](), set[tuple[object, ...]]()
    for member in neighbours.ring_of(group).in_order(group.me, ways) if ways else ():
        # By the way there, too: a member that names a false one must not keep posts from those that share the mailbox.
        way = ways[member]
        there = way.box, way.route.uri, way.route.routing_keys[:-1]
        if there in served or way.box == came_out_of:
            left_out.add(member)
        served.add(there)
    for member in targets(_links_up(tx, group, left_out), bearer, tx.context.random):
        if member in ways:
            shared_mailboxes.post(tx, name, member, ways[member], envelope)
        elif not mediator_mail.goes_by_mail(tx, name, member):
            tx.emit(SendEnvelope(group.links.peers[member].link, envelope))
        else:
            message = Message(type=SEALED, id=new_id(tx.context.random), body={"message": b64url(envelope)})
            packed = pack(group.links.relationships[member], message, tx.packer_of(name), tx.context.random)
            mediator_mail.send(tx, name, member, packed)
