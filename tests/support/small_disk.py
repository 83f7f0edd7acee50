"""A disk of a few megabytes for one agent, which a test can fill.

It is a tmpfs in a mount namespace of its own, and holds the profile and the log; the control socket is elsewhere, so
that clients need no namespace. Linux, and only for the superuser.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from zerochat.agent.storage.paths import ProfilePaths

BALLAST: Final = "ballast"
LOG: Final = ".log"
"""The folder of the log, on the disk."""
_MAKE: Final = """
set -e
cp -a "$1" "$1.first"
mkdir -p "$2"
mount -t tmpfs -o "size=$3,mode=700" small "$1"
cp -a "$1.first/." "$1"
mkdir "$1/$4"
mount --bind "$1/$4" "$2"
echo made
exec cat
"""


@cache
def why_not() -> str:
    """Why there can be no such disk here; empty: there can."""
    if sys.platform != "linux":
        return "mount namespaces are Linux's"
    try:
        tried = subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
        )
    except OSError as error:
        return f"there is no unshare here ({error.strerror})"
    return "" if tried.returncode == 0 else "only the superuser may mount"


class SmallDisk:
    """The disk of an existing profile, whose agent does not run yet. A context; it stands where a Machine's `host`
    does."""

    address = "127.0.0.1"

    def __init__(self, places: ProfilePaths, size: int) -> None:
        """`size`: bytes."""
        self.data = places.data
        command = ["unshare", "-m", "sh", "-c", _MAKE, "sh", str(places.data), str(places.state), str(size), LOG]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        assert self._keeper.stdout is not None and self._keeper.stdout.readline() == b"made\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeper.communicate(timeout=20)

    def start(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a process that sees the disk, as Popen does; it is killed when the tests are."""
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *self._inside(command)], **options)

    def run(self, *verb: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        """`zerochat VERB` where the disk is."""
        command = self._inside([sys.executable, "-m", "zerochat", *verb])
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )

    def _inside(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._keeper.pid}/ns/mnt", "--", *command]

    @property
    def here(self) -> Path:
        """Where whoever does not see the disk finds what is on it."""
        return Path(f"/proc/{self._keeper.pid}/root{self.data}")

    def fill(self, leave: int = 0) -> None:
        """Take all the room, but for so many bytes (in pages)."""
        with (self.here / BALLAST).open("ab", buffering=0) as file:
            room = os.fstatvfs(file.fileno())
            free = room.f_bavail * room.f_frsize - leave
            assert free >= 0
            file.write(bytes(free))
            if not leave:
                try:
                    file.write(bytes(4096))
                except OSError:
                    return
                raise AssertionError("it is not full")

    def make_room(self) -> None:
        (self.here / BALLAST).unlink()
