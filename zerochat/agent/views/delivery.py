"""Delivery reports and message status, from the core's acknowledgements and the journal's receipts.

For our own events the recipients are known exactly. For events of others, the reports of their readers count, among the
members at the time of the event.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.storage.journal import EventReceipt, Row
from zerochat.agent.views.completeness import is_refused, known_of
from zerochat.agent.views.connections import sends
from zerochat.agent.views.delivery_counts import audience, has
from zerochat.agent.views.event_pages import chain_extent
from zerochat.didcomm import PACKERS
from zerochat.errors import LocalError, RemoteError
from zerochat.group.event_log.event import LEAVE, REMOVE, load_event
from zerochat.group.inputs import StepContext
from zerochat.group.links import mediator_mail, mediator_receipts
from zerochat.group.links.neighbours import is_forwarding, is_ring
from zerochat.group.membership import remove_of
from zerochat.group.state import Agent, Group
from zerochat.group.sync import corroboration
from zerochat.group.transaction import Transaction
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import DeliveryReport, Event, MemberDelivery, MessageStatus
from zerochat.rpc.common import timestamp


def reading(agent: Agent) -> Transaction:
    """A transaction that is only read from, so that it needs no random bytes."""
    return Transaction(agent, StepContext(int(time.time() * 1000), bytes), PACKERS)


def reach(agent: Agent, group: Group, did: str, turn: Transaction | None = None) -> tuple[rpc.Connection, rpc.Via]:
    """The state of the connection to a member, and how it is reached. `turn`: from `reading`, for many members."""
    peer = group.links.peers.get(did)
    if did == group.me or group.state == "left":
        return ("self" if did == group.me else "unreachable"), ""
    if peer is None:
        return ("indirect" if is_reached_over_others(agent, group, did) else "unreachable"), ""
    turn = turn or reading(agent)
    if sends(agent) == "nothing" or not mediator_mail.reachable(turn, group.id, did):
        return "unreachable", ""
    relationship = group.links.relationships.get(did)
    settled = relationship is not None and relationship.established
    return ("connected" if settled else "connecting"), ("link" if peer.link in agent.links_up else "mediator")


def is_reached_over_others(agent: Agent, group: Group, did: str) -> bool:
    """Whether a member is none of our neighbours on the ring, and at least one of these is connected to pass messages
    on."""
    if did not in group.view.members or group.me not in group.view.members or not is_forwarding(group):
        return False
    return any(peer.link in agent.links_up for peer in group.links.peers.values())


def obstacle(agent: Agent, group: Group, did: str) -> rpc.Obstacle:
    """Why a member cannot acknowledge anything, as far as that is known; empty: it can."""
    peer = group.links.peers.get(did)
    if peer is None or did not in group.view.members or peer.link in agent.links_up:
        return ""
    if mediator_mail.is_cut_off(agent, group, did):
        return "no_mediator"
    theirs = mediator_mail.reach_of_member(group, did)
    is_hidden = theirs.pair is None and bool(theirs.routes) and not peer.last_received_at
    return "own_mediator" if is_hidden and not mediator_mail.own_reach_in(reading(agent), group).routes else ""


# --- one event ------------------------------------------------------------------------------------------------------


class BadPage(LocalError):
    """There is no page after {after}."""


class Recipients(Struct, frozen=True):
    """The recipients of an event: first those that lack it, each part in the order of joining."""

    dids: list[str]
    lacking: int
    """How many of them, the first ones, lack it."""

    @property
    def delivered(self) -> int:
        return len(self.dids) - self.lacking

    def suffices(self, count: int) -> bool:
        """Whether `count` of them have it (-1: all)."""
        return self.delivered >= (len(self.dids) if count < 0 else min(count, len(self.dids)))


def recipients(group: Group, row: Row) -> Recipients:
    """Takes time linear in the members."""
    meant = audience(group, row.author, row.position, row.lamport)
    here = {did: has(group, did, row.author, row.position) for did in meant}
    lacking = [did for did in meant if not here[did]]
    return Recipients([*lacking, *(did for did in meant if here[did])], len(lacking))


def _cursor(group: Group, did: str, there: bool) -> str:
    """Where a page ends: a member that has received the event meanwhile is shown again, none is left out."""
    member = group.view.known(did)
    return f"{there:d} {member.joined if member else 0} {did}"


def _after(group: Group, found: Recipients, cursor: str) -> int:
    """The index of the first recipient behind a cursor. Raises BadPage."""
    part, _, rest = cursor.partition(" ")
    joined, _, did = rest.partition(" ")
    if part not in ("0", "1") or not (joined.isascii() and joined.isdigit()):
        raise BadPage(after=ascii(cursor[:64]))

    def place(one: str) -> tuple[int, str]:
        member = group.view.known(one)
        return member.joined if member else 0, one

    start, end = (found.lacking, len(found.dids)) if part == "1" else (0, found.lacking)
    return bisect_right(found.dids, (int(joined), did), start, end, key=place)


def page_of(
    group: Group, found: Recipients, params: rpc.EventParams, names: Mapping[str, str]
) -> tuple[list[str], str]:
    """The DIDs of a page of recipients, and the cursor of the next page; empty: there is none. Raises BadPage."""
    start = _after(group, found, params.after) if params.after else 0
    limit, query = max(1, min(params.limit, MEMBER_PAGE_MAX)), params.query.casefold()
    page: list[int] = []
    for at in range(start, len(found.dids)):
        if query not in names.get(found.dids[at], "").casefold():
            continue
        if len(page) == limit:
            return [found.dids[one] for one in page], _cursor(group, found.dids[page[-1]], page[-1] >= found.lacking)
        page.append(at)
    return [found.dids[at] for at in page], ""


def progress(group: Group, row: Row, names: Mapping[str, str], count: int = -1) -> DeliveryReport:
    """Which recipients have an event, the first page; complete when `count` of them have it (-1: all)."""
    found = recipients(group, row)
    page, more = page_of(group, found, rpc.EventParams(group.id, row.id), names)
    return replace(_report(group, row, found, _states(group, row, page, names), count), next=more)


def whole_report(group: Group, row: Row, names: Mapping[str, str], event: Event) -> DeliveryReport:
    """All recipients of an event, only whether each has it."""
    found = recipients(group, row)
    return replace(_report(group, row, found, _states(group, row, found.dids, names), -1), event=event)


def _is_sent_to(group: Group, row: Row, member: str) -> bool:
    """Whether we send an event to a member ourselves until it acknowledges it: ours, on the ring to neighbours."""
    return row.author == group.me and (member in group.links.peers or not is_ring(group))


def _states(group: Group, row: Row, members: Sequence[str], names: Mapping[str, str]) -> list[MemberDelivery]:
    table = []
    for member in members:
        there = has(group, member, row.author, row.position)
        state: rpc.DeliveryState = "delivered" if there else "sent" if _is_sent_to(group, row, member) else "unknown"
        table.append(MemberDelivery(member, names.get(member, ""), there, state))
    return table


def report(
    agent: Agent,
    group: Group,
    row: Row,
    receipts_of: Callable[[Sequence[str]], list[EventReceipt]],
    names: Mapping[str, str],
    event: Event,
    params: rpc.EventParams | None = None,
) -> DeliveryReport:
    """A page of the recipients of an event: which have it, since when and by which source; for the others, the pending
    retransmission. `receipts_of` reads the receipts of its position of these members. Raises BadPage."""
    found = recipients(group, row)
    page, more = page_of(group, found, params or rpc.EventParams(group.id, row.id), names)
    held = {one.member: one for one in receipts_of(page)}
    table = [_one(agent, group, row, member, held.get(member), names.get(member, "")) for member in page]
    return replace(_report(group, row, found, table, -1), event=event, signed=is_signed(row), next=more)


def is_signed(row: Row) -> bool:
    """Whether an event itself carries its author's signature, which was checked when it came."""
    with suppress(RemoteError):
        return bool(load_event(row.record).sig)
    return False


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


