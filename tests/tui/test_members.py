"""Members in the terminal application: roles, removal, names, verification."""

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.support.fake_agent import ME, WORDS, FakeAgent, Refusal
from tests.support.marks import others_slow
from tests.support.tui_pilot import HOSTILE, asked, assert_harmless, completed, run, scene, strips, weekend
from zerochat.rpc import Author, PolicyInfo, TrustNotification, VoteInfo
from zerochat.tui.chat_view import ChatView
from zerochat.tui.dialogs.choice import Choice
from zerochat.tui.dialogs.create import CreateDialog
from zerochat.tui.dialogs.dialog import HangingText
from zerochat.tui.dialogs.invite import InviteDialog
from zerochat.tui.dialogs.member import HINTS, MemberDialog
from zerochat.tui.dialogs.requests import RequestsDialog


def change(agent: FakeAgent, who: int, group: str = "g1", **details: object) -> None:
    """A member is different from now on."""
    members = agent.groups[group].members
    members[who] = replace(members[who], **details)


@pytest.mark.parametrize("theme", ["dark", "light", "ansi"])
def test_the_member_list_has_the_colours_of_the_messages(tmp_path, theme):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station", "● bob")
            it.app.theme = theme
            members, pane = it.app.chat.member_list, it.app.chat.pane

            def colours():
                shown = {}
                for strip in strips(it.app):
                    at = 0
                    for text, style, _ in strip:
                        side = "list" if at >= members.region.x else "pane"
                        if text.strip() in ("alice", "bob", "carol") and at >= pane.region.x:
                            shown.setdefault(text.strip(), {}).setdefault(side, style.color.triplet.hex)
                        at += cell_len(text)
                return shown

            await it.until(lambda: len({each.get("list") for each in colours().values()}) == 3)
            assert all(each["list"] == each["pane"] for each in colours().values())
            members.focus()
            members.highlighted = 0
            await it.until(lambda: members.has_focus)
            row = members.render_line(0)
            assert len({style.color for text, style, _ in row if text.strip()}) == 1, "readable below the cursor"

    run(play())


# --- removal, roles, names --------------------------------------------------------------------------------------


def test_what_may_not_be_removed_is_refused_unasked(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["remove_member"] = Refusal("Only admins of weekend remove members.")
            await it.say("/remove bob")
            await it.shows("Only admins of weekend remove members.")
            await it.until(lambda: it.composer.text == "/remove bob")
            assert it.app.screen is it.app.chat

    run(play())


@pytest.mark.slow
def test_removal_by_votes(tmp_path):
    def removable(agent):
        weekend(agent)
        for number in (1, 2):
            change(agent, number, allowed_actions=["remove"])

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=removable) as it:
            await it.shows("seven at the station", "● bob")
            await it.say("/remove bob")
            await it.shows("Vote to remove bob from weekend? It takes two")
            await it.press("enter")  # The harmless answer has the focus.
            await it.gone("Vote to remove")
            assert it.agent.count("remove_member") == 0
            await it.say("/remove bob")
            await it.shows("Vote to remove")
            await it.press("y")
            await it.until(lambda: "1 of 2 votes; one more vote needed." in it.told())
            await it.shows("● bob 1/2 votes", "alice voted to remove bob")
            await it.say("/remove bob")
            await it.until(lambda: "You have already voted: 1 of 2 votes" in it.told())
            group = it.agent.groups["g1"]
            group.info = replace(group.info, votes=[replace(group.info.votes[0], voted=False)])
            it.agent.view(group)
            await it.until(lambda: not it.open.info.votes[0].voted)
            await it.say("/remove bob")
            await it.shows("Vote to remove")
            await it.press("y")
            await it.until(lambda: "2 of 2 votes: bob was removed." in it.told())
            await it.shows("alice removed bob")
            await it.gone("● bob")
            for text, answer in [
                ("/remove", "Usage: /remove NAME"),
                ("/remove zoe", "No member is called zoe."),
                ("/remove alice", "You cannot remove yourself."),
            ]:
                await it.say(text)
                await it.until(lambda answer=answer: answer in it.told(), answer)
            assert it.agent.count("remove_member") == 2 and it.agent.count("send_message") == 0

    run(play())


