"""Whose word an event is: its author's own, or that of a member who has handed it over.

Posts of pairwise groups carry no signature (`event.py` says why). From anybody but its author such a post is *vouched*:
taken in, shown as such, and not believed more than whoever brought it. But each event names the one before it by its
hash. So as soon as the author says anything that follows, or has signed anything that does, all that leads up
to it is its own word, whoever has handed it over; and what does not fit is refuted.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from zerochat.group.effects import Confirm, Notify, Refute
from zerochat.group.event_log.event import Event
from zerochat.group.files import catalogue
from zerochat.group.notifications import Confirmed, Refuted
from zerochat.group.state import Chain, Fetching, Group, Past, Spot
from zerochat.group.sync import reinstated_posts
from zerochat.group.transaction import Turn

AGAIN_MS = 1_000
"""How long after it has turned out that there is more of a chain to fetch it is asked for."""
VOUCHED_MAX = 16_384
"""So much of a chain others may hand over beyond what its author has said or signed itself: whoever makes up words of
somebody who is not there any more shall not fill our disk with them."""


def is_whole(group: Group, author: str) -> bool:
    """Whether we were members when this author became one, so that its whole chain is for us."""
    ours, theirs = group.view.known(group.me), group.view.known(author)
    return ours is not None and theirs is not None and theirs.joined > ours.joined


def is_unmet(group: Group, author: str) -> bool:
    """Whether this member was here before us, has never told us from where on its chain is for us, and nothing is here
    that it has said since we came, unless by the word of one member alone. Who was put out since does not say it any
    more either; who has left has said with its last word how far its chain goes."""
    known, me, chain = group.view.known(author), group.view.known(group.me), group.chain(author)
    if known is None or me is None or author == group.me or not group.entry or is_whole(group, author):
        return False
    if author not in group.view.members and author not in group.view.removed:
        return False
    return author not in group.chains or (chain.untold and (chain.lamport < me.joined or is_beyond(group, author)))


def is_beyond(group: Group, author: str) -> bool:
    """Whether a chain that only one member has told us of begins behind all that the others tell of it: made up, it
    would keep from us what there is."""
    chain = group.chain(author)
    if not chain.untold or chain.past is None or chain.own is None or chain.own.seq:
        return False
    others = [peer.acked.get(author, 0) for did, peer in group.peers.items() if did not in (author, chain.by)]
    return 0 < max(others, default=0) < chain.past.first


def signed_by(group: Group, author: str) -> dict[int, list[Event]]:
    """The membership events of an author, by their places in its chain: mostly one in each."""
    known = group.view.known(author)
    found: dict[int, list[Event]] = {}
    for event in group.control.values():
        if event.author == author and (known is None or known.until is None or event.seq <= known.until):
            found.setdefault(event.seq, []).append(event)
    return found


def contradicted(signed: Mapping[int, Sequence[Event]], event: Event) -> bool:
    """Whether an author that has signed these says something else in the place of this event, or as what comes right
    before one of them."""
    at, after = signed.get(event.seq, ()), signed.get(event.seq + 1, ())
    elsewhere = bool(at) and all(one.id != event.id for one in at)
    return elsewhere or (bool(after) and all(one.pre != event.id for one in after))


def hear_signed(turn: Turn, name: str, event: Event) -> None:
    """A membership event has become known, by whoever's hand: see what it means for what others have handed over of its
    author's chain. None of that can lead past it, for a share that does brings it along."""
    group, author = turn.group(name), event.author
    if author == group.me or event not in signed_by(group, author).get(event.seq, ()):
        return
    hear_author(turn, name, event)
    chain = turn.group(name).chain(author)
    if chain.seq < group.chain(author).seq:
        turn.timer("need", name, AGAIN_MS, keep=True)
    past = chain.past
    if past is None or past.top is None or chain.untold or not past.first <= event.seq <= past.top.seq + 1:
        return
    if event.seq == past.top.seq + 1:
        anchor(turn, name, author, past.top.seq, event.pre)
        return
    _refute(turn, name, author, past.by, past.first - 1, past.top.seq)
    _put(turn, turn.group(name), author, replace(chain, past=Past(past.top.seq + 1, ours=past.ours)))
    fetch_anew(turn, name, author)


