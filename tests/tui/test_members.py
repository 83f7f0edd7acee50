"""The terminal application and the members of a group: roles, removals, names and trust."""

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import ME, WORDS, FakeAgent, Refusal
from tests.support.tui_pilot import HOSTILE, asked, assert_harmless, run, scene, weekend
from zerochat.rpc import Author, PolicyInfo, TrustNews, VoteInfo
from zerochat.tui.chat_view import Board
from zerochat.tui.composer import commands
from zerochat.tui.dialogs.choice import Choice
from zerochat.tui.dialogs.create import CreateScreen
from zerochat.tui.dialogs.dialog import Body
from zerochat.tui.dialogs.invite import InviteScreen
from zerochat.tui.dialogs.member import MemberScreen
from zerochat.tui.dialogs.requests import RequestsScreen


def change(agent: FakeAgent, who: int, group: str = "g1", **details: object) -> None:
    """A member is different from now on."""
    members = agent.groups[group].members
    members[who] = replace(members[who], **details)


# --- putting out, roles, names --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_putting_somebody_out_takes_votes(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station", "● bob")
            await it.say("/remove bob")
            await it.shows("Vote for putting bob out of weekend? It takes two of")
            await it.press("enter")  # The harmless answer has the focus.
            await it.gone("Vote for putting")
            assert it.agent.count("remove") == 0
            await it.say("/remove bob")
            await it.shows("Vote for putting")
            await it.press("y")
            await it.until(lambda: "1 of 2 votes; one more member has to say the same." in it.told())
            await it.shows("● bob 1/2 out", "alice wants bob out")
            await it.say("/remove bob")
            await it.until(lambda: "You had voted already: 1 of 2 votes" in it.told())
            group = it.agent.groups["g1"]
            group.info = replace(group.info, votes=[replace(group.info.votes[0], mine=False)])
            it.agent.view(group)
            await it.until(lambda: not it.open.info.votes[0].mine)
            await it.say("/remove bob")
            await it.shows("Vote for putting")
            await it.press("y")
            await it.until(lambda: "2 of 2 votes: bob is out." in it.told())
            await it.shows("alice put bob out")
            await it.gone("● bob")
            for text, answer in [
                ("/remove", "/remove takes the name of a member"),
                ("/remove zoe", "Nobody here is called zoe."),
                ("/remove alice", "That is you: /leave"),
                ("/kick carol", "Here it is /remove."),
            ]:
                await it.say(text)
                await it.until(lambda answer=answer: answer in it.told(), answer)
            assert it.agent.count("remove") == 2 and it.agent.count("send") == 0

    run(play())


def test_where_one_is_enough_to_put_somebody_out(tmp_path):
    def setting(agent):
        weekend(agent)
        group = agent.groups["g1"]
        group.info = replace(group.info, role="owner", policy=PolicyInfo(remove="admins", quorum=0, roles="admins"))
        change(agent, 1, may=["remove", "reader", "admin"])

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("weekend  2/2 connected · you are the owner")
            await it.say("/members")
            await it.press("down", "down", "enter")
            await it.shows("r let only read", "a make an admin", "x put out, or vote for it")
            assert "w let write" not in it.text
            await it.press("w")
            await it.press("a")
            await it.shows("role         admin")
            await it.press("x")
            await it.shows("Put bob out of weekend? There is no way back")
            await it.press("y")
            await it.shows("No longer a member of this group.")
            await it.press("x", "v", "escape")
            await it.shows("alice put bob out")
            assert asked(it.agent, "role") == [{"group": "g1", "role": "admin", "member": "did:key:z6Mkg10bob"}]

    run(play())


