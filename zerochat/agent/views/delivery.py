"""Who has an event, how that is known, and what has become of it on its way: the core's state in the protocol's words.

Who can be reached is asked of the core itself; it depends on the time of day where something was tried in vain. Who is
known to have an event is worked out from the acknowledgements. For our own events it is exact: we know whom they were
meant for. For others' it is what their readers have told us, counted over those who were members when it was written.
"""

import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.storage.journal import Held, Row
from zerochat.agent.views.completeness import known_of
from zerochat.agent.views.event_pages import height
from zerochat.didcomm import PACKERS
from zerochat.group.event_log.event import CONTROL, LEAVE, REMOVE
from zerochat.group.inputs import Moment
from zerochat.group.links import mediator_mail, mediator_receipts
from zerochat.group.membership import remove_of
from zerochat.group.state import Agent, Group
from zerochat.group.sync import corroboration
from zerochat.group.transaction import Turn
from zerochat.rpc import Delivery, DeliveryReport, Event, Fate, MemberDelivery


def audience(group: Group, author: str, position: int, lamport: int) -> list[str]:
    """The other members that an event is for."""
    members = group.view.members
    if author == group.me:
        return [did for did, peer in group.peers.items() if did in members and peer.base < position]
    return [did for did, member in members.items() if did != author and member.joined < lamport]


def has(group: Group, member: str, author: str, position: int) -> bool:
    """Whether a member is known to have this event. (Ours are in the log, or nobody would ask.)"""
    if member in (group.me, author):
        return True
    peer = group.peers.get(member)
    return peer is not None and peer.acked.get(author, 0) >= position


def counted(group: Group, author: str, position: int, lamport: int) -> Delivery:
    """How many of those whom it is for are known to have it."""
    meant = audience(group, author, position, lamport)
    return Delivery(sum(has(group, member, author, position) for member in meant), len(meant))


def reach(agent: Agent, group: Group, did: str) -> tuple[rpc.Connection, rpc.Via]:
    """How it stands with the connection to a member, and what that goes over."""
    peer = group.peers.get(did)
    if did == group.me or peer is None or group.state == "left":
        return ("self" if did == group.me else "unreachable"), ""
    # Nothing is done with this turn, so it needs no dice.
    turn = Turn(agent, Moment(int(time.time() * 1000), bytes), PACKERS)
    if not mediator_mail.reachable(turn, group.id, did):
        return "unreachable", ""
    relationship = group.relationships.get(did)
    settled = relationship is not None and relationship.established
    return ("connected" if settled else "connecting"), ("link" if peer.link in agent.up else "mediator")


# --- one event ------------------------------------------------------------------------------------------------------


def waited_for(group: Group, row: Row, names: Mapping[str, str], count: int = -1) -> DeliveryReport:
    """Who has an event; complete when `count` members have it (-1: all)."""
    meant = audience(group, row.author, row.position, row.lamport)
    table = []
    for member in meant:
        there = has(group, member, row.author, row.position)
        state: rpc.DeliveryState = "delivered" if there else "sent" if row.author == group.me else "unknown"
        table.append(MemberDelivery(member, names.get(member, ""), there, state))
    return _report(group, row, table, count)


def report(
    agent: Agent, group: Group, row: Row, held: list[Held], names: Mapping[str, str], event: Event
) -> DeliveryReport:
    """Who has an event, since when and how that is known; of those who have not, what they are waiting for. `held`: the
    receipts of its position in its chain."""
    meant = audience(group, row.author, row.position, row.lamport)
    receipts = {one.member: one for one in held}
    table = [_one(agent, group, row, member, receipts.get(member), names.get(member, "")) for member in meant]
    return replace(_report(group, row, table, -1), event=event, signed=row.type in CONTROL)


