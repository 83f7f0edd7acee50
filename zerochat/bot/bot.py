"""`Bot`: the handlers of a bot, and how it is run."""

import asyncio
import itertools
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from zerochat import rpc
from zerochat.agent.storage.paths import Places, places
from zerochat.bot.agent_link import Line
from zerochat.bot.connection import Connection
from zerochat.bot.decorators import Listener, included
from zerochat.bot.events import Event, Group, Message, Sent
from zerochat.bot.handlers import Command, Handler, Include, Start, Timer
from zerochat.bot.import_guard import held_back
from zerochat.bot.invoke import HandlerStuck
from zerochat.bot.outgoing import Voice
from zerochat.bot.plan import Plan
from zerochat.bot.runner import Runner
from zerochat.bot.schedule import seconds_of
from zerochat.bot.store import DeadLetter, Store, Values
from zerochat.bot.sync import SyncVoice, blocking_view
from zerochat.errors import LocalError
from zerochat.rpc.subscriptions import CREDIT

NAME = re.compile(r"[a-z0-9._-]{1,64}")
RETRIES = ("1s", "5s", "30s")
TIMEOUT = "10m"


class BadBot(LocalError):
    """This bot cannot be made: {why}."""

    exit_code: ClassVar[int] = 2


class NotRunning(LocalError):
    """The bot {name} does not run, so nothing can be said or asked. Call this in a handler, or with `SyncBot` in a
    script."""


