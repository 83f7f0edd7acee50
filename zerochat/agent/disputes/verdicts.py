"""Verdict events: exhibits for announced verdicts, and recomputation of those received.

Most of a case is in the transparency log, which every member reads. A verdict carries the rest as its exhibit: the
subscription statements, and the received message if it is short. For an equivocation it carries both messages if they
are short enough.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.disputes.case_builder import case_of
from zerochat.agent.disputes.case_files import CaseFile, Statements, parse_case_file, subscriptions
from zerochat.agent.disputes.tlog_reader import TlogReader, rules_of
from zerochat.agent.storage.disputes import StoredCase
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.storage.signed_messages import StoredEquivocation
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, Malformed, RemoteError
from zerochat.evidence.case import Case, Fork, TimeReversal
from zerochat.evidence.judge import FORKED, OPEN, TIME_REVERSED, judge
from zerochat.evidence.messages import FORK, TIME_REVERSAL, Equivocation, parse_data
from zerochat.group.event_log.event import load_event
from zerochat.group.membership import may_post
from zerochat.group.messages.bodies import content_of
from zerochat.group.state import Group
from zerochat.group.tlog.verdicts import Verdict, verdict_error


class _AccusationExhibit(Struct, frozen=True, forbid_unknown_fields=True):
    """Exhibit of an accusation; the case file's `message` is empty if it is too long."""

    case_file: CaseFile


class _EquivocationExhibit(Struct, frozen=True, forbid_unknown_fields=True):
    """Exhibit of an equivocation."""

    subscription: Statements
    count: Fork | TimeReversal


class ReceivedVerdict(Struct, frozen=True):
    """A verdict announced by a member."""

    author: str
    event: str
    verdict: Verdict


# --- announcing -------------------------------------------------------------------------------------------------------


def verdict_on(case_file: CaseFile, outcome: str) -> Verdict:
    """The verdict event of an accusation with this outcome."""
    found = _verdict(case_file.digest, outcome, case_file.accused, _AccusationExhibit(case_file))
    if verdict_error(found):
        found = _verdict(
            case_file.digest, outcome, case_file.accused, _AccusationExhibit(replace(case_file, message=b""))
        )
    return found


def equivocation_verdict(journal: Journal, group: Group, rivals: StoredEquivocation) -> Verdict | None:
    """The verdict event of an equivocation; None: the messages are too long, or no signed subscription to the stream
    exists."""
    case = equivocation_case(journal, group, rivals)
    if case is None:
        return None
    found = _verdict(
        pair_digest(rivals.pair),
        pair_outcome(rivals.pair),
        rivals.author,
        _EquivocationExhibit(case.subscription, case.equivocations[0]),
    )
    return None if verdict_error(found) else found


def equivocation_case(journal: Journal, group: Group, rivals: StoredEquivocation) -> Case | None:
    """The complete case of an equivocation; None: no signed subscription to the stream exists."""
    alias = b64url(parse_data(rivals.pair.one).alias)
    known = [one for one in subscriptions(journal, group, rivals.author, group.me) if one[1].alias == alias]
    count = Fork if rivals.pair.kind == FORK else TimeReversal
    return Case(subscription=known[-1], equivocations=(count(rivals.pair.one, rivals.pair.other),)) if known else None


def pair_outcome(pair: Equivocation) -> str:
    """The outcome of an equivocation."""
    return FORKED if pair.kind == FORK else TIME_REVERSED


def pair_digest(pair: Equivocation) -> str:
    """Identifier of an equivocation, independent of the order of its messages."""
    return b64url(sha256(sha256(min(pair.one, pair.other)) + sha256(max(pair.one, pair.other))))


def _verdict(of: str, outcome: str, against: str, shown: Struct) -> Verdict:
    return Verdict(of, outcome, against, msgspec.to_builtins(shown))


# --- receiving --------------------------------------------------------------------------------------------------------


def received_verdicts(journal: Journal, group: Group) -> list[ReceivedVerdict]:
    """Verdicts announced by members with the right to post, oldest first."""
    return list(_parse_rows(journal.verdicts(group.id), group))


def _parse_rows(rows: Iterable[Row], group: Group) -> Iterable[ReceivedVerdict]:
    for row in rows:
        try:
            what = content_of(load_event(row.record))
        except Malformed:
            continue
        if isinstance(what, Verdict) and may_post(group.view, row.author, row.position):
            yield ReceivedVerdict(row.author, row.id, what)


def case_file_in(tlog: TlogReader, group: str, verdict: Verdict) -> CaseFile | None:
    """The verified case file in a verdict; None: none or invalid. A message missing in the exhibit is taken from the
    log's blobs."""
    shown = _exhibit(verdict.evidence, _AccusationExhibit)
    if shown is None:
        return None
    case_file = shown.case_file
    try:
        if not case_file.message:
            case_file = replace(case_file, message=tlog.blob(group, case_file.accusation.message) or b"")
        case_file.check()
    except RemoteError:
        return None
    return case_file if (case_file.digest, case_file.accused) == (verdict.target, verdict.member) else None


def case_file_of(
    tlog: TlogReader, group: str, case: StoredCase, announced: Iterable[ReceivedVerdict]
) -> CaseFile | None:
    """The case file of a case: own, or announced with a verdict; None: unknown."""
    if case.case_file:
        try:
            return parse_case_file(case.case_file)
        except RemoteError:
            return None
    shown = (case_file_in(tlog, group, one.verdict) for one in announced if one.verdict.target == case.digest)
    return next((one for one in shown if one is not None), None)


def judge_case_file(tlog: TlogReader, group: str, case_file: CaseFile) -> str:
    """The own verdict on a case file by the known log; empty: open."""
    rules = rules_of(tlog, group, case_file.subscription[1].rules)
    if rules is None:
        return ""
    try:
        outcome = judge(case_of(tlog, group, rules, case_file)).delivery
    except LocalError:
        return ""
    return "" if outcome == OPEN else outcome


def conviction_in(verdict: Verdict, group: str) -> str:
    """The equivocation proven by a verdict's exhibit; empty: none."""
    case = equivocation_case_in(verdict, group)
    return next(iter(judge(case).guilty), "") if case is not None else ""


def equivocation_case_in(verdict: Verdict, group: str) -> Case | None:
    """The equivocation case in a verdict's exhibit; None: missing or inconsistent with the verdict."""
    shown = _exhibit(verdict.evidence, _EquivocationExhibit)
    if shown is None:
        return None
    request, _, _ = shown.subscription
    if (request.topic, request.publisher) != (group, verdict.member):
        return None
    one, other = msgspec.structs.astuple(shown.count)
    pair = Equivocation(FORK if isinstance(shown.count, Fork) else TIME_REVERSAL, one, other)
    if pair_digest(pair) != verdict.target:
        return None
    return Case(subscription=shown.subscription, equivocations=(shown.count,))


def _exhibit(shown: Mapping[str, Any], shape: Any) -> Any:
    try:
        return msgspec.convert(dict(shown), shape)
    except msgspec.ValidationError:
        return None
