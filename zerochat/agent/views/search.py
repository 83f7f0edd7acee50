"""Runs a search: resolves groups and members, queries the index, and makes the excerpts."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from zerochat.agent.storage import search_index
from zerochat.agent.storage.journal import Journal, NoSuchEvent, Row
from zerochat.agent.views.members import display_names
from zerochat.errors import LocalError, RemoteError
from zerochat.group.event_log.event import load_event
from zerochat.group.lookup import PREFIX_MIN, find_group
from zerochat.group.membership import may_post
from zerochat.group.state import Agent, Group
from zerochat.presentation.search_query import BadSearch, Query, excerpt, matches_all, pattern_of, read_query, read_time
from zerochat.presentation.search_text import fold
from zerochat.rpc import Author, Found, Hit, SearchParams
from zerochat.rpc.common import timestamp

HITS_MAX = 100
ME = "me"


class NobodyCalled(LocalError):
    """No member of {where} is called {name}."""


def search(journal: Journal, agent: Agent, params: SearchParams) -> Found:
    """A page of results, newest first. Raises BadSearch, NobodyCalled, or as `find_group` does."""
    wanted = read_query(params.query, int(time.time() * 1000))
    groups = _groups(agent, params, wanted)
    authors = _people(groups, [*wanted.authors, *([params.author] if params.author is not None else [])])
    called = _people(groups, wanted.called)
    wanted = _within(params, wanted)
    if not (wanted.terms or authors or called or wanted.groups or (wanted.after, wanted.before) != (None, None)):
        raise BadSearch(why="the query is empty; give a word or the start of one")
    if not groups:
        return Found(hits=[])
    # Who and to whom are members of one group only, by DIDs that they have nowhere else.
    everywhere = params.group is None and not wanted.groups and (wanted.terms or authors or called)
    question = search_index.fts_query(wanted, [] if everywhere else list(groups), authors, called)
    limit = max(1, min(params.limit, HITS_MAX))
    cursor = params.cursor
    if params.older_than is not None:
        cursor = _place(journal, groups, params.older_than)
    found = journal.search(question, *search_index.position_range(wanted, cursor), limit + 1, partial(_counts, agent))
    pattern = pattern_of(wanted.terms)
    names = {group.id: display_names(group) for group in groups.values()}
    hits = []
    for one in found[:limit]:
        group = groups.get(one.row.group)
        if group is None or one.row.author in group.trust.ignored:
            continue
        if not one.outdated or (matches_all(one.text, wanted.terms) and _matches(one.mentioned, called)):
            shown, spans = excerpt(one.text, pattern)
            hits.append(_hit(group, one.row, names[one.row.group], shown, spans))
    return Found(hits=hits, cursor=found[limit - 1].position if len(found) > limit else None)


def _matches(mentioned: Iterable[str], called: Sequence[str]) -> bool:
    return not called or not set(called).isdisjoint(mentioned)


def _counts(agent: Agent, group: str, author: str, position: int) -> bool:
    """Whether an event at this position is valid by the role of its author."""
    return group not in agent.groups or may_post(agent.groups[group].view, author, position)


def _groups(agent: Agent, params: SearchParams, wanted: Query) -> dict[str, Group]:
    """The groups to search, by id."""
    named = [*wanted.groups, *([params.group] if params.group is not None else [])]
    chosen = {group.id: group for group in (find_group(agent, name) for name in named)}
    if len(chosen) > 1:
        raise BadSearch(why="give only one group")
    return chosen or dict(agent.groups)


def _place(journal: Journal, groups: Mapping[str, Group], event: str) -> int:
    """The index position of an event of these groups. Raises NoSuchEvent."""
    for group in groups:
        if (row := journal.event(group, event)) is not None:
            return journal.index_position(row)
    name = next((group.name for group in groups.values()), "")
    raise NoSuchEvent(event=ascii(event[:64]), group=name)


def _people(groups: Mapping[str, Group], names: Iterable[str]) -> list[str]:
    """The DIDs of members with all of these names; none: no filter."""
    found: set[str] | None = None
    for name in names:
        known = {did for group in groups.values() for did in _called(group, name)}
        if not known:
            where = next(iter(groups.values())).name if len(groups) == 1 else "your groups"
            raise NobodyCalled(name=ascii(name[:32]), where=where)
        found = known if found is None else found & known
    if found is not None and not found:
        raise BadSearch(why="no member has all of these names")
    return sorted(found or ())


def _called(group: Group, name: str) -> list[str]:
    """The members and former members with this name, or else with names that start with it."""
    name = fold(name.removeprefix("@"))
    if name == ME:
        return [group.me]
    labels = display_names(group)
    long = len(name) >= len("did:key:z6Mk") + PREFIX_MIN
    exact = [did for did, label in labels.items() if fold(label) == name or (long and did.lower().startswith(name))]
    return exact or [did for did, label in labels.items() if name and fold(label).startswith(name)]


def _within(params: SearchParams, wanted: Query) -> Query:
    """The query with the dates of the params."""
    now = int(time.time() * 1000)
    after = [time for time in (wanted.after,) if time is not None]
    after += [read_time(params.after, now)] if params.after else []
    before = [time for time in (wanted.before,) if time is not None]
    before += [read_time(params.before, now)] if params.before else []
    return replace(wanted, after=max(after, default=None), before=min(before, default=None))


def _hit(group: Group, row: Row, names: dict[str, str], text: str, spans: Sequence[tuple[int, int]]) -> Hit:
    try:
        sent = load_event(row.record).time
    except RemoteError:
        sent = row.received
    return Hit(
        group=row.group,
        id=row.id,
        author=Author(row.author, names.get(row.author, "")),
        lamport=row.lamport,
        sent_at=timestamp(sent),
        received_at=timestamp(row.received),
        self=row.author == group.me,
        text=text,
        spans=list(spans),
    )