class Bot(Listener):
    """A program that listens to groups of a profile and answers. Its handlers are functions with a decorator."""

    def __init__(
        self,
        profile: str | None = None,
        name: str = "bot",
        *,
        groups: Sequence[str] | None = None,
        prefix: str = "!",
        include: Sequence[Include] = (),
        retries: Sequence[str | float] = RETRIES,
        timeout: str | float | None = TIMEOUT,
        credit: int = CREDIT,
        help: bool = True,
    ) -> None:
        """`profile`: None for ZEROCHAT_PROFILE, or `default`. `name`: under which the agent remembers how far this bot
        has come; two bots of one profile have two names. `groups`: only these (names or ids). `include`: what handlers
        get that they otherwise would not: what the profile itself has said (`self`), what other bots say (`bots`), and,
        the first time that a bot of this name runs, all that was said before (`replayed`). `retries`: how long it waits
        before it tries a handler again that has raised something; after the last one there is a dead letter. `timeout`:
        how long a handler or a timer may take (None: as long as it likes). `credit`: how many things may be on their
        way to it. `help`: whether it answers `!help`."""
        if not NAME.fullmatch(name):
            raise BadBot(why=f"its name {name!r} is not 1 to 64 of a-z, 0-9, dots, dashes and underscores")
        if not prefix or not prefix.isprintable() or " " in prefix:
            raise BadBot(why=f"the prefix {prefix!r} is nothing that a word can begin with")
        self.profile, self.name, self.groups = profile, name, groups
        try:
            self._retries = tuple(seconds_of(one) for one in retries)
            limit_s = None if timeout is None else seconds_of(timeout)
        except ValueError as error:
            raise BadBot(why=error) from None
        super().__init__(prefix, included("this bot", include), limit_s)
        self._credit, self._help = credit, help
        self._store: Store | None = None
        self._runner: Runner | None = None
        self._ready = asyncio.Event()
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"<Bot {self.name} of {self.profile or 'the default profile'}>"

    # --- what it says -----------------------------------------------------------------------------------------------

    @property
    def _voice(self) -> Voice:
        if self._runner is None:
            raise NotRunning(name=self.name)
        return self._runner.voice

    async def say(
        self, group: str | Group, text: str, *, files: Sequence[str | Path] = (), key: str | None = None
    ) -> Sent:
        """Say something in a group (its name, its id, or a `Group`). It is on disk when this returns."""
        return await self._voice.say(group, text, files=files, key=key)

    async def members(self, group: str | Group) -> list[rpc.MemberInfo]:
        """Who is in a group, and what is known of each."""
        return await self._voice.members(group)

    async def topic(self, group: str | Group, text: str, *, key: str | None = None) -> Sent:
        """Say what a group is about."""
        return await self._voice.topic(group, text, key=key)

    async def call(self, method: str, **params: object) -> Any:
        """Ask the agent for anything else that it can do (`zerochat rpc --schema` lists it)."""
        if self._runner is None:
            raise NotRunning(name=self.name)
        return await self._runner.ask(method, params)

    @property
    def home_group(self) -> str:
        """What the group is called to which it speaks first, as far as its handlers say so."""
        named = [*(self.groups or ()), *(one.group for one in self._handlers if one.group)]
        return named[0] if named else "console"

    def now(self) -> float:
        """UTC seconds; virtual ones where time is virtual."""
        return self._runner.now() if self._runner is not None else time.time()

    @property
    def sync(self) -> SyncVoice:
        """The same for handlers that are no coroutine functions: `bot.sync.say("ops", "done")`."""
        return SyncVoice(self._voice)

    # --- what it keeps ----------------------------------------------------------------------------------------------

    @property
    def kv(self) -> Values:
        """Values by name, on disk as soon as they are assigned; not encrypted."""
        return self._kept().values

    def dead_letters(self) -> list[DeadLetter]:
        """What no handler could be made to handle, oldest first."""
        return self._kept().dead()

    def retry(self, letter: DeadLetter | int | None = None) -> int:
        """Have dead letters tried again (None: all of them); how many."""
        return self._kept().want(letter.id if isinstance(letter, DeadLetter) else letter)

    def _kept(self) -> Store:
        if self._store is None:
            self._store = Store(store_path(places(self.profile, os.environ), self.name))
        return self._store

    # --- running it -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until Ctrl+C or SIGTERM. Where no agent of the profile runs, this process is the agent meanwhile."""
        if held_back(self):
            return
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        try:
            asyncio.run(self.live())
        except LocalError as error:
            print(f"zerochat: {error.sentence()}", file=sys.stderr)
            raise SystemExit(error.exit_code) from None

    async def live(self) -> None:
        """Run as a program does: until a signal comes. Where a thread is left that nothing can end, this ends the
        process at once, with exit code 9."""
        try:
            await self.serve(signals=True)
        except HandlerStuck as error:
            print(f"zerochat: {error.sentence()}", file=sys.stderr)
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.exit_code)

    async def serve(self, line: Line | None = None, *, store: Store | None = None, signals: bool = False) -> None:
        """Run in this event loop until `stop`, or until the task is cancelled. `line`, `store`: in the place of the
        profile's socket and folder, for tests. `signals`: end on SIGTERM and SIGINT, and interrupt what holds
        everything up; for the main thread. Raises LocalError."""
        if self._runner is not None:
            raise BadBot(why="it runs already")
        loop = asyncio.get_running_loop()
        before = self._store
        if line is None:
            from zerochat.agent.storage.profiles import NoProfile, profile_exists
            from zerochat.bot.socket_link import SocketLine

            home = places(self.profile, os.environ)
            if not profile_exists(home):
                raise NoProfile(profile=home.profile)
            line = SocketLine(home, f"bot {self.name}", _passphrase())
        self._store = store or self._kept()
        self._runner = Runner(self._plan(), line, self._store, self._voice_for)
        self._ready.set()
        ends = (signal.SIGTERM, signal.SIGINT) if signals else ()
        try:
            for one in ends:
                loop.add_signal_handler(one, self._end, loop, one)
            await self._runner.serve(watched=signals)
        finally:
            for one in ends:
                loop.remove_signal_handler(one)
            self._runner, self._ready = None, asyncio.Event()
            if store is None and before is None:
                self._store.close()
            self._store = before

    async def ready(self) -> None:
        """Until it hears its groups."""
        while self._runner is None:
            await self._ready.wait()
        await self._runner.ready()

    @property
    def idle(self) -> bool:
        """Everything that it was told so far is handled and acknowledged."""
        return self._runner is not None and self._runner.idle

    def stop(self) -> None:
        """Have `serve` end, as soon as the handlers that are at work have ended."""
        if self._runner is not None:
            self._runner.stop()

    def _end(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        """A signal has come. Whoever sends it twice does not want to wait."""
        self.stop()
        loop.remove_signal_handler(number)

    def _voice_for(self, connection: Connection) -> Voice:
        start = os.urandom(12).hex()
        return Voice(self.name, connection.ask, lambda: f"{start}.{next(self._numbers)}")

    def _plan(self) -> Plan:
        handlers = list(self._handlers)
        for one in self._commands.known.values():
            if one.rate is not None:
                one.rate.forget()
        commands = list(self._commands.known.values())
        if self._help and commands and "help" not in self._commands.known:
            ours = Command(
                **{**self._handler(self._tell_help, {"message"}, None, ""), "name": "help"},
                word="help",
                parameters=(),
                help="what I can be asked",
                commands=self._commands,
            )
            self._commands.known["help"] = ours
        if "help" in self._commands.known and self._commands.known["help"] not in handlers:
            handlers.append(self._commands.known["help"])
        announced = [one.announced() for one in self._commands.known.values()] if self._commands.prefix == "!" else []
        return Plan(
            self.name,
            self.groups,
            handlers,
            self._timers,
            self._starts,
            self._retries,
            self._credit,
            "replayed" in self._include,
            announced,
            self._arguments,
        )

    def _arguments(self, handler: Handler | Timer | Start, event: Event | None) -> tuple[object, ...]:
        if event is None:
            return ()
        return (blocking_view(event) if handler.blocking else event,)

    async def _tell_help(self, m: Message) -> None:
        lines = []
        for one in self._commands.known.values():
            asked = f"{self._commands.prefix}{one.word} {one.usage}".rstrip()
            only = f" ({one.role}s only)" if one.role else ""
            lines.append(f"{asked} - {one.help}{only}" if one.help else f"{asked}{only}")
        await m.reply("\n".join(lines))


def store_path(home: Places, name: str) -> Path:
    """Where a bot of this name keeps what it keeps."""
    return home.data / "bots" / f"{name}.db"


def _passphrase() -> Callable[[], bytes] | None:
    """Where the passphrase would come from: the file that ZEROCHAT_PASSPHRASE_FILE names."""
    if not os.environ.get("ZEROCHAT_PASSPHRASE_FILE"):
        return None
    from zerochat.agent.storage.profiles import passphrase_source

    return passphrase_source(os.environ)
