"""Equivocation: detection by two members, and bounds on false claims."""

import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut
from tests.support.marks import others_slow
from zerochat import rpc
from zerochat.agent.storage.history_reader import HistoryReader
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views import delivery
from zerochat.agent.views.events import event_view
from zerochat.agent.views.groups import group_info
from zerochat.agent.views.members import display_names
from zerochat.agent.views.notifications import notification_of
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import CommandDone, Reconcile, RefuteEvents, StoreEvent
from zerochat.group.event_log.event import POST, load_event
from zerochat.group.inputs import DismissDoubts, SendPost
from zerochat.group.membership import attestation
from zerochat.group.notifications import DifferenceFound, ForkDetected
from zerochat.group.state import ChainPosition, ChainStart, Difference
from zerochat.group.sync import fork_detection, negentropy, pull_requests
from zerochat.group.sync.chain_heads import differing_authors, head_digests
from zerochat.group.wire.messages import RECONCILE, RECONCILE_BYTES_MAX, ReconcileBody
from zerochat.presentation import delivery as delivery_text
from zerochat.sim import play_history
from zerochat.sim.node import Node

KEY = b"k" * 32


class Torn(Cut):
    """A group of which some members may break the rules."""

    def __init__(self, members=3, policy=None):
        self.looked = []
        super().__init__(members, policy)

    def _on_accusation(self, node, notice):
        """Accusations are checked at the end."""

    def _perform(self, node, effect):
        if isinstance(effect, Reconcile):
            self.looked.append((node.name, effect))
        super()._perform(node, effect)

    def tell_apart(self, author, one, other, words):
        """An author sends two members different events for the same places of its chain, one for each word."""
        node = self.nodes[author]
        before, rows = node.agent, list(node.log)
        for member, away in ((one, other), (other, one)):
            node.agent, node.log = before, list(rows)
            self.deaf = {frozenset({author, away})}
            self.post(author, *(f"{word} for {member}" for word in words))
            self.run(for_ms=400)
        tx = self.tx(author)
        for member in (one, other):  # an equivocating author does not retransmit one version to the other member
            group, did = tx.group(self.id), self.did(member)
            acked = {**group.links.acks_of(did), group.me: group.seq}
            tx.update_group(self.id, links=group.links.with_acks(did, acked))
        self.perform(author, tx)
        self.deaf = set()

    def differs(self, name):
        return [one for one in self.notices[name] if isinstance(one, DifferenceFound)]

    def questions(self, name):
        return [one for who, one in self.looked if who == name and one.initiator]


@pytest.fixture
def torn():
    world = Torn()
    world.bring_in("n1", "n2")
    return world


def test_an_equivocating_author_is_detected_by_both_members(torn):
    torn.post("n0", "for all")
    torn.run(for_ms=5_000)
    torn.tell_apart("n0", "n1", "n2", ["one", "two", "three"])
    assert torn.texts("n1") == ["for all", "one for n1", "two for n1", "three for n1"]
    assert torn.texts("n2") == ["for all", "one for n2", "two for n2", "three for n2"]
    assert torn.chain("n1", "n0").confirmed_seq == torn.chain("n2", "n0").confirmed_seq, "heights say nothing of it"
    assert torn.run(lambda: torn.differs("n1") and torn.differs("n2"), for_ms=1_800_000)
    first = torn.chain("n1", "n0").seq - 2
    for name, other in (("n1", "n2"), ("n2", "n1")):
        assert torn.differs(name) == [DifferenceFound(torn.id, torn.did("n0"), first, torn.did(other))]
        found = torn.nodes[name].agent.groups[torn.id].sync.differences
        assert [(one.author, one.seq, one.member) for one in found] == [(torn.did("n0"), first, torn.did(other))]


