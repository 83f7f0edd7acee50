"""The group's log: making events, taking them in from others, and delivering each in its place, once.

An author's events are delivered in the order of its chain, and not before the membership events that they name. What
comes too early waits in a bounded limbo; what does not fit there is dropped, because its author repeats whatever is
not acknowledged (`sync.py`). Membership events are signed and form a graph of their own, so they are applied as soon
as their own causes are there, whoever brought them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from zerochat.errors import Malformed, Refused, RemoteError
from zerochat.group.effects import Measure, Notify, Remember, Repeated
from zerochat.group.event_log import lamport
from zerochat.group.event_log.event import (
    CONC_MAX,
    CONTROL,
    DELETE,
    DEPS_MAX,
    GENESIS,
    POST,
    REMOVE,
    Event,
    load_event,
    parse_event,
)
from zerochat.group.files import catalogue, download
from zerochat.group.key_modes import MODES
from zerochat.group.links import mediator_mail, outbox, pairing, peers, rate_limits
from zerochat.group.membership import (
    LEDGER,
    ancestors,
    attestation,
    check_control,
    heads_of,
    may_post,
    missing,
    recounted,
    remove_of,
    resolve_view,
)
from zerochat.group.messages.bodies import target_of
from zerochat.group.notifications import Delivered, Forked, Recounted, ViewChanged
from zerochat.group.signed_streams import publisher, subscriptions
from zerochat.group.state import Chain, Group, Limbo, Profile, Spot, Waiting
from zerochat.group.sync import acknowledgements, reinstated_posts, relay, relayed_events, stale_profile
from zerochat.group.tlog import adoption, pending_entries
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import Run, portions, read_runs, runs_in
from zerochat.group.wire.messages import EventsBody, ReachBody, StatusBody, SyncBody
from zerochat.overlay import OVERLAYS

LIMBO_EVENTS_MAX = 256
"""Events of one author that wait for an earlier one: four repairs' worth."""
LIMBO_BYTES_MAX = 1 << 20
"""And their bytes, for one author."""
WAITING_MAX = 64
"""Membership events from one sender that wait for their causes: as many as one repair brings."""
WAITING_ALL_MAX = 4 * WAITING_MAX
"""And from all together: when what they wait for comes, they take effect in one turn."""


def supported(profile: Profile) -> bool:
    """Whether this version has the keys, the path and the accountability that a group picked."""
    if profile.keys not in MODES or profile.path not in OVERLAYS:
        return False
    return profile.accountability == "acks" or (profile.accountability == LEDGER and MODES[profile.keys].signs)


# --- our own events -------------------------------------------------------------------------------------------------


def append(turn: Turn, name: str, kind: str, body: Mapping[str, Any]) -> Event:
    """Make the next event of our own chain and deliver it here; everybody else gets it at the end of the turn. Raises
    Refused where we may have said more than we know."""
    group = turn.group(name)
    stale_profile.check(group)
    chain = group.chain(group.me)
    control_heads = _grounds_first(group, heads_of(attestation.ground(group, kind, body.get("member"))), body)
    # What an earlier event of our own has named need not be named again: `pre` covers it. What does not fit, the next
    # one names.
    deps = [head for head in control_heads if kind in CONTROL or head not in group.named][:DEPS_MAX]
    conc = [head for head in group.heads if head != chain.tip and head not in deps][:CONC_MAX]
    event = Event(
        "" if kind == GENESIS else group.id,
        kind,
        group.me,
        chain.seq + 1,
        chain.tip,
        tuple(deps),
        tuple(conc),
        lamport.tick(group.lamport, turn.now),
        max(1, turn.now),
        dict(body),
    )
    if event.is_control:
        event = event.signed(group.seed)
        check_control(event, group.control)
    else:
        event = stale_profile.marked(group, event)
    event = parse_event(event.wire)  # what the others would refuse must not become part of our chain
    _deliver(turn, name, event)
    if deps or event.is_control:
        named = {*group.named, *deps, event.id}
        heads = tuple(head for head in heads_of(turn.group(name).control) if head in named)
        turn.edit(name, named=heads)
    turn.edit(name, fresh=(*group.fresh, event))
    return event


