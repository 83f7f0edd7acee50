"""Our content keys of a group (`links/content_keys.py`)."""

from msgspec import Struct

from zerochat.crypto.structs import Erasable, Redacted


class HeldContentKey(Redacted, frozen=True):
    """The secret of a content key."""

    REDACTED = ("secret",)

    secret: bytes
    """X25519."""
    made: int
    """UTC ms."""
    number: int
    """The same, but greater than those of all earlier keys, though a clock is set back."""


class ContentKeys(Erasable, frozen=True):
    """Our content keys of one group, the newest first."""

    REDACTED = ("linked", "mailed")

    linked: tuple[HeldContentKey, ...] = ()
    """For members that we exchange envelopes with over a link."""
    mailed: tuple[HeldContentKey, ...] = ()
    """For members that write to us over a mediator."""
    number: int = 0
    """Of the last key."""


class PeerContentKey(Struct, frozen=True):
    """The content key that a member announced last."""

    public: bytes = b""
    """X25519; empty: none yet."""
    number: int = 0
    """Earlier announcements, possibly replayed, are ignored."""
