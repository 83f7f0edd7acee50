"""At rest: of what people say, of their names, passphrases and keys, nothing can be read outside of the sealed journal.

Recognisable words and the very keys are looked for, raw and in every usual encoding, in all files of two real agents in
processes of their own, in what they print, and in what the system shows of them: while they run, when they have ended,
and when they were killed.
"""

import base64
import dataclasses
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_agent import until
from zerochat.agent.client import connect
from zerochat.agent.journal import Journal
from zerochat.agent.places import Places, places
from zerochat.agent.vault import create_profile, unlock
from zerochat.group.state import Agent

ROOT = Path(__file__).parents[1]
START_S = 60.0


def encodings(secret: bytes) -> Iterator[bytes]:
    """The ways in which it could stand in a file; in base64 also where it begins in the middle of three bytes."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(bytes(shift) + secret).rstrip(b"=")
            # The first and the last characters also depend on what is beside it.
            yield text[-(-shift * 8 // 6) : len(text) - (1 if (shift + len(secret)) % 3 else 0)]


def findings(folders: Iterable[Path], processes: Iterable[int], needles: dict[str, bytes]) -> list[str]:
    """Where any of these can be read."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    files += [Path(f"/proc/{pid}/{name}") for pid in processes for name in ("environ", "cmdline", "comm", "maps")]
    found = []
    for path in files:
        content = path.read_bytes()
        for name, needle in needles.items():
            found += [f"{name} in {path}" for each in set(encodings(needle)) if each in content]
    return found


def secrets_of(value: Any, where: str = "state") -> Iterator[tuple[str, bytes]]:
    """All bytes of a state that its types keep out of what is printed."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from secrets_of(each, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from secrets_of(each, f"{where}[{number}]")
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            inner = getattr(value, each.name)
            if not each.repr and isinstance(inner, bytes) and 16 <= len(inner) <= 64:
                yield f"{where}.{each.name}", inner
            else:
                yield from secrets_of(inner, f"{where}.{each.name}")


class Person:
    """A profile with a passphrase, and its agent in a process of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.home = folder / name
        self.outside = folder / f"outside {name}"
        """For what belongs to the person, and not to the profile."""
        self.outside.mkdir()
        self.words = {word: f"{word}-{secrets.token_hex(8)}" for word in ("nick", "passphrase", "message", "group")}
        self.places: Places = places("p", {"ZEROCHAT_HOME": str(self.home)})
        self.passphrase = self.words["passphrase"].encode()
        create_profile(self.places, self.words["nick"], self.passphrase)
        self.key = unlock(self.places, lambda: self.passphrase)
        secret = self.outside / "passphrase"
        secret.write_bytes(self.passphrase)
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ},
            "PYTHONPATH": str(ROOT),
            "ZEROCHAT_HOME": str(self.home),
            "ZEROCHAT_PASSPHRASE_FILE": str(secret),
        }

    def start(self) -> None:
        printed = self.home / "printed"
        with printed.open("ab") as out:
            command = [sys.executable, "-m", "zerochat", "--profile", "p", "agent", "--listen", "127.0.0.1"]
            self.process = subprocess.Popen(command, env=self.environment, stdout=out, stderr=subprocess.STDOUT)
        ready = printed.read_bytes().count(b"ready profile=") + 1

        def is_ready() -> bool:
            assert self.process.poll() is None, printed.read_text()
            return printed.read_bytes().count(b"ready profile=") >= ready

        until(is_ready, "the start of an agent", START_S)
        self.client = connect(self.places, "test")

    def end(self, how: signal.Signals) -> None:
        self.client.close()
        self.process.send_signal(how)
        self.process.wait(START_S)

    def keys(self) -> dict[str, bytes]:
        """Every key that the journal holds, and its own; read from a copy, the agent has the journal."""
        copy = Path(self.client.backup())
        scratch = copy.rename(self.outside / "copy.db")
        with Journal.open(scratch, self.key) as journal:
            state = journal.load(Agent)
            found = dict(secrets_of(state)) | {"server_secret": journal.meta_get("server_secret") or b""}
        scratch.unlink()
        return {**found, "journal key": self.key}


@pytest.fixture
def people(tmp_path: Path) -> Iterator[list[Person]]:
    found = [Person(tmp_path, name) for name in ("one", "two")]
    yield found
    for person in found:
        process = getattr(person, "process", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc here")
def test_nothing_can_be_read_at_rest_or_from_outside(people: list[Person]):
    one, two = people
    for person in people:
        person.start()
    group = one.words["group"]
    one.client.new(group)
    two.client.subscribe()
    two.client.join(one.client.invite(group).url)
    until(lambda: any(each.state == "active" for each in two.client.groups()), "joining")
    until(lambda: all(m.connection in ("self", "connected") for m in one.client.members(group)), "meeting")
    for person, other in ((one, two), (two, one)):
        sent = person.client.send(group, person.words["message"])
        assert person.client.wait(group, sent.id).complete
        assert any(e.body.get("text") == person.words["message"] for e in other.client.history(group).events)

    needles = {f"{word} of {n}": text.encode() for n, p in enumerate(people) for word, text in p.words.items()}
    for number, person in enumerate(people):
        keys = person.keys()
        assert len(keys) > 5 and len(set(keys.values())) > 5, "the search has keys to look for"
        needles |= {f"{name} of {number}": key for name, key in keys.items()}
    folders = [person.home for person in people] + [person.places.socket.parent for person in people]
    running = [person.process.pid for person in people]
    for pid in running:
        (limit,) = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "core file" in line]
        assert limit.split()[4] == "0", "a crash would put the memory on disk"

    assert findings(folders, running, needles) == [], "while they run"
    copy = Path(one.client.backup())
    assert findings(folders, running, needles) == [], "with the copy for a backup"
    copy.unlink()

    # The harness itself: what is there is found, however it is written.
    for name in ("message of 0", "journal key of 1"):
        for planted in set(encodings(needles[name])):
            trap = one.places.state / "planted"
            trap.write_bytes(b"x\0" + planted + b"\n")
            assert findings(folders, [], needles) == [f"{name} in {trap}"], planted
            trap.unlink()
    for shift in range(3):
        trap = one.places.state / "planted"
        trap.write_bytes(base64.b64encode(b"abc"[:shift] + needles["journal key of 0"] + b"rest"))
        assert f"journal key of 0 in {trap}" in findings(folders, [], needles)
        trap.unlink()
    with subprocess.Popen(["sleep", "60"], env={"CANARY": one.words["passphrase"]}) as loud:
        assert findings([], [loud.pid], needles) == [f"passphrase of 0 in /proc/{loud.pid}/environ"]
        loud.kill()

    for person in people:
        person.end(signal.SIGTERM)
        assert person.process.returncode == 0
    assert findings(folders, [], needles) == [], "when they have ended"

    for person in people:
        person.start()
    one.client.send(group, one.words["message"])
    assert findings(folders, [person.process.pid for person in people], needles) == [], "when they run again"
    for person in people:
        person.end(signal.SIGKILL)
    assert findings(folders, [], needles) == [], "when they were killed"
