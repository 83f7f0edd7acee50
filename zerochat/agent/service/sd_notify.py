"""Tells whoever has started the agent how it stands: systemd, or anything else that speaks sd_notify.

Datagrams of `NAME=value` lines to the Unix socket that NOTIFY_SOCKET names (sd_notify(3)). Where nobody wants to be
told, nothing is sent; and nobody who does not listen can hold the agent up.
"""

import os
import socket
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Final

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"


class Herald:
    """What the service manager is told; where there is none, nobody is."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Takes the manager's variables out of `environ`: whatever the agent starts is not the service."""
        self.watchdog_s = _watchdog_s(environ)
        """How often the manager wants to hear that all is well, in seconds; 0: never."""
        self._address = environ.pop(SOCKET, "")
        for name in (WATCHDOG, WATCHDOG_PID):
            environ.pop(name, None)

    def ready(self, status: str = "") -> None:
        """The agent can be asked. Also the end of `reloading`."""
        self._say("READY=1", *_status(status))

    def reloading(self) -> None:
        """The settings are being read again; `ready` follows."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str, within_s: float) -> None:
        """The agent ends within so many seconds."""
        self._say("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(within_s * 1e6)}", *_status(status))

    def alive(self) -> None:
        """The agent does what it should; to be said more often than every `watchdog_s`."""
        self._say("WATCHDOG=1")

    def _say(self, *lines: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        address = self._address.replace("@", "\0", 1) if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            line.sendto("\n".join(lines).encode(), address)


def _status(text: str) -> list[str]:
    """A line for people, as `systemctl status` shows it."""
    return [f"STATUS={' '.join(text.split())}"] if text else []


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """What the manager has asked for, where it means this process."""
    if environ.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid()):
        return 0.0
    asked = environ.get(WATCHDOG, "")
    return int(asked) / 1e6 if asked.isascii() and asked.isdigit() and len(asked) < 16 else 0.0
