"""The terminal itself: one that is closed, does not read, or comes back."""

import os
import pty
import signal
import sys
import termios
import threading
from contextlib import contextmanager, suppress

import pytest

from screens.tmux import Screen
from tests.support.machines import machines
from tests.support.terminals import terminal
from zerochat.tui.host.driver import BACKLOG_CHARS_MAX, Output
from zerochat.tui.host.terminal import mouse_wanted

# --- output ---------------------------------------------------------------------------------------------------------


@contextmanager
def outputs():
    """(main end, output) of a terminal that nothing reads yet."""
    main, line = pty.openpty()
    attributes = termios.tcgetattr(line)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(line, termios.TCSANOW, attributes)
    with os.fdopen(line, "w", encoding="utf-8") as file:
        output = Output(file)
        output.start()
        try:
            yield main, output
        finally:
            with suppress(OSError):
                os.close(main)
            output.stop()


def test_a_terminal_that_does_not_read_blocks_nothing():
    with outputs() as (main, output):
        output.on_drained = lambda: output.write("y")
        frame = "x" * 10_000
        for _ in range(4 * BACKLOG_CHARS_MAX // len(frame)):
            output.write(frame)  # returns
        assert output.dropped
        read = b""
        while not read.endswith(b"y"):
            read += os.read(main, 65_536)
        assert len(read) % len(frame) == 1, "only whole frames are dropped"


def test_output_to_a_closed_terminal_is_dropped():
    with outputs() as (main, output):
        gone = threading.Event()
        output.on_gone = gone.set
        os.close(main)
        output.write("x")
        assert gone.wait(20)
        for _ in range(1_000):
            output.write("x" * 10_000)
        output.stop()
        assert not output.is_alive()


def test_the_end_writes_everything():
    with outputs() as (main, output):
        output.write("the last words")
        output.stop()
        assert os.read(main, 100) == b"the last words"


def test_gnu_screen_keeps_escape():
    assert mouse_wanted(True, {}) and not mouse_wanted(False, {})
    assert not mouse_wanted(True, {"STY": "1234.pts-0.host"})


# --- in a real terminal ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed", "not read, SIGTERM", "not read, SIGINT"])
def test_the_chat_ends_with_its_terminal(tmp_path, how):
    """While messages arrive."""
    with machines(tmp_path, ("alice",)) as (alice,):
        group = alice.client.create_group("hikers").id
        with terminal(alice) as one:
            one.shows("hikers")
            if how != "closed":
                one.stop_reading()
            for number in range(100):
                alice.client.send_message(group, f"message {number}")
            if how == "closed":
                one.close()
            else:
                one.process.send_signal(getattr(signal, how.rpartition(" ")[2]))
            assert one.process.wait(30) == (0 if how.endswith("SIGINT") else 128 + signal.SIGTERM)


@contextmanager
def shell(folder, machine, columns, lines):
    """A shell in tmux, in which `machine`'s chat can be started."""
    kept = {name: machine.environment[name] for name in ("ZEROCHAT_HOME", "ZEROCHAT_PROFILE")}
    kept |= {"ZEROCHAT_CHAT__TOUR": "false", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with Screen(folder, ["bash", "--norc", "--noprofile", "-i"], kept, columns, lines) as one:
        one.type(f"{sys.executable} -m zerochat")
        one.press("Enter")
        yield one


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
@pytest.mark.parametrize("how", ["SIGSTOP", "SIGTSTP"])
def test_the_chat_comes_back_whole(tmp_path, columns, lines, how):
    with machines(tmp_path, ("alice",)) as (alice,):
        group = alice.client.create_group("hikers").id
        for number in range(lines):
            alice.client.send_message(group, f"message {number}")
        with shell(tmp_path, alice, columns, lines) as one:
            one.shows(f"message {lines - 1}")
            before = one.text().split("\n")
            os.kill(one.foreground(), getattr(signal, how))
            one.shows("Stopped")
            alice.client.send_message(group, "said meanwhile")
            one.type("fg")
            one.press("Enter")
            one.shows("said meanwhile")
            after = one.text().split("\n")
            assert sum("message " in row for row in after) == sum("message " in row for row in before) - 1
            assert (after[0], after[-2]) == (before[0], before[-2])
            one.type("typed")
            one.press("Enter")
            one.shows("typed")
            whole = one.text()
            one.write("\x1b[2J")  # as another program does
            one.gone("typed")
            one.press("C-l")
            one.shows("typed")
            assert one.text() == whole
