"""Work that a member causes: floods of messages that are cheap to send and expensive to process, over real sockets.

Alice and Bob are ordinary agents; the rogue has the keys of Mallory, a real member whose own agent sleeps. The bounds
are in work (resolved events, pages read), not in seconds.
"""

import os
import time

import apsw
import pytest

from tests.support.agents import meet, until
from tests.support.rogue import ROGUE_KEYS, Rogue, Watched, at_rest, texts
from tests.support.sockets import strangers
from zerochat.group.effects import Measure
from zerochat.group.inputs import BatchEnded, HistoryRead, Received
from zerochat.group.links import rate_limits
from zerochat.group.links.rate_limits import WORK_US_MAX, WORK_US_PER_S
from zerochat.group.membership.quota import BRANCH_MAX, RESERVE
from zerochat.group.membership.resolve import ViewBuilder
from zerochat.group.sync.history_requests import EVENT_WORK_US, KIB_WORK_US, PAGE_WORK_US_MIN, RANGE_WORK_US
from zerochat.group.wire.messages import EVENTS, HISTORY_REQUEST
from zerochat.sim.floods import Flooder, sybils

pytestmark = pytest.mark.slow

PAGE_BYTES = 4096
SYBILS, RENAMES = 17, 240


class Town:
    """Alice, Bob and Mallory in one group; Mallory's keys are a rogue's. Eve is in no group."""

    def __init__(self, folder, make):
        self.alice, self.bob, self.eve, mallory = (
            Watched(folder, name).wake() for name in ("alice", "bob", "eve", "mallory")
        )
        self.everyone = (self.alice, self.bob, self.eve, mallory)
        try:
            meet(self.alice, self.bob, mallory, keys=ROGUE_KEYS)
            self.control = dict(mallory.group.control)
            mallory.sleep()
            self.rogue = Rogue(mallory, self.alice, make)
        except BaseException:
            at_rest(*self.everyone)
            raise


@pytest.fixture
def town(tmp_path):
    with strangers() as make:
        town = Town(tmp_path, make)
        yield town
        at_rest(*town.everyone)


class PagesWritten:
    """The pages that a person's journal has written to its write-ahead log, as of its last commit."""

    def __init__(self, person, patch):
        journal = person.thread.loop.journal
        commit, self.count = journal.commit, 0

        def counted(*about):
            commit(*about)
            self.count = journal._db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]

        patch.setattr(journal, "commit", counted)


def test_membership_flood_costs_linear_work_and_leaves_room(town, monkeypatch):
    """4,097 events in 38 envelopes made the core of each member work for 108 s, and closed the group for good."""
    monkeypatch.setattr(rate_limits, "BRANCH_EVENTS_MAX", 1 << 20)  # all at once, so that the quotas are reached
    rogue, alice = town.rogue, town.alice
    by = Flooder(rogue.group, alice.group.me, rogue.relationship, int(time.time() * 1000), os.urandom)
    applied = [0]
    apply = ViewBuilder.apply

    def counted(builder, event):
        applied[0] += 1
        apply(builder, event)

    monkeypatch.setattr(ViewBuilder, "apply", counted)
    envelope = b""
    for kind, body in sybils(by, SYBILS, RENAMES):
        envelope = rogue.packed(kind, body)
        rogue.dealer.socket.send(envelope)
    alice.effects_of(envelope)
    accepted = len(alice.group.control) - len(town.control)
    print(f"{SYBILS * (1 + RENAMES)} events sent, {accepted} accepted, {applied[0]} applied to views")
    assert SYBILS < accepted <= BRANCH_MAX + RESERVE * SYBILS
    # Alice, Bob and Eve are in this process; each may resolve a view anew when something concurrent arrives.
    assert applied[0] <= 40 * accepted
    town.bob.client.set_display_name("friends", "Robert")
    town.eve.client.join_group(alice.client.create_invitation("friends").url)
    until(lambda: any(group.state == "active" for group in town.eve.client.list_groups()), "joining")
    until(lambda: "Robert" in {member.label for member in alice.group.view.members.values()}, "renaming")
    assert alice.is_well()


