"""Joining in the terminal application: join requests, progress, and the rules of a new group."""

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import URL, WORDS, Refusal
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.presentation.group_rules import policy_sentences
from zerochat.rpc import GroupInfo, JoinRequestNotification, JoinStatus, PolicyInfo
from zerochat.tui.dialogs.create import CreateDialog
from zerochat.tui.dialogs.requests import RequestsDialog
from zerochat.tui.state.hints import why_read_only


def said(nick: str, admit: bool) -> dict[str, object]:
    """An answer to somebody as it was shown."""
    role = "reader" if nick == "emil" else "writer"
    return {"group": "g1", "member": f"did:key:z6MkAsks{nick}", "admit": admit, "nick": nick, "role": role}


def frame_text(text: str) -> str:
    """What stands in the frame of the dialog on a screen."""
    inside = [line.split("│  ", 1)[1] for line in text.split("\n") if line.count("│") >= 2 and "│  " in line]
    return "\n".join(line.rsplit("│", 1)[0].rstrip() for line in inside).strip()


# --- who asks to join -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_join_request_is_shown_without_taking_focus(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("half a se")
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.shows("? dora asks to join. Press F4 to answer.")
            await it.type("ntence")
            assert it.composer.text == "half a sentence" and it.app.focused is it.composer
            assert " 1 weekend  ?1 " in it.text
            it.agent.ask(it.agent.groups["g2"], "fred")
            await it.shows("2 work     ?1 ")
            await it.until(lambda: "fred asks to join work." in it.told())
            it.app.chat.status_line.flash = ""
            await it.shows("?1 join request elsewhere (Alt+A)")
            await it.press("alt+a")
            await it.shows("? fred asks to join. Press F4 to answer.")
            await it.press("alt+1")
            it.agent.ask(it.agent.groups["g1"], "emil", "reader")
            it.agent.ask(it.agent.groups["g1"], "gina")
            await it.shows("? dora, emil and 1 more ask to join. Press F4", "1 weekend  ?3 ")

    run(play())


@pytest.mark.slow
def test_the_join_request_dialog(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.dialogs.requests.INPUT_GUARD_S", 3600.0)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/requests")
            await it.until(lambda: "No join requests here: an invitation is enough to join." in it.told())
            group = it.agent.groups["g1"]
            group.info = replace(group.info, policy=PolicyInfo(join="ask"))
            it.agent.view(group)
            await it.until(lambda: it.app.chat.conversations.open.info.policy.join == "ask")
            await it.say("/requests")
            await it.until(lambda: "No join requests here." in it.told())
            it.agent.ask(group, "dora")
            it.agent.ask(group, "emil", "reader")
            await it.shows("? dora and emil ask to join.")
            await it.press("f4")
            await it.shows("key …dora")
            assert frame_text(it.text) == (
                "Join requests for weekend\n"
                "\n"
                "dora, read and write                                            dora\n"
                "emil, read only                                                 emil\n"
                "\n"
                "apple river stone lamp\n"
                "cloud tiger window bread\n"
                "Call them: they must see the same words.\n"
                "since 20 Nov 12:20, key …dora\n"
                "\n"
                "\n"
                "a admits   r refuses   Esc closes"
            )
            await it.press("down")
            await it.shows("key …emil")
            await it.press("a", "a", "a")  # One key, but held down it lets nobody else in.
            await it.shows("emil admitted.", "key …dora")
            assert asked(it.agent, "answer_join_request") == [said("emil", True)]
            monkeypatch.setattr("zerochat.tui.dialogs.requests.INPUT_GUARD_S", 0.0)
            it.app.screen._guarded_until = 0.0
            await it.press("a")  # The last one need not be looked for.
            await it.shows("dora admitted.", "No join requests.")
            await it.press("a", "r")
            await it.press("escape")
            await it.shows("alice admitted emil", "alice admitted dora")
            assert it.agent.count("answer_join_request") == 2 and "F4 to answer" not in it.text

    run(play())


