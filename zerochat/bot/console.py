"""A line to a person at a terminal, to try a bot without any group: each line typed is a message from `you`."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from zerochat import rpc
from zerochat.agent.api.client import AgentError, News
from zerochat.agent.api.timestamps import timestamp
from zerochat.bot.agent_link import ANSWER_S_MAX
from zerochat.rpc.subscriptions import Acked, ConsumerInfo, Item, Subscribed
from zerochat.terminal_text import printable

YOU: Final = "did:key:you"
BOT: Final = "did:key:bot"


class ConsoleLine:
    """See `line.Line`. What the bot says is printed."""

    profile = "console"

    def __init__(
        self, group: str, *, say: Callable[[str], None] = print, read: Callable[[], str] = sys.stdin.readline
    ) -> None:
        """`group`: what the only group is called. `read`: the next line, empty at the end."""
        self._group, self._say, self._read = group, say, read
        self._heard: asyncio.Queue[News] = asyncio.Queue()
        self._numbers = 0
        self._texts: deque[tuple[str, str]] = deque(maxlen=1_000)
        """The last messages: their ids, with their beginnings."""

    def now(self) -> float:
        return time.time()

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def news(self) -> News:
        return await self._heard.get()

    @property
    def heard_all(self) -> bool:
        """The bot was given every line that was typed."""
        return self._heard.empty()

    async def type(self) -> None:
        """Read lines until there are no more."""
        while line := await asyncio.to_thread(self._read):
            if line.strip():
                self._hear(line.rstrip("\n"))

    def _hear(self, text: str) -> None:
        number = self._number(text)
        item = Item(
            seq=number,
            type="message",
            group=self._group,
            id=f"m{number}",
            author=rpc.Author(YOU, "you", verified=True),
            body={"text": text},
            received_at=timestamp(int(time.time() * 1000)),
        )
        self._heard.put_nowait(News("item", item))

    def _number(self, text: str) -> int:
        self._numbers += 1
        self._texts.append((f"m{self._numbers}", text))
        return self._numbers

    def _about(self, event: object) -> str:
        return next((repr(text[:40]) for known, text in self._texts if known == event), "a message")

    async def call(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        now = timestamp(int(time.time() * 1000))
        match method:
            case "groups":
                return [self._info(now)]
            case "subscribe":
                known = ConsumerInfo(consumer="console", acked=0, behind=0, connected=True, since=now, updated=now)
                return Subscribed(0, known)
            case "consumers":
                return []
            case "ack":
                return Acked("console", int(str(params["seq"])))
            case "announce":
                return rpc.Announced(self._group)
            case "members":
                you = rpc.MemberInfo(did=YOU, nick="you", connection="connected", joined_at=now, role="owner")
                bot = rpc.MemberInfo(did=BOT, nick="bot", connection="self", joined_at=now, bot=True)
                return [you, bot]
            case "wait":
                table = [rpc.MemberDelivery(YOU, "you", True, "delivered", now, "link", "connected")]
                return rpc.DeliveryReport(self._group, str(params["id"]), 1, 1, True, table)
            case "send" | "attach":
                lines = str(params["text"]).split("\n")
                paths = params.get("paths")
                lines += [f"> {path}" for path in paths] if isinstance(paths, list) else []
                return self._sent("\n     ".join(lines), str(params["text"]))
            case "react":
                return self._sent(f"{params['emoji']} to {self._about(params['event'])}", "")
            case "edit":
                return self._sent(f"(changes {self._about(params['event'])} to) {params['text']}", "")
            case "delete":
                return self._sent(f"(takes back {self._about(params['event'])})", "")
            case "topic":
                return self._sent(f"(says that this is about) {params['text']}", "")
        raise AgentError("NotInConsole", f"There is no {method} in a console: run the bot in a group.", 0)

    def _sent(self, shown: str, text: str) -> rpc.Sent:
        self._say(printable(f"bot: {shown}"))
        number = self._number(text)
        return rpc.Sent(self._group, f"m{number}", number, number, 1)

    def _info(self, now: str) -> rpc.GroupInfo:
        return rpc.GroupInfo(
            id=self._group,
            name=self._group,
            state="active",
            me=BOT,
            nick="bot",
            members=2,
            connected=1,
            keys="",
            path="",
            accountability="",
            view="",
            unacknowledged=0,
            created_at=now,
        )
