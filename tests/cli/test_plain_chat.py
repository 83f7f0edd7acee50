"""The plain chat through pipes and real terminals, with real agents."""

import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.cli_harness import HIKERS
from tests.support.machines import GROUP, machines, meet, until
from tests.support.terminals import terminal
from zerochat.agent.api.client import connect
from zerochat.cli.output import Output
from zerochat.cli.plain_chat import commands
from zerochat.cli.plain_chat.printer import Printer, short
from zerochat.presentation.group_kinds import name_and_kind
from zerochat.presentation.group_rules import BadRules
from zerochat.rpc import ConnectionMessageNotification, PrivateInfo
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
    return [event.body["text"] for event in machine.client.get_history(GROUP).events if event.type == "message"]


# --- commands -------------------------------------------------------------------------------------------------------


def test_the_commands_are_those_of_the_chat():
    assert {"new", "join", "invite", "members", "verify", "role", "delivery", "why", "status", "leave", "quit"} <= set(
        commands.names()
    )
    assert not commands.OWN_COMMANDS.keys() & COMMANDS.keys()
    assert not commands._HANDLERS.keys() & commands._VERBS.keys()
    assert parse("/switch work", commands.OWN_COMMANDS) == Command("switch", "work")
    assert parse("/swi work", commands.OWN_COMMANDS) == Command("switch", "work")
    assert parse("/history 3", commands.OWN_COMMANDS) == Command("history", "3")


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("club", ("club", "private")),
        ("the club --kind large", ("the club", "large")),
        ("--kind large", ("", "large")),
        ("club --kind", None),
        ("--kind huge", None),
    ],
)
def test_the_kind_is_no_part_of_the_name_of_a_new_group(argument, found):
    if found is not None:
        assert name_and_kind(argument) == found
        return
    with pytest.raises(BadRules):
        name_and_kind(argument)


def test_a_line_of_today_has_no_date():
    assert short("2025-11-20 14:03  alice: two  spaces") == "2025-11-20 14:03 alice: two  spaces"


def test_a_line_of_a_message_from_a_connection_does_not_look_like_one_of_ours(capsys):
    message = ConnectionMessageNotification("c", "archive", "hi\nWarning: \x1b", ["a\nNow known as admin"])
    Printer(Output("text")).print_notification(message)
    first, *more = capsys.readouterr().err.splitlines()
    assert first == "Message from archive: hi" and all(line.startswith("    ") for line in more)
    assert len(more) == 3 and not ESCAPE.search("".join(more))


