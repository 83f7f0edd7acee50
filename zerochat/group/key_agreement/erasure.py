"""Erasing keys by time, and with members."""

from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from zerochat.crypto.prekeys import LIFETIME_MS, MARGIN_MS
from zerochat.group.key_agreement.export import unexpired
from zerochat.group.key_agreement.message_keys import expired
from zerochat.group.key_agreement.state import Keys

OPERATION_MS: Final = LIFETIME_MS
"""How long an update can be adopted. A member that adopts an older one is not followed until its next update."""


def erase_expired(keys: Keys, now: int) -> Keys:
    """The state without keys whose time is over: of overtaken messages, ended epochs, updates and pre-keys. After the
    clock was set back, none is kept for longer than one from now."""
    operations = {
        name: one if one.at <= now else replace(one, at=now)
        for name, one in keys.operations.items()
        if now < one.at + OPERATION_MS
    }
    receiving = {author: expired(epochs, now) for author, epochs in keys.receiving.items()}
    return replace(
        keys,
        held=tuple(one for one in keys.held if -MARGIN_MS <= one.until - now <= LIFETIME_MS + MARGIN_MS),
        operations=operations,
        exported=unexpired(keys.exported, now, OPERATION_MS),
        pending=tuple(name for name in keys.pending if name in operations),
        receiving={author: epochs for author, epochs in receiving.items() if epochs},
    )


def erase_members(keys: Keys, members: Collection[str]) -> Keys:
    """The state without the keys of these former members; their numbers stay, against replays."""
    gone = set(members)
    operations = {name: one.without(gone) for name, one in keys.operations.items()}
    return replace(
        keys,
        synced=keys.synced - gone,
        channels={did: one for did, one in keys.channels.items() if did not in gone},
        resets={did: one for did, one in keys.resets.items() if did not in gone},
        ratchets={did: one for did, one in keys.ratchets.items() if did not in gone},
        operations=operations,
        wanted=keys.wanted - gone,
        receiving={did: one for did, one in keys.receiving.items() if did not in gone},
    )
