"""Missing events: pull requests, backfill, lost profiles, and false answers."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut, forged
from zerochat.agent.storage.history_reader import HistoryReader
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.event_pages import chain_extent
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import ConfirmEvents, InvitationCreated, Publish, ReadHistory, SendEnvelope, StoreEvent
from zerochat.group.event_log import delivery, receiving
from zerochat.group.event_log.event import LEAVE, POST, load_event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    CreateInvitation,
    HistoryRead,
    LeaveGroup,
)
from zerochat.group.links.rate_limits import ENVELOPE_WORK_US, ENVELOPES_MAX, WORK_US_MAX
from zerochat.group.membership import Policy
from zerochat.group.notifications import EventsRefuted, Gap, HistoryProgress
from zerochat.group.state import Backfill, BackfillProgress, Chain, ChainPosition, ChainStart, PullRequest
from zerochat.group.sync import (
    acknowledgements,
    backfill,
    history_policy,
    history_requests,
    pull_requests,
    relayed_events,
)
from zerochat.group.sync.history_policy import Entry, oldest_allowed, take_page
from zerochat.group.wire.event_runs import Run, write_runs
from zerochat.group.wire.messages import HISTORY_RESPONSE, HistoryResponseBody
from zerochat.sim.node import Node


@pytest.fixture
def cut():
    return Cut


# --- from third members ----------------------------------------------------------------------------------------------


def test_events_of_an_absent_author_come_from_another_member(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two", "three")
    world.run(for_ms=200)
    assert world.texts("n1") == ["one", "two", "three"]
    assert world.texts("n2") == []
    world.kill("n0")
    assert world.run(lambda: world.texts("n2") == ["one", "two", "three"], for_ms=60_000)
    assert world.texts("n2", relayed=True) == ["one", "two", "three"]
    states = [notice.state for notice in world.notices["n2"] if isinstance(notice, Gap)]
    assert states[0] == "asked"
    assert world.run(lambda: any(isinstance(one, Gap) and one.state == "filled" for one in world.notices["n2"]))


def test_a_leave_event_confirms_the_chain(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two")
    world.run_command("n0", LeaveGroup(world.id))
    world.run(for_ms=100_000)
    assert world.texts("n2") == ["one", "two"]
    assert world.texts("n2", relayed=True) == [], "the leave is signed, and names them"


def test_a_returning_author_confirms_relayed_events(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two")
    assert world.run(lambda: world.texts("n2", relayed=True) == ["one", "two"], for_ms=400_000)
    assert world.chain("n2", "n0").confirmed_seq < world.chain("n2", "n0").seq
    world.deaf.clear()
    world.post("n0", "three")
    world.run(for_ms=60_000)
    assert world.texts("n2", relayed=False) == ["one", "two", "three"]
    assert world.chain("n2", "n0").confirmed is None
    assert world.nodes["n2"].refuted == []


def test_refuted_events_are_hidden_and_their_relayer_named(cut):
    world = cut()
    world.bring_in("n1", "n2")
    author = world.did("n0")
    tx = world.tx("n2")
    for event in forged(world, "n2", "n1", author, ["never said", "nor this"]):
        receiving.receive_relayed(tx, world.id, world.did("n1"), event)
    world.perform("n2", tx)
    assert world.texts("n2", relayed=True) == ["never said", "nor this"]
    world.post("n0", "really said")
    world.run(for_ms=120_000)
    assert world.texts("n2") == ["really said"]
    assert [load_event(row.record).body["text"] for row in world.nodes["n2"].refuted] == ["never said", "nor this"]
    assert world.nodes["n2"].agent.groups[world.id].view.forked == {}
    assert world.texts("n1") == ["really said"]


def test_a_certain_contradiction_is_notified(cut):
    world = cut()
    world.bring_in("n1", "n2")
    tx = world.tx("n2")
    (event,) = forged(world, "n2", "n1", world.did("n0"), ["never said"])
    receiving.receive_relayed(tx, world.id, world.did("n1"), event)
    world.perform("n2", tx)
    world.post("n0", "said first")
    world.run(for_ms=20_000)
    told = [one for one in world.notices["n2"] if isinstance(one, EventsRefuted)]
    assert [(one.author, one.relayed_by) for one in told] == [(world.did("n0"), world.did("n1"))]


def test_an_unrequested_response_is_rejected(cut):
    world = cut()
    world.bring_in("n1", "n2")
    events = forged(world, "n2", "n1", world.did("n0"), ["never said"])
    body = {"group": world.id, "more": False, "runs": write_runs(events, world.did("n1"))}
    message = Message(type=HISTORY_RESPONSE, id="m1", thid="t1", body=body)
    share = msgspec.convert(body, HistoryResponseBody)
    assert isinstance(share.runs[0], Run)
    tx = world.tx("n2")
    with pytest.raises(Refused, match="without a request"):
        history_requests.receive_response(tx, world.id, world.did("n1"), message, share)
    errand = PullRequest("t1", ((world.did("n0"), 90, 91),), world.now + 1000)
    tx.update_sync(world.id, pull_requests={world.did("n1"): errand})
    with pytest.raises(Malformed, match="not requested"):
        history_requests.receive_response(tx, world.id, world.did("n1"), message, share)


def test_a_false_claim_is_requested_with_backoff(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.kill("n0")
    tx = world.tx("n2")
    acknowledgements.record_acks(tx, world.id, world.did("n1"), [(world.did("n0"), 1_000)])
    world.perform("n2", tx)
    sent = []
    perform = world._perform

    def counted(node, effect):
        if node.name == "n2" and isinstance(effect, SendEnvelope | Publish):
            sent.append(world.now)
        perform(node, effect)

    world._perform = counted
    world.run(for_ms=3_600_000)
    assert [one.state for one in world.notices["n2"] if isinstance(one, Gap)] == ["asked", "lost"]
    assert len(sent) < 400, "an hour of asking once a minute, and the usual gossip"


# --- for newcomers ---------------------------------------------------------------------------------------------------


def test_a_new_member_gets_confirmed_history(cut):
    world = cut()
    world.post("n0", *(f"early {number}" for number in range(600)))
    world.bring_in("n1")
    world.post("n1", "mine")
    world.bring_in("n2")
    world.run(for_ms=20_000)
    assert world.texts("n2") == [*(f"early {number}" for number in range(600)), "mine"]
    assert world.texts("n2", relayed=True) == []
    assert all(row.history for row in world.nodes["n2"].log if row.type == POST)
    last = [one for one in world.notices["n2"] if isinstance(one, HistoryProgress)][-1]
    assert (last.received, last.remaining, last.done) == (601 + 3, 0, True)  # and the genesis, and n0's two adds


def test_a_chain_that_begins_after_we_join_is_known_from_its_beginning(cut):
    world = cut()
    world.bring_in("n1", "n2")

    def extent():
        return chain_extent(world.group("n2"), world.did("n1"))

    assert (extent().first, extent().seq) == (0, 0), "n1 joined before, and may have posted"
    world.post("n1", "one")
    world.run(for_ms=5_000)
    assert world.texts("n2") == ["one"] and (extent().first, extent().seq) == (1, 1)


def test_an_answer_to_the_history_stands_below_it(cut):
    """A clock that is minutes ahead has dated the new member's history, and its inviter has not received that."""
    world = cut()
    world.bring_in("n1")
    world.deaf.add(frozenset({"n0", "n1"}))
    tx = world.tx("n1")
    tx.update_log(world.id, lamport=world.now + 240_000)
    world.perform("n1", tx)
    world.post("n1", "from a clock that is ahead")
    world.bring_in("n2")
    world.deaf.clear()
    assert world.run(lambda: len(world.texts("n2")) == 1, for_ms=60_000)
    world.post("n2", "an answer")
    assert world.texts("n2") == ["from a clock that is ahead", "an answer"]


