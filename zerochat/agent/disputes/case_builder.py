"""The whole case, as anybody can judge it: the accusation, and what stands in the log from where the accuser knew it to
the end of the time for defending. Everybody who follows the log makes the same one."""

from typing import ClassVar

from zerochat.agent.disputes.case_files import Docket
from zerochat.agent.disputes.tlog_reader import Book, entries_from
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, RemoteError, Retry
from zerochat.evidence.case import ENTRIES_MAX, Case, Missing, Rules, Span
from zerochat.evidence.judge import counting
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import parse_checkpoint
from zerochat.evidence.witness import entry_of


class NotFiled(LocalError):
    """The accusation {case} is not in the log yet: it is said again until it has its place there."""

    retry: ClassVar[Retry] = "later"


class TooMuchInBetween(LocalError):
    """So much was put into the log while {case} was open that no file can show all of it: nobody can judge it."""


def case_of(book: Book, group: str, rules: Rules, docket: Docket) -> Case:
    """The case as far as the log is known: it is open (`judge.OPEN`) until the time for defending is over there. Raises
    NotFiled and TooMuchInBetween."""
    said, origin, short = docket.accusation, rules.origin, docket.digest[:8]
    entry = entry_of("accusation", said.by, said.written())
    receipt = book.receipt(group, origin, entry.record(), said.since)
    last = book.last(group, origin)
    if receipt is None or last is None:
        raise NotFiled(case=short)
    try:
        closing = book.note_after(group, origin, receipt.posted_ms(entry, rules.quorum) + rules.window_ms) or last
    except RemoteError:
        raise NotFiled(case=short) from None
    size = parse_checkpoint(closing.text).size
    if size - said.since > ENTRIES_MAX:
        raise TooMuchInBetween(case=short)
    frontier = Frontier()
    for _, record in entries_from(book, group, origin, 0, min(said.since, size)):
        frontier = frontier.with_entry(record)
    entries = [record for _, record in entries_from(book, group, origin, said.since, size)]
    if not entries:
        raise NotFiled(case=short)
    counted = counting(entries, docket.accused, docket.digest)
    found = [book.blob(group, one) for one in counted]
    defences = tuple(blob for blob, one in zip(found, counted, strict=True) if blob and b64url(sha256(blob)) == one)
    span = Span(said.since, frontier.peaks, tuple(entries), closing.written())
    return Case(
        rules=rules,
        subscription=docket.subscription,
        missing=Missing(said, docket.message, receipt.written(), span, defences, docket.reopened),
    )
