"""Attacks on keys that heal: insiders who send other seeds, hold back or repeat key events, and lie about what they
have."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from zerochat.crypto import two_party
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import x25519_public
from zerochat.group.dcgka import channels, publisher
from zerochat.group.dcgka.membership import membership_of
from zerochat.group.event_log.event import POST
from zerochat.group.key_agreement.key_event import Directs, pair_context
from zerochat.group.key_agreement.message_keys import sending_key
from zerochat.group.key_agreement.production import produce
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.state import Group
from zerochat.group.state.dcgka import SentKeyEvent
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import KEY_COMPLAINT, KEY_EVENTS, KEY_EVENTS_MAX, SYNC
from zerochat.sim.adversary import Adversary
from zerochat.sim.forgeries import AttackResult, active_group, sample_victims, sync_body
from zerochat.sim.world import SIMULATED_PACKERS

NUMBER_MAX: Final = 2**53 - 1


def _healing(adversary: Adversary) -> Group | None:
    group = active_group(adversary)
    return group if group is not None and group.mode.heals else None


def _act(adversary: Adversary, act: Callable[[Transaction], object]) -> None:
    """Let our core do something that it would not do."""
    turn = Transaction(adversary.node.agent, adversary.context(), SIMULATED_PACKERS)
    act(turn)
    adversary.node.agent = turn.agent
    for effect in turn.effects:
        for shown in adversary.filter_effect(effect):
            adversary.world._perform(adversary.node, shown)
    adversary.update_known_members()


def different_seeds(adversary: Adversary) -> AttackResult | None:
    """Send some members another seed, or another ratchet, than the others."""
    group, victims = _healing(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    members, update = adversary.members(), adversary.rng.random() < 0.7

    def send(turn: Transaction) -> None:
        keys = channels.keys_of(turn, group.id)
        made = produce(keys, membership_of(group), turn.context, update=update)
        messages = dict(made.directs.messages)
        for member in {members[name] for name in victims} & messages.keys():
            pair = pair_context(group.id, group.me, member)
            content = turn.context.random(adversary.rng.choice((32, 32, 31)))
            _, messages[member] = two_party.send(keys.channels[member], pair, content, turn.context.random)
        directs = Directs(messages)
        event = replace(made.event, root=directs.root).signed(group.seed)
        operations = {event.id if name == made.event.id else name: one for name, one in made.keys.operations.items()}
        after = replace(made.keys, epoch=replace(made.keys.epoch, event=event.id), operations=operations)
        publisher.distribute(turn, group.id, after, event, directs)

    _act(adversary, send)
    return AttackResult()


def withheld_keys(adversary: Adversary) -> AttackResult | None:
    """Make updates, and keep them or their direct messages from some members."""
    group, victims = _healing(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    chosen = {adversary.members()[name] for name in victims}

    def send(turn: Transaction) -> None:
        quiet = Transaction(turn.agent, turn.context, SIMULATED_PACKERS)
        publisher.make(quiet, group.id, update=True)
        sent = quiet.group(group.id).dcgka.sent
        for number, event in sent.items():
            left = {did: one for did, one in event.pending.items() if did not in chosen}
            if adversary.rng.random() < 0.5:
                left |= {did: replace(one, message=b"") for did, one in event.pending.items() if did in chosen}
            sent = {**sent, number: SentKeyEvent(event.record, left)}
        quiet.update_dcgka(group.id, sent={number: event for number, event in sent.items() if event.pending})
        turn.agent = quiet.agent
        for member in group.links.peers:
            publisher.resend(turn, group.id, member)

    _act(adversary, send)
    return AttackResult()


def repeated_key_events(adversary: Adversary) -> AttackResult | None:
    """Send old and new key events again and again, in a false order."""
    group, victims = _healing(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    for _ in range(adversary.rng.randint(1, 4)):
        _act(adversary, lambda turn: publisher.make(turn, group.id, update=adversary.rng.random() < 0.7))
        current = _healing(adversary)
        if current is None:
            break
        for name in victims:
            member = adversary.members()[name]
            kept = [(event, event.pending[member]) for event in current.dcgka.sent.values() if member in event.pending]
            events = [[b64url(event.record), b64url(direct.message)] for event, direct in kept]
            if events:
                adversary.rng.shuffle(events)
                before = adversary.rng.choice((0, 0, 1, NUMBER_MAX))
                body = {"group": group.id, "events": (events * 2)[:KEY_EVENTS_MAX], "before": before}
                adversary.send_message(name, KEY_EVENTS, body)
    return AttackResult()


def false_key_states(adversary: Adversary) -> AttackResult | None:
    """Claim lost keys, key events that were never made, and new pre-keys."""
    group, victims = _healing(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    for name in victims:
        for _ in range(adversary.rng.randint(1, 5)):
            body = {
                "key_events": adversary.rng.choice((0, 1, 7, 1 << 20, NUMBER_MAX)),
                "keys_lost": adversary.rng.random() < 0.5,
                "prekey": b64url(x25519_public(adversary.rng.randbytes(32))),
                "prekey_used": b64url(adversary.rng.randbytes(32)) if adversary.rng.random() < 0.5 else "",
            }
            shown = {key: value for key, value in body.items() if adversary.rng.random() < 0.7}
            adversary.send_message(name, SYNC, sync_body(adversary, group, **shown))
    return AttackResult()


def key_resets(adversary: Adversary) -> AttackResult | None:
    """Forget all keys, as after a restore, or the channels with some members."""
    group, victims = _healing(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    if adversary.rng.random() < 0.5:
        _act(adversary, lambda turn: channels.begin_anew(turn, group.id))
    else:
        for name in victims:
            member = adversary.members()[name]
            _act(adversary, lambda turn, member=member: channels.renew(turn, group.id, member))  # type: ignore[misc]
    adversary.commit(POST, {"text": f"after a reset of {adversary.name}"})
    return AttackResult()


def false_complaints(adversary: Adversary) -> AttackResult | None:
    """Complain about seeds that were right."""
    group, victims = _healing(adversary), sample_victims(adversary)
    if group is None or not victims or not group.dcgka.sent:
        return None
    event = adversary.rng.choice(list(group.dcgka.sent.values()))
    direct = adversary.rng.choice(list(event.pending.values()))
    body = {"group": group.id, "event": b64url(event.record), "direct": b64url(direct.message)}
    for name in victims:
        adversary.send_message(name, KEY_COMPLAINT, {**body, "key": b64url(adversary.rng.randbytes(32))})
    return AttackResult()


def garbage_under_keys(adversary: Adversary) -> AttackResult | None:
    """Send messages of known and unknown epochs that do not open, or whose content is malformed."""
    group, victims = _healing(adversary), sample_victims(adversary)
    if group is None or not victims or not group.dcgka.keys.epoch.event:
        return None
    sending = sending_key(group.dcgka.keys)
    runs = write_runs([adversary.event(POST, {"text": "x"})])
    for name in victims:
        epoch = adversary.rng.choice((sending.epoch, b64url(adversary.rng.randbytes(32))))
        key = adversary.rng.choice((sending.key, adversary.rng.randbytes(32)))
        place = Place(epoch, adversary.rng.choice((sending.number, 0, 700, 2**32 - 1)))
        body: dict[str, object] = (
            {"view": 7} if adversary.rng.random() < 0.5 else {"view": "", "have": [], "runs": runs}
        )
        adversary.deliver(name, seal(key, place, group.id, group.me, body))
    return AttackResult()


KEY_ATTACKS: Final = (
    different_seeds,
    withheld_keys,
    repeated_key_events,
    false_key_states,
    key_resets,
    false_complaints,
    garbage_under_keys,
)
"""All of them; in groups of other keys they cannot be tried."""
