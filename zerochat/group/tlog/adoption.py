"""Adopting new terms: each terms event begins another transparency log, and our roles in it."""

from functools import lru_cache

from msgspec import to_builtins

from zerochat.crypto.encoding import canonical_json
from zerochat.evidence.case import Rules
from zerochat.evidence.operator import OperatorLog
from zerochat.evidence.reader import ReaderLog
from zerochat.evidence.witness import WitnessLog
from zerochat.group.effects import FreezeSignedAcks, Notify, StoreTlog
from zerochat.group.membership import Terms, View
from zerochat.group.notifications import TlogTermsChanged
from zerochat.group.state import EndedSubscription, Group, Subscriber, TransparencyLog
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

TLOGS_MAX = 4
"""The logs of one group that are still in use: the current one, and the last ones before it."""
FIRST_ROUND_MS = 1_000
ENDED_MAX = 256
"""Replaced subscriptions with messages that may still be owed: more than ten idle members can cause in that time
(`rate_limits.spend_statement`)."""


def current_rules(group: Group) -> str:
    """The digest of the rules for new subscriptions; empty: none."""
    terms = group.view.terms
    return digest_of(terms.rules) if terms is not None else ""


@lru_cache(64)
def digest_of(rules: Rules) -> str:
    return rules.digest


def current_tlog(group: Group) -> TransparencyLog | None:
    """The log by the terms in force."""
    terms = group.view.terms
    return group.tlogs.by_name.get(terms.rules.origin) if terms is not None else None


def is_current(group: Group, log: TransparencyLog) -> bool:
    """Whether this is the log by the terms in force."""
    terms = group.view.terms
    return terms is not None and terms.rules.origin == log.rules.origin


def current_size(group: Group) -> int:
    """How many entries we have of the current log; 0 where there is none."""
    log = current_tlog(group)
    return log.followed.frontier.size if log is not None else 0


def adopt_terms(tx: Transaction, name: str, before: View | None) -> None:
    """Adopt the terms of our view, where they differ from those of `before`."""
    group = tx.group(name)
    terms = group.view.terms
    if terms == (before.terms if before is not None else None):
        return
    if terms is None:
        tx.emit(Notify(TlogTermsChanged(name, "", "", (), "")))
        return
    rules = terms.rules
    if rules.origin not in group.tlogs.by_name:
        last = _latest_tlog(group)
        stalled = last is not None and not last.followed.frontier.size
        tx.update_tlogs(name, stalled_terms=group.tlogs.stalled_terms + 1 if stalled else 0)
        _begin_tlog(tx, name, terms)
    tx.emit(Notify(TlogTermsChanged(name, rules.origin, rules.operator, rules.witnesses, terms.author)))
    tx.set_timer(TimerKind.TLOG, name, FIRST_ROUND_MS)


def _latest_tlog(group: Group) -> TransparencyLog | None:
    """The log with the latest terms."""
    return max(group.tlogs.by_name.values(), key=lambda log: (log.lamport, log.rules.origin), default=None)


def _begin_tlog(tx: Transaction, name: str, terms: Terms) -> None:
    group, rules = tx.group(name), terms.rules
    # A log that was dropped from the state may come into force again: a new signature of ours could contradict an old
    # one.
    retired = rules.origin in group.tlogs.abandoned or terms.lamport <= group.tlogs.retired_at
    log = TransparencyLog(
        rules,
        terms.lamport,
        ReaderLog(rules.quorum),
        operated=OperatorLog(rules.quorum) if rules.operator == group.me and not retired else None,
        watched=WitnessLog(rules.origin, rules.operator) if group.me in rules.witnesses and not retired else None,
        retired=retired,
    )
    logs = {**group.tlogs.by_name, rules.origin: log}
    left = group.tlogs.abandoned
    while len(logs) > TLOGS_MAX:
        oldest = min((one for one in logs if one != rules.origin), key=lambda one: (logs[one].lamport, one))
        del logs[oldest]
        left = (*left, oldest)
    tx.update_tlogs(name, by_name=logs, abandoned=left)
    tx.emit(StoreTlog(name, rules.origin, canonical_json(to_builtins(rules)), tx.now))


def record_ended(tx: Transaction, name: str, member: str, one: Subscriber) -> None:
    """A member has renewed its subscription to our stream: messages of the previous one are still owed."""
    group = tx.group(name)
    if group.view.has_tlog and group.streams.own is not None and one.begun < group.streams.own.time:
        ended = EndedSubscription(member, one.rules, one.begun, group.streams.own.time)
        tx.emit(FreezeSignedAcks(name, member, group.streams.own.alias, group.streams.own.time))
        tx.update_tlogs(name, ended_subscriptions=(*group.tlogs.ended_subscriptions, ended)[-ENDED_MAX:])


def retire_tlogs(tx: Transaction, name: str, until: int) -> None:
    """We may have signed more for the logs whose terms have at most this Lamport time than we remember: follow them,
    but neither operate nor witness them."""
    group = tx.group(name)
    if group.view.has_tlog:
        logs = {origin: _retired(log) for origin, log in group.tlogs.by_name.items()}
        tx.update_tlogs(name, by_name=logs, retired_at=max(until, group.tlogs.retired_at))


def _retired(log: TransparencyLog) -> TransparencyLog:
    return TransparencyLog(
        log.rules, log.lamport, log.followed, pending=log.pending, read=log.read, retired=True, split=log.split
    )
