"""Answers what is looked for: which groups and members are meant, and what the index of words has of theirs."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.storage import search_index
from zerochat.agent.storage.journal import Journal, NoSuchEvent, Row
from zerochat.agent.views import core_state
from zerochat.errors import LocalError, RemoteError
from zerochat.group.event_log.event import load_event
from zerochat.group.lookup import PREFIX_MIN, find_group
from zerochat.group.membership import may_post
from zerochat.group.state import Agent, Group
from zerochat.presentation.search_query import BadSearch, Wanted, excerpt, has_all, pattern_of, read_query, read_time
from zerochat.rpc import Author, Found, Hit, SearchParams

HITS_MAX = 100
ME = "me"


class NobodyCalled(LocalError):
    """Nobody in {where} is or was called {name}."""


def search(journal: Journal, agent: Agent, params: SearchParams) -> Found:
    """A page of what was found, newest first. Raises BadSearch, NobodyCalled, or as `find_group` does."""
    wanted = read_query(params.query, int(time.time() * 1000))
    groups = _groups(agent, params, wanted)
    authors = _people(groups, [*wanted.authors, *([params.author] if params.author is not None else [])])
    called = _people(groups, wanted.called)
    wanted = _within(params, wanted)
    if not (wanted.terms or authors or called or wanted.groups or (wanted.after, wanted.before) != (None, None)):
        raise BadSearch(why="there is nothing to look for; give a word, or part of one")
    if not groups:
        return Found(hits=[])
    # Who and to whom are members of one group only, by DIDs that they have nowhere else.
    everywhere = params.group is None and not wanted.groups and (wanted.terms or authors or called)
    question = search_index.question(wanted, [] if everywhere else list(groups), authors, called)
    limit = max(1, min(params.limit, HITS_MAX))
    cursor = params.cursor
    if params.older_than is not None:
        cursor = _place(journal, groups, params.older_than)
    found = journal.found(question, *search_index.borders(wanted, cursor), limit + 1, partial(_counts, agent))
    pattern = pattern_of(wanted.terms)
    names = {group.id: core_state.labels(group) for group in groups.values()}
    hits = []
    for one in found[:limit]:
        if one.row.group in groups and not (one.otherwise and not has_all(one.text, wanted.terms)):
            shown, spans = excerpt(one.text, pattern)
            hits.append(_hit(groups[one.row.group], one.row, names[one.row.group], shown, spans))
    return Found(hits=hits, cursor=found[limit - 1].place if len(found) > limit else None)


def _counts(agent: Agent, group: str, author: str, position: int) -> bool:
    """Whether what somebody says in this place of its chain counts, as far as its role goes."""
    return group not in agent.groups or may_post(agent.groups[group].view, author, position)


def _groups(agent: Agent, params: SearchParams, wanted: Wanted) -> dict[str, Group]:
    """By id, the groups in which it is looked for."""
    named = [*wanted.groups, *([params.group] if params.group is not None else [])]
    chosen = {group.id: group for group in (find_group(agent, name) for name in named)}
    if len(chosen) > 1:
        raise BadSearch(why="a message is in one group only")
    return chosen or dict(agent.groups)


def _place(journal: Journal, groups: Mapping[str, Group], event: str) -> int:
    """Where in the index an event of these groups stands, or would. Raises NoSuchEvent."""
    for group in groups:
        if (row := journal.event(group, event)) is not None:
            return journal.place(row)
    name = next((group.name for group in groups.values()), "")
    raise NoSuchEvent(event=ascii(event[:64]), group=name)


def _people(groups: Mapping[str, Group], names: Iterable[str]) -> list[str]:
    """The DIDs of those who go by all of these names; none of these: whoever."""
    found: set[str] | None = None
    for name in names:
        known = {did for group in groups.values() for did in _called(group, name)}
        if not known:
            where = next(iter(groups.values())).name if len(groups) == 1 else "your groups"
            raise NobodyCalled(name=ascii(name[:32]), where=where)
        found = known if found is None else found & known
    if found is not None and not found:
        raise BadSearch(why="nobody goes by all of these names")
    return sorted(found or ())


def _called(group: Group, name: str) -> list[str]:
    """Who is or was a member and is meant by this; where nobody is called exactly so, those whose names begin so."""
    name = name.removeprefix("@").casefold()
    if name == ME:
        return [group.me]
    labels = core_state.labels(group)
    long = len(name) >= len("did:key:z6Mk") + PREFIX_MIN
    exact = [
        did for did, label in labels.items() if label.casefold() == name or (long and did.lower().startswith(name))
    ]
    return exact or [did for did, label in labels.items() if name and label.casefold().startswith(name)]


def _within(params: SearchParams, wanted: Wanted) -> Wanted:
    """With the dates that were given beside the query."""
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
