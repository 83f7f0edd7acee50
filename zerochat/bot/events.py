"""Event objects passed to handlers: immutable, with methods to answer.

Text, names and all other content are exactly as the author wrote them. Pass them through
`zerochat.terminal_text.printable` before showing them in a terminal or log.
"""

import asyncio
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from zerochat import rpc
from zerochat.rpc.subscriptions import Item

PREFIX_MIN = 4
"""Minimum length of an abbreviated id."""


class Api(Protocol):
    """The requests that events make (`BotApi`)."""

    loop: asyncio.AbstractEventLoop

    async def send(
        self,
        group: "str | Group",
        text: str,
        *,
        reply_to: str | None = None,
        files: Sequence[str | Path] = (),
        key: str | None = None,
        hops: int = 0,
    ) -> "Sent": ...

    async def edit(self, group: "str | Group", event: str, text: str, *, key: str | None = None) -> "Sent": ...

    async def delete(self, group: "str | Group", event: str, *, key: str | None = None) -> "Sent": ...

    async def react(
        self, group: "str | Group", event: str, emoji: str, *, on: bool = True, key: str | None = None, hops: int = 0
    ) -> "Sent": ...

    async def members(self, group: "str | Group") -> list[rpc.MemberInfo]: ...

    async def delivered(
        self, group: str, event: str, to: int | Literal["all", "any"], timeout: float
    ) -> "Receipts": ...

    async def remove_member(self, group: "str | Group", member: "str | Author") -> rpc.VoteInfo: ...

    async def set_role(self, group: "str | Group", member: "str | Author", role: str) -> rpc.MemberInfo: ...

    async def answer_join_request(self, request: "JoinRequest", *, admit: bool) -> None: ...

    async def answer_private_invitation(self, invitation: "PrivateInvitation", *, accept: bool) -> None: ...

    async def save_files(self, message: "Message", folder: str | Path, timeout: float) -> list[Path]: ...


@dataclass(frozen=True, slots=True)
class Group:
    """A group that the bot is in."""

    id: str
    name: str
    _api: "Api" = field(repr=False, compare=False)
    shared: bool = field(default=False, compare=False)
    """Whether another group has the same name; then only the id identifies it."""
    me: str = field(default="", repr=False, compare=False)
    """The DID of the bot's profile in the group."""

    def __str__(self) -> str:
        return self.name

    def matches(self, wanted: str) -> bool:
        """Whether `wanted` is the group's name, its id, or a prefix of its id."""
        if wanted in (self.id, self.name):
            return wanted == self.id or not self.shared
        return len(wanted) >= PREFIX_MIN and self.id.startswith(wanted)

    async def send(self, text: str, *, files: Sequence[str | Path] = (), key: str | None = None) -> "Sent":
        """Send a message to the group."""
        return await self._api.send(self.id, text, files=files, key=key)

    async def members(self) -> list[rpc.MemberInfo]:
        """The members of the group."""
        return await self._api.members(self.id)

    async def remove(self, member: "str | Author") -> rpc.VoteInfo:
        """Remove a member (an `Author`, a `Member`, a DID or a name), or vote for it, as the rules of the group say.
        Removing a former member has no effect."""
        return await self._api.remove_member(self.id, member)

    async def set_role(self, member: "str | Author", role: str) -> rpc.MemberInfo:
        """Give a member the role `reader`, `writer` or `admin`."""
        return await self._api.set_role(self.id, member, role)


@dataclass(frozen=True, slots=True)
class Author:
    """A member. The `nick` is chosen freely and not unique; the `did` identifies the key."""

    did: str
    nick: str = ""
    bot: bool = False
    verified: bool = False
    """Whether the user has verified this member (`zerochat verify`)."""

    def __str__(self) -> str:
        return self.nick or self.did


