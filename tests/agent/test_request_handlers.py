"""Request handlers over a real core: requests become commands, answers become results."""

import base64
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE
from tests.support.handler_offices import Office
from zerochat import rpc
from zerochat.agent.api.handlers.context import BadRequest
from zerochat.agent.invitations.pasted_text import BadLink, ForAConnection, ForAGroup, ForAMediator, read_pasted
from zerochat.agent.views.connections import connection_info, is_hidden, mediators
from zerochat.agent.views.groups import group_info
from zerochat.agent.views.members import member_infos
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import Invitation
from zerochat.didcomm.protocols.mediation_client import MediationState
from zerochat.didcomm.service import Route
from zerochat.errors import BadInvitation
from zerochat.group import notifications
from zerochat.group.links.contact import Reach
from zerochat.group.state import EndpointFailure
from zerochat.group.state.external import MediatorProof
from zerochat.sim import Faults, play_history


@pytest.fixture
def office(monkeypatch):
    made = Office()
    clock = SimpleNamespace(time=lambda: made.now / 1000, monotonic=time.monotonic)
    for module in ("groups", "connections"):
        monkeypatch.setattr(f"zerochat.agent.api.handlers.{module}.time", clock)
    for name in made.agents:
        made.call(name, "subscribe")
    return made


# --- connections ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_a_connection_from_its_offer_to_its_end(office, envelope):
    offer = office.call("alice", "offer_connection", envelope=envelope, expires_s=3600)
    assert offer.url.startswith(ALICE) and offer.expires_at.startswith("2025-06-15T16:06:40")
    (offered,) = office.call("alice", "list_connections")
    assert (offered.id, offered.state, offered.did, offered.mediator) == (offer.connection, "offered", "", None)
    begun = office.call("bob", "open_connection", invitation=f" <{offer.url[:90]}\n{offer.url[90:]}> ", name="her")
    (hers,), (his,) = office.call("alice", "list_connections"), office.call("bob", "list_connections")
    assert (hers.state, his.state, his.id) == ("established", "established", begun.id)
    assert (hers.did, his.did) == (his.my_did, hers.my_did) and ":" not in his.did.removeprefix("did:peer:")
    assert hers.envelope == his.envelope == envelope
    assert office.heard("bob", "connection_changed")[-1].state == "established"

    ping = office.call("bob", "ping_peer", peer=begun.id)
    pong = next(one for one in office.heard("bob", "pong") if one.thread == ping.thread)
    assert pong.envelope.startswith(envelope) and pong.channel == "web" and pong.their_key and pong.my_key
    asked = office.call("bob", "query_features", peer=begun.id, match="https://didcomm.org/trust-ping/*")
    (found,) = office.heard("bob", "features")
    assert found.thread == asked.thread and all("trust-ping" in one.id for one in found.features) and found.features
    told = office.call("bob", "send_connection_message", peer=begun.id, text="\x1b[2Jhello")
    assert told.id
    assert office.heard("alice", "connection_message") == [
        rpc.ConnectionMessageNotification(hers.id, hers.label, "\x1b[2Jhello")
    ]
    office.call("bob", "rotate_did", peer=begun.id)
    assert office.call("bob", "list_connections")[0].my_did != his.my_did
    office.call("bob", "close_connection", peer=begun.id)
    assert office.call("bob", "list_connections") == []


def test_invalid_requests_are_explained(office):
    asked: list[tuple[str, dict[str, Any], str]] = [
        (
            "create_group",
            {"group": "g", "envelope": "mime"},
            "unknown envelope format 'mime'; choose didcomm/v2 or didcomm/v1",
        ),
        ("offer_connection", {"envelope": "\x1b[2J"}, "unknown envelope format '\\\\x1b"),
        ("offer_connection", {"expires_s": 0}, "1 second to 30 days"),
        ("ping_peer", {"peer": "nobody"}, "No member or connection is called nobody"),
        ("open_connection", {"invitation": "hello"}, "not a valid connection invitation: it is not a link"),
    ]
    for method, params, error in asked:
        with pytest.raises(Exception, match=error) as refused:
            office.call("alice", method, **params)
        assert refused.type is not AssertionError
    with pytest.raises(BadRequest):
        office.call("alice", "create_group", group="g", envelope="didcomm/v3")
    with pytest.raises(BadInvitation):
        office.call("alice", "join_group", invitation="https://x/?_oob=e30")