@pytest.mark.slow
def test_a_refusal_can_be_undone(tmp_path, monkeypatch):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            it.agent.ask(group, "dora")
            it.agent.ask(group, "emil")
            await it.shows("ask to join")
            await it.press("f4", "r")
            await it.shows("✗ refused: dora", "dora refused. Press u to undo.", "key …emil", "u undoes that")
            await it.press("u")
            await it.shows("dora is waiting again.", "key …dora")
            await it.gone("✗ refused")
            await it.gone("u undoes that")
            await it.press("u")
            await it.shows("Nothing to undo.")
            assert it.agent.count("answer_join_request") == 0
            await it.press("r", "escape")  # Whoever closes the dialog has made up their mind.
            await it.until(lambda: it.agent.count("answer_join_request") == 1)
            assert asked(it.agent, "answer_join_request")[0] == said("dora", False)
            await it.shows("? emil asks to join.")
            monkeypatch.setattr("zerochat.tui.dialogs.requests.UNDO_S", 0.02)
            await it.press("f4", "r")
            await it.shows("emil refused.", "No join requests.")
            await it.press("escape")
            await it.gone("asks to join.")
            assert it.agent.count("answer_join_request") == 2

    run(play())


@pytest.mark.slow
def test_a_sent_refusal_does_not_move_the_selection(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.dialogs.requests.UNDO_S", 0.02)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for nick in ("dora", "emil", "gina"):
                it.agent.ask(it.agent.groups["g1"], nick)
            await it.shows("ask to join")
            await it.press("f4", "r")
            await it.shows("dora refused.", "key …emil")
            await it.press("a")
            await it.shows("emil admitted.")
            admitted = [(params["member"], params["admit"]) for params in asked(it.agent, "answer_join_request")]
            assert admitted == [("did:key:z6MkAsksdora", False), ("did:key:z6MkAsksemil", True)]

    run(play())


@pytest.mark.slow
def test_requests_answered_elsewhere_disappear_safely(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.dialogs.requests.INPUT_GUARD_S", 3600.0)

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
            it.agent.tell(
                "join_request", JoinRequestNotification(group="g1", member=dora.did, nick="dora", state="refused")
            )
            await it.shows("key …emil")
            await it.press("a", "r")  # It was meant for dora.
            await it.gone("dora, read and write")
            assert it.agent.count("answer_join_request") == 0
            it.agent.refuse["answer_join_request"] = Refusal("There is no join request of emil.", "NobodyAsks")
            it.app.screen._guarded_until = 0.0
            await it.press("a")
            await it.shows("There is no join request of emil.", "emil, read and write")
            group.info = replace(group.info, requests=[])
            it.agent.tell(
                "join_request", JoinRequestNotification(group="g1", member=emil.did, nick="emil", state="refused")
            )
            await it.shows("No join requests.")

    run(play())


def test_the_member_list_shows_join_requests(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.shows("asks to join")
            await it.say("/members")
            await it.shows("? dora asks to join    dora")
            await it.press("down", "enter")
            await it.until(lambda: isinstance(it.app.screen, RequestsDialog))
            it.agent.seat(it.agent.groups["g1"], "dora", 1, 3)
            await it.press("escape")
            await it.until(lambda: "dora is connected to 1/3 members." in it.told())
            await it.pilot.click("#join-requests")
            await it.until(lambda: isinstance(it.app.screen, RequestsDialog))

    run(play())


@pytest.mark.slow
def test_requests_are_reported_over_dialogs(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Invitation to weekend")
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.until(lambda: "dora asks to join weekend. Press Esc, then F4 to answer." in it.told())
            await it.press("escape", "f4")
            await it.shows("Join requests for weekend", "dora, read and write")

    run(play())


# --- joining --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_waiting_for_admission(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f8")
            await it.shows("Paste the invitation", "‹ read and write ›")
            await it.paste(URL)
            await it.press("tab", "tab", "tab", "tab", "right")
            await it.shows("‹ read only ›")
            await it.pilot.click("#invitation")
            await it.press("enter")
            await it.shows("● contact the inviter")
            assert asked(it.agent, "join_group") == [{"invitation": URL, "name": "alice", "role": "reader"}]
            it.agent.joining("asking", "A member of weekend has been asked to let you in.", words=WORDS)
            await it.shows("● ask to join the group", "A member of weekend has been asked", "cloud tiger window bread")
            await it.shows("Esc closes this; joining")
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
            assert it.app.chat.joins == {} and "Enter to try again" not in it.text  # There is nothing to try with.
            await it.press("escape", "f8")
            await it.gone("connect to the members")
            assert "F10" not in it.text, "there is nothing to give up"

    run(play())


def test_a_join_is_cancelled(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.say(f"/join {URL}")
            await it.shows("● contact the inviter", "F10 cancel")
            details = {"words": WORDS, "name": "weekend", "started_at": "2025-11-20T12:00:00.000Z"}
            it.agent.joining("asking", "A member was asked.", **details)
            await it.shows("Waiting since", "F10 cancels.")
            await it.press("f10")
            await it.shows("You cancelled joining weekend.")
            assert asked(it.agent, "cancel_join") == [{"join": "j1"}] and "F10" not in it.text
            await it.press("escape")
            await it.say("/cancel")
            await it.shows("You are not joining any group.")
            it.agent.joining("asking", "A member was asked.", **details)
            await it.until(lambda: it.app.chat.joins)
            await it.say("/cancel weekend")
            await it.shows("You cancelled joining weekend.")
            await it.until(lambda: not it.app.chat.joins)

    run(play())


def test_a_group_being_left_cannot_be_forgotten_yet(tmp_path):
    def both(agent):
        weekend(agent)
        agent.groups["g1"].info = replace(agent.groups["g1"].info, state="leaving")

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=both) as it:
            await it.shows("seven at the station")
            await it.say("/forget")
            await it.shows("Some members do not know yet that you left.")
            assert it.agent.count("forget_group") == 0

    run(play())


@pytest.mark.slow
def test_forgetting_a_left_group_needs_confirmation(tmp_path):
    def both(agent):
        weekend(agent)
        agent.groups["g1"].info = replace(agent.groups["g1"].info, state="left")

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=both) as it:
            await it.shows("1 weekend    left")
            await it.say("/forget")
            await it.shows("Forget weekend? Its messages are deleted from this")
            await it.press("escape")
            await it.gone("Forget weekend?")
            assert it.agent.count("forget_group") == 0
            await it.say("/forget")
            await it.shows("Forget weekend?")
            await it.pilot.click("#yes")
            await it.until(lambda: asked(it.agent, "forget_group") == [{"group": "g1"}])
            await it.shows("1 work")
            assert "seven at the station" not in it.text and it.open.info.name == "work"
            await it.say("/forget")
            await it.shows("You are still a member of this group.")
            assert it.agent.count("forget_group") == 1

    run(play())


def test_a_forgotten_last_group_leaves_no_members(tmp_path):
    def one(agent):
        info = agent.add_group("hikers", ["bob"])
        info.info = replace(info.info, state="left")

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=one) as it:
            await it.shows("hikers  you left", "● bob")
            await it.say("/forget")
            await it.shows("Forget hikers?")
            await it.pilot.click("#yes")
            await it.shows("No conversations yet.")
            await it.gone("● bob")

    run(play())


@pytest.mark.slow
def test_resuming_an_older_copy_needs_confirmation(tmp_path):
    def restored(agent):
        weekend(agent)
        agent.groups["g1"].info = replace(agent.groups["g1"].info, suspended=True)

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=restored) as it:
            await it.shows("seven at the station", "You cannot post here yet. Type /resume")
            await it.say("too early")
            await it.shows("is being updated by the members")
            assert it.agent.count("send_message") == 0 and it.app.chat.composer.text == "too early"
            it.app.chat.composer.set_text("/res")
            await it.press("tab")
            assert it.app.chat.composer.text == "/resume "
            await it.say("/resume")
            await it.shows("Resume weekend? This is an older copy", "contradicting")
            await it.press("escape")
            await it.gone("Resume weekend?")
            assert it.agent.count("resume_group") == 0
            await it.say("/resume")
            await it.shows("Resume weekend?")
            await it.pilot.click("#yes")
            await it.until(lambda: asked(it.agent, "resume_group") == [{"group": "g1"}])
            await it.shows("You can post in weekend again.", "Message weekend")
            await it.say("/resume")
            await it.shows("Nothing to resume: this group is not suspended.")
            await it.say("at last")
            await it.until(lambda: it.agent.count("send_message") == 1)
            assert it.agent.count("resume_group") == 1

    run(play())


def test_resume_hint_for_a_sole_member():
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
    assert "the only member when this backup was made" in why_read_only(info, [])
    assert "is being updated by the members" in why_read_only(replace(info, members=2), [])
    assert not why_read_only(replace(info, suspended=False), [])


@pytest.mark.slow
def test_a_failed_join_can_be_retried_with_another_name(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.say(f"/join {URL}")
            await it.shows("● contact the inviter")
            it.agent.joining(
                "failed", "You have not joined: somebody is called alice there already.", error="JoinFailed"
            )
            await it.shows(
                "somebody is called alice", "Press Enter to try again; you can change the name or role first."
            )
            await it.press("tab")
            await it.type("alice2")
            await it.press("enter")
            await it.until(lambda: it.agent.count("join_group") == 2)
            assert asked(it.agent, "join_group")[1]["name"] == "alice2"

    run(play())


@pytest.mark.slow
def test_inviting_to_read_only(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/invite 3 reader")
            await it.shows("read only", "for 3 people")
            await it.press("r", "f3")
            await it.until(lambda: it.agent.count("create_invitation") == 2)
            await it.gone("read only")
            assert [each["role"] for each in asked(it.agent, "create_invitation")] == ["reader", "writer"]
            await it.press("escape")
            await it.say("/invite everybody")
            await it.shows("Invitation to weekend (everybody)")
            await it.press("escape")
            group = it.agent.groups["g1"]
            group.info = replace(group.info, policy=PolicyInfo(join="ask"))
            it.agent.view(group)
            await it.until(lambda: it.open.info.policy.join == "ask")
            await it.press("f3")
            await it.shows("Anyone who has it can ask")

    run(play())


# --- creating -------------------------------------------------------------------------------------------------------


def test_the_rules_of_a_new_group_fit_in_a_small_terminal(tmp_path):
    """At every rule the keys below are in sight; beyond the last there is no line."""

    async def play():
        async with scene(tmp_path, size=(80, 24)) as it:
            await it.shows("No conversations yet.")
            await it.press("f7")
            await it.shows("Name of the new group")
            await it.press("f7")
            for label in ("joining", "posting", "removal", "conflicts", "kind", "history", "kept by", "retention"):
                await it.shows(f"{label:<11} ‹", "Enter creates the group, F7 shows or hides the rules, Esc cancels.")
                await it.press("down")
            await it.press("right")
            await it.shows("retention   ‹ messages disappear after 1 day ›", "Enter creates the group")

    run(play())


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
                f"joining     ‹ {policy_sentences(PolicyInfo())[0]} ›",
                "posting     ‹ all members are equal and can post ›",
                "removal     ‹ two members together can remove a member ›",
                "kind        ‹ private: keys that heal, signed by the author ›",
            )
            await it.press("right")
            await it.shows(f"joining     ‹ {policy_sentences(PolicyInfo(join='ask'))[0][:40]}")
            await it.press("down", "right")  # Who may put somebody out follows who there is.
            await it.shows("removal     ‹ the owner and the admins can remove members ›")
            await it.press("down", "left", "down", "right", "down", "space")
            await it.shows("‹ every member can remove others ›", "cancel a join ›")
            await it.shows("‹ large: up to 1,000 members, each linked to a few ›", "For a club of 300")
            await it.press("space")
            await it.shows("‹ deniable: keys that heal, deniable ›")
            await it.press("down", "right", "down", "right")
            await it.shows("history     ‹ the last 50 messages before they joined ›")
            await it.shows("kept by     ‹ the 3 longest-standing members ›")
            await it.press("down")
            await it.shows("retention   ‹ messages do not disappear ›")
            await it.press("right")
            await it.shows("retention   ‹ messages disappear after 1 day ›")
            await it.press("enter")
            await it.shows("Message crew")
            assert asked(it.agent, "create_group") == [
                {
                    "group": "crew",
                    "envelope": "didcomm/v2",
                    "keys": "deniable",
                    "join": "ask",
                    "remove": "anyone",
                    "quorum": None,
                    "roles": "admins",
                    "agreement": "strict",
                    "history": "last:50",
                    "keepers": 3,
                    "accountability": "acks",
                    "keep": 86_400_000,
                    "path": "mesh",
                }
            ]
            await it.press("f12")
            await it.until(lambda: "every member can remove others" in str(it.app.screen.query_one(".body").render()))

    run(play())


def test_the_retention_of_a_new_group_may_be_typed(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 24)) as it:
            await it.shows("No conversations yet.")
            await it.press("f7")
            await it.shows("Name of the new group")
            await it.type("crew")
            await it.press("f7", *["down"] * 7, "left")
            await it.shows("retention   ‹ messages disappear after another time, typed below ›", "such as 12h, 30d")
            await it.press("down", "3", "0", "m", "enter")
            await it.shows("Invalid retention '30m'", "1 hour to 3,650 days")
            assert not it.agent.count("create_group")
            await it.press("up", "right")  # One of the usual times after all,
            await it.gone("Invalid retention")
            await it.gone("30m")
            await it.press("left", "down", *["backspace"] * 3)  # and not.
            await it.type("36h")
            await it.press("enter")
            await it.shows("Message crew")
            assert [params["keep"] for params in asked(it.agent, "create_group")] == [36 * 3_600_000]

    run(play())


def test_a_name_and_enter_create_the_default_group(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f7")
            await it.shows("Name of the new group")
            await it.press("f7", "right", "f7", "enter")  # Looked at the rules, and thought better of it all.
            await it.shows("No conversations yet.")
            await it.until(lambda: not isinstance(it.app.screen, CreateDialog))
            await it.say("/new plain")
            await it.shows("Message plain")
            [params] = asked(it.agent, "create_group")
            assert (params["join"], params["remove"], params["quorum"]) == ("invited", "quorum", 2)
            assert (params["roles"], params["agreement"], params["keys"]) == ("flat", "permissive", "dcgka")
            await it.say("/new club --kind huge")
            await it.shows("unknown kind 'huge'")
            await it.say("/new club --kind large")
            await it.shows("Message club")
            params = asked(it.agent, "create_group")[-1]
            assert (params["group"], params["keys"], params["path"]) == ("club", "dcgka", "ring")

    run(play())


@pytest.mark.slow
def test_a_waiting_join_is_shown_in_the_status_line(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.joining("asking", "A member was asked…", words=WORDS, name="crew")
            await it.shows("joining crew: waiting for approval (F8)")
            it.agent.joining("joined", "You are in crew.")
            await it.gone("joining crew")
            it.agent.joins = [JoinStatus(join="j2", phase="asking", text="…", name="band")]
            it.app.chat._poll_status()
            await it.shows("joining band… (F8)")
            await it.press("f12")
            await it.shows("joining band")

    run(play())


@pytest.mark.slow
def test_a_left_group_is_marked_and_not_left_again(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            group.info = replace(group.info, state="left")
            it.agent.view(group)
            await it.shows("weekend  you left", "1 weekend    left")
            await it.press("f10")
            await it.until(lambda: "You left this group." in it.told())
            assert it.agent.count("leave_group") == 0 and it.app.chat.on_top
            await it.say("/verify bob")
            await it.shows("verified     no")
            assert "different from yours" not in it.text and "v words" not in it.text
            await it.press("escape", "f12")
            await it.shows("weekend       you left")

    run(play())


@pytest.mark.slow
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
