"""Disputes in one group: detection, accusation, defence and identical verdicts of all members."""

import json
import logging
import random

import pytest
from msgspec.structs import replace

from tests.support import dispute_parties
from tests.support.journals import KEY, Tree
from tests.support.memory_tlog import Shelf
from tests.support.signed_world import Signed
from zerochat.agent.disputes import accusations, case_builder, verdicts
from zerochat.agent.disputes.accusations import (
    AlreadyAccused,
    NotAccountable,
    NothingMissing,
    SubscriptionEnded,
    TooEarly,
    accuse,
)
from zerochat.agent.disputes.case_builder import NotFiled, case_of
from zerochat.agent.disputes.case_files import case_file_against_us, charge_of, parse_case_file, stored_case
from zerochat.agent.disputes.defences import defences, parse_accusation
from zerochat.agent.disputes.monitor import DisputeMonitor
from zerochat.agent.storage.disputes import MADE, POSTED, StoredDefence
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
    TIME_REVERSED,
    UPHELD,
    VOID,
    judge,
)
from zerochat.evidence.messages import data, parse_data
from zerochat.evidence.witness import parse_entry
from zerochat.group import effects
from zerochat.group.effects import GroupChanged, JournalEffect, StoreRejectedMessage, StoreStatement
from zerochat.group.inputs import CommandInput, SendContent, SendPost, SubmitTlogEntry
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.signed_streams import publisher, receiver, statements
from zerochat.group.state import EarlyMessage, EarlyMessages
from zerochat.group.tlog.submission import InvalidTlogEntry
from zerochat.group.tlog.verdicts import VERDICT_BYTES_MAX, BadVerdict, read_verdict

MINUTE = 60_000
DUE = 15 * MINUTE
"""Longer than a publisher's deadline with both clocks off."""


class Court(Signed):
    """Three members with one transparency log, each with a journal."""

    def __init__(self, folder, shelf):
        self.shelf, self.held_back, self.noted = shelf, set(), {}
        super().__init__(3)
        self.counsels = {}
        self.folder, self.journals = folder, {}

    def _perform(self, node, effect):
        if isinstance(effect, JournalEffect):
            self.noted.setdefault(node.name, []).append(effect)
        super()._perform(node, effect)

    def _frame(self, name, stimulus):
        if (name, stimulus.envelope[-64:]) not in self.held_back:
            super()._frame(name, stimulus)

    def withhold(self, text, whom="n1", by="n0"):
        """A post withheld from one member, and a later one delivered to all. Returns the withheld one."""
        own = self.group(by).streams.own
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
            self.run_command(by, SendPost(self.id, text))
            self.run(for_ms=300)
        finally:
            del self._frame
        assert lost
        self.run_command(by, SendPost(self.id, text + " and more"))
        self.run(for_ms=3_000)
        return lost[0]

    def journal(self, name):
        """A member's stored state, on disk."""
        if name not in self.journals:
            self.journals[name] = Journal.create(self.folder / f"{name}.db", KEY)
        self.journals[name].commit(Tree(name), self.noted.pop(name, []))
        return self.journals[name]

    def accuse(self, by="n1", whom="n0", at=None):
        group = self.group(by)
        return accuse(self.journal(by), self.shelf, group, self.did(whom), self.now if at is None else at)

    def file(self, case_file, after_ms=0):
        said = case_file.accusation
        self.shelf.post(self.now + after_ms, "accusation", said.accuser, said.serialize())

    def answer(self, case_file, by="n0"):
        """The accused reviews and posts."""
        ours = charge_of(self.journal(by), self.group(by), case_file.accusation)
        if ours is None:
            return None
        for _, written in defences(self.journal(by), self.shelf, self.group(by), self.shelf.rules, ours):
            self.shelf.post(self.now + MINUTE, "defence", self.did(by), written, case_file.digest, self.group(by).seed)
            return type(parse_defence(written).ground)
        return None

    def dispute_monitor(self, name):
        """Execute the commands of a member's dispute monitor."""
        if name not in self.counsels:
            self.counsels[name] = DisputeMonitor(self.journal(name), logging.getLogger("dispute_monitor"), self.shelf)
        self.journal(name)
        asks = self.counsels[name].review(self.nodes[name].agent, self.now + len(self.counsels) * 10**9)
        for ask in asks:
            if isinstance(ask.command, SubmitTlogEntry):
                self.post_to_log(name, ask.command)
                self.counsels[name].settle(effects.CommandDone(ask.ticket, GroupChanged(self.id)))
            else:
                answer = self.run_command(name, ask.command)
                self.counsels[name].settle(effects.CommandDone(ask.ticket, answer.result))
        self.run(for_ms=3_000)
        return [ask.command for ask in asks]

    def post_to_log(self, name, command):
        seed = self.group(name).seed
        self.shelf.post(self.now, command.kind, self.did(name), command.blob, command.about, seed)

    def counsel_of_all(self):
        return {name: self.dispute_monitor(name) for name in self.nodes}

    def known(self, name):
        """A member's cases: accused and verdict."""
        names = {self.did(one): one for one in self.nodes}
        return [(names.get(one.accused, ""), one.verdict) for one in self.journal(name).cases.all_cases(self.id)]

    def verdict(self, case_file):
        """The verdict on the complete case, and on the case file, each decoded from its bytes."""
        self.shelf.tick(self.now + self.shelf.rules.window_ms + 2 * MINUTE)
        case = case_of(self.shelf, self.id, self.shelf.rules, parse_case_file(case_file.serialize()))
        found = judge(parse_case(case.serialize()))
        assert judge(case_of(self.shelf, self.id, self.shelf.rules, case_file)).findings == found.findings
        return found.delivery

    def later(self, ms=DUE):
        """Advance the time without any action."""
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


