"""Message bodies: lenient reading, strict writing, and an order-independent result."""

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.membership_book import ADMINS, FLAT, Book, did
from zerochat.crypto.encoding import canonical_json
from zerochat.errors import Malformed, PostTooLong
from zerochat.group.event_log.event import (
    ANNOUNCE,
    CONC_MAX,
    DEPS_MAX,
    EDIT,
    POST,
    RECORD_BYTES_MAX,
    TOPIC,
    Event,
    parse_event,
)
from zerochat.group.membership import WRITER
from zerochat.group.membership.bot_announcement import (
    ANNOUNCEMENT_BYTES_MAX,
    COMMANDS_MAX,
    HELP_CHARS_MAX,
    NAME_CHARS_MAX,
    USAGE_CHARS_MAX,
    Announcement,
    BadAnnouncement,
    BotCommand,
)
from zerochat.group.messages.bodies import (
    MENTIONS_MAX,
    PINS_MAX,
    TOPIC_CHARS_MAX,
    BadTopic,
    Content,
    Delete,
    Edit,
    NotAnEmoji,
    Pins,
    Post,
    React,
    Topic,
    content_of,
    fault_of_emoji,
    target_of,
    validated,
)
from zerochat.group.messages.current import (
    EMOJI_MAX,
    REACTIONS_MAX,
    Annotation,
    CurrentMessage,
    announcement_spans,
    current_message,
    may_set_topic,
    topic_spans,
)
from zerochat.limits import HOPS_MAX, POST_BYTES_MAX

GROUP, ID, OTHER = "g" * 43, "i" * 43, "o" * 43


def event(kind: str, body: dict[str, Any], author: str = "a", seq: int = 1, lamport: int = 0) -> Event:
    pre = "" if seq == 1 else "p" * 43
    return Event(GROUP, kind, did(author), seq, pre, (), (), lamport or seq, 1_000 + seq, body)


def said(what: Content, author: str = "a", seq: int = 2, lamport: int = 0) -> Event:
    return event(what.kind, what.body, author, seq, lamport)


# --- reading and writing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [Post("x"), Edit(ID, "x"), Delete(ID), React(ID, "👍"), Topic("x"), Pins((ID,))],
    ids=lambda one: one.kind,
)
def test_hops_are_a_small_number(content: Any) -> None:
    assert "hops" not in content.body, "0 is the absence"
    counted = replace(content, hops=HOPS_MAX)
    assert content_of(said(counted)) == counted and content_of(said(content)).hops == 0
    for wrong in (-1, HOPS_MAX + 1, True, "1", 1.0, None, [1]):
        with pytest.raises(Malformed):
            content_of(event(content.kind, {**content.body, "hops": wrong}))


A_COMMAND: dict[str, object] = {"name": "a", "usage": "", "help": "", "role": ""}
ODD: dict[str, tuple[object, ...]] = {
    "name": ("", "-a", "two words", "Ping", "pіng", "a\n", "x" * 33, 7, "!a"),
    "usage": ("two\nlines", "\x1b[2J", "\ud800", "x" * (USAGE_CHARS_MAX + 1), None),
    "help": ("tab\there", "x" * (HELP_CHARS_MAX + 1), []),
    "role": ("Admin", "a b", "x" * 17, 7),
}
ODD_COMMANDS = [A_COMMAND | {field: value} for field, values in ODD.items() for value in values]


@pytest.mark.parametrize(
    "what",
    [
        Post("hello"),
        Post("", ID, True, (did("a"), did("b"))),
        Edit(ID, "other"),
        Edit(ID, "other", (did("a"), did("b"))),
        Delete(ID),
        React(ID, "👍"),
        React(ID, "👍", False),
        Topic(""),
        Topic("hikes"),
        Announcement(),
        Announcement(True, (BotCommand("deploy", "ENV [--dry]", "Bring it out: now!", "admin"), BotCommand("ping"))),
    ],
)
def test_bodies_round_trip(what: Content) -> None:
    assert content_of(parse_event(said(validated(what)).wire)) == what


