"""The message pane: order, heights, reading position, and appearance of rows."""

import asyncio
import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from textual.color import Color
from textual.geometry import Offset, Region
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.theme import BUILTIN_THEMES

from tests.support.fake_agent import ME, FakeAgent
from tests.support.pane_lines import a_row, conversation, golden, lines, shown
from tests.support.tui_pilot import until
from zerochat.presentation.lookalikes import deceptive
from zerochat.rpc import Completeness, GapInfo, History, HistoryStart
from zerochat.terminal_text import Printable
from zerochat.tui.messages.folding import FOLD_MIN, summary
from zerochat.tui.messages.paint import CONTRAST_MIN, contrast, nick_styles
from zerochat.tui.messages.row import Change, ChangeKind
from zerochat.tui.messages.timeline import MARGIN, ROWS_MAX, Timeline, row_of
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.style.text import NICK_COLOURS, Names, display_time, wrap

pytestmark = pytest.mark.usefixtures("utc")


# --- the timeline, with plain values --------------------------------------------------------------------------------

texts = st.sampled_from(["x", "a few words", "long " * 40, "two\nlines", "你好世界" * 20, "w" * 200, "👋🏽 é" * 30, ""])
row_lists = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from(["a", "b"]), texts, st.sampled_from(["mon", "tue"]), st.booleans()),
    max_size=25,
    unique_by=lambda each: each[:2],
).map(lambda many: [a_row(n, who, text, day=day, own=own) for n, who, text, day, own in many])


