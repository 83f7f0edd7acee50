"""The journal: atomic commits, durability, confidentiality, and integrity checks."""

import logging
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from heapq import merge
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import defstruct, field
from msgspec.structs import replace

from tests.support.journals import KEY, Branch, Bush, Hedge, Leaf, Tree, Twig, Wreath
from tests.support.membership_book import Book, did
from zerochat.agent.storage import journal as journal_module
from zerochat.agent.storage import tables as rows
from zerochat.agent.storage.integrity_scan import IntegrityScan
from zerochat.agent.storage.journal import (
    DiskFailed,
    DiskFull,
    DiskReadOnly,
    EventReceipt,
    Journal,
    JournalDamaged,
    JournalInUse,
    NoSuchEvent,
    NotAJournal,
    UnsupportedJournal,
    WrongKey,
)
from zerochat.agent.storage.state_parts import assemble, changes
from zerochat.group.effects import ConfirmEvents, DeleteBlobs, RefuteEvents, StoreBlob, StoreEvent, StoreReceipt
from zerochat.group.event_log.event import ADD
from zerochat.group.membership import log_of
from zerochat.group.membership.log import extend_control
from zerochat.group.membership.view import View

MEMBERS = ["did:m", "did:n", "did:o"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with Journal.create(path, KEY) as made:
        yield made


def post(
    number: int, seq: int = 0, *, group: str = "g", author: str = "did:key:a", size: int = 500, **others: Any
) -> StoreEvent:
    event = StoreEvent(
        group, f"id-{number}", author, seq or number, number, "message", bytes(size), 1_000 + number, False
    )
    return replace(event, **others)


def everything(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}


# --- the checkpoint ---------------------------------------------------------------------------------------------------

keys = st.text(alphabet="a/%0\x00.é", max_size=3)
leaf = st.builds(
    Leaf,
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=9),
    st.frozensets(st.text(max_size=3), max_size=3),
    st.tuples(st.tuples(st.text(max_size=3), st.integers(0, 99))),
)
branch = st.builds(
    Branch,
    st.text(max_size=3),
    st.dictionaries(st.binary(max_size=2), leaf, max_size=3),
    st.dictionaries(keys, st.dictionaries(st.integers(0, 9), st.binary(max_size=3), max_size=2), max_size=2),
    st.none() | leaf,
    st.dictionaries(st.integers(-9, 9), leaf, max_size=3),
)
tree = st.builds(
    Tree,
    st.text(max_size=3),
    st.dictionaries(keys, branch, max_size=3),
    st.dictionaries(st.binary(max_size=2), leaf, max_size=3),
    st.frozensets(st.binary(max_size=3), max_size=2),
)


@st.composite
def edits(draw: st.DrawFn, state: Tree) -> Tree:
    """One turn's work: most of the tree stays the very same object."""
    match draw(st.integers(0, 5)):
        case 0:
            return replace(state, label=draw(st.text(max_size=3)))
        case 1:
            return replace(state, branches={**state.branches, draw(keys): draw(branch)})
        case 2:
            return replace(state, singles={**state.singles, draw(st.binary(max_size=1)): draw(leaf)})
        case 3 if state.branches:
            gone = draw(st.sampled_from(sorted(state.branches)))
            return replace(state, branches={k: v for k, v in state.branches.items() if k != gone})
        case 4 if state.branches:
            name = draw(st.sampled_from(sorted(state.branches)))
            inner = state.branches[name]
            leaves = {**inner.leaves, draw(st.binary(max_size=1)): draw(leaf)}
            return replace(state, branches={**state.branches, name: replace(inner, leaves=leaves)})
        case 5 if state.branches:
            name = draw(st.sampled_from(sorted(state.branches)))
            rings = {**state.branches[name].rings, draw(st.integers(-9, 9)): draw(leaf)}
            inner = replace(state.branches[name], title=draw(st.text(max_size=3)), leaves={}, rings=rings)
            return replace(state, branches={**state.branches, name: inner})
    return draw(tree)


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    """One journal for all examples: each goes on where the one before has ended."""
    with Journal.create(tmp_path_factory.mktemp("long") / "journal.db", KEY) as made:
        made._db.pragma("synchronous", "OFF")
        yield made


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(start=tree, data=st.data())
def test_every_state_round_trips(long_lived: Journal, start: Tree, data: st.DataObject):
    state = start
    long_lived.commit(state)
    for _ in range(data.draw(st.integers(0, 5))):
        state = data.draw(edits(state))
        long_lived.commit(state)
    found = long_lived.load(Tree)
    assert found == state
    # And nothing else is left of the states before.
    stored = {path for (path,) in long_lived._db.execute("SELECT path FROM checkpoint")}
    assert stored == {path for path, _ in changes(None, state)}


def test_only_composites_are_split(path: Path):
    """The entries of a split dict come back in the order of their first write, or of their keys, those of any other in
    their own."""
    first = {"b": Leaf(2)}
    both = {"a": Leaf(1), "b": Leaf(2)}
    with Journal.create(path, KEY) as journal:
        journal.commit(before := Bush(Twig(first), Wreath(first), Hedge(first)))
        after = Bush(Twig(both), Wreath(both), Hedge({**both, "b": first["b"]}))
        changed = ["twig/leaves/a", "twig/leaves/b", "wreath", "hedge/leaves/a"]
        assert [path for path, _ in changes(before, after)] == changed
        journal.commit(after)
    with Journal.open(path, KEY) as journal:
        found = journal.load(Bush)
    assert found == after
    assert list(found.wreath.leaves) == ["a", "b"] and list(found.twig.leaves) == ["b", "a"]
    assert list(found.hedge.leaves) == ["a", "b"]


def test_an_addition_writes_one_member_of_the_view():
    """Not the view of all members, at each of them."""
    book = Book(members="bcd")
    control, before = book.control, log_of(book.control).view()
    added = book.make("a", ADD, book.addition("a", "e"))
    _, after = extend_control(control, added)
    assert [path for path, _ in changes(before, after)] == [f"members/{did('e')}", "checksum"]
    rows = [(path, value) for path, value in changes(None, after) if value is not None]
    found, moved = assemble(View, reversed(rows))
    assert found == after and list(found.members) == list(after.members) and not moved