def test_a_fork_is_reported_once_and_nothing_is_stored(torn):
    torn.tell_apart("n0", "n1", "n2", ["one"])
    assert torn.run(lambda: torn.differs("n1") and torn.differs("n2"), for_ms=1_800_000)
    kept = {name: torn.texts(name) for name in ("n1", "n2")}
    asked = len(torn.questions("n1")), len(torn.questions("n2"))
    torn.run(for_ms=7_200_000)
    assert len(torn.differs("n1")) == len(torn.differs("n2")) == 1
    assert {name: torn.texts(name) for name in ("n1", "n2")} == kept == {"n1": ["one for n1"], "n2": ["one for n2"]}
    assert all(not torn.nodes[name].refuted for name in ("n1", "n2"))
    assert not any(isinstance(one, ForkDetected) for name in torn.nodes for one in torn.notices[name])
    assert (len(torn.questions("n1")), len(torn.questions("n2"))) == asked, "what is known is not looked for again"


@pytest.mark.slow
def test_the_first_place_is_found_in_a_long_log(torn):
    for number in range(10):
        torn.post("n0", *(f"early {number} {place}" for place in range(40)))
        torn.post("n1", *(f"n1 {number} {place}" for place in range(40)))
        torn.run(for_ms=2_000)
    place = torn.chain("n1", "n0").seq + 1
    torn.tell_apart("n0", "n1", "n2", [str(number) for number in range(50)])
    for _ in range(5):
        torn.post("n2", *(f"late {place}" for place in range(40)))
        torn.run(for_ms=2_000)
    assert torn.run(lambda: torn.differs("n1") and torn.differs("n2"), for_ms=1_800_000)
    assert {one.seq for name in ("n1", "n2") for one in torn.differs(name)} == {place}


def test_a_third_member_sees_both_versions():
    world = Torn(4)
    world.bring_in("n1", "n2", "n3")
    node = world.nodes["n0"]
    before, rows = node.agent, list(node.log)
    for member, text in (("n1", "odd"), ("n2", "usual")):
        node.agent, node.log = before, list(rows)
        told = {"n1"} if member == "n1" else {"n2", "n3"}
        world.deaf = {frozenset({"n0", name}) for name in ("n1", "n2", "n3") if name not in told}
        world.post("n0", text)
        world.run(for_ms=400)
    world.kill("n0")
    world.deaf = {pair for pair in world.deaf if "n0" in pair}
    assert world.run(lambda: world.differs("n2") and world.differs("n3") and len(world.differs("n1")) == 2)
    assert {one.member for one in world.differs("n1")} == {world.did("n2"), world.did("n3")}
    assert [one.member for one in world.differs("n3")] == [world.did("n1")], "n2 and n3 were told the same"


# --- honest members ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", others_slow(range(100, 124), 4))
def test_honest_members_never_differ(seed, monkeypatch):
    """The world raises on an accusation; here no reconciliation even begins."""
    looked = []
    monkeypatch.setattr(Node, "reconcile", lambda self, asked: looked.append(asked))
    play_history(seed)
    assert not looked


def test_heads_are_known_and_equal(torn):
    """So that the test above means something."""
    torn.post("n0", "one")
    torn.post("n1", "two")
    torn.post("n2", "three")
    torn.run(for_ms=5_000)
    groups = [torn.nodes[name].agent.groups[torn.id] for name in torn.nodes]
    said = {head_digests(group, "salt", group.view.order) for group in groups}
    assert len(said) == 1
    (one,) = map(b64url_bytes, said)
    assert len(one) == 6 and b"\0\0" not in {one[:2], one[2:4], one[4:]}


def test_unconfirmed_heads_are_not_compared(torn):
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    group = torn.nodes["n1"].agent.groups[torn.id]
    author, other = torn.did("n0"), torn.did("n2")
    have = [group.chain(did).confirmed_seq for did in group.view.members]
    at = list(group.view.members).index(author)

    def odd(chain, have=have, member=other):
        theirs = replace(
            group,
            log=replace(
                group.log, chains={**group.log.chains, author: replace(group.log.chains[author], head_id="else")}
            ),
        )
        mine = replace(group, log=replace(group.log, chains={**group.log.chains, author: chain}))
        told = zip(group.view.order, have, strict=False)
        return list(differing_authors(mine, member, "salt", told, head_digests(theirs, "salt", group.view.order)))

    chain = group.log.chains[author]
    assert odd(chain) == [author]
    assert odd(chain, member=author) == [], "of itself it may say what it likes"
    assert odd(replace(chain, head_id="")) == []
    assert odd(replace(chain, confirmed=ChainPosition(chain.seq - 1))) == []
    assert odd(replace(chain, start=ChainStart.UNANNOUNCED)) == []
    assert odd(chain, have=[upto + (place == at) for place, upto in enumerate(have)]) == [], "heights that differ"
    assert odd(chain, have=have[:at]) == []
    told = list(zip(group.view.order, have, strict=True))
    assert list(differing_authors(group, other, "salt", told, head_digests(group, "salt", group.view.order))) == []
    assert list(differing_authors(group, other, "salt", told, "")) == []
    with pytest.raises(Malformed):
        list(differing_authors(group, other, "salt", told, "!"))


