"""Unread counts: derived from a durable read marker and the current messages, the same for every client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import agents
from tests.support.agents import meet, until
from tests.support.log_follower import Follower
from zerochat.agent.storage.tables import UNREAD_ROWS
from zerochat.agent.views import unread as unread_view
from zerochat.agent.views.unread import UnreadMessages
from zerochat.group.effects import DeleteLog, EraseContent, RefuteEvents
from zerochat.group.messages.bodies import Delete, Edit, Post, React
from zerochat.group.notifications import ContentExpired, IgnoredChanged
from zerochat.rpc import ReadState

people = agents.people


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Follower]:
    made = Follower(tmp_path / "journal.db")
    with made.journal:
        yield made


def info(one: Follower) -> tuple[int, int]:
    """As `list_groups` and `get_status` report them."""
    (group,) = one.call("list_groups")
    return group.unread, group.mentions


def place(event: Any) -> tuple[int, str, str]:
    return event.lamport, event.author, event.id


def afresh(one: Follower) -> ReadState:
    """The state as another start of the agent computes it."""
    return UnreadMessages(one.handlers.messages).state(one.agent.groups, one.group)


def test_messages_of_others_are_unread_until_marked(one: Follower) -> None:
    assert info(one) == (0, 0)
    first, mine, called = one.say(1, Post("a")), one.say(0, Post("b")), one.say(2, Post("c", mentions=(one.n[0],)))
    past = one.say(1, Post("from before"), history=True)
    one.keep(first, mine, called, past, one.say(1, React(first.id, "👍", True)))
    (group,) = one.call("list_groups")
    assert (group.unread, group.mentions, group.first_unread) == (2, 1, place(first))
    (state,) = one.call("mark_read", group=group.id)
    assert (state.unread, state.mentions, state.first_unread) == (0, 0, None)
    assert afresh(one) == state, "it is on disk"
    late = one.say(1, Post("late"), lamport=first.lamport - 1)
    one.keep(late)
    assert one.call("list_groups")[0].first_unread == place(late), "there is no other"
    fresh = one.say(2, Post("new"))
    one.keep(fresh)
    (group,) = one.call("list_groups")
    assert (group.unread, group.first_unread) == (2, place(fresh)) == (afresh(one).unread, afresh(one).first_unread)
    assert group.read_upto is not None and place(late) < group.read_upto < place(fresh)


def test_deletions_and_edits_lower_the_counts(one: Follower) -> None:
    me = one.n[0]
    posts = [one.say(1, Post(f"@me {number}", mentions=(me,))) for number in range(3)]
    one.keep(*posts)
    assert info(one) == (3, 3)
    one.keep(one.say(1, Delete(posts[0].id)))
    assert info(one) == (2, 2) == (afresh(one).unread, afresh(one).mentions)
    one.keep(one.say(1, Edit(posts[1].id, "nothing", ())))
    assert info(one) == (2, 1) == (afresh(one).unread, afresh(one).mentions)
    one.keep(one.say(2, Delete(posts[2].id)))
    assert info(one) == (2, 1), "the message of another member stays"


def test_an_ignored_member_is_neither_counted_nor_found(one: Follower) -> None:
    me = one.n[0]
    one.keep(one.say(1, Post("@me marmalade", mentions=(me,))), one.say(2, Post("marmalade")))
    assert info(one) == (2, 1)

    def ignore(*members: str) -> None:
        trust = replace(one.group.trust, ignored=members)
        one.group = one.agent.groups[one.group.id] = replace(one.group, trust=trust)
        one.handlers.notify([IgnoredChanged(one.group.id, one.n[1])], one.agent)

    ignore(one.n[1])
    assert info(one) == (1, 0) and [event.ignored for event in one.history().events] == [True, False]
    assert [hit.author.did for hit in one.call("search_messages", query="marmalade").hits] == [one.n[2]]
    one.keep(one.say(1, Post("@me again", mentions=(me,))))
    assert info(one) == (1, 0)
    ignore()
    assert info(one) == (3, 2) and len(one.call("search_messages", query="marmalade").hits) == 2


def test_expired_messages_do_not_count_even_before_they_are_erased(one: Follower) -> None:
    me, first = one.n[0], one.say(1, Post("first"))
    old, lasting = one.say(1, Post("@me old", mentions=(me,))), one.say(2, Post("new"))
    one.keep(first, old, lasting)
    assert info(one) == (3, 1)
    retention = replace(one.group.retention, erased_before=lasting.lamport)
    one.group = one.agent.groups[one.group.id] = replace(one.group, retention=retention)
    one.handlers.notify([ContentExpired(one.group.id)], one.agent)
    (state,) = [item for method, item in one.told() if method == "read_changed"]
    assert (state.unread, state.mentions, state.first_unread) == (1, 0, place(lasting))
    one.keep(one.say(1, Edit(old.id, "@me again", (me,))))
    assert info(one) == (1, 0) == (afresh(one).unread, afresh(one).mentions), "an edit does not bring it back"
    one.journal.commit(one.agent, [EraseContent(one.group.id, lasting.lamport, lasting.lamport, me, 0)])
    while one.journal.erasures.erase_slice():
        pass
    assert info(one) == (1, 0) == (afresh(one).unread, afresh(one).mentions)


def test_an_edit_of_a_read_message_is_a_mention(one: Follower) -> None:
    me, read = one.n[0], one.say(1, Post("at eight"))
    known = one.say(1, Post("@me", mentions=(me,)))
    one.keep(read, known)
    one.call("mark_read")
    edit = one.say(1, Edit(read.id, "@me at nine", (me,)))
    one.keep(edit, one.say(1, Edit(known.id, "@me!", (me,))))
    assert info(one) == (0, 1) == (afresh(one).unread, afresh(one).mentions)
    one.keep(one.say(1, Edit(read.id, "at nine", ())))
    assert info(one) == (0, 0) == (afresh(one).unread, afresh(one).mentions)
    assert [hit.id for hit in one.call("search_messages", query="to:me").hits] == [known.id]
    one.keep(one.say(1, Edit(known.id, "I", ())))
    assert one.call("search_messages", query="to:me").hits == []
    assert [event.mentions for event in one.history().events if event.type == "message"] == [[], []]
    one.keep(one.say(1, Edit(known.id, "@me!", (me,))))
    assert info(one) == (0, 0), "it mentioned me when it was read"
    one.keep(one.say(1, Edit(read.id, "@me at ten", (me,))))
    assert info(one) == (0, 1)
    one.call("mark_read")
    assert info(one) == (0, 0)


def test_the_marker_stops_at_an_event_and_never_moves_back(one: Follower) -> None:
    posts = [one.say(1, Post(str(number))) for number in range(4)]
    one.keep(*posts)
    seqs = [event.seq for event in one.history().events]
    (state,) = one.call("mark_read", group=one.group.id, upto=seqs[1])
    assert (state.unread, state.first_unread) == (2, place(posts[2]))
    (state,) = one.call("mark_read", group=one.group.id, upto=seqs[0])
    assert state.unread == 2
    (state,) = one.call("mark_read", group=one.group.id, upto=1 << 60)
    assert state.unread == 0
    one.keep(one.say(1, Post("after that")))
    assert info(one) == (1, 0)


def test_each_change_is_notified_once(one: Follower) -> None:
    info(one)
    post = one.say(1, Post("one"))
    news = one.keep(post, one.say(1, Post("two")))
    assert [method for method, _ in news] == ["event", "event", "read_changed"], "after the events, once per batch"
    assert (news[-1][1].unread, news[-1][1].first_unread) == (2, place(post))
    assert [method for method, _ in one.keep(one.say(0, Post("mine")))] == ["event"]
    one.call("mark_read")
    assert [(method, item.unread) for method, item in one.told()] == [("read_changed", 0)]
    one.call("mark_read")
    assert one.told() == []


def test_refuted_and_forgotten_messages_do_not_count(one: Follower) -> None:
    posts = [one.say(1, Post(str(number)), relayed_by=one.n[2]) for number in range(3)]
    one.keep(*posts)
    assert info(one) == (3, 0)
    one.keep(RefuteEvents(one.group.id, one.n[1], posts[0].seq, posts[1].seq))
    assert info(one) == (2, 0)
    one.call("mark_read")
    one.keep(DeleteLog(one.group.id))
    assert info(one) == (0, 0) and one.journal.meta_get(f"read:{one.group.id}") is None


def test_counting_does_not_read_the_log_again(one: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    one.keep(*(one.say(1, Post(str(number))) for number in range(20)))
    info(one)
    read: list[int] = []
    by_seq, rows = one.journal.by_seq, one.journal.unread_rows
    monkeypatch.setattr(
        one.journal,
        "by_seq",
        lambda *page: (found := by_seq(*page), read.append(len(found)))[0],
    )
    monkeypatch.setattr(one.journal, "unread_rows", lambda *page: (read.append(1_000), rows(*page))[1])
    one.handlers.unread.take_changes(one.agent.groups)
    read.clear()
    one.journal.commit(one.agent, [one.say(1, Post("the next"))])
    assert [state.unread for state in one.handlers.unread.take_changes(one.agent.groups)] == [21]
    assert sum(read) == 1
    plan = " ".join(
        str(row) for row in one.journal._db.execute(f"EXPLAIN QUERY PLAN {UNREAD_ROWS}", (one.group.id, 0, "", 1))
    )
    assert "events_unread (group_id=? AND seq>?)" in plan and "TEMP B-TREE" not in plan


def test_a_request_for_one_group_keeps_the_counts_of_others(one: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(one.group, id="o" * 43, name="other")
    one.agent = replace(one.agent, groups={**one.agent.groups, other.id: other})
    one.keep(one.say(1, Post("first")))
    assert one.handlers.unread.mark_read(one.agent.groups, one.group, None).unread == 0
    one.keep(mine := one.say(0, Post("mine")))
    one.journal.commit(one.agent, [one.say(1, Post("next"))])
    loaded: list[str] = []
    rows = one.journal.unread_rows
    monkeypatch.setattr(one.journal, "unread_rows", lambda *page: (loaded.append(page[0]), rows(*page))[1])
    one.call("mark_read", group=other.id)
    group = next(group for group in one.call("list_groups") if group.id == one.group.id)
    assert (group.unread, group.read_upto) == (1, place(mine)), "my own message has moved the marker"
    assert one.group.id not in loaded


def test_a_long_absence_is_loaded_anew_and_bounded(one: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_view, "LAG_MAX", 5)
    monkeypatch.setattr(unread_view, "UNREAD_MAX", 8)
    info(one)
    one.journal.commit(one.agent, [one.say(1, Post(str(number))) for number in range(12)])
    assert info(one) == (8, 0)
    seqs = [event.seq for event in one.history().events]
    (state,) = one.call("mark_read", group=one.group.id, upto=seqs[5])
    assert state.unread == 6


def test_every_client_of_a_profile_sees_the_same(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    for text in ("one", "@bob two"):
        alice.client.send_message("friends", text)
    until(lambda: bob.client.get_status().unread == 2, "the messages")
    bob.sleep()
    bob.wake()
    status = bob.client.get_status()
    assert (status.unread, status.mentions, status.groups[0].unread) == (2, 1, 2)
    assert alice.client.get_status().unread == 0
    bob.client.mark_read("friends")
    assert bob.client.get_status().unread == 0
    bob.sleep()
    bob.wake()
    assert bob.client.get_status().unread == 0
