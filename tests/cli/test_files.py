"""The file verbs of the command line, against real agents."""

import json

import pytest

from tests.support import agents
from tests.support.agents import meet, until
from tests.support.shared_files import is_here, the_file, write
from zerochat.cli import main
from zerochat.presentation.files import file_line, format_size, transfer_state
from zerochat.rpc import Attachment, Author

people = agents.people


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a verb as somebody; gives the exit code, the output and what was narrated."""

    def as_somebody(person, *words):
        monkeypatch.setenv("ZEROCHAT_HOME", str(person.places.data.parents[1]))
        monkeypatch.setenv("ZEROCHAT_PROFILE", person.name)
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return int(code), out, err

    return as_somebody


def test_a_photo_is_sent_and_saved(people, tmp_path, run, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    _, data = write(tmp_path, "photo.jpg", 150_000)
    monkeypatch.chdir(tmp_path)
    code, out, err = run(alice, "send", "friends", "--file", "photo.jpg", "-m", "The bridge", "--wait", "all")
    assert code == 0 and "received by 1 of 1" in err
    code, out, _ = run(bob, "history", "friends")
    assert "alice: The bridge\n  > photo.jpg  150 kB · downloaded" in out
    code, out, _ = run(bob, "files", "list", "friends")
    assert code == 0 and out.split()[1:] and "photo.jpg" in out and "150 kB" in out and "alice" in out
    _, out, _ = run(bob, "files", "list", "friends", "--format", "jsonl")
    row = json.loads(out)
    assert row["file"]["state"] == "here" and row["file"]["size"] == 150_000 and row["author"]["nick"] == "alice"
    code, out, _ = run(bob, "files", "save", "friends", "photo.jpg")
    saved = bob.places.data.parents[1] / "downloads" / "photo.jpg"
    assert code == 0 and out == f"{saved}\n" and saved.read_bytes() == data
    code, out, _ = run(bob, "files", "save", "friends", row["file"]["id"][:8], "--output", "mine.jpg")
    assert code == 0 and (tmp_path / "mine.jpg").read_bytes() == data
    code, out, _ = run(bob, "files", "remove", "friends", "photo.jpg")
    assert code == 0 and "Removed photo.jpg from this machine." in out and the_file(bob).state == "offered"


def test_save_downloads_a_missing_file(people, tmp_path, run):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, data = write(tmp_path, "film.mkv", 2 << 20)
    assert run(alice, "send", "friends", "--file", str(path))[0] == 0
    until(lambda: the_file(bob), "the offer")
    code, _, err = run(bob, "files", "save", "friends", "film.mkv", "--output", str(tmp_path / "copy"))
    assert code == 0 and (tmp_path / "copy").read_bytes() == data and "downloaded" in err
    assert is_here(bob)


def test_an_unavailable_file_is_reported(people, tmp_path, run):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, _ = write(tmp_path, "film.mkv", 2 << 20)
    run(alice, "send", "friends", "--file", str(path))
    until(lambda: the_file(bob), "the offer")
    run(alice, "files", "remove", "friends", "film.mkv")
    code, out, err = run(bob, "files", "get", "friends", "film.mkv")
    assert (code, out) == (3, "") and "no member has it" in err


@pytest.mark.slow
def test_a_download_without_connected_members_waits(people, tmp_path, run):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, _ = write(tmp_path, "film.mkv", 2 << 20)
    run(alice, "send", "friends", "--file", str(path))
    until(lambda: the_file(bob), "the offer")
    alice.sleep()
    code, _, err = run(bob, "files", "get", "friends", "film.mkv", "--timeout", "0.5")
    assert code == 5 and "continues while an agent runs" in err
    alice.wake()
    until(lambda: is_here(bob), "the file, without asking again")


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("files", "get", "friends"), "Name the file", 2),
        (("files", "get", "friends", "nothing.txt"), "no file", 1),
        (("send", "friends", "--file", "/nowhere/at/all"), "no such file", 1),
        (("send", "friends", "--file", "/dev/null"), "not a regular file", 1),
        (("files", "list", "friends"), "No files yet", 0),
    ],
)
def test_errors_are_sentences(people, run, words, said, code):
    (alice,) = people("alice")
    alice.client.create_group("friends")
    found, out, err = run(alice, *words)
    assert (found, out) == (code, "") and said in err


def file(**details):
    return Attachment(
        id="f" * 43, name=details.pop("name", "photo.jpg"), size=details.pop("size", 2_300_000), of=3, **details
    )


@pytest.mark.parametrize(
    ("size", "words"),
    [(1, "1 B"), (999, "999 B"), (1_000, "1.0 kB"), (9_949, "9.9 kB"), (150_000, "150 kB"), (999_499, "999 kB"),
     (999_500, "1.0 MB"), (2_300_000, "2.3 MB"), (64 << 20, "67 MB"), (1 << 30, "1.1 GB"), (10**13, "10000 GB")],
)  # fmt: skip
def test_sizes_are_formatted(size, words):
    assert format_size(size) == words


def test_transfer_states_are_described():
    bob = Author("did", "bob")
    assert file_line(file()) == "photo.jpg  2.3 MB · not downloaded"
    assert transfer_state(file(state="getting", have=920_000, from_=bob)) == "40 %"
    assert transfer_state(file(state="getting")) == "waiting for a member that has it"
    assert (
        transfer_state(file(state="getting", have=23_000, fault="The disk is full."))
        == "stopped at 1 %: The disk is full."
    )
    assert transfer_state(file(state="gone")) == "no member has it"
    assert transfer_state(file(state="here", have=2_300_000)) == "downloaded"
    assert transfer_state(file(state="here", holders=2), mine=True) == "received by 2 of 3"
    assert "\x1b" not in file_line(file(name="a\x1b[31m\u202egpj.exe")) and "\n" not in file_line(file(name="a\nb"))