def test_only_changed_objects_are_written(path: Path):
    leaves = {b"\x01": Leaf(1), b"\x02": Leaf(2)}
    before = Tree("x", {"g/1": Branch("t", leaves), "h": Branch("u", leaves)}, {b"z": Leaf(9)})
    inner = replace(before.branches["g/1"], leaves={b"\x02": leaves[b"\x02"], b"\x03": Leaf(3)}, title="new")
    after = replace(before, branches={**before.branches, "g/1": inner})
    assert {path: value is not None for path, value in changes(before, after)} == {
        "branches/g%2F1/title": True,
        "branches/g%2F1/leaves/01": False,
        "branches/g%2F1/leaves/03": True,
    }
    with Journal.create(path, KEY) as journal:
        journal.commit(before)
        size = path.with_name("journal.db-wal").stat().st_size
        journal.commit(before)
        journal.commit(replace(before))  # another root with the very same fields
        assert path.with_name("journal.db-wal").stat().st_size == size
        journal.commit(after)
        assert path.with_name("journal.db-wal").stat().st_size > size
        assert journal.load(Tree) == after


def test_a_removed_entry_takes_only_its_children_along(journal: Journal):
    names = ["a", "a/", "a0", "a.", "a/b", "", "%", "a%2F"]
    state = Tree("x", {name: Branch(name, {b"": Leaf(1)}) for name in names})
    journal.commit(state)
    for name in names:
        state = replace(state, branches={key: value for key, value in state.branches.items() if key != name})
        journal.commit(state)
        assert journal.load(Tree) == state


def test_the_order_of_entries_round_trips(journal: Journal):
    state = Tree("x", singles={bytes([n]): Leaf(n) for n in (5, 3, 9)})
    journal.commit(state)
    state = replace(state, singles={**state.singles, b"\x03": Leaf(4), b"\x01": Leaf(1)})
    journal.commit(state)
    found = journal.load(Tree)
    assert found is not None and list(found.singles) == list(state.singles)


def test_states_of_whole_groups_round_trip(tmp_path: Path):
    from zerochat import sim
    from zerochat.group.state import Agent

    world = sim.play_history(2, members=3, posts=6)
    for name, node in world.nodes.items():
        with Journal.create(tmp_path / name, KEY) as journal:
            journal.commit(Agent("before"))
            journal.commit(node.agent, node.log)
            assert journal.load(Agent) == node.agent
            assert [row.id for row in journal.by_seq(0, 1000)] == [event.id for event in node.log]


def test_a_new_journal_has_no_state(journal: Journal):
    assert journal.load(Tree) is None
    assert journal.last_seq() == 0 and journal.history("g", 10) == [] and journal.count("g") == 0


# --- when the types change --------------------------------------------------------------------------------------------


def evolve(*fields: Any) -> Any:
    """A later, or earlier, Tree."""
    return defstruct("Tree", fields, frozen=True)


def test_new_fields_get_defaults_and_old_ones_are_ignored(journal: Journal):
    journal.commit(Tree("x", {"b": Branch("t", {b"k": Leaf(1)})}, up=frozenset([b"u"])))
    newer = evolve(("label", str), ("more", int, 7), ("new", dict[str, Leaf], field(default_factory=dict)))
    state = journal.load(newer)
    assert state == newer("x", 7, {})
    journal.commit(replace(state, label="y", new={"one": Leaf(1)}))
    assert journal.load(newer) == newer("y", 7, {"one": Leaf(1)})
    journal.commit(newer("y", 7, {"one": Leaf(1), "two": Leaf(2)}))
    assert journal.load(newer) == newer("y", 7, {"one": Leaf(1), "two": Leaf(2)})
    # The older program finds its own again, and does not mind the rest.
    assert journal.load(Tree) == Tree("y", {"b": Branch("t", {b"k": Leaf(1)})}, up=frozenset([b"u"]))


def test_an_entry_may_change_its_fields(journal: Journal):
    journal.commit(Tree("x", singles={b"a": Leaf(1, b"blob")}))
    later: Any = defstruct("Leaf", [("number", int), ("extra", str, "e")], frozen=True)
    newer = evolve(("label", str), ("singles", dict[bytes, later]))
    assert journal.load(newer) == newer("x", {b"a": later(1, "e")})


def test_an_entry_may_get_entries_of_its_own_and_lose_them(path: Path):
    """It moves to other parts then, also when only a little of it is written next."""
    plain: Any = defstruct("Entry", [("number", int)], frozen=True)
    split: Any = defstruct("Entry", [("number", int), ("leaves", dict[str, Leaf], field(default_factory=dict))])
    older, newer = evolve(("entries", dict[str, plain])), evolve(("entries", dict[str, split]))
    with Journal.create(path, KEY) as journal:
        journal.commit(older({"a": plain(1), "b": plain(2)}))
        state = journal.load(newer)
        assert state == newer({"a": split(1, {}), "b": split(2, {})})
        state = newer({**state.entries, "a": split(1, {"x": Leaf(3)})})
        journal.commit(state)
        written = journal._db.total_changes()
        journal.commit(replace(state))
        assert journal._db.total_changes() == written  # afresh only once
        assert journal.load(newer) == state
        assert journal.load(older) == older({"a": plain(1), "b": plain(2)})
        journal.commit(older({"a": plain(5)}))
        assert journal.load(older) == older({"a": plain(5)})
    assert b"leaves" not in b"".join(everything(path).values())


@pytest.mark.parametrize(
    "other",
    [
        evolve(("label", str), ("needed", int)),
        evolve(("label", int)),
        evolve(("label", dict[str, Leaf])),
        evolve(("label", str), ("singles", dict[bytes, int])),
        evolve(("label", str), ("branches", dict[bytes, Branch])),
    ],
    ids=["missing", "type", "split", "whole", "keys"],
)
def test_a_state_of_another_type_is_damage(other: Any, journal: Journal):
    journal.commit(Tree("x", {"b": Branch("t")}))
    with pytest.raises(JournalDamaged):
        journal.load(other)
    assert journal.load(Tree) == Tree("x", {"b": Branch("t")})


