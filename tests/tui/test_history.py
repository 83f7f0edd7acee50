"""Earlier history in the terminal application: rules, backfill, reading position."""

import re

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import ME, FakeAgent
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.rpc import Author, BackfillNotification, HistoryStart
from zerochat.tui.dialogs.invite import InviteDialog
from zerochat.tui.dialogs.member import MemberDialog

JOINED = 100_000
RULES = ["all", "all"]


def newcomer(agent: FakeAgent, said: int = 3) -> None:
    """A group that I have come into, where `said` was said since; nothing from before is here yet."""
    group = agent.add_group("friends", ["bob", "carol"])
    group.events.clear()
    agent._log(group, 1, "group_created", {"name": "friends"}, lamport=1)
    agent._log(group, 1, "member_joined", {"did": group.members[2].did, "nick": "carol"}, lamport=2)
    agent._log(group, 1, "member_joined", {"did": ME, "nick": "alice"}, lamport=JOINED)
    for number in range(said):
        agent.post(group, 2, f"since {number}.", lamport=JOINED + 1 + number)
    beginning = HistoryStart(state="fetching", rules=RULES, joined=JOINED)
    group.info = replace(group.info, history_start=beginning)


def fetched(agent: FakeAgent, newest: int, oldest: int, *, state="fetching", left=0, who=1, **details) -> None:
    """What has the numbers from `newest` down to `oldest` has come, as a page of the history does: without a word."""
    group = agent.groups["g1"]
    for number in range(newest, oldest - 1, -1):
        agent.post(group, who, f"before {number}.", lamport=10 * number + 10, **details)
    got = sum(event.lamport < JOINED and event.type == "message" for event in group.events)
    beginning = HistoryStart(state=state, rules=RULES, joined=JOINED, received=got, remaining=left)
    group.info = replace(group.info, history_start=beginning)
    agent.tell("backfill", BackfillNotification(group="g1", received=got, remaining=left, done=state != "fetching"))


def texts(it):
    return [row.text for row in it.open.timeline.rows if row.kind == "post"]


def lines(text, word):
    """The lines with that word and a number, and in which line of the screen each stands."""
    return [(at, found[0]) for at, line in enumerate(text.split("\n")) if (found := re.search(rf"{word} \d+\.", line))]


# --- what stands at the top ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beginning", "said"),
    [
        (HistoryStart(state="whole", joined=JOINED), "This is the beginning of friends."),
        (
            HistoryStart(state="fetching", rules=RULES, joined=JOINED, received=1200, remaining=4000),
            "Fetching earlier messages: 1,200 received, 4,000 to go.",
        ),
        (
            HistoryStart(state="withheld", rules=["none", "all"], joined=JOINED),
            "New members of this group do not receive earlier messages.",
        ),
        (
            HistoryStart(state="withheld", rules=["last:50", "all"], joined=JOINED, received=52),
            "You have the last 50 messages before you joined.",
        ),
        (
            HistoryStart(state="gone", rules=RULES, joined=JOINED, received=5),
            "No member has the messages before this.",
        ),
    ],
)
def test_the_head_explains_where_history_starts(tmp_path, beginning, said):
    def setting(agent):
        newcomer(agent)
        agent.groups["g1"].info = replace(agent.groups["g1"].info, history_start=beginning)

    async def play():
        async with scene(tmp_path, size=(98, 24), setting=setting) as it:
            await it.shows(said, "since 2.")

    run(play())


@pytest.mark.slow
def test_backfill_is_inserted_above_a_reader_at_the_end(tmp_path):
    async def play():
        async with scene(tmp_path, setting=newcomer) as it:
            await it.shows("Fetching earlier messages: 0 received so far.", "since 2.")
            fetched(it.agent, 300, 297, left=296)
            await it.shows("Fetching earlier messages: 4 received, 296 to go.", "before 300.", "since 2.")
            assert texts(it) == [*(f"before {n}." for n in range(297, 301)), "since 0.", "since 1.", "since 2."]
            assert it.open.unread == 0 and "new" not in it.text.split("since 0.")[0], "it is no news"
            fetched(it.agent, 296, 0, state="whole")
            await it.until(lambda: len(texts(it)) == 203, "a page of it")
            await it.shows("since 2.")
            assert it.open.place.following and it.open.timeline.rows[-1].text == "since 2."
            assert it.open.timeline.more, "the rest is read when somebody goes there"
            for _ in range(4):
                await it.press("ctrl+home")
                await it.until(lambda: not it.open.paging)
            await it.press("ctrl+home")
            await it.shows("This is the beginning of friends.", "before 0.")
            assert texts(it) == [*(f"before {n}." for n in range(301)), "since 0.", "since 1.", "since 2."]
            assert "Earlier history received (301 events)." in it.told()

    run(play())


def test_backfill_keeps_the_reading_position(tmp_path):
    async def play():
        async with scene(tmp_path, setting=lambda agent: newcomer(agent, 60)) as it:
            await it.shows("since 59.")
            await it.press("pageup")
            await it.until(lambda: not it.open.place.following)
            before = it.text
            fetched(it.agent, 40, 0, state="whole")
            await it.until(lambda: len(texts(it)) == 101)
            await it.pilot.pause()
            assert lines(it.text, "since") == lines(before, "since") and len(lines(before, "since")) > 10

    run(play())


