"""`Bot`: handler registration, lifecycle and actions of a bot."""

import asyncio
import itertools
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zerochat import rpc
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.bot.agent_link import AgentLink
from zerochat.bot.api import BotApi, current_hops
from zerochat.bot.command_decorator import CommandDecorator
from zerochat.bot.connection import Connection
from zerochat.bot.decorators import EventDecorators
from zerochat.bot.events import Event, Group, Message, Sent
from zerochat.bot.handlers import BotSpec, Callee, Command, Include, WebhookHandler
from zerochat.bot.invoke import HandlerStuck
from zerochat.bot.local_events import BODY_BYTES_MAX, NAME_CHARS_MAX, BadTimer, LocalEvents, SetTimer
from zerochat.bot.loops import SEND_RATE, SendLimit
from zerochat.bot.registry import included
from zerochat.bot.runner import Runner
from zerochat.bot.schedule import RateLimit, parse_duration
from zerochat.bot.store import DeadLetter, KeyValues, Store
from zerochat.bot.sync import SyncApi, blocking_view
from zerochat.bot.timer_decorators import TimerDecorators
from zerochat.bot.webhook_address import parse_address
from zerochat.errors import LocalError
from zerochat.rpc.subscriptions import CREDIT

NAME = re.compile(r"[a-z0-9._-]{1,64}")
RETRIES = ("1s", "5s", "30s")
TIMEOUT = "10m"

if TYPE_CHECKING:
    from zerochat.bot.webhooks import WebhookServer

_deferred: "list[list[Bot]]" = []


class BadBot(LocalError):
    """Invalid bot: {why}."""

    exit_code: ClassVar[int] = 2


class NotRunning(LocalError):
    """The bot {name} is not running. Call this in a handler, or use `SyncBot` in a script."""