def hear_author(turn: Turn, name: str, event: Event) -> None:
    """The author itself says this: see what it means for what others have handed over of its chain.

    Where that can't be told yet, we go back to its own word, and take what follows from itself.
    """
    group = turn.group(name)
    chain = group.chain(event.author)
    if chain.own is None or event.seq <= chain.own.seq or event.seq > chain.seq + 1:
        return
    if event.seq == chain.seq + 1 and event.pre == chain.tip:
        return  # it confirms all of it, by taking its place (`extended`)
    if event.seq == chain.seq and event.id == chain.tip:
        _confirm_all(turn, name, event.author)
        return
    go_back(turn, name, event.author, chain.by if event.seq >= chain.seq else "")


def hear_last(turn: Turn, name: str, author: str, seq: int, tip: str, since: int) -> bool:
    """The author itself says which event is its last, and that what comes after place `since` is for us. Whether others
    have handed over all of that, so that nothing has to come again."""
    chain = turn.group(name).chain(author)
    first = chain.past.first if chain.past is not None else 1
    if chain.own is None or chain.stale or (chain.seq, chain.tip) != (seq, tip):
        return False
    if chain.untold and not first - 1 <= since <= seq:
        return False
    _confirm_all(turn, name, author)
    return True


def _confirm_all(turn: Turn, name: str, author: str) -> None:
    """What others have handed over of this chain ends with what its author has said."""
    group = turn.group(name)
    chain = group.chain(author)
    past, after = chain.past, _linked_after(chain)
    if chain.untold and past is not None:  # each of it has named the one before, and the first one what comes before it
        if past.top is not None and past.top.seq < after:
            _confirm(turn, name, author, past.first - 1, past.top.seq)
        elif past.top is not None:
            after = past.first - 1
        if full(past):
            fetch_anew(turn, name, author)
        past = replace(past, top=None, by="", anchored=True)
    _confirm(turn, name, author, after, chain.seq)
    chain = turn.group(name).chain(author)
    _put(turn, turn.group(name), author, replace(chain, own=None, by="", past=past))


def _linked_after(chain: Chain) -> int:
    """Behind which place each event that others have handed over is named by the one that follows, up to the end."""
    assert chain.own is not None
    return chain.own.seq if chain.past is None else max(chain.own.seq, chain.past.first - 1)


def hear_voucher(turn: Turn, name: str, event: Event) -> None:
    """A member hands this over: where it does not follow what another one has handed over, neither is believed, and
    whoever is asked next may bring what the author will confirm."""
    group = turn.group(name)
    chain = group.chain(event.author)
    if chain.own is not None and event.seq == chain.seq + 1 and chain.tip not in ("", event.pre):
        go_back(turn, name, event.author)


def go_back(turn: Turn, name: str, author: str, liar: str = "") -> None:
    """Believe no more of this chain than its author's own word. What others have handed over beyond that comes anew as
    soon as the author says the same; `liar`: who has handed over what it does not say."""
    group = turn.group(name)
    chain = group.chain(author)
    assert chain.own is not None
    _refute(turn, name, author, liar, chain.own.seq, chain.seq)
    own = chain.own
    if chain.untold and not own.seq:  # nothing of it was the author's own word, not even where it begins
        turn.edit(name, chains={did: one for did, one in group.chains.items() if did != author})
        fetch_anew(turn, name, author)
        return
    back = replace(chain, seq=own.seq, tip=own.tip, lamport=own.lamport, own=None, by="")
    _put(turn, group, author, back)


def _refute(turn: Turn, name: str, author: str, by: str, after: int, upto: int) -> None:
    turn.say(Refute(name, author, after, upto), Notify(Refuted(name, author, by, after, upto)))
    catalogue.refuted(turn, name, author, after, upto)
    reinstated_posts.refuted(turn, name, author, after, upto)


def _confirm(turn: Turn, name: str, author: str, after: int, upto: int) -> None:
    turn.say(Confirm(name, author, after, upto), Notify(Confirmed(name, author, after, upto)))
    catalogue.confirmed(turn, name, author, after, upto)
    reinstated_posts.soon(turn, name)


def _put(turn: Turn, group: Group, author: str, chain: Chain) -> None:
    turn.edit(group.id, chains={**group.chains, author: chain})


