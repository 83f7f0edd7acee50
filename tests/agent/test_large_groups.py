"""Views and answers of a group of a thousand members: pages, counts, and work that does not grow with the members."""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.large_group import MEMBERS, calls_of, enlarged, member_did, with_acks
from tests.support.member_offices import Offices
from tests.support.parted_world import Parted
from tests.support.served_world import Served
from zerochat import rpc
from zerochat.agent.api.server import decode_call
from zerochat.agent.api.subscriptions.notifications import durable_notifications
from zerochat.agent.views import delivery
from zerochat.agent.views.completeness import completeness
from zerochat.agent.views.delivery import BadPage
from zerochat.agent.views.delivery_counts import DeliveryCounts, audience, has
from zerochat.agent.views.display_names import DisplayNames
from zerochat.agent.views.events import EventContext, _reaction, event_view
from zerochat.bot.api import BotApi
from zerochat.group.effects import StoreReceipt
from zerochat.group.event_log.event import ADD, GENESIS, LABEL
from zerochat.group.inputs import ChangeLabel, SendPost, StepContext
from zerochat.group.membership import add_of, genesis_of, label_of
from zerochat.group.notifications import Receipt
from zerochat.group.state import Agent
from zerochat.group.sync.acknowledgements import record_acks
from zerochat.group.transaction import Transaction
from zerochat.limits import MEMBER_PAGE_MAX, RECEIPTS_GROUP_MAX, RECEIPTS_MAX
from zerochat.rpc import Delivery
from zerochat.sim.world import SIMULATED_PACKERS

ANSWER_BYTES_MAX = 128 * 1024


class Large(Served):
    def __init__(self, small: Agent, *given: Any) -> None:
        """`small`: the agent before the group was enlarged."""
        super().__init__(*given)
        self.small = small


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Large:
    """Three real members, the others only in the state; five messages."""
    world = Parted(3)
    for number in range(5):
        world.says("n0", SendPost("friends", f"message {number}"))
    small = world.nodes["n0"].agent
    world.nodes["n0"].agent = enlarged(small, world.id)
    return Large(small, tmp_path, world, "n0", monkeypatch)


def size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def pages(served: Served, **params: Any) -> list[list[rpc.MemberInfo]]:
    found: list[list[rpc.MemberInfo]] = []
    while True:
        after = found[-1][-1].did if found else ""
        page = served.call("list_members", group="friends", after=after, **params)
        assert size(page) <= ANSWER_BYTES_MAX
        found.append(page)
        if len(page) < params.get("limit", MEMBER_PAGE_MAX):
            return found


def test_the_pages_have_every_member_once_in_the_order_of_joining(large: Large) -> None:
    view = large.world.group("n0").view
    for limit in (MEMBER_PAGE_MAX, 50):
        dids = [one.did for page in pages(large, limit=limit) for one in page]
        assert dids == sorted(view.members, key=lambda did: (view.members[did].joined, did))
    assert len(large.call("list_members", group="friends", limit=9_999)) == MEMBER_PAGE_MAX


def test_members_are_found_by_name_and_key(large: Large) -> None:
    found = [one.nick for page in pages(large, query="MEMBER 99") for one in page]
    assert sorted(found) == sorted(["member 99", *(f"member 99{digit}" for digit in range(7))])
    (one,) = large.call("list_members", group="friends", query=member_did(7))
    assert one.nick == "member 7"
    wanted = [member_did(3), "did:key:z6MkStranger", member_did(1)]
    assert [one.nick for one in large.call("list_members", group="friends", dids=wanted)] == ["member 3", "member 1"]
    assert large.call("list_members", group="friends", query="x" * 99) == []


def report_pages(served: Served, **params: Any) -> list[rpc.DeliveryReport]:
    found: list[rpc.DeliveryReport] = []
    while not found or found[-1].next:
        after = found[-1].next if found else ""
        found.append(served.call("get_delivery", group="friends", id="last", after=after, **params))
        assert size(found[-1]) <= ANSWER_BYTES_MAX and len(found[-1].members) <= MEMBER_PAGE_MAX
    return found


