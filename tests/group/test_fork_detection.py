"""An author who tells two members different things: how they notice, and what liars can make of that."""

import pytest
from msgspec.structs import replace

from tests.group.test_history import Cut
from zerochat import rpc
from zerochat.agent.storage.history_reader import Shares
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views import core_state, delivery
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Answer, Compare, Refute, Remember
from zerochat.group.event_log.event import POST, load_event
from zerochat.group.inputs import DismissDoubts, SendPost
from zerochat.group.membership import attestation
from zerochat.group.notifications import Differs, Forked
from zerochat.group.state import Difference, Spot
from zerochat.group.sync import fork_detection, negentropy, pull_requests
from zerochat.group.sync.chain_heads import differing, tips
from zerochat.group.wire.messages import COMPARE, COMPARE_BYTES_MAX, CompareBody
from zerochat.presentation import delivery as delivery_text
from zerochat.sim import play
from zerochat.sim.node import Node

KEY = b"k" * 32


class Torn(Cut):
    """A group of which some members may not keep the rules."""

    def __init__(self, members=3, policy=None):
        self.looked = []
        super().__init__(members, policy)

    def _accused(self, node, notice):
        """What is told of them is checked at the end."""

    def _perform(self, node, effect):
        if isinstance(effect, Compare):
            self.looked.append((node.name, effect))
        super()._perform(node, effect)

    def tell_apart(self, author, one, other, words):
        """An author tells two members different things in the same places of its chain, as many as there are words."""
        node = self.nodes[author]
        before, rows = node.agent, list(node.log)
        for member, away in ((one, other), (other, one)):
            node.agent, node.log = before, list(rows)
            self.deaf = {frozenset({author, away})}
            self.post(author, *(f"{word} for {member}" for word in words))
            self.run(for_ms=400)
        turn = self.turn(author)
        for member in (one, other):  # whoever is two-faced repeats nothing of what it has told somebody else
            peer = turn.group(self.id).peers[self.did(member)]
            turn.edit_peer(self.id, self.did(member), acked={**peer.acked, self.did(author): turn.group(self.id).seq})
        self.perform(author, turn)
        self.deaf = set()

    def differs(self, name):
        return [one for one in self.notices[name] if isinstance(one, Differs)]

    def questions(self, name):
        return [one for who, one in self.looked if who == name and one.ours]


@pytest.fixture
def torn():
    world = Torn()
    world.bring_in("n1", "n2")
    return world


def test_who_tells_two_members_different_things_is_found_by_both(torn):
    torn.post("n0", "for all")
    torn.run(for_ms=5_000)
    torn.tell_apart("n0", "n1", "n2", ["one", "two", "three"])
    assert torn.texts("n1") == ["for all", "one for n1", "two for n1", "three for n1"]
    assert torn.texts("n2") == ["for all", "one for n2", "two for n2", "three for n2"]
    assert torn.chain("n1", "n0").sure == torn.chain("n2", "n0").sure, "heights say nothing of it"
    assert torn.run(lambda: torn.differs("n1") and torn.differs("n2"), for_ms=1_800_000)
    first = torn.chain("n1", "n0").seq - 2
    for name, other in (("n1", "n2"), ("n2", "n1")):
        assert torn.differs(name) == [Differs(torn.id, torn.did("n0"), first, torn.did(other))]
        found = torn.nodes[name].agent.groups[torn.id].differences
        assert [(one.author, one.seq, one.member) for one in found] == [(torn.did("n0"), first, torn.did(other))]


def test_it_is_said_once_and_nothing_of_the_other_version_is_taken_in(torn):
    torn.tell_apart("n0", "n1", "n2", ["one"])
    assert torn.run(lambda: torn.differs("n1") and torn.differs("n2"), for_ms=1_800_000)
    kept = {name: torn.texts(name) for name in ("n1", "n2")}
    asked = len(torn.questions("n1")), len(torn.questions("n2"))
    torn.run(for_ms=7_200_000)
    assert len(torn.differs("n1")) == len(torn.differs("n2")) == 1
    assert {name: torn.texts(name) for name in ("n1", "n2")} == kept == {"n1": ["one for n1"], "n2": ["one for n2"]}
    assert all(not torn.nodes[name].refuted for name in ("n1", "n2"))
    assert not any(isinstance(one, Forked) for name in torn.nodes for one in torn.notices[name])
    assert (len(torn.questions("n1")), len(torn.questions("n2"))) == asked, "what is known is not looked for again"


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


