"""Posts in the pane: replies, reactions, edits, deletions, actions, mentions, and Markdown.

The goldens in `tests/goldens/posts-*.txt` are the pane as text; `GOLDENS=new` in the environment writes them anew.
"""

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.support.fake_agent import ME, FakeAgent
from tests.support.pane_lines import a_row, conversation, golden, lines, shown
from tests.support.tui_pilot import HOSTILE, assert_harmless
from zerochat.rpc import Quote, Reaction
from zerochat.terminal_text import LINES_MAX, Printable, printable
from zerochat.tui.messages.layout import lines_of
from zerochat.tui.messages.markdown import BOLD, CODE, ITALIC, LINK, NAME, QUOTED, SIGN, SLANT, lay_out, links_in
from zerochat.tui.messages.paint import Palette, paint
from zerochat.tui.messages.row import MARGIN, REACTIONS_SHOWN_MAX, Columns, QuotedMessage, ReactionCount, row_of
from zerochat.tui.messages.selectable_pane import beside, nearest
from zerochat.tui.messages.timeline import Timeline
from zerochat.tui.style.text import Names, wrap

pytestmark = pytest.mark.usefixtures("utc")
GOLDENS = Path(__file__).parents[1] / "goldens"


# --- Markdown -------------------------------------------------------------------------------------------------------


def marks(text, width=80):
    """Each line with its marked pieces in braces."""
    names = {BOLD: "b", ITALIC: "i", SLANT: "i", CODE: "c", LINK: "l", QUOTED: "q", SIGN: "s", NAME: "n"}

    def of(piece, found):
        sign = "".join(name for bit, name in names.items() if found & bit)
        return f"{{{sign} {piece}}}" if sign else piece

    return ["".join(of(*each) for each in line) for line in lay_out(text, width)]


@pytest.mark.parametrize(
    ("text", "laid"),
    [
        ("a **bold** and *italic* and _this_", ["a {b bold} and {i italic} and {i this}"]),
        ("run `rm -rf *x*` now", ["run {c `rm -rf *x*`} now"]),
        ("see https://x.example/a_b_c.", ["see {l https://x.example/a_b_c}."]),
        ("(https://x.example/a)", ["({l https://x.example/a})"]),
        ("https://x.example/a_(b)", ["{l https://x.example/a_(b)}"]),
        ("**see https://x.example**", ["{b see }{bl https://x.example}"]),
        ("2*3*4 and *.py and *.txt and snake_case_name", ["2*3*4 and *.py and *.txt and snake_case_name"]),
        ("* not a list\n# not a title\n1. no\n[no](https://y)", None),
        ("***all*** __of__ ** it", ["***all*** __of__ ** it"]),
        ("a *b **c* d**", ["a {i b }{bi c}{b  d}"]),
        ("*a *b*", ["*a {i b}"]),
        ("**", ["**"]),
        ("> said *so*\nyes", ["{s ▎ }{q said }{iq so}", "yes"]),
        (">_< and >:(", [">_< and >:("]),
        ("```py\nx  = *1*\n```\nafter", ["{s ┊ py}", "{s ┊ }{c x  = *1*}", "after"]),
        ("```\nnever closed", ["```", "never closed"]),
        ("```\n```", ["```", "```"]),
        ("[b]no[/b] <b>no</b> &amp; \\*no\\*", ["[b]no[/b] <b>no</b> &amp; \\*no\\*"]),
    ],
)
def test_markdown_delimiters(text, laid):
    if laid is None:
        assert "".join(marks(text)).replace("{l ", "").replace("}", "") == text.replace("\n", "")
    else:
        assert marks(text) == laid


signs = st.lists(
    st.sampled_from(["**", "*", "_", "`", "```", "\n", "> ", "a", "b c", " ", "你", "👋", "https://x.y", "é", "("]),
    max_size=40,
).map("".join)


@settings(max_examples=400, deadline=None)
@given(signs, st.integers(4, 40), st.sampled_from([0, 3]))
@example("```a\n\n```", 4, 0)
def test_markdown_lines_fit_and_lose_nothing(text, width, lead):
    laid = lay_out(text, width, lead=lead)
    shown = ["".join(piece for piece, _ in line) for line in laid]
    assert all(cell_len(line) <= width for line in shown)
    kept = re.sub(r"[\s*_`>▎┊]", "", "".join(shown))
    assert kept == "x" * lead + re.sub(r"[\s*_`>]", "", text)
    if not lead:
        assert ["".join(piece for piece, _ in line) for line in lay_out(text, width, marked=False)] == wrap(text, width)


