"""Full-text index of posts (FTS5) inside the encrypted journal.

The FTS5 table is in the journal's file, so it is encrypted per page. It is contentless: the records have the text, the
table only the words and their positions.

New posts are indexed in batches: when UNINDEXED_BYTES_MAX of them wait, and before each search. One segment for each
commit would be merged several times. A changed post that is indexed is changed with the log.

A post's rowid in the index is its *position*: its Lamport time, and some bits to distinguish posts of one millisecond.
So the index returns matches in time order, newest first, stops when a page is full, and a date is a range of rowids.
The group, the author and the mentioned members are index terms in a column that no user input can reach, so filtering
by them needs no access to the log.

Tokens are Unicode letters with their marks, digits and symbols, of the folded text (`search_text.fold`). A trigram
tokenizer would also find parts of words, but no Chinese word of two characters, and takes three times the space;
scripts without spaces are indexed character by character instead (`search_text.spaced`).
"""

from _blake2 import blake2s  # as in `hashlib`, without loading OpenSSL
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import apsw
import msgspec
from msgspec import Struct

from zerochat.group.effects import StoreEvent
from zerochat.group.event_log.event import DELETE, EDIT, POST
from zerochat.group.messages.bodies import MENTIONS_MAX
from zerochat.presentation.search_query import Query
from zerochat.presentation.search_text import fold, spaced

POSITIONS_PER_MS: Final = 512
"""Positions per millisecond; further posts take those of the next one."""
UNINDEXED_BYTES_MAX: Final = 256 << 10
"""Records of posts that wait for the index. A search indexes them in 10 ms of work, 40 if they are random words."""
INDEXED_UPTO: Final = "indexed"
"""The key in `meta` of the local number up to which posts are indexed."""
POSITION_MAX: Final = (1 << 62) - 1
INDEX_BLOCK_BYTES: Final = 4_000
"""Size of a block of the index. One of the default size, 4,050 bytes, does not fit a page, of which the cipher takes 32
bytes, and spills into a second one."""
INDEX_MEMORY_BYTES: Final = 8 << 20
"""Size of the terms of one transaction that are collected in memory; more are written in several segments."""
INDEX_MERGE: Final = 8
"""Segments of one level at which merging begins. The default of 4 writes each term half as often again."""
INDEX_SCHEMA: Final = f"""
CREATE VIRTUAL TABLE words USING fts5(
    text, marks, content = '', contentless_delete = 1,
    tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* Co So'"
);
INSERT INTO words (words, rank) VALUES
    ('pgsz', {INDEX_BLOCK_BYTES}), ('hashsize', {INDEX_MEMORY_BYTES}), ('automerge', {INDEX_MERGE});
CREATE TABLE indexed_posts (position INTEGER PRIMARY KEY, seq INTEGER NOT NULL UNIQUE) STRICT;
"""  # noqa: S608  # only numbers are inserted
FIND: Final = """
SELECT indexed_posts.position, indexed_posts.seq
FROM words CROSS JOIN indexed_posts ON indexed_posts.position = words.rowid
WHERE words MATCH ? AND words.rowid >= ? AND words.rowid < ? ORDER BY words.rowid DESC LIMIT ?
"""
_COLUMNS: Final = """seq, id, group_id, author, lamport, record, refuted, EXISTS (
    SELECT 1 FROM events AS one
    WHERE one.group_id = post.group_id AND one.target = post.id AND one.target <> '' AND one.refuted = 0
), (SELECT position FROM indexed_posts WHERE indexed_posts.seq = post.seq)"""
"""Of a post; the last two: whether it has annotations, and its position in the index, if it has one."""
_POST: Final = f"SELECT {_COLUMNS} FROM events AS post WHERE id = ? AND type = 'post' AND seq <= ?"  # noqa: S608
_UNINDEXED: Final = f"SELECT {_COLUMNS} FROM events AS post WHERE seq > ? AND type = 'post' ORDER BY seq"  # noqa: S608
_UNINDEXED_BYTES: Final = "SELECT coalesce(sum(length(record)), 0) FROM events WHERE seq > ? AND type = 'post'"
_DELETIONS: Final = """
SELECT position FROM events
WHERE group_id = ? AND target = ? AND target <> '' AND refuted = 0 AND author = ? AND type = 'delete'
ORDER BY position LIMIT 32
"""
_EDITS: Final = """
SELECT position, record FROM events
WHERE group_id = ? AND target = ? AND target <> '' AND refuted = 0 AND author = ? AND type = 'edit'
ORDER BY position DESC LIMIT 32
"""


