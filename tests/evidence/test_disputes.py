"""Cases between members of one group: what is missing is found, accused of and answered for, and everybody makes the
same of it."""

import json
import logging
import random

import pytest
from msgspec.structs import replace

from tests.agent.test_journal import KEY, Tree
from tests.group.test_signed_streams import Signed
from tests.support import dispute_parties
from tests.support.memory_tlog import Shelf
from zerochat.agent.disputes import accusations, case_builder, verdicts
from zerochat.agent.disputes.accusations import (
    AccusedAlready,
    NotAccountable,
    NothingMissing,
    SubscriptionEnded,
    TooEarly,
    accuse,
)
from zerochat.agent.disputes.case_builder import NotFiled, case_of
from zerochat.agent.disputes.case_files import against_us, charge_of, kept, parse_docket
from zerochat.agent.disputes.defences import defences, parse_accusation
from zerochat.agent.disputes.monitor import Counsel
from zerochat.agent.storage.disputes import MADE, POSTED, Answer
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.errors import Malformed, RemoteError
from zerochat.evidence.case import Acknowledged, Closed, Ended, Posted, Repeated, parse_case, parse_defence
from zerochat.evidence.handshake import Close, Confirm, Request
from zerochat.evidence.judge import (
    DISMISSED,
    FALSE_ACCUSATION,
    FORKED,
    OPEN,
    REPEATED,
    TURNED_BACK,
    UPHELD,
    VOID,
    judge,
)
from zerochat.evidence.messages import data, parse_data
from zerochat.evidence.witness import parse_entry
from zerochat.group import effects
from zerochat.group.effects import Changed, KeepStatement, KeepStray, Remembered
from zerochat.group.inputs import Ask, PostToLog, Say, SendPost
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.signed_streams import publisher as own
from zerochat.group.signed_streams import receiver, statements
from zerochat.group.state import Early
from zerochat.group.tlog.submission import NotForTheLog
from zerochat.group.tlog.verdicts import VERDICT_BYTES_MAX, BadVerdict, read_verdict

MINUTE = 60_000
DUE = 15 * MINUTE
"""Longer than what a publisher may take, with both clocks off."""


class Court(Signed):
    """Three members who have agreed to be judged by one log, and what each keeps in its journal."""

    def __init__(self, folder, shelf):
        self.shelf, self.held_back, self.noted = shelf, set(), {}
        super().__init__(3)
        self.counsels = {}
        self.folder, self.journals = folder, {}

    def _perform(self, node, effect):
        if isinstance(effect, Remembered):
            self.noted.setdefault(node.name, []).append(effect)
        super()._perform(node, effect)

    def _frame(self, name, stimulus):
        if (name, stimulus.envelope[-64:]) not in self.held_back:
            super()._frame(name, stimulus)

    def withhold(self, text, whom="n1", by="n0"):
        """A post that is brought to everybody but one, and one behind it that all get. Returns what was withheld."""
        own = self.group(by).stream
        taken = super()._frame
        lost = []

        def drop(name, stimulus):
            before = own.head in stimulus.envelope[-128:-64]
            if name == whom and before:
                lost.append(stimulus.envelope)
                self.held_back.add((whom, stimulus.envelope[-64:]))
            else:
                taken(name, stimulus)

        self._frame = drop  # type: ignore[method-assign]
        try:
            self.ask(by, SendPost(self.id, text))
            self.run(for_ms=300)
        finally:
            del self._frame
        assert lost
        self.ask(by, SendPost(self.id, text + " and more"))
        self.run(for_ms=3_000)
        return lost[0]

    def journal(self, name):
        """What somebody has kept by now, on disk."""
        if name not in self.journals:
            self.journals[name] = Journal.create(self.folder / f"{name}.db", KEY)
        self.journals[name].commit(Tree(name), self.noted.pop(name, []))
        return self.journals[name]

    def accuse(self, by="n1", whom="n0", at=None):
        group = self.group(by)
        return accuse(self.journal(by), self.shelf, group, self.did(whom), self.now if at is None else at)

    def file(self, docket, after_ms=0):
        said = docket.accusation
        self.shelf.post(self.now + after_ms, "accusation", said.by, said.written())

    def answer(self, docket, by="n0"):
        """What the accused makes of it, and posts."""
        ours = charge_of(self.journal(by), self.group(by), docket.accusation)
        if ours is None:
            return None
        for _, written in defences(self.journal(by), self.shelf, self.group(by), self.shelf.rules, ours):
            self.shelf.post(self.now + MINUTE, "defence", self.did(by), written, docket.digest, self.group(by).seed)
            return type(parse_defence(written).ground)
        return None

    def counsel(self, name):
        """What the counsel of one of them wants to say, done."""
        if name not in self.counsels:
            self.counsels[name] = Counsel(self.journal(name), logging.getLogger("counsel"), self.shelf)
        self.journal(name)
        asks = self.counsels[name].review(self.nodes[name].agent, self.now + len(self.counsels) * 10**9)
        for ask in asks:
            if isinstance(ask.command, PostToLog):
                self.post_to_log(name, ask.command)
                self.counsels[name].settle(effects.Answer(ask.ticket, Changed(self.id)))
            else:
                answer = self.ask(name, ask.command)
                self.counsels[name].settle(effects.Answer(ask.ticket, answer.result))
        self.run(for_ms=3_000)
        return [ask.command for ask in asks]

    def post_to_log(self, name, command):
        seed = self.group(name).seed
        self.shelf.post(self.now, command.kind, self.did(name), command.blob, command.about, seed)

    def counsel_of_all(self):
        return {name: self.counsel(name) for name in self.nodes}

    def known(self, name):
        """What somebody knows of the cases: who is accused of them, and what came of each."""
        names = {self.did(one): one for one in self.nodes}
        return [(names.get(one.accused, ""), one.verdict) for one in self.journal(name).cases.all(self.id)]

    def verdict(self, docket):
        """Of the whole case, from its file alone, and of whoever has the docket from its bytes."""
        self.shelf.tick(self.now + self.shelf.rules.window_ms + 2 * MINUTE)
        case = case_of(self.shelf, self.id, self.shelf.rules, parse_docket(docket.written()))
        found = judge(parse_case(case.written()))
        assert judge(case_of(self.shelf, self.id, self.shelf.rules, docket)).findings == found.findings
        return found.delivery

    def later(self, ms=DUE):
        """Time goes by, in which nobody does anything."""
        self.now += ms


