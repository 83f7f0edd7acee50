"""Transparency logs in the journal: stable indexes, and answers for the state machines."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.journals import KEY, Tree
from tests.support.stored_stream import ALIAS, READER, stream
from zerochat.agent.storage import tlog as logbook_
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.tlog import TlogStore
from zerochat.crypto.encoding import b64url, canonical_json
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed
from zerochat.evidence.case import Rules
from zerochat.evidence.merkle import Frontier
from zerochat.evidence.messages import ack, data, parse_ack
from zerochat.evidence.note import cosignature
from zerochat.evidence.witness import checkpoint, entry_of, parse_entry, witness_did
from zerochat.group.effects import (
    DeleteBlobs,
    DeleteLog,
    FreezeSignedAcks,
    StoreBlob,
    StoreCheckpoint,
    StoreSignedAck,
    StoreSignedMessage,
    StoreTlog,
    StoreTlogEntries,
)
from zerochat.group.tlog.queries import (
    BlobQuery,
    Blobs,
    Extension,
    ExtensionQuery,
    Hashes,
    Messages,
    MissingBlobs,
    MissingEntries,
    OverdueMessages,
    Owed,
    Records,
    UnplacedEntries,
    UnreadEntries,
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


def whole(records, at_s: int) -> StoreCheckpoint:
    frontier = Frontier()
    for record in records:
        frontier = frontier.with_entry(record)
    note = checkpoint(RULES.origin, frontier, OPERATOR)
    for seed in WITNESSES:
        note = note.with_line(cosignature(note.text, seed, at_s))
    return StoreCheckpoint("g", RULES.origin, frontier.size, RULES.quorum.complete_until_ms(note), note.serialize())


def at_ms(note) -> int:
    return RULES.quorum.complete_until_ms(note)


def keep(journal: Journal, *effects) -> TlogStore:
    journal.commit(Tree("t"), effects)
    return journal.tlog


def blob(number: int, author: str = AUTHOR, size: int = 0) -> StoreBlob:
    content = b"blob %d" % number + bytes(size)
    return StoreBlob("g", b64url(sha256(content)), author, content, number)


def test_an_entry_is_proven_once_a_checkpoint_covers_it(journal):
    records = [entry(number).record() for number in range(5)]
    book = keep(journal, StoreTlogEntries("g", RULES.origin, 0, tuple(records)))
    assert book.index_of("g", RULES.origin, records[3]) == 3 and book.receipt("g", RULES.origin, records[3]) is None
    keep(journal, whole(records[:2], 100), whole(records, 200), whole(records, 300))
    receipt = book.receipt("g", RULES.origin, records[3])
    assert receipt is not None and receipt.posted_ms(entry(3), RULES.quorum) == 200_000
    assert book.receipt("g", RULES.origin, records[1]).posted_ms(entry(1), RULES.quorum) == 100_000
    assert book.size("g", RULES.origin) == 5 and book.size("g", "other") == 0
    assert [
        at_ms(book.latest_checkpoint("g", RULES.origin)),
        at_ms(book.checkpoint_after("g", RULES.origin, 200_001)),
    ] == [300_000] * 2
    assert book.checkpoint_after("g", RULES.origin, 300_001) is None
    assert book.entries("g", RULES.origin, 1, 2) == records[1:3]


def test_an_entry_keeps_its_place_and_rules_identify_a_tlog(journal):
    rules = StoreTlog("g", RULES.origin, canonical_json({"not": "these"}), 1)
    records = [entry(number).record() for number in range(3)]
    book = keep(
        journal, StoreTlogEntries("g", RULES.origin, 0, tuple(records)), StoreTlogEntries("g", RULES.origin, 1, (b"x",))
    )
    assert book.entries("g", RULES.origin, 0, 9) == records
    keep(journal, StoreTlog("g", RULES.origin, canonical_json(msgspec.to_builtins(RULES)), 1), rules)
    assert book.all_rules("g") == [RULES] and book.all_rules("h") == []
    assert book.all_rules("g")[0].digest == RULES.digest


def test_a_repeated_entry_is_found_from_the_given_index(journal):
    record = entry(1).record()
    book = keep(journal, StoreTlogEntries("g", RULES.origin, 0, (record, entry(2).record(), record)))
    assert book.index_of("g", RULES.origin, record) == 0
    assert book.index_of("g", RULES.origin, record, 1) == 2
    assert book.index_of("g", RULES.origin, record, 3) is None


def test_cosigned_entries_are_counted_by_kind(journal):
    kinds = ["message", "accusation", "close", "message", "accusation", "defence"]
    records = [entry(number, kind=kind).record() for number, kind in enumerate(kinds)]
    book = keep(journal, StoreTlogEntries("g", RULES.origin, 0, tuple(records)), whole(records[:4], 1_000))
    assert book.entry_counts("g", RULES.origin) == {"accusation": 1, "defence": 0, "close": 1}
    keep(journal, whole(records, 2_000))
    assert book.entry_counts("g", RULES.origin) == {"accusation": 2, "defence": 1, "close": 1}
    assert book.entry_counts("g", "another") == {"accusation": 0, "defence": 0, "close": 0}


def test_hashes_are_cached_and_the_cache_is_bounded(journal, monkeypatch):
    """Each open case asks for some of them, every few seconds."""
    records = [entry(number).record() for number in range(9)]
    notes = [whole(records[:5], 1_000), whole(records, 2_000)]
    book = keep(journal, StoreTlogEntries("g", RULES.origin, 0, tuple(records)), notes[0])
    read, entries = [], TlogStore.entries
    monkeypatch.setattr(
        TlogStore, "entries", lambda *args: (found := entries(*args), read.append((args[3], len(found))))[0]
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
    keep(journal, DeleteLog("g"))
    assert not book._trees
    assert book.receipt("g", RULES.origin, records[8]) is None


def test_entries_per_member_and_in_total_are_limited(journal, monkeypatch):
    monkeypatch.setattr(logbook_, "BLOBS_OF_ONE_MAX", 2_600)
    monkeypatch.setattr(logbook_, "BLOBS_MAX", 4_000)
    other = witness_did(bytes([6]) * 32)
    book = keep(
        journal, *(blob(number, size=1_000) for number in range(4)), blob(7, other, 1_000), blob(8, other, 1_000)
    )
    held = [bool(book.blob("g", blob(number, size=1_000).hash)) for number in range(4)]
    assert held == [True, True, False, False]
    assert book.blob("g", blob(7, other, 1_000).hash) and not book.blob("g", blob(8, other, 1_000).hash)
    lacked = entry_of("message", AUTHOR, blob(2, size=1_000).blob).record()
    asked = MissingBlobs("did:o", 0, (lacked,), "note")
    assert book.answer("g", RULES.origin, asked) == Hashes((blob(2, size=1_000).hash,), full=False)
    fetched = [replace(blob(number, size=1_000), requested=True) for number in (4, 5, 6)]
    keep(journal, *fetched)
    assert [bool(book.blob("g", one.hash)) for one in fetched] == [True, True, False], "there is room beside"
    assert book.answer("g", RULES.origin, asked) == Hashes((blob(2, size=1_000).hash,), full=True)
    keep(journal, DeleteBlobs("g", 2))
    assert book.answer("g", RULES.origin, asked) == Hashes((blob(2, size=1_000).hash,), full=False)


def test_a_signed_message_is_held_by_its_hash_and_not_twice(journal):
    (kept,) = stream(1)
    hashed = replace(kept, hash=sha256(kept.message))
    held = StoreBlob("g", b64url(sha256(kept.message)), AUTHOR, kept.message, 1)
    book = keep(journal, hashed, held)
    assert book.blob("g", held.hash) == kept.message
    assert journal._scalar("SELECT count(*) FROM log_blobs") == 0
    said = entry_of("message", AUTHOR, kept.message)
    longer = said.record().replace(b'"size":%d' % said.size, b'"size":%d' % (said.size + 1))
    answer = book.answer("g", RULES.origin, MissingBlobs("did:o", 0, (said.record(), longer), ""))
    assert answer == Hashes((held.hash,)), "an entry that lies about the length is not held"


def test_queries_of_the_tlog_state_machines(journal, monkeypatch):
    records = [entry(number).record() for number in range(5)]
    mine = entry(9, witness_did(OPERATOR)).record()
    book = keep(
        journal,
        StoreTlogEntries("g", RULES.origin, 0, (*records[:4], mine)),
        whole(records[:2], 100),
        *(blob(number) for number in range(3)),
    )

    def ask(what):
        return book.answer("g", RULES.origin, what)

    fresh = [entry(number).record() for number in (7, 8)]
    keep(journal, blob(8))
    lied = replace(entry(8), size=5).record()
    assert ask(UnplacedEntries("a", (*fresh, lied, records[0]))) == Records((fresh[1],)), (
        "nobody has the bytes of the others"
    )
    assert ask(ExtensionQuery("m", 0, 9)) == Extension(tuple(records[:2]), whole(records[:2], 100).note)
    assert ask(ExtensionQuery("m", 0, 1)) == Extension((), "")
    assert ask(ExtensionQuery("m", 2, 9)) == Extension((*records[2:4], mine), "")
    assert ask(BlobQuery(("m",), tuple(records))) == Blobs(tuple((records[n], b"blob %d" % n) for n in range(3)))
    monkeypatch.setattr(logbook_, "ANSWER_BYTES_MAX", 1)
    assert ask(BlobQuery(("m",), tuple(records))) == Blobs(((records[0], b"blob 0"),))
    assert ask(UnreadEntries(witness_did(OPERATOR), 0, 3)) == MissingEntries(3, tuple(records[:3])), "held is not heard"
    assert ask(UnreadEntries(witness_did(OPERATOR), 3, 9)) == MissingEntries(5, (records[3],))


def test_a_misspelled_hash_is_refused_before_any_lookup(journal):
    """43 letters leave two bits over, and a pattern of letters may end in a new line."""
    for hash_ in ("A" * 42 + "B", "A" * 43 + "\n"):
        record = replace(entry(1), hash=hash_).record()
        with pytest.raises(Malformed):
            parse_entry(record)
        with pytest.raises(Malformed):
            journal.tlog.answer("g", RULES.origin, BlobQuery((AUTHOR,), (record,)))


def test_unsigned_messages_are_overdue(journal, monkeypatch):
    kept = stream(6)
    book = keep(journal, *kept)

    def acknowledge(member: str, one: StoreSignedMessage, of: bytes | None = None) -> None:
        said = ack(READER, data(bytes(32), one.time, ALIAS, b"x", b"b" * 64), 99).serialize()
        keep(journal, StoreSignedAck("g", "did:author", member, ALIAS, one.time, of or one.signature, said))

    def overdue(*owed: Owed, after: int = 0, upto: int = 60):
        return book.answer("g", RULES.origin, OverdueMessages("did:author", ALIAS, after, upto, owed))

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


def test_messages_acknowledged_too_far_behind_are_overdue(journal, monkeypatch):
    """A chain from a message to what was acknowledged has to fit a defence."""
    kept = stream(6)
    monkeypatch.setattr(logbook_, "CHAIN_BYTES_MAX", 3 * len(kept[0].message))
    book = keep(journal, *kept)
    said = ack(READER, data(bytes(32), kept[4].time, ALIAS, b"x", b"b" * 64), 99).serialize()
    keep(journal, StoreSignedAck("g", "did:author", "did:a", ALIAS, kept[4].time, kept[4].signature, said))
    messages = [one.message for one in kept]
    owed = OverdueMessages("did:author", ALIAS, 0, 60, (Owed("did:a", 0, 1 << 50),))
    assert book.answer("g", RULES.origin, owed) == Messages((*messages[:2], messages[5]), 60)
    monkeypatch.setattr(logbook_, "CHAIN_BYTES_MAX", 1)
    assert book.answer("g", RULES.origin, owed) == Messages((*messages[:4], messages[5]), 60), "itself it always shows"
    monkeypatch.setattr(logbook_, "CHAIN_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(logbook_, "MESSAGES_MAX", 2)
    assert book.answer("g", RULES.origin, owed) == Messages((*messages[:3], messages[5]), 60)


def test_acknowledgements_of_an_ended_subscription_stay(journal):
    """Of each stretch of a stream one acknowledgement is kept, and a later one would take its place."""
    kept = stream(6)
    book = keep(journal, *kept)

    def acknowledge(one: StoreSignedMessage) -> None:
        said = ack(READER, data(bytes(32), one.time, ALIAS, b"x", b"b" * 64), 99).serialize()
        keep(journal, StoreSignedAck("g", "did:author", "did:a", ALIAS, one.time, one.signature, said))

    owed = OverdueMessages("did:author", ALIAS, 0, 60, (Owed("did:a", 0, 30), Owed("did:a", 30, 1 << 50)))
    acknowledge(kept[1])
    keep(journal, FreezeSignedAcks("g", "did:a", ALIAS, 30), FreezeSignedAcks("g", "did:a", ALIAS, 30))
    acknowledge(kept[5])
    assert book.answer("g", RULES.origin, owed) == Messages((kept[2].message,), 60)
    assert [parse_ack(one).time for one in journal.signed_messages.acks_of("g", ALIAS, 10).values()] == [20]


def test_a_forgotten_group_leaves_no_tlog(journal):
    records = (entry(1).record(),)
    book = keep(journal, StoreTlogEntries("g", RULES.origin, 0, records), whole(records, 5), blob(1))
    keep(journal, DeleteLog("g"))
    assert not book.entries("g", RULES.origin, 0, 9) and book.latest_checkpoint("g", RULES.origin) is None
    assert book.blob("g", blob(1).hash) is None


def test_storing_a_blob_costs_the_same_however_many_are_stored(journal):
    """A sum over the stored blobs for each new one took seconds of every turn once a member had stored many."""

    def cost(number: int) -> int:
        steps: list[int] = []
        journal._db.set_progress_handler(lambda: bool(steps.append(1)), 10)
        keep(journal, *(blob(each) for each in range(number, number + 64)))
        lacked = tuple(entry(each).record() for each in range(number + 100, number + 164))
        answer = journal.tlog.answer("g", RULES.origin, MissingBlobs("did:o", 0, lacked, "note"))
        journal._db.set_progress_handler(None)
        assert isinstance(answer, Hashes) and len(answer.hashes) == 64
        return len(steps)

    first = cost(0)
    keep(journal, *(blob(number) for number in range(1_000, 5_000)))
    assert cost(10_000) <= 1.5 * first


def test_a_small_blob_counts_for_its_row(journal, monkeypatch):
    monkeypatch.setattr(logbook_, "BLOBS_OF_ONE_MAX", 10_000)
    book = keep(journal, *(blob(number) for number in range(1_000)))
    held = sum(bool(book.blob("g", blob(number).hash)) for number in range(1_000))
    assert 30 < held <= 10_000 // logbook_.BLOB_ROW_BYTES
    keep(journal, DeleteBlobs("g", 2_000))
    assert book._bytes_of("g", "") == book._bytes_of("g", AUTHOR) == 0