@dataclass(frozen=True, slots=True)
class Receipts:
    """The delivery state of a message by member. True if the awaited deliveries happened."""

    complete: bool
    delivered: int
    of: int
    members: tuple[rpc.MemberDelivery, ...]
    """Its recipients, at most 64: those that lack it first."""

    def __bool__(self) -> bool:
        return self.complete

    def __iter__(self) -> Iterator[rpc.MemberDelivery]:
        return iter(self.members)

    def __str__(self) -> str:
        return f"{self.delivered} of {self.of}"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message or annotation that the bot has sent. It is on disk, and is delivered to offline members later."""

    group: str
    id: str
    of: int
    """Number of recipients."""
    duplicate: bool = False
    """Whether it was sent before by the same handler for the same event, and not again now."""
    _api: "Api" = field(repr=False, compare=False, kw_only=True)

    async def delivered(self, to: int | Literal["all", "any"] = "all", timeout: float = 60.0) -> Receipts:
        """Wait until `to` members have acknowledged it, at most `timeout` seconds. Returns the delivery state by
        member."""
        return await self._api.delivered(self.group, self.id, to, timeout)

    async def edit(self, text: str, *, key: str | None = None) -> "Sent":
        return await self._api.edit(self.group, self.id, text, key=key)

    async def delete(self, *, key: str | None = None) -> "Sent":
        return await self._api.delete(self.group, self.id, key=key)

    async def react(self, emoji: str, *, on: bool = True, key: str | None = None) -> "Sent":
        return await self._api.react(self.group, self.id, emoji, on=on, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened. `type` and `body` are as in `zerochat.rpc.subscriptions`."""

    type: str
    id: str
    """Event id, the same for every member; for events that only the agent or the bot knows (a gap, a timer), unique for
    this bot."""
    seq: int
    group: Group
    author: Author
    body: Mapping[str, Any] = field(repr=False)
    at: datetime
    """Time of arrival at this agent."""
    own: bool = False
    """Whether the bot's own profile caused it."""
    replayed: bool = False
    late: bool = False
    """Whether an event ordered after it arrived earlier."""
    complete: bool = True
    """Whether no gap was known in the group when the event was reported."""
    redelivered: bool = False
    """Whether an earlier run or attempt of this bot received it without handling it."""
    attempt: int = 1
    """Number of this attempt of the handler, from 1. Attempts of processes that were killed count."""
    unconfirmed: bool = False
    """Whether another member relayed it and the author has not confirmed it: it may be forged."""
    ignored: bool = False
    """Whether its author is ignored on this profile; handlers do not get it."""
    void: bool = False
    """Whether it does not count, because its author was removed or made a reader before it. Some members do not see
    it."""
    hops: int = 0
    """How many bots have answered each other up to this event; 0: it answers nothing. What a handler sends has one
    more."""
    _api: "Api" = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Quoted:
    """The message that another one answers, in its current state."""

    id: str
    author: Author | None
    """None: the message is not stored here."""
    text: str
    """The start of its text."""
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event):
    """A message."""

    text: str
    """Text when it was reported; empty if the author has deleted it since."""
    args: tuple[str, ...] = ()
    """For a command: the words after its name."""
    match: re.Match[str] | None = field(default=None, compare=False)
    """For `on_message` with a pattern: the match."""
    reply_to: str | None = None
    """Id of the message that it answers."""
    quoted: "Quoted | None" = None
    """The message that it answers."""
    mentions: tuple[str, ...] = ()
    """DIDs of the mentioned members."""
    attachments: tuple[rpc.Attachment, ...] = ()
    action: bool = False
    """Whether it describes an action (`/me`)."""
    deleted: bool = False

    async def reply(self, text: str, *, files: Sequence[str | Path] = (), key: str | None = None) -> Sent:
        """Answer the message. Sent once, even if the handler is called again (see `key` in the manual)."""
        return await self._api.send(self.group.id, text, reply_to=self.id, files=files, key=key, hops=self.hops + 1)

    async def react(self, emoji: str, *, on: bool = True, key: str | None = None) -> Sent:
        """Add a reaction, or remove it."""
        return await self._api.react(self.group.id, self.id, emoji, on=on, key=key, hops=self.hops + 1)

    async def edit(self, text: str, *, key: str | None = None) -> Sent:
        """Edit the bot's own message."""
        return await self._api.edit(self.group.id, self.id, text, key=key)

    async def delete(self, *, key: str | None = None) -> Sent:
        """Delete the bot's own message."""
        return await self._api.delete(self.group.id, self.id, key=key)

    async def save(self, folder: str | Path = "", *, timeout: float = 600.0) -> list[Path]:
        """Download the attachments and save them to a folder (empty: the download folder) without overwriting files.
        Raises FilesMissing if they are not complete after `timeout` seconds."""
        return await self._api.save_files(self, folder, timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction(Event):
    """A reaction that was added to a message or (not `on`) removed."""

    message: str
    """Id of the message."""
    emoji: str
    on: bool = True

    async def reply(self, text: str, *, key: str | None = None) -> Sent:
        """Answer the message that the reaction belongs to."""
        return await self._api.send(self.group.id, text, reply_to=self.message, key=key, hops=self.hops + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited(Event):
    """A message was edited by its author."""

    message: str
    """Id of the message."""
    text: str
    """Its new text."""
    mentions: tuple[str, ...] = ()
    """DIDs of the members that were not mentioned before."""

    async def reply(self, text: str, *, key: str | None = None) -> Sent:
        """Answer the message."""
        return await self._api.send(self.group.id, text, reply_to=self.message, key=key, hops=self.hops + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted(Event):
    """A message was deleted by its author."""

    message: str
    """Id of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Event):
    """A member left a group or was removed by the author. `own` if that member is the bot's own profile."""

    member: Author
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Event):
    """A member joined a group. `own` if that member is the bot's own profile."""

    member: Author

    async def send(self, text: str, *, key: str | None = None) -> Sent:
        """Send a message to the group."""
        return await self._api.send(self.group.id, text, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """A member has received messages of this profile."""

    member: Author
    messages: tuple[str, ...]
    """Ids of the messages."""
    everyone: tuple[str, ...]
    """The ids among them that every recipient has received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest(Event):
    """A request to join (`state` is `asked`), or its withdrawal."""

    member: Author
    role: str
    state: str

    async def admit(self) -> None:
        """Admit the member under exactly the name and role of this request."""
        await self._api.answer_join_request(self, admit=True)

    async def reject(self) -> None:
        await self._api.answer_join_request(self, admit=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateInvitation(Event):
    """A member invites this profile to a private conversation (`state` is `asked`), or that is settled."""

    member: Author
    state: str

    async def accept(self) -> None:
        """Join the conversation: its messages arrive like those of every group."""
        await self._api.answer_private_invitation(self, accept=True)

    async def decline(self) -> None:
        """The member is not told."""
        await self._api.answer_private_invitation(self, accept=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerEvent(Event):
    """A timer of `bot.set_timer` is due."""

    name: str
    data: Any
    """As given to `set_timer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent(Event):
    """A request to a webhook."""

    name: str
    """The path."""
    text: str
    """The content of the request."""
    headers: Mapping[str, str]
    """Some of its headers, with names in lower case."""

    def json(self) -> Any:
        """The content, decoded from JSON. Raises ValueError."""
        return json.loads(self.text)


def _quoted(quote: rpc.Quote | None) -> Quoted | None:
    if quote is None:
        return None
    by = quote.author
    author = None if by is None else Author(by.did, by.nick, by.bot, by.verified)
    return Quoted(quote.id, author, quote.text, quote.deleted)


def _common_fields(item: Item | rpc.Event, group: Group, api: "Api", bots: Collection[str]) -> dict[str, Any]:
    """The fields of every event."""
    info = item.author
    author = Author("")
    if info is not None:
        author = Author(info.did, info.nick, info.bot or info.did in bots, info.verified)
    return {
        "type": item.type,
        "id": item.id,
        "seq": item.seq,
        "group": group,
        "author": author,
        "body": item.body,
        "at": datetime.fromisoformat(item.received_at),
        "own": item.self,
        "replayed": item.replayed,
        "late": item.late,
        "complete": getattr(item, "complete", True),
        "redelivered": getattr(item, "redelivered", False),
        "unconfirmed": item.relayed_by is not None,
        "ignored": item.ignored,
        "void": item.void,
        "hops": item.hops,
        "_api": api,
    }


def event_from(item: Item | rpc.Event, group: Group, api: "Api", bots: Collection[str] = ()) -> Event:
    """The event object for an item of the stream or an event of the log. Unknown fields are ignored. `bots`: DIDs of
    members that announced themselves as bots."""
    body, fields = item.body, _common_fields(item, group, api, bots)
    author: Author = fields["author"]
    match item.type:
        case "message":
            return Message(
                **fields,
                text=str(body.get("text", "")),
                reply_to=item.reply_to,
                quoted=_quoted(item.quoted),
                mentions=tuple(item.mentions),
                attachments=tuple(item.attachments),
                action=item.action,
                deleted=item.deleted,
            )
        case "reacted":
            return Reaction(
                **fields, message=body.get("target", ""), emoji=body.get("emoji", ""), on=body.get("on", True)
            )
        case "message_edited":
            text, mentions = str(body.get("text", "")), tuple(item.mentions)
            return Edited(**fields, message=str(body.get("target", "")), text=text, mentions=mentions)
        case "message_deleted":
            return Deleted(**fields, message=str(body.get("target", "")))
        case "member_left" | "member_removed":
            did = str(body.get("did", author.did))
            fields["own"] = group.me != "" and did == group.me
            member = Author(did, str(body.get("nick", "")) or author.nick)
            return Left(**fields, member=member, removed=did != author.did)
        case "member_joined":
            fields["own"] = group.me != "" and body.get("did") == group.me
            return Joined(**fields, member=Author(body.get("did", ""), body.get("nick", "")))
        case "delivery":
            member = Author(body.get("member", ""), body.get("nick", ""))
            ids = tuple(one["id"] for one in body.get("events", ()))
            everyone = tuple(one["id"] for one in body.get("events", ()) if one["position"] <= body.get("all", 0))
            return Delivered(**fields, member=member, messages=ids, everyone=everyone)
        case "timer":
            fields["hops"] = body["hops"]
            return TimerEvent(**fields, name=body["name"], data=body["data"])
        case "webhook":
            return WebhookEvent(**fields, name=body["name"], text=body["text"], headers=body["headers"])
        case "join_request":
            member = Author(body.get("member", ""), body.get("nick", ""))
            return JoinRequest(**fields, member=member, role=body.get("role", ""), state=body.get("state", ""))
        case "private_invitation":
            member = Author(body.get("member", ""), body.get("nick", ""))
            return PrivateInvitation(**fields, member=member, state=body.get("state", ""))
    return Event(**fields)
