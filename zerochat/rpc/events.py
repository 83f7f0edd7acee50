"""Events of a group's log: messages, membership changes and annotations."""

from typing import Any, Final, Literal, get_args

from msgspec import Struct, field

from zerochat.rpc.common import Author, Hops
from zerochat.rpc.files import Attachment
from zerochat.rpc.members import AnnouncedCommand

EventType = Literal[
    "group_created",
    "member_joined",
    "member_left",
    "member_removed",
    "removal_voted",
    "role_changed",
    "member_renamed",
    "terms_set",
    "keys_upgraded",
    "message",
    "message_edited",
    "message_deleted",
    "reacted",
    "topic_changed",
    "pins_changed",
    "commands_announced",
    "verdict_announced",
    "unknown",
]
EVENT_TYPES: Final[tuple[str, ...]] = get_args(EventType)


class Delivery(Struct, frozen=True):
    """How many other members are known to have an event: `delivered` of `of`."""

    delivered: int
    of: int


class Reaction(Struct, frozen=True):
    """An emoji and the members that reacted with it."""

    emoji: str
    by: list[str]
    """Their DIDs; of more than 64, mine (if I have reacted) and the first others."""
    count: int = 0
    """Their number."""


class Quote(Struct, frozen=True, kw_only=True):
    """The start of the message that another one replies to, in its current state."""

    id: str
    author: Author | None = None
    """Null: the message is not stored here."""
    text: str = ""
    deleted: bool = False


class Event(Struct, frozen=True, kw_only=True):
    """One event of a group's log.

    `type` is `group_created`, `member_joined`, `member_left`, `member_removed`, `removal_voted`, `role_changed`,
    `member_renamed`, `terms_set`, `keys_upgraded`, `message`, `message_edited`, `message_deleted`, `reacted`,
    `topic_changed`, `pins_changed`, `commands_announced` or `verdict_announced`, and `unknown` for types of later
    versions, which readers skip. A message has its annotations applied; subscribers receive `message_changed` when they
    change. Lists are in the total order (`lamport`, `author.did`, `id`), which is the same for every member.
    """

    v: int = 1
    seq: int
    """Local and monotone: the order of delivery. Use it as a cursor."""
    type: str
    group: str
    id: str
    author: Author
    position: int
    """The position in its author's chain, from 1."""
    lamport: int
    parents: list[str]
    sent_at: str
    received_at: str
    body: dict[str, Any]
    """`message`: {"text"}. `group_created`: {"name"}. `member_joined`: {"did", "nick", "role"}. `member_left`: {"did"}.
    `member_removed` and `removal_voted`: {"did", "nick"}. `role_changed`: {"did", "nick", "role"}. `member_renamed`:
    {"did", "nick", "was"}, the new and the previous display name. `terms_set`: {"operator", "witnesses"} of the
    transparency log, {"did", "nick"} each. `keys_upgraded`: {"keys", "final"}; `final` false: its author agrees, and
    more members must. Each `nick` is the name at that time. `message_edited`: {"target", "text"},
    the id of the message and its new text. `message_deleted`: {"target"}. `reacted`: {"target", "emoji", "on"}; `on`
    false: the reaction was removed. `topic_changed`: {"text"}. `pins_changed`: {"targets"}, the ids of
    the pinned messages. `commands_announced`: {"bot", "commands"}
    (`AnnounceParams`). `verdict_announced`: {"target", "outcome", "did", "nick"}, the author's verdict on a case
    (`list_cases` has your own)."""
    author_nick_then: str = ""
    """The author's display name at that time; `author.nick` is the current one. Empty for messages and annotations."""
    reply_to: str | None = None
    quoted: Quote | None = None
    """The message with the id `reply_to`."""
    mentions: list[str] = field(default_factory=list)
    """The DIDs of mentioned members; of `message_edited`: those that were not mentioned before."""
    action: bool = False
    """It describes an action of its author (`/me`)."""
    hops: int = 0
    """How many bots have answered each other up to this one; 0: it answers nothing. A bot that answers it sends one
    more, and ignores what has reached its limit (eight in `Bot`), so that loops between bots end."""
    edited_at: str = ""
    """When its author last edited it; empty: never. `body` has the edited text."""
    deleted: bool = False
    """Its author has deleted it: `body` has no text."""
    reactions: list[Reaction] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    """Its files; none of a deleted message."""
    self: bool = False
    replayed: bool = False
    """It comes from the log, not from a new delivery."""
    late: bool = False
    """It was delivered after events that follow it in the total order."""
    relayed_by: Author | None = None
    """The member that relayed it, while its author has not confirmed it; null: it is confirmed."""
    refuted: bool = False
    """Its author has signed another event at this position."""
    void: bool = False
    """It is not valid: its author was removed, or became a reader, as of an earlier position of its chain. New members
    do not receive it."""
    ignored: bool = False
    """It is a message or an annotation of a member that I ignore: clients do not show it (`ignore_member`)."""
    delivery: Delivery