def test_the_member_hints_fit_one_line():
    """The most that apply at once: both ways to verify, two of three roles, a warning, and the removal."""
    words = [HINTS[f"member.{name}"] for name in ("type", "sight", "reader", "writer", "dismiss", "remove")]
    assert len("  ".join(f"v {word}" for word in [*words, "Esc closes"])) - len("v ") <= 72


def test_removal_by_one_member(tmp_path):
    def setting(agent):
        weekend(agent)
        group = agent.groups["g1"]
        group.info = replace(group.info, role="owner", policy=PolicyInfo(remove="admins", quorum=0, roles="admins"))
        change(agent, 1, allowed_actions=["remove", "reader", "admin"])

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("weekend  2/2 connected · you are the owner")
            await it.say("/members")
            await it.press("down", "down", "enter")
            await it.shows("v words  V verify  r reader  a admin  x remove  Esc closes")
            await it.press("w")
            await it.press("a")
            await it.shows("role         admin")
            await it.press("x")
            await it.shows("Remove bob from weekend? bob can only come back")
            await it.press("y")
            await it.shows("No longer a member of this group.")
            await it.press("x", "v", "escape")
            await it.shows("alice removed bob")
            assert asked(it.agent, "set_role") == [{"group": "g1", "role": "admin", "member": "did:key:z6Mkg10bob"}]

    run(play())


def test_roles(tmp_path):
    def setting(agent):
        weekend(agent)
        change(agent, 0, allowed_actions=["reader"])

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=setting) as it:
            await it.shows("seven at the station", "● bob")
            it.composer.set_text("kept")
            await it.until(lambda: "Message" not in it.text)
            it.composer.set_text("")
            await it.say("/role reader")
            await it.until(lambda: "You are now a reader here." in it.told())
            await it.shows("alice is now a reader", "weekend  2/2 connected · read-only", "(you), reader")
            await it.shows("You are read-only here. Ask an admin to let you post.")
            change(it.agent, 0, allowed_actions=["writer"])
            it.agent.view(it.agent.groups["g1"])
            await it.shows("You are read-only here. Type /role writer to post.")
            await it.say("hello?")
            await it.until(lambda: "You are read-only here. Type /role writer to post." in it.told())
            assert it.composer.text == "hello?" and it.agent.count("send_message") == 0
            it.composer.set_text("")
            await it.say("/role writer")
            await it.shows("Message weekend", "alice is now a writer")
            await it.say("/role carol admin")
            await it.shows("alice made carol an admin", "● carol admin")
            for text in ("/role", "/role bob", "/role king", "/role bob king"):
                await it.say(text)
                await it.until(lambda: "Usage: /role" in it.told())
            await it.say("/role zoe reader")
            await it.until(lambda: "No member is called zoe." in it.told())
            it.agent.refuse["set_role"] = Refusal("Only the owner makes admins.")
            await it.say("/role bob admin")
            await it.until(lambda: "Only the owner makes admins." in it.told())

    run(play())


def test_handing_over_the_group(tmp_path):
    def setting(agent):
        weekend(agent)
        change(agent, 0, role="owner")
        change(agent, 1, allowed_actions=["owner"])

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=setting) as it:
            await it.shows("seven at the station", "● bob")
            await it.say("/transfer bob")
            await it.shows("Make bob the owner of weekend?", "only bob can give it back")
            await it.press("n")
            await it.gone("Make bob the owner")
            assert it.agent.count("set_role") == 0
            await it.say("/whois bob")
            await it.shows("o owner")
            await it.press("o")
            await it.shows("Make bob the owner of weekend?")
            await it.press("y")
            await it.until(lambda: "bob is now the owner here." in it.told())
            assert asked(it.agent, "set_role") == [{"group": "g1", "role": "owner", "member": "did:key:z6Mkg10bob"}]

    run(play())


