"""Runs the documented commands on bots, first steps, files and the control protocol."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import typed_pages
from tests.support.agents import until
from tests.support.bot_processes import connected, reached
from tests.support.manual_blocks import BLOCKS
from tests.support.typed_pages import block, typed
from zerochat.agent.api.reference import document
from zerochat.agent.storage.paths import profile_paths
from zerochat.bot.bot import store_path
from zerochat.bot.store import DeadLetter, Store

home = typed_pages.home


@pytest.mark.slow
def test_first_steps_and_files(home):
    """With job control; processes are ended by the last command or by the test."""
    Path("photo.jpg").write_bytes(b"a picture")
    files = [
        line.replace("zerochat", f"zerochat --profile {'alice' if ' send ' in line else 'bob'}", 1)
        for line in typed(block("files save hikers"))
    ]
    steps, _, end = block("join - <invitation.txt").rpartition("kill %1")
    steps = "\n".join((steps, *files, f"kill %1{end}"))
    script = f"set -e; trap 'kill $(jobs -p)' EXIT; set -m\n{steps}"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert ran.stdout.count("At eight, by the bridge.") == 1, ran.stdout
    [saved] = [one for one in home.rglob("photo*.jpg") if one.parent.name != "work"]
    assert saved.read_bytes() == b"a picture"


@pytest.mark.slow
def test_bot_from_new_to_run(home, people):
    [alice] = people("alice")
    alice.client.create_group("friends")
    [first, second, _] = [typed(text) for kind, text in BLOCKS if kind == "sh"]  # the last needs systemd
    with Store(store_path(profile_paths("default", {"ZEROCHAT_HOME": str(home / "home")}), "ops")) as store:
        for number in range(7):
            store.add_dead_letter(DeadLetter(0, f"e{number}", "g", "message", "deploy", "it broke", 4, time.time(), ""))
    for line in (*first, *second):
        shown = line.replace("https://…", alice.client.create_invitation("friends").url)
        if "bot run" in line and "--console" not in line:
            runs(shlex.split(shown), home, alice)
            continue
        ran = subprocess.run(["bash", "-c", shown], input="!hello\n", capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, (line, ran.stderr)
        if "--console" in line:
            assert "bot: Hello, you!" in ran.stdout
        if line.endswith("dead-letters --bot ops"):
            assert ran.stdout.count("it broke") == 7
    with Store(store_path(profile_paths("default", {"ZEROCHAT_HOME": str(home / "home")}), "ops")) as store:
        assert [one.id for one in store.dead_letters()] == [1, 2, 3, 4, 5, 6]


def runs(words: list[str], home: Path, alice) -> None:
    """Run a bot until it has answered, then stop it by a signal."""
    before = alice.texts().count("Hello, alice!")
    with (home / "bot.log").open("ab") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            person = type("Profile", (), {"places": profile_paths("greeter", dict(os.environ)), "name": "greeter"})()
            person.client = until(lambda: reached(person), "the agent that the bot runs", 60)
            until(lambda: connected(person, "greeter"), "the subscription of the bot", 60)
            alice.client.send_message("friends", "!hello")
            until(lambda: alice.texts().count("Hello, alice!") > before, "an answer", 60)
            person.client.close()
            process.send_signal(signal.SIGINT if "--reload" in words else signal.SIGTERM)
            assert process.wait(60) in (0, 130), (home / "bot.log").read_text()
        finally:
            process.kill()


def test_control_protocol_examples(home, people):
    """The four examples of the page in order, and the two of the README."""
    [alice] = people("alice")
    alice.client.create_group("ops")
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
            while '"send_message"' in line and not number:
                said = rpc.stdout.readline()
                assert said
                found = re.search(r'"seq": ?(\d+)', said) if '"item"' in said else None
                number = found[1] if found else ""
        rpc.stdin.close()
        assert rpc.wait(30) == 0
    for line in typed(block("zerochat rpc --schema")):
        ran = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0 and "error" not in ran.stdout.partition("$defs")[0], (line, ran.stdout, ran.stderr)
