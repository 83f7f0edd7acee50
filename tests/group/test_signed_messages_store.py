"""Signed messages in the journal: stored once, read in order, with their signed acknowledgements."""

import pytest
from msgspec.structs import replace

from tests.support.journals import KEY, Tree
from tests.support.stored_stream import ALIAS, AUTHOR, READER, stream
from zerochat.agent.storage import signed_messages, statement_retention, tlog
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url
from zerochat.evidence.handshake import Accept, Close, Confirm, Request
from zerochat.evidence.messages import Equivocation, ack, data
from zerochat.group.effects import (
    DeleteLog,
    StoreConflictingMessage,
    StoreRejectedMessage,
    StoreSignedAck,
    StoreSignedMessage,
    StoreStatement,
)


@pytest.fixture
def journal(tmp_path):
    with Journal.create(tmp_path / "journal.db", KEY) as journal:
        yield journal


def test_missing_messages_are_read_back(journal: Journal):
    kept = stream(5)
    journal.commit(Tree("t"), kept)
    journal.commit(Tree("t"), kept)
    whole = [(one.upto, one.message) for one in kept]
    assert journal.signed_messages.recall("g", "did:author", ALIAS, 0, 99) == whole
    assert journal.signed_messages.recall("g", "did:author", ALIAS, 20, 2) == whole[2:4]
    assert not journal.signed_messages.recall("g", "did:author", ALIAS, 50, 9)
    assert not journal.signed_messages.recall("g", "did:author", b"b" * 16, 0, 9)
    assert [one.message for one in journal.signed_messages.stream("g", "did:author", ALIAS, 30)] == [
        m for _, m in whole[2:]
    ]


def test_result_is_bounded_with_one_minimum(journal: Journal, monkeypatch):
    journal.commit(Tree("t"), stream(5, 1000))
    monkeypatch.setattr(signed_messages, "RECALL_BYTES_MAX", 2500)
    assert len(journal.signed_messages.recall("g", "did:author", ALIAS, 0, 99)) == 2
    monkeypatch.setattr(signed_messages, "RECALL_BYTES_MAX", 1)
    assert len(journal.signed_messages.recall("g", "did:author", ALIAS, 0, 99)) == 1


def test_messages_are_counted_without_reading(journal: Journal):
    journal.commit(Tree("t"), [*stream(6), *(replace(one, author="did:other") for one in stream(2)[1:])])
    assert journal.signed_messages.message_counts("g") == {"did:author": (3, 10, 50)}, (
        "the other one has said a key alone"
    )
    assert not journal.signed_messages.message_counts("h")
    assert journal.signed_messages.count("g", "did:author", ALIAS, 10) == 2
    plan = journal._db.execute(f"EXPLAIN QUERY PLAN {signed_messages._TALLY}", ("g",)).fetchall()
    assert "USING COVERING INDEX signed_by_position" in str(plan)


def test_message_of_an_event_is_found(journal: Journal):
    kept = stream(5)
    journal.commit(Tree("t"), kept)
    found = journal.signed_messages.carrier("g", "did:author", 2)
    assert found is not None and found.message == kept[2].message, "the second brought a key and no events"
    assert journal.signed_messages.carrier("g", "did:author", 6) is None


def test_acks_need_a_message_and_never_go_back(journal: Journal):
    kept = stream(3)
    journal.commit(Tree("t"), kept)

    def acknowledge(one: StoreSignedMessage, of: bytes | None = None) -> bytes:
        said = ack(READER, data(AUTHOR, one.time, ALIAS, b"x", b"b" * 64), 99).serialize()
        journal.commit(
            Tree("t"), [StoreSignedAck("g", "did:author", "did:reader", ALIAS, one.time, of or one.signature, said)]
        )
        return said

    acknowledge(kept[1], b"never" * 12 + b"said")
    assert not journal.signed_messages.acks("g", ALIAS)
    second = acknowledge(kept[1])
    acknowledge(kept[0])
    assert journal.signed_messages.acks("g", ALIAS) == {"did:reader": second}
    third = acknowledge(kept[2])
    assert journal.signed_messages.acks("g", ALIAS) == {"did:reader": third}


def test_one_ack_per_range_is_kept(journal: Journal, monkeypatch):
    kept = stream(3 * signed_messages.RANGE)
    journal.commit(Tree("t"), kept)
    said = {}
    for one in kept[::10]:
        said[one.time] = ack(READER, data(AUTHOR, one.time, ALIAS, b"x", b"b" * 64), 99).serialize()
        journal.commit(
            Tree("t"), [StoreSignedAck("g", "did:author", "did:reader", ALIAS, one.time, one.signature, said[one.time])]
        )
    first = journal.signed_messages.acks_of("g", ALIAS, kept[5].time)["did:reader"]
    assert kept[5].time <= next(time for time, written in said.items() if written == first) <= kept[64].time
    assert not journal.signed_messages.acks_of("g", ALIAS, kept[-1].time)