def test_refused_envelopes_cost_no_commit(town, monkeypatch):
    """Each cost Alice an `fsync`, for a rate limit that need not be durable."""
    rogue, alice = town.rogue, town.alice
    journal, useful, mark = alice.thread.loop.journal, [], [len(alice.steps)]
    commit = journal.commit

    def noted(*about):
        since, mark[0] = alice.steps[mark[0] :], len(alice.steps)
        useful.append([input_ for input_, effects in since if not any(map(is_refusal, effects))])
        commit(*about)

    def is_refusal(effect):
        return isinstance(effect, Measure) and effect.name == "dropped"

    before = alice.group.links.peers[rogue.me].rate_limit
    monkeypatch.setattr(journal, "commit", noted)
    for number in range(100):
        assert rogue.send(b'{"nothing": %d}' % number) == "Malformed"
    after = alice.group.links.peers[rogue.me].rate_limit
    assert after.at > before.at, "they count"
    refused = sum(isinstance(input_, Received) for input_, effects in alice.steps if any(map(is_refusal, effects)))
    assert refused >= 100 and all(any(not isinstance(one, BatchEnded) for one in batch) for batch in useful)
    rogue.post("what is stored is written with the next commit")
    until(lambda: journal._written is alice.thread.loop.agent, "a commit")
    assert alice.is_well()


def test_history_requests_are_answered_at_a_tenth_of_a_processor(town):
    """1,000 requests silenced the control socket for 42 s."""
    rogue, alice = town.rogue, town.alice
    for number in range(100):
        alice.client.send_message("friends", f"{number} " + "x" * 15_000)
    ranges = [[alice.group.me, 0, 1_000], [town.bob.group.me, 0, 1_000]]
    body = {"group": rogue.group.id, "ranges": ranges, "limit": 64}
    began_ms = time.time() * 1000
    alice.steps.clear()
    requests = [rogue.packed(HISTORY_REQUEST, body) for _ in range(1_000)]
    for envelope in requests:
        rogue.dealer.socket.send(envelope)
    answered_by_then, loop = 0, alice.thread.loop
    while (
        loop.executor.busy or loop._queue or requests[-1] not in [getattr(i, "envelope", b"") for i, _ in alice.steps]
    ):
        alice.client.list_groups()  # the control socket is served in between
        answered_by_then += 1
    pages = [each for each, _ in list(alice.steps) if isinstance(each, HistoryRead)]
    spent_us = sum(
        PAGE_WORK_US_MIN
        + RANGE_WORK_US * 2
        + EVENT_WORK_US * len(page.records)
        + KIB_WORK_US * (sum(map(len, page.records)) >> 10)
        for page in pages
    )
    allowed_us = WORK_US_MAX + (time.time() * 1000 - began_ms) * WORK_US_PER_S / 1000
    print(f"{len(pages)} pages of {len(pages[0].records)} records, {spent_us / 1e6:.2f} s, {answered_by_then} calls")
    assert len(pages) > 100 and spent_us <= allowed_us
    assert answered_by_then > 3
    assert town.bob.client.send_message("friends", "still heard")
    until(lambda: "still heard" in texts(alice), "hearing Bob")
    assert alice.is_well()


def test_posts_out_of_order_are_written_once(town, monkeypatch):
    """5.5 MiB of them made 633 MiB of writes, since the buffer was written whole with each."""
    rogue, alice = town.rogue, town.alice
    events = [rogue.event(body={"text": "x" * 3_500}, seq=rogue.seq + 2 + at, pre="p" * 43) for at in range(200)]
    pages = PagesWritten(alice, monkeypatch)
    assert rogue.say_event(events[0]) == ""
    before = pages.count
    envelopes = [rogue.packed(EVENTS, rogue.events([event])) for event in events[1:]]
    for envelope in envelopes:
        rogue.dealer.socket.send(envelope)
    for envelope in envelopes:
        assert alice.verdict(envelope) == ""
    assert len(alice.group.log.reorder_buffers[rogue.me].events) == len(events)
    sent, written = sum(len(event.record) for event in events), (pages.count - before) * PAGE_BYTES
    print(f"{sent >> 10} KiB sent, {written >> 10} KiB of pages written")
    assert written <= 4 * sent
    assert alice.is_well()