def test_backfill_above_keeps_the_top_row(tmp_path):
    async def play():
        async with scene(tmp_path, setting=lambda agent: newcomer(agent, 60)) as it:
            await it.shows("since 59.")
            await it.press("ctrl+home")
            await it.shows("bob admitted carol", "since 0.")
            row = next(n for n, line in enumerate(it.text.split("\n")) if "since 0." in line)
            fetched(it.agent, 500, 461, left=461)
            await it.shows("before 500.", "before 499.")
            assert "since 0." in it.text.split("\n")[row]
            fetched(it.agent, 460, 200, left=200)
            await it.until(lambda: len(texts(it)) == 260)
            await it.pilot.pause()
            assert "since 0." in it.text.split("\n")[row]
            assert texts(it) == [*(f"before {n}." for n in range(301, 501)), *(f"since {n}." for n in range(60))]

    run(play())


@pytest.mark.slow
def test_a_reader_of_history_sees_later_backfill(tmp_path):
    async def play():
        async with scene(tmp_path, setting=lambda agent: newcomer(agent, 60)) as it:
            await it.shows("since 59.")
            fetched(it.agent, 900, 600, left=600)
            await it.until(lambda: len(texts(it)) == 260)
            await it.press("ctrl+home")
            await it.until(lambda: len(texts(it)) == 361)
            await it.press("ctrl+home")
            await it.shows("before 600.")
            await it.press("pagedown")
            await it.until(lambda: "before 600." not in it.text)
            seen = lines(it.text, "before")
            it.agent.post(it.agent.groups["g1"], 2, "from another chain", lamport=10 * 880 + 15)
            fetched(it.agent, 599, 400, left=400)
            await it.until(lambda: "before 599." in texts(it))
            await it.pilot.pause()
            assert lines(it.text, "before") == seen
            assert "from another chain" in texts(it), "nothing is missing in what is loaded"
            rows = [text for text in texts(it) if text.startswith("before")]
            first = int(rows[0].split()[1].rstrip("."))
            assert rows == [f"before {n}." for n in range(first, 901)]

    run(play())


@pytest.mark.slow
def test_backfill_of_a_closed_conversation(tmp_path):
    def setting(agent):
        newcomer(agent)
        agent.add_group("other", ["dave"])

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("since 2.")
            await it.press("alt+2")
            await it.shows("Message other")
            fetched(it.agent, 3, 0, state="whole")
            conversation = it.app.chat.conversations.by_id["g1"]
            await it.until(lambda: any(row.text == "before 0." for row in conversation.timeline.rows))
            assert conversation.unread == 0
            await it.press("alt+1")
            await it.shows("This is the beginning of friends.", "before 3.")

    run(play())


@pytest.mark.slow
def test_backfill_during_a_disconnect_is_loaded(tmp_path):
    async def play():
        async with scene(tmp_path, setting=newcomer) as it:
            await it.shows("since 2.")
            await it.agent.stop()
            fetched(it.agent, 3, 0, state="whole")
            await it.agent.start()
            await it.shows("This is the beginning of friends.", "before 0.", "before 3.", "since 2.")

    run(play())


def test_relayed_posts_are_marked_and_explained(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 24), setting=newcomer) as it:
            await it.shows("since 2.")
            fetched(it.agent, 1, 0, state="whole", who=2)
            group = it.agent.groups["g1"]
            by = Author(group.members[1].did, "bob")
            group.events = [
                replace(e, relayed_by=by) if e.lamport < JOINED and e.body.get("text") else e for e in group.events
            ]
            it.agent.tell("backfill", BackfillNotification(group="g1", received=2, remaining=0, done=True))
            await it.until(lambda: it.text.count("relayed") == 2)

    run(play())


def test_the_status_shows_history_rule_and_progress(tmp_path):
    async def play():
        async with scene(tmp_path, setting=newcomer) as it:
            await it.shows("since 2.")
            fetched(it.agent, 9, 6, left=6)
            await it.press("f12")
            await it.until(lambda: it.app.screen.query(".body"))
            body = str(it.app.screen.query_one(".body").render())
            assert "new members receive all earlier messages" in body and "4 received, 6 to go" in body

    run(play())


# --- choosing --------------------------------------------------------------------------------------------------------


def test_an_invitation_can_narrow_the_history(tmp_path):
    async def play():
        async with scene(tmp_path, size=(110, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Invitation to weekend", "h history")
            assert "New members get" not in it.text
            for said in ("the last 50 messages", "messages since", "no earlier messages"):
                await it.press("h", "f3")
                await it.until(lambda said=said: f"New members get {said}" in str(it.app.screen._about.render()), said)
            await it.press("h", "f3")
            await it.until(lambda: "New members get" not in str(it.app.screen._about.render()))
            rules = [one["history"] for one in asked(it.agent, "create_invitation")]
            assert (rules[0], rules[1], rules[3], rules[4]) == (None, "last:50", "none", None)
            assert rules[2].startswith("since:")

    run(play())


@pytest.mark.slow
def test_an_invitation_cannot_widen_the_history(tmp_path):
    def setting(agent):
        weekend(agent)
        info = agent.groups["g1"].info
        agent.groups["g1"].info = replace(info, policy=replace(info.policy, history="none"))

    async def play():
        async with scene(tmp_path, size=(110, 40), setting=setting) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("New members get no earlier messages")
            assert isinstance(it.app.screen, InviteDialog) and "h history" not in it.text
            await it.press("h")
            await it.pilot.pause()
            assert it.agent.count("create_invitation") == 1

    run(play())


@pytest.mark.slow
def test_history_keepers_are_marked(tmp_path):
    def setting(agent):
        weekend(agent)
        members = agent.groups["g1"].members
        members[1] = replace(members[1], keeps_history=True)

    async def play():
        async with scene(tmp_path, size=(120, 30), setting=setting) as it:
            await it.shows("● bob keeps history", "● carol")
            assert it.text.count("keeps history") == 1
            await it.say("/verify bob")
            await it.until(lambda: isinstance(it.app.screen, MemberDialog))
            await it.shows("keeps it for new members")

    run(play())
