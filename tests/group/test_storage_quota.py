"""The daily byte quota of a member: refused posts, their retransmission, and history at half of it."""

import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut
from tests.support.hostile_world import Hostile
from tests.support.parted_world import Parted
from zerochat.agent.storage.state_parts import assemble, changes
from zerochat.agent.views.delivery_counts import has
from zerochat.group.effects import ReadOwnEvents
from zerochat.group.event_log import delivery as event_delivery
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import ClockSet, SendPost
from zerochat.group.links.storage_quota import disk_bytes
from zerochat.group.notifications import Gap
from zerochat.group.settings import DAY_MS, StorageRules
from zerochat.group.signed_streams import receiver
from zerochat.group.state import Agent
from zerochat.group.sync import acknowledgements
from zerochat.group.wire.messages import SYNC
from zerochat.presentation import delivery
from zerochat.rpc import MemberDelivery

TEXT = "x" * 2_000
QUOTA = 120_000
"""Of some thirty posts a day, of which half are accepted at once."""


BUFFERED = 9_000
"""What waits for the post before it may overdraw the quota: 1 MiB, and less here."""


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    monkeypatch.setattr(event_delivery, "BUFFER_BYTES_MAX", BUFFERED // 2)
    monkeypatch.setattr(receiver, "EARLY_BYTES_MAX", BUFFERED // 2)


def limit(world, name, size=QUOTA):
    node = world.nodes[name]
    node.agent = replace(node.agent, storage_rules=StorageRules(size))


def say(world, name, count):
    for number in range(count):
        world.says(name, SendPost("friends", f"{number} {TEXT}"))


def stored(world, name, author):
    """The bytes that an author has had stored there."""
    did = world.group(author).me
    rows = [row for row in world.nodes[name].log if row.author == did and row.type == POST]
    return sum(disk_bytes(len(row.record)) for row in rows)


@pytest.mark.parametrize(
    "keys",
    ["pairwise-multi", *(pytest.param(keys, marks=pytest.mark.slow) for keys in ("pairwise-single", "sender-key"))],
)
def test_posts_over_the_quota_come_later_and_others_at_once(keys):
    world = Parted(3, keys)
    limit(world, "n1")
    say(world, "n0", 80)
    assert len(world.texts("n2")) == 80, "the quota at one member concerns no other"
    assert 0 < stored(world, "n1", "n0") <= QUOTA
    world.says("n2", SendPost("friends", "hello"))
    assert "hello" in world.texts("n1"), "a member with room is served"
    days = 0
    while len(world.texts("n1")) < 81 and days < 20:
        before, days = stored(world, "n1", "n0"), days + 1
        world.run(for_ms=DAY_MS)
        assert stored(world, "n1", "n0") - before <= QUOTA + BUFFERED
    assert [text.partition(" ")[0] for text in world.texts("n1") if text != "hello"] == [str(n) for n in range(80)]
    assert days > 2 and world.whole("n1").complete


class Counted(Parted):
    """Counts what a member retransmits and requests."""

    def __init__(self, members=3):
        self.retransmissions = {}
        super().__init__(members)

    def _perform(self, node, effect):
        if isinstance(effect, ReadOwnEvents):
            self.retransmissions[node.name, effect.member] = self.retransmissions.get((node.name, effect.member), 0) + 1
        super()._perform(node, effect)


@pytest.fixture
def held():
    """A group in which n1 refuses what n0 posts for now."""
    world = Counted()
    limit(world, "n1")
    say(world, "n0", 60)
    return world


def test_refused_posts_cause_no_storm(held):
    """Neither retransmissions nor requests: a day of refusals costs some dozens."""
    n0, n1 = held.group("n0").me, held.group("n1").me
    held.retransmissions.clear()
    requests = 0
    for _ in range(24 * 12):
        held.run(for_ms=DAY_MS // 288)
        requests += any(
            author == n0 for one in held.group("n1").sync.pull_requests.values() for author, _, _ in one.ranges
        )
    assert len(held.texts("n1")) < 60
    assert 1 <= held.retransmissions["n0", n1] <= 80 and not requests, "others have them, and are not asked"
    assert held.retransmissions.get(("n0", held.group("n2").me), 0) == 0


def test_refused_posts_are_shown_at_both_ends(held):
    n0, n1 = held.group("n0"), held.group("n1")
    found = held.whole("n1")
    ((gap),) = found.gaps
    assert (gap.nick, gap.state, gap.upto) == ("n0", "held", n0.seq) and not found.complete
    assert found.upto == n1.chain(n0.me).lamport, "complete up to the last accepted one"
    said = delivery.completeness_text(found, str, lambda stamp: stamp[11:16])
    assert f"{gap.missing} messages from n0 not accepted yet (daily quota)" in said
    assert [one.state for one in held.heard("n1", Gap)] == ["held"]
    row = max((row for row in held.nodes["n0"].log if row.type == POST), key=lambda row: row.seq)
    until = n0.links.peers[n1.me].retransmission.no_room_until
    assert until > held.now
    assert not has(n0, n1.me, n0.me, row.seq)
    one = MemberDelivery(n1.me, "n1", False, "held", next_try="2026-01-01T12:30:00Z")
    assert "tried again at least hourly, next at 12:30, and accepted as room comes back" in delivery._member_sentence(
        one, {}, str, lambda s: s[11:16]
    )


def test_the_quota_survives_a_restart_and_clock_changes(held):
    n0 = held.group("n0").me
    agent = held.nodes["n1"].agent
    kept, _ = assemble(Agent, [(path, value) for path, value in changes(None, agent) if value is not None])
    assert kept.groups[held.id].links.peers[n0].stored == agent.groups[held.id].links.peers[n0].stored
    have = len(held.texts("n1"))
    held.process("n1", ClockSet(-400 * DAY_MS))
    held.run(for_ms=DAY_MS)
    assert have < len(held.texts("n1")), "no year without messages"
    before = stored(held, "n1", "n0")
    held.process("n1", ClockSet(400 * DAY_MS))
    held.run(for_ms=60_000)
    assert stored(held, "n1", "n0") - before <= QUOTA + BUFFERED


def test_without_a_quota_everything_is_accepted(held):
    limit(held, "n1", 0)
    held.run(for_ms=2 * 3_600_000)
    assert len(held.texts("n1")) == 60 and held.whole("n1").complete


@pytest.mark.slow
def test_history_leaves_a_member_room_for_its_posts():
    """A newcomer asks a member for no more history while half of its quota is used; the rest comes on later days."""
    world = Cut(3)
    world.bring_in("n1")
    for number in range(60):
        world.post("n0", f"{number} {10 * TEXT}")
        world.run(for_ms=1_000)
    limit(world, "n2", 600_000)
    world.bring_in("n2")
    world.run(for_ms=120_000)
    used = [peer.stored.used for peer in world.group("n2").links.peers.values()]
    assert 0 < len(world.texts("n2")) < 60 and all(150_000 <= one < 300_000 for one in used)
    world.post("n0", "live")
    world.post("n1", "live too")
    world.run(for_ms=10_000)
    assert {"live", "live too"} <= set(world.texts("n2"))
    for _ in range(10):
        world.run(for_ms=DAY_MS)
    assert len(world.texts("n2")) == 62


def test_relayed_posts_are_charged_to_their_sender():
    """A member cannot use up the quota of another by posts in its name."""
    world = Cut(3)
    world.bring_in("n1", "n2")
    world.deaf = {frozenset({"n0", "n2"})}
    before = {name: world.group("n2").links.peers[world.did(name)].stored.used for name in ("n0", "n1")}
    world.post("n0", TEXT)
    world.kill("n0")
    world.run(for_ms=120_000)
    peers = world.group("n2").links.peers
    assert TEXT in world.texts("n2", relayed=True)
    assert peers[world.did("n0")].stored.used <= before["n0"]
    assert peers[world.did("n1")].stored.used > before["n1"] + len(TEXT)


def test_a_member_that_has_room_and_none_by_turns_causes_no_storm(monkeypatch):
    """What a member says about its room restarts the backoff at most once in the first delay."""
    world = Hostile()
    group, read = world.group("n0"), []
    for number in range(3):
        world.run_command("n0", SendPost(world.id, f"{number} {TEXT}"))
    monkeypatch.setattr(world, "_dispatch", lambda node, link, envelope: None)
    monkeypatch.setattr(
        world, "_perform", lambda node, effect: read.append(effect) if isinstance(effect, ReadOwnEvents) else None
    )
    reach = {"pair": "", "queue": "", "at": world.now}
    sync = {"group": world.id, "view": group.view.checksum, "have": [], "start_seq": 0, "acked": 0, "heads": []}
    for number in range(40):
        world.now += 100
        world.utter("n0", SYNC, {**sync, "reach": reach, "room_ms": 1 - number % 2})
    asked = [effect for effect in read if effect.member == world.mallory.me]
    assert len(asked) <= 40 * 100 // acknowledgements.RETRY_MS + 1