@pytest.fixture
def court(tmp_path, monkeypatch):
    shelf = Shelf()
    monkeypatch.setattr(statements, "NO_RULES", shelf.rules.digest)
    found = Court(tmp_path, shelf)
    shelf.post(found.now, "message", found.did("n2"), b"something else")
    found.says("n0", SendPost(found.id, "a first one"))
    yield found
    for journal in found.journals.values():
        journal.close()


def test_whoever_withholds_a_message_is_upheld_to_have_done_so(court):
    court.withhold("for some")
    assert "for some and more" not in court.texts("n1"), "it waits for the one before"
    court.later()
    docket = court.accuse()
    assert (docket.accused, docket.accusation.by) == (court.did("n0"), court.did("n1"))
    assert docket.accusation.since == 1 and not docket.reopened
    with pytest.raises(NotFiled):
        case_of(court.shelf, court.id, court.shelf.rules, docket)
    court.file(docket)
    assert judge(case_of(court.shelf, court.id, court.shelf.rules, docket)).delivery == OPEN
    assert court.answer(docket) is None, "there is nothing to be said for it"
    assert court.verdict(docket) == UPHELD


def test_nothing_is_missing_between_honest_members(court):
    for n in range(4):
        court.says("n0", SendPost(court.id, f"{n}"))
    court.later()
    with pytest.raises(NothingMissing, match="n0 has said to you in friends"):
        court.accuse()
    with pytest.raises(NothingMissing):
        court.accuse(by="n0", whom="n2")


def test_who_withholds_everything_from_some_message_on_cannot_be_accused(court):
    """Only a later message shows that one is missing."""
    taken = court._frame

    def drop(name, stimulus):
        if name != "n1" or not is_signed(stimulus.envelope):
            taken(name, stimulus)

    court._frame = drop
    for text in ("for n2 alone", "and no end to it"):
        court.says("n0", SendPost(court.id, text))
    assert court.group("n1").streams[court.did("n0")].time < court.group("n0").stream.time
    court.later()
    with pytest.raises(NothingMissing):
        court.accuse()


def test_nobody_is_accused_before_it_is_time(court):
    court.withhold("for some")
    came = parse_data(next(iter(court.group("n1").early[court.did("n0")].messages.values())))
    due = came.time + 14 * MINUTE
    with pytest.raises(TooEarly, match="until 20"):
        court.accuse(at=due - 1)
    assert court.accuse(at=due).accusation.time == due


def test_whoever_has_agreed_to_no_rules_is_not_accused(court, monkeypatch):
    court.withhold("for some")
    court.later()
    monkeypatch.setattr(court.shelf, "rules", replace(court.shelf.rules, skew_ms=5))
    with pytest.raises(NotAccountable):
        court.accuse()


