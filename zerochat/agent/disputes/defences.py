"""Builds defences against an accusation of this profile, in the form that the judge accepts.

One valid ground suffices. A defence is always posted, because an accusation that seems premature now may be proven
timely by a later checkpoint. Unprovable grounds are not claimed.
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from zerochat.agent.disputes.case_files import Charge
from zerochat.agent.disputes.tlog_reader import TlogReader, ended_subscription, entries_from
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.signed_messages import StoredMessage
from zerochat.crypto.encoding import b64url_bytes, strict_json
from zerochat.errors import RemoteError
from zerochat.evidence.case import (
    DEFENCE_BYTES_MAX,
    MESSAGES_MAX,
    Accusation,
    Acknowledged,
    Closed,
    Defence,
    Ended,
    Ground,
    Posted,
    Repeated,
    Rules,
)
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX, Accept, Close, parse_statement
from zerochat.evidence.messages import parse_ack, parse_data, parse_overwrite
from zerochat.evidence.witness import entry_of, is_kind, parse_entry
from zerochat.group.state import Group


def grounds(journal: Journal, tlog: TlogReader, group: Group, rules: Rules, charge: Charge) -> Iterator[Ground]:
    """Valid grounds, strongest first: acknowledged, posted in the log, not owed, judged elsewhere."""
    request, accept = charge.request, charge.accept
    alias = b64url_bytes(accept.alias)
    came = parse_data(charge.message)
    link = journal.signed_messages.last_before(group.id, group.me, alias, came.time)
    if link is not None and link.signature != came.before:
        link = None
    if link is not None:
        yield from _acknowledged(journal, group, charge, link)
        yield from _posted(tlog, group, rules, link)
        yield from _ended(tlog, group, rules, charge, link)
    for one in journal.signed_messages.statements(group.id, request.subscriber):
        statement = parse_statement(one.statement) if one.kind == "close" else None
        mine = isinstance(statement, Close) and (statement.accept, statement.author) == (
            accept.digest,
            request.subscriber,
        )
        if isinstance(statement, Close) and mine and statement.time <= came.time + rules.grace_ms:
            yield Closed(statement)
    yield from _repeated(tlog, group, rules, charge)


def defences(
    journal: Journal, tlog: TlogReader, group: Group, rules: Rules, charge: Charge
) -> Iterator[tuple[str, bytes]]:
    """Names and encoded defences of the valid grounds that are short enough to count, strongest first."""
    for ground in grounds(journal, tlog, group, rules, charge):
        encoded = Defence(charge.digest, ground).serialize()
        if len(encoded) <= DEFENCE_BYTES_MAX:
            yield str(type(ground).__struct_config__.tag), encoded


def _acknowledged(journal: Journal, group: Group, charge: Charge, link: StoredMessage) -> Iterator[Ground]:
    """The accuser's first stored acknowledgement with its chain, unless a subscription began in between."""
    ack = journal.signed_messages.acks_of(group.id, link.alias, link.time).get(charge.accusation.accuser)
    if ack is None:
        return
    acknowledged = parse_ack(ack)
    chain = journal.signed_messages.stream(group.id, group.me, link.alias, link.time, MESSAGES_MAX)
    chain = [one for one in chain if one.time <= acknowledged.time]
    begun = {_head(one) for one in charge.reopened}
    if chain and chain[-1].signature == acknowledged.of and not begun & {one.signature for one in chain[:-1]}:
        yield Acknowledged(tuple(one.message for one in chain), ack)


def _head(accept: Accept) -> bytes:
    """Signature after which the subscription of our accept statement begins (`Subscription.head`)."""
    return parse_overwrite(b64url_bytes(accept.overwrite)).then if accept.overwrite else b64url_bytes(accept.start)


def _posted(tlog: TlogReader, group: Group, rules: Rules, link: StoredMessage) -> Iterator[Ground]:
    entry = entry_of("message", group.me, link.message)
    receipt = tlog.receipt(group.id, rules.origin, entry.record())
    with suppress(RemoteError):
        if receipt is not None and receipt.posted_ms(entry, rules.quorum) <= link.time + rules.ack_ms + rules.grace_ms:
            yield Posted(link.message, receipt.serialize())


def _ended(tlog: TlogReader, group: Group, rules: Rules, charge: Charge, link: StoredMessage) -> Iterator[Ground]:
    found = ended_subscription(tlog, group.id, rules, charge.accept)
    if found is not None and link.time > found.at:
        yield Ended(link.message, found.close, found.receipt.serialize())


def _repeated(tlog: TlogReader, group: Group, rules: Rules, charge: Charge) -> Iterator[Ground]:
    """A valid earlier accusation of the same message."""
    now, came = charge.accusation, parse_data(charge.message)
    mine = entry_of("accusation", now.accuser, now.serialize()).record()
    for place, record in entries_from(tlog, group.id, rules.origin, 0):
        if record == mine and place >= now.log_size:
            return
        if not is_kind(record, "accusation"):
            continue
        entry = parse_entry(record)
        blob = tlog.blob(group.id, entry.hash) if entry.author == now.accuser else None
        before = parse_accusation(blob) if blob is not None else None
        if before is None or before.digest == now.digest:
            continue
        same = (before.accuser, before.accept, before.message, before.missing)
        if same != (now.accuser, now.accept, now.message, now.missing):
            continue
        receipt = tlog.receipt(group.id, rules.origin, record)
        due_ms = came.time + rules.ack_ms + rules.grace_ms
        if receipt is not None and before.time >= due_ms and before.log_size <= receipt.index:
            yield Repeated(before, receipt.serialize())
            return


def parse_accusation(blob: bytes) -> Accusation | None:
    """The accusation in an entry's blob; None: malformed or not signed by the accuser."""
    try:
        found = msgspec.convert(strict_json(blob, STATEMENT_BYTES_MAX), Accusation)
        found.check()
    except (RemoteError, msgspec.ValidationError):
        return None
    return found if found.serialize() == blob else None
