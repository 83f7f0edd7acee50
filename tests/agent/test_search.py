"""Search: over the current text, newest first, each message once, nothing else.

The index is part of a real journal; queries go through the agent's own `search`.
"""

import random
import re
import time
import unicodedata
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from tests.support.counting_disk import CountingDisk
from zerochat.agent.storage import search_index
from zerochat.agent.storage.journal import DiskFull, Journal
from zerochat.agent.storage.log_queries import NoSuchEvent
from zerochat.agent.views.history_pages import OnePlace, page_of
from zerochat.agent.views.search import HITS_MAX, NobodyCalled, search
from zerochat.errors import UnknownGroup
from zerochat.group.effects import ConfirmEvents, DeleteLog, RefuteEvents, StoreEvent
from zerochat.presentation.search_query import (
    TERMS_MAX,
    BadSearch,
    excerpt,
    pattern_of,
    read_query,
    read_time,
    time_with_zone,
    with_zone,
)
from zerochat.presentation.search_text import fold, fold_with_origin
from zerochat.rpc import HistoryParams, SearchParams

KEY = bytes(range(32))
TOKYO = timezone(timedelta(hours=9))
nfd = partial(unicodedata.normalize, "NFD")
ALICE, BOB, CAROL = (f"did:key:z6Mk{letter * 44}" for letter in "abc")


def ms(*parts: Any) -> int:
    """A time on this machine's clock, in UTC ms."""
    return int(datetime(*parts).timestamp() * 1000)  # noqa: DTZ001


NOW = ms(2026, 3, 15, 12)
DAY = 86_400_000


class State(Struct, frozen=True):
    tx: int


class Log:
    """A journal that things are said into, one turn each."""

    def __init__(self, path: Path) -> None:
        self.path, self.tx, self.number = path, 0, 0
        self.journal = Journal.create(path, KEY)
        self.positions: dict[str, int] = {}
        self.silent: dict[str, int] = {}
        """By author: after this place of its chain it only reads."""

    def event(self, text: object, author: str = ALICE, group: str = "hikers", **more: Any) -> StoreEvent:
        self.number += 1
        position = self.positions[author] = self.positions.get(author, 0) + 1
        body = {"text": text, **({"target": more["target"]} if more.get("target") else {})}
        values: dict[str, Any] = {
            "group": group,
            "id": f"{self.number:043}",
            "author": author,
            "seq": position,
            "lamport": NOW + self.number,
            "type": "post",
            "record": msgspec.json.encode({"body": body}),
            "received": NOW,
            "late": False,
        }
        return StoreEvent(**(values | more))

    def commit(self, *remembered: Any) -> None:
        self.tx += 1
        self.journal.commit(State(self.tx), remembered)

    def say(self, text: object, author: str = ALICE, group: str = "hikers", **more: Any) -> StoreEvent:
        event = self.event(text, author, group, **more)
        self.commit(event)
        return event

    def reopen(self) -> None:
        self.journal.close()
        self.journal = Journal.open(self.path, KEY)
        self.journal.load(State)

    def agent(self) -> Any:
        def group(name: str, me: str) -> Any:
            labels = {ALICE: "Alice", BOB: "Bob Smith", CAROL: "bobby"}
            members = {
                did: SimpleNamespace(
                    did=did,
                    label=label,
                    until=None,
                    role_at=lambda seq, did=did: "reader" if seq > self.silent.get(did, seq) else "writer",
                )
                for did, label in labels.items()
            }
            everybody = dict(members)
            former = {CAROL: members.pop(CAROL)}
            view = SimpleNamespace(members=members, former=former, known=everybody.get)
            trust = SimpleNamespace(ignored=())
            return SimpleNamespace(
                id=name, name=name.title(), me=me, state="active", view=view, trust=trust, private=None
            )

        return SimpleNamespace(groups={name: group(name, ALICE) for name in ("hikers", "work")})

    def ask(self, query: str, **more: Any) -> Any:
        return search(self.journal, self.agent(), SearchParams(query=query, **more))

    def find(self, query: str, **more: Any) -> list[str]:
        return [hit.id for hit in self.ask(query, **more).hits]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    made = Log(tmp_path / "journal.db")
    yield made
    made.journal.close()


