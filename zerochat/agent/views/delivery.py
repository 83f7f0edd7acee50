"""Delivery reports and message status, from the core's acknowledgements and the journal's receipts.

For our own events the recipients are known exactly. For events of others, the reports of their readers count, among the
members at the time of the event.
"""

import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.storage.journal import EventReceipt, Row
from zerochat.agent.views.completeness import is_refused, known_of
from zerochat.agent.views.event_pages import chain_extent
from zerochat.didcomm import PACKERS
from zerochat.group.event_log.event import CONTROL, LEAVE, REMOVE
from zerochat.group.inputs import StepContext
from zerochat.group.joining.private_conversations import is_waiting
from zerochat.group.links import mediator_mail, mediator_receipts
from zerochat.group.membership import remove_of
from zerochat.group.state import Agent, Group
from zerochat.group.sync import corroboration
from zerochat.group.transaction import Transaction
from zerochat.rpc import Delivery, DeliveryReport, Event, MemberDelivery, MessageStatus
from zerochat.rpc.common import timestamp


def audience(group: Group, author: str, position: int, lamport: int) -> list[str]:
    """The other members that an event is for; in a private conversation also the one that has not joined, by its DID in
    the group from which it was begun."""
    members = group.view.members
    if group.private is not None and author == group.me and is_waiting(group):
        return [group.private.member]
    if author == group.me:
        return [did for did, peer in group.links.peers.items() if did in members and peer.start_seq < position]
    return [did for did, member in members.items() if did != author and member.joined < lamport]


def has(group: Group, member: str, author: str, position: int) -> bool:
    """Whether a member is known to have this event, which is in the log."""
    if member in (group.me, author):
        return True
    peer = group.links.peers.get(member)
    return peer is not None and peer.acks.upto.get(author, 0) >= position


def counted(group: Group, author: str, position: int, lamport: int) -> Delivery:
    """How many recipients are known to have it."""
    meant = audience(group, author, position, lamport)
    return Delivery(sum(has(group, member, author, position) for member in meant), len(meant))


def reach(agent: Agent, group: Group, did: str) -> tuple[rpc.Connection, rpc.Via]:
    """The state of the connection to a member, and how it is reached."""
    peer = group.links.peers.get(did)
    if did == group.me or peer is None or group.state == "left":
        return ("self" if did == group.me else "unreachable"), ""
    # Nothing is done with this turn, so it needs no dice.
    turn = Transaction(agent, StepContext(int(time.time() * 1000), bytes), PACKERS)
    if not mediator_mail.reachable(turn, group.id, did):
        return "unreachable", ""
    relationship = group.links.relationships.get(did)
    settled = relationship is not None and relationship.established
    return ("connected" if settled else "connecting"), ("link" if peer.link in agent.links_up else "mediator")


# --- one event ------------------------------------------------------------------------------------------------------


def progress(group: Group, row: Row, names: Mapping[str, str], count: int = -1) -> DeliveryReport:
    """Which recipients have an event; complete when `count` of them have it (-1: all)."""
    meant = audience(group, row.author, row.position, row.lamport)
    table = []
    for member in meant:
        there = has(group, member, row.author, row.position)
        state: rpc.DeliveryState = "delivered" if there else "sent" if row.author == group.me else "unknown"
        table.append(MemberDelivery(member, names.get(member, ""), there, state))
    return _report(group, row, table, count)


def report(
    agent: Agent, group: Group, row: Row, held: list[EventReceipt], names: Mapping[str, str], event: Event
) -> DeliveryReport:
    """Which recipients have an event, since when and by which source; for the others, the pending retransmission.
    `held`: the receipts of its position."""
    meant = audience(group, row.author, row.position, row.lamport)
    receipts = {one.member: one for one in held}
    table = [_one(agent, group, row, member, receipts.get(member), names.get(member, "")) for member in meant]
    return replace(_report(group, row, table, -1), event=event, signed=row.type in CONTROL)


def with_signatures(told: DeliveryReport, signed: bool, by: Mapping[str, str]) -> DeliveryReport:
    """The report with the author's signature and the members' signed acknowledgements."""
    members = [replace(one, signed=one.did in by, signed_at=by.get(one.did)) for one in told.members]
    return replace(told, signed=signed, members=members)


def has_read(agent: Agent, group: Group, member: str, lamport: int) -> bool:
    """Whether a member's read receipts cover this Lamport time, where they are enabled."""
    peer = group.links.peers.get(member)
    return agent.indicators.read_receipts and peer is not None and peer.shown.read_upto >= lamport


def _now(agent: Agent) -> int:
    return int(time.time() * 1000) - agent.clock_offset_ms


def is_refused_by(agent: Agent, group: Group, member: str) -> bool:
    """Whether a member accepts no more of our events for now, since our daily quota there is used up."""
    peer = group.links.peers.get(member)
    return peer is not None and peer.retransmission.no_room_until > _now(agent)


