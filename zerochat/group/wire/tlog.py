"""Messages of a group's transparency log, between two members each.

author                operator                witnesses                others
  | -- tlog-submit -----> |                        |                      |    entries, and the bytes behind them
  | -- tlog-submit ------------------------------> |                      |    the same
  |                       | -- tlog-extension ---> |                      |    entries, and a checkpoint over them
  |                       | <---- tlog-cosignature |                      |    its cosignature, or its size
  | <- tlog-extension --- | ------------------- tlog-extension ---------> |    the same, cosigned by a quorum
  |                       |                        | <---- tlog-request - |    extensions, or the bytes behind entries
  |                       |                        | - tlog-blobs ------> |
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

TLOG_SUBMIT = PROTOCOL + "tlog-submit"
TLOG_EXTENSION = PROTOCOL + "tlog-extension"
TLOG_COSIGNATURE = PROTOCOL + "tlog-cosignature"
TLOG_REQUEST = PROTOCOL + "tlog-request"
TLOG_BLOBS = PROTOCOL + "tlog-blobs"
TLOG_MESSAGES = frozenset({TLOG_SUBMIT, TLOG_EXTENSION, TLOG_COSIGNATURE, TLOG_REQUEST, TLOG_BLOBS})

SUBMIT_ENTRIES_MAX = 64
"""Entries in one message that carries the bytes behind them."""
REQUEST_ENTRIES_MAX = 16
"""Entries whose bytes are requested in one message."""
PACKED_BYTES_MAX = 185_000
"""The bytes of one entry, or of several in one message: in base64 they fit a padded message."""
LINE_CHARS_MAX = 256
_PLAIN, _ZSTD = b"\0", b"\1"
_SMALL = 1_024
"""The size of an entry in a message without its blob."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Origin = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern="^[!-~]+$")]
_Record = Annotated[str, msgspec.Meta(min_length=1, max_length=ENTRY_BYTES_MAX)]


class TlogEntryBody(msgspec.Struct, frozen=True):
    """An entry, and the bytes behind it."""

    record: _Record
    blob: Annotated[str, msgspec.Meta(max_length=PACKED_BYTES_MAX * 4 // 3 + 4)] = ""
    """Packed (`pack_blob`), in base64url; empty: not included."""


class TlogSubmitBody(msgspec.Struct, frozen=True):
    """Entries submitted by the sender; or, as `tlog-blobs`, the requested ones."""

    group: Id
    origin: _Origin
    entries: Annotated[list[TlogEntryBody], msgspec.Meta(min_length=1, max_length=SUBMIT_ENTRIES_MAX)]


class TlogExtensionBody(msgspec.Struct, frozen=True):
    """The entries after the first `old` ones of a tlog, up to a checkpoint."""

    group: Id
    origin: _Origin
    old: _Count
    records: Annotated[list[_Record], msgspec.Meta(max_length=ENTRIES_MAX)]
    note: Annotated[str, msgspec.Meta(max_length=NOTE_BYTES_MAX)]


class TlogCosignatureBody(msgspec.Struct, frozen=True):
    """A witness cosigns a checkpoint of this size; without a cosignature it reports its own size."""

    group: Id
    origin: _Origin
    size: _Count
    cosignature: Annotated[str, msgspec.Meta(max_length=LINE_CHARS_MAX)] = ""
    full: bool = False
    """It has no room for the bytes behind the entries."""


class TlogRequestBody(msgspec.Struct, frozen=True):
    """The sender requests the entries after this number; or the bytes behind some entries."""

    group: Id
    origin: _Origin
    after: Annotated[int, msgspec.Meta(ge=-1, le=2**53 - 1)] = -1
    """-1: no entries."""
    known_at: _Count = 0
    """The sender knows a checkpoint of that size which covers all entries up to this time (UTC ms)."""
    records: Annotated[list[_Record], msgspec.Meta(max_length=REQUEST_ENTRIES_MAX)] = []


def pack_blob(blob: bytes) -> str:
    """The bytes as they travel: compressed if that is shorter."""
    return b64url(min(_PLAIN + blob, _ZSTD + compress(blob), key=len))


def fits_message(blob: bytes) -> bool:
    """Whether the bytes behind an entry fit a message."""
    return len(pack_blob(blob)) <= PACKED_BYTES_MAX * 4 // 3


def unpacked_blob(text: str) -> bytes:
    """The bytes of `pack_blob`. Raises Malformed."""
    data = b64url_bytes(text)
    if data[:1] == _PLAIN and len(data) <= 1 + DEFENCE_BYTES_MAX:
        return data[1:]
    if data[:1] == _ZSTD:
        return decompress(data[1:], DEFENCE_BYTES_MAX)
    raise Malformed(why="bytes of an unknown kind")


def entry_batches(entries: Iterable[TlogEntryBody]) -> Iterator[list[TlogEntryBody]]:
    """The entries in batches that each fit a message."""
    batch: list[TlogEntryBody] = []
    size = 0
    for entry in entries:
        size += len(entry.blob) + _SMALL
        if batch and (size > PACKED_BYTES_MAX * 4 // 3 or len(batch) >= SUBMIT_ENTRIES_MAX):
            yield batch
            batch, size = [], len(entry.blob) + _SMALL
        batch.append(entry)
    if batch:
        yield batch
