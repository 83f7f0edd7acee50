"""Groups' logs in the journal: what has its place keeps it, and what the machines of a log ask comes from there."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.agent.test_journal import KEY, Tree
from tests.group.test_signed_messages_store import ALIAS, READER, stream
from zerochat.agent.storage import tlog as logbook_
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.tlog import Logbook
from zerochat.crypto.encoding import b64url, canonical_json
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed
from zerochat.evidence.case import Rules
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.messages import ack, data, parse_ack
from zerochat.evidence.note import cosignature
from zerochat.evidence.witness import checkpoint, entry_of, parse_entry, witness_did
from zerochat.group.effects import (
    DropBlobs,
    Forget,
    KeepAck,
    KeepBlob,
    KeepEntries,
    KeepLog,
    KeepMessage,
    KeepNote,
    SealAcks,
)
from zerochat.group.tlog.lookups import (
    Blobs,
    Bytes,
    Hashes,
    Lacking,
    Messages,
    Overdue,
    Owed,
    Piece,
    Records,
    Stretch,
    Unheld,
    Unplaced,
    Unread,
)

OPERATOR, WITNESSES = bytes([9]) * 32, [bytes([n]) * 32 for n in (1, 2, 3)]
RULES = Rules(
    origin="zerochat/log/x", operator=witness_did(OPERATOR), witnesses=tuple(witness_did(one) for one in WITNESSES)
)
AUTHOR = witness_did(bytes([5]) * 32)


@pytest.fixture
def journal(tmp_path):
    with Journal.create(tmp_path / "journal.db", KEY) as journal:
        yield journal


def entry(number: int, author: str = AUTHOR, kind="message"):
    return entry_of(kind, author, b"blob %d" % number)


def whole(records, at_s: int) -> KeepNote:
    frontier = Frontier()
    for record in records:
        frontier = frontier.with_entry(record)
    note = checkpoint(RULES.origin, frontier, OPERATOR)
    for seed in WITNESSES:
        note = note.with_line(cosignature(note.text, seed, at_s))
    return KeepNote("g", RULES.origin, frontier.size, RULES.quorum.whole_ms(note), note.written())


def at_ms(note) -> int:
    return RULES.quorum.whole_ms(note)


def keep(journal: Journal, *effects) -> Logbook:
    journal.commit(Tree("t"), effects)
    return journal.logbook


def blob(number: int, author: str = AUTHOR, size: int = 0) -> KeepBlob:
    content = b"blob %d" % number + bytes(size)
    return KeepBlob("g", b64url(sha256(content)), author, content, number)


def test_an_entry_is_shown_by_a_receipt_as_soon_as_a_checkpoint_stands_over_it(journal):
    records = [entry(number).record() for number in range(5)]
    book = keep(journal, KeepEntries("g", RULES.origin, 0, tuple(records)))
    assert book.place_of("g", RULES.origin, records[3]) == 3 and book.receipt("g", RULES.origin, records[3]) is None
    keep(journal, whole(records[:2], 100), whole(records, 200), whole(records, 300))
    receipt = book.receipt("g", RULES.origin, records[3])
    assert receipt is not None and receipt.posted_ms(entry(3), RULES.quorum) == 200_000
    assert book.receipt("g", RULES.origin, records[1]).posted_ms(entry(1), RULES.quorum) == 100_000
    assert book.size("g", RULES.origin) == 5 and book.size("g", "other") == 0
    assert [at_ms(book.last("g", RULES.origin)), at_ms(book.note_after("g", RULES.origin, 200_001))] == [300_000] * 2
    assert book.note_after("g", RULES.origin, 300_001) is None
    assert book.entries("g", RULES.origin, 1, 2) == records[1:3]


def test_what_has_its_place_keeps_it_and_a_log_is_known_by_its_rules(journal):
    rules = KeepLog("g", RULES.origin, canonical_json({"not": "these"}), 1)
    records = [entry(number).record() for number in range(3)]
    book = keep(journal, KeepEntries("g", RULES.origin, 0, tuple(records)), KeepEntries("g", RULES.origin, 1, (b"x",)))
    assert book.entries("g", RULES.origin, 0, 9) == records
    keep(journal, KeepLog("g", RULES.origin, canonical_json(msgspec.to_builtins(RULES)), 1), rules)
    assert book.origins("g") == [RULES] and book.origins("h") == []
    assert book.origins("g")[0].digest == RULES.digest


def test_an_entry_that_is_logged_twice_is_found_from_where_one_looks(journal):
    record = entry(1).record()
    book = keep(journal, KeepEntries("g", RULES.origin, 0, (record, entry(2).record(), record)))
    assert book.place_of("g", RULES.origin, record) == 0
    assert book.place_of("g", RULES.origin, record, 1) == 2
    assert book.place_of("g", RULES.origin, record, 3) is None


def test_what_stands_in_a_log_is_counted_by_kinds_as_far_as_it_is_cosigned(journal):
    kinds = ["message", "accusation", "close", "message", "accusation", "defence"]
    records = [entry(number, kind=kind).record() for number, kind in enumerate(kinds)]
    book = keep(journal, KeepEntries("g", RULES.origin, 0, tuple(records)), whole(records[:4], 1_000))
    assert book.kinds("g", RULES.origin) == {"accusation": 1, "defence": 0, "close": 1}
    keep(journal, whole(records, 2_000))
    assert book.kinds("g", RULES.origin) == {"accusation": 2, "defence": 1, "close": 1}
    assert book.kinds("g", "another") == {"accusation": 0, "defence": 0, "close": 0}


def test_no_log_is_hashed_twice_for_two_receipts_and_what_is_kept_of_it_is_bounded(journal, monkeypatch):
    """Each open case asks for some of them, every few seconds."""
    records = [entry(number).record() for number in range(9)]
    notes = [whole(records[:5], 1_000), whole(records, 2_000)]
    book = keep(journal, KeepEntries("g", RULES.origin, 0, tuple(records)), notes[0])
    read, entries = [], Logbook.entries
    monkeypatch.setattr(
        Logbook, "entries", lambda *args: (found := entries(*args), read.append((args[3], len(found))))[0]
    )

    def receipt(place):
        found = book.receipt("g", RULES.origin, records[place])
        assert found.index == place
        assert found.posted_ms(parse_entry(records[place]), RULES.quorum)

    for place in (3, 0, 4):
        receipt(place)
    keep(journal, notes[1])
    for place in (8, 2, 7):
        receipt(place)
    assert read == [(0, 5), (5, 4)]
    monkeypatch.setattr(logbook_, "TREES_MAX", 8)
    receipt(8)
    assert not book._trees
    receipt(8)
    monkeypatch.setattr(logbook_, "TREES_MAX", 18)
    receipt(8)
    keep(journal, Forget("g"))
    assert not book._trees
    assert book.receipt("g", RULES.origin, records[8]) is None


def test_one_member_fills_no_witness_and_all_together_neither(journal, monkeypatch):
    monkeypatch.setattr(logbook_, "BLOBS_OF_ONE_MAX", 2_500)
    monkeypatch.setattr(logbook_, "BLOBS_MAX", 4_000)
    other = witness_did(bytes([6]) * 32)
    book = keep(
        journal, *(blob(number, size=1_000) for number in range(4)), blob(7, other, 1_000), blob(8, other, 1_000)
    )
    held = [bool(book.blob("g", blob(number, size=1_000).hash)) for number in range(4)]
    assert held == [True, True, False, False]
    assert book.blob("g", blob(7, other, 1_000).hash) and not book.blob("g", blob(8, other, 1_000).hash)
    lacked = entry_of("message", AUTHOR, blob(2, size=1_000).blob).record()
    asked = Unheld("did:o", 0, (lacked,), "note")
    assert book.answer("g", RULES.origin, asked) == Hashes((blob(2, size=1_000).hash,), full=False)
    fetched = [replace(blob(number, size=1_000), asked=True) for number in (4, 5, 6)]
    keep(journal, *fetched)
    assert [bool(book.blob("g", one.hash)) for one in fetched] == [True, True, False], "there is room beside"
    assert book.answer("g", RULES.origin, asked) == Hashes((blob(2, size=1_000).hash,), full=True)
    keep(journal, DropBlobs("g", 2))
    assert book.answer("g", RULES.origin, asked) == Hashes((blob(2, size=1_000).hash,), full=False)


def test_a_signed_message_is_held_by_its_hash_and_not_twice(journal):
    (kept,) = stream(1)
    hashed = replace(kept, hash=sha256(kept.message))
    held = KeepBlob("g", b64url(sha256(kept.message)), AUTHOR, kept.message, 1)
    book = keep(journal, hashed, held)
    assert book.blob("g", held.hash) == kept.message
    assert journal._one("SELECT count(*) FROM log_blobs") == 0
    said = entry_of("message", AUTHOR, kept.message)
    longer = said.record().replace(b'"size":%d' % said.size, b'"size":%d' % (said.size + 1))
    answer = book.answer("g", RULES.origin, Unheld("did:o", 0, (said.record(), longer), ""))
    assert answer == Hashes((held.hash,)), "an entry that lies about the length is not held"


def test_what_the_machines_ask(journal, monkeypatch):
    records = [entry(number).record() for number in range(5)]
    mine = entry(9, witness_did(OPERATOR)).record()
    book = keep(
        journal,
        KeepEntries("g", RULES.origin, 0, (*records[:4], mine)),
        whole(records[:2], 100),
        *(blob(number) for number in range(3)),
    )

    def ask(what):
        return book.answer("g", RULES.origin, what)

    fresh = [entry(number).record() for number in (7, 8)]
    keep(journal, blob(8))
    lied = replace(entry(8), size=5).record()
    assert ask(Unplaced("a", (*fresh, lied, records[0]))) == Records((fresh[1],)), "nobody has the bytes of the others"
    assert ask(Piece("m", 0, 9)) == Stretch(tuple(records[:2]), whole(records[:2], 100).note)
    assert ask(Piece("m", 0, 1)) == Stretch((), "")
    assert ask(Piece("m", 2, 9)) == Stretch((*records[2:4], mine), "")
    assert ask(Bytes(("m",), tuple(records))) == Blobs(tuple((records[n], b"blob %d" % n) for n in range(3)))
    monkeypatch.setattr(logbook_, "ANSWER_BYTES_MAX", 1)
    assert ask(Bytes(("m",), tuple(records))) == Blobs(((records[0], b"blob 0"),))
    assert ask(Unread(witness_did(OPERATOR), 0, 3)) == Lacking(3, tuple(records[:3])), "held is not heard"
    assert ask(Unread(witness_did(OPERATOR), 3, 9)) == Lacking(5, (records[3],))


def test_a_record_whose_hash_is_spelled_wrong_is_none_before_anything_is_looked_up(journal):
    """43 letters leave two bits over, and a pattern of letters may end in a new line."""
    for hash_ in ("A" * 42 + "B", "A" * 43 + "\n"):
        record = replace(entry(1), hash=hash_).record()
        with pytest.raises(Malformed):
            parse_entry(record)
        with pytest.raises(Malformed):
            journal.logbook.answer("g", RULES.origin, Bytes((AUTHOR,), (record,)))


def test_what_is_overdue_is_what_somebody_has_not_signed_for(journal, monkeypatch):
    kept = stream(6)
    book = keep(journal, *kept)

    def acknowledge(member: str, one: KeepMessage, of: bytes | None = None) -> None:
        said = ack(READER, data(bytes(32), one.time, ALIAS, b"x", b"b" * 64), 99).written()
        keep(journal, KeepAck("g", "did:author", member, ALIAS, one.time, of or one.signature, said))

    def overdue(*owed: Owed, after: int = 0, upto: int = 60):
        return book.answer("g", RULES.origin, Overdue("did:author", ALIAS, after, upto, owed))

    messages = [one.message for one in kept]
    ever = 1 << 50
    acknowledge("did:a", kept[3])
    acknowledge("did:b", kept[5], of=b"n" * 64)  # what was never said
    assert overdue(Owed("did:a", 0, ever)) == Messages(tuple(messages[4:]), 60)
    assert overdue(Owed("did:a", 0, ever), upto=50) == Messages((messages[4],), 50)
    assert overdue(Owed("did:a", 0, ever), after=50) == Messages((messages[5],), 60)
    assert overdue(Owed("did:b", 20, ever)) == Messages(tuple(messages[2:]), 60)
    assert overdue(Owed("did:a", 0, 30), Owed("did:b", 50, ever)) == Messages((*messages[:3], messages[5]), 60), (
        "what was signed for later says nothing of what was owed before"
    )
    assert overdue() == Messages((), 60)
    monkeypatch.setattr(logbook_, "OVERDUE_MAX", 2)
    assert overdue(Owed("did:c", 0, ever)) == Messages(tuple(messages[:2]), 20)
    assert overdue(Owed("did:c", 0, ever), after=20, upto=35) == Messages((messages[2],), 35)


def test_what_was_signed_for_too_far_behind_to_be_shown_is_overdue(journal, monkeypatch):
    """A chain from a message to what was acknowledged has to fit a defence."""
    kept = stream(6)
    monkeypatch.setattr(logbook_, "CHAIN_BYTES_MAX", 3 * len(kept[0].message))
    book = keep(journal, *kept)
    said = ack(READER, data(bytes(32), kept[4].time, ALIAS, b"x", b"b" * 64), 99).written()
    keep(journal, KeepAck("g", "did:author", "did:a", ALIAS, kept[4].time, kept[4].signature, said))
    messages = [one.message for one in kept]
    owed = Overdue("did:author", ALIAS, 0, 60, (Owed("did:a", 0, 1 << 50),))
    assert book.answer("g", RULES.origin, owed) == Messages((*messages[:2], messages[5]), 60)
    monkeypatch.setattr(logbook_, "CHAIN_BYTES_MAX", 1)
    assert book.answer("g", RULES.origin, owed) == Messages((*messages[:4], messages[5]), 60), "itself it always shows"
    monkeypatch.setattr(logbook_, "CHAIN_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(logbook_, "MESSAGES_MAX", 2)
    assert book.answer("g", RULES.origin, owed) == Messages((*messages[:3], messages[5]), 60)


def test_what_was_signed_by_a_subscription_that_is_over_stays(journal):
    """Of each stretch of a stream one acknowledgement is kept, and a later one would take its place."""
    kept = stream(6)
    book = keep(journal, *kept)

    def acknowledge(one: KeepMessage) -> None:
        said = ack(READER, data(bytes(32), one.time, ALIAS, b"x", b"b" * 64), 99).written()
        keep(journal, KeepAck("g", "did:author", "did:a", ALIAS, one.time, one.signature, said))

    owed = Overdue("did:author", ALIAS, 0, 60, (Owed("did:a", 0, 30), Owed("did:a", 30, 1 << 50)))
    acknowledge(kept[1])
    keep(journal, SealAcks("g", "did:a", ALIAS, 30), SealAcks("g", "did:a", ALIAS, 30))
    acknowledge(kept[5])
    assert book.answer("g", RULES.origin, owed) == Messages((kept[2].message,), 60)
    assert [parse_ack(one).time for one in journal.signed.acks_of("g", ALIAS, 10).values()] == [20]


def test_a_group_that_is_forgotten_leaves_nothing(journal):
    records = (entry(1).record(),)
    book = keep(journal, KeepEntries("g", RULES.origin, 0, records), whole(records, 5), blob(1))
    keep(journal, Forget("g"))
    assert not book.entries("g", RULES.origin, 0, 9) and book.last("g", RULES.origin) is None
    assert book.blob("g", blob(1).hash) is None
