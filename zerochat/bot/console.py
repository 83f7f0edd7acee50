"""An agent link to a terminal, to try a bot without a group: each line typed is a message from `you`."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from zerochat import rpc
from zerochat.agent.api.client_protocol import AgentError, Notification
from zerochat.bot.agent_link import ANSWER_S_MAX, steady
from zerochat.rpc.common import timestamp
from zerochat.rpc.subscriptions import AcknowledgeResult, ConsumerInfo, Item, Subscribed
from zerochat.terminal_text import printable

YOU: Final = "did:key:you"
BOT: Final = "did:key:bot"


class ConsoleLink:
    """An `AgentLink` that prints what the bot sends."""

    profile = "console"

    def __init__(
        self, group: str, *, output: Callable[[str], None] = print, input: Callable[[], str] = sys.stdin.readline
    ) -> None:
        """`group`: name of the only group. `input`: returns the next line, empty at the end of the input."""
        self._group, self._print, self._read = group, output, input
        self._notifications: asyncio.Queue[Notification] = asyncio.Queue()
        self._numbers = 0
        self._texts: deque[tuple[str, str]] = deque(maxlen=1_000)
        """The last messages: ids and texts."""

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return steady()

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def next_notification(self) -> Notification:
        return await self._notifications.get()

    @property
    def drained(self) -> bool:
        """Whether the bot has received every typed line."""
        return self._notifications.empty()

    async def read_input(self) -> None:
        """Read lines until the input ends."""
        while line := await asyncio.to_thread(self._read):
            if line.strip():
                self._receive(line.rstrip("\n"))

    def _receive(self, text: str) -> None:
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
        self._notifications.put_nowait(Notification("item", item))

    def _number(self, text: str) -> int:
        self._numbers += 1
        self._texts.append((f"m{self._numbers}", text))
        return self._numbers

    def _quote(self, event: object) -> str:
        return next((repr(text[:40]) for known, text in self._texts if known == event), "a message")

    async def call(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        now = timestamp(int(time.time() * 1000))
        match method:
            case "list_groups":
                return [self._group_info(now)]
            case "subscribe":
                known = ConsumerInfo(consumer="console", acked=0, behind=0, connected=True, since=now, updated=now)
                return Subscribed(0, known)
            case "list_consumers":
                return []
            case "acknowledge":
                return AcknowledgeResult("console", int(str(params["seq"])))
            case "announce_bot":
                return rpc.Announced(self._group)
            case "list_members":
                you = rpc.MemberInfo(did=YOU, nick="you", connection="connected", joined_at=now, role="owner")
                bot = rpc.MemberInfo(did=BOT, nick="bot", connection="self", joined_at=now, bot=True)
                return [you, bot]
            case "wait_for_delivery":
                table = [rpc.MemberDelivery(YOU, "you", True, "delivered", now, "link", "connected")]
                return rpc.DeliveryReport(self._group, str(params["id"]), 1, 1, True, table)
            case "send_message" | "send_files":
                lines = str(params["text"]).split("\n")
                paths = params.get("paths")
                lines += [f"> {path}" for path in paths] if isinstance(paths, list) else []
                return self._sent("\n     ".join(lines), str(params["text"]))
            case "react":
                return self._sent(f"[reaction {params['emoji']} to {self._quote(params['event'])}]", "")
            case "edit_message":
                return self._sent(f"[edit of {self._quote(params['event'])}] {params['text']}", "")
            case "delete_message":
                return self._sent(f"[deletes {self._quote(params['event'])}]", "")
            case "set_topic":
                return self._sent(f"[topic] {params['text']}", "")
        raise AgentError("NotInConsole", f"{method} does not work in the console. Run the bot in a group.", 0)

    def _sent(self, shown: str, text: str) -> rpc.Sent:
        self._print(printable(f"bot: {shown}"))
        number = self._number(text)
        return rpc.Sent(self._group, f"m{number}", number, number, 1)

    def _group_info(self, now: str) -> rpc.GroupInfo:
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
