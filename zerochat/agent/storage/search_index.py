"""The index of words: which posts have which words in them, inside the encrypted journal.

A full-text table (FTS5) of SQLite's in the same file, so it is encrypted page by page as all the rest is, and changed
in the transaction that changes the log: what is not committed is not found, and what a power cut takes from the log it
takes from the index. The table keeps no text of its own (the record has it), only the words and where they stand.

A post's number in the index is its `place`: its Lamport time, which is the time when it was said, and some bits to tell
apart what was said in the same millisecond. So the index lists what it finds in the order of time by itself, newest
first, stops as soon as a page is full however many there are, and a date is a border in it. The group, the author and
whom a post calls by name stand in the index as words too, in a column that nobody can type into: asking for them costs
no look at the log.

Words are what Unicode calls letters, digits and signs, without case and accents. A tokenizer of three letters each
(`trigram`) would find parts of words too, but no Chinese word of two, and takes three times the room; what is written
without spaces is indexed letter by letter instead (`wording.spaced`).
"""

from _blake2 import blake2s  # what `hashlib` has, without the OpenSSL that comes with that
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import apsw
import msgspec
from msgspec import Struct

from zerochat.group.effects import Remember
from zerochat.group.event_log.event import DELETE, EDIT, POST
from zerochat.group.messages.bodies import MENTIONS_MAX
from zerochat.presentation.search_query import Wanted, spaced

PLACES: Final = 512
"""In one millisecond; more are counted into the next one."""
PLACE_MAX: Final = (1 << 62) - 1
BUILD_ROWS: Final = 500
"""Posts whose records are held in memory while an index is built."""

WORDS_SCHEMA: Final = """
CREATE VIRTUAL TABLE words USING fts5(
    marks, text, content = '', contentless_delete = 1,
    tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co So'"
);
CREATE TABLE said (place INTEGER PRIMARY KEY, seq INTEGER NOT NULL UNIQUE) STRICT;
"""
FIND: Final = """
SELECT said.place, said.seq FROM words CROSS JOIN said ON said.place = words.rowid
WHERE words MATCH ? AND words.rowid >= ? AND words.rowid < ? ORDER BY words.rowid DESC LIMIT ?
"""
_POST: Final = """
SELECT seq, group_id, author, lamport, record, refuted, (SELECT place FROM said WHERE said.seq = post.seq), EXISTS (
    SELECT 1 FROM events AS one
    WHERE one.group_id = post.group_id AND one.target = post.id AND one.target <> '' AND one.refuted = 0
)
FROM events AS post WHERE id = ? AND type = 'post'
"""
"""The last two: where it stands in the index already, and whether anything is said about it."""
_POSTS: Final = """
SELECT seq, group_id, author, lamport, record, id FROM events
WHERE seq > ? AND type = 'post' AND refuted = 0 ORDER BY seq LIMIT ?
"""
_TAKEN_BACK: Final = """
SELECT position FROM events
WHERE group_id = ? AND target = ? AND target <> '' AND refuted = 0 AND author = ? AND type = 'delete'
ORDER BY position LIMIT 32
"""
_EDITS: Final = """
SELECT position, record FROM events
WHERE group_id = ? AND target = ? AND target <> '' AND refuted = 0 AND author = ? AND type = 'edit'
ORDER BY position DESC LIMIT 32
"""


Counts: TypeAlias = Callable[[str, str, int], bool]
"""Whether, in a group (its id), what an author says in this place of its chain counts: who may write changes, and the
index does not know it."""


class _Body(Struct, frozen=True):
    text: str
    mentions: object = None

    @property
    def called(self) -> list[str]:
        """The DIDs of those whom it calls by name, a bounded number of them."""
        found = self.mentions if isinstance(self.mentions, list) else []
        return [one for one in found[:MENTIONS_MAX] if isinstance(one, str)]


class _Said(Struct, frozen=True):
    """As much of a post's record as is looked for."""

    body: _Body


_said = msgspec.json.Decoder(_Said)


def _body_of(record: bytes) -> _Body | None:
    """What a post says, or an edit; None where its author has put nonsense there."""
    try:
        return _said.decode(record).body
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def text_now(
    db: apsw.Connection, group: str, event: str, author: str, record: bytes, counts: Counts = lambda *_: True
) -> str:
    """What a post says as it stands now: as its author has last edited it, and nothing where it was taken back."""
    about = (group, event, author)
    gone: Iterable[Any] = db.execute(_TAKEN_BACK, about).fetchall()
    if any(counts(group, author, position) for (position,) in gone):
        return ""
    edits: Iterable[Any] = db.execute(_EDITS, about).fetchall()
    bodies = (_body_of(one) for one in (*(edit for at, edit in edits if counts(group, author, at)), record))
    return next((body.text for body in bodies if body is not None), "")


def _called_now(db: apsw.Connection, group: str, event: str, author: str, body: _Body | None) -> list[str]:
    """Whom a post calls by name, as it was said and as it was edited."""
    edits: Iterable[Any] = db.execute(_EDITS, (group, event, author)).fetchall()
    bodies = (body, *(_body_of(edit) for _, edit in edits))
    return list(dict.fromkeys(did for one in bodies if one is not None for did in one.called))


