"""The chat as lines: through pipes and through real terminals, with real agents."""

import re
import subprocess
import sys

import pytest

from tests.support.machines import GROUP, machines, meet, until
from tests.support.terminals import terminal
from zerochat.agent.api.client import connect
from zerochat.cli.plain_chat import commands
from zerochat.cli.plain_chat.printer import short
from zerochat.slash_commands import COMMANDS, Command, parse

ESCAPE = re.compile("\x1b")


def piped(machine, words, *arguments, code=0, **more):
    """Standard output and standard error of the plain chat with this as its input."""
    command = [sys.executable, "-m", "zerochat", *arguments, "chat", "--plain", GROUP]
    environment = {**machine.environment, **more}
    run = subprocess.run(command, input=words, env=environment, capture_output=True, timeout=90)
    out, err = run.stdout.decode(), run.stderr.decode()
    assert run.returncode == code, (out, err)
    return out, err


@pytest.fixture(scope="module")
def friends(tmp_path_factory):
    with machines(tmp_path_factory.mktemp("plain"), ("alice", "bob")) as (alice, bob):
        meet(alice, bob)
        yield alice, bob


def said(machine):
    return [event.body["text"] for event in machine.client.history(GROUP).events if event.type == "message"]


# --- commands -------------------------------------------------------------------------------------------------------


def test_the_commands_are_those_of_the_chat():
    assert {"new", "join", "invite", "members", "verify", "role", "delivery", "why", "status", "leave", "quit"} <= set(
        commands.known()
    )
    assert not commands.MORE.keys() & COMMANDS.keys()
    assert not commands._OWN.keys() & commands._VERBS.keys()
    assert parse("/switch work", commands.MORE) == Command("switch", "work")
    assert parse("/swi work", commands.MORE) == Command("switch", "work")
    assert parse("/history 3", commands.MORE) == Command("history", "3")


def test_a_line_of_today_has_no_date():
    assert short("2025-11-20 14:03  alice: two  spaces") == "2025-11-20 14:03 alice: two  spaces"


# --- pipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_comes_through_a_pipe_is_said(friends):
    alice, bob = friends
    out, err = piped(alice, b"hi\n\n //not a command\n//slash\n/members\nwith\ttabs and \xc3\xa9\r\nno end", code=1)
    assert "Spaces before a slash" in err
    until(lambda: said(bob)[-4:] == ["hi", "/slash", "with\ttabs and é", "no end"], "what was said")
    assert re.search(r"^\d\d:\d\d alice: hi$", out, re.MULTILINE)
    assert re.search(r"^bob: connected, writer", out, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d alice: no end", out, re.MULTILINE), "what was said last is printed before the end"
    assert not ESCAPE.search(out + err)


def test_a_line_that_is_refused_costs_no_other(friends):
    alice, bob = friends
    long = b"x" * 70_000
    _, err = piped(
        alice, b"one\n" + long + b"\n\xff\xfe\n/nonsense\n/set theme\n" + b"y" * 600_000 + b"\ntwo\n", code=1
    )
    until(lambda: said(bob)[-2:] == ["one", "two"], "the others")
    assert "No command /nonsense" in err and "not UTF-8" in err and "too long" in err
    assert alice.client.drafts() == {}


def test_json_for_programs(friends):
    alice, _ = friends
    out, _ = piped(alice, b"as json\n/members\n", "--format", "jsonl")
    assert '"text":"as json"' in out and '"connection":"self"' in out
    assert all(line.startswith("{") for line in out.splitlines())


@pytest.mark.slow
def test_an_agent_of_its_own_hands_over_what_was_said(tmp_path):
    with machines(tmp_path, ("alice", "bob")) as (alice, bob):
        meet(alice, bob)
        alice.kill()
        _, err = piped(alice, b"from a pipe\n")
        until(lambda: said(bob) == ["from a pipe"], "what was said")
        assert "queued" not in err
        bob.kill()
        _, err = piped(alice, b"into the void\n")
        assert "Queued: none of the 1 other members is connected" in err and "The rest is queued" in err


def test_another_s_text_is_text(friends):
    alice, bob = friends
    bob.client.send(GROUP, "\x1b]0;title\x07\x1b[2J\u202eevil\rover")
    until(lambda: said(alice)[-1:] and said(alice)[-1].endswith("over"), "bob's words")
    out, err = piped(alice, b"")
    assert "evil" in out and not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", out + err)


# --- terminals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "term"), [(["chat", "--plain", GROUP], "xterm"), (["chat", GROUP], "dumb"), ([], "dumb")]
)
def test_a_conversation_in_a_terminal(friends, arguments, term):
    alice, bob = friends
    with terminal(alice, *arguments, term=term) as one:
        one.shows("Now in")
        one.shows("Ctrl+D ends this.")
        mark = f"hello from {term} {len(arguments)}"
        one.type(f"{mark}\r")
        until(lambda: said(bob)[-1:] == [mark], "the message")
        bob.client.send(GROUP, f"an answer to {mark}")
        one.shows(f"bob: an answer to {mark}\r\n")
        assert one.shown.count(mark + "\r\n") == 2, "once as it was typed, and once in the answer"
        one.type("/delivery\r")
        one.shows("1 of 1 have it.")
        one.type("/tour\r")
        one.shows("is for the chat with a screen")
        one.type("/quit\r")
        assert one.ends() == 0
        assert not ESCAPE.search(one.shown), "nothing that a screen reader would trip over"


