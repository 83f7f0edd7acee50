"""The chat in a real terminal (tmux) at two sizes, beside real agents. All that was started ends with the test."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import pytest

from screens.tmux import SHOWS_S_MAX, Screen
from tests.support.machines import Machine, machines
from tests.support.mediated_agents import MediatorProcess

SIZES = ((80, 24), (200, 50))
ZEROCHAT = (sys.executable, "-P", "-m", "zerochat")


class Shown(str):
    """The text of a screen, perhaps in the middle of a change. The chat has a rule above its composer."""

    __slots__ = ()

    @property
    def rows(self) -> list[str]:
        return self.rstrip("\n").split("\n")

    @property
    def _rule(self) -> int:
        return max((at for at, row in enumerate(self.rows) if set(row) == {"─"}), default=len(self.rows))

    @property
    def messages(self) -> list[str]:
        """The rows of the messages, with the lists beside them; the newest are the last."""
        return self.rows[1 : self._rule]

    @property
    def composer(self) -> str:
        return "".join(self.rows[self._rule + 1 : self._rule + 2]).strip()

    @property
    def status(self) -> str:
        """The lines below the composer, if that has one line."""
        return " ".join(row.strip() for row in self.rows[self._rule + 2 :])


class Window(Screen):
    """A program in a terminal of its own."""

    def until(self, condition: Callable[[Shown], object], what: str) -> Shown:
        """Wait for a condition; returns the screen that meets it."""
        deadline = time.monotonic() + SHOWS_S_MAX
        while not condition(shown := Shown(self.text())):
            assert time.monotonic() < deadline, f"{what} did not come onto the screen, which shows:\n{shown}"
            time.sleep(0.05)
        return shown

    def has(self, *signs: str) -> Shown:
        return self.until(lambda shown: all(sign in shown for sign in signs), " and ".join(map(repr, signs)))

    def still(self, *signs: str) -> Shown:
        """Wait for texts and until nothing changes, so that what is absent stays absent."""
        self.has(*signs)
        self.shows()
        return self.has(*signs)

    def enter(self, line: str) -> None:
        self.type(line)
        self.press("Enter")

    def paste(self, text: str, *, bracketed: bool = True) -> None:
        """Without brackets: the bytes as they are, for sequences that no key sends."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-t", "tour", *(["-p"] if bracketed else []))

    def mouse(self, event: str) -> None:
        """An event of the mouse in SGR form, for example `0;5;4M`: the button is pressed in column 5 of line 4."""
        self.paste(f"\x1b[<{event}", bracketed=False)

    def _pane(self, variable: str) -> str:
        return self._tmux("display-message", "-p", "-t", "tour", f"#{{{variable}}}").strip()

    def ends(self) -> None:
        """Wait until no program has the terminal; tmux does not always learn the exit code."""
        self.until(lambda _: self._pane("pane_dead") == "1", "the end of the program")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up and wait for the end of the program, which tmux would leave behind."""
        pid = int(self._pane("pane_pid"))
        try:
            if self._pane("pane_dead") != "1":
                os.kill(pid, signal.SIGHUP)
                self.ends()
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            super().__exit__(kind, error, trace)


class Desk:
    """The profiles, mediators and windows of a test. All windows have one size."""

    def __init__(self, folder: Path, columns: int, lines: int, stack: ExitStack) -> None:
        self.folder, self.columns, self.lines, self._stack = folder, columns, lines, stack

    def people(self, *names: str) -> list[Machine]:
        """Profiles, each with a running agent."""
        return self._stack.enter_context(machines(self.folder, names))

    def mediator(self) -> MediatorProcess:
        process = MediatorProcess(self.folder)
        self._stack.callback(process.stop)
        return process

    def window(self, name: str, *words: str, **settings: str) -> Window:
        """The chat on a profile, which need not exist yet. `settings`: of `[chat]`."""
        chat = {f"ZEROCHAT_CHAT__{key.upper()}": value for key, value in ({"tour": "false"} | settings).items()}
        environment = self._environment(name) | chat
        return self._stack.enter_context(
            Window(self.folder, [*ZEROCHAT, *words], environment, self.columns, self.lines)
        )

    def run(self, name: str, *words: str) -> str:
        """The output of a command."""
        environment = os.environ | self._environment(name)
        done = subprocess.run([*ZEROCHAT, *words], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _environment(self, name: str) -> dict[str, str]:
        home = str(self.folder / name)
        path = os.pathsep.join(filter(None, sys.path))
        return {"HOME": home, "ZEROCHAT_HOME": home, "ZEROCHAT_PROFILE": name, "PYTHONPATH": path}


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    with ExitStack() as stack:
        columns, lines = request.param
        yield Desk(tmp_path, columns, lines, stack)
