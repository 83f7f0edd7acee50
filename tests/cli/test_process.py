"""The profile's files, and the command line as a process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli_harness
from tests.support.cli_harness import (
    SENT,
    event,
    heeded,
    of,
    process,
)
from tests.support.marks import others_slow
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.verbs.profile import PATHS as PLACES
from zerochat.errors import LocalError
from zerochat.rpc import (
    History,
    SubscribeParams,
)

agent, alone, home, run, usual = (
    cli_harness.agent,
    cli_harness.alone,
    cli_harness.home,
    cli_harness.run,
    cli_harness.usual,
)


@pytest.mark.parametrize(
    "wrong",
    [
        "--listen junk",
        "--listen 127.0.0.1:1:2",
        "--public-uri ftp://x",
        "--behind junk",
        "--mix-with junk",
        "--new-invitation --further-invitation",
    ],
)
def test_a_mediator_checks_its_arguments_before_it_creates_a_profile(run, home, wrong) -> None:
    code, out, err = run(f"mediator {wrong}")
    assert code == ExitCode.USAGE and not out and "Created" not in err and not list(home.rglob("*mediator*"))


# --- the profile ------------------------------------------------------------------------------------------------------


def test_locate_prints_paths_and_makes_nothing(run, home) -> None:
    here = profile_paths("work", os.environ)
    assert run("--profile work paths socket") == (0, f"{here.socket}\n", "")
    assert json.loads(run("paths log --profile work --format jsonl")[1]) == {"place": "log", "path": str(here.log)}
    code, out, _ = run("paths --profile work")
    assert code == 0
    assert tuple(line.split()[0] for line in out.splitlines()) == PLACES
    assert str(here.data) in out
    assert not home.exists()


def test_an_invalid_profile_name(run) -> None:
    code, out, err = run(["--profile", "../x", "paths"])
    assert code != 0 and out == "" and err


def test_the_passphrase_comes_from_a_file_or_a_prompt(run, monkeypatch, tmp_path) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        "zerochat.agent.storage.profiles.create_profile", lambda *given, keyring: made.append(given[1:])
    )
    code, out, err = run("init --name alice")
    assert (code, out) == (0, f"{profile_paths(None, os.environ).data}\n")
    assert "Next:" in err
    assert run("init --name alice --passphrase")[0] == 6
    secret = tmp_path / "secret"
    secret.write_bytes(b"two words\n")
    monkeypatch.setenv("ZEROCHAT_PASSPHRASE_FILE", str(secret))
    assert json.loads(run("init --name alice --format jsonl")[1])["passphrase"] is True
    secret.write_bytes(b"")
    assert run("init --name alice")[0] == 2
    secret.unlink()
    assert run("init --name alice")[0] == 2
    monkeypatch.delenv("ZEROCHAT_PASSPHRASE_FILE")
    typed = iter(["one", "two", "same", "same", "", *"ababab"])
    monkeypatch.setattr("zerochat.cli.prompts._has_terminal", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    assert run("init --name alice --passphrase")[0] == 0
    assert run("init --name alice --passphrase")[0] == 2
    code, _, err = run("init --name alice --passphrase")
    assert code == 2 and err.count("The passphrases do not match. Try again.") == 2
    assert made == [("alice", None), ("alice", b"two words"), ("alice", b"same")]


def test_the_chat_needs_a_terminal(run) -> None:
    code, out, err = run("")
    assert (code, out) == (2, "")
    assert "needs a terminal" in err


# --- as a process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)])
def test_tail_follows_until_it_is_terminated(agent, signum, code) -> None:
    served = agent(get_history=lambda params: History([event(1), event(2)], more=True))
    with heeded(signum), process("tail", "hikers", "-n", "2", "--format", "jsonl") as tail:
        assert tail.stdout is not None and tail.stderr is not None
        assert [json.loads(tail.stdout.readline())["seq"] for _ in range(2)] == [1, 2]
        for seq in (2, 3):  # the second is in the past and in the news, and yet one event
            served.tell("event", event(seq))
        assert json.loads(tail.stdout.readline())["seq"] == 3
        tail.send_signal(signum)
        assert tail.wait(10) == code
        assert tail.stderr.read() == b""
    assert of(served, "subscribe") == [SubscribeParams(["hikers"], None)]


def test_tail_from_a_cursor_until_the_agent_ends(agent) -> None:
    served = agent()
    with process("tail", "hikers", "--since", "41") as tail:
        assert tail.stdout is not None and tail.stderr is not None
        deadline = time.monotonic() + 10
        while not served.subscribers and time.monotonic() < deadline:
            served.do(lambda: None)
        served.tell("event", event(42))
        assert tail.stdout.readline() == b"2026-07-01 12:04  bob: message 42\n"
        served.stop()
        assert tail.wait(10) == 6
        assert b"The agent has closed the connection" in tail.stderr.read()
    assert of(served, "subscribe") == [SubscribeParams(["hikers"], 41)]
    assert of(served, "get_history") == []


def test_a_closed_pipe_ends_the_output_quietly(agent) -> None:
    agent(
        get_history=lambda params: History([event(seq, body={"text": "x" * 1_000}) for seq in range(300)], more=False)
    )
    with process("history", "hikers") as history:
        assert history.stdout is not None and history.stderr is not None
        history.stdout.readline()
        history.stdout.close()
        assert history.wait(10) == 0
        assert history.stderr.read() == b""


def test_the_agent_runs_until_it_is_terminated(run, home, monkeypatch) -> None:
    create_profile(profile_paths(None, os.environ), "alice", None)
    with process("agent", "--listen", "127.0.0.1") as agent:
        assert agent.stdout is not None and agent.stderr is not None
        ready = dict(pair.split("=", 1) for pair in agent.stdout.readline().decode().split()[1:])
        assert ready["pid"] == str(agent.pid)
        status = json.loads(run("status --format jsonl")[1])
        assert (status["pid"], status["pair"], status["nick"]) == (agent.pid, ready["pair"], "alice")
        monkeypatch.setattr("zerochat.cli.verbs.agent.OWNER_WAIT_S_MAX", 0.0)
        code, out, err = run("agent")
        assert (code, out) == (6, "")
        assert f"process {agent.pid}" in err
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
        assert (agent.stdout.read(), agent.stderr.read()) == (b"", b"")
    assert run("status")[0] == 6


def test_ctrl_c_on_a_terminal_starts_a_new_line(run, capsys, monkeypatch) -> None:
    def interrupted(*given: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("zerochat.cli._run", interrupted)
    assert run("tail hikers") == (130, "", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("tail hikers") == (130, "", "\n")


@pytest.mark.parametrize("where", ["start", "stop", "removal"])
def test_an_interrupted_demo_leaves_nothing_behind(monkeypatch, tmp_path, where) -> None:
    """Ctrl+C at the worst moments: while an agent starts, and again while it is stopped or the folder removed."""
    import shutil

    from zerochat import demo

    stopped: list[object] = []
    remove = shutil.rmtree

    class Thread:
        def __init__(self, *given: Any, **named: Any) -> None: ...

        def start(self) -> None:
            raise KeyboardInterrupt

        def stop(self) -> None:
            stopped.append(self)
            if where == "stop":
                raise KeyboardInterrupt

    def removal(path: Path, **options: Any) -> None:
        if where == "removal":
            monkeypatch.setattr("shutil.rmtree", remove)
            raise KeyboardInterrupt
        remove(path, **options)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.rmtree", removal)
    monkeypatch.setattr("zerochat.demo.AgentThread", Thread)
    with pytest.raises(KeyboardInterrupt), demo.Stage(("alice",)):
        pass
    assert len(stopped) == 1
    assert not list(tmp_path.glob("zerochat-demo-*"))


@pytest.mark.parametrize("words", others_slow([["send", "hikers", "-m", "x"], ["--profile", "nobody", "status"]]))
def test_an_unreadable_standard_error_changes_nothing(agent, words: list[str]) -> None:
    """The terminal has gone, or the disk of the log is full."""
    agent(send_message=lambda _: SENT)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        codes = [
            subprocess.run(
                [sys.executable, "-m", "zerochat", *words],
                cwd=Path(__file__).parents[2],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=20,
                check=False,
            ).returncode
            for errors in (subprocess.DEVNULL, unread)
        ]
    assert codes[0] == codes[1] != ExitCode.REFUSED, "which an error of ours would come to"


def test_a_verb_on_a_running_agent_is_light(agent) -> None:
    """The start-up promise: no sockets library, no screen and no cryptography for a `send`."""
    agent(send_message=lambda _: SENT)
    script = "import sys; from zerochat.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", script, "send", "hikers", "-m", "x"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=20, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.decode().splitlines()[1].split()}
    assert "msgspec" in loaded
    heavy = {"zmq", "textual", "rich", "cryptography", "nacl", "apsw", "pyspark", "qrcode", "asyncio", "zstandard"}
    assert not loaded & heavy


def test_importing_zerochat_costs_nothing() -> None:
    script = "import sys; before = set(sys.modules); import zerochat; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, timeout=20, check=True
    )
    loaded = set(done.stdout.decode().split())
    assert {name for name in loaded if name.startswith("zerochat")} <= {"zerochat", "zerochat.version"}
    assert not loaded & {"importlib.metadata", "msgspec", "socket", "json", "datetime"}
    import zerochat

    assert zerochat.LocalError is LocalError
    assert "attach" in dir(zerochat)
    with pytest.raises(AttributeError):
        _ = zerochat.nonsense
