"""The events of a group's log: what was said and what happened, in pages and as it comes."""

from typing import Any

from msgspec import Struct, field

from zerochat.agent.schema.common import Author


class Delivery(Struct, frozen=True):
    """How many of the other members are known to have an event: `delivered` of `of`."""

    delivered: int
    of: int


class Event(Struct, frozen=True, kw_only=True):
    """One event of a group's log.

    `type` is `group_created`, `member_joined`, `member_left`, `member_removed`, `removal_voted`, `role_changed`,
    `member_renamed` or `message`, and `unknown` for what a later version may have written; a reader skips types that it
    does not know.
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
    {"did", "nick", "role"}. `member_renamed`: {"did", "nick", "was"}, the author's new name and the one before. Each
    `nick` is the name of that time."""
    then: str = ""
    """What the author was called at that time, while `author.nick` is what it is called now; empty for a message."""
    reply_to: str | None = None
    mentions: list[str] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    self: bool = False
    replayed: bool = False
    """True when it comes from the log, false when it has just been delivered."""
    late: bool = False
    """True when something that stands below it was already here."""
    vouched: Author | None = None
    """Who has handed it over, as long as its author has not confirmed it; None: it is the author's own word."""
    refuted: bool = False
    """True when its author has said something else in this place: it is nobody's word."""
    delivery: Delivery


class History(Struct, frozen=True):
    events: list[Event]
    more: bool
    """True when there are older events than the first one."""


class Sent(Struct, frozen=True):
    group: str
    id: str
    lamport: int
    position: int
    of: int
    """How many other members it is meant for."""


class SendParams(Struct, frozen=True):
    group: str
    text: str


class HistoryParams(Struct, frozen=True):
    """The newest `limit` events, or those before (older than) the event `before`, oldest first."""

    group: str
    limit: int = 100
    before: str | None = None


class SubscribeParams(Struct, frozen=True):
    """News from now on, or first whatever was delivered after local `since`. What was said before I came into a group
    is no news: `earlier` tells how much of it is here by now, and `history` has it."""

    groups: list[str] | None = None
    since: int | None = None
