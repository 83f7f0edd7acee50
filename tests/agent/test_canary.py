"""Confidentiality at rest: no content, name, passphrase or key leaves the encrypted journal.

Recognisable words and the keys themselves are searched for, raw and in every usual encoding, in all files of real
agent processes, in their output, and in what the system shows of them: while they run, after they have ended, and
after they were killed. The home, the working folder and the folder for temporary files are searched, and so are
backfilled history, a backup, what remains of an export and of an internal error, and the store of a mediator.
"""

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import asdict

from tests.support.agents import until
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.mediator.identity import open_store
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.crypto.structs import Redacted
from zerochat.group.state import Agent

ROOT = Path(__file__).parents[2]
START_S = 60.0
LETTER_CHARS = 12_000
WORDS = ("nick", "passphrase", "message", "group", "label")
AGENT = ("agent", "--listen", "127.0.0.1")
linux = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc here")
FAULTY = """
import sys
from zerochat.agent import loop
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.cli import main

step, notify, texts = loop.step, RequestHandlers.notify, []

def faulty_step(agent, input_, context):
    text = getattr(getattr(input_, "command", None), "text", "")
    if text.startswith("core"):
        try:
            {}[text]
        except KeyError:
            raise ValueError(f"{text} of {agent}")
    texts.append(text)
    return step(agent, input_, context)

def faulty_notify(self, changes, agent):
    if any(text.startswith("handlers") for text in texts):
        raise RuntimeError(f"{texts} of {agent}")
    return notify(self, changes, agent)

loop.step, RequestHandlers.notify = faulty_step, faulty_notify
sys.exit(main())
"""
"""An agent with internal errors, in the core and outside of it, whose exceptions contain the message's text."""


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
        try:
            content = path.read_bytes()
        except PermissionError:  # of a protected process, as a plain user
            assert path.is_relative_to("/proc")
            continue
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
    elif isinstance(value, Struct):
        veiled = value.REDACTED if isinstance(value, Redacted) else ()
        for name, inner in asdict(value).items():
            if name in veiled and isinstance(inner, bytes) and 16 <= len(inner) <= 64:
                yield f"{where}.{name}", inner
            else:
                yield from secrets_of(inner, f"{where}.{name}")


class Person:
    """A profile with a passphrase, and its agent in a process of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.home = folder / name
        self.outside = folder / f"outside {name}"
        """For what belongs to the person, and not to the profile."""
        self.outside.mkdir()
        self.words = {word: f"{word}-{secrets.token_hex(8)}" for word in WORDS}
        self.places: ProfilePaths = profile_paths("p", {"ZEROCHAT_HOME": str(self.home)})
        self.passphrase = self.words["passphrase"].encode()
        create_profile(self.places, self.words["nick"], self.passphrase)
        self.key = unlock(self.places, lambda: self.passphrase)
        secret = self.outside / "passphrase"
        secret.write_bytes(self.passphrase)
        self.printed = self.home / "printed"
        here = {name: self.home / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME")}
        for folder_ in here.values():
            folder_.mkdir()
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ},
            **{name: str(folder_) for name, folder_ in here.items()},
            "PYTHONPATH": str(ROOT),
            "ZEROCHAT_HOME": str(self.home),
            "ZEROCHAT_PASSPHRASE_FILE": str(secret),
        }

    def run(self, *verb: str, program: tuple[str, ...] = ("-m", "zerochat"), ready: bytes = b"ready profile=") -> None:
        """Start a process, and wait until it says that it is ready."""
        with self.printed.open("ab") as out:
            command = [sys.executable, *program, "--profile", "p", *verb]
            self.process = subprocess.Popen(
                command, cwd=self.home, env=self.environment, stdout=out, stderr=subprocess.STDOUT
            )
        times = self.printed.read_bytes().count(ready) + 1

        def is_ready() -> bool:
            assert self.process.poll() is None, self.printed.read_text()
            return self.printed.read_bytes().count(ready) >= times

        until(is_ready, "the start of a process", START_S)

    def start(self, program: tuple[str, ...] = ("-m", "zerochat")) -> None:
        self.run(*AGENT, program=program)
        self.client = connect(self.places, "test")

    def verb(self, *words: str, profile: str = "p") -> bytes:
        """Run a verb to its end; what it prints. That is for whoever has typed it, and may say what a group is
        called."""
        command = [sys.executable, "-m", "zerochat", "--profile", profile, *words]
        done = subprocess.run(command, cwd=self.home, env=self.environment, capture_output=True, timeout=START_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self, how: signal.Signals) -> None:
        self.client.close()
        self.process.send_signal(how)
        self.process.wait(START_S)

    def keys(self) -> dict[str, bytes]:
        """Every key that the journal holds, and its own; read from a copy, the agent has the journal."""
        copy = Path(self.client.create_backup())
        scratch = copy.rename(self.outside / "copy.db")
        with Journal.open(scratch, self.key) as journal:
            state = journal.load(Agent)
            found = dict(secrets_of(state)) | {"server_secret": journal.meta_get("server_secret") or b""}
        scratch.unlink()
        return {**found, "journal key": self.key}


def needles_of(people: list[Person]) -> dict[str, bytes]:
    """What nobody may read: everybody's words and keys, and how the groups are called among programs."""
    needles = {f"{word} of {n}": text.encode() for n, p in enumerate(people) for word, text in p.words.items()}
    for number, person in enumerate(people):
        keys = person.keys()
        assert len(set(keys.values())) >= 5, "the search has keys to look for"
        needles |= {f"{name} of {number}": key for name, key in keys.items() if any(key)}
        for group in person.client.list_groups():
            needles |= {f"a group's id of {number}": group.id.encode(), f"a DID of {number}": group.me.encode()}
    return needles