def test_what_comes_waits_for_the_line_to_be_done(friends):
    alice, bob = friends
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Ctrl+D ends this.")
        one.type("half a th")
        one.shows("half a th")
        group = alice.group().id
        until(lambda: alice.client.drafts() == {group: "half a th"}, "the draft")
        bob.client.send(GROUP, "in the middle")
        until(lambda: said(alice)[-1:] == ["in the middle"], "its arrival")
        bob.client.send(GROUP, "and once more")
        until(lambda: said(alice)[-1:] == ["and once more"], "its arrival")
        assert "in the middle" not in one.shown
        one.type("ought\r")
        one.shows("in the middle")
        one.shows("and once more")
        assert "half a thought\r\n" in one.shown
        until(lambda: "half a thought" in said(bob), "the message")
        until(lambda: alice.client.drafts() == {}, "no draft")
        one.type("x\x7f")  # an empty line disturbs nobody either
        bob.client.send(GROUP, "after that")
        one.shows("bob: after that")
        assert one.left() == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ["ctrl+c", "kill -9", "the terminal is closed", "no signal says so"])
def test_a_line_that_was_begun_is_kept(friends, end):
    alice, _ = friends
    group, before = alice.group().id, said(alice)
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Ctrl+D ends this.")
        one.type("not yet")
        one.shows("not yet")
        if end == "ctrl+c":
            # One that comes between two waits of readline is heard of with the next.
            until(lambda: one.interrupted(), "the end", every_s=1.0)
            assert one.ends() == 130
        else:
            until(lambda: alice.client.drafts() == {group: "not yet"}, "the draft")
            match end:
                case "kill -9":
                    one.process.kill()
                case "the terminal is closed":
                    one.hang_up()
                case _:
                    one.close()
            one.process.wait(20)
    assert (alice.client.drafts(), said(alice)) == ({group: "not yet"}, before)
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("What you had begun here stands in your line.")
        one.shows("\nnot yet")
        one.type(", but now\r")
        until(lambda: said(alice)[-1:] == ["not yet, but now"], "the message")
        until(lambda: alice.client.drafts() == {}, "no draft")
        assert one.left() == 0


def test_lines_that_were_pasted_are_not_said_one_by_one(friends):
    alice, _ = friends
    group = alice.group().id
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Ctrl+D ends this.")
        before = said(alice)
        one.type("first\rsecond\rthird\r")
        one.shows("3 lines came at once, and were not sent")
        until(lambda: alice.client.drafts() == {group: "first\nsecond\nthird"}, "the draft")
        assert said(alice) == before
        one.type("/draft\r")
        one.shows("  second\r\n")
        one.type("/draft send\r")
        until(lambda: said(alice)[-1:] == ["first\nsecond\nthird"], "one message")
        until(lambda: alice.client.drafts() == {}, "no draft")
        assert one.left() == 0