class Bot(CommandDecorator, EventDecorators, TimerDecorators):
    """A program that receives events of a profile's groups and answers. Handlers are decorated functions."""

    def __init__(
        self,
        name: str = "bot",
        *,
        profile: str | None = None,
        groups: Sequence[str] | None = None,
        prefix: str = "!",
        include: Sequence[Include] = (),
        retries: Sequence[str | float] = RETRIES,
        timeout: str | float | None = TIMEOUT,
        credit: int = CREDIT,
        help: bool = True,
        take_over: bool = False,
        send_rate: str | None = "",
        webhooks: str = "",
        webhook_secret: str | Path = "",
    ) -> None:
        """`name`: the consumer name under which the agent stores the bot's position; unique per profile. `profile`:
        None for ZEROCHAT_PROFILE, or `default`. `groups`: only these groups (names or ids; None: all). `include`:
        events that are skipped by default: the profile's own (`self`), those of other bots (`bots`), and, on the first
        run of this name, the stored history (`replayed`). `retries`: delays before a failed handler is called again;
        after the last one the event becomes a dead letter. `timeout`: time limit of a handler or timer (None: no
        limit). `credit`: maximum number of unacknowledged events. `help`: whether to answer `!help`. `take_over`:
        disconnect another process that runs a bot of this name, which then ends. `send_rate`: what it sends to a group
        faster than this waits (`20/min`, the default of a bot that includes `bots` or `self`, as a limit for loops;
        None: no limit). `webhooks`: loopback address for `on_webhook` (`127.0.0.1:8090`). `webhook_secret`: file with
        the secret that its requests must have, readable by the owner only."""
        if not NAME.fullmatch(name):
            raise BadBot(why=f"the name {name!r} must be 1 to 64 characters of a-z, 0-9, dots, dashes and underscores")
        if not prefix or not prefix.isprintable() or " " in prefix:
            raise BadBot(why=f"the prefix {prefix!r} must be printable and contain no space")
        self.profile, self.name, self._groups = profile, name, groups
        try:
            self._retries = tuple(parse_duration(one) for one in retries)
            limit_s = None if timeout is None else parse_duration(timeout)
            if send_rate:
                RateLimit.parse(send_rate)
        except ValueError as error:
            raise BadBot(why=error) from None
        super().__init__(prefix, included("this bot", include), limit_s)
        self._credit, self._help, self._take_over = credit, help, take_over
        if webhooks and not str(webhook_secret):
            raise BadBot(why='`webhooks` needs a file with a secret: Bot(webhooks=…, webhook_secret="/etc/ci/secret")')
        self._webhooks = (*parse_address(webhooks), Path(webhook_secret).expanduser()) if webhooks else None
        self._send_rate = send_rate
        self._store: Store | None = None
        self._runner: Runner | None = None
        self._ready = asyncio.Event()
        self.webhook_address: tuple[str, int] | None = None
        """Where the bot listens for webhooks, while it runs."""
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"<Bot {self.name} of {self.profile or 'the default profile'}>"

    # --- actions ----------------------------------------------------------------------------------------------------

    @property
    def _api(self) -> BotApi:
        if self._runner is None:
            raise NotRunning(name=self.name)
        return self._runner.api

    async def send(
        self, group: str | Group, text: str, *, files: Sequence[str | Path] = (), key: str | None = None
    ) -> Sent:
        """Send a message to a group (a name, an id or a `Group`). It is on disk when this returns."""
        return await self._api.send(group, text, files=files, key=key)

    async def members(self, group: str | Group) -> list[rpc.MemberInfo]:
        """The members of a group."""
        return await self._api.members(group)

    @property
    def groups(self) -> list[Group]:
        """The groups that the bot serves, as last reported by the agent."""
        if self._runner is None:
            raise NotRunning(name=self.name)
        return self._runner.groups

    async def set_topic(self, group: str | Group, text: str, *, key: str | None = None) -> Sent:
        """Set the topic of a group."""
        return await self._api.set_topic(group, text, key=key)

    async def call(self, method: str, **params: object) -> Any:
        """The result of any other request to the agent (`zerochat rpc --schema` lists them)."""
        if self._runner is None:
            raise NotRunning(name=self.name)
        return await self._runner.request(method, params)

    @property
    def default_group(self) -> str:
        """Name of the first group that the configuration or a handler names; `console` if none does."""
        named = [*(self._groups or ()), *(one.group for one in self._handlers if one.group)]
        return named[0] if named else "console"

    def now(self) -> float:
        """UTC, seconds; virtual in a simulated group."""
        return self._runner.now() if self._runner is not None else time.time()

    @property
    def sync(self) -> SyncApi:
        """Blocking variants, for handlers that are ordinary functions: `bot.sync.send("ops", "done")`."""
        return SyncApi(self._api)

    # --- storage ----------------------------------------------------------------------------------------------------

    @property
    def kv(self) -> KeyValues:
        """Persistent values by name, written to disk on assignment; not encrypted."""
        return self._open_store().values

    def dead_letters(self) -> list[DeadLetter]:
        """Events that no attempt could handle, oldest first."""
        return self._open_store().dead_letters()

    def retry(self, letter: DeadLetter | int | None = None) -> int:
        """Mark dead letters for another attempt (None: all). Returns how many."""
        return self._open_store().request_retry(letter.id if isinstance(letter, DeadLetter) else letter)

    def _open_store(self) -> Store:
        if self._store is None:
            self._store = Store(store_path(profile_paths(self.profile, os.environ), self.name))
        return self._store

    # --- timers -----------------------------------------------------------------------------------------------------

    def set_timer(
        self, name: str, after: str | float, *, every: str | float | None = None, data: object = None
    ) -> None:
        """Call the `on_timer` handlers after this time (`20m`), and then at the interval `every`. The timer is on disk
        when this returns; it replaces one of the same name. `data`: a JSON value for the handlers.
        Raises BadValue."""
        if not 0 < len(name) <= NAME_CHARS_MAX:
            raise BadTimer(why=f"a name must have 1 to {NAME_CHARS_MAX} characters")
        try:
            span_s, every_s = parse_duration(after), parse_duration(every) if every is not None else 0.0
        except ValueError as error:
            raise BadTimer(why=error) from None
        if every is not None and every_s < 1.0:
            raise BadTimer(why="a timer repeats at most once a second")
        if len(json.dumps(data, default=str).encode()) > BODY_BYTES_MAX:
            raise BadTimer(why=f"the data are larger than {BODY_BYTES_MAX} bytes")
        body = {"name": name, "data": data, "hops": current_hops()}
        self._local_events().put(f"timer:{name}", "timer", self.now() + span_s, span_s, every_s, body)
        self._wake_local()

    def cancel_timer(self, name: str) -> bool:
        """Whether there was such a timer."""
        return self._local_events().drop(f"timer:{name}")

    @property
    def timers(self) -> list[SetTimer]:
        """The timers that were set, in the order in which they are due; also those that are being handled."""
        return self._local_events().timers()

    def _local_events(self) -> LocalEvents:
        return LocalEvents(self._open_store())

    def _wake_local(self) -> None:
        if self._runner is not None:
            self._runner.api.loop.call_soon_threadsafe(self._runner.local_events.wake)

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until Ctrl+C or SIGTERM. If no agent of the profile is running, this process runs one."""
        if run_deferred(self):
            return
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        try:
            asyncio.run(self.run_until_signal())
        except LocalError as error:
            print(f"zerochat: {error.sentence()}", file=sys.stderr)
            raise SystemExit(error.exit_code) from None

    async def run_until_signal(self) -> None:
        """Run until a signal arrives. Ends the process with exit code 9 if a handler's thread cannot be ended."""
        try:
            await self.serve(signals=True)
        except HandlerStuck as error:
            print(f"zerochat: {error.sentence()}", file=sys.stderr)
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.exit_code)

    async def serve(
        self,
        link: AgentLink | None = None,
        *,
        store: Store | None = None,
        signals: bool = False,
        retry: bool = True,
    ) -> None:
        """Run in this event loop until `stop` or until the task is cancelled. `link`, `store`: replace the control
        socket and the file, for tests. `signals`: stop on SIGTERM and SIGINT, and interrupt handlers that block the
        event loop; main thread only. Not `retry`: call a failed handler only once. Raises LocalError."""
        if self._runner is not None:
            raise BadBot(why="it is already running")
        loop = asyncio.get_running_loop()
        before = self._store
        if link is None:
            from zerochat.agent.storage.profiles import NoProfile, profile_exists
            from zerochat.bot.socket_link import SocketLink

            home = profile_paths(self.profile, os.environ)
            if not profile_exists(home):
                raise NoProfile(profile=home.profile)
            link = SocketLink(home, f"bot {self.name}", _passphrase())
        self._store = store or self._open_store()
        spec = self._spec() if retry else replace(self._spec(), retries_s=())
        self._runner = Runner(spec, link, self._store, self._make_api)
        self._ready.set()
        ends = (signal.SIGTERM, signal.SIGINT) if signals else ()
        webhooks: WebhookServer | None = None
        try:
            for one in ends:
                loop.add_signal_handler(one, self._on_signal, loop, one)
            webhooks = await self._serve_webhooks()
            await self._runner.serve(watched=signals)
        finally:
            if webhooks is not None:
                await webhooks.close()
            for one in ends:
                loop.remove_signal_handler(one)
            self._runner, self._ready = None, asyncio.Event()
            if store is None and before is None:
                self._store.close()
            self._store = before

    async def _serve_webhooks(self) -> "WebhookServer | None":
        paths = {one.path for one in self._handlers if isinstance(one, WebhookHandler)}
        if self._webhooks is None or not paths:
            if paths:
                raise BadBot(why='`on_webhook` needs an address and a secret: Bot(webhooks="127.0.0.1:8090", …)')
            return None
        from zerochat.bot.webhooks import WebhookServer, read_secret

        host, port, secret = self._webhooks
        server = WebhookServer(read_secret(secret), paths, self._local_events(), self.now, self._wake_local)
        self.webhook_address = await server.start(host, port)
        at = f"http://{f'[{host}]' if ':' in host else host}:{self.webhook_address[1]}"
        logging.getLogger(f"zerochat.bot.{self.name}").info(
            "webhooks: %s", ", ".join(f"{at}/{path}" for path in sorted(paths))
        )
        return server

    async def ready(self) -> None:
        """Wait until the bot has subscribed to its groups."""
        while self._runner is None:
            await self._ready.wait()
        await self._runner.ready()

    @property
    def idle(self) -> bool:
        """Whether every received event is handled and acknowledged."""
        return self._runner is not None and self._runner.idle

    def stop(self) -> None:
        """End `serve` once the running handlers have ended."""
        if self._runner is not None:
            self._runner.stop()

    def _on_signal(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        """Stop; a second signal has its default effect."""
        self.stop()
        loop.remove_signal_handler(number)

    def _make_api(self, connection: Connection) -> BotApi:
        start = os.urandom(12).hex()
        return BotApi(self.name, connection.request, lambda: f"{start}.{next(self._numbers)}", self._pace(connection))

    def _pace(self, connection: Connection) -> Callable[[str], Awaitable[None]]:
        """Waits until something may be sent to a group."""
        loops = {"self", "bots"}
        listens = loops & {*self._include} or any(loops & {*one.include} for one in self._handlers)
        rate = SEND_RATE if self._send_rate == "" and listens else self._send_rate
        if not rate:
            return _no_wait
        limit = SendLimit(rate, asyncio.get_running_loop().time)

        async def wait(name: str) -> None:
            groups = connection.known.groups.values()
            await limit.wait(next((one.id for one in groups if one.matches(name)), name))

        return wait

    def _spec(self) -> BotSpec:
        handlers = list(self._handlers)
        for one in self._commands.all:
            if one.rate is not None:
                one.rate.reset()
        if self._help and self._commands.by_name and "help" not in self._commands.by_name:
            self._commands.by_name["help"] = Command(
                **{**self._handler(self._send_help, {"message"}), "name": "help"},
                word="help",
                parameters=(),
                help="list the commands",
                commands=self._commands,
            )
        if "help" in self._commands.by_name and self._commands.by_name["help"] not in handlers:
            handlers.append(self._commands.by_name["help"])
        return BotSpec(
            self.name,
            self._groups,
            handlers,
            self._timers,
            self._starts,
            self._failures,
            self._retries,
            self._credit,
            "replayed" in self._include,
            self._take_over,
            self._commands.announcements() if self._commands.prefix == "!" else [],
            self._arguments,
        )

    def _arguments(self, handler: Callee, event: Event | None) -> tuple[object, ...]:
        if event is None:
            return ()
        return (blocking_view(event) if handler.blocking else event,)

    async def _send_help(self, m: Message) -> None:
        lines = []
        for one in self._commands.all:
            only = f" ({one.role}s only)" if one.role else ""
            also = "".join(f", {self._commands.prefix}{alias}" for alias in one.aliases)
            lines.append(f"{one.line}{also} - {one.help}{only}" if one.help else f"{one.line}{also}{only}")
        await m.reply("\n".join(lines))


async def _no_wait(group: str) -> None:
    return


def run_deferred(bot: Bot) -> bool:
    """Whether the bot's file is only being imported (`defer_runs`), so the bot must not run."""
    if _deferred:
        _deferred[-1].append(bot)
    return bool(_deferred)


@contextmanager
def defer_runs() -> Iterator[list[Bot]]:
    """Collect the bots on which `run` is called within the block, instead of running them."""
    found: list[Bot] = []
    _deferred.append(found)
    try:
        yield found
    finally:
        _deferred.pop()


def store_path(home: ProfilePaths, name: str) -> Path:
    """Path of the database of a bot."""
    return home.data / "bots" / f"{name}.db"


def _passphrase() -> Callable[[], bytes] | None:
    """The source of the passphrase: the file named by ZEROCHAT_PASSPHRASE_FILE, if any."""
    if not os.environ.get("ZEROCHAT_PASSPHRASE_FILE"):
        return None
    from zerochat.agent.storage.profiles import passphrase_source

    return passphrase_source(os.environ)
