"""Fuzz targets on disk: exported logs, backups, keys, settings, state."""

import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from multiprocessing import util
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt

from fuzzing.group import place
from fuzzing.nodes import Array, Object, Part, as_text, utf8
from fuzzing.run import Form
from zerochat.agent.archive import log_file as archive
from zerochat.agent.archive.audit import Audit
from zerochat.agent.settings.reader import load_settings
from zerochat.agent.storage import key_wrapping as seal
from zerochat.agent.storage.backup import copy_journal, restore, write_backup
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.key_wrapping import (
    BadSecretFile,
    KeyFile,
    KeyringFile,
    WrappedKeyFile,
    WrappingParameters,
    read_secret,
    unwrap_key,
)
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.storage.state_parts import UnreadablePart, assemble, changes
from zerochat.agent.views.event_pages import chain_extent
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.errors import Malformed, RemoteError
from zerochat.group.event_log.event import foreign_event
from zerochat.group.state import Agent
from zerochat.rpc import LogRow, LogSummary


@cache
def folder(name: str) -> Path:
    """A folder for this process alone, in memory where possible; deleted when the process ends."""
    memory = Path("/dev/shm")  # noqa: S108  (mkdtemp makes one of its own in it)
    made = Path(tempfile.mkdtemp(prefix=f"zerochat-fuzz-{name}-", dir=memory if memory.is_dir() else None))
    util.Finalize(None, shutil.rmtree, args=(made, True), exitpriority=1)
    return made


def _places(name: str) -> ProfilePaths:
    root = folder(name)
    return ProfilePaths(
        "default", root / "config.toml", root / "data", root / "state", root / "cache", root / "agent.sock"
    )


class _Raw:
    """Bytes without a grammar."""

    form: Form = "raw"

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree


class Settings(_Raw):
    """The settings file."""

    name = "settings"
    size_max = 64 * 1024

    def seeds(self) -> list[bytes]:
        return [
            b'[network]\nlisten = "0.0.0.0:5000:5001"\nadvertise = "203.0.113.7"\nsocks = "127.0.0.1:9050"\n',
            b'network.hidden = false\nnetwork.web = "0.0.0.0:8080"\nnetwork.web_public = "https://chat.example.org"\n',
            b'[network]\nweb_certificate = "a.pem"\nweb_key = "b.pem"\n\n[agent]\nlock_after = 5\n',
            b'[profiles.default.network]\nadvertise = "2001:db8::7"\n[profiles.other]\nx = [1, 2.5, 1979-05-27]\n',
        ]

    def parse(self, data: bytes) -> object:
        found = _places(self.name)
        found.config.write_bytes(data)
        settings = load_settings(found)
        assert all(len(warning) < 2 * len(data) + 200 for warning in settings.warnings)
        return settings


class Secrets(_Raw):
    """Key files, wrapped keys and names of keyrings. Stretching a passphrase takes a quarter of a second on purpose, so
    a hash replaces it here; it is called with one strength only, which is checked before."""

    name = "secrets"
    form: Form = "text"
    size_max = seal.SECRET_FILE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        lock = WrappingParameters(b64url(bytes(16)), b64url(bytes(24)))
        sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(
            bytes(32), msgspec.json.encode(lock), bytes(24), _cheap(b"passphrase", lock)
        )
        made = (KeyFile(b64url(bytes(32))), WrappedKeyFile(lock, b64url(sealed)), KeyringFile("default AAAA"))
        return [msgspec.json.encode(each) for each in made]

    def parse(self, data: bytes) -> object:
        path = folder(self.name) / "file"
        path.touch(mode=0o600)
        path.write_bytes(data)
        slow, seal._stretch = seal._stretch, _cheap
        try:
            found = [self._tried(path, shape) for shape in (KeyFile, WrappedKeyFile, KeyringFile)]
        finally:
            seal._stretch = slow
        if not any(found):
            raise Malformed(why="none of the three")
        return found

    def _tried(self, path: Path, shape: Any) -> object:
        try:
            found = read_secret(path, shape)
        except BadSecretFile:
            return None
        again = msgspec.json.decode(msgspec.json.encode(found), type=shape)
        assert again == found
        if isinstance(found, WrappedKeyFile):
            return unwrap_key(found, b"passphrase", path, "default")
        return found