# --- the log ----------------------------------------------------------------------------------------------------------


def test_the_log_in_its_orders(journal: Journal):
    dice = random.Random(1)
    events = [
        post(
            n,
            group=dice.choice("gh"),
            author=dice.choice(["did:a", "did:b", "did:B"]),
            lamport=dice.randrange(20),
            late=bool(n % 2),
            record=b"r%d" % n,
        )
        for n in range(1, 200)
    ]
    journal.commit(Tree("x"), events[:100])
    again = [replace(event, received=9, late=True) for event in events[90:100]]
    journal.commit(Tree("x"), again + events[100:])
    rows = journal.by_seq(0, 1000)
    assert [row.id for row in rows] == [event.id for event in events]
    assert all(one.seq < other.seq for one, other in pairwise(rows))
    assert journal.last_seq() == rows[-1].seq
    assert journal.by_seq(rows[49].seq, 50) == rows[50:100]
    for group in "gh":
        mine = [row for row in rows if row.group == group]
        assert journal.count(group) == len(mine)
        ordered = sorted(mine, key=lambda row: (row.lamport, row.author, row.id))
        assert journal.history(group, 1000) == ordered
        page, walked = journal.history(group, 7), []
        while page:
            walked[:0] = page
            page = journal.history(group, 7, page[0].id)
        assert walked == ordered
        chain = [row.record for row in mine if row.author == "did:B" and row.position > 50]
        assert journal.chain(group, "did:B", 50, 1000) == chain
        assert journal.chain(group, "did:B", 50, 3) == chain[:3]
    row = journal.event(events[0].group, "id-1")
    assert row == rows[0] and (row.position, row.late, row.record, row.received) == (1, True, b"r1", 1001)
    assert journal.event("other", "id-1") is None
    with pytest.raises(NoSuchEvent):
        journal.history("g", 10, "id-0")


@pytest.mark.parametrize(
    ("query", "bindings", "index"),
    [
        (rows.LATEST_ROWS, ("g", 0, 10), "events_in_order"),
        (rows.ROWS_BEFORE, ("g", 0, 5, "did:a", "id-5", 10), "events_in_order"),
        (rows.BY_SEQ, (5, 10), "INTEGER PRIMARY KEY"),
        (rows.CHAIN, ("g", "did:a", 5, 10), "events_by_chain"),
        (rows.CHAIN_BACK, ("g", "did:a", 5, 10), "events_by_chain"),
        (rows.CHAIN_BACKWARDS, ("g", "did:a", 5, 11, 0, 8), "events_by_chain"),
        (rows.CHAIN_FORWARDS, ("g", "did:a", 11, 5, 0, 8), "events_by_chain"),
        (rows.CONFIRM_EVENTS, ("g", "did:a", 5, 10), "events_by_chain"),
        (rows.REFUTE_EVENTS, ("g", "did:a", 5, 9), "events_by_chain"),
        (rows.COUNT_EVENTS, ("g",), "COVERING INDEX"),
        ("SELECT max(seq) FROM events", (), "SEARCH"),
        (rows.DELETE_PARTS, ("branches/a",), "sqlite_autoindex_checkpoint_1"),
        (rows.ANNOTATED_POSTS.replace("DISTINCT ", ""), ("g", "did:a", 0, 5, 9, 99), "events_by_chain"),
    ],
)
def test_no_query_reads_the_whole_log(query: str, bindings: tuple[str | int, ...], index: str, journal: Journal):
    plan = " ".join(str(row[3]) for row in journal._db.execute("EXPLAIN QUERY PLAN " + query, bindings))
    assert index in plan and "SCAN" not in plan and "TEMP B-TREE" not in plan, plan


@pytest.mark.parametrize(
    ("query", "bindings"), [(rows.CHAIN_HEADS, ("g",)), (rows.RECEIPTS_OF, ("g", "did:a", 5, "[]"))]
)
def test_queries_over_all_members_visit_each_once(query: str, bindings: tuple[str | int, ...], journal: Journal):
    """It goes from one author, or member, to the next, and never through what they have said."""
    plan = [str(row[3]) for row in journal._db.execute("EXPLAIN QUERY PLAN " + query, bindings)]
    assert any("SEARCH" in step for step in plan)
    # What it does go through are the few rows that it has made itself.
    assert {step for step in plan if "SCAN" in step} <= {"SCAN authors", "SCAN json_each VIRTUAL TABLE INDEX 1:"}, plan


@pytest.mark.parametrize(
    ("query", "bindings", "index"),
    [
        (rows.ROWS_BY_ID, ("g", '["a"]'), "sqlite_autoindex_events_1"),
        (rows.ANNOTATIONS, ("g", '[["a", "b"]]'), "events_by_target"),
        (rows.LAST_IN_RANGES, ("g", '[["a", 0, 9]]', "topic"), "events_by_target"),
    ],
)
def test_queries_over_several_events_use_an_index(query: str, bindings: tuple[str, str], index: str, journal: Journal):
    plan = [str(row[3]) for row in journal._db.execute("EXPLAIN QUERY PLAN " + query, bindings)]
    assert any(index in step for step in plan), plan
    # What it does go through are its own list, and the few rows that it has made itself.
    assert not any(step.startswith(("SCAN events", "SCAN one")) for step in plan), plan
    assert all("=?" in step.split("(", 1)[1] for step in plan if step.startswith("SEARCH")), plan


# --- what is said about a post ----------------------------------------------------------------------------------------

POST_ID = "p" * 43


def remark(number: int, kind: str = "react", **others: Any) -> StoreEvent:
    return post(number, **{"type": kind, "target": POST_ID, **others})