def test_no_author_can_prepare_colliding_digests(torn):
    """The meaning of two bytes differs with each message."""
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    group = torn.nodes["n1"].agent.groups[torn.id]
    digests = {head_digests(group, str(salt), group.view.order) for salt in range(100)}
    assert len(digests) > 90, "of two bytes some meet by chance"


# --- dishonest members ------------------------------------------------------------------------------------------------


def lying(world, liar, author):
    """A member that seems to have another chain of an author."""
    tx = world.tx(liar)
    group = tx.group(world.id)
    chain = replace(group.chain(world.did(author)), head_id="A" * 43)
    tx.update_log(world.id, chains={**group.log.chains, world.did(author): chain})
    world.perform(liar, tx)


def test_a_false_claim_costs_little_and_is_not_reported(torn):
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    lying(torn, "n2", "n0")
    torn.run(for_ms=3_600_000)
    assert torn.questions("n1"), "it was looked at"
    begun = [one for one in torn.questions("n1") if not one.message]
    assert len(begun) <= 3_600_000 // fork_detection.INTERVAL_MS + 1
    assert not torn.differs("n1")


def test_a_forging_member_is_named(torn):
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    node = torn.nodes["n2"]
    for place, row in enumerate(node.log):
        if row.type == POST:
            event = replace(load_event(row.record), body={"text": "forged"})
            node.log[place] = replace(row, id=event.id, record=event.record)
    lying(torn, "n2", "n0")
    assert torn.run(lambda: torn.differs("n1"), for_ms=1_800_000)
    torn.run(for_ms=3_600_000)
    assert [(one.author, one.member) for one in torn.differs("n1")] == [(torn.did("n0"), torn.did("n2"))]
    assert torn.texts("n1") == ["one"]
    assert torn.chain("n1", "n0").fork_seq == 0


def test_a_comparison_without_end_is_ended(torn, monkeypatch):
    torn.post("n0", *map(str, range(100)))
    torn.run(for_ms=5_000)
    lying(torn, "n2", "n0")
    usual, answers = Node.reconcile, []

    def endless(self, asked):
        found = usual(self, asked)
        if self.name != "n2" or asked.initiator or asked.member != torn.did("n1"):
            return found
        answers.append(self.name)
        fingerprint = bytes([negentropy.VERSION, 0, 0, 1]) + torn.rng.randbytes(16)
        return replace(found, message=fingerprint)

    monkeypatch.setattr(Node, "reconcile", endless)
    assert torn.run(lambda: len(answers) >= fork_detection.ROUNDS_MAX, for_ms=1_800_000)
    torn.run(for_ms=200_000)
    assert len(answers) == fork_detection.ROUNDS_MAX
    one = torn.nodes["n1"].agent.groups[torn.id].sync.comparisons[torn.did("n2")]
    assert one.rounds == fork_detection.ROUNDS_MAX and not one.authors


def ask(world, body, thid=None, thread="t", here="n1", there="n2"):
    """The answer of n1 to a message of n2, or of another pair."""
    tx = world.tx(here)
    said = ReconcileBody(**{"group": world.id, "since": world.now, "message": "YQ", **body})
    fork_detection.receive_comparison(
        tx, world.id, world.did(there), Message(type=RECONCILE, id=thread, thid=thid, body={}), said
    )
    world.nodes[here].agent = tx.agent
    return tx.effects


