"""Getting our own words back, where this profile is an older copy of itself.

Whoever puts an old copy of a profile in the place of the one that was lost has said more than it knows. Were it to go
on from there, it would say a second thing in a place of its chain that is taken: to the others that looks as if it told
two histories. They know better, and say with every `sync` how far they have our chain. So a member that is told of more
than it has says nothing new until it has fetched that from whoever has it.

A profile that knows that it was restored asks all the others, and waits for the last of them: whoever is away may be
the only one who has heard our last words. It begins anew with each of them (`pairing.py`): so nobody can say again what
one of them had said before, and what was on its way from us to them is not understood any more. Where one of them is
gone for good, or we were alone when the backup was made and whoever has joined since is somebody whom we do not know,
only a person can tell whether we may go on (`resume`).

A member could claim that without reason, to keep us silent. After a restored backup anybody is believed, until a person
knows better. Else two members are, or the only other one: until they were asked, and have shown nothing. Nor can it put
words into our mouth: each post of ours has a mark under it that only we can make, and only we can check, so that it
still proves nothing to anybody else.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import blake2b_keyed, equal
from zerochat.errors import LocalError, NotAMember, Refused
from zerochat.group.effects import Notify
from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail, pairing
from zerochat.group.membership import names
from zerochat.group.notifications import Regained, ViewChanged
from zerochat.group.signed_streams import publisher
from zerochat.group.state import Group, Regain
from zerochat.group.sync import acknowledgements, head_claims, pull_requests
from zerochat.group.transaction import Turn

RETRY_MS, SELDOM_MS = 2_000, 10_000
"""We ask again after this long; after a restored backup, where those who are there have nothing, after the longer."""
ROUNDS_MAX = 65
"""After so many, two minutes at least, whoever is connected need only have been asked, and whoever is away is waited
for no longer: else those who claim it one after the other could keep us silent. They are counted, and not the time:
while we sleep, or nobody is there, nobody can answer."""
EVENTS_MAX = 64
MARK_BYTES = 8
"""Whoever wants to make one up has to ask us whether it is right, one at a time."""


class NotKnown(Refused):
    """It is not known how much we have said."""


class Unheard(NotKnown):
    """This profile was restored from a backup, and until all members have said what they have heard of you since you
    cannot write in {group}. There is no word yet from {missing}; if they are gone, `zerochat resume {group}` goes on.
    """


class OlderCopy(NotKnown):
    """This is an older copy of the profile: {who} told of more of your own messages in {group} than it has. They are
    fetched as soon as they can be; if nobody has them any more, `zerochat resume {group}` goes on."""


class RestoredAlone(NotKnown):
    """This profile was restored from a backup, and you were alone in {group} when it was made. If nobody has joined
    since, `zerochat resume {group}` goes on; else begin a new group."""


class NothingToResume(LocalError):
    """There is nothing to resume in {group}: nothing keeps you from speaking there."""


def marked(group: Group, event: Event) -> Event:
    """A post of ours with our mark under it, in its body."""
    return replace(event, body={**event.body, "own": _mark(group, event)})


def is_ours(group: Group, event: Event) -> bool:
    """Whether we have really said this, whoever hands it to us."""
    bare = replace(event, body={name: value for name, value in event.body.items() if name != "own"})
    return equal(str(event.body.get("own", "")).encode(), _mark(group, bare).encode())


def _mark(group: Group, event: Event) -> str:
    return b64url(blake2b_keyed(group.seed, b"zerochat/own", event.unsigned, MARK_BYTES))


def begin(turn: Turn, name: str) -> None:
    """This profile was restored from a backup, and starts: say nothing in this group until all have said where we
    stand, and listen to nobody before it has answered us now."""
    if turn.group(name).state == "active":
        turn.edit(name, regain=Regain(unsure=True), relationships={}, offers={})
        publisher.begin_anew(turn, name)


def suspended(group: Group) -> bool:
    """Whether we may have said more than we know."""
    return group.regain is not None and (group.regain.unsure or bool(head_claims.believed(group)))


def told(group: Group) -> int:
    """Up to where our own chain goes, as far as those say who are believed; 0: nobody says anything of it."""
    if group.regain is None or not (ahead := head_claims.believed(group)):
        return 0
    return max(head_claims.signed(group), *(group.regain.claims[member] for member in ahead))


def check(group: Group) -> None:
    """Raise Unheard, OlderCopy or RestoredAlone where we must say nothing new yet."""
    if not suspended(group):
        return
    if not group.others:
        raise RestoredAlone(group=group.name)
    assert group.regain is not None
    if ahead := head_claims.ahead(group):
        raise OlderCopy(who=names(group.view, ahead), group=group.name)
    raise Unheard(missing=names(group.view, _unheard(group)), group=group.name)


def resume(turn: Turn, group: Group) -> str:
    """Somebody at this machine decides that there is nothing to wait for: go on from what is here. Raises NotAMember or
    NothingToResume."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    if group.regain is None or not suspended(group):
        raise NothingToResume(group=group.name)
    ignored = group.regain.ignored | group.regain.claims.keys()
    turn.edit(group.id, regain=Regain(ignored=ignored) if ignored else None)
    turn.say(Notify(Regained(group.id, group.seq)))
    return group.id


def hear(turn: Turn, name: str, member: str, upto: int) -> None:
    """A member says how far it has our chain."""
    group = turn.group(name)
    state = group.regain or Regain()
    if group.state != "active" or (upto <= group.seq and not (state.unsure or state.claims)):
        return
    could = not suspended(group)
    changed = member not in state.ignored and state.claims.get(member) != upto
    if changed:
        turn.edit(name, regain=replace(state, claims={**state.claims, member: upto}))
    settle(turn, name)
    group = turn.group(name)
    if suspended(group):
        turn.timer("regain", name, 1, keep=True)
        if changed:
            publisher.begin_anew(turn, name)
        if could:
            turn.say(Notify(ViewChanged(name)))
    elif not could and group.regain is not None and group.regain.claims:  # somebody has taken it back
        _go_on(turn, name, group.regain)