@pytest.mark.parametrize("sign", ["*a ", "_a_", "`", "**a", "https://", "> ", "```\nx\n", "*a* ", "(", "* "])
def test_markdown_work_is_bounded(sign):
    """Counted, not timed: twice the text is at most about twice the pieces, and marks come to an end."""
    text = printable(sign * 16_000, lines_max=LINES_MAX)
    pieces = [piece for line in lay_out(text, 60) for piece in line]
    assert len(pieces) <= len(text) // 20 + 3 * LINES_MAX + 2_000


def test_links_are_distinct_and_bounded():
    assert links_in("https://a.b, https://a.b and https://c.d.", 9) == ["https://a.b", "https://c.d"]
    assert len(links_in("".join(f"https://x{n}.y " for n in range(500)), 20)) == 20


# --- shape ----------------------------------------------------------------------------------------------------------

texts = st.sampled_from(
    [
        "x",
        "a **few** words",
        "long " * 40,
        "two\nlines",
        "你好世界" * 20,
        "w" * 200,
        "```\ncode  here\n```",
        "> q\nz",
        "",
        "*a* `b`",
    ]
)
reactions = st.lists(
    st.builds(
        lambda emoji, count, mine: ReactionCount(Printable(emoji), count, mine, emoji),
        st.sampled_from(["👍", "🎉", "👨‍👩‍👧", "e\u0301", "?" * 8]),
        st.integers(1, 10_000),
        st.booleans(),
    ),
    max_size=20,
).map(tuple)
posts = st.builds(
    lambda n, who, text, more: a_row(n, who, text, **more),
    st.integers(1, 14),
    st.sampled_from(["a", "b"]),
    texts,
    st.fixed_dictionaries(
        {
            "own": st.booleans(),
            "late": st.booleans(),
            "action": st.booleans(),
            "edited": st.booleans(),
            "deleted": st.booleans(),
            "mention": st.booleans(),
            "quote": st.sampled_from(
                [None, QuotedMessage("e1", "a", Printable("bob"), Printable("w " * 90)), QuotedMessage("gone")]
            ),
            "reactions": reactions,
            "truncation": st.sampled_from([Printable(""), Printable("… 3 more lines: zerochat history x")]),
            "kind": st.sampled_from(["post", "post", "quiet"]),
        }
    ),
)
post_lists = st.lists(posts, max_size=20, unique_by=lambda row: row.key)


def palette():
    from rich.style import Style as RichStyle

    from zerochat.tui.messages.paint import LABELS

    plain = RichStyle()
    return Palette(plain, dict.fromkeys(LABELS, plain), (plain,) * 12)


def check(timeline):
    fresh = Timeline(markdown=timeline.markdown)
    fresh.unread = timeline.unread
    fresh.resize(timeline.width)
    fresh.add(timeline.rows)
    assert fresh.heights == timeline.heights and fresh.tops == timeline.tops
    assert timeline.tops[-1] == sum(timeline.heights)
    quoting = {}
    for row in timeline.rows:
        if row.quote is not None:
            quoting.setdefault(row.quote.id, set()).add(row.key)
    assert quoting == timeline.quoted_by


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(post_lists, st.integers(6, 130), st.booleans())
def test_row_heights_match_drawing(rows, width, marked):
    names = Names()
    names.learn("a", "a name of some length")
    names.learn("b", "a name of some length")  # so that letters of the key stand behind it
    timeline = Timeline(markdown=marked)
    timeline.resize(width)
    timeline.add(rows)
    check(timeline)
    for index, height in enumerate(timeline.heights):
        for selected in (False, True):
            strips = paint(timeline, index, names, palette(), selected=selected)
            assert len(strips) == height
            if width >= 22:
                assert all(strip.cell_length <= width for strip in strips), [strip.text for strip in strips]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(posts, st.integers(14, 130), st.booleans())
@example(a_row(1, "a", "w" * 60, own=True), 60, True)
@example(a_row(1, "a", "> q w " + "w" * 30, own=True), 60, True)
def test_marks_only_narrow_the_last_line(post, width, marked):
    columns = Columns.of(width)
    plain, wide = replace(post, own=False, late=False), replace(post, own=True)
    if post.kind == "quiet" or columns.text_width <= MARGIN:
        return
    without, beside = lines_of(plain, columns, marked), lines_of(wide, columns, marked)
    said = [re.sub(r"\s", "", "".join(text for line in each for text, _ in line.pieces)) for each in (without, beside)]
    assert said[0] == said[1] or post.files
    assert beside[-1].cells <= columns.text_width - MARGIN
    assert max(line.cells for line in beside) <= columns.text_width
    body = [line for line in without if line.kind == "body"]
    if not post.reactions and not post.edited:  # else these stand below the text
        assert [line for line in beside if line.kind == "body"][: len(body) - 1] == body[:-1]
        assert len(beside) <= len(without) + 1


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(post_lists.filter(bool), st.data(), st.integers(8, 110))
def test_heights_follow_changes(rows, data, width):
    timeline = Timeline()
    timeline.resize(width)
    timeline.add(rows)
    timeline.unread = None
    for step in range(data.draw(st.integers(1, 6))):
        row = data.draw(st.sampled_from(rows))
        other = data.draw(posts)
        new = replace(other, key=row.key, author=row.author, kind=row.kind, line=10 + step)
        match data.draw(st.sampled_from(["amend", "again", "forget", "old"])):
            case "amend":
                timeline.update(new)
            case "again":
                timeline.add([new, *rows])
            case "forget":
                timeline.remove([row.key])
            case "old":
                assert timeline.update(replace(new, line=0)) == [] or timeline.index(row.key) is None
        check(timeline)