# --- what is found --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "queries", "others"),
    [
        ("At eight, by the bridge!", ["eight", "EIGHT", "bri", "by at", '"by the bridge"', "bridge eight"], ["ridge"]),
        ("At eight, by the bridge!", ['"the" "by"', '"bridge"'], ['"bri"', '"the by"', "eight nine"]),
        ("Die Brücke, Straße", ["brucke", "BRÜCKE", "bru\u0308cke", "straße"], ["bruecke"]),
        ("Die Bru\u0308cke", ["brücke", "brucke"], ["bruc ke"]),
        ("明日は橋で会いましょう", ["橋", "橋で", "会い", '"明日は"', "橋 明日"], ["日明"]),
        ("밥을 먹었다", ["밥", "먹", "었다", nfd("밥을")], ["었다밥"]),
        (nfd("학교에서"), ["학교", "교에", nfd("에서")], ["서학"]),
        ("ガラスのコップ", [nfd("ガラス"), "ｶﾞﾗｽ", "コップ"], ["カラス"]),
        (nfd("がっこう ﾊﾟﾝ"), ["がっこう", "パン"], ["かっこう"]),
        ("ＨＥＬＬＯ　１２３ ﬁn ㈱", ["hello", "123", "fin", "株"], ["hell0"]),
        ("مُحَمَّدٌ كتـاب", ["محمد", "مُحمد", "كتاب", "کتاب"], ["حمد"]),
        ("هذا إعلان على القناة", ["اعلان", "علي", "القناه"], ["علن"]),
        ("می\u200cخواهم ۱۲", ["میخواهم", "مي\u200cخواهم", "12"], ["خواهم"]),
        ("שָׁלוֹם", ["שלום", "שָׁל"], ["לום"]),
        ("हिन्दी में क़लम", ["हिन्दी", "हि", "में", "कलम", "क\u093cलम"], ["हन्दी", "हनद", "हिन्दा"]),
        ("ข้าวผัด", ["ข้าว", "ผัด"], ["ขาว", "ผด"]),
        ("Łódź, ΣΊΣΥΦΟΣ, ISPARTA, Tiếng Việt", ["lodz", "σισυφος", "ısparta", "tieng viet"], ["viettel"]),
        ("\u2068Alice\u2069 +49\u200e 30", ["alice", "+49 30"], ["ice"]),
        ("วันนี้ไปสะพาน", ["สะพาน"], ["สะพานนน"]),
        ("great 🎉🎉 and 20° ✓", ["🎉", "great 🎉", "20", "✓"], ["🎈"]),
        ("don't send-to a_b@example.org", ["don't", "send-to", "a_b", "example.org", "b@exam"], ["dont"]),
        ("NEAR AND OR NOT text:marks", ["near", "AND", "OR NOT", "text:marks"], ["nearby"]),
    ],
)
def test_words_that_find_a_post(log: Log, text: str, queries: list[str], others: list[str]):
    event = log.say(text)
    for query in queries:
        hits = log.ask(query).hits
        assert [hit.id for hit in hits] == [event.id], query
        for start, end in hits[0].spans:
            assert hits[0].text[start:end].strip() == hits[0].text[start:end] != ""
        assert hits[0].spans, query
    for query in others:
        assert log.find(query) == [], query


HOSTILE = [
    '"', '""', '"""', "'", "a'b", '"a', 'a"b"c', "*", "a*", "^a", "a^", "a b*", "(", ")", "()", "a AND", "AND", "NOT a",
    "a OR", "NEAR(a b, 2)", "{text} : a", "text : a", "marks : g", "-a", "+a", "a + b", "a:b:c", "\0", "a\0b",
    "\x1b[2J",
    "\ud800", "\u202ea", "from:", "in:", "before:", "after:", 'from:""', "from:@", ";DROP TABLE events", "%", "_", "\\",
    "rank:a", "words", "a\nb", "'; --", "\u0301", "a" * 500, "é" * 500, "橋" * 500, "\U0010ffff", "😀\u200d😀",
    "ﬁ", "İ",
]  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE, ids=ascii)
def test_no_query_is_a_syntax_error(log: Log, query: str):
    log.say("a quiet word")
    with suppress(BadSearch, NobodyCalled, UnknownGroup):
        assert all(hit.text == "a quiet word" for hit in log.ask(query).hits)


