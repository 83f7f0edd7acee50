"""All that the files of a stolen profile contain, decrypted with its own key: every page version of the journal."""

import re
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.poly1305 import Poly1305

from zerochat.agent.storage.erasure_key import ErasureKey

PAGE_BYTES = 4_096
_NONCE_BYTES, _TAG_BYTES = 16, 16
_WAL_HEADER, _FRAME_HEADER = 32, 24
_PLAIN_HEAD = slice(16, 24)
"""These bytes of the first page are not encrypted."""
_SEALED_PATH = re.compile(rb"groups/[\w-]{43}/(dcgka|content_keys)(/[\w%:.-]+)+")


def _keystream(key: bytes, nonce: bytes, counter: int, data: bytes) -> bytes:
    start = (counter & 0xFFFFFFFF).to_bytes(4, "little") + nonce
    return Cipher(ChaCha20(key, start), mode=None).encryptor().update(data)


def decrypted_page(page: bytes, number: int, key: bytes) -> bytes | None:
    """A page of SQLite3 Multiple Ciphers' ChaCha20 format, without its nonce and tag; None: it is not authentic."""
    size = len(page) - _NONCE_BYTES - _TAG_BYTES
    nonce, tag = page[size : size + 12], page[size + _NONCE_BYTES :]
    counter = int.from_bytes(page[size + 12 : size + _NONCE_BYTES], "little") ^ number
    one_time = _keystream(key, nonce, counter, bytes(64))
    try:
        Poly1305.verify_tag(one_time[:32], page[: size + _NONCE_BYTES], tag)
    except InvalidSignature:
        return None
    skip = _PLAIN_HEAD.stop if number == 1 else 0
    return page[:skip] + _keystream(one_time[32:], nonce, counter + 1, page[skip:size])


def page_versions(journal: Path, key: bytes) -> list[bytes]:
    """Every page of the file, and every version of a page that is in the write-ahead log, also from before its last
    restart."""
    data = journal.read_bytes()
    found = [
        decrypted_page(data[at : at + PAGE_BYTES], at // PAGE_BYTES + 1, key) for at in range(0, len(data), PAGE_BYTES)
    ]
    assert None not in found
    log = journal.with_name(journal.name + "-wal")
    logged = log.read_bytes() if log.exists() else b""
    for at in range(_WAL_HEADER, len(logged) - PAGE_BYTES - _FRAME_HEADER + 1, PAGE_BYTES + _FRAME_HEADER):
        number = int.from_bytes(logged[at : at + 4], "big")
        page = logged[at + _FRAME_HEADER : at + _FRAME_HEADER + PAGE_BYTES]
        found.append(decrypted_page(page, number, key))
        assert found[-1] is not None
    return [page for page in found if page is not None]


def folder_bytes(folder: Path, journal: Path, key: bytes) -> bytes:
    """The content of every file of a profile; the journal's pages decrypted, one after the other."""
    others = [one.read_bytes() for one in folder.rglob("*") if one.is_file() and not one.name.startswith(journal.name)]
    return b"\0".join([*page_versions(journal, key), *others])


def sealed_parts(pages: Iterable[bytes], erasure_key: ErasureKey) -> set[bytes]:
    """The values of all versions of sealed parts in these pages that the stolen erasure key opens.

    The record of a row is a header, which ends with the length of the value, the path, and the value. Values that are
    too long for one page are left out.
    """
    found = set()
    for page in pages:
        for match in _SEALED_PATH.finditer(page):
            for size in (1, 2, 3):
                length = (_varint(page[match.start() - size : match.start()]) - 12) // 2
                # The pattern may have taken bytes of the value, too.
                for end in range(match.end(), match.start(), -1):
                    value = erasure_key.open(page[match.start() : end].decode(), page[end : end + max(0, length)])
                    if value is not None:
                        found.add(value)
    return found


def _varint(encoded: bytes) -> int:
    """A variable-length integer of SQLite of up to eight bytes."""
    value = 0
    for byte in encoded:
        value = value << 7 | byte & 0x7F
    return value
