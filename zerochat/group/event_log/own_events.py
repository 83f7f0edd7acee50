"""Our own events: create the next one of our chain, and publish those of a batch together."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from zerochat.group import retention
from zerochat.group.event_log import delivery, lamport
from zerochat.group.event_log.event import (
    CONC_MAX,
    CONTROL,
    DEPS_MAX,
    GENESIS,
    Event,
    parse_event,
)
from zerochat.group.key_modes import MODES
from zerochat.group.links import outbox, pairing
from zerochat.group.membership import (
    TLOG,
    ancestors,
    attestation,
    check_control,
    heads_of,
)
from zerochat.group.signed_streams import publisher
from zerochat.group.state import Group, Profile
from zerochat.group.sync import acknowledgements, relay, stale_profile
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import message_batches
from zerochat.overlay import OVERLAYS


def is_supported(profile: Profile) -> bool:
    """Whether this version has the key mode, the path and the accountability of a group."""
    if profile.keys not in MODES or profile.path not in OVERLAYS:
        return False
    return profile.accountability == "acks" or (profile.accountability == TLOG and MODES[profile.keys].signs)


def append(tx: Transaction, name: str, kind: str, body: Mapping[str, Any]) -> Event:
    """Create the next event of our own chain and deliver it here; the batch's end publishes it. Raises Refused while
    our profile may be stale."""
    group = tx.group(name)
    stale_profile.check_not_suspended(group)
    chain = group.chain(group.me)
    control_heads = _prioritised_heads(
        group, heads_of(attestation.citable_events(group, kind, body.get("member"))), body
    )
    # `pre` covers the heads that an earlier event of ours has named; heads beyond the limit go into the next event.
    deps = [head for head in control_heads if kind in CONTROL or head not in group.log.covered_heads][:DEPS_MAX]
    conc = [head for head in group.log.heads if head != chain.head_id and head not in deps][:CONC_MAX]
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
    event = parse_event(event.wire)  # an event that the others would reject must not enter our chain
    delivery.deliver(tx, name, event)
    if deps or event.is_control:
        named = {*group.log.covered_heads, *deps, event.id}
        heads = tuple(head for head in heads_of(tx.group(name).control) if head in named)
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


def publish_batch(tx: Transaction, name: str) -> None:
    """The batch is complete: publish its events together, to all their recipients.

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
    for status in (False, True):
        batch_events = [event for event in events if event.is_control is status]
        if not batch_events:
            continue
        if group.mode.signs and not status:
            publisher.publish_signed(tx, name, batch_events)
            continue
        audiences: dict[int, list[str]] = {}
        for member, peer in group.links.peers.items():
            if member in group.view.members:
                audiences.setdefault(sum(event.seq <= peer.start_seq for event in batch_events), []).append(member)
        for before, audience in audiences.items():
            for portion in message_batches(batch_events[before:]):
                outbox.publish_events(tx, name, portion, audience, status=status)
    audience = [
        m for m, peer in group.links.peers.items() if peer.start_seq < events[-1].seq and m in group.view.members
    ]
    acknowledgements.expect_acknowledgement(tx, name, events[0].seq, audience)
    relay.schedule(tx, name)