@pytest.mark.slow
def test_any_text_can_be_sent_and_found(log: Log):
    dice = random.Random(5)
    letters = "ab ZÉß\u0301\"'*(){}^:+-_,.\0\n\t橋日カ한ไ😀\u200d\U0001f1e9\ud800\u202e\x1b"
    for _ in range(300):
        text = "".join(dice.choices(letters, k=dice.randrange(1, 40)))
        try:
            event = log.say(text)
        except UnicodeEncodeError:
            continue
        for query in (text, f'"{text}"'):
            try:
                hits = log.ask(query, limit=1).hits
            except (BadSearch, NobodyCalled, UnknownGroup):
                continue
            for hit in hits:
                assert all(0 <= start < end <= len(hit.text) for start, end in hit.spans)
        shown = re.sub("[\u0301\u200d\u202e]", "", text)
        plain = "".join(letter if letter.isalnum() else " " for letter in shown).strip()
        if plain and event.id not in log.find(plain, limit=100):
            raise AssertionError(ascii((text, plain)))


def test_filters(log: Log):
    mine = log.say("the bridge", ALICE)
    bobs = log.say("the bridge", BOB)
    gone = log.say("the bridge", CAROL)
    work = log.say("the bridge", BOB, "work")
    assert log.find("bridge") == [work.id, gone.id, bobs.id, mine.id]
    assert log.find("bridge in:hikers") == log.find("bridge", group="hikers") == [gone.id, bobs.id, mine.id]
    assert log.find("bridge from:me") == log.find("bridge from:@alice") == log.find("bridge", author=ALICE) == [mine.id]
    assert log.find('from:"bob smith" bridge') == [work.id, bobs.id]
    assert log.find("from:bobby") == [gone.id]
    assert log.find("from:bob") == [work.id, gone.id, bobs.id], "nobody is called so: those whose names begin so"
    assert log.find("FROM:alice IN:Hikers bri") == [mine.id]
    assert log.find("in:work") == [work.id]
    assert log.find("from:me in:work") == []
    with pytest.raises(NobodyCalled, match="'dave'"):
        log.ask("from:dave bridge")
    with pytest.raises(UnknownGroup):
        log.ask("in:nowhere bridge")
    with pytest.raises(BadSearch, match="only one group"):
        log.ask("in:work in:hikers bridge")
    with pytest.raises(BadSearch, match="all of these names"):
        log.ask("from:me from:bobby bridge")
    with pytest.raises(BadSearch, match="the query is empty"):
        log.ask(" !!! ")
    with pytest.raises(BadSearch, match="characters"):
        log.ask("x" * 513)
    with pytest.raises(BadSearch, match=f"more than {TERMS_MAX} words"):
        log.ask("x " * (TERMS_MAX + 1))


def test_messages_that_mention_a_member(log: Log):
    """In the record of a post; whatever else its author has put there is passed over."""

    def record(mentions: object, text: str = "the bridge") -> bytes:
        return msgspec.json.encode({"body": {"text": text, "mentions": mentions}})

    bob = log.say("", record=record([BOB, ALICE]))
    log.say("", record=record("nonsense"))
    log.say("", record=record([BOB, 5, {}, None]), author=BOB)
    assert log.find("bridge to:me") == [bob.id] and len(log.find("bridge")) == 3
    assert log.find("to:bob from:me") == [bob.id] and len(log.find('to:"Bob Smith"')) == 2
    assert log.find("to:bobby") == []


def test_an_edit_decides_who_is_mentioned(log: Log):
    def record(*mentions: str) -> bytes:
        return msgspec.json.encode({"body": {"text": "the bridge", "mentions": mentions}})

    post = log.say("", BOB, record=record(ALICE))
    assert log.find("to:me") == [post.id]
    log.say("", BOB, type="edit", target=post.id, record=record(CAROL))
    assert log.find("to:me") == [] and log.find("to:bobby") == [post.id]
    log.say("", BOB, type="edit", target=post.id, record=record(ALICE))
    assert log.find("to:me") == [post.id] and log.find("to:bobby") == []
    log.silent[BOB] = post.seq + 1  # the last edit does not count
    assert log.find("to:me") == []


