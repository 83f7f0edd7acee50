"""Settings of the core that a user may change: sender key rotation, indicators, disk quotas, delays of mail."""

from typing import Final

from msgspec import Struct

from zerochat.didcomm.protocols.mixing import Mix

MESSAGES_MAX: Final = 256
"""Messages per key (Megolm's clients rotate after a hundred)."""
DAYS_MAX: Final = 90
REMOVALS_MAX: Final = 16
DAY_MS: Final = 24 * 3_600_000


class KeyRotation(Struct, frozen=True):
    """A key is replaced before our next message when one of these limits is reached."""

    messages: int = MESSAGES_MAX
    """Messages under one key; those that distribute a key do not count."""
    days: int = 7
    """The age of the key, in days."""
    removals: int = 1
    """Members that left or were removed since the key was drawn.

    With 1, a former member can decrypt no later message. With more, it can until the key is replaced. We send it none
    of them, but a member could pass them on, or the former member may have recorded traffic.
    """


class Indicators(Struct, frozen=True):
    """Each works both ways: a user that does not send it does not see it either. Off by default."""

    read_receipts: bool = False
    """Send and show up to where messages are read."""
    typing: bool = False
    """Send and show that a user is typing."""


class FileRules(Struct, frozen=True):
    """The disk quota for files, in bytes. Only the user's settings change it, no message of a peer."""

    auto_max: int = 1 << 20
    """Files up to this size are fetched automatically; 0: none."""
    size_max: int = 64 << 20
    """Larger files are neither sent nor fetched."""
    total_max: int = 2 << 30
    """All stored files of all groups."""


class StorageRules(Struct, frozen=True):
    """The disk quota for everything else. Only the user's settings change it, no message of a peer."""

    daily_max: int = 1 << 30
    """The most bytes that one member may have stored here in a group and day; 0: there is no quota."""


class MailRules(Struct, frozen=True):
    """What a mediator is asked to do with our mail, against traffic analysis (`didcomm/protocols/routing.py`)."""

    delay_ms: int = 0
    """How long it is held; 0: not."""
    is_random: bool = True
    """Whether it is held for a random time up to that."""
    hop_chance: float = 0.0
    """The probability of a detour over another mediator; 0: none. Only zerochat mediators support it."""

    @property
    def delay_milli(self) -> int | None:
        """As in a forward."""
        return (-self.delay_ms if self.is_random else self.delay_ms) or None

    @property
    def mix(self) -> Mix | None:
        return Mix(self.hop_chance) if self.hop_chance else None