def test_the_recipients_come_in_pages_those_that_lack_it_first(large: Large) -> None:
    found = report_pages(large)
    members = [one for page in found for one in page.members]
    assert len({one.did for one in members}) == len(members) == MEMBERS - 1 == found[0].of
    assert [one.delivered for one in members] == sorted(one.delivered for one in members)
    assert {page.delivered for page in found} == {sum(one.delivered for one in members)} != {0}
    assert sorted(one.nick for page in report_pages(large, query="ber 99") for one in page.members) == sorted(
        ["member 99", *(f"member 99{digit}" for digit in range(7))]
    )
    with pytest.raises(BadPage):
        large.call("get_delivery", group="friends", id="last", after="2 x y")
    status = large.call("get_message_status", group="friends", id="last")
    assert len(status.report.members) == MEMBER_PAGE_MAX and size(status) <= ANSWER_BYTES_MAX


@pytest.mark.parametrize("seed", range(8))
def test_no_recipient_is_left_out_while_members_acknowledge(large: Large, seed: int) -> None:
    rng, node = random.Random(seed), large.world.nodes["n0"]
    lacking = {one.did for page in report_pages(large) for one in page.members if not one.delivered}
    seen, after = set(), ""
    while True:
        page = large.call("get_delivery", group="friends", id="last", after=after, limit=rng.randint(1, 64))
        seen |= {one.did for one in page.members}
        if not (after := page.next):
            break
        now = rng.sample(sorted(lacking), min(9, len(lacking)))
        lacking -= {*now}
        group = node.agent.groups[large.world.id]
        changed = with_acks(group, dict.fromkeys(now, group.seq))
        node.agent = replace(node.agent, groups={**node.agent.groups, group.id: changed})
    assert len(seen) == MEMBERS - 1


def test_what_tells_about_a_group_is_bounded(large: Large) -> None:
    group = large.world.group("n0")
    (info,) = large.call("list_groups")
    assert info.members == MEMBERS and size(info) <= ANSWER_BYTES_MAX
    found = completeness(group, (), large.world.now)
    assert found is not None and len(found.members) == MEMBER_PAGE_MAX and found.others == MEMBERS - 1
    assert found.absent + found.current == found.others
    differing = {did for at, did in enumerate(group.links.peers) if at % 50 == 0}
    peers = {
        did: replace(
            peer, anti_entropy=replace(peer.anti_entropy, view="another" if did in differing else group.view.checksum)
        )
        for did, peer in group.links.peers.items()
    }
    found = completeness(replace(group, links=replace(group.links, peers=peers)), (), large.world.now)
    assert found is not None and found.differing == len(differing) <= MEMBER_PAGE_MAX
    assert {one.did for one in found.members if one.view_matches is False} == differing


@pytest.mark.parametrize("seed", range(12))
def test_counts_by_bisection_are_those_of_each_recipient(large: Large, seed: int) -> None:
    rng = random.Random(seed)
    group = enlarged(large.world.nodes["n0"].agent, large.world.id, 40, seed).groups[large.world.id]
    dids = list(group.view.members)
    members = {
        did: replace(one, joined=rng.randrange(1, 20)) for did, one in group.view.members.items() if rng.random() < 0.9
    } | {group.me: group.view.members[group.me]}
    group = replace(group, view=replace(group.view, members=members))
    links = group.links
    for did in links.peers:
        links = links.with_acks(did, {author: rng.randrange(9) for author in rng.sample(dids, 5)})
        links = links.with_peer(did, replace(links.peers[did], start_seq=rng.randrange(6)))
    group = replace(group, links=links)
    counts = DeliveryCounts(group)
    for _ in range(200):
        author, position, lamport = rng.choice([group.me, *dids]), rng.randrange(1, 9), rng.randrange(1, 22)
        meant = audience(group, author, position, lamport)
        wanted = Delivery(sum(has(group, did, author, position) for did in meant), len(meant))
        assert counts.of(author, position, lamport) == wanted, (author, position, lamport)


