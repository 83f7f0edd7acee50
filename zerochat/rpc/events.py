"""The events of a group's log: what was said and what happened, in pages and as it comes."""

from typing import Any

from msgspec import Struct, field

from zerochat.rpc.common import Author
from zerochat.rpc.files import Attachment
from zerochat.rpc.members import AnnouncedCommand


class Delivery(Struct, frozen=True):
    """How many of the other members are known to have an event: `delivered` of `of`."""

    delivered: int
    of: int


class Reaction(Struct, frozen=True):
    """What members have answered a message with: one emoji, and the DIDs of all who have."""

    emoji: str
    by: list[str]


class Quote(Struct, frozen=True, kw_only=True):
    """The message that another one answers, as it stands now, its beginning only."""

    id: str
    author: Author | None = None
    """None: it is not here."""
    text: str = ""
    deleted: bool = False


class Event(Struct, frozen=True, kw_only=True):
    """One event of a group's log.

    `type` is `group_created`, `member_joined`, `member_left`, `member_removed`, `removal_voted`, `role_changed`,
    `member_renamed`, `terms_set`, `message`, `message_edited`, `message_deleted`, `reacted`, `topic_changed`,
    `commands_announced` or `verdict_told`, and `unknown` for what a later version may have written; a reader skips
    types that it does not know. A message says how it stands now, with all that has become of it since; whoever
    follows the log hears of that again with each `amended`.
    Lists are ordered by (`lamport`, `author.did`, `id`), the order that every member sees.
    """

    v: int = 1
    seq: int
    """Local and monotone: the order in which this agent delivered. Use it as a cursor."""
    type: str
    group: str
    id: str
    author: Author
    position: int
    """The event's place in its author's chain, from 1."""
    lamport: int
    parents: list[str]
    sent_at: str
    received_at: str
    body: dict[str, Any]
    """`message`: {"text"}. `group_created`: {"name"}. `member_joined`: {"did", "nick", "role"}. `member_left`: {"did"}.
    `member_removed` and `removal_voted`: {"did", "nick"}, whom the author puts out, or wants out. `role_changed`:
    {"did", "nick", "role"}. `member_renamed`: {"did", "nick", "was"}, the author's new name and the one before.
    `terms_set`: {"operator", "witnesses"}, who keeps the group's log from then on, {"did", "nick"} each. Each
    `nick` is the name of that time. `message_edited`: {"of", "text"}, the id of the message and its new text.
    `message_deleted`: {"of"}. `reacted`: {"of", "emoji", "on"}; not `on`: taken back. `topic_changed`: {"text"}.
    `commands_announced`: {"bot", "commands"}, what its author says of itself (`AnnounceParams`). `verdict_told`:
    {"of", "outcome", "did", "nick"}, what its author says has come of a case, and against whom; `cases` says whether
    that is so."""
    then: str = ""
    """What the author was called at that time, while `author.nick` is what it is called now; empty for what is said."""
    reply_to: str | None = None
    quoted: Quote | None = None
    """The message with the id `reply_to`."""
    mentions: list[str] = field(default_factory=list)
    """The DIDs of those whom it calls by name; of `message_edited`: those whom the message has not called before."""
    action: bool = False
    """It says what its author does (`/me`)."""
    edited_at: str = ""
    """When its author has last changed it; empty: never. `body` has the text of then."""
    deleted: bool = False
    """Its author has taken it back: `body` has no text any more."""
    reactions: list[Reaction] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    """The files that come with it; none of a message that was taken back."""
    self: bool = False
    replayed: bool = False
    """True when it comes from the log, false when it has just been delivered."""
    late: bool = False
    """True when something that stands below it was already here."""
    vouched: Author | None = None
    """Who has handed it over, as long as its author has not confirmed it; None: it is the author's own word."""
    refuted: bool = False
    """True when its author has said something else in this place: it is nobody's word."""
    void: bool = False
    """True when it does not count: somebody has put its author out, or made it a reader, as of an earlier place of its
    chain. Not everybody is shown it, and newcomers do not get it."""
    delivery: Delivery


class History(Struct, frozen=True):
    events: list[Event]
    more: bool
    """True when there are older events than the first one."""
    newer: bool = False
    """True when there are newer events than the last one, on a page that was asked for behind or around something."""


class Sent(Struct, frozen=True):
    group: str
    id: str
    lamport: int
    position: int
    of: int
    """How many other members it is meant for."""
    again: bool = False
    """It was said before, under the same `key`, and nothing was said anew."""


class Amended(Struct, frozen=True):
    """A message that has been edited, deleted or reacted to, as it stands now."""

    event: Event


class SendParams(Struct, frozen=True):
    group: str
    text: str
    reply_to: str | None = None
    """The id of the message that it answers, or its first letters."""
    action: bool = False
    key: str | None = None
    """1 to 128 printable ASCII characters: what was asked under the same key within 30 days in the same group is not
    done again, but answered again (`Sent.again`). The same key for anything else is refused (`KeyReused`)."""


class EditParams(Struct, frozen=True):
    """Change one of my messages."""

    group: str
    event: str
    text: str
    key: str | None = None


class DeleteParams(Struct, frozen=True):
    """Take one of my messages back."""

    group: str
    event: str
    key: str | None = None


class ReactParams(Struct, frozen=True):
    """Answer a message with an emoji, or (not `on`) take that back."""

    group: str
    event: str
    emoji: str
    on: bool = True
    key: str | None = None


class TopicParams(Struct, frozen=True):
    """Say what the group is about; empty: nothing in particular."""

    group: str
    text: str
    key: str | None = None


class AnnounceParams(Struct, frozen=True):
    """Say of myself that I am a bot, and which commands I listen to: at most 32, of 4 kB in all. It takes the place of
    what I have announced before, and an empty one takes that back. The same again says nothing, unless somebody has
    come into the group since, who may not have heard it."""

    group: str
    bot: bool = True
    commands: list[AnnouncedCommand] = field(default_factory=list)


class Announced(Struct, frozen=True):
    """What I have announced of myself stands."""

    group: str
    id: str = ""
    """Of the event that says so; empty: there was nothing to take back."""
    again: bool = False
    """It stood so before, and nothing was said anew."""


class HistoryParams(Struct, frozen=True):
    """The newest `limit` events, oldest first; or those before (older than) the event `before`; those behind (newer
    than) the event `after`, the oldest of them; or those around the event `around`, or around a time. Only one of these
    can be asked for."""

    group: str
    limit: int = 100
    before: str | None = None
    after: str | None = None
    around: str | None = None
    at: int | None = None
    """Lamport time, which is UTC milliseconds: where nothing is as new as this, the newest events."""