def test_nobody_is_accused_twice_of_the_same(court):
    court.withhold("for some")
    court.later()
    docket, cases = court.accuse(), court.journal("n1").cases
    case = kept(docket.accusation, court.shelf.rules.origin, docket, court.now)
    cases.begin(court.id, case)
    with pytest.raises(AccusedAlready):
        court.accuse()
    assert cases.all(court.id) == cases.open(court.id) == [case]
    made = Answer("posted", b"blob", MADE)
    cases.answer(court.id, docket.digest, made)
    cases.answer(court.id, docket.digest, replace(made, state=POSTED))
    assert cases.answers(court.id, docket.digest) == [replace(made, state=POSTED)]
    cases.decided(court.id, docket.digest, UPHELD, court.did("n0"))
    cases.told(court.id, docket.digest, UPHELD)
    assert cases.one(court.id, docket.digest) == replace(case, verdict=UPHELD, told=UPHELD)
    assert not cases.open(court.id)
    cases.forget(court.id)
    assert not cases.all(court.id) and court.accuse()


def test_what_was_in_the_log_in_time_was_not_withheld(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 9 * MINUTE, "message", court.did("n0"), link)
    court.later()
    docket = court.accuse()
    court.file(docket)
    assert court.answer(docket) is Posted
    assert court.verdict(docket) == DISMISSED


def test_what_was_in_the_log_too_late_is_not_claimed(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 16 * MINUTE, "message", court.did("n0"), link)
    court.later(20 * MINUTE)
    docket = court.accuse()
    court.file(docket)
    assert court.answer(docket) is None
    assert court.verdict(docket) == UPHELD


def test_who_accuses_and_has_acknowledged_it_is_a_false_accuser(court):
    docket = lying(court)
    court.file(docket)
    assert court.answer(docket) is Acknowledged
    assert court.verdict(docket) == FALSE_ACCUSATION


def lying(court):
    """The accusation of somebody who says that it lacks what it has acknowledged."""
    for text in ("one", "two", "three"):
        court.says("n0", SendPost(court.id, text))
    court.later()
    group, (*_, came, last) = court.group("n1"), court.messages("n1", "n0")
    assert last.before == came.signature
    group = replace(group, early={court.did("n0"): Early({came.before: came.message})})
    with pytest.raises(NothingMissing):
        accuse(court.journal("n1"), court.shelf, group, court.did("n0"), court.now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accusations, "_is_here", lambda *_: False)
        return accuse(court.journal("n1"), court.shelf, group, court.did("n0"), court.now)


def test_what_a_publisher_has_ended_in_the_log_it_does_not_owe(court, monkeypatch):
    accept = court.group("n1").streams[court.did("n0")].accept
    close = Close(time=court.now, accept=accept, by=court.did("n0")).signed(court.group("n0").seed)
    court.shelf.post(court.now, "close", close.by, close.written())
    court.later(MINUTE)
    court.withhold("for some")
    court.later()
    with pytest.raises(SubscriptionEnded):
        court.accuse()
    monkeypatch.setattr(accusations, "ended", lambda *_: None)
    docket = court.accuse()
    court.file(docket)
    assert court.answer(docket) is Ended
    assert court.verdict(docket) == DISMISSED


@pytest.mark.parametrize(("by", "ground", "verdict"), [("n1", Closed, DISMISSED), ("n2", None, UPHELD)])
def test_what_a_subscriber_has_ended_itself_is_not_owed(court, by, ground, verdict):
    accept = court.group("n1").streams[court.did("n0")].accept
    close = Close(time=court.now, accept=accept, by=court.did(by)).signed(court.group(by).seed)
    statement = KeepStatement(court.id, court.did("n1"), "close", close.digest, close.written(), court.now)
    court.noted.setdefault("n0", []).append(statement)
    court.withhold("for some")
    court.later()
    docket = court.accuse()
    court.file(docket)
    assert court.answer(docket) is ground
    assert court.verdict(docket) == verdict


def test_the_same_is_judged_once(court):
    court.withhold("for some")
    court.later()
    first = court.accuse()
    court.file(first)
    court.later(MINUTE)
    second = court.accuse()
    court.file(second)
    assert second.digest != first.digest
    assert court.answer(first) is None
    assert court.answer(second) is Repeated
    assert court.verdict(second) == REPEATED
    assert court.verdict(first) == UPHELD