def seek(turn: Turn, name: str) -> None:
    """Fetch what is ours from whoever has it; give up on those who have shown nothing."""
    settle(turn, name)
    group = turn.group(name)
    state = group.regain
    if state is None:
        return
    if state.unsure:
        _ask(turn, name)
    pull_requests.give_up(turn, name)
    state = _over_links_now(turn, name, state)
    group = turn.group(name)
    if not suspended(group):
        return
    there = [member for member in head_claims.believed(group) if pull_requests.there(turn, name, member)]
    asked = {member: state.asked.get(member, 0) for member in there}  # with a link goes whatever was on its way
    state = replace(state, asked=asked, rounds=state.rounds if there else 0)
    idle = sorted((member for member in there if member not in group.errands), key=asked.__getitem__)
    if not state.unsure:  # each was asked for itself, and had nothing to show
        long = state.rounds >= ROUNDS_MAX
        vain = [
            one
            for one in idle
            if asked[one] >= (1 if long and mediator_mail.linked(turn, name, one) else head_claims.TRIES_MAX)
        ]
        if vain and (long or len(vain) == len(head_claims.believed(group))):
            _give_up(turn, name, state, vain)
            return
    # Whoever has it answers at once; the longer nobody does, the more are asked at a time.
    fresh = [one for one in idle if head_claims.may_have(state, one)][: max(1, sum(asked.values()))]
    for member in fresh or (idle[:1] if state.unsure else ()):
        want = [(group.me, group.seq, max(state.claims[member], head_claims.signed(group)))]
        pull_requests.ask_for(turn, name, member, want, EVENTS_MAX)
        asked[member] += 1
        if mediator_mail.by_mail(turn, name, member):
            state = replace(state, mailed=state.mailed | {member})
    connected = any(mediator_mail.linked(turn, name, member) for member in there)
    turn.edit(name, regain=replace(state, asked=asked, rounds=state.rounds + connected))
    more = any(head_claims.may_have(state, member) for member in there)
    turn.timer("regain", name, RETRY_MS if more or not state.unsure else SELDOM_MS)


def _over_links_now(turn: Turn, name: str, state: Regain) -> Regain:
    """Whoever was asked by mail, and is connected now, is asked anew: it may not even have been reached."""
    group = turn.group(name)
    anew = {member for member in state.mailed & group.peers.keys() if mediator_mail.linked(turn, name, member)}
    if anew:
        asked = {member: times for member, times in state.asked.items() if member not in anew}
        state = replace(state, asked=asked, mailed=state.mailed - anew)
        left = {member: one for member, one in group.errands.items() if member not in anew}
        turn.edit(name, regain=state, errands=left)
    return state


def _give_up(turn: Turn, name: str, state: Regain, vain: Sequence[str]) -> None:
    """These have nothing to show, and are not listened to again."""
    left = {member: upto for member, upto in state.claims.items() if member not in vain}
    asked = {member: times for member, times in state.asked.items() if member in left}
    state = replace(state, claims=left, asked=asked, ignored=state.ignored | set(vain))
    if suspended(turn.edit(name, regain=state)):
        turn.timer("regain", name, RETRY_MS)
    else:
        _go_on(turn, name, Regain(claims=left, ignored=state.ignored))


def _go_on(turn: Turn, name: str, state: Regain) -> None:
    """We may speak again."""
    group = turn.edit(name, regain=state if state.claims or state.ignored or state.asked else None)
    turn.timer("repair", name, 1)  # what others have of it is our own word again, which they have to hear
    turn.say(Notify(Regained(name, group.seq)))


def _ask(turn: Turn, name: str) -> None:
    """Begin anew with everybody; and ask those who are connected to say where we stand, and that they have what others
    have brought us back."""
    group = turn.group(name)
    for member in group.others:
        known = group.relationships.get(member)
        if known is not None and member not in _unheard(group) and not acknowledgements.lacks(group, member):
            continue  # it has said all that we want to know
        if known is None:
            pairing.renew(turn, name, member)
        elif known.established and not mediator_mail.by_mail(turn, name, member):
            turn.edit_peer(name, member, view="")  # so that it is asked for its own
            acknowledgements.send_sync(turn, name, member)


def progressed(turn: Turn, name: str) -> None:
    """Some of it is here: whoever has brought it may have more."""
    state = turn.group(name).regain
    if state is not None:
        turn.edit(name, regain=replace(state, asked={}, rounds=0))
        settle(turn, name)
        turn.timer("regain", name, 1)


def settle(turn: Turn, name: str) -> None:
    """See whether we know again all that we have said."""
    group = turn.group(name)
    state = group.regain
    if state is None or not (state.unsure or state.claims) or head_claims.believed(group):
        return
    if state.unsure and (not group.others or _unheard(group)):
        return
    if head_claims.ahead(group):
        return  # one alone says so
    # Whoever takes it back does not begin anew when it claims it again.
    _go_on(turn, name, Regain(ignored=state.ignored) if state.unsure else replace(state, claims={}))


def _unheard(group: Group) -> list[str]:
    """Those who have not said yet how far they have our chain, or are not of our mind about who is in the group: they
    may know of somebody else to ask."""
    assert group.regain is not None
    heard = group.regain.claims.keys() & group.peers.keys()
    return [did for did in group.others if did not in heard or group.peers[did].view != group.view.checksum]
