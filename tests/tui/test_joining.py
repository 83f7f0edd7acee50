"""The terminal application and coming in: who asks and who answers, joining, inviting, and the rules of a new group."""

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import URL, WORDS, Refusal
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.presentation.group_rules import rules_of
from zerochat.rpc import GroupInfo, JoinStatus, PolicyInfo, RequestNews
from zerochat.tui.dialogs.create import CreateScreen
from zerochat.tui.dialogs.requests import RequestsScreen
from zerochat.tui.state.hints import silenced


def said(nick: str, admit: bool) -> dict[str, object]:
    """An answer to somebody as it was shown."""
    role = "reader" if nick == "emil" else "writer"
    return {"group": "g1", "who": f"did:key:z6MkAsks{nick}", "admit": admit, "nick": nick, "role": role}


def sheet(text: str) -> str:
    """What stands in the frame of the sheet on a screen."""
    inside = [line.split("│  ", 1)[1] for line in text.split("\n") if line.count("│") >= 2 and "│  " in line]
    return "\n".join(line.rsplit("│", 1)[0].rstrip() for line in inside).strip()


# --- who asks to join -----------------------------------------------------------------------------------------------


def test_who_asks_to_join_is_seen_and_takes_no_focus(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("half a se")
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.shows("? F4: dora asks to join.")
            await it.type("ntence")
            assert it.composer.text == "half a sentence" and it.app.focused is it.composer
            assert " 1 weekend      ?1 " in it.text
            it.agent.ask(it.agent.groups["g2"], "fred")
            await it.shows(" 2 work         ?1 ")
            await it.until(lambda: "fred asks to join work." in it.told())
            it.app.chat.status_line.flash = ""
            await it.shows("?1 to let in elsewhere (Alt+A)")
            await it.press("alt+a")
            await it.shows("? F4: fred asks to join.")
            await it.press("alt+1")
            it.agent.ask(it.agent.groups["g1"], "emil", "reader")
            it.agent.ask(it.agent.groups["g1"], "gina")
            await it.shows("? F4: dora, emil and 1 more ask to join.", " 1 weekend      ?3 ")

    run(play())


@pytest.mark.slow
def test_the_sheet_of_those_who_ask(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.dialogs.requests.DEAF_S", 3600.0)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/requests")
            await it.until(lambda: "Nobody has to ask here: an invitation is enough." in it.told())
            group = it.agent.groups["g1"]
            group.info = replace(group.info, policy=PolicyInfo(join="ask"))
            it.agent.view(group)
            await it.until(lambda: it.app.chat.conversations.open.info.policy.join == "ask")
            await it.say("/requests")
            await it.until(lambda: "Nobody asks to join here." in it.told())
            it.agent.ask(group, "dora")
            it.agent.ask(group, "emil", "reader")
            await it.shows("? F4: dora and emil ask to join.")
            await it.press("f4")
            await it.shows("key …dora")
            assert sheet(it.text) == (
                "Who asks to join weekend\n"
                "\n"
                "dora, to read and write                                         dora\n"
                "emil, to read only                                              emil\n"
                "\n"
                "apple river stone lamp\n"
                "cloud tiger window bread\n"
                "Call them: these words must be the ones that they see.\n"
                "since 20 Nov 12:20, key …dora\n"
                "\n"
                "\n"
                "a lets in   r refuses   Esc closes"
            )
            await it.press("down")
            await it.shows("key …emil")
            await it.press("a", "a", "a")  # One key, but held down it lets nobody else in.
            await it.shows("emil comes in now.", "key …dora")
            assert asked(it.agent, "answer") == [said("emil", True)]
            monkeypatch.setattr("zerochat.tui.dialogs.requests.DEAF_S", 0.0)
            it.app.screen._deaf_until = 0.0
            await it.press("a")  # The last one need not be looked for.
            await it.shows("dora comes in now.", "Nobody waits.")
            await it.press("a", "r")
            await it.press("escape")
            await it.shows("alice let emil in", "alice let dora in")
            assert it.agent.count("answer") == 2 and "F4:" not in it.text

    run(play())


@pytest.mark.slow
def test_a_refusal_can_be_taken_back(tmp_path, monkeypatch):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            it.agent.ask(group, "dora")
            it.agent.ask(group, "emil")
            await it.shows("ask to join")
            await it.press("f4", "r")
            await it.shows("✗ refused: dora", "dora is refused. u takes it back.", "key …emil", "u takes that back")
            await it.press("u")
            await it.shows("dora waits again.", "key …dora")
            await it.gone("✗ refused")
            await it.gone("u takes that back")
            await it.press("u")
            await it.shows("There is nothing to take back.")
            assert it.agent.count("answer") == 0
            await it.press("r", "escape")  # Whoever closes the sheet has made up their mind.
            await it.until(lambda: it.agent.count("answer") == 1)
            assert asked(it.agent, "answer")[0] == said("dora", False)
            await it.shows("? F4: emil asks to join.")
            monkeypatch.setattr("zerochat.tui.dialogs.requests.UNDO_S", 0.02)
            await it.press("f4", "r")
            await it.shows("emil does not come in.", "Nobody waits.")
            await it.press("escape")
            await it.gone("asks to join.")
            assert it.agent.count("answer") == 2

    run(play())


def test_a_refusal_that_goes_out_moves_nothing_under_the_hands(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.dialogs.requests.UNDO_S", 0.02)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for nick in ("dora", "emil", "gina"):
                it.agent.ask(it.agent.groups["g1"], nick)
            await it.shows("ask to join")
            await it.press("f4", "r")
            await it.shows("dora does not come in.", "key …emil")
            await it.press("a")
            await it.shows("emil comes in now.")
            admitted = [(params["who"], params["admit"]) for params in asked(it.agent, "answer")]
            assert admitted == [("did:key:z6MkAsksdora", False), ("did:key:z6MkAsksemil", True)]

    run(play())


def test_who_was_answered_elsewhere_disappears_and_no_key_goes_astray(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.dialogs.requests.DEAF_S", 3600.0)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            dora = it.agent.ask(group, "dora")
            emil = it.agent.ask(group, "emil")
            await it.shows("ask to join")
            await it.press("f4")
            await it.shows("key …dora")
            group.info = replace(group.info, requests=[emil])
            it.agent.tell("request", RequestNews(group="g1", member=dora.did, nick="dora", state="refused"))
            await it.shows("key …emil")
            await it.press("a", "r")  # It was meant for dora.
            await it.gone("dora, to")
            assert it.agent.count("answer") == 0
            it.agent.refuse["answer"] = Refusal("Nobody called emil waits to be let in.", "NobodyAsks")
            it.app.screen._deaf_until = 0.0
            await it.press("a")
            await it.shows("Nobody called emil waits to be let in.", "emil, to read and write")
            group.info = replace(group.info, requests=[])
            it.agent.tell("request", RequestNews(group="g1", member=emil.did, nick="emil", state="refused"))
            await it.shows("Nobody waits.")

    run(play())


def test_members_show_who_asks_and_enter_answers(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.shows("asks to join")
            await it.say("/members")
            await it.shows("? dora asks to join    dora")
            await it.press("down", "enter")
            await it.until(lambda: isinstance(it.app.screen, RequestsScreen))
            it.agent.seat(it.agent.groups["g1"], "dora", 1, 3)
            await it.press("escape")
            await it.until(lambda: "dora: 1/3 members connected." in it.told())
            await it.pilot.click("#notice")
            await it.until(lambda: isinstance(it.app.screen, RequestsScreen))

    run(play())


def test_who_asks_while_something_else_is_open_is_told_too(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Invitation to weekend")
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.until(lambda: "dora asks to join weekend. Esc, then F4 answers." in it.told())
            await it.press("escape", "f4")
            await it.shows("Who asks to join weekend", "dora, to read and write")

    run(play())


# --- joining --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_waiting_to_be_let_in(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f8")
            await it.shows("Paste the invitation", "‹ to read and write ›")
            await it.paste(URL)
            await it.press("tab", "tab", "tab", "tab", "right")
            await it.shows("‹ to read only ›")
            await it.pilot.click("#invitation")
            await it.press("enter")
            await it.shows("● reach the person")
            assert asked(it.agent, "join") == [{"invitation": URL, "name": "alice", "role": "reader"}]
            it.agent.joining("asking", "A member of weekend has been asked to let you in.", words=WORDS)
            await it.shows(
                "● ask the group to let you in", "A member of weekend has been asked", "cloud tiger window bread"
            )
            await it.shows("Esc closes this; the join goes on")
            await it.press("escape")
            await it.shows("No conversations yet.")
            it.agent.joining(
                "connecting", "You are in weekend; 3/5 members connected, waiting for bob…", connected=3, members=5
            )
            await it.until(lambda: it.app.chat.joins["j1"].phase == "connecting")
            await it.press("f8")
            await it.shows("● connect to the members", "You are in weekend; 3/5 members connected, waiting for bob…")
            assert it.text.count("3/5") == 1
            text = "You have not joined: nobody has said whether you may come in. Ask again."
            it.agent.joining("failed", text, error="JoinFailed")
            await it.shows("You have not joined: nobody has said")
            assert it.app.chat.joins == {} and "Enter tries again" not in it.text  # There is nothing to try with.
            await it.press("escape", "f8")
            await it.gone("connect to the members")
            assert "F10" not in it.text, "there is nothing to give up"

    run(play())


def test_a_join_is_given_up(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.say(f"/join {URL}")
            await it.shows("● reach the person", "F10 give up")
            details = {"words": WORDS, "name": "weekend", "since": "2025-11-20T12:00:00.000Z"}
            it.agent.joining("asking", "A member was asked.", **details)
            await it.shows("It waits since", "F10 gives it up.")
            await it.press("f10")
            await it.shows("You have given up joining weekend.")
            assert asked(it.agent, "cancel") == [{"join": "j1"}] and "F10" not in it.text
            await it.press("escape")
            await it.say("/cancel")
            await it.shows("You are not joining any group.")
            it.agent.joining("asking", "A member was asked.", **details)
            await it.until(lambda: it.app.chat.joins)
            await it.say("/cancel weekend")
            await it.shows("You have given up joining weekend.")
            await it.until(lambda: not it.app.chat.joins)

    run(play())


def test_a_group_that_is_over_is_forgotten_when_that_is_confirmed(tmp_path):
    def both(agent):
        weekend(agent)
        agent.groups["g1"].info = replace(agent.groups["g1"].info, state="left")

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=both) as it:
            await it.shows("1 weekend    left")
            await it.say("/forget")
            await it.shows("Forget weekend? What was said there is deleted on this")
            await it.press("escape")
            await it.gone("Forget weekend?")
            assert it.agent.count("forget") == 0
            await it.say("/forget")
            await it.shows("Forget weekend?")
            await it.pilot.click("#yes")
            await it.until(lambda: asked(it.agent, "forget") == [{"group": "g1"}])
            await it.shows("1 work")
            assert "seven at the station" not in it.text and it.open.info.name == "work"
            await it.say("/forget")
            await it.shows("You are in this group: /leave first")
            assert it.agent.count("forget") == 1

    run(play())


@pytest.mark.slow
def test_an_older_copy_goes_on_when_that_is_confirmed(tmp_path):
    def restored(agent):
        weekend(agent)
        agent.groups["g1"].info = replace(agent.groups["g1"].info, suspended=True)

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=restored) as it:
            await it.shows("seven at the station", "Nothing can be said here yet; /resume goes on")
            await it.say("too early")
            await it.shows("all members are asked what they have of you")
            assert it.agent.count("send") == 0 and it.app.chat.composer.text == "too early"
            it.app.chat.composer.put("/res")
            await it.press("tab")
            assert it.app.chat.composer.text == "/resume "
            await it.say("/resume")
            await it.shows("Resume weekend? This is an older copy", "two histories")
            await it.press("escape")
            await it.gone("Resume weekend?")
            assert it.agent.count("resume") == 0
            await it.say("/resume")
            await it.shows("Resume weekend?")
            await it.pilot.click("#yes")
            await it.until(lambda: asked(it.agent, "resume") == [{"group": "g1"}])
            await it.shows("You can speak in weekend again.", "Message weekend")
            await it.say("/resume")
            await it.shows("There is nothing to resume here.")
            await it.say("at last")
            await it.until(lambda: it.agent.count("send") == 1)
            assert it.agent.count("resume") == 1

    run(play())


def test_where_one_was_alone_the_chat_says_so():
    info = GroupInfo(
        id="g",
        name="mine",
        state="active",
        me="m",
        nick="a",
        members=1,
        connected=0,
        keys="",
        path="",
        accountability="",
        view="",
        unacknowledged=0,
        created_at="",
        suspended=True,
    )
    assert "alone here when the backup was made" in silenced(info, [])
    assert "all members are asked" in silenced(replace(info, members=2), [])
    assert not silenced(replace(info, suspended=False), [])


def test_a_join_that_fails_can_be_tried_under_another_name(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.say(f"/join {URL}")
            await it.shows("● reach the person")
            it.agent.joining(
                "failed", "You have not joined: somebody is called alice there already.", error="JoinFailed"
            )
            await it.shows(
                "somebody is called alice", "Enter tries again, with another name or role if you change them."
            )
            await it.press("tab")
            await it.type("alice2")
            await it.press("enter")
            await it.until(lambda: it.agent.count("join") == 2)
            assert asked(it.agent, "join")[1]["name"] == "alice2"

    run(play())


def test_inviting_to_read_only(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/invite 3 reader")
            await it.shows("to read only", "for 3 people")
            await it.press("r")
            await it.until(lambda: it.agent.count("invite") == 2)
            await it.gone("to read only")
            assert [each["role"] for each in asked(it.agent, "invite")] == ["reader", "writer"]
            await it.press("escape")
            await it.say("/invite everybody")
            await it.until(lambda: "/invite takes how many" in it.told())
            group = it.agent.groups["g1"]
            group.info = replace(group.info, policy=PolicyInfo(join="ask"))
            it.agent.view(group)
            await it.until(lambda: it.open.info.policy.join == "ask")
            await it.press("f3")
            await it.shows("Whoever has it can ask")

    run(play())


# --- creating -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_rules_of_a_new_group(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f7")
            await it.shows("Name of the new group", "More…")
            assert "joining" not in it.text
            await it.type("crew")
            await it.press("tab", "enter")
            await it.shows(
                f"joining     ‹ {rules_of(PolicyInfo())[0]} ›",
                "writing     ‹ everybody may write, and is free to only read ›",
                "putting out ‹ two members together can put somebody out ›",
                "keys        ‹ an envelope for each member ›",
            )
            await it.press("right")
            await it.shows(f"joining     ‹ {rules_of(PolicyInfo(join='ask'))[0][:40]}")
            await it.press("down", "right")  # Who may put somebody out follows who there is.
            await it.shows("putting out ‹ the owner and the admins can put somebody out ›")
            await it.press("down", "left", "down", "right", "down", "space")
            await it.shows("‹ every member can put another out ›", "not come in ›", "‹ one envelope for all")
            await it.press("down", "right", "down", "right")
            await it.shows("newcomers   ‹ get the last 50 messages from before they came ›")
            await it.shows("kept by     ‹ the 3 who have been here longest ›")
            await it.press("enter")
            await it.shows("Message crew")
            assert asked(it.agent, "new") == [
                {
                    "group": "crew",
                    "envelope": "didcomm/v2",
                    "keys": "pairwise-single",
                    "join": "ask",
                    "remove": "anyone",
                    "quorum": None,
                    "roles": "admins",
                    "agreement": "strict",
                    "history": "last:50",
                    "keepers": 3,
                    "accountability": "acks",
                }
            ]
            await it.press("f12")
            await it.until(lambda: "every member can put another out" in str(it.app.screen.query_one(".body").render()))

    run(play())


def test_a_name_and_enter_make_the_usual_group(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f7")
            await it.shows("Name of the new group")
            await it.press("f7", "right", "f7", "enter")  # Looked at the rules, and thought better of it all.
            await it.shows("No conversations yet.")
            await it.until(lambda: not isinstance(it.app.screen, CreateScreen))
            await it.say("/new plain")
            await it.shows("Message plain")
            [params] = asked(it.agent, "new")
            assert (params["join"], params["remove"], params["quorum"]) == ("invited", "quorum", 2)
            assert (params["roles"], params["agreement"], params["keys"]) == ("flat", "permissive", "pairwise-multi")

    run(play())


@pytest.mark.slow
def test_a_join_that_waits_is_seen_without_being_asked_for(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.joining("asking", "A member was asked…", words=WORDS, name="crew")
            await it.shows("joining crew: waits for an answer (F8)")
            it.agent.joining("joined", "You are in crew.")
            await it.gone("joining crew")
            it.agent.joins = [JoinStatus(join="j2", phase="asking", text="…", name="band")]
            it.app.chat._ask_status()
            await it.shows("joining band… (F8)")
            await it.press("f12")
            await it.shows("joining band")

    run(play())


def test_a_group_that_is_over_is_marked_and_not_left_again(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            group.info = replace(group.info, state="left")
            it.agent.view(group)
            await it.shows("weekend  you left", "1 weekend    left")
            await it.press("f10")
            await it.until(lambda: "You have left this group." in it.told())
            assert it.agent.count("leave") == 0 and it.app.chat.on_top
            await it.say("/verify bob")
            await it.shows("verified     no")
            assert "different from mine" not in it.text and "v type the words" not in it.text
            await it.press("escape", "f12")
            await it.shows("weekend      you left")

    run(play())


def test_an_owner_who_leaves_is_warned(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            group.info = replace(group.info, role="owner", policy=PolicyInfo(roles="admins"))
            it.agent.view(group)
            await it.until(lambda: it.app.chat.conversations.open.info.role == "owner")
            await it.press("f10")
            await it.shows("You are the owner, and there are no admins")

    run(play())
