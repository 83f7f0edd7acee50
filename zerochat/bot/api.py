"""The bot's requests to its agent, with idempotency keys for everything that it sends.

A key names the consumer, the event, the handler and the number of the request within the call: `ci:VYw…:deploy:2`. A
repeated call, after a failure or restart, generates the same keys in the same order, and the agent answers with the
first result. So a handler must send in an order that depends on its event alone. Give an explicit `key` where the order
depends on time, chance or concurrency (`asyncio.gather`).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from zerochat import rpc
from zerochat.agent.api.client_connection import FILES_S_MAX
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.storage.paths import path_from_wire, path_to_wire
from zerochat.bot.agent_link import ANSWER_S_MAX
from zerochat.bot.events import Author, Group, JoinRequest, Message, PrivateInvitation, Receipts, Sent
from zerochat.errors import LocalError
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc.subscriptions import KEY_CHARS_MAX

FILE_POLL_S = 0.5
"""Poll interval for the download of a file, seconds."""


class FilesMissing(LocalError):
    """The attachments of {event} are not complete yet. The download continues as soon as a member who has them is
    online."""

    retry = "later"


class BadKey(LocalError):
    """Invalid idempotency key: {why}."""


class Requester(Protocol):
    """Sends a request to the agent; repeats it if the connection ends before the answer."""

    async def __call__(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any: ...


@dataclass(slots=True)
class KeyScope:
    """One call of a handler: the prefix of its idempotency keys, and the number of requests so far."""

    name: str
    hops: int = 0
    """The hop count of what it sends."""
    sent: int = 0


_key_scope: ContextVar[KeyScope | None] = ContextVar("_key_scope", default=None)


@contextmanager
def key_scope(name: str, hops: int = 0) -> Iterator[None]:
    """Use `name` for the keys, and `hops` for the hop counts, of everything sent in this block, including tasks and
    threads started in it."""
    token = _key_scope.set(KeyScope(name, hops))
    try:
        yield
    finally:
        _key_scope.reset(token)


def current_hops() -> int:
    """The hop count of what is sent now."""
    scope = _key_scope.get()
    return 0 if scope is None else scope.hops


def valid_key(key: str) -> str:
    """The key, hashed if it is too long or not printable ASCII."""
    if len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable():
        return key
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


class BotApi:
    """Sends messages and queries the agent for a bot."""

    def __init__(
        self, consumer: str, ask: Requester, unique: Callable[[], str], pace: Callable[[str], Awaitable[None]]
    ) -> None:
        """`unique`: returns a new unique string, for requests outside of a handler. `pace`: waits until something may
        be sent to this group."""
        self.loop = asyncio.get_running_loop()
        self._consumer, self._request, self._unique, self._pace = consumer, ask, unique, pace

    def _key(self, given: str | None) -> str:
        if given is not None:
            if not 0 < len(given) <= KEY_CHARS_MAX or not (given.isascii() and given.isprintable()):
                raise BadKey(why=f"it must be 1 to {KEY_CHARS_MAX} printable ASCII characters")
            return given
        scope = _key_scope.get()
        if scope is None:
            return valid_key(f"{self._consumer}:{self._unique()}")
        scope.sent += 1
        return valid_key(f"{self._consumer}:{scope.name}:{scope.sent}")

    async def _send(
        self, method: str, params: dict[str, object], key: str | None, within_s: float = ANSWER_S_MAX, hops: int = 0
    ) -> Sent:
        wanted = {**params, "key": self._key(key), "hops": max(hops, current_hops())}
        await self._pace(str(params["group"]))
        try:
            sent = await self._request(method, wanted, within_s)
        except AgentError as error:
            if error.code != "KeyReused" or key is not None:
                raise
            # A repeated call sent another text: the first one is kept.
            known = error.data or {}
            return Sent(str(known.get("group", "")), str(known.get("id", "")), 0, duplicate=True, _api=self)
        return Sent(sent.group, sent.id, sent.of, duplicate=sent.duplicate, _api=self)

    # --- commands ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        group: str | Group,
        text: str,
        *,
        reply_to: str | None = None,
        action: bool = False,
        files: Sequence[str | Path] = (),
        key: str | None = None,
        hops: int = 0,
    ) -> Sent:
        params: dict[str, object] = {"group": id_of(group), "text": text, "reply_to": reply_to, "action": action}
        if not files:
            return await self._send("send_message", params, key, hops=hops)
        params["paths"] = [path_to_wire(Path(one).absolute()) for one in files]
        return await self._send("send_files", params, key, FILES_S_MAX, hops)

    async def edit(self, group: str | Group, event: str, text: str, *, key: str | None = None) -> Sent:
        return await self._send("edit_message", {"group": id_of(group), "event": event, "text": text}, key)

    async def delete(self, group: str | Group, event: str, *, key: str | None = None) -> Sent:
        return await self._send("delete_message", {"group": id_of(group), "event": event}, key)

    async def react(
        self, group: str | Group, event: str, emoji: str, *, on: bool = True, key: str | None = None, hops: int = 0
    ) -> Sent:
        wanted: dict[str, object] = {"group": id_of(group), "event": event, "emoji": emoji, "on": on}
        return await self._send("react", wanted, key, hops=hops)

    async def set_topic(self, group: str | Group, text: str, *, key: str | None = None) -> Sent:
        return await self._send("set_topic", {"group": id_of(group), "text": text}, key)

    # --- queries ----------------------------------------------------------------------------------------------------

    async def members(self, group: str | Group) -> list[rpc.MemberInfo]:
        found: list[rpc.MemberInfo] = []
        while True:
            after = found[-1].did if found else ""
            page: list[rpc.MemberInfo] = await self._request("list_members", {"group": id_of(group), "after": after})
            found += page
            if len(page) < MEMBER_PAGE_MAX:
                return found

    async def delivered(self, group: str, event: str, to: int | Literal["all", "any"], timeout: float) -> Receipts:
        count = {"all": -1, "any": 1}[to] if isinstance(to, str) else to
        wanted = {"group": group, "id": event, "count": count}
        seconds = max(0.0, timeout)
        report = await self._request("wait_for_delivery", {**wanted, "timeout_s": seconds}, seconds + ANSWER_S_MAX)
        return Receipts(report.complete, report.delivered, report.of, tuple(report.members))

    async def remove_member(self, group: str | Group, member: str | Author) -> rpc.VoteInfo:
        wanted = {"group": id_of(group), "member": did_of(member)}
        try:
            found: rpc.VoteInfo = await self._request("remove_member", wanted)
        except AgentError as error:
            if error.code != "UnknownMember" or isinstance(member, str):
                raise
            # A repeated call, or another member was faster.
            return rpc.VoteInfo(group=id_of(group), did=member.did, nick=member.nick, votes=0, needed=0, removed=True)
        return found

    async def set_role(self, group: str | Group, member: str | Author, role: str) -> rpc.MemberInfo:
        wanted = {"group": id_of(group), "member": did_of(member), "role": role}
        found: rpc.MemberInfo = await self._request("set_role", wanted)
        return found

    async def answer_join_request(self, request: JoinRequest, *, admit: bool) -> None:
        said = {"member": request.member.did, "nick": request.member.nick, "role": request.role, "admit": admit}
        try:
            await self._request("answer_join_request", {"group": request.group.id, **said})
        except AgentError as error:
            if error.code != "NoSuchRequest":  # answered or withdrawn already
                raise

    async def answer_private_invitation(self, invitation: PrivateInvitation, *, accept: bool) -> None:
        said = {"group": invitation.group.id, "member": invitation.member.did, "accept": accept}
        try:
            await self._request("answer_private_invitation", said)
        except AgentError as error:
            if error.code != "NoSuchPrivateInvitation":  # answered or expired already
                raise

    async def save_files(self, message: Message, folder: str | Path, timeout: float) -> list[Path]:
        saved: list[Path] = []
        to = path_to_wire(Path(folder).absolute()) if folder else ""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        for one in message.attachments:
            wanted = {"group": message.group.id, "file": one.id}
            info = await self._request("fetch_file", wanted)
            while info.file.state != "here":
                if loop.time() >= deadline:
                    raise FilesMissing(event=message.id)
                await asyncio.sleep(FILE_POLL_S)
                info = await self._request("fetch_file", wanted)
            kept = await self._request("save_file", {**wanted, "to": to}, FILES_S_MAX)
            saved.append(path_from_wire(kept.path))
        return saved


def did_of(member: str | Author) -> str:
    return member if isinstance(member, str) else member.did


def id_of(group: str | Group) -> str:
    return group.id if isinstance(group, Group) else group
