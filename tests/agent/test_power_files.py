"""Power cuts while a profile is created, re-encrypted, backed up or restored."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.marks import others_slow
from tests.support.power_cut_journal import folders
from tests.support.powercut import KINDS, Disk, write_folder
from zerochat.agent.mediator.store import Store
from zerochat.agent.storage import key_wrapping
from zerochat.agent.storage import profiles as vault
from zerochat.agent.storage.backup import BadBackup, copy_journal, restore, write_backup
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import change_key_location, create_profile, key_location, profile_exists, unlock

FIRST, OTHER = b"the first passphrase", b"another one"


@pytest.fixture(autouse=True)
def soon_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that takes no time to work out, for there are hundreds of vaults to open here."""
    monkeypatch.setattr(
        key_wrapping, "_stretch", lambda passphrase, lock: sha256(passphrase + lock.salt.encode()).digest()
    )


@pytest.fixture
def roots() -> Iterator[tuple[Path, Path]]:
    with folders() as found:
        yield found


def home(root: Path, profile: str = "p") -> ProfilePaths:
    return profile_paths(profile, {"ZEROCHAT_HOME": str(root)})


def label(where: ProfilePaths, *passphrases: bytes) -> bytes | None:
    """What the journal of a profile says, opened with one of these; None: there is no profile."""
    if not profile_exists(where):
        return None
    for passphrase in passphrases or (b"",):
        try:
            key = unlock(where, lambda passphrase=passphrase: passphrase)
        except vault.WrongPassphrase:
            continue
        with Journal.open(where.journal, key) as journal:
            journal.check()
            return journal.meta_get("label")
    raise AssertionError("none of the passphrases opens it")


def cut(disk: Disk, after: Path, look: Callable[[bool], None], again: int = 4) -> int:
    """Cut the power at each moment of what was done on the disk, and look: was it promised? How many there were."""
    dice, seen = random.Random(3), set()
    for at, image in disk.cuts():
        for how in KINDS * again:
            choice = how(image, dice)
            if (key := image.key(choice)) in seen:
                continue
            seen.add(key)
            write_folder(after, image.after(choice)[1])
            look(bool(disk.promised(at)))
    return len(seen)


@pytest.mark.slow
@pytest.mark.parametrize("passphrase", [None, FIRST])
def test_a_new_profile_is_complete_or_absent(passphrase: bytes | None, roots: tuple[Path, Path]):
    live, after = roots
    with Disk(live, files=True) as disk:
        create_profile(home(live), "zoe", passphrase)
        disk.mark("made")

    def look(promised: bool) -> None:
        found = label(home(after), FIRST)
        assert found == b"zoe" or (found is None and not promised)

    assert cut(disk, after, look) > 50


@pytest.mark.parametrize(("before", "now"), [(None, FIRST), (FIRST, OTHER), (FIRST, None)])
def test_a_profile_with_a_changed_passphrase_always_opens(
    before: bytes | None, now: bytes | None, roots: tuple[Path, Path]
):
    live, after = roots
    create_profile(home(live), "zoe", before)
    key = unlock(home(live), lambda: before or b"")
    with Disk(live, files=True) as disk:
        change_key_location(home(live), key, now)
        disk.mark("locked")

    def look(promised: bool) -> None:
        there = home(after)
        known = [one for one in ((now,) if promised else (before, now)) if one]
        assert label(there, *known) == b"zoe"
        assert not promised or key_location(there) == ("passphrase" if now else "key")
        assert not promised or there.key_file.exists() is (now is None), "an old key in the open is gone for good"

    assert cut(disk, after, look) > 10


