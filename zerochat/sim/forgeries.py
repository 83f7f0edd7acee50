"""Attacks with forged events (see `attacks.py`)."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.group.event_log.event import ADD, LABEL, LEAVE, POST, REMOVE, ROLE, UPGRADE, VOTE, Event
from zerochat.group.inputs import RemoveMember, UpgradeKeys
from zerochat.group.membership import (
    add_of,
    heads_of,
    log_of,
    may_change_role,
    may_remove,
    voters_for,
    votes_for,
)
from zerochat.group.membership.attestation import sign_heads
from zerochat.group.membership.electorate import Electorate
from zerochat.group.membership.upgrades import is_enough, may_upgrade, target_of_upgrade, upgraders
from zerochat.group.membership.view import View
from zerochat.group.state import Chain, Group
from zerochat.sim.adversary import Adversary


class AttackResult(Struct, frozen=True):
    """What honest members must never accept because of an attack."""

    events: tuple[str, ...] = ()
    """Ids of events that must not be stored."""
    unshown: tuple[str, ...] = ()
    """Ids of posts that must not be shown."""
    strangers: tuple[str, ...] = ()
    """DIDs that must not become members, except in quarantine."""


Attack = Callable[[Adversary], AttackResult | None]


def sample_victims(adversary: Adversary) -> list[str]:
    """Some of the nodes that we can write to."""
    victims = adversary.victims()
    return adversary.rng.sample(victims, adversary.rng.randint(1, len(victims))) if victims else []


def active_group(adversary: Adversary) -> Group | None:
    group = adversary.group
    return group if group is not None and group.me in group.view.members and group.state == "active" else None


def sync_body(adversary: Adversary, group: Group, **changes: Any) -> dict[str, Any]:
    """The body of our next sync, with these fields replaced."""
    heads = heads_of(group.control)
    reach = {"pair": "zmq+tcp://10.9.9.9:7000", "queue": "zmq+tcp://10.9.9.9:7001", "at": 0}
    return {
        "group": group.id,
        "view": group.view.checksum,
        "have": [],
        "start_seq": 0,
        "acked": 0,
        "heads": list(heads),
        "attestation": sign_heads(group.seed, group.id, heads),
        "reach": reach,
        **changes,
    }


def send_to_some(adversary: Adversary, *events: Event) -> AttackResult | None:
    """Send these forgeries to some members."""
    victims = sample_victims(adversary)
    for name in victims:
        adversary.send_events(name, *events)
    return AttackResult(tuple(event.id for event in events)) if victims else None


def forged_add(adversary: Adversary) -> AttackResult | None:
    """Add a member without consent, without proof of possession, or with another member's key."""
    group = active_group(adversary)
    if group is None or not group.others:
        return None
    victim = group.view.members[adversary.rng.choice(group.others)]
    _, good = adversary.make_accomplice()
    changes: Mapping[str, str] = adversary.rng.choice(
        [
            {"consent": good["consent"]},
            {"possession": good["possession"]},
            {"transport": good["transport"]},
            {"consent": ""},
        ]
    )
    member, body = adversary.make_accomplice(**changes)
    if adversary.rng.random() < 0.3:
        adds = [e for e in group.control.values() if e.type == ADD and add_of(e).member == victim.did]
        if adds:
            body |= {"transport": adds[0].body["transport"], "possession": adds[0].body["possession"]}
    results = send_to_some(adversary, adversary.event(ADD, body))
    return results and replace(results, strangers=(member,))


def impersonation(adversary: Adversary) -> AttackResult | None:
    """Send an event as another member."""
    group = active_group(adversary)
    if group is None or not group.others:
        return None
    victim = adversary.rng.choice(group.others)
    kind = adversary.rng.choice((POST, LABEL, LEAVE, VOTE, REMOVE))
    target = adversary.rng.choice(list(group.view.members))
    bodies = {POST: {"text": "I never said that"}, LABEL: {"label": "fool"}, LEAVE: {}, VOTE: {"member": target}}
    chain = group.log.chains.get(victim, Chain())
    fields = {"author": victim, "seq": chain.seq + 1, "pre": chain.head_id}
    if not chain.head_id:
        fields |= {"seq": 1, "pre": ""}
    event = adversary.event(kind, bodies.get(kind, {"member": target, "after": 0}), **fields)
    return send_to_some(adversary, event.signed(group.seed) if adversary.rng.random() < 0.5 else event)


def readmission(adversary: Adversary) -> AttackResult | None:
    """Add a member who was removed."""
    group = active_group(adversary)
    gone = (
        [e for e in group.control.values() if e.type == ADD and add_of(e).member in group.view.former] if group else []
    )
    if not gone:
        return None
    return send_to_some(adversary, adversary.event(ADD, adversary.rng.choice(gone).body))


def unauthorised_change(adversary: Adversary) -> AttackResult | None:
    """Remove a member or change a role without the right to."""
    group = active_group(adversary)
    if group is None or not group.others:
        return None
    target = adversary.rng.choice(group.others)
    # A removal with enough votes is valid; their weight is decided when it takes effect.
    votes = voters_for(group.control, group.view, target)
    if adversary.rng.random() < 0.5 and not may_remove(group.view, group.me, target, votes):
        return send_to_some(adversary, adversary.event(REMOVE, {"member": target, "after": 0}))
    role = adversary.rng.choice(("reader", "admin", "owner"))
    if may_change_role(group.view, group.me, target, role):
        return None
    return send_to_some(adversary, adversary.event(ROLE, {"member": target, "role": role, "after": 0}))