def test_the_newest_events_arrive_first(cut):
    world = cut()
    world.post("n0", *(f"early {number}" for number in range(600)))
    world.bring_in("n1")
    rows = [load_event(row.record).body["text"] for row in world.nodes["n1"].log if row.type == POST]
    assert len(rows) == 600
    assert rows[0] == "early 599"
    places = [int(text.split()[1]) for text in rows]
    assert places[:200] == sorted(places[:200], reverse=True)


def test_a_useless_member_with_our_view_is_dropped_eventually(cut):
    """A liar can report our view while all others know another member."""
    world = cut()
    world.bring_in("n1", "n2")
    tx, liar = world.tx("n2"), world.did("n1")
    ours = tx.group(world.id).view.checksum
    for member in tx.group(world.id).links.peers:
        tx.update_anti_entropy(world.id, member, view=ours if member == liar else "another")
    asked = [backfill._choose_peer(tx, world.id, BackfillProgress(tries=tries)) for tries in range(8)]
    assert asked[:2] == [liar, liar] and set(asked) == tx.group(world.id).links.peers.keys()


def test_pages_per_request_double_within_the_rate_limit(cut, monkeypatch):
    monkeypatch.setattr(history_requests, "RUN_EVENTS_MAX", 10)
    world = cut()
    world.faults = replace(world.faults, delay_ms_max=1)  # nothing overtakes anything
    world.post("n0", *(f"early {number}" for number in range(600)))
    asked = []
    perform = world._perform

    def counted(node, effect):
        if isinstance(effect, ReadHistory):
            asked.append((effect.page, effect.pages))
        perform(node, effect)

    world._perform = counted
    world.bring_in("n1")
    assert len(world.texts("n1")) == 600
    assert [pages for page, pages in asked if page == 0][:5] == [1, 2, 4, 8, 8]
    assert len(asked) >= 60
    conduct = world.nodes["n1"].agent.groups[world.id].links.peers[world.did("n0")].rate_limit
    assert conduct.envelopes > ENVELOPES_MAX - 40, "what was asked for is given back"
    assert conduct.work > WORK_US_MAX - 40 * ENVELOPE_WORK_US


