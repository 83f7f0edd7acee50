"""Attacks with others' words: on what members bring each other of what somebody else has said (`group/history/`).

What an attack is, says `attacks.py`. What is forged here may be kept as the word of whoever hands it over, for as long
as its author says nothing: so each forgery is noted (`Adversary.forged`), and nobody honest may take it for its
author's own.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.group.effects import Fetch
from zerochat.group.event_log.event import LEAVE, POST, Event, load_event
from zerochat.group.inputs import Fetched
from zerochat.group.state import Group
from zerochat.group.sync.pull_requests import PATIENCE_MS
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX, write_runs
from zerochat.group.wire.messages import NEED, SHARE, SYNC
from zerochat.sim.adversary import Adversary
from zerochat.sim.forgeries import Spoils, inside, some, sync_of

MOST = 2**53 - 1
AGAIN_MS = 20_000
"""Within this time what is asked for has been asked for."""
NEEDS = 30
FORGED_MAX = 60
"""Events in one forged stretch."""


# --- forging --------------------------------------------------------------------------------------------------------


def _posts(one: Adversary, group: Group, author: str, after: int, pre: str, lamport: int, many: int) -> list[Event]:
    """What an author never said, after this place of its chain."""
    events = []
    for seq in range(after + 1, min(after + many, MOST) + 1):
        text = {"text": f"never said {one.dice.getrandbits(40):x}"}
        lamport += one.dice.randint(1, 1_000)
        event = Event(group.id, POST, author, seq, pre if seq > 1 else "", (), (), lamport, lamport, text)
        events.append(event)
        pre = event.id
    one.forged |= {event.id for event in events}
    return events


def _really_said(one: Adversary, author: str, upto: int) -> list[Event]:
    """What our log has of an author up to this place."""
    rows = [load_event(row.record) for row in one.node.log if row.author == author and row.seq <= upto]
    return sorted(rows, key=lambda event: event.seq)


def _forged_stretch(one: Adversary, group: Group, author: str, after: int, upto: int) -> list[Event]:
    """An answer to a need of this: some of what was said, and then something else."""
    said = [event for event in _really_said(one, author, upto) if event.seq > after]
    kept = said[: one.dice.randint(0, len(said))]
    before = kept[-1:] or _really_said(one, author, after)[-1:]
    chain = group.chain(author)
    pre, seq, lamport = (before[0].id, before[0].seq, before[0].lamport) if before else ("", 0, 0)
    if seq < (kept[-1].seq if kept else after):  # we do not know what stands there
        pre, seq = chain.tip or b64url(one.dice.randbytes(32)), after
    many = min(one.dice.randint(1, FORGED_MAX), upto - seq)
    forged = _posts(one, group, author, seq, pre, max(lamport, one.world.now - 60_000), max(0, many))
    if one.dice.random() < 0.2 and forged:
        gone = replace(forged[-1], type=LEAVE, body={})
        forged[-1] = gone.signed(group.seed) if one.dice.random() < 0.5 else gone
        one.forged.add(gone.id)
    return kept + forged


def _later(one: Adversary, delay_ms: int, name: str, kind: str, body: dict[str, object], thread: str = "") -> None:
    """Say this to a node after a while, if we are still there."""

    def say() -> None:
        if not one.gone and name in one.victims():
            one.utter(name, kind, body, thread or None)

    one.world.after(delay_ms, say)


# --- attacks --------------------------------------------------------------------------------------------------------


def _claim(one: Adversary, name: str, heights: dict[str, int], **more: object) -> None:
    """Have it that we have these chains up to there."""
    group, _ = one.known[one.members()[name]]
    victim = one.members()[name]
    have = [heights.get(did, group.chain(did).sure) for did in group.view.members]
    former = [[did, heights.get(did, group.chain(did).seq)] for did in group.view.former][:60]
    since = group.peers[victim].base if victim in group.peers else 0
    body = {"have": have, "former": former, "yours": heights.get(victim, group.chain(victim).sure), "since": since}
    one.utter(name, SYNC, sync_of(one, group, **{**body, **more}))


def _tall(one: Adversary, group: Group, authors: Iterable[str]) -> dict[str, int]:
    return {did: one.dice.choice((group.chain(did).seq + one.dice.randint(1, 80), MOST)) for did in authors}


def forged_shares(one: Adversary) -> Spoils | None:
    """Say that we have more of others' chains than there is, and answer whoever asks for it."""
    group, victims = one.group, some(one)
    if group is None or not victims:
        return None

    def answer(asked: Fetch, found: Fetched) -> Fetched:
        mine = one.group
        if asked.back or mine is None:
            return found
        events = [e for author, after, upto in asked.want for e in _forged_stretch(one, mine, author, after, upto)]
        return replace(found, records=tuple(event.record for event in events[: asked.limit]))

    one.answer = answer
    others = [*group.others, *group.view.former]
    heights = _tall(one, group, one.dice.sample(others, one.dice.randint(1, len(others))) if others else ())
    for name in victims:
        _claim(one, name, heights)
    return Spoils()


