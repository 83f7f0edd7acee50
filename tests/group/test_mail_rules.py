"""Delays and detours that a sender asks of the mediators of others."""

import pytest
from msgspec.structs import replace

from tests.support.mediated_world import Behind
from zerochat.didcomm.protocols import routing
from zerochat.didcomm.protocols.mixing import Mix
from zerochat.group.settings import MailRules
from zerochat.group.sync.acknowledgements import MAIL_RETRY_MS


class Asking(Behind):
    """Two members behind a mediator; what it is asked for from now on is kept. One writes, by these rules."""

    def __init__(self, rules, monkeypatch, chained=False):
        super().__init__(2, hidden=("n0", "n1"), mediators=2 if chained else 1, chained=chained)
        self.id = self.everybody()
        self.forwards = []
        read = routing.read_forward
        monkeypatch.setattr(
            "zerochat.sim.mediator.routing.read_forward",
            lambda message: self.forwards.append(read(message)) or self.forwards[-1],
        )
        self.nodes["n0"].agent = replace(self.nodes["n0"].agent, mail_rules=rules)
        self.post(self.id, "n0", "hello")
        self.run(for_ms=15_000)


@pytest.mark.parametrize(
    ("rules", "delay", "mix"),
    [
        (MailRules(), None, None),
        (MailRules(60_000), -60_000, None),
        (MailRules(60_000, is_random=False), 60_000, None),
        (MailRules(hop_chance=0.5), None, Mix(0.5)),
    ],
    ids=["none", "random", "exact", "mixing"],
)
@pytest.mark.parametrize("chained", [False, True], ids=["one mediator", "two mediators"])
def test_the_mediator_of_the_recipient_is_asked(monkeypatch, rules, delay, mix, chained):
    world = Asking(rules, monkeypatch, chained)
    asked = {(one.delay_milli, one.mix) for one in world.forwards}
    # The other member answers, and asks for nothing; so do the outer layers.
    assert (delay, mix) in asked and asked <= {(delay, mix), (None, None)}
    assert world.texts("n1")


@pytest.mark.parametrize("delay_ms", [0, 600_000])
def test_retransmission_waits_for_the_delay(monkeypatch, delay_ms):
    """Otherwise each copy would wait at the mediator beside the first one."""
    world = Asking(MailRules(delay_ms), monkeypatch)
    (member,) = world.group("n0").links.peers
    world.post(world.id, "n0", "again")
    assert world.group("n0").links.peers[member].retransmission.retry_at - world.now == delay_ms + MAIL_RETRY_MS
