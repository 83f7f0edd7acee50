"""The history from before a newcomer's time: fetched from the newest back, and checked against the authors' own words.

A newcomer first hears what is said from now on, then asks a member that keeps the history for what was said before, a
page at a time. Each event names the one before it by its hash, so a page is as good as its author's own word wherever
something that follows was heard from the author, or is signed by it; the rest is *vouched* until the author speaks.
What a newcomer may have is for the group and the invitation to say (`Policy.history`), and for everybody who is asked
to keep to.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec.structs import replace

from zerochat.errors import Refused
from zerochat.group.effects import Measure, Notify, Remember
from zerochat.group.event_log.event import Event
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.links import mediator_mail
from zerochat.group.membership import may_post
from zerochat.group.messages.bodies import target_of
from zerochat.group.notifications import HistoryFetched
from zerochat.group.state import Chain, Errand, Fetching, Group, Past, Spot
from zerochat.group.sync import pull_requests, reinstated_posts
from zerochat.group.sync.relayed_events import VOUCHED_MAX, contradicted, full, signed_by
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX
from zerochat.group.wire.messages import PAGES_MAX, WANT_MAX

NEWEST = 2**53 - 1
"""Instead of a place: that of whatever comes last."""
AGAIN_MS, AGAIN_MS_MAX = 1_000, 60_000
WAITS_MAX, NOBODY_MS = 5, 10_000
TRIES_MAX = 5
"""Whoever has left, or is away, may have said what nobody who is there has kept."""
ASKED_MAX = 8
"""But so many members are asked three times, for an answer may be lost, or a lie."""
LATER_MS, LATE_MAX = 300_000, 8
"""Whoever had nothing may have been fetching it as well: it is asked for again, each time after twice as long."""


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


def _wanted(group: Group) -> dict[str, Past]:
    """Those of which we may have more, and may take it."""
    found = {author: past for author, past in _open(group).items() if not full(past)}
    if "none" not in _rules(group):
        return found
    ours = _cut_off(group)
    return {author: past for author, past in found.items() if author in ours}


def left_of(group: Group) -> tuple[bool, int]:
    """Whether there may be more before what we have, and how many events of that are known of."""
    chains = _open(group)
    return bool(chains), sum(known.first - 1 for known in chains.values() if known.first < NEWEST)


def fetch(turn: Turn, name: str) -> None:
    """Ask somebody for the next page."""
    group = turn.group(name)
    state = group.fetching
    if state is None or group.me not in group.view.members:
        return
    pull_requests.give_up(turn, name)
    chains = _wanted(group)
    if chains and any(one.back for one in turn.group(name).errands.values()):
        turn.timer("history", name, AGAIN_MS)
        return
    state = _unanswered(group, state)
    if state.done and not state.asked >= chains.keys():
        state = state.reopened()  # somebody has told us only now that there is more
    elif state.done:
        if not chains or not _whole(group):
            return
        if state.tries >= _tries_max(group):
            if 0 < state.due - turn.now <= LATER_MS << state.late:
                turn.timer("history", name, state.due - turn.now)
                return
            if state.late >= LATE_MAX:
                return
            round_ = min(len(group.peers), ASKED_MAX)
            state = replace(state, late=state.late + 1, tries=max(0, _tries_max(group) - round_), unanswered=0)
    if not chains:
        _settle(turn, name, replace(state, done=True))
        return
    whom, tries = _whom(turn, name, state), state.tries
    if whom is not None:
        asks = _asks(group, state)
        want = [(author, 0, chains[author].first - 1) for author in _of_whom(chains, whom, asks[whom])]
        by_mail = mediator_mail.by_mail(turn, name, whom)
        pages = 1 if by_mail else state.pages  # mail overtakes mail
        pull_requests.ask_for(turn, name, whom, want, RUN_EVENTS_MAX, back=True, pages=pages)
        question = "" if by_mail else turn.group(name).errands[whom].thread
        asked = state.asked | {author for author, _, _ in want}
        asks[whom] += 1
        waited = 0 if _of_our_mind(group, whom) else state.waited  # nobody is, as it seems: no need to wait again
        state = replace(state, tries=state.tries + 1, question=question, asked=asked, asks=asks, waited=waited)
        if state.done and state.tries >= _tries_max(group):  # the last one of this round
            state = replace(state, due=turn.now + (LATER_MS << state.late))
        turn.edit(name, fetching=state)
    elif state.waited < WAITS_MAX or state != group.fetching:
        turn.edit(name, fetching=replace(state, waited=min(state.waited + 1, WAITS_MAX)))
    delay = min(AGAIN_MS << min(tries, 10), AGAIN_MS_MAX)
    turn.timer("history", name, max(delay, NOBODY_MS) if whom is None and state.waited >= WAITS_MAX else delay)


def _unanswered(group: Group, state: Fetching) -> Fetching:
    """The same once nobody is waited for any more. What was not answered over an open link may have been lost on its
    way, so that it does not count as a try, unless that happens more often than there are members to ask."""
    if state.question and state.tries and state.unanswered < min(len(group.peers), ASKED_MAX):
        state = replace(state, tries=state.tries - 1, unanswered=state.unanswered + 1)
    return replace(state, question="")


def _tries_max(group: Group) -> int:
    """After so many answers in vain there is nothing more to be had, for now."""
    able = min(len(group.peers), ASKED_MAX)
    if _whole(group):
        return max(TRIES_MAX, 3 * able)
    return max(2, 2 * able) if _cut_off(group) else 2


def _cut_off(group: Group) -> set[str]:
    """The authors who have gone, or whom we have never met, and of whose chains somebody had only the end: nobody tells
    us from where on they are for us, and each may have less of them than the next one. And those who know of us only
    since later than others have let us in."""
    authors = (*group.view.former, *group.view.members)
    found = {author: group.chains[author] for author in authors if author in group.chains}
    pasts = {did: chain.past for did, chain in found.items() if chain.past is not None and chain.past.first > 1}
    return {did for did, past in pasts.items() if past.ours or found[did].untold}


def _rules(group: Group) -> tuple[str, str]:
    return group.view.policy.history, group.view.members[group.me].history


def _whole(group: Group) -> bool:
    """Whether we may have all that was said before us."""
    return _rules(group) == ("all", "all")


def _whom(turn: Turn, name: str, state: Fetching) -> str | None:
    """Who is asked next: whoever was asked least often, and of these first those who keep the history; nobody by mail
    as long as there is a link; and for a while nobody who knows of other members or roles, because what counts depends
    on these. Once all who know of the same ones have been asked in vain, twice each, it is everybody's turn: those
    could be liars."""
    group = turn.group(name)
    keepers = group.view.keepers
    able = [member for member in group.peers if pull_requests.free(turn, name, member)]
    agreed = [member for member in able if _of_our_mind(group, member)]
    if state.waited < WAITS_MAX and (not agreed or state.tries < 2 * len(agreed)):
        able = agreed
    near = [member for member in able if not mediator_mail.by_mail(turn, name, member)] or able
    asks = _asks(group, state)
    order = {did: (asks[did], did not in keepers, group.view.members[did].joined, did) for did in near}
    return min(near, key=order.__getitem__, default=None)


def _of_our_mind(group: Group, member: str) -> bool:
    """Whether it knows of the same members and roles."""
    return group.peers[member].view == group.view.checksum


def _of_whom(chains: dict[str, Past], whom: str, asks: int) -> list[str]:
    """For whose words this member is asked that was asked so often: for its own, and for all others' where they fit;
    else for some of these after the others."""
    own = [whom] if whom in chains else []
    others = sorted(chains.keys() - own, key=lambda did: (chains[did].first == NEWEST, did))
    room = WANT_MAX - len(own)
    begin = asks * room % len(others) if len(others) > room else 0
    return own + (others[begin:] + others[:begin])[:room]


def _asks(group: Group, state: Fetching) -> dict[str, int]:
    """How often each was asked; whoever has come since does not have to make up for what the others were."""
    known = {did: count for did, count in state.asks.items() if did in group.peers}
    return dict.fromkeys(group.peers, min(known.values(), default=0)) | known


# --- taking in ------------------------------------------------------------------------------------------------------


def take(turn: Turn, name: str, member: str, errand: Errand, events: Sequence[Event], more: bool) -> None:
    """A page of the history, as this member has it."""
    group = turn.group(name)
    state = group.fetching
    if state is None or group.me not in group.view.members:
        raise Refused(why="history that nobody waits for")
    if "none" in _rules(group):  # of whoever has gone, only what it said when we were there
        joined = group.view.members[group.me].joined
        events = [event for event in events if event.lamport >= joined]
    got, own = 0, False
    for author, stretch in groupby(sorted(events, key=lambda e: (e.author, -e.seq)), key=lambda e: e.author):
        if count := _prepend(turn, name, member, author, stretch):
            got += count
            past = turn.group(name).chain(author).past
            own = own or (past is not None and past.top is None)
    stuck = not got  # although there is more: else whoever says so, and has nothing to show, is asked for ever
    vain = not got and state.tries >= _tries_max(group)
    wanted = _wanted(turn.group(name))
    over = not more and (not wanted or (vain and state.asked >= wanted.keys()))
    more_comes = member in group.errands
    pages = 1 if stuck else state.pages if more_comes else min(PAGES_MAX, state.pages * 2)
    done, news = over or (state.done and stuck), not (state.done and stuck)  # that we look once more is none
    state = replace(state, got=state.got + got, done=done, pages=pages, question="")
    if not stuck:
        state = replace(state, tries=0, unanswered=0, late=0)
    if own and errand.page == 0 and state.asks.get(member):  # it has kept its turn; on its word alone nobody does
        state = replace(state, asks={**state.asks, member: state.asks[member] - 1})
    if over:
        state = replace(state, due=turn.now + (LATER_MS << state.late))
    if news:
        _settle(turn, name, state)
    else:
        turn.edit(name, fetching=state)
    if over and _whole(group):
        turn.timer("history", name, LATER_MS << state.late)
    if not over and not (stuck and more):  # else ever more rarely, as `fetch` has said
        turn.timer("history", name, AGAIN_MS if stuck or more_comes else 1)


def missed(turn: Turn, name: str, member: str, thread: str | None) -> None:
    """An answer has come out of its turn, so one before it was lost, or comes too late: ask anew for one at a time."""
    group = turn.group(name)
    turn.say(Measure("dropped", "HistoryOutOfTurn"))
    if group.fetching is not None and group.errands[member].thread == thread:
        left = {did: one for did, one in group.errands.items() if did != member}
        turn.edit(name, errands=left, fetching=replace(group.fetching, pages=1))
        turn.timer("history", name, AGAIN_MS)


def _settle(turn: Turn, name: str, state: Fetching) -> None:
    group = turn.edit(name, fetching=state)
    turn.say(Notify(HistoryFetched(name, state.got, left_of(group)[1], state.done)))


def _prepend(turn: Turn, name: str, member: str, author: str, events: Iterable[Event]) -> int:
    """Take in events of one author, the newest first, that lead up to what we have of its chain. How many they are: the
    first one that does not fit is the end."""
    group = turn.group(name)
    chain, got, read = group.chain(author), 0, group.lamport
    past = chain.past or Past(NEWEST)
    top, anchored, now = past.top, past.anchored, turn.now
    first, before = past.first if chain.seq else 0, past.before
    known = author != group.me and group.view.known(author) is not None
    signed = signed_by(group, author)
    if not first and author in group.view.former and author not in group.view.removed:
        first = max(signed, default=-1) + 1  # whoever has left has signed its last word
    lamport = now + AHEAD_MS_MAX + 1
    for event in events:
        fault = _fault(group, first, before, event) if known else "HistoryOfOthers"
        if contradicted(signed, event) or event.lamport >= lamport:
            fault = fault or "HistoryContradicted"
        anchored, lamport = anchored or event.seq + 1 in signed, event.lamport
        if top is not None and not anchored and top.seq - event.seq >= VOUCHED_MAX:
            fault = "HistoryTooLong"
        if fault:
            turn.say(Measure("dropped", fault))
            break
        # It is its author's own word where that has named it; and where it is signed, so is whatever leads up to it.
        anchored = anchored or event.is_control
        by = "" if anchored else member
        if by and top is None:
            top = Spot(event.seq, event.id, event.lamport)
        first, before = event.seq, event.pre
        if chain.seq == 0:  # its author has not told us from where on it is for us, and perhaps never will
            chain = Chain(event.seq, event.id, event.lamport, own=Spot(), by=member, untold=True)
        if not event.is_control and may_post(group.view, author, event.seq):
            row = (event.id, author, event.seq, event.lamport, event.type, event.record, now)
            turn.say(Remember(name, *row, late=False, vouched=by, history=True, target=target_of(event)))
            read = max(read, event.lamport)  # an answer to it stands below it
        elif not event.is_control:
            reinstated_posts.note(turn, name, event, counts=False)
        got += 1
    if got:
        past = Past(first, before, anchored, top, (past.by or member) if top else "", past.ours)
        turn.edit(name, chains={**group.chains, author: replace(chain, past=past)}, lamport=read)
    return got


def prepend(turn: Turn, name: str, by: str, author: str, events: Sequence[Event]) -> int:
    """Take in events of one author, the newest first, that no member has handed over: `by` vouches for them. How many
    they are, as in `take`."""
    got = _prepend(turn, name, by, author, events)
    state = turn.group(name).fetching
    if got and state is not None:
        _settle(turn, name, replace(state, got=state.got + got))
    elif got:
        turn.say(Notify(HistoryFetched(name, got, left_of(turn.group(name))[1], True)))
    return got


def _fault(group: Group, first: int, before: str, event: Event) -> str:
    """Why this event cannot be the one before place `first` (0: the last of its chain), which must have the id `before`
    (empty: any); empty: it can."""
    if event.group_id != group.id:
        return "HistoryOfOthers"
    if first and event.seq != first - 1:
        return "HistoryWithHoles"
    if before and event.id != before:
        return "HistoryContradicted"
    if any(dep not in group.control for dep in event.deps) or (event.is_control and event.id not in group.control):
        return "HistoryWithoutCauses"
    return ""