def test_annotations_of_a_post_are_found(journal: Journal):
    elsewhere = [remark(8, target="q" * 43), remark(9, group="h"), post(10), remark(11, "topic", target="topic")]
    edits = [remark(3, "edit"), remark(4, "edit", author="did:b"), remark(5, "delete"), remark(6, "delete", author="c")]
    journal.commit(Tree("x"), [remark(1), remark(2, author="did:b"), *edits, *elsewhere])
    found = journal.annotations("g", [(POST_ID, "did:key:a"), ("none", "did:b")])
    assert sorted(row.id for row in found) == ["id-1", "id-2", "id-3", "id-5"], "only its author edits and deletes"
    assert {row.target for row in found} == {POST_ID} and journal.annotations("g", []) == []
    both = journal.annotations("g", [(POST_ID, "did:b"), ("q" * 43, "")])
    assert sorted(row.id for row in both) == ["id-1", "id-2", "id-4", "id-8"]
    assert [row.id for row in journal.events_by_id("g", ["id-1", "id-1", "id-9", "none"])] == ["id-1"]


def test_a_flood_of_annotations_displaces_no_others(journal: Journal):
    flood = [remark(n, author="did:b") for n in range(10, 400)]
    journal.commit(Tree("x"), [remark(1), remark(2, "edit"), remark(3, "delete"), *flood])
    found = journal.annotations("g", [(POST_ID, "did:key:a")])
    theirs = sorted(row.position for row in found if row.author == "did:b")
    assert theirs == list(range(400 - rows.ANNOTATIONS_MAX, 400))
    assert sorted(row.id for row in found if row.author != "did:b") == ["id-1", "id-2", "id-3"]


def test_refuted_annotations_do_not_count(journal: Journal):
    journal.commit(Tree("x"), [remark(n, relayed_by="did:v") for n in (1, 2, 3)])
    journal.commit(Tree("x"), [RefuteEvents("g", "did:key:a", 1, 3)])
    assert [row.id for row in journal.annotations("g", [(POST_ID, "")])] == ["id-1"]
    assert journal.annotated_posts("g", "did:key:a", 1, 3, 9, refuted=True) == [POST_ID]
    assert journal.annotated_posts("g", "did:key:a", 1, 3, 9, refuted=False) == []
    assert journal.annotated_posts("g", "did:key:a", 0, 3, 9, refuted=False) == [POST_ID]
    assert [row.id for row in journal.events_by_id("g", ["id-1", "id-2"])] == ["id-1"]


def test_the_last_topic_of_each_stretch(journal: Journal):
    said = [post(n, type="topic", target="topic") for n in (2, 4, 6, 8)]
    journal.commit(Tree("x"), [*said, post(9, author="did:b", type="topic", target="topic"), post(10)])
    spans = [("did:key:a", 0, 3), ("did:key:a", 3, 7), ("did:key:a", 8, 99), ("did:b", 0, 99), ("did:c", 0, 9)]
    assert sorted(row.id for row in journal.last_topics("g", spans)) == ["id-2", "id-6", "id-9"]
    assert journal.last_topics("h", spans) == journal.last_topics("g", []) == []


# --- what comes from others than its author ---------------------------------------------------------------------------


def test_relayed_events_are_confirmed_or_refuted(path: Path):
    relayed = [post(n, relayed_by="did:v", lamport=10 * n) for n in range(1, 7)]
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x"), [post(9, author="did:b"), *relayed])
        assert [row.relayed_by for row in journal.by_seq(0, 99)] == ["", *["did:v"] * 6]
        assert not any(row.refuted for row in journal.by_seq(0, 99))
        journal.commit(Tree("y"), [ConfirmEvents("g", "did:key:a", 1, 3)])
        assert [row.position for row in journal.by_seq(0, 99) if row.relayed_by] == [1, 4, 5, 6]
        # The author says otherwise from the fifth on, and its own words take those places in the same turn.
        own = [post(n, id=f"own-{n}", lamport=10 * n + 1, record=b"own") for n in (5, 6)]
        journal.commit(Tree("z"), [RefuteEvents("g", "did:key:a", 4, 6), *own, ConfirmEvents("g", "did:key:a", 0, 6)])
    with Journal.open(path, KEY) as journal:
        shown = ["id-9", "id-1", "id-2", "id-3", "id-4", "own-5", "own-6"]
        assert [row.id for row in journal.by_seq(0, 99)] == shown
        assert not any(row.relayed_by or row.refuted for row in journal.by_seq(0, 99))
        assert sorted(row.id for row in journal.history("g", 99)) == sorted(shown) and journal.count("g") == 7
        assert journal.chain("g", "did:key:a", 4, 9) == [b"own", b"own"]
        assert journal.chain_back("g", "did:key:a", 6, 3) == [b"own", bytes(500), bytes(500)]
        assert journal.chain_heads("g") == {"did:b": (9, "id-9"), "did:key:a": (6, "own-6")}
        assert [(row.id, row.relayed_by, row.refuted) for row in journal.refuted("g")] == [
            ("id-5", "did:v", True),
            ("id-6", "did:v", True),
        ]
        assert journal.refuted("h") == []
        refuted = journal.event("g", "id-5")
        assert refuted is not None and refuted.refuted
        # A page may begin at what was refuted since the page before was read.
        assert [row.id for row in journal.history("g", 2, "id-5")] == ["id-3", "id-4"]


def test_only_relayed_events_can_be_refuted(journal: Journal):
    journal.commit(Tree("x"), [post(1), post(2), post(3, relayed_by="did:v"), post(4, group="h", relayed_by="did:v")])
    journal.commit(Tree("x"), [RefuteEvents("g", "did:key:a", 0, 99)])
    assert [row.id for row in journal.by_seq(0, 99)] == ["id-1", "id-2", "id-4"]
    journal.commit(Tree("x"), [post(n, relayed_by="did:v") for n in (5, 6, 7)])
    journal.commit(Tree("x"), [RefuteEvents("g", "did:key:a", 5, 6)])
    assert [row.id for row in journal.by_seq(0, 99)] == ["id-1", "id-2", "id-4", "id-5", "id-7"]


def test_refuted_events_can_return_from_their_author(journal: Journal):
    journal.commit(Tree("x"), [post(n, relayed_by="did:v") for n in (1, 2, 3)])
    journal.commit(Tree("x"), [RefuteEvents("g", "did:key:a", 0, 3), post(1), post(4, 2)])
    assert [(row.id, row.relayed_by) for row in journal.by_seq(0, 99)] == [("id-1", ""), ("id-4", "")]
    assert [row.id for row in journal.refuted("g")] == ["id-2", "id-3"]
    # Of what the author has said itself nothing is taken back.
    journal.commit(Tree("x"), [RefuteEvents("g", "did:key:a", 0, 99), post(3, relayed_by="did:w")])
    assert [(row.id, row.relayed_by) for row in journal.by_seq(0, 99)] == [
        ("id-1", ""),
        ("id-3", "did:w"),
        ("id-4", ""),
    ]