def test_withholding_is_upheld(court):
    court.withhold("for some")
    assert "for some and more" not in court.texts("n1"), "it waits for the one before"
    court.later()
    case_file = court.accuse()
    assert (case_file.accused, case_file.accusation.accuser) == (court.did("n0"), court.did("n1"))
    assert case_file.accusation.log_size == 1 and not case_file.reopened
    with pytest.raises(NotFiled):
        case_of(court.shelf, court.id, court.shelf.rules, case_file)
    court.file(case_file)
    assert judge(case_of(court.shelf, court.id, court.shelf.rules, case_file)).delivery == OPEN
    assert court.answer(case_file) is None, "there is nothing to be said for it"
    assert court.verdict(case_file) == UPHELD


def test_nothing_is_missing_between_honest_members(court):
    for n in range(4):
        court.says("n0", SendPost(court.id, f"{n}"))
    court.later()
    with pytest.raises(NothingMissing, match="No message from n0 is missing in friends"):
        court.accuse()
    with pytest.raises(NothingMissing):
        court.accuse(by="n0", whom="n2")


def test_withholding_a_whole_suffix_cannot_be_accused(court):
    """Only a later message reveals that one is missing."""
    taken = court._frame

    def drop(name, stimulus):
        if name != "n1" or not is_signed(stimulus.envelope):
            taken(name, stimulus)

    court._frame = drop
    for text in ("for n2 alone", "and no end to it"):
        court.says("n0", SendPost(court.id, text))
    assert court.group("n1").streams.followed[court.did("n0")].time < court.group("n0").streams.own.time
    court.later()
    with pytest.raises(NothingMissing):
        court.accuse()


def test_premature_accusations_are_refused(court):
    court.withhold("for some")
    came = parse_data(court.group("n1").streams.early_messages[court.did("n0")].written[0])
    due = came.time + 14 * MINUTE
    with pytest.raises(TooEarly, match="until 20"):
        court.accuse(at=due - 1)
    assert court.accuse(at=due).accusation.time == due


def test_no_accusation_without_agreed_rules(court, monkeypatch):
    court.withhold("for some")
    court.later()
    monkeypatch.setattr(court.shelf, "rules", replace(court.shelf.rules, skew_ms=5))
    with pytest.raises(NotAccountable):
        court.accuse()


def test_no_second_accusation_for_the_same_link(court):
    court.withhold("for some")
    court.later()
    case_file, cases = court.accuse(), court.journal("n1").cases
    case = stored_case(case_file.accusation, court.shelf.rules.origin, case_file, court.now)
    cases.add(court.id, case)
    with pytest.raises(AlreadyAccused):
        court.accuse()
    assert cases.all_cases(court.id) == cases.open_cases(court.id) == [case]
    made = StoredDefence("posted", b"blob", MADE)
    cases.put_defence(court.id, case_file.digest, made)
    cases.put_defence(court.id, case_file.digest, replace(made, state=POSTED))
    assert cases.defences(court.id, case_file.digest) == [replace(made, state=POSTED)]
    cases.set_verdict(court.id, case_file.digest, UPHELD, court.did("n0"))
    cases.set_announced(court.id, case_file.digest, UPHELD)
    assert cases.find(court.id, case_file.digest) == replace(case, verdict=UPHELD, announced=UPHELD)
    assert not cases.open_cases(court.id)
    cases.forget(court.id)
    assert not cases.all_cases(court.id) and court.accuse()