def test_late_ack_of_old_subscription_is_kept(journal: Journal):
    """All are in one range, and an acknowledgement under the present subscription says nothing about the previous
    one."""
    kept = stream(4)
    journal.commit(Tree("t"), kept)
    said = [ack(READER, data(AUTHOR, one.time, ALIAS, b"x", b"b" * 64), 99).serialize() for one in kept]

    def signed_for(place: int, before: int = 0) -> None:
        one = kept[place]
        journal.commit(
            Tree("t"),
            [StoreSignedAck("g", "did:author", "did:reader", ALIAS, one.time, one.signature, said[place], before)],
        )

    signed_for(3)
    for place in (0, 1, 0):
        signed_for(place, kept[1].time)
    found = [journal.signed_messages.acks_of("g", ALIAS, one.time)["did:reader"] for one in kept]
    assert found == [said[1], said[1], said[3], said[3]]
    assert journal.signed_messages.acks("g", ALIAS) == {"did:reader": said[3]}


@pytest.mark.parametrize(
    ("question", "places"),
    [(signed_messages._ACKNOWLEDGED, 5), (signed_messages._BYTES, 5), (tlog._SIZES, 4), (tlog._STREAM, 6)],
)
def test_ack_queries_use_an_index(journal: Journal, question, places):
    """A group may have a million messages, and each sync acknowledges some."""
    steps = [row[3] for row in journal.signed_messages._db.execute("EXPLAIN QUERY PLAN " + question, (b"",) * places)]
    assert len(steps) == 1 and "PRIMARY KEY (group_id=? AND author=? AND alias=? AND time" in steps[0]


def test_statements_are_ordered_and_deletable(journal: Journal):
    said = [StoreStatement("g", "did:reader", says, says[0] * 43, says.encode(), 5) for says in ("request", "accept")]
    journal.commit(Tree("t"), [*stream(2), *said, said[0]])
    assert [one.kind for one in journal.signed_messages.statements("g", "did:reader")] == ["accept", "request"]
    assert not journal.signed_messages.statements("g", "did:other")
    journal.commit(Tree("t"), [DeleteLog("g")])
    assert not journal.signed_messages.statements("g", "did:reader")
    assert not journal.signed_messages.recall("g", "did:author", ALIAS, 0, 9)


# --- what convicts its author -----------------------------------------------------------------------------------------


def rival(time: int, before: bytes, sealed: bytes = b"\x01other", beside: bytes = b"", seed: bytes = AUTHOR):
    said = data(seed, time, ALIAS, sealed, before)
    place = ALIAS, said.time, said.before, said.signature
    return StoreConflictingMessage("g", "did:author", *place, said.serialize(), at=7, beside=beside)


def test_one_fork_per_author_is_kept(journal: Journal):
    kept = stream(5)
    journal.commit(Tree("t"), kept)
    forks = [rival(25, kept[1].before), rival(99, kept[3].before)]
    for one in forks:
        journal.commit(Tree("t"), [one])
    (found,) = journal.signed_messages.equivocations("g")
    assert (found.author, found.at) == ("did:author", 7)
    assert found.pair == Equivocation("fork", kept[1].message, forks[0].message)
    assert not journal.signed_messages.equivocations("h")


def test_time_reversal_is_kept(journal: Journal):
    kept = stream(3)
    later = rival(30, kept[-1].signature)
    journal.commit(Tree("t"), [*kept, rival(31, kept[-1].signature), later])
    assert [one.pair for one in journal.signed_messages.equivocations("g")] == [
        Equivocation("time-reversal", kept[-1].message, later.message)
    ]


def test_duplicates_and_other_streams_are_no_fork(journal: Journal):
    kept = stream(3)
    journal.commit(Tree("t"), kept)
    again = [
        StoreConflictingMessage("g", "did:author", ALIAS, m.time, m.before, m.signature, m.message, at=7) for m in kept
    ]
    said = data(AUTHOR, 5, b"b" * 16, b"\x01other", kept[0].before)
    elsewhere = StoreConflictingMessage(
        "g", "did:author", b"b" * 16, 5, said.before, said.signature, said.serialize(), at=7
    )
    unknown = rival(5, b"?" * 64)
    journal.commit(Tree("t"), [*again, elsewhere, unknown])
    assert not journal.signed_messages.equivocations("g")