def _report(group: Group, row: Row, found: Recipients, table: list[MemberDelivery], count: int) -> DeliveryReport:
    return DeliveryReport(group.id, row.id, found.delivered, len(found.dids), found.suffices(count), table)


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
    why = obstacle(agent, group, member)
    if not _is_sent_to(group, row, member):
        return MemberDelivery(member, nick, False, "unknown", None, "", connection, heard, obstacle=why)
    tries = peer.retransmission.tries if peer is not None else 0
    again = (
        timestamp(peer.retransmission.retry_at) if peer is not None and way and peer.retransmission.retry_at else None
    )
    now = _now(agent)
    until = mediator_receipts.kept_until(group, member, row.position, now) if way != "link" else 0
    state: rpc.DeliveryState = (
        "held" if is_refused_by(agent, group, member) else "stored" if until else "sent" if way else "queued"
    )
    found = MemberDelivery(member, nick, False, state, None, way, connection, heard, tries, again, obstacle=why)
    return replace(found, stored_until=timestamp(until)) if until else found


# --- its fate -------------------------------------------------------------------------------------------------------


def message_status(
    group: Group,
    row: Row,
    receipts_of: Callable[[Sequence[str]], list[EventReceipt]],
    names: Mapping[str, str],
    about: DeliveryReport,
) -> MessageStatus:
    """Everything known about one event. `receipts_of`: as in `report`. `about`: its report with the event."""
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
        former_members=_gone(group, row, receipts_of, names),
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
    if about.signed:
        return "signed"
    return "relayed" if row.relayed_by else "author"


def _gone(
    group: Group, row: Row, receipts_of: Callable[[Sequence[str]], list[EventReceipt]], names: Mapping[str, str]
) -> list[MemberDelivery]:
    """The recipients that are no longer members, in the order of joining: the last that one answer names."""
    went: dict[str, int] = {}
    for event in group.control.values():
        if event.type in (LEAVE, REMOVE):
            did = event.author if event.type == LEAVE else remove_of(event).member
            went[did] = max(went.get(did, 0), event.lamport)
    former = sorted(group.view.former.values(), key=lambda one: (one.joined, one.did))
    meant = [one.did for one in former if one.did != row.author and one.joined < row.lamport < went.get(one.did, 0)]
    page = meant[-MEMBER_PAGE_MAX:]
    held = {one.member: one for one in receipts_of(page)}
    found = []
    for did in page:
        receipt = held.get(did)
        at, via = (timestamp(receipt.at), receipt.via) if receipt is not None else (None, "")
        state: rpc.DeliveryState = "left" if receipt is None else "delivered"
        found.append(MemberDelivery(did, names.get(did, ""), receipt is not None, state, at, via))
    return found