def test_a_lost_page_is_requested_again(cut, monkeypatch):
    monkeypatch.setattr(history_requests, "RUN_EVENTS_MAX", 10)
    world = cut()
    world.faults = replace(world.faults, delay_ms_max=1)
    world.post("n0", *(f"early {number}" for number in range(300)))
    perform, pages = world._perform, []

    def losing(node, effect):
        if isinstance(effect, ReadHistory) and effect.page == 1:
            pages.append(effect)
            if len(pages) == 2:
                effect = replace(effect, page=2)  # as if the one before had been sent
        perform(node, effect)

    world._perform = losing
    world.bring_in("n1")
    world.run(for_ms=10_000)
    assert world.nodes["n1"].dropped["dropped HistoryOutOfOrder"] >= 1
    rows = [row.id for row in world.nodes["n1"].log]
    assert len(world.texts("n1")) == 300 and len(rows) == len(set(rows))


def test_a_former_members_history_stays_unconfirmed(cut):
    world = cut()
    world.bring_in("n1")
    world.post("n1", "one", "two")
    world.run(for_ms=5_000)
    world.kill("n1")
    world.bring_in("n2")
    assert world.run(lambda: world.texts("n2") == ["one", "two"], for_ms=60_000)
    assert world.texts("n2", relayed=True) == ["one", "two"]
    assert {row.relayed_by for row in world.nodes["n2"].log if row.type == POST} == {world.did("n0")}


def test_unconfirmed_history_is_limited_until_the_author_returns(cut, monkeypatch):
    monkeypatch.setattr(relayed_events, "UNCONFIRMED_MAX", 20)
    monkeypatch.setattr(backfill, "UNCONFIRMED_MAX", 20)
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
        if isinstance(effect, ReadHistory) and effect.backwards:
            asked.append(effect)
        perform(node, effect)

    world._perform = counted
    world.bring_in("n2")
    world.run(for_ms=60_000)
    assert world.texts("n2", relayed=True) == said[-20:]
    last = [one for one in world.notices["n2"] if isinstance(one, HistoryProgress)][-1]
    assert last.done and last.remaining
    count = len(asked)
    world.run(for_ms=600_000)
    assert len(asked) == count, "nobody is asked for what would not be taken"
    world.deaf.clear()
    world.restart("n1")
    assert world.run(lambda: world.texts("n2") == said, for_ms=600_000)
    assert world.texts("n2", relayed=True) == []


def test_endless_more_is_requested_with_backoff(cut, monkeypatch):
    world = cut()
    world.bring_in("n1")
    world.post("n1", "one", "two", "three")
    world.run(for_ms=5_000)
    world.kill("n1")
    asked = []
    perform = world._perform

    def lying(node, effect):
        if isinstance(effect, ReadHistory) and effect.backwards:
            asked.append(effect.pages)
            empty = HistoryRead(
                effect.group, effect.member, effect.thread, (), True, True, effect.ranges, 0, effect.pages
            )
            world.process(node.name, empty)
            return
        perform(node, effect)

    world._perform = lying
    world.bring_in("n2")
    world.run(for_ms=1_800_000)
    assert 5 < len(asked) < 50, "some quickly, then one a minute"
    assert set(asked) == {1}


