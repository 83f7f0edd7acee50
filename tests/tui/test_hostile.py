"""Hostile text in the terminal application, on the composed screen and at a real terminal."""

import fcntl
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
from msgspec.structs import replace

from tests.support.fake_agent import ME, Refusal
from tests.support.tui_pilot import HOSTILE, assert_harmless, run, scene
from zerochat.rpc import (
    ConnectionMessageNotification,
    ConnectionNotification,
    FeatureInfo,
    FeaturesNotification,
    PongNotification,
    ProblemNotification,
    Quote,
    Reaction,
)
from zerochat.tui.chat_view import ChatView

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("utc")


def everywhere(agent):
    agent.nick = "me" + HOSTILE
    group = agent.add_group("g" + HOSTILE, ["b" + HOSTILE, "b" + HOSTILE], id="g1")
    group.info = replace(group.info, keys=HOSTILE, path=HOSTILE, accountability=HOSTILE, view=HOSTILE)
    agent._log(group, 1, "member_joined", {"did": HOSTILE, "nick": HOSTILE})
    agent.post(group, 1, HOSTILE, minute=1)
    agent.post(group, 0, "end" + HOSTILE, minute=2, delivered=1)
    agent.warning = HOSTILE
    agent.url, agent.code = "https://zerochat.org/" + HOSTILE, "ZC:" + HOSTILE


@pytest.mark.slow
def test_peer_text_never_reaches_the_terminal_raw(tmp_path):
    """Every place that shows a string from the agent, at once hostile and read back from the composed screen."""

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=everywhere) as it:
            seen = []

            def look():
                assert_harmless(it.text)
                seen.append(it.text)

            await it.shows("end␛]52;c;aGk=␇[@click=")
            await it.until(lambda: len([line for line in it.text.split("\n") if "●" in line]) == 3, "the members")
            look()
            group = it.agent.groups["g1"]
            it.agent.used(group, HOSTILE)
            await it.shows("used your invitation")
            look()
            for keys, sign in [
                (("f12",), "listener"),
                (("f9",), "Delivered to"),
                (("f10",), "Leave g"),
                (("ctrl+k",), "Go to"),
                (("f8",), "Your name"),
                (("f3",), "Invitation to"),
            ]:
                await it.press(*keys)
                await it.shows(sign)
                look()
                if keys == ("f3",):
                    it.agent.used(group, HOSTILE)
                    await it.shows("used by")
                    look()
                if keys == ("f8",):
                    await it.paste("x")
                    await it.press("enter")
                    it.agent.joining("exchanging", HOSTILE)
                    await it.shows("✓ contact")
                    look()
                await it.press("escape")
                await it.until(lambda: isinstance(it.app.screen, ChatView))
            await it.say("/members")
            await it.press("down", "enter")
            await it.shows("admitted by")
            look()
            await it.press("escape", "escape")  # From the dialog to the list, from the list to the composer.
            it.agent.refuse["send_message"] = Refusal(HOSTILE)
            await it.say("x")
            await it.until(lambda: "aGk" in it.told())
            await it.pilot.pause()
            look()
            await it.say("/" + HOSTILE)
            await it.until(lambda: "No command" in it.told())
            await it.pilot.pause()
            look()
            pong = PongNotification(
                thread="q1",
                peer=HOSTILE,
                rtt_ms=12,
                envelope="kind" + HOSTILE,
                their_key=HOSTILE,
                my_key="k",
                channel="web",
            )
            hurt = [
                ("connection_message", ConnectionMessageNotification("c", HOSTILE, "told" + HOSTILE), "told␛"),
                ("connection_changed", ConnectionNotification(connection="c", text="changed" + HOSTILE), "changed␛"),
                ("problem_report", ProblemNotification(HOSTILE, "code" + HOSTILE, HOSTILE), "code␛"),
                ("pong", pong, "kind␛"),
                (
                    "features",
                    FeaturesNotification("q2", HOSTILE, [FeatureInfo(HOSTILE, "feature" + HOSTILE)]),
                    "feature␛",
                ),
            ]
            for method, news, sign in hurt:
                if method in ("pong", "features"):
                    question = "ping_peer" if method == "pong" else "query_features"
                    command = "ping" if method == "pong" else "features"
                    await it.say(f"/{command} somebody")
                    await it.until(lambda question=question: it.agent.count(question))
                it.agent.tell(method, news)
                await it.until(lambda sign=sign: sign in it.told() + it.text)
                await it.pilot.pause()
                look()
            assert it.app.is_running and len(seen) == 18

    run(play())