# --- pipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_lines_from_a_pipe_are_sent(friends):
    alice, bob = friends
    out, err = piped(alice, b"hi\n\n //not a command\n//slash\n/members\nwith\ttabs and \xc3\xa9\r\nno end", code=1)
    assert "Remove the spaces" in err
    until(lambda: said(bob)[-4:] == ["hi", "/slash", "with\ttabs and é", "no end"], "what was said")
    assert re.search(r"^\d\d:\d\d alice: hi$", out, re.MULTILINE)
    assert re.search(r"^bob: connected, writer", out, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d alice: no end", out, re.MULTILINE), "what was said last is printed before the end"
    assert not ESCAPE.search(out + err)


def test_a_refused_line_affects_no_other(friends):
    alice, bob = friends
    long = b"x" * 70_000
    _, err = piped(
        alice, b"one\n" + long + b"\n\xff\xfe\n/nonsense\n/set theme\n" + b"y" * 600_000 + b"\ntwo\n", code=1
    )
    until(lambda: said(bob)[-2:] == ["one", "two"], "the others")
    assert "No command /nonsense" in err and "not UTF-8" in err and "too long" in err
    assert alice.client.list_drafts() == {}


def test_json_for_programs(friends):
    alice, _ = friends
    out, _ = piped(alice, b"as json\n/members\n", "--format", "jsonl")
    assert '"text":"as json"' in out and '"connection":"self"' in out
    out, _ = piped(alice, b"/whois bob\n", "--format", "jsonl")
    assert '"connection":"connected"' in out and '"connection":"self"' not in out
    assert all(line.startswith("{") for line in out.splitlines())


def test_help_in_the_plain_chat(friends):
    _, err = piped(friends[0], b"/help topic\n/help delivery\n/help groups\n/help zzz\n/help whois\n")
    assert "/members [NAME]: " in err and "(also /names, /who, /whois)" in err
    assert "/topic [TEXT]: " in err and "/delivery [NAME]: " in err
    assert err.index("/delivery [NAME]: ") < err.index("# Delivery") < err.index("# Groups and roles")
    assert "No help on zzz." in err and "/new NAME" not in err
    assert "Usage: /reply TEXT (" in piped(friends[0], b"/reply\n", code=1)[1]


def test_export_takes_its_file_as_proof_does(friends, tmp_path):
    piped(friends[0], f"/export {tmp_path}/my log.jsonl\n".encode())
    assert (tmp_path / "my log.jsonl").read_text().count("\n") > 2


def test_errors_recommend_slash_commands(friends):
    _, err = piped(friends[0], b"/remove nobody\n", code=1)
    assert "/members lists the members" in err and "zerochat" not in err


@pytest.mark.parametrize(
    ("said", "slash"),
    [
        ("`zerochat members 'two words'` lists", "/members lists"),
        ("`zerochat role 'two words' writer`", "/role writer"),
        ("`zerochat members GROUP`, `zerochat connections`", "/members, /connections"),
        ("`zerochat members others` and `zerochat doctor`", "`zerochat members others` and `zerochat doctor`"),
        ("it isn't `zerochat members it's`", "it isn't `zerochat members it's`"),
    ],
)
def test_shell_commands_become_slash_commands(said, slash):
    assert commands.in_slash_words(said, "two words") == slash


def test_an_invitation_in_the_chat_is_on_no_command_line(friends):
    _, err = piped(friends[0], b"/join nonsense\n", code=1)
    assert "Not a zerochat invitation" in err and "can see the command line" not in err


@pytest.mark.slow
def test_a_temporary_agent_delivers_piped_lines(tmp_path):
    with machines(tmp_path, ("alice", "bob")) as (alice, bob):
        meet(alice, bob)
        alice.kill()
        _, err = piped(alice, b"from a pipe\n")
        until(lambda: said(bob) == ["from a pipe"], "what was said")
        assert "queued" not in err
        bob.kill()
        _, err = piped(alice, b"into the void\n")
        assert "Queued: the other member is not connected" in err and "It is queued for the others" in err


def test_peer_text_is_printed_as_text(friends):
    alice, bob = friends
    bob.client.send_message(GROUP, "\x1b]0;title\x07\x1b[2J\u202eevil\rover")
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
        one.shows("Switched to")
        one.shows("Press Ctrl+D to quit.")
        mark = f"hello from {term} {len(arguments)}"
        one.type(f"{mark}\r")
        until(lambda: said(bob)[-1:] == [mark], "the message")
        bob.client.send_message(GROUP, f"an answer to {mark}")
        one.shows(f"bob: an answer to {mark}\r\n")
        assert one.shown.count(mark + "\r\n") == 2, "once as it was typed, and once in the answer"
        one.type("/delivery\r")
        one.shows("Delivered to 1 of 1 members.")
        one.type("/tour\r")
        one.shows("works only in the full-screen chat")
        one.type("/quit\r")
        assert one.ends() == 0
        assert not ESCAPE.search(one.shown), "nothing that a screen reader would trip over"


def test_incoming_messages_wait_for_the_typed_line(friends):
    alice, bob = friends
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Press Ctrl+D to quit.")
        one.type("half a th")
        one.shows("half a th")
        group = alice.group().id
        until(lambda: alice.client.list_drafts() == {group: "half a th"}, "the draft")
        bob.client.send_message(GROUP, "in the middle")
        until(lambda: said(alice)[-1:] == ["in the middle"], "its arrival")
        bob.client.send_message(GROUP, "and once more")
        until(lambda: said(alice)[-1:] == ["and once more"], "its arrival")
        assert "in the middle" not in one.shown
        one.type("ought\r")
        one.shows("in the middle")
        one.shows("and once more")
        assert "half a thought\r\n" in one.shown
        until(lambda: "half a thought" in said(bob), "the message")
        until(lambda: alice.client.list_drafts() == {}, "no draft")
        one.type("x\x7f")  # an empty line disturbs nobody either
        bob.client.send_message(GROUP, "after that")
        one.shows("bob: after that")
        assert one.left() == 0


def test_printed_messages_are_read(friends):
    alice, bob = friends
    unread = lambda: alice.client.get_status().unread  # noqa: E731
    for number in range(2):
        bob.client.send_message(GROUP, f"while away {number}")
    until(lambda: unread() >= 2, "their arrival")
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("unread messages. /history N prints the last N.")
        until(lambda: not unread(), "the end of the unread messages")
        bob.client.send_message(GROUP, "while here")
        one.shows("bob: while here")
        until(lambda: not unread(), "what was printed is read")
        assert one.left() == 0
    bob.client.send_message(GROUP, "gone again")
    until(lambda: unread() == 1, "its arrival")
    assert "gone again" in piped(alice, b"/history 1\n")[0] and unread() == 1, "no user sees it"
    piped(alice, b"/read\n")
    assert not unread()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["ctrl+c", "kill -9", "the terminal is closed", "no signal says so"])
