"""Signed messages in the journal: kept once, read back in their order, acknowledged by whoever has signed for them."""

import pytest

from tests.test_journal import KEY, Tree
from zerochat.agent import signed
from zerochat.agent.journal import Journal
from zerochat.evidence.messages import ack, data
from zerochat.evidence.rivals import Pair
from zerochat.group.effects import Forget, KeepAck, KeepMessage, KeepRival, KeepStatement

AUTHOR, READER = bytes([1]) * 32, bytes([2]) * 32
ALIAS = b"a" * 16


def stream(count: int, size: int = 100) -> list[KeepMessage]:
    """So many messages of one author; each second one brings no events but a key."""
    found, before = [], b"s" * 64
    for number in range(1, count + 1):
        said = data(AUTHOR, 10 * number, ALIAS, b"\x01" * size, before)
        key = bytes([number % 251]) * 32 if number % 2 else b""
        place = said.time, said.before, said.signature, number
        found.append(KeepMessage("g", "did:author", ALIAS, *place, said.written(), key))
        before = said.signature
    return found


@pytest.fixture
def journal(tmp_path):
    with Journal.create(tmp_path / "journal.db", KEY) as journal:
        yield journal


def test_what_a_reader_lacks_is_read_back_as_it_was(journal: Journal):
    kept = stream(5)
    journal.commit(Tree("t"), kept)
    journal.commit(Tree("t"), kept)
    whole = [(one.upto, one.message) for one in kept]
    assert journal.signed.lacking("g", "did:author", ALIAS, 0, 99) == whole
    assert journal.signed.lacking("g", "did:author", ALIAS, 20, 2) == whole[2:4]
    assert not journal.signed.lacking("g", "did:author", ALIAS, 50, 9)
    assert not journal.signed.lacking("g", "did:author", b"b" * 16, 0, 9)
    assert [one.message for one in journal.signed.stream("g", "did:author", ALIAS, 30)] == [m for _, m in whole[2:]]


def test_an_answer_has_bounds_and_brings_one_in_any_case(journal: Journal, monkeypatch):
    journal.commit(Tree("t"), stream(5, 1000))
    monkeypatch.setattr(signed, "RECALL_BYTES_MAX", 2500)
    assert len(journal.signed.lacking("g", "did:author", ALIAS, 0, 99)) == 2
    monkeypatch.setattr(signed, "RECALL_BYTES_MAX", 1)
    assert len(journal.signed.lacking("g", "did:author", ALIAS, 0, 99)) == 1


def test_the_message_that_has_brought_an_event_is_found(journal: Journal):
    kept = stream(5)
    journal.commit(Tree("t"), kept)
    found = journal.signed.carrier("g", "did:author", 2)
    assert found is not None and found.message == kept[2].message, "the second brought a key and no events"
    assert journal.signed.carrier("g", "did:author", 6) is None


def test_what_a_member_signs_counts_of_what_was_said_and_never_goes_back(journal: Journal):
    kept = stream(3)
    journal.commit(Tree("t"), kept)

    def acknowledge(one: KeepMessage, of: bytes | None = None) -> bytes:
        said = ack(READER, data(AUTHOR, one.time, ALIAS, b"x", b"b" * 64), 99).written()
        journal.commit(Tree("t"), [KeepAck("g", "did:reader", ALIAS, one.time, of or one.signature, said)])
        return said

    acknowledge(kept[1], b"never" * 12 + b"said")
    assert not journal.signed.acks("g", ALIAS)
    second = acknowledge(kept[1])
    acknowledge(kept[0])
    assert journal.signed.acks("g", ALIAS) == {"did:reader": second}
    third = acknowledge(kept[2])
    assert journal.signed.acks("g", ALIAS) == {"did:reader": third}


def test_of_each_stretch_of_a_stream_an_acknowledgement_stays(journal: Journal, monkeypatch):
    kept = stream(3 * signed.STRETCH)
    journal.commit(Tree("t"), kept)
    said = {}
    for one in kept[::10]:
        said[one.time] = ack(READER, data(AUTHOR, one.time, ALIAS, b"x", b"b" * 64), 99).written()
        journal.commit(Tree("t"), [KeepAck("g", "did:reader", ALIAS, one.time, one.signature, said[one.time])])
    first = journal.signed.acks_of("g", ALIAS, kept[5].time)["did:reader"]
    assert kept[5].time <= next(time for time, written in said.items() if written == first) <= kept[64].time
    assert not journal.signed.acks_of("g", ALIAS, kept[-1].time)


def test_statements_stand_in_their_order_and_a_group_that_is_forgotten_leaves_nothing(journal: Journal):
    said = [KeepStatement("g", "did:reader", says, says[0] * 43, says.encode(), 5) for says in ("request", "accept")]
    journal.commit(Tree("t"), [*stream(2), *said, said[0]])
    assert [one.says for one in journal.signed.statements("g", "did:reader")] == ["accept", "request"]
    assert not journal.signed.statements("g", "did:other")
    journal.commit(Tree("t"), [Forget("g")])
    assert not journal.signed.statements("g", "did:reader")
    assert not journal.signed.lacking("g", "did:author", ALIAS, 0, 9)


# --- what convicts its author -----------------------------------------------------------------------------------------


def rival(time: int, before: bytes, sealed: bytes = b"\x01other", beside: bytes = b"", seed: bytes = AUTHOR):
    said = data(seed, time, ALIAS, sealed, before)
    place = ALIAS, said.time, said.before, said.signature
    return KeepRival("g", "did:author", *place, said.written(), at=7, beside=beside)


def test_of_two_messages_in_one_place_both_are_kept_and_of_each_author_one_pair(journal: Journal):
    kept = stream(5)
    journal.commit(Tree("t"), kept)
    forks = [rival(25, kept[1].before), rival(99, kept[3].before)]
    for one in forks:
        journal.commit(Tree("t"), [one])
    (found,) = journal.signed.rivals("g")
    assert (found.author, found.at) == ("did:author", 7)
    assert found.pair == Pair("fork", kept[1].message, forks[0].message)
    assert not journal.signed.rivals("h")


def test_a_message_that_is_not_later_than_the_last_one_is_kept_beside_it(journal: Journal):
    kept = stream(3)
    later = rival(30, kept[-1].signature)
    journal.commit(Tree("t"), [*kept, rival(31, kept[-1].signature), later])
    assert [one.pair for one in journal.signed.rivals("g")] == [Pair("clock", kept[-1].message, later.message)]


def test_what_came_once_more_or_of_another_stream_convicts_nobody(journal: Journal):
    kept = stream(3)
    journal.commit(Tree("t"), kept)
    again = [KeepRival("g", "did:author", ALIAS, m.time, m.before, m.signature, m.message, at=7) for m in kept]
    said = data(AUTHOR, 5, b"b" * 16, b"\x01other", kept[0].before)
    elsewhere = KeepRival("g", "did:author", b"b" * 16, 5, said.before, said.signature, said.written(), at=7)
    unknown = rival(5, b"?" * 64)
    journal.commit(Tree("t"), [*again, elsewhere, unknown])
    assert not journal.signed.rivals("g")


def test_two_that_are_not_kept_are_compared_with_each_other_and_go_with_the_group(journal: Journal):
    one = rival(5, b"?" * 64)
    journal.commit(Tree("t"), [rival(6, b"?" * 64, beside=one.message), rival(4, one.signature, beside=one.message)])
    assert {found.pair.says for found in journal.signed.rivals("g")} == {"fork", "clock"}
    journal.commit(Tree("t"), [Forget("g")])
    assert not journal.signed.rivals("g")
