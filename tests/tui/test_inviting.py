"""Invitations in the terminal application: showing, listing, revoking, joining by paste or picture."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.events import Paste

from tests.support.fake_agent import CODE, URL, Refusal
from tests.support.marks import others_slow
from tests.support.tui_pilot import HOSTILE, asked, assert_harmless, run, scene, strips, weekend
from zerochat.agent.invitations.qr_pictures import code_png
from zerochat.presentation import group_kinds
from zerochat.rpc import Invitee, OpenInvitation, PolicyInfo
from zerochat.slash_commands import invite_arguments
from zerochat.tui.dialogs.invitations import InvitationsDialog
from zerochat.tui.dialogs.invite import InviteDialog
from zerochat.tui.dialogs.join import JoinDialog

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


@pytest.mark.slow
def test_open_invitations(tmp_path):
    async def play():
        async with scene(tmp_path, setting=inviting) as it:
            await it.shows("seven at the station")
            await it.say("/invitations")
            await it.shows("Open invitations to weekend", "1 of 3 joined, 1 waiting", "0 of any number joined")
            await it.shows(
                "dora         ✓ joined",
                "emil         waiting for your answer (/requests), since",
                "unknown      joining",
            )
            await it.press("down")
            await it.shows("access       read only", "used by      no one yet")
            it.agent.open_invitations[1] = replace(
                it.agent.open_invitations[1], invitees=[Invitee(state="joining", at=AT)]
            )
            await it.shows("unknown      joining")  # It asks again by itself.
            await it.press("x")
            await it.shows("Revoke this invitation?")
            await it.press("enter")  # The harmless answer has the focus.
            await it.gone("Revoke this invitation?")
            assert it.agent.count("revoke_invitation") == 0
            await it.press("up", "x")
            await it.shows("Waiting requests are refused.")
            await it.press("y")
            await it.shows("Invitation revoked.")
            await it.gone("1 of 3 joined")
            assert asked(it.agent, "revoke_invitation") == [{"group": "g1", "invitation": "aaaa"}]
            it.agent.refuse["revoke_invitation"] = Refusal("It is gone already.")
            await it.press("x", "y")
            await it.shows("It is gone already.")
            it.agent.open_invitations = []
            await it.shows("No open invitations. Press F3 to create one.")
            await it.press("x", "n")
            assert it.agent.count("create_invitation") == 0, "a letter creates nothing"
            await it.press("f3")
            await it.shows("Invitation to weekend")
            await it.press("o")
            await it.shows("No open invitations. Press F3 to create one.")

    run(play())


@pytest.mark.parametrize("size", others_slow([(40, 12), (80, 24), (200, 50), (10, 3)]))
def test_open_invitations_with_hostile_names(tmp_path, size):
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
            await it.until(lambda: isinstance(it.app.screen, InvitationsDialog) and it.app.screen._found)
            await it.press("down", "x")
            await it.pilot.pause()
            assert_harmless(it.text)
            assert it.app.is_running

    run(play())


@pytest.mark.slow
def test_an_invitation_can_be_hidden(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("▀", "zerochat.org/?_oob", "s hide")
            await it.press("s")
            await it.shows("Hidden. Press s to show it.", "s show")
            assert not re.search(r"[▀▄█]{4}", it.text) and "_oob" not in it.text and "ZC:" not in it.text
            await it.press("t")  # Whoever wants another form of it wants it hidden still.
            await it.pilot.pause()
            assert "_oob" not in it.text and "ZC:" not in it.text
            await it.press("t", "s")
            await it.shows("▀", "zerochat.org/?_oob")

    run(play())


@pytest.mark.slow
def test_all_invitation_buttons_fit(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("c link", "h history", "o open", "Esc")
            keys = it.text.split("\n")[-1]
            assert keys.rstrip().endswith("Esc") and len(keys) <= 80

    run(play())


@pytest.mark.slow
def test_invitation_expiry_can_be_changed(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("e time")
            await it.press("e", "f3")
            await it.until(lambda: it.agent.count("create_invitation") == 2)
            await it.pilot.click("#expiry")
            await it.shows("F3 creates a new invitation: for 1 hour.")
            await it.pilot.click("#create")
            await it.until(lambda: it.agent.count("create_invitation") == 3)
            assert [each["expires_s"] for each in asked(it.agent, "create_invitation")] == [86_400, 604_800, 3_600]

    run(play())


def test_earlier_invitations_can_be_revoked(tmp_path):
    async def play():
        async with scene(tmp_path, size=(120, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("e time")
            assert "x revoke" not in it.text
            await it.press("e", "f3")
            await it.shows("The earlier invitation is still valid: x revokes it.", "x revoke")
            keys = it.text.split("\n")[-1]
            assert keys.rstrip().endswith("Esc") and len(keys.rstrip()) <= 80
            await it.press("r", "f3")
            await it.shows("The 2 earlier invitations are still valid: x revokes them.")
            it.agent.refuse["revoke_invitation"] = Refusal("The disk is full.", "DiskFull")
            await it.press("x", "y")
            await it.shows("The disk is full.")
            it.agent.refuse["revoke_invitation"] = Refusal("It is gone.", "NoSuchInvitation")
            await it.press("x")
            await it.shows("Revoke the 2 earlier invitations?")
            await it.press("y")
            await it.shows("Earlier invitations revoked.")
            assert "still valid" not in it.text and "x revoke" not in it.text
            revoked = [each["invitation"] for each in asked(it.agent, "revoke_invitation")]
            assert revoked == ["0001", "0001", "0002"]

    run(play())


@pytest.mark.slow
def test_a_qr_code_is_saved_and_read_back(tmp_path, monkeypatch):
    zxingcpp = pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    pytest.importorskip("PIL", reason="Pillow is not installed")
    assert zxingcpp
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("p PNG")
            await it.press("p", "y")
            await it.shows("Saved as")
            await it.press("p", "y")
            await it.until(lambda: len(list((tmp_path / "downloads").iterdir())) == 2, "a second picture")
            first = tmp_path / "downloads" / "invitation to weekend.png"
            assert first.read_bytes() == code_png(CODE)
            await it.press("escape", "f8")
            await it.shows("Paste the invitation")
            await it.paste(str(first).replace(" ", "\\ "))
            await it.shows("Code read. Press Enter to join.")
            assert "invitation" in it.app.screen._box.text  # what was pasted stays
            await it.press("enter")
            await it.until(lambda: it.agent.count("join_group") == 1)
            assert asked(it.agent, "join_group")[0]["invitation"] == CODE

    run(play())


@pytest.mark.slow
def test_a_picture_without_a_code_keeps_the_input(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    empty = tmp_path / "cat.png"
    image.new("L", (200, 200), 255).save(empty)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say(f"/join {empty}")
            await it.until(lambda: isinstance(it.app.screen, JoinDialog))
            await it.shows("No QR code found in")
            assert it.app.screen._box.text == str(empty) and it.agent.count("join_group") == 0
            it.app.screen._box.set_text(URL)
            await it.press("enter")
            await it.until(lambda: it.agent.count("join_group") == 1)

    run(play())


def test_the_join_box_inserts_and_names_what_it_cannot_read(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f8")
            await it.shows("Paste the invitation")
            box = it.app.screen._box
            await it.paste(f"{tmp_path}/gone.png")
            await it.shows("Cannot read the picture", "No such file or directory")
            assert box.text == f"{tmp_path}/gone.png"
            await it.press("enter")
            await it.shows("No such file or directory")
            assert box.text == f"{tmp_path}/gone.png" and it.agent.count("join_group") == 0
            box.set_text("Join us:  and bring cake")
            box.move_cursor((0, 9))
            await it.paste(URL)
            assert box.text == f"Join us: {URL} and bring cake"
            await it.press("enter")
            await it.until(lambda: it.agent.count("join_group") == 1)
            assert asked(it.agent, "join_group")[0]["invitation"] == box.text  # the agent finds it in the sentence

    run(play())


@pytest.mark.slow
def test_an_unwritable_folder_is_reported(tmp_path, monkeypatch):
    (tmp_path / "downloads").write_text("no folder")
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("p PNG")
            await it.press("p", "y")
            await it.until(lambda: it.app.screen.query("#invite-status.-trouble"))
            assert isinstance(it.app.screen, InviteDialog) and Path(tmp_path / "downloads").is_file()

    run(play())


# --- invitations ----------------------------------------------------------------------------------------------------


def test_inviting_at_80x24(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/invite 2")
            await it.shows("Invitation to weekend", "for 2 people, expires 21 Nov 12:00")
            asked = {"group": "g1", "expires_s": 86400, "uses": 2, "role": "writer", "history": None, "name": ""}
            assert ("create_invitation", asked) in it.agent.asked
            qr = it.app.screen.query_one("#qr")
            assert qr.display and (qr.region.width, qr.region.height) == (41, 21) and qr.region.bottom <= 24
            row = strips(it.app)[5]
            colours = {(segment.style.color.name, segment.style.bgcolor.name) for segment in row if "█" in segment.text}
            assert colours == {("#000000", "#ffffff")}
            beside = "".join(line[42:].strip() for line in it.text.split("\n"))
            assert URL in beside  # The whole link, to the last letter.
            copied = []
            it.app.copy_to_clipboard = copied.append
            await it.press("c", "z")
            assert copied == [URL, CODE]
            await it.shows("Copied the code (OSC 52). If pasting fails, press t and select it.")
            await it.press("t")
            await it.until(lambda: not qr.display)
            await it.until(lambda: "OSC 52" not in it.text)
            lines = it.text.split("\n")
            assert CODE in "".join(lines) and URL in "".join(lines)  # From the very left, for the terminal's selection.
            it.agent.used(it.agent.groups["g1"], "dave", left=1)
            await it.shows("✓ used by dave (1 left)")
            await it.press("escape")
            await it.shows("Message weekend")

    run(play())


@pytest.mark.slow
def test_only_uses_of_the_shown_invitation_count(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 30), setting=weekend) as it:
            await it.shows("seven at the station")
            here = it.agent.groups["g1"]
            await it.press("f3")
            await it.shows("Not used yet")
            await it.press("r", "f3")
            await it.shows("read only", "The earlier invitation is still valid")
            it.agent.used(here, "dave", invitation="0001")
            await it.shows("dave has used an earlier invitation.")
            await it.gone("The earlier invitation is still valid")
            it.agent.used(here, "erin", left=4, invitation="ffff")
            await it.shows("erin has used another invitation.")
            assert "✓ used by" not in it.text
            it.agent.used(here, "frank", invitation="0002")
            await it.shows("✓ used by frank (used up)")

    run(play())


def test_a_window_too_small_for_the_code_is_explained(tmp_path):
    async def play():
        async with scene(tmp_path, size=(58, 20), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Enlarge the window to 59x23")
            assert not it.app.screen.query_one("#qr").display
            await it.pilot.resize_terminal(100, 30)
            await it.until(lambda: it.app.screen.query_one("#qr").display)

    run(play())


@pytest.mark.slow
def test_an_invitation_via_a_mediator_has_only_a_link(tmp_path):
    async def play():
        async with scene(tmp_path, size=(150, 70), setting=weekend) as it:
            it.agent.code = ""
            it.agent.url = URL + "A" * 600
            it.agent.short_missing = "There is no short link: the mediator has no room. The full link works."
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Invitation to weekend")
            assert it.app.screen.query_one("#qr").display and not it.app.screen.query_one("#copy_code").display
            copied = []
            it.app.copy_to_clipboard = copied.append
            await it.press("z", "c")
            assert copied == [it.agent.url]
            await it.press("t")
            await it.until(lambda: it.agent.url in "".join(it.text.split("\n")))
            await it.pilot.resize_terminal(100, 24)
            await it.press("t")
            await it.until(lambda: not it.app.screen.query_one("#qr").display)
            await it.shows("Enlarge the window to", "There is no short link")

    run(play())


def test_a_mediators_short_link_fits_80x24(tmp_path):
    """The QR code is the short link's, `c` copies it, and the full link stands below it."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            it.agent.code, it.agent.url = "", URL + "A" * 600
            it.agent.short = "https://mediator.home.example.org:8443/?_oobid=x_nrmN1ol4iox2Aq#u3jTsViIDfqV3k9EWj2Big"
            it.agent.others_open = 5
            await it.shows("seven at the station")
            await it.say("/invite reader for Bob")
            await it.shows("Invitation to weekend (for Bob)", "5 other invitations are open: o")
            await it.shows("read only. This group has no admins,")
            qr = it.app.screen.query_one("#qr")
            assert qr.display and qr.region.bottom <= 24 and qr.region.width <= 80 - 18
            copied = []
            it.app.copy_to_clipboard = copied.append
            await it.press("c", "z")
            assert copied == [it.agent.short, it.agent.url]
            await it.shows("Copied the full link")
            await it.press("r", "f3")
            await it.until(lambda: it.agent.count("create_invitation") == 2)
            await it.press("x", "y")
            await it.shows("Earlier invitations revoked. 5 other")
            it.agent.used(it.agent.groups["g1"], "dave", invitation="ffff", name="for Dave")
            await it.shows("dave has used your invitation “for Dave”.")
            await it.press("escape")
            it.agent.used(it.agent.groups["g1"], "dave", name="for Dave")
            await it.shows("dave used your invitation “for Dave”.")

    run(play())