def test_an_accusation_of_something_else_is_nobodys(court):
    court.withhold("for some")
    court.later()
    docket = court.accuse()
    other = replace(docket.accusation, message="A" * 43).signed(court.group("n1").seed)
    assert against_us(court.journal("n0"), court.group("n0"), other) is None
    assert against_us(court.journal("n2"), court.group("n2"), docket.accusation) is None
    assert against_us(court.journal("n0"), court.group("n0"), docket.accusation) == docket
    assert parse_accusation(docket.accusation.written()) == docket.accusation
    for blob in (b"", b"{}", docket.accusation.written()[:-1], replace(docket.accusation, since=9).written()):
        assert parse_accusation(blob) is None


def test_a_docket_that_was_changed_is_refused(court):
    court.withhold("for some")
    court.later()
    docket = court.accuse()
    docket.check()
    assert parse_docket(docket.written()) == docket
    request, accept, confirm = docket.subscription
    for wrong in (
        replace(docket, message=docket.message[:-1] + bytes([docket.message[-1] ^ 1])),
        replace(docket, accusation=replace(docket.accusation, since=7)),
        replace(docket, subscription=(request, accept, replace(confirm, time=1))),
        replace(docket, reopened=(docket.subscription,)),
    ):
        with pytest.raises(RemoteError):
            wrong.check()
    for written in (b"", b"{}", b"[]", docket.written()[:-3]):
        with pytest.raises(RemoteError):
            parse_docket(written)


def test_who_begins_anew_does_not_cover_what_was_withheld_before(court):
    """The publisher loses its hold on the subscriber, which asks anew and acknowledges what comes then."""
    court.withhold("for some")
    alias = b64url(court.group("n0").stream.alias)
    lost = court.group("n1").early
    turn = court.turn("n1")
    turn.edit(court.id, streams={did: one for did, one in court.group("n1").streams.items() if did != court.did("n0")})
    court.nodes["n1"].agent = turn.agent
    court.run(for_ms=20_000)
    court.says("n0", SendPost(court.id, "after that"))
    assert "after that" in court.texts("n1")
    court.later()
    group = replace(court.group("n1"), early=lost)
    docket = accuse(court.journal("n1"), court.shelf, group, court.did("n0"), court.now)
    assert [one[1].alias for one in docket.reopened] == [alias]
    assert docket.subscription[1].time < docket.reopened[0][1].time
    court.file(docket)
    assert court.answer(docket) is None, "what it has acknowledged there says nothing of before"
    assert court.verdict(docket) == UPHELD


# --- what waits no longer ---------------------------------------------------------------------------------------------


def keeping_a_log(court, name="n1"):
    """One of them is in a group that wants a log, as its view says."""
    turn = court.turn(name)
    turn.edit(court.id, view=replace(court.group(name).view, ledger=True))
    court.nodes[name].agent = turn.agent


def begins_anew(court):
    """n1 loses its hold on n0's stream, asks anew, and gets what comes then."""
    keeping_a_log(court)
    turn = court.turn("n1")
    turn.edit(court.id, streams={did: one for did, one in court.group("n1").streams.items() if did != court.did("n0")})
    court.nodes["n1"].agent = turn.agent
    court.run(for_ms=20_000)
    court.says("n0", SendPost(court.id, "after that"))
    assert "after that" in court.texts("n1") and not court.group("n1").early


def test_what_was_withheld_can_be_shown_though_nothing_waits_for_it_any_more(court):
    court.withhold("for some")
    begins_anew(court)
    court.later()
    docket = court.accuse()
    assert len(docket.reopened) == 1
    court.file(docket)
    assert court.answer(docket) is None
    assert court.verdict(docket) == UPHELD


def test_what_has_come_out_of_the_log_is_not_missing_any_more(court):
    lost = court.withhold("for some")
    begins_anew(court)
    court.later()
    assert court.accuse()
    turn = court.turn("n1")
    receiver.hear_posted(turn, court.id, court.did("n0"), lost)
    court.noted.setdefault("n1", []).extend(one for one in turn.effects if isinstance(one, Remembered))
    assert not [one for one in turn.effects if isinstance(one, effects.KeepMessage)], "it is in no stream of ours"
    with pytest.raises(NothingMissing):
        court.accuse()


@pytest.mark.parametrize("place", range(3))
def test_whoever_signs_two_messages_in_one_place_draws_nobody_into_a_false_accusation(court, place):
    """The second one waits, and names something that is here, or behind which we began: it was acknowledged."""
    for text in ("one", "two", "three"):
        court.says("n0", SendPost(court.id, text))
    group, own = court.group("n0"), court.group("n0").stream
    named = [court.messages("n1", "n0")[0].before, *(one.signature for one in court.messages("n1", "n0"))][place]
    again = data(group.seed, own.time + 9, own.alias, b"\x01" * 40, named)
    turn = court.turn("n1")
    receiver.hear(turn, court.id, group.me, again.written())
    court.nodes["n1"].agent = turn.agent
    assert court.group("n1").early[group.me].messages == {named: again.written()}
    court.later()
    with pytest.raises(NothingMissing):
        court.accuse()