def test_timely_post_refutes_withholding(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 9 * MINUTE, "message", court.did("n0"), link)
    court.later()
    case_file = court.accuse()
    court.file(case_file)
    assert court.answer(case_file) is Posted
    assert court.verdict(case_file) == DISMISSED


def test_late_post_is_not_claimed(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 16 * MINUTE, "message", court.did("n0"), link)
    court.later(20 * MINUTE)
    case_file = court.accuse()
    court.file(case_file)
    assert court.answer(case_file) is None
    assert court.verdict(case_file) == UPHELD


def test_accuser_with_acknowledgement_is_a_false_accuser(court):
    case_file = lying(court)
    court.file(case_file)
    assert court.answer(case_file) is Acknowledged
    assert court.verdict(case_file) == FALSE_ACCUSATION


def lying(court):
    """An accusation by a member that lacks what it acknowledged."""
    for text in ("one", "two", "three"):
        court.says("n0", SendPost(court.id, text))
    court.later()
    group, (*_, came, last) = court.group("n1"), court.messages("n1", "n0")
    assert last.before == came.signature
    group = replace(
        group,
        streams=replace(
            group.streams, early_messages={court.did("n0"): EarlyMessages({came.before: EarlyMessage(came.message)})}
        ),
    )
    with pytest.raises(NothingMissing):
        accuse(court.journal("n1"), court.shelf, group, court.did("n0"), court.now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accusations, "_has_arrived", lambda *_: False)
        return accuse(court.journal("n1"), court.shelf, group, court.did("n0"), court.now)


def test_logged_end_of_subscription_ends_obligations(court, monkeypatch):
    accept = court.group("n1").streams.followed[court.did("n0")].accept
    close = Close(time=court.now, accept=accept, author=court.did("n0")).signed(court.group("n0").seed)
    court.shelf.post(court.now, "close", close.author, close.serialize())
    court.later(MINUTE)
    court.withhold("for some")
    court.later()
    with pytest.raises(SubscriptionEnded):
        court.accuse()
    monkeypatch.setattr(accusations, "ended_subscription", lambda *_: None)
    case_file = court.accuse()
    court.file(case_file)
    assert court.answer(case_file) is Ended
    assert court.verdict(case_file) == DISMISSED


@pytest.mark.parametrize(("by", "ground", "verdict"), [("n1", Closed, DISMISSED), ("n2", None, UPHELD)])
def test_subscriber_close_ends_obligations(court, by, ground, verdict):
    accept = court.group("n1").streams.followed[court.did("n0")].accept
    close = Close(time=court.now, accept=accept, author=court.did(by)).signed(court.group(by).seed)
    statement = StoreStatement(court.id, court.did("n1"), "close", close.digest, close.serialize(), court.now)
    court.noted.setdefault("n0", []).append(statement)
    court.withhold("for some")
    court.later()
    case_file = court.accuse()
    court.file(case_file)
    assert court.answer(case_file) is ground
    assert court.verdict(case_file) == verdict


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


def test_accusation_with_unknown_message_has_no_charge(court):
    court.withhold("for some")
    court.later()
    case_file = court.accuse()
    other = replace(case_file.accusation, message="A" * 43).signed(court.group("n1").seed)
    assert case_file_against_us(court.journal("n0"), court.group("n0"), other) is None
    assert case_file_against_us(court.journal("n2"), court.group("n2"), case_file.accusation) is None
    assert case_file_against_us(court.journal("n0"), court.group("n0"), case_file.accusation) == case_file
    assert parse_accusation(case_file.accusation.serialize()) == case_file.accusation
    for blob in (
        b"",
        b"{}",
        case_file.accusation.serialize()[:-1],
        replace(case_file.accusation, log_size=9).serialize(),
    ):
        assert parse_accusation(blob) is None


def test_changed_case_files_are_refused(court):
    court.withhold("for some")
    court.later()
    case_file = court.accuse()
    case_file.check()
    assert parse_case_file(case_file.serialize()) == case_file
    request, accept, confirm = case_file.subscription
    for wrong in (
        replace(case_file, message=case_file.message[:-1] + bytes([case_file.message[-1] ^ 1])),
        replace(case_file, accusation=replace(case_file.accusation, log_size=7)),
        replace(case_file, subscription=(request, accept, replace(confirm, time=1))),
        replace(case_file, reopened=(case_file.subscription,)),
    ):
        with pytest.raises(RemoteError):
            wrong.check()
    for written in (b"", b"{}", b"[]", case_file.serialize()[:-3]):
        with pytest.raises(RemoteError):
            parse_case_file(written)


