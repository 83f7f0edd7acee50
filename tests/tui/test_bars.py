"""Top bar, status line and side lists: texts, and priorities in narrow windows."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.support.marks import others_slow
from tests.support.tui_pilot import run, scene, weekend
from zerochat.rpc import Completeness, GapInfo, MemberReport
from zerochat.tui.panels.bars import Fact, fitting
from zerochat.tui.style.text import age_of


def test_facts_shorten_then_drop_and_warnings_stay():
    facts = [Fact(("three connected", "3/3")), Fact(("2 missing",), warning=True), Fact(("encrypted for each",))]

    def said(room):
        return " · ".join(text for text, _ in fitting(facts, room))

    assert said(100) == "three connected · 2 missing · encrypted for each"
    assert said(40) == "3/3 · 2 missing · encrypted for each"
    assert said(27) == "three connected · 2 missing"
    assert said(26) == "3/3 · 2 missing"
    assert said(14) == said(1) == "2 missing"


def troubled(agent):
    weekend(agent)
    group = agent.groups["g1"]
    bob = group.members[1]
    gap = GapInfo(author=bob.did, nick="bob", after=1, upto=4, missing=3)
    info = replace(group.info, name="a rather long name of a group", topic="where to go, and when, and with whom")
    group.info = replace(info, completeness=Completeness(complete=False, gaps=[gap]), role="owner")
    group.members[2] = replace(group.members[2], trust="changed")


@pytest.mark.parametrize("width", others_slow([200, 40, 59, 80, 99, 120], 2))
def test_the_top_bar_keeps_warnings_at_any_width(tmp_path, width):
    async def play():
        async with scene(tmp_path, size=(width, 24), setting=troubled) as it:
            await it.shows("3 missing", "! 1 ")
            line = it.text.split("\n")[0]
            assert "3 missing" in line and "! 1" in line and len(line) <= width, line

    run(play())


def test_the_top_bar_names_a_used_up_quota(tmp_path):
    def refusing(agent):
        troubled(agent)
        group = agent.groups["g1"]
        (gap,) = group.info.completeness.gaps
        held = replace(gap, state="held")
        group.info = replace(group.info, completeness=Completeness(complete=False, gaps=[held]))

    async def play():
        async with scene(tmp_path, size=(160, 24), setting=refusing) as it:
            await it.shows("3 missing (daily quota)")

    run(play())


def test_the_event_that_closes_a_gap_ends_the_warning(tmp_path):
    """The agent notes a gap only after a moment, and notifies of its end only where it had noted it."""

    async def play():
        async with scene(tmp_path, setting=troubled) as it:
            await it.shows("3 missing")
            group = it.agent.groups["g1"]
            group.info = replace(group.info, completeness=Completeness(complete=True))
            for text in ("one", "two", "three"):
                it.agent.say(group, 1, text, minute=4)
            await it.shows("three")
            await it.gone("missing")

    run(play())


def test_the_top_bar_shows_completeness(tmp_path):
    now = datetime.now().astimezone().replace(hour=12, minute=4).isoformat()

    def whole(agent):
        weekend(agent)
        group = agent.groups["g1"]
        heard = [MemberReport(did=one.did, nick=one.nick, at=now, present=True) for one in group.members[1:]]
        group.info = replace(group.info, completeness=Completeness(complete=True, at=now, members=heard))

    async def play():
        async with scene(tmp_path, size=(160, 24), setting=whole) as it:
            await it.shows(
                "complete with bob and carol as of 12:04 · 0/2 verified",
                "keys that heal, signed · peer to peer · receipts",
            )
            await it.pilot.resize_terminal(100, 24)
            await it.gone("encrypted")
            await it.pilot.resize_terminal(80, 24)
            await it.shows("weekend  2/2 connected · complete 12:04 · 0/2 verified")
            await it.pilot.resize_terminal(59, 24)
            await it.gone("verified")
            await it.shows("weekend  2/2 connected · complete 12:04")

    run(play())


def test_the_status_line_names_unread_conversations(tmp_path):
    def many(agent):
        weekend(agent)
        agent.add_group("hikers", ["bob"])

    async def play():
        async with scene(tmp_path, size=(120, 24), setting=many) as it:
            await it.shows("seven at the station")
            it.agent.say(it.agent.groups["g2"], 1, "one", minute=5)
            it.agent.say(it.agent.groups["g3"], 1, "two", minute=6)
            it.agent.say(it.agent.groups["g3"], 1, "three", minute=6)
            await it.shows("3 unread elsewhere: 2 work 1, 3 hikers 2 (Alt+A)")
            await it.pilot.resize_terminal(80, 24)
            await it.shows("3 unread elsewhere: 2 work 1, … (Alt+A)")
            await it.press("alt+3")
            await it.shows("three", "1 unread elsewhere")

    run(play())


def test_sixty_members_in_twenty_four_rows(tmp_path):
    """Every member has one line, with the end of its key, and can be reached."""
    heard = datetime.now(UTC).replace(hour=0, minute=0)

    def crowd(agent):
        group = agent.add_group("crowd", [f"member{number:02}" for number in range(60)])
        group.members[5] = replace(group.members[5], connection="unreachable", last_seen=heard.isoformat())
        group.members[9] = replace(group.members[9], trust="changed")

    async def play():
        async with scene(tmp_path, size=(110, 24), setting=crowd) as it:
            await it.shows("● member08 changed", "● member01")

            def members():
                return [line[80:] for line in it.text.split("\n") if "● member" in line]

            def whole():
                return len(members()) >= 17 and all("memb" in line[-6:] for line in members())

            await it.until(whole, "each in one line, with its key")
            assert "member08" in members()[0], "whom to be careful with comes first"
            await it.say("/members")
            await it.press("end")
            await it.shows("○ member04 since 00:… memb")
            await it.press("enter")
            await it.shows("last seen", age_of(heard.isoformat())[-4:])

    run(play())


def test_ages_as_text():
    now = datetime.now(UTC)
    told = [age_of((now - timedelta(seconds=seconds)).isoformat()) for seconds in (-9, 5, 125, 7_300, 90_000, 900_000)]
    assert told == ["just now", "just now", "2 min ago", "2 h ago", "1 day ago", "10 days ago"]
    assert age_of("yesterday") == "?"
