"""Files on disk: names, locations, and what remains after errors."""

import errno
import os
import stat
from pathlib import Path

import pytest

from zerochat.agent.files import saving
from zerochat.agent.files.blobs import SEALED_PART_BYTES, Blobs
from zerochat.agent.files.saving import NAME_BYTES_MAX, NoSuchFolder, downloads, numbered, safe_name, save
from zerochat.agent.files.sources import import_files
from zerochat.agent.files.worker import FileWorker
from zerochat.agent.settings.reader import load_settings
from zerochat.agent.storage.database import DiskFull
from zerochat.crypto.encoding import b64url
from zerochat.errors import InternalFault, Unauthentic
from zerochat.group.effects import DeleteFileData, ReadParts, StoreParts, VerifyFile
from zerochat.group.files.descriptor import File
from zerochat.group.files.hash_tree import PART_BYTES, leads_to, leaf, levels_over
from zerochat.group.inputs import FileFailed, FilesFound, FileVerified, PartsRead, PartsStored

GROUP, OTHER = "g" * 43, "h" * 43
DATA = b"".join(number.to_bytes(8) for number in range(PART_BYTES // 8 * 3 + 100))
PARTS = [DATA[start : start + PART_BYTES] for start in range(0, len(DATA), PART_BYTES)]
LEAVES = [leaf(part) for part in PARTS]
FILE = File(b64url(levels_over(LEAVES)[-1][0]), len(DATA), "photo.jpg")


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("photo.jpg", "photo.jpg"),
        ("Übersicht äöü 写真.png", "Übersicht äöü 写真.png"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("C:\\x\\y.txt", "y.txt"),
        ("..", "file"),
        (".", "file"),
        ("", "file"),
        ("/", "file"),
        (".bashrc", "bashrc"),
        ("...hidden", "hidden"),
        ("-rf", "rf"),
        ("--help", "help"),
        ("~root", "root"),
        (" a ", "a"),
        ("a.", "a"),
        ("a\nb", "ab"),
        ("a\x00b\x1b[31m", "ab[31m"),
        ("gpj\u202eexe.photo", "gpjexe.photo"),
        ("a\u200bb\u2066c\ufeff", "abc"),
        ("a\u2028b", "ab"),
        ("x:y", "x_y"),
        ('a"b<c>d|e?f*g', "a_b_c_d_e_f_g"),
        ("$(reboot)`id`;&", "_(reboot)_id___"),
        ("CON", "_CON"),
        ("nul.txt", "_nul.txt"),
        ("lpt1", "_lpt1"),
        ("console.log", "console.log"),
        ("e\u0301.txt", "\u00e9.txt"),
        ("a\u00a0\u3000 b", "a b"),
    ],
)
def test_a_hostile_file_name_becomes_harmless(name, safe):
    assert safe_name(name) == safe
    assert safe_name(safe) == safe


def test_a_file_whose_name_is_not_utf8_can_be_sent(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    try:
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(DATA)
    except OSError:
        pytest.skip("The file system takes only names in UTF-8.")
    blobs = Blobs(tmp_path / "files", bytes(32))
    (sent,) = import_files(blobs, GROUP, [os.fsdecode(path)], len(DATA), len(DATA), lambda: True)
    assert (sent.name, sent.size, sent.id) == ("caf\ufffd.txt", len(DATA), FILE.id)


@pytest.mark.parametrize("letter", ["x", "ä", "写", "😀"])
def test_a_long_name_keeps_its_ending(letter):
    for ending in (".jpg", ".tar.gz", "", "." + letter * 300):
        safe = safe_name(letter * 300 + ending)
        assert len(safe.encode()) <= NAME_BYTES_MAX and safe.startswith(letter)
    assert safe_name(letter * 300 + ".jpg").endswith(f"{letter}.jpg")


def test_numbers_go_before_the_ending():
    assert [numbered("a.tar", 0), numbered("a.tar", 2), numbered("a", 1)] == ["a.tar", "a (2).tar", "a (1)"]


# --- saving -----------------------------------------------------------------------------------------------------------


def test_nothing_is_ever_overwritten_and_links_are_not_followed(tmp_path):
    (tmp_path / "a.txt").write_text("mine")
    (tmp_path / "a (1).txt").symlink_to(tmp_path / "elsewhere")
    saved = save("a.txt", [b"one", b"two"], "", tmp_path)
    assert saved.path == tmp_path / "a (2).txt" and saved.path.read_bytes() == b"onetwo"
    assert (tmp_path / "a.txt").read_text() == "mine" and not (tmp_path / "elsewhere").exists()
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600


def test_a_file_system_without_links_does_as_well(tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", no_links)
    (tmp_path / "a.txt").write_text("mine")
    assert save("a.txt", [b"one"], "", tmp_path).path == tmp_path / "a (1).txt"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a (1).txt", "a.txt"]


def test_an_interrupted_write_leaves_no_file(tmp_path):
    def parts():
        yield b"one"
        raise Unauthentic

    with pytest.raises(Unauthentic):
        save("a.txt", parts(), "", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path):
    def parts():
        yield b"one"
        raise OSError(errno.ENOSPC, "no space left on device")

    with pytest.raises(DiskFull):
        save("a.txt", parts(), "", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_where_a_file_is_saved(tmp_path):
    with pytest.raises(NoSuchFolder):
        save("a.txt", [b"x"], str(tmp_path / "no" / "b.txt"), tmp_path)
    assert save("../a.txt", [b"x"], str(tmp_path), tmp_path).path == tmp_path / "a.txt"
    assert save("a.txt", [b"x"], "", tmp_path / "fresh").path == tmp_path / "fresh" / "a.txt"
    assert downloads({"ZEROCHAT_HOME": str(tmp_path)}) == tmp_path / "downloads"
    assert downloads({}).is_absolute()
    assert saving.NUMBERS_MAX > 100


# --- contents ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def blobs(tmp_path):
    return Blobs(tmp_path / "files", b"s" * 32)


def always():
    return True


def test_stored_parts_become_a_file_for_others(blobs):
    blobs.store(GROUP, FILE.id, 0, PARTS[:1])
    blobs.store(GROUP, FILE.id, 1, PARTS[1:])
    assert next(iter(blobs.scan()))[3] is False
    assert blobs.finish(GROUP, FILE.id, FILE.root, FILE.size, always)
    assert list(blobs.scan()) == [
        (GROUP, FILE.id, blobs.path(GROUP, FILE.id).stat().st_size // SEALED_PART_BYTES, True)
    ]
    assert b"".join(blobs.content(GROUP, FILE.id, FILE.size)) == DATA
    root = levels_over(LEAVES)[-1][0]
    for number, (data, path) in enumerate(blobs.read(GROUP, FILE.id, FILE.size, 0, 99)):
        assert data == PARTS[number] and leads_to(root, data, number, FILE.parts, path)


@pytest.mark.parametrize("number", range(len(PARTS)))
@pytest.mark.parametrize("at", [0, 100, -1])
def test_a_changed_byte_on_disk_is_noticed(blobs, number, at):
    assert blobs.import_file(GROUP, FILE.id, FILE.size, LEAVES, iter(PARTS))
    path = blobs.path(GROUP, FILE.id)
    kept = bytearray(path.read_bytes())
    end = min((number + 1) * SEALED_PART_BYTES, FILE.size + FILE.parts * 16)
    kept[number * SEALED_PART_BYTES + at if at >= 0 else end - 1] ^= 1
    path.write_bytes(kept)
    with pytest.raises(Unauthentic):
        blobs.read(GROUP, FILE.id, FILE.size, number, 1)
    with pytest.raises(Unauthentic):
        list(blobs.content(GROUP, FILE.id, FILE.size))
    path.rename(blobs.path(GROUP, FILE.id, ".part"))
    assert not blobs.finish(GROUP, FILE.id, FILE.root, FILE.size, always)
    assert not path.exists(), "it never looks whole"


def test_misplaced_or_foreign_parts_form_no_file(blobs):
    blobs.store(GROUP, FILE.id, 0, [PARTS[1], PARTS[0], *PARTS[2:]])
    assert not blobs.finish(GROUP, FILE.id, FILE.root, FILE.size, always)
    assert blobs.import_file(OTHER, FILE.id, FILE.size, LEAVES, iter(PARTS))
    blobs.drop(GROUP, FILE.id)
    blobs.path(OTHER, FILE.id).rename(blobs.path(GROUP, FILE.id))
    with pytest.raises(Unauthentic):
        blobs.read(GROUP, FILE.id, FILE.size, 0, 1)


def test_equal_files_in_two_groups_look_different(blobs):
    for group in (GROUP, OTHER):
        assert blobs.import_file(group, FILE.id, FILE.size, LEAVES, iter(PARTS))
    assert blobs.path(GROUP, FILE.id).read_bytes() != blobs.path(OTHER, FILE.id).read_bytes()
    assert Blobs(blobs.folder, b"t" * 32).path(GROUP, FILE.id).exists()
    with pytest.raises(Unauthentic):
        Blobs(blobs.folder, b"t" * 32).read(GROUP, FILE.id, FILE.size, 0, 1)


def test_a_file_changed_after_hashing_is_not_imported(blobs):
    for parts in ([*PARTS, b"more"], PARTS[:-1], [b"x" * PART_BYTES, *PARTS[1:]]):
        assert not blobs.import_file(GROUP, FILE.id, FILE.size, LEAVES, iter(parts))
        assert list(blobs.path(GROUP, FILE.id).parent.iterdir()) == []


@pytest.mark.parametrize("kind", ["", ".part"])
@pytest.mark.parametrize("all_of_group", [False, True])
def test_a_deleted_file_is_overwritten(blobs, kind, all_of_group):
    if kind:
        blobs.store(GROUP, FILE.id, 0, PARTS[:2])
    else:
        assert blobs.import_file(GROUP, FILE.id, FILE.size, LEAVES, iter(PARTS))
    path = blobs.path(GROUP, FILE.id, kind)
    size = path.stat().st_size
    with path.open("rb") as kept:  # its blocks, as one who reads the disk sees them
        if all_of_group:
            blobs.forget(GROUP)
        else:
            blobs.drop(GROUP, FILE.id)
        assert not path.exists() and kept.read() == bytes(size)
    assert size > 2 * PART_BYTES


def test_unfinished_files_are_deleted_at_the_next_start(blobs):
    blobs.store(GROUP, FILE.id, 0, PARTS[:2])
    fresh = blobs.path(GROUP, FILE.id, ".new")
    fresh.write_bytes(b"half")
    (blobs.folder / GROUP / "stray.txt").write_bytes(b"somebody's")
    assert list(blobs.scan()) == [(GROUP, FILE.id, 2, False)] and not fresh.exists()
    blobs.forget(OTHER)
    blobs.drop(GROUP, FILE.id)
    assert list(blobs.scan()) == []


# --- the room ---------------------------------------------------------------------------------------------------------


class Bell:
    def __init__(self):
        import threading

        self.rung = threading.Semaphore(0)

    def __call__(self):
        self.rung.release()

    def wait(self, room, count):
        heard = []
        while len(heard) < count:
            assert self.rung.acquire(timeout=30)
            heard += room.take()
        return heard


def test_the_file_worker_performs_commands_in_order(tmp_path):
    bell = Bell()
    with FileWorker(tmp_path / "files", b"s" * 32, bell) as room:
        assert room.files_on_disk() == [FilesFound(())]
        for number, part in enumerate(PARTS):
            room.perform(StoreParts(GROUP, FILE.id, FILE.size, number, part))
        stored = 0
        while stored < FILE.parts:
            (one, *_) = bell.wait(room, 1)
            assert isinstance(one, PartsStored) and one.upto > stored
            stored = one.upto
        room.perform(VerifyFile(GROUP, FILE.id, FILE.root, FILE.size))
        assert bell.wait(room, 1) == [FileVerified(GROUP, FILE.id)]
        room.perform(ReadParts(GROUP, "bob", FILE.id, FILE.size, 1, 2))
        (read,) = bell.wait(room, 1)
        assert isinstance(read, PartsRead) and [data for data, _ in read.parts] == PARTS[1:3]
        room.perform(DeleteFileData(GROUP, FILE.id))
        room.perform(ReadParts(GROUP, "bob", FILE.id, FILE.size, 1, 2))
        assert bell.wait(room, 1) == [PartsRead(GROUP, "bob", FILE.id, 1, ())], "it is not there any more"


def test_a_disk_error_does_not_condemn_the_file(tmp_path, monkeypatch):
    bell = Bell()
    with FileWorker(tmp_path / "files", b"s" * 32, bell) as room:

        def fail(*_):
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(room.blobs, "read", fail)
        room.perform(ReadParts(GROUP, "bob", FILE.id, FILE.size, 1, 2))
        room.perform(StoreParts(GROUP, FILE.id, FILE.size, 0, PARTS[0]))
        (one,) = bell.wait(room, 1)
        assert isinstance(one, PartsStored), "nobody was told that the file is not there"


def test_a_full_disk_is_reported_to_the_core(tmp_path, monkeypatch):
    bell = Bell()

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device", str(tmp_path))

    with FileWorker(tmp_path / "files", b"s" * 32, bell) as room:
        monkeypatch.setattr(os, "pwrite", full)
        room.perform(StoreParts(GROUP, FILE.id, FILE.size, 0, PARTS[0]))
        (told,) = bell.wait(room, 1)
        assert isinstance(told, FileFailed) and "full" in told.why


def test_an_internal_error_is_answered_and_the_worker_continues(tmp_path, monkeypatch, caplog):
    bell, answers = Bell(), []

    def stumble(*_):
        raise ZeroDivisionError("secret words")

    with FileWorker(tmp_path / "files", b"s" * 32, bell) as room:
        room.submit(stumble, answers.append)
        room.submit(lambda: "done", answers.append)
        while len(answers) < 2:
            assert bell.rung.acquire(timeout=30)
            room.take()
        assert isinstance(answers[0], InternalFault) and answers[1] == "done"
        with monkeypatch.context() as patch:
            for what in ("store", "read", "finish", "drop"):
                patch.setattr(room.blobs, what, stumble)
            room.perform(ReadParts(GROUP, "bob", FILE.id, FILE.size, 1, 2))
            room.perform(DeleteFileData(GROUP, FILE.id))
            room.perform(StoreParts(GROUP, FILE.id, FILE.size, 0, PARTS[0]))
            room.perform(VerifyFile(GROUP, FILE.id, FILE.root, FILE.size))
            told = bell.wait(room, 2)
            assert all(isinstance(one, FileFailed) and "internal error" in one.why.lower() for one in told)
        room.perform(StoreParts(GROUP, FILE.id, FILE.size, 0, PARTS[0]))
        assert isinstance(bell.wait(room, 1)[0], PartsStored)
    assert "secret words" not in str([answers[0].sentence(), told]) and len(caplog.records) == 5


# --- settings ---------------------------------------------------------------------------------------------------------


def test_file_size_limits_are_settings(tmp_path):
    from zerochat.agent.settings.config_file import BadSettings
    from zerochat.agent.storage.paths import profile_paths

    home = profile_paths("work", {"ZEROCHAT_HOME": str(tmp_path)})
    assert (load_settings(home, {}).auto_max, load_settings(home, {}).size_max) == (1, 64)
    home.config.parent.mkdir(exist_ok=True)
    home.config.write_text("[files]\nauto_max = 0\nsize_max = 1024\ntotal_max = 10\n")
    found = load_settings(home, {})
    assert (found.auto_max, found.size_max, found.total_max) == (0, 1024, 10) and not found.warnings
    for wrong in (
        "size_max = 1025",
        "size_max = 0",
        "auto_max = -1",
        "total_max = 0",
        'auto_max = "much"',
        "auto_max = true",
    ):
        home.config.write_text(f"[files]\n{wrong}\n")
        with pytest.raises(BadSettings, match="MiB"):
            load_settings(home, {})
    assert Path(home.files).name == "files"