def test_an_invalid_reconciliation_is_rejected(torn):
    torn.run(for_ms=600_000)
    with pytest.raises(Refused, match="another group"):
        ask(torn, {"group": "A" * 43})
    with pytest.raises(Refused, match="may not have"):
        ask(torn, {"since": torn.nodes["n1"].agent.groups[torn.id].view.members[torn.did("n2")].joined - 1})
    with pytest.raises(Malformed):
        ask(torn, {"message": "!"})
    with pytest.raises(Refused, match="without a question"):
        ask(torn, {}, thid="never asked")


def test_an_answer_is_looked_at_once(torn):
    torn.tell_apart("n0", "n1", "n2", ["one"])
    assert torn.run(lambda: torn.questions("n1"), for_ms=1_800_000)
    tx = torn.tx("n1")
    fork_detection.on_reconciled(tx, torn.nodes["n1"].reconcile(torn.questions("n1")[0]))
    torn.nodes["n1"].agent = tx.agent
    thread = tx.group(torn.id).sync.comparisons[torn.did("n2")].thread
    assert len(ask(torn, {}, thid=thread)) == 1
    for _ in range(3):
        with pytest.raises(Refused, match="without a question"):
            ask(torn, {}, thid=thread)


def test_a_claim_of_an_empty_log_costs_few_lookups(torn):
    torn.post("n0", *map(str, range(30)))
    torn.run(for_ms=5_000)
    group = torn.nodes["n1"].agent.groups[torn.id]
    ids = [(number, bytes([1]) * 28 + number.to_bytes(4, "big")) for number in range(10_000)]
    asked = Reconcile(group.id, torn.did("n2"), "t", True, 0, b"\x61\x00\x00\x02\x00", ("a",))
    seen = []

    def place_of(name):
        seen.append(name)
        return ("a", 10_000 - len(seen))

    found = fork_detection.reconcile(asked, negentropy.Items(ids), place_of)
    assert len(seen) == fork_detection.LOOKUPS_MAX
    assert found.differing == (("a", 10_000 - len(seen), seen[-1]),)


def test_a_flood_of_questions_is_not_answered(torn):
    torn.run(for_ms=600_000)
    for _ in range(fork_detection.ROUNDS_MAX):
        assert len(ask(torn, {})) == 1
    for _ in range(3):
        with pytest.raises(Refused, match="too many"):
            ask(torn, {})
    torn.run(for_ms=fork_detection.INTERVAL_MS)
    assert len(ask(torn, {})) == 1


@pytest.mark.parametrize("message", [b"", b"a\0", b"\x61\x00\x00\x02\xff", b"\x61" + b"\x00\x00\x00" * 2, b"\x61\x80"])
def test_an_unreadable_question_gets_no_answer(torn, message):
    asked = Reconcile(torn.id, torn.did("n2"), "t", False, torn.now, message, ())
    found = torn.nodes["n1"].reconcile(asked)
    assert found.message == b""
    tx = torn.tx("n1")
    fork_detection.on_reconciled(tx, found)
    assert [effect.detail for effect in tx.effects] == ["Malformed"]
    assert torn.nodes["n1"].reconcile(replace(asked, initiator=True, authors=("x",))).differing == ()


def test_another_protocol_version_gets_our_version_byte(torn):
    asked = Reconcile(torn.id, torn.did("n2"), "t", False, torn.now, b"\x62", ())
    assert torn.nodes["n1"].reconcile(asked).message == bytes([negentropy.VERSION])


def test_no_answer_covers_events_before_the_member_joined(tmp_path):
    """A question about an earlier time is rejected; otherwise the journal answers."""
    world = Torn()
    early = world.post("n0", "early")
    world.bring_in("n1")
    late = world.post("n0", "late")
    world.run(for_ms=1_000)
    since = world.nodes["n0"].agent.groups[world.id].view.members[world.did("n1")].joined
    everything = {"message": b64url(b"\x61\x00\x00\x02\x00")}
    for too_early in (since - 1, 1, 0):
        with pytest.raises((Refused, Malformed)):
            ask(world, {**everything, "since": too_early}, here="n0", there="n1")
    (asked,) = ask(world, {**everything, "since": since}, here="n0", there="n1")
    assert isinstance(asked, Reconcile) and (asked.member, asked.since) == (world.did("n1"), since)
    node = world.nodes["n0"]
    with Journal.create(tmp_path / "journal.db", KEY) as journal:
        journal.commit(node.agent, node.log)
        said = HistoryReader(journal).compare(asked).message
    assert b64url_bytes(late[0]) in said and b64url_bytes(early[0]) not in said


