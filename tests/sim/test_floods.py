"""Floods in virtual time: honest messages keep their delivery times while a member spends its whole allowance.

Every machine has one processor: an input takes the work that is charged for it, and the next one is chosen as the agent
chooses it (`agent/fair_queue.py`). So the delays are exact, and may be asserted.
"""

from itertools import islice
from statistics import median

import pytest

from tests.support.hostile_world import Hostile
from zerochat.agent.fair_queue import FairQueue
from zerochat.agent.input_sources import source_of
from zerochat.didcomm.message import Message, new_id
from zerochat.group.inputs import CommandInput, LinkDown, LinkUp, Received, SendPost, Started
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import pack
from zerochat.sim import SIMULATED_PACKERS
from zerochat.sim.floods import FLOODS, Flooder

pytestmark = pytest.mark.slow

INPUT_US = 300
"""What an input takes apart from the work that is charged for it."""
SECONDS, EVERY_MS = 20, 100
RATIO_MAX = 2.0
AT_ONCE = CommandInput | Started | LinkUp | LinkDown


class Busy(Hostile):
    """Machines that need time. `source_of`: by which the inputs are queued."""

    def __init__(self, patch, source_of=source_of):
        self.source_of = source_of
        self.queues, self.busy_until_us, self.spent_us = {}, {}, 0
        self.waiting, self.arrived = set(), {}
        charge, settle = rate_limits.charge_work, rate_limits.settle_work

        def charging(tx, name, member, cost_us):
            charge(tx, name, member, cost_us)
            self.spent_us += cost_us

        def settling(tx, name, member, more_us):
            settle(tx, name, member, more_us)
            self.spent_us += more_us

        patch.setattr(rate_limits, "charge_work", charging)
        patch.setattr(rate_limits, "settle_work", settling)
        super().__init__()

    def process(self, name, input_):
        if isinstance(input_, AT_ONCE):
            super().process(name, input_)
            return
        queue = self.queues.setdefault(name, FairQueue())
        queue.put(self.source_of(self.nodes[name].agent, input_), input_)
        if name not in self.waiting:
            self._serve_later(name)

    def _serve_later(self, name):
        self.waiting.add(name)
        self.after(max(0, self.busy_until_us.get(name, 0) // 1000 - self.now), lambda: self._serve(name))

    def _serve(self, name):
        """Serve all inputs that begin within this millisecond."""
        self.waiting.discard(name)
        queue, until = self.queues[name], max(self.busy_until_us.get(name, 0), self.now * 1000)
        while queue and until < (self.now + 1) * 1000:
            source, self.spent_us = queue.next_source(), 0
            super().process(name, queue.take())
            cost_us = INPUT_US + max(0, self.spent_us)
            queue.charge(source, cost_us)
            until += cost_us
        self.busy_until_us[name] = until
        if queue:
            self._serve_later(name)

    def flood(self, kind):
        """The burst at once, and the sustained rate for as long as the test lasts."""
        mine, victim = self.mallory, self.group("n0").me
        relationship, link = mine.links.relationships[victim], self.group("n0").links.peers[mine.me].link
        messages = FLOODS[kind](Flooder(mine, victim, relationship, self.now, self.rng.randbytes))

        def send(count):
            for type_, body in islice(messages, count):
                message = Message(type=type_, id=new_id(self.rng.randbytes), body=body)
                envelope = pack(relationship, message, SIMULATED_PACKERS[self.envelope], self.rng.randbytes)
                self.process("n0", Received(link, envelope))

        send(rate_limits.ENVELOPES_MAX)
        for at in range(0, SECONDS * 1000, EVERY_MS):
            self.after(at, lambda: send(rate_limits.ENVELOPES_PER_S * EVERY_MS // 1000))

    def delays(self):
        """How long each post of n1 takes to n0, ms."""
        sent = {}
        for _ in range(SECONDS * 1000 // EVERY_MS):
            answer = self.run_command("n1", SendPost(self.id, "hello"))
            sent[answer.result.id] = self.now
            self.run(for_ms=EVERY_MS)
        self.run(for_ms=10_000)
        delays = [self.arrived[post] - at for post, at in sent.items()]
        assert len(delays) == len(sent)
        return sorted(delays)

    def _perform(self, node, effect):
        if node.name == "n0" and type(effect).__name__ == "StoreEvent":
            self.arrived.setdefault(effect.id, self.now)
        super()._perform(node, effect)


def delays(patch, kind="", **how):
    with patch.context() as local:
        world = Busy(local, **how)
        if kind:
            world.flood(kind)
        return world.delays()


def p95(times):
    return times[int(0.95 * (len(times) - 1))]


@pytest.mark.parametrize("kind", FLOODS)
def test_honest_messages_take_at_most_twice_as_long(kind, monkeypatch):
    quiet, flooded = delays(monkeypatch), delays(monkeypatch, kind)
    print(f"{kind}: median {median(flooded)} ms ({median(quiet)}), 95 of 100 {p95(flooded)} ms ({p95(quiet)})")
    assert median(flooded) <= RATIO_MAX * median(quiet)
    assert p95(flooded) <= RATIO_MAX * p95(quiet)


def test_in_the_order_of_arrival_they_would_wait(monkeypatch):
    """The mutant: all inputs are of one source."""
    flooded = delays(monkeypatch, "history requests", source_of=lambda agent, input_: "one")
    assert flooded[-1] > 20 * RATIO_MAX * delays(monkeypatch)[-1]
