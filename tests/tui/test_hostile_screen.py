"""Hostile peer text never reaches the terminal as a control sequence.

`tests/support/hostile_tour.py` opens every place of the chat that shows peer text, on a pseudo-terminal; the verbs of
the command line print the same texts. The output is parsed byte by byte (`tests/support/hostile_text.py`).
"""

import asyncio
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.hostile_text import BUNDLES, HARMLESS, PAYLOADS, Sent, unplaced
from tests.support.hostile_tour import LONG, HostileAgent, furnish
from tests.support.marks import others_slow
from tests.support.tui_pilot import run, scene, weekend
from zerochat.agent.storage.paths import profile_paths
from zerochat.terminal_text import printable, printable_line
from zerochat.tui.host.notify import Notification

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240.0
"""Of a whole tour, on a machine that has much else to do. Whoever reaches it has hung."""


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_tour_covers_every_place(name):
    """What is sent to a terminal as it came is noticed, and made showable it is not."""
    for text in (PAYLOADS[name], f"before {PAYLOADS[name]} after"):
        raw = Sent(text.encode("utf-8"))
        assert raw.bad or name in HARMLESS, repr(text)
        assert not Sent(printable_line(text).encode()).bad
        assert not Sent(printable(text).replace("\n", "\r\n").encode()).bad


def test_every_payload_is_complete_in_some_name():
    assert len(PAYLOADS) >= 15
    assert "".join(BUNDLES) == "".join(PAYLOADS.values())


def at_a_terminal(command: list[str], size: tuple[int, int], **environment: str) -> tuple[int, bytes]:
    """Run a program on a pseudo-terminal: its exit code, and every byte that came out."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT), **environment}
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    ) as process:
        os.close(slave)
        output = bytearray()
        deadline = time.monotonic() + DEADLINE_S
        while True:
            if time.monotonic() > deadline:
                process.kill()
                raise AssertionError(f"it does not end; the last of it: {bytes(output[-2000:])!r}")
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                more = os.read(master, 65_536)
            except OSError:  # What Linux says at the end of a terminal.
                break
            if not more:
                break
            output += more
        code = process.wait(30)
    os.close(master)
    return code, bytes(output)


@pytest.mark.slow
@pytest.mark.parametrize("names", [1, pytest.param(len(BUNDLES), marks=pytest.mark.long)])
def test_no_payload_byte_reaches_a_terminal(tmp_path, names):
    """Every place once; where a place shows one name at a time, with as many `names` in turn."""
    report = tmp_path / "report"
    command = [
        sys.executable,
        "-m",
        "tests.support.hostile_tour",
        str(tmp_path / "agent.sock"),
        str(report),
        str(names),
    ]
    code, output = at_a_terminal(command, (120, 40))
    assert report.exists(), output[-3000:]
    seen = report.read_text(encoding="utf-8")
    print("\n".join(line for line in seen.split("\n") if "ms" in line))
    assert code == 0 and seen.endswith("alive True"), seen[-6000:]
    sent = Sent(unplaced(output))
    assert not sent.bad, sent.bad
    for sign in ("[@click=app.quit]x[/]", "[/b][/][bold", "$body {0} %s %n \\["):
        assert sign in sent.text, f"{sign} does not stand there as it was written"


# --- the command line -----------------------------------------------------------------------------------------------

VERBS = [
    ["status"],
    ["members", "g1"],
    ["info", "g1"],
    ["history", "g1", "-n", "200"],
    ["requests", "g1"],
    ["verify", "g1"],
    ["delivery", "g1", "last"],
    ["why", "g1", "last"],
    ["connections"],
    ["messages", "c0"],
    ["invite", "g1"],
]


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["text", "jsonl"])
def test_no_verb_prints_a_payload(tmp_path, format_):
    """At a terminal, where text and narration come out together."""
    environment = {"ZEROCHAT_HOME": str(tmp_path)}
    socket = profile_paths(None, environment).socket
    socket.parent.mkdir(parents=True, exist_ok=True)

    async def play():
        async with HostileAgent(socket) as agent:
            furnish(agent)
            for number, text in enumerate(PAYLOADS.values()):
                agent.ask(agent.groups["g1"], f"{text} {number}", "reader")
            for verb in VERBS:
                command = [sys.executable, "-m", "zerochat", *verb, "--format", format_]
                code, output = await asyncio.to_thread(at_a_terminal, command, (100, 40), **environment)
                sent = Sent(output)
                assert not sent.bad, (verb, sent.bad)
                assert code == (7 if verb[0] == "why" else 0), (verb, sent.text)
                assert sent.text.strip(), verb
                if format_ == "jsonl":  # Narration is for people, and stands beside it.
                    data = [line for line in output.splitlines() if line.startswith(b'{"')]
                    assert data and all(line.isascii() and json.loads(line) for line in data)

    run(play())


# --- what goes elsewhere than to the screen -------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAYLOADS)
def test_notifications_carry_no_escape_sequences(name):
    """To the desktop it goes as text that can be shown, to a program as ASCII that no line can be broken out of."""
    text = PAYLOADS[name]
    notice = Notification("g", text, text, text, text, True, text, text)
    assert not Sent(f"{notice.title()} {notice.body()}".encode()).bad
    line = notice.as_json(text)
    assert line.isascii() and line.count(b"\n") == line.endswith(b"\n") and b"\x1b" not in line
    assert json.loads(line)["text"] == text


# --- what is no text at all -----------------------------------------------------------------------------------------


def test_half_a_character_breaks_nothing(tmp_path):
    """JSON can carry a lone surrogate, which is no text: no encoder takes it, so it must not come as far as that."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            event = it.agent.post(it.agent.groups["g1"], 1, "HALF")
            line = json.dumps({"jsonrpc": "2.0", "method": "event", "params": as_json(event)})
            for half in (r"\ud800", r"\udfff", r"\ud83d\u0041"):
                for writer in it.agent._writers:
                    writer.write(line.replace("HALF", half).encode() + b"\n")
            it.agent.say(it.agent.groups["g1"], 1, "and on")
            await it.shows("and on")
            assert "HALF" not in it.text and it.app.is_running

    run(play())


def as_json(value):
    import msgspec

    return msgspec.to_builtins(value)


@pytest.mark.parametrize("number", others_slow(range(len(LONG)), 2))
def test_endless_text_takes_bounded_time(tmp_path, number):
    """Longer than a member can send: what is drawn of it is bounded, whatever came."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            began = time.monotonic()
            it.agent.say(it.agent.groups["g1"], 1, f"begins {LONG[number]}", minute=4)
            await it.until(lambda: any("begins" in row.text for row in it.open.timeline.rows))
            await it.pilot.pause()
            print(f"{len(LONG[number]):,} characters drawn after {1000 * (time.monotonic() - began):.0f} ms")
            assert it.open.timeline.tops[-1] < 5_000
            await it.press("pageup", "pagedown")
            it.agent.say(it.agent.groups["g1"], 2, "shorter, please", minute=5)
            await it.shows("shorter, please")

    run(play())