def forged_history(one: Adversary) -> Spoils | None:
    """Answer whoever asks for the history with something else: changed, with holes, in another order, of others than
    those it was asked for of, or with nothing, again and again."""
    group = inside(one)
    if group is None:
        return None
    ways = one.dice.sample(("changed", "rewritten", "holes", "shuffled", "foreign", "nothing"), one.dice.randint(1, 3))

    def answer(asked: Fetch, found: Fetched) -> Fetched:
        mine = one.group
        if not asked.back or mine is None:
            return found
        return _spoilt(one, mine, asked, found, one.dice.choice(ways))

    one.answer = answer
    return Spoils()


def _spoilt(one: Adversary, group: Group, asked: Fetch, found: Fetched, way: str) -> Fetched:
    events = [load_event(record) for record in found.records]
    if way == "nothing":
        return replace(found, records=(), more=True)
    if way == "holes":
        events = [event for event in events if one.dice.random() < 0.7]
    elif way == "shuffled":
        one.dice.shuffle(events)
    elif way == "changed" and events:
        place = one.dice.randrange(len(events))
        if not events[place].is_control:
            events[place] = replace(events[place], body={"text": "never said that"})
            one.forged.add(events[place].id)
    elif way == "rewritten" and asked.want:
        author, _, upto = one.dice.choice(asked.want)
        many = min(one.dice.randint(1, FORGED_MAX), upto)
        begin = upto - many if upto < MOST - 1 else one.dice.randint(0, 10**6)
        forged = _posts(one, group, author, begin, b64url(one.dice.randbytes(32)), one.world.now - 100_000, many)
        events = [event for event in events if event.author != author] + forged
    elif way == "foreign":
        author = one.dice.choice((asked.member, group.me, *group.view.members))
        events += _posts(one, group, author, one.dice.choice((0, MOST - 70)), "A" * 43, one.world.now - 90_000, 3)
    return replace(found, records=tuple(event.record for event in events[:RUN_EVENTS_MAX]))


def unasked_shares(one: Adversary) -> Spoils | None:
    """Hand over what nobody has asked us for, or something else, or once more, or too late."""
    group, victims = one.group, some(one)
    if group is None or not victims:
        return None
    for name in victims:
        victim = one.members()[name]
        needs = [asked for asked in one.asked.values() if asked.member == victim]
        asked = one.dice.choice(needs) if needs else None
        author = one.dice.choice((victim, *group.others, *group.view.former))
        chain = group.chain(author)
        events = _posts(one, group, author, chain.seq, chain.tip or "A" * 43, one.world.now - 50_000, 5)
        body: dict[str, object] = {"group": group.id, "more": True, "runs": write_runs(events, group.me)}
        thread = asked.thread if asked is not None else b64url(one.dice.randbytes(16))
        for delay in (1, 1, PATIENCE_MS + 500, AGAIN_MS):
            _later(one, delay, name, SHARE, body, thread)
    if one.answer is None:
        one.answer = _twice
    _claim_something(one, victims)
    return Spoils()


def _twice(asked: Fetch, found: Fetched) -> Fetched:
    """Everything that was asked for two times over."""
    return replace(found, records=tuple(record for record in found.records for _ in (0, 1))[:RUN_EVENTS_MAX])


def _claim_something(one: Adversary, victims: Sequence[str]) -> None:
    group = one.group
    assert group is not None
    for name in victims:
        _claim(one, name, _tall(one, group, [did for did in group.others if did != one.members()[name]][:2]))