def test_events_from_before_the_join_are_marked(journal: Journal):
    journal.commit(Tree("x"), [post(1, history=True), post(2)])
    assert [row.history for row in journal.by_seq(0, 9)] == [True, False]


def test_an_event_from_its_author_needs_no_relayer(journal: Journal):
    journal.commit(Tree("x"), [post(1, relayed_by="did:v"), post(2, relayed_by="did:v"), post(3)])
    journal.commit(Tree("x"), [RefuteEvents("g", "did:key:a", 1, 2)])
    journal.commit(Tree("x"), [post(n, relayed_by="did:w", received=5) for n in (1, 2, 3)])
    held = [(row.id, row.relayed_by) for row in journal.by_seq(0, 9)]
    assert held == [("id-1", "did:v"), ("id-2", "did:w"), ("id-3", "")], "what was given up may come anew"
    assert journal.refuted("g") == []
    journal.commit(Tree("x"), [post(n, received=5) for n in (1, 2)])
    rows = journal.by_seq(0, 9)
    assert [(row.id, row.relayed_by, row.received) for row in rows] == [
        ("id-1", "", 1001),
        ("id-2", "", 1002),
        ("id-3", "", 1003),
    ]
    assert journal.refuted("g") == []


def test_a_page_has_an_end_in_time_and_in_number(journal: Journal):
    journal.commit(Tree("x"), [post(n, lamport=10 * n) for n in range(1, 10)])
    ids = [row.id for row in journal.page("g", None, 99)]
    assert ids == [f"id-{n}" for n in range(9, 0, -1)]
    assert [row.id for row in journal.page("g", None, 99, 70)] == ids[:3]
    assert [row.id for row in journal.page("g", (80, "did:key:a", "id-8"), 99, 60)] == ids[2:4]
    assert [row.id for row in journal.page("g", (80, "did:key:a", "id-8"), 1, 60)] == ids[2:3]
    assert journal.page("g", None, 99, 91) == [] and journal.page("h", None, 99) == []


def test_a_chain_is_read_in_pieces(journal: Journal):
    chain = [post(n) for n in range(1, 700)]
    journal.commit(Tree("x"), [*chain, replace(chain[299], id="a-fork")])
    for backwards in (False, True):
        read = list(journal.chain_entries("g", "did:key:a", 10, 650, backwards=backwards))
        assert [entry.position for entry in read] == sorted((*range(11, 651), 300), reverse=backwards)
        assert journal.records_of(read) == tuple(chain[entry.position - 1].record for entry in read)
        assert all(entry.size == len(chain[entry.position - 1].record) for entry in read)
        for author, after in (("did:key:b", 0), ("did:key:a", 9)):
            assert not list(journal.chain_entries("g", author, after, 9, backwards=backwards))


