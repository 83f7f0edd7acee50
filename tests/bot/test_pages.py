"""What the pages tell people to type is typed: every line of the blocks on bots, on first steps, on files and on the
control protocol, in this order, with real agents."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agent.test_agent import people, until  # noqa: F401  # a fixture
from tests.bot.test_agents import connected, reached
from tests.bot.test_docs import BLOCKS
from tests.project.test_docs import README_BLOCKS
from zerochat.agent.api.reference import document
from zerochat.agent.storage.paths import places
from zerochat.bot.bot import store_path
from zerochat.bot.store import DeadLetter, Store


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder to work in, with profiles of its own, and with `zerochat` on the PATH."""
    command = tmp_path / "bin" / "zerochat"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m zerochat "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DOWNLOAD_DIR", str(tmp_path / "downloads"))
    monkeypatch.delenv("ZEROCHAT_PROFILE", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def block(begins: str) -> str:
    """The block of the project's first page with this in it."""
    [found] = [one for one in README_BLOCKS if begins in one]
    return str(found)


def typed(lines: str) -> list[str]:
    return [found for line in lines.splitlines() if (found := line.partition("   #")[0].strip())]


@pytest.mark.slow
def test_first_steps_and_files(home):
    """As one types them, job control and all; what was started is ended by the last of them, or here."""
    Path("photo.jpg").write_bytes(b"a picture")
    steps = block("join - <invitation.txt").replace("\n# Done\n", f"\n{block('files save hikers')}\n# Done\n")
    script = f"set -e; trap 'kill $(jobs -p)' EXIT; set -m\n{steps}"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert ran.stdout.count("At eight, by the bridge.") == 2, ran.stdout
    [saved] = [one for one in home.rglob("photo*.jpg") if one.parent.name != "work"]
    assert saved.read_bytes() == b"a picture"


@pytest.mark.slow
def test_a_bot_is_written_tried_given_a_profile_and_run(home, people):  # noqa: F811
    [alice] = people("alice")
    alice.client.new("friends")
    page = typed(block("zerochat bot new greeter"))
    [first, second] = [typed(text) for kind, text in BLOCKS if kind == "sh"]
    for profile, name in (("default", "ops"), ("default", "greeter")):
        with Store(store_path(places(profile, {"ZEROCHAT_HOME": str(home / "home")}), name)) as store:
            for number in range(7):
                store.bury(DeadLetter(0, f"e{number}", "g", "message", "deploy", "it broke", 4, time.time(), ""))
    left = [line for line in first if line not in page]
    for line in (*page, *left, *second):
        shown = line.replace("https://…", alice.client.invite("friends").url)
        if "bot run" in line and "--console" not in line:
            runs(shlex.split(shown), home, alice)
            continue
        ran = subprocess.run(["bash", "-c", shown], input="!hello\n", capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, (line, ran.stderr)
        if "--console" in line:
            assert "bot: Hello, you!" in ran.stdout
        if line.endswith("dead --bot ops"):
            assert ran.stdout.count("it broke") == 7
    with Store(store_path(places("default", {"ZEROCHAT_HOME": str(home / "home")}), "ops")) as store:
        assert [one.id for one in store.dead()] == [1, 2, 3, 4, 5, 6]


def runs(words: list[str], home: Path, alice) -> None:
    """A bot that goes on until it is told to end: it answers, and ends with 0."""
    before = alice.texts().count("Hello, alice!")
    with (home / "bot.log").open("ab") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            person = type("Profile", (), {"places": places("greeter", dict(os.environ)), "name": "greeter"})()
            person.client = until(lambda: reached(person), "the agent that it takes along", 60)
            until(lambda: connected(person, "greeter"), "its beginning", 60)
            alice.client.send("friends", "!hello")
            until(lambda: alice.texts().count("Hello, alice!") > before, "an answer", 60)
            person.client.close()
            process.send_signal(signal.SIGINT if "--reload" in words else signal.SIGTERM)
            assert process.wait(60) in (0, 130), (home / "bot.log").read_text()
        finally:
            process.kill()


def test_the_lines_of_the_control_protocol(home, people):  # noqa: F811
    """The page's four, one after the other, the last with the number of an item; and the two of the first page."""
    [alice] = people("alice")
    alice.client.new("ops")
    environment = {**os.environ, "ZEROCHAT_HOME": str(alice.places.config.parent), "ZEROCHAT_PROFILE": "alice"}
    lines = document().split("```json\n")[1].split("```")[0].splitlines()
    with subprocess.Popen(
        ["zerochat", "rpc", "--stdio"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rpc:
        assert rpc.stdin is not None and rpc.stdout is not None
        answers: list[str] = []
        number = ""
        for count, line in enumerate(lines, 1):
            rpc.stdin.write(line.replace("1042", number or "1042") + "\n")
            rpc.stdin.flush()
            while not (answers and f'"id":{count},' in answers[-1].replace(" ", "")):
                answers.append(rpc.stdout.readline())
                assert answers[-1]
            assert '"error"' not in answers[-1], answers[-1]
            while '"send"' in line and not number:
                said = rpc.stdout.readline()
                assert said
                found = re.search(r'"seq": ?(\d+)', said) if '"item"' in said else None
                number = found[1] if found else ""
        rpc.stdin.close()
        assert rpc.wait(30) == 0
    for line in typed(block("zerochat rpc --stdio")):
        ran = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0 and "error" not in ran.stdout.partition("$defs")[0], (line, ran.stdout, ran.stderr)