def test_dates(log: Log):
    first = ms(2026, 3, 1)
    days = [log.say(f"day {number}", lamport=first + number * DAY + DAY // 2).id for number in range(10)]
    assert log.find("day after:2026-03-08") == days[:6:-1]
    assert log.find("day before:2026-03-03") == days[1::-1]
    assert log.find("after:2026-03-03 before:2026-03-05") == days[3:1:-1]
    assert log.find("day", after="2026-03-03T13:00", before="2026-03-05T11:00") == [days[3]]
    assert log.find("day after:2026-03-05 before:2026-03-03") == []
    with pytest.raises(BadSearch, match="'soon' is not a date"):
        log.ask("day after:soon")
    for text, moment in {
        "today": ms(2026, 3, 15),
        "yesterday": ms(2026, 3, 14),
        "11:30": ms(2026, 3, 15, 11, 30),
        "13:00": ms(2026, 3, 14, 13),
        "2d": ms(2026, 3, 13, 12),
        "2026-03-01T08:15": ms(2026, 3, 1, 8, 15),
    }.items():
        assert read_time(text, NOW) == moment, text
    for bad in ("25:00", "99999999w" * 9, "1-1-1", "", "\0", "0000-00-00"):
        with pytest.raises(BadSearch):
            read_time(bad, NOW)


def test_pages_have_each_hit_once_and_newest_first(log: Log):
    """Also where many were said in the same millisecond, in several groups, and in whatever order they came."""
    dice = random.Random(3)
    events = [
        log.event("the word", dice.choice([ALICE, BOB]), dice.choice(["hikers", "work"]), lamport=NOW + n // 40)
        for n in range(700)
    ]
    dice.shuffle(events)
    log.commit(*events)
    narrower: list[dict[str, str]] = [{}, {"group": "work"}, {"author": "me"}]
    for more in narrower:
        seen: list[str] = []
        cursor = None
        while True:
            found = log.ask("word", limit=dice.randrange(1, 120), cursor=cursor, **more)
            assert len(found.hits) <= HITS_MAX
            seen += [hit.id for hit in found.hits]
            if (cursor := found.cursor) is None:
                break
        wanted = [e for e in events if (not more or e.group == more.get("group", e.group))]
        wanted = [e for e in wanted if e.author == ALICE or "author" not in more]
        times = {e.id: e.lamport for e in events}
        assert sorted(seen) == sorted(e.id for e in wanted) and len(set(seen)) == len(seen)
        assert [times[id] for id in seen] == sorted((times[id] for id in seen), reverse=True)
    assert log.ask("word", limit=-5).hits and len(log.ask("word", limit=10_000).hits) == HITS_MAX
    assert log.ask("word", cursor=-1).hits == [] and log.ask("word", cursor=1 << 80).hits


def test_results_older_than_an_event(log: Log):
    posts = [log.say("the word") for _ in range(3)]
    deleted = log.say("the word")
    log.say("", type="delete", target=deleted.id)
    last = log.say("the word")
    assert log.find("word", older_than=last.id) == [post.id for post in reversed(posts)]
    assert log.find("word", older_than=deleted.id) == [post.id for post in reversed(posts)], "it is not in the index"
    assert log.find("word", older_than=posts[1].id) == [posts[0].id]
    assert log.find("word", older_than=posts[0].id) == []
    with pytest.raises(NoSuchEvent):
        log.find("word", older_than="unknown")


def test_more_posts_in_a_millisecond_than_there_are_places_for(log: Log):
    log.commit(
        *(log.event(f"word{n}", lamport=7) for n in range(search_index.POSITIONS_PER_MS + 3)),
        log.event("word", lamport=8),
    )
    assert len(log.find("word", limit=100)) == 100
    assert log.find(f"word{search_index.POSITIONS_PER_MS + 2}")


# --- what becomes of it ---------------------------------------------------------------------------------------------


def test_an_edited_message_is_found_by_its_current_text(log: Log):
    post = log.say("at the brigde", ALICE)
    log.say("at the bridge", ALICE, type="edit", target=post.id)
    assert log.find("bridge") == [post.id] and log.find("brigde") == []
    (hit,) = log.ask("bridge").hits
    assert hit.text == "at the bridge" and hit.lamport == post.lamport
    log.say("by the station", BOB, type="edit", target=post.id)
    assert log.find("station") == [] and log.find("bridge") == [post.id], "only its author edits it"
    log.say(17, ALICE, type="edit", target=post.id)
    assert log.find("bridge") == [post.id], "an edit that makes no sense is none"
    log.say("by the river", ALICE, type="edit", target=post.id)
    assert log.find("river") == [post.id] and log.find("bridge") == []


def test_a_deleted_message_is_not_found(log: Log):
    post = log.say("a secret", ALICE)
    log.say(None, BOB, type="delete", target=post.id)
    assert log.find("secret") == [post.id]
    log.say(None, ALICE, type="delete", target=post.id)
    assert log.find("secret") == [] and log.find("from:me") == []
    log.say("a secret again", ALICE, type="edit", target=post.id)
    assert log.find("secret") == []


def test_annotations_that_arrive_before_their_post(log: Log):
    post = log.event("at the brigde", ALICE)
    log.say("at the bridge", ALICE, type="edit", target=post.id)
    assert log.find("bridge") == []
    log.commit(post)
    assert log.find("bridge") == [post.id] and log.find("brigde") == []


def test_refuted_events_are_not_found_until_they_return(log: Log):
    post = log.say("hearsay", BOB, relayed_by=CAROL)
    edit = log.say("gossip", BOB, type="edit", target=post.id, relayed_by=CAROL)
    assert log.find("gossip") == [post.id]
    log.commit(RefuteEvents("hikers", BOB, edit.seq - 1, edit.seq))
    assert log.find("hearsay") == [post.id] and log.find("gossip") == []
    log.commit(RefuteEvents("hikers", BOB, 0, post.seq))
    assert log.find("hearsay") == []
    log.commit(replace(post, relayed_by=""))
    assert log.find("hearsay") == [post.id]
    log.commit(post, ConfirmEvents("hikers", BOB, 0, 9))
    assert log.find("hearsay") == [post.id]


def test_void_posts_of_a_reader_are_not_found(log: Log):
    """Who may write is settled by the members, and what was said meanwhile counts for nothing after all."""
    post = log.say("at the bridge", BOB)
    edit = log.say("at the station", BOB, type="edit", target=post.id)
    other = log.say("by the station", ALICE)
    log.say("more of the station", BOB, type="edit", target=other.id)
    log.silent[BOB] = edit.seq
    assert log.find("station") == [other.id, post.id]
    log.silent[BOB] = post.seq
    late = log.say("at the harbour", ALICE)
    log.say("at the market", ALICE, type="edit", target=late.id)
    assert log.find("station") == [other.id] and log.find("market") == [late.id]
    (hit,) = log.ask("", author="bob").hits
    assert (hit.id, hit.text) == (post.id, "at the bridge")


def test_a_forgotten_group_leaves_no_search_entries(log: Log):
    log.say("unforgettable", BOB)
    kept = log.say("unforgettable", BOB, "work")
    log.commit(DeleteLog("hikers"))
    assert log.find("unforgettable") == [kept.id]
    log.commit(DeleteLog("work"))
    assert log.find("unforgettable") == []
    blocks: Any = log.journal._db.execute("SELECT block FROM words_data").fetchall()
    assert not any(b"forgettable" in block for (block,) in blocks)
    assert log.journal._db.execute("SELECT count(*) FROM indexed_posts").fetchall() == [(0,)]


def test_malformed_records_are_not_found(log: Log):
    for record in (b"", b"\xff", b"[]", b'{"body": 5}', b'{"body": {"text": 5}}', b"[" * 5000):
        log.say("x", record=record)
    assert log.find("x") == [] and log.journal.count("hikers") == 6


# --- the journal ----------------------------------------------------------------------------------------------------


def test_uncommitted_messages_are_not_found(log: Log, monkeypatch: pytest.MonkeyPatch):
    log.say("there")

    def full(*_: object) -> None:
        raise DiskFull(path=log.path)

    with monkeypatch.context() as patch:
        patch.setattr(log.journal, "_store_receipt", full)
        from zerochat.group.effects import StoreReceipt

        with pytest.raises(DiskFull):
            log.commit(log.event("not there"), StoreReceipt("hikers", BOB, ALICE, 1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(search_index, "reindex", full)
        with pytest.raises(DiskFull):
            log.commit(log.event("nor this"))
    assert log.find("not") == log.find("nor") == [] and log.journal.count("hikers") == 1
    log.reopen()
    assert log.find("not") == [] and len(log.find("there")) == 1


def test_posts_wait_for_the_index_until_a_search(log: Log):
    """They are found in whatever state the log has them by then."""
    kept, edited, deleted, refuted = (log.event(f"bridge {number}") for number in range(4))
    log.commit(kept, edited, deleted, replace(refuted, author=BOB, seq=1, relayed_by=CAROL))
    log.say("ferry", type="edit", target=edited.id)
    log.say("", type="delete", target=deleted.id)
    log.commit(RefuteEvents("hikers", BOB, 0, 1))
    assert not log.journal._db.execute("SELECT 1 FROM indexed_posts").fetchall()
    log.reopen()
    assert log.find("bridge") == [kept.id] and log.find("ferry") == [edited.id]
    assert len(log.journal._db.execute("SELECT 1 FROM indexed_posts").fetchall()) == 2
    log.say("tunnel", type="edit", target=kept.id)
    assert log.find("bridge") == [] and log.find("tunnel") == [kept.id]


def test_enough_waiting_posts_are_indexed_without_a_search(log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search_index, "UNINDEXED_BYTES_MAX", 10_000)
    for number in range(45):
        log.say(f"bridge {number} " + "x" * 1_000)
    indexed = log.journal._db.execute("SELECT 1 FROM indexed_posts").fetchall()
    assert 30 <= len(indexed) < 45
    assert len(log.find("bridge")) == 45


def test_a_full_disk_prevents_no_search(log: Log):
    event = log.say("the bridge")
    log.journal.close()
    with CountingDisk() as disk:
        log.journal = Journal.open(log.path, KEY, vfs=disk.vfs)
        disk.is_full = True
        assert log.find("bridge") == log.find("bridge") == [event.id]
        with pytest.raises(DiskFull):
            log.say("not stored")
        disk.is_full = False
        log.say("another bridge")
        assert len(log.find("bridge")) == 2
        log.journal.close()
    log.journal = Journal.open(log.path, KEY)


def test_a_restart_and_a_copy(log: Log, tmp_path: Path):
    event = log.say("the bridge")
    log.reopen()
    assert log.find("bridge") == [event.id]
    log.journal.copy(tmp_path / "copy.db")
    log.journal.check()
    with Journal.open(tmp_path / "copy.db", KEY) as copy:
        found = copy.search('text : "bridge"', 0, search_index.POSITION_MAX, 9)
        assert [one.row.id for one in found] == [event.id]
    assert b"bridge" not in log.path.read_bytes()


# --- matching -------------------------------------------------------------------------------------------------------


def test_a_letter_with_many_combining_marks_is_cut_quickly():
    """It was found to take a second and a half for sixteen thousand, and to grow with their square."""
    text = "你" + "\u0300" * 60_000 + "你好"
    assert excerpt(text, pattern_of(read_query("你好", NOW).terms))[1] == []
    found, spans = excerpt("你\u0300 好 by\u0301, the way", pattern_of(read_query('你好 "by the"', NOW).terms))
    assert [found[start:end] for start, end in spans] == ["你\u0300 好", "by\u0301, the"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_folding_is_idempotent_and_knows_its_origin(text: str, other: str):
    flat = fold_with_origin(text)
    assert flat.text == fold(text) and fold(unicodedata.normalize("NFC", text)) == fold(nfd(text))
    ends = [flat.origin(index, index + 1) for index in range(len(flat.text))]
    assert all(0 <= start < end <= len(text) for start, end in ends) and sorted(ends) == ends
    assert fold(flat.text) == flat.text


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Any:
    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


def test_dates_are_in_the_zone_of_the_client(zone: Any):
    zone("Asia/Tokyo")
    query = with_zone('bridge AFTER:2026-01-02 before:"2026-01-03T12:00" from:after:x before:nonsense', NOW)
    zone("America/New_York")
    start, end = datetime(2026, 1, 2, tzinfo=TOKYO), datetime(2026, 1, 3, 12, tzinfo=TOKYO)
    with pytest.raises(BadSearch, match="nonsense"):
        read_query(query, NOW)
    wanted = read_query(query.removesuffix(" before:nonsense"), NOW)
    assert (wanted.after, wanted.before) == (int(start.timestamp() * 1000), int(end.timestamp() * 1000))
    assert wanted.authors == ("after:x",) and [one.text for one in wanted.terms] == ["bridge"]
    assert read_time(time_with_zone("12h", NOW), NOW) == NOW - 12 * 3_600_000


def test_matches_are_marked_in_the_original():
    for text, query, marked in [
        (f"so {nfd('학교')}에", "학교", nfd("학교")),
        ("x ㈱ y", "株", "㈱"),
        ("x مُحَمَّدٌ", "محمد", "مُحَمَّدٌ"),
        (nfd("é") + " très", "tres", "très"),
        ("ﾊﾟﾝ", "パ", "ﾊﾟ"),
    ]:
        shown, spans = excerpt(text, pattern_of(read_query(query, NOW).terms))
        assert [shown[start:end] for start, end in spans] == [marked]


def test_an_excerpt_surrounds_the_match():
    def cut(text: str, query: str) -> tuple[str, list[str]]:
        shown, spans = excerpt(text, pattern_of(read_query(query, NOW).terms))
        return shown, [shown[start:end] for start, end in spans]

    assert cut("at the bridge", "bri the") == ("at the bridge", ["the", "bri"])
    long = "lorem ipsum " * 50 + "the Brücke is here " + "dolor sit " * 50
    shown, found = cut(long, "brucke")
    assert shown.startswith("…") and shown.endswith("…") and len(shown) < 170 and found == ["Brücke"]
    shown, found = cut("x" * 70_000 + " bridge", "bridge")
    assert len(shown) < 170 and found == []
    assert cut("", "a") == ("", []) and excerpt("text", None) == ("text", [])


# --- pages of history -----------------------------------------------------------------------------------------------


def test_paging_up_and_down_gives_every_row_once(log: Log):
    dice = random.Random(9)
    texts = ["x" * dice.choice([1, 50, 40_000]) for _ in range(120)]
    log.commit(*(log.event(text, lamport=NOW + dice.randrange(60)) for text in texts))
    order = [row.id for row in log.journal.history("hikers", 999)]

    def page(**more: Any) -> Any:
        return page_of(log.journal, "hikers", HistoryParams("hikers", **more))

    for start in range(0, 120, 7):
        here = page(around=order[start], limit=dice.randrange(1, 30))
        ids = [row.id for row in here.rows]
        assert order[start] in ids and (here.more, here.newer) == (ids[0] != order[0], ids[-1] != order[-1])
        more, newer = here.more, here.newer
        while more or newer:
            if more:
                up = page(before=ids[0], limit=dice.randrange(1, 30))
                ids, more = [row.id for row in up.rows] + ids, up.more
            if newer:
                down = page(after=ids[-1], limit=dice.randrange(1, 30))
                ids, newer = ids + [row.id for row in down.rows], down.newer
        assert ids == order
    at = page(at=NOW + 30, limit=20)
    first = next(row.id for row in log.journal.history("hikers", 999) if row.lamport >= NOW + 30)
    assert first in [row.id for row in at.rows] and at.more and at.newer
    assert [row.id for row in page(at=1 << 60, limit=5).rows] == order[-5:] and not page(at=1 << 60).newer
    assert page(at=-7, limit=5).rows[0].id == order[0]
    with pytest.raises(OnePlace):
        page(before=order[0], after=order[1])