def test_a_plain_message_is_written_as_ever() -> None:
    assert Post("hello").body == {"text": "hello"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("post", {}),
        ("post", {"text": 7}),
        ("edit", {"target": ID}),
        ("edit", {"target": ID[:-1], "text": "x"}),
        ("edit", {"target": [ID], "text": "x"}),
        ("delete", {}),
        ("delete", {"target": ID + "\n"}),
        ("delete", {"target": "é" * 43}),
        ("react", {"target": ID, "emoji": "👍"}),
        ("react", {"target": ID, "emoji": "👍", "on": 1}),
        ("react", {"target": ID, "emoji": 7, "on": True}),
        ("react", {"target": ID, "emoji": "👍" * 16_384, "on": True}),
        ("react", {"target": None, "emoji": "👍", "on": True}),
        ("topic", {"text": "two\nlines"}),
        ("topic", {"text": "x" * (TOPIC_CHARS_MAX + 1)}),
        ("topic", {"text": None}),
        ("pins", {"targets": "x" * 43}),
        ("pins", {"targets": ["x" * 42]}),
        ("pins", {"targets": ["x" * 43] * (PINS_MAX + 1)}),
        ("pins", {}),
        ("poll", {"text": "?"}),
        ("announce", {"bot": True}),
        ("announce", {"bot": True, "commands": {}}),
        ("announce", {"bot": True, "commands": [7]}),
        ("announce", {"bot": True, "commands": [{"name": "ping"}]}),
        *(("announce", {"bot": True, "commands": [{**A_COMMAND, **one}]}) for one in ODD_COMMANDS),
        ("announce", {"bot": True, "commands": [BotCommand("a").body()] * 2}),
        ("announce", {"bot": True, "commands": [BotCommand(f"c{n}").body() for n in range(COMMANDS_MAX + 1)]}),
        ("announce", {"bot": True, "commands": [BotCommand(f"c{n}", "", "é" * 250).body() for n in range(9)]}),
    ],
)
def test_an_invalid_body_has_no_content(kind: str, body: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        content_of(event(kind, body))


@pytest.mark.parametrize(
    "beside",
    [
        {"reply": "short", "action": 1, "mentions": "bob"},
        {"reply": ["i" * 43], "action": None, "mentions": [7, "did:key:nobody", {}]},
        {"reply": {}, "mentions": [did("a")] * (MENTIONS_MAX + 1), "more": [1]},
    ],
)
def test_malformed_fields_beside_a_text_are_ignored(beside: dict[str, Any]) -> None:
    assert content_of(event("post", {"text": "read me", **beside})) == Post("read me")


def test_malformed_fields_beside_an_edit_are_ignored() -> None:
    for mentions in ("bob", [7, "did:key:nobody"], [did("a")] * (MENTIONS_MAX + 1)):
        assert content_of(event("edit", {"target": ID, "text": "x", "mentions": mentions})) == Edit(ID, "x")


def test_the_target_of_an_event() -> None:
    assert [target_of(said(one)) for one in (Edit(ID, ""), Delete(ID), React(ID, "👍"))] == [ID] * 3
    assert target_of(said(Topic("x"))) == TOPIC and target_of(said(Post("x", ID))) == ""
    assert target_of(event("topic", {"text": "\n"})) == "" == target_of(event("edit", {"target": 7, "text": "x"}))
    assert target_of(event("poll", {"target": ID})) == "" == target_of(event("announce", {"commands": 7}))
    assert target_of(said(Announcement(True))) == ANNOUNCE


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5), st.text())
def test_any_body_is_read_or_refused(value: Any, text: str) -> None:
    names = ("text", "target", "emoji", "on", "reply", "action", "mentions", "files", "bot", "commands")
    for kind in ("post", "edit", "delete", "react", "topic", "announce"):
        for name in names:
            one = event(kind, {"text": text, "target": ID, "emoji": "👍", "on": True, name: value})
            target_of(one)
            with suppress(Malformed):
                assert target_of(said(content_of(one))) in ("", ID, TOPIC, ANNOUNCE)