@pytest.mark.parametrize("seed", range(4))
def test_names_in_the_past_are_those_of_the_events(seed: int) -> None:
    rng, world = random.Random(seed), Offices(3)
    for _ in range(8):
        name = rng.choice(list(world.nodes))
        world.says(name, ChangeLabel(world.id, f"{name} {rng.randrange(100)}"))
    group = world.group("n0")
    names = DisplayNames(group)

    def scanned(did: str, lamport: int) -> str:
        first, latest = "", (0, "")
        for event in group.control.values():
            if event.type == LABEL and event.author == did and event.lamport < lamport:
                latest = max(latest, (event.lamport, label_of(event).label))
            elif event.type == ADD and add_of(event).member == did:
                first = add_of(event).label
            elif event.type == GENESIS and event.author == did:
                first = genesis_of(event).label
        return latest[1] or first

    places = [event.lamport + more for event in group.control.values() for more in (-1, 0, 1)]
    found = {(did, lamport): names.before(did, lamport) for did in [*group.view.members, "x"] for lamport in places}
    assert found == {key: scanned(*key) for key in found} and len({*found.values()}) > 4
    assert names.is_of(group) and not names.is_of(world.group("n1"))


def test_an_event_takes_no_longer_in_a_larger_group(large: Large) -> None:
    """Rows of one page, after the first of their author."""
    row, work, group = large.journal.by_seq(0, 99)[-1], {}, large.small.groups[large.world.id]
    for count in (100, MEMBERS):
        group = enlarged(large.small, large.world.id, count).groups[large.world.id]
        names, counts = DisplayNames(group), DeliveryCounts(group)
        view = partial(event_view, group, row, True, names, EventContext(counts=counts))
        view()
        work[count] = calls_of(view)
    assert work[MEMBERS] == work[100] < calls_of(partial(event_view, group, row, True)), work


def test_a_page_of_members_takes_no_longer_in_a_larger_group(large: Large) -> None:
    """Also where this profile has admitted, and verified, all of them, and has heard nothing from them."""
    work = {}
    for count in (100, MEMBERS):
        agent = enlarged(large.small, large.world.id, count)
        group = agent.groups[large.world.id]
        unheard = {did: replace(peer, last_received_at=0) for did, peer in group.links.peers.items()}
        trust = replace(group.trust, verified={did: one.label for did, one in group.view.members.items()})
        group = replace(group, trust=trust, links=replace(group.links, peers=unheard))
        large.world.nodes["n0"].agent = replace(agent, groups={**agent.groups, group.id: group})
        page = partial(large.call, "list_members", group="friends")
        page()
        work[count] = calls_of(page)
    assert work[MEMBERS] <= work[100] * 1.05, work