@pytest.mark.slow
def test_no_message_action_shows_raw_text(tmp_path):
    def setting(agent):
        group = agent.add_group("g", ["bob" + HOSTILE])
        group.info = replace(group.info, envelope=HOSTILE, topic=HOSTILE)
        first = agent.post(group, 1, HOSTILE + " https://x.example/" + HOSTILE + " https://y.example", minute=1)
        agent.change(group, first.id, reactions=[Reaction(HOSTILE, [ME, HOSTILE])], parents=[HOSTILE] * 20)
        second = agent.post(group, 1, "# " + HOSTILE + "\n[a](" + HOSTILE + ")\n```" + HOSTILE + "\nx\n```", minute=2)
        agent.change(group, second.id, reply_to=HOSTILE, quoted=Quote(id=HOSTILE, author=first.author, text=HOSTILE))
        agent.post(group, 0, HOSTILE, minute=3)

    async def play():
        async with scene(tmp_path, size=(100, 45), setting=setting) as it:
            seen = []

            def look(sign):
                assert_harmless(it.text)
                seen.append(sign)

            await it.until(lambda: it.open is not None and it.open.timeline.posts == 3)
            pane = it.app.chat.pane
            pane.letters_always = True
            for key, sign in [("e", "Editing:"), ("d", "for all members?")]:
                pane.select(it.open.timeline.keys[-1])
                it.app.chat.set_focus(pane)
                await it.press(key)
                await it.shows(sign)
                look(sign)
                await it.press("escape")
            for number, keys in enumerate(["oimr", "imr"]):
                for key in [*keys, "f", "plus"]:
                    pane.select(it.open.timeline.keys[1 + number])
                    it.app.chat.set_focus(pane)
                    await it.press(key)
                    signs = {
                        "o": "Open which",
                        "i": "Message info",
                        "m": "Enter chooses",
                        "r": "Replying to",
                        "plus": "React with",
                    }
                    await it.shows(signs.get(key, "Esc closes"))
                    look(key)
                    if key == "o":
                        await it.press("enter")
                        await it.until(lambda: "cannot be displayed" in it.told() or "Open this link" in it.text)
                        look("link")
                    await it.press("escape")
                    await it.until(lambda: it.app.screen is it.app.chat)
            await it.press("escape")
            pane.select(it.open.timeline.keys[2])
            it.app.chat.set_focus(pane)
            await it.press("g")  # There is no such message.
            await it.until(lambda: "here" in it.told())
            look("g")
            assert it.app.is_running and len(seen) == 15

    run(play())


PLAY = """
import asyncio, sys
from pathlib import Path
from tests.support.fake_agent import FakeAgent
from tests.tui.test_hostile import everywhere
from zerochat.tui.app import ZerochatApp

async def play():
    async with FakeAgent(Path(sys.argv[1])) as agent:
        everywhere(agent)
        await ZerochatApp(agent.path).run_async()

asyncio.run(play())
"""


@pytest.mark.slow
def test_output_at_a_real_terminal(tmp_path):
    """The bytes themselves, at the other end of a pseudo-terminal: also what goes round the composed screen."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [sys.executable, "-c", PLAY, str(tmp_path / "agent.sock")]
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    ) as process:
        os.close(slave)
        got = b""
        quitting = False
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                more = os.read(master, 65536)
            except OSError:  # What Linux says at the end of a terminal.
                break
            if not more:
                break
            got += more
            if b"end\xe2\x90\x9b" in got and not quitting:
                quitting = True
                os.write(master, b"\x11")
        assert process.wait(10) == 0, got[-2000:]
    os.close(master)
    assert quitting and b"aGk=" in got
    for payload in (b"\x1b]52", b"\xc2\x9b", "\u202e".encode(), b"\x1b]0;", b"\x1b]2;"):
        assert payload not in got, payload
