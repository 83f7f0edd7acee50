"""Verb agent: runs the agent of a profile in the foreground, for a user or a service manager.

SIGTERM and Ctrl+C drain the queues and stop; the second signal stops at once. SIGHUP reloads the settings, or stops the
agent if its terminal has closed. The service manager is notified of readiness, reloads and the stop
(`agent/service/sd_notify.py`).
"""

import gc
import os
import signal
import time
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import paths_of, warn_of_settings
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, network_options
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import passphrase_file, with_passphrase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from zerochat.agent.service.sd_notify import ServiceNotifier
    from zerochat.agent.thread import AgentThread
    from zerochat.rpc import Status


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "agent",
        "run the profile's agent in the foreground",
        "Run the profile's agent until Ctrl+C or SIGTERM: it keeps the connections, serves invitations and receives\n"
        "messages. Prints one line when it is ready. On the first signal it accepts nothing new, sends queued\n"
        "messages for at most agent.drain seconds and exits with 0; on the second it exits at once. SIGHUP reloads\n"
        "settings and prints which of them changed. It supports systemd's readiness protocol. By default it listens\n"
        "on all addresses, at ports that stay the same. --listen and --advertise are remembered for later starts,\n"
        "also of the chat and of other commands; a new --listen replaces both. If the settings file (`zerochat paths\n"
        "config`) sets one of them, the option applies to this run only.",
        """
zerochat agent
zerochat agent --listen 0.0.0.0:4242:4243 --advertise 203.0.113.7
zerochat agent --format jsonl >ready.json &
zerochat agent --log-format json
zerochat agent --print-unit >~/.config/systemd/user/zerochat.service
zerochat agent --print-unit system >zerochat.service
""",
        run=agent,
    )
    network_options(parser)
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="also write the log to standard error, as text or as one JSON object per line; it contains no names, keys"
        " or message texts",
    )
    parser.add_argument(
        "--print-unit",
        nargs="?",
        const="user",
        choices=("user", "system"),
        help="print a systemd unit that runs this agent, and exit: for your service manager (default), or for the"
        " system's, which confines the agent much more",
    )


OWNER_WAIT_S_MAX, OWNER_QUIET_S, OWNER_RETRY_S = 10.0, 1.0, 0.1
"""Time to wait for a profile that another process owns; the time before a message about it; the poll interval."""
POLL_S = 0.25
"""Interval of the check whether the agent has stopped by itself; signals are handled at once."""
WATCHDOG_DIVISOR = 3
"""Watchdog notifications per watchdog interval."""


class Signals:
    """Signals received so far."""

    def __init__(self) -> None:
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        """One for each signal. A handler may interrupt its reader anywhere; `SimpleQueue.put` is reentrant, and
        `Event.set` would wait for a lock that its own thread holds."""
        self.ends = 0
        """Number of stop signals."""
        self.reloads = 0
        self._had_terminal = _on_terminal()

    def end(self, signum: int, frame: "FrameType | None") -> None:
        self.ends += 1
        if self.ends > 1:
            signal.signal(signum, signal.SIG_DFL)  # the third signal kills the process
        self._wakeups.put(None)

    def hang_up(self, signum: int, frame: "FrameType | None") -> None:
        """SIGHUP: stop if the terminal has closed, otherwise reload the settings."""
        if self._had_terminal and not _on_terminal():
            self.end(signum, frame)
        else:
            self.reloads += 1
            self._wakeups.put(None)

    def wait(self, timeout_s: float) -> None:
        """Wait for the next signal, for at most this time."""
        with suppress(Empty):
            self._wakeups.get(timeout=timeout_s)

    @contextmanager
    def handled(self) -> "Iterator[None]":
        """Count signals instead of dying from them."""
        handlers = {signal.SIGINT: self.end, signal.SIGTERM: self.end, signal.SIGHUP: self.hang_up}
        before = {number: signal.getsignal(number) for number in handlers}
        for number, handler in handlers.items():
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, handler)
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)


def _on_terminal() -> bool:
    """Whether any standard stream is an open terminal."""
    return any(os.isatty(descriptor) for descriptor in range(3))


