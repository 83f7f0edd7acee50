"""Blocking variants of events and requests, for handlers that are ordinary functions.

Such a handler runs in a thread and receives an event whose methods block: annotate it as `SyncMessage`. Scripts use
`SyncBot` (`script.py`).
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from zerochat import rpc
from zerochat.bot.api import BotApi
from zerochat.bot.events import (
    Api,
    Author,
    Edited,
    Event,
    Group,
    Joined,
    JoinRequest,
    Message,
    PrivateInvitation,
    Reaction,
    Receipts,
    Sent,
)
from zerochat.bot.members import Member
from zerochat.errors import LocalError

T = TypeVar("T")


class BlockingInEventLoop(LocalError):
    """This call would block the event loop. In a coroutine, `await` the method of the message or of the bot instead."""


def wait(api: Api, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the bot's event loop and wait for its result in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        count_waiting = getattr(api.loop, "count_waiting", None)  # virtual time must know that this thread waits
        counted: Coroutine[Any, Any, T] = work if count_waiting is None else count_waiting(work)
        return asyncio.run_coroutine_threadsafe(counted, api.loop).result()
    work.close()
    raise BlockingInEventLoop


@dataclass(frozen=True, slots=True)
class SyncSent(Sent):
    """`Sent` with blocking methods."""

    def delivered(self, to: int | Literal["all", "any"] = "all", timeout: float = 60.0) -> Receipts:  # type: ignore[override]
        return wait(self._api, Sent.delivered(self, to, timeout))

    def edit(self, text: str, *, key: str | None = None) -> "SyncSent":  # type: ignore[override]
        return _sent(self._api, Sent.edit(self, text, key=key))

    def delete(self, *, key: str | None = None) -> "SyncSent":  # type: ignore[override]
        return _sent(self._api, Sent.delete(self, key=key))

    def react(self, emoji: str, *, on: bool = True, key: str | None = None) -> "SyncSent":  # type: ignore[override]
        return _sent(self._api, Sent.react(self, emoji, on=on, key=key))


def _sent(api: Api, work: Coroutine[Any, Any, Sent]) -> SyncSent:
    found = wait(api, work)
    return SyncSent(found.group, found.id, found.of, found.duplicate, _api=api)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncMessage(Message):
    """`Message` with blocking methods."""

    def reply(self, text: str, *, files: Sequence[str | Path] = (), key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._api, Message.reply(self, text, files=files, key=key))

    def react(self, emoji: str, *, on: bool = True, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._api, Message.react(self, emoji, on=on, key=key))

    def edit(self, text: str, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._api, Message.edit(self, text, key=key))

    def delete(self, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._api, Message.delete(self, key=key))

    def save(self, folder: str | Path = "", *, timeout: float = 600.0) -> list[Path]:  # type: ignore[override]
        return wait(self._api, Message.save(self, folder, timeout=timeout))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReaction(Reaction):
    """`Reaction` with blocking methods."""

    def reply(self, text: str, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._api, Reaction.reply(self, text, key=key))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncJoined(Joined):
    """`Joined` with blocking methods."""

    def send(self, text: str, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._api, Joined.send(self, text, key=key))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncJoinRequest(JoinRequest):
    """`JoinRequest` with blocking methods."""

    def admit(self) -> None:  # type: ignore[override]
        wait(self._api, JoinRequest.admit(self))

    def reject(self) -> None:  # type: ignore[override]
        wait(self._api, JoinRequest.reject(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPrivateInvitation(PrivateInvitation):
    """`PrivateInvitation` with blocking methods."""

    def accept(self) -> None:  # type: ignore[override]
        wait(self._api, PrivateInvitation.accept(self))

    def decline(self) -> None:  # type: ignore[override]
        wait(self._api, PrivateInvitation.decline(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncEdited(Edited):
    """`Edited` with blocking methods."""

    def reply(self, text: str, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._api, Edited.reply(self, text, key=key))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncMember(Member):
    """`Member` with blocking methods."""

    def remove(self) -> rpc.VoteInfo:  # type: ignore[override]
        return wait(self._api, Member.remove(self))

    def set_role(self, role: str) -> rpc.MemberInfo:  # type: ignore[override]
        return wait(self._api, Member.set_role(self, role))


_VIEWS: dict[type[Event], type[Event]] = {
    Message: SyncMessage,
    Reaction: SyncReaction,
    Edited: SyncEdited,
    Joined: SyncJoined,
    JoinRequest: SyncJoinRequest,
    PrivateInvitation: SyncPrivateInvitation,
}


def blocking_view(event: Event) -> Event:
    """The same event with blocking methods."""
    kind = _VIEWS.get(type(event))
    return event if kind is None else kind(**{one.name: getattr(event, one.name) for one in fields(event)})


def blocking_member(member: Member) -> SyncMember:
    """The same member with blocking methods."""
    return SyncMember(**{one.name: getattr(member, one.name) for one in fields(member)})


class SyncApi:
    """`bot.sync`: blocking requests."""

    def __init__(self, api: BotApi) -> None:
        self._api = api

    def send(
        self, group: str | Group, text: str, *, files: Sequence[str | Path] = (), key: str | None = None, hops: int = 0
    ) -> SyncSent:
        """`hops`: at least this hop count; a handler's own is known."""
        return _sent(self._api, self._api.send(group, text, files=files, key=key, hops=hops))

    def members(self, group: str | Group) -> list[rpc.MemberInfo]:
        return wait(self._api, self._api.members(group))

    def remove(self, group: str | Group, member: str | Author) -> rpc.VoteInfo:
        return wait(self._api, self._api.remove_member(group, member))

    def set_role(self, group: str | Group, member: str | Author, role: str) -> rpc.MemberInfo:
        return wait(self._api, self._api.set_role(group, member, role))

    def set_topic(self, group: str | Group, text: str, *, key: str | None = None) -> SyncSent:
        return _sent(self._api, self._api.set_topic(group, text, key=key))
