"""A transparency log in memory, as a follower has it, whose witnesses have correct clocks."""

import random

from tests.support.dispute_parties import Ledger, did_of
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import sha256
from zerochat.evidence.case import Rules
from zerochat.evidence.merkle import Tree
from zerochat.evidence.note import Note, parse_checkpoint
from zerochat.evidence.witness import Receipt, entry_of, receipt_for


class Shelf:
    """One log of one group (`agent.cases.book.Book`)."""

    def __init__(self, seed: int = 1) -> None:
        self.ledger = Ledger(random.Random(seed), 120_000, exact=True)
        self.rules = Rules(
            origin=self.ledger.origin,
            operator=did_of(self.ledger.operator),
            witnesses=tuple(map(did_of, self.ledger.witnesses)),
        )
        self.blobs: dict[str, bytes] = {}
        self.notes: list[Note] = []

    def post(self, now: int, kind, author: str, blob: bytes, about: str = "", seed: bytes = b"") -> bytes:
        """Put something into the log, and have it cosigned at once. Returns the entry's record."""
        entry = entry_of(kind, author, blob, about)
        entry = entry.signed(seed) if kind == "defence" else entry
        self.blobs[entry.hash] = blob
        self.ledger.post_entry(now, entry)
        self.tick(now)
        return entry.record()

    def tick(self, now: int) -> None:
        """A checkpoint over what is there."""
        self.notes.append(self.ledger.cosigned(now))

    def all_rules(self, group: str) -> list[Rules]:
        return [self.rules]

    def size(self, group: str, origin: str) -> int:
        return parse_checkpoint(self.notes[-1].text).size if self.notes else 0

    def entries(self, group: str, origin: str, after: int, limit: int) -> list[bytes]:
        return self.ledger.records[after : after + limit]

    def blob(self, group: str, hash_: str) -> bytes | None:
        b64url_bytes(hash_)  # as a journal does
        found = self.blobs.get(hash_)
        assert found is None or b64url(sha256(found)) == hash_
        return found

    def receipt(self, group: str, origin: str, record: bytes, since: int = 0) -> Receipt | None:
        if record not in self.ledger.records[since:]:
            return None
        place = self.ledger.records.index(record, since)
        note = next(one for one in self.notes if parse_checkpoint(one.text).size > place)
        return receipt_for(Tree(self.ledger.records), place, note)

    def checkpoint_after(self, group: str, origin: str, at_ms: int) -> Note | None:
        return next((one for one in self.notes if self.rules.quorum.complete_until_ms(one) >= at_ms), None)

    def latest_checkpoint(self, group: str, origin: str) -> Note | None:
        return self.notes[-1] if self.notes else None
