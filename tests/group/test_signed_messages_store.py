"""Signed messages in the journal: kept once, read back in their order, acknowledged by whoever has signed for them."""

import pytest
from msgspec.structs import replace

from tests.agent.test_journal import KEY, Tree
from zerochat.agent.storage import signed_messages, statement_retention, tlog
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url
from zerochat.evidence.equivocation import Pair
from zerochat.evidence.handshake import Accept, Close, Confirm, Request
from zerochat.evidence.messages import ack, data
from zerochat.group.effects import Forget, KeepAck, KeepMessage, KeepRival, KeepStatement, KeepStray

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
    monkeypatch.setattr(signed_messages, "RECALL_BYTES_MAX", 2500)
    assert len(journal.signed.lacking("g", "did:author", ALIAS, 0, 99)) == 2
    monkeypatch.setattr(signed_messages, "RECALL_BYTES_MAX", 1)
    assert len(journal.signed.lacking("g", "did:author", ALIAS, 0, 99)) == 1


def test_messages_with_words_are_counted_and_none_is_read_for_that(journal: Journal):
    journal.commit(Tree("t"), [*stream(6), *(replace(one, author="did:other") for one in stream(2)[1:])])
    assert journal.signed.tally("g") == {"did:author": (3, 10, 50)}, "the other one has said a key alone"
    assert not journal.signed.tally("h")
    assert journal.signed.count("g", "did:author", ALIAS, 10) == 2
    plan = journal._db.execute(f"EXPLAIN QUERY PLAN {signed_messages._TALLY}", ("g",)).fetchall()
    assert "USING COVERING INDEX signed_by_place" in str(plan)


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
        journal.commit(
            Tree("t"), [KeepAck("g", "did:author", "did:reader", ALIAS, one.time, of or one.signature, said)]
        )
        return said

    acknowledge(kept[1], b"never" * 12 + b"said")
    assert not journal.signed.acks("g", ALIAS)
    second = acknowledge(kept[1])
    acknowledge(kept[0])
    assert journal.signed.acks("g", ALIAS) == {"did:reader": second}
    third = acknowledge(kept[2])
    assert journal.signed.acks("g", ALIAS) == {"did:reader": third}


def test_of_each_stretch_of_a_stream_an_acknowledgement_stays(journal: Journal, monkeypatch):
    kept = stream(3 * signed_messages.STRETCH)
    journal.commit(Tree("t"), kept)
    said = {}
    for one in kept[::10]:
        said[one.time] = ack(READER, data(AUTHOR, one.time, ALIAS, b"x", b"b" * 64), 99).written()
        journal.commit(
            Tree("t"), [KeepAck("g", "did:author", "did:reader", ALIAS, one.time, one.signature, said[one.time])]
        )
    first = journal.signed.acks_of("g", ALIAS, kept[5].time)["did:reader"]
    assert kept[5].time <= next(time for time, written in said.items() if written == first) <= kept[64].time
    assert not journal.signed.acks_of("g", ALIAS, kept[-1].time)


def test_what_was_signed_late_of_a_subscription_before_stays_beside_what_is_signed_by_this_one(journal: Journal):
    """All stand in one stretch, and a signature by this one shows nothing of what came before it."""
    kept = stream(4)
    journal.commit(Tree("t"), kept)
    said = [ack(READER, data(AUTHOR, one.time, ALIAS, b"x", b"b" * 64), 99).written() for one in kept]

    def signed_for(place: int, before: int = 0) -> None:
        one = kept[place]
        journal.commit(
            Tree("t"), [KeepAck("g", "did:author", "did:reader", ALIAS, one.time, one.signature, said[place], before)]
        )

    signed_for(3)
    for place in (0, 1, 0):
        signed_for(place, kept[1].time)
    found = [journal.signed.acks_of("g", ALIAS, one.time)["did:reader"] for one in kept]
    assert found == [said[1], said[1], said[3], said[3]]
    assert journal.signed.acks("g", ALIAS) == {"did:reader": said[3]}


