"""Channels with members that we never meet: begun with the contact key, and reset by signed pre-keys.

In a large group most members are no neighbours and exchange no one-time pre-keys. The first message to such a member is
encrypted to its *contact key*, the X25519 key of the DID in its ADD event, which its consent signs: a last-resort
pre-key (as in X3DH). Both sides may begin at once.

A *reset* carries a fresh pre-key of its author, to which the recipient encrypts its next message, and a counter. It
restarts one direction of a channel and leaves the other as it is, so resets that cross converge in any order. It is an
*offer*, to a new member or after a message to the contact key; or it says that its author has `lost` the channel, so
that what it was sent there no longer opens. The counter rises, so a replayed or overtaken reset is ignored. The
author's signature is that of the item which carries the reset (`wire/routed.py`).

Forward secrecy. A message to a pre-key of a reset cannot be opened once its recipient has opened it: the secret is
erased. A message to the contact key can, by a thief of the recipient's profile, for as long as the recipient is a
member, and whenever the profile was stolen; and after it the messages of the same direction until an offer has reached
their author. Such a message has the seed of an update, or its author's ratchet, hence the keys of that author's
messages until its next update. So the contact key serves only where no offer has come in time.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from zerochat.crypto import two_party
from zerochat.crypto.encoding import INTEGER_MAX, compact_msgpack
from zerochat.crypto.prekeys import HeldPreKey
from zerochat.crypto.primitives import check_x25519_public, x25519_public
from zerochat.crypto.two_party import Channel
from zerochat.errors import Malformed
from zerochat.group.key_agreement.state import ChannelResets, Keys
from zerochat.group.key_agreement.wire import parse_array

PREKEYS_MAX: Final = 2
"""Unused pre-keys of our resets that are kept for one member: the last, and the one before, which may cross it."""
RESET_BYTES_MAX: Final = 64

_Number = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]


class ChannelReset(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A reset, on its way from its author to one member."""

    counter: Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
    """UTC ms, or more: above that of the author's last reset for this member."""
    number: _Number
    """Of the author's last key event. Direct messages up to it do not change what is encrypted to."""
    lost: bool
    """Whether the author can no longer open what it was sent before."""
    prekey: Annotated[bytes, Meta(min_length=two_party.KEY_BYTES, max_length=two_party.KEY_BYTES)]

    @property
    def wire(self) -> bytes:
        return compact_msgpack(self)


def parse_reset(data: bytes) -> ChannelReset:
    """The reset in bytes from a member. Raises Malformed."""
    found = parse_array(data, ChannelReset, RESET_BYTES_MAX)
    check_x25519_public(found.prekey)
    return found


def with_channels(keys: Keys, contacts: Mapping[str, bytes]) -> Keys:
    """The state with a channel to each of these members, by their contact keys. One whose key is of low order gets
    none."""
    begun = {}
    for member, contact in contacts.items():
        if (known := keys.channels.get(member)) is None or not known.peer:
            with suppress(Malformed):
                begun[member] = two_party.reached(contact, known)
    return replace(keys, channels={**keys.channels, **begun}) if begun else keys


def offer(keys: Keys, member: str, now: int, random: Callable[[int], bytes]) -> tuple[Keys, ChannelReset]:
    """A pre-key for a member, and the state after it: the last one, where it is not used yet."""
    before = keys.resets.get(member, ChannelResets())
    if before.prekeys:
        return keys, _reset_of(before)
    return _made(keys, member, now, random, lost=False)


def reset(
    keys: Keys, member: str, now: int, random: Callable[[int], bytes], number: int = INTEGER_MAX
) -> tuple[Keys, ChannelReset | None]:
    """A member's direct message with its key event `number` does not open: our reset, and the state after it. None:
    the member has sent it before it took our last reset. If that was an offer, the member does not know that we lack
    its ratchet, which our next event then asks for.

    A reset that is not confirmed serves again. What we send goes on; if that is lost, too, remove the channel before.
    """
    before = keys.resets.get(member, ChannelResets())
    if before.confirmed and number <= before.valid_from:
        return keys if before.lost else replace(keys, wanted=keys.wanted | {member}), None
    if before.lost and before.prekeys and not before.confirmed:
        return keys, _reset_of(before)
    keys, made = _made(keys, member, now, random, lost=True)
    if (channel := keys.channels.get(member)) is not None:
        keys = replace(keys, channels={**keys.channels, member: replace(channel, given=b"")})
    return keys, made


def _made(
    keys: Keys, member: str, now: int, random: Callable[[int], bytes], *, lost: bool
) -> tuple[Keys, ChannelReset]:
    before = keys.resets.get(member, ChannelResets())
    after = replace(
        before,
        sent=min(max(now, before.sent + 1), INTEGER_MAX),
        at_number=keys.number,
        prekeys=(random(two_party.KEY_BYTES), *before.prekeys)[:PREKEYS_MAX],
        lost=lost,
        confirmed=False,
    )
    return replace(keys, resets={**keys.resets, member: after}), _reset_of(after)


