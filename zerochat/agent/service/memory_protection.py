"""Locking of the process's memory (mlockall), and refusal of core dumps and debuggers (prctl). Linux.

Keys are bytes objects, of which Python and the libraries make copies, so single buffers cannot be locked; all memory is
locked, or none. Under a limit of locked memory, locking everything would make later allocations fail: it is locked only
where no limit applies.
"""

import ctypes
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
"""As on x86 and ARM. ONFAULT locks a page when it is first used, so that reserved memory costs nothing."""
_CAP_IPC_LOCK: Final = 14
_LINUX: Final = sys.platform == "linux"


def forbid_core_dumps() -> None:
    """A crash must not write the memory, which holds keys, to disk."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def protect() -> None:
    """Refuse debuggers of the same user, and lock the memory of this process, as far as the system allows."""
    if not _LINUX:
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if _may_lock_all():
        libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT)


def is_dumpable() -> bool:
    """Whether processes of the same user can read the memory of this one."""
    return not _LINUX or ctypes.CDLL(None).prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) != 0


def is_locked() -> bool:
    """Whether all memory of this process is locked: what is locked also counts pages that are not in memory yet."""
    locked, resident = (int(_own_status().get(name, "0 kB").split()[0]) for name in ("VmLck", "VmRSS"))
    return locked >= resident > 0


def _may_lock_all() -> bool:
    """Whether no limit of locked memory applies. Raises the limit where the system allows that."""
    if int(_own_status().get("CapEff", "0"), 16) >> _CAP_IPC_LOCK & 1:
        return True
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard == resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY


def _own_status() -> dict[str, str]:
    """The lines of /proc/self/status, by name; empty where it cannot be read."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
