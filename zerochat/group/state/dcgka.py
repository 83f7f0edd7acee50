"""The state of a group whose keys heal (`group/dcgka/`): the key agreement, and what is on its way."""

from msgspec import Struct, field

from zerochat.crypto.structs import Erasable, Redacted
from zerochat.group.key_agreement.state import Keys


class PairPreKeys(Struct, frozen=True):
    """The one-time pre-keys with which the channel of two members began: they name it."""

    ours: bytes
    """X25519 public key; the secret is in the channel until the member has used it."""
    theirs: bytes = b""
    """The member's; empty: not known yet."""
    at: int = 0
    """When the member wrote the last state that we have taken it from, UTC ms by its own clock."""
    renewed_at: int = 0
    """When we last began the channel anew, UTC ms; 0: never."""


class PendingDirect(Struct, frozen=True):
    """What a member is still to be sent with a key event of ours."""

    message: bytes = b""
    """Its direct message (`key_agreement.wire.direct_bytes`); empty: there is none."""


class SentKeyEvent(Struct, frozen=True):
    """A key event of ours that some members have not acknowledged. The journal stores each of them by itself."""

    record: bytes
    """`key_agreement.wire.event_bytes`."""
    pending: dict[str, PendingDirect]
    """By member that has not acknowledged it."""


class HeldKeyEvent(Struct, frozen=True):
    """A key event that waits for others."""

    record: bytes
    direct: bytes
    """Our direct message; empty: there is none."""
    before: int
    """The number of the author's previous event that it keeps for us; 0: none."""
    since: int
    """When it came, UTC ms."""


class HeldKeyEvents(Struct, frozen=True):
    """Key events of one author that wait. The journal stores each by itself."""

    events: dict[int, HeldKeyEvent] = field(default_factory=dict)
    """By number."""


class EarlyPost(Redacted, frozen=True):
    """A message of an epoch that is not known yet."""

    REDACTED = ("envelope",)

    envelope: bytes
    since: int
    """When it came, UTC ms."""
    end: int = 0
    """The place of its last event, if its author has signed that (`key_modes/forwarded.py`); 0: unknown."""


class EarlyPosts(Struct, frozen=True):
    """Early messages of one author. The journal stores each by itself."""

    messages: dict[bytes, EarlyPost] = field(default_factory=dict)
    """By epoch and number, as in their header."""

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(len(early.envelope) for early in self.messages.values())

    @property
    def end(self) -> int:
        """How long their author's chain is, as far as they show it."""
        return max((early.end for early in self.messages.values()), default=0)


class RingChannel(Struct, frozen=True):
    """The key agreement with one member of a group on the ring (`dcgka/ring_channels.py`)."""

    directs: dict[int, bytes] = field(default_factory=dict)
    """By number of our key event: the direct messages that the member has not acknowledged."""
    early: dict[int, bytes] = field(default_factory=dict)
    """By number of its key event: its direct messages for us that have overtaken the event."""
    tries: int = 0
    """Retransmissions since the member's last acknowledgement."""
    retry_at: int = 0
    """The time of the next one, UTC ms."""
    ack_at: int = 0
    """When we acknowledge the member's key events, or ask for them, UTC ms; 0: nothing is due."""
    acked_at: int = 0
    """When the member sent the last acknowledgement that has come, UTC ms by its clock."""


class Dcgka(Erasable, frozen=True):
    """The key agreement of a group with the keys `dcgka`; empty in all others, and in a restored backup."""

    keys: Keys = Keys("", "")
    pairs: dict[str, PairPreKeys] = field(default_factory=dict)
    """By member: the pre-keys of our channel with it."""
    ring: dict[str, RingChannel] = field(default_factory=dict)
    """By member, on the ring: what is under way."""
    sent: dict[int, SentKeyEvent] = field(default_factory=dict)
    """By number: our key events that some members have not acknowledged."""
    held: dict[str, HeldKeyEvents] = field(default_factory=dict)
    """By author: key events that wait for others."""
    early: dict[str, EarlyPosts] = field(default_factory=dict)
    """By author: messages that wait for a key event."""
    forgers: dict[str, str] = field(default_factory=dict)
    """By member that has provably sent different seeds: the id of such an update (`dcgka/complaints.py`)."""
    adoptions_left: int = 0
    """Key events of ours that others may still cause, beside those that removals require (`dcgka/publisher.py`)."""
    adoptions_at: int = 0
    """When that was computed, UTC ms; 0: the bucket is full."""
    acks_due: frozenset[str] = frozenset()
    """The members whose key events we have not acknowledged: only a `sync` does."""

    def early_end(self, author: str) -> int:
        """How long an author's chain is, as far as messages show it that wait for its key event; 0: unknown."""
        return self.early[author].end if author in self.early else 0
