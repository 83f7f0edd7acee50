"""Attacks that forge: events that nobody may make, or nobody has made, in words that others would have to believe.

What an attack is, says `attacks.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.group.event_log.event import ADD, LABEL, LEAVE, POST, REMOVE, ROLE, VOTE, Event
from zerochat.group.inputs import RemoveMember
from zerochat.group.membership import (
    add_of,
    heads_of,
    may_change_role,
    may_remove,
    voters_for,
    votes_for,
)
from zerochat.group.membership.attestation import sign_heads
from zerochat.group.membership.view import View
from zerochat.group.membership.votes import Standing
from zerochat.group.state import Chain, Group
from zerochat.sim.adversary import Adversary


class Spoils(Struct, frozen=True):
    """What an attack would have brought if it had worked."""

    events: tuple[str, ...] = ()
    """Ids that no honest member may have among its events."""
    unshown: tuple[str, ...] = ()
    """Posts that none may show."""
    strangers: tuple[str, ...] = ()
    """People whom none may count as a member, but in quarantine."""


Attack = Callable[[Adversary], Spoils | None]


def some(one: Adversary) -> list[str]:
    """Some of those whom we can write to."""
    victims = one.victims()
    return one.dice.sample(victims, one.dice.randint(1, len(victims))) if victims else []


def inside(one: Adversary) -> Group | None:
    group = one.group
    return group if group is not None and group.me in group.view.members and group.state == "active" else None


def sync_of(one: Adversary, group: Group, **changes: Any) -> dict[str, Any]:
    """What a sync of ours says, but for these changes."""
    heads = heads_of(group.control)
    reach = {"pair": "zmq+tcp://10.9.9.9:7000", "queue": "zmq+tcp://10.9.9.9:7001", "at": 0}
    return {
        "group": group.id,
        "view": group.view.checksum,
        "have": [],
        "since": 0,
        "yours": 0,
        "heads": list(heads),
        "word": sign_heads(group.seed, group.id, heads),
        "reach": reach,
        **changes,
    }


def spread(one: Adversary, *events: Event) -> Spoils | None:
    """Tell some of them these forgeries."""
    victims = some(one)
    for name in victims:
        one.tell(name, *events)
    return Spoils(tuple(event.id for event in events)) if victims else None


def forged_add(one: Adversary) -> Spoils | None:
    """Bring somebody in without her consent, or without the key that she is said to have, or with somebody else's."""
    group = inside(one)
    if group is None or not group.others:
        return None
    victim = group.view.members[one.dice.choice(group.others)]
    _, good = one.eve()
    changes: Mapping[str, str] = one.dice.choice(
        [
            {"consent": good["consent"]},
            {"possession": good["possession"]},
            {"transport": good["transport"]},
            {"consent": ""},
        ]
    )
    member, body = one.eve(**changes)
    if one.dice.random() < 0.3:
        adds = [e for e in group.control.values() if e.type == ADD and add_of(e).member == victim.did]
        if adds:
            body |= {"transport": adds[0].body["transport"], "possession": adds[0].body["possession"]}
    spoils = spread(one, one.event(ADD, body))
    return spoils and replace(spoils, strangers=(member,))


def another_ones_name(one: Adversary) -> Spoils | None:
    """Say something as another member."""
    group = inside(one)
    if group is None or not group.others:
        return None
    victim = one.dice.choice(group.others)
    kind = one.dice.choice((POST, LABEL, LEAVE, VOTE, REMOVE))
    target = one.dice.choice(list(group.view.members))
    bodies = {POST: {"text": "I never said that"}, LABEL: {"label": "fool"}, LEAVE: {}, VOTE: {"member": target}}
    chain = group.chains.get(victim, Chain())
    fields = {"author": victim, "seq": chain.seq + 1, "pre": chain.tip}
    if not chain.tip:
        fields |= {"seq": 1, "pre": ""}
    event = one.event(kind, bodies.get(kind, {"member": target, "after": 0}), **fields)
    return spread(one, event.signed(group.seed) if one.dice.random() < 0.5 else event)


def back_again(one: Adversary) -> Spoils | None:
    """Bring in somebody who is out."""
    group = inside(one)
    gone = (
        [e for e in group.control.values() if e.type == ADD and add_of(e).member in group.view.former] if group else []
    )
    if not gone:
        return None
    return spread(one, one.event(ADD, one.dice.choice(gone).body))