def test_ignoring_a_member(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("shall we go?", "● bob")
            await it.say("/ignore bob")
            await it.gone("shall we go?")
            await it.shows("bob ignored", "seven at the station")
            assert "You no longer see messages from bob." in it.told()
            await it.say("/ignore")
            await it.until(lambda: "You ignore bob. /unignore NAME ends it." in it.told())
            await it.say("/unignore bob")
            await it.shows("shall we go?")

    run(play())


def test_roles_complete():
    names = ["Dora", "dora the second", "rea"]
    assert completed("/role wr", names) == "/role writer"
    assert completed("/role Dora a", names) == "/role Dora admin"
    assert completed("/role dora the second r", names) == "/role dora the second reader"
    assert completed("/role re", names) == "/role rea"
    assert completed("/verify dora t", names) == "/verify dora the second"
    assert completed("/remove Dora a", names) is None


def test_renaming(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/rename")
            await it.until(lambda: "Usage: /rename NAME" in it.told())
            await it.say("/rename Alice B.")
            await it.until(lambda: "Alice B. is now your name here." in it.told())
            await it.shows("alice is now called Alice B.", "Alice B. │ seven at the station")
            it.app.chat.status_line.flash = ""
            await it.shows("[Alice B.]")

    run(play())


def test_a_removed_member_can_still_read(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.put_me_out(it.agent.groups["g1"], 1)
            await it.shows(
                "You were removed from weekend", "seven at the station", "You are no longer in weekend: bob removed"
            )
            await it.until(lambda: "You are no longer in weekend: bob removed you." in it.told())
            await it.shows("weekend  you were removed")
            await it.say("hello?")
            await it.until(lambda: "You need a new invitation to post." in it.told())
            assert it.composer.text == "hello?" and it.agent.count("send_message") == 0

    run(play())


# --- trust ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_verifying_by_reading_words(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station", "● bob")
            await it.say("/verify bob")
            await it.shows("apple river stone lamp", "cloud tiger window bread", "Read all eight words to each other")
            assert asked(it.agent, "get_safety_words") == [
                {"group": "g1", "member": "did:key:z6Mkg10bob", "entered": ""}
            ]
            await it.shows("verified     no", "v words  V verify  Esc closes")
            await it.press("u")  # There is nothing to undo yet.
            await it.press("v")
            await it.shows("Type the words that bob reads to you")
            await it.type("apple river")
            await it.press("enter")
            await it.shows("The words differ. Either a word was misheard")
            assert it.agent.count("verify_member") == 0
            it.app.screen.query_one("#answer").value = " ".join(WORDS)
            await it.press("enter")
            await it.shows("verified     yes", "u unverify")
            assert asked(it.agent, "verify_member") == [
                {"group": "g1", "member": "did:key:z6Mkg10bob", "verified": True}
            ]
            await it.press("escape")
            await it.shows("✓0bob", "1/2 verified")
            await it.say("/verify")
            await it.shows("Safety words of weekend")
            await it.shows("bob                  ✓ verified", "carol                not verified")
            await it.press("escape")
            await it.say("/verify bob")
            await it.press("u")
            await it.shows("Remove your verification of bob?")
            await it.press("y")
            await it.shows("verified     no")
            await it.press("V")
            await it.shows("Do all eight words match?")
            await it.press("n")
            await it.press("V", "y")
            await it.shows("verified     yes")
            assert [each["verified"] for each in asked(it.agent, "verify_member")] == [True, False, True]

    run(play())


def test_a_changed_key_is_warned_about_once(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station", "● bob")
            bob = it.agent.groups["g1"].members[1]
            change(it.agent, 1, trust="changed")
            it.agent.tell("trust_changed", TrustNotification("g1", bob.did, "bob", "changed"))
            await it.shows("! bob has another key than the bob you verified. /members shows them.")
            await it.shows("bob! has another key than", "bob! │ shall we go?", "● bob changed", "!0bob")
            await it.say("I say it anyway")
            await it.until(lambda: it.agent.count("send_message") == 1)
            it.agent.tell("trust_changed", TrustNotification("g1", bob.did, "bob", "changed"))
            await it.say("/verify bob")
            await it.shows("verified     KEY CHANGED: you verified another key under this name")
            await it.press("escape")
            await it.gone("/members shows them.")
            await it.shows("● bob changed", "bob! │ shall we go?")  # It stays visible all the same.
            change(it.agent, 1, trust="verified", verified=True)
            it.agent.tell("trust_changed", TrustNotification("g1", bob.did, "bob", "verified"))
            await it.shows("✓0bob")
            await it.gone("bob!  │ shall we go?")

    run(play())


def test_an_old_page_is_requested_behind_a_note(tmp_path):
    """What only this screen says is in no log, and must not be where an older page begins."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            timeline = it.open.timeline
            assert timeline.add_note(ME, "alice", "says so") is not None
            assert timeline.add_note(ME, "alice", "says so") is None
            timeline.drop_oldest(len(timeline.rows) - 1)
            assert timeline.rows[0].local and timeline.oldest is None

    run(play())


@pytest.mark.slow
def test_conflicting_members_are_warned_about(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            change(it.agent, 2, forked=True)
            it.agent.disagree(group, 2, "carol FORKED.")
            await it.shows("! carol FORKED.")
            await it.press("f2")
            await it.shows("● carol forked")
            await it.say("/verify carol")
            await it.shows("histories    signed TWO")
            await it.press("escape")
            assert "! carol FORKED." in it.text, "viewing does not dismiss it"
            it.agent.disagree(group, None, "The members report different chains.")
            await it.shows("! carol FORKED. /dismiss hides this. (and 1 more)")
            await it.say("/verify carol")
            await it.shows("d dismiss")
            await it.press("d")
            await it.press("escape")
            await it.shows("! The members report different chains. /dismiss hides this.", "● carol forked")
            assert "! carol FORKED." not in it.text
            await it.say("/verify")
            await it.shows("not verified, signed two histories")
            await it.press("escape")
            await it.say("/dismiss")
            await it.gone("! The members report different chains.")
            await it.say("/dismiss")
            await it.shows("There is no warning to dismiss here.")
            asked = [params["member"] for method, params in it.agent.asked if method == "dismiss_warnings"]
            assert asked == [group.members[2].did, ""]

    run(play())


def test_warnings_survive_a_restart(tmp_path):
    def doubtful(agent):
        weekend(agent)
        agent.disagree(agent.groups["g1"], 2, "carol FORKED.")

    async def play():
        async with scene(tmp_path, setting=doubtful) as it:
            await it.shows("! carol FORKED. /dismiss hides this.")

    run(play())


@pytest.mark.slow
def test_members_that_never_arrived_are_shown(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            change(it.agent, 2, arrived=False, connection="unreachable", allowed_actions=["remove"])
            it.agent.view(it.agent.groups["g1"])
            await it.shows("○ carol never seen")
            await it.say("/verify carol")
            await it.shows("arrived      NEVER, since you admitted it; x removes it")

    run(play())


@pytest.mark.slow
def test_the_palette_has_commands_without_keys(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("a draft")
            await it.press("ctrl+p")
            await it.type("verify mem")
            await it.shows("Verify a member", "  /verify")
            await it.press("down", "enter")
            await it.until(lambda: it.composer.text == "/verify ")
            await it.type("bo")
            await it.press("tab", "enter")
            await it.until(lambda: isinstance(it.app.screen, MemberDialog))
            await it.press("escape", "ctrl+up")
            assert it.composer.text == "a draft"

    run(play())


@pytest.mark.slow
def test_the_help_lists_dialog_keys(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f1")
            await it.shows("Everywhere")
            body = str(it.app.screen.query_one(HangingText).content)
            for dialog in (RequestsDialog, MemberDialog, InviteDialog, CreateDialog, Choice):
                assert dialog.BINDING_GROUP_TITLE in body
                assert all(each.description in body for each in dialog.BINDINGS if each.show)
            assert "✓ ! before a key" in body and "1/2 votes, forked" in body

    run(play())


# --- hostile text, and places of all sizes --------------------------------------------------------------------------


def crowded(agent, nick="dora"):
    """Everything at once that this file is about, and every string in it `nick`."""
    weekend(agent)
    group = agent.groups["g1"]
    policy = PolicyInfo(join="ask", remove="quorum", quorum=2, roles="admins")
    vote = VoteInfo(group="g1", did=group.members[2].did, nick=nick, votes=1, needed=2)
    group.info = replace(group.info, name=nick, role="owner", policy=policy, votes=[vote])
    change(agent, 1, nick=nick, trust="changed", role="reader", allowed_actions=["remove", "writer", "admin"])
    change(
        agent, 2, nick=nick, trust="verified", forked=True, role="admin", allowed_actions=["remove", "reader", "writer"]
    )
    for type in ("member_joined", "member_removed", "removal_voted", "role_changed", "member_renamed"):
        body = {"did": "did:key:z6MkZoe", "nick": nick, "role": nick, "was": nick}
        agent._log(group, 1, type, body, minute=4)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(100, 40), (80, 24), (40, 12), (200, 50), (10, 3)])
def test_every_dialog_at_every_size_with_hostile_names(tmp_path, size):
    async def play():
        async with scene(tmp_path, size=size, setting=lambda agent: crowded(agent, "d" + HOSTILE)) as it:
            seen = []

            async def look():
                await it.pilot.pause()
                text = it.text
                assert_harmless(text)
                assert all(len(line) <= size[0] + 20 for line in text.split("\n"))
                seen.append(text)

            await it.until(lambda: it.open is not None and it.open.loaded and it.open.members)
            group = it.agent.groups["g1"]
            it.agent.ask(group, "d" + HOSTILE, "reader")
            await it.until(lambda: it.open.info.requests)
            group.info = replace(group.info, requests=[replace(group.info.requests[0], words=[HOSTILE] * 8)])
            it.agent.disagree(group, None, HOSTILE)
            it.agent.seat(group, HOSTILE, 1, 2)
            await it.until(lambda: it.open.warnings)
            await look()
            await it.press("f2")
            await look()
            await it.press("f4", "r")
            await look()
            await it.press("u", "escape")
            for member in group.members[1:]:
                await it.say(f"/verify {it.open.names.label(member.did)}")
                await it.until(lambda: isinstance(it.app.screen, MemberDialog))
                await look()
                await it.press("v" if member.trust == "changed" else "u")
                await look()
                await it.press("escape", "x")
                await look()
                await it.press("escape", "escape")
                await it.until(lambda: isinstance(it.app.screen, ChatView))
            await it.say("/verify")
            await it.until(lambda: not isinstance(it.app.screen, ChatView))
            await look()
            await it.press("escape", "f7", "f7", "down", "right", "end")
            await look()
            await it.press("escape", "f8")
            await it.paste("ZC:X")
            await it.press("enter")
            it.agent.joining("asking", HOSTILE, words=[HOSTILE] * 8)
            await look()
            await it.press("escape")
            group.info = replace(group.info, role="reader")
            it.agent.view(group)
            await look()
            group.info = replace(group.info, state="left", removed_by=Author(group.members[1].did, HOSTILE))
            it.agent.put_me_out(group, 1)
            await it.until(lambda: it.open.info.state == "left")
            await look()
            assert it.app.is_running and len(seen) == 14

    run(play())


@pytest.mark.parametrize("theme", others_slow(["textual-light", "textual-dark", "ansi-dark"]))
def test_member_states_are_shown_without_colour(tmp_path, theme):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=crowded) as it:
            await it.shows("shall we go?")
            it.app.theme = theme
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.shows("! dora has another key than the dora you verified.", "? dora")
            await it.shows("!0bob", "✓caro", "changed")
            await it.press("f4")
            await it.shows("apple river stone lamp")

    run(play())


def test_malformed_event_bodies(tmp_path):
    def setting(agent):
        group = agent.add_group("weekend", ["bob"])
        for type in ("member_joined", "member_removed", "removal_voted", "role_changed", "member_renamed", "poll"):
            agent._log(group, 1, type, {})
            agent._log(group, 1, type, {"did": 7, "nick": None, "role": ["x"], "was": {}})
        agent.post(group, 1, "still here")

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("still here")
            assert len(it.open.timeline.rows) == 12

    run(play())


def test_a_deceptive_name_is_explained(tmp_path):
    def setting(agent):
        agent.add_group("weekend", ["p\u0430ypal", "bob"])

    async def play():
        async with scene(tmp_path, size=(110, 30), setting=setting) as it:
            await it.shows("≈p\u0430ypal", "● bob")
            await it.press("f1")
            await it.shows("Help")
            assert "mixes scripts or looks like another name" in str(it.app.screen.query_one(HangingText).content)
            await it.press("escape")
            it.app.chat.member_list.focus()
            row = next(at for at, one in enumerate(it.app.chat.member_list.options) if "ypal" in str(one.prompt))
            it.app.chat.member_list.highlighted = row
            await it.press("enter")
            await it.shows("≈ name", "mixes letters of several scripts")

    run(play())
