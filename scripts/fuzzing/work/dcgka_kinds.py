"""Messages of a group whose keys heal: key events, pre-keys, and posts under message keys."""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from fuzzing.work.kinds import kind
from fuzzing.work.speaker import PACKER, Speaker
from zerochat.crypto import two_party
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.message import Message
from zerochat.group.dcgka import publisher
from zerochat.group.effects import Publish
from zerochat.group.event_log import tree_signature
from zerochat.group.event_log.event import Event
from zerochat.group.event_log.tree_signature import LEAVES_MAX
from zerochat.group.inputs import Received, StepContext
from zerochat.group.key_agreement.key_event import Directs, KeyEvent, pair_context
from zerochat.group.key_agreement.key_schedule import commitment
from zerochat.group.key_agreement.wire import direct_bytes, event_bytes
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.links import content_keys
from zerochat.group.membership import heads_of
from zerochat.group.state.content_keys import PeerContentKey
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX, write_runs
from zerochat.group.wire.files import FILE_PART
from zerochat.group.wire.messages import CONTENT, EVENTS, HISTORY_RESPONSE, KEY_COMPLAINT, KEY_EVENTS, SEALED, SYNC

_GROUP = "healing"


def _act(speaker: Speaker, act: Callable[[Transaction, str], object]) -> Transaction:
    """Let the rogue's agent do something."""
    tx = Transaction(speaker.agent, StepContext(speaker.now, speaker.random), {PACKER.name: PACKER})
    act(tx, speaker.ours(_GROUP).id)
    speaker.agent = tx.agent
    return tx


def _updates(speaker: Speaker, count: int) -> list[tuple[str, str]]:
    """The next updates of the rogue, with the direct messages for the machine."""
    made = []
    for _ in range(count):
        _act(speaker, lambda tx, name: publisher.make(tx, name, update=True))
        sent = speaker.mine(_GROUP).dcgka.sent
        event = sent[max(sent)]
        made.append((b64url(event.record), b64url(event.pending[speaker.ours(_GROUP).me].message)))
    return made


@kind(KEY_EVENTS)
def key_updates(speaker: Speaker, dice: Random) -> Received:
    """The next updates, some of them early."""
    before = 0 if dice.random() < 0.7 else 1 << 40
    events = _updates(speaker, dice.choice((1, 1, 16)))
    body = {"group": speaker.ours(_GROUP).id, "events": events, "before": before}
    return speaker.say(KEY_EVENTS, body, _GROUP)


@kind(KEY_EVENTS)
def key_events_that_do_not_open(speaker: Speaker, dice: Random) -> Received:
    """Updates whose direct messages are encrypted to other keys."""
    keys, machine = speaker.mine(_GROUP).dcgka.keys, speaker.ours(_GROUP).me
    channel = replace(keys.channels[machine], peer=x25519_public(speaker.random(32)))
    broken = replace(keys, channels={**keys.channels, machine: channel})
    _act(speaker, lambda tx, name: tx.update_dcgka(name, keys=broken))
    events = _updates(speaker, dice.choice((1, 1, 16)))
    return speaker.say(KEY_EVENTS, {"group": speaker.ours(_GROUP).id, "events": events, "before": 0}, _GROUP)


@kind(KEY_COMPLAINT)
def key_complaints(speaker: Speaker, dice: Random) -> Received:
    """The rogue proves that it has lied to itself, each time with another update."""
    group, me = speaker.ours(_GROUP), speaker.mine(_GROUP).me
    secret, pair = speaker.random(32), pair_context(group.id, me, me)
    channel = two_party.met(secret, x25519_public(secret))
    _, message = two_party.send(channel, pair, speaker.random(32), speaker.random)
    key = two_party.receive(channel, pair, message).key
    directs = Directs({me: message})
    event = KeyEvent(group.id, me, 1, (), (), 0, commitment(speaker.random(32)), (), (), directs.root, b"")
    event = replace(event, control=heads_of(group.control)).signed(speaker.mine(_GROUP).seed)
    direct = directs.direct(me)
    assert direct is not None
    shown = {"event": event_bytes(event), "direct": direct_bytes(direct), "key": key}
    body = {"group": group.id, **{name: b64url(value) for name, value in shown.items()}}
    return speaker.say(KEY_COMPLAINT, body, _GROUP)