def test_what_waits_is_kept_where_its_author_goes_or_its_key_is_lost(court):
    court.withhold("for some")
    keeping_a_log(court)
    member = court.did("n0")
    (waiting,) = court.group("n1").early[member].messages.values()
    stream = court.group("n1").streams[member]
    broken = data(court.group("n0").seed, stream.time + 1, stream.alias, b"\x01" * 300, stream.head)

    def is_gone(turn):
        own.forget(turn, court.id, member)

    def is_lost(turn):
        receiver.hear(turn, court.id, member, broken.written())

    def begins_elsewhere(turn):
        own.begin_anew(turn, court.id)

    for happens in (is_gone, is_lost, begins_elsewhere):
        turn = court.turn("n1")
        happens(turn)
        assert member not in turn.group(court.id).early
        strays = [one for one in turn.effects if isinstance(one, KeepStray)]
        assert [one.message for one in strays if one.message] == [waiting]
        came = [one.signature for one in strays if not one.message]
        assert came == ([broken.signature] if happens is is_lost else [])


def test_what_does_not_fit_the_stream_is_not_taken_in_however_it_has_waited(court):
    """It was held before the stream was known: it names the right message, and is of another stream, or too old."""
    keeping_a_log(court)
    court.says("n0", SendPost(court.id, "hello"))
    group, member = court.group("n1"), court.did("n0")
    stream = group.streams[member]
    seed = court.group("n0").seed
    for time, alias in ((stream.time, stream.alias), (stream.time + 1, b"another of them.")):
        turn = court.turn("n1")
        odd = data(seed, time, alias, b"\x01" * 300, stream.head).written()
        turn.edit(court.id, early={member: Early({stream.head: odd})})
        receiver.follow(turn, court.id, member)
        assert turn.group(court.id).streams[member] == stream
        assert [one.message for one in turn.effects if isinstance(one, KeepStray)] == [odd]


def test_a_case_is_void_where_the_accuser_did_not_wait(court):
    court.withhold("for some")
    docket = court.accuse(at=court.now + DUE)
    court.file(docket)
    assert court.verdict(docket) == VOID


def test_whoever_lacks_a_defence_knows_that_it_cannot_judge_yet(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 9 * MINUTE, "message", court.did("n0"), link)
    court.later()
    docket = court.accuse()
    court.file(docket)
    court.answer(docket)
    kept = dict(court.shelf.blobs)
    court.shelf.blobs.clear()
    assert court.verdict(docket) == OPEN
    court.shelf.blobs.update(kept)
    assert court.verdict(docket) == DISMISSED


def test_a_case_with_too_much_in_between_is_told(court, monkeypatch):
    court.withhold("for some")
    court.later()
    docket = court.accuse()
    court.file(docket)
    monkeypatch.setattr(case_builder, "ENTRIES_MAX", 1)
    for n in range(2):
        court.shelf.post(court.now + n, "message", court.did("n2"), b"%d" % n)
    with pytest.raises(case_builder.TooMuchInBetween):
        case_of(court.shelf, court.id, court.shelf.rules, docket)


# --- what is done without being asked ---------------------------------------------------------------------------------


def begun(court, by="n1", **more):
    """Somebody accuses n0, as the verb does."""
    docket = court.accuse(by=by, **more)
    court.journal(by).cases.begin(court.id, kept(docket.accusation, court.shelf.rules.origin, docket, court.now))
    return docket


def test_an_honest_publisher_answers_by_itself_and_everybody_sees_that_it_has_not_cheated(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 9 * MINUTE, "message", court.did("n0"), link)
    court.later()
    docket = begun(court)
    assert [type(one).__name__ for one in court.counsel("n1")] == ["PostToLog"], "the core has not heard of it yet"
    (answer,) = court.counsel("n0")
    assert (answer.kind, answer.about) == ("defence", docket.digest)
    assert not court.counsel("n0") and not court.counsel("n1"), "nothing is said twice, and nothing is over"
    assert court.known("n0") == court.known("n1") == [("n0", "")]
    court.counsels.clear()
    assert not court.counsel("n0"), "nor after a restart"
    court.counsel("n2")
    assert court.known("n2") == [("", "")], "whoever is neither of the two does not know yet what it is about"
    court.later(25 * MINUTE)
    court.shelf.tick(court.now)
    (said,) = court.counsel("n1")
    assert (said.what.outcome, said.what.against) == (DISMISSED, court.did("n0"))
    assert court.counsel_of_all() == {"n0": [], "n1": [], "n2": []}
    assert {name: court.known(name) for name in court.nodes} == {key: [("n0", DISMISSED)] for key in court.nodes}


