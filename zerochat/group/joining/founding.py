"""Founding a group: its genesis event, and the group that follows from it."""

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.errors import GroupExists, LocalError
from zerochat.group import retention
from zerochat.group.effects import Notify
from zerochat.group.event_log import delivery, own_events
from zerochat.group.event_log.event import GENESIS, Event
from zerochat.group.inputs import CreateGroup
from zerochat.group.key_modes import MODES
from zerochat.group.links import mediator_mail
from zerochat.group.links.contact import new_identity, sign_possession, transport_public
from zerochat.group.membership import TLOG, check_control, resolve_view
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import Chain, EventLog, Group, Profile
from zerochat.group.sync import anti_entropy
from zerochat.group.timer_kinds import START_DELAY_MS, TimerKind
from zerochat.group.transaction import Transaction
from zerochat.limits import RING_KEYS
from zerochat.names import checked_name


class UnknownKeys(LocalError):
    """Unknown key mode {keys}. This version has: {known}."""


class UnknownAccountability(LocalError):
    """A group with the key mode {keys} cannot have the accountability {accountability}. Every key mode has `acks`;
    modes that sign (sender-key) also have `tlog`."""


class UnknownPath(LocalError):
    """A group with the key mode {keys} cannot have the path {path}. Every key mode has `mesh`; {ring} also has
    `ring`."""


class UnfitPolicy(LocalError):
    """These rules contradict each other: {why}."""


def create_group(tx: Transaction, reference: CreateGroup) -> str:
    """Create a group: the id of its genesis event is the group's id."""
    name = checked_name(reference.name, "group's name")
    if any(group.name == name and group.state != "left" for group in tx.agent.groups.values()):
        raise GroupExists(group=name)
    return found_group(tx, reference).id


def found_group(tx: Transaction, reference: CreateGroup) -> Group:
    """The same, whatever its name."""
    name, label = checked_name(reference.name, "group's name"), checked_name(reference.label, "name")
    assert tx.agent.reach is not None
    seed = tx.context.random(32)
    profile = _profile_of(reference)
    if reference.policy.error:
        raise UnfitPolicy(why=reference.policy.error)
    if reference.policy.keep and profile.accountability == TLOG:
        raise UnfitPolicy(why="a group with a transparency log keeps its messages as evidence")
    contact = new_identity(tx.context.random, mediator_mail.own_reach_as(tx, seed), profile.envelope)
    now = max(1, tx.now)
    body = {
        "name": name,
        "keys": profile.keys,
        "path": profile.path,
        "accountability": profile.accountability,
        "envelope": profile.envelope,
        "nonce": b64url(tx.context.random(16)),
        "label": label,
        "contact": contact.did,
        "policy": reference.policy.body(),
        "transport": transport_public(seed),
        "possession": sign_possession(seed, "", did_key(ed25519_public(seed))),
    }
    genesis = Event("", GENESIS, did_key(ed25519_public(seed)), 1, "", (), (), now, now, body).signed(seed)
    check_control(genesis, {})
    control = {genesis.id: genesis}
    view = resolve_view(control)
    group = Group(
        id=genesis.id,
        name=name,
        profile=profile,
        state="active",
        me=genesis.author,
        seed=seed,
        contact=contact,
        control=control,
        view=view,
        created=genesis.time,
        log=EventLog(
            chains={genesis.author: Chain(1, genesis.id, genesis.lamport)},
            lamport=genesis.lamport,
            heads=(genesis.id,),
            covered_heads=(genesis.id,),
        ),
    )
    tx.add_group(group)
    delivery.store_event(tx, group.id, genesis, late=False)
    retention.schedule(tx)
    tx.set_timer(TimerKind.ANTI_ENTROPY, group.id, anti_entropy.INTERVAL_MS)
    if view.has_tlog:
        tx.set_timer(TimerKind.TLOG, group.id, START_DELAY_MS)
    tx.emit(Notify(ViewChanged(group.id)))
    return group


def _profile_of(reference: CreateGroup) -> Profile:
    """The profile of the group to create. Raises LocalError where this version has none like it."""
    profile = Profile(reference.keys, reference.path, reference.accountability, reference.envelope)
    if own_events.is_supported(profile):
        return profile
    if reference.keys not in MODES:
        raise UnknownKeys(keys=reference.keys, known=", ".join(MODES))
    if own_events.is_supported(replace(profile, accountability="acks")):
        raise UnknownAccountability(accountability=reference.accountability, keys=reference.keys)
    raise UnknownPath(path=reference.path, keys=reference.keys, ring=RING_KEYS)
