"""The process that listens on a port, from `/proc` (Linux)."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENING: Final = "0A"
UNKNOWN: Final = "another program"


def port_holder(port: int) -> str:
    """What listens on this port, for a sentence: `process 4711 (nginx)`, or `another program`. The system names only
    the processes of the same user, and to a plain user no agent whose memory is protected."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[1-9]*") if sockets else ():
        with suppress(OSError):
            if any(_target(file) in sockets for file in (process / "fd").iterdir()):
                name = (process / "comm").read_text(errors="replace").strip()
                return f"process {process.name} ({name})"
    return UNKNOWN


def _listening_inodes(port: int) -> Iterator[str]:
    for table in TABLES:
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    yield inode


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        return ""