@kind(SYNC)
def new_prekeys(speaker: Speaker, dice: Random) -> Received:
    """The rogue has lost its channel again and again."""
    ours = speaker.ours(_GROUP)
    body = {
        "group": ours.id,
        "view": ours.view.checksum,
        "have": [],
        "start_seq": 0,
        "acked": 0,
        "heads": [],
        "reach": {"pair": "", "queue": "", "at": speaker.now},
        "prekey": b64url(x25519_public(speaker.random(32))),
        "key_events": dice.choice((0, 1, 1 << 50)),
        "keys_lost": dice.random() < 0.5,
    }
    return speaker.say(SYNC, body, _GROUP)


def _signed(speaker: Speaker, events: list[Event], dice: Random) -> list[Event]:
    """Each by itself, all together, or each with the longest path, under a signature of its own."""
    seed, way = speaker.mine(_GROUP).seed, dice.choice(("alone", "together", "apart"))
    if way == "together" and len(events) > 1:
        return _together(events, seed)
    if way == "apart":
        return [_together([event] * LEAVES_MAX, seed)[0] for event in events[:20]]
    return [event.signed(seed) for event in events]


def _together(events: list[Event], seed: bytes) -> list[Event]:
    leaves = tree_signature.sign(seed, [event.id for event in events])
    return [event.with_signature(*signed) for event, signed in zip(events, leaves, strict=True)]


@kind(SEALED)
def sealed_posts(speaker: Speaker, dice: Random) -> Received:
    """The next message under the rogue's keys, or one of an epoch that never comes; as it is or in an envelope."""
    text = b64url(speaker.random(dice.choice((20, 1_000, 20_000))))
    count = dice.choice((1, 1, RUN_EVENTS_MAX if len(text) < 1_000 else 2))
    events = [speaker.event(body={"text": text}, where=_GROUP) for _ in range(count)]
    signed = _signed(speaker, events, dice)
    tx = _act(speaker, lambda tx, name: publisher.publish_sealed(tx, name, signed))
    written = next(effect.envelope for effect in tx.effects if isinstance(effect, Publish))
    if dice.random() < 0.4:
        place = Place(b64url(speaker.random(32)), 0)
        written = seal(speaker.random(32), place, speaker.ours(_GROUP).id, speaker.mine(_GROUP).me, {"text": text})
    if dice.random() < 0.5:
        return speaker.raw(written, _GROUP)
    return speaker.say(SEALED, {"message": b64url(written)}, _GROUP)


@kind(CONTENT)
def sealed_content(speaker: Speaker, dice: Random) -> Received:
    """Posts sent again, long and compressible ones among them; answers to no request; some to an erased key."""
    text = dice.choice(("a" * 80_000, b64url(speaker.random(200))))
    count = dice.choice((1, 1, RUN_EVENTS_MAX if len(text) < 1_000 else 2))
    events = _signed(speaker, [speaker.event(body={"text": text}, where=_GROUP) for _ in range(count)], dice)
    runs = write_runs(events, speaker.mine(_GROUP).me)
    kind_, body = dice.choice(
        (
            (EVENTS, {"runs": runs, "view": "", "have": []}),
            (HISTORY_RESPONSE, {"group": speaker.ours(_GROUP).id, "more": False, "runs": runs}),
            (FILE_PART, {"group": speaker.ours(_GROUP).id, "file": events[0].id, "part": 0, "data": text[:20_000]}),
        )
    )
    sealed: list[Message | None] = []

    def seal_for_machine(tx: Transaction, name: str) -> None:
        machine, key = speaker.ours(_GROUP), speaker.ours(_GROUP).content_keys.linked[0]
        tx.update_peer(name, machine.me, content_key=PeerContentKey(x25519_public(key.secret), key.number))
        sealed.append(content_keys.sealed(tx, name, machine.me, Message(type=kind_, id="1", body=body)))

    _act(speaker, seal_for_machine)
    assert sealed[0] is not None
    erased = {"key": b64url(speaker.random(8))} if dice.random() < 0.3 else {}
    return speaker.say(CONTENT, {**sealed[0].body, **erased}, _GROUP)
