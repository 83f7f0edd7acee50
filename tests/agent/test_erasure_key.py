"""Used keys leave the disk: no version of a sealed part opens after `erase_used_keys`, wherever it is kept."""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from msgspec import Struct, field
from msgspec.structs import fields, replace

from tests.support.dcgka_world import Healing
from tests.support.journals import KEY
from tests.support.stolen_folder import folder_bytes, page_versions
from zerochat.agent.storage import erasure_key
from zerochat.agent.storage.erasure_key import ErasureKey, ErasureKeyTimer, erasure_key_path
from zerochat.agent.storage.journal import DiskReadOnly, Journal
from zerochat.agent.storage.key_wrapping import BadSecretFile
from zerochat.agent.storage.state_parts import changes, is_erasable
from zerochat.crypto.structs import Erasable
from zerochat.group.state import Agent
from zerochat.group.state.content_keys import ContentKeys
from zerochat.group.state.dcgka import Dcgka

OLD, NEW = b"an old chain key" * 2, b"a fresher chain!" * 2


class Chain(Struct, frozen=True):
    key: bytes


class Keys(Erasable, frozen=True):
    REDACTED = ("own", "chains")

    own: bytes = b""
    chains: dict[str, Chain] = field(default_factory=dict)


class Room(Struct, frozen=True):
    title: str
    keys: Keys | None = None
    members: dict[str, Chain] = field(default_factory=dict)


class Vault(Struct, frozen=True):
    title: str
    keys: Keys = Keys()


class State(Struct, frozen=True):
    rooms: dict[str, Room] = field(default_factory=dict)
    vaults: dict[str, Vault] = field(default_factory=dict)


def state(key: bytes | None, title: str = "a title") -> State:
    keys = None if key is None else Keys(key, {"a": Chain(key)})
    return State({"r/1": Room(title, keys, {"m": Chain(b"lasting")})})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with Journal.create(path, KEY) as made:
        yield made


def sealed_rows(journal: Journal) -> dict[str, bytes]:
    rows: Any = journal._db.execute("SELECT path, value FROM sealed_parts")
    return dict(rows)


def opens(path: Path, rows: dict[str, bytes]) -> list[bytes]:
    """The values of these rows that the erasure key file opens now."""
    key = ErasureKey(erasure_key_path(path))
    return [value for place, sealed in rows.items() if (value := key.open(place, sealed)) is not None]


def test_sealed_parts_round_trip_and_are_named(path: Path, journal: Journal):
    journal.commit(state(OLD))
    assert sorted(sealed_rows(journal)) == [
        "rooms/r%2F1/keys/chains",
        "rooms/r%2F1/keys/chains/a",
        "rooms/r%2F1/keys/own",
    ]
    assert {place for place, _ in changes(None, state(OLD)) if is_erasable(State, place)} == {*sealed_rows(journal)}
    for after in (state(NEW), state(None), state(OLD, "another"), State(), state(NEW)):
        journal.commit(after)
        assert journal.load(State) == after
        journal.erase_used_keys()
        assert journal.load(State) == after
    journal.close()
    with Journal.open(path, KEY) as again:
        assert again.load(State) == state(NEW)
        again.commit(state(None))
        assert not sealed_rows(again)


def test_a_used_key_is_nowhere_in_the_folder(path: Path, journal: Journal, tmp_path: Path):
    """Neither in the pages of the file, nor in old versions of pages in the write-ahead log, nor in other files."""
    journal.commit(state(OLD))
    before = sealed_rows(journal)
    assert opens(path, before)
    journal.commit(state(NEW))
    assert b"lasting" in folder_bytes(tmp_path, path, KEY), "so the pages are decrypted"
    assert OLD not in folder_bytes(tmp_path, path, KEY)
    versions = page_versions(path, KEY)
    assert any(before["rooms/r%2F1/keys/own"] in page for page in versions), "the older version is still in the log"
    assert opens(path, before), "until the used keys are erased"
    journal.erase_used_keys()
    assert not opens(path, before)
    assert set(opens(path, sealed_rows(journal)))
    assert not journal.has_used_keys
    assert [one.name for one in tmp_path.iterdir() if "erasure" in one.name] == ["journal.erasure-key"]


