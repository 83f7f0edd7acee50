"""The face's line to the agent: requests and news over the control socket, inside Textual's own event loop.

JSON-RPC lines as in `zerochat.rpc`. Responses settle the futures of those who asked; news wait in an inbox
that the application empties in bites, so that a flood of them never holds up a frame. Every line gets a number: whoever
holds an answer knows by it which news the answer already contains.

When the agent goes away the line says so, makes sure that there is an agent again and connects anew; requests that were
under way fail with `LinkLost`, and nothing is sent twice.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode, encode

from zerochat import rpc
from zerochat.rpc import LINE_BYTES_MAX, METHODS, NEWS, PROTOCOL

T = TypeVar("T")

INBOX_NEWS_MAX = 10_000
"""News that wait to be shown. Beyond it they are dropped and everything is read again from the agent: cheaper than
showing what has scrolled away, and a stuck screen cannot fill the memory."""
LINES_PER_BREATH = 256
"""Lines read before the loop gets a turn: a full socket must not keep keys and frames waiting."""
ANSWER_S_MAX = 20.0
"""An agent that answers nothing for this long is stuck; the person must hear so."""
RETRY_S_FIRST, RETRY_S_MAX = 0.1, 5.0


class AgentError(Exception):
    """The agent refused; the text is the sentence for the person, `name` the stable code (`UnknownGroup`, …)."""

    def __init__(self, sentence: str, name: str = "") -> None:
        super().__init__(sentence)
        self.name = name


class LinkLost(AgentError):
    """There is no agent on the line."""

    def __init__(self) -> None:
        super().__init__("There is no connection to the agent. It comes back by itself; then try again.", "LinkLost")


class News(Struct, frozen=True):
    """One notification: `line` is its number on the line, `value` its shape from `schema.NEWS`."""

    line: int
    value: Struct


class LinkState(Struct, frozen=True):
    """`up`: requests are answered. `text`: what is going on, as a sentence, for the banner."""

    up: bool
    text: str = ""


class _Data(Struct):
    code: str = ""


class _Error(Struct):
    code: int = 0
    message: str = ""
    data: _Data | None = None


class _Line(Struct):
    id: int | str | None = None
    method: str = ""
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"null")
    error: _Error | None = None


_read_line = Decoder(_Line).decode


@cache  # Each when its first news come: the first frame is there by then.
def _reader(method: str) -> Decoder[Struct]:
    return Decoder(NEWS[method])


class Link:
    """One line to one agent. `run` keeps it up until it is cancelled.

    `start_agent` makes sure that an agent answers at `socket`: it blocks, and is therefore called in a thread of its
    own, at the start and whenever nobody answers. What it raises is shown as its text, and it is tried again.
    """

    def __init__(
        self,
        socket: Path,
        *,
        start_agent: Callable[[], None] | None,
        on_state: Callable[[LinkState], None],
        on_news: Callable[[], None],
        on_up: Callable[[rpc.Hello], Awaitable[None]],
    ) -> None:
        self._socket = socket
        self._start_agent = start_agent
        self._on_state = on_state
        self._on_news = on_news
        self._on_up = on_up
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[tuple[Raw, int]]] = {}
        self._next_id = 0
        self._inbox: deque[tuple[int, str, Raw]] = deque()
        self.line = 0
        """The number of the last line that was read; it goes on over reconnections."""
        self.overflowed = False
        """News were dropped: read everything again, then set this back."""
        self.state = LinkState(False)

    # --- asking ----------------------------------------------------------------------------------------------------

    async def ask(self, method: str, params: Struct, shape: type[T]) -> T:
        """Call `method`; raises AgentError with the agent's own sentence, or LinkLost."""
        return (await self.ask_with_line(method, params, shape))[0]

    async def ask_with_line(self, method: str, params: Struct, shape: type[T]) -> tuple[T, int]:
        """Like `ask`, with the number of the answer's line: news with a smaller number are contained in the answer."""
        assert METHODS[method] == (type(params), shape), method
        if self._writer is None:
            raise LinkLost
        self._next_id += 1
        number = self._next_id
        line = encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise AgentError(f"This is too long: at most {LINE_BYTES_MAX} bytes go to the agent at once.", "TooLong")
        future: asyncio.Future[tuple[Raw, int]] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._writer.write(line)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                raw, at = await future
        except TimeoutError:
            raise AgentError("The agent does not answer. `zerochat status` may say more.", "NoAnswer") from None
        finally:
            self._asked.pop(number, None)
        try:
            return decode(raw, type=shape), at
        except (DecodeError, ValidationError) as error:
            raise AgentError(f"The agent answered {method} in a form that this version cannot read.", "") from error

    # --- news ------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many news are in the inbox."""
        return len(self._inbox)

    def bite(self, count: int) -> list[News]:
        """Take at most `count` news from the inbox, oldest first. What cannot be read is left out."""
        news: list[News] = []
        for _ in range(min(count, len(self._inbox))):
            line, method, params = self._inbox.popleft()
            try:
                news.append(News(line, _reader(method).decode(params)))
            except (DecodeError, ValidationError):
                continue  # A newer agent may tell what this version does not understand; the rest still counts.
        return news

    # --- keeping the line up ---------------------------------------------------------------------------------------

    async def run(self, locked: str = "") -> None:
        """Connect, read until the line breaks, and begin again; only cancelling ends it.

        `locked` says why the profile is: then nobody is asked anything, whatever agent may answer, before `start_agent`
        has found that it may be opened.
        """
        delay_s = RETRY_S_FIRST
        woken = False
        self._say(LinkState(False, locked or "Starting…"))
        while locked and not await self._wake_agent():
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=LINE_BYTES_MAX)
            except OSError:
                woken = not woken and await self._wake_agent()
                if not woken:
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, RETRY_S_MAX)
                continue
            woken = False
            self._writer = writer
            greeting = asyncio.create_task(self._greet())
            try:
                if await self._read(reader):
                    delay_s = RETRY_S_FIRST
            finally:
                greeting.cancel()
                self._writer = None
                writer.close()
                self._fail_asked()
            if self.state.up:
                self._say(LinkState(False, "The connection to the agent is lost. Trying again…"))
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)

    async def _wake_agent(self) -> bool:
        """True when it is worth connecting again at once."""
        if self._start_agent is None:
            self._say(LinkState(False, "No agent answers. Trying again…"))
            return False
        try:
            await in_thread(self._start_agent)
        except Exception as error:  # noqa: BLE001 - whatever it is, the person must read it, and the face go on
            self._say(LinkState(False, f"The agent does not start: {error}"))
            return False
        return True

    async def _greet(self) -> None:
        try:
            hello = await self.ask("hello", rpc.HelloParams(PROTOCOL, "tui"), rpc.Hello)
            if hello.protocol != PROTOCOL:
                text = f"The agent speaks protocol {hello.protocol}, this terminal {PROTOCOL}. Restart the older one."
                self._say(LinkState(False, text))
                return
            self._say(LinkState(True))
            await self._on_up(hello)
        except AgentError as error:
            if not isinstance(error, LinkLost):
                self._say(LinkState(False, str(error)))

    async def _read(self, reader: asyncio.StreamReader) -> bool:
        """Read lines until the end; True when at least one came."""
        count = 0
        while True:
            try:
                line = await reader.readline()
            except (OSError, ValueError):  # ValueError: a line over the limit, which no agent of ours writes.
                return count > 0
            if not line.endswith(b"\n"):
                return count > 0
            self._take(line)
            count += 1
            if count % LINES_PER_BREATH == 0:
                await asyncio.sleep(0)

    def _take(self, text: bytes) -> None:
        self.line += 1
        try:
            line = _read_line(text)
        except (DecodeError, ValidationError):
            return
        if line.method:
            if line.method in NEWS:
                if len(self._inbox) >= INBOX_NEWS_MAX:
                    self._inbox.clear()
                    self.overflowed = True
                self._inbox.append((self.line, line.method, line.params))
                self._on_news()
            return
        future = self._asked.get(line.id) if isinstance(line.id, int) else None
        if future is None or future.done():
            return
        if line.error is not None:
            name = line.error.data.code if line.error.data else ""
            future.set_exception(AgentError(line.error.message, name))
        else:
            future.set_result((line.result, self.line))

    def _fail_asked(self) -> None:
        for future in self._asked.values():
            if not future.done():
                future.set_exception(LinkLost())
        self._asked.clear()

    def _say(self, state: LinkState) -> None:
        self.state = state
        self._on_state(state)


async def in_thread(work: Callable[[], None]) -> None:
    """Run blocking `work` beside the loop.

    A plain daemon thread: an executor's thread would hold the process at its end until the work is done.
    """
    from threading import Thread

    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(None)

    def run() -> None:
        error: Exception | None = None
        try:
            work()
        except Exception as caught:  # noqa: BLE001 - handed over whole to the loop, which raises it there
            error = caught
        with suppress(RuntimeError):  # The application may have ended meanwhile; then nobody waits for the answer.
            loop.call_soon_threadsafe(settle, error)

    Thread(target=run, name="start agent", daemon=True).start()
    await done
