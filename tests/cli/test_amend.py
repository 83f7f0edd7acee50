"""Verbs for replies, edits, deletions and reactions, and how messages look as text."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cli_harness import ALICE, BOB, CAROL, HIKERS, SENT, event, of, process
from zerochat.cli.event_text import EventText
from zerochat.presentation import group_rules
from zerochat.rpc import (
    Author,
    DeleteMessageParams,
    DeliveryReport,
    EditMessageParams,
    Event,
    History,
    HistoryStart,
    MessageChanged,
    Quote,
    Reaction,
    ReactParams,
    SendMessageParams,
    SetTopicParams,
)
from zerochat.terminal_text import printable_line

agent, run, home = cli_harness.agent, cli_harness.run, cli_harness.home

NASTY = "\x1b]0;owned\x07\u202e"


# --- the verbs --------------------------------------------------------------------------------------------------------


def test_requests_sent_to_the_agent(run: Any, agent: Any) -> None:
    connected = replace(HIKERS, connected=2)
    answers = dict.fromkeys(("send_message", "react", "edit_message", "delete_message", "set_topic"), lambda _: SENT)
    served = agent(list_groups=lambda _: [connected], **answers)
    for line, stdin in (
        (["send", "hikers", "--reply", "Yk3v", "-m", "yes"], b""),
        (["send", "hikers", "--reply=-k3v", "--me", "-m", "waves"], b""),
        (["react", "hikers", "-k3v", "👍"], b""),
        (["react", "hikers", "last:bob", "👍", "--off"], b""),
        (["edit", "hikers", "last", "-m", "other"], b""),
        (["edit", "hikers", "-k3v"], b"from a pipe\n"),
        (["delete", "hikers", "last", "--yes"], b""),
        (["topic", "hikers", "plans"], b""),
        (["topic", "hikers", ""], b""),
    ):
        assert run(line, stdin) == (0, "EVENTID\n", ""), line
    assert of(served, "send_message") == [
        SendMessageParams("hikers", "yes", "Yk3v", False),
        SendMessageParams("hikers", "waves", "-k3v", True),
    ]
    assert of(served, "react") == [
        ReactParams("hikers", "-k3v", "👍", True),
        ReactParams("hikers", "last:bob", "👍", False),
    ]
    assert of(served, "edit_message") == [
        EditMessageParams("hikers", "last", "other"),
        EditMessageParams("hikers", "-k3v", "from a pipe"),
    ]
    assert of(served, "delete_message") == [DeleteMessageParams("hikers", "last")]
    assert of(served, "set_topic") == [SetTopicParams("hikers", "plans"), SetTopicParams("hikers", "")]


def test_deletion_needs_confirmation(run: Any, agent: Any) -> None:
    own = replace(event(7, ALICE, "alice", body={"text": NASTY + "x"}), self=True)
    meant = DeliveryReport("GROUPID", "id7", 1, 2, False, [], event=own)
    served = agent(get_delivery=lambda _: meant, delete_message=lambda _: SENT)
    code, out, err = run("delete hikers last")
    assert (code, out) == (2, "") and "Deleting a message in hikers requires confirmation" in err
    for answer in (b"", b"n\n", b"no\n", b"\n"):
        code, out, err = run("delete hikers last", answer, tty=True)
        assert (code, out) == (1, "") and "Nothing was changed." in err
        assert "Delete alice: “␛]0;owned␇�x”?" in err and group_rules.DELETE in err
    assert of(served, "delete_message") == []
    assert run("delete hikers last", b"y\n", tty=True)[0] in (0, 3)
    assert of(served, "delete_message") == [DeleteMessageParams("hikers", "id7")], (
        "what was asked about, whatever is the last by now"
    )


def test_the_topic_of_a_group(run: Any, agent: Any) -> None:
    about = replace(HIKERS, topic="plans" + NASTY)
    agent(list_groups=lambda _: [about], list_members=lambda _: [])
    assert run("topic hikers") == (0, "plans␛]0;owned␇�\n", "")
    code, out, _ = run("topic hikers --format jsonl")
    assert (code, out) == (
        0,
        '{"group":"GROUPID","name":"hikers","topic":"plans\\u001b]0;owned\\u0007\\u202e"}\n',
    )
    assert "topic           plans␛" in run("info hikers")[1]


def test_pins_of_a_group(run: Any, agent: Any) -> None:
    agent(list_pins=lambda _: [])
    assert run("pins hikers") == (0, "", "No message is pinned.\n")


def test_a_group_without_topic(run: Any, agent: Any) -> None:
    agent()
    assert run("topic hikers") == (0, "", "This group has no topic.\n")


@pytest.mark.parametrize(("state", "part"), [("whole", False), ("withheld", True), ("fetching", True), ("gone", True)])
def test_partial_history_qualifies_a_missing_topic(run: Any, agent: Any, state: Any, part: bool) -> None:
    agent(list_groups=lambda _: [replace(HIKERS, history_start=HistoryStart(state=state, rules=["none", "all"]))])
    assert ("in the available history" in run("topic hikers")[2]) is part


@pytest.mark.parametrize(
    "line", ["react hikers last", "react hikers", "edit hikers", "delete", "topic", "send --reply"]
)
def test_a_missing_argument_is_a_usage_error(run: Any, line: str) -> None:
    assert run(line)[0] == 2


# --- how it looks -----------------------------------------------------------------------------------------------------


def lines(*events: Event, **how: bool) -> list[str]:
    text = EventText(**how)
    return [line.removeprefix("2026-07-01 12:04  ") for one in events for line in text.lines(one)]


@pytest.fixture(autouse=True)
def times(utc: None) -> None:
    """As they are in UTC."""


def test_a_current_message_as_text() -> None:
    edited = event(
        1, edited_at="2026-07-01T12:05:00.000Z", reactions=[Reaction("👍", [ALICE, BOB]), Reaction("❤️", [BOB])]
    )
    assert lines(edited) == ["bob: message 1  (edited)  [👍 2  ❤️ 1]"]
    gone = event(1, deleted=True, body={"text": ""})
    assert lines(gone) == ["bob: (deleted)"]
    waves = event(1, action=True, body={"text": "waves\nand sits down"})
    assert lines(waves) == ["~ bob waves", "    and sits down"]


def test_a_reported_verdict_is_attributed_to_its_reporter() -> None:
    told = event(
        3, type="verdict_announced", body={"target": "x", "outcome": "upheld\x1b[2J", "did": ALICE, "nick": "alice"}
    )
    (line,) = lines(told)
    assert line.startswith("* bob reports the outcome of a case against alice: upheld") and "\x1b" not in line
    assert lines(event(3, type="verdict_announced", body={}))[0].startswith(
        "* bob reports the outcome of a case against "
    )


def test_a_quoted_message_stands_above_its_reply() -> None:
    quoted = Quote(id="id1", author=Author(ALICE, "alice"), text="one\ntwo " + "x" * 100)
    answer = event(2, reply_to="id1", quoted=quoted, body={"text": "yes\nindeed"})
    assert lines(answer) == [f"bob replied to alice, “one⏎two {'x' * 39}…”:", "    yes", "    indeed"]
    assert lines(answer, ids=True)[0].startswith("id2  2026-07-01 12:04  bob replied to")
    assert (
        lines(replace(answer, quoted=replace(quoted, deleted=True, text="")))[0] == "bob replied to alice, (deleted):"
    )
    for missing in (None, Quote(id="id1")):
        assert lines(replace(answer, quoted=missing))[0] == "bob replied to a missing message:"
    assert lines(replace(answer, action=True))[1] == "    ~ bob yes"
    two = Quote(id="id1", author=Author(CAROL, "bob"), text="I am bob too")
    assert lines(event(1), replace(answer, quoted=two))[1] == "bob replied to bob·arol, “I am bob too”:"


@pytest.mark.parametrize("imitation", ["bob", "B0b", "bоb", "bob\u2800", "bob#Bobb", "bob (you)", "bob."])
def test_lookalikes_have_the_end_of_their_keys(imitation: str) -> None:
    text = EventText()
    text.nick(BOB, "bob")  # the plain chat begins with the members
    (said,) = text.lines(event(2, CAROL, imitation))
    assert said.endswith(f"  {printable_line(imitation)}·arol: message 2")
    assert text.lines(event(3, ALICE, "alice"))[0].endswith("  alice: message 3")
    joined = event(4, ALICE, "alice", type="member_joined", body={"did": BOB, "nick": "bob"})
    assert text.lines(joined)[0].endswith("* alice admitted bob·Bobb")


def remarks(**fields: Any) -> list[Event]:
    return [
        event(3, ALICE, "alice", type="reacted", body={"target": "id1", "emoji": "👍", "on": True}, **fields),
        event(4, ALICE, "alice", type="reacted", body={"target": "gone", "emoji": "👍", "on": False}, **fields),
        event(5, type="message_edited", body={"target": "id1", "text": "new\nlines"}, **fields),
        event(6, type="message_deleted", body={"target": "id1"}, **fields),
    ]


def test_annotations_are_printed_as_they_arrive_and_once() -> None:
    assert lines(event(1), *remarks()) == ["bob: message 1"]
    told = [
        "bob: message 1",
        "* alice reacted 👍 to bob: “message 1”",
        "* alice removed 👍 from an earlier message",
        "* bob edited bob: “message 1”: new",
        "    lines",
        "* bob deleted a message",
    ]
    assert lines(event(1), *remarks(replayed=False)) == told == lines(event(1), *remarks(), annotations=True)


def test_a_topic() -> None:
    assert lines(event(1, type="topic_changed", body={"text": "plans"})) == ["* bob set the topic: plans"]
    assert lines(event(1, type="topic_changed", body={"text": ""})) == ["* bob removed the topic"]


def test_the_commands_announced_by_a_bot() -> None:
    named = [{"name": f"c{n}", "usage": "", "help": "", "role": ""} for n in range(7)]
    announced = [
        event(1, type="commands_announced", body={"bot": True, "commands": named}),
        event(2, type="commands_announced", body={"bot": True, "commands": []}),
        event(3, type="commands_announced", body={"bot": False, "commands": []}),
        event(4, type="commands_announced", body={"unreadable": True}),
    ]
    announced = [one for each in announced for one in (each, each, each)]  # as for every new member
    assert lines(*announced) == [
        "* bob is a bot with the commands !c0, !c1, !c2, !c3, !c4 and 2 more",
        "* bob is a bot",
        "* bob is not a bot",
    ]


def test_no_annotation_gives_orders_to_a_terminal() -> None:
    quoted = Quote(id="id1", author=Author(CAROL, NASTY), text=NASTY)
    everything = [
        event(1, body={"text": NASTY}, reply_to="id0", quoted=quoted, reactions=[Reaction(NASTY, [BOB])], action=True),
        event(2, type="reacted", body={"target": "id1", "emoji": NASTY * 99, "on": True}, replayed=False),
        event(3, type="reacted", body={"target": "id1", "unreadable": True}, replayed=False),
        event(4, type="message_edited", body={"target": "id1", "text": NASTY}, replayed=False),
        event(5, type="message_edited", body={"unreadable": True}, replayed=False),
        event(6, type="topic_changed", body={"text": NASTY}),
        event(7, type="topic_changed", body={"unreadable": True}),
        event(8, type="message_deleted", body={"unreadable": True}, replayed=False),
        event(9, type="commands_announced", body={"bot": True, "commands": [{"name": NASTY}]}),
    ]
    shown = "".join(lines(*everything))
    assert not set(shown) & set("\x1b\x07\u202e") and len(shown) < 1_500


def test_tail_names_a_message_by_its_current_text(agent: Any) -> None:
    served = agent(get_history=lambda _: History([event(1)], more=False))
    with process("tail", "hikers") as tail:
        assert tail.stdout is not None
        assert b"message 1" in tail.stdout.readline()
        edit, react = (
            event(2, type="message_edited", body={"target": "id1", "text": "new"}, replayed=False),
            remarks()[0],
        )
        served.tell("event", edit)
        served.tell("message_changed", MessageChanged(event(1, body={"text": "new"})))
        served.tell("event", replace(react, replayed=False))
        assert tail.stdout.readline().endswith("* bob edited bob: “message 1”: new\n".encode())
        assert tail.stdout.readline().endswith("* alice reacted 👍 to bob: “new”\n".encode())
        tail.kill()
