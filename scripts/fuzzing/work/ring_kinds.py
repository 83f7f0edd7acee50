"""Messages of a group on the ring: bundles of routed items, and key events that any member brings."""

from collections.abc import Iterator
from random import Random

from fuzzing.work.kinds import kind
from fuzzing.work.speaker import Speaker
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import x25519_public
from zerochat.group.inputs import Received
from zerochat.group.key_agreement.channel_reset import ChannelReset
from zerochat.group.key_agreement.key_event import Direct, KeyEvent
from zerochat.group.key_agreement.key_schedule import commitment
from zerochat.group.key_agreement.wire import direct_bytes, event_bytes
from zerochat.group.membership import heads_of
from zerochat.group.wire.messages import ACK_SETS, ACK_SETS_MAX, KEY_EVENTS, KEY_EVENTS_MAX, ROUTED
from zerochat.group.wire.routed import ITEMS_MAX, RoutedAck, RoutedItem, RoutedKind, bundles

_GROUP = "ring"


def _next_event(speaker: Speaker) -> KeyEvent:
    """The next update of the rogue, without direct messages."""
    group, mine = speaker.ours(_GROUP), speaker.mine(_GROUP)
    number = max(speaker.kept.get("ring event", 0), group.dcgka.keys.numbers.get(mine.me, 0)) + 1
    speaker.kept["ring event"] = number
    seed = commitment(speaker.random(32))
    root = speaker.random(32)
    return KeyEvent(group.id, mine.me, number, heads_of(group.control), (), 0, seed, (), (), root, b"").signed(
        mine.seed
    )


def _contents(speaker: Speaker, dice: Random) -> Iterator[tuple[RoutedKind, int, bytes]]:
    """Contents for the machine or for others."""
    while True:
        event = _next_event(speaker)
        match dice.choice([*RoutedKind]):
            case RoutedKind.DIRECT:
                direct = Direct("", speaker.random(153), 0, 1, ())
                yield RoutedKind.DIRECT, event.number, direct_bytes(direct)
            case RoutedKind.ACK:
                ack = RoutedAck(dice.random() < 0.5, dice.random() < 0.5, dice.choice((0, 1 << 50)), 0)
                yield RoutedKind.ACK, dice.choice((0, 1, 1 << 50)), ack.wire
            case RoutedKind.RESET:
                prekey = x25519_public(speaker.random(32))
                counter = speaker.kept["ring counter"] = max(speaker.now, speaker.kept.get("ring counter", 0) + 1)
                reset = ChannelReset(counter, 0, dice.random() < 0.5, prekey)
                yield RoutedKind.RESET, 0, reset.wire
            case RoutedKind.EVENT:
                yield RoutedKind.EVENT, event.number, event_bytes(event)


@kind(ROUTED)
def routed_items(speaker: Speaker, dice: Random) -> Received:
    """Items of the rogue for the machine, or for the third member."""
    group, mine = speaker.ours(_GROUP), speaker.mine(_GROUP)
    others = sorted(group.view.members.keys() - {mine.me})
    recipients = dice.choice(([group.me], others))
    items, contents = list[bytes](), _contents(speaker, dice)
    for _ in range(dice.choice((1, ITEMS_MAX))):
        at = speaker.kept["ring at"] = max(speaker.now, speaker.kept.get("ring at", 0) + 1)
        kind_, number, content = next(contents)
        item = RoutedItem(group.id, mine.me, dice.choice(recipients), kind_, number, at, content)
        items.append(item.signed(mine.seed).passed_by(mine.me).wire)
    bundle = next(bundles(items))
    return speaker.say(ROUTED, {"group": group.id, "items": [*map(b64url, bundle)]}, _GROUP)


@kind(KEY_EVENTS)
def key_events_along_the_ring(speaker: Speaker, dice: Random) -> Received:
    """The next updates, which wait for their direct messages."""
    count = dice.choice((1, KEY_EVENTS_MAX))
    events = [[b64url(event_bytes(_next_event(speaker))), ""] for _ in range(count)]
    return speaker.say(KEY_EVENTS, {"group": speaker.ours(_GROUP).id, "events": events, "before": 0}, _GROUP)


@kind(ACK_SETS)
def acknowledgement_sets(speaker: Speaker, dice: Random) -> Received:
    """The sets of members that have the chains, of some authors or as many as fit, often those that there are not."""
    group = speaker.ours(_GROUP)
    bits = b64url(speaker.random(dice.choice((1, 125))))
    sets = [
        [dice.randrange(4), dice.choice((1, 16, 256, 1 << 50)), bits] for _ in range(dice.choice((1, ACK_SETS_MAX)))
    ]
    positions = {"view": group.view.checksum, "have": []}
    return speaker.say(ACK_SETS, {"group": group.id, "ack_sets": sets, **positions}, _GROUP)