def without_the_right(one: Adversary) -> Spoils | None:
    """Put somebody out, or change what somebody may do, although that is not for us."""
    group = inside(one)
    if group is None or not group.others:
        return None
    target = one.dice.choice(group.others)
    # One for whom enough have voted is in order; how much their votes count, is seen when it takes effect.
    votes = voters_for(group.control, group.view, target)
    if one.dice.random() < 0.5 and not may_remove(group.view, group.me, target, votes):
        return spread(one, one.event(REMOVE, {"member": target, "after": 0}))
    role = one.dice.choice(("reader", "admin"))
    if may_change_role(group.view, group.me, target, role):
        return None
    return spread(one, one.event(ROLE, {"member": target, "role": role, "after": 0}))


def made_up_votes(one: Adversary) -> Spoils | None:
    """Put somebody out by the votes of people who did not vote."""
    group = inside(one)
    if group is None or group.view.policy.remove != "quorum" or len(group.others) < 3:
        return None
    target, voter = one.dice.sample(group.others, 2)
    if votes_for(group.control, group.view, target):
        return None
    chain = group.chains.get(voter, Chain())
    place = {"author": voter, "seq": chain.seq + 1, "pre": chain.tip} if chain.tip else {"author": voter}
    vote = one.event(VOTE, {"member": target}, **place)
    remove = one.event(REMOVE, {"member": target, "after": 0}, deps=(vote.id,), lamport=vote.lamport + 1)
    return spread(one, vote, remove)


def after_the_end(one: Adversary) -> Spoils | None:
    """Have ourselves put out, and go on as if nothing had happened: words, and a friend brought in."""
    group = one.group
    if group is None or not one.known:
        return None
    if not one.out:
        one.out = True
        past = one.known[next(iter(one.known))][0]
        for name, did in one.members().items():
            view = one.world.group(name).view
            if name not in one.accomplices and one.world.group(name).state == "active" and group.me in view.members:
                one.world.ask(name, RemoveMember(past.id, group.me))
                assert did != group.me
        return None
    told = [name for name in one.victims() if _has_gone(one, name)]
    if not told or any(not _has_gone(one, name) for name in one.members() if name not in one.accomplices):
        return None  # as long as somebody has not heard it, what we say there counts
    before = next(group for group, _ in one.known.values())
    chain = before.chains.get(before.me, Chain())
    post = one.event(POST, {"text": "still here"}, seq=chain.seq + 40, pre=b64url(one.dice.randbytes(32)))
    member, body = one.eve("Eva")
    deps = heads_of(before.control)[:16]
    add = one.event(ADD, body, deps=deps, seq=chain.seq + 1, lamport=max(before.lamport + 1, one.world.now))
    for name in told:
        one.tell(name, post)
        one.tell(name, add)
    view, others = before.view, before.view.members.keys() - {before.me}
    if view.policy.remove == "quorum" and (len(others) < max(2, view.policy.quorum) or _came_through(before.me, view)):
        return Spoils()  # so it keeps itself, or its friend, in, as `membership/votes.py` says
    return Spoils(unshown=(post.id,), strangers=(member,))


def _came_through(member: str, view: View) -> bool:
    """Whether all others came in through one whom this member had brought in, itself or through others."""
    people = sorted({**view.former, **view.members}.values(), key=lambda one: one.joined)
    adders = {one.did: one.added_by or "" for one in people}
    through = adders[Standing(adders, view.members.keys() - {member}).root]
    while through not in ("", member):
        through = adders[through]
    return through == member


def _has_gone(one: Adversary, name: str) -> bool:
    group = next(iter(one.world.nodes[name].agent.groups.values()), None)
    mine = next(iter(one.known.values()))[0].me
    return group is None or group.state != "active" or mine not in group.view.members


def foreign_contact(one: Adversary) -> Spoils | None:
    """Bring in an accomplice who says that she is reached where another member is."""
    group = inside(one)
    if group is None or not group.others:
        return None
    victim = group.view.members[one.dice.choice(group.others)]
    _, body = one.eve(f"Eve of {one.name}", contact=victim.contact)
    return Spoils() if one.commit(ADD, body) else None