def test_a_group_keeps_the_envelopes_that_it_was_made_with(office):
    assert office.call("alice", "create_group", group="old", envelope="didcomm/v1").envelope == "didcomm/v1"
    assert office.call("alice", "create_group", group="usual").envelope == "didcomm/v2"


def test_a_subscription_to_one_group_excludes_others(office):
    first, second = (office.call("alice", "create_group", group=name).id for name in ("one", "two"))
    office.servers["alice"].news.clear()
    subscribed = rpc.SubscribeParams([first])
    office.handlers["alice"].subscriptions.subscribe(2, subscribed, office.agents["alice"])
    me = office.agents["alice"].groups[second].me
    news = [notifications.DidRotated(second, me, mine=True), notifications.ProblemReported("bob", "e.p", "why")]
    office.handlers["alice"].notify(news, office.agents["alice"])
    heard = [(client, method) for client, method, _ in office.servers["alice"].news]
    assert heard == [(1, "did_rotated"), (1, "problem_report"), (2, "problem_report")]
    assert office.heard("alice", "did_rotated") == [rpc.RotatedNotification(second, me, "alice", True)]


def test_notifications_of_an_ended_connection(office):
    office.handlers["alice"].notify(
        [notifications.ConnectionChanged("c", "x"), notifications.BasicMessageReceived("c", "y")],
        office.agents["alice"],
    )
    assert office.heard("alice", "connection_changed") == [
        rpc.ConnectionNotification(connection="c", text="x", state="ended")
    ]
    assert office.heard("alice", "connection_message") == [rpc.ConnectionMessageNotification("c", "", "y")]


# --- what was pasted ------------------------------------------------------------------------------------------------


def link(**members):
    message = {"id": "1", "type": "https://didcomm.org/out-of-band/2.0/invitation", "from": "did:peer:2x", "body": {}}
    return "https://x/?_oob=" + b64url(json.dumps(message | members).encode())


def test_an_invitation_is_read_as_a_link_and_as_json():
    assert read_pasted(link(), 0) == read_pasted(base64.urlsafe_b64decode(link()[16:] + "==").decode(), 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is nothing in it"),
        ("https://x/?_oob=e30", "it has no message type"),
        ("https://x/?_oobid=1", "a short link"),
        ("https://x/?c_i=e30", "Connections protocol"),
        (link(expires_time=1000), "it expired at 1970-01-01 00:16 UTC"),
    ],
)
def test_invalid_invitations_are_refused_with_the_reason(text, why):
    with pytest.raises(BadLink, match=why):
        read_pasted(text, 1000)


def test_an_invitation_to_a_group_is_not_connected_with(office):
    office.call("alice", "create_group", group="hikers")
    invitation = office.call("alice", "create_invitation", group="hikers")
    for text in (invitation.url, invitation.code, " " + invitation.code.lower()):
        with pytest.raises(ForAGroup):
            read_pasted(text, 0)


# --- who is reached, and how ----------------------------------------------------------------------------------------


