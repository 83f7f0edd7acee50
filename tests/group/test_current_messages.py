"""Materialised messages over a real journal: history pages and notifications."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.log_follower import Follower
from zerochat.agent.api.post_commands import AlreadyPinned, announcement, combined, post_command
from zerochat.agent.api.server import decode_call
from zerochat.agent.api.subscriptions.live import FEED_ROWS
from zerochat.agent.archive import log_file as archive
from zerochat.agent.storage.journal import Journal
from zerochat.cli.verbs.audit import events_of
from zerochat.group.effects import ConfirmEvents, DeleteLog, RefuteEvents
from zerochat.group.event_log.event import PINS, POST, TOPIC
from zerochat.group.inputs import SendContent
from zerochat.group.membership.bot_announcement import Announcement, BotCommand
from zerochat.group.messages.bodies import Delete, Edit, Pins, Post, React, Topic
from zerochat.group.notifications import EventsConfirmed, EventsRefuted
from zerochat.rpc import LINE_BYTES_MAX, Announced, Delivery, PinParams, Request


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Follower]:
    made = Follower(tmp_path / "journal.db")
    with made.journal:
        yield made


def kinds(news: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(method, item.event.id if method == "message_changed" else item.type) for method, item in news]


def test_an_annotation_is_followed_by_the_current_message(one: Follower) -> None:
    post = one.say(1, Post("one"))
    assert kinds(one.keep(post)) == [("event", "message")]
    news = one.keep(one.say(1, Edit(post.id, "two")))
    assert kinds(news) == [("event", "message_edited"), ("message_changed", post.id)]
    amended = news[1][1].event
    assert (amended.body, amended.edited_at != "", amended.replayed) == ({"text": "two"}, True, False)
    assert amended.delivery == one.history().events[0].delivery


def test_a_new_mention_in_an_edit_is_notified_once(one: Follower) -> None:
    me, other = one.n[0], one.n[2]
    post = one.say(1, Post("at eight", mentions=(other,)))
    one.keep(post)

    def edited(*called: str, seq: int = 1) -> tuple[list[str], list[str]]:
        """The new mentions of an edit, and the mentions of the message after it."""
        (_, edit), (_, amended) = one.keep(one.say(1, Edit(post.id, "other", called)))
        return edit.mentions, amended.event.mentions

    assert edited(other) == ([], [other])
    assert edited(me, other, "did:key:z6Mk" + "x" * 44) == ([me], [me, other])
    assert edited(me) == ([], [me])
    assert edited() == ([], [])
    assert edited(me) == ([], [me]), "it was told that already"
    shown = [each.mentions for each in one.history().events if each.type == "message_edited"]
    assert shown == [[], [me], [], [], []]
    assert [hit.id for hit in one.call("search_messages", query="to:me").hits] == [post.id]
    later = one.say(1, Post("later"))
    one.keep(later)
    assert [hit.id for hit in one.call("search_messages", query="to:me", older_than=later.id).hits] == [post.id]
    assert one.call("search_messages", query="to:me", older_than=post.id).hits == []
    one.keep(one.say(1, Delete(post.id)))
    assert all(not each.mentions for each in one.history().events)


def test_many_annotations_update_a_message_once(one: Follower) -> None:
    post, other = one.say(0, Post("one")), one.say(1, Post("two"))
    one.keep(post, other)
    many = [one.say(1 + n % 2, React((post, other)[n % 3 == 0].id, chr(0x1F400 + n))) for n in range(20)]
    news = kinds(one.keep(*many))
    assert [kind for kind, _ in news].count("event") == 20
    assert [what for kind, what in news if kind == "message_changed"] == [other.id, post.id]
    assert news[-3:] == [("message_changed", other.id), ("event", "reacted"), ("message_changed", post.id)]
    flood = [one.say(1, React(post.id, "👍", n % 2 == 0)) for n in range(5 * FEED_ROWS)]
    assert [kind for kind, _ in kinds(one.keep(*flood))].count("message_changed") == 5


def test_an_early_annotation_is_applied_to_its_message(one: Follower) -> None:
    post = one.say(1, Post("one"))
    assert kinds(one.keep(one.say(2, React(post.id, "👍")))) == [("event", "reacted")]
    ((method, event),) = one.keep(post)
    assert method == "event" and [found.emoji for found in event.reactions] == ["👍"]


def test_backfilled_annotations_update_messages(one: Follower) -> None:
    post, later = one.say(1, Post("one")), one.say(1, Post("two"), history=True)
    one.keep(post)
    news = one.keep(
        one.say(2, React(post.id, "👍"), history=True), one.say(2, React(later.id, "👍"), history=True), later
    )
    assert kinds(news) == [("message_changed", post.id)], "no news, but for what somebody may have on the screen"
    assert [len(event.reactions) for event in one.history().events if event.type == "message"] == [1, 1]


def test_a_paging_client_receives_updates(one: Follower) -> None:
    post = one.say(1, Post("one"))
    one.keep(post, one.say(2, React(post.id, "👍")))
    one.call("subscribe", since=0)
    news = one.told()
    assert kinds(news) == [("event", "message"), ("event", "reacted"), ("message_changed", post.id)]
    assert all(item.replayed for _, item in news[:2]) and news[2][1].event.replayed


def test_relayed_annotations_are_marked_confirmed_or_refuted(one: Follower) -> None:
    post = one.say(1, Post("one"))
    one.keep(post)
    edit = one.say(1, Edit(post.id, "two"), relayed_by=one.n[2])
    amended = one.keep(edit)[-1][1].event
    assert amended.body["text"] == "two" and amended.relayed_by is not None and amended.relayed_by.did == one.n[2]
    place = one.group.id, one.n[1], edit.seq - 1, edit.seq
    one.keep(ConfirmEvents(*place))
    one.handlers.notify([EventsConfirmed(*place)], one.agent)
    assert [item.event.relayed_by for method, item in one.told() if method == "message_changed"] == [None]

    gone = one.say(1, Delete(post.id), relayed_by=one.n[2])
    assert one.keep(gone)[-1][1].event.deleted
    place = one.group.id, one.n[1], gone.seq - 1, gone.seq
    one.keep(RefuteEvents(*place))
    one.handlers.notify([EventsRefuted(place[0], place[1], one.n[2], *place[2:])], one.agent)
    (back,) = [item.event for method, item in one.told() if method == "message_changed"]
    assert (back.id, back.deleted, back.body, back.relayed_by) == (post.id, False, {"text": "two"}, None)


def test_a_members_last_announcement_counts(one: Follower) -> None:
    def bots() -> list[tuple[bool, list[str]]]:
        found = {each.did: each for each in one.call("list_members", group=one.group.id)}
        return [(found[did].bot, [each.name for each in found[did].commands]) for did in one.n]

    nobody = (False, [])
    assert bots() == [nobody] * 3
    first = one.say(1, Announcement(True, (BotCommand("deploy", "ENV", "Bring it out", "admin"),)))
    news = one.keep(first)
    assert kinds(news) == [("event", "commands_announced")]
    assert news[0][1].body == {
        "bot": True,
        "commands": [{"name": "deploy", "usage": "ENV", "help": "Bring it out", "role": "admin"}],
    }
    assert bots() == [nobody, (True, ["deploy"]), nobody]
    second = one.say(1, Announcement(True, (BotCommand("ping"),)), relayed_by=one.n[2])
    one.keep(one.say(2, Announcement(True)), second)
    assert bots() == [nobody, (True, ["ping"]), (True, [])]
    one.keep(RefuteEvents(one.group.id, one.n[1], second.seq - 1, second.seq))
    assert bots()[1] == (True, ["deploy"]), "it never said so"
    one.keep(one.say(1, Announcement()))
    assert bots()[1] == nobody and one.history().events[-1].body == {"bot": False, "commands": []}


def test_an_unchanged_announcement_is_not_notified(one: Follower) -> None:
    def announce(*names: str, bot: bool = True) -> Any:
        command = [{"name": name} for name in names]
        request = Request(method="announce_bot", id=1, params={"group": one.group.id, "bot": bot, "commands": command})
        new = combined([decode_call(1, request).params])  # type: ignore[list-item]
        said = announcement(one.handlers.messages, one.group, new)
        if isinstance(said, SendContent):
            one.keep(one.say(0, said.content))
        return said

    assert announce(bot=False) == Announced(one.group.id, unchanged=True), "there was nothing to take back"
    assert announce("ping") == SendContent(one.group.id, Announcement(True, (BotCommand("ping"),)))
    (event,) = [each for each in one.history().events if each.type == "commands_announced"]
    assert announce("ping") == Announced(one.group.id, event.id, unchanged=True)
    base = {did: peer.start_seq for did, peer in one.group.links.peers.items()}
    one.group = replace(
        one.group,
        links=replace(one.group.links, peers={d: replace(p, start_seq=99) for d, p in one.group.links.peers.items()}),
    )
    assert isinstance(announce("ping"), SendContent), f"not for whoever has come in since {base}"
    assert isinstance(announce("ping", "pong"), SendContent) and isinstance(announce(bot=False), SendContent)


def test_a_page_of_long_edits_is_as_long_as_a_line_may_be(one: Follower) -> None:
    posts = [one.say(1, Post(f"post {n}")) for n in range(40)]
    text = "x" * 60_000
    one.keep(*posts, *(one.say(1, Edit(post.id, f"{n} {text}")) for n, post in enumerate(posts)))
    seen, before = [], None
    while True:
        page = one.history(limit=500, before=before)
        assert len(msgspec.json.encode(page)) < LINE_BYTES_MAX and page.events
        seen[:0] = page.events
        if not page.more:
            break
        before = page.events[0].id
    shown = [event.body["text"] for event in seen if event.type == "message"]
    assert shown == [f"{n} {text}" for n in range(40)] and len(seen) == 80


def test_a_deleted_post_is_hidden_and_stays_in_the_log(one: Follower) -> None:
    """`delete` hides the post. Its removal everywhere cannot be promised."""
    post = one.say(1, Post("a secret"))
    edit, reply = one.say(1, Edit(post.id, "another secret")), one.say(2, Post("what?", post.id))
    one.keep(post, edit, reply)
    assert "secret" in str(one.history())
    news = one.keep(one.say(1, Delete(post.id)))
    about = [
        one.call(method, group=one.group.id, id=name)
        for method in ("get_delivery", "get_message_status")
        for name in (post.id, edit.id)
    ]
    found = one.call("search_messages", query="secret").hits
    assert "secret" not in str((one.history(), news, about)) and found == []
    ledger = one.call("get_log_summary", group=one.group.id)
    rows = one.call("get_event_page", group=one.group.id, latest=ledger.latest).rows
    assert [row.id for row in rows if b"secret" in row.record] == [post.id, edit.id]


def test_a_file_shows_messages_as_they_stood(one: Follower, tmp_path: Path) -> None:
    one.keep(*one.world.nodes["n0"].log)
    posts = [one.say(1, Post("one")), one.say(2, Post("two"))]
    about = [
        one.say(1, Edit(posts[0].id, "ONE")),
        one.say(2, Delete(posts[1].id)),
        one.say(0, React(posts[0].id, "👍")),
    ]
    one.keep(*posts, *about, one.say(1, Post("three", posts[0].id)))
    ledger = one.call("get_log_summary", group=one.group.id)
    rows = one.call("get_event_page", group=one.group.id, latest=ledger.latest).rows
    path = tmp_path / "friends.jsonl"
    with archive.create(path) as file:
        archive.write(archive.Header(exported_at="", summary=ledger), rows, file)
    live = [replace(event, delivery=Delivery(0, 0)) for event in one.history(limit=500).events]
    assert events_of(str(path), None) == live
    last = events_of(str(path), 2)
    assert last[0] == live[-2] and last[1].quoted is not None and last[1].quoted.author is None


def test_a_reply_quotes_the_beginning_of_its_target(one: Follower) -> None:
    post = one.say(1, Post("long " * 100))
    reply, lost = one.say(2, Post("yes", post.id)), one.say(2, Post("no", "x" * 43))
    thing = one.say(1, React(post.id, "👍"))
    odd = one.say(2, Post("hm", thing.id))
    one.keep(post, reply, lost, thing, odd)
    found = {event.id: event for event in one.history().events}
    quoted = found[reply.id].quoted
    assert quoted is not None and quoted.author is not None
    assert (quoted.author.did, quoted.text) == (one.n[1], ("long " * 100)[:200])
    for name in (lost.id, odd.id):
        other = found[name].quoted
        assert other is not None and (other.author, other.text) == (None, "")
    alone = one.history(limit=1, before=lost.id).events[0]
    assert alone.quoted == quoted, "also where it stands on another page"


def test_only_members_can_be_mentioned(one: Follower) -> None:
    stranger = one.n[1][:-3] + "xyz"
    one.keep(one.say(1, Post("hello", mentions=(one.n[0], stranger))))
    assert one.history().events[0].mentions == [one.n[0]]


def test_the_topic_is_looked_up_once(one: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, topics = [], Journal.last_topics

    def counting(journal: Journal, group: str, spans: Any) -> Any:
        asked.append(group)
        return topics(journal, group, spans)

    monkeypatch.setattr(Journal, "last_topics", counting)
    assert one.call("list_groups")[0].topic == ""
    first, second = one.say(1, Topic("first")), one.say(2, Topic("second"), relayed_by=one.n[1])
    one.keep(second, first)
    for _ in range(3):
        assert one.call("list_groups")[0].topic == "second", "the last one in the order of the log"
        one.keep(one.say(1, Post("x")), one.say(1, React(first.id, "👍")))
    assert len(asked) == 2
    one.keep(RefuteEvents(one.group.id, one.n[2], second.seq - 1, second.seq))
    assert one.call("list_groups")[0].topic == "first" and len(asked) == 3
    one.keep(one.say(1, Post("x"), type=TOPIC, target=TOPIC))
    assert one.call("list_groups")[0].topic == "", "nonsense in the last place of a chain is no topic, and no failure"
    one.keep(DeleteLog(one.group.id))
    assert one.call("list_groups")[0].topic == ""


def test_the_last_list_of_pins_counts(one: Follower) -> None:
    first, second, gone = (one.say(1, Post(text)) for text in ("first", "second", "gone"))
    one.keep(first, second, gone)

    def pinned() -> list[str]:
        return [event.body["text"] for event in one.call("list_pins", group=one.group.id)]

    assert pinned() == []
    one.keep(one.say(1, Pins((first.id, "x" * 43))), one.say(2, Pins((gone.id, second.id, first.id))))
    assert pinned() == ["gone", "second", "first"], "the last list in the order of the log; unknown ids wait"
    one.keep(one.say(1, Delete(gone.id)))
    assert pinned() == ["second", "first"]
    params = PinParams(one.group.id, first.id, False)
    assert post_command(one.handlers.messages, one.group, params).content == Pins((second.id,))
    with pytest.raises(AlreadyPinned, match="already pinned"):
        post_command(one.handlers.messages, one.group, PinParams(one.group.id, first.id))
    one.keep(one.say(2, Post("x"), type=PINS, target=PINS))
    assert pinned() == ["first"], "nonsense in the last place of a chain is no list"


def test_a_malformed_record_is_shown_as_nothing(one: Follower) -> None:
    post = one.say(1, Post("one"))
    broken = replace(one.say(1, Edit(post.id, "x")), record=b"\xff")
    number = replace(one.say(2, React(post.id, "👍")), record=one.say(2, Post("x")).record)
    one.keep(post, broken, number, one.say(2, Post("x"), record=b"{}", type=POST))
    events = one.history().events
    assert [event.type for event in events] == ["message", "unknown", "message", "unknown"]
    assert (events[0].body, events[0].reactions) == ({"text": "one"}, [])