# --- our own content --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "emoji", ["👍", "❤️", "❤", "👍🏽", "👩‍👩‍👧‍👦", "🇦🇹", "1️⃣", "#⃣", "ℹ️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👩🏻‍❤️‍💋‍👨🏿", "!", "✓", "\U0001fae9"]
)
def test_an_emoji(emoji: str) -> None:
    assert fault_of_emoji(emoji) == "" and validated(React(ID, emoji)).kind == "react"


@pytest.mark.parametrize(
    "emoji",
    [
        *("", " ", "a", "ja", "ß", "字", "1", "12", "+1", "👍👍", "👍 ", "👍\n", "\u200d", "👍\u200d"),
        *("\u200d👍", "\ufe0f", "🏽", "\u20e3", "12\u20e3", "\x1b", "\u202e", "👍\u202e", "\ud83d", "🇦"),
        *("🇦🇹🇩", "👍\u200d\u200d👍", "👍\u200da"),
        *("e\u0301", "👍\u0301", "\x00", "👍" * 16_384, "\U000e0041", "👍" + "\ufe0f" * 64),
    ],
)
def test_no_emoji(emoji: str) -> None:
    assert fault_of_emoji(emoji)
    with pytest.raises(NotAnEmoji) as refused:
        validated(React(ID, emoji))
    assert len(refused.value.sentence()) < 200


def test_a_topic_is_one_line() -> None:
    for text in ("two\nlines", "tab\there", "\x1b[2J", "a\u2028b", "\ud800", "x" * (TOPIC_CHARS_MAX + 1)):
        with pytest.raises(BadTopic):
            validated(Topic(text))
    assert validated(Topic("x" * TOPIC_CHARS_MAX))


@pytest.mark.parametrize("char", ["\u200b", "\u202e", "\u2066", "\ufeff", "\u200f"])
def test_a_topic_has_no_invisible_characters(char) -> None:
    with pytest.raises(BadTopic, match=f"U\\+{ord(char):04X}"):
        validated(Topic(f"two{char}words"))


@pytest.mark.parametrize(
    "text",
    [
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "👩\u200d🚀 ❤\ufe0f",
        "🏴\U000e0067\U000e0062\U000e007f",
        "a\u00a0b",
    ],
)
def test_a_topic_may_have_joiners(text) -> None:
    assert validated(Topic(text)) == Topic(text)