def test_groups_are_switched_and_others_are_named(friends):
    alice, bob = friends
    work = alice.client.new("work").id
    with terminal(alice, "chat", "--plain", "work", term="dumb") as one:
        one.shows("Now in work.")
        one.shows("Ctrl+D ends this.")
        bob.client.send(GROUP, "over here")
        one.shows(f"[{GROUP}] ")
        one.type("unfinished")
        until(lambda: alice.client.drafts() == {work: "unfinished"}, "the draft")
        one.type("\x15/switch\r")
        one.shows("work: 1 members, 0 connected, open.")
        one.type(f"/switch {GROUP[:4]}\r")
        one.shows(f"Now in {GROUP}")
        assert alice.client.drafts() == {}, "a command is no draft of the group that was left"
        one.type("/leave\r")
        one.shows("[y/N]")
        one.type("n\r")
        one.shows("Nothing was changed.")
        one.type("here I am\r")
        until(lambda: said(bob)[-1:] == ["here I am"], "the message")
        assert one.left() == 0


@pytest.mark.slow
def test_two_groups_of_one_name_are_told_apart(tmp_path):
    with machines(tmp_path, ("alice", "bob")) as (alice, bob):
        meet(alice, bob)
        bob.client.new("work")
        alice.client.new("work")
        bob.client.join(alice.client.invite("work").url)
        until(lambda: sum(one.members == 2 and one.connected for one in bob.client.groups()) == 2, "joining")
        hers = next(one.id for one in alice.client.groups() if one.name == "work")
        here = [one.id for one in bob.client.groups() if one.name == "work"]
        his = next(one for one in here if one != hers)
        with terminal(bob, "chat", "--plain", GROUP, term="dumb") as one:
            one.shows("Ctrl+D ends this.")
            one.type("/switch work\r")
            one.shows("More than one group answers to work")
            one.shows(", ".join(sorted((hers[:8], his[:8]))))
            one.type("/switch\r")
            one.shows(f"work·{hers[:4]}: 2 members")
            one.shows(f"work·{his[:4]}: 1 members")
            one.type(f"/switch {his[:4]}\r")
            one.shows(f"Now in work·{his[:4]}.")
            alice.client.send("work", "over here")
            one.shows(f"[work·{hers[:4]}] ")
            one.type(f"/switch work·{hers[:4]}\r")
            one.shows(f"Now in work·{hers[:4]}, with alice.")
            one.type("heard\r")
            until(
                lambda: [each.body.get("text") for each in alice.client.history("work").events][-1:] == ["heard"], "it"
            )
            assert one.left() == 0


def test_tab_completes(friends):
    alice, bob = friends
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Ctrl+D ends this.")
        one.type("/memb\t\r")
        one.shows("bob: connected, writer")
        one.type("bo\tand @b\tand b\t.\r")
        until(lambda: said(bob)[-1:] == ["bob: and @bob and bob ."], "the message")
        assert one.left() == 0


def test_the_agent_comes_back(tmp_path):
    with machines(tmp_path, ("alice",)) as (alice,):
        alice.client.new(GROUP)
        with terminal(alice, "chat", "--plain", term="dumb") as one:
            one.shows("Ctrl+D ends this.")
            alice.kill()
            one.shows("has closed the connection")
            one.type("lost?\r")
            until(lambda: one.shown.count("lost?") >= 2, "the line again")
            one.type("\r")

            def there():
                with connect(alice.places, "test") as client:
                    return [event.body.get("text") for event in client.history(GROUP).events][-1:] == ["lost?"]

            until(there, "the message")
            one.type("/history\r")
            one.shows("alice: lost?")
            assert one.left() == 0


def test_without_a_terminal_and_without_asking_for_it_the_chat_says_what_there_is(friends):
    alice, _ = friends
    run = subprocess.run(
        [sys.executable, "-m", "zerochat", "chat"], input=b"", env=alice.environment, capture_output=True, timeout=60
    )
    assert run.returncode == 2 and b"--plain" in run.stderr


def test_no_screen_is_loaded(friends):
    alice, _ = friends
    command = [sys.executable, "-X", "importtime", "-m", "zerochat", "chat", "--plain", GROUP]
    run = subprocess.run(command, input=b"light\n", env=alice.environment, capture_output=True, timeout=60)
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in run.stderr.decode().splitlines() if "|" in line}
    assert run.returncode == 0 and "zerochat" in loaded and not loaded & {"textual", "rich", "zmq"}


@pytest.mark.parametrize(
    ("rest", "meant"), [("", "last"), ("last", "last"), ("bob", "last:bob"), ("last:bob", "last:bob")]
)
def test_a_message_is_meant_as_verbs_mean_it(rest, meant):
    assert commands._last(rest) == meant