def unauthorised_upgrade(adversary: Adversary) -> AttackResult | None:
    """Upgrade the keys alone where it takes several members, or without the right to."""
    group = active_group(adversary)
    keys = target_of_upgrade(group.view) if group is not None else ""
    if group is None or not keys:
        return None
    agreed = {group.me, *upgraders(group.control, group.view)}
    parties = log_of(group.control).parties
    if may_upgrade(group.view, group.me, keys) and is_enough(group.view, agreed, lambda all_: parties(all_, group.me)):
        return None
    return send_to_some(adversary, adversary.event(UPGRADE, {"keys": keys, "final": True}))


def downgrade(adversary: Adversary) -> AttackResult | None:
    """Upgrade the keys, where we may, then post without a signature."""
    group = active_group(adversary)
    if group is None or adversary.is_split:
        return None
    if may_upgrade(group.view, group.me, target_of_upgrade(group.view)):
        adversary.world.run_command(adversary.name, UpgradeKeys(group.id))
    group = active_group(adversary)
    if group is None or group.keys == group.profile.keys:
        return None
    deps = adversary.rng.choice(((), heads_of(group.control)[:16]))
    post = replace(adversary.event(POST, {"text": "I shall deny this"}, deps=deps), sig="")
    victims = sample_victims(adversary)
    for name in victims:
        adversary.send_events_unsigned(name, post)
    return AttackResult((post.id,)) if victims else None


def forged_votes(adversary: Adversary) -> AttackResult | None:
    """Remove a member with forged votes."""
    group = active_group(adversary)
    if group is None or group.view.policy.remove != "quorum" or len(group.others) < 3:
        return None
    target, voter = adversary.rng.sample(group.others, 2)
    if votes_for(group.control, group.view, target):
        return None
    chain = group.log.chains.get(voter, Chain())
    place = {"author": voter, "seq": chain.seq + 1, "pre": chain.head_id} if chain.head_id else {"author": voter}
    vote = adversary.event(VOTE, {"member": target}, **place)
    remove = adversary.event(REMOVE, {"member": target, "after": 0}, deps=(vote.id,), lamport=vote.lamport + 1)
    return send_to_some(adversary, vote, remove)


def activity_after_removal(adversary: Adversary) -> AttackResult | None:
    """Have ourselves removed, then post and add an accomplice."""
    group = adversary.group
    if group is None or not adversary.known:
        return None
    if not adversary.removed:
        adversary.removed = True
        past = adversary.known[next(iter(adversary.known))][0]
        for name, did in adversary.members().items():
            view = adversary.world.group(name).view
            if (
                name not in adversary.accomplices
                and adversary.world.group(name).state == "active"
                and group.me in view.members
            ):
                adversary.world.run_command(name, RemoveMember(past.id, group.me))
                assert did != group.me
        return None
    told = [name for name in adversary.victims() if _knows_removal(adversary, name)]
    if not told or any(
        not _knows_removal(adversary, name) for name in adversary.members() if name not in adversary.accomplices
    ):
        return None  # our events count until every member knows of the removal
    before = next(group for group, _ in adversary.known.values())
    chain = before.log.chains.get(before.me, Chain())
    post = adversary.event(POST, {"text": "still here"}, seq=chain.seq + 40, pre=b64url(adversary.rng.randbytes(32)))
    member, body = adversary.make_accomplice("Eva")
    deps = heads_of(before.control)[:16]
    add = adversary.event(
        ADD, body, deps=deps, seq=chain.seq + 1, lamport=max(before.log.lamport + 1, adversary.world.now)
    )
    for name in told:
        adversary.send_events(name, post)
        adversary.send_events(name, add)
    view, others = before.view, before.view.members.keys() - {before.me}
    if view.policy.remove == "quorum" and (
        len(others) < max(2, view.policy.quorum) or _admitted_through(before.me, view)
    ):
        return AttackResult()  # the votes do not suffice, see `membership/void_events.py`
    return AttackResult(unshown=(post.id,), strangers=(member,))


def _admitted_through(member: str, view: View) -> bool:
    """Whether every other member joined through someone whom this member admitted, directly or indirectly."""
    people = sorted({**view.former, **view.members}.values(), key=lambda known: known.joined)
    adders = {known.did: known.added_by or "" for known in people}
    through = adders[Electorate(adders, view.members.keys() - {member}).root]
    while through not in ("", member):
        through = adders[through]
    return through == member


def _knows_removal(adversary: Adversary, name: str) -> bool:
    group = next(iter(adversary.world.nodes[name].agent.groups.values()), None)
    mine = next(iter(adversary.known.values()))[0].me
    return group is None or group.state != "active" or mine not in group.view.members


def foreign_contact(adversary: Adversary) -> AttackResult | None:
    """Add an accomplice with another member's contact."""
    group = active_group(adversary)
    if group is None or not group.others:
        return None
    victim = group.view.members[adversary.rng.choice(group.others)]
    _, body = adversary.make_accomplice(f"Eve of {adversary.name}", contact=victim.contact)
    return AttackResult() if adversary.commit(ADD, body) else None
