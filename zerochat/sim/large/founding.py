"""Founding a group of many members at once: the state of each is that after a join whose comparison has ended.

The membership events are signed and checked as in any join. Left out is how they came to each member: the exchanges
with the inviters, the welcomes, and the links to members that a later joiner has replaced. The links of the finished
group, its DID exchanges and its key agreement are real: they follow from here on.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.did import Identity
from zerochat.group import retention
from zerochat.group.event_log import delivery, lamport
from zerochat.group.event_log.event import ADD, Event
from zerochat.group.inputs import CreateGroup, StepContext
from zerochat.group.links import mediator_mail, peers, ring_links
from zerochat.group.links.contact import new_identity, sign_consent, sign_possession, transport_public
from zerochat.group.membership import WRITER, check_control, has_seat_for, log_of
from zerochat.group.membership.log import extend_control
from zerochat.group.state import Admissions, Chain, EventLog, Group, Links
from zerochat.group.sync import anti_entropy, backfill
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.sim.world import SIMULATED_PACKERS, World

ADDED_EACH = 8
"""Members that each member adds, in the order in which they came."""


class FirstMember(Struct, frozen=True):
    """One of the first members, with its secrets."""

    name: str
    seed: bytes
    contact: Identity
    entry: str = ""
    """The id of the event that added it; empty: it has created the group."""

    @property
    def did(self) -> str:
        return did_key(ed25519_public(self.seed))


def found(world: World, names: Sequence[str], group: CreateGroup) -> str:
    """Let these nodes be the members of a new group, created by the first, and begin to connect. Returns its id."""
    world.run_command(names[0], group)
    genesis = world.group(names[0])
    founders = [FirstMember(names[0], genesis.seed, genesis.contact)]
    control, view, chains = genesis.control, genesis.view, dict(genesis.log.chains)
    for number, name in enumerate(names[1:]):
        inviter, joiner = founders[number // ADDED_EACH], _newcomer(world, name, group.envelope)
        if not has_seat_for(view, inviter.did):
            inviter = founders[0]  # the last seats are not for large branches
        event = _addition(genesis, control, chains, inviter, joiner, world.now)
        check_control(event, control)
        control, view = extend_control(control, event)
        chains[inviter.did] = Chain(event.seq, event.id, event.lamport)
        founders.append(replace(joiner, entry=event.id))
    finished = replace(genesis, control=control, view=view)
    for one in founders:
        _begin(world, one, _group_of(finished, chains, one))
    return genesis.id


def _newcomer(world: World, name: str, envelope: str) -> FirstMember:
    seed, node = world.rng.randbytes(32), world.nodes[name]
    tx = Transaction(node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    return FirstMember(name, seed, new_identity(world.rng.randbytes, mediator_mail.own_reach_as(tx, seed), envelope))


def _addition(
    genesis: Group,
    control: dict[str, Event],
    chains: Mapping[str, Chain],
    inviter: FirstMember,
    joiner: FirstMember,
    now: int,
) -> Event:
    """The event by which one founder adds the next (`joining/admission.py`)."""
    contact, transport, label = joiner.contact.did, transport_public(joiner.seed), joiner.name
    consent = sign_consent(joiner.seed, genesis.id, inviter.did, joiner.did, label, contact, WRITER, transport)
    body = {
        "member": joiner.did,
        "label": label,
        "contact": contact,
        "role": WRITER,
        "transport": transport,
        "possession": sign_possession(joiner.seed, genesis.id, joiner.did),
        "consent": consent,
    }
    chain, heads = chains.get(inviter.did, Chain()), log_of(control).sorted_heads
    time = lamport.tick(max(control[head].lamport for head in heads), now)
    event = Event(genesis.id, ADD, inviter.did, chain.seq + 1, chain.head_id, heads, (), time, max(1, now), body)
    return event.signed(inviter.seed).accepted()


def _group_of(finished: Group, chains: Mapping[str, Chain], one: FirstMember) -> Group:
    """The group as this member sees it."""
    heads = log_of(finished.control).sorted_heads
    known = {one.did: chains[one.did]} if one.did in chains else {}
    if one.entry:
        inviter = finished.control[one.entry].author
        known[inviter] = Chain.after(chains[inviter].seq)
    return replace(
        finished,
        me=one.did,
        seed=one.seed,
        contact=one.contact,
        joining=Admissions(event=one.entry),
        links=Links(),
        log=EventLog(
            chains=known,
            lamport=max(event.lamport for event in finished.control.values()),
            heads=heads,
            covered_heads=tuple(head for head in heads if finished.control[head].author == one.did),
        ),
    )


def _begin(world: World, one: FirstMember, group: Group) -> None:
    """Let a node be a member from now on."""
    node = world.nodes[one.name]
    tx = Transaction(node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    known = tx.agent.groups[group.id].control if group.id in tx.agent.groups else {}
    tx.add_group(group)
    retention.schedule(tx)
    for event in group.control.values():
        if event.id not in known:
            delivery.store_event(tx, group.id, event, late=False)
            world.authored.add(event.id)
    tx.set_timer(TimerKind.ANTI_ENTROPY, group.id, anti_entropy.INTERVAL_MS)
    for member in sorted(group.others):
        peers.add_peer(tx, group.id, member)
    ring_links.view_changed(tx, group.id)
    if one.entry:
        backfill.start(tx, group.id)
    world.apply(one.name, tx)