def _grounds_first(group: Group, heads: tuple[str, ...], body: Mapping[str, Any]) -> list[str]:
    """The heads of the membership events, so that what an event of ours rests on is not pushed out where there are too
    many of them: our own last one, what has made us what we are, and whatever is about the same member."""
    if len(heads) <= DEPS_MAX:
        return list(heads)
    about = {group.me, body.get("member")}
    grounds = [e for e in group.control.values() if e.author == group.me or e.body.get("member") in about]
    past = {head: ancestors(group.control, [head]) for head in heads}
    first: list[str] = []
    for event in sorted(grounds, key=lambda e: (e.author != group.me, -e.lamport, e.id)):
        if not any(event.id in past[head] for head in first):
            first += [head for head in heads if event.id in past[head]][:1]
    return [*first, *sorted(set(heads) - set(first), key=lambda head: (-group.control[head].lamport, head))]


def publish(turn: Turn, name: str) -> None:
    """The turn is over: put what we have said in it on our queues, together, for everybody it is meant for.

    A hundred posts at once are one envelope for each member, or one for all. What changes the group itself goes to
    everybody's state queue, what is said in it to the data queues; each author's chain puts them in order again.
    """
    group = turn.group(name)
    if not group.fresh:
        return
    events = group.fresh
    for member in group.peers:
        pairing.greet(turn, name, member)  # or it might not know where our chain begins for it
    group = turn.edit(name, fresh=())
    for status in (False, True):
        said = [event for event in events if event.is_control is status]
        if not said:
            continue
        if group.mode.signs and not status:
            publisher.publish(turn, name, said)
            continue
        audiences: dict[int, list[str]] = {}
        for member, peer in group.peers.items():
            if member in group.view.members:
                audiences.setdefault(sum(event.seq <= peer.base for event in said), []).append(member)
        for before, audience in audiences.items():
            for portion in portions(said[before:]):
                outbox.publish(turn, name, portion, audience, status=status)
    audience = [m for m, peer in group.peers.items() if peer.base < events[-1].seq and m in group.view.members]
    acknowledgements.expect_acknowledgement(turn, name, events[0].seq, audience)
    relay.soon(turn, name)


# --- others' events -------------------------------------------------------------------------------------------------


def hear(turn: Turn, name: str, sender: str, body: EventsBody) -> None:
    """Take in events that `sender` sent. Raises RemoteError, and then nothing has changed."""
    acknowledgements.note(turn, name, sender, body.view, body.have)
    _hear_runs(turn, name, sender, runs_in(body.runs, body.packed))


def hear_status(turn: Turn, name: str, sender: str, body: StatusBody) -> None:
    """Take in what a member says of the group to everybody. Raises RemoteError, and then nothing has changed."""
    if body.group != name:
        raise Malformed(why="status: another group")
    if body.reach is not None:
        _hear_reach(turn, name, sender, body.reach)
    acknowledgements.note(turn, name, sender, body.view, body.have)
    _hear_runs(turn, name, sender, body.runs, posts=False)


def hear_signed(turn: Turn, name: str, sender: str, body: EventsBody, *, itself: bool = True) -> int:
    """Take in what a message of the sender's stream brings, all of it or nothing; the last place of its chain that it
    names. `itself`: the sender says it now, and somebody has not handed over what it said once. Raises RemoteError."""
    if itself:
        acknowledgements.note(turn, name, sender, body.view, body.have)
    places = []
    for event in read_runs(name, runs_in(body.runs, body.packed), sender):
        rate_limits.charge(turn, name, sender, len(event.record))
        if event.author != sender or event.is_control:
            raise Refused(why="a signed message with something that its author has not said")
        hear_event(turn, name, sender, event)
        places.append(event.seq)
    group = turn.group(name)
    chain, held = group.chain(sender), group.limbo.get(sender, Limbo()).records
    if any(place > chain.seq and place not in held and chain.forked not in places for place in places):
        raise Refused(why="a signed message with more than there is room for now")
    return max(places, default=chain.seq)


