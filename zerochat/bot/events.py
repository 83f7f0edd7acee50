"""What a handler is given: a frozen view of one thing that has happened, and what it can do about it.

Text, names and everything else in it is exactly as its author wrote it. Before it is shown in a terminal or a log it
goes through `zerochat.terminal_text.printable`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zerochat import rpc
from zerochat.rpc.subscriptions import Item

if TYPE_CHECKING:
    from zerochat.bot.outgoing import Voice

PREFIX_MIN = 4
"""The letters of an id that may stand for all of it, as everywhere."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group that the bot is in."""

    id: str
    name: str
    _voice: "Voice" = field(repr=False, compare=False)
    shared: bool = field(default=False, compare=False)
    """Another group here is called the same: then only its id says that it is meant."""
    me: str = field(default="", repr=False, compare=False)
    """The DID of the bot's own profile in it."""

    def __str__(self) -> str:
        return self.name

    def answers_to(self, wanted: str) -> bool:
        """Whether it is meant by this name, this id, or the first letters of an id."""
        if wanted in (self.id, self.name):
            return wanted == self.id or not self.shared
        return len(wanted) >= PREFIX_MIN and self.id.startswith(wanted)

    async def say(self, text: str, *, files: Sequence[str | Path] = (), key: str | None = None) -> "Sent":
        """Say something there."""
        return await self._voice.say(self.id, text, files=files, key=key)

    async def members(self) -> list[rpc.MemberInfo]:
        """Who is in it, and what is known of each."""
        return await self._voice.members(self.id)


@dataclass(frozen=True, slots=True)
class Author:
    """A member. Its `nick` is its own choice and can be anybody's; its `did` is its key."""

    did: str
    nick: str = ""
    bot: bool = False
    verified: bool = False
    """I have compared words with it (`zerochat verify`)."""

    def __str__(self) -> str:
        return self.nick or self.did


@dataclass(frozen=True, slots=True)
class Receipts:
    """Who has a message. It is true when what was waited for has happened."""

    complete: bool
    delivered: int
    of: int
    members: tuple[rpc.MemberDelivery, ...]

    def __bool__(self) -> bool:
        return self.complete

    def __iter__(self) -> Iterator[rpc.MemberDelivery]:
        return iter(self.members)

    def __str__(self) -> str:
        return f"{self.delivered} of {self.of}"