@pytest.mark.parametrize(
    ("question", "places"),
    [(signed_messages._ACKNOWLEDGED, 5), (signed_messages._BYTES, 5), (tlog._SIZES, 4), (tlog._STREAM, 6)],
)
def test_what_is_asked_with_each_acknowledgement_is_found_by_a_key(journal: Journal, question, places):
    """A group may have a million messages, and each member says with every word what it has."""
    steps = [row[3] for row in journal.signed._db.execute("EXPLAIN QUERY PLAN " + question, (b"",) * places)]
    assert len(steps) == 1 and "PRIMARY KEY (group_id=? AND author=? AND alias=? AND time" in steps[0]


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


# --- subscriptions that came to nothing -------------------------------------------------------------------------------

ME, MEMBER = "did:key:z6Mk" + "1" * 44, "did:key:z6Mk" + "2" * 44
HASH = "r" * 43


def subscription(number: int, publisher: str = MEMBER, alias: bytes = ALIAS, at: int = 0) -> list[KeepStatement]:
    """The three statements of one that began at `number` by its publisher's clock, as they are kept."""
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


def stated(one, at: int) -> KeepStatement:
    says = str(type(one).__struct_config__.tag)
    return KeepStatement("g", MEMBER, says, one.digest, one.written(), at)


def kept(journal: Journal) -> set[str]:
    return {one.digest for one in journal.signed.statements("g", MEMBER)}


def chained(*several: list[KeepStatement]) -> list[KeepStatement]:
    return [one for said in several for one in said]


def digests(*several: list[KeepStatement]) -> set[str]:
    return {one.digest for one in chained(*several)}


def test_subscriptions_in_which_nothing_was_said_go_and_what_a_case_needs_stays(journal: Journal):
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
            KeepMessage("g", MEMBER, *place, heard.written(), b"k" * 32),
            KeepMessage("g", MEMBER, b"b" * 16, elsewhere.time, *place[2:], elsewhere.written(), b"k" * 32),
        ],
    )
    waits = KeepStray("g", MEMBER, ALIAS, stray.time, stray.signature, stray.written(), 9)
    journal.commit(Tree("t"), [*subscription(1_200), waits])
    assert journal.signed.strays("g", MEMBER) == {stray.signature: stray.written()}
    journal.commit(Tree("t"), chained(*theirs[20:]))
    stays = digests(*ours, theirs[10], theirs[20], *theirs[-statement_retention.RECENT :])
    assert stays <= kept(journal), "what was said in, what something waits of, the last ones, and all answers of ours"
    assert len(kept(journal) - stays) < statement_retention.LOOK_EVERY
    assert not kept(journal) & digests(*theirs[11:20], *theirs[:10])


def test_questions_that_were_never_answered_go_but_for_the_last(journal: Journal):
    unanswered = [subscription(number)[0] for number in range(1, 190)]
    theirs = subscription(500, ME, at=190)  # its question is kept in the turn that answers it, just before the answer
    journal.commit(Tree("t"), [*unanswered, *theirs])
    assert len(kept(journal)) == statement_retention.RECENT + 3
    assert digests(theirs, unanswered[-statement_retention.RECENT :]) == kept(journal)


@pytest.mark.parametrize("early", range(3))
def test_a_look_in_the_middle_of_an_answer_costs_nothing_of_it(journal: Journal, early: int):
    """Wherever in the three statements it falls: else there would be an answer of ours by which we cannot be heard."""
    unanswered = [subscription(number)[0] for number in range(1_000, 1_192 - 1 - early)]
    theirs = subscription(500, ME)
    journal.commit(Tree("t"), [*unanswered, *theirs[: early + 1]])
    journal.commit(Tree("t"), theirs[early + 1 :])
    assert digests(theirs) <= kept(journal)