def _cheap(passphrase: bytes, lock: WrappingParameters) -> bytes:
    assert (lock.passes, lock.memory_bytes) == (seal.KDF_PASSES, seal.KDF_BYTES)
    return sha256(passphrase + b64url_bytes(lock.salt)).digest()


class State(_Raw):
    """An agent's state as in a journal: a foreign backup comes with its key, and may hold anything."""

    name = "state"
    size_max = 64 * 1024

    def seeds(self) -> list[bytes]:
        """Its parts as rows of path and value: a member of a group, an agent with one group in one piece, and one
        without."""
        agent = place().agent
        rows, none = (dict(self._rows(each)) for each in (agent, Agent("alice")))
        name, group = next(iter(agent.groups.items()))
        whole = {**none, f"groups/{name}": msgspec.msgpack.encode(group)}
        return [msgspec.msgpack.encode(list(each.items())) for each in (rows, none, whole)]

    def _rows(self, agent: Agent) -> Iterator[tuple[str, bytes]]:
        return ((path, value) for path, value in changes(None, agent) if value is not None)

    def parse(self, data: bytes) -> object:
        """A value that can be read is written again as the same."""
        try:
            rows = msgspec.msgpack.decode(data, type=list[tuple[str, bytes]])
            found = assemble(Agent, rows)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise Malformed(why="no rows") from None
        except UnreadablePart:
            raise Malformed(why="no state") from None
        if found is None:
            return None
        again = assemble(Agent, self._rows(found[0]))
        assert again is not None and again[0] == found[0]
        return found


# --- backups --------------------------------------------------------------------------------------------------------


class Backup:
    """A backup, with the one journal that opens in it mostly as it was."""

    name = "backup"
    form: Form = "sealed"
    size_max = 64 * 1024

    def seeds(self) -> list[bytes]:
        manifest = {"zerochat": "backup", "profile": "default", "made_at": 1_800_000_000_000, "version": 1}
        key = {"zerochat": "key", "key": b64url(_journal()[0]), "version": 1}
        parts = [["backup.json", manifest], ["key", key], ["journal.db", ""]]
        return [msgspec.json.encode(each) for each in (parts, parts[:2], [parts[0], parts[2]])]

    def seal(self, tree: Part, dice: Random) -> bytes:
        """A tar file of these parts; where the journal should be is the real one."""
        packed = io.BytesIO()
        kinds = (tarfile.REGTYPE,) * 30 + (tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE, tarfile.FIFOTYPE)
        with tarfile.open(
            fileobj=packed, mode="w", format=dice.choice((tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT))
        ) as tar:
            for part in tree.parts[:20] if isinstance(tree, Array) else ():
                name, content = part.parts[:2] if isinstance(part, Array) and len(part.parts) > 1 else ("x", part)
                data = utf8(as_text(content)) or _journal()[1]
                entry = tarfile.TarInfo(
                    utf8(as_text(name)[:40]).decode(errors="replace")[:40].encode()[:99].decode(errors="ignore")
                )
                entry.size, entry.type = len(data), dice.choice(kinds)
                tar.addfile(entry, io.BytesIO(data))
        data = packed.getvalue()
        if dice.random() < 0.2:
            at = dice.randrange(1 + min(len(data), 4 * tarfile.BLOCKSIZE))
            data = data[:at] + dice.randbytes(dice.randrange(1, 9)) + data[at + 8 :]
        return data

    def parse(self, data: bytes) -> object:
        """A profile, or none at all."""
        places = _places(self.name)
        source = folder(self.name) / "backup"
        source.write_bytes(data)
        shutil.rmtree(places.data, ignore_errors=True)
        try:
            restored = restore(places, source, lambda: b"passphrase")
        except BaseException:
            assert not places.data.exists(), "half a profile was left"
            assert {each.name for each in folder(self.name).iterdir()} <= {"backup"}, "something was left"
            raise
        assert unlock(places, None) == _journal()[0]
        shutil.rmtree(places.data)
        return restored


