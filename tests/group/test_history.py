"""What is missing and who brings it: third members, histories for newcomers, lost profiles; and who lies about it."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.group.test_join import Small
from zerochat.agent.storage.history_reader import Shares
from zerochat.agent.storage.journal import Journal
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Confirm, Dispatch, Fetch, InvitationCreated, Publish, Remember
from zerochat.group.event_log import log
from zerochat.group.event_log.event import LEAVE, POST, load_event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    CreateGroup,
    CreateInvitation,
    Fetched,
    LeaveGroup,
    LinkDown,
    Moment,
    SendPost,
)
from zerochat.group.links.rate_limits import ENVELOPES_MAX
from zerochat.group.membership import Policy
from zerochat.group.notifications import Gap, HistoryFetched, Refuted
from zerochat.group.state import Chain, Errand, Fetching, Past, Spot
from zerochat.group.sync import acknowledgements, backfill, history_requests, pull_requests
from zerochat.group.sync import relayed_events as vouched
from zerochat.group.sync.history_policy import Entry, floor_of, portion
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import Run, write_runs
from zerochat.group.wire.messages import SHARE, ShareBody
from zerochat.sim import SIMULATED_PACKERS
from zerochat.sim.node import Node


class Cut(Small):
    """Members of one group, of whom some do not hear each other for a while."""

    def __init__(self, members=3, policy=None):
        super().__init__(members)
        self.deaf = set()
        self.notices = {name: [] for name in self.nodes}
        answer = self.ask("n0", CreateGroup("friends", "n0", self.envelope, "pairwise-multi", policy or Policy()))
        self.id = answer.result.group

    def bring_in(self, *names):
        for name in names:
            invitation = self.ask("n0", CreateInvitation(self.id, 3600, 1)).result.invitation
            self.ask(name, AcceptInvitation(invitation, name))
            self.run(for_ms=5_000)

    def post(self, name, *texts):
        return [self.ask(name, SendPost(self.id, text)).result.id for text in texts]

    def texts(self, name, vouched=None):
        """What somebody has of the posts, in the order in which it is shown."""
        rows = sorted(self.nodes[name].log, key=lambda row: (row.lamport, row.author, row.id))
        posts = [row for row in rows if row.type == POST and (vouched is None or bool(row.vouched) == vouched)]
        return [load_event(row.record).body["text"] for row in posts]

    def did(self, name):
        return self.nodes[name].agent.groups[self.id].me

    def chain(self, name, author):
        return self.nodes[name].agent.groups[self.id].chain(self.did(author))

    def kill(self, name):
        """Its machine is gone for good."""
        self.deaf |= {frozenset({name, other}) for other in self.nodes if other != name}
        for link in list(self.nodes[name].dialled):
            self._disconnect(self.nodes[name], link)
        self.nodes[name].dialled.clear()
        self.nodes[name].admitted.clear()
        self.nodes[name].timers.clear()
        for other in self.nodes.values():
            for link in [link for link, end in other.connected.items() if end == name]:
                self._disconnect(other, link)
                self._later(60, other.name, LinkDown(link))  # that it is up may not be known yet

    def _frame(self, name, stimulus):
        if frozenset({self.speaking, name}) not in self.deaf:
            super()._frame(name, stimulus)

    def _perform(self, node, effect):
        self.speaking = node.name
        notice = getattr(effect, "notice", None)
        if notice is not None and hasattr(self, "notices"):
            self.notices[node.name].append(notice)
        super()._perform(node, effect)

    def turn(self, name):
        return Turn(self.nodes[name].agent, Moment(self.now, self.dice.randbytes), SIMULATED_PACKERS)

    def perform(self, name, turn):
        """What was done in this turn really happens."""
        self.nodes[name].agent = turn.agent
        for effect in turn.effects:
            self._perform(self.nodes[name], effect)


@pytest.fixture
def cut():
    return Cut


# --- from third members ----------------------------------------------------------------------------------------------


def test_what_an_author_cannot_repeat_any_more_comes_from_somebody_who_has_it(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two", "three")
    world.run(for_ms=200)
    assert world.texts("n1") == ["one", "two", "three"]
    assert world.texts("n2") == []
    world.kill("n0")
    assert world.run(lambda: world.texts("n2") == ["one", "two", "three"], for_ms=60_000)
    assert world.texts("n2", vouched=True) == ["one", "two", "three"]
    states = [notice.state for notice in world.notices["n2"] if isinstance(notice, Gap)]
    assert states[0] == "asked"
    assert world.run(lambda: any(isinstance(one, Gap) and one.state == "filled" for one in world.notices["n2"]))


def test_what_somebody_said_who_has_left_is_confirmed_by_its_last_word(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two")
    world.ask("n0", LeaveGroup(world.id))
    world.run(for_ms=100_000)
    assert world.texts("n2") == ["one", "two"]
    assert world.texts("n2", vouched=True) == [], "the leave is signed, and names them"


def test_an_author_who_is_back_confirms_what_others_have_brought(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two")
    assert world.run(lambda: world.texts("n2", vouched=True) == ["one", "two"], for_ms=400_000)
    assert world.chain("n2", "n0").sure < world.chain("n2", "n0").seq
    world.deaf.clear()
    world.post("n0", "three")
    world.run(for_ms=60_000)
    assert world.texts("n2", vouched=False) == ["one", "two", "three"]
    assert world.chain("n2", "n0").own is None
    assert world.nodes["n2"].refuted == []


def forged(world, name, member, author, texts):
    """What a member who lies hands over as an author's next posts."""
    group = world.nodes[name].agent.groups[world.id]
    chain = group.chain(author)
    events, seq, pre, lamport = [], chain.seq, chain.tip or chain.past.before or "A" * 43, chain.lamport
    for text in texts:
        template = next(load_event(r.record) for r in world.nodes[member].log if r.author == author)
        seq, lamport = seq + 1, max(lamport, group.lamport) + 1
        body = {"text": text}
        event = replace(
            template, group=world.id, type=POST, seq=seq, pre=pre, deps=(), conc=(), lamport=lamport, body=body, sig=""
        )
        events.append(event)
        pre = event.id
    return events


