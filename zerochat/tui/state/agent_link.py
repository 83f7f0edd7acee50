"""JSON-RPC client over the control socket in Textual's event loop, with automatic reconnection.

Responses resolve the futures of their requests; notifications wait in an inbox that the application empties in
batches, so that a flood does not delay a frame. Every line has a number: a notification with a smaller number than a
response is contained in it. When the connection breaks, pending requests fail with `LinkLost`, and nothing is sent
twice.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TypeVar

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode, encode

from zerochat import rpc
from zerochat.rpc import LINE_BYTES_MAX, METHODS, NOTIFICATIONS, PROTOCOL

T = TypeVar("T")

INBOX_MAX = 10_000
"""Limit of the inbox. On overflow it is cleared and everything is read again: cheaper than drawing what has scrolled
away, and a stuck screen cannot fill the memory."""
LINES_PER_YIELD = 256
"""Lines read before yielding to the event loop, so that a full socket does not delay keys and frames."""
ANSWER_S_MAX = 20.0
"""Request timeout."""
RETRY_S_FIRST, RETRY_S_MAX = 0.1, 5.0
RESTART_S_MAX = 10.0
"""How long the restart of an agent that outlives its clients is awaited, before another one takes its place: a service
restarts after five seconds."""


class AgentError(Exception):
    """The agent rejected a request: the text is the sentence for the user, `name` the error code (`UnknownGroup`,
    …)."""

    def __init__(self, sentence: str, name: str = "") -> None:
        super().__init__(sentence)
        self.name = name


class LinkLost(AgentError):
    """No connection to the agent."""

    def __init__(self) -> None:
        super().__init__("Not connected to the agent. Reconnecting; try again in a moment.", "LinkLost")


class Received(Struct, frozen=True):
    """One notification: `line` is its number on the line, `value` its shape from `schema.NOTIFICATIONS`."""

    line: int
    value: Struct


class LinkState(Struct, frozen=True):
    """`up`: connected. `text`: a sentence for the banner. `trouble`: it is a problem."""

    up: bool
    text: str = ""
    trouble: bool = True


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


@cache  # created on first use, after the first frame
def _reader(method: str) -> Decoder[Struct]:
    return Decoder(NOTIFICATIONS[method])


class AgentLink:
    """One connection to one agent; `run` maintains it until cancelled.

    `start_agent` ensures that an agent serves `socket`. It blocks and runs in its own thread, at the start and whenever
    the connection fails; the text of its exception is shown, and it is retried.
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
        self._on_notifications = on_news
        self._on_connected = on_up
        self._writer: asyncio.StreamWriter | None = None
        self._pending: dict[int, asyncio.Future[tuple[Raw, int]]] = {}
        self._next_id = 0
        self._inbox: deque[tuple[int, str, Raw]] = deque()
        self.line = 0
        """Number of the last line read; continues over reconnections."""
        self.overflowed = False
        """Notifications were dropped: read everything again, then reset this."""
        self.state = LinkState(False)
        self._outlives = False
        """The agent of the last connection outlives its clients."""
        self._lost_at = 0.0
        """When that connection ended, on the monotonic clock."""

    # --- requests --------------------------------------------------------------------------------------------------

    async def request(self, method: str, params: Struct, shape: type[T]) -> T:
        """Call `method` and return its result. Raises AgentError with the agent's sentence, or LinkLost."""
        return (await self.request_with_line(method, params, shape))[0]

    async def request_with_line(self, method: str, params: Struct, shape: type[T]) -> tuple[T, int]:
        """Like `request`, with the line number of the response: smaller-numbered notifications are contained in it."""
        assert METHODS[method] == (type(params), shape), method
        if self._writer is None:
            raise LinkLost
        self._next_id += 1
        number = self._next_id
        line = encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise AgentError(f"Too long: at most {LINE_BYTES_MAX} bytes can be sent at once.", "TooLong")
        future: asyncio.Future[tuple[Raw, int]] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        self._writer.write(line)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                raw, at = await future
        except TimeoutError:
            raise AgentError("The agent does not respond. Check `zerochat status`.", "NoAnswer") from None
        finally:
            self._pending.pop(number, None)
        try:
            return decode(raw, type=shape), at
        except (DecodeError, ValidationError) as error:
            raise AgentError(f"This version cannot read the agent's response to {method}.", "") from error

    # --- notifications ---------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of notifications in the inbox."""
        return len(self._inbox)

    def take(self, count: int) -> list[Received]:
        """Remove and return at most `count` notifications, oldest first; undecodable ones are skipped."""
        notification: list[Received] = []
        for _ in range(min(count, len(self._inbox))):
            line, method, params = self._inbox.popleft()
            try:
                notification.append(Received(line, _reader(method).decode(params)))
            except (DecodeError, ValidationError):
                continue  # from a newer agent
        return notification

    # --- connection ------------------------------------------------------------------------------------------------

    async def run(self, locked: str = "") -> None:
        """Connect, read until the connection breaks, and reconnect with exponential backoff; ends when cancelled.

        `locked`: why the profile is locked; then no request is sent, even to a running agent, until `start_agent` has
        unlocked the profile.
        """
        delay_s = RETRY_S_FIRST
        woken = False
        self._set_state(LinkState(False, locked or "Starting…", trouble=bool(locked)))
        while locked and not await self._start():
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=LINE_BYTES_MAX)
            except OSError:
                woken = not (woken or self._may_restart()) and await self._start()
                if not woken:
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, RETRY_S_MAX)
                continue
            woken, began = False, monotonic()
            self._writer = writer
            greeting = asyncio.create_task(self._greet())
            try:
                await self._read(reader)
            finally:
                greeting.cancel()
                self._writer, self._lost_at = None, monotonic()
                writer.close()
                self._fail_pending()
            if monotonic() - began > RETRY_S_MAX:  # else the agent fails, or says more than this client reads
                delay_s = RETRY_S_FIRST
            if self.state.up:
                self._set_state(LinkState(False, "Lost the connection to the agent. Reconnecting…"))
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)

    def _may_restart(self) -> bool:
        """Whether the agent may come back by itself."""
        recent = monotonic() - self._lost_at < RESTART_S_MAX
        return self._start_agent is not None and self._outlives and recent

    async def _start(self) -> bool:
        """Start the agent; True: connect again at once."""
        if self._start_agent is None:
            self._set_state(LinkState(False, "No agent is running. Retrying…"))
            return False
        try:
            await in_thread(self._start_agent)
        except Exception as error:  # noqa: BLE001 - shown to the user, whatever it is
            wrong = getattr(error, "code", "") == "WrongPassphrase"
            self._set_state(LinkState(False, str(error) if wrong else f"The agent could not be started: {error}"))
            return False
        return True

    async def _greet(self) -> None:
        try:
            hello = await self.request("hello", rpc.HelloParams(PROTOCOL, "tui"), rpc.Hello)
            if hello.protocol != PROTOCOL:
                text = f"The agent uses protocol {hello.protocol}, this program {PROTOCOL}. Restart the older one."
                self._set_state(LinkState(False, text))
                return
            self._outlives = not hello.owner
            self._set_state(LinkState(True))
            await self._on_connected(hello)
        except AgentError as error:
            if not isinstance(error, LinkLost):
                self._set_state(LinkState(False, str(error)))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Read lines until the connection ends."""
        count = 0
        while True:
            try:
                line = await reader.readline()
            except (OSError, ValueError):  # ValueError: a line over the limit
                return
            if not line.endswith(b"\n"):
                return
            self._dispatch(line)
            count += 1
            if count % LINES_PER_YIELD == 0:
                await asyncio.sleep(0)

    def _dispatch(self, text: bytes) -> None:
        self.line += 1
        try:
            line = _read_line(text)
        except (DecodeError, ValidationError):
            return
        if line.method:
            if line.method in NOTIFICATIONS:
                if len(self._inbox) >= INBOX_MAX:
                    self._inbox.clear()
                    self.overflowed = True
                self._inbox.append((self.line, line.method, line.params))
                self._on_notifications()
            return
        future = self._pending.get(line.id) if isinstance(line.id, int) else None
        if future is None or future.done():
            return
        if line.error is not None:
            name = line.error.data.code if line.error.data else ""
            future.set_exception(AgentError(line.error.message, name))
        else:
            future.set_result((line.result, self.line))

    def _fail_pending(self) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(LinkLost())
        self._pending.clear()

    def _set_state(self, state: LinkState) -> None:
        self.state = state
        self._on_state(state)


async def in_thread(work: Callable[[], None]) -> None:
    """Run blocking `work` in a daemon thread; an executor's thread would delay the end of the process."""
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
        with suppress(RuntimeError):  # the application may have ended meanwhile
            loop.call_soon_threadsafe(settle, error)

    Thread(target=run, name="start agent", daemon=True).start()
    await done
