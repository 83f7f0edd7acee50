"""What somebody said as a reader was left out here, and may count after all.

A role turns out never to have counted where whoever gave it was put out at the same time (`membership/resolve.py`). Who
heard of the removal first has taken in what was said meanwhile, and who heard of the role first has left it out, with
its place in the chain and its hash kept. So it is asked for once more, of anybody: the hash says that it is the same.
Where others have handed over what was left out, it is vouched like all of that (`vouched.py`), and goes with it.
"""

from msgspec.structs import replace

from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail
from zerochat.group.membership import may_post
from zerochat.group.state import Group, Unheard
from zerochat.group.sync import pull_requests
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import WANT_MAX

IDS_MAX = 256
"""Events of one author that are left out, of which we know the hashes: the latest."""
RETRY_MS, BACKGROUND_MS = 1_000, 60_000
TRIES_MAX = 6
"""After so many in vain, each time after twice as long, it is asked for rarely."""


def note(turn: Turn, name: str, event: Event, *, counts: bool) -> None:
    """An event has taken its place in its author's chain, and is taken in if it `counts`, and else left out."""
    known = turn.group(name).unheard.get(event.author, Unheard())
    if counts:
        if event.seq not in known.ids:
            return
        one = Unheard({seq: id_ for seq, id_ in known.ids.items() if seq != event.seq})
    else:
        one = replace(known, ids={**known.ids, event.seq: event.id})
        if len(one.ids) > IDS_MAX:
            del one.ids[min(one.ids)]
    rest = {author: other for author, other in turn.group(name).unheard.items() if author != event.author}
    turn.edit(name, unheard={**rest, event.author: one} if one.ids else rest)


def refuted(turn: Turn, name: str, author: str, after: int, upto: int) -> None:
    """What others have handed over of this chain, after place `after` up to `upto`, is not its author's word: whatever
    was left out of that was made up."""
    group = turn.group(name)
    known = group.unheard.get(author)
    if known is not None:
        ids = {seq: id_ for seq, id_ in known.ids.items() if not after < seq <= upto}
        rest = {did: one for did, one in group.unheard.items() if did != author}
        turn.edit(name, unheard={**rest, author: replace(known, ids=ids)} if ids else rest)


def is_wanted(group: Group, event: Event) -> bool:
    """Whether this is one that was left out, and counts by now."""
    known = group.unheard.get(event.author, Unheard()).ids.get(event.seq)
    return known == event.id and may_post(group.view, event.author, event.seq)


def is_own_word(group: Group, author: str, seq: int) -> bool:
    """Whether its author itself has said, or confirmed, what has this place of its chain, as we know it."""
    chain = group.chain(author)
    top = chain.past.top if chain.past is not None else None
    return seq <= chain.sure and not (top is not None and seq <= top.seq)


def wanted(group: Group, author: str) -> list[int]:
    """The places in this chain that were left out and count by now."""
    known = group.unheard.get(author, Unheard()).ids
    return sorted(seq for seq in known if may_post(group.view, author, seq))


def soon(turn: Turn, name: str) -> None:
    """Something may be wanted from now on: another view is in force, or more is its author's own word."""
    group = turn.group(name)
    if any(wanted(group, author) for author in group.unheard):
        turn.timer("need", name, RETRY_MS, keep=True)


def seek(turn: Turn, name: str) -> int:
    """Ask for what is wanted, if it is time to. When to look again, ms from now; 0: nothing is wanted."""
    wants: dict[str, list[tuple[str, int, int]]] = {}
    waits = []
    for author, one in turn.group(name).unheard.items():
        places = wanted(turn.group(name), author)
        if not places:
            continue
        if one.at <= turn.now:
            whom = _whom(turn, name, author, one.tries)
            # In the order in which it was said; but what nobody has does not keep back what follows it.
            begin = places[0 if one.tries < TRIES_MAX else one.tries % len(places)]
            if whom is not None and len(wants.setdefault(whom, [])) < WANT_MAX:
                wants[whom].append((author, begin - 1, places[-1]))
            delay = RETRY_MS << one.tries if one.tries < TRIES_MAX else BACKGROUND_MS
            one = replace(one, tries=one.tries + 1, at=turn.now + delay)
            turn.edit(name, unheard={**turn.group(name).unheard, author: one})
        waits.append(max(RETRY_MS, one.at - turn.now))
    for member, want in wants.items():
        pull_requests.ask_for(turn, name, member, want, IDS_MAX, purpose="unheard")
    return min(waits, default=0)


def _whom(turn: Turn, name: str, author: str, tries: int) -> str | None:
    """Its author every other time, if it is there, and else anybody; mediators last."""
    group = turn.group(name)
    able = [member for member in sorted(group.peers) if pull_requests.free(turn, name, member)]
    if author in able and tries % 2 == 0:
        return author
    near = [member for member in able if not mediator_mail.by_mail(turn, name, member)] or able
    return near[turn.moment.random(1)[0] % len(near)] if near else None
