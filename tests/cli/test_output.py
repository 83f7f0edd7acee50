"""What verbs print: text, lines of JSON, suggested commands."""

import json
import os
from typing import Any

import pytest

from tests.support import cli_harness
from tests.support.cli_harness import (
    ENOUGH,
    HIKERS,
    HISTORY,
    INVITATION,
    MEMBERS,
    MEMBERS_TEXT,
    SENT,
    STATUS,
    event,
    of,
)
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile
from zerochat.cli.parser import parse
from zerochat.rpc import (
    CreateGroupParams,
    CreateInvitationParams,
    History,
    HistoryParams,
    WaitParams,
)

agent, alone, home, run, usual = (
    cli_harness.agent,
    cli_harness.alone,
    cli_harness.home,
    cli_harness.run,
    cli_harness.usual,
)


# --- what is printed --------------------------------------------------------------------------------------------------

TEXT = {
    "status": """\
profile        default (alice)
agent          zerochat 0.1.0, process 4242, up 2 h
pair address   zmq+tcp://192.0.2.7:4242
queue address  zmq+tcp://192.0.2.7:4243

GROUP   STATE   MEMBERS  CONNECTED  UNACKNOWLEDGED  VIEW      ID
hikers  active  3        1/2        2               01234567  GROUPID
""",
    "members hikers": MEMBERS_TEXT,
    "history hikers": """\
2026-07-01 12:04  * alice created hikers
2026-07-01 12:04  * alice admitted bob
2026-07-01 12:04  bob: two
    lines␛]0;owned␇
2026-07-01 12:04  bob·arol: I am bob \ufffd too  (late)
2026-07-01 12:04  alice: hello 😀  ✓1/2
2026-07-01 12:04  * bob·Bobb left
2026-07-01 12:04  * alice voted to remove carol
2026-07-01 12:04  * alice removed carol⏎
2026-07-01 12:04  * alice made bob·Bobb an admin
2026-07-01 12:04  * alice is now a reader
2026-07-01 12:04  * alice is now called al␛
""",
    "invite hikers": """\
link     https://zerochat.org/?_oob=eyJ0
code     ZC:6BF
valid    one use, until 2026-07-02 12:04
address  zmq+tcp://192.0.2.7:4242
""",
    "invite hikers --format url": "https://zerochat.org/?_oob=eyJ0\n",
    "invite hikers --format code": "ZC:6BF\n",
    "new hikers": "GROUPID\n",
    "send hikers -m hello": "EVENTID\n",
    "send hikers -m hello --wait any": """\
bob   delivered  did:key:z6MkBobb
卡羅  queued     did:key:z6MkCarol
delivered to 1 of 2
""",
    "leave hikers --yes": "GROUPID\n",
}

JSONL: dict[str, list[Any]] = {
    "status": [STATUS],
    "members hikers": MEMBERS,
    "history hikers": HISTORY,
    "invite hikers": [INVITATION],
    "new hikers": [HIKERS],
    "send hikers -m hello": [SENT],
    "send hikers -m hello --wait any": [ENOUGH],
    "leave hikers --yes": [HIKERS],
}


@pytest.mark.parametrize("line", TEXT)
def test_text_output(run, usual, line: str) -> None:
    code, out, _ = run(line)
    assert code == 0
    assert out == TEXT[line]


@pytest.mark.parametrize("line", JSONL)
def test_lines_of_json_for_programs(run, usual, line: str) -> None:
    from msgspec import to_builtins

    code, out, _ = run(line + " --format jsonl")
    assert code == 0
    assert out.isascii()
    assert [json.loads(one) for one in out.splitlines()] == [to_builtins(one) for one in JSONL[line]]
    assert run("--format jsonl " + line)[1] == out
    assert run("--format json " + line)[1] == run(line + " --format json")[1] == out


def test_a_qr_code_with_its_code_and_link_beside_it(run, usual) -> None:
    code, out, _ = run("invite hikers --format qr")
    rows = [row for row in out.splitlines() if "\x1b" in row]
    assert code == 0
    assert all(row.startswith("\x1b[30;107m") and row.endswith("\x1b[0m") for row in rows)
    assert out.startswith("https://zerochat.org/?_oob=eyJ0\n\nZC:6BF\n\n\x1b[30;107m")
    assert out.endswith("\x1b[0m\n")