def test_renewal_does_not_cover_earlier_withholding(court):
    """The publisher forgets the subscriber, which subscribes again and acknowledges later messages."""
    court.withhold("for some")
    alias = b64url(court.group("n0").streams.own.alias)
    lost = court.group("n1").streams.early_messages
    tx = court.tx("n1")
    tx.update_streams(
        court.id,
        followed={did: one for did, one in court.group("n1").streams.followed.items() if did != court.did("n0")},
    )
    court.nodes["n1"].agent = tx.agent
    court.run(for_ms=20_000)
    court.says("n0", SendPost(court.id, "after that"))
    assert "after that" in court.texts("n1")
    court.later()
    group = replace(court.group("n1"), streams=replace(court.group("n1").streams, early_messages=lost))
    case_file = accuse(court.journal("n1"), court.shelf, group, court.did("n0"), court.now)
    assert [one[1].alias for one in case_file.reopened] == [alias]
    assert case_file.subscription[1].time < case_file.reopened[0][1].time
    court.file(case_file)
    assert court.answer(case_file) is None, "what it has acknowledged there says nothing of before"
    assert court.verdict(case_file) == UPHELD


# --- orphaned messages ----------------------------------------------------------------------------------------------


def keeping_a_log(court, name="n1"):
    """The view of one member has a transparency log."""
    tx = court.tx(name)
    tx.update_group(court.id, view=replace(court.group(name).view, has_tlog=True))
    court.nodes[name].agent = tx.agent


def begins_anew(court):
    """n1 forgets n0's stream, subscribes again and receives later messages."""
    keeping_a_log(court)
    tx = court.tx("n1")
    tx.update_streams(
        court.id,
        followed={did: one for did, one in court.group("n1").streams.followed.items() if did != court.did("n0")},
    )
    court.nodes["n1"].agent = tx.agent
    court.run(for_ms=20_000)
    court.says("n0", SendPost(court.id, "after that"))
    assert "after that" in court.texts("n1") and not court.group("n1").streams.early_messages


def test_orphaned_messages_still_prove_withholding(court):
    court.withhold("for some")
    begins_anew(court)
    court.later()
    case_file = court.accuse()
    assert len(case_file.reopened) == 1
    court.file(case_file)
    assert court.answer(case_file) is None
    assert court.verdict(case_file) == UPHELD


def test_messages_from_the_log_are_not_missing(court):
    lost = court.withhold("for some")
    begins_anew(court)
    court.later()
    assert court.accuse()
    tx = court.tx("n1")
    receiver.receive_from_tlog(tx, court.id, court.did("n0"), lost)
    court.noted.setdefault("n1", []).extend(one for one in tx.effects if isinstance(one, JournalEffect))
    assert not [one for one in tx.effects if isinstance(one, effects.StoreSignedMessage)], "it is in no stream of ours"
    with pytest.raises(NothingMissing):
        court.accuse()


@pytest.mark.parametrize("place", range(3))
def test_forks_cause_no_false_accusation(court, place):
    """The second one waits, and names something that is here, or behind which we began: it was acknowledged."""
    for text in ("one", "two", "three"):
        court.says("n0", SendPost(court.id, text))
    group, own = court.group("n0"), court.group("n0").streams.own
    named = [court.messages("n1", "n0")[0].before, *(one.signature for one in court.messages("n1", "n0"))][place]
    again = data(group.seed, own.time + 9, own.alias, b"\x01" * 40, named)
    tx = court.tx("n1")
    receiver.receive_signed(tx, court.id, group.me, again.serialize())
    court.nodes["n1"].agent = tx.agent
    assert court.group("n1").streams.early_messages[group.me].messages == {named: EarlyMessage(again.serialize())}
    court.later()
    with pytest.raises(NothingMissing):
        court.accuse()


def test_early_messages_survive_leaving_and_key_loss(court):
    court.withhold("for some")
    keeping_a_log(court)
    member = court.did("n0")
    (waiting,) = court.group("n1").streams.early_messages[member].written
    stream = court.group("n1").streams.followed[member]
    broken = data(court.group("n0").seed, stream.time + 1, stream.alias, b"\x01" * 300, stream.head)

    def is_gone(tx):
        publisher.forget_member(tx, court.id, member)

    def is_lost(tx):
        receiver.receive_signed(tx, court.id, member, broken.serialize())

    def begins_elsewhere(tx):
        publisher.restart_stream(tx, court.id)

    for happens in (is_gone, is_lost, begins_elsewhere):
        tx = court.tx("n1")
        happens(tx)
        assert member not in tx.group(court.id).streams.early_messages
        strays = [one for one in tx.effects if isinstance(one, StoreRejectedMessage)]
        assert [one.message for one in strays if one.message] == [waiting]
        came = [one.signature for one in strays if not one.message]
        assert came == ([broken.signature] if happens is is_lost else [])