def test_rejected_messages_are_compared_too(journal: Journal):
    one = rival(5, b"?" * 64)
    journal.commit(Tree("t"), [rival(6, b"?" * 64, beside=one.message), rival(4, one.signature, beside=one.message)])
    assert {found.pair.kind for found in journal.signed_messages.equivocations("g")} == {"fork", "time-reversal"}
    journal.commit(Tree("t"), [DeleteLog("g")])
    assert not journal.signed_messages.equivocations("g")


# --- subscriptions that came to nothing -------------------------------------------------------------------------------

ME, MEMBER = "did:key:z6Mk" + "1" * 44, "did:key:z6Mk" + "2" * 44
HASH = "r" * 43


def subscription(number: int, publisher: str = MEMBER, alias: bytes = ALIAS, at: int = 0) -> list[StoreStatement]:
    """The three stored statements of a subscription that began at `number` by its publisher's clock."""
    subscriber = ME if publisher == MEMBER else MEMBER
    asked = Request(time=number, topic=HASH, subscriber=subscriber, publisher=publisher, nonce=f"n{number}")
    given = Accept(
        time=number,
        request=asked.digest,
        publisher=publisher,
        subscriber=subscriber,
        alias=b64url(alias),
        start="",
        rules=HASH,
    )
    read = Confirm(time=number, accept=given.digest, subscriber=subscriber)
    return [stated(one, at or number) for one in (asked, given, read)]


def stated(one, at: int) -> StoreStatement:
    says = str(type(one).__struct_config__.tag)
    return StoreStatement("g", MEMBER, says, one.digest, one.serialize(), at)


def kept(journal: Journal) -> set[str]:
    return {one.digest for one in journal.signed_messages.statements("g", MEMBER)}


def chained(*several: list[StoreStatement]) -> list[StoreStatement]:
    return [one for said in several for one in said]


def digests(*several: list[StoreStatement]) -> set[str]:
    return {one.digest for one in chained(*several)}


def test_unused_subscriptions_are_deleted(journal: Journal):
    ours = [subscription(number, ME) for number in range(5, 205, 10)]
    theirs = [subscription(number) for number in range(1_000, 1_640, 10)]
    heard = data(AUTHOR, 1_105, ALIAS, b"\x01", b"b" * 64)
    place = ALIAS, heard.time, heard.before, heard.signature, 1
    stray = data(AUTHOR, 1_207, ALIAS, b"\x01", b"c" * 64)
    elsewhere = data(AUTHOR, 1_305, b"b" * 16, b"\x01", b"d" * 64)
    journal.commit(
        Tree("t"),
        [
            *chained(*ours, *theirs[:20]),
            StoreSignedMessage("g", MEMBER, *place, heard.serialize(), b"k" * 32),
            StoreSignedMessage("g", MEMBER, b"b" * 16, elsewhere.time, *place[2:], elsewhere.serialize(), b"k" * 32),
        ],
    )
    waits = StoreRejectedMessage("g", MEMBER, ALIAS, stray.time, stray.signature, stray.serialize(), 9)
    journal.commit(Tree("t"), [*subscription(1_200), waits])
    assert journal.signed_messages.rejected("g", MEMBER) == {stray.signature: stray.serialize()}
    journal.commit(Tree("t"), chained(*theirs[20:]))
    stays = digests(*ours, theirs[10], theirs[20], *theirs[-statement_retention.RECENT :])
    assert stays <= kept(journal), "what was said in, what something waits of, the last ones, and all answers of ours"
    assert len(kept(journal) - stays) < statement_retention.CLEANUP_EVERY
    assert not kept(journal) & digests(*theirs[11:20], *theirs[:10])


def test_unanswered_requests_are_deleted(journal: Journal):
    unanswered = [subscription(number)[0] for number in range(1, 190)]
    theirs = subscription(500, ME, at=190)  # its question is kept in the turn that answers it, just before the answer
    journal.commit(Tree("t"), [*unanswered, *theirs])
    assert len(kept(journal)) == statement_retention.RECENT + 3
    assert digests(theirs, unanswered[-statement_retention.RECENT :]) == kept(journal)


@pytest.mark.parametrize("early", range(3))
def test_cleanup_keeps_handshake_in_progress(journal: Journal, early: int):
    """Between any two of the three statements: otherwise an answer of ours would be lost."""
    unanswered = [subscription(number)[0] for number in range(1_000, 1_192 - 1 - early)]
    theirs = subscription(500, ME)
    journal.commit(Tree("t"), [*unanswered, *theirs[: early + 1]])
    journal.commit(Tree("t"), theirs[early + 1 :])
    assert digests(theirs) <= kept(journal)


