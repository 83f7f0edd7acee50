"""Runs a bot's file in a child process and restarts it when a Python file in its folder changes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from zerochat.bot.invoke import STUCK_EXIT

POLL_S = 0.5
STOP_S_MAX = 20.0
FILES_MAX = 2_000


def file_versions(folder: Path) -> dict[Path, tuple[int, int]]:
    """Modification time (ns) and size of each Python file below a folder, without hidden folders and environments."""
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


def run_with_reload(command: Sequence[str], folder: Path, output: Callable[[str], None]) -> NoReturn:
    """Run the command, and restart it after changes, until an exception is raised here (Ctrl+C)."""
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            known = file_versions(folder)
            child = subprocess.Popen(command)
            reported = False
            while (now := file_versions(folder)) == known and child.poll() != STUCK_EXIT:
                if child.poll() is not None and not reported:
                    reported = True
                    output(f"The bot exited with code {child.returncode}. Waiting for a file to change.")
                time.sleep(POLL_S)
            if now == known:
                output("A handler exceeded its time limit. Restarting the bot.")
                continue
            changed = sorted({path.name for path, _ in set(now.items()) ^ set(known.items())})
            output(f"{', '.join(changed[:3])}{'…' if len(changed) > 3 else ''} changed. Restarting the bot.")
            stop_child(child)
    finally:
        if child is not None:
            stop_child(child)


def stop_child(child: "subprocess.Popen[bytes]") -> None:
    """Terminate a child process gracefully, and kill it after a time limit."""
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def run_command(place: str, profile: str | None) -> list[str]:
    """The command line that runs a bot's file in a process of its own."""
    return [sys.executable, "-m", "zerochat", *(["--profile", profile] if profile else []), "bot", "run", place]
