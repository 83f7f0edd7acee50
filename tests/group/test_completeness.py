"""Completeness of a log relative to the announced heads, and its sentence."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.parted_world import Parted
from zerochat import rpc
from zerochat.agent.views.completeness import PRESENT_MS, completeness, known_of
from zerochat.agent.views.groups import group_info
from zerochat.agent.views.members import display_names, member_infos
from zerochat.agent.views.notifications import notification_of
from zerochat.group import notifications
from zerochat.group.inputs import LeaveGroup, SendPost
from zerochat.group.state import BlockedEvent, EarlyEvent, MissingRange, ReorderBuffer
from zerochat.group.sync.history_requests import TRIES_MAX
from zerochat.presentation import delivery
from zerochat.rpc import Completeness, GapInfo, MemberReport
from zerochat.rpc.common import timestamp


def sentence(found):
    return delivery.completeness_text(found, lambda nick: nick, lambda stamp: stamp[11:16])


# --- from the state ---------------------------------------------------------------------------------------------------


@pytest.fixture
def world():
    return Parted()


def test_the_log_is_complete_with_all_members_connected(world):
    world.says("n2", SendPost("friends", "one"))
    group = world.group("n1")
    found = world.whole("n1")
    assert found.complete and found.gaps == [] and found.waiting == 0
    assert [(one.nick, one.present, one.missing, one.view_matches) for one in found.members] == [
        ("n0", True, 0, True),
        ("n2", True, 0, True),
    ]
    assert found.upto == group.log.lamport and found.upto_at == timestamp(group.log.lamport)
    oldest = min(peer.last_received_at for peer in group.links.peers.values())
    assert found.at == timestamp(oldest)
    assert sentence(found) == f"complete with n0 and n2 as of {found.at[11:16]}"


def test_an_absent_member_is_named_with_the_time(world):
    heard = {
        did: replace(peer, last_received_at=world.now - PRESENT_MS - 60_000)
        for did, peer in world.group("n1").links.peers.items()
    }
    group = replace(world.group("n1"), links=replace(world.group("n1").links, peers=heard))
    away = completeness(group, (), world.now)
    assert away.complete, "nothing is known to be missing"
    assert away.at is None and not any(one.present for one in away.members)
    stamp = timestamp(world.now - PRESENT_MS - 60_000)[11:16]
    assert sentence(away) == f"n0 and n2 last seen {stamp}"
    near = completeness(group, [world.group("n0").me], world.now)
    assert sentence(near) == f"complete with n0 as of {stamp}; n2 last seen {stamp}"
    never = {did: replace(peer, last_received_at=0) for did, peer in heard.items()}
    assert (
        sentence(completeness(replace(group, links=replace(group.links, peers=never)), (), world.now))
        == "n0 and n2 not seen yet"
    )


def test_reported_events_that_are_not_here_are_missing(world):
    world.says("n2", SendPost("friends", "one"))
    group, author = world.group("n1"), world.group("n2").me
    teller = world.group("n0").me
    here = group.chain(author)
    links = group.links.with_acks(teller, {**group.links.acks_of(teller), author: here.seq + 3})
    sync = replace(group.sync, ahead={author})
    behind = replace(group, links=links, sync=sync)
    found = completeness(behind, group.links.peers, world.now)
    assert not found.complete
    (gap,) = found.gaps
    assert (gap.nick, gap.after, gap.upto, gap.missing, gap.state) == ("n2", here.seq, here.seq + 3, 3, "waiting")
    assert found.upto == here.lamport, "what is missing is newer than the last that is here"
    assert known_of(behind, author) == here.seq + 3 and known_of(group, author) == here.seq
    assert "3 messages from n2 missing" in sentence(found) and "complete with n0 as of" in sentence(found)
    assert found.at == timestamp(behind.links.peers[teller].last_received_at), (
        "as of the word of those of whom it is said"
    )

    # Early events are here, in the reorder buffer.
    early = replace(
        behind,
        log=replace(
            behind.log,
            reorder_buffers={author: ReorderBuffer({here.seq + 3: EarlyEvent(b"{}"), here.seq + 5: EarlyEvent(b"{}")})},
        ),
    )
    (gap,) = completeness(early, group.links.peers, world.now).gaps
    assert (gap.upto, gap.missing) == (here.seq + 5, 3)

    # Membership events also come from others: those that are here are not missing.
    other = next(event for event in group.control.values() if event.type == "add")
    known = {**group.control, "x": replace(other, author=author, seq=here.seq + 2)}
    (gap,) = completeness(replace(behind, control=known), group.links.peers, world.now).gaps
    assert gap.missing == 2
    all_of_them = {str(n): replace(other, author=author, seq=here.seq + n) for n in (1, 2, 3)}
    assert completeness(replace(behind, control=group.control | all_of_them), group.links.peers, world.now).complete

    # Nor are invalid events.
    member = replace(group.view.members[author], until=here.seq)
    view = replace(group.view, members={**group.view.members, author: member})
    assert completeness(replace(early, view=view), group.links.peers, world.now).complete

    asked = replace(
        behind, sync=replace(behind.sync, gaps={author: MissingRange(here.seq + 3, tries=1, since=world.now)})
    )
    found = completeness(asked, group.links.peers, world.now)
    assert found.gaps[0].state == "asked" and "(requested since " in sentence(found)
    lost = replace(
        behind, sync=replace(behind.sync, gaps={author: MissingRange(here.seq + 3, tries=TRIES_MAX, since=world.now)})
    )
    found = completeness(lost, group.links.peers, world.now)
    assert found.gaps[0].state == "lost" and "(not available from any member)" in sentence(found)


def test_missing_membership_events_leave_nothing_to_promise(world):
    group = replace(
        world.group("n1"), log=replace(world.group("n1").log, blocked={"x": BlockedEvent(world.group("n0").me, b"{}")})
    )
    found = completeness(group, group.links.peers, world.now)
    assert (found.complete, found.upto, found.upto_at, found.waiting) == (False, 0, None, 1)
    assert "a membership event is missing" in sentence(found)
    other = replace(
        group.links.peers[world.group("n0").me],
        anti_entropy=replace(group.links.peers[world.group("n0").me].anti_entropy, view="another"),
    )
    found = completeness(
        replace(group, links=replace(group.links, peers={**group.links.peers, world.group("n0").me: other})),
        group.links.peers,
        world.now,
    )
    assert found.members[0].view_matches is False and sentence(found).endswith("n0 has a different member list")


def test_a_left_group_has_no_completeness(world):
    assert world.whole("n2") is not None
    world.run_command("n2", LeaveGroup("friends"))
    world.settle()
    assert world.group("n2").state == "left" and world.whole("n2") is None
    assert [one.nick for one in world.whole("n0").members] == ["n1"]


def test_a_lone_member_has_a_complete_log():
    world = Parted(1)
    found = world.whole("n0")
    assert found.complete and found.members == [] and sentence(found) == "no other members"


def test_many_are_counted_and_not_named():
    members = [MemberReport(did=str(n), nick=f"m{n}", at="2026-07-01T12:04:00.000Z", present=True) for n in range(5)]
    found = Completeness(at="2026-07-01T12:04:00.000Z", members=members)
    assert sentence(found) == "complete with 5 members as of 12:04"
    one = GapInfo(author="0", nick="m0", after=1, upto=2, missing=1)
    assert sentence(Completeness(at=found.at, members=members, gaps=[one])).endswith("; 1 message from m0 missing")


# --- played out -------------------------------------------------------------------------------------------------------


def test_an_unreachable_authors_events_are_missing_then_filled(world):
    """n1 is cut off from n2, learns from n0 that n2 has posted, and gets the events from n0."""
    world.part("n1", "n2")
    seen = []
    world.on_notification = lambda name, notice: seen.append(world.whole("n1")) if name == "n1" else None
    for text in ("one", "two"):
        world.run_command("n2", SendPost("friends", text))
    world.run(until=lambda: bool(world.heard("n1", notifications.GapsFilled)), for_ms=120_000)
    world.on_notification = None
    author = world.group("n2").me
    gaps = world.heard("n1", notifications.Gap)
    assert [(gap.author, gap.state) for gap in gaps][:1] == [(author, "asked")] and gaps[-1].state == "filled"
    assert len(world.heard("n1", notifications.GapsFilled)) == 1
    missed = [found for found in seen if found.gaps]
    assert missed and all(found.gaps[0].author == author and not found.complete for found in missed)
    assert world.whole("n1").complete and world.whole("n1").upto == world.group("n1").log.lamport


def test_notifications_about_the_log_reach_the_clients(world):
    group = world.group("n1")
    author, by = world.group("n2").me, world.group("n0").me

    def told(notice):
        agent = world.nodes["n1"].agent
        method, about, item = notification_of(notice, agent, display_names)
        assert about == group.id and type(item) is rpc.NOTIFICATIONS[method]
        assert msgspec.to_builtins(item)["type"] == method, "in a stream with events it can be told from them"
        return item

    gap = told(notifications.Gap(group.id, author, 3, 5, "asked"))
    assert (gap.nick, gap.after, gap.upto, gap.state) == ("n2", 3, 5, "asked")
    assert (
        delivery.notification_sentence(gap, str, str)
        == "2 messages from n2 are missing; requesting them from other members."
    )
    filled = told(notifications.Gap(group.id, author, 3, 4, "filled"))
    assert delivery.notification_sentence(filled, str, str) == "1 message from n2 that was missing is now here."
    lost = told(notifications.Gap(group.id, author, 3, 4, "lost"))
    assert delivery.notification_sentence(lost, str, str).endswith("not available from any member.")
    done = told(notifications.GapsFilled(group.id, 77, 88))
    assert (done.upto, done.at) == (77, timestamp(88)) and "The log is complete" in delivery.notification_sentence(
        done, str, str
    )
    fork = told(notifications.ForkDetected(group.id, author, 9))
    assert fork.position == 9 and "n2 has sent two different events" in delivery.notification_sentence(fork, str, str)
    refuted = told(notifications.EventsRefuted(group.id, author, by, 1, 2))
    assert (refuted.nick, refuted.by_nick) == (
        "n2",
        "n0",
    ) and "n0 relayed messages that n2 denies" in delivery.notification_sentence(refuted, str, str)
    earlier = told(notifications.HistoryProgress(group.id, 7, 9, False))
    assert delivery.notification_sentence(earlier, str, str).startswith("Receiving earlier history: 7 events")
    assert delivery.notification_sentence(told(notifications.HistoryProgress(group.id, 7, 0, True)), str, str) == (
        "Earlier history received (7 events)."
    )


def test_group_and_member_views_report_completeness(world):
    agent, group = world.nodes["n1"].agent, world.group("n1")
    info = group_info(agent, group)
    assert info.completeness is not None and info.completeness.complete
    author = world.group("n2").me
    early = replace(
        group,
        log=replace(
            group.log, reorder_buffers={author: ReorderBuffer({group.chain(author).seq + 2: EarlyEvent(b"{}")})}
        ),
    )
    info = group_info(agent, early)
    assert [gap.missing for gap in info.completeness.gaps] == [1]
    assert [one.missing for one in member_infos(agent, early)] == [0, 0, 1]
