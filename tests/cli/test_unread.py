"""Unread messages on the command line: read, mentions, history --unread and status bars."""

import json
import os
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cli_harness import HIKERS, STATUS, event, of
from zerochat.agent.storage.paths import profile_paths
from zerochat.cli.exit_codes import ExitCode
from zerochat.rpc import Found, History, ReadState

home, agent, run = cli_harness.home, cli_harness.agent, cli_harness.run
UNREAD = replace(HIKERS, unread=14, mentions=2, first_unread=(3, event(3).author.did, "id3"))
HOSTILE = replace(HIKERS, id="OTHERID", name="<b>#(rm -rf)\x1b[2J", unread=1)
MUTED = replace(HIKERS, id="MUTEDID", name="noise", unread=99)


def status(*groups: Any) -> Any:
    """Answers with these groups, call by call the next."""
    left = list(groups)
    return lambda _: replace(STATUS, groups=left.pop(0) if len(left) > 1 else left[0], unread=15, mentions=2)


def test_status_counts_unread_messages(agent, run):
    agent(get_status=status([UNREAD, HOSTILE]))
    code, out, _ = run(["status"])
    assert code == 0 and "hikers 14 @2, <b>#(rm -rf)" in out and "\x1b" not in out
    code, out, _ = run(["status", "--format", "json"])
    found = json.loads(out)
    assert (found["unread"], found["mentions"]) == (15, 2)
    assert [(one["unread"], one["mentions"]) for one in found["groups"]] == [(14, 2), (1, 0)]


def test_a_group_with_mentions_only_is_unread(agent, run):
    called = replace(HIKERS, mentions=1)
    agent(
        get_status=status([called]),
        list_groups=lambda _: [called],
        mark_read=lambda _: [ReadState(group=HIKERS.id)],
    )
    assert ["unread", "hikers", "@1"] in [line.split() for line in run(["status"])[1].splitlines()]
    assert run(["read", "hikers"])[2] == "Marked 1 mention as read.\n"


def test_waybar_gets_text_tooltip_and_class(agent, run, home):
    config = profile_paths(None, os.environ).config
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[chat.groups.noise]\nnotify = "none"\n')
    agent(get_status=status([UNREAD, HOSTILE, MUTED], [replace(UNREAD, mentions=0)], [HIKERS]))
    code, out, _ = run(["status", "--bar", "waybar"])
    found = json.loads(out)
    assert (code, found["text"], found["class"]) == (0, "✉ 15 @2", "mention")
    assert found["tooltip"].startswith("hikers 14 @2\n&lt;b&gt;#(rm -rf)") and found["tooltip"].endswith(" 1")
    assert json.loads(run(["status", "--bar", "waybar"])[1])["class"] == "unread"
    assert json.loads(run(["status", "--bar", "waybar"])[1]) == {
        "text": "", "tooltip": "No unread messages.", "class": "read",
    }  # fmt: skip


def test_tmux_gets_counts_only(agent, run):
    agent(get_status=status([UNREAD, HOSTILE], [HIKERS]))
    assert run(["status", "--bar", "tmux"]) == (0, "✉ 15 @2\n", "")
    assert run(["status", "--bar", "tmux"]) == (0, "\n", "")


def test_read_marks_a_group_or_all(agent, run):
    asked = agent(list_groups=lambda _: [UNREAD], mark_read=lambda _: [ReadState(group=HIKERS.id)])
    assert run(["read", "hikers"]) == (0, "", "Marked 14 messages as read.\n")
    code, out, _ = run(["read", "--all", "--format", "jsonl"])
    assert code == 0 and json.loads(out)["unread"] == 0
    one, every = of(asked, "mark_read")
    assert (one.group, one.upto, every.group) == (HIKERS.id, None, "")
    for words in (["read"], ["read", "hikers", "--all"]):
        assert run(words)[0] == ExitCode.USAGE


def test_history_from_the_first_unread_message(agent, run):
    page = History([event(number) for number in range(1, 6)], more=False)
    groups = [UNREAD]
    agent(list_groups=lambda _: groups, get_history=lambda _: page)
    code, out, _ = run(["history", "hikers", "--unread"])
    assert code == 0
    assert [line.rpartition("message ")[2] for line in out.splitlines()] == ["3", "4", "5"]
    groups[:] = [HIKERS]
    assert run(["history", "hikers", "--unread"]) == (0, "", "No unread messages.\n")


@pytest.mark.parametrize(
    ("words", "query", "group"),
    [([], "to:me", None), (["hikers"], "to:me", HIKERS.id), (["x", "y"], "x y to:me", None)],
)
def test_mentions_are_a_search(agent, run, words, query, group):
    asked = agent(search_messages=lambda _: Found(hits=[]))
    assert run(["mentions", *words]) == (0, "", "No messages found.\n")
    (params,) = of(asked, "search_messages")
    assert (params.query, params.group) == (query, group)


def test_a_bar_shows_nothing_without_an_agent(home, run):
    run(["init", "--name", "alice"])
    code, out, err = run(["status", "--bar", "waybar"])
    assert (code, json.loads(out)["class"], err) == (0, "offline", "")
    assert run(["status", "--bar", "tmux"]) == (0, "\n", "")
