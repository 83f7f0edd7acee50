"""Aggregated acknowledgements on the ring: neighbours merge and exchange which members have which chains.

On the ring an author is linked to few of its recipients, so acknowledgements travel along the links: each member adds
itself to the acknowledgement sets (`overlay/ack_sets.py`) of the chains that it has, and after a change it sends a few
random neighbours the sets that they were not told. This is rumour mongering (Demers et al., "Epidemic Algorithms for
Replicated Database Maintenance", PODC 1987): the messages of a round are few and bounded, however many events were
delivered. A receiver that knows more answers in its next round (push-pull); a member whose sets lack members repeats
them a few times, and later in the rounds of `anti_entropy.py`. So losses are repaired.

What arrives this way is hearsay: a neighbour can add members that have nothing. So it is shown, with the neighbour that
reported it, and nothing else depends on it: retransmission, repair, retention and removal go by the acknowledgements of
`acknowledgements.py`, which each member sends itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.group.backoff import Backoff
from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail, neighbours, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import View
from zerochat.group.state import Chain, Group
from zerochat.group.state.ack_sets import AggregatedAcks
from zerochat.group.sync.receipts import store_receipt
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import ACK_SETS, ACK_SETS_MAX, AckSetFields
from zerochat.overlay.ack_sets import (
    AckSet,
    AckSets,
    bits_of,
    distinct,
    merged,
    places_of,
    reordered,
)
from zerochat.overlay.forwarding import sample
from zerochat.overlay.ring import MESH_MEMBERS_MAX

ROUND_MS: Final = 2_000
"""The interval of rounds while there is news, times 0.5 to 1.5."""
FAN_OUT: Final = 2
"""The neighbours that get a message in one round."""
AUTHORS_MAX: Final = 64
"""The authors with sets: those of the newest events."""
FILLING_MS: Final = 10_000
"""How often it is checked whether a chain that begins in the middle has been filled up."""
REPEAT: Final = Backoff(8_000, 32_000)
REPEATS_MAX: Final = 3
"""Sets that lack members are repeated so often after the last change, to one neighbour each time."""
REPEATED_MAX: Final = 8
"""The sets in one repetition, chosen at random: those of members that are away lack them for long."""
SET_WORK_US: Final = 20
"""The work of merging one set."""

News: TypeAlias = Sequence[tuple[str, AckSet]]
"""The sets that say something, each with its author, the one that changed last at the end."""


def is_aggregated(group: Group) -> bool:
    """Whether we aggregate acknowledgements: as a member on the ring, unless it is so small that all are linked."""
    members = group.view.members
    return neighbours.is_ring(group) and len(members) > MESH_MEMBERS_MAX and group.me in members


def known_upto(group: Group, member: str, author: str) -> int:
    """The place up to which a member is known to have an author's chain: by its own acknowledgement or, on the ring, by
    the report of a neighbour."""
    direct = group.links.acked(member, author) if member in group.links.peers else 0
    place = group.view.places.get(member) if neighbours.is_ring(group) else None
    if place is None:
        return direct
    acks = _current(group)
    if author == group.me:
        return max(direct, _own_at(acks, place))
    sets = acks.sets.get(author, ())
    return max(direct, next((one.seq for one in reversed(sets) if bits_of(one.members) >> place & 1), 0))


def settled_upto(group: Group, member: str) -> int:
    """The place up to which nothing of our own chain is due to a member: it is known to have it, or was none then."""
    peer = group.links.peers.get(member)
    begins = peer.start_seq if peer is not None and not neighbours.is_ring(group) else 0
    place = group.view.places.get(member) if neighbours.is_ring(group) else None
    if place is not None:
        begins = abs(_own_at(_current(group), place))
    return max(begins, known_upto(group, member, group.me))


def recipients(group: Group) -> list[str]:
    """The members that our events are for: those that we are linked to, or on the ring all others."""
    if neighbours.is_ring(group):
        return group.others
    return [did for did in group.links.peers if did in group.view.members]


def _own_at(acks: AggregatedAcks, place: int) -> int:
    return acks.own[place] if place < len(acks.own) else 0


def _current(group: Group) -> AggregatedAcks:
    """What was reported, by the places of the present view."""
    acks, view = group.acks, group.view.checksum
    if acks.view == view:
        return acks
    return AggregatedAcks(view, number=acks.number, due=acks.due)


# --- what we know ourselves -------------------------------------------------------------------------------------------


def on_delivered(tx: Transaction, name: str, event: Event) -> None:
    """An event was delivered, of another member or ours. If it names our last one, its author has signed that it has
    our chain; a membership event may be known without those before it in its chain."""
    group = tx.group(name)
    if not neighbours.is_ring(group):
        return
    head = group.chain(group.me).head_id
    if event.author != group.me and head in event.conc and head not in group.control:
        record_direct(tx, name, event.author, group.seq, via=event.author)
    on_progress(tx, name, event.author)


def on_progress(tx: Transaction, name: str, author: str) -> None:
    """We have more of an author's chain: acknowledge it in the next round."""
    group = tx.group(name)
    due = group.acks.due
    if is_aggregated(group) and author not in due and len(due) < AUTHORS_MAX:
        tx.update_group(name, acks=replace(group.acks, due=due | {author}))
        tx.set_timer(TimerKind.ACK_SETS, name, _round_ms(tx), if_unset=True)


