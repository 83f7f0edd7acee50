"""Message selection and actions by key, command, palette and mouse."""

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import ME, Refusal
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.rpc import ExpiredNotification
from zerochat.tui.actions import messages
from zerochat.tui.state.preferences import SettingsStore

pytestmark = pytest.mark.usefixtures("utc")


def selected(it):
    row = it.app.chat.pane.selected_row
    return row.source if row else None


def line_with(it, text):
    return next(line for line in it.text.split("\n") if text in line)


def test_pinning_and_the_list_of_pins(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/pins")
            await it.until(lambda: "No message is pinned here." in it.told())
            await it.say("/pin")
            await it.shows("alice changed the pinned messages")
            await it.say("/pins")
            await it.shows("Pinned messages", "alice: seven at the station")
            await it.press("enter")
            await it.until(lambda: it.app.chat.pane.selected_row is not None)
            assert it.app.chat.pane.selected_row.source == "seven at the station"
            await it.press("escape")
            await it.say("/unpin")
            await it.until(lambda: it.agent.groups["g1"].pins == [])

    run(play())


# --- the cursor -----------------------------------------------------------------------------------------------------


def test_up_and_down_between_composer_and_messages(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("up")
            await it.until(lambda: selected(it) == "seven at the station")
            assert "▌ seven at the station" in it.text and "│ yes" in it.text
            await it.press("up")
            assert selected(it) == "yes" and "▌ yes" in it.text and "│ seven" in it.text
            await it.press("f6", "up")  # There is nothing above the first.
            assert selected(it) == "shall we go?"
            await it.press("f6", "j", "j")
            assert selected(it) == "seven at the station"
            await it.press("down")
            assert it.composer.has_focus and selected(it) is None and "▌" not in it.text
            await it.type("hello")
            assert it.composer.text == "hello"
            await it.press("up")  # Where something is typed it moves in that.
            assert it.composer.has_focus

    run(play())


def test_escape_switches_between_composer_and_messages(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("a draft")
            await it.press("escape")
            assert selected(it) == "seven at the station"
            await it.press("home")
            assert selected(it) == "shall we go?"
            await it.press("end")
            assert selected(it) == "seven at the station"
            await it.press("escape")
            assert it.composer.has_focus and it.composer.text == "a draft" and selected(it) is None

    run(play())


@pytest.mark.slow
def test_the_selection_stays_on_its_message(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(300):
            agent.post(group, 1, f"post {number}.")

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("post 299.")
            group = it.agent.groups["g1"]
            await it.press("f6", "k", "k")
            assert selected(it) == "post 297."
            for number in range(40):
                it.agent.say(group, 1, f"later {number}")
            await it.until(lambda: it.open.timeline.rows[-1].text == "later 39")
            await it.until(lambda: "▌ post 297." in it.text, "what is selected stays in sight")
            await it.shows("new below")
            assert selected(it) == "post 297."
            before = it.agent.count("get_history")
            it.app.chat.pane.place.following = False
            await it.press("home")
            await it.until(lambda: it.agent.count("get_history") > before)
            await it.until(lambda: not it.open.paging and len(it.open.timeline.rows) == 341)
            assert selected(it) == "post 100."  # The first of the window that was; older ones came in above.
            await it.until(lambda: "▌ post 100." in it.text)
            key = it.app.chat.pane.selected
            it.open.timeline.remove([key])
            it.app.chat.pane.redraw()
            assert selected(it) == "post 101."
            it.open.timeline.clear()
            it.app.chat.pane.redraw()
            assert selected(it) is None

    run(play())


def test_a_click_selects_and_a_second_opens_the_menu(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            _, y = await it.position("│ yes")
            await it.pilot.click(offset=(45, y))
            assert selected(it) == "yes"
            await it.pilot.click(offset=(45, y))
            await it.shows("Reply", "Copy", "Delivery details")
            assert "Delete" not in it.text  # It is somebody else's.
            await it.press("escape")
            await it.pilot.click(offset=(45, y + 1), button=3)
            await it.shows("Delete")
            await it.press("e")
            await it.shows("Editing: seven at the station")

    run(play())


def test_letters_are_text_without_a_selection(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.chat.pane.focus()
            await it.pilot.pause()
            await it.press("r", "e", "d")
            await it.until(lambda: it.composer.text == "red")
            assert it.open.compose_target is None

    run(play())


@pytest.mark.parametrize("way", ["up", "escape", "click", "act"])
def test_letters_are_text_with_a_selection(tmp_path, way):
    async def play():
        act = SettingsStore(overrides={"chat.letters": "act"} if way == "act" else {})
        async with scene(tmp_path, setting=weekend, settings_store=act) as it:
            await it.shows("seven at the station")
            if way == "click":
                _, y = await it.position("│ seven")
                await it.pilot.click(offset=(45, y))
            else:
                await it.press("escape" if way == "escape" else "up")
            assert selected(it) == "seven at the station"
            if way == "act":
                await it.press("d")
                await it.shows("Delete “seven at the station”")
                return
            await it.shows("Enter more  F6 letter keys  Esc back")
            await it.type("dinner at Gjoll")
            await it.until(lambda: it.composer.text == "dinner at Gjoll")
            assert it.app.screen is it.app.chat and selected(it) is None

    run(play())


def test_chords_act_without_the_selection_mode(tmp_path):
    async def play():
        own = SettingsStore(overrides={"chat.keys.message.reply": "r,ctrl+r"})
        async with scene(tmp_path, setting=weekend, settings_store=own) as it:
            await it.shows("seven at the station")
            await it.press("up")
            await it.shows("Ctrl+R reply  Enter more")
            await it.press("enter")  # the menu: then the letters are its keys
            await it.shows("Delivery details")
            await it.press("r")
            await it.shows("Replying to alice")
            await it.press("escape", "up", "ctrl+r")
            await it.shows("Replying to alice")
            await it.press("escape", "f6", "escape", "up")  # the mode has ended with the selection
            await it.type("mine")
            await it.until(lambda: it.composer.text == "mine")

    run(play())


# --- in the composer ------------------------------------------------------------------------------------------------


def test_replying(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f6", "k", "r")
            await it.shows("Replying to carol: yes (Esc cancels)")
            await it.type("great")
            await it.press("enter")
            await it.shows("│ carol: yes", "great")
            (sent,) = asked(it.agent, "send_message")
            assert sent["reply_to"] == it.agent.groups["g1"].events[2].id and sent["text"] == "great"
            assert "Answering" not in it.text
            await it.press("f6", "r")
            await it.shows("Replying to alice: great")
            await it.press("escape")
            await it.gone("Answering")
            await it.type("by itself")
            await it.press("enter")
            await it.until(lambda: len(asked(it.agent, "send_message")) == 2)
            assert asked(it.agent, "send_message")[1]["reply_to"] is None

    run(play())


@pytest.mark.slow
def test_keys_after_r_belong_to_the_reply(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f6")
            await it.type("redo it")
            await it.until(lambda: it.composer.text == "edo it", it.composer.text)
            assert it.open.compose_target is not None and it.open.compose_target.kind == "reply"

    run(play())


@pytest.mark.slow
def test_a_rejected_reply_returns_to_its_conversation(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f6", "r")
            await it.shows("Replying to alice")
            await it.press("alt+down")
            await it.shows("Message work")
            assert "Answering" not in it.text
            await it.press("alt+up")
            await it.shows("Replying to alice")
            it.agent.refuse["send_message"] = Refusal("The disk is full.")
            await it.type("words")
            await it.press("enter")
            await it.until(lambda: "The disk is full." in it.told())
            await it.shows("Replying to alice")
            assert it.composer.text == "words"

    run(play())


def test_editing_a_message(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("begun")
            await it.press("f6", "e")
            await it.shows("Editing: seven at the station")
            assert it.composer.text == "seven at the station"
            await it.type("!")
            await it.press("enter")
            await it.shows("seven at the station! (edited)")
            [edit] = asked(it.agent, "edit_message")
            assert (edit["group"], edit["event"], edit["text"]) == ("g1", "e000004", "seven at the station!")
            assert it.composer.text == "begun"  # What was begun before is there again.
            assert not asked(it.agent, "send_message")
            await it.press("f6", "k", "e")
            await it.until(lambda: "You can only edit your own messages." in it.told())
            await it.press("j", "e")
            await it.shows("Editing:")
            await it.press("escape")
            await it.gone("Editing:")
            assert it.composer.text == "begun"

    run(play())


@pytest.mark.slow
def test_message_actions_as_commands(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/edit eight at the station")
            await it.shows("eight at the station (edited)")
            await it.say("/reply and then?")
            await it.shows("│ alice: eight at the station", "and then?")
            await it.say("/me waves *slowly*")
            await it.shows("*   alice waves slowly")
            assert [each["action"] for each in asked(it.agent, "send_message")] == [False, True]
            await it.say("/react rocket")
            await it.shows("[🚀 1]")
            await it.say("/react rocket")
            await it.gone("🚀")
            assert [(each["emoji"], each["on"]) for each in asked(it.agent, "react")] == [("🚀", True), ("🚀", False)]
            await it.say("/react nosuchthing")
            await it.until(lambda: "No emoji is called nosuchthing." in it.told())
            await it.say("/me")
            await it.until(lambda: "Usage: /me TEXT" in it.told())
            it.composer.set_text("")
            await it.press("escape", "home")
            await it.type("/react")
            await it.press("space")
            await it.type("tada")
            await it.press("enter")
            await it.until(lambda: len(asked(it.agent, "react")) == 3)
            assert asked(it.agent, "react")[2]["event"] == "e000002"  # What was selected, not the newest.

    run(play())


# --- with the agent -------------------------------------------------------------------------------------------------


def test_deleting_is_confirmed_with_its_limits(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 30), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f6", "d")
            await it.shows("for all members", "cannot be")
            await it.press("n")
            await it.gone("for all members")
            assert not asked(it.agent, "delete_message")
            await it.press("d")
            await it.shows("for all members")
            await it.press("y")
            await it.until(lambda: asked(it.agent, "delete_message"))
            assert [(one["group"], one["event"]) for one in asked(it.agent, "delete_message")] == [("g1", "e000004")]
            await it.shows("▌ (deleted)")
            assert "seven at the station" not in it.text
            await it.press("r")
            await it.until(lambda: "This message was deleted." in it.told())
            await it.press("k", "d")
            await it.until(lambda: "your own messages" in it.told())

    run(play())


@pytest.mark.slow
def test_reacting(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 30), setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            it.agent.react(group, "e000003", 1, "🎉")
            await it.shows("🎉 1")
            await it.press("f6", "k", "plus")
            await it.shows("React with")
            await it.press("down", "up", "enter")  # What is below it already comes first.
            await it.shows("[🎉 2]")
            await it.press("+")
            await it.shows("yours: removes it")
            await it.type("rock")
            await it.shows("🚀  rocket")
            await it.press("enter")
            await it.shows("[🎉 2]  [🚀 1]")
            await it.press("+")
            await it.type("nosuchname")
            await it.press("enter")
            await it.shows("No emoji has that name.")
            await it.press("escape")
            it.agent.refuse["react"] = Refusal("Not that one.")
            await it.press("+", "enter")
            await it.until(lambda: "Not that one." in it.told())

    run(play())


@pytest.mark.slow
def test_the_message_info_dialog(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            it.agent.react(group, "e000004", 1, "👀")
            it.agent.edit(group, "e000004", "eight at the station")
            await it.shows("(edited)", "👀 1")
            await it.press("f6", "i")
            await it.shows("Message info", "e000004", ME, "1 of 2", "edited", "by its author's clock", "👀", "bob")
            await it.shows("not individually; press E for details")
            await it.press("escape")
            group.info = replace(group.info, keys="sender-key")
            await it.press("i")
            await it.shows("by its author: proves to anyone", "signed")
            await it.press("escape")
            await it.press("k", "v")
            await it.shows("carol")
            await it.until(lambda: asked(it.agent, "get_safety_words"))
            await it.press("escape")
            await it.press("end", "v")
            await it.until(lambda: "This is your own message." in it.told())

    run(play())


@pytest.mark.slow
def test_every_action_is_in_palette_and_menu(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 60), setting=weekend) as it:
            await it.shows("seven at the station")
            pane = it.app.chat.pane
            bindings = [each for each in pane.BINDINGS if each.id.startswith("message.")]
            entries = [entry.title for entry in it.app.get_system_commands(it.app.screen)]
            assert {each.description for each in bindings} <= set(entries)
            assert {each.id.removeprefix("message.") for each in bindings} == set(messages.ACTIONS)
            await it.press("f6", "k", "ctrl+p")
            await it.type("reply to the message")
            await it.pilot.pause()
            await it.press("down", "enter")
            await it.shows("Replying to carol: yes")

    run(play())


def test_replies_lead_to_the_original(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        first = agent.post(group, 1, "the very first")
        for number in range(400):
            agent.post(group, 1, f"post {number}.")
        answer = agent.post(group, 1, "an answer to it")
        agent.change(group, answer.id, reply_to=first.id, quoted=agent.quote(group, first.id))
        late = agent.post(group, 1, "an answer to an answer")
        agent.change(group, late.id, reply_to=answer.id, quoted=agent.quote(group, answer.id))
        lost = agent.post(group, 1, "an answer to nothing here")
        agent.change(group, lost.id, reply_to="e999", quoted=agent.quote(group, "e999"))

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("│ bob: the very first", "│ bob: an answer to it", "│ a message that is not available")
            await it.press("f6", "g")
            await it.until(lambda: "The original message is not available here." in it.told())
            await it.press("k", "g")
            assert selected(it) == "an answer to it"
            await it.press("g")
            await it.until(lambda: selected(it) == "the very first")
            await it.until(lambda: "▌ the very first" in it.text)
            await it.press("g")
            await it.until(lambda: "This message is not a reply." in it.told())

    run(play())


def test_deleted_messages_vanish_from_quotes(tmp_path):
    def setting(agent):
        weekend(agent)
        group = agent.groups["g1"]
        answer = agent.post(group, 1, "good", minute=4)
        agent.change(group, answer.id, reply_to="e000004", quoted=agent.quote(group, "e000004"))

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("│ alice: seven at the station")
            group = it.agent.groups["g1"]
            it.agent.edit(group, "e000004", "eight at the station")
            await it.shows("│ alice: eight at the station", "eight at the station (edited)")
            it.agent.delete(group, "e000004")
            await it.shows("│ alice: (deleted)")
            assert "at the station" not in it.text

    run(play())


# --- reading --------------------------------------------------------------------------------------------------------


def test_mentions_are_counted_and_come_first(tmp_path):
    def setting(agent):
        weekend(agent)
        agent.add_group("more", ["emil"])

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("seven at the station")
            for id, text, called in [("g2", "hi all", []), ("g3", "hi all", []), ("g3", "@alice look", [ME])]:
                group = it.agent.groups[id]
                it.agent.arrive(group, it.agent._log(group, 1, "message", {"text": text}, minute=9), mentions=called)
            await it.shows("@1, 3 unread elsewhere", " 3 more   @1 2 ")
            await it.press("alt+a")
            await it.shows("┃ @alice look")
            assert it.app.chat.conversations.open_id == "g3"
            await it.gone("@1")
            own = it.agent.post(it.agent.groups["g3"], 0, "I am alice", minute=9)
            it.agent.tell("event", it.agent.change(it.agent.groups["g3"], own.id, mentions=[ME]))
            await it.shows("│ I am alice")

    run(play())


def test_mentions_by_edits_are_counted(tmp_path):
    def setting(agent):
        weekend(agent)
        agent.add_group("more", ["emil"])

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g3"]
            said = it.agent.say(group, 1, "look", minute=9)
            edit = it.agent._log(group, 1, "message_edited", {"target": said.id, "text": "@alice look"}, minute=10)
            it.agent.arrive(group, edit, mentions=[ME])
            await it.shows("@1, 1 unread elsewhere", "more   @1 1 ")

    run(play())


@pytest.mark.slow
def test_consecutive_joins_fold_until_clicked(tmp_path):
    def setting(agent):
        weekend(agent)
        group = agent.groups["g1"]
        for number in range(3):
            body = {"did": f"did:key:z{number}", "nick": f"n{number}"}
            agent._log(group, 0, "member_joined", body, minute=40)

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.position("▸ n0, n1 and n2 joined")
            pane = it.app.chat.pane
            at = next(y for y in range(pane.size.height) if "▸" in pane.render_line(y).text)
            await it.pilot.click("#pane", offset=(30, at))
            await it.shows("admitted n0", "admitted n1", "admitted n2")
            await it.gone("▸")
            it.composer.focus()
            await it.say("/set folded off")
            await it.until(lambda: not pane.folded)
            await it.say("/set folded on")
            await it.shows("▸ n0, n1 and n2 joined")
            await it.say("/set folded off")
            await it.shows("admitted n0", "admitted n1", "admitted n2")

    run(play())


def test_the_topic_is_always_shown(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/topic  the   early train")
            await it.shows("weekend  the early train  2/2 connected", "alice changed the topic: the early")
            for width in (120, 60, 40):
                await it.pilot.resize_terminal(width, 24)
                await it.until(lambda: it.text.split("\n")[0].startswith(" weekend  the early train"))
            await it.say("/topic")
            await it.until(lambda: "Topic: the early train" in it.told())
            await it.say("/topic -")
            await it.shows("alice cleared the topic")
            await it.until(lambda: "early train" not in it.text.split("\n")[0])

    run(play())


def test_messages_that_expire_disappear(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/keep")
            await it.until(lambda: "Messages here do not disappear." in it.told())
            await it.say("/keep soon")
            await it.until(lambda: "such as 12h, 30d or 4w" in it.told())
            await it.until(lambda: it.composer.text == "/keep soon", "what was refused is there to be corrected")
            await it.press("escape")
            await it.until(lambda: not it.composer.text, "or to be given up")
            assert it.composer.has_focus
            await it.press("ctrl+up")
            await it.until(lambda: it.composer.text == "/keep soon")
            await it.press(*["backspace"] * len("soon"))
            await it.type("30d")
            await it.press("enter")
            await it.until(lambda: not it.composer.text)
            await it.until(lambda: "disappear from this machine after 30 days" in it.told())
            await it.until(lambda: "disappear after 30 days" in it.text.split("\n")[0])
            last = it.agent.groups["g1"].events[-1]
            it.agent.tell("expired", ExpiredNotification("g1", last.lamport + 1))
            await it.until(lambda: "seven at the station" not in it.text)

    run(play())


@pytest.mark.slow
def test_pages_without_rows_hide_nothing(tmp_path):
    """Somebody who reacts a thousand times does not cut the others off from what was said before."""

    def setting(agent):
        group = agent.add_group("weekend", ["bob"])
        first = agent.post(group, 1, "said long ago", minute=1)
        for number in range(450):
            agent._log(group, 1, "reacted", {"target": first.id, "emoji": "👍", "on": bool(number % 2)})
        agent.post(group, 1, "said in between", minute=2)
        for number in range(450):
            agent._log(group, 1, "reacted", {"target": first.id, "emoji": "👍", "on": bool(number % 2)})

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("said in between")
            await it.press("ctrl+home")
            await it.shows("said long ago", "This is the beginning of weekend.")
            assert it.open.timeline.posts == 2 and it.agent.count("get_history") <= 6
            groups = it.agent.count("list_groups")
            it.agent.tell(
                "event", it.agent._log(it.agent.groups["g1"], 1, "reacted", {"target": "e000002", "emoji": "👍"})
            )
            it.agent.say(it.agent.groups["g1"], 1, "and now")
            await it.shows("and now")
            assert it.agent.count("list_groups") == groups  # Nothing of the group is asked again for a reaction.

    run(play())


@pytest.mark.slow
def test_text_can_be_selected_with_the_mouse(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            x, y = await it.position("│ yes")
            x += 2
            await it.pilot.mouse_down(offset=(x, y))
            await it.pilot.hover(offset=(x + 1, y))
            await it.pilot.hover(offset=(x + 3, y + 1))
            await it.pilot.mouse_up(offset=(x + 3, y + 1))
            await it.until(lambda: (it.app.screen.get_selected_text() or "").startswith("yes"))
            assert selected(it) is None and it.app.screen is it.app.chat
            await it.pilot.click(offset=(x, y), times=2)  # The second click is one on what is selected.
            await it.shows("Reply")

    run(play())