def _hear_runs(turn: Turn, name: str, sender: str, runs: Sequence[Run], *, posts: bool = True) -> None:
    """Take in events one after the other. What comes after one that is refused is not heard: it comes again.

    Without `posts` only membership events may come: what one frame brings to everybody is for those alone in a group
    where posts have an envelope for each. Where keys sign, what is said without a signature counts only as far as it
    was said before we could hear the stream.
    """
    for place, event in enumerate(read_runs(name, runs, sender)):
        before, said = turn.agent, len(turn.effects)
        rate_limits.charge(turn, name, sender, len(event.record))
        try:
            if not (posts or event.is_control):
                raise Refused(why="a post on the queue for what concerns the group")
            if not _signature_spared(turn.group(name), sender, event):
                raise Refused(why="words without a signature, in a group where they have one")
            hear_event(turn, name, sender, event)
        except RemoteError as error:
            if place == 0:
                raise
            turn.agent = before
            del turn.effects[said:]
            turn.say(Measure("dropped", error.code))
            return


def _signature_spared(group: Group, sender: str, event: Event) -> bool:
    """Whether a member may say this without a signature: where keys sign, only what it said before it let us hear its
    stream, which it cannot be said to have done later."""
    stream = group.streams.get(sender)
    if event.is_control or not group.mode.signs:
        return True
    return (
        stream is not None and event.seq <= stream.after and event.lamport <= stream.accepted_at + lamport.AHEAD_MS_MAX
    )


def hear_event(turn: Turn, name: str, sender: str, event: Event) -> None:
    """Take in one event that `sender` sent. Raises RemoteError."""
    if event.group_id != name:
        raise Refused(why="an event of another group")
    if event.is_control:
        if not _hear_control(turn, name, sender, event):
            return
    elif event.author != sender:
        raise Refused(why="somebody else's word without a signature")
    elif event.sig:
        event.check_signature()
    if event.author == sender:
        _hear_chain(turn, name, event)


def hear_sync(turn: Turn, name: str, sender: str, body: SyncBody) -> None:
    """Take in a member's state, and answer whatever it lacks."""
    if body.group != name:
        raise Malformed(why="sync: another group")
    _hear_reach(turn, name, sender, body.reach)
    lamport.hear(turn, body.reach.at)
    if not mediator_mail.by_mail(turn, name, sender):  # a mediator may have kept it for days
        turn.edit_peer(name, sender, ahead_ms=body.reach.at - turn.moment.now)
    if body.last is not None and relayed_events.hear_last(turn, name, sender, *body.last, body.since):
        acknowledgements.owe(turn, name, sender)
    start_chain(turn, name, sender, body.since, body.pre)
    lacked = acknowledgements.lacks(turn.group(name), sender)
    acknowledgements.note_loss(turn, name, sender, body.view, body.have, body.reach.at)
    acknowledgements.note(turn, name, sender, body.view, body.have)
    group = turn.group(name)
    gone = {did: upto for did, upto in body.former if did in group.view.former}
    acknowledgements.acknowledged(turn, name, sender, {**gone, group.me: body.yours})
    stale_profile.hear(turn, name, sender, max(body.yours, body.seen))
    if group.mode.signs:
        subscriptions.hear(turn, name, sender, body)
    if lacked and not acknowledgements.lacks(turn.group(name), sender):
        relay.soon(turn, name)
    if body.gap:
        acknowledgements.answer_gap(turn, name, sender)
    acknowledgements.answer_lag(turn, name, sender)
    view = turn.group(name).view.checksum
    if body.view != view:
        acknowledgements.reconcile(turn, name, sender, body.heads)
    group = turn.group(name)
    if group.peers[sender].greet:
        if not group.quarantine:  # or our word would not count yet
            pairing.greet(turn, name, sender)
    elif body.view == view and body.told != view:
        acknowledgements.owe(turn, name, sender)  # we agree, and only one of us knows it
    relay.hear(turn, name, sender, body.view, body.unreached)


def _hear_reach(turn: Turn, name: str, sender: str, body: ReachBody) -> None:
    """A member says where it is reached; whatever has waited for a way to it goes out."""
    out_of_reach = not mediator_mail.reachable(turn, name, sender)
    peers.moved(turn, name, sender, body)
    if out_of_reach and mediator_mail.reachable(turn, name, sender):
        peers.mail_up(turn, name, sender)