def test_roles(tmp_path):
    def setting(agent):
        weekend(agent)
        change(agent, 0, may=["reader"])

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=setting) as it:
            await it.shows("seven at the station", "● bob")
            it.composer.put("kept")
            await it.until(lambda: "Message" not in it.text)
            it.composer.put("")
            await it.say("/role reader")
            await it.until(lambda: "You are a reader here now." in it.told())
            await it.shows("alice only reads from now on", "weekend  2/2 connected · you only read", "(you), reads")
            await it.shows("You only read here; ask an admin to write")
            change(it.agent, 0, may=["writer"])
            it.agent.view(it.agent.groups["g1"])
            await it.shows("You only read here; /role writer changes it")
            await it.say("hello?")
            await it.until(lambda: "You only read here. /role writer lets you write." in it.told())
            assert it.composer.text == "hello?" and it.agent.count("send") == 0
            it.composer.put("")
            await it.say("/role writer")
            await it.shows("Message weekend", "alice writes from now on")
            await it.say("/role carol admin")
            await it.shows("alice made carol an admin", "● carol admin")
            for text in ("/role", "/role bob", "/role king", "/role bob king"):
                await it.say(text)
                await it.until(lambda: "/role takes reader, writer or admin" in it.told())
            await it.say("/role zoe reader")
            await it.until(lambda: "Nobody here is called zoe." in it.told())
            it.agent.refuse["role"] = Refusal("Only the owner makes admins.")
            await it.say("/role bob admin")
            await it.until(lambda: "Only the owner makes admins." in it.told())

    run(play())


def test_roles_complete():
    names = ["Dora", "dora the second", "rea"]
    assert commands.complete("/role wr", names) == "/role writer"
    assert commands.complete("/role Dora a", names) == "/role Dora admin"
    assert commands.complete("/role dora the second r", names) == "/role dora the second reader"
    assert commands.complete("/role re", names) == "/role rea"
    assert commands.complete("/verify dora t", names) == "/verify dora the second"
    assert commands.complete("/remove Dora a", names) is None


