"""Event pages: lookup of single events, and the whole log page by page for audit and export."""

from collections.abc import Sequence
from typing import ClassVar

from zerochat import rpc
from zerochat.agent.storage.journal import Journal, NoSuchEvent, Row
from zerochat.errors import LocalError
from zerochat.group import effects
from zerochat.group.event_log.event import POST, foreign_event
from zerochat.group.lookup import PREFIX_MIN, find_author
from zerochat.group.state import Group
from zerochat.group.sync.history_requests import missing_ends
from zerochat.rpc import ChainConflict, ChainExtent, EventPage, Imported, LogRow, LogSummary, Outcome

ROWS_MAX = 500
"""Rows per page: a few milliseconds of the agent's time."""
ROWS_BYTES_MAX = 384 * 1024
"""The size of the records of a page; in Base64 they fit one line of the control socket."""
LAST = "last"


class SeveralEvents(LocalError):
    """Several events in this group start with {event}. Give more characters of the id."""


class TooFewLetters(LocalError):
    """{event} is too short for an event id: give at least four characters. `zerochat history --ids {group}` shows the
    ids."""


class NothingSaid(LocalError):
    """{who} no messages in {group} yet."""

    exit_code: ClassVar[int] = 1


class StillFetching(LocalError):
    """{who} no messages in {group} so far: earlier messages are still being fetched. Try again in a moment."""

    exit_code: ClassVar[int] = 1
    retry: ClassVar = "later"


def find_row(journal: Journal, group: Group, wanted: str) -> Row:
    """The event that an `rpc.EventParams` means. Raises NoSuchEvent, TooFewLetters, SeveralEvents, NothingSaid,
    StillFetching, or as `find_author`."""
    word, colon, name = wanted.partition(":")
    if word == LAST and (not colon or name):
        author = find_author(group, name) if name else group.me
        last = journal.last_of_type(group.id, author, POST)
        if last is None:
            earlier = group.sync.backfill
            missing = author in missing_ends(group) or (earlier is not None and not earlier.done)
            error = StillFetching if missing else NothingSaid
            raise error(who=f"{name} has" if name else "You have", group=group.name)
        return last
    if (row := journal.event(group.id, wanted)) is not None:
        return row
    if len(wanted) < PREFIX_MIN:
        raise TooFewLetters(event=ascii(wanted), group=group.name)
    found = journal.with_id_prefix(group.id, wanted, 2) if wanted.isascii() else []
    if len(found) > 1:
        raise SeveralEvents(event=ascii(wanted[:64]))
    if not found:
        raise NoSuchEvent(event=ascii(wanted[:64]), group=group.name)
    return found[0]


# --- all of it ------------------------------------------------------------------------------------------------------


def log_summary(journal: Journal, group: Group) -> LogSummary:
    """What the log of a group must contain, by the agent's state."""
    labels = {did: member.label for did, member in (group.view.former | group.view.members).items()}
    return LogSummary(
        group=group.id,
        name=group.name,
        me=group.me,
        nick=labels.get(group.me, ""),
        view=group.view.checksum,
        chains=[chain_extent(group, author, labels.get(author, "")) for author in sorted(group.log.chains)],
        events=journal.count(group.id),
        refuted=len(journal.refuted(group.id)),
        conflicts=[
            *(
                ChainConflict(author=did, position=one.fork_seq, forked=True)
                for did, one in group.log.chains.items()
                if one.fork_seq
            ),
            *(
                ChainConflict(author=one.author, position=one.seq)
                for one in group.sync.differences
                if not (
                    one.relayed_by and one.seq <= group.chain(one.author).confirmed_seq
                )  # its author has confirmed ours since
            ),
        ],
        latest=journal.last_seq(),
    )


def chain_extent(group: Group, author: str, nick: str = "") -> ChainExtent:
    """The contiguous part of a chain that is stored here."""
    chain, past = group.chain(author), group.chain(author).backfill
    first = past.first if past else 0 if not chain.seq and _older(group, author) else 1
    seq, tip, sure = chain.seq, chain.head_id, chain.confirmed_seq
    if not tip and past is not None and past.unconfirmed_top is not None:
        # Nothing has come by itself yet; this is what was fetched of the time before.
        seq, tip, sure = past.unconfirmed_top.seq, past.unconfirmed_top.event_id, first - 1
    elif not tip and (past is None or first > seq):
        seq = sure = 0
    return ChainExtent(author=author, nick=nick, seq=seq, head=tip, first=first, confirmed=sure)


def _older(group: Group, author: str) -> bool:
    """Whether a member joined before us, so that its chain need not be stored from its beginning."""
    me, one = group.view.known(group.me), group.view.known(author)
    return bool(group.joining.event) and me is not None and one is not None and one.joined < me.joined


def event_page(journal: Journal, group: Group, params: rpc.EventPageParams) -> EventPage:
    """The next page of the log."""
    found = journal.log_after(group.id, params.after or (0, "", ""), ROWS_MAX)
    page: list[LogRow] = []
    size, last = 0, None
    for row in found:
        size += len(row.record)
        if page and size > ROWS_BYTES_MAX:
            break
        last = row.lamport, row.author, row.id
        if row.seq <= params.latest:
            page.append(log_row(row))
    else:
        last = last if len(found) == ROWS_MAX else None
    return EventPage(page, last)


def imported(
    journal: Journal, group: str, records: Sequence[bytes], outcomes: Sequence[effects.ImportOutcome]
) -> Imported:
    """The outcomes of an import; where the core leaves it to the log, whether the event is stored."""
    found: list[Outcome] = []
    for record, outcome in zip(records, outcomes, strict=True):
        if outcome == "occupied":
            row = journal.event(group, foreign_event(record).id)
            found.append("contradiction" if row is None or row.refuted else "known")
        else:
            found.append(outcome)
    return Imported(found)


def log_row(row: Row) -> LogRow:
    return LogRow(**{name: getattr(row, name) for name in LogRow.__struct_fields__})