def _hear_control(turn: Turn, name: str, sender: str, event: Event) -> bool:
    """Apply a membership event, or let it wait for its causes. True when it is applied."""
    group = turn.group(name)
    if event.id in group.control:
        return True
    if any(dep not in group.control for dep in event.deps):
        event.check_signature()
        from_sender = sum(one.sender == sender for one in group.waiting.values())
        if from_sender < WAITING_MAX and len(group.waiting) < WAITING_ALL_MAX:
            turn.edit(name, waiting={**group.waiting, event.id: Waiting(sender, event.record)})
        acknowledgements.ask(turn, name, sender)
        return False
    check_control(event, group.control)
    lamport.check(event.lamport, turn.now)
    _apply(turn, name, event)
    return True


def _apply(turn: Turn, name: str, event: Event) -> None:
    """A membership event whose causes are all there takes effect, and whatever waited for it follows."""
    _take_effect(turn, name, event)
    while (follower := _unblocked(turn, name)) is not None:
        try:
            check_control(follower, turn.group(name).control)
            lamport.check(follower.lamport, turn.now)
        except RemoteError as error:
            turn.say(Measure("dropped", error.code))
        else:
            _take_effect(turn, name, follower)
    for author in list(turn.group(name).limbo):
        _release(turn, name, author)


def _unblocked(turn: Turn, name: str) -> Event | None:
    """A membership event that has waited and need not any more; it is no longer kept."""
    group = turn.group(name)
    for waiting, one in group.waiting.items():
        event = load_event(one.record)
        if all(dep in group.control for dep in event.deps):
            turn.edit(name, waiting={key: other for key, other in group.waiting.items() if key != waiting})
            return event
    return None


def _take_effect(turn: Turn, name: str, event: Event) -> None:
    before = turn.group(name)
    late = event.lamport < before.lamport
    control = {**before.control, event.id: event}
    view = resolve_view(control)
    heads = tuple(sorted({*before.heads, event.id}.difference(event.deps)))
    turn.edit(name, control=control, view=view, heads=heads, lamport=max(before.lamport, event.lamport))
    relayed_events.hear_signed(turn, name, event)
    remember(turn, name, event, late)
    attestation.accuse(turn, name, before.view.forked)
    if view.ledger:
        adoption.adopt(turn, name, before.view)
    turn.say(Notify(ViewChanged(name)))
    for did, chain in before.chains.items():
        for after, upto, counts in recounted(before.view, view, did, chain.seq):
            turn.say(Notify(Recounted(name, did, after, upto, counts)))
    for did in sorted(view.members.keys() - before.view.members.keys() - {before.me}):
        peers.meet(turn, name, did)
    for did in sorted(before.view.members.keys() - view.members.keys() - {before.me}):
        publisher.somebody_went(turn, name)
        if view.ledger:
            pending_entries.end(turn, name, did)
        peers.part(turn, name, did)
        turn.timer("need", name, acknowledgements.RETRY_MS, keep=True)  # it repeats nothing any more
    if event.type == REMOVE and remove_of(event).member == before.me and before.me in view.members:
        # Whoever did that has not heard what makes it void, and will not listen to us for long.
        outbox.send(turn, name, event.author, missing(control, [event.id])[: acknowledgements.REPAIR_EVENTS_MAX])
    reinstated_posts.soon(turn, name)
    acknowledgements.view_changed(turn, name)


def _hear_chain(turn: Turn, name: str, event: Event) -> None:
    """Deliver the author's next event, or keep what came too early."""
    group = turn.group(name)
    author = group.view.known(event.author)
    if author is None:
        raise Refused(why="an event by somebody who is not a member")
    if author.until is not None and event.seq > author.until:
        if event.is_control:
            return  # it was in order when it was made; only its place in the chain is nobody's any more
        raise Refused(why="an event by somebody who is not a member any more")
    relayed_events.hear_author(turn, name, event)
    chain = turn.group(name).chain(event.author)
    if event.seq <= chain.seq:
        if event.seq == chain.seq and chain.tip not in ("", event.id):
            _accuse(turn, name, event)
        turn.say(Repeated(name, event.author, event.seq, event.type, event.record))
        acknowledgements.owe(turn, name, event.author)  # our acknowledgement was lost
        return
    if _is_next(turn.group(name), event):
        _take(turn, name, event)
        _release(turn, name, event.author)
        return
    held = group.limbo.get(event.author, Limbo()).records
    if len(held) < LIMBO_EVENTS_MAX and sum(map(len, held.values())) + len(event.record) <= LIMBO_BYTES_MAX:
        turn.edit(name, limbo={**group.limbo, event.author: Limbo({**held, event.seq: event.record})})
    else:
        turn.say(Measure("dropped", "LimboFull"))
    acknowledgements.owe(turn, name, event.author)