def test_an_announcement_is_printable_and_bounded() -> None:
    big = BotCommand("x" * NAME_CHARS_MAX, "u" * USAGE_CHARS_MAX, "h" * HELP_CHARS_MAX, "owner")
    assert validated(Announcement(True, (big,)))
    most = tuple(BotCommand(f"c{n}", "a", "b") for n in range(COMMANDS_MAX))
    assert validated(Announcement(True, most))
    wrong = [
        (*most, BotCommand("more")),
        (big, big),
        (BotCommand("Deploy"),),
        (BotCommand("a", "two\nlines"),),
        (BotCommand("a", "", "\x1b]0;owned\x07"),),
        (BotCommand("a", role="king"),),
        tuple(BotCommand(f"c{n}", help="x" * (ANNOUNCEMENT_BYTES_MAX // 16)) for n in range(16)),
    ]
    for commands in wrong:
        with pytest.raises(BadAnnouncement) as refused:
            validated(Announcement(True, commands))
        assert len(refused.value.sentence()) < 200 and refused.value.sentence().isprintable()
    later = {"bot": True, "commands": [{**BotCommand("a", role="king").body(), "since": 2}], "language": "de"}
    assert content_of(event("announce", later)) == Announcement(True, (BotCommand("a", role="king"),)), (
        "a later version"
    )


def test_an_announcement_counts_while_its_bot_may_write() -> None:
    book = Book(ADMINS, members="bcd")
    book.say("a", "role", {"member": did("b"), "role": "reader", "after": 3})
    book.say("a", "role", {"member": did("b"), "role": "writer", "after": 6})
    book.say("a", "remove", {"member": did("d"), "after": 2})
    spans = list(announcement_spans(book.view))
    counts = {
        one: [seq for seq in range(1, 10) if any(who == did(one) and a < seq <= z for who, a, z in spans)]
        for one in "abcd"
    }
    every = list(range(1, 10))
    assert counts == {"a": every, "b": [1, 2, 3, 7, 8, 9], "c": every, "d": []}


def test_a_text_has_its_limit_in_an_edit_too() -> None:
    for make in (Post, lambda text: Edit(ID, text)):
        assert validated(make("x" * POST_BYTES_MAX))
        for text in ("x" * (POST_BYTES_MAX + 1), "\n" * POST_BYTES_MAX):
            with pytest.raises(PostTooLong):
                validated(make(text))


@pytest.mark.parametrize("text", ["é" * (POST_BYTES_MAX // 2), "\n" * 44_900, "\x01" * 15_000])
def test_the_greatest_post_fits_a_record(text: str) -> None:
    what = Post(text, ID, True, tuple(did("a")[:-2] + f"{n:02d}" for n in range(1, 33)))
    assert validated(what) == what
    with pytest.raises(PostTooLong):
        validated(replace(what, text=text + "\n" * 2_000))
    ids = tuple(f"{n:043d}" for n in range(DEPS_MAX + CONC_MAX))
    big = 2**53 - 1
    one = Event(
        GROUP, POST, did("a"), big, ID, ids[:DEPS_MAX], ids[DEPS_MAX:], big, big, {**what.body, "mark": "x" * 11}
    )
    assert len(canonical_json(one.wire)) < RECORD_BYTES_MAX and parse_event(one.wire) == one


# --- current messages -------------------------------------------------------------------------------------------------


@pytest.fixture
def flat() -> Book:
    return Book(FLAT, members="bc")


def comes_to(book: Book, post: Event, *events: Event) -> CurrentMessage:
    """The same in every order; the log may have them in any."""
    remarks = [Annotation(one) for one in events]
    found = current_message(book.view, post, remarks)
    for seed in range(5):
        random.Random(seed).shuffle(remarks)
        assert current_message(book.view, post, remarks) == found
    return found


def test_the_last_edit_of_the_author_counts(flat: Book) -> None:
    post = said(Post("one"), seq=1)
    found = comes_to(
        flat,
        post,
        said(Edit(post.id, "two"), seq=2),
        said(Edit(post.id, "three"), seq=5, lamport=5),
        said(Edit(post.id, "never"), "b", seq=9),
        event("edit", {"target": post.id, "text": 7}, seq=7),
        said(Edit(OTHER, "elsewhere"), seq=8),
    )
    assert found == CurrentMessage("three", 1_005)


def test_deletion_is_final_and_by_the_author_only(flat: Book) -> None:
    post = said(Post("one"), seq=1)
    assert comes_to(flat, post, said(Delete(post.id), "b")) == CurrentMessage()
    found = comes_to(
        flat,
        post,
        said(Edit(post.id, "before"), seq=2),
        said(Delete(post.id), seq=3),
        said(Edit(post.id, "after"), seq=4),
        said(React(post.id, "👍"), "b"),
    )
    assert found == CurrentMessage(deleted=True)


def test_the_last_reaction_per_member_and_emoji_counts(flat: Book) -> None:
    post = said(Post("one"), seq=1)
    found = comes_to(
        flat,
        post,
        said(React(post.id, "👍"), "b", 1, 10),
        said(React(post.id, "🎉"), "c", 1, 9),
        said(React(post.id, "👍"), "c", 2, 11),
        said(React(post.id, "❤"), "b", 2, 12),
        said(React(post.id, "❤", False), "b", 3, 13),
        said(React(post.id, "🙈", False), "a", 3, 14),
    )
    assert found.reactions == (("🎉", (did("c"),)), ("👍", (did("b"), did("c"))))


def test_annotations_of_readers_are_ignored() -> None:
    book = Book(ADMINS, members="bc")
    post = said(Post("one"), "b", seq=1)
    late = [said(React(post.id, "👍"), "b", 4), said(Edit(post.id, "two"), "b", 5), said(Delete(post.id), "b", 6)]
    assert comes_to(book, post, *late).deleted
    book.say("a", "role", {"member": did("b"), "role": "reader", "after": 4})
    assert comes_to(book, post, *late) == CurrentMessage(reactions=(("👍", (did("b"),)),))
    stranger = said(React(post.id, "👎"), "j")
    assert comes_to(book, post, stranger) == CurrentMessage()
    book.say("a", "remove", {"member": did("b"), "after": 3})
    assert comes_to(book, post, *late) == CurrentMessage()


def test_annotations_of_non_posts_have_no_effect(flat: Book) -> None:
    """Edits of edits, reactions to reactions, and two that name each other: nothing is followed."""
    post = said(Post("one"), seq=1)
    edit = said(Edit(post.id, "two"), seq=2)
    react = said(React(post.id, "👍"), "b", 2)
    more = [said(Edit(edit.id, "three"), seq=3), said(React(react.id, "🎉"), "c", 2), said(Delete(react.id), "b", 3)]
    assert comes_to(flat, post, edit, react, *more) == CurrentMessage("two", 1_002, reactions=(("👍", (did("b"),)),))
    ring = [said(React(ID, "👍"), "a", 4), said(React(OTHER, "👍"), "b", 4)]
    assert comes_to(flat, post, *ring) == CurrentMessage()


def test_relayed_annotations_name_their_relayer(flat: Book) -> None:
    post = said(Post("one"), seq=1)
    edit, gone = said(Edit(post.id, "two"), seq=2), said(Delete(post.id), seq=3)
    assert current_message(flat.view, post, [Annotation(edit, did("c"))]).relayed_by == did("c")
    found = current_message(flat.view, post, [Annotation(edit), Annotation(gone, did("c"))])
    assert found == CurrentMessage(deleted=True, relayed_by=did("c"))


def test_reactions_have_an_end(flat: Book) -> None:
    post = said(Post("one"), seq=1)
    many = [said(React(post.id, chr(0x1F400 + n)), "b", 2 + n) for n in range(100)]
    found = comes_to(flat, post, *many)
    assert [emoji for emoji, _ in found.reactions] == [chr(0x1F400 + n) for n in range(EMOJI_MAX)]
    assert sum(len(by) for _, by in found.reactions) <= REACTIONS_MAX


def test_members_that_may_set_the_topic() -> None:
    book = Book(ADMINS, members="bcd")
    book.say("a", "role", {"member": did("b"), "role": "admin", "after": 3})
    book.say("a", "role", {"member": did("b"), "role": "reader", "after": 8})
    book.say("a", "remove", {"member": did("d"), "after": 2})
    may = {one: [seq for seq in range(1, 12) if may_set_topic(book.view, did(one), seq)] for one in "abcd"}
    assert may == {"a": list(range(1, 12)), "b": [4, 5, 6, 7, 8], "c": [], "d": []}
    spans = list(topic_spans(book.view))
    for one in "abcd":
        inside = [seq for seq in range(1, 12) if any(who == did(one) and a < seq <= z for who, a, z in spans)]
        assert inside == may[one]


def test_in_a_flat_group_every_writer_sets_the_topic() -> None:
    book = Book(FLAT, members="bc")
    book.say("b", "role", {"member": did("b"), "role": "reader", "after": 2}, seq=2)
    book.say("b", "role", {"member": did("b"), "role": WRITER, "after": 5}, seq=5)
    may = {one: [seq for seq in range(1, 9) if may_set_topic(book.view, did(one), seq)] for one in "abj"}
    assert may == {"a": list(range(1, 9)), "b": [1, 2, 6, 7, 8], "j": []}
    spans = [(a, z) for who, a, z in topic_spans(book.view) if who == did("b")]
    assert [seq for seq in range(1, 9) if any(a < seq <= z for a, z in spans)] == may["b"]


def test_each_kind_matches_its_content() -> None:
    assert [one.kind for one in (Post(""), Edit(ID, ""))] == [POST, EDIT]
