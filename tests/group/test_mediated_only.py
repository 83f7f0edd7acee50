"""Members that dial nothing but their own mediators, which send for them (`network.hidden = "always"`)."""

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE, Two
from tests.support.mediated_world import Behind
from zerochat.agent.views.delivery import obstacle, reach
from zerochat.agent.views.members import member_infos
from zerochat.didcomm.did import new_peer2
from zerochat.didcomm.invitation import parse_invitation
from zerochat.didcomm.protocols import oob_write
from zerochat.didcomm.protocols.oob_read import OutOfBand, read_invitation
from zerochat.group.effects import CommandFailed, OpenWebSocket, WebPost
from zerochat.group.external import outbox, relayed_posts
from zerochat.group.external.connections import CannotConnect
from zerochat.group.external.seclusion import NoRelay, OnlyDirect
from zerochat.group.inputs import (
    AcceptConnection,
    AcceptInvitation,
    EndConnection,
    MediatedOnly,
    SendBasicMessage,
    TimerFired,
)
from zerochat.group.links.mediator_mail import reach_of_member
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.timer_kinds import TimerKind


class Secluded(Behind):
    """n0 has the mediator m0 alone; n1 and n2 have m1, and n2 can also be dialled. What n0 reaches is kept."""

    def __init__(self, secluded=("n0",), via=None):
        self.reached = []
        self.secluded = secluded
        super().__init__(3, hidden=("n0", "n1"), mediators=2, via=via or {"n0": ("m0",), "n1": ("m1",)})

    def add_node(self, behind):
        node = super().add_node(behind)
        node.mediated_only = node.name in self.secluded
        return node

    def _perform(self, node, effect):
        match effect:
            case WebPost(uri) | OpenWebSocket(uri):
                self.reached.append((node.name, uri))
        super()._perform(node, effect)

    def reached_by(self, name):
        return {uri for who, uri in self.reached if who == name}

    def refusal(self, name, command):
        answer = self.run_command(name, command)
        assert isinstance(answer, CommandFailed)
        return type(answer.error)

    def invited(self, group, name):
        return AcceptInvitation(parse_invitation(self.invite(group, name).url(), self.now // 1000), "guest")


M0 = {"http://m0.example/", "ws://m0.example/"}


def with_mediators():
    world = Secluded()
    world.add_mediator("n2", "m1")
    world.run(for_ms=5_000)
    return world


def test_a_member_reaches_its_own_mediator_alone_and_talks_with_all():
    world = with_mediators()
    group = world.everybody()
    for name in world.nodes:
        world.post(group, name, f"from {name}")
    world.settle()
    assert all(len(world.texts(name)) == 3 for name in world.nodes)
    assert world.reached_by("n0") <= M0
    assert "n0" not in world.dialled and not world.nodes["n0"].allowed_clients
    assert world.reached_by("n1") > {"ws://m1.example/"}, "the others post to its mediator"
    reach = reach_of_member(world.group("n1"), world.group("n0").me)
    assert (reach.server_key, reach.pair, reach.queue) == (b"", None, None)


def test_the_same_world_without_the_setting_reaches_the_others():
    world = Secluded(secluded=())
    world.add_mediator("n2", "m1")
    world.everybody()
    world.settle()
    assert "http://m1.example/" in world.reached_by("n0") and "n0" in world.dialled


def test_it_joins_by_mail_as_others_do():
    world = Secluded(secluded=("n1",))
    world.add_mediator("n2", "m0")
    group = world.everybody()
    world.post(group, "n1", "I am in")
    world.settle()
    assert world.reached_by("n1") <= {"http://m1.example/", "ws://m1.example/"}


def test_nothing_leaves_without_the_mediator_and_all_arrives_later():
    world = with_mediators()
    group = world.everybody()
    world.settle()
    world.web.stop_mediator("m0")
    world.run(for_ms=2_000)
    assert relayed_posts.relay_of(world.nodes["n0"].agent) is None
    world.reached.clear()
    world.post(group, "n0", "into the dark")
    world.run(for_ms=60_000)
    assert world.reached_by("n0") <= M0 and not world.texts("n1")
    assert world.refusal("n0", world.invited(group, "n2")) is NoRelay
    assert world.refusal("n0", AcceptConnection(world.web.mediators["m1"].invitation(), "one", False)) is NoRelay
    world.web.start_mediator("m0")
    world.settle()
    assert len(world.texts("n1")) == len(world.texts("n2")) == 1


def test_every_member_is_shown_as_unreachable_without_a_route(monkeypatch):
    world = with_mediators()
    group = world.everybody()
    world.settle()
    others = list(world.group("n0").others)
    monkeypatch.setattr("time.time", lambda: world.now / 1000)

    def connections():
        agent = world.nodes["n0"].agent
        return [reach(agent, agent.groups[group], member) for member in others]

    assert connections() == [("connected", "mediator")] * 2
    world.run_command("n0", EndConnection(next(iter(world.nodes["n0"].agent.connections))))
    assert connections() == [("unreachable", "")] * 2


def test_a_member_without_a_mediator_is_shown_as_such(monkeypatch):
    world = Secluded()
    group = world.found("n1")
    world.run_command("n0", world.invited(group, "n1"))
    assert world.run(lambda: bool(world.nodes["n0"].agent.groups), for_ms=60_000)
    world.run_command("n2", AcceptInvitation(world.invite(group, "n1"), "n2"))
    assert world.run(lambda: len(world.group("n0").others) == 2, for_ms=60_000)
    world.run(for_ms=5_000)
    monkeypatch.setattr("time.time", lambda: world.now / 1000)
    agent = world.nodes["n0"].agent
    shown = {one.did: (one.connection, one.no_mediator) for one in member_infos(agent, agent.groups[group])}
    assert shown[world.group("n1").me] == ("connected", False)
    assert shown[world.group("n2").me] == ("unreachable", True)
    dials = world.nodes["n1"].agent
    assert not any(one.no_mediator for one in member_infos(dials, dials.groups[group]))


def test_a_delivery_says_that_there_is_no_way_between_two_members(monkeypatch):
    world = Secluded()
    group = world.found("n1")
    world.run_command("n0", world.invited(group, "n1"))
    assert world.run(lambda: bool(world.nodes["n0"].agent.groups), for_ms=60_000)
    world.run_command("n2", AcceptInvitation(world.invite(group, "n1"), "n2"))
    assert world.run(lambda: len(world.group("n0").others) == 2, for_ms=60_000)
    world.run(for_ms=5_000)
    monkeypatch.setattr("time.time", lambda: world.now / 1000)

    def obstacles(name):
        agent = world.nodes[name].agent
        found = {other: world.group(other).me for other in world.nodes if other != name}
        return {other: obstacle(agent, agent.groups[group], did) for other, did in found.items()}

    assert obstacles("n0") == {"n1": "", "n2": "no_mediator"}
    assert obstacles("n2") == {"n0": "own_mediator", "n1": ""}
    assert set(obstacles("n1").values()) == {""}
    world.add_mediator("n2", "m1")
    world.run(for_ms=120_000)
    assert set(obstacles("n0").values()) == set(obstacles("n2").values()) == {""}


def test_an_invitation_without_a_mediator_is_refused():
    world = Secluded()
    group = world.found("n2")
    assert world.refusal("n0", world.invited(group, "n2")) is OnlyDirect


def test_a_connection_is_made_through_the_own_mediator():
    world = with_mediators()
    other = world.web.mediators["m1"]
    answer = world.run_command("n0", AcceptConnection(other.invitation(), "one", False))
    assert [one.uri for one in world.nodes["n0"].agent.relayed_posts.values()] == [other.http]
    world.run(for_ms=5_000)
    [one] = [one for one in world.nodes["n0"].agent.connections.values() if one.id == answer.result.connection]
    assert one.state == "established", "its answer came back the same way"
    assert world.reached_by("n0") <= M0


def test_a_connection_over_a_websocket_alone_is_refused():
    world = with_mediators()
    other = world.web.mediators["m1"]
    live = {"type": "DIDCommMessaging", "serviceEndpoint": {"uri": other.ws, "accept": ["didcomm/v2"]}}
    message = oob_write.invitation(new_peer2(world.rng.randbytes, [live]).did, world.rng.randbytes)
    invitation = read_invitation(oob_write.link(other.http, message))
    assert isinstance(invitation, OutOfBand)
    command = AcceptConnection(invitation, "one", False)
    assert world.refusal("n0", command) is CannotConnect
    world.nodes["n1"].answers.clear()
    assert world.run_command("n1", command).result, "which others can use"


def test_a_failed_post_leads_to_other_routes_as_a_failed_one_of_its_own_does():
    world = with_mediators()
    group = world.everybody()
    world.settle()
    world.web.stop_mediator("m1")
    world.post(group, "n0", "to a mediator that is down")
    world.run(for_ms=3_000)
    assert "http://m1.example/" in world.nodes["n0"].agent.endpoint_failures
    assert "http://m0.example/" not in world.nodes["n0"].agent.endpoint_failures
    world.web.start_mediator("m1")
    world.settle()
    assert len(world.texts("n1")) == len(world.texts("n2")) == 1


def test_a_result_that_never_comes_is_forgotten():
    world = with_mediators()
    group = world.everybody()
    world.settle()
    world.web.mediators["m0"].posted = lambda *_: b"{}"  # what it answers cannot be read
    world.post(group, "n0", "into the dark")
    world.run(for_ms=1_000)
    assert world.nodes["n0"].agent.relayed_posts
    del world.web.mediators["m0"].posted
    world.run(for_ms=3 * relayed_posts.RESULT_MS)
    assert not world.nodes["n0"].agent.relayed_posts
    world.settle()


def test_posts_under_way_are_limited(monkeypatch):
    monkeypatch.setattr(relayed_posts, "PENDING_MAX", limit := 4)  # what two members are sent again in one step
    world = with_mediators()
    group = world.everybody()
    for number in range(6):
        world.post(group, "n0", f"message {number}")
        assert len(world.nodes["n0"].agent.relayed_posts) <= limit
    world.settle()
    assert len(world.texts("n1")) == len(world.texts("n2")) == 6, "what was dropped is sent again"


def test_a_mediator_that_cannot_post_is_reported_and_used_for_nothing_more():
    world = with_mediators()
    world.web.mediators["m0"].posts = False
    group = world.found()
    link = world.invite(group).url()
    world.run_command("n1", AcceptInvitation(parse_invitation(link, world.now // 1000), "n1"))
    assert not world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=60_000)
    agent = world.nodes["n0"].agent
    assert relayed_posts.relay_of(agent) is None and len(agent.unrelaying) == 1
    assert any("cannot send for you" in one.text for one in world.news("n0", ConnectionChanged))
    assert world.reached_by("n0") <= M0


@pytest.mark.parametrize("given_up", [False, True])
def test_without_a_mediator_no_retry_of_the_outbox_leaves(given_up):
    """Neither to the next endpoint of the peer nor with the next message."""
    two = Two(alice=(ALICE, "http://192.0.2.9:8080/"))
    two.connect()
    two.agents["bob"] = replace(two.agents["bob"], mediated_only=True)
    two.sent.clear()
    for text in ("one", "two"):
        two.ask("bob", SendBasicMessage(two.one("bob").id, text))
    for _ in range(4):
        two.now = two.now + outbox.GIVE_UP_MS if given_up else two.one("bob").head.due
        two.process("bob", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('bob').id}"))
    assert not two.sent
    assert [each.status for each in two.one("bob").messages] == ["failed" if given_up else "waiting"] * 2


def test_an_agent_that_runs_ends_every_link_and_says_so():
    world = Secluded(secluded=())
    world.add_mediator("n2", "m1")
    group = world.everybody()
    world.settle()
    node, me = world.nodes["n2"], world.group("n2").me
    assert node.connected and reach_of_member(world.group("n1"), me).pair
    for uri in list(node.agent.websockets_up):
        world.web.cut("n2", uri)  # as the agent does: it closes every socket
    node.mediated_only = True
    world.process("n2", MediatedOnly())
    world.run(for_ms=30_000)
    assert not node.connected and not node.agent.links_up and not node.allowed_clients
    assert reach_of_member(world.group("n1"), me).pair is None, "it has announced its mediator alone"
    world.reached.clear()
    world.dialled.clear()
    for name in world.nodes:
        world.post(group, name, "from now on by mail")
    world.settle()
    assert all(len(world.texts(name)) == 3 for name in world.nodes)
    assert world.reached_by("n2") <= {"http://m1.example/", "ws://m1.example/"} and "n2" not in world.dialled


def test_an_acknowledgement_in_the_own_mailbox_did_not_come_directly():
    world = Behind(3, hidden=("n0",), mediators=2)
    world.add_mediator("n2", "m0")
    group = world.everybody()
    world.settle()
    node = world.nodes["n2"]
    for uri in list(node.agent.websockets_up):
        world.web.cut("n2", uri)
    node.mediated_only = True
    world.process("n2", MediatedOnly())
    world.run(for_ms=30_000)
    for one in world.nodes.values():
        one.receipts.clear()
    world.post(group, "n2", "relayed by n0 to n1, which has no mediator and answers by mail")
    world.post(group, "n1", "to n0 directly")
    world.run(for_ms=120_000)
    n0, n1 = world.group("n0").me, world.group("n1").me
    assert {(one.member, one.via) for one in node.receipts} == {(n0, "mediator"), (n1, "mediator")}
    assert (n0, "link") in {(one.member, one.via) for one in world.nodes["n1"].receipts}