def test_a_partly_typed_line_is_kept(friends, end):
    alice, _ = friends
    group, before = alice.group().id, said(alice)
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Press Ctrl+D to quit.")
        one.type("not yet")
        one.shows("not yet")
        if end == "ctrl+c":
            # One that comes between two waits of readline is heard of with the next.
            until(lambda: one.interrupted(), "the end", every_s=1.0)
            assert one.ends() == 130
        else:
            until(lambda: alice.client.list_drafts() == {group: "not yet"}, "the draft")
            match end:
                case "kill -9":
                    one.process.kill()
                case "the terminal is closed":
                    one.hang_up()
                case _:
                    one.close()
            one.process.wait(20)
    assert (alice.client.list_drafts(), said(alice)) == ({group: "not yet"}, before)
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Your draft is in the input line.")
        one.shows("\nnot yet")
        one.type(", but now\r")
        until(lambda: said(alice)[-1:] == ["not yet, but now"], "the message")
        until(lambda: alice.client.list_drafts() == {}, "no draft")
        assert one.left() == 0


def test_pasted_lines_are_not_sent_one_by_one(friends):
    alice, _ = friends
    group = alice.group().id
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Press Ctrl+D to quit.")
        before = said(alice)
        one.type("first\rsecond\rthird\r")
        one.shows("3 pasted lines were kept as a draft")
        until(lambda: alice.client.list_drafts() == {group: "first\nsecond\nthird"}, "the draft")
        assert said(alice) == before
        one.type("/draft\r")
        one.shows("  second\r\n")
        one.type("/draft send\r")
        until(lambda: said(alice)[-1:] == ["first\nsecond\nthird"], "one message")
        until(lambda: alice.client.list_drafts() == {}, "no draft")
        assert one.left() == 0


def test_groups_are_switched_and_others_are_named(friends):
    alice, bob = friends
    work = alice.client.create_group("work").id
    with terminal(alice, "chat", "--plain", "work", term="dumb") as one:
        one.shows("Switched to work.")
        one.shows("Press Ctrl+D to quit.")
        bob.client.send_message(GROUP, "over here")
        one.shows(f"[{GROUP}] ")
        one.type("unfinished")
        until(lambda: alice.client.list_drafts() == {work: "unfinished"}, "the draft")
        one.type("\x15/switch\r")
        one.shows("work: 1 member, 0 connected, current.")
        one.type(f"/switch {GROUP[:4]}\r")
        one.shows(f"Switched to {GROUP}")
        assert alice.client.list_drafts() == {}, "a command is no draft of the group that was left"
        one.type("/leave\r")
        one.shows("[y/N]")
        one.type("n\r")
        one.shows("Nothing was changed.")
        one.type("here I am\r")
        until(lambda: said(bob)[-1:] == ["here I am"], "the message")
        assert one.left() == 0