def test_what_the_author_contradicts_is_refuted_and_nobody_but_the_liar_is_named(cut):
    world = cut()
    world.bring_in("n1", "n2")
    author = world.did("n0")
    turn = world.turn("n2")
    for event in forged(world, "n2", "n1", author, ["never said", "nor this"]):
        log.hear_shared(turn, world.id, world.did("n1"), event)
    world.perform("n2", turn)
    assert world.texts("n2", vouched=True) == ["never said", "nor this"]
    world.post("n0", "really said")
    world.run(for_ms=120_000)
    assert world.texts("n2") == ["really said"]
    assert [load_event(row.record).body["text"] for row in world.nodes["n2"].refuted] == ["never said", "nor this"]
    assert world.nodes["n2"].agent.groups[world.id].view.forked == {}
    assert world.texts("n1") == ["really said"]


def test_a_contradiction_that_is_certain_is_told(cut):
    world = cut()
    world.bring_in("n1", "n2")
    turn = world.turn("n2")
    (event,) = forged(world, "n2", "n1", world.did("n0"), ["never said"])
    log.hear_shared(turn, world.id, world.did("n1"), event)
    world.perform("n2", turn)
    world.post("n0", "said first")
    world.run(for_ms=20_000)
    told = [one for one in world.notices["n2"] if isinstance(one, Refuted)]
    assert [(one.author, one.by) for one in told] == [(world.did("n0"), world.did("n1"))]


def test_what_nobody_has_asked_for_is_not_heard(cut):
    world = cut()
    world.bring_in("n1", "n2")
    events = forged(world, "n2", "n1", world.did("n0"), ["never said"])
    body = {"group": world.id, "more": False, "runs": write_runs(events, world.did("n1"))}
    message = Message(type=SHARE, id="m1", thid="t1", body=body)
    share = msgspec.convert(body, ShareBody)
    assert isinstance(share.runs[0], Run)
    turn = world.turn("n2")
    with pytest.raises(Refused, match="nobody has asked"):
        history_requests.hear_share(turn, world.id, world.did("n1"), message, share)
    errand = Errand("t1", ((world.did("n0"), 90, 91),), world.now + 1000)
    turn.edit(world.id, errands={world.did("n1"): errand})
    with pytest.raises(Malformed, match="something else"):
        history_requests.hear_share(turn, world.id, world.did("n1"), message, share)


