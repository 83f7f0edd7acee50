"""Attacks on relayed events: what members hand on for other authors (see `attacks.py`).

Forged events may be stored as relayed by the adversary while their author is silent; each is recorded
(`Adversary.forged_ids`), and no honest member may take it for its author's own.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.group.effects import ReadHistory
from zerochat.group.event_log.event import LEAVE, POST, Event, load_event
from zerochat.group.inputs import HistoryRead
from zerochat.group.state import Group
from zerochat.group.sync.pull_requests import TIMEOUT_MS
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX, write_runs
from zerochat.group.wire.messages import HISTORY_REQUEST, HISTORY_RESPONSE, SYNC
from zerochat.sim.adversary import Adversary
from zerochat.sim.forgeries import AttackResult, active_group, sample_victims, sync_body

SEQ_MAX = 2**53 - 1
REPEAT_MS = 20_000
"""Requests are answered again within this time."""
NEEDS = 30
FORGED_MAX = 60
"""Events in one forged range."""


# --- forging --------------------------------------------------------------------------------------------------------


def _forge_posts(
    adversary: Adversary, group: Group, author: str, after: int, pre: str, lamport: int, many: int
) -> list[Event]:
    """Forged posts of an author after this position of its chain."""
    events = []
    for seq in range(after + 1, min(after + many, SEQ_MAX) + 1):
        text = {"text": f"never said {adversary.rng.getrandbits(40):x}"}
        lamport += adversary.rng.randint(1, 1_000)
        event = Event(group.id, POST, author, seq, pre if seq > 1 else "", (), (), lamport, lamport, text)
        events.append(event)
        pre = event.id
    adversary.forged_ids |= {event.id for event in events}
    return events


def _authored(adversary: Adversary, author: str, upto: int) -> list[Event]:
    """The real events of an author in our log up to this position."""
    rows = [load_event(row.record) for row in adversary.node.log if row.author == author and row.seq <= upto]
    return sorted(rows, key=lambda event: event.seq)


def _forged_range(adversary: Adversary, group: Group, author: str, after: int, upto: int) -> list[Event]:
    """A response for this range: some real events, then forged ones."""
    said = [event for event in _authored(adversary, author, upto) if event.seq > after]
    kept = said[: adversary.rng.randint(0, len(said))]
    before = kept[-1:] or _authored(adversary, author, after)[-1:]
    chain = group.chain(author)
    pre, seq, lamport = (before[0].id, before[0].seq, before[0].lamport) if before else ("", 0, 0)
    if seq < (kept[-1].seq if kept else after):  # the event at that position is unknown to us
        pre, seq = chain.head_id or b64url(adversary.rng.randbytes(32)), after
    many = min(adversary.rng.randint(1, FORGED_MAX), upto - seq)
    forged = _forge_posts(adversary, group, author, seq, pre, max(lamport, adversary.world.now - 60_000), max(0, many))
    if adversary.rng.random() < 0.2 and forged:
        gone = replace(forged[-1], type=LEAVE, body={})
        forged[-1] = gone.signed(group.seed) if adversary.rng.random() < 0.5 else gone
        adversary.forged_ids.add(gone.id)
    return kept + forged


def _send_later(
    adversary: Adversary, delay_ms: int, name: str, kind: str, body: dict[str, object], thread: str = ""
) -> None:
    """Send a message after a delay, unless we have crashed."""

    def send() -> None:
        if not adversary.crashed and name in adversary.victims():
            adversary.send_message(name, kind, body, thread or None)

    adversary.world.after(delay_ms, send)


# --- attacks --------------------------------------------------------------------------------------------------------


def _send_claims(adversary: Adversary, name: str, heights: dict[str, int], **more: object) -> None:
    """Claim to have these chains up to these positions."""
    group, _ = adversary.known[adversary.members()[name]]
    victim = adversary.members()[name]
    have = [heights.get(did, group.chain(did).confirmed_seq) for did in group.view.members]
    former = [[did, heights.get(did, group.chain(did).seq)] for did in group.view.former][:60]
    since = group.links.peers[victim].start_seq if victim in group.links.peers else 0
    body = {
        "have": have,
        "former": former,
        "acked": heights.get(victim, group.chain(victim).confirmed_seq),
        "start_seq": since,
    }
    adversary.send_message(name, SYNC, sync_body(adversary, group, **{**body, **more}))


def _inflated(adversary: Adversary, group: Group, authors: Iterable[str]) -> dict[str, int]:
    return {
        did: adversary.rng.choice((group.chain(did).seq + adversary.rng.randint(1, 80), SEQ_MAX)) for did in authors
    }


def forged_responses(adversary: Adversary) -> AttackResult | None:
    """Claim to have more of others' chains than exists, and answer requests with forgeries."""
    group, victims = adversary.group, sample_victims(adversary)
    if group is None or not victims:
        return None

    def answer(asked: ReadHistory, found: HistoryRead) -> HistoryRead:
        mine = adversary.group
        if asked.backwards or mine is None:
            return found
        events = [
            e for author, after, upto in asked.ranges for e in _forged_range(adversary, mine, author, after, upto)
        ]
        return replace(found, records=tuple(event.record for event in events[: asked.limit]))

    adversary.forge_response = answer
    others = [*group.others, *group.view.former]
    heights = _inflated(
        adversary, group, adversary.rng.sample(others, adversary.rng.randint(1, len(others))) if others else ()
    )
    for name in victims:
        _send_claims(adversary, name, heights)
    return AttackResult()


