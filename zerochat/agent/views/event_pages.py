"""A group's log for whoever asks for single rows of it: one that is meant, or all of them, page by page."""

from collections.abc import Sequence
from typing import ClassVar

from zerochat import rpc
from zerochat.agent.storage.journal import Journal, NoSuchEvent, Row
from zerochat.errors import LocalError
from zerochat.group import effects
from zerochat.group.event_log.event import POST, foreign_event
from zerochat.group.lookup import PREFIX_MIN, find_author
from zerochat.group.state import Group
from zerochat.rpc import Dispute, Height, Imported, Ledger, LogRow, Outcome, Rows

ROWS_MAX = 500
"""Rows in one answer: a few milliseconds of the agent's time."""
ROWS_BYTES_MAX = 384 * 1024
"""Of their records; in base64 that stays within one line of the control socket."""
LAST = "last"


class SeveralEvents(LocalError):
    """More than one event in this group has an id that begins with {event}. Give some more letters of it."""


class TooFewLetters(LocalError):
    """{event} is too short to find an event by: give four letters of its id, or more. `zerochat history --ids {group}`
    shows the ids."""


class NothingSaid(LocalError):
    """{who} said nothing in {group} yet that is here."""

    exit_code: ClassVar[int] = 1


def find_row(journal: Journal, group: Group, wanted: str) -> Row:
    """The event that is meant (`schema.EventParams`). Raises NoSuchEvent, TooFewLetters, SeveralEvents,
    NothingSaid, or as `find_author` does."""
    word, colon, name = wanted.partition(":")
    if word == LAST and (not colon or name):
        author = find_author(group, name) if name else group.me
        last = journal.last_of(group.id, author, POST)
        if last is None:
            raise NothingSaid(who=f"{name} has" if name else "You have", group=group.name)
        return last
    if (row := journal.event(group.id, wanted)) is not None:
        return row
    if len(wanted) < PREFIX_MIN:
        raise TooFewLetters(event=ascii(wanted), group=group.name)
    found = journal.like(group.id, wanted, 2) if wanted.isascii() else []
    if len(found) > 1:
        raise SeveralEvents(event=ascii(wanted[:64]))
    if not found:
        raise NoSuchEvent(event=ascii(wanted[:64]), group=group.name)
    return found[0]


# --- all of it ------------------------------------------------------------------------------------------------------


def ledger(journal: Journal, group: Group) -> Ledger:
    """What the log of a group must come to, by the state."""
    labels = {did: member.label for did, member in (group.view.former | group.view.members).items()}
    return Ledger(
        group=group.id,
        name=group.name,
        me=group.me,
        nick=labels.get(group.me, ""),
        view=group.view.checksum,
        heights=[height(group, author, labels.get(author, "")) for author in sorted(group.chains)],
        events=journal.count(group.id),
        refuted=len(journal.refuted(group.id)),
        disputes=[
            *(Dispute(author=did, position=one.forked, forked=True) for did, one in group.chains.items() if one.forked),
            *(
                Dispute(author=one.author, position=one.seq)
                for one in group.differences
                if not (one.by and one.seq <= group.chain(one.author).sure)  # its author has confirmed ours since
            ),
        ],
        latest=journal.latest(),
    )


def height(group: Group, author: str, nick: str = "") -> Height:
    """How much of a chain is here, without a break."""
    chain, past = group.chain(author), group.chain(author).past
    first = past.first if past else 0 if _older(group, author) else 1
    seq, tip, sure = chain.seq, chain.tip, chain.sure
    if not tip and past is not None and past.top is not None:
        # Nothing has come by itself yet; this is what was fetched of the time before.
        seq, tip, sure = past.top.seq, past.top.tip, first - 1
    elif not tip and (past is None or first > seq):
        seq = sure = 0
    return Height(author=author, nick=nick, seq=seq, tip=tip, first=first, sure=sure)


def _older(group: Group, author: str) -> bool:
    """Whether somebody was in the group before us, so that its chain need not have come to us from its beginning,
    although nothing says from where on: versions that fetched no history did not note that."""
    me, one = group.view.known(group.me), group.view.known(author)
    return bool(group.entry) and me is not None and one is not None and one.joined < me.joined


def rows(journal: Journal, group: Group, params: rpc.RowsParams) -> Rows:
    """The next page of the log."""
    found = journal.page_after(group.id, params.after or (0, "", ""), ROWS_MAX)
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
    return Rows(page, last)


def imported(journal: Journal, group: str, records: Sequence[bytes], outcomes: Sequence[effects.Outcome]) -> Imported:
    """What has become of records out of a file, where the core leaves it to the log to say what is here."""
    found: list[Outcome] = []
    for record, outcome in zip(records, outcomes, strict=True):
        if outcome == "taken":
            row = journal.event(group, foreign_event(record).id)
            found.append("contradiction" if row is None or row.refuted else "known")
        else:
            found.append(outcome)
    return Imported(found)


def log_row(row: Row) -> LogRow:
    return LogRow(**{name: getattr(row, name) for name in LogRow.__struct_fields__})
