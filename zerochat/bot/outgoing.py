"""What a bot says and asks. Whatever a handler says has an idempotency key, so that saying it again says nothing.

The key names the consumer, the event, the handler, and how many things this handler has said before for this event:
`ci:VYw…:deploy:2`. A handler that is called again, after a failure or a restart, comes to the same keys in the same
order, and the agent answers with what it has said then. So a handler says things in an order that depends on its event
alone: what it says side by side (`asyncio.gather`), or depending on the time or on chance, can come to another key.
Then give a `key` of your own.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from zerochat import rpc
from zerochat.agent.api.client import FILES_S_MAX, AgentError
from zerochat.bot.agent_link import ANSWER_S_MAX
from zerochat.bot.events import Group, JoinRequest, Message, Receipts, Sent
from zerochat.errors import LocalError
from zerochat.rpc.subscriptions import KEY_CHARS_MAX

LOOK_S = 0.5
"""How often it is looked whether a file is whole."""


class FilesMissing(LocalError):
    """Not all files of the message {event} are here yet. They are fetched from members who have them, as soon as one of
    these can be reached."""

    retry = "later"


class BadKey(LocalError):
    """This is no idempotency key: {why}."""


class Ask(Protocol):
    """How the agent is asked; an answer that got lost is asked for again."""

    async def __call__(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any: ...


@dataclass(slots=True)
class Deed:
    """One call of one handler, as far as it has said something."""

    name: str
    said: int = 0


_deed: ContextVar[Deed | None] = ContextVar("_deed", default=None)


@contextmanager
def doing(name: str) -> Iterator[None]:
    """What is said in this block, and in tasks and threads that are begun in it, is said for this."""
    token = _deed.set(Deed(name))
    try:
        yield
    finally:
        _deed.reset(token)


def shortened(key: str) -> str:
    """A key that the agent takes: printable ASCII, at most 128."""
    if len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable():
        return key
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


class Voice:
    """Says things for a bot, and asks its agent."""

    def __init__(self, consumer: str, ask: Ask, unique: Callable[[], str]) -> None:
        """`unique`: a text that never comes again, for what is said outside of any handler."""
        self.loop = asyncio.get_running_loop()
        self._consumer, self._ask, self._unique = consumer, ask, unique

    def _key(self, given: str | None) -> str:
        if given is not None:
            if not 0 < len(given) <= KEY_CHARS_MAX or not (given.isascii() and given.isprintable()):
                raise BadKey(why=f"a key is 1 to {KEY_CHARS_MAX} printable ASCII characters")
            return given
        deed = _deed.get()
        if deed is None:
            return shortened(f"{self._consumer}:{self._unique()}")
        deed.said += 1
        return shortened(f"{self._consumer}:{deed.name}:{deed.said}")

    async def _say(
        self, method: str, params: dict[str, object], key: str | None, within_s: float = ANSWER_S_MAX
    ) -> Sent:
        try:
            sent = await self._ask(method, {**params, "key": self._key(key)}, within_s)
        except AgentError as error:
            if error.code != "KeyReused" or key is not None:
                raise
            # The handler has been called again and says it in other words: what it has said first stands.
            known = error.data or {}
            return Sent(str(known.get("group", "")), str(known.get("id", "")), 0, again=True, _voice=self)
        return Sent(sent.group, sent.id, sent.of, again=sent.again, _voice=self)

    # --- what it says -----------------------------------------------------------------------------------------------

    async def say(
        self,
        group: str | Group,
        text: str,
        *,
        reply_to: str | None = None,
        action: bool = False,
        files: Sequence[str | Path] = (),
        key: str | None = None,
    ) -> Sent:
        params: dict[str, object] = {"group": id_of(group), "text": text, "reply_to": reply_to, "action": action}
        if not files:
            return await self._say("send", params, key)
        params["paths"] = [str(Path(one).absolute()) for one in files]
        return await self._say("attach", params, key, FILES_S_MAX)

    async def edit(self, group: str | Group, event: str, text: str, *, key: str | None = None) -> Sent:
        return await self._say("edit", {"group": id_of(group), "event": event, "text": text}, key)

    async def delete(self, group: str | Group, event: str, *, key: str | None = None) -> Sent:
        return await self._say("delete", {"group": id_of(group), "event": event}, key)

    async def react(
        self, group: str | Group, event: str, emoji: str, *, on: bool = True, key: str | None = None
    ) -> Sent:
        return await self._say("react", {"group": id_of(group), "event": event, "emoji": emoji, "on": on}, key)

    async def topic(self, group: str | Group, text: str, *, key: str | None = None) -> Sent:
        return await self._say("topic", {"group": id_of(group), "text": text}, key)

    # --- what it asks -----------------------------------------------------------------------------------------------

    async def members(self, group: str | Group) -> list[rpc.MemberInfo]:
        found: list[rpc.MemberInfo] = await self._ask("members", {"group": id_of(group)})
        return found

    async def delivered(self, group: str, event: str, to: int | Literal["all", "any"], timeout: float) -> Receipts:
        count = {"all": -1, "any": 1}[to] if isinstance(to, str) else to
        wanted = {"group": group, "id": event, "count": count}
        seconds = max(0.0, timeout)
        report = await self._ask("wait", {**wanted, "timeout_s": seconds}, seconds + ANSWER_S_MAX)
        return Receipts(report.complete, report.delivered, report.of, tuple(report.members))

    async def answer(self, asked: JoinRequest, *, admit: bool) -> None:
        said = {"who": asked.member.did, "nick": asked.member.nick, "role": asked.role, "admit": admit}
        try:
            await self._ask("answer", {"group": asked.group.id, **said})
        except AgentError as error:
            if error.code != "NoSuchRequest":  # else it was answered before, or nobody waits any more
                raise

    async def save(self, message: Message, folder: str | Path, timeout: float) -> list[Path]:
        saved: list[Path] = []
        to = str(Path(folder).absolute()) if folder else ""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        for one in message.attachments:
            wanted = {"group": message.group.id, "file": one.id}
            info = await self._ask("get", wanted)
            while info.file.state != "here":
                if loop.time() >= deadline:
                    raise FilesMissing(event=message.id)
                await asyncio.sleep(LOOK_S)
                info = await self._ask("get", wanted)
            kept = await self._ask("save", {**wanted, "to": to}, FILES_S_MAX)
            saved.append(Path(kept.path))
        return saved


def id_of(group: str | Group) -> str:
    return group.id if isinstance(group, Group) else group
