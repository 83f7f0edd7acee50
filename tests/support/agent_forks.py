"""Starts agents quickly: forks of a process with everything imported.

Each is a process of its own, with memory, sockets, threads and files of its own, and can be killed like any other.
Linux.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import apsw

PR_SET_PDEATHSIG = 1
HASTE = 9


class Child:
    """A process that is no child of ours, with as much of Popen as a Machine asks for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)
        self.args = "a fork"

    def poll(self) -> int | None:
        return -signal.SIGKILL if select.select([self._handle], [], [], 0)[0] else None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Until it has ended; how is not known."""
        assert select.select([self._handle], [], [], timeout)[0], f"process {self.pid} has not ended"
        return -signal.SIGKILL

    def __del__(self) -> None:
        os.close(self._handle)


class Nursery:
    """A context, at whose end all that were started here are killed. Stands where a Machine's `host` does."""

    address = "127.0.0.1"

    def __init__(self, fault: str = "") -> None:
        """`fault`: `hasty`, agents that speak first and remember later."""
        self._fault = fault

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__, self._fault]
        place = Path(__file__).parents[2]
        self._mother = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mother.communicate(timeout=20)

    def start(self, command: Sequence[str], *, env: Mapping[str, str], **_: Any) -> Child:
        """Start `python -m zerochat …`."""
        assert self._mother.stdin is not None and self._mother.stdout is not None
        self._mother.stdin.write(json.dumps([list(command[3:]), dict(env)]).encode() + b"\n")
        self._mother.stdin.flush()
        return Child(int(self._mother.stdout.readline()))


@contextmanager
def hasty(path: Path, db: apsw.Connection) -> Iterator[None]:
    """A transaction that is on disk not when the context ends, but now and then."""
    if not db.in_transaction:
        db.execute("BEGIN IMMEDIATE")
    yield
    if db.total_changes() % HASTE == 0:
        db.execute("COMMIT")


def main(fault: str) -> None:
    """The process that forks; it ends, and all its children with it, when nobody can ask any more."""
    import zerochat.agent.loop
    import zerochat.cli.agent_access  # noqa: F401  # for those who are forked
    from zerochat.agent.storage import journal
    from zerochat.cli import main as run

    if fault == "hasty":
        patch.object(journal, "transaction", hasty).start()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so the system buries them
    for line in sys.stdin.buffer:
        arguments, environment = json.loads(line)
        pid = os.fork()
        if pid:
            sys.stdout.write(f"{pid}\n")
            sys.stdout.flush()
            continue
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        os.environ.clear()
        os.environ.update(environment)
        os._exit(run(arguments))


if __name__ == "__main__":
    main(sys.argv[1])