def _accuse(turn: Turn, name: str, event: Event) -> None:
    """The author has said two things in one place: say so once, however often it repeats either."""
    group = turn.group(name)
    chain = group.chains[event.author]
    if chain.forked != event.seq:
        turn.edit(name, chains={**group.chains, event.author: replace(chain, forked=event.seq)})
        turn.say(Notify(Forked(name, event.author, event.seq)))


def _is_next(group: Group, event: Event, *, shared: bool = False) -> bool:
    """Whether this is its author's next event and every membership event that it names is there. `shared`: another
    member has handed it over."""
    chain = group.chain(event.author)
    if chain.untold and event.author in group.view.members and not shared:
        return False  # it tells us first from where on it is for us
    return event.seq == chain.seq + 1 and _is_grounded(group, event)


def _is_grounded(group: Group, event: Event) -> bool:
    return all(dep in group.control for dep in event.deps)


def hear_shared(turn: Turn, name: str, sender: str, event: Event) -> None:
    """Take in the next event of somebody else's chain, which we have asked a member for. Raises RemoteError."""
    if event.group_id != name:
        raise Refused(why="an event of another group")
    if event.is_control and not _hear_control(turn, name, sender, event):
        return
    group = turn.group(name)
    author = group.view.known(event.author)
    if author is None or (event.author == group.me and not stale_profile.suspended(group)):
        raise Refused(why="an event by somebody who is not a member, or by ourselves")
    if event.author == group.me and not (event.is_control or stale_profile.is_ours(group, event)):
        raise Refused(why="a post that we are said to have said, and have not")
    if author.until is not None and event.seq > author.until:
        return
    if event.sig:
        event.check_signature()
        relayed_events.hear_author(turn, name, event)
    elif relayed_events.contradicted(relayed_events.signed_by(group, event.author), event):
        raise Refused(why="something else than what its author has signed")
    elif event.author != group.me:
        relayed_events.hear_voucher(turn, name, event)
    group = turn.group(name)
    chain = group.chain(event.author)
    # Whoever has gone does not tell us any more from where on it is for us; all of it is, if it has come after us.
    gone = event.author in group.view.former
    begins = gone and chain.seq == 0 and event.seq > 1 and not relayed_events.is_whole(group, event.author)
    if begins and _is_grounded(group, event):
        begun = replace(Chain.after(event.seq - 1), own=Spot(), untold=True)
        turn.edit(name, chains={**group.chains, event.author: begun})
        relayed_events.fetch_beginning(turn, name, event.author)
    if _is_next(turn.group(name), event, shared=True):
        ours = event.author == group.me  # our mark is under it
        _take(turn, name, event, by="" if event.sig or ours else sender)
        _release(turn, name, event.author)
        if event.author == group.me:
            stale_profile.progressed(turn, name)


def _take(turn: Turn, name: str, event: Event, by: str = "") -> None:
    """Check what only the right place can tell, then deliver. `by`: who hands it over, if its author does not."""
    group = turn.group(name)
    chain = group.chain(event.author)
    if chain.tip and event.pre != chain.tip:
        if by:
            raise Refused(why="an event that does not follow")
        _accuse(turn, name, event)
        return
    if event.lamport <= chain.lamport:
        raise Refused(why="a clock that runs backwards")
    lamport.check(event.lamport, turn.now)
    _deliver(turn, name, event, by)
    if not by:
        acknowledgements.owe(turn, name, event.author)


