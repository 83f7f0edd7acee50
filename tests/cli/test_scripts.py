"""Interfaces for scripts: idempotency keys, tail of annotations, service files."""

import json
import re
import shlex
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.agents import meet, people
from tests.support.cli_harness import HIKERS, SENT, event, heeded, of, process
from zerochat.agent.api.handlers.context import AgentStopping
from zerochat.cli.parser import parse
from zerochat.rpc import NOTIFICATIONS, MessageChanged, SendMessageParams, StoppingNotification

agent, run, home = cli_harness.agent, cli_harness.run, cli_harness.home
__all__ = ["people"]


def test_a_message_with_a_chosen_idempotency_key(run: Any, agent: Any) -> None:
    served = agent(send_message=lambda _: SENT, list_groups=lambda _: [replace(HIKERS, connected=2)])
    assert run("send hikers --key build-7 -m done") == (0, "EVENTID\n", "")
    served.answers["send_message"] = lambda _: replace(SENT, duplicate=True)
    code, out, err = run("send hikers --key build-7", stdin=b"done\n")
    assert (code, out) == (0, "EVENTID\n") and "was already sent" in err
    assert of(served, "send_message") == [SendMessageParams("hikers", "done", key="build-7")] * 2
    for odd in ("", "x" * 129, "\x1b[2J", "é"):
        code, out, err = run(["send", "hikers", "-m", "x", "--key", odd])
        assert (code, out) == (2, "") and "printable ASCII" in err and "\x1b" not in err
    assert len(of(served, "send_message")) == 2


def test_a_repeated_idempotency_key_sends_once(people: Any, monkeypatch: Any, capsys: Any) -> None:
    """With real agents: a script that does not know whether it was heard sends again."""
    from zerochat.cli import main

    alice, bob = people("alice", "bob")
    meet(alice, bob)
    monkeypatch.setenv("ZEROCHAT_HOME", str(alice.places.config.parent))
    said = []
    for _ in range(2):
        line = "--profile alice send friends --key build-7 -m deployed --wait all --format jsonl"
        assert main(shlex.split(line)) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert said[0]["id"] == said[1]["id"]
    assert bob.texts() == alice.texts() == ["deployed"]
    assert main(shlex.split("--profile alice send friends --key build-7 -m other")) == 1
    assert alice.texts() == ["deployed"]


@pytest.mark.parametrize("line", ["send hikers -m x", "send hikers -m x --wait all", "send hikers -m x --format json"])
def test_an_agent_that_goes_after_storing_does_not_fail_a_send(run: Any, agent: Any, line: str) -> None:
    def stopping(_: Any) -> Any:
        raise AgentStopping

    agent(send_message=lambda _: SENT, list_groups=stopping, wait_for_delivery=stopping)
    code, out, err = run(line)
    assert (code, SENT.id in out) == (3, True), "a script that repeats what failed would send it twice"
    assert "The message is stored: do not send it again." in err


def test_tail_reports_edited_messages(agent: Any) -> None:
    served = agent()
    with heeded(signal.SIGTERM), process("tail", "hikers", "-f", "-n", "0", "--format", "jsonl") as tail:
        assert tail.stdout is not None and tail.stderr is not None
        while not served.subscribers:
            served.do(lambda: None)
        now = event(7, body={"text": "better"}, edited_at="2026-07-01T13:00:00.000Z")
        served.tell("event", event(8, type="message_edited", body={"target": "id7", "text": "better"}))
        served.tell("message_changed", MessageChanged(now))
        served.tell("stopping", StoppingNotification(5.0))
        edit, changed, stopping = (json.loads(tail.stdout.readline()) for _ in range(3))
        tail.send_signal(signal.SIGTERM)
        assert tail.wait(20) == 143
    assert (edit["type"], edit["seq"]) == ("message_edited", 8)
    assert (changed["type"], changed["group"], changed["id"]) == ("message_changed", "GROUPID", "id7")
    assert changed["event"]["body"] == {"text": "better"} and changed["event"]["edited_at"]
    assert stopping == {"type": "stopping", "within_s": 5.0}


def test_the_types_in_the_help_of_tail_are_those_of_the_protocol(run: Any) -> None:
    code, out, _ = run(["tail", "--help"])
    named = set(re.findall(r"\((\w+)\)", " ".join(out.split())))
    assert code == 0 and {"message_changed", "late_event"} < named <= NOTIFICATIONS.keys()


