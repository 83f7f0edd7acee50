"""Queries to peers, and external connections, in the terminal application."""

import time
from pathlib import Path

import msgspec
import pytest

from tests.support.fake_agent import Refusal
from tests.support.tui_pilot import run, scene, weekend
from zerochat.rpc import (
    ConnectionInfo,
    ConnectionMessage,
    ConnectionMessageNotification,
    ConnectionNotification,
    FeatureInfo,
    FeaturesNotification,
    PongNotification,
    ProblemNotification,
    RotatedNotification,
)
from zerochat.rpc.common import timestamp
from zerochat.tui.chat_view import ChatView
from zerochat.tui.style.text import clock_of, clock_text

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("utc")


DID = "did:peer:4zQmVTheirDidWhichIsQuiteLong7xQp"


def pong(thread, peer="bob", **details):
    fields = {
        "rtt_ms": 12,
        "envelope": "didcomm/v2 authcrypt",
        "their_key": DID + "#key-2",
        "my_key": DID,
        "channel": "web",
    }
    return PongNotification(thread=thread, peer=peer, **{**fields, **details})


def test_querying_a_peer(tmp_path, monkeypatch):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/ping BOB")
            await it.until(lambda: it.agent.count("ping_peer") == 1)
            assert ("ping_peer", {"peer": "g1/did:key:z6Mkg10bob"}) in it.agent.asked
            it.agent.tell("pong", pong("another", rtt_ms=9999))
            it.agent.tell("pong", pong("q1", channel="mediator"))
            await it.shows("bob answered in 12 ms, via a", "mediator", "their key did:peer:4zQmV…ng7xQp#key-2")
            assert "9999" not in it.told()
            # An answer may come before the request has returned.
            it.agent.early = [("pong", pong("q2", "the archive"))]
            await it.say("/ping the archive")
            await it.shows("the archive answered in 12 ms, via")
            assert ("ping_peer", {"peer": "the archive"}) in it.agent.asked
            await it.say("/features carol")
            await it.until(lambda: it.agent.count("query_features") == 1)
            assert ("query_features", {"peer": "g1/did:key:z6Mkg11caro", "match": "*"}) in it.agent.asked
            found = [FeatureInfo("protocol", "https://didcomm.org/trust-ping/2.0"), FeatureInfo("goal-code", "x.y")]
            it.agent.tell("features", FeaturesNotification("q3", "carol", found))
            await it.shows(
                "Protocols of carol's agent", "protocol  https://didcomm.org/trust-ping/2.0", "goal-code x.y"
            )
            await it.press("escape")
            await it.say("/features carol")
            await it.until(lambda: it.agent.count("query_features") == 2)
            it.composer.set_text("in the middle of a word")
            it.agent.tell("features", FeaturesNotification("q4", "carol", found * 5))
            await it.until(lambda: "and 2 more" in it.told())
            assert isinstance(it.app.screen, ChatView)
            it.composer.set_text("")
            monkeypatch.setattr("zerochat.tui.actions.peers.ANSWER_S_MAX", 0.05)
            await it.say("/ping bob")
            await it.until(lambda: "No answer from bob within 0.05 s." in it.told())

    run(play())


@pytest.mark.slow
def test_an_ambiguous_peer_is_not_queried(tmp_path):
    def twins(agent):
        agent.add_group("weekend", ["bob", "Bob", "carol"])

    async def play():
        async with scene(tmp_path, size=(100, 24), setting=twins) as it:
            await it.shows("● carol")
            await it.say("/ping")
            await it.until(lambda: "Usage: /ping NAME" in it.told())
            await it.say("/ping bob")
            await it.until(lambda: "2 members are called bob. Press Tab to add" in it.told())
            assert it.agent.count("ping_peer") == 0
            for text, completed in [
                ("/ping ca", "/ping carol"),
                ("/ROTATE BOB·1", "/ROTATE Bob·1Bob"),
                ("/ping x", None),
            ]:
                it.composer.set_text(text)
                await it.press("tab")
                assert it.composer.text == (completed or text)
            await it.until(lambda: "No one here has that name." in it.told())
            it.composer.set_text("/ping b")
            await it.press("tab")
            await it.shows("bob·0bob  Bob·1Bob")
            await it.say("/ping Bob·1Bob")
            await it.until(lambda: ("ping_peer", {"peer": "g1/did:key:z6Mkg11Bob"}) in it.agent.asked)
            it.agent.refuse["ping_peer"] = Refusal("There is no way to bob at the moment.")
            await it.say("/ping carol")
            await it.until(lambda: "There is no way to bob" in it.told())

    run(play())