def tall_claims(one: Adversary) -> Spoils | None:
    """Say that there is more of everybody's chain than there is, also of the chain of whom we tell it, alone or with
    others; to be asked for it, and then have forged words for it, or none, or be out of reach."""
    group, victims = inside(one), some(one)
    if group is None or not victims:
        return None
    then = one.dice.choice(("forge", "forge", "nothing", "gone"))

    def answer(asked: Fetch, found: Fetched) -> Fetched:
        mine = one.group
        if asked.back or mine is None or then == "nothing":
            return replace(found, records=())
        events = [e for author, after, upto in asked.want for e in _forged_stretch(one, mine, author, after, upto)]
        # A little at a time keeps up the hope of more.
        return replace(found, records=tuple(event.record for event in events[: one.dice.randint(1, 3)]))

    together = [one, *(one.band[name] for name in sorted(one.accomplices) if one.dice.random() < 0.8)]
    for liar in {liar.name: liar for liar in together}.values():
        theirs = liar.group
        if liar.gone or theirs is None:
            continue
        for name in victims:
            if name in liar.victims() and name not in liar.accomplices:
                _claim(liar, name, _tall(liar, theirs, theirs.view.members))
        liar.answer = answer
        if then == "gone":
            liar.world.after(one.dice.randint(500, 3_000), liar.vanish)
    return Spoils()


def shifting_start(one: Adversary) -> Spoils | None:
    """Have others hand over what we say, and then tell whoever has it from them that we have said something else, or
    that our chain begins elsewhere, each time in another place."""
    group = inside(one)
    victims = some(one)
    if group is None or not victims:
        return None
    for name in victims:
        if one.members()[name] in group.peers:
            one.deaf_to[group.peers[one.members()[name]].link] = 1.0
    for number in range(3):
        one.commit(POST, {"text": f"{one.name} says {number}"})
    now = one.group or group
    mine = [(event.seq, event.id) for event in _really_said(one, group.me, MOST)]
    places = [*mine, (0, ""), (MOST, b64url(one.dice.randbytes(32))), (now.seq + 3, b64url(one.dice.randbytes(32)))]
    for name in victims:
        for _ in range(4):
            since, pre = one.dice.choice(places)
            if one.dice.random() < 0.4:
                pre = one.dice.choice((b64url(one.dice.randbytes(32)), ""))
            body = sync_of(one, now, since=since, pre=pre, have=[MOST] * len(now.view.members))
            _later(one, one.dice.randint(1, 3 * AGAIN_MS), name, SYNC, body)
    return Spoils()


def two_versions(one: Adversary) -> Spoils | None:
    """Say one thing to some and another to others in one place of our chain, go on from the one towards some of them,
    and be silent for ever: what is missing can only be had from others, who have one version or the other."""
    group, victims = inside(one), one.victims()
    if group is None or len(victims) < 2:
        return None
    yes, no = one.event(POST, {"text": "yes"}), one.event(POST, {"text": "no"})
    more = [yes]
    for number in range(one.dice.randint(1, 5)):
        last = more[-1]
        text = {"text": f"and {number}"}
        more.append(one.event(POST, text, seq=last.seq + 1, pre=last.id, lamport=last.lamport + 1))
    for place, name in enumerate(one.dice.sample(victims, len(victims))):
        match place % 3:
            case 0:
                one.tell(name, *more)
            case 1:
                one.tell(name, no)
            case _:
                pass  # hears of either from others
    one.world.after(one.dice.choice((1, 5_000)), one.vanish)
    return Spoils()


def insatiable(one: Adversary) -> Spoils | None:
    """Ask for everything that everybody has ever said, again and again."""
    group, victims = one.group, some(one)
    if group is None or not victims:
        return None
    stranger, _ = one.eve()
    authors = [*group.view.members, *group.view.former, stranger]
    for name in victims:
        for _ in range(NEEDS):
            some_of = one.dice.sample(authors, one.dice.randint(1, len(authors)))[:64]
            want = [[did, 0, one.dice.choice((MOST, 3, 1000))] for did in some_of]
            body = {"group": group.id, "want": want, "limit": RUN_EVENTS_MAX, "back": one.dice.random() < 0.7}
            _later(one, one.dice.randint(1, AGAIN_MS), name, NEED, body)
    return Spoils()
