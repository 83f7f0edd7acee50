"""The state of a group's transparency log, from the core's state and the journal."""

from collections.abc import Mapping

from zerochat import rpc
from zerochat.agent.storage.journal import Journal
from zerochat.errors import RemoteError
from zerochat.evidence.case import Rules
from zerochat.evidence.witness import WITNESSES_MIN, entry_of
from zerochat.group.state import Group
from zerochat.group.tlog.adoption import current_tlog
from zerochat.group.tlog.terms import stalled_since
from zerochat.rpc import Author, TlogInfo
from zerochat.rpc.common import timestamp


def state(group: Group) -> rpc.TlogState:
    if not group.view.has_tlog:
        return ""
    log = current_tlog(group)
    if log is None:
        return "unkept"
    return "split" if log.split is not None else "stalled" if log.stall_notified_at else "kept"


def lacking(group: Group) -> int:
    """The number of members that are missing for enough witnesses."""
    return max(WITNESSES_MIN - len(group.view.members), 0) if group.view.has_tlog else 0


def log_info(journal: Journal, group: Group, names: Mapping[str, str]) -> TlogInfo:
    """`names`: display names by DID."""
    gone = group.state != "active"
    status = TlogInfo(group=group.id, state=state(group), members_missing=lacking(group), gone=gone)
    terms, log = group.view.terms, current_tlog(group)
    if terms is None or log is None:
        return status

    def author(did: str) -> Author:
        return Author(did, names.get(did, ""))

    rules, since = terms.rules, stalled_since(group, log)
    note = journal.tlog.latest_checkpoint(group.id, rules.origin)
    kinds = journal.tlog.entry_counts(group.id, rules.origin)
    return TlogInfo(
        group=group.id,
        state=status.state,
        operator=author(rules.operator),
        witnesses=[author(one) for one in rules.witnesses],
        needed=rules.quorum.threshold,
        by=author(terms.author),
        operating=log.operated is not None and not gone,
        witnessing=log.watched is not None and not gone,
        size=journal.tlog.size(group.id, rules.origin),
        shown_at=timestamp(rules.quorum.complete_until_ms(note)) if note is not None else None,
        waiting=len(log.pending),
        waiting_since=timestamp(since) if since is not None else None,
        ack_s=rules.ack_ms // 1000,
        window_s=rules.window_ms // 1000,
        earlier=max(len(journal.tlog.all_rules(group.id)) - 1, 0),
        accusations=kinds["accusation"],
        defences=kinds["defence"],
        closes=kinds["close"],
        gone=gone,
    )


def logged(journal: Journal, group: Group, author: str, message: bytes) -> tuple[int, int] | None:
    """The index of a signed message in a transparency log of the group, from 1, and the time when enough witnesses had
    cosigned it, UTC ms; None: it is in none."""
    record = entry_of("message", author, message).record()
    for rules in journal.tlog.all_rules(group.id):
        place = journal.tlog.index_of(group.id, rules.origin, record)
        at = _cosigned(journal, group, rules, place)
        if place is not None and at is not None:
            return place + 1, at
    return None


def _cosigned(journal: Journal, group: Group, rules: Rules, place: int | None) -> int | None:
    note = journal.tlog.checkpoint_covering(group.id, rules.origin, place + 1) if place is not None else None
    try:
        return rules.quorum.posted_by_ms(note) if note is not None else None
    except RemoteError:
        return None