def test_differences_are_limited_in_all_and_per_member(torn):
    torn.tell_apart("n0", "n1", "n2", ["one"])
    tx = torn.tx("n1")
    told = tuple(
        Difference(f"author {n}", 1, torn.did("n2"), 1) for n in range(fork_detection.DIFFERENCES_PER_MEMBER_MAX)
    )
    tx.update_sync(torn.id, differences=told)
    torn.perform("n1", tx)
    assert torn.run(lambda: torn.differs("n2"), for_ms=1_800_000)
    torn.run(for_ms=1_800_000)
    assert not torn.questions("n1") and not torn.differs("n1")
    tx = torn.tx("n1")
    tx.update_sync(
        torn.id, differences=tuple(replace(one, member=f"m{place % 9}") for place, one in enumerate(told * 8))
    )
    torn.perform("n1", tx)
    torn.run(for_ms=1_800_000)
    assert len(torn.nodes["n1"].agent.groups[torn.id].sync.differences) == fork_detection.DIFFERENCES_MAX
    assert not torn.differs("n1")


def test_differing_events_count_only_where_requested(torn):
    """A response with other events is rejected, and a late one changes nothing."""
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    event = next(load_event(row.record) for row in torn.nodes["n1"].log if row.type == POST)
    tx = torn.tx("n1")
    before = tx.agent
    fork_detection.receive_differing(tx, torn.id, torn.did("n2"), [replace(event, body={"text": "else"})])
    assert tx.agent is before and not tx.effects


def test_a_busy_member_is_queried_later(torn):
    torn.tell_apart("n0", "n1", "n2", ["one"])
    assert torn.run(lambda: torn.questions("n1"), for_ms=1_800_000)
    tx = torn.tx("n1")
    pull_requests.send(tx, torn.id, torn.did("n2"), [(torn.did("n0"), 0, 1)], 1)
    torn.nodes["n1"].agent = tx.agent  # and it never comes
    assert torn.run(lambda: torn.differs("n1"), for_ms=60_000)


# --- in the machine room ---------------------------------------------------------------------------------------------


def test_the_journal_is_read_as_the_simulator_reads_its_log(torn, tmp_path):
    torn.post("n0", *map(str, range(30)))
    torn.run(for_ms=5_000)
    node = torn.nodes["n1"]
    with Journal.create(tmp_path / "journal.db", KEY) as journal:
        shares = HistoryReader(journal)

        def remember(*effects):
            journal.commit(node.agent, effects)
            shares.note_stored(effects)

        def both(**changes):
            asked = Reconcile(torn.id, torn.did("n2"), "t", False, 0, b"\x61\x00\x00\x02\x00", ())
            asked = replace(asked, **changes)
            found = shares.compare(asked)
            assert found == node.reconcile(asked)
            return found

        remember(*node.log[:20])
        rest, node.log = node.log[20:], node.log[:20]
        posts = [row for row in node.log if row.type == POST]
        assert all(b64url_bytes(row.id) in both().message for row in posts)
        everything = both(initiator=True, message=b"\x61\x00\x00\x02\x00", authors=(torn.did("n0"),))
        assert everything.differing == ((posts[0].author, posts[0].seq, posts[0].id),)
        node.log = node.log + rest
        remember(*rest, rest[0])
        assert len(both().message) > 32 * 30
        assert b64url_bytes(posts[0].id) not in both(since=posts[1].lamport).message
        forged = replace(rest[-1], id=b64url(bytes(32)), seq=rest[-1].seq + 1, relayed_by=torn.did("n2"))
        node.log.append(forged)
        remember(forged)
        assert bytes(32) in both().message
        assert (
            both(initiator=True, message=b"\x61\x00\x00\x02\x00", authors=(torn.did("n0"),)).differing
            == everything.differing
        )
        node.log.pop()
        remember(RefuteEvents(torn.id, forged.author, rest[-1].seq, forged.seq))
        assert bytes(32) not in both().message


