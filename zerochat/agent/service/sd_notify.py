"""Service notification (sd_notify): reports readiness, reloads, shutdown and watchdog pings to systemd.

Datagrams of `NAME=value` lines to the Unix socket named by NOTIFY_SOCKET (sd_notify(3)). Without the variable nothing
is sent, and a receiver that does not read cannot block the agent.
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


class ServiceNotifier:
    """Notifications for the service manager, if there is one."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Removes the manager's variables from `environ`, so that child processes do not inherit them."""
        self.watchdog_s = _watchdog_s(environ)
        """The watchdog interval in seconds; 0: none."""
        self._address = environ.pop(SOCKET, "")
        for name in (WATCHDOG, WATCHDOG_PID):
            environ.pop(name, None)

    def ready(self, status: str = "") -> None:
        """The agent accepts requests, or has finished `reloading`."""
        self._send("READY=1", *_status(status))

    def reloading(self) -> None:
        """The settings are being reloaded; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str, within_s: float) -> None:
        """The agent stops within so many seconds."""
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(within_s * 1e6)}", *_status(status))

    def alive(self) -> None:
        """A watchdog ping, to be sent more often than every `watchdog_s`."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        address = self._address.replace("@", "\0", 1) if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            line.sendto("\n".join(lines).encode(), address)


def _status(text: str) -> list[str]:
    """The status line that `systemctl status` shows."""
    return [f"STATUS={' '.join(text.split())}"] if text else []


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """The watchdog interval for this process in seconds; 0: none."""
    if environ.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid()):
        return 0.0
    interval = environ.get(WATCHDOG, "")
    return int(interval) / 1e6 if interval.isascii() and interval.isdigit() and len(interval) < 16 else 0.0
