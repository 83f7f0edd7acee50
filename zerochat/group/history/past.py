"""The history from before a newcomer's time: fetched from the newest back, and checked against the authors' own words.

A newcomer first hears what is said from now on, then asks a member that keeps the history for what was said before, a
page at a time. Each event names the one before it by its hash, so a page is as good as its author's own word wherever
something that follows was heard from the author, or is signed by it; the rest is *vouched* until the author speaks.
What a newcomer may have is for the group and the invitation to say (`Policy.history`), and for everybody who is asked
to keep to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from zerochat.errors import Refused
from zerochat.group import mail
from zerochat.group.effects import Measure, Notify, Remember
from zerochat.group.event import Event
from zerochat.group.history import errands
from zerochat.group.membership import may_post
from zerochat.group.notices import HistoryFetched
from zerochat.group.state import Chain, Errand, Fetching, Group, Past, Spot
from zerochat.group.turn import Turn
from zerochat.group.wire.messages import WANT_MAX
from zerochat.group.wire.run import RUN_EVENTS_MAX

NEWEST = 2**53 - 1
"""Instead of a place: that of whatever comes last."""
AGAIN_MS, AGAIN_MS_MAX = 1_000, 60_000
TRIES_MAX = 5
"""Whoever has left, or is away, may have said what nobody who is there has kept."""


def begin(turn: Turn, name: str) -> None:
    """We have come into a group: begin with its history, where we may have it."""
    group = turn.group(name)
    me = group.view.members.get(group.me)
    if me is None or group.fetching is not None or "none" in (group.view.policy.history, me.history):
        return
    turn.edit(name, fetching=Fetching())
    turn.timer("history", name, 1)


def _open(group: Group) -> dict[str, Past]:
    """The chains of which something is missing before what we have, as far as we know."""
    found = {}
    for author in (*group.view.members, *group.view.former):
        if author == group.me or author in group.quarantine:
            continue
        chain = group.chain(author)
        if chain.past is not None and chain.past.first > 1:
            found[author] = chain.past
        elif author not in group.chains and group.entry:
            until = group.view.former[author].until if author in group.view.former else None
            if until != 0:
                found[author] = Past(NEWEST if until is None else until + 1)
    return found


def fetch(turn: Turn, name: str) -> None:
    """Ask somebody for the next page."""
    group = turn.group(name)
    state = group.fetching
    if state is None:
        return
    chains = _open(group)
    if state.done:
        if state.asked >= chains.keys():
            return
        state = replace(state, done=False, tries=0)  # somebody has told us only now that there is more
    if not chains:
        _settle(turn, name, replace(state, done=True))
        return
    errands.give_up(turn, name)
    if any(one.back for one in turn.group(name).errands.values()):
        turn.timer("history", name, AGAIN_MS)
        return
    whom = _whom(turn, name, state)
    if whom is not None:
        authors = sorted(chains, key=lambda did: (chains[did].first == NEWEST, did))
        begin = state.tries * WANT_MAX % len(authors)
        want = [(author, 0, chains[author].first - 1) for author in authors[begin : begin + WANT_MAX]]
        errands.ask_for(turn, name, whom, want, RUN_EVENTS_MAX, back=True)
        asked = state.asked | {author for author, _, _ in want}
        turn.edit(name, fetching=replace(state, tries=state.tries + 1, asked=asked))
    turn.timer("history", name, min(AGAIN_MS << min(state.tries, 10), AGAIN_MS_MAX))


def _whom(turn: Turn, name: str, state: Fetching) -> str | None:
    """Who is asked next: first those who keep the history, each in its turn; nobody by mail as long as there is a
    link."""
    group = turn.group(name)
    keepers = group.view.keepers
    able = [member for member in group.peers if errands.free(turn, name, member)]
    near = [member for member in able if not mail.by_mail(turn, name, member)] or able
    near.sort(key=lambda did: (did not in keepers, group.view.members[did].joined, did))
    return near[state.tries % len(near)] if near else None


# --- taking in ------------------------------------------------------------------------------------------------------


def take(turn: Turn, name: str, member: str, errand: Errand, events: Sequence[Event], more: bool) -> None:
    """A page of the history, as this member has it."""
    group = turn.group(name)
    state = group.fetching
    if state is None or state.done or group.me not in group.view.members:
        raise Refused(why="history that nobody waits for")
    got = 0
    for author, stretch in groupby(sorted(events, key=lambda e: (e.author, -e.seq)), key=lambda e: e.author):
        got += _prepend(turn, name, member, author, stretch)
    stuck = not got and (not more or state.tries > 1)
    whole = (group.view.policy.history, group.view.members[group.me].history) == ("all", "all")
    vain = not got and state.tries >= (TRIES_MAX if whole else 2)
    done = not more and (vain or not _open(turn.group(name)))
    state = replace(state, got=state.got + got, tries=state.tries if stuck else 0, done=done)
    _settle(turn, name, state)
    if not done:
        turn.timer("history", name, AGAIN_MS if stuck else 1)


def _settle(turn: Turn, name: str, state: Fetching) -> None:
    group = turn.edit(name, fetching=state)
    left = sum(known.first - 1 for known in _open(group).values() if known.first < NEWEST)
    turn.say(Notify(HistoryFetched(name, state.got, left, state.done)))


def _prepend(turn: Turn, name: str, member: str, author: str, events: Iterable[Event]) -> int:
    """Take in events of one author, the newest first, that lead up to what we have of its chain. How many they are: the
    first one that does not fit is the end."""
    group = turn.group(name)
    chain, got = group.chain(author), 0
    past = chain.past or Past(NEWEST)
    for event in events:
        fault = _fault(group, chain, past, event)
        if fault:
            turn.say(Measure("dropped", fault))
            break
        # It is its author's own word where that has named it; and where it is signed, so is whatever leads up to it.
        by = "" if past.anchored or event.is_control else member
        top = past.top or (Spot(event.seq, event.id, event.lamport) if by else None)
        past = Past(event.seq, event.pre, not by, top, (past.by or member) if top else "")
        if chain.seq == 0:  # its author has not told us from where on it is for us, and perhaps never will
            chain = Chain(event.seq, event.id, event.lamport, own=Spot(), by=member, untold=True)
        if not event.is_control and may_post(group.view, author, event.seq):
            row = (event.id, author, event.seq, event.lamport, event.type, event.record, turn.now)
            turn.say(Remember(name, *row, late=False, vouched=by, history=True))
        got += 1
    if got:
        turn.edit(name, chains={**group.chains, author: replace(chain, past=past)})
    return got


def _fault(group: Group, chain: Chain, past: Past, event: Event) -> str:
    """Why this event cannot be the one before those that we have of its chain; empty: it can."""
    if event.group_id != group.id or event.author == group.me or group.view.known(event.author) is None:
        return "HistoryOfOthers"
    if chain.seq and event.seq != past.first - 1:
        return "HistoryWithHoles"
    if past.before and event.id != past.before:
        return "HistoryContradicted"
    if any(dep not in group.control for dep in event.deps) or (event.is_control and event.id not in group.control):
        return "HistoryWithoutCauses"
    return ""
