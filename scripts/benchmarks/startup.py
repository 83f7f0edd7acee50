"""Start-up: how long a person waits for help, for a refusal, and for the first frame on the screen.

A first frame is timed on the far side of a pseudo-terminal: from the start of the process until the first readable word
arrives after the program has taken the whole screen. Frames are of 80x24 cells, and nothing here touches a network.
"""

import contextlib
import fcntl
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import ROOT, Figure, Report, Row, scaled, take_turns
from benchmarks.ours.past import fill
from zerochat.agent.storage.paths import profile_paths

FRAME_S_MAX = 30.0

PEERS = {
    "irssi": (["irssi", "--version"], ["irssi", "--noconnect"]),
    "weechat": (["weechat", "--version"], ["weechat", "--temp-dir", "--no-plugin"]),
    "profanity": (["profanity", "--version"], ["profanity"]),
    "toxic": (["toxic", "--help"], ["toxic", "--noconnect", "--no-lan"]),
}
"""Terminal chats in Debian, and how each prints a line of text and shows its screen without connecting."""

ZEROCHAT = [sys.executable, "-m", "zerochat"]

EMPTY_APP = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("ready")
Empty().run()
"""

SAME_LAYOUT = """
from textual.app import App
from textual.containers import Horizontal
from textual.scroll_view import ScrollView
from textual.widgets import OptionList, Static, TextArea
class Empty(App):
    CSS = '''
    #top, #status { height: 1; }
    #groups, #members { width: 20; }
    #pane { width: 1fr; }
    TextArea { height: 3; }
    '''
    def compose(self):
        yield Static("ready", id="top")
        with Horizontal():
            yield OptionList(id="groups")
            yield ScrollView(id="pane")
            yield OptionList(id="members")
        yield TextArea()
        yield Static("ready", id="status")
Empty().run()
"""
"""The widgets of the chat's screen, empty and without an agent."""
LONG = 100_000
"""Messages in the journal of a member of long standing."""
FRAME_GOAL, MEMORY_GOAL_MB = 1.3, 60.0

ESCAPES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*(?:[@-~]|$)"  # control sequences
    rb"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # strings that the terminal keeps to itself: titles, queries
    rb"|\x1b[ -/]*(?:[0-~]|$)",  # everything else
    re.DOTALL,
)
WHOLE_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)h")
WORD = re.compile(rb"[A-Za-z]{3}")


READY_GOAL_MS, READY_GOAL_MB = 300.0, 45.0
"""Of an agent: when it accepts requests."""


class Frame(NamedTuple):
    ms: float
    """From the start of the process to the first word on its screen."""
    mb: float
    """Resident memory at that moment."""


def run_ms(command: Sequence[str], environment: Mapping[str, str], code: int | None = 0) -> float:
    """From the start of a command to its end, which must have the exit code `code` (None: any)."""
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    elapsed = time.perf_counter() - start
    if code is not None and done.returncode != code:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.decode(errors='replace')}")
    return elapsed * 1000


def has_frame(output: bytes) -> bool:
    taken = WHOLE_SCREEN.search(output)
    return bool(taken and WORD.search(ESCAPES.sub(b" ", output[taken.end() :])))


def first_frame(command: Sequence[str], environment: Mapping[str, str], keys: bytes = b"") -> Frame:
    """Run a program until its first frame; `keys` are typed before it has asked for input."""
    start = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.execvpe(command[0], list(command), dict(environment))
        finally:
            os._exit(127)
    output = b""
    try:
        os.write(terminal, keys)
        while not has_frame(output):
            left = start + FRAME_S_MAX - time.perf_counter()
            if left <= 0 or not select.select([terminal], [], [], left)[0]:
                raise SystemExit(f"{' '.join(command)} painted nothing within {FRAME_S_MAX:.0f} s: {output[-500:]!r}")
            try:
                output += os.read(terminal, 65536)
            except OSError:  # Linux reports that the other side is closed.
                raise SystemExit(f"{' '.join(command)} ended before its first frame: {output[-500:]!r}") from None
        ms = (time.perf_counter() - start) * 1000
        return Frame(ms, resident_mb(child))
    finally:
        end(child, terminal)


def ready(environment: Mapping[str, str], notified: Path) -> Frame:
    """Start an agent as systemd does; from the start of the process to READY=1, and its memory then."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notified))
        manager.settimeout(FRAME_S_MAX)
        start = time.perf_counter()
        agent = subprocess.Popen(
            [*ZEROCHAT, "agent", "--listen", "127.0.0.1"],
            env={**environment, "NOTIFY_SOCKET": str(notified)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            said = manager.recv(4096)
            ms = (time.perf_counter() - start) * 1000
            if not said.startswith(b"READY=1"):
                raise SystemExit(f"the agent said {said!r} instead of READY=1")
            return Frame(ms, resident_mb(agent.pid))
        finally:
            agent.terminate()
            agent.wait(FRAME_S_MAX)
            notified.unlink()


def end(child: int, terminal: int) -> None:
    """End a program politely, and read what it still paints, so that a full terminal does not block it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
    deadline = time.monotonic() + 3
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        if select.select([terminal], [], [], 0.01)[0]:
            with contextlib.suppress(OSError):
                os.read(terminal, 65536)
    os.close(terminal)