def extended(turn: Turn, name: str, event: Event, by: str) -> Chain:
    """The author's chain with this event at its end. `by`: who hands it over, if its author does not say it itself."""
    chain = turn.group(name).chain(event.author)
    past = _with_past(turn, name, chain, event, by)
    own = None
    if by:
        own = chain.own or Spot(chain.seq, chain.tip, chain.lamport)
    elif chain.own is not None:
        _confirm(turn, name, event.author, _linked_after(chain), chain.seq)
    begun = chain.begun or not (event.is_control or by)
    return Chain(event.seq, event.id, event.lamport, begun, chain.forked, own, by, past, chain.untold, chain.stale)


def begun(turn: Turn, name: str, author: str, since: int) -> Chain:
    """The author's chain, of which it has now said that what comes after place `since` is for us. What others have
    handed over of it stays, until the author's own word meets it."""
    chain = turn.group(name).chain(author)
    fetched = chain.past
    first = 1 if fetched is None else fetched.first
    confirmed = chain.seq if chain.own is None else chain.own.seq
    if chain.untold and confirmed and first <= since + 1 <= confirmed + 1:
        return replace(chain, untold=False)  # the author has confirmed so much of it meanwhile
    fresh = Chain.after(since)
    if chain.own is None:
        return fresh
    meets = fetched is not None and fetched.top is not None and fetched.top.seq == since
    _refute(turn, name, author, "", since if meets else chain.own.seq, chain.seq)
    before = fetched if meets else fresh.past
    ours = chain.untold and first <= since and chain.lamport >= _joined(turn.group(name))
    return replace(fresh, past=replace(before, ours=before.ours or ours) if before is not None else None)


def _joined(group: Group) -> int:
    known = group.view.known(group.me)
    return known.joined if known is not None else 0


def full(past: Past) -> bool:
    """Whether others have handed over as much of what came before as they may, until the author says something."""
    return past.top is not None and not past.anchored and past.top.seq - past.first + 1 >= VOUCHED_MAX


def fetch_anew(turn: Turn, name: str, author: str) -> None:
    """There is more to fetch of this chain than we knew when we asked for it."""
    state = turn.group(name).fetching
    if state is None:
        return
    asked = author in state.asked
    if state.done or asked:
        now = state.reopened() if state.done else state
        turn.edit(name, fetching=replace(now, asked=state.asked - {author}))
    # Whoever says so ever again, while nobody could be asked, does not put it off.
    turn.timer("history", name, AGAIN_MS, keep=not (state.done or asked))


def fetch_beginning(turn: Turn, name: str, author: str) -> None:
    """What a member has of this chain, whose author has gone, begins in the middle: others may have more of it, and it
    may be for us even in a group whose past is not for newcomers."""
    group = turn.group(name)
    me = group.view.members.get(group.me)
    if group.fetching is None and me is not None and "none" in (group.view.policy.history, me.history):
        turn.edit(name, fetching=Fetching())
    fetch_anew(turn, name, author)


def anchor(turn: Turn, name: str, author: str, seq: int, tip: str) -> None:
    """The author says which event of its chain has place `seq`, up to which we have fetched the chain, or can."""
    group = turn.group(name)
    chain = group.chain(author)
    if chain.past is not None and not chain.untold:
        past = _met(turn, name, author, chain.past, seq, tip)
        if past != chain.past:
            _put(turn, group, author, replace(chain, past=past))


def _met(turn: Turn, name: str, author: str, past: Past, seq: int, tip: str) -> Past:
    """What was fetched, now that the author's own word says which event has place `seq`."""
    if past.top is not None and past.top.seq == seq:
        below = past.first - 1
        if past.top.tip == tip:
            _confirm(turn, name, author, below, seq)
            if full(past):
                fetch_anew(turn, name, author)
            return replace(past, top=None, by="", anchored=True)
        _refute(turn, name, author, past.by, below, seq)
        fetch_anew(turn, name, author)
        return Past(seq + 1, tip, anchored=True, ours=past.ours)
    if past.first == seq + 1:
        return replace(past, before=tip, anchored=True)
    return past


def _with_past(turn: Turn, name: str, chain: Chain, event: Event, by: str) -> Past | None:
    """What this event says of what came before it: where the part that has come by itself meets what was fetched."""
    past = chain.past
    if past is None or chain.begun:
        return past
    if by:
        return replace(past, before=event.pre) if past.first == event.seq and not past.before else past
    return _met(turn, name, event.author, past, event.seq - 1, event.pre)
