"""Builds the complete case of a case file from the transparency log; every reader of the log builds the same one."""

from typing import ClassVar

from zerochat.agent.disputes.case_files import CaseFile
from zerochat.agent.disputes.tlog_reader import TlogReader, entries_from
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, RemoteError, Retry
from zerochat.evidence.case import ENTRIES_MAX, Case, Rules, Span, Withheld
from zerochat.evidence.judge import counted_defences
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import parse_checkpoint
from zerochat.evidence.witness import entry_of


class NotFiled(LocalError):
    """The accusation {case} is not in the transparency log yet. It is posted again until it is."""

    retry: ClassVar[Retry] = "later"


class TooMuchInBetween(LocalError):
    """Too many entries were logged while {case} was open to fit a case file, so it cannot be judged."""


def case_of(tlog: TlogReader, group: str, rules: Rules, case_file: CaseFile) -> Case:
    """The case up to the known end of the log; open (`judge.OPEN`) until the defence window is over. Raises NotFiled
    and TooMuchInBetween."""
    accusation, origin, short = case_file.accusation, rules.origin, case_file.digest[:8]
    entry = entry_of("accusation", accusation.accuser, accusation.serialize())
    receipt = tlog.receipt(group, origin, entry.record(), accusation.log_size)
    last = tlog.latest_checkpoint(group, origin)
    if receipt is None or last is None:
        raise NotFiled(case=short)
    try:
        closing = tlog.checkpoint_after(group, origin, receipt.posted_ms(entry, rules.quorum) + rules.window_ms) or last
    except RemoteError:
        raise NotFiled(case=short) from None
    size = parse_checkpoint(closing.text).size
    if size - accusation.log_size > ENTRIES_MAX:
        raise TooMuchInBetween(case=short)
    frontier = Frontier()
    for _, record in entries_from(tlog, group, origin, 0, min(accusation.log_size, size)):
        frontier = frontier.with_entry(record)
    entries = [record for _, record in entries_from(tlog, group, origin, accusation.log_size, size)]
    if not entries:
        raise NotFiled(case=short)
    counted = counted_defences(entries, case_file.accused, case_file.digest)
    found = [tlog.blob(group, one) for one in counted]
    defences = tuple(blob for blob, one in zip(found, counted, strict=True) if blob and b64url(sha256(blob)) == one)
    span = Span(accusation.log_size, frontier.peaks, tuple(entries), closing.serialize())
    return Case(
        rules=rules,
        subscription=case_file.subscription,
        withheld=Withheld(accusation, case_file.message, receipt.serialize(), span, defences, case_file.reopened),
    )