def test_whoever_cheats_is_found_out_by_everybody_itself(court):
    court.withhold("for some")
    court.later()
    begun(court)
    court.counsel("n1")
    assert not court.counsel("n0"), "it has nothing to say for itself"
    court.later(25 * MINUTE)
    court.shelf.tick(court.now)
    (said,) = court.counsel("n1")
    assert said.what.outcome == UPHELD
    court.counsel_of_all()
    assert {name: court.known(name) for name in court.nodes} == {key: [("n0", UPHELD)] for key in court.nodes}


def test_what_is_told_of_a_case_and_is_not_so_is_not_believed(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 9 * MINUTE, "message", court.did("n0"), link)
    court.later()
    docket = begun(court)
    court.counsel("n1")
    court.counsel("n0")
    court.says("n1", Say(court.id, verdicts.verdict_on(docket, UPHELD)))
    other = replace(verdicts.verdict_on(docket, UPHELD), against=court.did("n2"))
    court.says("n1", Say(court.id, other))
    court.says("n1", Say(court.id, replace(other, shown={"docket": "none"})))
    court.counsel_of_all()
    assert court.known("n2") == [("", "")], "the window is open"
    court.later(25 * MINUTE)
    court.shelf.tick(court.now)
    court.counsel_of_all()
    assert court.known("n2") == [("n0", DISMISSED)], "what it shows is enough to work it out"


def test_what_is_told_of_a_case_may_be_anything(court, monkeypatch, caplog):
    """Whoever may write can tell it, of any case that is open; and no fault in one case keeps us from another."""
    court.withhold("for some")
    court.later()
    docket = begun(court)
    court.counsel("n1")
    wrong = "A" * 42 + "B"
    with pytest.raises(RemoteError):
        b64url_bytes(wrong)
    nowhere = replace(docket, message=b"", accusation=replace(docket.accusation, message=wrong))
    court.says("n1", Say(court.id, replace(verdicts.verdict_on(docket, UPHELD), shown={"docket": shown(nowhere)})))
    court.counsel_of_all()
    assert not caplog.records and {name: len(court.known(name)) for name in court.nodes} == dict.fromkeys(
        court.nodes, 1
    )

    def fails(*_):
        raise fault

    for fault in (Malformed(why="bytes"), ValueError("bytes")):
        monkeypatch.setattr(verdicts, "docket_of", fails)
        court.later()
        assert not court.counsel("n1")
        assert ("ValueError" in caplog.text) is isinstance(fault, ValueError)
        assert "could not be looked at: Malformed" in caplog.text


def shown(docket):
    return json.loads(docket.written())


def test_an_accusation_that_cannot_be_read_does_not_keep_anybody_from_those_behind_it(court, monkeypatch):
    docket = lying(court)
    court.shelf.post(court.now, "accusation", court.did("n2"), b"something")
    strange = court.shelf.ledger.records[-1]
    court.file(docket)

    def blob(group, hash_):
        if hash_ == parse_entry(strange).hash:
            raise Malformed(why="bytes")
        return held(group, hash_)

    held = court.shelf.blob
    monkeypatch.setattr(court.shelf, "blob", blob)
    (answer,) = court.counsel("n0")
    assert (answer.kind, answer.about) == ("defence", docket.digest)


def test_what_was_asked_before_a_fault_is_asked(court, monkeypatch, caplog):
    """Or nobody would be answered in the first case, since its answer would be waited for without end."""
    court.file(lying(court))
    monkeypatch.setattr(Counsel, "_convict", lambda *_: [][0])
    (answer,) = court.counsel("n0")
    assert answer.kind == "defence" and "IndexError" in caplog.text


