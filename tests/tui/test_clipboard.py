"""Copying: choice of the method, and its report."""

import asyncio
import base64
import os
import re
import stat
import sys
from typing import Any

import pytest

from tests.support.tui_pilot import run, scene, weekend
from zerochat.tui.host import clipboard

pytestmark = pytest.mark.usefixtures("utc")
OSC_52 = re.compile(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")


def everything(name):
    return f"/usr/bin/{name}"


@pytest.mark.parametrize(
    ("environ", "platform", "names"),
    [
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "linux", ["wl-copy", "xclip", "xsel"]),
        ({"DISPLAY": ":0"}, "linux", ["xclip", "xsel"]),
        ({}, "linux", []),
        ({}, "darwin", ["pbcopy"]),
        ({"DISPLAY": ":10", "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22"}, "linux", []),
        ({"SSH_TTY": "/dev/ttys1"}, "darwin", []),
    ],
)
def test_copy_tools_by_environment(environ, platform, names):
    assert [way[0] for way in clipboard.copy_tools(environ, platform, everything)] == [
        everything(name) for name in names
    ]
    assert clipboard.copy_tools(environ, platform, lambda name: None) == []


def test_osc_52_carries_exactly_the_text():
    text = "two\nlines \x1b]52;c;bm8=\x07 \u202e"
    plain = clipboard.osc_52(text, {})
    (found,) = OSC_52.findall(plain)
    assert base64.b64decode(found).decode() == text and plain.count("\x1b") == 1
    wrapped = clipboard.osc_52(text, {"TMUX": "/tmp/tmux-0/default,1,0"})
    assert wrapped.startswith(plain) and wrapped[len(plain) :].startswith("\x1bPtmux;\x1b\x1b]52;c;")
    assert wrapped.endswith("\x07\x1b\\")


def test_copied_peer_text_has_no_control_characters():
    assert clipboard.clean("a\tb\r\nc\x1b[2J\x9b1m\u202e") == "a\tb\nc␛[2J\ufffd1m\ufffd"
    assert clipboard.clean("x" * 100_000) == "x" * 100_000 and clipboard.clean("\n" * 65_536) == "\n" * 65_536


def tool(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return [str(path), "--flag"]


def test_a_copy_tool_reads_the_text_from_stdin(tmp_path):
    out = tmp_path / "out"
    way = tool(tmp_path / "copy", f'echo "$#" > {out}.arguments; cat > {out}')
    text = '$(touch /tmp/no) `no`; "quoted"\n'
    assert asyncio.run(clipboard.run_tool(way, text))
    assert out.read_text() == text and (tmp_path / "out.arguments").read_text() == "1\n"
    assert not asyncio.run(clipboard.run_tool(tool(tmp_path / "bad", "cat >/dev/null; exit 3"), text))
    assert not asyncio.run(clipboard.run_tool([str(tmp_path / "nowhere")], text))


def test_a_hanging_copy_tool_times_out(tmp_path, monkeypatch):
    monkeypatch.setattr(clipboard, "TOOL_S_MAX", 0.05)
    pid = tmp_path / "pid"
    way = tool(tmp_path / "hang", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600")
    assert not asyncio.run(clipboard.run_tool(way, "x" * 10))
    if pid.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


class Driver:
    def __init__(self):
        self.written = []

    def write(self, text):
        self.written.append(text)


class App:
    def __init__(self, driver):
        self._driver = driver
        self._clipboard = ""


@pytest.mark.parametrize(
    ("takes", "said", "sent"),
    [
        (["wl-copy"], "5 characters copied (wl-copy).", 0),
        (["xsel"], "5 characters copied (xsel).", 0),
        ([], "5 characters sent to the terminal (OSC 52); not all terminals support it.", 1),
    ],
)
def test_the_copy_report_names_the_method(monkeypatch, takes, said, sent):
    monkeypatch.setattr(clipboard, "which", everything)
    monkeypatch.setattr(clipboard.copy_tools, "__defaults__", (everything,))
    monkeypatch.setattr(sys, "platform", "linux")
    tried = []

    async def run_tool(way, text):
        tried.append((way[0].rpartition("/")[2], text))
        return tried[-1][0] in takes

    app: Any = App(Driver())
    environ = {"WAYLAND_DISPLAY": "w", "DISPLAY": ":0"}
    assert asyncio.run(clipboard.copy(app, "hello", "5 characters", environ=environ, tool=run_tool)) == said
    assert all(text == "hello" for _, text in tried) and app._clipboard == "hello"
    assert len(OSC_52.findall("".join(app._driver.written))) == sent
    assert tried[-1][0] in takes or len(tried) == 3


def test_without_a_terminal_copying_is_internal():
    app: Any = App(None)
    said = asyncio.run(clipboard.copy(app, "hello", "It", environ={"SSH_TTY": "x"}))
    assert "Ctrl+V in zerochat only" in said and app._clipboard == "hello"


def test_message_and_selection_are_copied_and_reported(tmp_path, monkeypatch):
    copied = []

    async def run_tool(way, text):
        copied.append(text)
        return True

    def setting(agent):
        weekend(agent)
        agent.post(agent.groups["g1"], 1, "run `make`\n\tand **wait**", minute=4)

    async def play():
        async with scene(tmp_path, size=(100, 24), setting=setting) as it:
            await it.shows("and wait")
            monkeypatch.setattr(clipboard, "copy_tools", lambda *_: [["/usr/bin/wl-copy"]])
            monkeypatch.setattr(clipboard.copy, "__kwdefaults__", {"environ": None, "tool": run_tool})
            await it.press("f6", "y")
            await it.until(lambda: "24 characters copied (wl-copy)." in it.told())
            assert copied == ["run `make`\n\tand **wait**"]  # What was written, not what is drawn.
            monkeypatch.setattr(clipboard, "copy_tools", lambda *_: [])
            await it.press("k", "y")
            await it.until(
                lambda: "20 characters sent to the terminal (OSC 52); not all terminals support it." in it.told()
            )
            await it.press("escape")
            await it.say("/copy")
            await it.until(lambda: it.app.clipboard == "run `make`\n\tand **wait**")  # the newest
            it.composer.set_text("drafted")
            it.composer.select_all()
            await it.press("ctrl+c")
            await it.until(lambda: "7 characters sent to the terminal" in it.told())
            assert it.app.clipboard == "drafted"

    run(play())