class History(Struct, frozen=True):
    events: list[Event]
    more: bool
    """There are events before the first one."""
    newer: bool = False
    """There are events after the last one; only on pages requested with `after`, `around` or `at`."""


class Sent(Struct, frozen=True):
    group: str
    id: str
    lamport: int
    position: int
    of: int
    """The number of other members that it is sent to."""
    duplicate: bool = False
    """It was sent before under the same `key`; nothing was sent now."""


class MessageChanged(Struct, frozen=True):
    """A message whose annotations have changed, in its current state."""

    event: Event


class SendMessageParams(Struct, frozen=True):
    group: str
    text: str
    reply_to: str | None = None
    """The id of the message that it replies to, or a prefix of it."""
    action: bool = False
    key: str | None = None
    """An idempotency key of 1 to 128 printable ASCII characters. A request that repeats a key of the last 30 days in
    the same group is not carried out again, but gets the same result (`Sent.duplicate`). A different request with the
    same key is refused (`KeyReused`)."""
    hops: Hops = 0
    """0 to 255. For bots: one more than `Event.hops` of the event that is answered."""


class EditMessageParams(Struct, frozen=True):
    """Edit a message of mine."""

    group: str
    event: str
    text: str
    key: str | None = None
    hops: Hops = 0


class DeleteMessageParams(Struct, frozen=True):
    """Delete a message of mine."""

    group: str
    event: str
    key: str | None = None
    hops: Hops = 0


class ReactParams(Struct, frozen=True):
    """React to a message with an emoji, or (`on` false) remove the reaction."""

    group: str
    event: str
    emoji: str
    on: bool = True
    key: str | None = None
    hops: Hops = 0


class SetTopicParams(Struct, frozen=True):
    """Set the topic of a group; empty: remove it."""

    group: str
    text: str
    key: str | None = None
    hops: Hops = 0


class PinParams(Struct, frozen=True):
    """Pin a message for all members, or (`pinned` false) unpin it. A group has at most 20 pins; who may set the topic
    may pin. Of two members that pin at the same moment, the later list counts."""

    group: str
    event: str
    pinned: bool = True
    key: str | None = None
    hops: Hops = 0


class AnnounceParams(Struct, frozen=True):
    """Announce that this profile is a bot with these commands. It replaces the previous announcement of the same
    consumer; an empty one removes it. Members receive the commands of all consumers together: at most 32, of 4 kB in
    total. An unchanged announcement is sent again only where members have joined since.
    """

    group: str
    bot: bool = True
    commands: list[AnnouncedCommand] = field(default_factory=list)
    consumer: str = ""
    """The consumer whose commands they are, so that several bots of a profile keep theirs; empty: of none."""


class Announced(Struct, frozen=True):
    """The announcement is in effect."""

    group: str
    id: str = ""
    """The id of its event; empty: there was nothing to remove."""
    unchanged: bool = False
    """It was in effect already; nothing was sent."""


class HistoryParams(Struct, frozen=True):
    """A page of the log, oldest first: the newest `limit` events; those before the event `before`; those after the
    event `after`; or those around the event `around` or the time `at`. Only one of these can be given."""

    group: str
    limit: int = 100
    before: str | None = None
    after: str | None = None
    around: str | None = None
    at: int | None = None
    """Lamport time (normally UTC milliseconds). Where it is newer than every event: the newest events."""
