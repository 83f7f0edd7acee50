"""The terminal itself: one that is closed, does not read, comes back, or counts cells differently."""

import os
import pty
import signal
import sys
import termios
import threading
from contextlib import contextmanager, suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich._emoji_codes import EMOJI
from rich.cells import cell_len
from textual._xterm_parser import XTermParser
from textual.events import Paste

from screens.tmux import Screen
from tests.support.machines import machines, meet, until
from tests.support.screen import Picture
from tests.support.terminals import terminal
from zerochat.terminal_text import cells, printable_line
from zerochat.tui.host.cell_grid import on_grid
from zerochat.tui.host.driver import BACKLOG_CHARS_MAX, PASTE_END, PASTE_START, Decoder, Output
from zerochat.tui.host.terminal import mouse_wanted
from zerochat.tui.style.text import wrap

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


# --- input ----------------------------------------------------------------------------------------------------------


def keys_and_pastes(data, pieces):
    """What Textual makes of the bytes, read `pieces` at a time."""
    parser, decode, events = XTermParser(), Decoder(), []
    for at in range(0, len(data), pieces):
        if text := decode(data[at : at + pieces]):
            events += parser.feed(text)
    return [event.text if isinstance(event, Paste) else event.key for event in events]


@pytest.mark.parametrize("pieces", [1, 2, 7, 1_000])
def test_escape_characters_in_a_paste_press_no_key(pieces):
    pasted = "\x1b[31mred\x1b[0m\x1b\x1b[20 é你\x1b\r\x11\x1b"
    data = f"a{PASTE_START}{pasted}{PASTE_END}\x1b[Ab{PASTE_START}x{PASTE_END}é".encode()
    plain = pasted.replace("\x1b", "")
    assert keys_and_pastes(data, pieces) == ["a", plain, "up", "b", "x", "é"]


def test_an_escape_key_does_not_wait():
    assert Decoder()(b"\x1b") == "\x1b"


# --- widths ---------------------------------------------------------------------------------------------------------

HINDI, TAMIL, SINHALA, PERSIAN = "हिन्दी", "தமிழ்", "ශ්\u200dරී", "می\u200cخواهم"
WAVE, FAMILY, FLAG, HEART, KEYCAP = "👋🏽", "👨\u200d👩\u200d👧", "🇩🇪", "\u2764\ufe0f", "1\ufe0f\u20e3"
FUTURE = "\U0001faea"
SKIN_TONES = "🏻🏼🏽🏾🏿"
"""Rich gives one by itself no cell."""
HARD = (HINDI, TAMIL, SINHALA, PERSIAN, WAVE, FAMILY, FLAG, HEART, KEYCAP, FUTURE, "e\u0301", "\u3042\u3099", "한")
TERMINALS = {
    "each character by itself": cells,
    "marks and modifiers without a cell": cell_len,
    "hearts and flags are wide": lambda char: 2 if char == "\u2764" or char > "\U0001f000" else cells(char),
    "new emoji are narrow": lambda char: 1 if char == FUTURE else cells(char),
}


@pytest.mark.parametrize("width", TERMINALS.values(), ids=TERMINALS)
@given(texts=st.lists(st.sampled_from([*HARD, " ", "a", "я", "│", "你"]), max_size=20))
@example(texts=[HINDI, " ", FAMILY, "a", FLAG])
@example(texts=["\u0301", KEYCAP])
def test_rows_do_not_shift(width, texts):
    text = printable_line("".join(texts))
    picture = Picture(1, 200, width)
    picture.write("#" * 200)
    picture.write(on_grid(f"\x1b[1;1H\x1b[38;5;1m{text}\x1b[0m" + " " * (120 - cell_len(text)) + "│✓1/1"))
    picture.write("\x1b[1;122H*")  # the cell of the tick, by its number
    assert picture.text[0].endswith("│*1/1" + "#" * 75)
    assert "#" not in picture.text[0].partition("│*")[0]


def test_the_command_line_counts_cells_as_the_chat():
    for text in {*HARD, *EMOJI.values()} - {FUTURE, *SKIN_TONES}:
        assert cells(printable_line(text)) == cell_len(printable_line(text)), ascii(text)
        assert cells(printable_line(f"a{text}" * 30, 16)) in (15, 16)


@pytest.mark.parametrize("word", [HINDI, TAMIL, SINHALA, PERSIAN])
def test_no_letter_of_a_word_is_overwritten(word):
    picture = Picture(1, 80)
    picture.write(on_grid(f"{word} {word}."))
    shown = picture.text[0]
    visible = "".join(char for char in word if cells(char))
    assert shown.startswith(f"{visible} {visible}.")


def test_no_picture_is_overwritten_by_another_one():
    picture = Picture(1, 80)
    picture.write(on_grid(f"{WAVE}{WAVE}{FAMILY}!"))
    assert picture.text[0].startswith("👋👋👨!")


def test_settled_text_is_sent_as_it_is():
    for text in ("plain", "Привет, Ольга", "你好，世界", "한국어", "שלום", "│ box ─", "✓12/24 …"):
        assert on_grid(f"\x1b[3;1H{text}\x1b[0m") == f"\x1b[3;1H{text}\x1b[0m"


def test_control_sequences_are_not_part_of_a_run():
    assert on_grid(f"\x1b[1m{FLAG}").startswith("\x1b[1m\x1b7")
    assert on_grid(f"\x1b]0;{FLAG}\x07") == f"\x1b]0;{FLAG}\x07"


def test_wrapped_lines_fit_a_terminal_with_vowel_signs():
    for line in wrap(" ".join([HINDI, TAMIL] * 20), 30):
        assert sum(map(cells, line)) <= 30


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


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_edges_are_straight_in_tmux(tmp_path, columns, lines):
    """While messages arrive; tmux counts each character by itself, except joined characters and new emoji."""
    words = [word for word in HARD if word not in (FAMILY, FUTURE, SINHALA)]
    with machines(tmp_path, ("alice", "bob")) as (alice, bob):
        meet(alice, bob)
        group = alice.group().id
        with shell(tmp_path, alice, columns, lines) as one:
            one.shows("friends")
            if columns < 100:
                one.press("F2")  # the member list at the right edge
            for word in words:
                bob.client.send_message(group, f"{word}{word}")
                alice.client.send_message(group, f"{word} {word}, so")
            one.shows(f"{words[-1]}, so")
            until(lambda: one.text().count(", so  ✓1/1") >= 5, "that bob has them")
            rows = [row for row in one.text().split("\n") if any(word in row for word in words)]
            edges = {sum(map(cells, row[: row.rindex("│")])) for row in rows}
            assert len(edges) == 1, rows