def with_signatures(told: DeliveryReport, signed: bool, by: Mapping[str, str]) -> DeliveryReport:
    """The report, with whether the event's author has signed it, and which members have signed that they have it, since
    when."""
    members = [replace(one, signed=one.did in by, signed_at=by.get(one.did)) for one in told.members]
    return replace(told, signed=signed, members=members)


def has_read(agent: Agent, group: Group, member: str, lamport: int) -> bool:
    """Whether a member says that it has read up to this Lamport time or further, where such a thing is told at all."""
    peer = group.peers.get(member)
    return agent.sharing.read_receipts and peer is not None and peer.read >= lamport


def _report(group: Group, row: Row, table: list[MemberDelivery], count: int) -> DeliveryReport:
    delivered = sum(one.delivered for one in table)
    wanted = len(table) if count < 0 else min(count, len(table))
    return DeliveryReport(group.id, row.id, delivered, len(table), delivered >= wanted, table)


def _one(agent: Agent, group: Group, row: Row, member: str, receipt: Held | None, nick: str) -> MemberDelivery:
    if member == group.me:
        return MemberDelivery(member, nick, True, "delivered", timestamp(row.received), "", "self")
    connection, way = reach(agent, group, member)
    peer = group.peers.get(member)
    heard = timestamp(peer.heard) if peer is not None and peer.heard else None
    if has(group, member, row.author, row.position):
        at, via = (timestamp(receipt.at), receipt.via) if receipt is not None else (None, "")
        read = has_read(agent, group, member, row.lamport)
        return MemberDelivery(member, nick, True, "delivered", at, via, connection, heard, read=read)
    if row.author != group.me:
        return MemberDelivery(member, nick, False, "unknown", None, "", connection, heard)
    tries = peer.tries if peer is not None else 0
    again = timestamp(peer.retry_at) if peer is not None and way and peer.retry_at else None
    now = int(time.time() * 1000) - agent.leap
    until = mediator_receipts.until(group, member, row.position, now) if way != "link" else 0
    state: rpc.DeliveryState = "held" if until else "sent" if way else "queued"
    found = MemberDelivery(member, nick, False, state, None, way, connection, heard, tries, again)
    return replace(found, held_until=timestamp(until)) if until else found


# --- its fate -------------------------------------------------------------------------------------------------------


def fate(group: Group, row: Row, held: list[Held], names: Mapping[str, str], about: DeliveryReport) -> Fate:
    """Everything that is known of one event; `about` is its report, with the event itself."""
    assert about.event is not None

    def nick(did: str) -> str:
        return names.get(did, "")

    stretch = height(group, row.author)
    second = corroboration.second_of(group, row.author, row.position) if row.vouched else ""
    second = "" if second == row.vouched else second
    return Fate(
        event=about.event,
        report=about,
        word=_word(row, about),
        first=stretch.first,
        here=stretch.seq,
        known=known_of(group, row.author),
        forked=group.chain(row.author).forked > 0 or row.author in group.view.forked,
        differs=[
            differs(group, one.author, one.seq, one.member, one.by if row.vouched else "", nick)
            for one in group.differences
            if one.author == row.author and one.seq <= row.position
        ],
        second=rpc.Author(second, nick(second)) if second else None,
        gone=_gone(group, row, {one.member: one for one in held}, names),
    )


def differs(group: Group, author: str, seq: int, member: str, by: str, nick: Callable[[str], str]) -> rpc.DiffersNews:
    """A member has something else than we have in this place of an author's chain (`by`: from whom we have it)."""
    return rpc.DiffersNews(
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


def _word(row: Row, about: DeliveryReport) -> rpc.Word:
    if row.refuted:
        return "refuted"
    if about.event is not None and about.event.self:
        return "mine"
    if row.type in CONTROL or about.signed:
        return "signed"
    return "vouched" if row.vouched else "author"


def _gone(group: Group, row: Row, held: Mapping[str, Held], names: Mapping[str, str]) -> list[MemberDelivery]:
    """Those who were members when the event was written and are no longer, in the order in which they joined."""
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
