"""Our agent behind a mediator of DIDComm v1 that knows keys (Aries RFC 0211)."""

import pytest

from tests.support.external_pair import Two, invitation
from tests.support.key_mediator import HTTP, MEDIATION, SOCKET, KeyMediator
from zerochat.crypto.encoding import did_key
from zerochat.didcomm.did import resolve
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.protocols import mediation
from zerochat.didcomm.service import routes
from zerochat.group.effects import CloseWebSocket, OpenWebSocket
from zerochat.group.external import connections, key_mediation, mediators, relayed_posts
from zerochat.group.inputs import (
    AcceptConnection,
    CreateGroup,
    EndConnection,
    OfferConnection,
    RotateDid,
    SendBasicMessage,
    Started,
    TimerFired,
    WebPostDelivered,
    WebReceived,
    WebSocketDown,
    WebSocketUp,
)
from zerochat.group.notifications import BasicMessageReceived, ConnectionChanged, ProblemReported
from zerochat.group.timer_kinds import TimerKind

SESSION = 1000
"""The handle of Alice's WebSocket to the mediator."""


class Behind(Two):
    """Alice is behind the mediator; Bob, with an address, posts there."""

    def __init__(self, *, in_base58=False):
        self.opened, self.mailed = [], []
        self.holds = False
        """Whether the results of posts to the mediator are outstanding."""
        super().__init__(alice=())
        self.mediator = KeyMediator(self.rng.randbytes, in_base58=in_base58)

    def perform(self, effect):
        match effect:
            case OpenWebSocket(uri):
                self.opened.append(uri)
            case CloseWebSocket(uri):
                self.opened.remove(uri)

    def reply(self, reply):
        assert reply.handle != SESSION, "an answer to a peer on the mediator's connection"
        super().reply(reply)

    def post(self, name, post):
        if post.uri not in (HTTP, SOCKET):
            super().post(name, post)
            return
        answers, mail = self.mediator.receive(post.envelope)
        for envelope in answers:
            self.process(name, WebReceived(envelope, SESSION if post.uri == SOCKET else None))
        if post.reference and not self.holds:
            self.process(name, WebPostDelivered(post.reference))
        for envelope in mail:
            self.mailed.append(envelope)
            if SOCKET in self.agents["alice"].websockets_up:
                self.process("alice", WebReceived(envelope, SESSION))

    def mediate(self):
        self.ask("alice", AcceptConnection(invitation(self.mediator.link()), "relay", True))
        for uri in self.opened:
            self.process("alice", WebSocketUp(uri))
        return self

    @property
    def relay(self):
        return next(one for one in self.agents["alice"].connections.values() if one.mediation is not None)

    def peer(self, name):
        return next(one for one in self.agents[name].connections.values() if one.mediation is None)

    def kinds(self):
        return [tree["@type"].removeprefix("https://didcomm.org/") for tree in self.mediator.got]

    def meet(self):
        offered = self.ask("alice", OfferConnection("didcomm/v1", "Alice", 3600))
        self.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
        self.tick()
        return self

    def tick(self):
        """What waits for the registration of a key is due."""
        self.now += 1_000
        for name in list(self.agents["alice"].connections):
            self.process("alice", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {name}"))


def test_mediation_is_requested_after_the_exchange():
    world = Behind().mediate()
    kinds = world.kinds()
    assert kinds[:3] == [
        "didexchange/1.1/request",
        "didexchange/1.1/complete",
        "coordinate-mediation/1.0/mediate-request",
    ]
    state = world.relay.mediation
    assert (state.phase, state.endpoint, state.routing_keys) == (
        "granted",
        HTTP,
        (did_key(world.mediator.identity.signing_public),),
    )
    assert all("~from" not in tree and "~to" not in tree for tree in world.mediator.got), "no DIDs in v1"
    assert all(tree["~transport"] == {"return_route": "all"} for tree in world.mediator.got)
    own = routes(resolve(world.relay.relationship.mine.did))
    assert [route.uri for route in own] == [key_mediation.QUEUE], "a mediator does not call back"
    assert "groups need another mediator" in world.news("alice", ConnectionChanged)[-1].text


@pytest.mark.parametrize("in_base58", [False, True], ids=["did:key", "base58"])
def test_a_connection_over_the_mediator(in_base58):
    """Its DIDs have the route, its keys are registered before mail for them comes, and answers go to the peer."""
    world = Behind(in_base58=in_base58).mediate().meet()
    alice, bob = world.peer("alice"), world.peer("bob")
    assert alice.state == bob.state == "established" and len(world.mailed) == 2, "request and complete"
    [route] = routes(resolve(bob.relationship.theirs))
    [key] = route.routing_keys
    assert (route.uri, key.partition("#")[0]) == (HTTP, did_key(world.mediator.identity.signing_public))
    assert world.relay.mediation.registered == {did_key(alice.relationship.mine.signing_public)}
    world.ask("bob", SendBasicMessage(bob.id, "hello"))
    assert world.news("alice", BasicMessageReceived)[-1].text == "hello"
    world.ask("alice", SendBasicMessage(alice.id, "hello yourself"))
    assert world.news("bob", BasicMessageReceived)[-1].text == "hello yourself"
    world.ask("alice", EndConnection(alice.id))
    assert not world.mediator.keys and not world.relay.mediation.registered


def test_a_rotation_registers_the_new_key_beside_the_old_one():
    world = Behind().mediate().meet()
    before = world.relay.mediation.registered
    world.ask("alice", RotateDid(world.peer("alice").id))
    world.tick()
    after = world.relay.mediation.registered
    assert after != before and after == {did_key(world.peer("alice").relationship.mine.signing_public)}
    world.ask("bob", SendBasicMessage(world.peer("bob").id, "to the new one"))
    assert world.news("alice", BasicMessageReceived)[-1].text == "to the new one"


def test_a_mediator_that_only_delivers_is_not_polled():
    """Its reports about pickup (ACA-Py has none) are no problems to count, and end the requests of this connection."""
    world = Behind().mediate()
    asked = [kind for kind in world.kinds() if "messagepickup" in kind]
    assert asked == ["messagepickup/2.0/live-delivery-change", "messagepickup/2.0/delivery-request"]
    for _ in range(10):
        world.now += mediators.POLL_MS
        world.process("alice", TimerFired(f"{TimerKind.MEDIATOR} {world.relay.id}"))
    assert [kind for kind in world.kinds() if "messagepickup" in kind] == asked
    assert not world.news("alice", ProblemReported) and not world.relay.breaker.errors
    world.process("alice", WebSocketDown(SOCKET))
    world.process("alice", WebSocketUp(SOCKET))
    assert len([kind for kind in world.kinds() if "messagepickup" in kind]) == 4, "it may have learned"


def test_the_end_of_mediation_unregisters_the_keys():
    world = Behind().mediate().meet()
    world.ask("alice", EndConnection(world.relay.id))
    assert not world.mediator.keys and not world.opened
    with pytest.raises(connections.NoAddress):
        world.ask("alice", OfferConnection("didcomm/v1", "Alice", 3600))


def test_keys_are_registered_anew_on_each_connection():
    world = Behind().mediate().meet()
    world.process("alice", WebSocketDown(SOCKET))
    world.mediator.keys.clear()
    world.process("alice", WebSocketUp(SOCKET))
    assert len(world.mediator.keys) == 1
    assert world.kinds().count("coordinate-mediation/1.0/mediate-request") == 1, "some refuse a second request"


def test_the_request_waits_for_the_end_of_the_exchange():
    world = Behind()
    world.holds = True
    world.mediate()
    assert world.relay.outbox and world.kinds() == ["didexchange/1.1/request", "didexchange/1.1/complete"]
    world.holds = False
    [head] = world.relay.outbox.values()
    world.process("alice", WebPostDelivered(f"{world.relay.id} {head.id} {head.tries}"))
    world.now += 1_000
    world.process("alice", TimerFired(f"{TimerKind.MEDIATOR} {world.relay.id}"))
    assert world.relay.mediation.phase == "granted"


def test_a_refused_exchange_is_a_refusal():
    world = Behind()
    world.mediator.admits = False
    world.mediate()
    assert (world.relay.state, world.relay.mediation.phase) == ("ended", "denied") and not world.opened


@pytest.mark.parametrize(
    "grant",
    [
        {"endpoint": "ftp://192.0.2.9"},
        {"endpoint": "http://user:secret@192.0.2.9/"},
        {"routing_keys": []},
        {"routing_keys": ["did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc"]},
        {"@type": f"{MEDIATION}/mediate-deny"},
    ],
)
def test_an_unusable_grant_is_none(grant):
    world = Behind()
    world.mediator.grant |= grant
    world.mediate()
    assert world.relay.mediation.phase == "denied"
    with pytest.raises(connections.NoAddress):
        world.ask("alice", OfferConnection("didcomm/v1", "Alice", 3600))


def test_a_mediator_that_has_forgotten_us_is_asked_again():
    world = Behind().mediate().meet()
    description = {"code": mediation.NOT_GRANTED_V1, "en": "Mediation has not been granted for this connection."}
    report = {"@type": f"{MEDIATION}/problem-report", "@id": "p", "description": description}
    world.mediator.keys.clear()
    world.process("alice", WebReceived(world.mediator.sealed(report, world.mediator.client), SESSION))
    assert world.kinds().count("coordinate-mediation/1.0/mediate-request") == 2
    assert world.relay.mediation.phase == "granted" and len(world.mediator.keys) == 1
    assert world.news("alice", ProblemReported)


def test_groups_and_posts_do_not_go_over_it():
    world = Behind().mediate()
    world.ask("alice", CreateGroup("friends", "Alice"))
    agent = world.agents["alice"]
    assert not world.mediator.keys and not world.relay.mediation.desired
    assert relayed_posts.relay_of(agent) is None


def test_a_restart_connects_again():
    world = Behind().mediate().meet()
    world.opened.clear()
    world.process("alice", Started(Endpoint("10.0.0.1", 7000), Endpoint("10.0.0.1", 7001), b"k" * 32))
    assert world.opened == [SOCKET]
    world.mediator.keys.clear()
    world.process("alice", WebSocketUp(SOCKET))
    assert len(world.mediator.keys) == 1