Validity: TypeAlias = Callable[[str, str, int], bool]
"""Whether an event (group id, author, chain position) is valid: roles change, and the index does not know them."""


class Body(Struct, frozen=True):
    text: str
    mentions: object = None

    @property
    def mentioned(self) -> list[str]:
        """The DIDs of the mentioned members, at most MENTIONS_MAX."""
        found = self.mentions if isinstance(self.mentions, list) else []
        return [one for one in found[:MENTIONS_MAX] if isinstance(one, str)]


class _Record(Struct, frozen=True):
    """The part of a post's record that is indexed."""

    body: Body


_record_decoder = msgspec.json.Decoder(_Record)


def _body_of(record: bytes) -> Body | None:
    """The body of a post or an edit; None: malformed."""
    try:
        return _record_decoder.decode(record).body
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def body_now(
    db: apsw.Connection, group: str, event: str, author: str, record: bytes, is_valid: Validity = lambda *_: True
) -> Body:
    """The current text and mentions of a post: of its last valid edit; empty: deleted."""
    post = (group, event, author)
    deletions: Iterable[Any] = db.execute(_DELETIONS, post).fetchall()
    if any(is_valid(group, author, position) for (position,) in deletions):
        return Body("")
    edits: Iterable[Any] = db.execute(_EDITS, post).fetchall()
    bodies = (_body_of(one) for one in (*(edit for at, edit in edits if is_valid(group, author, at)), record))
    return next((body for body in bodies if body is not None), Body(""))


@lru_cache(maxsize=1_024)
def mark(kind: str, name: str) -> str:
    """The index term for a group (`g`), an author (`a`) or a mentioned member (`t`)."""
    return kind + blake2s(name.encode(errors="replace"), digest_size=8).hexdigest()


# --- updates --------------------------------------------------------------------------------------------------------


def index(
    db: apsw.Connection,
    seq: int,
    group: str,
    author: str,
    lamport: int,
    text: str,
    mentioned: Sequence[str] = (),
    before: int | None = None,
) -> None:
    """Index the post with this local number by this text only; empty: remove it. `mentioned`: DIDs. `before`: its
    current position in the index."""
    if before is not None:
        db.execute("DELETE FROM words WHERE rowid = ?", (before,))
        if not text:
            db.execute("DELETE FROM indexed_posts WHERE position = ?", (before,))
    if text:
        position = before if before is not None else _take_position(db, seq, lamport)
        marks = [mark("g", group), mark("a", author), *(mark("t", did) for did in mentioned)]
        row = (position, spaced(fold(text)), " ".join(marks))
        db.execute("INSERT INTO words (rowid, text, marks) VALUES (?, ?, ?)", row)


def _take_position(db: apsw.Connection, seq: int, lamport: int) -> int:
    position = max(lamport, 0) * POSITIONS_PER_MS
    while True:
        db.execute("INSERT INTO indexed_posts VALUES (?, ?) ON CONFLICT (position) DO NOTHING", (position, seq))
        if db.changes():
            return position
        position += 1


def affected_post(event: StoreEvent) -> str:
    """The id of the post whose text changes with this event; empty: none."""
    return event.id if event.type == POST else event.target if event.type in (EDIT, DELETE) else ""