def test_renaming(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/rename")
            await it.until(lambda: "/rename takes the name" in it.told())
            await it.say("/rename Alice B.")
            await it.until(lambda: "You are called Alice B. here now." in it.told())
            await it.shows("alice is called Alice B. now", "Alice B. │ seven at the station")
            it.app.chat.status_line.flash = ""
            await it.shows("[Alice B.]")

    run(play())


def test_who_was_put_out_can_still_read(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.put_me_out(it.agent.groups["g1"], 1)
            await it.shows(
                "You were put out of weekend", "seven at the station", "You are no longer in weekend: bob has put"
            )
            await it.until(lambda: "You are no longer in weekend: bob has put you out." in it.told())
            await it.shows("weekend  put out")
            await it.say("hello?")
            await it.until(lambda: "to speak again you need a new invitation." in it.told())
            assert it.composer.text == "hello?" and it.agent.count("send") == 0

    run(play())


# --- trust ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_verifying_by_reading_words(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station", "● bob")
            await it.say("/verify bob")
            await it.shows("apple river stone lamp", "cloud tiger window bread", "Read them to each other, all eight")
            assert asked(it.agent, "words") == [{"group": "g1", "member": "did:key:z6Mkg10bob", "said": ""}]
            await it.shows("verified     no", "v type the words", "V mark as compared on sight")
            await it.press("u")  # There is nothing to take back yet.
            await it.press("v")
            await it.shows("Type what bob reads to you")
            await it.type("apple river")
            await it.press("enter")
            await it.shows("The words differ. Somebody was misheard")
            assert it.agent.count("verify") == 0
            it.app.screen.query_one("#answer").value = " ".join(WORDS)
            await it.press("enter")
            await it.shows("verified     yes", "u take the mark back")
            assert asked(it.agent, "verify") == [{"group": "g1", "member": "did:key:z6Mkg10bob", "verified": True}]
            await it.press("escape")
            await it.shows("✓0bob", "1/2 verified")
            await it.say("/verify")
            await it.shows("Words of weekend", "bob                  ✓ verified", "carol                not verified")
            await it.press("escape")
            await it.say("/verify bob")
            await it.press("u")
            await it.shows("Forget that you verified bob?")
            await it.press("y")
            await it.shows("verified     no")
            await it.press("V")
            await it.shows("Have you seen that all eight words are the same?")
            await it.press("n")
            await it.press("V", "y")
            await it.shows("verified     yes")
            assert [each["verified"] for each in asked(it.agent, "verify")] == [True, False, True]

    run(play())


def test_a_name_that_somebody_else_bears_is_told_loudly_once(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station", "● bob")
            bob = it.agent.groups["g1"].members[1]
            change(it.agent, 1, trust="changed")
            it.agent.tell("trust", TrustNews("g1", bob.did, "bob", "changed"))
            await it.shows("! bob is not the bob you verified. F2 shows the members.")
            await it.shows("bob! is not the one you verified", "bob! │ shall we go?", "● bob changed", "!0bob")
            await it.say("I say it anyway")
            await it.until(lambda: it.agent.count("send") == 1)
            it.agent.tell("trust", TrustNews("g1", bob.did, "bob", "changed"))
            await it.say("/verify bob")
            await it.shows("verified     CHANGED: you verified somebody else so named")
            await it.press("escape")
            await it.gone("F2 shows the members.")
            await it.shows("● bob changed", "bob! │ shall we go?")  # It stays visible all the same.
            change(it.agent, 1, trust="verified", verified=True)
            it.agent.tell("trust", TrustNews("g1", bob.did, "bob", "verified"))
            await it.shows("✓0bob")
            await it.gone("bob!  │ shall we go?")

    run(play())


def test_an_old_page_is_asked_for_behind_an_event(tmp_path):
    """What only this screen says is in no log, and must not be where an older page begins."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            timeline = it.open.timeline
            assert timeline.remark(ME, "alice", "says so") is not None
            assert timeline.remark(ME, "alice", "says so") is None
            timeline.drop_oldest(len(timeline.rows) - 1)
            assert timeline.rows[0].local and timeline.oldest is None

    run(play())


@pytest.mark.slow
def test_members_who_do_not_say_the_same(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            change(it.agent, 2, forked=True)
            it.agent.disagree(group, 2, "carol has signed two histories.")
            await it.shows("! carol has signed two histories.")
            await it.press("f2")
            await it.shows("● carol forked")
            await it.say("/verify carol")
            await it.shows("histories    has signed TWO")
            await it.press("escape")
            assert "! carol has signed two" in it.text, "to have looked is not to have dismissed it"
            it.agent.disagree(group, None, "The members tell different things.")
            await it.shows("! carol has signed two histories. /dismiss hides this. (and 1 more)")
            await it.say("/verify carol")
            await it.shows("d dismiss the warning")
            await it.press("d")
            await it.press("escape")
            await it.shows("! The members tell different things. /dismiss hides this.", "● carol forked")
            assert "! carol has signed two" not in it.text
            await it.say("/verify")
            await it.shows("not verified, has signed two histories")
            await it.press("escape")
            await it.say("/dismiss")
            await it.gone("! The members tell different things.")
            await it.say("/dismiss")
            await it.shows("There is no warning here")
            asked = [params["member"] for method, params in it.agent.asked if method == "dismiss"]
            assert asked == [group.members[2].did, ""]

    run(play())


def test_a_warning_is_there_again_after_a_start(tmp_path):
    def doubtful(agent):
        weekend(agent)
        agent.disagree(agent.groups["g1"], 2, "carol has signed two histories.")

    async def play():
        async with scene(tmp_path, setting=doubtful) as it:
            await it.shows("! carol has signed two histories. /dismiss hides this.")

    run(play())


def test_whoever_never_arrived_is_shown_so(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            change(it.agent, 2, arrived=False, connection="unreachable", may=["remove"])
            it.agent.view(it.agent.groups["g1"])
            await it.shows("○ carol never arrived")
            await it.say("/verify carol")
            await it.shows("arrived      NEVER, since you have let it in; x puts it out")

    run(play())


@pytest.mark.slow
def test_the_palette_has_what_has_no_key(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("a draft")
            await it.press("ctrl+p")
            await it.type("verify a")
            await it.shows("Verify a member", "  /verify")
            await it.press("down", "enter")
            await it.until(lambda: it.composer.text == "/verify ")
            await it.type("bo")
            await it.press("tab", "enter")
            await it.until(lambda: isinstance(it.app.screen, MemberScreen))
            await it.press("escape", "ctrl+up")
            assert it.composer.text == "a draft"

    run(play())


def test_the_help_lists_the_keys_of_the_sheets(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f1")
            await it.shows("Everywhere")
            body = str(it.app.screen.query_one(Body).content)
            for sheet in (RequestsScreen, MemberScreen, InviteScreen, CreateScreen, Choice):
                assert sheet.BINDING_GROUP_TITLE in body
                assert all(each.description in body for each in sheet.BINDINGS if each.show)
            assert "✓ ! before a key" in body and "1/2 out, forked" in body

    run(play())


# --- hostile text, and places of all sizes --------------------------------------------------------------------------


def crowded(agent, nick="dora"):
    """Everything at once that this file is about, and every string in it `nick`."""
    weekend(agent)
    group = agent.groups["g1"]
    policy = PolicyInfo(join="ask", remove="quorum", quorum=2, roles="admins")
    vote = VoteInfo(group="g1", did=group.members[2].did, nick=nick, votes=1, needed=2)
    group.info = replace(group.info, name=nick, role="owner", policy=policy, votes=[vote])
    change(agent, 1, nick=nick, trust="changed", role="reader", may=["remove", "writer", "admin"])
    change(agent, 2, nick=nick, trust="verified", forked=True, role="admin", may=["remove", "reader", "writer"])
    for type in ("member_joined", "member_removed", "removal_voted", "role_changed", "member_renamed"):
        body = {"did": "did:key:z6MkZoe", "nick": nick, "role": nick, "was": nick}
        agent._log(group, 1, type, body, minute=4)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(100, 40), (80, 24), (40, 12), (200, 50), (10, 3)])
def test_every_sheet_at_every_size_with_hostile_names(tmp_path, size):
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
                await it.until(lambda: isinstance(it.app.screen, MemberScreen))
                await look()
                await it.press("v" if member.trust == "changed" else "u")
                await look()
                await it.press("escape", "x")
                await look()
                await it.press("escape", "escape")
                await it.until(lambda: isinstance(it.app.screen, Board))
            await it.say("/verify")
            await it.until(lambda: not isinstance(it.app.screen, Board))
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


@pytest.mark.parametrize("theme", ["textual-light", "textual-dark", "ansi-dark"])
def test_signs_and_words_carry_what_colours_say(tmp_path, theme):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=crowded) as it:
            await it.shows("shall we go?")
            it.app.theme = theme
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.shows("! dora is not the dora you verified.", "? F4: dora")
            await it.shows("!0bob", "✓caro", "changed")
            await it.press("f4")
            await it.shows("apple river stone lamp")

    run(play())


def test_bodies_of_events_that_make_no_sense(tmp_path):
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


def test_a_name_that_deceives_says_why(tmp_path):
    def setting(agent):
        agent.add_group("weekend", ["p\u0430ypal", "bob"])

    async def play():
        async with scene(tmp_path, size=(110, 30), setting=setting) as it:
            await it.shows("≈p\u0430ypal", "● bob")
            await it.press("f1")
            await it.shows("Help")
            assert "mixes scripts, or looks like another's" in str(it.app.screen.query_one(Body).content)
            await it.press("escape")
            it.app.chat.member_list.focus()
            row = next(at for at, one in enumerate(it.app.chat.member_list.options) if "ypal" in str(one.prompt))
            it.app.chat.member_list.highlighted = row
            await it.press("enter")
            await it.shows("≈ name", "mixes letters of several scripts")

    run(play())