@lru_cache(maxsize=1_024)
def mark(kind: str, name: str) -> str:
    """A group (`g`), an author (`a`) or whom a post is to (`t`) as a word of the index."""
    return kind + blake2s(name.encode(errors="replace"), digest_size=8).hexdigest()


# --- keeping it right -----------------------------------------------------------------------------------------------


def index(
    db: apsw.Connection,
    seq: int,
    group: str,
    author: str,
    lamport: int,
    text: str,
    called: Sequence[str] = (),
    before: int | None = None,
) -> None:
    """Let the post with this local number be found by this text, and by no other; empty: not at all. `called`: the DIDs
    of those whom it calls by name. `before`: its place, where it is in the index already."""
    if before is not None:
        db.execute("DELETE FROM words WHERE rowid = ?", (before,))
        if not text:
            db.execute("DELETE FROM said WHERE place = ?", (before,))
    if text:
        place = before if before is not None else _take_place(db, seq, lamport)
        marks = [mark("g", group), mark("a", author), *(mark("t", did) for did in called)]
        db.execute("INSERT INTO words (rowid, marks, text) VALUES (?, ?, ?)", (place, " ".join(marks), spaced(text)))


def _take_place(db: apsw.Connection, seq: int, lamport: int) -> int:
    place = max(lamport, 0) * PLACES
    while True:
        db.execute("INSERT INTO said VALUES (?, ?) ON CONFLICT (place) DO NOTHING", (place, seq))
        if db.changes():
            return place
        place += 1


def about(one: Remember) -> str:
    """The id of the post that is found by other words now than before, by what is remembered; empty: none is."""
    return one.id if one.type == POST else one.target if one.type in (EDIT, DELETE) else ""


def renew(db: apsw.Connection, touched: Iterable[str]) -> None:
    """Let these posts be found by what they say now, as the log has it."""
    for event in touched:
        rows: Sequence[Any] = db.execute(_POST, (event,)).fetchall()
        for seq, group, author, lamport, record, refuted, place, remarked in rows:
            body = _body_of(record)
            text = body.text if body is not None else ""
            called = body.called if body is not None else []
            if remarked:
                text = text_now(db, group, event, author, record)
                called = _called_now(db, group, event, author, body)
            index(db, seq, group, author, lamport, "" if refuted else text, called, place)


def renumber(db: apsw.Connection, before: int, now: int) -> None:
    """A post has another local number from now on."""
    db.execute("UPDATE said SET seq = ? WHERE seq = ?", (now, before))


def forget_group(db: apsw.Connection, group: str) -> None:
    """Take everything of a group out, while its events are still there, and overwrite it: what is only marked as gone
    would stay on disk until the index is next merged."""
    places = "SELECT place FROM said WHERE seq IN (SELECT seq FROM events WHERE group_id = ?)"
    db.execute(f"DELETE FROM words WHERE rowid IN ({places})", (group,))  # noqa: S608  # the query above
    db.execute(f"DELETE FROM said WHERE place IN ({places})", (group,))  # noqa: S608
    db.execute("INSERT INTO words (words) VALUES ('optimize')")


def build(db: apsw.Connection) -> None:
    """Index all posts of a journal that had no index; within a transaction."""
    for seq, group, author, lamport, record, event in _posts(db):
        body = _body_of(record)
        called = _called_now(db, group, event, author, body)
        index(db, seq, group, author, lamport, text_now(db, group, event, author, record), called)


def _posts(db: apsw.Connection) -> Iterator[tuple[int, str, str, int, bytes, str]]:
    seq = 0
    while rows := db.execute(_POSTS, (seq, BUILD_ROWS)).fetchall():
        yield from rows  # type: ignore[misc]  # what the columns are declared as
        seq = int(rows[-1][0])  # type: ignore[arg-type]


# --- asking it ------------------------------------------------------------------------------------------------------


def question(wanted: Wanted, groups: Sequence[str], authors: Sequence[str], called: Sequence[str] = ()) -> str:
    """What is looked for in FTS5's language. `groups`: ids; `authors` and `called`: DIDs; none: whichever."""
    parts = [f"text : {_quoted(spaced(one.text))}{'' if one.whole else ' *'}" for one in wanted.terms]
    for kind, names in (("g", groups), ("a", authors), ("t", called)):
        if names:
            parts.append(f"marks : ({' OR '.join(mark(kind, name) for name in names)})")
    return " AND ".join(parts)


def _quoted(text: str) -> str:
    """As a string, in which nothing is a sign of FTS5's language."""
    return '"' + text.replace("\0", " ").replace('"', '""') + '"'


def borders(wanted: Wanted, cursor: int | None) -> tuple[int, int]:
    """From which place on, and before which, what is wanted stands. `cursor`: the place that was reached."""
    least = wanted.after * PLACES if wanted.after is not None else 0
    most = wanted.before * PLACES if wanted.before is not None else PLACE_MAX
    return least, most if cursor is None else min(most, max(cursor, 0))