@pytest.mark.parametrize(("rule", "expected"), [("none", []), ("last:2", ["four", "five"])])
def test_the_group_limits_history_of_new_members(cut, rule, expected):
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
def test_a_new_member_gets_no_more_history_than_allowed(cut, tmp_path, monkeypatch, history, allowed, back):
    """It is not handed over in the first place, nor by the journal of a real agent: that the newcomer's own program
    would refuse it is no defence against one with another program."""
    world = cut(policy=Policy(history=history))
    world.post("n0", "one", "two")
    world.bring_in("n1")
    answered, usual = [], Node.read_history

    def noted(node, asked):
        answered.append((asked, usual(node, asked)))
        return answered[-1][1]

    monkeypatch.setattr(Node, "read_history", noted)
    tx = world.tx("n1")
    pull_requests.send(tx, world.id, world.did("n0"), [(world.did("n0"), 0, 3)], 256, backwards=back)
    assert tx.group(world.id).sync.pull_requests
    world.perform("n1", tx)
    world.run(for_ms=10_000)
    assert world.texts("n1") == allowed
    asked, given = answered[-1]
    assert (asked.member, asked.ranges) == (world.did("n1"), ((world.did("n0"), 0, 3),))
    node = world.nodes["n0"]
    with Journal.create(tmp_path / "journal.db", bytes(32)) as journal:
        journal.commit(node.agent, node.log)
        for records in (given.records, HistoryReader(journal).answer_pull(asked).records):
            texts = [load_event(one).body.get("text") for one in records if load_event(one).type == POST]
            assert texts == allowed