def test_an_open_group_invitation_shows_its_uses(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            group.info = replace(group.info, policy=PolicyInfo(join="open"))
            await it.say("/invite")
            await it.shows("for any number of people")
            await it.press("escape")
            await it.say("/invite 3")
            await it.shows("for 3 people")
            assert [each["uses"] for each in asked(it.agent, "create_invitation")] == [None, 3]

    run(play())


def test_a_rejected_invitation_is_reported(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["create_invitation"] = Refusal("weekend has 250 members.")
            await it.press("f3")
            await it.shows("weekend has 250 members.")
            assert not {"copy_link", "copy_code", "text_only"} & {
                button.id for button in it.app.screen.query("Button") if button.display
            }
            await it.press("t")
            await it.shows("no more fit.")


@pytest.mark.slow
@pytest.mark.parametrize("bracketed", [True, False])
def test_pastes_over_the_invitation_dialog_are_ignored(tmp_path, bracketed):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Invitation to weekend")
            if bracketed:
                it.app.post_message(Paste("q\nquite\nsecret\n"))
            else:
                await it.press(*"quite", "enter", *"secret", "enter")
            await it.pilot.pause()
            assert isinstance(it.app.screen, InviteDialog)
            await it.press("escape")
            await it.shows("Message weekend")
            assert it.composer.text == "" and it.agent.count("send_message") == 0

    run(play())

    run(play())


def test_joining_by_paste(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f8")
            await it.shows("Paste the invitation")
            await it.paste(f"  {URL[:60]}\n{URL[60:]}  ")
            it.agent.refuse["join_group"] = Refusal(
                "The invitation expired on 12:00. Ask for a fresh one.", "InvitationExpired"
            )
            await it.press("enter")
            await it.shows("The invitation expired on 12:00. Ask for a fresh one.")
            del it.agent.refuse["join_group"]
            await it.press("enter")
            await it.shows("● contact the inviter")
            params = asked(it.agent, "join_group")[-1]
            assert ("".join(params["invitation"].split()), params["role"]) == (
                URL,
                "writer",
            )  # the agent joins the lines
            it.agent.joining("exchanging", "Exchanging keys with bob.")
            await it.shows("✓ contact the inviter", "● exchange keys", "Exchanging keys with bob.")
            it.agent.joining("failed", "bob does not answer. Ask whether zerochat is running there.", error="NoAnswer")
            await it.shows("bob does not answer.")
            await it.press("enter")
            it.agent.joining("connecting", "Connecting.", connected=1, members=2)
            await it.shows("1/2 members connected")
            group = it.agent.add_group("weekend", ["bob", "carol"])
            it.agent.joining("joined", "You are in.", group=group.info.id)
            await it.shows("Message weekend")
            assert it.open.info.id == group.info.id

    run(play())


@pytest.mark.parametrize(
    "text",
    ["re", "read", "readers", "Bob reader", "3 Bob, reader", "readr", "raeder", "viewer", "5 readonly", "1000"],
)
def test_a_mistyped_reader_never_names_an_invitation_to_write(text):
    assert invite_arguments(text) is None


def test_arguments_of_an_invitation():
    assert invite_arguments("") == (None, False, "")
    assert invite_arguments("3 reader for Bob") == (3, True, "for Bob")
    assert invite_arguments("Bob and Carol") == (None, False, "Bob and Carol")


@pytest.mark.slow
@pytest.mark.parametrize("keys", group_kinds.KEYS)
def test_an_invitation_says_what_the_kind_of_its_group_gives_and_gives_up(tmp_path, keys):
    def setting(agent):
        weekend(agent)
        for group in agent.groups.values():
            group.info = replace(group.info, keys=keys)

    async def play():
        async with scene(tmp_path, size=(80, 24), setting=setting) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Anyone who has it can join")
            said = it.app.screen.query_one("#invite-kind")
            assert not said.display, "the whole link needs the space beside the code"
            await it.press("t")
            kind = next(kind for kind in group_kinds.KINDS if kind.keys == keys)
            await it.until(lambda: said.display and said.region.bottom <= 24)
            assert str(said.content) == kind.sentences

    run(play())
