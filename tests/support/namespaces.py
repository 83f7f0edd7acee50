"""A LAN of network namespaces: machines with one interface each on a bridge, without any route out."""

import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from typing import Any

_NUMBERS = count()
CAPTURE = """
import socket, sys
one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
with open(sys.argv[1], "wb", buffering=0) as out:
    out.write(b"ready")
    while True:
        out.write(one.recv(65_536))
"""
"""Writes every frame that crosses an interface of its namespace to a file."""


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


def why_not() -> str:
    """Why there can be no namespaces here; empty: there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and the superuser"
    name = f"zc-try-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "delete", name)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces here: {getattr(error, 'stderr', error)}"
    return ""


class Lan:
    """The bridge is in a namespace of its own, so that nothing of it shows in that of the tests."""

    def __init__(self) -> None:
        self.name = f"zc{os.getpid() % 100_000}x{next(_NUMBERS)}"
        self.machines: list[str] = []

    def open(self) -> None:
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", self.name, "link", "set", "bridge", "up")

    def machine(self, address: str) -> str:
        """A new machine with this address, such as 10.9.0.1/24; its name."""
        name = f"{self.name}m{len(self.machines)}"
        _ip("netns", "add", name)
        self.machines.append(name)
        port = f"port{len(self.machines)}"
        _ip("-n", self.name, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", self.name, "link", "set", port, "master", "bridge", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", "eth0", "up")
        self.move(name, address)
        return name

    def move(self, name: str, address: str) -> None:
        """Give a machine this address in place of the one it has."""
        _ip("-n", name, "-4", "address", "flush", "dev", "eth0")
        _ip("-n", name, "address", "add", address, "dev", "eth0")

    def run(self, name: str, *words: str, **more: Any) -> "subprocess.Popen[bytes]":
        """A program on a machine."""
        return subprocess.Popen(["ip", "netns", "exec", name, *words], **more)

    def capture(self, path: str) -> "subprocess.Popen[bytes]":
        """Write what crosses the bridge to a file."""
        return self.run(self.name, sys.executable, "-c", CAPTURE, path)

    def close(self) -> None:
        for name in [*self.machines, self.name]:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=30)


@contextmanager
def lan():
    made = Lan()
    try:
        made.open()
        yield made
    finally:
        made.close()