def unindexed_bytes(db: apsw.Connection, after: int) -> int:
    """The size of the records of the posts after this local number."""
    rows: Sequence[Any] = db.execute(_UNINDEXED_BYTES, (after,)).fetchall()
    return int(rows[0][0])


def index_after(db: apsw.Connection, after: int) -> int:
    """Index the posts after this local number. Returns the last local number."""
    rows: Sequence[Any] = db.execute(_UNINDEXED, (after,)).fetchall()
    _index_rows(db, rows)
    return int(rows[-1][0]) if rows else after


def reindex(db: apsw.Connection, touched: Iterable[str], upto: int) -> None:
    """Index these posts by their current text in the log, as far as their local number is at most `upto`."""
    for event in touched:
        _index_rows(db, db.execute(_POST, (event, upto)).fetchall())


def _index_rows(db: apsw.Connection, rows: Iterable[Any]) -> None:
    for seq, event, group, author, lamport, record, refuted, annotated, position in rows:
        body = body_now(db, group, event, author, record) if annotated else _body_of(record) or Body("")
        index(db, seq, group, author, lamport, "" if refuted else body.text, body.mentioned, position)


def renumber(db: apsw.Connection, before: int, now: int) -> None:
    """A post has a new local number."""
    db.execute("UPDATE indexed_posts SET seq = ? WHERE seq = ?", (now, before))


def remove(db: apsw.Connection, seq: int) -> None:
    """Remove the post with this local number. Its words are overwritten by `merge`."""
    rows: Sequence[Any] = db.execute("SELECT position FROM indexed_posts WHERE seq = ?", (seq,)).fetchall()
    for position in rows:
        db.execute("DELETE FROM words WHERE rowid = ?", position)
        db.execute("DELETE FROM indexed_posts WHERE position = ?", position)


def merge(db: apsw.Connection, pages: int, *, begin: bool) -> bool:
    """Merge so many pages of the index into one segment, which leaves out removed posts; whether that is complete.
    `begin`: take all segments; else go on."""
    before = db.total_changes()
    db.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (-pages if begin else pages,))
    return db.total_changes() - before < 2  # as SQLite documents it: nothing was left to do


def forget_group(db: apsw.Connection, group: str) -> None:
    """Remove a group from the index, before its events are deleted, and overwrite it: FTS5 only marks entries as
    deleted until the next merge."""
    positions = "SELECT position FROM indexed_posts WHERE seq IN (SELECT seq FROM events WHERE group_id = ?)"
    db.execute(f"DELETE FROM words WHERE rowid IN ({positions})", (group,))  # noqa: S608  # the query above
    db.execute(f"DELETE FROM indexed_posts WHERE position IN ({positions})", (group,))  # noqa: S608
    db.execute("INSERT INTO words (words) VALUES ('optimize')")


# --- queries --------------------------------------------------------------------------------------------------------


def fts_query(wanted: Query, groups: Sequence[str], authors: Sequence[str], mentioned: Sequence[str] = ()) -> str:
    """The FTS5 query. `groups`: ids; `authors` and `mentioned`: DIDs; empty: any."""
    parts = [f"text : {_quoted(spaced(fold(one.text)))}{'' if one.whole else ' *'}" for one in wanted.terms]
    for kind, names in (("g", groups), ("a", authors), ("t", mentioned)):
        if names:
            parts.append(f"marks : ({' OR '.join(mark(kind, name) for name in names)})")
    return " AND ".join(parts)


def _quoted(text: str) -> str:
    """An FTS5 string literal."""
    return '"' + text.replace("\0", " ").replace('"', '""') + '"'


def position_range(wanted: Query, cursor: int | None) -> tuple[int, int]:
    """The range of positions to search (first, end). `cursor`: the position reached by the previous page."""
    first = wanted.after * POSITIONS_PER_MS if wanted.after is not None else 0
    end = wanted.before * POSITIONS_PER_MS if wanted.before is not None else POSITION_MAX
    return first, end if cursor is None else min(end, max(cursor, 0))
