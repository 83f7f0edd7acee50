"""New terms are in force: there is another log from now on, and what we are in it."""

from functools import lru_cache

from msgspec import to_builtins

from zerochat.crypto.encoding import canonical_json
from zerochat.evidence.case import Rules
from zerochat.evidence.operator import Operated
from zerochat.evidence.reader import Followed
from zerochat.evidence.witness import Watched
from zerochat.group.effects import KeepLog, Notify, SealAcks
from zerochat.group.membership import Terms, View
from zerochat.group.notifications import TermsSet
from zerochat.group.state import Ended, Group, Log, Subscriber
from zerochat.group.transaction import Turn

LOGS_MAX = 4
"""The logs of one group that we still have to do with: the one in force, and the last ones before it."""
SOON_MS = 1_000
ENDED_MAX = 256
"""Subscriptions that were replaced and by which something may be owed yet: more than can be asked for anew while that
is so (`conduct.spend_statement`), of ten members who do nothing else."""


def rules_now(group: Group) -> str:
    """The digest of the rules by which who hears whom may be judged from now on; empty: by none."""
    terms = group.view.terms
    return digest_of(terms.rules) if terms is not None else ""


@lru_cache(64)
def digest_of(rules: Rules) -> str:
    return rules.digest


def current(group: Group) -> Log | None:
    """The log by the terms in force."""
    terms = group.view.terms
    return group.logs.get(terms.rules.origin) if terms is not None else None


def is_current(group: Group, log: Log) -> bool:
    """Whether this is the log by the terms in force."""
    terms = group.view.terms
    return terms is not None and terms.rules.origin == log.rules.origin


def size_now(group: Group) -> int:
    """How many entries we have of that; 0 where there is none."""
    log = current(group)
    return log.followed.frontier.size if log is not None else 0


def adopt(turn: Turn, name: str, before: View | None) -> None:
    """Go by the terms of our view, where these are other ones than `before`."""
    group = turn.group(name)
    terms = group.view.terms
    if terms == (before.terms if before is not None else None):
        return
    if terms is None:
        turn.say(Notify(TermsSet(name, "", "", (), "")))
        return
    rules = terms.rules
    if rules.origin not in group.logs:
        last = _last(group)
        stalled = last is not None and not last.followed.frontier.size
        turn.edit(name, stalls=group.stalls + 1 if stalled else 0)
        _begin(turn, name, terms)
    turn.say(Notify(TermsSet(name, rules.origin, rules.operator, rules.witnesses, terms.by)))
    turn.timer("log", name, SOON_MS)


def _last(group: Group) -> Log | None:
    """The log with the latest terms."""
    return max(group.logs.values(), key=lambda log: (log.lamport, log.rules.origin), default=None)


def _begin(turn: Turn, name: str, terms: Terms) -> None:
    group, rules = turn.group(name), terms.rules
    # What we had to do with once and have forgotten may come into force again: we could sign there what contradicts us.
    retired = rules.origin in group.left_logs or terms.lamport <= group.retired_at
    log = Log(
        rules,
        terms.lamport,
        Followed(rules.quorum),
        operated=Operated(rules.quorum) if rules.operator == group.me and not retired else None,
        watched=Watched(rules.origin, rules.operator) if group.me in rules.witnesses and not retired else None,
        retired=retired,
    )
    logs = {**group.logs, rules.origin: log}
    left = group.left_logs
    while len(logs) > LOGS_MAX:
        oldest = min((one for one in logs if one != rules.origin), key=lambda one: (logs[one].lamport, one))
        del logs[oldest]
        left = (*left, oldest)
    turn.edit(name, logs=logs, left_logs=left)
    turn.say(KeepLog(name, rules.origin, canonical_json(to_builtins(rules)), turn.now))


def replaced(turn: Turn, name: str, member: str, one: Subscriber) -> None:
    """A member has asked anew to hear our stream: what it was to get by what it had asked for before is owed still."""
    group = turn.group(name)
    if group.view.ledger and group.stream is not None and one.begun < group.stream.time:
        ended = Ended(member, one.rules, one.begun, group.stream.time)
        turn.say(SealAcks(name, member, group.stream.alias, group.stream.time))
        turn.edit(name, ended=(*group.ended, ended)[-ENDED_MAX:])


def retire(turn: Turn, name: str, until: int) -> None:
    """We may have signed more for logs than we remember, those whose terms have this Lamport time or a lower one: we
    follow them, and neither operate nor witness any."""
    group = turn.group(name)
    if group.view.ledger:
        logs = {origin: _retired(log) for origin, log in group.logs.items()}
        turn.edit(name, logs=logs, retired_at=max(until, group.retired_at))


def _retired(log: Log) -> Log:
    return Log(log.rules, log.lamport, log.followed, mine=log.mine, read=log.read, retired=True, split=log.split)
