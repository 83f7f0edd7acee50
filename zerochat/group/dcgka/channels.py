"""The pairwise channels of the key agreement: begun with one-time pre-keys in each `sync`, and begun anew after a loss.

Each `sync` names the sender's pre-key for the recipient, and the recipient's pre-key that the sender uses: together
they name the channel. A member that has lost its side (a restored backup, an older copy of the profile, a message that
does not open) offers a new pre-key. The other one then offers a new pre-key too, unless its own has not been used yet:
then that serves again, so that offers that cross converge. Nothing is signed for that: the relationship authenticates
the `sync`.

What was sent in the old channel is lost. The author gives its ratchet again, in the new one, before its next message.
"""

from typing import Any, Final

from msgspec.structs import replace

from zerochat.crypto import two_party
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import check_x25519_public, x25519_public
from zerochat.crypto.two_party import Channel
from zerochat.group.event_log.lamport import is_older
from zerochat.group.key_agreement.erasure import erase_members
from zerochat.group.key_agreement.key_schedule import NO_RATCHET
from zerochat.group.key_agreement.state import Keys, SendingEpoch
from zerochat.group.links import neighbours, rate_limits
from zerochat.group.state import Group
from zerochat.group.state.dcgka import PairPreKeys, PendingDirect, SentKeyEvent
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SyncBody

LOST_EVENTS_MAX: Final = 1 << 10
"""Key events that a lost copy of our profile may have made: about a year of updates."""
CLAIMED_EVENTS_MAX: Final = 1 << 20
"""How far one claim takes our number: without a bound, it could exhaust the numbers."""
ROUND_MS: Final = 3_600_000
"""The interval of erasing keys whose time is over."""
RENEWAL_INTERVAL_MS: Final = 30_000
"""We begin a channel anew at most once in this time: messages of the old one may still be under way."""


def keys_of(tx: Transaction, name: str) -> Keys:
    """The state of the key agreement, which begins at its first use."""
    group = tx.group(name)
    if not group.dcgka.keys.me:
        group = tx.update_dcgka(name, keys=Keys(name, group.me))
        tx.set_timer(TimerKind.KEY_ERASURE, name, ROUND_MS)
    return group.dcgka.keys


def _pair(tx: Transaction, name: str, member: str) -> PairPreKeys:
    """Our side of the channel with a member, which begins at its first use."""
    pair = tx.group(name).dcgka.pairs.get(member)
    return pair if pair is not None else _begin(tx, name, member, PairPreKeys(b""))


def _begin(tx: Transaction, name: str, member: str, pair: PairPreKeys) -> PairPreKeys:
    """Begin our side of a channel: a new pre-key. What was sent before, and not acknowledged, no longer opens."""
    keys, secret = keys_of(tx, name), tx.context.random(two_party.KEY_BYTES)
    pair = replace(pair, ours=x25519_public(secret))
    channels = {**keys.channels, member: Channel(offered=secret)}
    dcgka = tx.group(name).dcgka
    sent = {number: _without_direct(event, member) for number, event in dcgka.sent.items()}
    keys = replace(keys, channels=channels, synced=keys.synced - {member})
    tx.update_dcgka(name, keys=keys, pairs={**dcgka.pairs, member: pair}, sent=sent)
    return pair


def _without_direct(event: SentKeyEvent, member: str) -> SentKeyEvent:
    if member not in event.pending or not event.pending[member].message:
        return event
    return replace(event, pending={**event.pending, member: PendingDirect()})


def sync_fields(tx: Transaction, name: str, member: str) -> dict[str, Any]:
    """The fields of a `sync` about our key agreement with this member; they count as sent. On the ring the rest is
    routed (`ring_channels.py`)."""
    if neighbours.is_ring(tx.group(name)):
        return sent_field(tx.group(name))
    pair = _pair(tx, name, member)
    dcgka = tx.group(name).dcgka
    if member in dcgka.acks_due:
        tx.update_dcgka(name, acks_due=dcgka.acks_due - {member})
    keys, channel = dcgka.keys, dcgka.keys.channels.get(member)
    fields: dict[str, Any] = {"prekey": b64url(pair.ours), **sent_field(tx.group(name))}
    if channel is not None and channel.peer:
        fields["prekey_used"] = b64url(pair.theirs)
    if number := keys.numbers.get(member, 0):
        fields["key_events"] = number
        if member not in keys.ratchets:
            fields["keys_lost"] = True
    return fields


