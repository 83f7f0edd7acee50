"""Files between whole agents on loopback: disks, kills, and a second source."""

import hashlib
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import agents
from tests.support.agents import meet, until
from tests.support.shared_files import files, is_here, the_file, write
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.files import handlers, jobs
from zerochat.group.files.hash_tree import PART_BYTES
from zerochat.rpc import Event, FileNotification

people = agents.people


def test_a_photo_reaches_all_members_and_gets_a_safe_name(people, tmp_path):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    path, data = write(tmp_path, "photo.jpg", 200_000)
    sent = alice.client.send_files("friends", [str(path)], "look")
    assert sent.of == 2
    for person in (bob, carol):
        until(lambda person=person: is_here(person), "the file")
        event = person.client.get_history("friends").events[-1]
        assert event.body == {"text": "look"}
        (file,) = event.attachments
        assert (file.name, file.size, file.type, file.state, file.have) == (
            "photo.jpg", 200_000, "image/jpeg", "here", 200_000,
        )  # fmt: skip
    until(lambda: the_file(alice).holders == 2, "both have said so")
    target = tmp_path / "out"
    target.mkdir()
    saved = bob.client.save_file("friends", "photo.jpg", str(target))
    assert saved.path == str(target / "photo.jpg") and saved.sha256 == hashlib.sha256(data).hexdigest()
    assert (target / "photo.jpg").read_bytes() == data
    assert stat.S_IMODE((target / "photo.jpg").stat().st_mode) == 0o600
    again = bob.client.save_file("friends", sent.id, str(target))
    assert again.path == str(target / "photo (1).jpg") and (target / "photo (1).jpg").read_bytes() == data
    assert sorted(one.name for one in target.iterdir()) == ["photo (1).jpg", "photo.jpg"]


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single"])
@pytest.mark.parametrize("envelope", ["didcomm/v1", "didcomm/v2"])
def test_files_in_every_kind_of_group(people, tmp_path, envelope, keys):
    alice, bob = people("alice", "bob")
    alice.client.create_group("friends", envelope=envelope, keys=keys)
    bob.client.subscribe()
    bob.client.join_group(alice.client.create_invitation("friends").url)
    path, data = write(tmp_path, "photo.jpg", 500_000)
    until(lambda: any(one.connection == "connected" for one in alice.client.list_members("friends")), "meeting")
    alice.client.send_files("friends", [str(path)])
    until(lambda: bob.client.list_groups() and is_here(bob), "the file")
    assert (
        bob.client.save_file("friends", "photo.jpg", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()
    )


def test_stored_files_are_encrypted_and_deleted_with_the_group(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    secret = b"the secret plan " * 5_000
    path = tmp_path / "plan.txt"
    path.write_bytes(secret)
    alice.client.send_files("friends", [str(path)])
    until(lambda: is_here(bob), "the file")
    for person in (alice, bob):
        kept = [one for one in person.places.files.rglob("*") if one.is_file()]
        assert len(kept) == 1 and b"secret plan" not in kept[0].read_bytes()
        assert stat.S_IMODE(kept[0].stat().st_mode) == 0o600
    bob.client.leave_group("friends")
    until(lambda: bob.client.list_groups()[0].state == "left", "leaving")
    bob.client.forget_group("friends")
    until(lambda: not [one for one in bob.places.files.rglob("*") if one.is_file()], "the file is removed")


@pytest.mark.slow
def test_a_large_file_is_downloaded_on_request_with_progress(people, tmp_path, monkeypatch):
    monkeypatch.setattr(handlers, "PROGRESS_S", 0)  # a fast machine has all of it before the second report
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    alice.client.subscribe()
    path, data = write(tmp_path, "film.mkv", 5 << 20)
    alice.client.send_files("friends", [str(path)])
    until(lambda: the_file(bob) is not None, "the offer")
    assert the_file(bob).state == "offered"
    with pytest.raises(AgentError, match="is not downloaded, or not completely"):
        bob.client.save_file("friends", "film.mkv")
    assert bob.client.fetch_file("friends", "film.mkv").file.state == "getting"
    seen = []
    while not seen or seen[-1].state != "here":
        news = bob.client.next_notification(agents.DEADLINE_S)
        assert news is not None
        if isinstance(news.params, FileNotification):
            seen.append(news.params.file)
    have = [one.have for one in seen]
    assert have == sorted(have) and have[-1] == len(data)
    assert any(one.from_ and one.from_.nick == "alice" for one in seen)
    while True:
        news = alice.client.next_notification(agents.DEADLINE_S)
        assert news is not None
        if isinstance(news.params, FileNotification) and news.params.file.holders == 1:
            break
    saved = bob.client.save_file("friends", "film.mkv", str(tmp_path / "film.mkv.copy"))
    assert saved.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_a_download_resumes_after_a_restart(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, data = write(tmp_path, "film.mkv", 20 << 20)
    alice.client.send_files("friends", [str(path)])
    until(lambda: the_file(bob) is not None, "the offer")
    bob.client.fetch_file("friends", "film.mkv")
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
    assert (
        bob.client.save_file("friends", "film.mkv", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()
    )


@pytest.mark.slow
def test_another_member_provides_the_file_if_its_author_cannot(people, tmp_path):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    path, data = write(tmp_path, "film.mkv", 3 << 20)
    alice.client.send_files("friends", [str(path)])
    until(lambda: the_file(bob) and the_file(carol), "the offer")
    bob.client.fetch_file("friends", "film.mkv")
    until(lambda: is_here(bob), "the file")
    alice.sleep()
    carol.client.fetch_file("friends", "film.mkv")
    until(lambda: is_here(carol), "the file from bob")
    assert (
        carol.client.save_file("friends", "film.mkv", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()
    )


@pytest.mark.slow
def test_a_corrupted_file_is_not_passed_on_and_fetched_again(people, tmp_path):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    path, data = write(tmp_path, "film.mkv", 3 << 20)
    alice.client.send_files("friends", [str(path)])
    until(lambda: the_file(bob) and the_file(carol), "the offer")
    bob.client.fetch_file("friends", "film.mkv")
    until(lambda: is_here(bob), "the file")
    (kept,) = (one for one in bob.places.files.rglob("*") if one.is_file())
    with kept.open("r+b") as file:
        file.seek(PART_BYTES * 20)
        file.write(b"something else")
    with pytest.raises(AgentError, match="is damaged, so nothing was saved"):
        bob.client.save_file("friends", "film.mkv", str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists() and not [one for one in tmp_path.iterdir() if ".zerochat-" in one.name]
    alice.sleep()
    carol.client.fetch_file("friends", "film.mkv")
    until(lambda: the_file(bob).state == "offered", "bob has noticed")
    alice.wake()
    until(lambda: is_here(carol), "the file from alice")
    bob.client.fetch_file("friends", "film.mkv")
    until(lambda: is_here(bob), "the file once more")
    assert (
        bob.client.save_file("friends", "film.mkv", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()
    )


def test_a_deleted_file_is_kept_by_no_member(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    path, _ = write(tmp_path, "photo.jpg", 50_000)
    sent = alice.client.send_files("friends", [str(path)], "oops")
    until(lambda: is_here(bob), "the file")
    alice.client.call("delete_message", group="friends", event=sent.id)
    until(lambda: not files(bob) and not files(alice), "it is offered no more")
    for person in (alice, bob):
        until(lambda p=person: not [one for one in p.places.files.rglob("*") if one.is_file()], "it is gone from disk")
    message = next(one for one in bob.client.get_history("friends").events if one.id == sent.id)
    assert isinstance(message, Event) and message.deleted and message.attachments == []


@pytest.mark.parametrize("what", ["missing", "folder", "pipe", "empty", "large", "relative", "nine", "none"])
def test_an_unsendable_file_explains_why(people, tmp_path, what):
    (alice,) = people("alice")
    alice.client.create_group("friends")
    paths = [str(tmp_path / "it")]
    match what:
        case "folder":
            (tmp_path / "it").mkdir()
            why = "it is a folder"
        case "pipe":
            os.mkfifo(tmp_path / "it")
            why = "it is not a regular file"
        case "empty":
            (tmp_path / "it").touch()
            why = "it is empty"
        case "large":
            with (tmp_path / "it").open("wb") as file:
                file.truncate((64 << 20) + 1)
            why = "at most 67108864 can be sent"
        case "relative":
            paths, why = ["it"], "not an absolute path"
        case "nine":
            paths, why = paths * 9, "at most 8 files"
        case "none":
            paths, why = [], "No file given"
        case _:
            why = "no such file"
    with pytest.raises(AgentError, match=why):
        alice.client.send_files("friends", paths, "look")
    assert alice.texts() == [] and not [one for one in alice.places.files.rglob("*") if one.is_file()]


def test_a_file_that_changes_while_read_is_refused(people, tmp_path, monkeypatch):
    from zerochat.agent.files import sources

    (alice,) = people("alice")
    alice.client.create_group("friends")
    path, _ = write(tmp_path, "log.txt", 100_000)
    read = sources._full

    def and_write(descriptor, place):
        part = read(descriptor, place)
        with path.open("r+b") as file:
            file.write(os.urandom(8))
        return part

    monkeypatch.setattr(sources, "_full", and_write)
    with pytest.raises(AgentError, match="changed while it was read"):
        alice.client.send_files("friends", [str(path)])
    assert not [one for one in alice.places.files.rglob("*") if one.is_file()]


@pytest.mark.slow
def test_two_groups_have_nothing_to_do_with_each_other(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    alice.client.create_group("others")
    bob.client.join_group(alice.client.create_invitation("others").url)
    until(
        lambda: {one.name for one in bob.client.list_groups() if one.state == "active"} == {"friends", "others"},
        "joining",
    )
    path, _ = write(tmp_path, "photo.jpg", 2 << 20)
    sent = alice.client.send_files("friends", [str(path)])
    until(lambda: the_file(bob), "the offer")
    with pytest.raises(AgentError, match="no file"):
        bob.client.fetch_file("others", the_file(bob).id)
    alice.client.send_files("others", [str(path)])
    until(lambda: the_file(bob, "others"), "the offer")
    assert the_file(bob, "others").id == the_file(bob).id
    bob.client.fetch_file("others", "photo.jpg")
    until(lambda: is_here(bob, "others"), "the file")
    assert the_file(bob).state == "offered" and sent.group != files(bob, "others")[0].group


@pytest.mark.parametrize("state", ["saved", "begun"])
def test_a_save_is_reported_as_it_ended_when_the_agent_stops(people, tmp_path, monkeypatch, state):
    (alice,) = people("alice")
    alice.client.create_group("friends")
    path, data = write(tmp_path, "photo.jpg", 2 * PART_BYTES)
    alice.client.send_files("friends", [str(path)])
    until(lambda: is_here(alice), "the file")
    begun, save = threading.Event(), jobs._save
    (tmp_path / "to").mkdir()

    def slow(worker, *rest):
        saved = save(worker, *rest) if state == "saved" else None
        begun.set()
        until(lambda: not worker.is_running(), "the end of the agent")
        return saved or save(worker, *rest)

    monkeypatch.setattr(jobs, "_save", slow)
    with connect(alice.places) as client, ThreadPoolExecutor(1) as pool:
        saving = pool.submit(client.save_file, "friends", "photo.jpg", str(tmp_path / "to"))
        assert begun.wait(30)
        alice.client.stop_agent()
        if state == "saved":
            assert (tmp_path / "to" / "photo.jpg").read_bytes() == data
            assert saving.result(30).path == str(tmp_path / "to" / "photo.jpg")
        else:
            error = saving.exception(30)
            assert isinstance(error, AgentError) and error.code == "AgentStopping"
            assert list((tmp_path / "to").iterdir()) == []