def folders_of(people: list[Person]) -> list[Path]:
    return [person.home for person in people] + [person.places.socket.parent for person in people]


def bring_in(host: Person, guest: Person) -> None:
    """Into the host's group, under the guest's label."""
    guest.client.subscribe()
    guest.client.join_group(host.client.create_invitation(host.words["group"]).url, name=guest.words["label"])
    until(lambda: any(each.state == "active" for each in guest.client.list_groups()), "joining")


def met(person: Person, group: str) -> bool:
    return all(m.connection in ("self", "connected") for m in person.client.list_members(group))


def say(person: Person, group: str, *hearers: Person) -> None:
    """The person's message, until everybody has it."""
    sent = person.client.send_message(group, person.words["message"])
    assert person.client.wait_for_delivery(group, sent.id).complete
    assert all(person.words["message"] in said_to(one, group) for one in hearers)


def said_to(person: Person, group: str) -> list[object]:
    return [event.body.get("text") for event in person.client.get_history(group, limit=500).events]


@pytest.fixture
def people(tmp_path: Path) -> Iterator[list[Person]]:
    found = [Person(tmp_path, name) for name in ("one", "two", "three")]
    yield found
    for person in found:
        process, client = getattr(person, "process", None), getattr(person, "client", None)
        if client is not None:
            client.close()
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.slow
@linux
def test_no_content_is_readable_at_rest_or_from_outside(people: list[Person]):
    one, two = people = people[:2]
    for person in people:
        person.start()
    group = one.words["group"]
    one.client.create_group(group)
    bring_in(one, two)
    until(lambda: met(one, group), "meeting")
    one.client.set_display_name(group, one.words["label"])
    for person in people:  # what is recorded of it lies in the same place
        asked = person.client.call("get_telemetry")
        assert person.client.call("set_telemetry", on=True, consent=asked.consent).recording
    say(one, group, two)
    say(two, group, one)

    assert all(person.client.call("get_telemetry").rows for person in people)
    needles, folders = needles_of(people), folders_of(people)
    for person in people:
        log = person.places.journal.with_name("journal.db-wal")
        assert log.stat().st_size > 0, "what SQLite keeps beside the journal is searched as well"
    running = [person.process.pid for person in people]
    for pid in running:
        (limit,) = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "core file" in line]
        assert limit.split()[4] == "0", "a crash would put the memory on disk"

    assert findings(folders, running, needles) == [], "while they run"
    copy = Path(one.client.create_backup())
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
        loudly = [f"passphrase of 0 in /proc/{loud.pid}/environ"]
        until(lambda: findings([], [loud.pid], needles) == loudly, "finding it in the environment of a process")
        loud.kill()

    for person in people:
        person.end(signal.SIGTERM)
        assert person.process.returncode == 0
    assert findings(folders, [], needles) == [], "when they have ended"

    for person in people:
        person.start()
    one.client.send_message(group, one.words["message"])
    assert findings(folders, [person.process.pid for person in people], needles) == [], "when they run again"
    for person in people:
        person.end(signal.SIGKILL)
    assert findings(folders, [], needles) == [], "when they were killed"


@pytest.mark.slow
@linux
def test_history_backup_and_export_leave_no_plaintext(people: list[Person]):
    one, two, three = people
    for person in people:
        person.start()
    group = one.words["group"]
    one.client.create_group(group)
    bring_in(one, two)
    until(lambda: met(one, group), "meeting")
    say(one, group, two)
    say(two, group, one)
    bring_in(one, three)
    until(lambda: {p.words["message"] for p in (one, two)} <= set(said_to(three, group)), "the history coming")
    until(lambda: met(three, group), "meeting the newcomer")

    backup = one.home / "backup.tar"
    one.verb("backup", str(backup))
    one.verb("restore", str(backup), profile="again")
    for how, target in (("file", one.outside / "history.jsonl"), ("stream", one.outside / "printed.jsonl")):
        if how == "file":
            one.verb("export", group, "--output", str(target))
        else:
            target.write_bytes(one.verb("export", group, "--output", "-"))
        for person in (one, two):
            assert person.words["message"].encode() in target.read_bytes(), "that is what an export is for"
    assert backup.stat().st_size > 10_000 and (one.home / "data" / "again" / "journal.db").stat().st_size > 10_000

    needles, folders = needles_of(people), folders_of(people)
    assert findings(folders, [person.process.pid for person in people], needles) == [], "while they run"
    for person in people:
        person.end(signal.SIGKILL if person is three else signal.SIGTERM)
    assert findings(folders, [], needles) == [], "when they have ended"
    assert findings([one.outside], [], needles), "the harness finds what is in an export"


