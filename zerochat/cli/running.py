"""The verb agent: a profile's agent in the foreground, for a person or for a service manager.

SIGTERM and Ctrl+C have it end when what waits is sent; a second one ends it at once. SIGHUP has it read the settings
again, or end where it means that the terminal has gone. Readiness, reloading and the end are told to whoever listens
(`agent/service/sd_notify.py`).
"""

import gc
import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from zerochat.cli.agents import passphrase_file, places_of, warn_of_settings, with_passphrase
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, narrate
from zerochat.cli.parser import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from zerochat.agent.loop import AgentThread
    from zerochat.agent.service.sd_notify import Herald
    from zerochat.rpc import Status

OWNED_S_MAX, OWNED_QUIET_S, OWNED_AGAIN_S = 10.0, 1.0, 0.1
"""How long `agent` waits for a profile that somebody else has, from when on it says so, and how often it looks."""
LOOK_S = 0.25
"""How often it is looked whether the agent has ended by itself; signals are heard at once."""
WATCH_SHARE = 3
"""So many times is the watchdog told within the time that it waits."""


class Wishes:
    """What signals have asked for."""

    def __init__(self) -> None:
        self.changed = threading.Event()
        self.ends = 0
        """How often we were told to end."""
        self.reloads = 0
        self._had_terminal = _on_terminal()

    def end(self, signum: int, frame: "FrameType | None") -> None:
        self.ends += 1
        if self.ends > 1:
            signal.signal(signum, signal.SIG_DFL)  # should even that not help
        self.changed.set()

    def hang_up(self, signum: int, frame: "FrameType | None") -> None:
        """The terminal has gone, or somebody wants the settings read again."""
        if self._had_terminal and not _on_terminal():
            self.end(signum, frame)
        else:
            self.reloads += 1
            self.changed.set()

    @contextmanager
    def heeded(self) -> "Iterator[None]":
        """From here on signals are wishes."""
        wanted = {signal.SIGINT: self.end, signal.SIGTERM: self.end, signal.SIGHUP: self.hang_up}
        before = {one: signal.getsignal(one) for one in wanted}
        for one, heed in wanted.items():
            if before[one] is not signal.SIG_IGN:
                signal.signal(one, heed)
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _on_terminal() -> bool:
    """Whether any of the three streams is a terminal that is still there."""
    return any(os.isatty(descriptor) for descriptor in range(3))


def agent(options: Options, out: Output) -> ExitCode:
    if options.print_unit:
        from zerochat.cli.units import agent_unit

        out.exactly(agent_unit(places_of(options), options).rstrip("\n"))
        return ExitCode.OK
    gc.disable()  # all that is loaded now stays, and to look through it again and again is a tenth of the start
    try:
        return _run(options, out)
    finally:
        gc.enable()


def _run(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.loop import AgentThread
    from zerochat.agent.service.sd_notify import Herald
    from zerochat.agent.settings.reader import load_settings
    from zerochat.agent.storage.profiles import how_locked, unlock

    herald = Herald(os.environ)
    home = places_of(options)
    key = with_passphrase(lambda source: unlock(home, source))
    unused_s = load_settings(home).lock_after * 60.0
    if unused_s and (passphrase_file() is not None or how_locked(home) != "passphrase"):
        unused_s = 0.0  # nobody has typed anything, so closing it would keep nobody out
    wishes = Wishes()

    def make() -> "AgentThread":
        return AgentThread(
            home,
            key,
            listen=options.listen,
            advertise=options.advertise,
            unused_s=unused_s or None,
            log_format=options.log_format,
            hooks=True,
        )

    with wishes.heeded():
        warn_of_settings(home)
        thread = _started(make, wishes)
        if thread is None:
            return ExitCode.OK
        try:
            herald.ready()
            gc.freeze()
            gc.enable()
            _say_ready(options, out)
            _until(wishes, thread, herald)
        finally:
            thread.stop()
    if thread.failure is not None:
        raise thread.failure
    if unused_s and thread.unneeded:
        narrate(f"Closed, because nobody has been attached for {unused_s / 60:.0f} minutes (agent.lock_after).")
    return ExitCode.OK


def _started(make: "Callable[[], AgentThread]", wishes: Wishes) -> "AgentThread | None":
    """An agent that runs, as soon as whoever has the profile lets go of it: most verbs hold it for a moment only. None
    when we are told to end meanwhile. Raises ProfileOwned when that takes too long."""
    from zerochat.agent.storage.profiles import ProfileOwned

    begun, said = time.monotonic(), False
    while True:
        thread = make()
        try:
            thread.start()
        except ProfileOwned as error:
            waited = time.monotonic() - begun
            if wishes.ends:
                return None
            if waited >= OWNED_S_MAX:
                raise
            if waited >= OWNED_QUIET_S and not said:
                said = True
                narrate(f"Another zerochat (process {error.fields['pid']}) has this profile; waiting until it is free…")
            wishes.changed.wait(OWNED_AGAIN_S)
        except BaseException:
            thread.stop()
            raise
        else:
            return thread


def _say_ready(options: Options, out: Output) -> None:
    from zerochat.agent.api.client import connect

    with connect(places_of(options), "cli") as client:
        ready = client.status()
    out.data(ready, [_ready_line(ready)])


def _ready_line(ready: "Status") -> str:
    return f"ready profile={ready.profile} pid={ready.pid} pair={ready.pair} queue={ready.queue}"


def _until(wishes: Wishes, thread: "AgentThread", herald: "Herald") -> None:
    """Serve the signals until the agent has ended: by itself (`stop`, or a failure), or because it was told to."""
    reloads, told, watched = 0, 0, 0.0
    patience = min(LOOK_S, herald.watchdog_s / WATCH_SHARE) if herald.watchdog_s else LOOK_S
    while thread.is_alive():
        if told:
            thread.join(patience)
        else:
            wishes.changed.wait(patience)
        wishes.changed.clear()
        if wishes.ends > told:
            told = wishes.ends
            if told > 1:
                return  # and whoever has called us stops it
            herald.stopping("Sending what waits", thread.drain_s)
            thread.drain()
        if wishes.reloads > reloads:
            reloads = wishes.reloads
            herald.reloading()
            thread.reload()
        while thread.reloaded:
            for sentence in thread.reloaded.popleft().sentences():
                narrate(sentence)
            herald.ready()
        now = time.monotonic()
        if herald.watchdog_s and now - watched >= herald.watchdog_s / WATCH_SHARE:
            watched = now
            if now - thread.beat < herald.watchdog_s / 2:  # one that hangs is not alive
                herald.alive()
