"""What members say whom we have never met, because nothing leads from them to us.

Only the author itself can say from where on its chain is for somebody who came in later; whoever cannot be reached does
not say it. So what it has said since we came in is asked of the others, from the newest back. Where that begins, its
chain begins for us; from then on what follows is missing like anything else (`needs.py`), and what is before it is
history (`past.py`). Like all that others hand over it is vouched until the author tells us (`vouched.py`).

That a member has nothing for us is no more than its word: several who have been there for longer than we have to say so
before no more are asked. Nor is one believed alone that the chain begins for us behind all that the others tell of.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.errors import RemoteError
from zerochat.group.effects import Measure
from zerochat.group.event_log import log
from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail
from zerochat.group.state import Chain, Errand, Group, Spot, Unmet
from zerochat.group.sync import pull_requests
from zerochat.group.sync.relayed_events import fetch_beginning, go_back, is_beyond, is_unmet, is_whole
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX

ANSWERS = 3
"""So many members have to say that they have nothing for us."""
RETRY_MS, RETRY_MS_MAX = 1_000, 60_000


def seek(turn: Turn, name: str) -> int:
    """Ask for what somebody has said whom we have not met, if it is time to. When to look again, ms from now; 0: nobody
    has told of anything like that."""
    group = turn.group(name)
    everybody = () if group.agree_by else (*group.view.members, *group.view.removed)
    authors = [did for did in everybody if is_unmet(group, did)]
    known = {did: group.unmet.get(did, Unmet()) for did in authors if did not in group.quarantine}
    waits = []
    for author, one in known.items():
        more = tellers(group, author, one)
        if not more or mediator_mail.reachable(turn, name, author):
            continue
        if one.at <= turn.now:
            able = [member for member in more if pull_requests.free(turn, name, member)]
            near = [member for member in able if not mediator_mail.by_mail(turn, name, member)] or able
            if near:
                whom = near[turn.moment.random(1)[0] % len(near)]
                want = [(author, _begin(group, author, whom), _told(group, author, whom))]
                pull_requests.ask_for(turn, name, whom, want, RUN_EVENTS_MAX, back=True, purpose="unmet")
            delay = min(RETRY_MS << min(one.tries, 10), RETRY_MS_MAX)
            known[author] = one = replace(one, tries=one.tries + 1, at=turn.now + delay)
        waits.append(max(RETRY_MS, one.at - turn.now))
    known = {did: one for did, one in known.items() if one != Unmet()}
    if not group.agree_by and known != group.unmet:
        turn.edit(name, unmet=known)
    return min(waits, default=0)


def tellers(group: Group, author: str, one: Unmet) -> list[str]:
    """The members who tell of more of this chain than they have answered for, and than enough others have."""
    told = {did: _told(group, author, did) for did in group.peers if did != author}
    asked = [height for did, height in one.answered.items() if not is_whole(group, did)]  # others may never have had it
    return [
        did
        for did, upto in told.items()
        if upto > max(one.answered.get(did, 0), _begin(group, author, did))
        and sum(height >= upto for height in asked) < ANSWERS
    ]


def is_asked_for(group: Group, author: str) -> bool:
    """Whether somebody may still have something that this author has said since we came."""
    return bool(tellers(group, author, group.unmet.get(author, Unmet())))


def _told(group: Group, author: str, member: str) -> int:
    """How far this member has the chain, of what counts of it."""
    known = group.view.known(author)
    told = group.peers[member].acked.get(author, 0)
    return told if known is None or known.until is None else min(told, known.until)


def _begin(group: Group, author: str, member: str) -> int:
    """Behind which place of this chain this member is asked for it."""
    chain = group.chain(author)
    return 0 if is_beyond(group, author) and member != chain.by else chain.seq


def take(turn: Turn, name: str, member: str, errand: Errand, events: Sequence[Event]) -> None:
    """What this member has of somebody's whom we have not met."""
    ((author, _, upto),) = errand.want
    group = turn.group(name)
    me = group.view.members.get(group.me)
    if me is None or not is_unmet(group, author):
        return
    ours = sorted((event for event in events if event.lamport >= me.joined), key=lambda event: event.seq)
    before, said = turn.agent, len(turn.effects)
    try:
        if ours and is_beyond(group, author) and member != group.chain(author).by:
            go_back(turn, name, author)
        chain = turn.group(name).chain(author)
        if ours and ours[0].seq != chain.seq + 1:
            stale = chain.stale or chain.own is not None
            begun = replace(Chain.after(ours[0].seq - 1), own=Spot(), untold=True, stale=stale)
            turn.edit(name, chains={**turn.group(name).chains, author: begun})
        for event in ours:
            log.hear_shared(turn, name, member, event)
        useless = bool(ours) and turn.group(name).chain(author).seq < ours[0].seq
        if useless:  # it names what we do not know of yet: nothing begins with that, and it is asked for again
            turn.agent = before
            del turn.effects[said:]
        elif ours:
            fetch_beginning(turn, name, author)
    except RemoteError as error:
        useless, turn.agent = False, before
        del turn.effects[said:]
        turn.say(Measure("dropped", error.code))
    if not useless:
        group = turn.group(name)
        one = group.unmet.get(author, Unmet())
        answered = {did: upto for did, upto in one.answered.items() if did in group.peers} | {member: upto}
        turn.edit(name, unmet={**group.unmet, author: replace(one, answered=answered, tries=0, at=turn.now)})
    turn.timer("need", name, RETRY_MS, keep=True)