def record_direct(tx: Transaction, name: str, member: str, upto: int, *, via: str = "") -> None:
    """A member itself has acknowledged our own chain up to a place. `via`: if given, the receipt is stored, with this
    source."""
    group = tx.group(name)
    place = group.view.places.get(member)
    if not neighbours.is_ring(group) or place is None:
        return
    upto = min(upto, group.seq)
    _record_own(tx, name, 1 << place, upto, via)
    if is_aggregated(group):
        _merge(tx, name, group.me, upto, 1 << place)


def _record_own(tx: Transaction, name: str, bits: int, upto: int, via: str) -> bool:
    """Note that these members have our own chain up to a place, and store receipts of those that are news. Whether
    there are any."""
    group = tx.group(name)
    acks, order = _current(group), group.view.order
    own = [*acks.own, *(0,) * (len(order) - len(acks.own))]
    news = [place for place in places_of(bits) if own[place] < upto and order[place] != group.me]
    if not news:
        return False
    known = {place: max(own[place], known_upto(group, order[place], group.me)) for place in news}
    for place in news:
        own[place] = upto
    tx.update_group(name, acks=replace(acks, own=tuple(own)))
    for place in news if via else ():
        if known[place] < upto:
            store_receipt(tx, name, order[place], max(0, known[place]), upto, via)
    return True


def _merge(tx: Transaction, name: str, author: str, upto: int, bits: int) -> None:
    """Add members to the sets of an author, who has its own chain; news goes out in the next round."""
    group = tx.group(name)
    acks, places = _current(group), group.view.places
    before = acks.sets.get(author, ())
    after = merged(before, upto, bits | 1 << places[author], acks.number + 1)
    if after is before:
        return
    sets = _newest(group, {**acks.sets, author: after})
    tx.update_group(name, acks=replace(acks, sets=sets, number=acks.number + 1, repeats=0))
    tx.set_timer(TimerKind.ACK_SETS, name, _round_ms(tx), if_unset=True)


def _newest(group: Group, sets: dict[str, AckSets]) -> dict[str, AckSets]:
    """The sets of the authors of the newest events, and ours."""
    if len(sets) <= AUTHORS_MAX:
        return sets
    oldest = min((did for did in sets if did != group.me), key=lambda did: (group.chain(did).lamport, did))
    return {did: one for did, one in sets.items() if did != oldest}


def view_changed(tx: Transaction, name: str, before: View) -> None:
    """The view has changed: members have other places now."""
    group = tx.group(name)
    acks, view = group.acks, group.view
    if not neighbours.is_ring(group) or acks.view not in ("", before.checksum):
        return
    if before.order == view.order:
        tx.update_group(name, acks=replace(acks, view=view.checksum, repeats=0))
    else:
        known = dict(zip(before.order, acks.own, strict=False))
        own = tuple(known.get(did, 0) if did in before.places else -group.seq for did in view.order)
        sets = {did: reordered(one, before.order, view.places) for did, one in acks.sets.items() if did in view.places}
        tx.update_group(name, acks=replace(acks, view=view.checksum, own=own, sets=sets, repeats=0))
    if acks.sets:
        tx.set_timer(TimerKind.ACK_SETS, name, _round_ms(tx), if_unset=True)