def agent(options: Options, out: Output) -> ExitCode:
    if options.print_unit is not None:
        from zerochat.cli.service_files import agent_unit

        out.exactly(agent_unit(paths_of(options), options).rstrip("\n"))
        return ExitCode.OK
    gc.disable()  # garbage collection of what is loaded now takes a tenth of the start
    try:
        return _run(options, out)
    finally:
        gc.enable()


def _run(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.service.sd_notify import ServiceNotifier
    from zerochat.agent.settings.reader import load_settings
    from zerochat.agent.storage.profiles import key_location, unlock
    from zerochat.agent.thread import AgentThread

    notifier = ServiceNotifier(os.environ)
    paths = paths_of(options)
    key = with_passphrase(lambda source: unlock(paths, source))
    unused_s = load_settings(paths).lock_after * 60.0
    if unused_s and (passphrase_file() is not None or key_location(paths) != "passphrase"):
        unused_s = 0.0  # no passphrase was typed, so locking would protect nothing
    signals = Signals()

    def make() -> "AgentThread":
        return AgentThread(
            paths,
            key,
            listen=options.listen,
            advertise=options.advertise,
            unused_s=unused_s or None,
            log_format=options.log_format,
            hooks=True,
        )

    with signals.handled():
        warn_of_settings(paths)
        thread = _started(make, signals)
        if thread is None:
            return ExitCode.OK
        try:
            notifier.ready()
            gc.freeze()
            gc.enable()
            _print_ready(options, out)
            _serve(signals, thread, notifier)
        finally:
            thread.stop()
    if thread.failure is not None:
        raise thread.failure
    if unused_s and thread.unneeded:
        narrate(f"Locked: no client was attached for {unused_s / 60:.0f} minutes (agent.lock_after).")
    return ExitCode.OK


def _started(make: "Callable[[], AgentThread]", signals: Signals) -> "AgentThread | None":
    """A running agent, started once the profile is free: most verbs own it only for a moment. None after a stop signal.
    Raises ProfileOwned on timeout."""
    from zerochat.agent.storage.profiles import ProfileOwned

    begun, reported = time.monotonic(), False
    while True:
        thread = make()
        try:
            thread.start()
        except ProfileOwned as error:
            waited = time.monotonic() - begun
            if signals.ends:
                return None
            if waited >= OWNER_WAIT_S_MAX:
                raise
            if waited >= OWNER_QUIET_S and not reported:
                reported = True
                narrate(
                    f"Another zerochat (process {error.fields['pid']}) is using this profile; waiting for it to exit…"
                )
            signals.wait(OWNER_RETRY_S)
        except BaseException:
            thread.stop()
            raise
        else:
            return thread


def _print_ready(options: Options, out: Output) -> None:
    from zerochat.agent.api.client import connect

    with connect(paths_of(options), "cli") as client:
        ready = client.get_status()
    out.report(ready, [_ready_line(ready)])


def _ready_line(ready: "Status") -> str:
    replaced = "".join(f" replaced={one.port}:{one.by}" for one in ready.replaced_ports)
    return f"ready profile={ready.profile} pid={ready.pid} pair={ready.pair} queue={ready.queue}{replaced}"


def _serve(signals: Signals, thread: "AgentThread", notifier: "ServiceNotifier") -> None:
    """Handle signals until the agent has stopped, by a signal, the `stop` method or a failure."""
    reloads, ends, notified = 0, 0, 0.0
    interval_s = min(POLL_S, notifier.watchdog_s / WATCHDOG_DIVISOR) if notifier.watchdog_s else POLL_S
    while thread.is_alive():
        if ends:
            thread.join(interval_s)
        else:
            signals.wait(interval_s)
        if signals.ends > ends:
            ends = signals.ends
            if ends > 1:
                return  # the caller stops the thread
            notifier.stopping("Sending queued messages", thread.drain_s)
            thread.drain()
        if signals.reloads > reloads:
            reloads = signals.reloads
            notifier.reloading()
            thread.reload()
        while thread.reloaded:
            for sentence in thread.reloaded.popleft().sentences():
                narrate(sentence)
            notifier.ready()
        now = time.monotonic()
        if notifier.watchdog_s and now - notified >= notifier.watchdog_s / WATCHDOG_DIVISOR:
            notified = now
            if now - thread.heartbeat < notifier.watchdog_s / 2:  # a hanging agent must be restarted
                notifier.alive()
