"""Bots with join requests and files, on real agents."""

import hashlib

from tests.support.agents import until
from tests.support.bot_processes import running
from tests.support.shared_files import write
from zerochat import Bot, Message
from zerochat.bot import Joined, JoinRequest, SyncJoinRequest


def test_bot_admits_members_and_exchanges_files(people, monkeypatch, tmp_path):
    """One join request is admitted, one rejected. Files are sent back doubled."""
    bob, alice, mallory = people("bob", "alice", "mallory")
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    bot, asked = Bot(profile="bob", name="doorkeeper", retries=()), []
    received = tmp_path / "received"
    received.mkdir()

    @bot.on_join_request
    async def door(r: JoinRequest):
        asked.append((r.member.nick, r.role, r.state))
        if r.state == "asked" and r.role == "reader":
            await r.admit()

    @bot.on_join_request
    def strict(r: SyncJoinRequest):
        if r.state == "asked" and r.role == "writer":
            r.reject()

    @bot.on_join
    async def welcome(j: Joined):
        await j.send(f"Welcome, {j.member}!")

    @bot.on_message(text="^twice$")
    async def twice(m: Message):
        [path] = await m.save(received)
        assert [one.name for one in m.attachments] == ["photo.jpg"] == [path.name]
        copy = received / "twice.jpg"
        copy.write_bytes(path.read_bytes() * 2)
        sent = await m.reply("here it is, twice", files=[path, copy])
        assert await sent.delivered(timeout=60)
        await m.react("✅")

    # Whoever only reads has nothing to say, so the writer is made one later: by the group's owner.
    bob.client.create_group("friends", join="ask", roles="admins")
    with running(bot) as failed:
        mallory.client.join_group(bob.client.create_invitation("friends").url, role="writer")
        until(lambda: ("mallory", "writer", "refused") in asked, "that the writer is turned away")
        alice.client.join_group(bob.client.create_invitation("friends", role="writer").url, role="reader")
        until(lambda: any(one.state == "active" for one in alice.client.list_groups()), "that the reader is let in")
        until(lambda: "Welcome, alice!" in alice.texts(), "a welcome")
        assert ("alice", "reader", "asked") in asked and not mallory.client.list_groups()
        bob.client.call("set_role", group="friends", member="alice", role="writer")
        until(
            lambda: {one.nick: one.role for one in alice.client.list_members("friends")}["alice"] == "writer",
            "the role",
        )

        photo, data = write(tmp_path, "photo.jpg", 150_000)
        question = alice.client.send_files("friends", [str(photo)], "twice")
        until(lambda: "here it is, twice" in alice.texts(), "an answer", 60)
        answer = next(
            one for one in alice.client.get_history("friends").events if one.body.get("text") == "here it is, twice"
        )
        assert [one.name for one in answer.attachments] == ["photo.jpg", "twice.jpg"]
        saved = alice.client.save_file("friends", get(alice, answer, "twice.jpg"), str(tmp_path / "twice.jpg"))
        assert saved.sha256 == hashlib.sha256(data * 2).hexdigest()
        until(lambda: [one.emoji for one in standing(alice, question.id).reactions] == ["✅"], "that it has heard so")
        assert not failed and not bot.dead_letters()


def get(person, event, name) -> str:
    """Fetch a file, and wait until it is whole; its id."""
    file: str = next(one.id for one in event.attachments if one.name == name)
    until(lambda: person.client.call("fetch_file", group="friends", file=file).file.state == "here", f"the file {name}")
    return file


def standing(person, event):
    return next(one for one in person.client.get_history("friends").events if one.id == event)