def test_a_third_member_sees_who_says_what():
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


# --- those who keep the rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100, 124))
def test_nobody_who_keeps_the_rules_ever_seems_to_differ(seed, monkeypatch):
    """The world raises when somebody is told of; here nobody even begins to look."""
    looked = []
    monkeypatch.setattr(Node, "compare", lambda self, asked: looked.append(asked))
    play(seed)
    assert not looked


def test_their_tips_are_known_and_equal(torn):
    """So that the test above means something."""
    torn.post("n0", "one")
    torn.post("n1", "two")
    torn.post("n2", "three")
    torn.run(for_ms=5_000)
    said = {tips(torn.nodes[name].agent.groups[torn.id], "salt") for name in torn.nodes}
    assert len(said) == 1
    (one,) = map(b64url_bytes, said)
    assert len(one) == 6 and b"\0\0" not in {one[:2], one[2:4], one[4:]}


def test_what_is_not_known_for_certain_is_not_compared(torn):
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    group = torn.nodes["n1"].agent.groups[torn.id]
    author, other = torn.did("n0"), torn.did("n2")
    have = [group.chain(did).sure for did in group.view.members]
    at = list(group.view.members).index(author)

    def odd(chain, have=have, member=other):
        theirs = replace(group, chains={**group.chains, author: replace(group.chains[author], tip="else")})
        mine = replace(group, chains={**group.chains, author: chain})
        return list(differing(mine, member, "salt", have, tips(theirs, "salt")))

    chain = group.chains[author]
    assert odd(chain) == [author]
    assert odd(chain, member=author) == [], "of itself it may say what it likes"
    assert odd(replace(chain, tip="")) == []
    assert odd(replace(chain, own=Spot(chain.seq - 1))) == []
    assert odd(replace(chain, untold=True)) == []
    assert odd(chain, have=[upto + (place == at) for place, upto in enumerate(have)]) == [], "heights that differ"
    assert odd(chain, have=have[:at]) == []
    assert list(differing(group, other, "salt", have, tips(group, "salt"))) == []
    assert list(differing(group, other, "salt", have, "")) == []
    with pytest.raises(Malformed):
        list(differing(group, other, "salt", have, "!"))


def test_nobody_can_make_two_ends_that_look_the_same(torn):
    """What two bytes stand for is another thing with each message."""
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    group = torn.nodes["n1"].agent.groups[torn.id]
    assert len({tips(group, str(salt)) for salt in range(100)}) > 90, "of two bytes some meet by chance"


# --- those who do not ------------------------------------------------------------------------------------------------


def lying(world, liar, author):
    """A member of whom it seems that it has something else of an author."""
    turn = world.turn(liar)
    group = turn.group(world.id)
    chain = replace(group.chain(world.did(author)), tip="A" * 43)
    turn.edit(world.id, chains={**group.chains, world.did(author): chain})
    world.perform(liar, turn)


def test_who_only_claims_to_differ_costs_little_and_nobody_is_told(torn):
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    lying(torn, "n2", "n0")
    torn.run(for_ms=3_600_000)
    assert torn.questions("n1"), "it was looked at"
    begun = [one for one in torn.questions("n1") if not one.message]
    assert len(begun) <= 3_600_000 // fork_detection.EVERY_MS + 1
    assert not torn.differs("n1")


def test_who_makes_something_up_is_named_as_the_one_who_says_so(torn):
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
    assert torn.chain("n1", "n0").forked == 0