@pytest.mark.slow
def test_two_groups_of_the_same_name_are_distinguished(tmp_path):
    with machines(tmp_path, ("alice", "bob")) as (alice, bob):
        meet(alice, bob)
        bob.client.create_group("work")
        alice.client.create_group("work")
        bob.client.join_group(alice.client.create_invitation("work").url)
        until(lambda: sum(one.members == 2 and one.connected for one in bob.client.list_groups()) == 2, "joining")
        hers = next(one.id for one in alice.client.list_groups() if one.name == "work")
        here = [one.id for one in bob.client.list_groups() if one.name == "work"]
        his = next(one for one in here if one != hers)
        with terminal(bob, "chat", "--plain", GROUP, term="dumb") as one:
            one.shows("Press Ctrl+D to quit.")
            one.type("/switch work\r")
            one.shows("Several groups match work")
            one.shows(", ".join(sorted((hers[:8], his[:8]))))
            one.type("/switch\r")
            one.shows(f"work·{hers[:4]}: 2 members")
            one.shows(f"work·{his[:4]}: 1 member")
            one.type(f"/switch {his[:4]}\r")
            one.shows(f"Switched to work·{his[:4]}.")
            alice.client.send_message("work", "over here")
            one.shows(f"[work·{hers[:4]}] ")
            one.type(f"/switch work·{hers[:4]}\r")
            one.shows(f"Switched to work·{hers[:4]}, with alice.")
            one.type("heard\r")
            until(
                lambda: [each.body.get("text") for each in alice.client.get_history("work").events][-1:] == ["heard"],
                "it",
            )
            assert one.left() == 0


def test_tab_completes(friends):
    alice, bob = friends
    with terminal(alice, "chat", "--plain", GROUP, term="dumb") as one:
        one.shows("Press Ctrl+D to quit.")
        one.type("/memb\t\r")
        one.shows("bob: connected, writer")
        one.type("bo\tand @b\tand b\t.\r")
        until(lambda: said(bob)[-1:] == ["bob: and @bob and bob ."], "the message")
        assert one.left() == 0


@pytest.mark.slow
def test_the_chat_survives_a_restart_of_the_agent(tmp_path):
    with machines(tmp_path, ("alice",)) as (alice,):
        alice.client.create_group(GROUP)
        with terminal(alice, "chat", "--plain", term="dumb") as one:
            one.shows("Press Ctrl+D to quit.")
            alice.kill()
            one.shows("has closed the connection")
            one.shows("Connected to the agent again.")  # without any input
            one.type("lost?\r")

            def there():
                with connect(alice.places, "test") as client:
                    return [event.body.get("text") for event in client.get_history(GROUP).events][-1:] == ["lost?"]

            until(there, "the message")
            one.type("/history\r")
            one.shows("alice: lost?")
            assert one.left() == 0


def test_chat_without_a_terminal_suggests_plain(friends):
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


def test_keep_shows_the_setting_of_now(capsys):
    """Another client of the profile may have changed it since the groups were loaded."""
    chat: Any = SimpleNamespace(group=HIKERS.id, groups={HIKERS.id: HIKERS})
    chat.refresh = lambda: chat.groups.update({HIKERS.id: replace(HIKERS, keep=3_600_000, keep_setting=3_600_000)})
    commands._keep(chat, "")
    assert "setting storage.keep 1 hour (counts)" in " ".join(capsys.readouterr().err.split())


def test_a_member_that_is_waited_for_keeps_its_name(capsys):
    other = PrivateInfo(group="g1", did="d", nick="Bob·x7Rq", state="waiting", expires_at="x", sent_at="y")
    info = SimpleNamespace(id="g2", private=other)
    client = SimpleNamespace(list_members=lambda _: [], open_conversation=lambda name, group: info)
    chat: Any = SimpleNamespace(client=client, group="g2", groups={}, refresh=lambda: None)
    commands._msg(chat, "Bob·x7Rq")
    assert "Waiting for Bob·x7Rq to accept." in capsys.readouterr().err


@pytest.mark.slow
def test_a_private_conversation_in_the_plain_chat(friends):
    alice, bob = friends
    _, err = piped(alice, b"/msg BOB between us\n")
    assert "Waiting for bob to accept." in err
    until(lambda: bob.client.list_groups()[0].private_invitations, "the invitation")
    _, err = piped(bob, b"/accept alice\n")
    assert "Accepted." in err
    until(lambda: len(bob.client.list_groups()) == 2, "the conversation")
    texts = lambda: [one.body.get("text") for one in bob.client.get_history("alice").events]  # noqa: E731
    until(lambda: "between us" in texts(), "the message")
    out, err = piped(bob, b"/query alice\n/decline alice\n", code=1)
    assert "between us" in out and "Switched to alice" in err and "does not invite you" in err
