"""Runs a bot's file in a process of its own, and runs it anew whenever a Python file beside it changes, or where one of
its handlers could not be ended otherwise."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from zerochat.bot.invoke import STUCK_EXIT

LOOK_S = 0.5
END_S_MAX = 20.0
FILES_MAX = 2_000


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """When each Python file in a folder and those below it was last written, and how long it is; hidden folders and
    environments are left out."""
    found: dict[Path, tuple[int, int]] = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") or part in ("__pycache__", "node_modules", "site-packages") for part in parts):
            continue
        with suppress(OSError):
            facts = path.stat()
            found[path] = facts.st_mtime_ns, facts.st_size
        if len(found) >= FILES_MAX:
            break
    return found


def watch(command: Sequence[str], folder: Path, say: Callable[[str], None]) -> NoReturn:
    """Run the command, and again whenever something has changed, until something is raised here (Ctrl+C)."""
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            known = stamps(folder)
            child = subprocess.Popen(command)
            told = False
            while (now := stamps(folder)) == known and child.poll() != STUCK_EXIT:
                if child.poll() is not None and not told:
                    told = True
                    say(f"It has ended with {child.returncode}. It is run again when a file changes.")
                time.sleep(LOOK_S)
            if now == known:
                say("One of its handlers found no end, so it is run again.")
                continue
            changed = sorted({path.name for path, _ in set(now.items()) ^ set(known.items())})
            say(f"{', '.join(changed[:3])}{'…' if len(changed) > 3 else ''} has changed, so it is run again.")
            end(child)
    finally:
        if child is not None:
            end(child)


def end(child: "subprocess.Popen[bytes]") -> None:
    """Let it handle what it is at, and end; its process is gone when this returns."""
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(END_S_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def command_of(place: str, profile: str | None) -> list[str]:
    """How a process of its own runs a bot's file."""
    return [sys.executable, "-m", "zerochat", *(["--profile", profile] if profile else []), "bot", "run", place]