def test_a_comparison_without_end_is_ended(torn, monkeypatch):
    torn.post("n0", *map(str, range(100)))
    torn.run(for_ms=5_000)
    lying(torn, "n2", "n0")
    usual, answers = Node.compare, []

    def endless(self, asked):
        found = usual(self, asked)
        if self.name != "n2" or asked.ours or asked.member != torn.did("n1"):
            return found
        answers.append(self.name)
        fingerprint = bytes([negentropy.VERSION, 0, 0, 1]) + torn.dice.randbytes(16)
        return replace(found, message=fingerprint)

    monkeypatch.setattr(Node, "compare", endless)
    assert torn.run(lambda: len(answers) >= fork_detection.ROUNDS_MAX, for_ms=1_800_000)
    torn.run(for_ms=200_000)
    assert len(answers) == fork_detection.ROUNDS_MAX
    one = torn.nodes["n1"].agent.groups[torn.id].comparisons[torn.did("n2")]
    assert one.rounds == fork_detection.ROUNDS_MAX and not one.authors


def ask(world, body, thid=None, thread="t", here="n1", there="n2"):
    """What n1 says to a message of n2, or another one to another one."""
    turn = world.turn(here)
    said = CompareBody(**{"group": world.id, "since": world.now, "message": "YQ", **body})
    fork_detection.hear(turn, world.id, world.did(there), Message(type=COMPARE, id=thread, thid=thid, body={}), said)
    world.nodes[here].agent = turn.agent
    return turn.effects


def test_what_is_not_in_order_is_refused(torn):
    torn.run(for_ms=600_000)
    with pytest.raises(Refused, match="another group"):
        ask(torn, {"group": "A" * 43})
    with pytest.raises(Refused, match="may not have"):
        ask(torn, {"since": torn.nodes["n1"].agent.groups[torn.id].view.members[torn.did("n2")].joined - 1})
    with pytest.raises(Malformed):
        ask(torn, {"message": "!"})
    with pytest.raises(Refused, match="nothing that we have asked"):
        ask(torn, {}, thid="never asked")


def test_an_answer_is_looked_at_once(torn):
    torn.tell_apart("n0", "n1", "n2", ["one"])
    assert torn.run(lambda: torn.questions("n1"), for_ms=1_800_000)
    turn = torn.turn("n1")
    fork_detection.compared(turn, torn.nodes["n1"].compare(torn.questions("n1")[0]))
    torn.nodes["n1"].agent = turn.agent
    thread = turn.group(torn.id).comparisons[torn.did("n2")].thread
    assert len(ask(torn, {}, thid=thread)) == 1
    for _ in range(3):
        with pytest.raises(Refused, match="nothing that we have asked"):
            ask(torn, {}, thid=thread)


def test_who_claims_to_have_nothing_has_little_looked_up(torn):
    torn.post("n0", *map(str, range(30)))
    torn.run(for_ms=5_000)
    group = torn.nodes["n1"].agent.groups[torn.id]
    ids = [(number, bytes([1]) * 28 + number.to_bytes(4, "big")) for number in range(10_000)]
    asked = Compare(group.id, torn.did("n2"), "t", True, 0, b"\x61\x00\x00\x02\x00", ("a",))
    seen = []

    def place_of(name):
        seen.append(name)
        return ("a", 10_000 - len(seen))

    found = fork_detection.look(asked, negentropy.Items(ids), place_of)
    assert len(seen) == fork_detection.LOOKED_UP_MAX
    assert found.places == (("a", 10_000 - len(seen), seen[-1]),)


def test_a_flood_of_questions_is_not_answered(torn):
    torn.run(for_ms=600_000)
    for _ in range(fork_detection.ROUNDS_MAX):
        assert len(ask(torn, {})) == 1
    for _ in range(3):
        with pytest.raises(Refused, match="too many"):
            ask(torn, {})
    torn.run(for_ms=fork_detection.EVERY_MS)
    assert len(ask(torn, {})) == 1


@pytest.mark.parametrize("message", [b"", b"a\0", b"\x61\x00\x00\x02\xff", b"\x61" + b"\x00\x00\x00" * 2, b"\x61\x80"])
def test_nothing_is_said_to_what_cannot_be_read(torn, message):
    asked = Compare(torn.id, torn.did("n2"), "t", False, torn.now, message, ())
    found = torn.nodes["n1"].compare(asked)
    assert found.message == b""
    turn = torn.turn("n1")
    fork_detection.compared(turn, found)
    assert [effect.detail for effect in turn.effects] == ["Malformed"]
    assert torn.nodes["n1"].compare(replace(asked, ours=True, authors=("x",))).places == ()


