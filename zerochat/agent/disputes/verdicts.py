"""Verdicts: what we tell the group of a case, and what others tell, worked out again before it is believed.

Most of a case stands in the log, which everybody has. What may be missing elsewhere is told with the verdict: the
statements between the two, and the message that came where it is short; who has it need not be told. Of two messages
that cannot both be, nothing stands in any log: both are told, if they are short enough.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.disputes.case_builder import case_of
from zerochat.agent.disputes.case_files import Docket, Statements, parse_docket, subscriptions
from zerochat.agent.disputes.tlog_reader import Book, rules_of
from zerochat.agent.storage.disputes import KeptCase
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.storage.signed_messages import Rivals
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, Malformed, RemoteError
from zerochat.evidence.case import Case, Clock, Fork
from zerochat.evidence.equivocation import CLOCK, FORK, Pair
from zerochat.evidence.judge import FORKED, OPEN, TURNED_BACK, judge
from zerochat.evidence.messages import parse_data
from zerochat.group.event_log.event import load_event
from zerochat.group.membership import may_post
from zerochat.group.messages.bodies import saying_of
from zerochat.group.state import Group
from zerochat.group.tlog.verdicts import Verdict, fault_of_verdict


class _Missing(Struct, frozen=True, forbid_unknown_fields=True):
    """What is shown of an accusation. `message` is empty where it is too long."""

    docket: Docket


class _Counted(Struct, frozen=True, forbid_unknown_fields=True):
    """What is shown of two messages that cannot both be."""

    subscription: Statements
    count: Fork | Clock


class Told(Struct, frozen=True):
    """A verdict that a member has told."""

    author: str
    event: str
    verdict: Verdict


# --- telling ----------------------------------------------------------------------------------------------------------


def verdict_on(docket: Docket, outcome: str) -> Verdict:
    """What we tell of an accusation that has come to this."""
    found = _verdict(docket.digest, outcome, docket.accused, _Missing(docket))
    if fault_of_verdict(found):
        found = _verdict(docket.digest, outcome, docket.accused, _Missing(replace(docket, message=b"")))
    return found


def verdict_of_two(journal: Journal, group: Group, rivals: Rivals) -> Verdict | None:
    """What we tell of two messages that cannot both be; None: they are too long to be told, or their author never let
    us hear this stream by a word that it has signed."""
    case = case_of_two(journal, group, rivals)
    if case is None:
        return None
    found = _verdict(
        digest_of(rivals.pair), outcome_of(rivals.pair), rivals.author, _Counted(case.subscription, case.counts[0])
    )
    return None if fault_of_verdict(found) else found


def case_of_two(journal: Journal, group: Group, rivals: Rivals) -> Case | None:
    """The case about two messages that cannot both be, as a file has it."""
    alias = b64url(parse_data(rivals.pair.one).alias)
    known = [one for one in subscriptions(journal, group, rivals.author, group.me) if one[1].alias == alias]
    count = Fork if rivals.pair.says == FORK else Clock
    return Case(subscription=known[-1], counts=(count(rivals.pair.one, rivals.pair.other),)) if known else None


def outcome_of(pair: Pair) -> str:
    """What two messages that cannot both be convict their author of."""
    return FORKED if pair.says == FORK else TURNED_BACK


def digest_of(pair: Pair) -> str:
    """What names two messages that cannot both be, in whatever order they came."""
    return b64url(sha256(sha256(min(pair.one, pair.other)) + sha256(max(pair.one, pair.other))))


def _verdict(of: str, outcome: str, against: str, shown: Struct) -> Verdict:
    return Verdict(of, outcome, against, msgspec.to_builtins(shown))


# --- what others tell -------------------------------------------------------------------------------------------------


def told_in(journal: Journal, group: Group) -> list[Told]:
    """What members have told who may write, the oldest first."""
    return list(_read(journal.verdicts(group.id), group))


def _read(rows: Iterable[Row], group: Group) -> Iterable[Told]:
    for row in rows:
        try:
            what = saying_of(load_event(row.record))
        except Malformed:
            continue
        if isinstance(what, Verdict) and may_post(group.view, row.author, row.position):
            yield Told(row.author, row.id, what)


def docket_in(book: Book, group: str, verdict: Verdict) -> Docket | None:
    """What a verdict shows of an accusation, checked; None: nothing that could be judged. The message that came is
    looked for here where it is not shown."""
    shown = _shown(verdict.shown, _Missing)
    if shown is None:
        return None
    docket = shown.docket
    try:
        if not docket.message:
            docket = replace(docket, message=book.blob(group, docket.accusation.message) or b"")
        docket.check()
    except RemoteError:
        return None
    return docket if (docket.digest, docket.accused) == (verdict.of, verdict.against) else None


def docket_of(book: Book, group: str, case: KeptCase, told: Iterable[Told]) -> Docket | None:
    """What a case is about, as far as that is known here: it was ours, or somebody has told it."""
    if case.docket:
        try:
            return parse_docket(case.docket)
        except RemoteError:
            return None
    shown = (docket_in(book, group, one.verdict) for one in told if one.verdict.of == case.digest)
    return next((one for one in shown if one is not None), None)


def worked_out(book: Book, group: str, docket: Docket) -> str:
    """What an accusation comes to by the log as it is known here; empty: that is open."""
    rules = rules_of(book, group, docket.subscription[1].rules)
    if rules is None:
        return ""
    try:
        outcome = judge(case_of(book, group, rules, docket)).delivery
    except LocalError:
        return ""
    return "" if outcome == OPEN else outcome


def convicted(verdict: Verdict, group: str) -> str:
    """What the two messages that a verdict shows convict their author of; empty: of nothing."""
    case = case_told(verdict, group)
    return next(iter(judge(case).guilty), "") if case is not None else ""


def case_told(verdict: Verdict, group: str) -> Case | None:
    """The case about two messages that a verdict shows; None: it shows none about whom and what it says."""
    shown = _shown(verdict.shown, _Counted)
    if shown is None:
        return None
    request, _, _ = shown.subscription
    if (request.topic, request.publisher) != (group, verdict.against):
        return None
    one, other = msgspec.structs.astuple(shown.count)
    pair = Pair(FORK if isinstance(shown.count, Fork) else CLOCK, one, other)
    if digest_of(pair) != verdict.of:
        return None
    return Case(subscription=shown.subscription, counts=(shown.count,))


def _shown(shown: Mapping[str, Any], shape: Any) -> Any:
    try:
        return msgspec.convert(dict(shown), shape)
    except msgspec.ValidationError:
        return None
