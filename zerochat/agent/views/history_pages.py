"""Pages of the history: the newest, before or after an event, or around an event or a time."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from zerochat.agent.storage.journal import Journal, NoSuchEvent, Row
from zerochat.errors import LocalError
from zerochat.rpc import HistoryParams

PAGE_EVENTS_MAX: Final = 500
PAGE_BYTES_MAX: Final = 512 * 1024
"""The size of the records of a page: as JSON it fits one line of the control socket."""
TIME_MAX: Final = 2**53 - 1


class OnePlace(LocalError):
    """Only one of before, after, around and at can be given."""


class Page(Struct, frozen=True):
    rows: tuple[Row, ...]
    """Oldest first."""
    more: bool
    """There are older ones."""
    newer: bool
    """There are newer ones."""


def page_of(journal: Journal, group: str, params: HistoryParams) -> Page:
    """The requested page. Raises OnePlace or NoSuchEvent."""
    limit = max(1, min(params.limit, PAGE_EVENTS_MAX))
    if sum(one is not None for one in (params.before, params.after, params.around, params.at)) > 1:
        raise OnePlace
    if params.after is not None:
        place = _place(journal, group, params.after)
        rows, newer = _fill(journal.page_after(group, place, limit + 1), limit, PAGE_BYTES_MAX)
        return Page(rows, True, newer)
    if params.around is not None:
        return _around(journal, group, _place(journal, group, params.around), limit)
    if params.at is not None:
        place = (max(0, min(params.at, TIME_MAX)), "", "")
        if journal.page_after(group, place, 1):
            return _around(journal, group, place, limit)
    before = None if params.before is None else _place(journal, group, params.before)
    rows, more = _fill(journal.page(group, before, limit + 1), limit, PAGE_BYTES_MAX)
    return Page(rows[::-1], more, before is not None)


def _place(journal: Journal, group: str, event: str) -> tuple[int, str, str]:
    row = journal.event(group, event)
    if row is None:
        raise NoSuchEvent(event=ascii(event[:64]), group=group)
    return row.lamport, row.author, row.id


def _around(journal: Journal, group: str, place: tuple[int, str, str], limit: int) -> Page:
    """Half of the page is older than the place; the other half starts at the place."""
    half = max(limit // 2, 1)
    older, more = _fill(journal.page(group, place, half + 1), half, PAGE_BYTES_MAX // 2)
    lamport, author, event = place
    here = journal.event(group, event) if event else None
    first = [here] if here is not None and not here.refuted else []
    behind = journal.page_after(group, (lamport, author, event), half + 1)
    newer_rows, newer = _fill([*first, *behind], max(limit - half, 1), PAGE_BYTES_MAX // 2)
    return Page((*older[::-1], *newer_rows), more, newer)


def _fill(rows: Iterable[Row], limit: int, bytes_max: int) -> tuple[tuple[Row, ...], bool]:
    """As many rows as fit a page, at least one, and whether any are left."""
    page: list[Row] = []
    size = 0
    for row in rows:
        size += len(row.record)
        if len(page) >= limit or (page and size > bytes_max):
            return tuple(page), True
        page.append(row)
    return tuple(page), False
