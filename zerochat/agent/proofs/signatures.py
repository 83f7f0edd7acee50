"""Provable signatures and acknowledgements of stored stream messages, for the evidence views."""

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.proofs.builder import events_of, subscription_of
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views import delivery
from zerochat.agent.views.tlog_status import log_info, logged
from zerochat.evidence.messages import parse_ack
from zerochat.group.state import Group
from zerochat.rpc import Evidence, MessageEvidence, SignedBy, SignedStream
from zerochat.rpc.common import timestamp


class Shown(Struct, frozen=True):
    """Stored evidence of one event."""

    signed: bool = False
    message: bytes = b""
    """The signed message that contains it."""
    by: Mapping[str, int] = {}
    """Members with a provable acknowledgement, and its time by their clock (UTC ms)."""
    unshown: frozenset[str] = frozenset()
    """Members whose acknowledgement cannot be proven from the stored statements."""


def shown(journal: Journal, group: Group, row: Row, members: Collection[str]) -> Shown:
    """The stored evidence of an event, by these members. Acknowledgements exist for own events only."""
    kept = journal.signed_messages.carrier(group.id, row.author, row.position)
    if kept is None or row.id not in events_of(group, kept):
        return Shown()
    acks = journal.signed_messages.acks_of(group.id, kept.alias, kept.time) if row.author == group.me else {}
    by: dict[str, int] = {}
    for member in acks.keys() & members:
        ack = parse_ack(acks[member])
        if subscription_of(journal, group, member, kept.alias, kept.time, ack.time) is not None:
            by[member] = ack.at
    return Shown(True, kept.message, by, frozenset((acks.keys() & members) - by.keys()))


def evidence(
    journal: Journal, group: Group, names: Mapping[str, str], about: tuple[Row, rpc.DeliveryReport] | None
) -> Evidence:
    """Evidence about a group, or `about` one event and its delivery report. `names`: display names by DID."""
    found = Evidence(group=group.id, keys=group.keys, signs=group.mode.signs)
    if about is not None:
        return replace(found, message=_message(journal, group, *about))
    if group.mode.signs:
        found = replace(found, streams=_streams(journal, group, names))
    if group.view.has_tlog:
        found = replace(found, log=log_info(journal, group, names))
    return found


def _streams(journal: Journal, group: Group, names: Mapping[str, str]) -> list[SignedStream]:
    """The own stream first, then those of members in joining order, then stored ones of former members."""
    tally = journal.signed_messages.message_counts(group.id)
    acked: dict[str, tuple[int, int]] = {}
    if (own := group.streams.own) is not None:
        for member, written in journal.signed_messages.acks(group.id, own.alias).items():
            ack = parse_ack(written)
            acked[member] = ack.at, journal.signed_messages.count(group.id, group.me, own.alias, ack.time)
    here = sorted(group.view.members.keys() - {group.me}, key=lambda did: (group.view.members[did].joined, did))
    gone = sorted(tally.keys() - {group.me, *here})
    streams = []
    for did in [group.me, *here, *gone]:
        count, first, last = tally.get(did, (0, 0, 0))
        at, behind = acked.get(did, (0, 0))
        streams.append(
            SignedStream(
                did=did,
                nick=names.get(did, ""),
                messages=count,
                first=timestamp(first) if count else None,
                last=timestamp(last) if count else None,
                signed_at=timestamp(at) if at else None,
                behind=behind,
                gone=did not in group.view.members,
            )
        )
    return streams


def _message(journal: Journal, group: Group, row: Row, report: rpc.DeliveryReport) -> MessageEvidence:
    assert report.event is not None
    if delivery.is_signed(row):
        return MessageEvidence(event=report.event, signed=True, why="itself")
    if not group.first_mode.signs:
        return MessageEvidence(event=report.event, why="upgraded" if group.mode.signs_events else "keys")
    known = shown(journal, group, row, {one.did for one in report.members})
    members = [_member(one, known) for one in report.members if one.did != group.me] if row.author == group.me else []
    place = logged(journal, group, row.author, known.message) if group.view.has_tlog and known.signed else None
    return MessageEvidence(
        event=report.event,
        signed=known.signed,
        why="" if known.signed else "unheard",
        logged=place[0] if place else 0,
        logged_at=timestamp(place[1]) if place else None,
        members=members,
    )


def _member(one: rpc.MemberDelivery, known: Shown) -> SignedBy:
    if (at := known.by.get(one.did)) is not None:
        return SignedBy(did=one.did, nick=one.nick, grade="signed", at=timestamp(at))
    if one.did in known.unshown:
        return SignedBy(did=one.did, nick=one.nick, grade="unshown")
    return SignedBy(did=one.did, nick=one.nick, grade="told" if one.delivered else "none")


def with_signatures(journal: Journal, group: Group, row: Row, report: rpc.DeliveryReport) -> rpc.DeliveryReport:
    """The delivery report with signatures added."""
    found = shown(journal, group, row, {one.did for one in report.members})
    return delivery.with_signatures(report, found.signed, {did: timestamp(at) for did, at in found.by.items()})