def test_inconsistent_early_messages_are_dropped(court):
    """It was held before the stream was known: it names the right message, and is of another stream, or too old."""
    keeping_a_log(court)
    court.says("n0", SendPost(court.id, "hello"))
    group, member = court.group("n1"), court.did("n0")
    stream = group.streams.followed[member]
    seed = court.group("n0").seed
    for time, alias in ((stream.time, stream.alias), (stream.time + 1, b"another of them.")):
        tx = court.tx("n1")
        odd = data(seed, time, alias, b"\x01" * 300, stream.head).serialize()
        tx.update_streams(court.id, early_messages={member: EarlyMessages({stream.head: EarlyMessage(odd)})})
        receiver.drain_buffer(tx, court.id, member)
        assert tx.group(court.id).streams.followed[member] == stream
        assert [one.message for one in tx.effects if isinstance(one, StoreRejectedMessage)] == [odd]


def test_a_case_is_void_where_the_accuser_did_not_wait(court):
    court.withhold("for some")
    case_file = court.accuse(at=court.now + DUE)
    court.file(case_file)
    assert court.verdict(case_file) == VOID


def test_missing_defence_leaves_the_case_open(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 9 * MINUTE, "message", court.did("n0"), link)
    court.later()
    case_file = court.accuse()
    court.file(case_file)
    court.answer(case_file)
    kept = dict(court.shelf.blobs)
    court.shelf.blobs.clear()
    assert court.verdict(case_file) == OPEN
    court.shelf.blobs.update(kept)
    assert court.verdict(case_file) == DISMISSED


def test_case_with_too_many_entries_is_reported(court, monkeypatch):
    court.withhold("for some")
    court.later()
    case_file = court.accuse()
    court.file(case_file)
    monkeypatch.setattr(case_builder, "ENTRIES_MAX", 1)
    for n in range(2):
        court.shelf.post(court.now + n, "message", court.did("n2"), b"%d" % n)
    with pytest.raises(case_builder.TooMuchInBetween):
        case_of(court.shelf, court.id, court.shelf.rules, case_file)


# --- automatic actions ----------------------------------------------------------------------------------------------


def begun(court, by="n1", **more):
    """Accuse n0, like the verb does."""
    case_file = court.accuse(by=by, **more)
    court.journal(by).cases.add(
        court.id, stored_case(case_file.accusation, court.shelf.rules.origin, case_file, court.now)
    )
    return case_file


def test_honest_publisher_defends_itself_automatically(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 9 * MINUTE, "message", court.did("n0"), link)
    court.later()
    case_file = begun(court)
    assert [type(one).__name__ for one in court.dispute_monitor("n1")] == ["SubmitTlogEntry"], (
        "the core has not heard of it yet"
    )
    (answer,) = court.dispute_monitor("n0")
    assert (answer.kind, answer.about) == ("defence", case_file.digest)
    assert not court.dispute_monitor("n0") and not court.dispute_monitor("n1"), (
        "nothing is said twice, and nothing is over"
    )
    assert court.known("n0") == court.known("n1") == [("n0", "")]
    court.counsels.clear()
    assert not court.dispute_monitor("n0"), "nor after a restart"
    court.dispute_monitor("n2")
    assert court.known("n2") == [("", "")], "whoever is neither of the two does not know yet what it is about"
    court.later(25 * MINUTE)
    court.shelf.tick(court.now)
    (said,) = court.dispute_monitor("n1")
    assert (said.content.outcome, said.content.member) == (DISMISSED, court.did("n0"))
    assert court.counsel_of_all() == {"n0": [], "n1": [], "n2": []}
    assert {name: court.known(name) for name in court.nodes} == {key: [("n0", DISMISSED)] for key in court.nodes}


def test_every_member_convicts_a_cheater(court):
    court.withhold("for some")
    court.later()
    begun(court)
    court.dispute_monitor("n1")
    assert not court.dispute_monitor("n0"), "it has nothing to say for itself"
    court.later(25 * MINUTE)
    court.shelf.tick(court.now)
    (said,) = court.dispute_monitor("n1")
    assert said.content.outcome == UPHELD
    court.counsel_of_all()
    assert {name: court.known(name) for name in court.nodes} == {key: [("n0", UPHELD)] for key in court.nodes}


