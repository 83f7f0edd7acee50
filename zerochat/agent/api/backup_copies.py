"""Requests for a copy of the journal: made in slices between the batches, so that the agent goes on meanwhile."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct

from zerochat import rpc
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import path_to_wire
from zerochat.errors import LocalError, Retry
from zerochat.group.state import Agent

PROGRESS_S: Final = 0.25
"""The interval of progress notifications."""


class BackupRunning(LocalError):
    """Another backup of this profile is being made. Try again when it has ended."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 5


class _Copy(Struct):
    call: Call
    path: Path
    slices: Generator[tuple[int, int], None, None]
    notified_at: float = 0.0


class BackupCopies(Struct):
    """The copy that is being made; one at a time."""

    server: ControlServer
    journal: Journal
    refuse: Callable[[Call, LocalError], None]
    _copy: _Copy | None = None

    def begin(self, call: Call) -> None:
        """Raises BackupRunning, or what the disk raises."""
        from zerochat.agent.storage.backup import prepare_copy  # rarely used

        self._drop_if_gone()
        if self._copy is not None:
            raise BackupRunning
        path = prepare_copy(self.journal)
        self._copy = _Copy(call, path, self.journal.copy_in_slices(path))

    def review(self, agent: Agent, now: float) -> float | None:
        """Copy the next slice; the time of the one after it. Seconds on the monotonic clock."""
        self._drop_if_gone()
        copy = self._copy
        if copy is None:
            return None
        try:
            done, of = next(copy.slices)
        except StopIteration:
            self._copy = None
            self.server.respond(copy.call, rpc.BackupCopy(path_to_wire(copy.path)))
            return None
        except LocalError as error:
            self._copy = None
            self.refuse(copy.call, error)
            return None
        if now >= copy.notified_at + PROGRESS_S:
            copy.notified_at = now
            self.server.notify([copy.call.client], "backup_progress", rpc.BackupProgress(done, of))
        return now

    def drop(self) -> None:
        """Remove the incomplete copy: the agent stops, or its client has gone."""
        if self._copy is not None:
            self._copy.slices.close()
            self._copy = None

    def _drop_if_gone(self) -> None:
        if self._copy is not None and self._copy.call.client not in self.server.clients:
            self.drop()