def test_rotation_is_reported_when_confirmed(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            bob = it.agent.groups["g1"].members[1].did
            it.agent.tell(
                "did_rotated", RotatedNotification("g1", bob, "bob", True)
            )  # At a first contact: nobody has asked.
            await it.say("/rotate bob")
            await it.until(lambda: "You now use a new DID with bob" in it.told())
            assert ("rotate_did", {"peer": f"g1/{bob}", "every_s": None}) in it.agent.asked
            it.agent.tell("did_rotated", RotatedNotification("g1", bob, "bob", False))
            assert "knows" not in it.told()
            it.agent.tell("did_rotated", RotatedNotification("g1", bob, "bob", True))
            await it.until(lambda: "bob confirmed your new DID" in it.told())

    run(play())


def test_connection_notifications(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.tell("connection_message", ConnectionMessageNotification("c1", "the archive", "two\nlines"))
            await it.shows("the archive: two", "lines", "/messages the archive shows it")
            it.agent.tell(
                "connection_changed", ConnectionNotification(connection="c1", text="Connected with the archive.")
            )
            await it.until(lambda: "Connected with the archive." in it.told())
            it.agent.tell("problem_report", ProblemNotification("the archive", "e.p.me", "no room"))
            await it.until(lambda: "the archive reports a problem: no room (e.p.me)" in it.told())

    run(play())


@pytest.mark.slow
def test_messaging_a_connection(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.connections = [
                ConnectionInfo(
                    id=f"c{number}abcd",
                    label=label,
                    state="established",
                    envelope="didcomm/v2",
                    did="did:peer:4zQm" + "V" * 40,
                    my_did="did:peer:4zQmMine",
                    mediator="granted" if mediator else None,
                    reachable=False if mediator else None,
                    begun_at="2025-11-20T12:00:00.000Z",
                )
                for number, (label, mediator) in enumerate(
                    [("the", None), ("the archive", None), ("did:peer:4zQmVVVV", None), ("relay", "granted")]
                )
            ]
            await it.say("/connections")
            await it.shows("the archive ", "did:peer:4zQmV…VVVVVV ", "unreachable (c3abcd)")
            await it.press("escape")
            await it.say("/message the archive keep  it")
            await it.until(lambda: "Message to the archive is on its way" in it.told())
            await it.say('/message "the" archive')
            await it.until(lambda: it.agent.count("send_connection_message") == 2)
            await it.say("/message c2abcd x")
            await it.until(lambda: it.agent.count("send_connection_message") == 3)
            told = [params for method, params in it.agent.asked if method == "send_connection_message"]
            assert told == [
                {"peer": "c1abcd", "text": "keep  it"},
                {"peer": "c0abcd", "text": "archive"},
                {"peer": "c2abcd", "text": "x"},
            ]
            await it.say("/message nobody SECRET")
            await it.until(lambda: "No connection is called nobody. /connections lists the names" in it.told())
            assert it.composer.text == "/message nobody SECRET" and it.agent.count("send_connection_message") == 3
            it.agent.letters = [
                ConnectionMessage("1", "2025-11-20T12:00:00.000Z", False, "hello\x1b\nFORGED  you: I agree"),
                ConnectionMessage("2", "2025-11-20T12:01:00.000Z", True, "keep it"),
            ]
            await it.say("/messages THE archive")
            await it.shows("Messages with the archive", "the archive: hello␛", "you: I agree", "you: keep it")
            (mine,) = [line for line in it.text.splitlines() if "you: keep it" in line]
            (forged,) = [line for line in it.text.splitlines() if "you: I agree" in line]
            assert forged.index("FORGED") > mine.index(clock_text("2025-11-20T12:01:00.000Z"))
            assert ("list_connection_messages", {"peer": "c1abcd"}) in it.agent.asked
            await it.press("escape")
            it.agent.hidden = True
            await it.say("/status")
            await it.shows("this agent only dials out", "http://192.0.2.7:8080", "relay: unreachable")
            assert it.agent.count("send_message") == 0

    run(play())


HEARD_MS = int(time.time()) // 86_400 * 86_400_000
"""The midnight behind us, so that it is of today."""


@pytest.mark.slow
def test_a_member_via_a_mediator(tmp_path):
    """It is not called connected: shown is when it was last heard, as of now."""

    def heard(agent, ms):
        (group,) = agent.groups.values()
        group.members[1] = msgspec.structs.replace(group.members[1], via="mediator", last_seen=timestamp(ms))
        group.info = msgspec.structs.replace(group.info, via_mediator=1)
        return f"◎ bob mail {clock_of(timestamp(ms))}"

    def behind(agent):
        agent.add_group("weekend", ["bob"])
        heard(agent, HEARD_MS)

    async def play():
        async with scene(tmp_path, size=(100, 24), setting=behind) as it:
            (group,) = it.agent.groups.values()
            await it.shows(heard(it.agent, HEARD_MS))
            await it.say("hello")
            await it.shows("0/1 connected, 1 via mediator", "alice │ hello")
            later = heard(it.agent, HEARD_MS + 60_000)
            it.agent.receipt(group, 1, group.events[-1].position)
            await it.shows(later)
            later = heard(it.agent, HEARD_MS + 120_000)
            it.agent.say(group, 1, "hello back")
            await it.shows(later)
            await it.say("/members")
            await it.until(lambda: it.app.focused is it.app.chat.query_one("#members"))
            await it.press("down", "down", "enter")
            await it.shows("connection   via a mediator", "last seen")

    run(play())
