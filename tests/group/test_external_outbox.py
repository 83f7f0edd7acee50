"""The durable outbox of external connections: retries, order, other endpoints, and an end that is told."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE, BOB, Two, invitation
from zerochat.agent.storage import state_parts
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.did import resolve
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.service import routes
from zerochat.errors import Overloaded
from zerochat.group.effects import WebPost
from zerochat.group.engine import step
from zerochat.group.external import connections, outbox
from zerochat.group.external.connections import did_services
from zerochat.group.external.standard_protocols import MESSAGES_CHARS_MAX, MESSAGES_MAX
from zerochat.group.inputs import (
    AcceptConnection,
    ClockSet,
    CommandInput,
    EndConnection,
    OfferConnection,
    RotateDid,
    SendBasicMessage,
    Started,
    StepContext,
    TimerFired,
    WebPostDelivered,
    WebPostFailed,
)
from zerochat.group.notifications import BasicMessageReceived, ConnectionChanged, MessageSettled
from zerochat.group.state import Agent
from zerochat.group.timer_kinds import TimerKind

ENVELOPES = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])


class Outage(Two):
    """Bob sends; Alice is down for some time."""

    def __init__(self, envelope="didcomm/v2", **web):
        super().__init__(**web)
        self.connect(envelope)

    def say(self, text):
        return self.ask("bob", SendBasicMessage(self.one("bob").id, text)).thread

    def due(self):
        return self.one("bob").head.due

    def wait(self, until=None):
        self.now = self.due() if until is None else until
        self.process("bob", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {self.one('bob').id}"))

    def statuses(self):
        return [each.status for each in self.one("bob").messages if each.mine]

    def unanswered(self, text):
        """Send a message whose post has no result yet; the effects."""
        command = CommandInput(1, SendBasicMessage(self.one("bob").id, text))
        self.agents["bob"], effects = step(self.agents["bob"], command, StepContext(self.now, self.rng.randbytes))
        return effects

    def texts(self):
        return [each.text for each in self.news("alice", BasicMessageReceived)]


@ENVELOPES
def test_messages_arrive_once_and_in_order_after_an_outage(envelope):
    two = Outage(envelope)
    two.down = {ALICE}
    ids = [two.say(f"{number}") for number in range(3)]
    assert two.statuses() == ["waiting"] * 3 and two.texts() == []
    for _ in range(4):
        two.wait()
    assert two.statuses() == ["waiting"] * 3
    two.down = set()
    two.wait()
    assert two.texts() == ["0", "1", "2"] and two.statuses() == ["received"] * 3
    assert two.news("bob", MessageSettled) == [MessageSettled(two.one("bob").id, each, "received") for each in ids]
    assert not two.one("bob").outbox


def test_pauses_grow_and_honour_retry_after():
    two = Outage()
    two.down = {ALICE}
    two.say("x")
    pauses = []
    for _ in range(14):
        before = two.now
        two.wait()
        pauses.append(two.now - before)
    assert pauses == [outbox.RETRY.delay_ms(tries) for tries in range(14)] and pauses[-1] == outbox.RETRY.ceiling_ms


@pytest.mark.parametrize(("asked_s", "pause"), [(600, 600_000), (999_999_999, outbox.RETRY.ceiling_ms)])
def test_a_pause_that_the_endpoint_asks_for_is_honoured(asked_s, pause):
    two = Outage()
    (reference,) = [effect.reference for effect in two.unanswered("y") if isinstance(effect, WebPost)]
    two.process("bob", WebPostFailed(ALICE, reference, retry_after_s=asked_s))
    assert two.due() - two.now == pause


def test_what_cannot_be_delivered_is_told():
    two = Outage()
    two.down = {ALICE}
    first = two.say("x")
    two.wait(two.now + outbox.GIVE_UP_MS)
    assert two.statuses() == ["failed"] and not two.one("bob").outbox
    assert two.news("bob", MessageSettled) == [MessageSettled(two.one("bob").id, first, "failed")]


@pytest.mark.parametrize("is_rejected", [True, False])
def test_a_v1_rotation_that_cannot_be_announced_is_taken_back(is_rejected):
    two = Outage("didcomm/v1")
    old = two.one("bob").relationship.mine
    command = CommandInput(1, RotateDid(two.one("bob").id))
    two.agents["bob"], effects = step(two.agents["bob"], command, StepContext(two.now, two.rng.randbytes))
    [post] = [effect for effect in effects if isinstance(effect, WebPost)]
    assert two.one("bob").relationship.rotation is not None
    if is_rejected:
        two.process("bob", WebPostFailed(post.uri, post.reference, rejected=True))
    else:
        two.down = {ALICE}
        two.wait(two.now + outbox.GIVE_UP_MS)
    assert (two.one("bob").relationship.mine, two.one("bob").relationship.rotation) == (old, None)
    assert "old one stays" in two.news("bob", ConnectionChanged)[-1].text
    two.down = set()
    two.ask("bob", RotateDid(two.one("bob").id))
    assert two.one("bob").relationship.mine != old and two.one("bob").relationship.rotation is None


def test_a_rejected_message_is_told_and_the_next_one_sent():
    two = Outage()
    two.down = {ALICE}
    two.say("too large"), two.say("fine")
    two.process("bob", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('bob').id}"))
    two.down = set()
    head = replace(two.one("bob").head, posted=True)
    one = replace(two.one("bob"), outbox={**two.one("bob").outbox, head.id: head})
    two.agents["bob"] = replace(two.agents["bob"], connections={one.id: one})
    two.process("bob", WebPostFailed(ALICE, f"{one.id} {head.id} {head.tries}", rejected=True))
    assert two.statuses() == ["failed", "received"] and two.texts() == ["fine"]


def test_what_one_endpoint_rejects_goes_to_the_next():
    other = "http://192.0.2.9:8080/"
    two = Two(alice=(other, ALICE))
    two.at[other] = "alice"
    two.connect()
    command = CommandInput(1, SendBasicMessage(two.one("bob").id, "x"))
    two.agents["bob"], effects = step(two.agents["bob"], command, StepContext(two.now, two.rng.randbytes))
    (post,) = [effect for effect in effects if isinstance(effect, WebPost)]
    two.process("bob", WebPostFailed(post.uri, post.reference, rejected=True))
    assert post.uri == other and [each.text for each in two.news("alice", BasicMessageReceived)] == ["x"]


@ENVELOPES
def test_connecting_survives_an_outage(envelope):
    two = Two()
    offered = two.ask("alice", OfferConnection(envelope, "Alice", 3600))
    two.down = {ALICE}
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    assert two.one("bob").state == "requested"
    two.down = {BOB} if envelope == "didcomm/v1" else set()
    two.now = two.one("bob").head.due
    two.process("bob", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('bob').id}"))
    if envelope == "didcomm/v1":  # nor does the response come at once
        assert (two.one("bob").state, two.one("alice").state) == ("requested", "established")
        two.down, two.now = set(), two.one("alice").head.due
        two.process("alice", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('alice').id}"))
    assert two.one("bob").state == two.one("alice").state == "established"
    assert not two.one("bob").outbox and not two.one("alice").outbox


@ENVELOPES
def test_the_next_endpoint_is_tried_at_once(envelope):
    other = "http://192.0.2.9:8080/"
    two = Two(alice=(other, ALICE))
    two.at[other], two.down = "alice", {other}
    two.connect(envelope)
    assert two.one("bob").state == two.one("alice").state == "established"
    two.ask("bob", SendBasicMessage(two.one("bob").id, "to the second"))
    two.down = {ALICE}
    two.now += 60_000
    two.ask("bob", SendBasicMessage(two.one("bob").id, "to the first"))
    assert [each.text for each in two.news("alice", BasicMessageReceived)] == ["to the second", "to the first"]
    assert not two.one("bob").outbox
    two.down = {other, ALICE}
    two.ask("bob", SendBasicMessage(two.one("bob").id, "to neither"))
    for _ in range(9):
        two.now = two.one("bob").head.due
        two.process("bob", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('bob').id}"))
    assert two.one("bob").head.due - two.now == outbox.RETRY.delay_ms(9), "a pause after all of them"


@ENVELOPES
def test_a_route_that_cannot_be_wrapped_for_is_passed_over(envelope, monkeypatch):
    two = Two()
    offered = two.ask("alice", OfferConnection(envelope, "Alice", 3600))

    def with_an_unknown_hop(tx, envelope):
        services, unusable = did_services(tx, envelope), {"routingKeys": ["did:web:mediator.example#key-1"]}
        if tx.agent.web_uris != (ALICE,):
            return services
        if envelope == "didcomm/v1":
            other = {**services[0], **unusable, "id": "#didcomm-1", "serviceEndpoint": f"{ALICE}1"}
            return [other, *services]
        endpoints: Any = services[0]["serviceEndpoint"]
        return [{**services[0], "serviceEndpoint": [{**endpoints[0], **unusable, "uri": f"{ALICE}1"}, *endpoints]}]

    monkeypatch.setattr(connections, "did_services", with_an_unknown_hop)
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    assert len(routes(resolve(two.one("bob").relationship.theirs))) == 2
    two.ask("bob", SendBasicMessage(two.one("bob").id, "x"))
    assert [each.text for each in two.news("alice", BasicMessageReceived)] == ["x"]
    assert not two.one("bob").outbox


@ENVELOPES
def test_an_inviter_that_stays_away_is_told(envelope):
    two = Two()
    offered = two.ask("alice", OfferConnection(envelope, "Alice", 3600))
    two.down = {ALICE}
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    two.now += outbox.GIVE_UP_MS
    two.process("bob", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('bob').id}"))
    assert two.one("bob").state == "ended" and not two.one("bob").outbox
    assert "could not be reached" in two.news("bob", ConnectionChanged)[-1].text


def test_a_requester_that_names_the_host_of_another_sends_little_there(monkeypatch):
    victims = tuple(f"http://192.0.2.66/{number}" for number in range(16))

    def in_one_service(tx, envelope):
        services = did_services(tx, envelope)
        return [{**services[0], "serviceEndpoint": [each["serviceEndpoint"] for each in services]}]

    two = Two(bob=victims)
    offered = two.ask("alice", OfferConnection("didcomm/v1", "Alice", 3600))
    monkeypatch.setattr(connections, "did_services", in_one_service)
    two.down = set(victims)
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    assert two.one("alice").state == "established"
    assert len(routes(resolve(two.one("alice").relationship.theirs))) == 16
    two.sent.clear()
    while two.one("alice").outbox:
        two.now = two.one("alice").head.due
        two.process("alice", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('alice').id}"))
    assert 10 < len(two.sent) < 24


@ENVELOPES
def test_the_outbox_survives_a_restart(envelope):
    two = Outage(envelope)
    two.unanswered("once")
    assert two.one("bob").head.posted
    key = x25519_public(two.rng.randbytes(32))
    two.process("bob", Started(Endpoint("10.0.0.2", 7000), Endpoint("10.0.0.2", 7001), key, (BOB,)))
    two.process("bob", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('bob').id}"))
    assert two.texts() == ["once"] and two.statuses() == ["received"]


def test_a_result_that_never_comes_counts_as_a_failure():
    two = Outage()
    two.unanswered("once")
    late = f"{two.one('bob').id} {two.one('bob').head.id} 0"
    two.wait()
    assert not two.one("bob").head.posted
    two.wait()
    assert two.texts() == ["once"] and two.statuses() == ["received"]
    before = two.agents["bob"]
    two.process("bob", WebPostFailed("http://192.0.2.9/", late))
    two.process("bob", WebPostDelivered(late))
    assert two.one("bob") == before.connections[two.one("bob").id], "the result of an earlier try"


def test_a_clock_set_back_does_not_delay_what_waits():
    two = Outage()
    two.down = {ALICE}
    two.say("x")
    back_ms = 30 * 86_400_000
    two.now -= back_ms
    two.process("bob", ClockSet(-back_ms))
    two.down = set()
    two.wait(two.now + outbox.RETRY.ceiling_ms)
    assert two.texts() == ["x"]


@pytest.mark.parametrize(("count", "size"), [(MESSAGES_MAX + 1, 1), (5, MESSAGES_CHARS_MAX // 4)])
def test_what_waits_is_not_displaced_by_messages_of_the_peer(count, size):
    two = Outage()
    two.down = {ALICE}
    first = two.say("x")
    for number in range(count):
        two.ask("alice", SendBasicMessage(two.one("alice").id, f"{number}".rjust(size)))
    assert two.statuses() == ["waiting"] and len(two.one("bob").messages) <= MESSAGES_MAX
    assert sum(len(each.text) for each in two.one("bob").messages) <= MESSAGES_CHARS_MAX + 1
    two.wait(two.now + outbox.GIVE_UP_MS)
    assert two.news("bob", MessageSettled) == [MessageSettled(two.one("bob").id, first, "failed")]


def test_the_outbox_is_limited():
    two = Outage()
    two.down = {ALICE}
    for number in range(outbox.MESSAGES_MAX):
        two.say(f"{number}")
    kept = two.one("bob")
    with pytest.raises(Overloaded):
        two.say("one more")
    assert two.one("bob") == kept


def test_a_try_writes_only_its_message():
    two = Outage()
    two.down = {ALICE}
    texts = ["first", "x" * 50_000, "y" * 50_000]
    for text in texts:
        two.say(text)
    before = two.agents["bob"]
    two.wait()
    written = dict(state_parts.changes(before, two.agents["bob"]))
    assert sum(len(value or b"") for value in written.values()) < 10_000
    rows = state_parts.changes(None, two.agents["bob"])
    loaded, _ = state_parts.assemble(Agent, [(path, value) for path, value in rows if value is not None])
    assert [*loaded.connections[two.one("bob").id].outbox] == [*two.one("bob").outbox]


@ENVELOPES
def test_the_end_of_a_connection_fails_what_waits(envelope):
    two = Outage(envelope)
    two.down = {ALICE}
    late = two.say("too late")
    two.ask("alice", EndConnection(two.one("alice").id))
    assert two.one("bob").state == "ended" and two.statuses() == ["failed"] and not two.one("bob").outbox
    assert two.news("bob", MessageSettled) == [MessageSettled(two.one("bob").id, late, "failed")]