@dataclass(frozen=True, slots=True)
class Sent:
    """Something that the bot has said. It is on disk already, and gets to whoever is away as soon as it can."""

    group: str
    id: str
    of: int
    """How many other members it is for."""
    again: bool = False
    """It was said before, by the same handler for the same event, and not a second time."""
    _voice: "Voice" = field(repr=False, compare=False, kw_only=True)

    async def delivered(self, to: int | Literal["all", "any"] = "all", timeout: float = 60.0) -> Receipts:
        """Wait until so many members have acknowledged it, at most `timeout` seconds: who has it, member by member."""
        return await self._voice.delivered(self.group, self.id, to, timeout)

    async def edit(self, text: str, *, key: str | None = None) -> "Sent":
        return await self._voice.edit(self.group, self.id, text, key=key)

    async def delete(self, *, key: str | None = None) -> "Sent":
        return await self._voice.delete(self.group, self.id, key=key)

    async def react(self, emoji: str, *, on: bool = True, key: str | None = None) -> "Sent":
        return await self._voice.react(self.group, self.id, emoji, on=on, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that has happened. `type` and `body` are as the agent tells them (`zerochat.rpc.subscriptions`)."""

    type: str
    id: str
    """The same for everybody in the group; of what only this agent knows, `h` and a number."""
    seq: int
    group: Group
    author: Author
    body: Mapping[str, Any] = field(repr=False)
    at: datetime
    """When it came here."""
    own: bool = False
    """The bot's own profile has said or done it."""
    replayed: bool = False
    late: bool = False
    """Something that stands below it was already here."""
    complete: bool = True
    """Nothing was known to be missing in this group when this was told."""
    redelivered: bool = False
    """It was given to this bot before, which ended or failed before it had handled it."""
    attempt: int = 1
    """1 for the first time that its handler is called, 2 for the next one."""
    vouched: bool = False
    """Another member has handed it over for its author, who has not confirmed it yet: it may be made up."""
    void: bool = False
    """It does not count: its author was put out, or made a reader, as of before it. Not everybody is shown it."""
    _voice: "Voice" = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event):
    """Somebody has said something."""

    text: str
    """As it stood when it was told; empty where its author has taken it back meanwhile."""
    args: tuple[str, ...] = ()
    """Of a command: the words behind its name."""
    match: re.Match[str] | None = field(default=None, compare=False)
    """Where `on_message` has a pattern: what it has found."""
    reply_to: str | None = None
    """The id of the message that it answers."""
    mentions: tuple[str, ...] = ()
    """The DIDs of those whom it calls by name."""
    attachments: tuple[rpc.Attachment, ...] = ()
    action: bool = False
    """It says what its author does (`/me`)."""
    deleted: bool = False

    async def reply(self, text: str, *, files: Sequence[str | Path] = (), key: str | None = None) -> Sent:
        """Answer it. Said once, also where the handler is called again (see `key` in the README)."""
        return await self._voice.say(self.group.id, text, reply_to=self.id, files=files, key=key)

    async def react(self, emoji: str, *, on: bool = True, key: str | None = None) -> Sent:
        """Answer it with an emoji, or take that back."""
        return await self._voice.react(self.group.id, self.id, emoji, on=on, key=key)

    async def edit(self, text: str, *, key: str | None = None) -> Sent:
        """Change it, where it is the bot's own."""
        return await self._voice.edit(self.group.id, self.id, text, key=key)

    async def delete(self, *, key: str | None = None) -> Sent:
        """Take it back, where it is the bot's own."""
        return await self._voice.delete(self.group.id, self.id, key=key)

    async def save(self, folder: str | Path = "", *, timeout: float = 600.0) -> list[Path]:
        """Fetch the files that come with it, and save them into a folder (empty: the downloads). Nothing is
        overwritten. Raises FilesMissing when not all of them are here after `timeout` seconds."""
        return await self._voice.save(self, folder, timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction(Event):
    """Somebody has answered a message with an emoji, or (not `on`) has taken that back."""

    message: str
    """The id of the message."""
    emoji: str
    on: bool = True

    async def reply(self, text: str, *, key: str | None = None) -> Sent:
        """Say something to the message that it is about."""
        return await self._voice.say(self.group.id, text, reply_to=self.message, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Event):
    """Somebody has come into a group. It is `own` where that is the bot's own profile, whoever has let it in."""

    member: Author

    async def say(self, text: str, *, key: str | None = None) -> Sent:
        """Say something to the group."""
        return await self._voice.say(self.group.id, text, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """A member now has messages of this profile."""

    member: Author
    messages: tuple[str, ...]
    """Their ids."""
    everyone: tuple[str, ...]
    """Those of them that everybody has by now for whom they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest(Event):
    """Somebody asks to be let in (`state` is `asked`), or does so no longer."""

    member: Author
    role: str
    state: str

    async def admit(self) -> None:
        """Let in whoever asks, under the name and in the role that were told here and no other."""
        await self._voice.answer(self, admit=True)

    async def refuse(self) -> None:
        await self._voice.answer(self, admit=False)


def event_of(item: Item | rpc.Event, group: Group, voice: "Voice", bots: Collection[str] = ()) -> Event:
    """The view of an item of the stream, or of an event of the log. Readers skip fields that they do not know. `bots`:
    the DIDs of members that say that they are bots."""
    body = item.body
    found = item.author
    author = Author("")
    if found is not None:
        author = Author(found.did, found.nick, found.bot or found.did in bots, found.verified)
    told: dict[str, Any] = {
        "type": item.type,
        "id": item.id,
        "seq": item.seq,
        "group": group,
        "author": author,
        "body": body,
        "at": datetime.fromisoformat(item.received_at),
        "own": item.self,
        "replayed": item.replayed,
        "late": item.late,
        "complete": getattr(item, "complete", True),
        "redelivered": getattr(item, "redelivered", False),
        "vouched": item.vouched is not None,
        "void": item.void,
        "_voice": voice,
    }
    match item.type:
        case "message":
            return Message(
                **told,
                text=str(body.get("text", "")),
                reply_to=item.reply_to,
                mentions=tuple(item.mentions),
                attachments=tuple(item.attachments),
                action=item.action,
                deleted=item.deleted,
            )
        case "reacted":
            return Reaction(**told, message=body.get("of", ""), emoji=body.get("emoji", ""), on=body.get("on", True))
        case "member_joined":
            told["own"] = group.me != "" and body.get("did") == group.me
            return Joined(**told, member=Author(body.get("did", ""), body.get("nick", "")))
        case "delivery":
            whose = Author(body.get("member", ""), body.get("nick", ""))
            ids = tuple(one["id"] for one in body.get("events", ()))
            everyone = tuple(one["id"] for one in body.get("events", ()) if one["position"] <= body.get("all", 0))
            return Delivered(**told, member=whose, messages=ids, everyone=everyone)
        case "request":
            whose = Author(body.get("member", ""), body.get("nick", ""))
            return JoinRequest(**told, member=whose, role=body.get("role", ""), state=body.get("state", ""))
    return Event(**told)
