"""What one member keeps of a group's key agreement: frozen records, each bounded."""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.crypto.prekeys import HeldPreKey
from zerochat.crypto.structs import Redacted
from zerochat.crypto.two_party import Channel
from zerochat.group.composite import Composite
from zerochat.group.key_agreement.key_schedule import NO_RATCHET
from zerochat.group.key_agreement.member_secrets import MemberSecrets

OPERATIONS_BYTES_MAX: Final = 4 << 20
"""Of all updates together that members may still adopt; of more, the oldest are erased. An update takes 8 bytes a
member and 32 for two at most, so there is room for 500 at once among 300 members, or for 350 among 1,000. A member that
adopts one which is erased elsewhere gives its ratchet again to those that ask for it."""
AUTHOR_INTERVAL_MS: Final = 60_000
AUTHOR_ADOPTED_MAX: Final = 8
"""Updates of one author in this interval that we adopt; further ones only replace their author's ratchet."""
AUTHOR_OPERATIONS_MAX: Final = 16
"""Updates of one author that are kept for members which adopt them, so that no author displaces those of others. The
oldest makes room for the next, but none that has come in this interval. There are more than we adopt: others may have
received some in another minute."""


class Membership(Struct, frozen=True):
    """The view of the group, by the membership events that are here."""

    members: frozenset[str]
    heads: tuple[str, ...]
    """At most `wire.HEADS_MAX`; `members` is the view at these."""
    at: Callable[[tuple[str, ...]], frozenset[str]]
    """The members by other heads, all of whose events are here."""
    exports: bool = False
    """Whether exported secrets are used (`export.py`)."""


class Operation(Struct, frozen=True):
    """An update that members may still adopt."""

    author: str
    control: tuple[str, ...]
    secrets: MemberSecrets
    """Each is erased once its member has adopted the update."""
    at: int
    """When it came, UTC ms."""

    def without(self, members: Iterable[str]) -> "Operation":
        """The same without the secrets of these members."""
        secrets = self.secrets.without(members)
        return self if secrets is self.secrets else replace(self, secrets=secrets)


class ExportedSecret(Redacted, frozen=True, dict=True):
    """The exported secret of an update (`export.py`). What is derived from it is kept with it."""

    REDACTED = ("secret",)

    secret: bytes
    control: tuple[str, ...]
    """The heads at which the update's author saw the members that it was for."""
    at: int
    """When it came, UTC ms."""


class SendingEpoch(Redacted, frozen=True):
    """The epoch in which we send."""

    REDACTED = ("chain_key",)

    event: str = ""
    """The id of our key event that began it; empty: there is none."""
    chain_key: bytes = b""
    sent: int = 0
    """Messages in this epoch."""


class ReceivingEpoch(Redacted, frozen=True):
    """An epoch of another author."""

    REDACTED = ("chain_key", "skipped")

    event: str
    """The id of the key event that began it."""
    chain_key: bytes
    next: int = 0
    """The number of the message that the chain key opens; messages count from 0."""
    skipped: tuple[tuple[int, bytes], ...] = ()
    """Keys of messages that have been overtaken, by number."""
    total: int | None = None
    """Messages in this epoch; None: it has not ended."""
    until: int = 0
    """When the keys of skipped messages and of an ended epoch are erased, UTC ms; 0: there are none."""


class ChannelResets(Redacted, frozen=True):
    """The resets of the channel with one member (`channel_reset.py`)."""

    REDACTED = ("prekeys",)

    sent: int = 0
    """The counter of our last one; 0: there is none."""
    at_number: int = 0
    """The number of our last key event then."""
    lost: bool = False
    """Whether it said that we had lost the channel."""
    confirmed: bool = False
    """Whether the member has taken it."""
    valid_from: int = 0
    """The number of the member's last key event then: the direct messages up to it need not open."""
    prekeys: tuple[bytes, ...] = ()
    """The secrets of the pre-keys in our last ones that the member has not used, newest first."""
    received: int = 0
    """The counter of the member's last one."""
    number: int = 0
    """The number of the member's last key event when it made that."""
    taken_at: int = 0
    """The number of our last key event when we took that."""


class Keys(Redacted, Composite, frozen=True):
    """The key agreement of one group at one member."""

    REDACTED = ("held", "ratchet", "ratchets")

    group: str
    me: str
    held: tuple[HeldPreKey, ...] = ()
    """Our last-resort pre-keys, newest first."""
    number: int = 0
    """Of our last key event."""
    ratchet: bytes = NO_RATCHET
    """Our own key ratchet."""
    knowers: frozenset[str] | None = None
    """The members that may know our ratchet: those who know a secret mixed into it, or were given it since. None: there
    is no secret in it yet."""
    synced: frozenset[str] = frozenset()
    """The members that follow our ratchet."""
    channels: dict[str, Channel] = field(default_factory=dict)
    """Pairwise channels by peer."""
    resets: dict[str, ChannelResets] = field(default_factory=dict)
    """By peer, where the members of the group do not all meet."""
    ratchets: dict[str, bytes] = field(default_factory=dict)
    """The ratchets of the authors that we follow."""
    numbers: dict[str, int] = field(default_factory=dict)
    """By author: the number of its last key event that was processed."""
    operations: dict[str, Operation] = field(default_factory=dict)
    """Updates by id, the oldest first."""
    pending: tuple[str, ...] = ()
    """Updates of others that we have not adopted yet, the oldest first."""
    exported: dict[str, ExportedSecret] = field(default_factory=dict)
    """By update."""
    wanted: frozenset[str] = frozenset()
    """Authors whose ratchets we lack though they count us in; our next event asks for them."""
    epoch: SendingEpoch = SendingEpoch()
    updated: int = 0
    """When our last update was made, UTC ms."""
    sent: int = 0
    """Our messages since."""
    receiving: dict[str, tuple[ReceivingEpoch, ...]] = field(default_factory=dict)
    """By author: its epochs with keys left, the oldest first."""