change_lists = st.lists(
    st.tuples(st.integers(1, 14), st.sampled_from("jlr-p"), st.sampled_from(["mon", "mon", "tue"]), st.booleans()),
    max_size=20,
    unique_by=lambda each: each[0],
)
KINDS: dict[str, ChangeKind] = {"j": "joined", "l": "left", "r": "renamed"}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(change_lists, st.randoms(use_true_random=False), st.integers(8, 120), st.booleans())
def test_folding_is_independent_of_arrival_order(changes, random, width, forget):
    rows = [
        a_row(
            number,
            kind="post" if kind == "p" else "quiet",
            day=day,
            change=Change(KINDS[kind], f"did:{number}", (Printable(f"n{number}"),)) if kind in KINDS else None,
        )
        for number, kind, day, _ in changes
    ]
    gone = [row.key for row, (*_, drops) in zip(rows, changes, strict=True) if drops and forget]
    left = [row for row in rows if row.key not in gone]
    unread = left[len(left) // 2].key if left else None
    at_once, bit_by_bit = Timeline(), Timeline()
    for one in (at_once, bit_by_bit):
        one.resize(width)
    at_once.add(left)
    at_once.set_unread(unread)
    random.shuffle(rows)
    for row in rows:
        bit_by_bit.set_unread(row.key)
        bit_by_bit.add([row])
        bit_by_bit.add([dataclasses.replace(row, line=2)])
    bit_by_bit.remove(gone)
    bit_by_bit.set_unread(unread)
    for one in (at_once, bit_by_bit):
        assert one.heights == [one._measure(at) for at in range(len(one.rows))]
        assert one.tops == [sum(one.heights[:at]) for at in range(len(one.rows) + 1)]
        runs = [one._run(at) for at in range(len(one.rows))]
        folded = {one.keys[start] for start, end in runs if end - start >= FOLD_MIN}
        assert one.folds.keys() == folded
        assert one.hidden == {
            one.keys[at] for at, (start, end) in enumerate(runs) if end - start >= FOLD_MIN and at != start
        }
    assert (at_once.heights, at_once.folds.keys()) == (bit_by_bit.heights, bit_by_bit.folds.keys())
    for key in list(at_once.folds):
        at_once.open(key)
    bit_by_bit.fold(False)
    assert at_once.heights == bit_by_bit.heights and all(at_once.heights) and at_once.total == bit_by_bit.total
    bit_by_bit.fold(True)
    bit_by_bit.drop_oldest(len(rows) // 3)
    bit_by_bit.drop_newest(min(2, len(bit_by_bit.rows)))
    assert bit_by_bit.heights == [bit_by_bit._measure(at) for at in range(len(bit_by_bit.rows))]
    assert bit_by_bit.hidden <= set(bit_by_bit.keys) and bit_by_bit.total == sum(bit_by_bit.heights)


def test_folded_row_text():
    told: list[tuple[ChangeKind, str]] = [("joined", name) for name in ("ann", "bob", "cy", "dan", "ann")] + [
        ("left", "eve"),
        ("renamed", "a → b"),
    ]
    rows = [
        a_row(number, kind="quiet", change=Change(kind, f"did:{who}", tuple(map(Printable, who.split(" → ")))))
        for number, (kind, who) in enumerate(told, 1)
    ]
    row = summary(rows)
    assert row.text == "▸ ann, bob, cy and 1 more joined; eve left; a → b changed names"
    assert row.key == rows[0].key and row.fold == len(rows)
    assert [row.text[each.at :].startswith(each.nick) for each in row.subjects] == [True] * 6
    twins = [a_row(n, kind="quiet", change=Change("joined", f"did:key:z{n}abc", (Printable("ann"),))) for n in (1, 2)]
    assert summary(twins).text.count("ann") == 2, "two people with one name are never one"


def test_folded_rows_unfold_singly_or_all(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("crew", ["bob"])
    for number in range(4):
        agent._log(group, 0, "member_joined", {"did": f"did:key:z{number}", "nick": f"n{number}"}, minute=1)
    agent._log(group, 0, "member_removed", {"did": "did:key:z1", "nick": "n1"}, minute=2)
    agent.post(group, 1, "hello", minute=3)
    known = conversation(agent, group)

    async def play():
        async with shown(known, (70, 20)) as (pilot, pane):
            text = "\n".join(lines(pane))
            assert "▸ n0, n1, n2 and 1 more joined" in text and "admitted n0" not in text and "removed n1" in text
            at = next(y for y, line in enumerate(lines(pane)) if "▸" in line)
            assert not pane.unfold(at + 1) and pane.unfold(at)
            await pilot.pause()
            text = "\n".join(lines(pane))
            assert all(f"admitted n{number}" in text for number in range(4)) and "▸" not in text
            pane.folded = True
            known.timeline.fold(True)
            pane.redraw()
            assert "▸" in "\n".join(lines(pane))
            pane.folded = False
            pane.redraw()
            assert "▸" not in "\n".join(lines(pane)) and "admitted n3" in "\n".join(lines(pane))
            await pilot.pause()

    asyncio.run(play())


@settings(max_examples=150, deadline=None)
@given(row_lists, st.randoms(use_true_random=False), st.integers(8, 120), st.integers(1, 5))
def test_layout_is_independent_of_arrival_order(rows, random, width, bite):
    at_once, shuffled = Timeline(), list(rows)
    random.shuffle(shuffled)
    at_once.resize(width)
    at_once.add(sorted(rows, key=lambda row: row.key))
    piecemeal = Timeline()
    piecemeal.resize(width)
    for start in range(0, len(shuffled), bite):
        piecemeal.add(shuffled[start : start + bite])
        piecemeal.add(shuffled[start : start + 1])  # Twice is once.
    assert piecemeal.rows == at_once.rows
    assert piecemeal.heights == at_once.heights and piecemeal.tops == at_once.tops
    fresh = Timeline()
    fresh.add(rows)
    fresh.resize(width)
    assert fresh.tops == at_once.tops
    for line in range(at_once.total):
        index, offset = at_once.row_at(line)
        assert at_once.tops[index] + offset == line and 0 <= offset < at_once.heights[index]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab c\n你👋é-", max_size=80), st.integers(2, 30))
def test_wrapping_keeps_text_and_width(text, width):
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)


def test_words_stay_whole_where_they_fit():
    assert wrap("the quick brown fox jumps", 10) == ["the quick", "brown fox", "jumps"]
    assert wrap("a veryverylongword b", 8) == ["a", "veryvery", "longword", "b"]
    assert wrap("one\n\ntwo", 8) == ["one", "", "two"]


def test_receipts_count_once():
    timeline = Timeline()
    timeline.add([a_row(n, ME, own=True, position=n, line=10) for n in (1, 2, 3)])
    assert timeline.receipt(0, 2, line=9) == []  # The answer came after it, and has it.
    assert [key[0] for key in timeline.receipt(0, 2, line=11)] == [1, 2]
    timeline.receipt(0, 2**60, line=12)  # A peer's number, as large as it likes.
    assert [row.delivered for row in timeline.rows] == [2, 2, 1]
    timeline.receipt(0, 3, line=13)
    assert [row.delivered for row in timeline.rows] == [2, 2, 2]  # Never more than there are others.


def test_equal_names_are_disambiguated():
    names = Names()
    names.learn("did:key:z6MkAAAA", "Bob")
    assert names.label("did:key:z6MkAAAA") == "Bob"
    assert names.learn("did:key:z6MkBBBB", "bob")
    assert names.label("did:key:z6MkAAAA") == "Bob·AAAA"
    assert names.label("did:key:z6MkBBBB", 6) == "…·BBBB"  # The key is what must not be cut.
    assert names.learn("did:key:z6MkBBBB", "rob")
    assert names.label("did:key:z6MkAAAA") == "Bob"


def test_future_timestamps_are_replaced():
    told = display_time("2999-01-01T00:00:00.000Z", "2025-11-20T12:00:00.000Z")
    assert told is not None and told.year == 2025
    assert display_time("nonsense", "") is None


@pytest.mark.parametrize("name", [name for name, theme in BUILTIN_THEMES.items() if not theme.ansi])
def test_every_name_colour_has_contrast(name):
    colours = BUILTIN_THEMES[name].to_color_system().generate()
    background, primary = Color.parse(colours["background"]), Color.parse(colours["primary"])
    from rich.style import Style

    styles = nick_styles(Style(), background, primary, ansi=False)
    assert len({style.color for style in styles}) == 12
    for style in styles:
        assert style.color is not None and style.color.triplet is not None
        assert contrast(Color(*style.color.triplet), background) >= CONTRAST_MIN - 0.05


@given(st.lists(st.text(min_size=1, max_size=3), max_size=20, unique=True), st.integers(0, 20))
def test_members_of_a_group_have_different_colours(dids, late):
    names = Names()
    names.colour(dids[:late])
    before = {did: names.hue(did) for did in dids[:late]}
    names.colour(dids)
    assert {did: names.hue(did) for did in dids[:late]} == before, "a newcomer changes no colour"
    assert len({names.hue(did) for did in dids}) == min(len(dids), NICK_COLOURS)
    again = Names()
    again.colour(dids)
    assert again.hues == names.hues, "the same after a restart"


def test_the_window_is_trimmed_away_from_the_reader(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("big")
    known = conversation(agent, group)
    known.add_live([(agent.post(group, 1, f"{n}"), 2) for n in range(ROWS_MAX + 100)])
    assert len(known.timeline.rows) <= ROWS_MAX and known.timeline.more and not known.timeline.detached
    assert known.timeline.rows[-1].text == f"{ROWS_MAX + 99}"
    known.place.following, known.place.key = False, known.timeline.keys[3]
    more = [(agent.post(group, 1, f"{n}"), 3) for n in range(ROWS_MAX)]
    known.add_live(more)
    assert len(known.timeline.rows) <= ROWS_MAX and known.timeline.detached
    assert known.place.key in known.timeline.keys  # What is being read stays.
    assert known.timeline.tops[-1] == sum(known.timeline.heights) + len(known.timeline.head_lines())
    last = known.timeline.keys[-1]
    known.add_live([(agent.post(group, 1, "after the gap"), 4)])
    assert known.timeline.keys[-1] == last  # Nothing is shown behind a gap as if nothing was missing.


def test_unknown_types_are_skipped(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    event = agent.post(agent.add_group("g"), 1, "x")

    assert row_of(replace(event, type="poll"), 1) is None
    assert row_of(replace(event, body={}), 1) is not None


# --- the pane -------------------------------------------------------------------------------------------------------


def a_weekend(agent):
    group = agent.add_group("weekend", ["bob", "carol"])
    agent._log(group, 0, "member_joined", {"did": group.members[1].did, "nick": "bob"}, minute=1)
    agent.post(group, 1, "shall we take the early train?", minute=2)
    agent.post(group, 1, "it leaves at seven, and the next one at nine; somebody has to bring coffee", minute=2)
    agent.post(group, 2, "你好 👋 I do", minute=3, late=True)
    agent.post(group, 0, "seven it is", minute=4, delivered=2)
    agent.post(group, 0, "I bring two thermos flasks, and I am sure that they are enough", minute=5, delivered=1)
    agent.post(group, 0, "are they?", minute=6)
    agent._log(group, 2, "member_left", {"did": group.members[2].did, "nick": "carol"}, minute=7)
    return group


def test_a_conversation_as_text(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, a_weekend(agent))
    assert golden(known, (62, 20)) == (
        "              This is the beginning of weekend.\n"
        "───────────────── Thursday 20 November 2025 ─────────────────\n"
        "12:00          —   alice created weekend\n"
        "12:01          —   alice admitted bob\n"
        "12:02        bob │ shall we take the early train?\n"
        "12:02            │ it leaves at seven, and the next one at\n"
        "                 │ nine; somebody has to bring coffee\n"
        "12:03      carol │ 你好 👋 I do  late\n"
        "12:04      alice │ seven it is  ✓2/2\n"
        "12:05            │ I bring two thermos flasks, and I am sure\n"
        "                 │ that they are enough  ✓1/2\n"
        "12:06            │ are they?  0/2\n"
        "12:07          —   carol left"
    )


def test_a_narrow_conversation_as_text(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, a_weekend(agent))
    assert golden(known, (34, 24)) == (
        "This is the beginning of weekend.\n"
        "─── Thursday 20 November 2025 ───\n"
        "— alice created weekend\n"
        "— alice admitted bob\n"
        "bob 12:02\n"
        "· shall we take the early train?\n"
        "· it leaves at seven, and the\n"
        "  next one at nine; somebody has\n"
        "  to bring coffee\n"
        "carol 12:03\n"
        "· 你好 👋 I do  late\n"
        "alice 12:04\n"
        "· seven it is  ✓2/2\n"
        "· I bring two thermos flasks, and\n"
        "  I am sure that they are\n"
        "  enough  ✓1/2\n"
        "· are they?  0/2\n"
        "— carol left"
    )


def test_membership_events_are_notices(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("crew", ["bob", "carol"])
    bob, carol = group.members[1].did, group.members[2].did
    for who, type, body in [
        (0, "member_joined", {"did": bob, "nick": "bob", "role": "writer"}),
        (1, "member_joined", {"did": carol, "nick": "carol", "role": "reader"}),
        (0, "role_changed", {"did": carol, "nick": "carol", "role": "writer"}),
        (0, "role_changed", {"did": bob, "nick": "bob", "role": "admin"}),
        (2, "role_changed", {"did": carol, "nick": "carol", "role": "reader"}),
        (1, "member_renamed", {"did": bob, "nick": "bob", "was": "rob"}),
        (1, "removal_voted", {"did": carol, "nick": "carol"}),
        (0, "member_removed", {"did": carol, "nick": "carol"}),
        (1, "member_left", {"did": bob}),
    ]:
        agent._log(group, who, type, body, minute=1)
    assert golden(conversation(agent, group), (50, 20)) == (
        "         This is the beginning of crew.\n"
        "─────────── Thursday 20 November 2025 ───────────\n"
        "12:00        —   alice created crew\n"
        "12:01        —   alice admitted bob\n"
        "12:01        —   bob admitted carol as\n"
        "                 a reader\n"
        "12:01        —   alice made carol a\n"
        "                 writer\n"
        "12:01        —   alice made bob an\n"
        "                 admin\n"
        "12:01        —   carol is now a reader\n"
        "12:01        —   rob is now called bob\n"
        "12:01        —   bob voted to remove\n"
        "                 carol\n"
        "12:01        —   alice removed carol\n"
        "12:01        —   bob left\n"
        "\n"
        "                No messages yet."
    )


def test_membership_events_use_past_names(tmp_path):

    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("crew", ["Bob", "Eve"])
    bob, eve = group.members[1].did, group.members[2].did
    agent._log(group, 0, "member_joined", {"did": bob, "nick": "Bob"}, minute=1)
    agent._log(group, 1, "member_joined", {"did": eve, "nick": "Eve"}, minute=1)
    agent.post(group, 0, "welcome", minute=1)  # Three lines in a row would be folded into one.
    group.members[1] = replace(group.members[1], nick="ally")
    agent._log(group, 1, "member_renamed", {"did": bob, "nick": "ally", "was": "Bob"}, minute=2)
    group.members[2] = replace(group.members[2], nick="Bob")
    agent._log(group, 2, "member_renamed", {"did": eve, "nick": "Bob", "was": "Eve"}, minute=3)
    agent.post(group, 1, "hello", minute=4)
    nicks = {member.did: member.nick for member in group.members}
    group.events = [replace(each, author=replace(each.author, nick=nicks[each.author.did])) for each in group.events]
    told = golden(conversation(agent, group), (60, 20))
    # Who was called so is not who is called so now: letters of the key tell them apart.
    for line in ("alice admitted Bob", "Bob·0Bob admitted Eve", "Bob·0Bob is now called ally", "Eve is now called Bob"):
        assert line in told
    assert "ally │ hello" in told


@pytest.mark.parametrize(
    ("text", "kept", "said"),
    [
        (
            "\n".join(f"n{number}" for number in range(1_500)),
            399,
            "… 1,101 more lines: zerochat history 'a b' --format",
        ),
        ("x" * 20_000, 1, "… 3,617 more characters: zerochat history 'a b' --format"),
        ("and so on…", 1, ""),
    ],
)
def test_truncation_is_counted(tmp_path, text, kept, said):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("a b")
    agent.post(group, 1, text)
    known = conversation(agent, group)
    row = known.timeline.rows[-1]
    assert row.text.count("\n") + 1 == kept and text.startswith(row.text)
    assert row.truncation.startswith(said) and bool(row.truncation) == bool(said)
    assert (said or "and so on…") in golden(known, (80, 10))


def test_confusable_names():
    nicks = {
        "a": "Bob",
        "b": "ＢＯＢ",
        "c": "carol",
        "d": "cаrоl",
        "e": "dave",
        "f": "田中 san",
        "g": "Зоя",
        "h": "é",
        "i": "10",
        "j": "\u2068dave-1\u2069",
        "k": "dave-1\u200e",
    }
    other = "looks like another member's"
    mixed = "mixes letters of several scripts"
    assert deceptive(nicks) == {**dict.fromkeys("abcjk", other), "d": f"{other}, and {mixed}"}
    assert deceptive({"x": "pаypal"}) == {"x": mixed}  # A Cyrillic letter among Latin ones, with nobody to compare.
    assert deceptive({"x": "Bill", "y": "BiII"}) == dict.fromkeys("xy", other)  # capital I for small l


def test_an_empty_conversation_shows_hints(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    alone = golden(conversation(agent, agent.add_group("new", [])), (80, 10))
    assert "No messages yet. Type /invite to invite people." in alone
    together = golden(conversation(agent, agent.add_group("old", ["bob"])), (80, 10))
    assert "No messages yet." in together and "/invite" not in together


def test_a_joiner_sees_no_false_empty_hint(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("hush", ["bob"])
    group.info = replace(group.info, history_start=HistoryStart(state="withheld", rules=["none"]))
    shown = golden(conversation(agent, group), (100, 10))
    assert "New members of this group do not receive earlier messages." in shown
    assert "No messages since you joined." in shown
    assert "No messages yet" not in shown and "/invite" not in shown


def test_a_gap_names_a_used_up_quota(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("weekend", ["bob"])
    gap = GapInfo(author=group.members[1].did, nick="bob", after=0, upto=16, missing=16, state="held")
    group.info = replace(group.info, completeness=Completeness(complete=False, gaps=[gap]))
    agent.post(group, 1, "behind it", minute=2)
    assert "16 more entries that are missing here (its daily quota here is used up)" in golden(
        conversation(agent, group), (120, 24)
    )


@pytest.mark.parametrize("width", [36, 60, 100])
def test_notices_are_wrapped_and_never_truncated(tmp_path, width):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("weekend", ["Bobby Very Long Name Indeed"])
    bob = group.members[1].did
    gap = GapInfo(author=bob, nick=group.members[1].nick, after=0, upto=1, missing=1, state="lost")
    group.info = replace(group.info, completeness=Completeness(complete=False, gaps=[gap]))
    agent.post(group, 1, "behind it", minute=2)
    known = conversation(agent, group)
    shown = golden(known, (width, 24))
    words = " ".join(re.sub(r"\d\d:\d\d|[│—]", " ", shown).split())
    assert "Bobby Very Long Name Indeed has 1 more entry that is missing here (no member has it)" in words
    assert shown.count("behind it") == 1


def test_a_joiner_sees_that_history_is_missing(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("old", ["bob"])
    group.events.clear()
    agent._log(group, 1, "group_created", {"name": "old"})
    assert (
        golden(conversation(agent, group), (80, 10))
        .strip()
        .startswith("Messages from before you joined are not available.")
    )


def test_my_post_is_dim_until_delivered(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("g")
    agent.post(group, 0, "first words", minute=1)
    known = conversation(agent, group)

    async def look():
        async with shown(known, (80, 10)) as (_, pane):

            def style():
                strip = next(pane.render_line(y) for y in range(10) if "first words" in pane.render_line(y).text)
                return next(segment.style for segment in strip if "first words" in segment.text)

            assert style().dim
            pane.redraw(known.timeline.receipt(0, 9, line=5))
            assert not style().dim and any("✓1/2" in line for line in lines(pane))

    asyncio.run(look())


def many(agent, count=200):
    group = agent.add_group("many", ["bob", "carol"])
    for number in range(count):
        agent.post(
            group, 1 + number % 2, f"number {number} " + "and some more words " * (number % 5), lamport=10 * number + 10
        )
    return group


def test_following_starts_only_at_the_end(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = many(agent)
    known = conversation(agent, group)

    async def look():
        async with shown(known, (60, 15)) as (pilot, pane):

            def arrive(text, **details):
                keys = known.add_live([(agent.post(group, 1, text, **details), 2)])
                pane.redraw(keys)

            known.place.read_upto = known.timeline.keys[-1]
            arrive("newest one")
            assert "newest one" in lines(pane)[-1]
            pane.page(-1)
            before = lines(pane)
            arrive("newer still")
            arrive("and again")
            assert lines(pane) == before, "the badge hides a line"
            assert pane.badge == " ▼ 2 new below "
            arrive("from long ago", lamport=15, late=True)
            assert lines(pane) == before
            assert "▲ 1 late above" in pane.badge
            pane.action_end()
            assert "and again" in lines(pane)[-1] or "and again" in lines(pane)[-2]
            arrive("followed again")
            assert "followed again" in "\n".join(lines(pane)[-2:])
            await pilot.pause()
            assert pane.go_to_unseen() and not pane.badge  # The count of the late one leads to it.
            assert any("from long ago" in line for line in lines(pane)) and not pane.go_to_unseen()

    asyncio.run(look())


def test_the_first_line_names_its_author(tmp_path):
    """Where one member fills the pane."""
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("many", ["bob"])
    for number in range(60):
        agent.post(group, 1, f"number {number} " + "and more words " * (9 * (number == 40)))
    known = conversation(agent, group)

    def names(pane):
        shown = ["".join(each.text for each in strip) for strip in pane.render_lines(Region(0, 0, *pane.size))]
        return [at for at, line in enumerate(shown) if " bob " in line.partition("│")[0]]

    async def look():
        async with shown(known, (60, 12)) as (_, pane):
            for up in range(40):
                assert names(pane) == [0], f"{up} lines up"
                pane.scroll_to(y=pane.scroll_y - 1, animate=False)
            pane.action_top()
            assert len(names(pane)) == 1 and names(pane) != [0], "the name beside the first post"
            pane.action_end()
            known.add_live([(agent.post(group, 1, "another one"), 2)])
            pane.redraw()
            assert names(pane) == [0]

    asyncio.run(look())


def test_a_narrow_pane_names_the_author_in_its_first_line(tmp_path):
    """Without a name column, the name covers the line; what one goes to is below it."""
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("many", ["bob"])
    for number in range(60):
        agent.post(group, 1, f"number {number} " + "and more words " * (5 * (number % 7 == 0)))
    known = conversation(agent, group)

    def shown_lines(pane):
        return ["".join(each.text for each in strip) for strip in pane.render_lines(Region(0, 0, *pane.size))]

    async def look():
        async with shown(known, (38, 8)) as (pilot, pane):
            for up in range(60):
                assert shown_lines(pane)[0].startswith("bob 12:"), f"{up} lines up"
                pane.scroll_to(y=pane.scroll_y - 1, animate=False)
            for at in (8, 21, 33):
                pane.go_to(known.timeline.keys[at])
                assert known.timeline.rows[at].text[:9] in shown_lines(pane)[1]
                assert pane.sight_of(known.timeline.keys[at]) == 0
                assert pane.sight_of(known.timeline.keys[at - 1]) == -1, "its only visible line is covered"
            read = set()
            pane.action_top()
            while pane.scroll_y < pane.max_scroll_y:
                read |= {line.strip(" ·") for line in shown_lines(pane)}
                pane.page(1)
            read |= {line.strip(" ·") for line in shown_lines(pane)}
            assert all(any(each.startswith(f"number {n}") for each in read) for n in range(60))
            await pilot.resize_terminal(38, 3)
            pane.action_end()
            assert not any(line.startswith("bob") for line in shown_lines(pane)), "too low"

    asyncio.run(look())


@pytest.mark.parametrize("sizes", [[(100, 30), (30, 8), (61, 15)], [(3, 2), (1, 1), (200, 60), (61, 15)]])
def test_resizing_keeps_the_reading_position(tmp_path, sizes):
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, many(agent))

    async def look():
        async with shown(known, (61, 15)) as (pilot, pane):
            for _ in range(6):
                pane.page(-1)
            key, before = known.place.key, lines(pane)
            for width, height in sizes:
                await pilot.resize_terminal(width, height)
                await until(pilot, lambda w=width: known.timeline.width == w - 1 or w == 1)
                assert known.place.key == key
            await until(pilot, lambda: lines(pane) == before, "the same picture")

    asyncio.run(look())


def test_resizing_at_the_end_stays_there(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, many(agent))

    async def look():
        async with shown(known, (61, 15)) as (pilot, pane):
            for size in [(30, 40), (120, 5), (61, 15)]:
                await pilot.resize_terminal(*size)
                await until(pilot, lambda w=size[0]: known.timeline.width == w - 1)
                assert known.place.following and pane.scroll_y == pane.max_scroll_y

    asyncio.run(look())


def test_lines_equal_textual_s_rendering(tmp_path):
    """Letter by letter, with all its styles; only the places of letters are not in it."""
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, a_weekend(agent))

    def letters(strips):
        """Of a blank, only what is behind it."""
        return [
            (letter, each.style.bgcolor, *((each.style.color, each.style.bold) if letter != " " else ()))
            for strip in strips
            for each in strip
            for letter in each.text
        ]

    async def look():
        async with shown(known, (90, 20)) as (pilot, pane):
            pane.styles.padding = (0, 0, 0, 1)
            await pilot.pause()
            pane.redraw()
            for crop in (Region(0, 0, 90, 20), Region(3, 5, 40, 8)):
                ours, theirs = pane.render_lines(crop), ScrollView.render_lines(pane, crop)
                assert {one.cell_length for one in (*ours, *theirs)} == {crop.width} and len(ours) == crop.height
                assert letters(ours) == letters(theirs)

    asyncio.run(look())


def test_an_invisible_page_redraws_nothing(tmp_path, monkeypatch):
    agent = FakeAgent(tmp_path / "s")
    group = many(agent)
    known = Conversation(group.info)
    known.add_first_page(History(group.events[100:], more=True), line=1)

    async def look():
        async with shown(known, (61, 15)) as (pilot, pane):
            pane.scroll_to(y=40, animate=False)
            await pilot.pause()
            before, drawn = lines(pane), []
            monkeypatch.setattr(pane, "refresh", lambda *regions, **options: drawn.append(regions))
            keys = known.add_older_page(History(group.events[:100], more=False), line=2)
            pane.redraw(keys)
            assert lines(pane) == before and pane.scroll_y > 40 and drawn == []
            assert pane.vertical_scrollbar.position == pane.scroll_y
            pane.redraw(known.timeline.keys[-1:])
            assert drawn == []
            pane.redraw([known.timeline.keys[known.timeline.row_at(round(pane.scroll_y) + 3)[0]]])
            assert drawn

    asyncio.run(look())


def test_older_pages_keep_the_view(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = many(agent)
    known = Conversation(group.info)
    known.add_first_page(History(group.events[100:], more=True), line=1)

    async def look():
        async with shown(known, (61, 15)) as (_, pane):
            pane.action_top()
            before = lines(pane)
            assert "↑ older messages" in before[0]
            known.add_older_page(History(group.events[:100], more=False), line=2)
            pane.redraw()
            assert lines(pane)[2:] == before[2:]  # The first row's day now stands far above.
            pane.action_top()
            assert "This is the beginning" in lines(pane)[0]

    asyncio.run(look())


def test_selected_lines_are_copied(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, a_weekend(agent))

    async def look():
        async with shown(known, (62, 20)) as (_, pane):
            found = pane.get_selection(Selection(Offset(19, 4), Offset(27, 5)))
            assert found == ("shall we take the early train?\n12:02            │ it leave", "\n")

    asyncio.run(look())


def test_deliveries_can_be_three_digits(tmp_path):
    timeline = Timeline()
    timeline.add([dataclasses.replace(a_row(1, ME, own=True), of=250, delivered=250)])
    from zerochat.tui.messages.paint import mark_of

    assert cell_len(mark_of(timeline.rows[0])[0]) <= MARGIN