def forged_history(adversary: Adversary) -> AttackResult | None:
    """Answer history requests with changed, incomplete, reordered or foreign events, or with nothing, repeatedly."""
    group = active_group(adversary)
    if group is None:
        return None
    ways = adversary.rng.sample(
        ("changed", "rewritten", "holes", "shuffled", "foreign", "nothing"), adversary.rng.randint(1, 3)
    )

    def answer(asked: ReadHistory, found: HistoryRead) -> HistoryRead:
        mine = adversary.group
        if not asked.backwards or mine is None:
            return found
        return _tampered(adversary, mine, asked, found, adversary.rng.choice(ways))

    adversary.forge_response = answer
    return AttackResult()


def _tampered(adversary: Adversary, group: Group, asked: ReadHistory, found: HistoryRead, way: str) -> HistoryRead:
    events = [load_event(record) for record in found.records]
    if way == "nothing":
        return replace(found, records=(), more=True)
    if way == "holes":
        events = [event for event in events if adversary.rng.random() < 0.7]
    elif way == "shuffled":
        adversary.rng.shuffle(events)
    elif way == "changed" and events:
        place = adversary.rng.randrange(len(events))
        if not events[place].is_control:
            events[place] = replace(events[place], body={"text": "never said that"})
            adversary.forged_ids.add(events[place].id)
    elif way == "rewritten" and asked.ranges:
        author, _, upto = adversary.rng.choice(asked.ranges)
        many = min(adversary.rng.randint(1, FORGED_MAX), upto)
        begin = upto - many if upto < SEQ_MAX - 1 else adversary.rng.randint(0, 10**6)
        forged = _forge_posts(
            adversary, group, author, begin, b64url(adversary.rng.randbytes(32)), adversary.world.now - 100_000, many
        )
        events = [event for event in events if event.author != author] + forged
    elif way == "foreign":
        author = adversary.rng.choice((asked.member, group.me, *group.view.members))
        events += _forge_posts(
            adversary, group, author, adversary.rng.choice((0, SEQ_MAX - 70)), "A" * 43, adversary.world.now - 90_000, 3
        )
    return replace(found, records=tuple(event.record for event in events[:RUN_EVENTS_MAX]))


def unsolicited_responses(adversary: Adversary) -> AttackResult | None:
    """Send history responses unasked, with other events, again, or too late."""
    group, victims = adversary.group, sample_victims(adversary)
    if group is None or not victims:
        return None
    for name in victims:
        victim = adversary.members()[name]
        needs = [asked for asked in adversary.history_requests.values() if asked.member == victim]
        asked = adversary.rng.choice(needs) if needs else None
        author = adversary.rng.choice((victim, *group.others, *group.view.former))
        chain = group.chain(author)
        events = _forge_posts(
            adversary, group, author, chain.seq, chain.head_id or "A" * 43, adversary.world.now - 50_000, 5
        )
        body: dict[str, object] = {"group": group.id, "more": True, "runs": write_runs(events, group.me)}
        thread = asked.thread if asked is not None else b64url(adversary.rng.randbytes(16))
        for delay in (1, 1, TIMEOUT_MS + 500, REPEAT_MS):
            _send_later(adversary, delay, name, HISTORY_RESPONSE, body, thread)
    if adversary.forge_response is None:
        adversary.forge_response = _duplicated
    _claim_extra(adversary, victims)
    return AttackResult()


def _duplicated(asked: ReadHistory, found: HistoryRead) -> HistoryRead:
    """Every requested event twice."""
    return replace(found, records=tuple(record for record in found.records for _ in (0, 1))[:RUN_EVENTS_MAX])


def _claim_extra(adversary: Adversary, victims: Sequence[str]) -> None:
    group = adversary.group
    assert group is not None
    for name in victims:
        _send_claims(
            adversary,
            name,
            _inflated(adversary, group, [did for did in group.others if did != adversary.members()[name]][:2]),
        )


