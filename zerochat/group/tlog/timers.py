"""Periodic work in groups with a transparency log: proposals, resubmission, requests, cleanup."""

from zerochat.group.effects import DeleteBlobs, Notify
from zerochat.group.notifications import TlogStalled
from zerochat.group.signed_streams import subscriptions
from zerochat.group.state import TransparencyLog
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.tlog import follower, operator, pending_entries, submission, terms
from zerochat.group.tlog.adoption import current_rules, is_current
from zerochat.group.tlog.messages import can_send, may_repeat, update_tlog
from zerochat.group.tlog.witness import HOLD_MS
from zerochat.group.transaction import Transaction

ROUND_MS = 15_000
"""The interval of a round, plus or minus a quarter (jitter)."""
RENEWALS_MAX = 8
"""Subscriptions renewed in one round after new terms."""
OLD_TLOG_ROUNDS = 12
"""In so many of 256 rounds an outdated log is checked for extensions."""
DROP_ROUNDS = 4
"""In so many of 256 rounds expired blobs are deleted."""


def run_round(tx: Transaction, name: str) -> None:
    """One round."""
    if tx.group(name).state != "active" or not tx.group(name).view.has_tlog:
        return
    terms.propose_terms(tx, name)
    pending_entries.end_oldest_subscriptions(tx, name)
    for origin in list(tx.group(name).tlogs.by_name):
        submission.query_overdue(tx, name, origin)
        submission.resubmit_pending(tx, name, origin)
        _run_operator(tx, name, origin)
        _run_follower(tx, name, origin)
        _notify_stalled(tx, name, origin)
    submission.drop_ended_subscriptions(tx, name)
    _renew_subscriptions(tx, name)
    if tx.context.random(1)[0] < DROP_ROUNDS:
        tx.emit(DeleteBlobs(name, tx.now - HOLD_MS))
    tx.set_timer(TimerKind.TLOG, name, ROUND_MS * 3 // 4 + tx.context.random(1)[0] * ROUND_MS // 510)


def _run_operator(tx: Transaction, name: str, origin: str) -> None:
    log = tx.group(name).tlogs.by_name[origin]
    if log.operated is None or log.split is not None:
        return
    if log.operated.proposed is not None:
        operator.request_cosignatures(tx, name, origin)
    elif log.operated.pending:
        operator.append_entries(tx, name)
    elif _needs_refresh(tx, log):
        operator.refresh_checkpoint(tx, name, origin)


def _needs_refresh(tx: Transaction, log: TransparencyLog) -> bool:
    """Whether it must be proven that nothing more was posted until the defence period was over."""
    return log.proven_at < log.refresh_at and tx.now > log.refresh_at + follower.SLACK_MS


def _run_follower(tx: Transaction, name: str, origin: str) -> None:
    """Request missing blobs and extensions."""
    group = tx.group(name)
    log = group.tlogs.by_name[origin]
    follower.request_blobs(tx, name, origin)
    follower.query_unread(tx, name, origin)
    waits = bool(log.pending) or _needs_refresh(tx, log)
    if not is_current(group, log):
        waits = waits or tx.context.random(1)[0] < OLD_TLOG_ROUNDS
    if waits and log.operated is None:
        source = follower.choose_source(tx, name, log)
        if source is not None and may_repeat(tx, name, source):
            follower.request_extension(tx, name, origin, source)


def _notify_stalled(tx: Transaction, name: str, origin: str) -> None:
    log = tx.group(name).tlogs.by_name[origin]
    since = terms.stalled_since(tx.group(name), log)
    if since is not None and tx.now >= since + terms.STALLED.base_ms and not log.stall_notified_at:
        update_tlog(tx, name, origin, stall_notified_at=tx.now)
        tx.emit(Notify(TlogStalled(name, origin, since)))


def _renew_subscriptions(tx: Transaction, name: str) -> None:
    """After new terms, renew the subscriptions made under other ones."""
    group = tx.group(name)
    rules = current_rules(group)
    others = [
        did for did, stream in group.streams.followed.items() if stream.rules != rules and can_send(tx, name, did)
    ]
    agreed = [did for did in others if group.links.peers[did].anti_entropy.view == group.view.checksum]
    for member in agreed[:RENEWALS_MAX]:
        subscriptions.renew_and_send(tx, name, member)