def sent_field(group: Group) -> dict[str, Any]:
    """The field that says how many messages we have sent in our epoch, and that they have our events up to a place."""
    epoch = group.dcgka.keys.epoch
    return {"sent": [epoch.event, epoch.sent, group.seq]} if epoch.event else {}


def receive_prekey(tx: Transaction, name: str, member: str, body: SyncBody) -> bool:
    """A member's `sync` names its pre-key, and ours that it uses. Returns whether it does not know ours yet. Raises
    Malformed."""
    if not body.prekey:
        return False
    theirs, used = b64url_bytes(body.prekey), b64url_bytes(body.prekey_used)
    check_x25519_public(theirs)
    pair = _pair(tx, name, member)
    if is_older(body.reach.at, pair.at, tx.now):
        return False
    channel = keys_of(tx, name).channels.get(member, Channel())
    if theirs == pair.theirs and (used != pair.ours or channel.peer):
        return used != pair.ours
    if not _is_fresh(channel):
        if not rate_limits.spend_statement(tx, name, member):
            return False
        pair = _begin(tx, name, member, pair)
    keys = keys_of(tx, name)
    channel = two_party.met(keys.channels[member].offered, theirs)
    pairs = {**tx.group(name).dcgka.pairs, member: replace(pair, theirs=theirs, at=body.reach.at)}
    tx.update_dcgka(name, keys=replace(keys, channels={**keys.channels, member: channel}), pairs=pairs)
    return used != pair.ours


def _is_fresh(channel: Channel) -> bool:
    """Whether nothing was sent or received in a channel."""
    return channel.index == 0 and not channel.given and bool(channel.offered)


def renew(tx: Transaction, name: str, member: str) -> bool:
    """Our side of the channel with a member is lost: begin it anew. Returns whether it was not just done."""
    pair = _pair(tx, name, member)
    if pair.renewed_at and 0 <= tx.now - pair.renewed_at < RENEWAL_INTERVAL_MS:
        return False
    _begin(tx, name, member, replace(pair, renewed_at=tx.now))
    return True


def forget(tx: Transaction, name: str, member: str) -> None:
    """The link to a former member is closed: erase what is kept for it and from it."""
    dcgka = tx.group(name).dcgka
    sent = {number: left for number, event in dcgka.sent.items() if (left := without_recipient(event, member)).pending}
    tx.update_dcgka(
        name,
        keys=erase_members(dcgka.keys, [member]),
        pairs={did: pair for did, pair in dcgka.pairs.items() if did != member},
        sent=sent,
        held={did: held for did, held in dcgka.held.items() if did != member},
        early={did: early for did, early in dcgka.early.items() if did != member},
        acks_due=dcgka.acks_due - {member},
    )


def without_recipient(event: SentKeyEvent, member: str) -> SentKeyEvent:
    """A key event of ours that this member need not be sent any more."""
    if member not in event.pending:
        return event
    return replace(event, pending={did: one for did, one in event.pending.items() if did != member})


def begin_anew(tx: Transaction, name: str) -> None:
    """Our state is, or may be, an older copy: forget our ratchet, all channels and the ratchets of others. Our key
    events go on beyond those that the lost copy may have made."""
    keys = keys_of(tx, name)
    if keys.number or keys.channels:
        keys = Keys(name, keys.me, number=keys.number + LOST_EVENTS_MAX, numbers=keys.numbers)
        tx.update_dcgka(name, keys=keys, pairs={}, sent={}, held={}, early={})


def on_claimed_number(tx: Transaction, name: str, member: str, number: int) -> bool:
    """A member has a key event of ours that we have not made: another copy of our profile has. Our keys go on beyond
    it, with an update, and in a new channel with that member; after false claims to the other copy, in several steps.
    This claim may be false, too: others still get the events that they lack. Returns whether that has just begun."""
    keys = keys_of(tx, name)
    if number <= keys.number or not rate_limits.spend_statement(tx, name, member):
        return False
    number = min(number, keys.number + CLAIMED_EVENTS_MAX)
    keys = replace(keys, number=number, ratchet=NO_RATCHET, knowers=None, synced=frozenset(), epoch=SendingEpoch())
    tx.update_dcgka(name, keys=keys)
    return renew(tx, name, member)


def lose(tx: Transaction, name: str, author: str) -> None:
    """An author's messages do not open with its ratchet as we follow it: our next `sync` says so."""
    keys = keys_of(tx, name)
    ratchets = {did: ratchet for did, ratchet in keys.ratchets.items() if did != author}
    tx.update_dcgka(name, keys=replace(keys, ratchets=ratchets))