def test_a_member_who_claims_more_than_there_is_is_asked_ever_more_rarely(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.kill("n0")
    turn = world.turn("n2")
    acknowledgements.acknowledged(turn, world.id, world.did("n1"), {world.did("n0"): 1_000})
    world.perform("n2", turn)
    sent = []
    perform = world._perform

    def counted(node, effect):
        if node.name == "n2" and isinstance(effect, Dispatch | Publish):
            sent.append(world.now)
        perform(node, effect)

    world._perform = counted
    world.run(for_ms=3_600_000)
    assert [one.state for one in world.notices["n2"] if isinstance(one, Gap)] == ["asked", "lost"]
    assert len(sent) < 400, "an hour of asking once a minute, and the usual gossip"


# --- for newcomers ---------------------------------------------------------------------------------------------------


def test_a_newcomer_gets_the_history_and_the_authors_vouch_for_it_themselves(cut):
    world = cut()
    world.post("n0", *(f"early {number}" for number in range(600)))
    world.bring_in("n1")
    world.post("n1", "mine")
    world.bring_in("n2")
    world.run(for_ms=20_000)
    assert world.texts("n2") == [*(f"early {number}" for number in range(600)), "mine"]
    assert world.texts("n2", vouched=True) == []
    assert all(row.history for row in world.nodes["n2"].log if row.type == POST)
    last = [one for one in world.notices["n2"] if isinstance(one, HistoryFetched)][-1]
    assert (last.got, last.left, last.done) == (601 + 3, 0, True)  # and the genesis, and n0's two adds


def test_an_answer_to_the_history_stands_below_it(cut):
    """A clock that is minutes ahead has dated what the newcomer is given, and whoever let it in had not heard that."""
    world = cut()
    world.bring_in("n1")
    world.deaf.add(frozenset({"n0", "n1"}))
    turn = world.turn("n1")
    turn.edit(world.id, lamport=world.now + 240_000)
    world.perform("n1", turn)
    world.post("n1", "from a clock that is ahead")
    world.bring_in("n2")
    world.deaf.clear()
    assert world.run(lambda: len(world.texts("n2")) == 1, for_ms=60_000)
    world.post("n2", "an answer")
    assert world.texts("n2") == ["from a clock that is ahead", "an answer"]


def test_the_newest_come_first(cut):
    world = cut()
    world.post("n0", *(f"early {number}" for number in range(600)))
    world.bring_in("n1")
    rows = [load_event(row.record).body["text"] for row in world.nodes["n1"].log if row.type == POST]
    assert len(rows) == 600
    assert rows[0] == "early 599"
    places = [int(text.split()[1]) for text in rows]
    assert places[:200] == sorted(places[:200], reverse=True)


def test_whoever_alone_knows_of_the_same_members_and_gives_nothing_is_not_asked_for_ever(cut):
    """A liar can tell the same view as ours, while all others know of somebody more."""
    world = cut()
    world.bring_in("n1", "n2")
    turn, liar = world.turn("n2"), world.did("n1")
    ours = turn.group(world.id).view.checksum
    for member in turn.group(world.id).peers:
        turn.edit_peer(world.id, member, view=ours if member == liar else "another")
    asked = [backfill._whom(turn, world.id, Fetching(tries=tries)) for tries in range(8)]
    assert asked[:2] == [liar, liar] and set(asked) == turn.group(world.id).peers.keys()


def test_ever_more_pages_come_for_one_question_and_do_not_count_as_too_much(cut, monkeypatch):
    monkeypatch.setattr(history_requests, "RUN_EVENTS_MAX", 10)
    world = cut()
    world.faults = replace(world.faults, delay_ms_max=1)  # nothing overtakes anything
    world.post("n0", *(f"early {number}" for number in range(600)))
    asked = []
    perform = world._perform

    def counted(node, effect):
        if isinstance(effect, Fetch):
            asked.append((effect.page, effect.pages))
        perform(node, effect)

    world._perform = counted
    world.bring_in("n1")
    assert len(world.texts("n1")) == 600
    assert [pages for page, pages in asked if page == 0][:5] == [1, 2, 4, 8, 8]
    assert len(asked) >= 60
    conduct = world.nodes["n1"].agent.groups[world.id].peers[world.did("n0")].conduct
    assert conduct.envelopes > ENVELOPES_MAX - 40, "what was asked for is given back"


def test_a_page_that_is_lost_is_asked_for_anew(cut, monkeypatch):
    monkeypatch.setattr(history_requests, "RUN_EVENTS_MAX", 10)
    world = cut()
    world.faults = replace(world.faults, delay_ms_max=1)
    world.post("n0", *(f"early {number}" for number in range(300)))
    perform, pages = world._perform, []

    def losing(node, effect):
        if isinstance(effect, Fetch) and effect.page == 1:
            pages.append(effect)
            if len(pages) == 2:
                effect = replace(effect, page=2)  # as if the one before had been sent
        perform(node, effect)

    world._perform = losing
    world.bring_in("n1")
    world.run(for_ms=10_000)
    assert world.nodes["n1"].dropped["dropped HistoryOutOfTurn"] >= 1
    rows = [row.id for row in world.nodes["n1"].log]
    assert len(world.texts("n1")) == 300 and len(rows) == len(set(rows))


def test_the_history_of_somebody_who_is_gone_is_vouched_for(cut):
    world = cut()
    world.bring_in("n1")
    world.post("n1", "one", "two")
    world.run(for_ms=5_000)
    world.kill("n1")
    world.bring_in("n2")
    assert world.run(lambda: world.texts("n2") == ["one", "two"], for_ms=60_000)
    assert world.texts("n2", vouched=True) == ["one", "two"]
    assert {row.vouched for row in world.nodes["n2"].log if row.type == POST} == {world.did("n0")}


def test_no_more_is_taken_on_others_word_than_may_be_and_the_rest_when_the_author_is_back(cut, monkeypatch):
    monkeypatch.setattr(vouched, "VOUCHED_MAX", 20)
    monkeypatch.setattr(backfill, "VOUCHED_MAX", 20)
    monkeypatch.setattr(history_requests, "RUN_EVENTS_MAX", 10)
    world = cut()
    world.bring_in("n1")
    said = [f"early {number}" for number in range(150)]
    world.post("n1", *said)
    world.run(for_ms=5_000)
    world.kill("n1")
    asked = []
    perform = world._perform

    def counted(node, effect):
        if isinstance(effect, Fetch) and effect.back:
            asked.append(effect)
        perform(node, effect)

    world._perform = counted
    world.bring_in("n2")
    world.run(for_ms=60_000)
    assert world.texts("n2", vouched=True) == said[-20:]
    last = [one for one in world.notices["n2"] if isinstance(one, HistoryFetched)][-1]
    assert last.done and last.left
    count = len(asked)
    world.run(for_ms=600_000)
    assert len(asked) == count, "nobody is asked for what would not be taken"
    world.deaf.clear()
    world.restart("n1")
    assert world.run(lambda: world.texts("n2") == said, for_ms=600_000)
    assert world.texts("n2", vouched=True) == []


def test_whoever_always_says_that_there_is_more_is_asked_ever_more_rarely(cut, monkeypatch):
    world = cut()
    world.bring_in("n1")
    world.post("n1", "one", "two", "three")
    world.run(for_ms=5_000)
    world.kill("n1")
    asked = []
    perform = world._perform

    def lying(node, effect):
        if isinstance(effect, Fetch) and effect.back:
            asked.append(effect.pages)
            empty = Fetched(effect.group, effect.member, effect.thread, (), True, True, effect.want, 0, effect.pages)
            world.hear(node.name, empty)
            return
        perform(node, effect)

    world._perform = lying
    world.bring_in("n2")
    world.run(for_ms=1_800_000)
    assert 5 < len(asked) < 50, "some quickly, then one a minute"
    assert set(asked) == {1}


@pytest.mark.parametrize(("rule", "expected"), [("none", []), ("last:2", ["four", "five"])])
def test_a_group_says_what_newcomers_may_have(cut, rule, expected):
    world = cut(policy=Policy(history=rule))
    world.post("n0", "one", "two", "three", "four", "five")
    world.bring_in("n1")
    world.run(for_ms=60_000)
    assert world.texts("n1") == expected
    world.post("n0", "six")
    world.run(for_ms=5_000)
    assert world.texts("n1") == [*expected, "six"]


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize(("history", "allowed"), [("none", []), ("last:1", ["two"])])
def test_a_newcomer_who_asks_for_more_than_it_may_have_does_not_get_it(
    cut, tmp_path, monkeypatch, history, allowed, back
):
    """It is not handed over in the first place, nor by the journal of a real agent: that the newcomer's own program
    would refuse it is no defence against one with another program."""
    world = cut(policy=Policy(history=history))
    world.post("n0", "one", "two")
    world.bring_in("n1")
    answered, usual = [], Node.fetch

    def noted(node, asked):
        answered.append((asked, usual(node, asked)))
        return answered[-1][1]

    monkeypatch.setattr(Node, "fetch", noted)
    turn = world.turn("n1")
    pull_requests.ask_for(turn, world.id, world.did("n0"), [(world.did("n0"), 0, 3)], 256, back=back)
    assert turn.group(world.id).errands
    world.perform("n1", turn)
    world.run(for_ms=10_000)
    assert world.texts("n1") == allowed
    asked, given = answered[-1]
    assert (asked.member, asked.want) == (world.did("n1"), ((world.did("n0"), 0, 3),))
    node = world.nodes["n0"]
    with Journal.create(tmp_path / "journal.db", bytes(32)) as journal:
        journal.commit(node.agent, node.log)
        for records in (given.records, Shares(journal).fetch(asked).records):
            texts = [load_event(one).body.get("text") for one in records if load_event(one).type == POST]
            assert texts == allowed


def test_a_cut_in_the_middle_is_no_reason_to_begin_anew(cut, monkeypatch):
    world = cut()
    world.post("n0", *(f"early {number}" for number in range(1_000)))
    invitation = world.ask("n0", CreateInvitation(world.id, 3600, 1))
    assert isinstance(invitation.result, InvitationCreated)
    world.ask("n1", AcceptInvitation(invitation.result.invitation, "n1"))
    assert world.run(lambda: len(world.texts("n1")) >= 300, for_ms=60_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.run(for_ms=30_000)
    had = {row.record for row in world.nodes["n1"].log if row.type == POST}
    assert 300 <= len(had) < 1_000
    world.restart("n1")
    answered, usual = [], Node.fetch

    def noted(node, asked):
        found = usual(node, asked)
        answered.extend(found.records)
        return found

    monkeypatch.setattr(Node, "fetch", noted)
    world.deaf.clear()
    assert world.run(lambda: len(world.texts("n1")) == 1_000, for_ms=200_000)
    posts = {record for record in answered if load_event(record).type == POST}
    assert len(posts) == 1_000 - len(had) and not had & posts, "no word of what is here is brought again"


def test_whoever_had_nothing_is_asked_again_later(cut, monkeypatch):
    """It may have been fetching the same history itself."""
    world = cut()
    world.bring_in("n1")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    with monkeypatch.context() as patch:
        fetch = Node.fetch
        patch.setattr(Node, "fetch", lambda node, asked: replace(fetch(node, asked), records=(), more=False))
        world.bring_in("n2")
        assert world.run(lambda: world.nodes["n2"].agent.groups[world.id].fetching.done, for_ms=600_000)
        assert world.texts("n2") == []
    told = len(world.notices["n2"])
    assert world.run(lambda: world.texts("n2") == ["one", "two"], for_ms=2 * backfill.LATER_MS)
    assert world.run(lambda: world.nodes["n2"].agent.groups[world.id].fetching.done, for_ms=60_000)
    assert any(isinstance(one, HistoryFetched) and one.got for one in world.notices["n2"][told:])


def test_nobody_is_passed_over_who_may_be_the_only_one_to_have_it(cut, monkeypatch):
    """However many have nothing, and were asked for longer than the one who has: that one has its turn."""
    monkeypatch.setattr(backfill, "TRIES_MAX", 2)
    monkeypatch.setattr(backfill, "ASKED_MAX", 1)
    world = cut(6)
    world.bring_in("n1", "n2", "n3", "n4")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    fetch, asked = Node.fetch, []

    def only_one_has_it(node, wanted):
        if wanted.back:
            asked.append(node.name)
        found = fetch(node, wanted)
        return found if node.name == "n4" else replace(found, records=(), more=False)

    monkeypatch.setattr(Node, "fetch", only_one_has_it)
    world.bring_in("n5")
    assert world.run(lambda: world.texts("n5") == ["one", "two"], for_ms=8 * backfill.LATER_MS)
    assert sorted(asked[:5]) == ["n0", "n1", "n2", "n3", "n4"], "each is asked before anybody is asked again"


def test_each_is_asked_for_all_that_is_missing(cut, monkeypatch):
    world = cut(5)
    world.bring_in("n1", "n2", "n3")
    for name in ("n0", "n1", "n2"):
        world.post(name, f"of {name}")
    world.run(for_ms=5_000)
    fetch, asked = Node.fetch, {}

    def nothing(node, wanted):
        if wanted.back:
            asked.setdefault(node.name, []).append({author for author, _, _ in wanted.want})
        return replace(fetch(node, wanted), records=(), more=False)

    monkeypatch.setattr(Node, "fetch", nothing)
    world.bring_in("n4")
    world.run(for_ms=backfill.LATER_MS)
    missing = {world.did(name) for name in ("n0", "n1", "n2")}
    assert all(missing in asked[name] for name in ("n0", "n1", "n2", "n3"))


def test_an_author_is_always_asked_for_its_own_words_and_for_the_others_in_turn(cut, monkeypatch):
    """Where not all that is missing fits into one question."""
    monkeypatch.setattr(backfill, "WANT_MAX", 2)
    world = cut(6)
    world.bring_in("n1", "n2", "n3", "n4")
    authors = ("n0", "n1", "n2", "n3")
    for name in authors:
        world.post(name, f"of {name}")
    world.run(for_ms=5_000)
    fetch, asked = Node.fetch, {}

    def nothing(node, wanted):
        if wanted.back:
            asked.setdefault(node.name, []).append([author for author, _, _ in wanted.want])
        return replace(fetch(node, wanted), records=(), more=False)

    monkeypatch.setattr(Node, "fetch", nothing)
    world.bring_in("n5")
    world.run(for_ms=backfill.LATER_MS)
    assert all(world.did(name) in want for name in authors for want in asked[name])
    assert all(len(set(want)) == 2 for wants in asked.values() for want in wants), "as much as fits"
    for name, wants in asked.items():
        others = {author for want in wants for author in want} - {world.did(name)}
        assert len(others) >= min(2, len(wants)), "one after the other"


def test_where_nobody_knows_of_the_same_members_it_waits_for_that_only_once(cut, monkeypatch):
    world = cut(5)
    world.bring_in("n1", "n2", "n3")
    for name in ("n0", "n1", "n2"):
        world.post(name, f"of {name}")
    world.run(for_ms=5_000)
    fetch, asked = Node.fetch, []

    def nothing(node, wanted):
        if wanted.back:
            asked.append((world.now, node.name))
        return replace(fetch(node, wanted), records=(), more=False)

    monkeypatch.setattr(Node, "fetch", nothing)
    monkeypatch.setattr(backfill, "_of_our_mind", lambda group, member: False)
    world.bring_in("n4")
    begun = world.now
    world.run(for_ms=120_000)
    assert {name for _, name in asked[:4]} == {"n0", "n1", "n2", "n3"}
    assert asked[3][0] < begun + 30_000


def test_who_does_not_answer_does_not_use_up_the_times_that_it_is_asked_for_again(cut, monkeypatch):
    world = cut(4)
    world.bring_in("n1", "n2")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    fetch, perform, asked = Node.fetch, world._perform, []

    def nothing_yet(node, wanted):
        return replace(fetch(node, wanted), records=(), more=False)

    def silent(node, effect):
        if isinstance(effect, Fetch) and effect.back:
            asked.append((node.name, world.now))
            if node.name == "n0":
                return
        perform(node, effect)

    world._perform = silent
    with monkeypatch.context() as patch:
        patch.setattr(Node, "fetch", nothing_yet)
        world.bring_in("n3")
        world.run(for_ms=3 * backfill.LATER_MS)
        state = world.nodes["n3"].agent.groups[world.id].fetching
        assert state.done and 0 < state.late < backfill.LATE_MAX
    assert {name for name, _ in asked} == {"n0", "n1", "n2"}
    assert world.run(lambda: world.texts("n3") == ["one", "two"], for_ms=4 * backfill.LATER_MS)


def test_answers_that_are_lost_do_not_count_as_having_nothing(cut, monkeypatch):
    """Else a few of them would leave it without what there is until it is asked for again, much later."""
    world = cut()
    world.bring_in("n1")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    fetch, perform, lost = Node.fetch, world._perform, []

    def losing(node, effect):
        if isinstance(effect, Fetch) and effect.back and node.name == "n0" and len(lost) < 3:
            lost.append(world.now)
            return
        perform(node, effect)

    def only_n0_has_it(node, wanted):
        found = fetch(node, wanted)
        return found if node.name == "n0" else replace(found, records=(), more=False)

    world._perform = losing
    monkeypatch.setattr(Node, "fetch", only_n0_has_it)
    world.bring_in("n2")
    begun = world.now
    assert world.run(lambda: world.texts("n2") == ["one", "two"], for_ms=backfill.LATER_MS)
    assert len(lost) == 3 and world.now < begun + backfill.LATER_MS // 2


def test_who_never_answers_is_asked_ever_more_rarely(cut):
    world = cut()
    world.bring_in("n1")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    perform, asked = world._perform, []

    def mute(node, effect):
        if isinstance(effect, Fetch) and effect.back:
            asked.append(world.now)
            return
        perform(node, effect)

    world._perform = mute
    world.bring_in("n2")

    world.run(for_ms=2 * backfill.LATER_MS)
    count = len(asked)
    assert count < 30 and asked[-1] - asked[-2] >= backfill.AGAIN_MS_MAX
    assert world.nodes["n2"].agent.groups[world.id].fetching.unanswered < 10


def test_whoever_begins_anew_asks_no_sooner_for_what_nobody_had(cut, monkeypatch):
    """Nor does it use up the times that it asks again."""
    world = cut()
    world.bring_in("n1")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    fetch, asked = Node.fetch, []

    def nothing(node, wanted):
        asked.append(wanted.back)
        return replace(fetch(node, wanted), records=(), more=False)

    monkeypatch.setattr(Node, "fetch", nothing)
    world.bring_in("n2")

    def state():
        return world.nodes["n2"].agent.groups[world.id].fetching

    assert world.run(lambda: state().done, for_ms=60_000)
    count = sum(asked)
    for _ in range(5):
        world.restart("n2")
        world.run(for_ms=10_000)
    assert (state().late, sum(asked)) == (0, count)
    assert world.run(lambda: state().late == 1, for_ms=backfill.LATER_MS)
    assert world.run(lambda: sum(asked) == count + 2, for_ms=60_000)


def test_whoever_tells_of_ever_more_does_not_put_off_what_is_fetched(cut):
    world = cut(4)
    world.bring_in("n1", "n2")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    fetched, perform = [], world._perform

    def counted(node, effect):
        if isinstance(effect, Fetch) and effect.back:
            fetched.append(world.now)
        perform(node, effect)

    world._perform = counted
    world.bring_in("n3")
    count = len(fetched)
    for since in range(1, 100):
        turn = world.turn("n3")
        log.start_chain(turn, world.id, world.did("n1"), since)
        world.perform("n3", turn)
        world.run(for_ms=backfill.AGAIN_MS * 9 // 10)
    assert len(fetched) > count + 3


def test_what_somebody_who_has_gone_said_to_us_is_asked_of_all_in_a_group_without_a_past(cut, monkeypatch):
    """Whoever came later has only the end of it, and does not know that there was more for us."""
    world = cut(4, Policy(history="none"))
    world.bring_in("n1")
    world.deaf.add(frozenset({"n1", "n2"}))
    world.bring_in("n2")
    world.post("n1", "one", "two")
    world.run(for_ms=5_000)
    assert world.texts("n0") == ["one", "two"]
    world.bring_in("n3")
    world.post("n1", "three")
    world.run(for_ms=5_000)
    assert world.texts("n3") == ["three"]
    fetch, perform, asked = Node.fetch, world._perform, []

    def counted(node, effect):
        if isinstance(effect, Fetch) and effect.back:
            asked.append((node.name, effect.want))
        perform(node, effect)

    def silent(node, wanted):
        return replace(fetch(node, wanted), records=()) if node.name == "n0" else fetch(node, wanted)

    world._perform = counted
    with monkeypatch.context() as patch:
        patch.setattr(Node, "fetch", silent)
        world.ask("n1", LeaveGroup(world.id))
        assert world.run(lambda: world.texts("n2") == ["three"], for_ms=60_000)
    assert world.run(lambda: world.texts("n2") == ["one", "two", "three"], for_ms=60_000)
    assert world.texts("n3") == ["three"], "who came later is not told what was said before"
    wanted = [author for _, want in asked for author, _, _ in want]
    assert set(wanted) == {world.did("n1")}, "nobody is asked for anything else from before our time"


def forging(monkeypatch, name, kinds=(POST,)):
    """Have this node hand over other words, one after the other, in the place of all of these kinds."""
    fetch = Node.fetch

    def forged(records):
        before = {}
        for event in sorted(map(load_event, records), key=lambda event: event.seq):
            if event.type in kinds:
                pre = before.get(event.author, event.pre)
                event = replace(event, type=POST, body={"text": "forged"}, sig="", pre=pre)
                event = load_event(event.record)
                before[event.author] = event.id
            yield event.record

    def lying(node, asked):
        found = fetch(node, asked)
        return replace(found, records=tuple(forged(found.records))) if node.name == name else found

    monkeypatch.setattr(Node, "fetch", lying)


def test_what_somebody_who_has_left_has_signed_speaks_against_what_others_hand_over(cut, monkeypatch):
    """Its last word is signed, and names what was before it: there is nothing to make up in either place."""
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one")
    with monkeypatch.context() as patch:
        forging(patch, "n1", (POST, LEAVE))
        world.ask("n0", LeaveGroup(world.id))
        world.run(for_ms=30_000)
        assert world.did("n0") in world.nodes["n2"].agent.groups[world.id].view.former
        assert world.texts("n2") == []
    assert world.run(lambda: world.texts("n2") == ["one"], for_ms=120_000)


def test_what_was_handed_over_is_given_up_for_what_its_author_turns_out_to_have_signed(cut, monkeypatch):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one")
    with monkeypatch.context() as patch:
        forging(patch, "n1")
        world.run(for_ms=1_000)
        world.kill("n0")
        assert world.run(lambda: world.texts("n2") == ["forged"], for_ms=60_000)
        world.ask("n0", ChangeLabel(world.id, "zero"))
        signed = load_event(world.nodes["n0"].log[-1].record)
        turn = world.turn("n2")
        log.hear_event(turn, world.id, world.did("n1"), signed)
        world.perform("n2", turn)
        assert world.texts("n2") == []
        assert any(isinstance(one, Refuted) for one in world.notices["n2"])
    assert world.run(lambda: world.texts("n2") == ["one"], for_ms=120_000)


def test_what_is_not_its_authors_word_is_given_up_whole_and_asked_for_again(cut, monkeypatch):
    """Of somebody who is away we had everything from others, and its last membership event shows that it is made up."""
    world = cut()
    world.bring_in("n1")
    world.post("n1", "one", "two")
    world.run(for_ms=5_000)
    world.kill("n1")
    with monkeypatch.context() as patch:
        forging(patch, "n0")
        world.bring_in("n2")
        assert world.run(lambda: world.texts("n2") == ["forged", "forged"], for_ms=60_000)
    world.ask("n1", ChangeLabel(world.id, "another"))
    turn = world.turn("n2")
    log.hear_event(turn, world.id, world.did("n0"), load_event(world.nodes["n1"].log[-1].record))
    world.perform("n2", turn)
    assert world.texts("n2") == []
    assert world.run(lambda: world.texts("n2") == ["one", "two"], for_ms=60_000)


def test_of_two_things_signed_in_one_place_neither_is_refused(cut):
    """Else whoever has heard of one of them could never have what the other one follows from."""
    world = cut()
    world.bring_in("n1")
    world.post("n1", "one")
    first = world.ask("n1", ChangeLabel(world.id, "a")) and load_event(world.nodes["n1"].log[-1].record)
    group = world.nodes["n1"].agent.groups[world.id]
    other = replace(first, body={"label": "b"}, sig="").signed(group.seed)
    before = load_event(next(row.record for row in world.nodes["n1"].log if row.type == POST))
    both = replace(group, control={**group.control, other.id: other})
    signed = vouched.signed_by(both, group.me)
    assert [one.id for one in signed[first.seq]] == [first.id, other.id]
    assert not any(vouched.contradicted(signed, event) for event in (first, other, before))
    made_up = load_event(replace(before, body={"text": "forged"}).record)
    assert vouched.contradicted(signed, made_up)
    assert vouched.contradicted(signed, replace(made_up, seq=first.seq))
    assert not vouched.contradicted(signed, replace(made_up, seq=first.seq + 7))


def test_whoever_comes_while_others_are_asked_is_one_of_them(cut):
    world = cut(4)
    world.bring_in("n1", "n2", "n3")
    group = world.nodes["n3"].agent.groups[world.id]
    a, b, c = (world.did(name) for name in ("n0", "n1", "n2"))
    assert backfill._asks(group, Fetching()) == {a: 0, b: 0, c: 0}
    assert backfill._asks(group, Fetching(asks={a: 7, b: 5, "gone": 1})) == {a: 7, b: 5, c: 5}


def test_history_that_its_author_contradicts_is_not_taken(cut):
    """Whoever keeps the history changes a word in it: the author has named the right one by its hash."""
    world = cut()
    world.bring_in("n1")
    world.post("n0", "said")
    world.run(for_ms=5_000)
    keeper = world.nodes["n1"]
    for place, row in enumerate(keeper.log):
        if row.type == POST:
            event = replace(load_event(row.record), body={"text": "forged"})
            keeper.log[place] = replace(row, record=event.record)
    world.nodes["n0"].log = [row for row in world.nodes["n0"].log if row.type != POST]
    world.bring_in("n2")
    world.run(for_ms=120_000)
    assert world.texts("n2") == []
    assert world.nodes["n2"].agent.groups[world.id].fetching.done


# --- the arithmetic ---------------------------------------------------------------------------------------------------


def test_what_a_member_may_have_is_what_all_rules_allow():
    def nth(number, before):
        return {1: 90, 2: 80, 3: 70, 4: 70}.get(number, 0) if before == 100 else 0

    assert floor_of(("all", "all"), 100, nth) == 0
    assert floor_of(("all", "none"), 100, nth) == 100
    assert floor_of(("last:2", "all"), 100, nth) == 71
    assert floor_of(("last:2", "since:85"), 100, nth) == 85
    assert floor_of(("since:500",), 100, nth) == 100, "what was said since it came is not held back"
    assert floor_of(("last:3",), 100, nth) == 71, "of two that were said at one time neither, and never one too many"
    assert floor_of(("last:4",), 100, nth) == 0
    assert floor_of(("tomorrow",), 100, nth) == 100
    assert floor_of((), 100, nth) == 100


def test_an_answer_is_bounded_and_says_whether_there_is_more():
    entries = [Entry("a", place, place, b"x" * 10) for place in range(1, 11)]
    assert portion(entries, [("a", 2, 9)], 0, 3) == ([b"x" * 10] * 3, True)
    assert portion(entries, [("a", 2, 5)], 0, 3) == ([b"x" * 10] * 3, False)
    assert portion(entries, [("a", 0, 10)], 9, 99) == ([b"x" * 10] * 2, False)
    assert portion(entries, [("b", 0, 10)], 0, 99) == ([], False)
    large = [Entry("a", place, place, b"x" * 30_000) for place in range(1, 4)]
    assert portion(large, [("a", 0, 9)], 0, 99) == ([b"x" * 30_000], True)


def test_a_chain_of_which_the_author_has_said_nothing_is_nothing_sure():
    assert Chain(5, own=Spot(3)).sure == 3
    assert Chain(5, own=Spot(3), untold=True).sure == 0
    assert Chain.after(0).past is None
    assert Chain.after(7) == Chain(7, past=Past(8))


def test_confirming_says_up_to_where(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two")
    confirmed, kept = [], []
    perform = world._perform

    def heard(node, effect):
        if node.name == "n2" and isinstance(effect, Confirm):
            confirmed.append(effect)
        if node.name == "n2" and isinstance(effect, Remember) and effect.vouched:
            kept.append(effect.seq)
        perform(node, effect)

    world._perform = heard
    world.run(lambda: len(kept) == 2, for_ms=60_000)
    world.ask("n0", LeaveGroup(world.id))
    world.run(for_ms=60_000)
    assert [(one.after, one.upto) for one in confirmed] == [(kept[0] - 1, kept[-1])]
