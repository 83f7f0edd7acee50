"""Reading in the terminal application: content, order, window sizes."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.tui_pilot import run, scene, weekend
from zerochat import rpc
from zerochat.tui.composer.composer import Composer
from zerochat.tui.state import feed
from zerochat.tui.state.agent_link import INBOX_MAX

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("utc")


def test_the_screen_at_80x24(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station", "✓1/2", "2/2 connected · 0/2 verified", " 2 work ", "[alice]")
            await it.until(lambda: it.text.split("\n")[1].startswith(" 1 weekend "), "the end of the banner's line")
            lines = it.text.split("\n")
            assert len(lines) == 24
            assert lines[0].strip() == "weekend  2/2 connected · 0/2 verified"
            assert lines[2].startswith(" 2 work ")
            assert "12:03      alice │ seven at the station  ✓1/2" in it.text
            assert "Message weekend" in lines[-2]
            assert "[alice]" in lines[-1] and "F1 help" in lines[-1]
            await it.pilot.resize_terminal(100, 24)
            await it.shows("weekend  2/2 connected · 0/2 verified · keys that heal, signed · peer to peer · receipts")

    run(play())


def test_live_events_are_shown(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            it.agent.say(group, 1, "me too", minute=4)
            await it.shows("me too")
            it.agent.receipt(group, 2, upto=5)
            await it.shows("✓2/2")
            it.agent.say(group, 2, "said earlier, came later", lamport=2, minute=1, late=True)
            await it.shows("said earlier, came later")
            assert it.text.index("said earlier") < it.text.index("seven at the station")
            it.agent.peer(group, 1, connected=False)
            await it.shows("1/2 connected")

    run(play())


def test_a_message_right_after_the_first_page_is_shown(tmp_path):
    """The agent answers, then it arrives; its batch is handled before the answer."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            feed, group, pages = it.app.chat.feed, it.agent.groups["g2"], []
            page_of = feed._page

            async def page(conversation, *rest, **options):
                pages.append(await page_of(conversation, *rest, **options))
                if len(pages) == 1:
                    it.agent.say(group, 1, "are you coming?")
                    await it.until(lambda: conversation.last_line > pages[0][1])
                return pages[-1]

            feed._page = page
            await it.press("alt+2")
            await it.shows("are you coming?")

    run(play())


def test_times_follow_the_time_zone(tmp_path, monkeypatch):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("12:03      alice │ seven at the station")
            monkeypatch.setenv("TZ", "Asia/Tokyo")
            it.app.chat._poll_status()
            await it.shows("21:03      alice │ seven at the station")
            it.agent.say(it.agent.groups["g1"], 1, "me too", minute=4)
            await it.shows("21:04", "me too")
            assert "12:0" not in it.text

    run(play())


def test_recipients_are_recounted_when_a_member_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(feed, "PAGE", 3)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station", "✓1/2")
            group, gone = it.agent.groups["g1"], it.agent.groups["g1"].members[2]
            for number in range(7):
                it.agent.say(group, 1, f"and so on {number}")
            await it.shows("and so on 6", "✓1/2")
            group.members.remove(gone)
            group.info = replace(group.info, members=2)
            for event in list(group.events):
                if event.self and event.delivery.of:
                    it.agent.change(group, event.id, delivery=rpc.Delivery(event.delivery.delivered, 1))
            about = {"did": gone.did, "nick": gone.nick}
            it.agent.tell("event", it.agent._log(group, 1, "member_removed", about, minute=41))
            await it.shows("✓1/1")
            assert "/2 " not in it.text.split("seven at the station")[1].split("\n")[0]

    run(play())