def test_another_version_of_the_protocol_is_told_ours(torn):
    asked = Compare(torn.id, torn.did("n2"), "t", False, torn.now, b"\x62", ())
    assert torn.nodes["n1"].compare(asked).message == bytes([negentropy.VERSION])


def test_no_answer_tells_of_what_was_said_before_the_member_came(tmp_path):
    """Whatever it asks about: from an earlier time on it is refused, and of the rest the journal answers."""
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
    assert isinstance(asked, Compare) and (asked.member, asked.since) == (world.did("n1"), since)
    node = world.nodes["n0"]
    with Journal.create(tmp_path / "journal.db", KEY) as journal:
        journal.commit(node.agent, node.log)
        said = Shares(journal).compare(asked).message
    assert b64url_bytes(late[0]) in said and b64url_bytes(early[0]) not in said


def test_the_room_for_differences_is_bounded_for_all_and_for_each(torn):
    torn.tell_apart("n0", "n1", "n2", ["one"])
    turn = torn.turn("n1")
    told = tuple(Difference(f"author {n}", 1, torn.did("n2"), 1) for n in range(fork_detection.DIFFERENCES_OF_ONE_MAX))
    turn.edit(torn.id, differences=told)
    torn.perform("n1", turn)
    assert torn.run(lambda: torn.differs("n2"), for_ms=1_800_000)
    torn.run(for_ms=1_800_000)
    assert not torn.questions("n1") and not torn.differs("n1")
    turn = torn.turn("n1")
    turn.edit(torn.id, differences=tuple(replace(one, member=f"m{place % 9}") for place, one in enumerate(told * 8)))
    torn.perform("n1", turn)
    torn.run(for_ms=1_800_000)
    assert len(torn.nodes["n1"].agent.groups[torn.id].differences) == fork_detection.DIFFERENCES_MAX
    assert not torn.differs("n1")


def test_what_a_member_shows_counts_only_where_it_was_asked(torn):
    """A share of something else than what was asked for is refused, and one that is late changes nothing."""
    torn.post("n0", "one")
    torn.run(for_ms=5_000)
    event = next(load_event(row.record) for row in torn.nodes["n1"].log if row.type == POST)
    turn = torn.turn("n1")
    before = turn.agent
    fork_detection.hear_other(turn, torn.id, torn.did("n2"), [replace(event, body={"text": "else"})])
    assert turn.agent is before and not turn.effects


def test_who_is_busy_is_asked_later(torn):
    torn.tell_apart("n0", "n1", "n2", ["one"])
    assert torn.run(lambda: torn.questions("n1"), for_ms=1_800_000)
    turn = torn.turn("n1")
    pull_requests.ask_for(turn, torn.id, torn.did("n2"), [(torn.did("n0"), 0, 1)], 1)
    torn.nodes["n1"].agent = turn.agent  # and it never comes
    assert torn.run(lambda: torn.differs("n1"), for_ms=60_000)


# --- in the machine room ---------------------------------------------------------------------------------------------


def test_the_journal_is_read_as_the_simulator_reads_its_log(torn, tmp_path):
    torn.post("n0", *map(str, range(30)))
    torn.run(for_ms=5_000)
    node = torn.nodes["n1"]
    with Journal.create(tmp_path / "journal.db", KEY) as journal:
        shares = Shares(journal)

        def remember(*effects):
            journal.commit(node.agent, effects)
            shares.note(effects)

        def both(**changes):
            asked = Compare(torn.id, torn.did("n2"), "t", False, 0, b"\x61\x00\x00\x02\x00", ())
            asked = replace(asked, **changes)
            found = shares.compare(asked)
            assert found == node.compare(asked)
            return found

        remember(*node.log[:20])
        rest, node.log = node.log[20:], node.log[:20]
        posts = [row for row in node.log if row.type == POST]
        assert all(b64url_bytes(row.id) in both().message for row in posts)
        everything = both(ours=True, message=b"\x61\x00\x00\x02\x00", authors=(torn.did("n0"),))
        assert everything.places == ((posts[0].author, posts[0].seq, posts[0].id),)
        node.log = node.log + rest
        remember(*rest, rest[0])
        assert len(both().message) > 32 * 30
        assert b64url_bytes(posts[0].id) not in both(since=posts[1].lamport).message
        forged = replace(rest[-1], id=b64url(bytes(32)), seq=rest[-1].seq + 1, vouched=torn.did("n2"))
        node.log.append(forged)
        remember(forged)
        assert bytes(32) in both().message
        assert both(ours=True, message=b"\x61\x00\x00\x02\x00", authors=(torn.did("n0"),)).places == everything.places
        node.log.pop()
        remember(Refute(torn.id, forged.author, rest[-1].seq, forged.seq))
        assert bytes(32) not in both().message


