"""Subscriptions: live notifications, and named consumers with durable cursors.

Events of the log and durable notifications share one sequence of numbers, `seq`. A named consumer receives them as
`item` notifications and acknowledges them. Unacknowledged items are sent again: delivery is at least once.
"""

from typing import Any, Final, Literal, get_args

from msgspec import Struct, field

from zerochat.rpc.common import Author
from zerochat.rpc.events import Delivery, Quote, Reaction
from zerochat.rpc.files import Attachment

CREDIT: Final = 256
CREDIT_MAX: Final = 4096
CONSUMERS_MAX: Final = 64
CONSUMER_CHARS_MAX: Final = 64
NOTIFICATIONS_MAX: Final = 10_000
"""Durable notifications that are kept; the oldest are dropped first."""
NOTIFICATIONS_MS_MAX: Final = 30 * 24 * 3600 * 1000
OVERFLOW_PERCENT: Final = 80
"""A consumer with this share of either limit unread is warned."""
KEYS_MAX: Final = 10_000
"""Idempotency keys that are kept; the oldest are dropped first."""
KEYS_MS_MAX: Final = 30 * 24 * 3600 * 1000
KEY_CHARS_MAX: Final = 128

ItemType = Literal[
    "delivery",
    "gap",
    "gap_filled",
    "fork",
    "join_changed",
    "invitation_used",
    "join_request",
    "private_invitation",
    "removed",
    "file_changed",
    "dropped",
]
ITEM_TYPES: Final[tuple[str, ...]] = get_args(ItemType)

Since = Literal["last_acked", "now", "start"]


class SubscribeParams(Struct, frozen=True):
    """Receive notifications from now on, or after the local seq `since`. Backfilled history is not sent: `backfill`
    reports it, and `get_history` returns it.

    With `consumer`, events and durable notifications arrive as `item`, after the last acknowledged one, until the
    connection ends or subscribes again. `since` then moves the cursor: `last_acked` (the default; a new consumer starts
    now), `now`, `start` (everything that is kept), or a number.
    """

    groups: list[str] | None = None
    """Only these groups and what belongs to no group; null: all."""
    since: int | Since | None = None
    types: list[str] | None = None
    """Only these types of events, items and notifications; null: all. An unknown type is refused (`UnknownType`)."""
    consumer: str | None = None
    """1 to 64 of a-z, 0-9, dot, hyphen and underscore."""
    credit: int = CREDIT
    """The number of unacknowledged items in flight, 1 to 4096."""
    take_over: bool = False
    """Take the consumer over from another connection, which receives `consumer_taken` and can then only read
    (`ConsumerTaken`) until it subscribes again; otherwise the request is refused (`ConsumerBusy`)."""


class Item(Struct, frozen=True, kw_only=True):
    """An item of a consumer: an event of the log with all fields of `Event`, or a durable notification with a `body`
    and no `author`, whose `id` is `h` and its number. Readers skip and acknowledge unknown types.

    A relayed event may be refuted before it is acknowledged, and be stored again once its author confirms it: it then
    has a new `seq` and the same `id`, and is not sent again to a consumer that had acknowledged it.

    The bodies of durable notifications; each DID comes with a `nick`: `delivery`: {"member", "nick", "after", "upto",
    "all", "events"}: this member now has my events after `after`, up to `upto`; `events` are [{"id", "position"}] of
    the messages among them (the last 100); all recipients have everything up to the position `all`; in a group of more
    than 64 members only where `all` has grown. `gap`: {"author", "nick", "after", "upto", "state"}: these positions are
    missing (`asked`), or no queried member has them (`lost`).
    `gap_filled`: the same with `filled`. `fork`: {"author", "nick", "position"}. `join_changed`: a `JoinStatus`;
    `group` is empty until it is known. `invitation_used`: {"nick", "uses_left", "invitation"}. `join_request`:
    {"member", "nick", "role", "state"}. `private_invitation`: {"member", "nick", "state"}. `removed`: {"by",
    "nick", "voters"}. `file_changed`: {"event", "file"}, an `Attachment` whose download is complete or has failed.
    `dropped`: {"from_seq", "to_seq", "count"}: notifications with these numbers were not acknowledged in time and
    are dropped.
    """

    v: int = 1
    seq: int
    """Local and monotone: the parameter of `acknowledge`."""
    type: str
    group: str
    """Empty for what belongs to no group."""
    id: str
    self: bool = False
    """It was caused by this profile, here or in another client."""
    replayed: bool = False
    """It existed before this subscription."""
    late: bool = False
    complete: bool = True
    """No event of the group was known to be missing when it was sent."""
    redelivered: bool = False
    """It was sent to this consumer before and not acknowledged."""
    attempt: int = 1
    """How often it was sent to this consumer; exact while the agent runs. `Bot` counts the attempts of its handlers
    itself, on disk."""
    body: dict[str, Any]
    received_at: str
    """When it was received or happened."""
    author: Author | None = None
    """From here on the further fields of `Event`; empty in a notification."""
    position: int = 0
    lamport: int = 0
    parents: list[str] = field(default_factory=list)
    sent_at: str = ""
    author_nick_then: str = ""
    reply_to: str | None = None
    quoted: Quote | None = None
    mentions: list[str] = field(default_factory=list)
    action: bool = False
    hops: int = 0
    edited_at: str = ""
    deleted: bool = False
    reactions: list[Reaction] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    relayed_by: Author | None = None
    refuted: bool = False
    void: bool = False
    ignored: bool = False
    delivery: Delivery | None = None


class ConsumerInfo(Struct, frozen=True, kw_only=True):
    """A named consumer."""

    consumer: str
    acked: int
    behind: int
    """The number of unacknowledged events and notifications of all types and groups, counted up to 10,000."""
    connected: bool
    since: str
    """When it was created."""
    updated: str
    """When it last acknowledged something, or was created."""
    credit: int = 0
    """The number of items in flight that it allows; 0: not connected."""
    unread: int = 0
    """The unacknowledged notifications, which are kept for a limited time."""


class Subscribed(Struct, frozen=True):
    latest: int = 0
    """The number of the last event or notification: items up to it are `replayed`."""
    consumer: ConsumerInfo | None = None


class AcknowledgeParams(Struct, frozen=True):
    """All items up to `seq` are processed. The acknowledgement is on disk when it is answered. A number that was never
    sent to the consumer is refused."""

    consumer: str
    seq: int


class AcknowledgeResult(Struct, frozen=True):
    consumer: str
    acked: int
    """Items up to this number are acknowledged or filtered out: `seq` or more."""


class ConsumerParams(Struct, frozen=True):
    consumer: str


class OverflowNotification(Struct, frozen=True):
    """A consumer has so many unread notifications that the oldest will soon be dropped."""

    consumer: str
    unread: int
    left: int
    """The number of further notifications until the oldest unread one is dropped."""
    until: str
    """When it is dropped at the latest."""


class ConsumerTakenNotification(Struct, frozen=True):
    """Another connection has taken the consumer over. This one receives no more items."""

    consumer: str


class StoppingNotification(Struct, frozen=True):
    """The agent is stopping and accepts no new commands."""

    within_s: float
    """0: the last line of this connection. Requests that have no answer by then were not carried out."""