def _report(group: Group, row: Row, table: list[MemberDelivery], count: int) -> DeliveryReport:
    delivered = sum(one.delivered for one in table)
    wanted = len(table) if count < 0 else min(count, len(table))
    return DeliveryReport(group.id, row.id, delivered, len(table), delivered >= wanted, table)


def _one(agent: Agent, group: Group, row: Row, member: str, receipt: EventReceipt | None, nick: str) -> MemberDelivery:
    if member == group.me:
        return MemberDelivery(member, nick, True, "delivered", timestamp(row.received), "", "self")
    connection, way = reach(agent, group, member)
    peer = group.links.peers.get(member)
    heard = timestamp(peer.last_received_at) if peer is not None and peer.last_received_at else None
    if has(group, member, row.author, row.position):
        at, via = (timestamp(receipt.at), receipt.via) if receipt is not None else (None, "")
        read = has_read(agent, group, member, row.lamport)
        return MemberDelivery(member, nick, True, "delivered", at, via, connection, heard, read=read)
    if row.author != group.me:
        return MemberDelivery(member, nick, False, "unknown", None, "", connection, heard)
    tries = peer.retransmission.tries if peer is not None else 0
    again = (
        timestamp(peer.retransmission.retry_at) if peer is not None and way and peer.retransmission.retry_at else None
    )
    now = _now(agent)
    until = mediator_receipts.kept_until(group, member, row.position, now) if way != "link" else 0
    state: rpc.DeliveryState = (
        "held" if is_refused_by(agent, group, member) else "stored" if until else "sent" if way else "queued"
    )
    found = MemberDelivery(member, nick, False, state, None, way, connection, heard, tries, again)
    return replace(found, stored_until=timestamp(until)) if until else found


# --- its fate -------------------------------------------------------------------------------------------------------


def message_status(
    group: Group, row: Row, held: list[EventReceipt], names: Mapping[str, str], about: DeliveryReport
) -> MessageStatus:
    """Everything known about one event. `about`: its report with the event."""
    assert about.event is not None

    def nick(did: str) -> str:
        return names.get(did, "")

    stretch = chain_extent(group, row.author)
    second = corroboration.corroborator_of(group, row.author, row.position) if row.relayed_by else ""
    second = "" if second == row.relayed_by else second
    return MessageStatus(
        event=about.event,
        report=about,
        provenance=_word(row, about),
        first=stretch.first,
        here=stretch.seq,
        known=known_of(group, row.author),
        forked=group.chain(row.author).fork_seq > 0 or row.author in group.view.forked,
        held=is_refused(group, row.author),
        differs=[
            differs(group, one.author, one.seq, one.member, one.relayed_by if row.relayed_by else "", nick)
            for one in group.sync.differences
            if one.author == row.author and one.seq <= row.position
        ],
        corroborated_by=rpc.Author(second, nick(second)) if second else None,
        former_members=_gone(group, row, {one.member: one for one in held}, names),
    )


def differs(
    group: Group, author: str, seq: int, member: str, by: str, nick: Callable[[str], str]
) -> rpc.ChainDifferenceNotification:
    """A member has another event than we at this position of an author's chain. `by`: the member that relayed ours."""
    return rpc.ChainDifferenceNotification(
        group=group.id,
        author=author,
        nick=nick(author),
        position=seq,
        member=member,
        member_nick=nick(member),
        mine=author == group.me,
        by=by,
        by_nick=nick(by) if by else "",
    )


def _word(row: Row, about: DeliveryReport) -> rpc.Provenance:
    if row.refuted:
        return "refuted"
    if about.event is not None and about.event.self:
        return "own"
    if row.type in CONTROL or about.signed:
        return "signed"
    return "relayed" if row.relayed_by else "author"


def _gone(group: Group, row: Row, held: Mapping[str, EventReceipt], names: Mapping[str, str]) -> list[MemberDelivery]:
    """The recipients that are no longer members, in the order of joining."""
    went: dict[str, int] = {}
    for event in group.control.values():
        if event.type in (LEAVE, REMOVE):
            did = event.author if event.type == LEAVE else remove_of(event).member
            went[did] = max(went.get(did, 0), event.lamport)
    found = []
    for did, member in sorted(group.view.former.items(), key=lambda item: (item[1].joined, item[0])):
        if did == row.author or not member.joined < row.lamport < went.get(did, 0):
            continue
        receipt = held.get(did)
        at, via = (timestamp(receipt.at), receipt.via) if receipt is not None else (None, "")
        state: rpc.DeliveryState = "left" if receipt is None else "delivered"
        found.append(MemberDelivery(did, names.get(did, ""), receipt is not None, state, at, via))
    return found