# --- rounds -----------------------------------------------------------------------------------------------------------


def start(tx: Transaction, name: str, delay_ms: int) -> None:
    """Our process has started: run a round after a while."""
    if is_aggregated(tx.group(name)):
        tx.set_timer(TimerKind.ACK_SETS, name, delay_ms)


def link_up(tx: Transaction, name: str, member: str) -> None:
    """A link is up: what was sent before may be lost, so the member is told everything again."""
    if tx.group(name).links.peers[member].acks.told:
        tx.update_acks(name, member, told=0)


def _round_ms(tx: Transaction) -> int:
    return ROUND_MS // 2 + int.from_bytes(tx.context.random(2), "big") * ROUND_MS // 2**16


def run_round(tx: Transaction, name: str) -> None:
    """Acknowledge what we have delivered, and send what has changed to a few neighbours that were not told."""
    _acknowledge(tx, name)
    group = tx.group(name)
    news = _news(group)
    if not news or not is_aggregated(group):
        return
    peers, last = group.links.peers, news[-1][1].changed
    lacking = [member for member in _linked(tx, group) if peers[member].acks.told < last]
    for member in sample(list(lacking), FAN_OUT, tx.context.random):
        _send(tx, name, member)
    if group.acks.repeats < REPEATS_MAX and any(not _is_full(group, one) for _, one in news):
        tx.set_timer(TimerKind.ACK_SETS_REPEAT, name, REPEAT.delay_ms(group.acks.repeats))


def repeat(tx: Transaction, name: str) -> None:
    """Nothing has changed for a while, and some sets lack members: send them to one neighbour, which may know more."""
    group = tx.group(name)
    if is_aggregated(group) and (linked := sample(_linked(tx, group), 1, tx.context.random)):
        tx.update_group(name, acks=replace(_current(group), repeats=group.acks.repeats + 1))
        _send(tx, name, linked[0], whole=True)
        run_round(tx, name)


def _acknowledge(tx: Transaction, name: str) -> None:
    """Add ourselves to the sets of the chains of which we have delivered more."""
    group = tx.group(name)
    due, places = group.acks.due, group.view.places
    if not due or not is_aggregated(group):
        return
    filling = {author for author in due if _is_filling(group.chain(author))}
    tx.update_group(name, acks=replace(_current(group), due=frozenset(filling)))
    if filling:
        tx.set_timer(TimerKind.ACK_SETS, name, FILLING_MS)
    for author in sorted((due - filling) & places.keys()):
        _merge(tx, name, author, _authentic_upto(group.chain(author)), 1 << places[group.me])


def _is_filling(chain: Chain) -> bool:
    """Whether earlier events of this chain from after we joined may be missing, or its end is not authentic yet."""
    return chain.confirmed is not None or chain.is_sought


def _authentic_upto(chain: Chain) -> int:
    """How far we have a chain by its author's signatures, whether or not it has announced where the chain begins."""
    return chain.seq if chain.confirmed is None else chain.confirmed.seq


def _news(group: Group) -> News:
    """All sets that say something."""
    found = [(author, one) for author, sets in _current(group).sets.items() for one in distinct(sets)]
    return sorted(found, key=lambda item: (item[1].changed, item[0], item[1].seq))


def _is_full(group: Group, one: AckSet) -> bool:
    return bits_of(one.members) == _everyone(group)


def _everyone(group: Group) -> int:
    return (1 << len(group.view.order)) - 1


def _linked(tx: Transaction, group: Group) -> list[str]:
    """The peers that we are connected to, and whose view is not known to differ."""
    relationships, found = group.links.relationships, []
    for member, peer in group.links.peers.items():
        relationship = relationships.get(member)
        is_paired = relationship is not None and relationship.established and peer.link in tx.agent.links_up
        if is_paired and member in group.view.members and peer.anti_entropy.view in ("", group.view.checksum):
            found.append(member)
    return found


# --- messages ---------------------------------------------------------------------------------------------------------