def test_wrong_verdicts_are_not_believed(court):
    link = court.withhold("for some")
    court.shelf.post(court.now + 9 * MINUTE, "message", court.did("n0"), link)
    court.later()
    case_file = begun(court)
    court.dispute_monitor("n1")
    court.dispute_monitor("n0")
    court.says("n1", SendContent(court.id, verdicts.verdict_on(case_file, UPHELD)))
    other = replace(verdicts.verdict_on(case_file, UPHELD), member=court.did("n2"))
    court.says("n1", SendContent(court.id, other))
    court.says("n1", SendContent(court.id, replace(other, evidence={"case_file": "none"})))
    court.counsel_of_all()
    assert court.known("n2") == [("", "")], "the window is open"
    court.later(25 * MINUTE)
    court.shelf.tick(court.now)
    court.counsel_of_all()
    assert court.known("n2") == [("n0", DISMISSED)], "what it shows is enough to work it out"


def test_arbitrary_verdict_exhibits_are_tolerated(court, monkeypatch, caplog):
    """Any member with the right to post can announce a verdict on any open case; a failure in one does not spread."""
    court.withhold("for some")
    court.later()
    case_file = begun(court)
    court.dispute_monitor("n1")
    wrong = "A" * 42 + "B"
    with pytest.raises(RemoteError):
        b64url_bytes(wrong)
    nowhere = replace(case_file, message=b"", accusation=replace(case_file.accusation, message=wrong))
    court.says(
        "n1",
        SendContent(court.id, replace(verdicts.verdict_on(case_file, UPHELD), evidence={"case_file": shown(nowhere)})),
    )
    court.counsel_of_all()
    assert not caplog.records and {name: len(court.known(name)) for name in court.nodes} == dict.fromkeys(
        court.nodes, 1
    )

    def fails(*_):
        raise fault

    for fault in (Malformed(why="bytes"), ValueError("bytes")):
        monkeypatch.setattr(verdicts, "case_file_of", fails)
        court.later()
        assert not court.dispute_monitor("n1")
        assert ("ValueError" in caplog.text) is isinstance(fault, ValueError)
        assert "could not be reviewed: Malformed" in caplog.text


def shown(case_file):
    return json.loads(case_file.serialize())


def test_malformed_accusation_does_not_block_later_ones(court, monkeypatch):
    case_file = lying(court)
    court.shelf.post(court.now, "accusation", court.did("n2"), b"something")
    strange = court.shelf.ledger.records[-1]
    court.file(case_file)

    def blob(group, hash_):
        if hash_ == parse_entry(strange).hash:
            raise Malformed(why="bytes")
        return held(group, hash_)

    held = court.shelf.blob
    monkeypatch.setattr(court.shelf, "blob", blob)
    (answer,) = court.dispute_monitor("n0")
    assert (answer.kind, answer.about) == ("defence", case_file.digest)


def test_commands_before_a_failure_are_executed(court, monkeypatch, caplog):
    """Otherwise the command of the first case would stay pending for ever."""
    court.file(lying(court))
    monkeypatch.setattr(DisputeMonitor, "_review_equivocations", lambda *_: [][0])
    (answer,) = court.dispute_monitor("n0")
    assert answer.kind == "defence" and "IndexError" in caplog.text


def test_refused_defence_is_replaced_by_the_next(court):
    case_file = lying(court)
    court.file(case_file)
    link = parse_data(
        court.journal("n0").signed_messages.successor(court.id, court.did("n0"), *place(case_file)).message
    )
    own = court.journal("n0").signed_messages.last_before(court.id, court.did("n0"), link.alias, link.time)
    court.shelf.post(own.time + MINUTE, "message", court.did("n0"), own.message)
    dispute_monitor = DisputeMonitor(court.journal("n0"), logging.getLogger("dispute_monitor"), court.shelf)
    grounds = []
    settled = [
        lambda ticket: dispute_monitor.settle(effects.CommandFailed(ticket, InvalidTlogEntry(why="it is too long"))),
        lambda ticket: dispute_monitor.rolled_back(CommandInput(ticket, SendPost("", ""))),
        lambda ticket: dispute_monitor.settle(effects.CommandDone(ticket, GroupChanged(court.id))),
    ]
    for number, settle in enumerate(settled):
        (ask,) = dispute_monitor.review(court.nodes["n0"].agent, court.now + 10**6 * number)
        grounds.append(parse_defence(ask.command.blob).ground.__class__)
        assert not dispute_monitor.review(court.nodes["n0"].agent, court.now + 10**9), "it waits for the answer"
        settle(ask.ticket)
    assert grounds == [Acknowledged, Posted, Posted]
    assert not dispute_monitor.review(court.nodes["n0"].agent, court.now + 2 * 10**9)