def resident_mb(child: int) -> float:
    status = Path(f"/proc/{child}/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    found = subprocess.run(["ps", "-o", "rss=", "-p", str(child)], capture_output=True, text=True, check=True)
    return int(found.stdout) / 1024


def environment_in(home: Path) -> dict[str, str]:
    """A bare environment with a home of its own, in which nothing of the user's is read or changed."""
    home.mkdir()
    return {
        "HOME": str(home),
        "ZEROCHAT_HOME": str(home / "zerochat"),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }


def measure(quick: bool) -> Report:
    rounds, posts = scaled(quick, (21, LONG), (5, LONG // 20), (1, 100))
    installed = {name: commands for name, commands in PEERS.items() if shutil.which(commands[0][0])}
    with tempfile.TemporaryDirectory(prefix="zerochat-bench-") as folder:
        nobody, somebody, others = (environment_in(Path(folder) / name) for name in ("nobody", "somebody", "others"))
        for verb in (["init", "--name", "Alice"], ["new", "hikers"]):
            run_ms([*ZEROCHAT, *verb], somebody)

        veteran = environment_in(Path(folder) / "veteran")
        fill(profile_paths(None, veteran), "hikers", posts)

        if "toxic" in installed:
            first_frame(installed["toxic"][1], others, keys=b"n\n")  # no passphrase for the profile it makes

        runs: dict[str, Callable[[], float]] = {
            "python": partial(run_ms, [sys.executable, "-c", "pass"], nobody),
            "--help": partial(run_ms, [*ZEROCHAT, "--help"], nobody),
            "send --help": partial(run_ms, [*ZEROCHAT, "send", "--help"], nobody),
            "send": partial(run_ms, [*ZEROCHAT, "send", "hikers", "-m", "hello"], nobody, code=None),
        }
        for name, (command, _) in installed.items():
            runs[name] = partial(run_ms, command, others, code=None)
        times = {name: Figure.of(values) for name, values in take_turns(runs, rounds).items()}

        frame_runs: dict[str, Callable[[], Frame]] = {
            "textual": partial(first_frame, [sys.executable, "-c", EMPTY_APP], nobody),
            "first run": partial(first_frame, [*ZEROCHAT, "chat"], nobody),
            "profile": partial(first_frame, [*ZEROCHAT, "chat"], somebody),
            "same": partial(first_frame, [sys.executable, "-c", SAME_LAYOUT], nobody),
            "long": partial(first_frame, [*ZEROCHAT, "chat"], veteran),
        }
        for name, (_, command) in installed.items():
            frame_runs[name] = partial(first_frame, command, others)
        frame_runs["agent"] = partial(ready, somebody, Path(folder) / "notify")
        frames = take_turns(frame_runs, rounds)
    frame_ms = {name: Figure.of([frame.ms for frame in values]) for name, values in frames.items()}
    frame_mb = {name: Figure.of([frame.mb for frame in values]) for name, values in frames.items()}

    def text_row(case: str, run: str) -> Row:
        peers = {name: times[name] for name in installed} if run == "--help" else {}
        return Row(case, "ms", "lower", times[run], times["python"], "python -c pass", peers)

    def frame_row(case: str, unit: str, run: str, figures: Mapping[str, Figure]) -> Row:
        peers = {name: figures[name] for name in installed}
        return Row(case, unit, "lower", figures[run], figures["textual"], "an empty Textual app", peers)

    def long_row(case: str, unit: str, figures: Mapping[str, Figure], goal: float) -> Row:
        peers = {"an empty Textual app": figures["textual"]}
        return Row(case, unit, "lower", figures["long"], figures["same"], "the same layout, empty", peers, goal=goal)

    long = f"with {posts:,} messages"

    def ready_row(unit: str, figures: Mapping[str, Figure], goal: float) -> Row:
        return Row(
            f"agent, ready ({'READY=1' if unit == 'ms' else 'resident'})", unit, "lower", figures["agent"], goal=goal
        )

    rows = [
        ready_row("ms", frame_ms, READY_GOAL_MS),
        ready_row("MB", frame_mb, READY_GOAL_MB),
        text_row("zerochat --help", "--help"),
        text_row("zerochat send --help", "send --help"),
        text_row("zerochat send, refused because there is no profile", "send"),
        frame_row("first frame, without a profile", "ms", "first run", frame_ms),
        frame_row("first frame, with a profile and its agent", "ms", "profile", frame_ms),
        frame_row("resident at the first frame, with a profile and its agent", "MB", "profile", frame_mb),
        long_row(f"first frame, {long}", "ms", frame_ms, FRAME_GOAL * frame_ms["same"].median),
        long_row(f"resident at the first frame, {long}", "MB", frame_mb, MEMORY_GOAL_MB),
    ]
    return Report(rows, missing=sorted(PEERS.keys() - installed.keys()))