def _send(tx: Transaction, name: str, member: str, *, whole: bool = False) -> None:
    """Send a member the sets that it lacks, in a message of their own. `whole`: as in `sync_fields`."""
    group = tx.group(name)
    body = {"group": name, "view": group.view.checksum, "have": [], **sync_fields(tx, name, member, whole=whole)}
    if "ack_sets" in body:
        message = Message(type=ACK_SETS, id=new_id(tx.context.random), body=body)
        packed = pack(group.links.relationships[member], message, tx.packer_of(name), tx.context.random)
        mediator_mail.send(tx, name, member, packed)


def sync_fields(tx: Transaction, name: str, member: str, *, whole: bool) -> dict[str, Any]:
    """The fields of a message with the sets that a member was not told, the longest known first, as many as fit; they
    count as told. `whole`: also some of those that lack members."""
    group = tx.group(name)
    if not is_aggregated(group) or group.links.peers[member].anti_entropy.view not in ("", group.view.checksum):
        return {}
    told, places = group.links.peers[member].acks.told, group.view.places
    news = _news(group)
    untold = [item for item in news if item[1].changed > told]
    fitting = untold[:ACK_SETS_MAX]
    if len(untold) > len(fitting):  # those of one change go together
        fitting = [item for item in fitting if item[1].changed < untold[ACK_SETS_MAX][1].changed]
    upto = fitting[-1][1].changed if fitting else told
    if whole:
        open_ = [item for item in news if item[1].changed <= told and not _is_full(group, item[1])]
        fitting += sample(open_, min(REPEATED_MAX, ACK_SETS_MAX - len(fitting)), tx.context.random)
    if upto != told:
        tx.update_acks(name, member, told=upto)
    fields = [[places[author], one.seq, "" if _is_full(group, one) else b64url(one.members)] for author, one in fitting]
    return {"ack_sets": fields} if fields else {}


def receive(tx: Transaction, name: str, sender: str, view: str, reported: Sequence[AckSetFields]) -> None:
    """Merge what a neighbour reports about the members of this view. Ignored where ours is another one: it comes again.
    Raises Malformed or TooMuchWork."""
    group = tx.group(name)
    if not reported or not is_aggregated(group) or view != group.view.checksum or sender not in group.links.peers:
        return
    rate_limits.charge_work(tx, name, sender, SET_WORK_US * len(reported))
    shown: dict[tuple[str, int], int] = {}
    for author, seq, bits in _read(group, reported):
        shown[author, seq] = bits
        bits &= ~(1 << group.view.places[group.me])  # what we have, we know best
        if author == group.me:
            _record_own(tx, name, bits, seq, sender)
        _merge(tx, name, author, seq, bits)
    _compare(tx, name, sender, shown)


def _read(group: Group, reported: Sequence[AckSetFields]) -> Iterator[tuple[str, int, int]]:
    """The author, the position and the members of each reported set; what is beyond our own part of a chain counts for
    that part. Raises Malformed."""
    order, everyone = group.view.order, _everyone(group)
    for place, seq, members in reported:
        bits = bits_of(b64url_bytes(members)) & everyone if members else everyone
        if place < len(order) and (upto := min(seq, _authentic_upto(group.chain(order[place])))) > 0:
            yield order[place], upto, bits


def _compare(tx: Transaction, name: str, member: str, shown: Mapping[tuple[str, int], int]) -> None:
    """A member has shown these sets: what it lacks of them goes to it in our next round, and what it has need not."""
    acks, told = _current(tx.group(name)), tx.group(name).links.peers[member].acks.told
    least = told
    for (author, seq), bits in shown.items():
        for one in acks.sets.get(author, ()):
            if one.seq >= seq:
                if bits_of(one.members) & ~bits:
                    least = min(least, one.changed - 1)
                break
    news = [(author, one) for author, one in _news(tx.group(name)) if one.changed > least]
    if least == told and all(shown.get((author, one.seq)) == bits_of(one.members) for author, one in news):
        least = max(told, acks.number)
    elif least < told:
        tx.set_timer(TimerKind.ACK_SETS, name, _round_ms(tx), if_unset=True)
    if least != told:
        tx.update_acks(name, member, told=least)
