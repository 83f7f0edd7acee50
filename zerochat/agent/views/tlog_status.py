"""How the log of a group stands that is accountable, in the protocol's words: from the core's state and the journal."""

from collections.abc import Mapping

from zerochat import rpc
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.storage.journal import Journal
from zerochat.errors import RemoteError
from zerochat.evidence.case import Rules
from zerochat.evidence.witness import WITNESSES_MIN, entry_of
from zerochat.group.state import Group
from zerochat.group.tlog.adoption import current
from zerochat.group.tlog.terms import stalled_since
from zerochat.rpc import Author, LogInfo


def state(group: Group) -> rpc.LogState:
    if not group.view.ledger:
        return ""
    log = current(group)
    if log is None:
        return "unkept"
    return "split" if log.split is not None else "stalled" if log.told else "kept"


def lacking(group: Group) -> int:
    """So many more members it takes before anybody can keep the log."""
    return max(WITNESSES_MIN - len(group.view.members), 0) if group.view.ledger else 0


def log_info(journal: Journal, group: Group, names: Mapping[str, str]) -> LogInfo:
    """`names`: by DID."""
    gone = group.state != "active"
    standing = LogInfo(group=group.id, state=state(group), members_lacking=lacking(group), gone=gone)
    terms, log = group.view.terms, current(group)
    if terms is None or log is None:
        return standing

    def author(did: str) -> Author:
        return Author(did, names.get(did, ""))

    rules, since = terms.rules, stalled_since(group, log)
    note = journal.logbook.last(group.id, rules.origin)
    kinds = journal.logbook.kinds(group.id, rules.origin)
    return LogInfo(
        group=group.id,
        state=standing.state,
        operator=author(rules.operator),
        witnesses=[author(one) for one in rules.witnesses],
        needed=rules.quorum.needed,
        by=author(terms.by),
        operating=log.operated is not None and not gone,
        witnessing=log.watched is not None and not gone,
        size=journal.logbook.size(group.id, rules.origin),
        shown_at=timestamp(rules.quorum.whole_ms(note)) if note is not None else None,
        waiting=len(log.mine),
        waiting_since=timestamp(since) if since is not None else None,
        ack_s=rules.ack_ms // 1000,
        window_s=rules.window_ms // 1000,
        earlier=max(len(journal.logbook.origins(group.id)) - 1, 0),
        accusations=kinds["accusation"],
        defences=kinds["defence"],
        closes=kinds["close"],
        gone=gone,
    )


def logged(journal: Journal, group: Group, author: str, message: bytes) -> tuple[int, int] | None:
    """The place of a signed message in a log of the group, from 1, and when so many witnesses as it takes had cosigned
    that, UTC ms; None: it stands in none of those that are known here."""
    record = entry_of("message", author, message).record()
    for rules in journal.logbook.origins(group.id):
        place = journal.logbook.place_of(group.id, rules.origin, record)
        at = _cosigned(journal, group, rules, place)
        if place is not None and at is not None:
            return place + 1, at
    return None


def _cosigned(journal: Journal, group: Group, rules: Rules, place: int | None) -> int | None:
    note = journal.logbook.note(group.id, rules.origin, place + 1) if place is not None else None
    try:
        return rules.quorum.time_ms(note) if note is not None else None
    except RemoteError:
        return None