def test_the_old_file_is_overwritten(path: Path, journal: Journal, tmp_path: Path):
    journal.commit(state(OLD))
    kept = tmp_path / "link"
    os.link(erasure_key_path(path), kept)  # the old inode
    journal.erase_used_keys()
    assert kept.read_bytes().strip(b"\0") == b""


def test_keys_are_erased_at_the_end_and_at_the_next_start(path: Path, journal: Journal, tmp_path: Path):
    journal.commit(state(OLD))
    before = sealed_rows(journal)
    journal.commit(state(NEW))
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path, crashed, ignore=lambda *_: {"crashed"})
    journal.close()
    assert not opens(path, before)
    with Journal.open(crashed / path.name, KEY) as again:
        assert opens(crashed / path.name, before)
        assert again.load(State) == state(NEW)
        assert again.has_used_keys
        again.erase_used_keys()
        assert not opens(crashed / path.name, before)
        assert again.load(State) == state(NEW)


@pytest.mark.parametrize("lost", ["the commit", "the file"])
def test_an_interrupted_erasure_loses_nothing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str):
    """Whether the process ends before or after the new file, and whether it goes on instead."""
    journal = Journal.create(path, KEY)
    journal.commit(state(OLD))
    rows = [sealed_rows(journal)]

    def fail(*_: object) -> None:
        raise DiskReadOnly(path=path, why="test")

    with monkeypatch.context() as patched:
        patched.setattr(ErasureKey, "seal" if lost == "the commit" else "erase", fail)
        with pytest.raises(DiskReadOnly):
            journal.erase_used_keys()
    assert journal.has_used_keys
    rows.append(sealed_rows(journal))
    ended = tmp_path / "ended"
    shutil.copytree(tmp_path, ended, ignore=lambda *_: {"ended"})
    journal.commit(replace(state(OLD), rooms={**state(OLD).rooms, "s": Room("s", Keys(NEW))}))
    rows.append(sealed_rows(journal))
    assert journal.load(State).rooms["s"].keys == Keys(NEW)
    journal.commit(state(NEW))
    journal.erase_used_keys()
    assert journal.load(State) == state(NEW)
    assert not [value for each in rows for value in opens(path, each)]
    journal.close()
    with Journal.open(ended / path.name, KEY) as again:
        assert again.load(State) == state(OLD)
        again.commit(state(NEW))
        again.erase_used_keys()
        assert again.load(State) == state(NEW)
        assert not [value for each in rows[:2] for value in opens(ended / path.name, each)]


def test_a_copy_without_the_file_has_all_but_the_keys(path: Path, journal: Journal, tmp_path: Path):
    """So a backup has no keys that could be used up; the state is written afresh."""
    journal.commit(state(OLD))
    journal.close()
    with Journal.open(path, KEY) as again:
        again.copy(tmp_path / "copy.db")
    with Journal.open(tmp_path / "copy.db", KEY) as copy:
        assert copy.load(State) == state(None)
        copy.commit(state(None, "new title"))
        assert not sealed_rows(copy)
        assert copy.load(State) == state(None, "new title")


def test_without_erasable_parts_there_is_no_file(path: Path, journal: Journal, tmp_path: Path):
    journal.commit(state(None))
    journal.commit(State())
    assert not journal.has_used_keys
    journal.close()
    assert not erasure_key_path(path).exists()


def test_a_default_has_no_parts(path: Path, journal: Journal):
    """So groups without such keys have no sealed parts, and cause no erasure."""
    chains = Keys(chains={"a": Chain(OLD)})
    states = [State(vaults={"v": Vault("title", keys)}) for keys in (Keys(), chains, Keys(OLD), Keys(), chains)]
    for one in states:
        journal.commit(one)
        assert journal.load(State) == one
        assert bool(sealed_rows(journal)) == (one != states[0])
        assert not journal._afresh
    journal.commit(states[0])
    journal.close()
    with Journal.open(path, KEY) as again:
        assert again.load(State) == states[0]
        assert not again._afresh and not again.has_used_keys


def test_a_damaged_file_is_reported(path: Path, journal: Journal):
    journal.commit(state(OLD))
    journal.close()
    erasure_key_path(path).write_text("{}")
    with Journal.open(path, KEY) as again, pytest.raises(BadSecretFile, match=r"erasure-key .*Delete it"):
        again.load(State)