def test_a_message_keeps_to_its_greatest_size(torn):
    rows = [
        StoreEvent("g", b64url(number.to_bytes(32, "big")), "a", number, number, POST, b"", 0, False)
        for number in range(1, 3_000)
    ]
    node = torn.nodes["n1"]
    node.log = rows
    asked = Reconcile("g", "m", "t", False, 0, b"\x61\x00\x00\x02\x00", ())
    said = node.reconcile(asked).message
    assert RECONCILE_BYTES_MAX - 200 < len(said) <= RECONCILE_BYTES_MAX
    assert len(b64url(said)) <= RECONCILE_BYTES_MAX * 4 // 3


def test_a_suspended_member_is_not_queried(torn):
    """A removed member, or one known from a single other member."""
    tx = torn.tx("n1")
    tx.update_trust(torn.id, quarantine=(torn.did("n2"),))
    torn.nodes["n1"].agent = tx.agent
    with pytest.raises(Refused, match="non-member"):
        ask(torn, {})
    assert torn.run_command("n0", SendPost(torn.id, "still here"))


# --- for the faces ---------------------------------------------------------------------------------------------------


def test_a_difference_is_notified_without_blame(torn):
    torn.post("n0", "for all")
    torn.run(for_ms=5_000)
    torn.tell_apart("n0", "n1", "n2", ["one"])
    assert torn.run(lambda: torn.differs("n1"), for_ms=1_800_000)
    agent = torn.nodes["n1"].agent
    group = agent.groups[torn.id]
    method, about, told = notification_of(torn.differs("n1")[0], agent, display_names)
    assert (method, about, rpc.NOTIFICATIONS[method]) == ("chain_difference", torn.id, rpc.ChainDifferenceNotification)
    assert isinstance(told, rpc.ChainDifferenceNotification)
    assert (told.nick, told.member_nick, told.position) == ("n0", "n2", torn.chain("n1", "n0").seq)
    sentence = delivery_text.notification_sentence(told, str, str)
    assert sentence.startswith("Warning: n2 has a different version of n0")
    (doubt,) = group_info(agent, group).warnings
    assert doubt.member == "" and "n2 has different messages of n0 than you" in doubt.text
    assert isinstance(torn.run_command("n1", DismissDoubts(torn.id, "n0")), CommandDone)
    assert not group_info(agent, torn.nodes["n1"].agent.groups[torn.id]).warnings
    rows = {
        load_event(row.record).body["text"]: Row(
            1, row.group, row.id, row.author, row.seq, row.lamport, row.type, row.record, row.received, row.late
        )
        for row in torn.nodes["n1"].log
        if row.type == POST
    }
    fates = {}
    for text, row in rows.items():
        known = delivery.report(
            agent, group, row, lambda members: [], display_names(group), event_view(group, row, replayed=True)
        )
        fates[text] = delivery.message_status(group, row, lambda members: [], display_names(group), known)
    assert not fates["for all"].differs
    assert [one.member_nick for one in fates["one for n1"].differs] == ["n2"]
    own = torn.nodes["n0"].agent.groups[torn.id]
    own = replace(own, sync=replace(own.sync, differences=(Difference(own.me, 1, torn.did("n1"), 1),)))
    assert "another copy of your profile" in attestation.differs_sentence(own, own.sync.differences[0])
    handed = attestation.differs_sentence(group, replace(group.sync.differences[0], relayed_by=group.me))
    assert "than n1 passed on. One of these three members" in handed
    torn.nodes["n0"].agent = replace(torn.nodes["n0"].agent, groups={own.id: own})
    _, _, told = notification_of(
        DifferenceFound(own.id, own.me, 1, torn.did("n1")), torn.nodes["n0"].agent, display_names
    )
    assert isinstance(told, rpc.ChainDifferenceNotification) and told.mine
    assert "another copy of your profile" in delivery_text.notification_sentence(told, str, str)
    assert sentence in delivery_text.status_sentences(fates["one for n1"], {}, str, str)