def test_merged_reads_leave_no_open_statements(journal: Journal):
    """Found by the soak test: each newcomer that was given the last hundred messages cost the giver a megabyte."""
    authors = [f"did:{n}" for n in range(50)]
    journal.commit(Tree("x"), [post(n, n // 50 + 1, author=authors[n % 50]) for n in range(500)])

    def read() -> int:
        chains = [journal.chain_entries("g", author, 0, 99, backwards=True) for author in authors]
        together = merge(*chains, key=lambda entry: entry.lamport, reverse=True)
        assert len([next(together) for _ in range(20)]) == 20
        return int(journal._db.status(apsw.SQLITE_DBSTATUS_STMT_USED)[0])

    once = [read() for _ in range(3)]
    assert max(read() for _ in range(20)) <= max(once)


def test_the_heights_of_many_chains(journal: Journal):
    dice = random.Random(5)
    events = [post(n, group=dice.choice("gh"), author=f"did:{dice.randrange(9)}") for n in range(1, 300)]
    # At a fork the one that came first counts.
    fork = replace(events[-1], id="a-fork")
    journal.commit(Tree("x"), [*events, fork])
    for group in "gh":
        ours = [event for event in events if event.group == group]
        tops = {author: max(e.seq for e in ours if e.author == author) for author in {e.author for e in ours}}
        assert journal.chain_heads(group) == {author: (seq, f"id-{seq}") for author, seq in tops.items()}
    assert journal.chain_heads("nobody") == {}


# --- who has what -----------------------------------------------------------------------------------------------------


def test_receipts_record_since_when_a_member_has_a_message(path: Path):
    said = [
        StoreReceipt("g", "did:m", "did:a", 3, 100, "link"),
        StoreReceipt("g", "did:m", "did:a", 7, 200, "mail"),
        StoreReceipt("g", "did:m", "did:a", 5, 300, "link"),  # it had that long since
        StoreReceipt("g", "did:m", "did:a", 7, 400),
        StoreReceipt("g", "did:m", "did:b", 9, 100),
        StoreReceipt("g", "did:n", "did:a", 4, 150),
        StoreReceipt("h", "did:o", "did:a", 9, 100),
    ]
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x"), said)
    with Journal.open(path, KEY) as journal:
        m3, m7, n4 = (
            EventReceipt("did:m", 3, 100, "link"),
            EventReceipt("did:m", 7, 200, "mail"),
            EventReceipt("did:n", 4, 150, ""),
        )
        assert (
            journal.receipts_of("g", "did:a", 1, MEMBERS) == journal.receipts_of("g", "did:a", 3, MEMBERS) == [m3, n4]
        )
        assert journal.receipts_of("g", "did:a", 4, MEMBERS) == [m7, n4]
        assert journal.receipts_of("g", "did:a", 5, MEMBERS) == [m7]
        assert journal.receipts_of("g", "did:a", 1, ["did:n", "did:o"]) == [n4]
        assert journal.receipts_of("g", "did:a", 8, MEMBERS) == journal.receipts_of("x", "did:a", 1, MEMBERS) == []


def test_the_oldest_receipts_of_a_member_go(path: Path):
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x"), [StoreReceipt("g", "did:n", "did:a", 1, 1)])
        journal.commit(Tree("x"), [StoreReceipt("g", "did:m", "did:a", n, n, kept_max=50) for n in range(1, 48)])
    with Journal.open(path, KEY) as journal:
        for n in range(48, 200):
            journal.commit(Tree("x"), [StoreReceipt("g", "did:m", "did:a", n, n, kept_max=50)])
            kept = [upto for (upto,) in journal._db.execute("SELECT upto FROM receipts WHERE member = 'did:m'")]
            assert len(kept) <= 50 and kept == list(range(n - len(kept) + 1, n + 1)) and len(kept) >= min(n, 45)
        assert journal.receipts_of("g", "did:a", 1, MEMBERS)[-1] == EventReceipt("did:n", 1, 1, "")


def test_a_failed_transaction_counts_no_receipts(journal: Journal):
    bad = StoreReceipt("g", "did:m", "did:a", 2, 1 << 63)
    with pytest.raises(OverflowError):
        journal.commit(Tree("x"), [StoreReceipt("g", "did:m", "did:a", 1, 1), bad])
    assert journal.receipts_of("g", "did:a", 1, MEMBERS) == [] and journal._receipts == {}


def test_meta(path: Path):
    with Journal.create(path, KEY) as journal:
        assert journal.meta_get("label") is None
        journal.meta_set("label", b"zoe")
        journal.meta_set("label", b"\x00zo\xff")
        journal.meta_set("empty", b"")
    with Journal.open(path, KEY) as journal:
        assert (journal.meta_get("label"), journal.meta_get("empty")) == (b"\x00zo\xff", b"")


# --- what others can see ----------------------------------------------------------------------------------------------


def test_metadata_is_committed_with_its_transaction(path: Path, journal: Journal):
    journal.commit(Tree("t"), (), None, {"clock": b"1"})
    journal.commit(Tree("t"), (), None, {"clock": b"2"})
    assert journal.meta_get("clock") == b"2"
    with pytest.raises(TypeError):
        journal.commit(Tree("u"), (), None, {"clock": b"3", "other": object()})  # type: ignore[dict-item]
    journal.close()
    with Journal.open(path, KEY) as again:
        assert again.load(Tree) == Tree("t") and again.meta_get("clock") == b"2"


def test_nothing_can_be_read_without_the_key(path: Path):
    before = os.umask(0)
    try:
        with Journal.create(path, KEY) as journal:
            journal.meta_set("canary-key", b"canary-value")
            journal.commit(
                Tree("canary-label", {"canary-group": Branch("canary-title")}), [post(1, type="canary-type")]
            )
            files = everything(path)
            assert set(files) == {"journal.db", "journal.db-wal"}
            for each in path.parent.iterdir():
                assert stat.S_IMODE(each.stat().st_mode) == 0o600
            for content in files.values():
                assert content and not content.startswith(b"SQLite") and b"canary" not in content
                assert KEY not in content and KEY.hex().encode() not in content and b"CREATE TABLE" not in content
    finally:
        os.umask(before)
    assert set(everything(path)) == {"journal.db"}
    assert b"canary" not in path.read_bytes() and not path.read_bytes().startswith(b"SQLite")


def test_a_changed_byte_is_found_out(path: Path, tmp_path: Path):
    state = Tree("x", singles={bytes([n]): Leaf(n, bytes(900)) for n in range(9)})
    with Journal.create(path, KEY) as journal:
        journal.commit(state, [*(post(n) for n in range(20)), StoreReceipt("g", "did:m", "did:key:a", 9, 1)])
    good = path.read_bytes()
    dice = random.Random(2)
    found = set()
    for page in range(len(good) // 4096):
        bad = bytearray(good)
        bad[4096 * page + dice.randrange(4096)] ^= 1 << dice.randrange(8)
        path.write_bytes(bad)
        try:
            with Journal.open(path, KEY) as journal:
                assert journal.load(Tree) == state
                assert len(journal.history("g", 99)) == journal.count("g") == len(journal.by_seq(0, 99)) == 20
                assert journal.chain("g", "did:key:a", 0, 99) and journal.event("g", "id-3")
                assert not journal.unread_rows("g", 0, "did:me", 99)  # its events are no posts
                assert not journal.refuted("g") and journal.receipts_of("g", "did:key:a", 1, ["did:m"])
                assert not journal.stream.consumers and journal.stream.key("g", "k", 0) is None
                assert not journal.stream.announcements("g")
                assert not journal.expired_count("g") and not journal.erasures.erase_slice()
                assert not journal.telemetry().newest(9) and not journal.telemetry().names(0, 9)
                assert journal.telemetry().number("g") == 1
                signed = journal.signed_messages
                assert not (signed.recall("g", "a", b"", 0, 9) or signed.carrier("g", "a", 1) or signed.acks("g", b""))
                assert not signed.statements("g", "m") and not signed.successor("g", "a", b"", b"")
                assert not (signed.equivocations("g") or signed.rejected("g", "a"))
                assert not (
                    journal.cases.all_cases("g")
                    or journal.cases.defences("g", "d")
                    or journal.cases.entries_read("g", "o")
                )
                logbook = journal.tlog
                assert not (
                    logbook.all_rules("g") or logbook.latest_checkpoint("g", "o") or logbook.blob("g", "A" * 43)
                )
                assert logbook.index_of("g", "o", b"") is None and not logbook.entries("g", "o", 0, 9)
                journal.commit(
                    state, [DeleteBlobs("g", 0), StoreBlob("h", "A" * 43, "a", b"x", 1), DeleteBlobs("h", 9)]
                )
        except (JournalDamaged, WrongKey, NotAJournal):
            found.add(page)
    # What is not found out lies in a page that nothing above has read (the last is free, or of sqlite_sequence, or of
    # the index of signed messages without words, or has the places of pages in the tree, or is one of the seven of the
    # index of words, which no test has asked).
    assert len(found) >= len(good) // 4096 - 6 - 7 and 0 in found


def damaged_copies(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Every page with one flipped bit, neighbours that have changed places, and ends that are missing."""
    dice = random.Random(10)
    pages = [good[at : at + 4096] for at in range(0, len(good), 4096)]
    for number, page in enumerate(pages):
        bad = bytearray(page)
        # Bytes 16 to 23 of the file are the same for everybody, and 24 on are sealed.
        bad[dice.choice([*range(16), *range(24, 4096)]) if number == 0 else dice.randrange(4096)] ^= (
            1 << dice.randrange(8)
        )
        yield f"bit in page {number}", b"".join([*pages[:number], bytes(bad), *pages[number + 1 :]])
    for number in range(len(pages) - 1):
        swapped = [*pages[:number], pages[number + 1], pages[number], *pages[number + 2 :]]
        yield f"pages {number} and {number + 1}", b"".join(swapped)
        yield f"page {number + 1} twice", b"".join([*pages[: number + 1], pages[number], *pages[number + 2 :]])
    for size in (1, 100, 4095, 4096, 4097, len(good) // 2, len(good) - 4096, len(good) - 1):
        yield f"{size} bytes", good[:size]


def test_any_damaged_page_is_reported_and_left_alone(path: Path):
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x", singles={bytes([n]): Leaf(n, bytes(900)) for n in range(9)}))
        journal.commit(Tree("x"), [post(n) for n in range(20)])
    good = path.read_bytes()
    with Journal.open(path, KEY) as journal:
        journal.check()
    assert path.read_bytes() == good
    seen = 0
    for what, bad in damaged_copies(good):
        path.write_bytes(bad)
        with pytest.raises((JournalDamaged, WrongKey, NotAJournal)) as refusal, Journal.open(path, KEY) as journal:
            journal.check()
        assert str(path) in str(refusal.value), what
        assert everything(path) == {path.name: bad}, what
        seen += 1
    assert seen > 30


def test_every_page_is_read_from_disk_despite_the_cache(path: Path):
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x", singles={bytes([n]): Leaf(n, bytes(900)) for n in range(9)}), [post(1)])
    good = path.read_bytes()
    pages = len(good) // 4096
    kept = 0
    for bad in range(pages):
        with Journal.open(path, KEY) as journal:
            journal.check()  # all of them are in memory
            assert (
                journal.verify_pages(0, 4) + journal.verify_pages(4, pages) == pages
                and journal.verify_pages(pages, 4) == 0
            )
            with path.open("r+b", buffering=0) as file:
                file.seek(4096 * bad + 99)
                file.write(bytes([good[4096 * bad + 99] ^ 4]))
            assert journal.verify_pages(0, bad) == bad and not journal.damage
            with pytest.raises(JournalDamaged):
                journal.verify_pages(bad, 1)
            assert str(path) in journal.damage
            with suppress(JournalDamaged, WrongKey):
                journal.meta_set("what comes", b"is kept")
                kept += 1
        path.write_bytes(good)
    assert kept > pages // 2, "whoever does not need the page goes on as before"


def test_a_torn_page_in_the_database_is_not_called_damaged(path: Path, tmp_path: Path):
    """The write-ahead log has it whole, and whoever reads it reads that."""
    torn = tmp_path / "torn.db"
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x"), [post(n) for n in range(20)])
        good = path.read_bytes()
        pages = len(good) // 4096
        assert pages
        torn.write_bytes(good[: 4096 * pages - 100] + bytes(100))
        shutil.copy(f"{path}-wal", f"{torn}-wal")
    with Journal.open(torn, KEY) as journal:
        assert journal.verify_pages(0, pages) == pages and not journal.damage
        journal.check()


def test_a_moved_journal_is_reported_and_the_agent_continues(path: Path, tmp_path: Path):
    """SQLite goes on with the file that it has opened; so does the agent, whose round through it is tried again."""
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x"), [post(1)])
    with Journal.open(path, KEY) as journal:
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(DiskFailed):
            journal.verify_pages(0, 1)
        assert not journal.damage
        IntegrityScan(journal, logging.getLogger("test")).run_if_due()


# --- files that are not ours to open ----------------------------------------------------------------------------------


def test_a_wrong_key_changes_nothing(path: Path, tmp_path: Path):
    """Neither in the file nor in the write-ahead log that a killed agent has left."""
    copy = tmp_path / "copy"
    copy.mkdir()
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x"), [post(1)])
        for each in tmp_path.glob("journal.db*"):
            shutil.copy(each, copy)
    before = everything(copy / "journal.db")
    assert len(before) == 2
    for wrong in (bytes(32), KEY[::-1]):
        with pytest.raises(WrongKey) as refusal:
            Journal.open(copy / "journal.db", wrong)
        assert str(copy) in str(refusal.value)
        assert everything(copy / "journal.db") == before
    with Journal.open(copy / "journal.db", KEY) as journal:
        assert journal.load(Tree) == Tree("x") and journal.count("g") == 1


def plain_database(path: Path) -> None:
    with apsw.Connection(str(path)) as db:
        db.execute("CREATE TABLE events (a)")
    db.close()


def other_database(path: Path) -> None:
    """Encrypted with our key, and yet not ours."""
    with Journal.create(path, KEY) as journal:
        journal._db.pragma("application_id", 1)


def unfinished(path: Path) -> None:
    path.touch()


def junk(path: Path) -> None:
    path.write_bytes(random.Random(3).randbytes(8192))


def text(path: Path) -> None:
    path.write_text("hello\n")


def link(path: Path) -> None:
    Journal.create(path.with_name("real.db"), KEY).close()
    path.symlink_to("real.db")


def missing(path: Path) -> None:
    pass


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    "make",
    [plain_database, other_database, unfinished, junk, text, link, missing, folder],
    ids=lambda make: make.__name__,
)
def test_a_file_that_is_no_journal_is_left_alone(make: Any, path: Path):
    make(path)
    before = everything(path)
    with pytest.raises(NotAJournal) as refusal:
        Journal.open(path, KEY)
    assert str(path) in str(refusal.value)
    assert everything(path) == before
    if make is not missing:
        with pytest.raises(NotAJournal):
            Journal.create(path, KEY)
        assert everything(path) == before


@pytest.mark.parametrize("version", [0, rows.SCHEMA_VERSION + 1])
def test_another_schema_version_is_refused_unchanged(path: Path, version: int):
    with Journal.create(path, KEY) as journal:
        journal._db.pragma("user_version", version)
    before = everything(path)
    with pytest.raises(UnsupportedJournal, match="reads only format"):
        Journal.open(path, KEY)
    assert everything(path) == before


def test_a_journal_has_one_owner(path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal_module, "BUSY_MS", 1)
    with pytest.raises(JournalInUse):
        Journal.open(path, KEY)
    journal.commit(Tree("still mine"))
    journal.close()
    journal.close()
    with Journal.open(path, KEY) as other:
        assert other.load(Tree) == Tree("still mine")


class ReadOnlyDisk(apsw.VFS):
    """A file system that lets nobody write, not even the superuser."""

    def __init__(self) -> None:
        super().__init__("zerochat-read-only", "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY
        return super().xOpen(name, flags)


def test_a_read_only_journal(path: Path):
    Journal.create(path, KEY).close()
    disk = ReadOnlyDisk()
    try:
        with pytest.raises(DiskReadOnly, match="ZEROCHAT_HOME"):
            Journal.open(path, KEY, vfs="multipleciphers-zerochat-read-only")
    finally:
        disk.unregister()


# --- disks that fail --------------------------------------------------------------------------------------------------


def test_a_full_disk(path: Path):
    state = Tree("before", singles={b"a": Leaf(1)})
    with Journal.create(path, KEY) as journal:
        journal.commit(state, [post(1)])
        pages = journal._db.pragma("page_count")
        journal._db.pragma("max_page_count", pages)
        more = [post(n, size=3000) for n in range(2, 30)]
        after = replace(state, label="after", singles={b"b": Leaf(2)})
        for _ in range(2):
            with pytest.raises(DiskFull) as refusal:
                journal.commit(after, more)
            assert str(path) in str(refusal.value)
            # Nothing of it is there, and what was there still is.
            assert [row.id for row in journal.history("g", 99)] == ["id-1"]
        with pytest.raises(DiskFull):
            journal.meta_set("big", bytes(100_000))
        assert journal.meta_get("big") is None
        journal._db.pragma("max_page_count", 1 << 20)
        journal.commit(after, more)
        assert journal.count("g") == 29
    with Journal.open(path, KEY) as journal:
        assert journal.load(Tree) == after and journal.count("g") == 29


def test_after_a_full_disk_another_state_can_be_committed(path: Path):
    """What was not written is not taken for written."""
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("one", singles={b"a": Leaf(1)}))
        journal._db.pragma("max_page_count", journal._db.pragma("page_count"))
        lost = Tree("two", singles={b"a": Leaf(2, bytes(50_000))})
        with pytest.raises(DiskFull):
            journal.commit(lost)
        assert journal.load(Tree) == Tree("one", singles={b"a": Leaf(1)})
        with pytest.raises(DiskFull):
            journal.commit(lost)
        journal._db.pragma("max_page_count", 1 << 20)
        journal.commit(replace(lost, singles={}))
    with Journal.open(path, KEY) as journal:
        assert journal.load(Tree) == Tree("two")


def test_a_write_that_the_system_refuses(path: Path):
    """A real one: the process may make no larger files."""
    wal = path.with_name("journal.db-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("one"), [post(1)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 5000, hard))
        try:
            with pytest.raises((DiskFull, DiskFailed)) as refusal:
                journal.commit(Tree("two"), [post(n) for n in range(2, 99)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert str(path) in str(refusal.value)
        assert journal.load(Tree) == Tree("one") and journal.count("g") == 1
        journal.commit(Tree("two"), [post(2)])
    with Journal.open(path, KEY) as journal:
        assert journal.load(Tree) == Tree("two") and journal.count("g") == 2


def test_an_internal_error_leaves_no_partial_commit(journal: Journal):
    with pytest.raises(OverflowError):
        journal.commit(Tree("two"), [post(1), post(2, lamport=1 << 63)])
    assert journal.load(Tree) is None and journal.last_seq() == 0
    journal.commit(Tree("two"), [post(1)])
    assert journal.load(Tree) == Tree("two") and journal.count("g") == 1


WRITER = """
import sys
from pathlib import Path
from msgspec import Struct
from zerochat.agent.storage.journal import Journal
from zerochat.group.effects import StoreEvent

class Entry(Struct, frozen=True):
    number: int
    blob: bytes

class State(Struct, frozen=True):
    label: str
    entries: dict[bytes, Entry]

with Journal.open(Path(sys.argv[1]), bytes(range(32))) as journal:
    state = journal.load(State) or State("0", {})
    number = journal.last_seq()
    while True:
        number += 1
        state = State(str(number), {**state.entries, bytes([number % 7]): Entry(number, bytes(300))})
        event = StoreEvent("g", f"id-{number}", "did:key:a", number, number, "message", bytes(500), number, False)
        journal.commit(state, [event])
        print(number, flush=True)
"""


def test_acknowledged_data_survives_kill_9(path: Path):
    """And the state on disk is always the one that belongs to the last event on disk."""
    with Journal.create(path, KEY) as journal:
        assert journal.last_seq() == 0
    entry: Any = defstruct("Entry", [("number", int), ("blob", bytes)])
    state: Any = defstruct("State", [("label", str), ("entries", dict[bytes, entry])])
    dice = random.Random(4)
    acknowledged = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(dice.randrange(1, 200)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            # A line that the kill has cut is no acknowledgement.
            acknowledged = max([acknowledged, *(int(line) for line in writer.stdout.read().split(b"\n")[:-1])])
        with Journal.open(path, KEY) as journal:
            found = journal.last_seq()
            assert found >= acknowledged
            assert [row.position for row in journal.by_seq(0, found + 1)] == list(range(1, found + 1))
            kept = journal.load(state)
            assert kept.label == str(found)
            for n in range(max(1, found - 6), found + 1):
                assert kept.entries[bytes([n % 7])] == entry(n, bytes(300))
