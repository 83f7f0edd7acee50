"""Message keys: a hash ratchet for each author and epoch, with a bounded store for keys of overtaken messages.

Every key is handed out once and is gone from the state afterwards. The keys of overtaken messages are kept for a time
and up to a number; those of an epoch that has ended, until its last message has come (its successor says how many there
were), or for the same time. All are erased at once when the content of their messages has come another way (`settled`).
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from zerochat.crypto.structs import Redacted
from zerochat.errors import Refused
from zerochat.group.key_agreement.key_schedule import next_message
from zerochat.group.key_agreement.state import Keys, ReceivingEpoch, SendingEpoch

SKIPPED_MAX: Final = 128
"""Keys of overtaken messages that are kept for one epoch; the oldest are erased first."""
JUMP_MAX: Final = 1024
"""Messages that one message may overtake."""
EPOCHS_MAX: Final = 16
"""Epochs of one author with keys left; the oldest are erased first."""
RETENTION_MS: Final = 7 * 24 * 3_600_000
"""How long the keys of overtaken messages and of ended epochs are kept."""


class Sending(Redacted, frozen=True):
    """The key of our next message."""

    REDACTED = ("key",)

    keys: Keys
    epoch: str
    number: int
    key: bytes


def sending_key(keys: Keys) -> Sending:
    """The key of our next message, and the state without it. There must be an epoch (`production.produce`)."""
    epoch = keys.epoch
    assert epoch.event
    key, chain_key = next_message(epoch.chain_key)
    after = SendingEpoch(epoch.event, chain_key, epoch.sent + 1)
    return Sending(replace(keys, epoch=after, sent=keys.sent + 1), epoch.event, epoch.sent, key)


def known_epochs(keys: Keys, author: str) -> Iterator[str]:
    """The ids of an author's epochs that we have keys of, the newest first."""
    return (one.event for one in reversed(keys.receiving.get(author, ())))


def receiving_key(keys: Keys, author: str, epoch: str, number: int, now: int) -> tuple[Keys, bytes]:
    """The key of an author's message, and the state without it; to be kept only if the message opens with it.

    Raises Refused for a key that is not there: unknown, used, erased, or too far ahead.
    """
    epochs = keys.receiving.get(author, ())
    at, found = next(((at, one) for at, one in enumerate(epochs) if one.event == epoch), (0, None))
    if found is None:
        raise Refused(why="a message of an unknown epoch")
    after, key = _taken(found, number, now)
    left = (*epochs[:at], *([after] if _is_needed(after, now) else []), *epochs[at + 1 :])
    return replace(keys, receiving={**keys.receiving, author: left}), key


def _taken(epoch: ReceivingEpoch, number: int, now: int) -> tuple[ReceivingEpoch, bytes]:
    if number < epoch.next:
        key = dict(epoch.skipped).get(number)
        if key is None:
            raise Refused(why="a message whose key is used or erased")
        return replace(epoch, skipped=tuple(one for one in epoch.skipped if one[0] != number)), key
    if number - epoch.next > JUMP_MAX or (epoch.total is not None and number >= epoch.total):
        raise Refused(why="a message too far ahead in its epoch")
    skipped, chain_key, key = list(epoch.skipped), epoch.chain_key, b""
    for at in range(epoch.next, number + 1):
        key, chain_key = next_message(chain_key)
        if at < number:
            skipped.append((at, key))
    until = epoch.until or (now + RETENTION_MS if skipped else 0)
    last = tuple(skipped[-SKIPPED_MAX:])
    return replace(epoch, chain_key=chain_key, next=number + 1, skipped=last, until=until), key


def begun(
    epochs: tuple[ReceivingEpoch, ...], event: str, key: bytes, sent: int, now: int
) -> tuple[ReceivingEpoch, ...]:
    """An author's epochs after the next one has begun; `sent`: the messages of the one before."""
    if epochs and epochs[-1].total is None:
        epochs = (*epochs[:-1], replace(epochs[-1], total=max(sent, epochs[-1].next), until=now + RETENTION_MS))
    needed = [one for one in epochs if _is_needed(one, now)]
    return (*needed, ReceivingEpoch(event, key))[-EPOCHS_MAX:]


def interrupted(epochs: tuple[ReceivingEpoch, ...], sent: int, now: int) -> tuple[ReceivingEpoch, ...]:
    """An author's epochs after the next one has begun with a key that we do not have."""
    return begun(epochs, "", b"", sent, now)[:-1]


def steps(epochs: tuple[ReceivingEpoch, ...], epoch: str, number: int) -> int:
    """How many keys are derived at most, and kept or skipped, before that of the author's message with this number."""
    ahead = next((number - one.next for one in epochs if one.event == epoch), 0)
    return max(0, min(ahead, JUMP_MAX))


def settled(epochs: tuple[ReceivingEpoch, ...], epoch: str, sent: int) -> tuple[ReceivingEpoch, ...]:
    """An author's epochs once we have the content of its first messages in this epoch, so many, and of those in the
    epochs before: without their keys."""
    at = next((at for at, one in enumerate(epochs) if one.event == epoch), None)
    if at is None:
        return epochs
    one = epochs[at]
    if at == 0 and one.next >= sent and not any(number < sent for number, _ in one.skipped):
        return epochs
    chain_key, skipped = one.chain_key, tuple(each for each in one.skipped if each[0] >= sent)
    upto = min(sent, one.next + JUMP_MAX)
    for _ in range(one.next, upto):
        _, chain_key = next_message(chain_key)
    after = replace(one, chain_key=chain_key, next=max(one.next, upto), skipped=skipped)
    is_complete = after.total is not None and after.next >= after.total and not skipped
    return epochs[at + 1 :] if is_complete else (after, *epochs[at + 1 :])


def expired(epochs: tuple[ReceivingEpoch, ...], now: int) -> tuple[ReceivingEpoch, ...]:
    """An author's epochs without the keys whose time is over; after the clock was set back, none is kept for longer."""
    return tuple(_kept(epochs, now))


def _kept(epochs: tuple[ReceivingEpoch, ...], now: int) -> Iterator[ReceivingEpoch]:
    for one in epochs:
        if not _is_needed(one, now):
            continue
        if 0 < one.until <= now:
            yield replace(one, skipped=(), until=0)
        else:
            yield one if one.until <= now + RETENTION_MS else replace(one, until=now + RETENTION_MS)


def _is_needed(epoch: ReceivingEpoch, now: int) -> bool:
    """Whether messages may still come for which the epoch has keys."""
    if epoch.total is None:
        return True
    return epoch.until > now and (epoch.next < epoch.total or bool(epoch.skipped))
