"""Our own events: create the next one of our chain; sign and publish those of a batch together."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from zerochat.errors import Malformed
from zerochat.group import retention
from zerochat.group.dcgka import publisher as sealed_messages
from zerochat.group.event_log import delivery, lamport, tree_signature
from zerochat.group.event_log.event import (
    CONC_MAX,
    CONTROL,
    DEPS_MAX,
    GENESIS,
    RECORD_BYTES_MAX,
    SIGNATURE_FIELD_BYTES,
    Event,
)
from zerochat.group.event_log.signing import must_be_signed
from zerochat.group.key_modes import MODES, Mode
from zerochat.group.links import outbox, pairing
from zerochat.group.membership import (
    TLOG,
    ancestors,
    attestation,
    check_control,
    heads_of,
    log_of,
)
from zerochat.group.signed_streams import publisher
from zerochat.group.state import Group, Profile
from zerochat.group.sync import acknowledgements, reinstated_posts, relay, stale_profile
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import message_batches
from zerochat.limits import MEMBERS_MAX_BY_PATH, RING_KEYS


def is_supported(profile: Profile) -> bool:
    """Whether this version has the key mode, the path and the accountability of a group."""
    if profile.keys not in MODES or profile.path not in MEMBERS_MAX_BY_PATH:
        return False
    if profile.path == "ring" and profile.keys != RING_KEYS:
        return False
    return profile.accountability == "acks" or (profile.accountability == TLOG and MODES[profile.keys].signs)


def append(tx: Transaction, name: str, kind: str, body: Mapping[str, Any]) -> Event:
    """Create the next event of our own chain and deliver it here; the batch's end signs and publishes it. Raises
    Refused while our profile may be stale."""
    group = tx.group(name)
    stale_profile.check_not_suspended(group)
    chain = group.chain(group.me)
    if group.mode.signs_events and not (group.first_mode.signs_events or chain.upgraded):
        # We know of the upgrade, though we may not cite what comes after the addition of an unconfirmed member.
        group = tx.update_chain(name, group.me, replace(chain, upgraded=chain.seq + 1))
    control_heads = _prioritised_heads(
        group, heads_of(attestation.citable_events(group, kind, body.get("member"))), body
    )
    # `pre` covers the heads that an earlier event of ours has named; heads beyond the limit go into the next event.
    deps = [head for head in control_heads if kind in CONTROL or head not in group.log.covered_heads][:DEPS_MAX]
    # An author counts as acknowledged what we name; of a chain that is sought we may lack earlier events.
    left_out = {chain.head_id, *deps, *(one.head_id for one in group.log.chains.values() if one.is_sought)}
    conc = [head for head in group.log.heads if head not in left_out][:CONC_MAX]
    event = Event(
        "" if kind == GENESIS else group.id,
        kind,
        group.me,
        chain.seq + 1,
        chain.head_id,
        tuple(deps),
        tuple(conc),
        lamport.tick(group.log.lamport, tx.now),
        max(1, tx.now),
        dict(body),
    )
    if event.is_control:
        event = event.signed(group.seed)
        check_control(event, group.control)
    else:
        event = replace(event, body={**event.body, **retention.salt(tx, group)})
        event = stale_profile.with_mark(group, event)
    event = event.accepted()  # one that the others would reject must not enter our chain
    if must_be_signed(group, event) and len(event.record) > RECORD_BYTES_MAX - SIGNATURE_FIELD_BYTES:
        raise Malformed(why="event record: too long")
    delivery.deliver(tx, name, event)
    if deps or event.is_control:
        named = {*group.log.covered_heads, *deps, event.id}
        heads = tuple(head for head in log_of(tx.group(name).control).sorted_heads if head in named)
        tx.update_log(name, covered_heads=heads)
    tx.update_log(name, unpublished=(*group.log.unpublished, event))
    return event


def _prioritised_heads(group: Group, heads: tuple[str, ...], body: Mapping[str, Any]) -> list[str]:
    """The heads of the membership events, most important first when they exceed the limit: those that cover our own
    last event, our role, and events about the same member."""
    if len(heads) <= DEPS_MAX:
        return list(heads)
    subjects = {group.me, body.get("member")}
    related = [e for e in group.control.values() if e.author == group.me or e.body.get("member") in subjects]
    covered = {head: ancestors(group.control, [head]) for head in heads}
    prioritised: list[str] = []
    for event in sorted(related, key=lambda e: (e.author != group.me, -e.lamport, e.id)):
        if not any(event.id in covered[head] for head in prioritised):
            prioritised += [head for head in heads if event.id in covered[head]][:1]
    return [*prioritised, *sorted(set(heads) - set(prioritised), key=lambda head: (-group.control[head].lamport, head))]


def sign_batch(tx: Transaction, name: str) -> None:
    """The batch is complete: sign its posts and annotations where the keys sign them, and store them. Those of one
    message share a signature."""
    group = tx.group(name)
    unsigned = [event for event in group.log.unpublished if not event.sig and must_be_signed(group, event)]
    if not unsigned:
        return
    signed = {event.seq: event for portion in message_batches(unsigned) for event in _signed(group, portion)}
    tx.update_log(name, unpublished=tuple(signed.get(event.seq, event) for event in group.log.unpublished))
    for event in signed.values():
        if not reinstated_posts.is_rejected(group, event):
            delivery.store_event(tx, name, retention.as_kept(tx, name, event), late=False)


def _signed(group: Group, events: Sequence[Event]) -> list[Event]:
    if len(events) == 1:
        return [events[0].signed(group.seed)]
    leaves = tree_signature.sign(group.seed, [event.id for event in events])
    return [event.with_signature(*signed) for event, signed in zip(events, leaves, strict=True)]


def publish_batch(tx: Transaction, name: str) -> None:
    """Publish the events of a complete batch together, to all their recipients.

    A hundred posts are one envelope for each member, or one for all. Membership events go to the state queue, posts to
    the data queues; each author's chain restores their order.
    """
    group = tx.group(name)
    if not group.log.unpublished:
        return
    events = group.log.unpublished
    for member in group.links.peers:
        pairing.send_greeting(tx, name, member)  # it may not know yet where our chain begins for it
    group = tx.update_log(name, unpublished=())
    posts = [event for event in events if not event.is_control]
    before = [event for event in posts if group.keys != group.profile.keys and not event.sig]
    _publish_posts(tx, name, group.first_mode, before)  # the keys were upgraded after them, in this batch
    _publish_posts(tx, name, group.mode, [event for event in posts if event not in before])
    _publish_each(tx, name, [event for event in events if event.is_control], status=True)
    audience = [
        m for m, peer in group.links.peers.items() if peer.start_seq < events[-1].seq and m in group.view.members
    ]
    acknowledgements.expect_acknowledgement(tx, name, events[0].seq, audience)
    relay.schedule(tx, name)


def _publish_posts(tx: Transaction, name: str, mode: Mode, events: Sequence[Event]) -> None:
    """Publish posts and annotations of ours, the next ones in our chain, under keys of this mode."""
    if not events:
        return
    if mode.signs:
        publisher.publish_signed(tx, name, events)
    elif mode.heals:
        acknowledgements.expect_key_acks(tx, name, sealed_messages.prepare(tx, name))
        sealed_messages.publish_sealed(tx, name, events)
    else:
        _publish_each(tx, name, events, status=False)


def _publish_each(tx: Transaction, name: str, events: Sequence[Event], *, status: bool) -> None:
    """Publish these events under pairwise keys; to each member those that are meant for it."""
    audiences: dict[int, list[str]] = {}
    group = tx.group(name)
    for member, peer in group.links.peers.items():
        if member in group.view.members and events:
            audiences.setdefault(sum(event.seq <= peer.start_seq for event in events), []).append(member)
    for before, audience in audiences.items():
        for portion in message_batches(events[before:]):
            outbox.publish_events(tx, name, portion, audience, status=status)
