"""The messages by which members keep a log with witnesses together, one to one.

author                operator                witnesses                others
  | -- log-post --------> |                        |                      |    entries, and the bytes behind them
  | -- log-post ---------------------------------> |                      |    the same
  |                       | -- log-piece --------> |                      |    entries, and a checkpoint over them
  |                       | <------------ log-line |                      |    its cosignature, or how far it is
  | <- log-piece -------- | ------------------------ log-piece ---------> |    the same, cosigned by a quorum
  |                       |                        | <-------- log-want - |    pieces, or the bytes behind entries
  |                       |                        | - log-blob --------> |
"""

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from zerochat.crypto.compression import compress, decompress
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.errors import Malformed
from zerochat.evidence.case import DEFENCE_BYTES_MAX
from zerochat.evidence.note import NOTE_BYTES_MAX
from zerochat.evidence.witness import ENTRIES_MAX, ENTRY_BYTES_MAX
from zerochat.group.event_log.event import Id
from zerochat.group.wire.messages import PROTOCOL

LOG_POST = PROTOCOL + "log-post"
LOG_PIECE = PROTOCOL + "log-piece"
LOG_LINE = PROTOCOL + "log-line"
LOG_WANT = PROTOCOL + "log-want"
LOG_BLOB = PROTOCOL + "log-blob"
LOG_MESSAGES = frozenset({LOG_POST, LOG_PIECE, LOG_LINE, LOG_WANT, LOG_BLOB})

POSTS_MAX = 64
"""Entries in one message, where the bytes behind them come along."""
WANT_MAX = 16
"""Entries whose bytes are asked for at once."""
PACKED_BYTES_MAX = 185_000
"""Of one entry, or of several in one message: in base64 they fit a message that is padded."""
LINE_CHARS_MAX = 256
_PLAIN, _ZSTD = b"\0", b"\1"
_SMALL = 1_024
"""Bytes beside the blob itself that an entry in a message may take."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Origin = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern="^[!-~]+$")]
_Record = Annotated[str, msgspec.Meta(min_length=1, max_length=ENTRY_BYTES_MAX)]


class PostedBody(msgspec.Struct, frozen=True):
    """An entry, and what it speaks of."""

    record: _Record
    blob: Annotated[str, msgspec.Meta(max_length=PACKED_BYTES_MAX * 4 // 3 + 4)] = ""
    """Packed (`packed`), in base64url; empty: the bytes do not come along."""


class LogPostBody(msgspec.Struct, frozen=True):
    """Entries of the sender's for a log; or, as `log-blob`, what the reader has asked for."""

    group: Id
    origin: _Origin
    entries: Annotated[list[PostedBody], msgspec.Meta(min_length=1, max_length=POSTS_MAX)]


class LogPieceBody(msgspec.Struct, frozen=True):
    """What comes after the first `old` entries of a log, up to a checkpoint."""

    group: Id
    origin: _Origin
    old: _Count
    records: Annotated[list[_Record], msgspec.Meta(max_length=ENTRIES_MAX)]
    note: Annotated[str, msgspec.Meta(max_length=NOTE_BYTES_MAX)]


class LogLineBody(msgspec.Struct, frozen=True):
    """A witness cosigns a checkpoint of so many entries; or it says that it has so many, and not what it was shown."""

    group: Id
    origin: _Origin
    size: _Count
    line: Annotated[str, msgspec.Meta(max_length=LINE_CHARS_MAX)] = ""
    full: bool = False
    """It has no room for the bytes behind what it was shown."""


class LogWantBody(msgspec.Struct, frozen=True):
    """The sender wants what comes after so many entries; or the bytes behind some."""

    group: Id
    origin: _Origin
    after: Annotated[int, msgspec.Meta(ge=-1, le=2**53 - 1)] = -1
    """-1: nothing of the kind."""
    at: _Count = 0
    """It knows a checkpoint of that size that shows all that was in the log at this time (UTC ms)."""
    records: Annotated[list[_Record], msgspec.Meta(max_length=WANT_MAX)] = []


def packed(blob: bytes) -> str:
    """The bytes as they travel: compressed where that is shorter."""
    return b64url(min(_PLAIN + blob, _ZSTD + compress(blob), key=len))


def fits(blob: bytes) -> bool:
    """Whether what an entry speaks of fits a message."""
    return len(packed(blob)) <= PACKED_BYTES_MAX * 4 // 3


def unpacked_blob(text: str) -> bytes:
    """Raises Malformed."""
    data = b64url_bytes(text)
    if data[:1] == _PLAIN and len(data) <= 1 + DEFENCE_BYTES_MAX:
        return data[1:]
    if data[:1] == _ZSTD:
        return decompress(data[1:], DEFENCE_BYTES_MAX)
    raise Malformed(why="bytes of an unknown kind")


def portions(posts: Iterable[PostedBody]) -> Iterator[list[PostedBody]]:
    """As many of them in one message as fit it."""
    portion: list[PostedBody] = []
    size = 0
    for one in posts:
        size += len(one.blob) + _SMALL
        if portion and (size > PACKED_BYTES_MAX * 4 // 3 or len(portion) >= POSTS_MAX):
            yield portion
            portion, size = [], len(one.blob) + _SMALL
        portion.append(one)
    if portion:
        yield portion
