"""How much of a log is here, as far as the others have told: worked out from the state, and said in a sentence."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.group.test_members import Ruled
from zerochat import rpc
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.views import core_state
from zerochat.agent.views.completeness import PRESENT_MS, completeness, known_of
from zerochat.group import notifications
from zerochat.group.inputs import LeaveGroup, SendPost
from zerochat.group.state import Limbo, Need, Waiting
from zerochat.group.sync.history_requests import TRIES_MAX
from zerochat.presentation import delivery
from zerochat.rpc import Completeness, GapInfo, Heard


class Parted(Ruled):
    """A group in which some pairs cannot reach each other."""

    def __init__(self, members=3):
        self.cut = set()
        super().__init__(members)

    def _ends(self, node, link):
        ends = super()._ends(node, link)
        return None if ends is None or frozenset((node.name, ends[0].name)) in self.cut else ends

    def part(self, one, other):
        self.cut.add(frozenset((one, other)))
        for name, there in ((one, other), (other, one)):
            node = self.nodes[name]
            for link in [link for link, end in node.connected.items() if end == there]:
                self._disconnect(node, link)
        self.run(for_ms=500)

    def meet(self):
        self.cut.clear()
        self._connect_all()

    def whole(self, name):
        group, up = self.group(name), self.nodes[name].agent.up
        near = {did for did, peer in group.peers.items() if peer.link in up}
        return completeness(group, near, self.now)


def sentence(found):
    return delivery.wholeness(found, lambda nick: nick, lambda stamp: stamp[11:16])


# --- what follows from the state --------------------------------------------------------------------------------------


@pytest.fixture
def world():
    return Parted()


def test_with_everybody_connected_it_is_complete(world):
    world.says("n2", SendPost("friends", "one"))
    group = world.group("n1")
    found = world.whole("n1")
    assert found.complete and found.gaps == [] and found.waiting == 0
    assert [(one.nick, one.present, one.missing, one.agrees) for one in found.members] == [
        ("n0", True, 0, True),
        ("n2", True, 0, True),
    ]
    assert found.upto == group.lamport and found.upto_at == timestamp(group.lamport)
    oldest = min(peer.heard for peer in group.peers.values())
    assert found.at == timestamp(oldest)
    assert sentence(found) == f"complete with n0 and n2 as of {found.at[11:16]}"


def test_who_is_away_is_named_with_the_time(world):
    heard = {did: replace(peer, heard=world.now - PRESENT_MS - 60_000) for did, peer in world.group("n1").peers.items()}
    group = replace(world.group("n1"), peers=heard)
    away = completeness(group, (), world.now)
    assert away.complete, "nothing is known to be missing"
    assert away.at is None and not any(one.present for one in away.members)
    stamp = timestamp(world.now - PRESENT_MS - 60_000)[11:16]
    assert sentence(away) == f"n0 and n2 not heard from since {stamp}"
    near = completeness(group, [world.group("n0").me], world.now)
    assert sentence(near) == f"complete with n0 as of {stamp}; n2 not heard from since {stamp}"
    never = {did: replace(peer, heard=0) for did, peer in heard.items()}
    assert sentence(completeness(replace(group, peers=never), (), world.now)) == "n0 and n2 not heard from yet"


def test_what_somebody_has_told_of_and_is_not_here_is_missing(world):
    world.says("n2", SendPost("friends", "one"))
    group, author = world.group("n1"), world.group("n2").me
    teller = world.group("n0").me
    here = group.chain(author)
    told = replace(group.peers[teller], acked={**group.peers[teller].acked, author: here.seq + 3})
    behind = replace(group, peers={**group.peers, teller: told})
    found = completeness(behind, group.peers, world.now)
    assert not found.complete
    (gap,) = found.gaps
    assert (gap.nick, gap.after, gap.upto, gap.missing, gap.state) == ("n2", here.seq, here.seq + 3, 3, "waiting")
    assert found.upto == here.lamport, "what is missing is newer than the last that is here"
    assert known_of(behind, author) == here.seq + 3 and known_of(group, author) == here.seq
    assert "3 messages of n2 missing" in sentence(found) and "complete with n0 as of" in sentence(found)
    assert found.at == timestamp(behind.peers[teller].heard), "as of the word of those of whom it is said"

    # What has come too early is here, and waits.
    early = replace(behind, limbo={author: Limbo({here.seq + 3: b"{}", here.seq + 5: b"{}"})})
    (gap,) = completeness(early, group.peers, world.now).gaps
    assert (gap.upto, gap.missing) == (here.seq + 5, 3)

    # Membership events come over others as well: those that are here are not missing.
    other = next(event for event in group.control.values() if event.type == "add")
    known = {**group.control, "x": replace(other, author=author, seq=here.seq + 2)}
    (gap,) = completeness(replace(behind, control=known), group.peers, world.now).gaps
    assert gap.missing == 2
    all_of_them = {str(n): replace(other, author=author, seq=here.seq + n) for n in (1, 2, 3)}
    assert completeness(replace(behind, control=group.control | all_of_them), group.peers, world.now).complete

    # Nor is what counts for nobody.
    member = replace(group.view.members[author], until=here.seq)
    view = replace(group.view, members={**group.view.members, author: member})
    assert completeness(replace(early, view=view), group.peers, world.now).complete

    asked = replace(behind, needs={author: Need(here.seq + 3, tries=1, since=world.now)})
    found = completeness(asked, group.peers, world.now)
    assert found.gaps[0].state == "asked" and "(asked for since " in sentence(found)
    lost = replace(behind, needs={author: Need(here.seq + 3, tries=TRIES_MAX, since=world.now)})
    found = completeness(lost, group.peers, world.now)
    assert found.gaps[0].state == "lost" and "(nobody who could be asked has them)" in sentence(found)


def test_missing_membership_events_leave_nothing_to_promise(world):
    group = replace(world.group("n1"), waiting={"x": Waiting(world.group("n0").me, b"{}")})
    found = completeness(group, group.peers, world.now)
    assert (found.complete, found.upto, found.upto_at, found.waiting) == (False, 0, None, 1)
    assert "something that changed who is a member is missing" in sentence(found)
    other = replace(group.peers[world.group("n0").me], view="another")
    found = completeness(replace(group, peers={**group.peers, world.group("n0").me: other}), group.peers, world.now)
    assert found.members[0].agrees is False and sentence(found).endswith("n0 sees other members")


def test_nobody_speaks_for_a_group_that_one_has_left(world):
    assert world.whole("n2") is not None
    world.ask("n2", LeaveGroup("friends"))
    world.settle()
    assert world.group("n2").state == "left" and world.whole("n2") is None
    assert [one.nick for one in world.whole("n0").members] == ["n1"]


def test_alone():
    world = Parted(1)
    found = world.whole("n0")
    assert found.complete and found.members == [] and sentence(found) == "nobody else is here"


def test_many_are_counted_and_not_named():
    members = [Heard(did=str(n), nick=f"m{n}", at="2026-07-01T12:04:00.000Z", present=True) for n in range(5)]
    found = Completeness(at="2026-07-01T12:04:00.000Z", members=members)
    assert sentence(found) == "complete with 5 members as of 12:04"
    one = GapInfo(author="0", nick="m0", after=1, upto=2, missing=1)
    assert sentence(Completeness(at=found.at, members=members, gaps=[one])).endswith("; 1 message of m0 missing")


# --- played out -------------------------------------------------------------------------------------------------------


def test_what_one_member_cannot_reach_is_missed_and_then_there(world):
    """n1 is cut off from n2, hears from n0 that n2 has spoken, and gets it from n0."""
    world.part("n1", "n2")
    seen = []
    world.heed = lambda name, notice: seen.append(world.whole("n1")) if name == "n1" else None
    for text in ("one", "two"):
        world.ask("n2", SendPost("friends", text))
    world.run(until=lambda: bool(world.heard("n1", notifications.Completed)), for_ms=120_000)
    world.heed = None
    author = world.group("n2").me
    gaps = world.heard("n1", notifications.Gap)
    assert [(gap.author, gap.state) for gap in gaps][:1] == [(author, "asked")] and gaps[-1].state == "filled"
    assert len(world.heard("n1", notifications.Completed)) == 1
    missed = [found for found in seen if found.gaps]
    assert missed and all(found.gaps[0].author == author and not found.complete for found in missed)
    assert world.whole("n1").complete and world.whole("n1").upto == world.group("n1").lamport


def test_the_core_s_news_of_the_log_reach_the_faces(world):
    group = world.group("n1")
    author, by = world.group("n2").me, world.group("n0").me

    def told(notice):
        agent = world.nodes["n1"].agent
        method, about, item = core_state.news(notice, agent, core_state.labels)
        assert about == group.id and type(item) is rpc.NEWS[method]
        assert msgspec.to_builtins(item)["type"] == method, "in a stream with events it can be told from them"
        return item

    gap = told(notifications.Gap(group.id, author, 3, 5, "asked"))
    assert (gap.nick, gap.after, gap.upto, gap.state) == ("n2", 3, 5, "asked")
    assert delivery.news(gap, str, str) == "2 messages of n2 are missing; others are asked for them."
    filled = told(notifications.Gap(group.id, author, 3, 4, "filled"))
    assert delivery.news(filled, str, str) == "1 message of n2 that was missing is here now."
    lost = told(notifications.Gap(group.id, author, 3, 4, "lost"))
    assert delivery.news(lost, str, str).endswith("nobody who could be asked has it.")
    done = told(notifications.Completed(group.id, 77, 88))
    assert (done.upto, done.at) == (77, timestamp(88)) and "Nothing is missing" in delivery.news(done, str, str)
    fork = told(notifications.Forked(group.id, author, 9))
    assert fork.position == 9 and "n2 has said two different things" in delivery.news(fork, str, str)
    refuted = told(notifications.Refuted(group.id, author, by, 1, 2))
    assert (refuted.nick, refuted.by_nick) == ("n2", "n0") and "n0 has handed over" in delivery.news(refuted, str, str)
    earlier = told(notifications.HistoryFetched(group.id, 7, 9, False))
    assert delivery.news(earlier, str, str).startswith("7 events from before you joined")
    assert delivery.news(told(notifications.HistoryFetched(group.id, 7, 0, True)), str, str).endswith(
        "is here: 7 events."
    )


def test_groups_and_members_say_it_too(world):
    agent, group = world.nodes["n1"].agent, world.group("n1")
    info = core_state.group_info(agent, group)
    assert info.completeness is not None and info.completeness.complete
    author = world.group("n2").me
    early = replace(group, limbo={author: Limbo({group.chain(author).seq + 2: b"{}"})})
    info = core_state.group_info(agent, early)
    assert [gap.missing for gap in info.completeness.gaps] == [1]
    assert [one.missing for one in core_state.member_infos(agent, early)] == [0, 0, 1]
