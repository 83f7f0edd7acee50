"""The agent thread: the only owner of a profile's sockets, disk and clock. Other threads start, stop and reload it."""

import logging
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from zerochat.agent.loop import AgentLoop
from zerochat.agent.loop_control import LoopControl
from zerochat.agent.service import memory_protection
from zerochat.agent.service.crash_log import LogFormat, handlers
from zerochat.agent.settings.reload import Reloaded
from zerochat.agent.settings.values import Hidden
from zerochat.agent.startup import Options, open_loop
from zerochat.agent.storage.journal import disk_error
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.storage.profiles import lock_profile
from zerochat.errors import LocalError

START_S_MAX: Final = 20.0
STOP_S_MAX: Final = 5.0


class AgentFailed(LocalError):
    """The agent did not start: {why}. The log has details; `zerochat paths log` prints its path."""

    exit_code: ClassVar[int] = 6


class AgentThread(threading.Thread):
    """One profile's agent. Clients use its control socket, never this object."""

    loop: AgentLoop
    """Set once the agent has started."""

    def __init__(
        self,
        paths: ProfilePaths,
        key: bytes,
        *,
        listen: str | None = None,
        advertise: str | None = None,
        hidden: Hidden = False,
        unused_s: float | None = None,
        log_format: LogFormat | None = None,
        hooks: bool = False,
        owner: str = "",
    ) -> None:
        """`key`: the journal's raw key. `listen`, `advertise`: win over the settings file; where the file sets neither,
        they are remembered for later starts. `unused_s`: end after this time without a client. `log_format`: also
        write the log to standard error. `hooks`: run the programs of the settings. `owner`: the client
        with which the agent ends; other clients are informed of it."""
        super().__init__(name="zerochat-agent", daemon=True)
        self._paths, self._key, self._log_format = paths, key, log_format
        self._options = Options(listen, advertise, hidden, unused_s, hooks, owner)
        self._control = LoopControl()
        self._log = logging.Logger("zerochat.agent")  # not shared by name: one process may run several agents
        self.failure: BaseException | None = None
        """The error that ended the thread."""

    # --- from other threads -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and return when the control socket listens. Raises LocalError."""
        super().start()
        self._control.ready.wait(START_S_MAX)
        if self.failure is not None:
            self.join(STOP_S_MAX)
            if isinstance(self.failure, LocalError):
                raise self.failure
            raise AgentFailed(why=type(self.failure).__name__) from self.failure
        if not self._control.ready.is_set():
            self.stop()
            raise AgentFailed(why=f"it was not ready after {START_S_MAX:.0f} seconds")

    def stop(self) -> None:
        """End the thread. Everything that was accepted is on disk."""
        self._control.stop.set()
        self._control.wakeup.wake()
        if self.is_alive():
            self.join(STOP_S_MAX)

    def drain(self) -> None:
        """Accept no new commands, announce the stop to clients, and end when connected peers have acknowledged
        everything, or after `drain_s` seconds. `stop` ends it at once."""
        self._control.drain.set()
        self._control.wakeup.wake()

    def reload(self) -> None:
        """Read the settings again; the result is appended to `reloaded`."""
        self._control.reload.set()
        self._control.wakeup.wake()

    @property
    def heartbeat(self) -> float:
        """When the loop last started to wait, on the monotonic clock."""
        return self._control.heartbeat

    @property
    def drain_s(self) -> float:
        """The time limit of `drain`, from the settings."""
        return self._control.drain_s

    @property
    def reloaded(self) -> deque[Reloaded]:
        return self._control.reloaded

    @property
    def unneeded(self) -> bool:
        """Whether the thread ended because no client was connected."""
        return self._control.unneeded

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- the thread itself ------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            with lock_profile(self._paths):
                memory_protection.forbid_core_dumps()
                self._open_log()
                with open_loop(self._paths, self._key, self._options, self._control, self._log) as (self.loop, inputs):
                    self.loop.run(inputs)
        except LocalError as error:
            self.failure = error
        except OSError as error:
            self.failure = disk_error(error, Path(error.filename or self._paths.data))
            self._log.exception("the agent ended because of a system error")
        except Exception as error:  # noqa: BLE001  # reported to the thread that started the agent
            self.failure = error
            self._log.exception("the agent ended because of an internal error")
        finally:
            self._control.ready.set()
            self._control.wakeup.close()
            for handler in list(self._log.handlers):
                self._log.removeHandler(handler)
                handler.close()

    def _open_log(self) -> None:
        self._paths.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        for handler in handlers(self._paths.log, self._log_format):
            self._log.addHandler(handler)
        self._log.propagate = False
        self._log.setLevel(logging.INFO)
