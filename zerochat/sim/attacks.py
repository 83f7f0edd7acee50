"""What an adversary does, each under the name of the attack.

An attack returns what must never come of it (`Spoils`): events that no honest member may take for true, people whom
none may deal with. It is None where there was nobody to attack, or nothing to attack with.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.group.event_log.event import ADD, DELETE, EDIT, LABEL, POST, REACT, REMOVE, TOPIC
from zerochat.group.inputs import ChangeRole
from zerochat.group.links.rate_limits import ENVELOPES_MAX
from zerochat.group.membership import (
    READER,
    heads_of,
    may_change_role,
    may_remove,
    resolve_view,
)
from zerochat.group.membership.attestation import sign_heads
from zerochat.group.state import Chain
from zerochat.group.sync.negentropy import VERSION
from zerochat.group.wire.messages import (
    COMPARE,
    EVENTS,
    JOIN_PENDING,
    JOIN_REQUEST,
    NEED,
    PROBLEM,
    PROOF,
    SEATING,
    SHARE,
    STATUS,
    SYNC,
    WELCOME,
)
from zerochat.sim.adversary import Adversary
from zerochat.sim.forged_evidence import PERJURIES
from zerochat.sim.forgeries import (
    Attack,
    Spoils,
    after_the_end,
    another_ones_name,
    back_again,
    foreign_contact,
    forged_add,
    inside,
    made_up_votes,
    some,
    spread,
    sync_of,
    without_the_right,
)
from zerochat.sim.relayed_attacks import (
    forged_history,
    forged_shares,
    insatiable,
    shifting_start,
    tall_claims,
    two_versions,
    unasked_shares,
)

MOST = 2**53 - 1
FLOOD, TORRENT = 60, ENVELOPES_MAX * 6 // 10
"""Events, each sent twice: the second is more than a member may say at once."""
REPLAYED = 20
KINDS = (
    *(EVENTS, STATUS, SYNC, NEED, SHARE, COMPARE, PROOF),
    *(JOIN_REQUEST, JOIN_PENDING, WELCOME, SEATING, PROBLEM),
    "https://example.org/x/1.0/y",
)
"""Everything that one member may say to another, and something that none has heard of."""


# --- what others have -----------------------------------------------------------------------------------------------


def too_many_acknowledgements(one: Adversary) -> Spoils | None:
    """Say that we, and everybody else, have everything that was and will be said."""
    victims = some(one)
    for name in victims:
        group, _ = one.known[one.members()[name]]
        have = [one.dice.choice((MOST, 1000))] * len(group.view.members)
        one.utter(name, SYNC, sync_of(one, group, have=have, yours=MOST, since=one.dice.choice((0, MOST))))
    return Spoils() if victims else None


def lying_word(one: Adversary) -> Spoils | None:
    """Sign that we know less of the group than we do, or something that nobody knows."""
    victims = some(one)
    for name in victims:
        group, _ = one.known[one.members()[name]]
        heads = one.dice.choice(((group.id,), (b64url(one.dice.randbytes(32)),), (group.id,) * 3))
        word = sign_heads(group.seed, group.id, heads)
        one.utter(name, SYNC, sync_of(one, group, heads=list(heads), word=word, view="x"))
    return Spoils() if victims else None


# --- equivocating ---------------------------------------------------------------------------------------------------


def two_posts(one: Adversary) -> Spoils | None:
    """Say one thing to some and another to others, in one place of our chain."""
    group, victims = inside(one), one.victims()
    if group is None or len(victims) < 2:
        return None
    yes, no = one.event(POST, {"text": "yes"}), one.event(POST, {"text": "no"})
    for name in victims:
        one.tell(name, one.dice.choice((yes, no)))
        if one.dice.random() < 0.3:
            one.tell(name, no)
    return Spoils()


def two_names(one: Adversary) -> Spoils | None:
    """Two signed events in one place: to some we are called this, to others that."""
    group, victims = inside(one), one.victims()
    if group is None or len(victims) < 2:
        return None
    this, that = one.event(LABEL, {"label": f"this {one.name}"}), one.event(LABEL, {"label": f"that {one.name}"})
    for place, name in enumerate(victims):
        one.tell(name, (this, that)[place % 2])
    return Spoils()


def two_branches(one: Adversary) -> Spoils | None:
    """Two events in one chain of which the second denies to have known the first: no place is taken twice, and yet
    there are two histories. Each goes to some of the others first."""
    group, victims = inside(one), one.victims()
    if group is None or len(victims) < 2:
        return None
    heads = heads_of(group.control)[:16]
    first = one.event(LABEL, {"label": f"left {one.name}"})
    second = one.event(
        LABEL, {"label": f"right {one.name}"}, seq=first.seq + 1, pre=first.id, deps=heads, lamport=first.lamport + 1
    )
    for place, name in enumerate(victims):
        one.tell(name, (first, second)[place % 2])
    return Spoils()


def whispered_removal(one: Adversary) -> Spoils | None:
    """Tell nobody but the one who is put out that it is, where we may put it out by ourselves."""
    group = inside(one)
    names = [name for name in one.victims() if group and may_remove(group.view, group.me, one.members()[name])]
    if group is None or not names or group.view.policy.remove == "quorum":
        return None
    name = one.dice.choice(names)
    one.tell(name, one.event(REMOVE, {"member": one.members()[name], "after": MOST}))
    return Spoils()


def two_histories(one: Adversary) -> Spoils | None:
    """Be one member for some and another for the others, from now on."""
    group = inside(one)
    if group is None or one.two_faced or len(group.others) < 2:
        return None
    one.split(one.dice.sample(group.others, one.dice.randint(1, len(group.others) - 1)))
    for face in (0, 1):
        with one.wearing(face):
            one.commit(LABEL, {"label": f"{one.name} face {face}"})
            one.commit(POST, {"text": f"face {face} of {one.name}"})
    return Spoils()


def hidden_add(one: Adversary) -> Spoils | None:
    """Have whoever comes in through us believe in an accomplice of whom the others have never heard."""
    group = inside(one)
    if group is None or one.two_faced:
        return None
    one.split(())
    one.brings_in = one.dice.choice(("hidden", "both"))
    with one.wearing(1):
        _, body = one.eve(f"Eve of {one.name}")
        one.commit(ADD, body)
    one.opens = 1
    return Spoils()


def stale_welcome(one: Adversary) -> Spoils | None:
    """Let people into the group as it was: whoever has come or was put out since is not mentioned."""
    group = inside(one)
    if group is None or one.two_faced:
        return None
    one.split(())
    one.brings_in = one.dice.choice(("hidden", "both"))
    one.opens = 1
    return Spoils()


def forged_welcome(one: Adversary) -> Spoils | None:
    """The same with an accomplice who never signed that she joins, or whom nobody who is in has added."""
    group = inside(one)
    if group is None or one.two_faced:
        return None
    one.split(())
    with one.wearing(1):
        member, body = one.eve(f"Eve of {one.name}", consent="A" * 86)
        event = one.event(ADD, body)
        agent = one.node.agent
        control = {**group.control, event.id: event}
        chains = {**group.chains, group.me: Chain(event.seq, event.id, event.lamport, True)}
        forged = replace(group, control=control, chains=chains, view=resolve_view(control), lamport=event.lamport)
        one.node.agent = replace(agent, groups={group.id: forged})
    one.opens = 1
    return Spoils((event.id,), strangers=(member,))


# --- disturbing -----------------------------------------------------------------------------------------------------


def deaf(one: Adversary) -> Spoils | None:
    """Withhold from some of the others most of what we should tell them."""
    group = one.group
    if group is None:
        return None
    for peer in group.peers.values():
        if one.dice.random() < 0.5:
            one.deaf_to[peer.link] = one.dice.choice((0.5, 0.9, 1.0))
    return Spoils()


def replay(one: Adversary) -> Spoils | None:
    """Say again, in another order, what we have said."""
    said = one.dice.sample(one.sent, min(len(one.sent), 60))
    for name, link, envelope in said:
        one.world._frame(name, one.received(link, envelope))
    return Spoils() if said else None


def replay_of_others(one: Adversary) -> Spoils | None:
    """Say what others have said to us: to each other over our own links, and as a stranger, under whatever invitation
    is open there, or over a link that nobody knows."""
    victims = some(one)
    if not one.seen or not victims:
        return None
    for name in victims:
        doors = [*one.world.nodes[name].agent.invitations, one.dice.randbytes(16)]
        for envelope in one.dice.sample(list(one.seen), min(len(one.seen), REPLAYED)):
            if one.dice.random() < 0.7:
                one.deliver(name, envelope)
            else:
                one.world._frame(name, one.received(one.dice.choice(doors), envelope))
    return Spoils()


def junk(one: Adversary) -> Spoils | None:
    """Send what is no message, or none that anybody asked for."""
    victims = some(one)
    for name in victims:
        for kind in KINDS:
            body: dict[str, Any] = {"group": 1, "runs": [{"author": "x"}], "heads": "no", "have": [-1, None, 2**70]}
            one.utter(name, kind, one.dice.choice(({}, body)))
        for size in (0, 1, 40, 3000):
            one.deliver(name, one.dice.choice((b"", b"\x01", b"{", b"[" * 50)) + one.dice.randbytes(size))
    return Spoils() if victims else None


def odd_comparisons(one: Adversary) -> Spoils | None:
    """Compare our log with theirs by words that have the right shape, and mean nothing or too much; and say that we
    have something else at the ends of all chains, so that they ask us to compare, and get the same for an answer."""
    victims = some(one)
    for name in victims:
        group, _ = one.known[one.members()[name]]
        one.utter(name, SYNC, sync_of(one, group, tips=b64url(one.dice.randbytes(2 * len(group.view.members)))))
        for _ in range(one.dice.randint(1, 12)):
            junk = one.dice.randbytes(one.dice.choice((0, 1, 40, 3000)))
            # Ranges that end nowhere, lists and fingerprints of nothing, numbers without an end.
            words = (b"", junk, bytes([VERSION]), bytes([VERSION ^ 1]) + junk, bytes([VERSION]) + junk)
            word = one.dice.choice((*words, bytes([VERSION]) + b"\0\0\1" * 9_000, bytes([VERSION]) + b"\xff" * 9_000))
            since = one.dice.choice((0, one.world.now - 60_000, MOST))
            thread = one.dice.choice((None, "never asked"))
            one.utter(name, COMPARE, {"group": group.id, "since": since, "message": b64url(word)}, thread)
    return Spoils() if victims else None


def flood(one: Adversary) -> Spoils | None:
    """Say very much at once: sometimes more than anybody listens to."""
    victims = some(one)
    for name in victims[:1]:
        event = one.event(POST, {"text": "x" * 200})
        for _ in range(FLOOD if one.dice.random() < 0.8 else TORRENT):
            one.tell(name, event)
            event = one.event(POST, {"text": "x" * 200}, seq=event.seq + 1, pre=event.id, lamport=event.lamport + 1)
    return Spoils() if victims else None


def wrong_clock(one: Adversary) -> Spoils | None:
    """Say things from a far future."""
    group = inside(one)
    if group is None:
        return None
    ahead = one.dice.choice((MOST, one.world.now + 3_600_000, one.world.now + 301_000 + 900_000))
    kind, body = one.dice.choice(((POST, {"text": "tomorrow"}), (LABEL, {"label": f"late {one.name}"})))
    return spread(one, one.event(kind, body, lamport=ahead))


def near_clock(one: Adversary) -> Spoils | None:
    """Run ahead as far as the others let us."""
    group = inside(one)
    if group is None:
        return None
    for name in some(one):
        one.tell(name, one.event(POST, {"text": "soon"}, lamport=one.world.now + 240_000))
    return Spoils()


def reader_writes(one: Adversary) -> Spoils | None:
    """Become a reader, and write."""
    group = inside(one)
    if group is None or one.two_faced:
        return None
    if group.view.members[group.me].role != READER:
        if not may_change_role(group.view, group.me, group.me, READER):
            return None
        one.world.ask(one.name, ChangeRole(group.id, "", READER))
    event = one.commit(POST, {"text": "a reader's word"})
    return Spoils(unshown=(event.id,)) if event else None


def meddling(one: Adversary) -> Spoils | None:
    """Edit and delete what others have said, and say nonsense about it."""
    group = inside(one)
    posts = [row.id for row in one.node.log if row.type == POST and row.author != group.me] if group else []
    if not posts:
        return None
    of = one.dice.choice(posts)
    last = one.node.log[-1].id
    said: list[tuple[str, dict[str, Any]]] = [
        (EDIT, {"of": of, "text": f"put into its mouth by {one.name}"}),
        (DELETE, {"of": of}),
        (EDIT, {"of": of, "text": None}),
        (EDIT, {"of": last, "text": "an edit of whatever that is"}),
        (REACT, {"of": last, "emoji": "👍", "on": True}),
        (REACT, {"of": of, "emoji": "👍" * 16_384, "on": True}),
        (REACT, {"of": [of], "emoji": {}, "on": 1}),
        (TOPIC, {"text": "two\nlines"}),
    ]
    for kind, body in one.dice.sample(said, one.dice.randint(1, len(said))):
        one.commit(kind, body)
    return Spoils()


def _named(attacks: Iterable[Attack]) -> dict[str, Attack]:
    return {attack.__name__.replace("_", " "): attack for attack in attacks}


ATTACKS: Mapping[str, Attack] = _named(
    [
        forged_add,
        another_ones_name,
        back_again,
        without_the_right,
        made_up_votes,
        after_the_end,
        foreign_contact,
        too_many_acknowledgements,
        lying_word,
        two_posts,
        two_names,
        two_branches,
        whispered_removal,
        two_histories,
        hidden_add,
        stale_welcome,
        forged_welcome,
        deaf,
        replay,
        replay_of_others,
        junk,
        odd_comparisons,
        flood,
        wrong_clock,
        near_clock,
        reader_writes,
        forged_shares,
        forged_history,
        unasked_shares,
        tall_claims,
        shifting_start,
        two_versions,
        insatiable,
        meddling,
        *PERJURIES,
    ]
)