def test_a_message_keeps_to_its_greatest_size(torn):
    rows = [
        Remember("g", b64url(number.to_bytes(32, "big")), "a", number, number, POST, b"", 0, False)
        for number in range(1, 3_000)
    ]
    node = torn.nodes["n1"]
    node.log = rows
    asked = Compare("g", "m", "t", False, 0, b"\x61\x00\x00\x02\x00", ())
    said = node.compare(asked).message
    assert COMPARE_BYTES_MAX - 200 < len(said) <= COMPARE_BYTES_MAX
    assert len(b64url(said)) <= COMPARE_BYTES_MAX * 4 // 3


def test_who_may_say_nothing_is_not_asked(torn):
    """Somebody who was put out, or of whom only one says that it is a member."""
    turn = torn.turn("n1")
    turn.edit(torn.id, quarantine=(torn.did("n2"),))
    torn.nodes["n1"].agent = turn.agent
    with pytest.raises(Refused, match="not a member"):
        ask(torn, {})
    assert torn.ask("n0", SendPost(torn.id, "still here"))


# --- for the faces ---------------------------------------------------------------------------------------------------


def test_the_faces_are_told_who_says_what_and_that_it_proves_nothing(torn):
    torn.post("n0", "for all")
    torn.run(for_ms=5_000)
    torn.tell_apart("n0", "n1", "n2", ["one"])
    assert torn.run(lambda: torn.differs("n1"), for_ms=1_800_000)
    agent = torn.nodes["n1"].agent
    group = agent.groups[torn.id]
    method, about, told = core_state.news(torn.differs("n1")[0], agent, core_state.labels)
    assert (method, about, rpc.NEWS[method]) == ("differs", torn.id, rpc.DiffersNews)
    assert isinstance(told, rpc.DiffersNews)
    assert (told.nick, told.member_nick, told.position) == ("n0", "n2", torn.chain("n1", "n0").seq)
    sentence = delivery_text.news(told, str, str)
    assert sentence.startswith("Careful: n2 has something else than you") and "nobody can prove which" in sentence
    (doubt,) = core_state.group_info(agent, group).disagreements
    assert doubt.member == "" and "n2 has something else than you" in doubt.text
    assert isinstance(torn.ask("n1", DismissDoubts(torn.id, "n0")), Answer)
    assert not core_state.group_info(agent, torn.nodes["n1"].agent.groups[torn.id]).disagreements
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
            agent, group, row, [], core_state.labels(group), core_state.event(group, row, replayed=True)
        )
        fates[text] = delivery.fate(group, row, [], core_state.labels(group), known)
    assert not fates["for all"].differs
    assert [one.member_nick for one in fates["one for n1"].differs] == ["n2"]
    own = torn.nodes["n0"].agent.groups[torn.id]
    own = replace(own, differences=(Difference(own.me, 1, torn.did("n1"), 1),))
    assert "another copy of your profile" in attestation.differs_sentence(own, own.differences[0])
    handed = attestation.differs_sentence(group, replace(group.differences[0], by=group.me))
    assert "n1 has handed over: one of these three, or whoever they have it from" in handed
    torn.nodes["n0"].agent = replace(torn.nodes["n0"].agent, groups={own.id: own})
    _, _, told = core_state.news(Differs(own.id, own.me, 1, torn.did("n1")), torn.nodes["n0"].agent, core_state.labels)
    assert isinstance(told, rpc.DiffersNews) and told.mine
    assert "another copy of your profile" in delivery_text.news(told, str, str)
    assert sentence in delivery_text.sentences(fates["one for n1"], {}, str, str)