@cache
def _journal() -> tuple[bytes, bytes]:
    """The key and the bytes of a profile's journal."""
    places = _places("profile")
    create_profile(places, "alice", None)
    key = unlock(places, None)
    with Journal.open(places.journal, key) as journal:
        journal.commit(Agent("alice"))
        copy = copy_journal(journal)
    target = places.config.with_name("backup")
    write_backup(places, target, copy, key, None)
    with tarfile.open(target) as tar:
        file = tar.extractfile(places.journal.name)
        assert file is not None
        return key, file.read()


# --- exported histories ---------------------------------------------------------------------------------------------


class Archive:
    """An exported history: read, audited, and shown. A verb does that, not the agent, and of each author's chain it
    looks at a hundred thousand places that are missing."""

    name = "archive"
    form: Form = "sealed"
    slow_ns = 2_000_000_000
    size_max = 256 * 1024

    _PATH = Path("history.jsonl")

    def seeds(self) -> list[bytes]:
        group = place().group
        rows = [self._row(number, record) for number, record in enumerate(place().records, 1)]
        rows.sort(key=lambda row: (row.lamport, row.author, row.id))
        summary = LogSummary(
            group=group.id,
            name=group.name,
            me=group.me,
            nick="n0",
            view=group.view.checksum,
            chains=[chain_extent(group, author) for author in sorted(group.log.chains)],
            events=len(rows),
            latest=len(rows),
        )
        file = io.BytesIO()
        archive.write(archive.Header(exported_at="2026-01-31T09:05:00Z", summary=summary), rows, file)
        lines = file.getvalue().splitlines()
        return [b"[" + b",".join(some) + b"]" for some in (lines, lines[:3], lines[:1] + lines[-3:])]

    def _row(self, number: int, record: bytes) -> LogRow:
        event = foreign_event(record)
        return LogRow(
            seq=number,
            id=event.id,
            author=event.author,
            position=event.seq,
            lamport=event.lamport,
            type=event.type,
            record=record,
            received=event.time,
        )

    def seal(self, tree: Part, dice: Random) -> bytes:
        """Its lines, now and then under the ids that their records have."""
        lines = list(tree.parts) if isinstance(tree, Array) else [tree]
        if dice.random() < 0.5:
            lines = [lines[0], *map(self._named, lines[1:300])] if lines else []
        return b"\n".join(utf8(as_text(line)) for line in lines) + b"\n" * (dice.random() < 0.9)

    def _named(self, line: Part) -> Part:
        if not isinstance(line, Object):
            return line
        try:
            return line.put("id", foreign_event(utf8(as_text(line.get("record")))).id)
        except RemoteError:
            return line

    def parse(self, data: bytes) -> object:
        """A value that is read is written again as the same; an audit always returns a verdict."""
        header, lines = archive.read(self._PATH, io.BytesIO(data))
        rows = list(lines)
        audit = Audit(header.summary)
        for row in rows:
            audit.take(row)
        verdict = audit.verdict()
        assert verdict.sound == (not verdict.violations) and verdict.events == len(rows)
        file = io.BytesIO()
        archive.write(header, rows, file)
        file.seek(0)
        again, lines = archive.read(self._PATH, file)
        assert (again, list(lines)) == (header, rows)
        shown = archive.events(self._PATH, header.summary, rows, [row for row in rows if self._is_control(row)])
        return verdict, list(self._seen(shown))

    def _is_control(self, row: LogRow) -> bool:
        try:
            return foreign_event(row.record).is_control
        except RemoteError:
            return False

    def _seen(self, shown: Iterator[Any]) -> Iterator[bytes]:
        return (msgspec.json.encode(event) for event in shown)
