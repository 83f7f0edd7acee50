"""The same without `await`, for handlers that are no coroutine functions.

A handler that is an ordinary function is called in a thread of its own, with a view of its event whose methods wait:
annotate it as `SyncMessage`. A script has a `SyncBot` (`script.py`).
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from zerochat import rpc
from zerochat.bot.events import Event, Group, Joined, JoinRequest, Message, Reaction, Receipts, Sent
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.bot.outgoing import Voice

T = TypeVar("T")


class OwnThread(LocalError):
    """This would wait for itself: in a coroutine, `await` the method of the message or of the bot instead."""


def wait(voice: "Voice", work: Coroutine[Any, Any, T]) -> T:
    """Have something done in the bot's loop, and wait for it in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        counted = getattr(voice.loop, "counted", None)  # in virtual time: that this thread waits
        asked: Coroutine[Any, Any, T] = work if counted is None else counted(work)
        return asyncio.run_coroutine_threadsafe(asked, voice.loop).result()
    work.close()
    raise OwnThread


@dataclass(frozen=True, slots=True)
class SyncSent(Sent):
    """`Sent`, with methods that wait."""

    def delivered(self, to: int | Literal["all", "any"] = "all", timeout: float = 60.0) -> Receipts:  # type: ignore[override]
        return wait(self._voice, Sent.delivered(self, to, timeout))

    def edit(self, text: str, *, key: str | None = None) -> "SyncSent":  # type: ignore[override]
        return _sent(self._voice, Sent.edit(self, text, key=key))

    def delete(self, *, key: str | None = None) -> "SyncSent":  # type: ignore[override]
        return _sent(self._voice, Sent.delete(self, key=key))

    def react(self, emoji: str, *, on: bool = True, key: str | None = None) -> "SyncSent":  # type: ignore[override]
        return _sent(self._voice, Sent.react(self, emoji, on=on, key=key))


def _sent(voice: "Voice", work: Coroutine[Any, Any, Sent]) -> SyncSent:
    found = wait(voice, work)
    return SyncSent(found.group, found.id, found.of, found.again, _voice=voice)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncMessage(Message):
    """`Message`, with methods that wait."""

    def reply(self, text: str, *, files: Sequence[str | Path] = (), key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._voice, Message.reply(self, text, files=files, key=key))

    def react(self, emoji: str, *, on: bool = True, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._voice, Message.react(self, emoji, on=on, key=key))

    def edit(self, text: str, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._voice, Message.edit(self, text, key=key))

    def delete(self, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._voice, Message.delete(self, key=key))

    def save(self, folder: str | Path = "", *, timeout: float = 600.0) -> list[Path]:  # type: ignore[override]
        return wait(self._voice, Message.save(self, folder, timeout=timeout))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReaction(Reaction):
    """`Reaction`, with methods that wait."""

    def reply(self, text: str, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._voice, Reaction.reply(self, text, key=key))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncJoined(Joined):
    """`Joined`, with methods that wait."""

    def say(self, text: str, *, key: str | None = None) -> SyncSent:  # type: ignore[override]
        return _sent(self._voice, Joined.say(self, text, key=key))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncJoinRequest(JoinRequest):
    """`JoinRequest`, with methods that wait."""

    def admit(self) -> None:  # type: ignore[override]
        wait(self._voice, JoinRequest.admit(self))

    def refuse(self) -> None:  # type: ignore[override]
        wait(self._voice, JoinRequest.refuse(self))


_VIEWS: dict[type[Event], type[Event]] = {
    Message: SyncMessage,
    Reaction: SyncReaction,
    Joined: SyncJoined,
    JoinRequest: SyncJoinRequest,
}


def blocking_view(event: Event) -> Event:
    """The same event, with methods that wait."""
    kind = _VIEWS.get(type(event))
    return event if kind is None else kind(**{one.name: getattr(event, one.name) for one in fields(event)})


class SyncVoice:
    """`bot.sync`: what a bot says and asks, for threads that wait for it."""

    def __init__(self, voice: "Voice") -> None:
        self._voice = voice

    def say(
        self, group: str | Group, text: str, *, files: Sequence[str | Path] = (), key: str | None = None
    ) -> SyncSent:
        return _sent(self._voice, self._voice.say(group, text, files=files, key=key))

    def members(self, group: str | Group) -> list[rpc.MemberInfo]:
        return wait(self._voice, self._voice.members(group))

    def topic(self, group: str | Group, text: str, *, key: str | None = None) -> SyncSent:
        return _sent(self._voice, self._voice.topic(group, text, key=key))
