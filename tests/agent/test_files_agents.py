"""Files between whole agents over real sockets on loopback: with disks, kills, and a second member who gives."""

import hashlib
import os
import stat

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import meet, until
from zerochat.agent.api.client import AgentError
from zerochat.agent.files import handlers
from zerochat.group.files.hash_tree import PART_BYTES
from zerochat.rpc import Event, FileNews

people = test_agent.people


def write(folder, name, size, seed=b"x"):
    """A file with so many bytes, no two parts of it the same."""
    path = folder / name
    data = b"".join(hashlib.sha256(seed + number.to_bytes(8)).digest() for number in range(-(-size // 32)))[:size]
    path.write_bytes(data)
    return path, data


def files(person, group="friends"):
    return list(person.client.files(group))


def the_file(person, group="friends"):
    found = files(person, group)
    return found[0].file if found else None


def is_here(person, group="friends"):
    return (one := the_file(person, group)) is not None and one.state == "here"


def test_a_photo_goes_to_everybody_and_is_saved_under_a_harmless_name(people, tmp_path):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    path, data = write(tmp_path, "photo.jpg", 200_000)
    sent = alice.client.attach("friends", [str(path)], "look")
    assert sent.of == 2
    for person in (bob, carol):
        until(lambda person=person: is_here(person), "the file")
        event = person.client.history("friends").events[-1]
        assert event.body == {"text": "look"}
        (file,) = event.attachments
        assert (file.name, file.size, file.type, file.state, file.have) == (
            "photo.jpg", 200_000, "image/jpeg", "here", 200_000,
        )  # fmt: skip
    until(lambda: the_file(alice).holders == 2, "both have said so")
    target = tmp_path / "out"
    target.mkdir()
    saved = bob.client.save("friends", "photo.jpg", str(target))
    assert saved.path == str(target / "photo.jpg") and saved.sha256 == hashlib.sha256(data).hexdigest()
    assert (target / "photo.jpg").read_bytes() == data
    assert stat.S_IMODE((target / "photo.jpg").stat().st_mode) == 0o600
    again = bob.client.save("friends", sent.id, str(target))
    assert again.path == str(target / "photo (1).jpg") and (target / "photo (1).jpg").read_bytes() == data
    assert sorted(one.name for one in target.iterdir()) == ["photo (1).jpg", "photo.jpg"]


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single"])
@pytest.mark.parametrize("envelope", ["didcomm/v1", "didcomm/v2"])
def test_in_every_kind_of_group(people, tmp_path, envelope, keys):
    alice, bob = people("alice", "bob")
    alice.client.new("friends", envelope=envelope, keys=keys)
    bob.client.subscribe()
    bob.client.join(alice.client.invite("friends").url)
    path, data = write(tmp_path, "photo.jpg", 500_000)
    until(lambda: any(one.connection == "connected" for one in alice.client.members("friends")), "meeting")
    alice.client.attach("friends", [str(path)])
    until(lambda: bob.client.groups() and is_here(bob), "the file")
    assert bob.client.save("friends", "photo.jpg", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()


def test_on_disk_nothing_of_it_is_readable_and_forgetting_removes_it(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    secret = b"the secret plan " * 5_000
    path = tmp_path / "plan.txt"
    path.write_bytes(secret)
    alice.client.attach("friends", [str(path)])
    until(lambda: is_here(bob), "the file")
    for person in (alice, bob):
        kept = [one for one in person.places.files.rglob("*") if one.is_file()]
        assert len(kept) == 1 and b"secret plan" not in kept[0].read_bytes()
        assert stat.S_IMODE(kept[0].stat().st_mode) == 0o600
    bob.client.leave("friends")
    until(lambda: bob.client.groups()[0].state == "left", "leaving")
    bob.client.forget("friends")
    until(lambda: not [one for one in bob.places.files.rglob("*") if one.is_file()], "the file is removed")


@pytest.mark.slow
def test_a_large_file_comes_on_request_with_news_on_both_sides(people, tmp_path, monkeypatch):
    monkeypatch.setattr(handlers, "NEWS_S", 0)  # a fast machine has all of it before the second news
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    alice.client.subscribe()
    path, data = write(tmp_path, "film.mkv", 5 << 20)
    alice.client.attach("friends", [str(path)])
    until(lambda: the_file(bob) is not None, "the offer")
    assert the_file(bob).state == "offered"
    with pytest.raises(AgentError, match="not here, or not all of it yet"):
        bob.client.save("friends", "film.mkv")
    assert bob.client.get("friends", "film.mkv").file.state == "getting"
    seen = []
    while not seen or seen[-1].state != "here":
        news = bob.client.next_news(test_agent.DEADLINE_S)
        assert news is not None
        if isinstance(news.item, FileNews):
            seen.append(news.item.file)
    have = [one.have for one in seen]
    assert have == sorted(have) and have[-1] == len(data)
    assert any(one.from_ and one.from_.nick == "alice" for one in seen)
    while True:
        news = alice.client.next_news(test_agent.DEADLINE_S)
        assert news is not None
        if isinstance(news.item, FileNews) and news.item.file.holders == 1:
            break
    saved = bob.client.save("friends", "film.mkv", str(tmp_path / "film.mkv.copy"))
    assert saved.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_it_goes_on_after_a_restart_from_what_is_on_disk(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, data = write(tmp_path, "film.mkv", 20 << 20)
    alice.client.attach("friends", [str(path)])
    until(lambda: the_file(bob) is not None, "the offer")
    bob.client.get("friends", "film.mkv")
    until(lambda: the_file(bob).have > 3 << 20, "some of it")
    bob.sleep()
    alice.sleep()
    (part,) = (one for one in bob.places.files.rglob("*.part"))
    kept = part.stat().st_size
    assert 3 << 20 < kept < 20 << 20
    bob.wake()
    before = the_file(bob)
    assert before.state == "getting" and before.have >= 3 << 20, "nobody is there to give it anew"
    alice.wake()
    until(lambda: is_here(bob), "the rest")
    assert bob.client.save("friends", "film.mkv", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_somebody_else_gives_what_its_author_cannot(people, tmp_path):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    path, data = write(tmp_path, "film.mkv", 3 << 20)
    alice.client.attach("friends", [str(path)])
    until(lambda: the_file(bob) and the_file(carol), "the offer")
    bob.client.get("friends", "film.mkv")
    until(lambda: is_here(bob), "the file")
    alice.sleep()
    carol.client.get("friends", "film.mkv")
    until(lambda: is_here(carol), "the file from bob")
    assert carol.client.save("friends", "film.mkv", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_what_was_spoilt_on_disk_is_never_given_on_and_is_fetched_anew(people, tmp_path):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    path, data = write(tmp_path, "film.mkv", 3 << 20)
    alice.client.attach("friends", [str(path)])
    until(lambda: the_file(bob) and the_file(carol), "the offer")
    bob.client.get("friends", "film.mkv")
    until(lambda: is_here(bob), "the file")
    (kept,) = (one for one in bob.places.files.rglob("*") if one.is_file())
    with kept.open("r+b") as file:
        file.seek(PART_BYTES * 20)
        file.write(b"something else")
    with pytest.raises(AgentError, match="is not what it was"):
        bob.client.save("friends", "film.mkv", str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists() and not [one for one in tmp_path.iterdir() if ".zerochat-" in one.name]
    alice.sleep()
    carol.client.get("friends", "film.mkv")
    until(lambda: the_file(bob).state == "offered", "bob has noticed")
    alice.wake()
    until(lambda: is_here(carol), "the file from alice")
    bob.client.get("friends", "film.mkv")
    until(lambda: is_here(bob), "the file once more")
    assert bob.client.save("friends", "film.mkv", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()


def test_what_was_deleted_is_kept_by_nobody(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, _ = write(tmp_path, "photo.jpg", 50_000)
    sent = alice.client.attach("friends", [str(path)], "oops")
    until(lambda: is_here(bob), "the file")
    alice.client.call("delete", group="friends", event=sent.id)
    until(lambda: not files(bob) and not files(alice), "it is offered no more")
    for person in (alice, bob):
        until(lambda p=person: not [one for one in p.places.files.rglob("*") if one.is_file()], "it is gone from disk")
    message = next(one for one in bob.client.history("friends").events if one.id == sent.id)
    assert isinstance(message, Event) and message.deleted and message.attachments == []


@pytest.mark.parametrize("what", ["missing", "folder", "pipe", "empty", "large", "relative", "nine", "none"])
def test_what_cannot_be_sent_says_why_and_sends_nothing(people, tmp_path, what):
    (alice,) = people("alice")
    alice.client.new("friends")
    paths = [str(tmp_path / "it")]
    match what:
        case "folder":
            (tmp_path / "it").mkdir()
            why = "it is a folder"
        case "pipe":
            os.mkfifo(tmp_path / "it")
            why = "it is no regular file"
        case "empty":
            (tmp_path / "it").touch()
            why = "it is empty"
        case "large":
            with (tmp_path / "it").open("wb") as file:
                file.truncate((64 << 20) + 1)
            why = "at most 67108864 can be sent"
        case "relative":
            paths, why = ["it"], "not the whole path"
        case "nine":
            paths, why = paths * 9, "at most 8 files"
        case "none":
            paths, why = [], "No file was named"
        case _:
            why = "no such file"
    with pytest.raises(AgentError, match=why):
        alice.client.attach("friends", paths, "look")
    assert alice.texts() == [] and not [one for one in alice.places.files.rglob("*") if one.is_file()]


def test_one_that_is_written_to_while_it_is_read_is_refused(people, tmp_path, monkeypatch):
    from zerochat.agent.files import sources

    (alice,) = people("alice")
    alice.client.new("friends")
    path, _ = write(tmp_path, "log.txt", 100_000)
    read = sources._full

    def and_write(descriptor, place):
        part = read(descriptor, place)
        with path.open("r+b") as file:
            file.write(os.urandom(8))
        return part

    monkeypatch.setattr(sources, "_full", and_write)
    with pytest.raises(AgentError, match="has changed while it was read"):
        alice.client.attach("friends", [str(path)])
    assert not [one for one in alice.places.files.rglob("*") if one.is_file()]


def test_two_groups_have_nothing_to_do_with_each_other(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    alice.client.new("others")
    bob.client.join(alice.client.invite("others").url)
    until(
        lambda: {one.name for one in bob.client.groups() if one.state == "active"} == {"friends", "others"}, "joining"
    )
    path, _ = write(tmp_path, "photo.jpg", 2 << 20)
    sent = alice.client.attach("friends", [str(path)])
    until(lambda: the_file(bob), "the offer")
    with pytest.raises(AgentError, match="no file"):
        bob.client.get("others", the_file(bob).id)
    alice.client.attach("others", [str(path)])
    until(lambda: the_file(bob, "others"), "the offer")
    assert the_file(bob, "others").id == the_file(bob).id
    bob.client.get("others", "photo.jpg")
    until(lambda: is_here(bob, "others"), "the file")
    assert the_file(bob).state == "offered" and sent.group != files(bob, "others")[0].group