def _release(turn: Turn, name: str, author: str) -> None:
    """Deliver what has waited for the event that has just come."""
    while True:
        group = turn.group(name)
        if author not in group.limbo:
            return
        held = group.limbo[author].records
        seq = group.chain(author).seq
        fitting = {place: record for place, record in held.items() if place > seq}
        following = load_event(fitting[seq + 1]) if seq + 1 in fitting else None
        if following is not None:  # what waits is the author's own word: others may have handed over something else
            relayed_events.hear_author(turn, name, following)
            if turn.group(name).chain(author).seq < seq:
                return  # what leads up to it comes again
        ready = following is not None and _is_next(group, following)
        if ready:
            del fitting[seq + 1]
        if fitting != held:
            limbo = {**group.limbo, author: Limbo(fitting)} if fitting else _without(group.limbo, author)
            turn.edit(name, limbo=limbo)
        if not ready or following is None:
            return
        try:
            _take(turn, name, following)
        except Refused as error:
            turn.say(Measure("dropped", error.code))
            return


def _without(limbo: Mapping[str, Limbo], author: str) -> dict[str, Limbo]:
    return {key: held for key, held in limbo.items() if key != author}


def start_chain(turn: Turn, name: str, author: str, since: int, pre: str = "") -> None:
    """The author says that its chain begins, for us, after `since`, which is the event `pre`: pass over what was before
    our time, but for fetching it from whoever has it.

    Once a post of the chain has come from the author this is settled: a later beginning would hide what lies between.
    """
    group = turn.group(name)
    chain = group.chain(author)
    if not chain.begun and (author not in group.chains or chain.untold or since > chain.seq):
        begun = relayed_events.begun(turn, name, author, since)
        turn.edit(name, chains={**group.chains, author: begun})
        if begun.past is not None:
            relayed_events.fetch_anew(turn, name, author)
        turn.timer("need", name, acknowledgements.NEED_MS, keep=True)  # now it is known what of it is missing
    if pre:
        relayed_events.anchor(turn, name, author, since, pre)
    _release(turn, name, author)


def _deliver(turn: Turn, name: str, event: Event, by: str = "") -> None:
    """The event takes its place at the end of its author's chain.

    A post of somebody who may only read has its place as well, so that the chain goes on, but nobody is shown it.
    """
    group = turn.group(name)
    late = event.lamport < group.lamport
    known = event.id in group.control
    counts = event.is_control or may_post(group.view, event.author, event.seq)
    chain = relayed_events.extended(turn, name, event, by)
    covered = {event.pre, *event.deps, *event.conc}
    heads = set(group.heads) - covered if known or not counts else {*group.heads, event.id} - covered
    chains = {**group.chains, event.author: chain}
    turn.edit(name, chains=chains, heads=tuple(sorted(heads)), lamport=max(group.lamport, event.lamport))
    if event.is_control and not known:
        _apply(turn, name, event)
    elif not counts:
        turn.say(Measure("dropped", "ReadOnly"))
    elif not known:
        _show(turn, name, event, late, by)
    reinstated_posts.note(turn, name, event, counts=counts)


def hear_unheard(turn: Turn, name: str, member: str, event: Event) -> None:
    """Take in what was left out as a reader's word, if that is what this is, and it counts by now. `member` brings it,
    and vouches for it where its author has not confirmed it."""
    group = turn.group(name)
    if reinstated_posts.is_wanted(group, event):
        by = "" if reinstated_posts.is_own_word(group, event.author, event.seq) else member
        reinstated_posts.note(turn, name, event, counts=True)
        _show(turn, name, event, late=True, by=by)


def _show(turn: Turn, name: str, event: Event, late: bool, by: str) -> None:
    """Something that was said counts: keep it, and do what it says about files."""
    remember(turn, name, event, late, by)
    if event.type == POST:
        download.posted(turn, name, event)
    elif event.type == DELETE and by:
        catalogue.said_deleted(turn, name, event.author, target_of(event), event.seq)
    elif event.type == DELETE:
        catalogue.deleted(turn, name, event.author, target_of(event))


def remember(turn: Turn, name: str, event: Event, late: bool, by: str = "") -> None:
    """Keep a delivered event, and tell the faces."""
    row = name, event.id, event.author, event.seq, event.lamport, event.type, event.record, turn.now, late, by
    turn.say(Remember(*row, target=target_of(event)), Notify(Delivered(name, event.id)))
