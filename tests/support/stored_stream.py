"""A signed stream for the journal."""

from zerochat.evidence.messages import data
from zerochat.group.effects import StoreSignedMessage

AUTHOR, READER = bytes([1]) * 32, bytes([2]) * 32

ALIAS = b"a" * 16


def stream(count: int, size: int = 100) -> list[StoreSignedMessage]:
    """So many messages of one author; each second one brings no events but a key."""
    found, before = [], b"s" * 64
    for number in range(1, count + 1):
        said = data(AUTHOR, 10 * number, ALIAS, b"\x01" * size, before)
        key = bytes([number % 251]) * 32 if number % 2 else b""
        place = said.time, said.before, said.signature, number
        found.append(StoreSignedMessage("g", "did:author", ALIAS, *place, said.serialize(), key))
        before = said.signature
    return found