def inflated_claims(adversary: Adversary) -> AttackResult | None:
    """Claim more of every chain than exists, also to its author, alone or together; then answer with forgeries,
    nothing, or crash."""
    group, victims = active_group(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    then = adversary.rng.choice(("forge", "forge", "nothing", "gone"))

    def answer(asked: ReadHistory, found: HistoryRead) -> HistoryRead:
        mine = adversary.group
        if asked.backwards or mine is None or then == "nothing":
            return replace(found, records=())
        events = [
            e for author, after, upto in asked.ranges for e in _forged_range(adversary, mine, author, after, upto)
        ]
        # A few events at a time keep the request going.
        return replace(found, records=tuple(event.record for event in events[: adversary.rng.randint(1, 3)]))

    together = [
        adversary,
        *(adversary.all_adversaries[name] for name in sorted(adversary.accomplices) if adversary.rng.random() < 0.8),
    ]
    for liar in {liar.name: liar for liar in together}.values():
        theirs = liar.group
        if liar.crashed or theirs is None:
            continue
        for name in victims:
            if name in liar.victims() and name not in liar.accomplices:
                _send_claims(liar, name, _inflated(liar, theirs, theirs.view.members))
        liar.forge_response = answer
        if then == "gone":
            liar.world.after(adversary.rng.randint(500, 3_000), liar.crash_forever)
    return AttackResult()


def shifting_chain_base(adversary: Adversary) -> AttackResult | None:
    """Let others relay our events, then claim other events or another start of our chain, at changing positions."""
    group = active_group(adversary)
    victims = sample_victims(adversary)
    if group is None or not victims:
        return None
    for name in victims:
        if adversary.members()[name] in group.links.peers:
            adversary.withhold_from[group.links.peers[adversary.members()[name]].link] = 1.0
    for number in range(3):
        adversary.commit(POST, {"text": f"{adversary.name} says {number}"})
    now = adversary.group or group
    mine = [(event.seq, event.id) for event in _authored(adversary, group.me, SEQ_MAX)]
    places = [
        *mine,
        (0, ""),
        (SEQ_MAX, b64url(adversary.rng.randbytes(32))),
        (now.seq + 3, b64url(adversary.rng.randbytes(32))),
    ]
    for name in victims:
        for _ in range(4):
            since, pre = adversary.rng.choice(places)
            if adversary.rng.random() < 0.4:
                pre = adversary.rng.choice((b64url(adversary.rng.randbytes(32)), ""))
            body = sync_body(adversary, now, start_seq=since, start_id=pre, have=[SEQ_MAX] * len(now.view.members))
            _send_later(adversary, adversary.rng.randint(1, 3 * REPEAT_MS), name, SYNC, body)
    return AttackResult()


def equivocating_crash(adversary: Adversary) -> AttackResult | None:
    """Send two versions of an event at one position, extend one, and crash: the rest is only available from others."""
    group, victims = active_group(adversary), adversary.victims()
    if group is None or len(victims) < 2:
        return None
    yes, no = adversary.event(POST, {"text": "yes"}), adversary.event(POST, {"text": "no"})
    more = [yes]
    for number in range(adversary.rng.randint(1, 5)):
        last = more[-1]
        text = {"text": f"and {number}"}
        more.append(adversary.event(POST, text, seq=last.seq + 1, pre=last.id, lamport=last.lamport + 1))
    for place, name in enumerate(adversary.rng.sample(victims, len(victims))):
        match place % 3:
            case 0:
                adversary.send_events(name, *more)
            case 1:
                adversary.send_events(name, no)
            case _:
                pass  # learns of either from others
    adversary.world.after(adversary.rng.choice((1, 5_000)), adversary.crash_forever)
    return AttackResult()


def request_flood(adversary: Adversary) -> AttackResult | None:
    """Request everyone's whole history repeatedly."""
    group, victims = adversary.group, sample_victims(adversary)
    if group is None or not victims:
        return None
    stranger, _ = adversary.make_accomplice()
    authors = [*group.view.members, *group.view.former, stranger]
    for name in victims:
        for _ in range(NEEDS):
            some_of = adversary.rng.sample(authors, adversary.rng.randint(1, len(authors)))[:64]
            want = [[did, 0, adversary.rng.choice((SEQ_MAX, 3, 1000))] for did in some_of]
            body = {
                "group": group.id,
                "ranges": want,
                "limit": RUN_EVENTS_MAX,
                "backwards": adversary.rng.random() < 0.7,
            }
            _send_later(adversary, adversary.rng.randint(1, REPEAT_MS), name, HISTORY_REQUEST, body)
    return AttackResult()