def test_an_interrupted_backfill_resumes(cut, monkeypatch):
    world = cut()
    world.post("n0", *(f"early {number}" for number in range(1_000)))
    invitation = world.run_command("n0", CreateInvitation(world.id, 3600, 1))
    assert isinstance(invitation.result, InvitationCreated)
    world.run_command("n1", AcceptInvitation(invitation.result.invitation, "n1"))
    assert world.run(lambda: len(world.texts("n1")) >= 300, for_ms=60_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    world.run(for_ms=30_000)
    had = {row.record for row in world.nodes["n1"].log if row.type == POST}
    assert 300 <= len(had) < 1_000
    world.restart("n1")
    answered, usual = [], Node.read_history

    def noted(node, asked):
        found = usual(node, asked)
        answered.extend(found.records)
        return found

    monkeypatch.setattr(Node, "read_history", noted)
    world.deaf.clear()
    assert world.run(lambda: len(world.texts("n1")) == 1_000, for_ms=200_000)
    posts = {record for record in answered if load_event(record).type == POST}
    assert len(posts) == 1_000 - len(had) and not had & posts, "no word of what is here is brought again"


def test_a_member_without_history_is_queried_again(cut, monkeypatch):
    """It may have been fetching the same history itself."""
    world = cut()
    world.bring_in("n1")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    with monkeypatch.context() as patch:
        fetch = Node.read_history
        patch.setattr(Node, "read_history", lambda node, asked: replace(fetch(node, asked), records=(), more=False))
        world.bring_in("n2")
        assert world.run(lambda: world.nodes["n2"].agent.groups[world.id].sync.backfill.done, for_ms=600_000)
        assert world.texts("n2") == []
    told = len(world.notices["n2"])
    assert world.run(lambda: world.texts("n2") == ["one", "two"], for_ms=2 * backfill.RECHECK_MS)
    assert world.run(lambda: world.nodes["n2"].agent.groups[world.id].sync.backfill.done, for_ms=60_000)
    assert any(isinstance(one, HistoryProgress) and one.received for one in world.notices["n2"][told:])


def test_every_possible_source_is_queried(cut, monkeypatch):
    """However many members without history were asked before, the one that has it gets its turn."""
    monkeypatch.setattr(backfill, "TRIES_MAX", 2)
    monkeypatch.setattr(backfill, "PEERS_MAX", 1)
    world = cut(6)
    world.bring_in("n1", "n2", "n3", "n4")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    fetch, asked = Node.read_history, []

    def only_one_has_it(node, wanted):
        if wanted.backwards:
            asked.append(node.name)
        found = fetch(node, wanted)
        return found if node.name == "n4" else replace(found, records=(), more=False)

    monkeypatch.setattr(Node, "read_history", only_one_has_it)
    world.bring_in("n5")
    assert world.run(lambda: world.texts("n5") == ["one", "two"], for_ms=8 * backfill.RECHECK_MS)
    assert sorted(asked[:5]) == ["n0", "n1", "n2", "n3", "n4"], "each is asked before anybody is asked again"


def test_each_source_is_queried_for_all_that_is_missing(cut, monkeypatch):
    world = cut(5)
    world.bring_in("n1", "n2", "n3")
    for name in ("n0", "n1", "n2"):
        world.post(name, f"of {name}")
    world.run(for_ms=5_000)
    fetch, asked = Node.read_history, {}

    def nothing(node, wanted):
        if wanted.backwards:
            asked.setdefault(node.name, []).append({author for author, _, _ in wanted.ranges})
        return replace(fetch(node, wanted), records=(), more=False)

    monkeypatch.setattr(Node, "read_history", nothing)
    world.bring_in("n4")
    world.run(for_ms=backfill.RECHECK_MS)
    missing = {world.did(name) for name in ("n0", "n1", "n2")}
    assert all(missing in asked[name] for name in ("n0", "n1", "n2", "n3"))


def test_an_author_is_queried_for_its_own_chain_first(cut, monkeypatch):
    """Where not all that is missing fits into one question."""
    monkeypatch.setattr(backfill, "RANGES_MAX", 2)
    world = cut(6)
    world.bring_in("n1", "n2", "n3", "n4")
    authors = ("n0", "n1", "n2", "n3")
    for name in authors:
        world.post(name, f"of {name}")
    world.run(for_ms=5_000)
    fetch, asked = Node.read_history, {}

    def nothing(node, wanted):
        if wanted.backwards:
            asked.setdefault(node.name, []).append([author for author, _, _ in wanted.ranges])
        return replace(fetch(node, wanted), records=(), more=False)

    monkeypatch.setattr(Node, "read_history", nothing)
    world.bring_in("n5")
    world.run(for_ms=backfill.RECHECK_MS)
    assert all(world.did(name) in want for name in authors for want in asked[name])
    assert all(len(set(want)) == 2 for wants in asked.values() for want in wants), "as much as fits"
    for name, wants in asked.items():
        others = {author for want in wants for author in want} - {world.did(name)}
        assert len(others) >= min(2, len(wants)), "one after the other"


def test_backfill_waits_once_for_a_member_with_our_view(cut, monkeypatch):
    world = cut(5)
    world.bring_in("n1", "n2", "n3")
    for name in ("n0", "n1", "n2"):
        world.post(name, f"of {name}")
    world.run(for_ms=5_000)
    fetch, asked = Node.read_history, []

    def nothing(node, wanted):
        if wanted.backwards:
            asked.append((world.now, node.name))
        return replace(fetch(node, wanted), records=(), more=False)

    monkeypatch.setattr(Node, "read_history", nothing)
    monkeypatch.setattr(backfill, "_has_same_view", lambda group, member: False)
    world.bring_in("n4")
    begun = world.now
    world.run(for_ms=120_000)
    assert {name for _, name in asked[:4]} == {"n0", "n1", "n2", "n3"}
    assert asked[3][0] < begun + 30_000


def test_lost_requests_do_not_count_as_tries(cut, monkeypatch):
    world = cut(4)
    world.bring_in("n1", "n2")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    fetch, perform, asked = Node.read_history, world._perform, []

    def nothing_yet(node, wanted):
        return replace(fetch(node, wanted), records=(), more=False)

    def silent(node, effect):
        if isinstance(effect, ReadHistory) and effect.backwards:
            asked.append((node.name, world.now))
            if node.name == "n0":
                return
        perform(node, effect)

    world._perform = silent
    with monkeypatch.context() as patch:
        patch.setattr(Node, "read_history", nothing_yet)
        world.bring_in("n3")
        world.run(for_ms=3 * backfill.RECHECK_MS)
        state = world.nodes["n3"].agent.groups[world.id].sync.backfill
        assert state.done and 0 < state.rechecks < backfill.RECHECKS_MAX
    assert {name for name, _ in asked} == {"n0", "n1", "n2"}
    assert world.run(lambda: world.texts("n3") == ["one", "two"], for_ms=4 * backfill.RECHECK_MS)


def test_answers_that_are_lost_do_not_count_as_having_nothing(cut, monkeypatch):
    """Otherwise a few of them would leave it without available history until the recheck, much later."""
    world = cut()
    world.bring_in("n1")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    fetch, perform, lost = Node.read_history, world._perform, []

    def losing(node, effect):
        if isinstance(effect, ReadHistory) and effect.backwards and node.name == "n0" and len(lost) < 3:
            lost.append(world.now)
            return
        perform(node, effect)

    def only_n0_has_it(node, wanted):
        found = fetch(node, wanted)
        return found if node.name == "n0" else replace(found, records=(), more=False)

    world._perform = losing
    monkeypatch.setattr(Node, "read_history", only_n0_has_it)
    world.bring_in("n2")
    begun = world.now
    assert world.run(lambda: world.texts("n2") == ["one", "two"], for_ms=backfill.RECHECK_MS)
    assert len(lost) == 3 and world.now < begun + backfill.RECHECK_MS // 2


def test_a_silent_member_is_queried_ever_less_often(cut):
    world = cut()
    world.bring_in("n1")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    perform, asked = world._perform, []

    def mute(node, effect):
        if isinstance(effect, ReadHistory) and effect.backwards:
            asked.append(world.now)
            return
        perform(node, effect)

    world._perform = mute
    world.bring_in("n2")

    world.run(for_ms=2 * backfill.RECHECK_MS)
    count = len(asked)
    assert count < 30 and asked[-1] - asked[-2] >= backfill.RETRY_MS_MAX
    assert world.nodes["n2"].agent.groups[world.id].sync.backfill.lost < 10


def test_a_restart_does_not_hasten_rechecks(cut, monkeypatch):
    """Nor does it use up the rechecks."""
    world = cut()
    world.bring_in("n1")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    fetch, asked = Node.read_history, []

    def nothing(node, wanted):
        asked.append(wanted.backwards)
        return replace(fetch(node, wanted), records=(), more=False)

    monkeypatch.setattr(Node, "read_history", nothing)
    world.bring_in("n2")

    def state():
        return world.nodes["n2"].agent.groups[world.id].sync.backfill

    assert world.run(lambda: state().done, for_ms=60_000)
    count = sum(asked)
    for _ in range(5):
        world.restart("n2")
        world.run(for_ms=10_000)
    assert (state().rechecks, sum(asked)) == (0, count)
    assert world.run(lambda: state().rechecks == 1, for_ms=backfill.RECHECK_MS)
    assert world.run(lambda: sum(asked) == count + 2, for_ms=60_000)


def test_new_claims_do_not_postpone_backfill(cut):
    world = cut(4)
    world.bring_in("n1", "n2")
    world.post("n0", "one", "two")
    world.run(for_ms=5_000)
    fetched, perform = [], world._perform

    def counted(node, effect):
        if isinstance(effect, ReadHistory) and effect.backwards:
            fetched.append(world.now)
        perform(node, effect)

    world._perform = counted
    world.bring_in("n3")
    count = len(fetched)
    for since in range(1, 100):
        tx = world.tx("n3")
        delivery.start_chain(tx, world.id, world.did("n1"), since)
        world.perform("n3", tx)
        world.run(for_ms=backfill.RETRY_MS * 9 // 10)
    assert len(fetched) > count + 3


def test_a_former_members_events_for_us_are_requested_from_all(cut, monkeypatch):
    """A member that joined later has only the end, and does not know that more was for us."""
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
    fetch, perform, asked = Node.read_history, world._perform, []

    def counted(node, effect):
        if isinstance(effect, ReadHistory) and effect.backwards:
            asked.append((node.name, effect.ranges))
        perform(node, effect)

    def silent(node, wanted):
        return replace(fetch(node, wanted), records=()) if node.name == "n0" else fetch(node, wanted)

    world._perform = counted
    with monkeypatch.context() as patch:
        patch.setattr(Node, "read_history", silent)
        world.run_command("n1", LeaveGroup(world.id))
        assert world.run(lambda: world.texts("n2") == ["three"], for_ms=60_000)
    assert world.run(lambda: world.texts("n2") == ["one", "two", "three"], for_ms=60_000)
    assert world.texts("n3") == ["three"], "who came later is not told what was said before"
    wanted = [author for _, want in asked for author, _, _ in want]
    assert set(wanted) == {world.did("n1")}, "nobody is asked for anything else from before our time"


def forging(monkeypatch, name, kinds=(POST,)):
    """Have this node hand over other words, one after the other, in the place of all of these kinds."""
    fetch = Node.read_history

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

    monkeypatch.setattr(Node, "read_history", lying)


def test_a_signed_leave_contradicts_forged_history(cut, monkeypatch):
    """Its leave is signed and names its predecessor: neither place can be forged."""
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one")
    with monkeypatch.context() as patch:
        forging(patch, "n1", (POST, LEAVE))
        world.run_command("n0", LeaveGroup(world.id))
        world.run(for_ms=30_000)
        assert world.did("n0") in world.nodes["n2"].agent.groups[world.id].view.former
        assert world.texts("n2") == []
    assert world.run(lambda: world.texts("n2") == ["one"], for_ms=120_000)


def test_a_signed_event_refutes_relayed_ones(cut, monkeypatch):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one")
    with monkeypatch.context() as patch:
        forging(patch, "n1")
        world.run(for_ms=1_000)
        world.kill("n0")
        assert world.run(lambda: world.texts("n2") == ["forged"], for_ms=60_000)
        world.run_command("n0", ChangeLabel(world.id, "zero"))
        signed = load_event(world.nodes["n0"].log[-1].record)
        tx = world.tx("n2")
        receiving.receive_event(tx, world.id, world.did("n1"), signed)
        world.perform("n2", tx)
        assert world.texts("n2") == []
        assert any(isinstance(one, EventsRefuted) for one in world.notices["n2"])
    assert world.run(lambda: world.texts("n2") == ["one"], for_ms=120_000)


def test_a_refuted_stretch_is_dropped_and_requested_again(cut, monkeypatch):
    """We had everything of an absent author from others, and its last membership event proves it forged."""
    world = cut()
    world.bring_in("n1")
    world.post("n1", "one", "two")
    world.run(for_ms=5_000)
    world.kill("n1")
    with monkeypatch.context() as patch:
        forging(patch, "n0")
        world.bring_in("n2")
        assert world.run(lambda: world.texts("n2") == ["forged", "forged"], for_ms=60_000)
    world.run_command("n1", ChangeLabel(world.id, "another"))
    tx = world.tx("n2")
    receiving.receive_event(tx, world.id, world.did("n0"), load_event(world.nodes["n1"].log[-1].record))
    world.perform("n2", tx)
    assert world.texts("n2") == []
    assert world.run(lambda: world.texts("n2") == ["one", "two"], for_ms=60_000)


def test_two_signed_events_at_one_position_are_both_accepted(cut):
    """Otherwise a member that received one of them could never have the successors of the other."""
    world = cut()
    world.bring_in("n1")
    world.post("n1", "one")
    first = world.run_command("n1", ChangeLabel(world.id, "a")) and load_event(world.nodes["n1"].log[-1].record)
    group = world.nodes["n1"].agent.groups[world.id]
    other = replace(first, body={"label": "b"}, sig="").signed(group.seed)
    before = load_event(next(row.record for row in world.nodes["n1"].log if row.type == POST))
    both = replace(group, control={**group.control, other.id: other})
    signed = relayed_events.signed_by(both, group.me)
    assert {one.id for one in signed[first.seq]} == {first.id, other.id}
    assert not any(relayed_events.contradicts_signed(signed, event) for event in (first, other, before))
    made_up = load_event(replace(before, body={"text": "forged"}).record)
    assert relayed_events.contradicts_signed(signed, made_up)
    assert relayed_events.contradicts_signed(signed, replace(made_up, seq=first.seq))
    assert not relayed_events.contradicts_signed(signed, replace(made_up, seq=first.seq + 7))


def test_a_new_member_joins_the_request_rotation(cut):
    world = cut(4)
    world.bring_in("n1", "n2", "n3")
    group = world.nodes["n3"].agent.groups[world.id]
    a, b, c = (world.did(name) for name in ("n0", "n1", "n2"))
    assert backfill._request_counts(group, BackfillProgress()) == {a: 0, b: 0, c: 0}
    assert backfill._request_counts(group, BackfillProgress(requests={a: 7, b: 5, "gone": 1})) == {a: 7, b: 5, c: 5}


def test_history_that_its_author_contradicts_is_not_taken(cut):
    """A history keeper changes a word: the author has named the right event by its hash."""
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
    assert world.nodes["n2"].agent.groups[world.id].sync.backfill.done


def test_an_event_that_does_not_fit_holds_up_no_other_chain(cut, monkeypatch):
    """It is the newest, so it begins each page, and the next event is too large for the same page."""
    monkeypatch.setattr(history_policy, "RUN_BYTES_MAX", 1)
    world = cut()
    world.bring_in("n1")
    world.post("n1", "mine")
    world.run(for_ms=5_000)
    world.post("n0", "said")
    world.run(for_ms=5_000)
    keeper = world.nodes["n1"]
    for place, row in enumerate(keeper.log):
        if row.type == POST and row.author == world.group("n0").me:
            event = replace(load_event(row.record), body={"text": "forged"})
            keeper.log[place] = replace(row, record=event.record)
    world.nodes["n0"].log = [row for row in world.nodes["n0"].log if row.type != POST]
    world.bring_in("n2")
    world.run(for_ms=120_000)
    assert world.texts("n2") == ["mine"]


# --- the arithmetic ---------------------------------------------------------------------------------------------------


def test_all_history_rules_must_allow_an_event():
    def nth(number, before):
        return {1: 90, 2: 80, 3: 70, 4: 70}.get(number, 0) if before == 100 else 0

    assert oldest_allowed(("all", "all"), 100, nth) == 0
    assert oldest_allowed(("all", "none"), 100, nth) == 100
    assert oldest_allowed(("last:2", "all"), 100, nth) == 71
    assert oldest_allowed(("last:2", "since:85"), 100, nth) == 85
    assert oldest_allowed(("since:500",), 100, nth) == 100, "what was said since it came is not held back"
    assert oldest_allowed(("last:3",), 100, nth) == 71, (
        "of two that were said at one time neither, and never one too many"
    )
    assert oldest_allowed(("last:4",), 100, nth) == 0
    assert oldest_allowed(("tomorrow",), 100, nth) == 100
    assert oldest_allowed((), 100, nth) == 100


def test_a_response_is_bounded_and_reports_more():
    def places(*asked):
        page, more = take_page(*asked)
        return [entry.position for entry in page], more

    entries = [Entry("a", place, place, 10, place) for place in range(1, 11)]
    assert places(entries, [("a", 2, 9)], 0, 3) == ([3, 4, 5], True)
    assert places(entries, [("a", 2, 5)], 0, 3) == ([3, 4, 5], False)
    assert places(entries, [("a", 0, 10)], 9, 99) == ([9, 10], False)
    assert places(entries, [("b", 0, 10)], 0, 99) == ([], False)
    large = [Entry("a", place, place, 30_000, place) for place in range(1, 4)]
    assert places(large, [("a", 0, 9)], 0, 99) == ([1], True)


def test_an_unannounced_chain_confirms_nothing():
    assert Chain(5, confirmed=ChainPosition(3)).confirmed_seq == 3
    assert Chain(5, confirmed=ChainPosition(3), start=ChainStart.UNANNOUNCED).confirmed_seq == 0
    assert Chain.after(0).backfill is None
    assert Chain.after(7) == Chain(7, backfill=Backfill(8))


def test_a_confirmation_names_its_end(cut):
    world = cut()
    world.bring_in("n1", "n2")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two")
    confirmed, kept = [], []
    perform = world._perform

    def heard(node, effect):
        if node.name == "n2" and isinstance(effect, ConfirmEvents):
            confirmed.append(effect)
        if node.name == "n2" and isinstance(effect, StoreEvent) and effect.relayed_by:
            kept.append(effect.seq)
        perform(node, effect)

    world._perform = heard
    world.run(lambda: len(kept) == 2, for_ms=60_000)
    world.run_command("n0", LeaveGroup(world.id))
    world.run(for_ms=60_000)
    assert [(one.after, one.upto) for one in confirmed] == [(kept[0] - 1, kept[-1])]