def test_a_defence_that_the_log_does_not_take_gives_way_to_the_next(court):
    docket = lying(court)
    court.file(docket)
    link = parse_data(court.journal("n0").signed.behind(court.id, court.did("n0"), *place(docket)).message)
    own = court.journal("n0").signed.last_before(court.id, court.did("n0"), link.alias, link.time)
    court.shelf.post(own.time + MINUTE, "message", court.did("n0"), own.message)
    counsel = Counsel(court.journal("n0"), logging.getLogger("counsel"), court.shelf)
    grounds = []
    settled = [
        lambda ticket: counsel.settle(effects.Refuse(ticket, NotForTheLog(why="it is too long"))),
        lambda ticket: counsel.fail(Ask(ticket, SendPost("", ""))),
        lambda ticket: counsel.settle(effects.Answer(ticket, Changed(court.id))),
    ]
    for number, settle in enumerate(settled):
        (ask,) = counsel.review(court.nodes["n0"].agent, court.now + 10**6 * number)
        grounds.append(parse_defence(ask.command.blob).ground.__class__)
        assert not counsel.review(court.nodes["n0"].agent, court.now + 10**9), "it waits for the answer"
        settle(ask.ticket)
    assert grounds == [Acknowledged, Posted, Posted]
    assert not counsel.review(court.nodes["n0"].agent, court.now + 2 * 10**9)


def place(docket):
    return b64url_bytes(docket.subscription[1].alias), b64url_bytes(docket.accusation.missing)


def test_two_words_in_one_place_are_told_by_whoever_has_both(court):
    court.says("n0", SendPost(court.id, "one"))
    one, own = court.messages("n1", "n0")[-1], court.group("n0").stream
    other = data(court.group("n0").seed, own.time + 5, own.alias, one.message[56:-128], one.before)
    taking_in(court, "n1", other.written())
    (said,) = court.counsel("n1")
    assert (said.what.outcome, said.what.against) == (FORKED, court.did("n0"))
    assert not court.counsel("n1")
    court.counsel_of_all()
    assert {name: court.known(name) for name in court.nodes} == {key: [("n0", FORKED)] for key in court.nodes}
    taking_in(court, "n2", other.written())
    assert not court.counsel("n2"), "it is known"
    false = replace(said.what, against=court.did("n2"))
    court.says("n1", Say(court.id, false))
    court.says("n1", Say(court.id, replace(said.what, outcome=TURNED_BACK)))
    court.counsel_of_all()
    assert court.known("n2") == [("n0", FORKED)]
    (rivals,) = court.journal("n1").signed.rivals(court.id)
    case = verdicts.case_of_two(court.journal("n1"), court.group("n1"), rivals)
    assert case is not None and judge(parse_case(case.written())).guilty == [FORKED]


def taking_in(court, name, written):
    turn = court.turn(name)
    receiver.hear(turn, court.id, court.did("n0"), written)
    for effect in turn.effects:
        if isinstance(effect, Remembered):
            court.noted.setdefault(name, []).append(effect)


def test_a_verdict_that_is_none_is_not_said_and_not_read(court):
    court.withhold("for some")
    court.later()
    good = verdicts.verdict_on(court.accuse(), UPHELD)
    assert read_verdict(good.body) == good
    for wrong in (
        replace(good, outcome="guilty"),
        replace(good, outcome=OPEN),
        replace(good, of="x"),
        replace(good, against="nobody"),
        replace(good, shown={"docket": "x" * VERDICT_BYTES_MAX}),
    ):
        court.refuses("n1", Say(court.id, wrong), BadVerdict)
        with pytest.raises(RemoteError):
            read_verdict(wrong.body)
    for body in ({}, {**good.body, "shown": []}, {**good.body, "of": 5}):
        with pytest.raises(RemoteError):
            read_verdict(body)


def test_a_long_message_is_not_told_with_a_verdict_and_found_by_whoever_has_it(court):
    court.withhold("for some" + "x" * 60_000)
    court.later()
    docket = court.accuse()
    long = replace(docket, message=docket.message + bytes(VERDICT_BYTES_MAX))
    told = verdicts.verdict_on(long, UPHELD)
    assert told.shown["docket"]["message"] == ""
    assert verdicts.docket_in(court.shelf, court.id, told) is None
    court.shelf.blobs[docket.accusation.message] = docket.message
    assert verdicts.docket_in(court.shelf, court.id, told) == docket


# --- what somebody says who lies ------------------------------------------------------------------------------------


def test_an_accusation_that_names_no_signature_is_passed_over(court):
    court.withhold("for some")
    court.later()
    docket = court.accuse()
    said = replace(docket.accusation, missing="no signature").signed(court.group("n1").seed)
    court.shelf.post(court.now, "accusation", said.by, said.written())
    assert court.counsel_of_all() == {"n0": [], "n1": [], "n2": []}
    court.file(docket)
    court.counsel("n0")
    assert (court.did("n0"), "") in [(one.accused, one.verdict) for one in court.journal("n0").cases.all(court.id)]