def test_how_each_member_is_reached(monkeypatch):
    world = play_history(1, members=3, faults=Faults(0, 0, 1))
    agent, group = world.nodes["n0"].agent, world.group("n0")
    other, third = group.others
    now = world.now
    monkeypatch.setattr("zerochat.agent.views.delivery.time", SimpleNamespace(time=lambda: now / 1000))

    def told(agent):
        infos = member_infos(agent, agent.groups[group.id])
        assert infos[[one.did for one in infos].index(group.me)].connection == "self"
        ways = {one.did: (one.connection, one.via) for one in infos}
        return ways[other], group_info(agent, agent.groups[group.id]).connected

    assert told(agent) == (("connected", "link"), 2)
    away = replace(agent, links_up=frozenset())
    assert told(away) == (("unreachable", ""), 0)
    uri = "https://relay.example/"
    way = Route(uri, ("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK",), (), "final")
    peer = replace(group.links.peers[other], reach=Reach(bytes(32), None, None, (way,)))
    mailed = replace(
        away, groups={group.id: replace(group, links=replace(group.links, peers={**group.links.peers, other: peer}))}
    )
    assert told(mailed) == (("unreachable", ""), 0), "its mediator has not proved itself"
    proofs = {f"{uri} {way.routing_keys[0]}": MediatorProof(now + 1000, 1)}
    mailed = replace(mailed, mediator_proofs=proofs)
    assert told(mailed) == (("connected", "mediator"), 1)
    both = replace(mailed, links_up=frozenset([peer.link]))
    assert told(both) == (("connected", "link"), 1)
    assert told(replace(mailed, endpoint_failures={uri: EndpointFailure(1, now + 1000)})) == (("unreachable", ""), 0)
    assert told(replace(mailed, endpoint_failures={uri: EndpointFailure(1, now)})) == (("connected", "mediator"), 1)
    stranger = replace(
        mailed.groups[group.id],
        links=replace(mailed.groups[group.id].links, relationships={third: group.links.relationships[third]}),
    )
    assert told(replace(mailed, links_up=frozenset([peer.link]), groups={group.id: stranger}))[0] in (
        ("connecting", "link"),
        ("unreachable", ""),
    )
    left = replace(mailed.groups[group.id], state="left")
    assert told(replace(mailed, groups={group.id: left})) == (("unreachable", ""), 0)


def test_an_invitation_over_a_mediator_has_no_code():
    key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    way = Route("https://relay.example/", ("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK",), (), "final")
    server = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    hidden = Invitation(bytes(16), key, server, None, 1_800_000_000, mail=(way,))
    assert (hidden.code(), hidden.address) == ("", "https://relay.example/") and hidden.url().startswith("https://")
    direct = replace(hidden, endpoint=Endpoint("192.0.2.7", 4242), mail=())
    assert direct.code().startswith("ZC:") and direct.address == "zmq+tcp://192.0.2.7:4242"


def test_an_invitation_has_a_short_link_where_one_is_served(office):
    """What is served leads to the very same invitation."""
    lent = {}

    def lend(url, expires):
        lent["http://192.0.2.1:8080/?_oobid=abc"] = url, expires
        return "http://192.0.2.1:8080/?_oobid=abc"

    office.handlers["alice"].shorten = lend
    offer = office.call("alice", "offer_connection", expires_s=60)
    assert lent[offer.short][0] == offer.url


def test_a_link_of_another_kind_is_not_joined_with(office):
    """Whoever pastes it in the wrong place is told the right one."""
    offer = office.call("alice", "offer_connection", expires_s=60)
    with pytest.raises(ForAConnection):
        office.call("bob", "join_group", invitation=offer.url)
    tree = json.loads(base64.urlsafe_b64decode(offer.url.partition("_oob=")[2] + "=="))
    tree["body"]["goal_code"] = "request-mediate"
    link = "https://relay.example/?_oob=" + b64url(json.dumps(tree).encode())
    with pytest.raises(ForAMediator):
        office.call("bob", "join_group", invitation=link)
    with pytest.raises(BadInvitation):
        office.call("bob", "join_group", invitation=link[:80])


def test_where_an_agent_is_reached(office, monkeypatch):
    office.call(
        "bob", "open_connection", invitation=office.call("alice", "offer_connection", expires_s=60).url, name="relay"
    )
    agent = office.agents["bob"]
    (one,) = agent.connections.values()
    assert mediators(agent) == [] and connection_info(agent, one).reachable is None
    mediation = MediationState(one.relationship.theirs, one.relationship.mine.did, phase="granted")
    agent = replace(agent, connections={one.id: replace(one, mediation=mediation)})
    monkeypatch.setattr("zerochat.agent.views.connections.websocket_uri", lambda one: "ws://192.0.2.9")
    for up, reachable in ((frozenset(), False), (frozenset(["ws://192.0.2.9"]), True)):
        (info,) = mediators(replace(agent, websockets_up=up))
        assert (info.label, info.mediator, info.reachable) == ("relay", "granted", reachable)
    assert is_hidden(replace(agent, reach=Reach(bytes(32), None, None)))
    assert not is_hidden(replace(agent, reach=Reach(bytes(32), Endpoint("192.0.2.1", 1), Endpoint("192.0.2.1", 2))))
    assert not is_hidden(replace(agent, reach=None))
