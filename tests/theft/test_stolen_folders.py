"""Real agents: the folder of one is copied while it runs, with its write-ahead log and a backup."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import agents
from tests.support.agents import Person, meet, until
from tests.support.stolen_folder import page_versions, sealed_parts
from tests.support.thief import Thief
from tests.support.watched_world import words_in
from zerochat.agent.api.handlers import groups as group_handlers
from zerochat.agent.effects import EffectExecutor
from zerochat.agent.storage import erasure_key
from zerochat.agent.storage.erasure_key import ErasureKey, erasure_key_path
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.group.effects import Publish, SendEnvelope
from zerochat.group.key_modes import MODES
from zerochat.group.links import content_keys
from zerochat.group.state import Agent

pytestmark = pytest.mark.theft

people = agents.people


def steal(victim: Person, folder: Path) -> Thief:
    """Copy a profile as it is on disk, with a backup, and take all keys that are in any version of any page."""
    stolen, key = folder / f"stolen from {victim.name}", unlock(victim.places, None)
    victim.client.create_backup()
    shutil.copytree(victim.places.data, stolen, ignore=shutil.ignore_patterns("*.sock"))
    journal, databases = stolen / victim.places.journal.name, [*stolen.glob("*.db")]
    assert len(databases) == 2
    erasures = ErasureKey(erasure_key_path(journal))
    parts = [part for one in databases for part in sealed_parts(page_versions(one, key), erasures)]
    with Journal.open(journal, key) as opened:
        state = opened.load(Agent)
        signed: Any = opened._db.execute("SELECT key FROM signed").fetchall()
    assert state is not None
    thief = Thief(state, [bytes(one) for (one,) in signed])
    for part in parts:
        thief.take(msgspec.msgpack.decode(part) if part else None)
    return thief


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All envelopes that agents send from now on."""
    found: list[bytes] = []
    execute = EffectExecutor.execute

    def record(self, effects, agent):
        effects = list(effects)
        found.extend(one.envelope for one in effects if isinstance(one, Publish | SendEnvelope))
        execute(self, effects, agent)

    monkeypatch.setattr(EffectExecutor, "execute", record)
    return found


def post(persons: list[Person], rounds: int) -> list[str]:
    """Each one posts so often; all have the posts."""
    words = []
    for number in range(rounds):
        for person in persons:
            words.append(f"word{number:03}of{person.name}")
            person.client.send_message("friends", words[-1])
            until(lambda: all(words[-1] in other.texts() for other in persons), "arriving")
    return words


def has_erased(victim: Person) -> bool:
    """Whether nothing is left on disk of keys that were used until now."""
    journal = victim.thread.loop.journal
    return not journal.has_used_keys


@pytest.mark.parametrize("keys", [*MODES, "dcgka, used keys stay"])
def test_a_copied_folder(
    keys: str,
    people: Callable[..., list[Person]],
    sent: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """With lasting keys the thief opens what was recorded. With keys that heal it opens nothing from before, unless
    used keys are left on disk."""
    monkeypatch.setattr(group_handlers, "OFFERED", tuple(MODES))
    erases = keys in ("dcgka", "deniable")
    monkeypatch.setattr(erasure_key, "RENEWAL_S", 0.2 if erases else 1e6)
    if erases:
        monkeypatch.setattr(content_keys, "LINKED", content_keys._Lifetime(500, 1_500))
    alice, bob = people("alice", "bob")
    create = alice.client.create_group
    monkeypatch.setattr(alice.client, "create_group", lambda group: create(group, keys=keys.split(",")[0]))
    meet(alice, bob)
    words = post([alice, bob], 3)
    (carol,) = people("carol")
    carol.client.subscribe()
    carol.client.join_group(alice.client.create_invitation("friends").url)
    until(lambda: any(group.state == "active" for group in carol.client.list_groups()), "joining")
    until(lambda: {*words} <= {*carol.texts()}, "history for the newcomer")
    if erases:
        time.sleep(2 * content_keys.LINKED.kept / 1_000)
        until(lambda: has_erased(bob) and has_erased(carol), "the erasure of used keys")
    recorded = list(sent)
    for victim in (bob, carol):
        opened = words_in(steal(victim, tmp_path).open_all(recorded), words)
        if erases:
            assert not opened
        else:
            assert opened & {word for word in words if "ofalice" in word}