def test_requests_sent_to_the_agent(run, usual) -> None:
    from msgspec.structs import replace

    run("new hikers")
    run("new hikers --envelope didcomm/v1")
    run("invite hikers --uses 5 --expires 7d")
    run(["send", "hikers", "-m", "-v ä\n"])
    run("send hikers", stdin=b"from stdin\r\n\r\n")
    run("send hikers -m x --wait all --timeout 7")
    run("send hikers -m x --wait 2")
    usually = CreateGroupParams("hikers", remove="quorum", quorum=2)
    assert of(usual, "create_group") == [usually, replace(usually, envelope="didcomm/v1")]
    assert of(usual, "create_invitation") == [CreateInvitationParams("hikers", 7 * 86_400, 5)]
    assert [params.text for params in of(usual, "send_message")] == ["-v ä\n", "from stdin\n", "x", "x"]
    assert of(usual, "wait_for_delivery") == [
        WaitParams("GROUPID", "EVENTID", -1, 7.0),
        WaitParams("GROUPID", "EVENTID", 2, 30.0),
    ]


def test_a_text_may_begin_with_a_hyphen(run, usual) -> None:
    for words in (["-m", "-x"], ["-m", "--what is it"], ["-m=--wait"], ["-m", "-1", "--reply", "-abcd"]):
        assert run(["send", "hikers", *words])[0] == 0
    sent = of(usual, "send_message")
    assert [params.text for params in sent] == ["-x", "--what is it", "--wait", "-1"]
    assert sent[3].reply_to == "-abcd"
    for words in (["-m"], ["-m", "--wait"], ["-m", "-h"]):
        code, _, err = run(["send", "hikers", *words])
        assert code == 2 and "if it begins with a hyphen: -m=VALUE" in err
    assert of(usual, "send_message") == sent


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("agent --print-unit --profile=x", {"print_unit": "user", "profile": "x"}),
        ("join --cancel --format=json", {"format": "json"}),
        ("send g -m hi --format=json", {"message": "hi", "format": "json"}),
    ],
)
def test_an_option_is_no_value_of_the_one_before(line: str, found: dict[str, object]) -> None:
    options = vars(parse(line.split()))
    assert {name: options[name] for name in found} == found
    for missing in ("send g --reply --file=x -m hi", "invite g --name --uses=3", "invite g --name --read"):
        with pytest.raises(SystemExit):
            parse(missing.split())


def test_history_in_pages(run, agent) -> None:
    events = [event(seq) for seq in range(1, 451)]

    def page(params: HistoryParams) -> History:
        end = len(events) if params.before is None else int(params.before.removeprefix("id")) - 1
        limit = min(params.limit, 150)  # the agent may give less than it was asked for
        return History(events[max(end - limit, 0) : end], more=end > limit)

    served = agent(get_history=page)
    for line, first in [("--all", 1), ("-n 300", 151), ("-n 1", 450), ("", 401), ("-n 9999", 1)]:
        code, out, _ = run(f"history hikers {line} --format jsonl")
        assert code == 0
        assert [json.loads(one)["seq"] for one in out.splitlines()] == list(range(first, 451))
    assert run("history hikers -n 0") == (0, "", "")
    assert max(params.limit for params in of(served, "get_history")) <= 500


# --- commands to type -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "environment", "hint"),
    [
        ("", "", "`zerochat new GROUP`"),
        ("--profile default", "", "`zerochat new GROUP`"),
        ("--profile work", "", "`zerochat --profile work new GROUP`"),
        ("", "work", "`zerochat new GROUP`"),
        ("--profile work", "work", "`zerochat new GROUP`"),
        ("--profile default", "work", "`zerochat --profile default new GROUP`"),
    ],
)
def test_a_suggested_command_names_the_same_profile(run, monkeypatch, options, environment, hint) -> None:
    monkeypatch.setenv("ZEROCHAT_PROFILE", environment)
    code, _, err = run(f"{options} status")
    verb = hint.replace("new GROUP", "init --name NAME")  # this sentence names the profile by itself
    assert code == 6 and verb in err
    code, _, err = run(f"{options} init --name alice")
    assert code == 0 and hint in err and err.count("--profile") == 2 * hint.count("--profile")
    code, _, err = run(f"{options} init --name alice")
    assert code == 1 and "`zerochat --profile OTHER init" in err
    code, _, err = run(f"{options} status")
    assert code == 6
    assert hint.replace("new GROUP", "agent") in err and hint.replace(" new GROUP", "") in err


def test_a_hint_for_another_user_names_no_local_profile(run) -> None:
    create_profile(profile_paths("work", os.environ), "alice", None)
    code, _, err = run("--profile work join -", stdin=b"ZC:AAAA")
    assert code == 1
    assert "cut off or damaged" in err and "`zerochat invite GROUP`" in err and "--profile" not in err
    assert "`zerochat --profile work send`" in run("--profile work")[2]
