"""scripts/demo and scripts/test on machines that lack requirements.

The machine is a folder of stand-ins that is the whole PATH, and the project a copy of its scripts.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
SYSTEM = os.uname()


class Machine:
    """A project folder with the scripts in it, and a PATH with little on it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a folder's name"
        self.tools = folder / "bin"
        shutil.copytree(SCRIPTS, self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        self.tools.mkdir()
        for name in ("cat", "cmp", "dirname", "readlink", "uname"):
            found = shutil.which(name)
            assert found, f"this test needs {name}"
            (self.tools / name).symlink_to(found)

    def has(self, name: str, script: str) -> Path:
        """Put a stand-in for a program on the PATH, or anywhere when `name` is a path."""
        program = self.tools / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.unlink(missing_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program

    def run(self, script: Path | None = None, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script or self.root / "scripts" / "demo", *arguments],
            env={"PATH": str(self.tools), **environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def is_prepared(self, kind: str) -> None:
        """Put an environment in place whose Python only says how it was called."""
        self.has(str(self.root / ".venv" / "bin" / "python"), 'echo "$PWD: $*"')
        lock = (self.root / "scripts" / "requirements" / f"{kind}.lock").read_text()
        stamp = f"{self.root}\n{SYSTEM.sysname} {SYSTEM.machine}\n{lock}"
        (self.root / ".venv" / f"{kind}.stamp").write_text(stamp)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path.resolve())


def test_without_python(machine):
    run = machine.run()
    assert run.returncode == 1
    assert "needs Python 3.11 or newer; the PATH has none.\n" in run.stderr


def test_with_an_old_python_only(machine):
    machine.has("python3", 'echo "3.9 "')
    machine.has("python3.12", "exit 127")  # a stand-in that only says how to install it
    run = machine.run()
    assert run.returncode == 1
    assert "the PATH has none (python3 is 3.9)." in run.stderr


def test_with_an_incomplete_python(machine):
    machine.has("python3", 'echo "3.12 ensurepip"')
    run = machine.run()
    assert run.returncode == 1
    assert "python3 (3.12) has no ensurepip" in run.stderr
    assert "apt install python3-venv" in run.stderr


def test_prefers_a_complete_and_tested_python(machine):
    tell = 'case "$*" in *environment.py*) echo "made by $0" >&2; exit 3 ;; esac; '
    machine.has("python3", tell + 'echo "3.12 ensurepip"')
    machine.has("python3.14", tell + 'echo "3.15 "')
    machine.has("python3.13", tell + 'echo "3.13 "')
    run = machine.run()
    assert run.stderr == f"made by {machine.tools / 'python3.13'}\n"
    assert run.returncode == 3


def test_uses_the_python_given_in_the_environment(machine, tmp_path):
    machine.has("python3", 'echo "3.12 "')
    mine = machine.has(str(tmp_path / "my python"), 'case "$*" in *environment.py*) exit 3 ;; esac; echo "3.11 "')
    assert machine.run(PYTHON=str(mine)).returncode == 3


@pytest.mark.parametrize("system", ["MINGW64_NT-10.0 x86_64", "CYGWIN_NT-10.0 x86_64"])
def test_on_windows(machine, system):
    machine.has("uname", f"echo {system}")
    run = machine.run()
    assert run.returncode == 1
    assert "install WSL" in run.stderr


def test_a_prepared_environment_is_used_as_it_is(machine, tmp_path):
    """From any folder, through a link, with arguments, and without looking for a Python."""
    machine.is_prepared("run")
    link = tmp_path / "link to the demo"
    link.symlink_to(machine.root / "scripts" / "demo")
    run = machine.run(link, "--format", "a b")
    assert run.stdout == "/: -P -m zerochat demo --format a b\n"
    assert run.returncode == 0


def test_dev_requirements_are_enough_for_the_demo(machine):
    machine.is_prepared("dev")
    assert machine.run().returncode == 0


def test_analytics_requirements_are_enough_for_everything(machine):
    machine.is_prepared("analytics")
    assert machine.run().returncode == 0
    study = machine.run(machine.root / "scripts" / "analytics", "summary", "--in", "a b")
    assert study.stdout == "/: -P -m analytics summary --in a b\n"


def test_dev_requirements_are_not_enough_for_analytics(machine):
    machine.is_prepared("dev")
    assert "needs Python 3.11" in machine.run(machine.root / "scripts" / "analytics").stderr


@pytest.mark.parametrize("change", ["another lock", "another place"])
def test_an_environment_for_something_else_is_not_used(machine, change):
    machine.is_prepared("run")
    if change == "another lock":
        lock = machine.root / "scripts" / "requirements" / "run.lock"
        lock.write_text(lock.read_text() + "# new\n")
    else:
        machine.root = machine.root.rename(machine.root.with_name("moved"))
    assert "needs Python 3.11" in machine.run().stderr


def test_every_check_runs_and_one_failure_fails_all(machine):
    machine.is_prepared("dev")
    python = machine.root / ".venv" / "bin" / "python"
    machine.has(str(python), 'echo "$PWD: $*"; case "$*" in *"ruff check"*) exit 1 ;; esac')
    run = machine.run(machine.root / "scripts" / "test", "--long", "-k", "a b")
    calls = [line.partition(": -P -m ")[2] for line in run.stdout.splitlines() if line.startswith(f"{machine.root}: ")]
    assert calls == [
        "ruff format --check .",
        "ruff check .",
        "mypy",
        "pytest -m  -o faulthandler_timeout=3600 -k a b",
    ]
    assert "passed  types (mypy)" in run.stdout
    assert "FAILED  lint (ruff check)" in run.stdout
    assert run.returncode == 1


@pytest.mark.parametrize("said", [("--searches", "--budget", "30"), ("--budget=30",)], ids=["both", "one for both"])
def test_the_budget_is_for_the_searches(machine, said):
    machine.is_prepared("dev")
    machine.has(str(machine.root / ".venv" / "bin" / "python"), 'echo "$*"')
    calls = machine.run(machine.root / "scripts" / "test", *said).stdout.splitlines()
    tests, waiting, greedy = [line for line in calls if " pytest " in line]
    assert "--budget" not in tests and "and not greedy -n 3" in waiting and "-m greedy" in greedy
    assert all(search.endswith("--budget 30") for search in (waiting, greedy))
    long = machine.run(machine.root / "scripts" / "test", "--long", *said).stdout
    assert "-P -m pytest -m  -o faulthandler_timeout=3600 --budget 30\n" in long


@pytest.mark.parametrize(
    "said", [["--budget"], *(["--budget", said] for said in ("many", "0", "-3", "1.2.3", ""))], ids=str
)
def test_an_invalid_budget_runs_nothing(machine, said):
    machine.is_prepared("dev")
    run = machine.run(machine.root / "scripts" / "test", *said)
    assert run.returncode == 2 and "--budget wants a number above 0" in run.stderr
    assert repr("".join(said[1:])) in run.stderr and run.stdout == ""


@pytest.mark.parametrize("said", [["--help"], ["--slow", "-h"]], ids=str)
def test_help_is_the_comment_at_the_head_and_runs_nothing(machine, said):
    run = machine.run(machine.root / "scripts" / "test", *said)
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout.startswith("Run the checks of every change")
    assert "\n  scripts/test --slow " in run.stdout and "set -eu" not in run.stdout and "#" not in run.stdout


def test_the_slow_option_adds_exactly_the_slow_tests(machine):
    machine.is_prepared("dev")
    machine.has(str(machine.root / ".venv" / "bin" / "python"), 'echo "$*"')
    usual = tomllib.loads((SCRIPTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["addopts"][-1]
    more = f"-n 3 --dist worksteal -m {usual.replace('slow or ', '')}"
    assert f"pytest {more} -k a\n" in machine.run(machine.root / "scripts" / "test", "--slow", "-k", "a").stdout
    assert "-m not" not in machine.run(machine.root / "scripts" / "test", "-k", "a").stdout


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "code"), [("1", 1), ("1.5", 0)])
def test_a_longer_budget_is_not_mistaken_for_hanging(tmp_path, budget, code):
    slow = tmp_path / "test_slow.py"
    slow.write_text("import time\n\n\ndef test_slow(budget):\n    time.sleep(2)\n")
    options = ["-c", str(SCRIPTS.parent / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider"]
    limit = ["-o", "faulthandler_timeout=0.5", "--budget", budget]
    run = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", *options, *limit, str(slow)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == code, run.stdout + run.stderr
    assert ("Timeout" in run.stderr) == bool(code)


@pytest.mark.parametrize("ci", [{}, {"CI": "true"}], ids=["by hand", "in CI"])
def test_no_failed_test_is_repeated(machine, ci):
    machine.is_prepared("analytics")
    python = machine.root / ".venv" / "bin" / "python"
    machine.has(str(python), 'echo "$*"; case "$*" in *"pytest"*) exit 1 ;; esac')
    run = machine.run(machine.root / "scripts" / "test", **ci)
    assert run.stdout.count("FAILED") == run.stdout.count(" -m pytest ") == (4 if ci else 1)
    assert "--last-failed" not in run.stdout
    assert run.returncode == 1


def test_a_foreign_environment_is_left_alone(machine):
    """With this very Python: it must not come as far as installing anything."""
    precious = machine.root / ".venv" / "precious"
    precious.parent.mkdir()
    precious.touch()
    run = machine.run(PYTHON=sys.executable)
    assert run.returncode == 1
    assert "was not made by these scripts" in run.stderr
    assert precious.exists()
