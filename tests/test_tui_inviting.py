"""The terminal application and invitations: one, those that are open, and joining by a picture."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fake_agent import CODE, URL, Refusal
from tests.pilot import HOSTILE, asked, run, scene, weekend
from zerochat.agent.pictures import code_png
from zerochat.agent.schema import Invitee, OpenInvitation
from zerochat.tui.invitations import InvitationsScreen
from zerochat.tui.invite import InviteScreen
from zerochat.tui.join import JoinScreen

UNTIL = "2025-11-21T12:00:00.000Z"
AT = "2025-11-20T12:30:00.000Z"


def inviting(agent):
    weekend(agent)
    agent.open_invitations = [
        OpenInvitation(
            id="aaaa",
            group="g1",
            expires_at=UNTIL,
            uses=3,
            invitees=[
                Invitee(state="joined", nick="dora", at=AT),
                Invitee(state="waiting", nick="emil", at=AT),
                Invitee(state="joining", at=AT),
            ],
        ),
        OpenInvitation(id="bbbb", group="g1", expires_at=UNTIL, uses=0, role="reader", history="none"),
        OpenInvitation(id="cccc", group="g2", expires_at=UNTIL, uses=1),
    ]


def test_open_invitations(tmp_path):
    async def play():
        async with scene(tmp_path, setting=inviting) as it:
            await it.shows("seven at the station")
            await it.say("/invitations")
            await it.shows("Open invitations to weekend", "1 of 3 in, 1 waits", "0 of any number in")
            await it.shows(
                "dora         ✓ joined", "emil         waits for your answer (F4), since", "somebody     is joining"
            )
            await it.press("down")
            await it.shows("for          reading only", "used by      nobody yet")
            it.agent.open_invitations[1] = replace(
                it.agent.open_invitations[1], invitees=[Invitee(state="joining", at=AT)]
            )
            await it.shows("somebody     is joining")  # It asks again by itself.
            await it.press("x")
            await it.shows("Take this invitation back?")
            await it.press("enter")  # The harmless answer has the focus.
            await it.gone("Take this invitation back?")
            assert it.agent.count("revoke") == 0
            await it.press("up", "x")
            await it.shows("Who waits is told no.")
            await it.press("y")
            await it.shows("It is taken back")
            await it.gone("1 of 3 in")
            assert asked(it.agent, "revoke") == [{"group": "g1", "invitation": "aaaa"}]
            it.agent.refuse["revoke"] = Refusal("It is gone already.")
            await it.press("x", "y")
            await it.shows("It is gone already.")
            it.agent.open_invitations = []
            await it.shows("None is open. n makes one.")
            await it.press("x", "n")
            await it.shows("Invitation to weekend")
            await it.press("o")
            await it.shows("None is open.")

    run(play())


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (200, 50), (10, 3)])
def test_open_invitations_of_hostile_people(tmp_path, size):
    def hostile(agent):
        inviting(agent)
        agent.groups["g1"].info = replace(agent.groups["g1"].info, name="g" + HOSTILE)
        many = [Invitee(state="waiting", nick=f"{number}{HOSTILE}", at=HOSTILE) for number in range(40)]
        agent.open_invitations = [
            replace(agent.open_invitations[0], invitees=many, expires_at=HOSTILE, history=HOSTILE, id=f"a{number}")
            for number in range(30)
        ]

    async def play():
        async with scene(tmp_path, size=size, setting=hostile) as it:
            await it.until(lambda: it.open is not None and it.open.loaded)
            await it.say("/invitations")
            await it.until(lambda: isinstance(it.app.screen, InvitationsScreen) and it.app.screen._found)
            await it.press("down", "x")
            await it.pilot.pause()
            assert not {char for char in it.text if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160)}
            assert it.app.is_running

    run(play())


def test_an_invitation_is_hidden_from_whoever_sees_the_screen(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("▀", "zerochat.org/?_oob", "s hide")
            await it.press("s")
            await it.shows("Hidden, so that nobody who sees this screen can use it: s shows it.", "s show")
            assert not re.search(r"[▀▄█]{4}", it.text) and "_oob" not in it.text and "ZC:" not in it.text
            await it.press("t")  # Whoever wants another form of it wants it hidden still.
            await it.pilot.pause()
            assert "_oob" not in it.text and "ZC:" not in it.text
            await it.press("t", "s")
            await it.shows("▀", "zerochat.org/?_oob")

    run(play())


def test_every_key_of_an_invitation_has_room(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("c link", "h history", "o open", "Esc")
            keys = it.text.split("\n")[-1]
            assert keys.rstrip().endswith("Esc") and len(keys) <= 80

    run(play())


def test_how_long_an_invitation_is_good(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("e time")
            await it.press("e")
            await it.until(lambda: it.agent.count("invite") == 2)
            await it.pilot.click("#expiry")
            await it.until(lambda: it.agent.count("invite") == 3)
            assert [each["expires_s"] for each in asked(it.agent, "invite")] == [86_400, 604_800, 3_600]

    run(play())


def test_a_code_is_saved_as_a_picture_and_read_off_it(tmp_path, monkeypatch):
    zxingcpp = pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    pytest.importorskip("PIL", reason="Pillow is not installed")
    assert zxingcpp
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("p PNG")
            await it.press("p")
            await it.shows("Saved as")
            await it.press("p")
            await it.until(lambda: len(list((tmp_path / "downloads").iterdir())) == 2, "a second picture")
            first = tmp_path / "downloads" / "invitation to weekend.png"
            assert first.read_bytes() == code_png(CODE)
            await it.press("escape", "f8")
            await it.shows("Paste the invitation")
            await it.paste(str(first).replace(" ", "\\ "))
            await it.until(lambda: it.app.screen._box.text == CODE)
            await it.shows("Read off the picture")
            await it.press("enter")
            await it.until(lambda: it.agent.count("join") == 1)
            assert asked(it.agent, "join")[0]["invitation"] == CODE

    run(play())


def test_a_picture_without_a_code_loses_nothing(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    empty = tmp_path / "cat.png"
    image.new("L", (200, 200), 255).save(empty)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say(f"/join {empty}")
            await it.until(lambda: isinstance(it.app.screen, JoinScreen))
            await it.shows("No QR code can be found in")
            assert it.app.screen._box.text == str(empty) and it.agent.count("join") == 0
            it.app.screen._box.put(URL)
            await it.press("enter")
            await it.until(lambda: it.agent.count("join") == 1)

    run(play())


def test_a_folder_that_takes_no_picture_is_said(tmp_path, monkeypatch):
    (tmp_path / "downloads").write_text("no folder")
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("p PNG")
            await it.press("p")
            await it.until(lambda: it.app.screen._news.has_class("-trouble"))
            assert isinstance(it.app.screen, InviteScreen) and Path(tmp_path / "downloads").is_file()

    run(play())