def test_an_unsynced_passphrase_change_would_be_noticed(roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    live, after = roots
    create_profile(home(live), "zoe", None)
    key = unlock(home(live), None)
    monkeypatch.setattr(vault, "sync_folder", lambda folder: None)
    with Disk(live, files=True) as disk:
        change_key_location(home(live), key, FIRST)
        disk.mark("locked")

    def look(promised: bool) -> None:
        assert not promised or not home(after).key_file.exists()

    with pytest.raises(AssertionError):
        cut(disk, after, look)


@pytest.mark.slow
def test_a_backup_is_complete_or_marked_incomplete(roots: tuple[Path, Path], tmp_path: Path):
    live, after = roots
    create_profile(home(live), "zoe", FIRST)
    key = unlock(home(live), lambda: FIRST)
    with Journal.open(home(live).journal, key) as journal, Disk(live, files=True) as disk:
        write_backup(home(live), live / "backup", copy_journal(journal), key, OTHER)
        disk.mark("made")
    numbers = iter(range(1 << 20))

    @cache
    def comes_back(content: bytes) -> bool:
        where = home(tmp_path / str(next(numbers)))
        try:
            restore(where, after / "backup", lambda: OTHER)
        except BadBackup:
            assert not profile_exists(where)
            return False
        return label(where, OTHER) == b"zoe"

    def look(promised: bool) -> None:
        assert label(home(after), FIRST) == b"zoe"
        target = after / "backup"
        whole = target.exists() and comes_back(target.read_bytes())
        assert whole or not promised

    assert cut(disk, after, look) > 50


def test_a_restored_profile_is_complete_or_absent(roots: tuple[Path, Path]):
    live, after = roots
    create_profile(home(live), "zoe", None)
    with Journal.open(home(live).journal, unlock(home(live), None)) as journal:
        copy = copy_journal(journal)
    write_backup(home(live), live / "backup", copy, unlock(home(live), None), None)
    with Disk(live, files=True) as disk:
        restore(home(live, "back"), live / "backup", None)
        disk.mark("restored")

    def look(promised: bool) -> None:
        found = label(home(after, "back"))
        assert found == b"zoe" or (found is None and not promised)
        if found:
            there = home(after, "back")
            with Journal.open(there.journal, unlock(there, None)) as journal:
                assert journal.meta_get(vault.RESTORED_AT), "it knows that it is older than others may be"

    assert cut(disk, after, look) > 50


# --- a mediator's ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("synchronous", others_slow(["FULL", "NORMAL"]))
def test_a_mediator_keeps_all_acknowledged_envelopes(synchronous: str, roots: tuple[Path, Path]):
    """Each turn in which envelopes come, wait and are fetched is there whole, or it is not. With NORMAL instead of the
    FULL that every database of ours has, it would not be."""
    live, after = roots
    dice, key = random.Random(8), bytes(range(32))
    Store.create(live / "mediator.db", key).close()
    contents: list[list[object]] = []

    def content(store: Store) -> list[object]:
        tables = ("recipients", "dids", "names", "messages", "delayed", "delivered")
        return [store._rows(f"SELECT * FROM {table}") for table in tables]

    with Disk(live, files=True) as disk, Store.open(live / "mediator.db", key) as store:
        store._db.pragma("wal_autocheckpoint", 40)
        store._db.pragma("synchronous", synchronous)
        with store.transaction():
            store.grant("did:r", "did:r:long", "did:own", 1, "")
        recipient = store.recipient("did:r")
        assert recipient is not None
        for number in range(12):
            with store.transaction():
                if number == 0:
                    store.register(recipient.id, "did:m", "did:m:long", (), False)
                place = store.registration("did:m")
                assert place is not None
                for one in range(dice.randrange(4)):
                    store.store(place, f"{number} {one}", dice.randbytes(dice.randrange(3000)), number, 1 << 40)
                if dice.random() < 0.3:
                    store.delay(place, None, dice.randbytes(900), number, 1 << 40)
                fetched = store.fetch(recipient.id, dice.randrange(3))
                store.acknowledge(recipient.id, [kept.id for kept in fetched], 1 << 40)
            contents.append(content(store))
            disk.mark(number)

    seen, looked, bad = set(), 0, 0
    for at, image in disk.cuts():
        promised = max(disk.promised(at), default=-1)
        for how in dice.sample(KINDS, 2):
            choice = how(image, dice)
            if promised < 0 or (name := image.key(choice)) in seen:
                continue
            seen.add(name)
            write_folder(after, image.after(choice)[1])
            with Store.open(after / "mediator.db", key) as store:
                found = content(store)
                # The one that was just under way may be there as well.
                bad += found not in contents[promised : promised + 2]
                assert store.usage.total.messages == len(found[3]) + len(found[4])  # type: ignore[arg-type]
            looked += 1
    assert looked > 100 and bool(bad) is (synchronous == "NORMAL")