def pending_reset(keys: Keys, member: str) -> ChannelReset | None:
    """The last reset of the channel with a member, until the member has confirmed it."""
    return _reset_of(keys.resets[member]) if is_pending(keys, member) else None


def is_pending(keys: Keys, member: str) -> bool:
    """Whether a member has not confirmed our last reset."""
    resets = keys.resets.get(member)
    return resets is not None and not resets.confirmed and bool(resets.prekeys)


def _reset_of(resets: ChannelResets) -> ChannelReset:
    return ChannelReset(resets.sent, resets.at_number, resets.lost, x25519_public(resets.prekeys[0]))


def receive_reset(keys: Keys, member: str, reset: ChannelReset) -> Keys | None:
    """The state after a member's reset; None: it is a replay, or an older one. Raises Malformed.

    After a loss the member needs our ratchet again, and direct messages on their way to it are in vain. An
    offer of ours is due: the member may have forgotten how far our resets count, and a replay of an earlier one
    would name a pre-key that is used.
    """
    before = keys.resets.get(member, ChannelResets())
    if reset.counter <= before.received:
        return None
    left = keys.channels.get(member, Channel())
    channel = replace(two_party.reached(reset.prekey, left), given=left.given)
    after = replace(
        before,
        received=reset.counter,
        number=reset.number,
        taken_at=keys.number,
        confirmed=before.confirmed and not reset.lost,
    )
    return replace(
        keys,
        channels={**keys.channels, member: channel},
        resets={**keys.resets, member: after},
        synced=keys.synced - {member} if reset.lost else keys.synced,
    )


def is_beyond(keys: Keys, member: str, counter: int) -> bool:
    """Whether a member has a reset of ours that we have not made: another copy of our profile has."""
    return counter > keys.resets.get(member, ChannelResets()).sent


def go_beyond(keys: Keys, member: str, counter: int) -> Keys:
    """The state in which our next reset for a member counts from beyond this."""
    before = keys.resets.get(member, ChannelResets())
    sent = max(before.sent, min(counter, INTEGER_MAX - 1))
    return replace(keys, resets={**keys.resets, member: replace(before, sent=sent, lost=False, confirmed=False)})


def taken(keys: Keys, member: str) -> tuple[int, int]:
    """What we confirm to a member: the counter of its last reset that we have taken, and our number then."""
    resets = keys.resets.get(member, ChannelResets())
    return resets.received, resets.taken_at


def confirm(keys: Keys, member: str, counter: int, number: int) -> Keys:
    """The state after a member has said that it has taken our reset with this counter after its key event `number`."""
    before = keys.resets.get(member)
    if before is None or before.confirmed or counter != before.sent:
        return keys
    return replace(keys, resets={**keys.resets, member: replace(before, confirmed=True, valid_from=number)})


# --- opening --------------------------------------------------------------------------------------------------------


def held_for(keys: Keys, member: str, contact: bytes) -> tuple[HeldPreKey, ...]:
    """The pre-keys that a message of this member may be encrypted to. `contact`: the secret of our contact key; empty:
    the group's members all meet."""
    resets = keys.resets.get(member, ChannelResets())
    secrets = (*resets.prekeys, contact) if contact else resets.prekeys
    return (*keys.held, *(HeldPreKey(secret, 0) for secret in secrets))


def after_opening(keys: Keys, member: str, number: int, message: bytes, opened: Channel) -> Keys:
    """The state after a message of this member, with its key event `number`, has been opened, and has left this
    channel: the pre-key that it was encrypted to is erased, with older ones. A message from before the member's last
    reset does not change what we encrypt to."""
    resets = keys.resets.get(member)
    if resets is None:
        return replace(keys, channels={**keys.channels, member: opened})
    if number <= resets.number and (kept := keys.channels.get(member)) is not None:
        opened = replace(opened, peer=kept.peer, header=kept.header)
    used = next((at for at, one in enumerate(resets.prekeys) if two_party.is_to(message, x25519_public(one))), None)
    if used is not None:
        resets = replace(resets, prekeys=resets.prekeys[:used])
        if used == 0 and not resets.confirmed:
            resets = replace(resets, confirmed=True, valid_from=number - 1)
    return replace(keys, channels={**keys.channels, member: opened}, resets={**keys.resets, member: resets})


def is_to_contact(message: bytes, contact: bytes) -> bool:
    """Whether a message was encrypted to our contact key, so that an offer is due. `contact`: its secret, or empty."""
    return bool(contact) and two_party.is_to(message, x25519_public(contact))
