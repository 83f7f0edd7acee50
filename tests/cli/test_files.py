"""Files from the command line, by the verbs as people type them, against real agents."""

import json

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import meet, until
from tests.agent.test_files_agents import is_here, the_file, write
from zerochat.cli import main
from zerochat.presentation.files import line, size_words, standing_words
from zerochat.rpc import Attachment, Author

people = test_agent.people


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


def test_a_photo_from_hand_to_hand(people, tmp_path, run, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    _, data = write(tmp_path, "photo.jpg", 150_000)
    monkeypatch.chdir(tmp_path)
    code, out, err = run(alice, "send", "friends", "--file", "photo.jpg", "-m", "The bridge", "--wait", "all")
    assert code == 0 and "1 of 1 have it" in err
    code, out, _ = run(bob, "history", "friends")
    assert "alice: The bridge\n  > photo.jpg  150 kB · here" in out
    code, out, _ = run(bob, "files", "list", "friends")
    assert code == 0 and out.split()[1:] and "photo.jpg" in out and "150 kB" in out and "alice" in out
    _, out, _ = run(bob, "files", "list", "friends", "--format", "jsonl")
    row = json.loads(out)
    assert row["file"]["state"] == "here" and row["file"]["size"] == 150_000 and row["author"]["nick"] == "alice"
    code, out, _ = run(bob, "files", "save", "friends", "photo.jpg")
    saved = bob.places.data.parents[1] / "downloads" / "photo.jpg"
    assert code == 0 and out == f"{saved}\n" and saved.read_bytes() == data
    code, out, _ = run(bob, "files", "save", "friends", row["file"]["id"][:8], "--out", "mine.jpg")
    assert code == 0 and (tmp_path / "mine.jpg").read_bytes() == data
    code, out, _ = run(bob, "files", "drop", "friends", "photo.jpg")
    assert code == 0 and "not kept here any more" in out and the_file(bob).state == "offered"


def test_save_fetches_what_is_not_here(people, tmp_path, run):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, data = write(tmp_path, "film.mkv", 2 << 20)
    assert run(alice, "send", "friends", "--file", str(path))[0] == 0
    until(lambda: the_file(bob), "the offer")
    code, _, err = run(bob, "files", "save", "friends", "film.mkv", "--out", str(tmp_path / "copy"))
    assert code == 0 and (tmp_path / "copy").read_bytes() == data and "here" in err
    assert is_here(bob)


def test_what_nobody_has_any_more_is_said(people, tmp_path, run):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, _ = write(tmp_path, "film.mkv", 2 << 20)
    run(alice, "send", "friends", "--file", str(path))
    until(lambda: the_file(bob), "the offer")
    run(alice, "files", "drop", "friends", "film.mkv")
    code, out, err = run(bob, "files", "get", "friends", "film.mkv")
    assert (code, out) == (3, "") and "no member has it any more" in err


def test_while_nobody_is_there_it_waits_and_says_so(people, tmp_path, run):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, _ = write(tmp_path, "film.mkv", 2 << 20)
    run(alice, "send", "friends", "--file", str(path))
    until(lambda: the_file(bob), "the offer")
    alice.sleep()
    code, _, err = run(bob, "files", "get", "friends", "film.mkv", "--timeout", "0.5")
    assert code == 5 and "goes on while an agent runs" in err
    alice.wake()
    until(lambda: is_here(bob), "the file, without asking again")


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("files", "get", "friends"), "needs a file too", 2),
        (("files", "get", "friends", "nothing.txt"), "no file", 1),
        (("send", "friends", "--file", "/nowhere/at/all"), "no such file", 1),
        (("send", "friends", "--file", "/dev/null"), "no regular file", 1),
        (("files", "list", "friends"), "No file was sent here yet", 0),
    ],
)
def test_mistakes_get_a_sentence(people, run, words, said, code):
    (alice,) = people("alice")
    alice.client.new("friends")
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
def test_sizes_in_words(size, words):
    assert size_words(size) == words


def test_states_in_words():
    bob = Author("did", "bob")
    assert line(file()) == "photo.jpg  2.3 MB · not here"
    assert standing_words(file(state="getting", have=920_000, from_=bob)) == "40 %"
    assert standing_words(file(state="getting")) == "waits for somebody who has it"
    assert (
        standing_words(file(state="getting", have=23_000, fault="The disk is full."))
        == "stopped at 1 %: The disk is full."
    )
    assert standing_words(file(state="gone")) == "no member has it any more"
    assert standing_words(file(state="here", have=2_300_000)) == "here"
    assert standing_words(file(state="here", holders=2), mine=True) == "2 of 3 have it"
    assert "\x1b" not in line(file(name="a\x1b[31m\u202egpj.exe")) and "\n" not in line(file(name="a\nb"))