def place(case_file):
    return b64url_bytes(case_file.subscription[1].alias), b64url_bytes(case_file.accusation.missing)


def test_equivocation_is_announced_by_its_witness(court):
    court.says("n0", SendPost(court.id, "one"))
    one, own = court.messages("n1", "n0")[-1], court.group("n0").streams.own
    other = data(court.group("n0").seed, own.time + 5, own.alias, one.message[56:-128], one.before)
    taking_in(court, "n1", other.serialize())
    (said,) = court.dispute_monitor("n1")
    assert (said.content.outcome, said.content.member) == (FORKED, court.did("n0"))
    assert not court.dispute_monitor("n1")
    court.counsel_of_all()
    assert {name: court.known(name) for name in court.nodes} == {key: [("n0", FORKED)] for key in court.nodes}
    taking_in(court, "n2", other.serialize())
    assert not court.dispute_monitor("n2"), "it is known"
    false = replace(said.content, member=court.did("n2"))
    court.says("n1", SendContent(court.id, false))
    court.says("n1", SendContent(court.id, replace(said.content, outcome=TIME_REVERSED)))
    court.counsel_of_all()
    assert court.known("n2") == [("n0", FORKED)]
    (rivals,) = court.journal("n1").signed_messages.equivocations(court.id)
    case = verdicts.equivocation_case(court.journal("n1"), court.group("n1"), rivals)
    assert case is not None and judge(parse_case(case.serialize())).guilty == [FORKED]


def taking_in(court, name, written):
    tx = court.tx(name)
    receiver.receive_signed(tx, court.id, court.did("n0"), written)
    for effect in tx.effects:
        if isinstance(effect, JournalEffect):
            court.noted.setdefault(name, []).append(effect)


def test_invalid_verdicts_are_neither_sent_nor_read(court):
    court.withhold("for some")
    court.later()
    good = verdicts.verdict_on(court.accuse(), UPHELD)
    assert read_verdict(good.body) == good
    for wrong in (
        replace(good, outcome="guilty"),
        replace(good, outcome=OPEN),
        replace(good, target="x"),
        replace(good, member="nobody"),
        replace(good, evidence={"case_file": "x" * VERDICT_BYTES_MAX}),
    ):
        court.refuses("n1", SendContent(court.id, wrong), BadVerdict)
        with pytest.raises(RemoteError):
            read_verdict(wrong.body)
    for body in ({}, {**good.body, "evidence": []}, {**good.body, "target": 5}):
        with pytest.raises(RemoteError):
            read_verdict(body)


def test_long_message_is_omitted_from_the_exhibit(court):
    court.withhold("for some" + "x" * 60_000)
    court.later()
    case_file = court.accuse()
    long = replace(case_file, message=case_file.message + bytes(VERDICT_BYTES_MAX))
    told = verdicts.verdict_on(long, UPHELD)
    assert told.evidence["case_file"]["message"] == ""
    assert verdicts.case_file_in(court.shelf, court.id, told) is None
    court.shelf.blobs[case_file.accusation.message] = case_file.message
    assert verdicts.case_file_in(court.shelf, court.id, told) == case_file


# --- lying members --------------------------------------------------------------------------------------------------


def test_an_accusation_that_names_no_signature_is_passed_over(court):
    court.withhold("for some")
    court.later()
    case_file = court.accuse()
    said = replace(case_file.accusation, missing="no signature").signed(court.group("n1").seed)
    court.shelf.post(court.now, "accusation", said.accuser, said.serialize())
    assert court.counsel_of_all() == {"n0": [], "n1": [], "n2": []}
    court.file(case_file)
    court.dispute_monitor("n0")
    assert (court.did("n0"), "") in [
        (one.accused, one.verdict) for one in court.journal("n0").cases.all_cases(court.id)
    ]


def test_unconfirmed_subscriber_is_answered(court, monkeypatch):
    """It withholds its confirmation until the defence window is over."""
    case_file = lying(court)
    confirm = case_file.subscription[2].digest
    held = court.journal("n0").signed_messages.statements
    monkeypatch.setattr(
        court.journal("n0").signed_messages,
        "statements",
        lambda group, member: [one for one in held(group, member) if one.digest != confirm],
    )
    court.file(case_file)
    (answer,) = court.dispute_monitor("n0")
    assert (answer.kind, answer.about) == ("defence", case_file.digest)
    assert court.verdict(case_file) == FALSE_ACCUSATION