def test_changed_posts_change_in_quotes():
    quote = QuotedMessage("e000001", "did:key:z6MkBob", Printable("bob"), Printable("hello"))
    timeline = Timeline()
    timeline.add([a_row(1), a_row(2, quote=quote), a_row(3)])
    deleted = a_row(1, text="", source="", deleted=True, line=5)
    assert {key[0] for key in timeline.update(deleted)} == {1, 2}
    assert timeline.rows[1].quote.deleted and not timeline.rows[1].quote.text
    assert timeline.update(a_row(1, line=4)) == []  # An older answer changes nothing.
    timeline.remove([timeline.keys[0]])
    assert [key[0] for key in timeline.update(a_row(1, source="back", line=9))] == [2]
    check(timeline)


def test_the_oldest_event_may_have_no_row():
    timeline = Timeline()
    timeline.add([a_row(5)])
    assert timeline.oldest == "e000005"
    timeline.floor = (2, "x", "reaction")
    assert timeline.oldest == "reaction"
    timeline.drop_oldest(1)
    assert timeline.oldest is None


def test_the_selection_skips_notices():
    timeline = Timeline()
    rows = [a_row(1, kind="quiet"), a_row(2), a_row(3, kind="quiet"), a_row(4), a_row(5, kind="quiet")]
    timeline.add(rows)
    two, four = rows[1].key, rows[3].key
    assert beside(timeline, two, 1) == four and beside(timeline, four, -1) == two
    assert beside(timeline, four, 1) is None and beside(timeline, two, -1) is None
    assert nearest(timeline, (3, "", "")) == four and nearest(timeline, (9, "", "")) == four
    assert nearest(timeline, rows[0].key) == two
    assert nearest(Timeline(), two) is None


# --- what a peer can send -------------------------------------------------------------------------------------------


