"""Hooks: programs of the user that run for new messages (`hooks.on_message`, `hooks.on_mention`).

A hook is a list of words and is never passed to a shell. It gets one event as a line of JSON on standard input, as
printed by `zerochat tail --format jsonl`; its output is discarded. One process per hook runs at a time, with a bounded
queue; on timeout the process and its children are killed. A hook inherits only a few environment variables.
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
"""Queued events of one hook; further ones are dropped and counted."""
LOG_EVERY: Final = 100
"""Dropped events per line in the log."""
PASSED_ON: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "ZEROCHAT_HOME"),
)
"""Environment variables of a hook, in addition to ZEROCHAT_PROFILE; none contains or locates a secret."""
ON_MESSAGE: Final = "on_message"
ON_MENTION: Final = "on_mention"


class Hooks:
    """The hooks of one agent. A context manager: at its end running hooks are killed and queues dropped."""

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
        """Set the commands by kind, each with a timeout of `timeout_s` seconds; an empty one removes the hook."""
        for name in list(self._hooks):
            if self._hooks[name].words != wanted.get(name) or self._hooks[name].timeout_s != timeout_s:
                self._hooks.pop(name).end()
        for name, words in wanted.items():
            if words and name not in self._hooks:
                self._hooks[name] = _Hook(name, words, timeout_s, self._environ, self._log)

    @property
    def wanted(self) -> bool:
        """Whether any hook is set."""
        return bool(self._hooks)

    def hear(self, events: Iterable[Event], mine: Mapping[str, str]) -> None:
        """Run the hooks for received messages of others, and for edits, which may add a mention. `mine`: our DID by
        group id."""
        for event in events:
            if event.type not in ("message", "message_edited") or event.self or event.deleted or event.ignored:
                continue
            line = json.encode(event) + b"\n"
            if event.type == "message" and (hook := self._hooks.get(ON_MESSAGE)) is not None:
                hook.put(line)
            if mine.get(event.group, "") in event.mentions and (hook := self._hooks.get(ON_MENTION)) is not None:
                hook.put(line)


class _Hook:
    """One hook: its queue, and the thread that runs it."""

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
        """Queue an event, or drop it if the queue is full."""
        with self._change:
            if len(self._waiting) < WAITING_MAX:
                self._waiting.append(line)
                self._change.notify()
                return
            self._dropped += 1
            dropped = self._dropped
        if dropped % LOG_EVERY == 1:
            self._log.warning("hook %s is too slow: %d events dropped so far", self.name, dropped)

    def end(self) -> None:
        """End the hook, and kill its running process."""
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
            except (OSError, ValueError) as error:  # missing, not executable, or a NUL in an argument
                self._log.warning("hook %s could not be started: %s", self.name, type(error).__name__)

    def _once(self, line: bytes) -> None:
        """Run the program once, in its own session, so that its children can be killed with it."""
        import subprocess  # not loaded without hooks

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
            self._log.warning("hook %s was killed after its timeout", self.name)
        finally:
            with self._change:
                _kill(program)  # and the children that it has left behind
                self._running = None
            program.wait()
            if program.stdin is not None:
                with suppress(OSError):
                    program.stdin.close()
        if program.returncode > 0:
            self._log.info("hook %s exited with %d", self.name, program.returncode)


def _kill(program: "subprocess.Popen[bytes]") -> None:
    """Kill a program and its session. Its id stays valid until `wait`, and afterwards as its process group's id while a
    child is alive."""
    with suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)