# --- files for services -----------------------------------------------------------------------------------------------


def test_a_unit_for_a_bot(run: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my bot.py").touch()
    code, out, err = run(["--profile", "ci", "bot", "unit", "deploys", "--app", "my bot.py"])
    assert (code, err) == (0, "")
    (start,) = [line.removeprefix("ExecStart=") for line in out.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(start)
    options = parse(words[words.index("--profile") :])
    assert (options.verb, options.bot_action, options.profile) == ("bot", "run", "ci")
    assert words[-1] == str(tmp_path / "my bot.py")
    assert f"\nWorkingDirectory={tmp_path}\n" in out
    (tmp_path / "50% a\\b").mkdir()
    assert "WorkingDirectory" not in run(["bot", "unit", "deploys", "--app", "50% a\\b/x.py"])[1]
    (tmp_path / "50% a b").mkdir()
    assert "/50%% a b\n" in run(["bot", "unit", "deploys", "--app", "50% a b/x.py"])[1]
    assert "After=network-online.target zerochat.service" in out and "Restart=on-failure" in out
    code, _, err = run(["bot", "unit", "x\n[Service]", "--app", "my bot.py"])
    assert code == 2 and "hyphens" in err
    assert "deploys.py does not exist yet" in run(["bot", "unit", "deploys"])[2]
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    assert "\nEnvironment=DO_NOT_TRACK=1\n" in run(["bot", "unit", "deploys"])[1]


def test_file_names_cannot_add_lines_to_a_container_file(run: Any) -> None:
    code, out, _ = run(["bot", "container", "deploys", "--app", "x\nRUN evil\n.py"])
    assert code == 0 and not [line for line in out.splitlines() if line.startswith("RUN evil")]


@pytest.mark.parametrize("words", [["deploys", "--app", "deploys.py"], ["deploys", "--agent"]])
def test_a_container_file_contains_valid_commands(run: Any, tmp_path: Any, monkeypatch: Any, words: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploys.py").touch()
    code, out, _ = run(["--profile", "ci", "bot", "container", *words])
    assert code == 0
    orders = {}
    for line in out.replace("\\\n", "").splitlines():
        if line and not line.startswith("#"):
            order, _, rest = line.partition(" ")
            orders[order] = rest
    known = {"FROM", "ARG", "COPY", "RUN", "USER", "WORKDIR", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert orders.keys() <= known | {"ENTRYPOINT"} and orders["USER"] == "zerochat" and orders["VOLUME"] == "/state"
    entry = json.loads(orders["ENTRYPOINT"])
    health = json.loads(orders["HEALTHCHECK"].partition("CMD ")[2])
    for command in (entry, health):
        assert command[0] == "zerochat" and parse(command[1:]).profile == "ci"
    assert parse(health[1:]).check
    assert parse(entry[1:]).verb == ("agent" if "--agent" in words else "bot")
    assert ("EXPOSE" in orders) is ("--agent" in words)
    # What it copies is there, and what it runs lies where that was copied to.
    source, target = orders["COPY"].split()
    assert (source, target) == (".", "/build/")
    if "--agent" not in words:
        inside = Path(entry[-1])
        assert inside.is_relative_to(target) and (tmp_path / inside.relative_to(target)).is_file()
    # What it installs is this package, at this version, from the build's own folder and never by a name.
    wheel = orders["ARG"].partition("=")[2]
    assert wheel.startswith("./") and wheel.endswith("-py3-none-any.whl")
    name, version = wheel[2:].split("-")[:2]
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (name, version) == (project["name"], project["version"])
    assert orders["RUN"].startswith('cd /build && pip install --no-cache-dir "$ZEROCHAT"')
    assert "useradd --uid 10001 --no-create-home --home-dir /state zerochat" in orders["RUN"]
    assert project["scripts"]["zerochat"], "which is the command that it runs"
    # What the comments tell people to type is what it takes: the volume is where the profile lies.
    made = next(line for line in out.splitlines() if " init " in line).split()
    assert made[made.index("-v") + 1].partition(":")[2] == orders["VOLUME"]
    told = parse(made[made.index("--entrypoint") + 3 :])
    assert (told.verb, told.profile) == ("init", "ci"), "it makes the profile that the container runs with"