def test_the_timer_waits_and_tries_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    class Used:
        def __init__(self) -> None:
            self.has_used_keys, self.erased, self.fails = False, 0, False

        def erase_used_keys(self) -> None:
            if self.fails:
                raise DiskReadOnly(path=Path("x"), why="test")
            self.erased, self.has_used_keys = self.erased + 1, False

    used = Used()
    timer = ErasureKeyTimer(used, logging.getLogger())
    assert timer.run_if_due() is None
    used.has_used_keys = True
    assert timer.run_if_due() == now + erasure_key.RENEWAL_S
    now += erasure_key.RENEWAL_S - 1
    assert timer.run_if_due() == now + 1 and not used.erased, "further changes do not delay it"
    used.fails, now = True, now + 1
    assert timer.run_if_due() == now + erasure_key.RETRY_S
    assert "DiskReadOnly" in caplog.text
    used.fails, now = False, now + erasure_key.RETRY_S
    assert timer.run_if_due() is None
    assert (used.erased, used.has_used_keys) == (1, False)


def types_within(hint: Any, seen: set[Any]) -> set[Any]:
    """All struct types that values of this type may contain."""
    for one in (hint, *get_args(hint)):
        if isinstance(one, type) and issubclass(one, Struct) and one not in seen:
            seen.add(one)
            hints = get_type_hints(one)
            for each in fields(one):
                types_within(hints[each.name], seen)
        elif one is not hint:
            types_within(one, seen)
    return seen


def test_every_erasable_record_of_the_state_is_sealed():
    """None is hidden in a part that is not sealed."""
    from zerochat.agent.storage import state_parts

    def unsealed(part: Any) -> Iterator[Any]:
        match part:
            case state_parts._Whole():
                yield from (one for one in types_within(part.type, set()) if issubclass(one, Erasable))
            case state_parts._Entries():
                yield from unsealed(part.entry)
            case state_parts._Fields() if not issubclass(part.type, Erasable):
                for each in part.parts.values():
                    yield from unsealed(each)

    class Hidden(Struct, frozen=True):
        rooms: list[Room] = []

    assert [*unsealed(state_parts._fields_of(Hidden))] == [Keys], "so it would be found"
    assert not [*unsealed(state_parts._fields_of(Agent))]


def test_the_keys_of_a_group_are_sealed_and_not_in_a_backup(path: Path, tmp_path: Path):
    """Its key agreement and its content keys, as they are after some posts."""
    world = Healing(3)
    for name in world.nodes:
        world.post(name, f"by {name}")
    agent = world.nodes["n0"].agent
    group = agent.groups[world.id]
    secrets = [group.dcgka.keys.ratchet, group.dcgka.keys.epoch.chain_key, group.content_keys.linked[0].secret]
    secrets += group.dcgka.keys.ratchets.values()
    with Journal.create(path, KEY) as journal:
        journal.commit(agent)
        assert group.seed in folder_bytes(tmp_path, path, KEY), "what a backup has to have"
        for secret in secrets:
            assert len(secret) == 32 and secret not in folder_bytes(tmp_path, path, KEY)
        assert journal.load(Agent) == agent
    with Journal.open(path, KEY) as journal:
        journal.copy(tmp_path / "backup.db")
    with Journal.open(tmp_path / "backup.db", KEY) as backup:
        restored = backup.load(Agent)
    assert restored is not None
    without = replace(group, dcgka=Dcgka(), content_keys=ContentKeys())
    assert restored == replace(agent, groups={world.id: without})


def test_no_key_is_shown():
    """Neither in logs nor in exceptions."""
    world = Healing(2)
    world.post("n0", "a post")
    world.settle()
    group = world.group("n0")
    shown = repr(group.dcgka) + repr(group.content_keys)

    def secrets(value: Any) -> Iterator[bytes]:
        match value:
            case bytes():
                yield value
            case dict():
                for each in value.values():
                    yield from secrets(each)
            case tuple() | list():
                for each in value:
                    yield from secrets(each)
            case Struct():
                for each in fields(type(value)):
                    if each.name not in (
                        "ours",
                        "theirs",
                        "peer",
                        "header",
                        "order",
                    ):  # public keys, or the beginnings of some
                        yield from secrets(getattr(value, each.name))

    found = [*secrets(group.dcgka), *secrets(group.content_keys)]
    assert len(found) > 5
    assert not [one for one in found if one and repr(one)[2:-1] in shown]
