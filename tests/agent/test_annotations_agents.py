"""Replies, edits, deletions, reactions and the topic, between whole agents over real sockets."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, meet, until
from tests.support.annotation_helpers import message
from tests.support.joining_agents import join
from zerochat.agent.api.client_protocol import AgentError
from zerochat.rpc import AnnouncedCommand, Event, MessageChanged

people = agents.people


def by_id(person: Person, name: str) -> Event:
    return next(e for e in person.client.get_history("friends", limit=500).events if e.id == name)


def shown(person: Person, name: str) -> tuple[Any, ...]:
    """How a message stands for this person, but for what is its own."""
    e = by_id(person, name)
    return e.body, bool(e.edited_at), e.deleted, [(one.emoji, one.by) for one in e.reactions], e.mentions, e.action


def news_until(person: Person, wanted: Any) -> list[Any]:
    heard = []
    while not wanted(heard):
        news = person.client.next_notification(agents.DEADLINE_S)
        assert news is not None, heard
        heard.append(news.params)
    return heard


def test_a_message_is_answered_reacted_to_edited_and_deleted(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    first = alice.client.send_message("friends", "At eight, @bob, by the bridge.").id
    until(lambda: message(bob, "At eight, @bob, by the bridge."), "the message")
    me = {person.name: person.client.list_groups()[0].me for person in (alice, bob)}
    assert by_id(bob, first).mentions == [me["bob"]] == by_id(alice, first).mentions

    alice.client.subscribe(["friends"])
    answer = bob.client.send_message("friends", "yes", reply_to=first[:6]).id
    waved = bob.client.send_message("friends", "waves", action=True).id
    bob.client.react("friends", first, "👍")
    bob.client.react("friends", first, "❤️")
    bob.client.react("friends", first, "❤️", on=False)
    amended = lambda heard: [one.event for one in heard if isinstance(one, MessageChanged)]  # noqa: E731
    heard = news_until(alice, lambda all_: any(isinstance(one, Event) and one.body.get("on") is False for one in all_))
    heard += [] if amended(heard) and not amended(heard)[-1].reactions[1:] else news_until(alice, amended)
    typed = [one for one in heard if isinstance(one, Event)]
    assert [(one.type, one.body.get("emoji")) for one in typed if one.type == "reacted"] == [
        ("reacted", "👍"),
        ("reacted", "❤️"),
        ("reacted", "❤️"),
    ]
    assert amended(heard)[-1].id == first
    assert [(one.emoji, one.by) for one in amended(heard)[-1].reactions] == [("👍", [me["bob"]])]

    reply = by_id(alice, answer)
    assert reply.reply_to == first and reply.quoted is not None
    assert (reply.quoted.id, reply.quoted.text) == (first, "At eight, @bob, by the bridge.")
    assert reply.quoted.author is not None and reply.quoted.author.did == me["alice"]
    assert by_id(alice, waved).action

    alice.client.edit_message("friends", first[:6], "At nine, by the bridge.")
    until(lambda: message(bob, "At nine, by the bridge."), "the edit")
    assert shown(bob, first) == shown(alice, first)
    edited = by_id(bob, first)
    assert edited.edited_at and edited.position == by_id(alice, first).position and not edited.deleted
    again = by_id(bob, answer)
    assert again.quoted is not None and again.quoted.text == "At nine, by the bridge."

    with pytest.raises(AgentError, match="This message is by alice; only its author can edit or delete"):
        bob.client.delete_message("friends", first)
    alice.client.delete_message("friends", first)
    until(lambda: by_id(bob, first).deleted, "the deletion")
    for person in (alice, bob):
        assert shown(person, first) == ({"text": ""}, False, True, [], [], False)
        quoted = by_id(person, answer).quoted
        assert quoted is not None and quoted.deleted and quoted.text == ""
        said = [e.body for e in person.client.get_history("friends", limit=500).events]
        assert not any("nine" in str(body) or "eight" in str(body) for body in said), "no text of it is shown any more"
    for refused in (
        lambda: alice.client.edit_message("friends", first, "again"),
        lambda: alice.client.delete_message("friends", first),
        lambda: bob.client.react("friends", first, "👍"),
    ):
        with pytest.raises(AgentError, match="This message was deleted"):
            refused()

    before = [shown(person, answer) for person in (alice, bob)], [shown(person, first) for person in (alice, bob)]
    for person in (alice, bob):
        person.sleep()
    for person in (alice, bob):
        person.wake()
    after = [shown(person, answer) for person in (alice, bob)], [shown(person, first) for person in (alice, bob)]
    assert after == before


def test_a_new_member_sees_current_messages_and_the_topic(people: Any) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob)
    kept = alice.client.send_message("friends", "a plan").id
    gone = alice.client.send_message("friends", "a mistake").id
    until(lambda: message(bob, "a mistake"), "the messages")
    bob.client.react("friends", kept, "🎉")
    bob.client.set_topic("friends", "plans")
    alice.client.edit_message("friends", kept, "a better plan")
    alice.client.delete_message("friends", gone)
    until(lambda: by_id(alice, kept).reactions, "the reaction")
    until(lambda: by_id(bob, gone).deleted, "the deletion")
    for person in (alice, bob):
        until(lambda person=person: person.client.list_groups()[0].topic == "plans", "the topic")

    join(alice, carol)
    until(lambda: message(carol, "a better plan"), "all of it")
    until(lambda: by_id(carol, kept).reactions and by_id(carol, gone).deleted, "all that became of it")
    assert shown(carol, kept) == shown(alice, kept) and shown(carol, gone) == shown(bob, gone)
    until(lambda: carol.client.list_groups()[0].topic == "plans", "the topic")
    carol.sleep()
    carol.wake()
    assert carol.client.list_groups()[0].topic == "plans" == carol.client.get_status().groups[0].topic
    assert shown(carol, kept) == shown(alice, kept)
    carol.client.set_topic("friends", "")
    until(lambda: alice.client.list_groups()[0].topic == "", "no topic any more")


def test_announced_bot_commands_reach_new_members(people: Any) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    alice.client.call("create_group", group="friends", history="none")
    join(alice, bob)
    commands = [AnnouncedCommand("deploy", "ENV", "Bring it out", "admin")]
    said = bob.client.announce_bot("friends", commands)
    again = bob.client.announce_bot("friends", commands)
    assert said.id and not said.unchanged and (again.id, again.unchanged) == (said.id, True)

    def seen(person: Person) -> list[tuple[str, bool, list[AnnouncedCommand]]]:
        return sorted((one.nick, one.bot, one.commands) for one in person.client.list_members("friends"))

    known = [("alice", False, []), ("bob", True, commands)]
    until(lambda: seen(alice) == known, "what the bot announces")
    bob.client.send_message("friends", "beep")
    until(lambda: message(alice, "beep"), "what it says")
    assert message(alice, "beep").author.bot and not message(alice, "beep").author.verified
    join(alice, carol)
    until(lambda: len(bob.client.list_members("friends")) == 3, "the newcomer")
    assert not bob.client.announce_bot("friends", commands).unchanged, "carol has not heard it"
    until(lambda: seen(carol) == [*known, ("carol", False, [])], "what the bot announces")
    assert bob.client.announce_bot("friends", commands).unchanged
    with pytest.raises(AgentError, match="a-z"):
        bob.client.announce_bot("friends", [AnnouncedCommand("Two words")])
    assert not bob.client.announce_bot("friends", bot=False).unchanged
    until(lambda: seen(alice)[1] == ("bob", False, []), "that it is none any more")


def test_a_reader_cannot_edit_react_or_set_the_topic(people: Any) -> None:
    alice, bob = people("alice", "bob")
    alice.client.create_group("friends", roles="admins", remove="admins", quorum=0)
    bob.client.subscribe()
    bob.client.join_group(alice.client.create_invitation("friends", role="reader").url, role="reader")
    until(lambda: any(g.state == "active" for g in bob.client.list_groups()), "joining")
    sent = alice.client.send_message("friends", "hear, hear").id
    until(lambda: message(bob, "hear, hear"), "the message")
    for refused in (
        lambda: bob.client.react("friends", sent, "👍"),
        lambda: bob.client.send_message("friends", "no", reply_to=sent),
        lambda: bob.client.set_topic("friends", "mine"),
    ):
        with pytest.raises(AgentError, match="You are read-only"):
            refused()
    alice.client.set_role("friends", "writer", "bob")
    until(lambda: bob.client.list_groups()[0].role == "writer", "the role")
    bob.client.react("friends", sent, "👍")
    until(lambda: by_id(alice, sent).reactions, "the reaction")
    with pytest.raises(AgentError, match="Only the owner and the admins set the topic of friends"):
        bob.client.set_topic("friends", "mine")
    alice.client.set_topic("friends", "ours")
    until(lambda: bob.client.list_groups()[0].topic == "ours", "the topic")


def zerochat(person: Person, *words: str, text: str = "") -> tuple[int, str, str]:
    """The command line, in a process of its own, as a script calls it."""
    env = {**os.environ, "ZEROCHAT_HOME": str(person.places.data.parents[1]), "TZ": "UTC"}
    command = [sys.executable, "-m", "zerochat", "--profile", person.name, *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=env, timeout=60)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.slow
def test_annotations_on_the_command_line(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    code, first, err = zerochat(alice, "send", "friends", "-m", "At eight?")
    assert code == 0, err
    until(lambda: message(bob, "At eight?"), "the message")
    assert zerochat(bob, "react", "friends", "last:alice", "👍")[0] == 0
    assert zerochat(bob, "send", "friends", f"--reply={first[:8]}", "-m", "yes")[0] == 0
    assert zerochat(bob, "send", "friends", "--me", "-m", "waves")[0] == 0
    code, _, err = zerochat(bob, "edit", "friends", first[:8], "-m", "no")
    assert code == 1 and "This message is by alice" in err
    assert zerochat(alice, "edit", "friends", "last", text="At nine?\n")[0] == 0
    assert zerochat(alice, "topic", "friends", "the bridge")[0] == 0
    until(lambda: bob.client.list_groups()[0].topic == "the bridge", "the topic")
    until(lambda: message(bob, "At nine?"), "the edit")
    code, out, _ = zerochat(bob, "history", "friends")
    lines = [line if line.startswith(" ") else line.partition("  ")[2] for line in out.splitlines()][-5:]
    assert lines[0] == "alice: At nine?  (edited)  [👍 1]"
    assert lines[1] == "bob replied to alice, “At nine?”:" and lines[2].startswith("    yes")
    assert lines[3].startswith("~ bob waves")
    assert lines[4] == "* alice set the topic: the bridge"
    assert zerochat(bob, "topic", "friends")[1] == "the bridge"
    assert zerochat(bob, "react", "friends", first, "👍", "--off")[0] == 0
    code, _, err = zerochat(bob, "react", "friends", first, "👍", "--off")
    assert code == 1 and "You have not reacted to this message with 👍" in err
    code, _, err = zerochat(bob, "react", "friends", first, "yes")
    assert code == 1 and "yes cannot be a reaction" in err
    code, _, err = zerochat(alice, "delete", "friends", "last")
    assert code == 2 and "requires confirmation" in err
    assert zerochat(alice, "delete", "friends", "last", "--yes")[0] == 0
    until(lambda: by_id(bob, first).deleted, "the deletion")
    code, out, _ = zerochat(bob, "history", "friends")
    assert "alice: (deleted)" in out and "nine" not in out
    assert "bob replied to alice, (deleted):" in out
