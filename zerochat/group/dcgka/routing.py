"""Routing items over the ring: ours, and those that peers bring, in bundles to the peers nearest to their recipients.

`overlay/routing.py` has the rule, `wire/routed.py` the form. Every member on the way checks the author's signature. The
author is charged for its items, whichever member brings them; the bearer for its envelopes, for items that no member
has signed and for those that were here before. An item for which no way is known ends, as one of an author beyond its
rate limit: its author retransmits. Items of others wait for a moment, so that those of many authors for one recipient
share their envelopes, as acknowledgements do.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.effects import Measure
from zerochat.group.links import mediator_mail, neighbours, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership.resolve import RecentCache
from zerochat.group.state import Group
from zerochat.group.state.routed import RoutedAuthor
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import ROUTED, RoutedBody
from zerochat.group.wire.routed import RoutedItem, RoutedKind, bundles, parse_item
from zerochat.overlay.routing import HOPS_MAX, Routes

BUNDLE_MS: Final = 300
"""How long items of others wait for more."""
WAITING_MAX: Final = 1_024
"""Items of others that wait; more are dropped."""
ITEM_WORK_US: Final = 200
"""The work of an item: a signature, its place on disk."""
WINDOW: Final = 128
"""Times of an author's latest items that are kept against replays. Of an update among 1,000 members, a neighbour of the
author passes on a twelfth."""
ROUTES_CACHED: Final = 8
"""Cached routes: of 1,000 members about 1 MB."""

_routes: RecentCache[str, Routes] = RecentCache(ROUTES_CACHED)
"""By the checksum of the view."""


class Outgoing(NamedTuple):
    """What becomes an item."""

    recipient: str
    kind: RoutedKind
    number: int
    content: bytes


def routes_of(group: Group) -> Routes:
    """The distances in the present view."""
    return _routes.get(group.view.checksum, lambda: Routes(neighbours.ring_of(group)))


# --- sending --------------------------------------------------------------------------------------------------------


def send(tx: Transaction, name: str, things: Iterable[Outgoing], detour: int = 0) -> None:
    """Sign these, and send them at once. `detour`: as in `Routes.next_hop`."""
    group = tx.group(name)
    at, items = group.routed.sent_at, list[RoutedItem]()
    for one in things:
        at = max(tx.now, at + 1)
        item = RoutedItem(name, group.me, one.recipient, one.kind, one.number, at, one.content)
        items.append(item.signed(group.seed))
    if items:
        tx.update_group(name, routed=replace(group.routed, sent_at=at))
        _send(tx, name, items, detour)


def pass_on(tx: Transaction, name: str) -> None:
    """Send the items of others that wait."""
    group = tx.group(name)
    if waiting := group.routed.waiting:
        tx.update_group(name, routed=replace(group.routed, waiting=()))
        _send(tx, name, [parse_item(data, name) for data in waiting])


def _send(tx: Transaction, name: str, items: Sequence[RoutedItem], detour: int = 0) -> None:
    group = tx.group(name)
    peers, routes, by_hop = _peers_up(tx, group), routes_of(group), dict[str, list[bytes]]()
    for item in items:
        passed = {group.me, *(peer for peer in peers if item.has_passed(peer))}
        hop = routes.next_hop(item.recipient, peers, passed, tx.context.random, detour)
        if hop is None:
            tx.emit(Measure("dropped", "NoRoute"))
        else:
            by_hop.setdefault(hop, []).append(item.passed_by(group.me).wire)
    for hop, data in by_hop.items():
        for bundle in bundles(data):
            body = {"group": name, "items": [*map(b64url, bundle)]}
            message = Message(type=ROUTED, id=new_id(tx.context.random), body=body)
            relationship = tx.group(name).links.relationships[hop]
            mediator_mail.send(tx, name, hop, pack(relationship, message, tx.packer_of(name), tx.context.random))


def _peers_up(tx: Transaction, group: Group) -> list[str]:
    """The members that items can be sent to now."""
    relationships = group.links.relationships
    return [
        did
        for did in group.links.peers
        if did in group.view.members
        and did in relationships
        and relationships[did].established
        and mediator_mail.reachable(tx, group.id, did)
    ]


# --- receiving ------------------------------------------------------------------------------------------------------


def receive(tx: Transaction, name: str, bearer: str, body: RoutedBody) -> Iterator[RoutedItem]:
    """The items for us in a bundle; the others go on. Raises RemoteError at an item that its author has not sent: the
    rest of the bundle is dropped with it."""
    group = tx.group(name)
    if body.group != name or not neighbours.is_ring(group) or bearer not in group.view.members:
        raise Refused(why="routed items of another group, or by a non-member")
    onward = list[bytes]()
    for data in body.items:
        item = parse_item(b64url_bytes(data), name)
        if not _is_new(tx, name, item):
            rate_limits.charge_work(tx, name, bearer, ITEM_WORK_US)
            tx.emit(Measure("duplicate", "routed item"))
            continue
        if item.author not in group.view.members or rate_limits.is_exhausted(tx, name, item.author):
            tx.emit(Measure("dropped", "Routed"))
            continue
        item.check_signature()
        rate_limits.charge_work(tx, name, item.author, ITEM_WORK_US, size=len(data))
        _record(tx, name, item)
        if item.recipient == group.me:
            yield item
        elif item.recipient in group.view.members and item.hops < HOPS_MAX and not item.has_passed(group.me):
            onward.append(item.wire)
        else:
            tx.emit(Measure("dropped", "NoRoute"))
    _wait(tx, name, onward)


def _wait(tx: Transaction, name: str, onward: Sequence[bytes]) -> None:
    if not onward:
        return
    routed = tx.group(name).routed
    waiting = (*routed.waiting, *onward)
    if len(waiting) > WAITING_MAX:
        tx.emit(Measure("dropped", "RoutedFull"))
    tx.update_group(name, routed=replace(routed, waiting=waiting[:WAITING_MAX]))
    tx.set_timer(TimerKind.ROUTED, name, BUNDLE_MS, if_unset=True)


def _is_new(tx: Transaction, name: str, item: RoutedItem) -> bool:
    """Whether an item is neither ours nor a replay."""
    group = tx.group(name)
    one = group.routed.authors.get(item.author, RoutedAuthor())
    return item.author != group.me and item.at > one.floor and item.at not in one.recent


def _record(tx: Transaction, name: str, item: RoutedItem) -> None:
    routed = tx.group(name).routed
    one = routed.authors.get(item.author, RoutedAuthor())
    recent, floor = (*one.recent, item.at), one.floor
    if len(recent) > WINDOW:
        floor = min(recent)
        recent = tuple(at for at in recent if at != floor)
    authors = {**routed.authors, item.author: RoutedAuthor(floor, recent)}
    tx.update_group(name, routed=replace(routed, authors=authors))


def forget(tx: Transaction, name: str) -> None:
    """Drop what is kept of authors that are members no longer."""
    group = tx.group(name)
    authors = {did: one for did, one in group.routed.authors.items() if did in group.view.members}
    if len(authors) < len(group.routed.authors):
        tx.update_group(name, routed=replace(group.routed, authors=authors))
