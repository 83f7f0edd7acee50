"""What a bot does with people who come, and with files: on real agents, over sockets, with disks."""

import hashlib

from tests.agent.test_agent import people, until  # noqa: F401  # a fixture
from tests.agent.test_files_agents import write
from tests.bot.test_agents import running
from zerochat import Bot, Message
from zerochat.bot import Joined, JoinRequest, SyncJoinRequest


def test_a_bot_lets_people_in_greets_them_and_takes_and_gives_files(people, monkeypatch, tmp_path):  # noqa: F811
    """Its owner has founded the group; one who asks is let in, and one is turned away. Files are given back doubled."""
    bob, alice, mallory = people("bob", "alice", "mallory")
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    bot, asked = Bot(profile="bob", name="doorkeeper", retries=()), []
    received = tmp_path / "received"
    received.mkdir()

    @bot.on_request
    async def door(r: JoinRequest):
        asked.append((r.member.nick, r.role, r.state))
        if r.state == "asked" and r.role == "reader":
            await r.admit()

    @bot.on_request
    def strict(r: SyncJoinRequest):
        if r.state == "asked" and r.role == "writer":
            r.refuse()

    @bot.on_join
    async def welcome(j: Joined):
        await j.say(f"Welcome, {j.member}!")

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
    bob.client.new("friends", join="ask", roles="admins")
    with running(bot) as failed:
        mallory.client.join(bob.client.invite("friends").url, role="writer")
        until(lambda: ("mallory", "writer", "refused") in asked, "that the writer is turned away")
        alice.client.join(bob.client.invite("friends", role="writer").url, role="reader")
        until(lambda: any(one.state == "active" for one in alice.client.groups()), "that the reader is let in")
        until(lambda: "Welcome, alice!" in alice.texts(), "a welcome")
        assert ("alice", "reader", "asked") in asked and not mallory.client.groups()
        bob.client.call("role", group="friends", member="alice", role="writer")
        until(lambda: {one.nick: one.role for one in alice.client.members("friends")}["alice"] == "writer", "the role")

        photo, data = write(tmp_path, "photo.jpg", 150_000)
        question = alice.client.attach("friends", [str(photo)], "twice")
        until(lambda: "here it is, twice" in alice.texts(), "an answer", 60)
        answer = next(
            one for one in alice.client.history("friends").events if one.body.get("text") == "here it is, twice"
        )
        assert [one.name for one in answer.attachments] == ["photo.jpg", "twice.jpg"]
        saved = alice.client.save("friends", get(alice, answer, "twice.jpg"), str(tmp_path / "twice.jpg"))
        assert saved.sha256 == hashlib.sha256(data * 2).hexdigest()
        until(lambda: [one.emoji for one in standing(alice, question.id).reactions] == ["✅"], "that it has heard so")
        assert not failed and not bot.dead_letters()


def get(person, event, name) -> str:
    """Fetch a file, and wait until it is whole; its id."""
    file: str = next(one.id for one in event.attachments if one.name == name)
    until(lambda: person.client.call("get", group="friends", file=file).file.state == "here", f"the file {name}")
    return file


def standing(person, event):
    return next(one for one in person.client.history("friends").events if one.id == event)