def test_who_has_never_confirmed_is_answered_too(court, monkeypatch):
    """It keeps its confirmation to itself until nobody can answer any more."""
    docket = lying(court)
    confirm = docket.subscription[2].digest
    held = court.journal("n0").signed.statements
    monkeypatch.setattr(
        court.journal("n0").signed,
        "statements",
        lambda group, member: [one for one in held(group, member) if one.digest != confirm],
    )
    court.file(docket)
    (answer,) = court.counsel("n0")
    assert (answer.kind, answer.about) == ("defence", docket.digest)
    assert court.verdict(docket) == FALSE_ACCUSATION


def test_what_is_filed_in_another_log_first_is_answered_where_it_counts(court, monkeypatch):
    docket = lying(court)
    said = docket.accusation
    monkeypatch.setattr(dispute_parties, "TOPIC", "another")
    other = Shelf(2)
    book = TwoLogs(other, court.shelf)
    counsel = Counsel(court.journal("n0"), logging.getLogger("counsel"), book)
    other.post(court.now, "accusation", said.by, said.written())
    assert not counsel.review(court.nodes["n0"].agent, court.now)
    court.file(docket)
    (ask,) = counsel.review(court.nodes["n0"].agent, court.now + 10**6)
    assert ask.command.origin == court.shelf.rules.origin
    court.post_to_log("n0", ask.command)
    assert court.verdict(docket) == FALSE_ACCUSATION


class TwoLogs:
    """The log before and the one in force, of one group."""

    def __init__(self, *logs):
        self.logs = {one.rules.origin: one for one in logs}

    def origins(self, group):
        return [one.rules for one in self.logs.values()]

    def blob(self, group, hash_):
        return next((found for one in self.logs.values() if (found := one.blob(group, hash_)) is not None), None)

    def __getattr__(self, name):
        return lambda group, origin, *more: getattr(self.logs[origin], name)(group, origin, *more)


def test_who_names_a_later_subscription_that_it_never_confirmed_is_answered_too(court, monkeypatch):
    docket = lying(court)
    request = Request(
        time=court.now, topic=court.id, subscriber=court.did("n1"), publisher=court.did("n0"), nonce=""
    ).signed(court.group("n1").seed)
    accept = replace(
        docket.subscription[1], time=court.now, request=request.digest, overwrite="", start=b64url(b"s" * 64)
    ).signed(court.group("n0").seed)
    for one in (request, accept):
        kept_ = KeepStatement(
            court.id, court.did("n1"), type(one).__name__.lower(), one.digest, one.written(), court.now
        )
        court.noted.setdefault("n0", []).append(kept_)
    confirm = Confirm(time=court.now, accept=accept.digest, subscriber=court.did("n1")).signed(court.group("n1").seed)
    said = replace(docket.accusation, reopened=(accept.digest,)).signed(court.group("n1").seed)
    docket = replace(docket, accusation=said, reopened=((request, accept, confirm),))
    docket.check()
    court.file(docket)
    (answer,) = court.counsel("n0")
    assert (answer.kind, answer.about) == ("defence", docket.digest)
    assert court.verdict(docket) == FALSE_ACCUSATION


def test_what_is_filed_before_the_place_that_it_names_is_answered_when_it_counts(court):
    """It is void there; what was said to it there would stand before all that a case shows."""
    docket = lying(court)
    since = court.shelf.size(court.id, "") + 3
    docket = replace(docket, accusation=replace(docket.accusation, since=since).signed(court.group("n1").seed))
    court.file(docket)
    assert not court.counsel("n0")
    court.shelf.post(court.now, "message", court.did("n1"), b"one")
    court.shelf.post(court.now, "message", court.did("n1"), b"two")
    court.file(docket)
    court.counsels["n0"].heed(court.id)
    (answer,) = court.counsel("n0")
    assert (answer.kind, answer.about) == ("defence", docket.digest)
    assert court.verdict(docket) == FALSE_ACCUSATION


def test_whoever_has_acknowledged_long_messages_one_by_one_is_answered(court):
    """Of a stretch the last acknowledgement stays, and the way there may be too long for a defence."""
    for number in range(6):
        court.says("n0", SendPost(court.id, b64url(random.Random(number).randbytes(45_000))))
    court.later()
    came = court.messages("n1", "n0")[-5]
    group = replace(court.group("n1"), early={court.did("n0"): Early({came.before: came.message})})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accusations, "_is_here", lambda *_: False)
        docket = accuse(court.journal("n1"), court.shelf, group, court.did("n0"), court.now)
    court.file(docket)
    assert court.answer(docket) is Acknowledged
    assert court.verdict(docket) == FALSE_ACCUSATION
