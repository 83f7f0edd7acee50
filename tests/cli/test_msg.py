"""The command msg: private conversations from the command line."""

import json
import re
import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import cli_members
from tests.support.cli_members import until
from zerochat.cli.output import Output
from zerochat.cli.parser import parse
from zerochat.cli.verbs import msg
from zerochat.rpc import PrivateInvitationInfo

home, agent, run, alone, two = cli_members.home, cli_members.agent, cli_members.run, cli_members.alone, cli_members.two


@pytest.fixture
def met(two):
    """Alice and Bob in the group hikers."""
    two("alice", "new hikers")
    _, invitation, _ = two("alice", "invite hikers --format json")
    two("bob", f"join {json.loads(invitation)['url']}")
    return two


def test_msg_begins_lists_and_answers_a_conversation(met):
    code, out, err = met("alice", "msg bob hello")
    assert code == 3 and len(out.strip()) == 43 and "Queued: waiting for bob" in err
    code, out, err = met("alice", "msg")
    assert code == 0 and out.startswith("bob") and "waiting for bob" in out
    listed = until(lambda: met("bob", "msg")[1], "the invitation")
    assert "alice" in listed and "invites you, from hikers" in listed
    code, out, err = met("bob", "msg ALICE --accept")
    assert code == 0 and "Accepted" in err
    until(lambda: "with alice" in met("bob", "msg")[1], "the conversation")
    until(lambda: "hello" in met("bob", "history alice")[1], "the message")
    assert met("alice", "msg bob --group hikers")[1] == met("bob", "msg alice")[1]
    code, out, err = met("bob", "msg alice again")
    assert code == 0 and not err


def test_a_conversation_is_described_as_closed(met):
    met("alice", "msg bob hello")
    assert "only its two members" in met("alice", "info bob")[1] and "can join" not in met("alice", "info bob")[1]
    assert "* alice created a private conversation" in met("alice", "history bob")[1]


def test_a_name_in_two_groups_needs_the_group(met):
    met("alice", "new walkers")
    _, invitation, _ = met("alice", "invite walkers --format json")
    met("bob", f"join {json.loads(invitation)['url']}")
    code, _, err = met("alice", "msg bob hello")
    assert code != 0 and "More than one member or connection is called bob. Use GROUP/NAME" in err
    assert "Queued: waiting for bob" in met("alice", "msg walkers/bob hello")[2]
    until(lambda: "invites you" in met("bob", "msg")[1], "the invitation")
    assert "hikers/alice does not invite you" in met("bob", "msg hikers/alice --accept")[2]
    assert "does not invite you" in met("bob", "msg walkers/alice --accept --group hikers")[2]
    code, _, err = met("bob", "msg walkers/ALICE --accept")
    assert code == 0 and "Accepted" in err, "the same name answers the invitation"


def test_declining_is_not_reported(met):
    met("alice", "msg bob hello")
    until(lambda: met("bob", "msg")[1], "the invitation")
    code, _, err = met("bob", "msg alice --decline")
    assert code == 0 and "Declined. alice is not told." in err
    assert "waiting for bob to accept" in met("alice", "msg")[1]
    code, _, err = met("bob", "msg alice --accept")
    assert code != 0 and "does not invite you" in err


def test_msg_refuses_what_is_impossible(met):
    assert met("alice", "msg --accept")[0] == 2
    assert "No member" in met("alice", "msg carol hello")[2]
    assert "This is you" in met("alice", "msg alice --group hikers")[2]


def test_the_command_that_answers_is_right_for_every_name(capsys):
    """After `--` the option would be the text of a message, and sending one accepts."""
    at = "2026-01-01T00:00:00Z"
    invitation = PrivateInvitationInfo(group="g1", did="d", nick="-x", asked_at=at, expires_at=at)
    group: Any = SimpleNamespace(id="g1", name="hikers", private=None, private_invitations=[invitation])
    msg._list([group], Output("text"))
    (command, _) = re.findall("`(.*?)`", capsys.readouterr().err)
    options = parse(shlex.split(command)[1:])
    assert (options.peer, options.answer, options.text) == ("-x", "accept", None)