def test_oldest_used_subscription_is_deleted(journal: Journal, monkeypatch):
    monkeypatch.setattr(statement_retention, "SUBSCRIPTIONS_MAX", 10)
    monkeypatch.setattr(signed_messages, "_SAID", "SELECT ?1, ?2, ?3, ?4, ?5")
    day = 24 * 3_600_000
    theirs = [subscription(number) for number in range(1, 33)]
    ours = [subscription(number, ME, at=number * day) for number in range(100, 132)]
    over = Close(time=1, accept=ours[0][1].digest, author=ME)
    journal.commit(Tree("t"), chained(*theirs))
    journal.commit(Tree("t"), [*chained(*ours[:-1]), stated(over, 100 * day), *ours[-1]])
    assert digests(*theirs[-10:]) <= kept(journal) and not kept(journal) & digests(*theirs[:20])
    assert digests(*ours) <= kept(journal), "none of them is ninety days old"
    more = [subscription(number, ME, at=(number + 90) * day) for number in range(140, 240)]
    journal.commit(Tree("t"), chained(*more))
    assert not kept(journal) & (digests(*ours[:20]) | {over.digest})
    assert digests(*more) <= kept(journal)


# --- what has come and was not taken in -------------------------------------------------------------------------------


def put_aside(time: int, whole: bool = True, alias: bytes = ALIAS, at: int = 5, size: int = 10) -> StoreRejectedMessage:
    said = data(AUTHOR, time, alias, b"\x01" * size, b"p" * 64)
    return StoreRejectedMessage("g", MEMBER, alias, time, said.signature, said.serialize() if whole else b"", at)


def whole(journal: Journal) -> list[bytes]:
    return [message for message in journal.signed_messages.rejected("g", MEMBER).values() if message]


def test_first_orphans_are_kept_whole(journal: Journal):
    journal.commit(Tree("t"), subscription(100))
    several = [put_aside(time) for time in range(101, 141)]
    journal.commit(Tree("t"), several)
    assert whole(journal) == [one.message for one in several[: signed_messages.REJECTED_MAX]]
    assert list(journal.signed_messages.rejected("g", MEMBER)) == [one.signature for one in several]
    later = put_aside(300, at=5 + signed_messages.REJECTED_MS_MAX + 1)
    journal.commit(Tree("t"), [later])
    assert journal.signed_messages.rejected("g", MEMBER) == {later.signature: later.message}, "the others are too old"
    journal.commit(Tree("t"), [DeleteLog("g")])
    assert not journal.signed_messages.rejected("g", MEMBER)


def test_ids_of_rejected_messages_are_bounded(journal: Journal):
    journal.commit(Tree("t"), subscription(100))
    journal.commit(Tree("t"), [put_aside(time, whole=False, at=time) for time in range(1_000, 1_300)])
    first = put_aside(500, at=9_999)
    journal.commit(Tree("t"), [first])
    known = journal.signed_messages.rejected("g", MEMBER)
    assert len(known) == signed_messages.REJECTED_IDS_MAX + 1 and whole(journal) == [first.message]
    assert put_aside(1_299).signature in known and put_aside(1_000).signature not in known


def test_useful_rejected_message_is_kept_whole(journal: Journal):
    journal.commit(Tree("t"), [*subscription(100), put_aside(101, whole=False)])
    assert not whole(journal)
    journal.commit(Tree("t"), [put_aside(101)])
    journal.commit(Tree("t"), [put_aside(101, whole=False)])
    assert whole(journal) == [put_aside(101).message]


def test_unowed_orphans_are_not_kept(journal: Journal):
    """Messages from before the subscription, or of another stream, are not owed."""
    junk = [put_aside(time) for time in range(1, 40)] + [put_aside(time, alias=b"b" * 16) for time in range(200, 240)]
    journal.commit(Tree("t"), [*subscription(100), *subscription(300, ME, b"b" * 16), *junk])
    assert not whole(journal)
    real = put_aside(400)
    journal.commit(Tree("t"), [real])
    assert whole(journal) == [real.message]


def test_message_is_found_by_signature_in_stream(journal: Journal):
    kept = stream(5)
    journal.commit(Tree("t"), kept)
    one = kept[2]
    assert journal.signed_messages.has("g", "did:author", ALIAS, one.time + 1, one.signature)
    assert not journal.signed_messages.has("g", "did:author", ALIAS, one.time, one.signature)
    assert not journal.signed_messages.has("g", "did:author", b"b" * 16, one.time + 1, one.signature)
    assert not journal.signed_messages.has("g", "did:author", ALIAS, 99, b"?" * 64)