def test_of_what_was_of_use_the_oldest_goes_and_no_answer_of_ours_that_is_not_old(journal: Journal, monkeypatch):
    monkeypatch.setattr(statement_retention, "SUBSCRIPTIONS_MAX", 10)
    monkeypatch.setattr(signed_messages, "_SAID", "SELECT ?1, ?2, ?3, ?4, ?5")
    day = 24 * 3_600_000
    theirs = [subscription(number) for number in range(1, 33)]
    ours = [subscription(number, ME, at=number * day) for number in range(100, 132)]
    over = Close(time=1, accept=ours[0][1].digest, by=ME)
    journal.commit(Tree("t"), chained(*theirs))
    journal.commit(Tree("t"), [*chained(*ours[:-1]), stated(over, 100 * day), *ours[-1]])
    assert digests(*theirs[-10:]) <= kept(journal) and not kept(journal) & digests(*theirs[:20])
    assert digests(*ours) <= kept(journal), "none of them is ninety days old"
    more = [subscription(number, ME, at=(number + 90) * day) for number in range(140, 240)]
    journal.commit(Tree("t"), chained(*more))
    assert not kept(journal) & (digests(*ours[:20]) | {over.digest})
    assert digests(*more) <= kept(journal)


# --- what has come and was not taken in -------------------------------------------------------------------------------


def put_aside(time: int, whole: bool = True, alias: bytes = ALIAS, at: int = 5, size: int = 10) -> KeepStray:
    said = data(AUTHOR, time, alias, b"\x01" * size, b"p" * 64)
    return KeepStray("g", MEMBER, alias, time, said.signature, said.written() if whole else b"", at)


def whole(journal: Journal) -> list[bytes]:
    return [message for message in journal.signed.strays("g", MEMBER).values() if message]


def test_the_first_that_name_what_never_came_are_kept_and_of_all_that_they_have_come(journal: Journal):
    journal.commit(Tree("t"), subscription(100))
    several = [put_aside(time) for time in range(101, 141)]
    journal.commit(Tree("t"), several)
    assert whole(journal) == [one.message for one in several[: signed_messages.STRAYS_MAX]]
    assert list(journal.signed.strays("g", MEMBER)) == [one.signature for one in several]
    later = put_aside(300, at=5 + signed_messages.STRAYS_MS_MAX + 1)
    journal.commit(Tree("t"), [later])
    assert journal.signed.strays("g", MEMBER) == {later.signature: later.message}, "the others are too old"
    journal.commit(Tree("t"), [Forget("g")])
    assert not journal.signed.strays("g", MEMBER)


def test_what_is_only_known_to_have_come_fills_a_bounded_place_and_takes_none_from_the_others(journal: Journal):
    journal.commit(Tree("t"), subscription(100))
    journal.commit(Tree("t"), [put_aside(time, whole=False, at=time) for time in range(1_000, 1_300)])
    first = put_aside(500, at=9_999)
    journal.commit(Tree("t"), [first])
    known = journal.signed.strays("g", MEMBER)
    assert len(known) == signed_messages.ARRIVALS_MAX + 1 and whole(journal) == [first.message]
    assert put_aside(1_299).signature in known and put_aside(1_000).signature not in known


def test_what_was_only_known_to_have_come_is_kept_whole_when_it_is_of_use_and_never_less(journal: Journal):
    journal.commit(Tree("t"), [*subscription(100), put_aside(101, whole=False)])
    assert not whole(journal)
    journal.commit(Tree("t"), [put_aside(101)])
    journal.commit(Tree("t"), [put_aside(101, whole=False)])
    assert whole(journal) == [put_aside(101).message]


def test_nobody_fills_the_place_with_what_it_cannot_be_accused_by(journal: Journal):
    """Said before anybody had asked to hear it, or in another stream, nothing of it was owed."""
    junk = [put_aside(time) for time in range(1, 40)] + [put_aside(time, alias=b"b" * 16) for time in range(200, 240)]
    journal.commit(Tree("t"), [*subscription(100), *subscription(300, ME, b"b" * 16), *junk])
    assert not whole(journal)
    real = put_aside(400)
    journal.commit(Tree("t"), [real])
    assert whole(journal) == [real.message]


def test_a_message_is_found_by_its_signature_in_its_stream_alone(journal: Journal):
    kept = stream(5)
    journal.commit(Tree("t"), kept)
    one = kept[2]
    assert journal.signed.has("g", "did:author", ALIAS, one.time + 1, one.signature)
    assert not journal.signed.has("g", "did:author", ALIAS, one.time, one.signature)
    assert not journal.signed.has("g", "did:author", b"b" * 16, one.time + 1, one.signature)
    assert not journal.signed.has("g", "did:author", ALIAS, 99, b"?" * 64)
