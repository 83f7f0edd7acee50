"""Programs of the person's own that the agent runs when something is said (`hooks.on_message`, `hooks.on_mention`).

A hook is a list of words and never goes through a shell. It gets one event as a line of JSON on its input, the same
that `zerochat tail --format jsonl` prints; what it writes goes nowhere. One of each kind runs at a time and the next
event waits, up to a bound; whatever hangs is ended with all that it has started. Nothing that a hook does reaches the
agent, and of the agent's environment it sees a few variables only.
"""

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from msgspec import json

from zerochat.rpc import Event

if TYPE_CHECKING:
    import subprocess

WAITING_MAX: Final = 100
"""Events that wait for one hook; further ones are dropped, and counted."""
TELL_EVERY: Final = 100
"""After the first one, so many dropped events make the next line in the log."""
PASSED_ON: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "ZEROCHAT_HOME"),
)
"""The variables that a hook sees, besides ZEROCHAT_PROFILE: no secret is in any of them, nor where one is."""
ON_MESSAGE: Final = "on_message"
ON_MENTION: Final = "on_mention"


class Hooks:
    """The hooks of one agent. A context: when it ends, what still runs is ended, and what waits is forgotten."""

    def __init__(self, profile: str, log: logging.Logger, environ: Mapping[str, str]) -> None:
        self._log = log
        self._environ = {name: environ[name] for name in PASSED_ON if name in environ} | {"ZEROCHAT_PROFILE": profile}
        self._hooks: dict[str, _Hook] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.set({}, 0.0)

    def set(self, wanted: Mapping[str, tuple[str, ...]], timeout_s: float) -> None:
        """From now on these commands, by kind, each for `timeout_s` seconds at most; an empty one is none."""
        for name in list(self._hooks):
            if self._hooks[name].words != wanted.get(name) or self._hooks[name].timeout_s != timeout_s:
                self._hooks.pop(name).end()
        for name, words in wanted.items():
            if words and name not in self._hooks:
                self._hooks[name] = _Hook(name, words, timeout_s, self._environ, self._log)

    @property
    def wanted(self) -> bool:
        """Whether there is any hook at all."""
        return bool(self._hooks)

    def hear(self, events: Iterable[Event], mine: Mapping[str, str]) -> None:
        """Others' messages, as they have just come, and edits, of which one may call me who was not called before.
        `mine`: my DID in each group, by its id."""
        for event in events:
            if event.type not in ("message", "message_edited") or event.self or event.deleted:
                continue
            line = json.encode(event) + b"\n"
            if event.type == "message" and (hook := self._hooks.get(ON_MESSAGE)) is not None:
                hook.put(line)
            if mine.get(event.group, "") in event.mentions and (hook := self._hooks.get(ON_MENTION)) is not None:
                hook.put(line)


class _Hook:
    """One hook: what waits for it, and the thread that runs it."""

    def __init__(
        self, name: str, words: tuple[str, ...], timeout_s: float, environ: Mapping[str, str], log: logging.Logger
    ) -> None:
        self.name, self.words, self.timeout_s = name, words, timeout_s
        self._environ, self._log = environ, log
        self._waiting: deque[bytes] = deque()
        self._change = threading.Condition()
        self._ended = False
        self._dropped = 0
        self._running: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"zerochat-{name}", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Have it run for this; or drop that, where too much waits already."""
        with self._change:
            if len(self._waiting) < WAITING_MAX:
                self._waiting.append(line)
                self._change.notify()
                return
            self._dropped += 1
            dropped = self._dropped
        if dropped % TELL_EVERY == 1:
            self._log.warning("the hook %s is too slow: %d events were dropped so far", self.name, dropped)

    def end(self) -> None:
        """Run no more; what runs is ended."""
        with self._change:
            self._ended = True
            self._waiting.clear()
            self._change.notify()
            if self._running is not None:
                _kill(self._running)
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._ended or self._waiting)
                if self._ended:
                    return
                line = self._waiting.popleft()
            try:
                self._once(line)
            except (OSError, ValueError) as error:  # it is not there, may not be run, or has a NUL in its words
                self._log.warning("the hook %s could not be started: %s", self.name, type(error).__name__)

    def _once(self, line: bytes) -> None:
        """Run the program once, in a session of its own, so that all that it starts can be ended with it."""
        import subprocess  # which an agent without hooks need not load

        program = subprocess.Popen(
            self.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environ,
            cwd="/",
            start_new_session=True,
        )
        with self._change:
            self._running = program
            if self._ended:
                _kill(program)
        try:
            program.communicate(line, timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            self._log.warning("the hook %s was ended, because it took longer than its time", self.name)
        finally:
            with self._change:
                _kill(program)  # and with it what it has left behind, which nobody would end
                self._running = None
            program.wait()
            if program.stdin is not None:
                with suppress(OSError):
                    program.stdin.close()
        if program.returncode > 0:
            self._log.info("the hook %s ended with %d", self.name, program.returncode)


def _kill(program: "subprocess.Popen[bytes]") -> None:
    """End a program and its whole session. Its number is its own as long as nobody has waited for it; afterwards that
    of its group, as long as somebody is in that."""
    with suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)