def test_a_wait_counts_only_what_has_changed(large: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    node, counted = large.world.nodes["n0"], []
    original = delivery.recipients
    monkeypatch.setattr(delivery, "recipients", lambda *given: counted.append(given) or original(*given))
    waits = large.handlers.waits
    large.server.clients = {1}
    request = rpc.Request(method="wait_for_delivery", id=99, params={"group": "friends", "id": "last"}, jsonrpc="2.0")
    large.handlers.handle(decode_call(1, request), node.agent)
    assert len(counted) == 1
    for _ in range(5):
        waits.review(node.agent, 0.0)
    assert len(counted) == 1, "nothing has changed"
    group = node.agent.groups[large.world.id]
    dids = [did for did in group.links.peers if did in group.view.members]
    for step, did in enumerate(dids):
        group = with_acks(group, {did: group.seq})
        node.agent = replace(node.agent, groups={**node.agent.groups, group.id: group})
        waits.review(node.agent, 0.0)
        assert (99 in large.server.answers) is (step == len(dids) - 1)
    assert large.server.answers[99].complete
    assert len(counted) < len(dids), "while the member that was named still lacks it, nothing is counted"


def test_receipts_of_one_batch_are_one_notification(large: Large) -> None:
    node, group = large.world.nodes["n0"], large.world.group("n0")
    large.call("subscribe")
    changes = [Receipt(group.id, member_did(at), group.me, 3, 5) for at in range(300)]
    changes += [Receipt(group.id, member_did(at), member_did(0), 3, 5) for at in range(1, 300)]
    changes += [Receipt(group.id, member_did(1), group.me, 1, 5)]
    large.server.news.clear()
    large.handlers.notify(changes, node.agent)
    found = [item for _, method, item in large.server.news if method == "receipt"]
    assert [(one.after, one.upto, one.members) for one in found] == [(3, 5, 300), (1, 5, 1)]


def test_a_consumer_gets_one_notification_when_all_have_a_message(large: Large) -> None:
    agent, group = large.world.nodes["n0"].agent, large.world.group("n0")
    dids = [did for did in group.links.peers if did in group.view.members]

    def at(positions: dict[str, int]) -> Any:
        return replace(agent, groups={**agent.groups, group.id: with_acks(group, positions)})

    changes = [Receipt(group.id, did, group.me, 3, 5) for did in dids]
    names = large.handlers.names
    some = durable_notifications(
        changes, at(dict.fromkeys(dids, 3)), at(dict.fromkeys(dids[1:], 5) | {dids[0]: 3}), names, 1
    )
    assert not some
    (one,) = durable_notifications(changes, at(dict.fromkeys(dids, 3)), at(dict.fromkeys(dids, 5)), names, 1)
    assert one.type == "delivery" and msgspec.json.decode(one.body)["all"] == 5


def test_members_share_the_receipts_that_a_group_keeps(large: Large) -> None:
    world, node = large.world, large.world.nodes["n0"]
    for count, kept_max in ((MEMBERS, RECEIPTS_GROUP_MAX // MEMBERS), (64, RECEIPTS_MAX), (3, RECEIPTS_MAX)):
        agent = enlarged(large.small, world.id, count)
        tx = Transaction(agent, StepContext(world.now, random.Random(1).randbytes), SIMULATED_PACKERS)
        group = agent.groups[world.id]
        did = world.group("n1").me
        tx.update_acks(world.id, did, upto={})
        record_acks(tx, world.id, did, [(group.me, group.seq)])
        (stored,) = [effect for effect in tx.effects if isinstance(effect, StoreReceipt)]
        assert stored.kept_max == kept_max, (count, node.name)


@pytest.mark.parametrize("members", [0, 64, 65, 200])
def test_a_bot_gets_all_members(members: int) -> None:
    people = [
        rpc.MemberInfo(did=member_did(at), nick="m", connection="connected", joined_at="x") for at in range(members)
    ]

    async def ask(method: str, params: Any, within_s: float = 0.0) -> list[rpc.MemberInfo]:
        wanted = msgspec.convert(params, rpc.ListMembersParams)
        start = next((at for at, one in enumerate(people, 1) if one.did == wanted.after), 0)
        return people[start : start + wanted.limit]

    async def run() -> list[rpc.MemberInfo]:
        return await BotApi("bot", ask, lambda: "1", lambda group: asyncio.sleep(0)).members("friends")

    assert asyncio.run(run()) == people


@pytest.mark.parametrize("seed", range(10))
def test_the_laggard_tells_when_all_have_more(large: Large, seed: int) -> None:
    """Receipts one by one in random order: exactly the last one of each message is kept, and rarely all are counted."""
    rng, names = random.Random(seed), large.handlers.names
    agent = enlarged(large.small, large.world.id, 90)
    group = agent.groups[large.world.id]
    dids = [did for did in group.links.peers if did in group.view.members]
    group = with_acks(group, dict.fromkeys(dids, 1))
    laggards: dict[str, str] = {}
    kept = []
    waiting = [did for did in dids for _ in range(group.seq - 1)]
    rng.shuffle(waiting)
    known = dict.fromkeys(dids, 1)
    for did in waiting:
        before = replace(agent, groups={group.id: group})
        group = with_acks(group, {did: known[did] + 1})
        changes = [Receipt(group.id, did, group.me, known[did], known[did] + 1)]
        known[did] += 1
        after = replace(agent, groups={group.id: group})
        found = durable_notifications(changes, before, after, names, 1, laggards)
        wanted = durable_notifications(changes, before, after, names, 1)
        assert found == wanted
        kept += [msgspec.json.decode(one.body)["all"] for one in found]
    assert kept == list(range(2, group.seq + 1))


def test_a_reaction_names_few_members_and_counts_all() -> None:
    everyone = [member_did(at) for at in range(300)]
    found = _reaction("👍", everyone, everyone[200])
    assert found.count == 300 and found.by == [everyone[200], *everyone[: MEMBER_PAGE_MAX - 1]]
    assert _reaction("👍", everyone, "me").by == everyone[:MEMBER_PAGE_MAX]
    assert _reaction("👍", everyone[:3], "me") == rpc.Reaction("👍", everyone[:3], 3)
