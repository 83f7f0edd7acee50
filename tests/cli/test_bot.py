"""The verb `bot`: creating, trying without a group, and restarting on file changes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.agents import until
from zerochat.bot.launch import NoBotFile, NoBotFound, SeveralBots, load
from zerochat.bot.reload import file_versions
from zerochat.cli.bot.new import EXAMPLES


def verb(folder, *words, typed="", code=0, **environment):
    known = {**os.environ, "ZEROCHAT_HOME": str(folder / "home"), **environment}
    command = [sys.executable, "-m", "zerochat", "bot", *words]
    run = subprocess.run(command, cwd=folder, env=known, input=typed, capture_output=True, text=True, timeout=60)
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout, run.stderr


@pytest.mark.slow
def test_bot_new_writes_a_passing_test_and_overwrites_nothing(tmp_path):
    out, _ = verb(tmp_path, "new", "greeter")
    assert out.splitlines() == ["greeter.py", "test_greeter.py"]
    before = (tmp_path / "greeter.py").read_text()
    assert "greeter.py already exists" in verb(tmp_path, "new", "greeter", code=1)[1]
    assert (tmp_path / "greeter.py").read_text() == before
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 passed" in ran.stdout, ran.stdout
    verb(tmp_path, "new", "../outside", code=2)
    verb(tmp_path, "run", "greeter.py", code=6)  # there is no profile


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_can_be_begun_with(tmp_path, name, monkeypatch):
    verb(tmp_path, "new", f"my_{name}", "--example", name)
    bot = load(tmp_path / f"my_{name}.py")
    assert bot.name == f"my_{name}"


def test_a_bot_is_tried_in_a_console(tmp_path):
    verb(tmp_path, "new", "ping", "--example", "ping")
    typed = "!ping\n!echo a  \x1b[31mb\n!echo\nnobody listens\n!help\n"
    out, _ = verb(tmp_path, "run", "ping.py", "--console", typed=typed)
    assert out.splitlines() == [
        "bot: pong",
        "bot: a  ␛[31mb",
        "bot: Text is missing. Usage: !echo TEXT...",
        "bot: !ping - test delivery",
        "     !echo TEXT... - repeat a text",
        "     !help - list the commands",
    ]
    assert not (tmp_path / "home").exists(), "nothing is kept"


def test_a_failure_in_the_console_is_shown_once(tmp_path):
    text = 'from zerochat import Bot\nbot = Bot("x")\n@bot.command\nasync def fail(m):\n    raise ValueError("no")\n'
    (tmp_path / "x.py").write_text(text)
    _, err = verb(tmp_path, "run", "x.py", "--console", typed="!fail\n")
    assert err.count("ValueError: no") == 1 and "dead letter" not in err


def test_errors_in_a_bot_file_are_reported(tmp_path):
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "two.py").write_text(
        "from zerochat import Bot\none, two = Bot(name='one'), Bot(name='two')\ntwo.run()\n"
    )
    (tmp_path / "bad.py").write_text("def f():\n    return 1 / 0\nf()\n")
    with pytest.raises(NoBotFound):
        load(tmp_path / "none.py")
    with pytest.raises(SeveralBots, match="one, two"):
        load(tmp_path / "two.py")
    with pytest.raises(NoBotFile):
        load(tmp_path / "missing.py")
    assert load(f"{tmp_path}/two.py:one").name == "one"
    _, said = verb(tmp_path, "run", "bad.py", code=2)
    assert "return 1 / 0" in said and "Cannot load bad.py: ZeroDivisionError" in said
    assert "launch.py" not in said, "only what is theirs"


def test_a_bot_is_restarted_when_a_file_beside_it_changes(tmp_path):
    log = tmp_path / "log"
    (tmp_path / "app.py").write_text(f"import time, part\nopen({str(log)!r}, 'a').write(part.name)\ntime.sleep(600)\n")
    (tmp_path / "part.py").write_text("name = 'a'\n")
    program = f"""
from pathlib import Path
from zerochat.bot.reload import run_with_reload
run_with_reload([{sys.executable!r}, "-B", "app.py"], Path("."), print)
"""
    process = subprocess.Popen([sys.executable, "-uc", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: log.exists() and log.read_text() == "a", "the first run")
        (tmp_path / "part.py").write_text("name = 'bb'\n")
        until(lambda: log.read_text() == "abb", "the second run")
    finally:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert "part.py changed. Restarting the bot." in out


def test_files_that_are_not_part_of_a_bot_are_not_watched(tmp_path):
    for name in ("app.py", ".venv/x.py", "__pycache__/y.py", "sub/part.py", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {time.time()}")
    assert {path.name for path in file_versions(tmp_path)} == {"app.py", "part.py"}
