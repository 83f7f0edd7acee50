"""What of ours has to be in the log: kept, and said again and again until it has its place.

A message of our stream has to be there where somebody who was to hear it has not signed for it in time: once, for all
of them. Who has signed for what the journal knows, since what counts is a signature for what was really said
(`lookups.Overdue`). What was owed by a subscription that another one has replaced is owed all the same.
"""

from collections.abc import Iterator
from itertools import accumulate

from msgspec.structs import replace

from zerochat.errors import LocalError, NotAMember
from zerochat.evidence.case import DEFENCE_BYTES_MAX
from zerochat.evidence.messages import TIME_BYTES, TIME_MAX
from zerochat.evidence.witness import ENTRY_BYTES_MAX, entry_of, parse_entry
from zerochat.group.effects import Changed, LookUp
from zerochat.group.inputs import PostToLog
from zerochat.group.lookup import find_group
from zerochat.group.state import Group, Log
from zerochat.group.tlog import operator
from zerochat.group.tlog.adoption import current, is_current
from zerochat.group.tlog.lookups import Bytes, Messages, Overdue, Owed
from zerochat.group.tlog.messages import can_say, edit_log, say
from zerochat.group.tlog.pending_entries import MINE_MAX, add, keep
from zerochat.group.tlog.terms import NoLog
from zerochat.group.transaction import Turn
from zerochat.group.wire.tlog import LOG_POST, LogPostBody, PostedBody, fits, portions

DUE_MAX = 64
"""Of these, as many are posted at once: an operator takes no more of one member."""
BYTES_MAX = 384 * 1024
"""Behind entries that are posted at once, but one in any case: as many as one answer of the journal has."""
AGAIN_MS, AGAIN_MS_MAX = 15_000, 600_000
"""They are posted again after so long, and twice as long each time."""
AHEAD_MS = 30_000
"""A post goes out by so much too early, since nobody looks all the time."""


class NoTerms(LocalError):
    """{group} is not accountable yet: it takes three members to witness, and terms that say who they are."""


class LogFull(LocalError):
    """So much waits for a place in the log of {group} that nothing more can be posted now. It goes on as soon as its
    witnesses answer again."""

    retry = "later"


class NotForTheLog(LocalError):
    """This cannot be posted: {why}."""


def post(turn: Turn, wanted: PostToLog) -> Changed:
    """Keep an entry that a face asks for, and post it. Raises LocalError."""
    group = find_group(turn.agent, wanted.group)
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not group.view.ledger:
        raise NoLog(group=group.name)
    now = current(group)
    origin = wanted.origin or (now.rules.origin if now is not None else "")
    if origin not in group.logs:
        raise NoTerms(group=group.name)
    if not 0 < len(wanted.blob) <= DEFENCE_BYTES_MAX:
        raise NotForTheLog(why=f"it has {len(wanted.blob)} bytes, and may have {DEFENCE_BYTES_MAX}")
    if not fits(wanted.blob):
        raise NotForTheLog(why="it does not fit a message")
    entry = entry_of(wanted.kind, group.me, wanted.blob, wanted.about)
    if wanted.kind == "defence":
        entry = entry.signed(group.seed)
    if len(entry.record()) > ENTRY_BYTES_MAX:
        raise NotForTheLog(why="what it is about is too long")
    if not add(turn, group.id, origin, entry, wanted.blob):
        raise LogFull(group=group.name)
    return Changed(group.id)


# --- what is overdue ------------------------------------------------------------------------------------------------


def look(turn: Turn, name: str, origin: str) -> None:
    """See which messages of our stream have to be in this log by now."""
    group = turn.group(name)
    log, own = group.logs[origin], group.stream
    if own is None or not own.time or log.split is not None:
        return
    if log.alias != own.alias:
        log = edit_log(turn, name, origin, alias=own.alias, posted=0)
    rules = log.rules
    upto = min(own.time, turn.now - (rules.ack_ms - rules.margin_ms) + AHEAD_MS)
    owed = tuple(_owed(group, log))
    if upto > log.posted and owed and len(log.mine) < MINE_MAX:
        turn.say(LookUp(name, origin, Overdue(group.me, own.alias, log.posted, upto, owed)))


def _owed(group: Group, log: Log) -> Iterator[Owed]:
    """To whom our stream is owed by this log: by the one in force to all who hear it, by one before to those who have
    not asked anew since."""
    now = is_current(group, log)
    digest = log.rules.digest
    for member, one in group.subscribers.items():
        if member in group.view.members and (now or one.rules == digest):
            yield Owed(member, one.begun, TIME_MAX)
    for ended in group.ended:
        if now or ended.rules == digest:
            yield Owed(ended.member, ended.begun, TIME_MAX if ended.close in log.mine else ended.until)


def overdue(turn: Turn, name: str, origin: str, what: Overdue, found: Messages) -> None:
    """These have to be in the log."""
    log = turn.group(name).logs[origin]
    if (what.alias, what.after) != (log.alias, log.posted):
        return  # answered before
    upto, me = log.posted, turn.group(name).me
    for written in found.found:
        if not keep(turn, name, origin, entry_of("message", me, written)):
            edit_log(turn, name, origin, posted=upto)
            return
        upto = int.from_bytes(written[:TIME_BYTES], "big")
    edit_log(turn, name, origin, posted=found.upto)
    if found.upto < what.upto:
        look(turn, name, origin)


def owe_no_more(turn: Turn, name: str) -> None:
    """Forget subscriptions that are over, once all that was owed by them is in the logs, or waits there."""
    group = turn.group(name)
    own = group.stream
    if not group.ended:
        return
    done = [log.posted if own is not None and log.alias == own.alias else 0 for log in group.logs.values()]
    waits = {key for log in group.logs.values() for key in log.mine}
    left = tuple(one for one in group.ended if one.until > min(done, default=0) or one.close in waits)
    left = left if own is not None else ()
    if left != group.ended:
        turn.edit(name, ended=left)


# --- entries that wait ----------------------------------------------------------------------------------------------


def say_again(turn: Turn, name: str, origin: str) -> None:
    """Post what waits for its place once more, if it is time to: entries to the operator, and the bytes to it and to
    all who witness the log, as many as go out at once; the next ones follow in the next round."""
    group = turn.group(name)
    log = group.logs[origin]
    if log.split is not None:
        return
    due = {key: one for key, one in log.mine.items() if one.at <= turn.now or one.at > turn.now + AGAIN_MS_MAX}
    due = dict(list(due.items())[:DUE_MAX])
    if not due:
        return
    records = tuple(one.record for one in due.values())
    if log.rules.operator == group.me:
        operator.posted(turn, name, origin, group.me, records)
    else:
        for portion in portions(PostedBody(record.decode()) for record in records):
            say(turn, name, log.rules.operator, LOG_POST, LogPostBody(name, origin, portion))
    all_ = dict.fromkeys((log.rules.operator, *log.rules.witnesses))
    keepers = tuple(did for did in all_ if did != group.me and can_say(turn, name, did))
    sizes = accumulate(parse_entry(record).size for record in records)
    due = dict(list(due.items())[: max(1, sum(size <= BYTES_MAX for size in sizes))])
    if keepers:
        turn.say(LookUp(name, origin, Bytes(keepers, tuple(one.record for one in due.values()), posted=True)))
    again = {key: replace(one, tries=one.tries + 1, at=turn.now + _pause(one.tries)) for key, one in due.items()}
    edit_log(turn, name, origin, mine={**log.mine, **again})


def _pause(tries: int) -> int:
    return min(AGAIN_MS << min(tries, 10), AGAIN_MS_MAX)
