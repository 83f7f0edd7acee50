"""What we can say for ourselves against an accusation, each as the judge wants it; nothing that it would not believe.

One that holds is enough, and it is always given: an accusation that is void today may be shown to be in time by a later
checkpoint. What cannot be shown is not claimed.
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from zerochat.agent.disputes.case_files import Charge
from zerochat.agent.disputes.tlog_reader import Book, ended, entries_from
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.signed_messages import Kept
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


def grounds(journal: Journal, book: Book, group: Group, rules: Rules, charge: Charge) -> Iterator[Ground]:
    """All that holds, the strongest first: that the accuser had it, that it was there to be fetched, that it was not
    owed, that it is judged elsewhere."""
    request, accept = charge.request, charge.accept
    alias = b64url_bytes(accept.alias)
    came = parse_data(charge.message)
    link = journal.signed.last_before(group.id, group.me, alias, came.time)
    if link is not None and link.signature != came.before:
        link = None
    if link is not None:
        yield from _acknowledged(journal, group, charge, link)
        yield from _posted(book, group, rules, link)
        yield from _ended(book, group, rules, charge, link)
    for one in journal.signed.statements(group.id, request.subscriber):
        said = parse_statement(one.statement) if one.says == "close" else None
        mine = isinstance(said, Close) and (said.accept, said.by) == (accept.digest, request.subscriber)
        if isinstance(said, Close) and mine and said.time <= came.time + rules.grace_ms:
            yield Closed(said)
    yield from _repeated(book, group, rules, charge)


def defences(journal: Journal, book: Book, group: Group, rules: Rules, charge: Charge) -> Iterator[tuple[str, bytes]]:
    """The grounds that hold and are short enough to count, the strongest first: the name of each, and the defence as it
    is posted."""
    for ground in grounds(journal, book, group, rules, charge):
        written = Defence(charge.digest, ground).written()
        if len(written) <= DEFENCE_BYTES_MAX:
            yield str(type(ground).__struct_config__.tag), written


def _acknowledged(journal: Journal, group: Group, charge: Charge, link: Kept) -> Iterator[Ground]:
    """The accuser's first acknowledgement of it that is kept, with the way there, unless the two began anew between."""
    ack = journal.signed.acks_of(group.id, link.alias, link.time).get(charge.accusation.by)
    if ack is None:
        return
    said = parse_ack(ack)
    chain = journal.signed.stream(group.id, group.me, link.alias, link.time, MESSAGES_MAX)
    chain = [one for one in chain if one.time <= said.time]
    begun = {_head(one) for one in charge.reopened}
    if chain and chain[-1].signature == said.of and not begun & {one.signature for one in chain[:-1]}:
        yield Acknowledged(tuple(one.message for one in chain), ack)


def _head(accept: Accept) -> bytes:
    """Behind which signature of ours a subscriber began to listen by this answer of ours (`Subscription.head`)."""
    return parse_overwrite(b64url_bytes(accept.overwrite)).then if accept.overwrite else b64url_bytes(accept.start)


def _posted(book: Book, group: Group, rules: Rules, link: Kept) -> Iterator[Ground]:
    entry = entry_of("message", group.me, link.message)
    receipt = book.receipt(group.id, rules.origin, entry.record())
    with suppress(RemoteError):
        if receipt is not None and receipt.posted_ms(entry, rules.quorum) <= link.time + rules.ack_ms + rules.grace_ms:
            yield Posted(link.message, receipt.written())


def _ended(book: Book, group: Group, rules: Rules, charge: Charge, link: Kept) -> Iterator[Ground]:
    found = ended(book, group.id, rules, charge.accept)
    if found is not None and link.time > found.at:
        yield Ended(link.message, found.close, found.receipt.written())


def _repeated(book: Book, group: Group, rules: Rules, charge: Charge) -> Iterator[Ground]:
    """An earlier one of the same, unless that was void."""
    now, came = charge.accusation, parse_data(charge.message)
    mine = entry_of("accusation", now.by, now.written()).record()
    for place, record in entries_from(book, group.id, rules.origin, 0):
        if record == mine and place >= now.since:
            return
        if not is_kind(record, "accusation"):
            continue
        entry = parse_entry(record)
        blob = book.blob(group.id, entry.hash) if entry.author == now.by else None
        before = parse_accusation(blob) if blob is not None else None
        if before is None or before.digest == now.digest:
            continue
        same = (before.by, before.accept, before.message, before.missing)
        if same != (now.by, now.accept, now.message, now.missing):
            continue
        receipt = book.receipt(group.id, rules.origin, record)
        due_ms = came.time + rules.ack_ms + rules.grace_ms
        if receipt is not None and before.time >= due_ms and before.since <= receipt.index:
            yield Repeated(before, receipt.written())
            return


def parse_accusation(blob: bytes) -> Accusation | None:
    """The accusation behind an entry, if it is one and signed by who accuses."""
    try:
        found = msgspec.convert(strict_json(blob, STATEMENT_BYTES_MAX), Accusation)
        found.check()
    except (RemoteError, msgspec.ValidationError):
        return None
    return found if found.written() == blob else None
