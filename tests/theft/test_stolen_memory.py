"""The memory of a process with two agents: used keys are not in it for long, though nothing wipes it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import unlock
from zerochat.group.state import Agent

pytestmark = [
    pytest.mark.theft,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process in /proc"),
]

POSTS = 20
"""After so many more posts no used key may be in memory."""


class Talking:
    """The process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = [sys.executable, "-m", "tests.support.talking_agents", str(folder)]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer("ready")

    def answer(self, expected: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == expected + "\n"

    def post(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.answer("posted")

    def chain_key(self, name: str) -> bytes:
        """The key from which bob derives the next message keys of alice, by a copy of his profile."""
        paths = profile_paths("bob", {"ZEROCHAT_HOME": str(self.folder / "bob")})
        copy = self.folder / name
        shutil.copytree(paths.data, copy, ignore=shutil.ignore_patterns("*.sock"))
        with Journal.open(copy / paths.journal.name, unlock(paths, None)) as journal:
            agent = journal.load(Agent)
        assert agent is not None
        (group,) = agent.groups.values()
        (epochs,) = group.dcgka.keys.receiving.values()
        return epochs[-1].chain_key

    def count(self, key: bytes) -> int:
        """How often a key is in memory."""
        folder, found = Path(f"/proc/{self.process.pid}"), 0
        try:
            descriptor = os.open(folder / "mem", os.O_RDONLY)
        except PermissionError:
            pytest.skip("the memory of other processes cannot be read here")
        try:
            for line in (folder / "maps").read_text().splitlines():
                if (place := re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)) is not None:
                    start, end = (int(each, 16) for each in place.groups())
                    with suppress(OSError):  # a region of the kernel
                        found += os.pread(descriptor, end - start, start).count(key)
        finally:
            os.close(descriptor)
        return found


@pytest.fixture
def talking(tmp_path: Path) -> Iterator[Talking]:
    made = Talking(tmp_path)
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    assert made.process.wait(30) == 0
    assert made.process.stdout is not None
    made.process.stdout.close()


def test_used_keys_leave_the_memory(talking: Talking):
    talking.post()
    old = talking.chain_key("before")
    assert talking.count(old) > 0, "so keys are found"
    for _ in range(POSTS):
        talking.post()
    assert talking.chain_key("after") != old
    assert talking.count(old) == 0