def test_events_become_rows(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("g")
    bob = group.members[1].did
    first = agent.post(group, 1, "hello")
    event = agent.post(group, 1, "hi")
    event = agent.change(group, event.id, mentions=[ME], reply_to=first.id, quoted=agent.quote(group, first.id))
    event = agent.change(group, event.id, reactions=[Reaction("👍", [ME, bob]), Reaction("x", [])], action=True)
    row = row_of(event, 1, "g", ME)
    assert (
        row.mention and row.action and row.quote == QuotedMessage(first.id, bob, Printable("bob"), Printable("hello"))
    )
    assert row.reactions == (ReactionCount(Printable("👍"), 2, True, "👍"),)
    assert not row_of(event, 1, "g", bob).mention and not row_of(event, 1).mention
    gone = row_of(agent.change(group, event.id, deleted=True, body={}), 1, "g", ME)
    assert gone.deleted and not gone.mention and gone.quote is None and gone.source == ""
    for type in ("reacted", "message_edited", "message_deleted"):
        assert row_of(agent.change(group, event.id, type=type), 1) is None


def test_nothing_hostile_is_drawn(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("g", ["bob" + HOSTILE])
    post = agent.post(group, 1, HOSTILE * 3)
    hostile = Quote(id=HOSTILE, author=post.author, text=HOSTILE * 20)
    for number in range(3):
        reactions = [Reaction(HOSTILE + str(each), [ME, HOSTILE]) for each in range(40)]
        event = agent.post(group, 1, f"`{HOSTILE}` **{HOSTILE}** > {HOSTILE}\n```{HOSTILE}\n{HOSTILE}\n```")
        agent.change(
            group,
            event.id,
            reply_to=HOSTILE,
            quoted=hostile,
            reactions=reactions,
            action=number == 1,
            mentions=[ME, HOSTILE],
        )
    agent._log(group, 1, "topic_changed", {"text": HOSTILE})
    agent._log(group, 1, "topic_changed", {"text": 7})
    text = ""
    for width in (30, 60, 120):
        text = golden(conversation(agent, group), (width, 60))
        assert_harmless(text)
    assert "+28 more" in text
    row = conversation(agent, group).timeline.rows[2]
    assert len(row.reactions) == 40 and all(cell_len(one.emoji) <= 8 for one in row.reactions)
    assert len(list(lines_of(row, Columns.of(30), True))) < 120
    assert REACTIONS_SHOWN_MAX == 12


# --- the pane -------------------------------------------------------------------------------------------------------


def a_day(agent):
    group = agent.add_group("weekend", ["bob", "carol", "Dorothea of the long name"])
    bob, carol = group.members[1].did, group.members[2].did
    question = agent.post(
        group, 1, "shall we take the **early** train? it is at *seven*, see https://train.example/x_y_z", minute=1
    )
    agent.change(group, question.id, reactions=[Reaction("👍", [ME, carol]), Reaction("🎉", [carol])])
    answer = agent.post(group, 2, "yes", minute=2)
    agent.change(group, answer.id, reply_to=question.id, quoted=agent.quote(group, question.id))
    called = agent.post(group, 2, "@alice, you bring the coffee?", minute=2)
    agent.change(group, called.id, mentions=[ME])
    mine = agent.post(group, 0, "I bring two flasks", minute=3, delivered=2)
    agent.change(group, mine.id, edited_at=mine.sent_at, reply_to=called.id, quoted=agent.quote(group, called.id))
    waves = agent.post(
        group, 1, "waves, and looks for `ticket.pdf` everywhere in the house before it is too late", minute=4
    )
    agent.change(group, waves.id, action=True)
    agent.post(
        group,
        1,
        "> said carol\nthis runs:\n```sh\nzerochat  history weekend --format jsonl | less -S # a long line\n```",
        minute=5,
    )
    gone = agent.post(group, 3, "", minute=6)
    agent.change(group, gone.id, deleted=True, body={})
    lost = agent.post(group, 3, "fine", minute=6, late=True)
    agent.change(group, lost.id, reply_to="nowhere", quoted=Quote(id="nowhere"), edited_at=mine.sent_at)
    many = [Reaction(emoji, [bob] * (n + 1)) for n, emoji in enumerate("👍🎉😂😮😢🙏👀✅🚀🔥⭐☕🐛")]
    agent.change(group, lost.id, reactions=many)
    agent._log(group, 2, "topic_changed", {"text": "The early train, and *who* brings what"}, minute=7)
    return group


@pytest.mark.parametrize("width", [120, 100, 80, 60, 40])
def test_posts_as_text(tmp_path, width):
    agent = FakeAgent(tmp_path / "s")
    text = golden(conversation(agent, a_day(agent)), (width, 60)) + "\n"
    path = GOLDENS / f"posts-{width}.txt"
    if os.environ.get("GOLDENS") == "new":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def styles_of(pane, text):
    for y in range(pane.size.height):
        strip = pane.render_line(y)
        if text in strip.text:
            return {segment.text: segment.style for segment in strip}
    raise AssertionError(text)


def test_styles(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, a_day(agent))

    async def look():
        async with shown(known, (100, 50)) as (_, pane):
            early = styles_of(pane, "early")
            assert early["early"].bold and early["seven"].italic
            assert styles_of(pane, "https://train")["https://train.example/x_y_z"].underline
            assert not any(style.link or style.meta.get("@click") for style in early.values() if style)
            assert styles_of(pane, "┃ @alice")[" ┃ "].bold
            assert styles_of(pane, "[👍 2]")["[👍 2]"].color != styles_of(pane, "[👍 2]")["🎉 1"].color
            key = known.timeline.keys[1]
            before = lines(pane)
            pane.selected = key
            pane.redraw()
            after = lines(pane)
            assert [line.replace("▌", "│") for line in after] == before and after != before
            lit = styles_of(pane, "early")["early"]
            assert lit.bgcolor != early["early"].bgcolor and lit.color == early["early"].color

    asyncio.run(look())


def test_without_colours_a_mention_is_bold(tmp_path, monkeypatch):
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, a_day(agent))

    async def look():
        async with shown(known, (100, 50)) as (_, pane):
            text = "@alice, you bring the coffee?"
            assert not styles_of(pane, text)[text].bold
            pane.app.no_color = True
            pane.notify_style_update()
            assert styles_of(pane, text)[text].bold

    asyncio.run(look())


def test_markdown_can_be_off(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    known = conversation(agent, a_day(agent))

    async def look():
        async with shown(known, (100, 50)) as (_, pane):
            total = known.timeline.total
            pane.markdown = False
            pane.redraw()
            text = "\n".join(lines(pane))
            assert "the **early** train? it is at *seven*" in text and "```sh" in text
            assert known.timeline.total == total + 1  # the fence at the end
            pane.markdown = True
            pane.redraw()
            assert known.timeline.total == total

    asyncio.run(look())