def test_a_receipt_right_after_its_post_counts(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            event = it.agent.say(group, 0, "quick one", minute=5)
            it.agent.receipt(group, 1, upto=event.position, after=event.position - 1)
            it.agent.receipt(group, 2, upto=event.position, after=event.position - 1)
            await it.shows("quick one")
            await it.until(lambda: "✓2/2" in it.text)

    run(play())


def test_unread_messages_elsewhere_are_counted(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            work = it.agent.groups["g2"]
            for number in range(3):
                it.agent.say(work, 1, f"task {number}")
            await it.shows("3 unread elsewhere")
            assert " 2 work      3 " in it.text
            await it.press("alt+a")
            await it.shows("task 2", "─ new ─")
            assert it.text.index("new ─") < it.text.index("task 0")
            assert "unread elsewhere" not in it.text
            it.agent.say(work, 1, "task 3")
            await it.shows("task 3", "─ new ─")  # The line stays until one leaves,
            await it.press("alt+up", "alt+down")
            await it.shows("task 3")
            assert "─ new ─" not in it.text  # and then it has gone.

    run(play())


def test_unseen_messages_are_unread(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.app_focus = False
            it.agent.say(it.agent.groups["g1"], 1, "are you there?", minute=9)
            await it.shows("are you there?", "─ new ─")
            assert it.open.unread == 1
            it.app.app_focus = True
            await it.until(lambda: it.open.unread == 0)
            assert "─ new ─" in it.text

    run(play())


def test_older_pages_load_on_scrolling(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(900):
            agent.post(group, 1, f"post {number}.")

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("post 899.")
            assert it.agent.count("get_history") == 1
            await it.press("pageup")
            assert "post 899." not in it.text
            for pages in range(2, 6):
                await it.press("ctrl+home")
                await it.until(lambda pages=pages: it.agent.count("get_history") == pages, f"page {pages}")
                await it.until(lambda: not it.open.paging)
            await it.press("ctrl+home")
            await it.shows("This is the beginning of long.", "post 0.")
            assert it.agent.count("get_history") == 5
            assert [row.text for row in it.open.timeline.rows[1:]] == [f"post {number}." for number in range(900)]
            await it.press("ctrl+end")
            await it.shows("post 899.")

    run(play())


@pytest.mark.slow
def test_ten_thousand_events_keep_their_order(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            lines = [
                msgspec.json.encode(
                    {"jsonrpc": "2.0", "method": "event", "params": it.agent.post(group, 1, f"n{number}")}
                )
                for number in range(10_000)
            ]
            for writer in it.agent._writers:
                writer.write(b"\n".join(lines) + b"\n")
            for number in range(999, 10_000, 1_000):  # by steps, each with the whole deadline
                await it.until(lambda number=number: newest(it) >= number, f"n{number}")
            await it.shows("n9999")
            timeline = it.open.timeline
            assert timeline.keys == sorted(set(timeline.keys))
            numbers = [int(row.text[1:]) for row in timeline.rows if row.text.startswith("n")]
            assert numbers == list(range(numbers[0], 10_000)) and len(numbers) > 200

    run(play())


def newest(it):
    """The number of the last message n0, n1 …; -1: it is another message."""
    rows = it.open.timeline.rows
    text = rows[-1].text if rows else ""
    return int(text[1:]) if text[1:].isdecimal() else -1


def test_an_inbox_overflow_reloads(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            event = it.agent.post(group, 1, "this must not be lost")
            line = msgspec.json.encode({"jsonrpc": "2.0", "method": "event", "params": event})
            # One burst into the reader, with no chance to show anything in between.
            for _ in range(INBOX_MAX + 1):
                it.app.link._dispatch(line)
            assert it.app.link.overflowed
            await it.shows("this must not be lost")

    run(play())


def test_alt_u_goes_to_new_messages_below(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(60):
            agent.post(group, 1, f"post {number}.")

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("post 59.")
            await it.press("pageup")
            it.agent.say(it.agent.groups["g1"], 1, "the newest")
            await it.shows("▼ 1 new below")
            await it.press("alt+u")
            await it.shows("the newest")

    run(play())


@pytest.mark.parametrize("press", [True, False])
def test_the_badge_counts_late_messages_above(tmp_path, press):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(60):
            agent.post(group, 1, f"post {number}.", minute=number % 60)
        agent.post(group, 0, "my last", delivered=1)

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("my last", "✓1/1")
            group = it.agent.groups["g1"]
            for lamport in (20, 30):
                it.agent.say(group, 1, f"from long ago {lamport}", lamport=lamport, late=True)
            await it.shows("▲ 2 late above", "my last", "✓1/1")
            if press:
                await it.press("alt+u")
            else:
                await it.pilot.click(Composer, offset=(70, 0))
            await it.shows("from long ago 20")
            await it.press("alt+u")
            await it.shows("from long ago 30")
            await it.gone("late above")
            await it.press("alt+u")
            await it.until(lambda: "No unread messages here." in it.told())

    run(play())


# --- places of all sizes --------------------------------------------------------------------------------------------


def test_narrow_windows_hide_the_side_lists(tmp_path):
    async def play():
        async with scene(tmp_path, size=(120, 30), setting=weekend) as it:
            await it.shows("seven at the station")
            chat = it.app.chat

            async def at(width, *shown):
                await it.pilot.resize_terminal(width, 24)
                await it.until(
                    lambda: (
                        tuple(name for name in ("groups", "pane", "members") if chat.query_one(f"#{name}").display)
                        == shown
                    )
                )

            await at(120, "groups", "pane", "members")
            await at(99, "groups", "pane")
            await at(79, "pane")
            await at(59, "pane")
            await it.press("f2")
            await at(59, "members")
            await at(79, "pane", "members")
            await at(99, "pane", "members")
            await at(120, "groups", "pane", "members")

    run(play())


@pytest.mark.slow
def test_any_size_and_back(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            before = it.text
            for keys in [(), ("f1",), ("f3",), ("f8",), ("ctrl+k",), ("f10",)]:
                await it.press(*keys)
                for size in [(10, 3), (80, 24)] if keys else [(1, 1), (40, 12), (200, 50), (2, 60), (80, 24)]:
                    await it.pilot.resize_terminal(*size)
                if keys:
                    await it.press("escape")
                    await it.until(lambda: it.app.screen is it.app.chat)
            await it.until(lambda: it.text == before, "the picture as it was")

    run(play())


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["textual-light", "nord", "ansi-dark", "ansi-light"])
def test_other_themes(tmp_path, theme):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.theme = theme
            await it.pilot.pause()
            await it.shows("seven at the station")

    run(play())


# --- unread messages --------------------------------------------------------------------------------------------------


def missed(count, before=30):
    """A group with messages that were read, and others that came while no chat ran."""

    def setting(agent):
        group = agent.add_group("hikers", ["bob", "carol"])
        for number in range(before):
            agent.post(group, 1, f"known {number}.")
        for number in range(count):
            agent._log(group, 1 + number % 2, "message", {"text": f"missed {number}."})
        agent.add_group("work", ["dave"])

    return setting


def test_missed_messages_that_fit_are_below_the_line(tmp_path):
    async def play():
        async with scene(tmp_path, setting=missed(5)) as it:
            await it.shows("missed 4.", "─ new ─")
            assert it.text.index("known 29.") < it.text.index("─ new ─") < it.text.index("missed 0.")
            await it.until(lambda: not it.agent.read_state(it.agent.groups["g1"]).unread)
            assert "unread" not in it.text and "▲" not in it.text
            await it.press("alt+2", "alt+1")
            await it.gone("─ new ─")

    run(play())


@pytest.mark.parametrize("count", [100, 700])
def test_alt_u_goes_to_the_first_missed_message(tmp_path, count):
    async def play():
        async with scene(tmp_path, setting=missed(count)) as it:
            hikers = it.agent.groups["g1"]
            await it.shows(f"missed {count - 1}.", f"▲ {count} unread", f" 1 hikers  {count} ")
            it.agent.say(hikers, 1, "one more")
            await it.shows("one more", f"▲ {count + 1} unread")
            assert it.agent.read_state(hikers).unread == count + 1, "what was never in sight is not read"
            await it.press("alt+u")
            await it.shows("─ new ─", "missed 0.")
            await it.until(lambda: not it.agent.read_state(hikers).unread)
            await it.gone("unread")
            await it.press("ctrl+end")
            await it.shows("one more")
            assert "▲" not in it.text
            await it.press("alt+u")
            await it.shows("─ new ─")

    run(play())


def test_a_burst_leaves_a_line_and_a_badge(tmp_path):
    """When a chat with its own agent starts, the missed messages arrive while it runs."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            events = [it.agent._log(group, 1, "message", {"text": f"burst {number}."}) for number in range(300)]
            for event in events:
                it.agent.tell("event", event)
            it.agent.tell("read_changed", it.agent.read_state(group))
            await it.shows("burst 299.", "▲ 300 unread")
            assert "late above" not in it.text
            await it.press("alt+u")
            await it.shows("─ new ─", "burst 0.")
            await it.until(lambda: not it.agent.read_state(group).unread)
            await it.press("ctrl+end")
            await it.shows("burst 299.")
            assert "above" not in it.text and "unread" not in it.text

    run(play())


def test_messages_in_another_conversation_are_not_late(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("alt+2", "alt+1")
            for number in range(50):
                it.agent.say(it.agent.groups["g2"], 1, f"task {number}.")
            await it.shows("50 unread elsewhere")
            await it.press("alt+2")
            await it.shows("task 49.", "▲ 50 unread")
            assert "late" not in it.text
            await it.press("alt+1")
            await it.until(lambda: not it.agent.read_state(it.agent.groups["g2"]).unread, "leaving it reads it")
            await it.press("alt+2")
            await it.shows("task 49.")
            assert "▲" not in it.text

    run(play())


def test_unread_counts_fall_with_deletions_and_other_clients(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            work = it.agent.groups["g2"]
            posts = [it.agent.say(work, 1, f"task {number}") for number in range(3)]
            await it.shows("3 unread elsewhere")
            it.agent.delete(work, posts[0].id)
            await it.shows("2 unread elsewhere")
            it.agent._mark_read(rpc.MarkReadParams("g2"))
            await it.gone("unread elsewhere")

    run(play())


@pytest.mark.parametrize("keys", ["alt+r", "/read all"])
def test_all_conversations_are_marked_as_read(tmp_path, keys):
    def setting(agent):
        missed(40)(agent)
        agent._log(agent.groups["g2"], 1, "message", {"text": "for you"})

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("missed 39.", "▲ 40 unread", "1 unread elsewhere")
            await (it.press(keys) if keys == "alt+r" else it.say(keys))
            await it.shows("Marked 41 messages as read.")
            assert "▲" not in it.text
            assert not any(it.agent.read_state(group).unread for group in it.agent.groups.values())
            await it.press(*(["alt+r"] if keys == "alt+r" else []))
            await it.press("alt+u")
            await it.shows("─ new ─")

    run(play())


def test_reading_this_conversation_only(tmp_path):
    async def play():
        async with scene(tmp_path, setting=missed(40)) as it:
            await it.shows("missed 39.", "▲ 40 unread")
            it.agent.say(it.agent.groups["g2"], 1, "for you")
            await it.shows("1 unread elsewhere")
            await it.say("/read")
            await it.until(lambda: not it.agent.read_state(it.agent.groups["g1"]).unread)
            await it.gone("▲")
            assert "1 unread elsewhere" in it.text
            await it.say("/read this")
            await it.until(lambda: "Usage: /read [all]" in it.told())

    run(play())


def test_quitting_keeps_unseen_messages_unread(tmp_path):
    async def play():
        async with scene(tmp_path, setting=missed(40)) as it:
            await it.shows("▲ 40 unread")
            await it.press("ctrl+q")
            await it.until(lambda: not it.app.is_running)
            assert it.agent.read_state(it.agent.groups["g1"]).unread == 40

    run(play())


def test_mentions_are_listed(tmp_path):
    def setting(agent):
        weekend(agent)
        agent.change(
            agent.groups["g2"], agent.post(agent.groups["g2"], 1, "@alice look").id, mentions=["did:key:z6MkAlice"]
        )

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("seven at the station")
            await it.say("/mentions")
            await it.shows("@alice look", "work")

    run(play())