def test_accusation_is_answered_in_the_right_log(court, monkeypatch):
    case_file = lying(court)
    said = case_file.accusation
    monkeypatch.setattr(dispute_parties, "TOPIC", "another")
    other = Shelf(2)
    tlog = TwoLogs(other, court.shelf)
    dispute_monitor = DisputeMonitor(court.journal("n0"), logging.getLogger("dispute_monitor"), tlog)
    other.post(court.now, "accusation", said.accuser, said.serialize())
    assert not dispute_monitor.review(court.nodes["n0"].agent, court.now)
    court.file(case_file)
    (ask,) = dispute_monitor.review(court.nodes["n0"].agent, court.now + 10**6)
    assert ask.command.origin == court.shelf.rules.origin
    court.post_to_log("n0", ask.command)
    assert court.verdict(case_file) == FALSE_ACCUSATION


class TwoLogs:
    """The log before and the one in force, of one group."""

    def __init__(self, *logs):
        self.logs = {one.rules.origin: one for one in logs}

    def all_rules(self, group):
        return [one.rules for one in self.logs.values()]

    def blob(self, group, hash_):
        return next((found for one in self.logs.values() if (found := one.blob(group, hash_)) is not None), None)

    def __getattr__(self, name):
        return lambda group, origin, *more: getattr(self.logs[origin], name)(group, origin, *more)


def test_unconfirmed_later_subscription_is_answered(court, monkeypatch):
    case_file = lying(court)
    request = Request(
        time=court.now, topic=court.id, subscriber=court.did("n1"), publisher=court.did("n0"), nonce=""
    ).signed(court.group("n1").seed)
    accept = replace(
        case_file.subscription[1], time=court.now, request=request.digest, overwrite="", start=b64url(b"s" * 64)
    ).signed(court.group("n0").seed)
    for one in (request, accept):
        kept_ = StoreStatement(
            court.id, court.did("n1"), type(one).__name__.lower(), one.digest, one.serialize(), court.now
        )
        court.noted.setdefault("n0", []).append(kept_)
    confirm = Confirm(time=court.now, accept=accept.digest, subscriber=court.did("n1")).signed(court.group("n1").seed)
    said = replace(case_file.accusation, reopened=(accept.digest,)).signed(court.group("n1").seed)
    case_file = replace(case_file, accusation=said, reopened=((request, accept, confirm),))
    case_file.check()
    court.file(case_file)
    (answer,) = court.dispute_monitor("n0")
    assert (answer.kind, answer.about) == ("defence", case_file.digest)
    assert court.verdict(case_file) == FALSE_ACCUSATION


def test_accusation_is_answered_at_its_counted_place(court):
    """It is void there; a defence there would precede the case's log excerpt."""
    case_file = lying(court)
    since = court.shelf.size(court.id, "") + 3
    case_file = replace(
        case_file, accusation=replace(case_file.accusation, log_size=since).signed(court.group("n1").seed)
    )
    court.file(case_file)
    assert not court.dispute_monitor("n0")
    court.shelf.post(court.now, "message", court.did("n1"), b"one")
    court.shelf.post(court.now, "message", court.did("n1"), b"two")
    court.file(case_file)
    court.counsels["n0"].schedule(court.id)
    (answer,) = court.dispute_monitor("n0")
    assert (answer.kind, answer.about) == ("defence", case_file.digest)
    assert court.verdict(case_file) == FALSE_ACCUSATION


def test_long_acknowledged_chain_is_answered(court):
    """Of a stretch the last acknowledgement stays, and the way there may be too long for a defence."""
    for number in range(6):
        court.says("n0", SendPost(court.id, b64url(random.Random(number).randbytes(45_000))))
    court.later()
    came = court.messages("n1", "n0")[-5]
    group = replace(
        court.group("n1"),
        streams=replace(
            court.group("n1").streams,
            early_messages={court.did("n0"): EarlyMessages({came.before: EarlyMessage(came.message)})},
        ),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accusations, "_has_arrived", lambda *_: False)
        case_file = accuse(court.journal("n1"), court.shelf, group, court.did("n0"), court.now)
    court.file(case_file)
    assert court.answer(case_file) is Acknowledged
    assert court.verdict(case_file) == FALSE_ACCUSATION
