"""Asking for what is missing here, and giving what others miss.

An author repeats what a member has not acknowledged, for as long as it takes (`sync.py`). Where it cannot, because it
is away or has left, others can: everybody says with all that it sends how far it has everybody's chain. Whoever lacks
something that another one has waits for a moment, asks the author if that is there, then one of those who have it, ever
more rarely; and listens to nothing of that kind for which it has not asked. What comes so is *vouched* (`vouched.py`).
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused, RemoteError
from zerochat.group.effects import Fetch, Measure, Notify
from zerochat.group.event_log import log
from zerochat.group.event_log.event import Event, load_event
from zerochat.group.inputs import Fetched
from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import attestation
from zerochat.group.notifications import Completed, Gap
from zerochat.group.state import Errand, Group, Need
from zerochat.group.sync import (
    acknowledgements,
    backfill,
    corroboration,
    fork_detection,
    pull_requests,
    reinstated_posts,
    relayed_events,
    unreachable_authors,
)
from zerochat.group.sync.relayed_events import VOUCHED_MAX
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX, read_runs, runs_in, squeezed, write_runs
from zerochat.group.wire.messages import SHARE, WANT_MAX, NeedBody, ShareBody

TRIES_MAX = 6
"""After so many in vain, each time after twice as long, something counts as lost. It is still asked for, rarely."""
RETRY_MS, BACKGROUND_MS = 1_000, 60_000
MEET_MS = 5_000
"""Whoever has never told us anything has mostly just come in, and is about to."""
NEED_BYTES = 8 * 1024
"""What a need counts for in what its sender may send: reading the log for it costs more than its few bytes say."""
SHARE_EVENTS_MAX = 64
"""Events in one answer, where they are for now and not for the history."""


# --- what is missing --------------------------------------------------------------------------------------------------


def lacking(group: Group) -> dict[str, int]:
    """By author: up to where somebody says that it has the chain, where that is further than it is here."""
    found: dict[str, int] = {}
    for member, peer in group.peers.items():
        if member not in group.view.members:
            continue
        for author, upto in peer.acked.items():
            if author != member and upto > group.chain(author).seq:
                found[author] = max(upto, found.get(author, 0))
    for author, one in group.view.former.items():  # whoever has left has signed how far its chain goes
        if one.until is not None and author not in group.view.removed and author in group.chains:
            found[author] = one.until
    return {author: upto for author, most in found.items() if (upto := _meant(group, author, most))}


def _meant(group: Group, author: str, upto: int) -> int:
    """As much of that as there can be for us; 0: nothing is missing."""
    known = group.view.known(author)
    if known is None or author == group.me or author in group.quarantine:
        return 0
    upto = upto if known.until is None else min(upto, known.until)
    chain = group.chain(author)
    upto = min(upto, _told_by(group, author) + VOUCHED_MAX)
    if chain.untold and group.agree_by:
        return 0
    if relayed_events.is_unmet(group, author) and (
        author in group.view.members or not unreachable_authors.is_asked_for(group, author)
    ):
        return 0  # a newcomer does not know from where on it is meant for it: mostly the author says so in a moment
    return upto if upto > chain.seq else 0


def _told_by(group: Group, author: str) -> int:
    """Up to where an author itself has told us of its chain, or from where on others have."""
    chain = group.chain(author)
    begin = chain.past.first - 1 if chain.past is not None else 0
    signed = (event.seq for event in group.control.values() if event.author == author)
    return max(chain.seq if chain.own is None else chain.own.seq, begin, *signed, 0)


def seek(turn: Turn, name: str) -> None:
    """Ask for whatever is missing, if it is time to."""
    group = turn.group(name)
    missing = lacking(group)
    needs = {author: _renewed(turn, group, author, upto) for author, upto in missing.items()}
    for author, need in group.needs.items():
        if author not in needs:
            turn.say(Notify(Gap(name, author, group.chain(author).seq, need.upto, "filled")))
    if group.needs and not needs:
        turn.say(Notify(Completed(name, group.lamport, turn.now)))
    if needs != group.needs:
        turn.edit(name, needs=needs)
    pull_requests.give_up(turn, name)
    _ask(turn, name, [author for author, need in needs.items() if need.at <= turn.now])
    waits = [max(RETRY_MS, need.at - turn.now) for need in turn.group(name).needs.values()]
    waits += [
        wait for seek_more in (reinstated_posts.seek, unreachable_authors.seek) if (wait := seek_more(turn, name))
    ]
    if waits:
        turn.timer("need", name, min(waits))


def _renewed(turn: Turn, group: Group, author: str, upto: int) -> Need:
    need = group.needs.get(author)
    if need is None:
        turn.say(Notify(Gap(group.id, author, group.chain(author).seq, upto, "asked")))
        return Need(upto, since=turn.now)
    return need if need.upto == upto else replace(need, upto=upto)


def _ask(turn: Turn, name: str, authors: Sequence[str]) -> None:
    group = turn.group(name)
    wants: dict[str, list[tuple[str, int, int]]] = {}
    for author in authors:
        need = group.needs[author]
        whom = _whom(turn, name, author, need)
        if whom is None:
            continue  # whoever has it is not there, or busy
        tries = need.tries + 1
        delay = RETRY_MS << tries if tries < TRIES_MAX else BACKGROUND_MS
        group = turn.edit(name, needs={**group.needs, author: replace(need, tries=tries, at=turn.now + delay)})
        if tries == TRIES_MAX:
            turn.say(Notify(Gap(name, author, group.chain(author).seq, need.upto, "lost")))
        if whom == author:
            acknowledgements.ask(turn, name, author)
        else:
            wants.setdefault(whom, []).append((author, group.chain(author).seq, need.upto))
    for member, want in wants.items():
        pull_requests.ask_for(turn, name, member, want[:WANT_MAX], SHARE_EVENTS_MAX)


def _whom(turn: Turn, name: str, author: str, need: Need) -> str | None:
    """Whom to ask next: the author as long as it may answer, then whoever has it, by lot; mediators last."""
    group = turn.group(name)
    seq = group.chain(author).seq
    here = author in group.view.members
    if here and need.tries < 2 and mediator_mail.reachable(turn, name, author):
        return author
    if here and not seq and turn.now < need.since + MEET_MS:
        return None
    able = [
        member
        for member, peer in group.peers.items()
        if peer.acked.get(author, 0) > seq and member != author and pull_requests.free(turn, name, member)
    ]
    if not able and author not in group.view.members:  # nobody says how far it has the chain of whoever is gone
        able = [member for member in group.peers if pull_requests.free(turn, name, member)]
    near = [member for member in able if not mediator_mail.by_mail(turn, name, member)]
    return (near or able)[turn.moment.random(1)[0] % len(near or able)] if able else None


# --- answering ------------------------------------------------------------------------------------------------------


def hear_need(turn: Turn, name: str, member: str, message: Message, body: NeedBody) -> None:
    """A member misses something: look it up. Raises Refused."""
    group = turn.group(name)
    asker = group.view.members.get(member)
    if body.group != name or asker is None or member in group.quarantine:
        raise Refused(why="a need of another group, or of somebody who is not a member")
    if len({author for author, _, _ in body.want}) < len(body.want):
        raise Malformed(why="need: the same chain twice")
    rate_limits.charge(turn, name, member, NEED_BYTES)
    want = tuple((author, after, upto) for author, after, upto in body.want if group.view.known(author))
    limit = min(body.limit, RUN_EVENTS_MAX if body.back else SHARE_EVENTS_MAX)
    rules = (group.view.policy.history, asker.history)
    pages = body.pages if body.back else 1
    turn.say(Fetch(name, member, message.id, want, body.back, limit, asker.joined, rules, 0, pages))


def fetched(turn: Turn, found: Fetched) -> None:
    """The log has been read: send it to whoever has asked."""
    group = turn.agent.groups.get(found.group)
    relationship = group.relationships.get(found.member) if group is not None else None
    if group is None or relationship is None or not relationship.established or found.member not in group.peers:
        return
    held = attestation.withheld(group)
    read = list(map(load_event, found.records))
    events = [event for event in read if event.id not in held]
    if found.back:  # each author's are written once where they follow from each other
        events.sort(key=lambda event: (event.author, event.seq))
    body = {"group": group.id, "more": found.more, "page": found.page, "runs": write_runs(events, group.me)}
    message = squeezed(Message(type=SHARE, id=new_id(turn.moment.random), thid=found.thread, body=body))
    packer = turn.packer_of(group.id)
    mediator_mail.send(turn, group.id, found.member, pack(relationship, message, packer, turn.moment.random))
    asker = group.view.members.get(found.member)
    if found.more and found.page + 1 < found.pages and asker is not None and found.member not in group.quarantine:
        rest = pull_requests.below(found.want, read)
        rules = (group.view.policy.history, asker.history)
        page, pages = found.page + 1, found.pages
        turn.say(
            Fetch(group.id, found.member, found.thread, rest, True, RUN_EVENTS_MAX, asker.joined, rules, page, pages)
        )


# --- taking in ------------------------------------------------------------------------------------------------------


def hear_share(turn: Turn, name: str, member: str, message: Message, body: ShareBody) -> bool:
    """What we have asked a member for; False where we do not wait for it any more. Raises RemoteError where we never
    have."""
    group = turn.group(name)
    errand = group.errands.get(member)
    late = errand is not None and errand.back and (message.thid, body.page) != (errand.thread, errand.page)
    if body.group == name and late:
        backfill.missed(turn, name, member, message.thid)
        return False
    if body.group != name or errand is None or message.thid != errand.thread:
        raise Refused(why="a share that nobody has asked for")
    events = list(read_runs(name, runs_in(body.runs, body.packed), member))
    _check(errand, events)
    pull_requests.answered(turn, name, member, events, more=body.more)
    match errand.purpose:
        case "compare":
            fork_detection.hear_other(turn, name, member, events)
            return True
        case "second":
            corroboration.hear(turn, name, member, events)
            return True
        case "unmet":
            unreachable_authors.take(turn, name, member, errand, events)
            return True
        case "unheard":
            for event in _in_turn(events):
                log.hear_unheard(turn, name, member, event)
            turn.timer("need", name, RETRY_MS, keep=True)
            return True
    corroboration.soon(turn, name)
    if errand.back:
        backfill.take(turn, name, member, errand, events, body.more)
        return True
    for event in _in_turn(events):
        before, said = turn.agent, len(turn.effects)
        try:
            log.hear_shared(turn, name, member, event)
        except RemoteError as error:
            turn.agent = before
            del turn.effects[said:]
            turn.say(Measure("dropped", error.code))
    _next_at_once(turn, name, errand)
    return True


def _check(errand: Errand, events: Iterable[Event]) -> None:
    """Refuse anything that was not asked for."""
    wanted = {author: (after, upto) for author, after, upto in errand.want}
    for event in events:
        after, upto = wanted.get(event.author, (0, 0))
        if not after < event.seq <= upto:
            raise Malformed(why="a share of something else than what was asked for")


def _in_turn(events: Iterable[Event]) -> Iterator[Event]:
    """Membership events first: whatever rests on one names it, and each author's stay in their order."""
    return iter(sorted(events, key=lambda event: (event.lamport, event.seq, event.author)))


def _next_at_once(turn: Turn, name: str, errand: Errand) -> None:
    """Whoever has brought something may have more; what is still missing need not wait for as long as at first."""
    group = turn.group(name)
    needs = {}
    for author, need in group.needs.items():
        moved = any(who == author and group.chain(who).seq > after for who, after, _ in errand.want)
        needs[author] = replace(need, tries=0, at=turn.now) if moved else need
    turn.edit(name, needs=needs)
    turn.timer("need", name, 1)