@pytest.mark.slow
@linux
def test_an_internal_error_logs_no_content(people: list[Person]):
    """In the core and outside of it; the agent goes on."""
    (one,) = people = people[:1]
    one.start(("-c", FAULTY))
    one.client.create_group(one.words["group"])
    one.client.send_message(one.words["group"], one.words["message"])
    needles, folders = needles_of(people), folders_of(people)
    with pytest.raises(AgentError, match="Internal error"):
        one.client.send_message(one.words["group"], f"core {one.words['message']}")
    log = one.places.log.read_text()
    assert (
        "internal error in the core while processing CommandInput" in log and "ValueError" in log and "KeyError" in log
    )
    assert "in faulty_step" in log, "the log names the function"
    assert findings(folders, [one.process.pid], needles) == [], "after a fault in the core"
    one.client.send_message(one.words["group"], f"handlers {one.words['message']}")
    until(lambda: "in faulty_notify" in one.places.log.read_text(), "that the handlers fail")
    assert "RuntimeError" in one.places.log.read_text()
    assert findings(folders, [one.process.pid], needles) == [], "after a fault outside of the core"
    one.end(signal.SIGTERM)
    assert findings(folders, [], needles) == [], "after the end of it"


@pytest.mark.slow
@linux
def test_a_mediator_stores_no_plaintext(people: list[Person]):
    """What it keeps for somebody who is away: not in its store, nor in what SQLite writes beside it, nor where its
    operator opens the store with the key to it."""
    one, two, relay = people
    mediator = ("--format", "jsonl", "mediator", "--listen", "127.0.0.1")
    relay.run(*mediator, ready=b'"ready"')
    (told,) = [json.loads(line) for line in relay.printed.read_text().splitlines() if '"ready"' in line]
    for person in (one, two):
        person.start()
    group = one.words["group"]
    one.client.create_group(group)
    two.client.subscribe()
    two.client.call("open_connection", invitation=told["link"], mediate=True, name=two.words["nick"])
    until(
        lambda: any(c.mediator == "granted" and c.reachable for c in two.client.call("list_connections")), "mediation"
    )
    bring_in(one, two)
    until(lambda: met(one, group), "meeting")
    say(one, group, two)
    say(two, group, one)
    needles = needles_of([one, two]) | {f"{word} of the mediator": t.encode() for word, t in relay.words.items()}
    needles |= {"key of the mediator": relay.key}

    two.end(signal.SIGTERM)
    until(lambda: not any(m.via == "link" for m in one.client.list_members(group)), "being away")
    before = kept_by(relay)
    text = f"{one.words['message']} {secrets.token_hex(LETTER_CHARS // 2)}"
    one.client.send_message(group, text)
    until(lambda: kept_by(relay) > before + LETTER_CHARS, "the mediator keeping it")
    names = {path.name for path in relay.home.rglob("*") if path.is_file()}
    assert any(name.endswith("-wal") for name in names), names
    folders = folders_of([one, two, relay])
    assert findings(folders, [one.process.pid, relay.process.pid], needles) == [], "while it keeps it"
    relay.process.send_signal(signal.SIGKILL)
    relay.process.wait(START_S)
    rows = relay.outside / "rows"
    rows.mkdir()
    (rows / "all").write_bytes(everything_in(relay))
    held = (rows / "all").read_bytes()
    assert b'"ciphertext"' in held and len(held) > LETTER_CHARS, "that is where it is"
    assert findings([rows], [], needles) == [], "what its operator can read"
    relay.run(*mediator, ready=b'"ready"')
    two.start()
    until(lambda: text in said_to(two, group), "its arrival")
    for person in (one, two):
        person.end(signal.SIGTERM)
    relay.process.send_signal(signal.SIGKILL)
    relay.process.wait(START_S)
    assert findings(folders, [], needles) == [], "when it was killed"


def everything_in(relay: Person) -> bytes:
    """All values of all rows of a mediator's store, each on a line of its own."""
    with closing(open_store(relay.places, relay.key)) as store:
        tables = [name for (name,) in store._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in store._db.execute(f"SELECT * FROM {table}")]
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)


def kept_by(relay: Person) -> int:
    """Bytes in the files of a mediator."""
    return sum(path.stat().st_size for path in relay.places.data.rglob("*") if path.is_file())
