"""The stream: everything that a bot must not miss, in one order, with a durable cursor for each that reads it.

Events of the log and *happenings* (what is told besides the log, and is kept for a while) share the numbers `seq`. A
named consumer is given them as notifications `item`, and says with `ack` how far it has come. What it has not
acknowledged comes again, so everything is handled at least once.
"""

from typing import Any, Final, Literal

from msgspec import Struct, field

from zerochat.rpc.common import Author
from zerochat.rpc.events import Delivery, Quote, Reaction
from zerochat.rpc.files import Attachment

CREDIT: Final = 256
CREDIT_MAX: Final = 4096
CONSUMERS_MAX: Final = 64
CONSUMER_CHARS_MAX: Final = 64
HAPPENINGS_MAX: Final = 10_000
"""Happenings that are kept; then the oldest go."""
HAPPENINGS_MS_MAX: Final = 30 * 24 * 3600 * 1000
OVERFLOW_PERCENT: Final = 80
"""A consumer that has left so much of either limit unread is warned."""
KEYS_MAX: Final = 10_000
"""Idempotency keys that are remembered; then the oldest go."""
KEYS_MS_MAX: Final = 30 * 24 * 3600 * 1000
KEY_CHARS_MAX: Final = 128

HappeningType = Literal[
    "delivery",
    "gap",
    "gap_filled",
    "fork",
    "join_state",
    "invite_used",
    "request",
    "removed",
    "file",
    "dropped",
]

Since = Literal["last_acked", "now", "start"]


class SubscribeParams(Struct, frozen=True):
    """News from now on, or first whatever was delivered after local `since`. What was said before I came into a group
    is no news: `earlier` tells how much of it is here by now, and `history` has it.

    With `consumer`, everything durable comes as `item`, from behind what this consumer has last acknowledged, and the
    connection is its until it ends or subscribes anew. `since` then says where to begin: `last_acked` (the same as
    nothing; a consumer that is new begins now), or else its cursor is moved: `now`, `start` (all that is kept), or
    behind a number."""

    groups: list[str] | None = None
    """Only these groups, and what is no group's; nothing: all."""
    since: int | Since | None = None
    types: list[str] | None = None
    """Only these types of events and happenings, and these kinds of news; nothing: all."""
    consumer: str | None = None
    """1 to 64 letters, digits, dots, dashes and underscores, none of them capital."""
    credit: int = CREDIT
    """How many items may be on their way without an `ack`, 1 to 4096."""
    take: bool = False
    """Take the consumer over from another connection, which is told `taken`; else `ConsumerBusy` refuses it."""


class Item(Struct, frozen=True, kw_only=True):
    """Something durable, as a consumer is told: an event of the log, with everything that an `Event` says, or a
    happening, whose `id` is `h` and its number and which has a `body`, but no `author`. Readers skip types that they do
    not know, and acknowledge them.

    What others have handed over (`vouched`) may be given up before it is acknowledged, and come anew when its author
    has said it: then it has a new `seq` and the same `id`. A consumer that had acknowledged it is not told it again.

    The bodies of happenings; each has `nick` where it has a DID:
    `delivery`: {"member", "nick", "after", "upto", "all", "events"}: this member now has what I have said with
    positions after `after`, up to `upto`; `events` are [{"id", "position"}] of the messages among these (the last 100
    of them); up to the position `all`, everybody for whom it is has it.
    `gap`: {"author", "nick", "after", "upto", "state"}: these positions are missing (`asked`), or nobody who could be
    asked has them (`lost`). `gap_filled`: the same, with `filled`: they are here now.
    `fork`: {"author", "nick", "position"}: it has said two different things in one place.
    `join_state`: a `JoinStatus`, of a join of mine; `group` is empty until it is known.
    `invite_used`: {"nick", "uses_left", "invitation"}, as in `InvitationNews`. `request`: {"member", "nick", "role",
    "state"}, as in `RequestNews`.
    `removed`: {"by", "nick", "voters"}: I have been put out. `file`: {"event", "file"}, an `Attachment` that is whole
    now or has failed.
    `dropped`: {"from_seq", "to_seq", "count"}: so many happenings with these numbers were not acknowledged in time and
    are gone."""

    v: int = 1
    seq: int
    """Local and monotone: what `ack` takes."""
    type: str
    group: str
    """Empty for what is no group's."""
    id: str
    self: bool = False
    """I have said or done it myself, here or in another program."""
    replayed: bool = False
    """It was there before this subscription began."""
    late: bool = False
    complete: bool = True
    """Nothing was known to be missing in this group when this was told."""
    redelivered: bool = False
    """It was told to this consumer before, and not acknowledged."""
    attempt: int = 1
    """How often it was told to this consumer, as far as the agent knows; exact as long as the agent runs."""
    body: dict[str, Any]
    received_at: str
    """When it came, or happened."""
    author: Author | None = None
    """From here on: what an `Event` says more. None and empty in a happening."""
    position: int = 0
    lamport: int = 0
    parents: list[str] = field(default_factory=list)
    sent_at: str = ""
    then: str = ""
    reply_to: str | None = None
    quoted: Quote | None = None
    mentions: list[str] = field(default_factory=list)
    action: bool = False
    edited_at: str = ""
    deleted: bool = False
    reactions: list[Reaction] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    vouched: Author | None = None
    refuted: bool = False
    void: bool = False
    delivery: Delivery | None = None


class ConsumerInfo(Struct, frozen=True, kw_only=True):
    """A named consumer, one of the answer of `consumers`."""

    consumer: str
    acked: int
    behind: int
    """How many events and happenings there are that it has not acknowledged, of all types and groups; at most 10,000
    are counted."""
    connected: bool
    since: str
    """When it was made."""
    updated: str
    """When it has last acknowledged something, or was made."""
    credit: int = 0
    """How many items may be on their way to it; 0: it is not connected."""
    unread: int = 0
    """Of what it is behind: happenings, which are not kept for ever."""


class Subscribed(Struct, frozen=True):
    """Answer of `subscribe`."""

    latest: int = 0
    """The number of the last event or happening that there is: what has this one or a lower one is `replayed`."""
    consumer: ConsumerInfo | None = None


class AckParams(Struct, frozen=True):
    """Everything up to `seq` is handled. It is on disk when this is answered. What is acknowledged already stays so; a
    number that this consumer was never told is refused."""

    consumer: str
    seq: int


class Acked(Struct, frozen=True):
    """Answer of `ack`."""

    consumer: str
    acked: int
    """Everything up to this is handled, or was none of what this consumer wants: `seq`, or more."""


class ConsumerParams(Struct, frozen=True):
    consumer: str


class Overflow(Struct, frozen=True):
    """A consumer has left so many happenings unread that the oldest will be gone soon."""

    consumer: str
    unread: int
    left: int
    """So many more happenings, and the oldest that it has not read goes."""
    until: str
    """When that goes at the latest."""


class Taken(Struct, frozen=True):
    """Another connection has taken this consumer over. Nothing more comes to this one."""

    consumer: str


class Stopping(Struct, frozen=True):
    """The agent is about to end, and takes no new commands."""

    within_s: float
