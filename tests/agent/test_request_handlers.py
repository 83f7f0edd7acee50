"""The desk over a real core: what faces ask becomes commands, and what the core answers becomes results and news."""

import base64
import json
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.group.test_external_connections import ALICE, Two
from zerochat import rpc
from zerochat.agent.api.command_adapter import BadRequest
from zerochat.agent.api.request_handlers import Desk
from zerochat.agent.api.server import read_params
from zerochat.agent.invitations.parse import BadLink, ForAConnection, ForAGroup, ForAMediator, read_pasted
from zerochat.agent.views import core_state
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import Invitation
from zerochat.didcomm.protocols.mediation_client import Mediated
from zerochat.didcomm.service import Route
from zerochat.errors import BadInvitation
from zerochat.group import notifications
from zerochat.group.links.contact import Reach
from zerochat.group.state import Fault
from zerochat.sim import Faults, play


class Counter:
    """The control server's part that a desk uses; what it says is kept."""

    def __init__(self):
        self.clients = {1, 2}
        self.answers, self.refusals, self.news = {}, {}, []

    def respond(self, client, number, result):
        self.answers[number] = result

    def refuse_error(self, client, number, error):
        self.refusals[number] = error

    def notify(self, clients, method, item):
        shape = rpc.NEWS[method]
        for client in clients:
            self.news.append((client, method, msgspec.json.decode(msgspec.json.encode(item), type=shape)))


class Office(Two):
    """Two agents with a desk before each; `call` is what a face does."""

    def __init__(self, **addresses):
        self.desks: dict[str, Desk] = {}
        self.servers: dict[str, Any] = {}
        super().__init__(**addresses)
        for name in self.agents:
            journal: Any = SimpleNamespace(latest=lambda: 0, topics=lambda *_: [])
            self.servers[name] = Counter()
            self.desks[name] = Desk(self.servers[name], journal, lambda agent: None)  # type: ignore[arg-type, return-value]
        self.number = 0

    def hear(self, name, stimulus):
        answer = super().hear(name, stimulus)
        if desk := self.desks.get(name):
            if answer is not None:
                desk.settle(answer, self.agents[name])
            fresh, self.told[name][:] = list(self.told[name]), []  # a step may have others within it
            desk.tell(fresh, self.agents[name])
        return answer

    def call(self, who, method, **params):
        """The result, in its shape; a refusal is raised."""
        self.number += 1
        request = rpc.Request(method=method, id=self.number, params=params, jsonrpc="2.0")
        read_params(request)
        desk = self.desks[who]
        ask = desk.take(1, request, self.agents[who])
        if ask is not None:
            self.hear(who, ask)
        if self.number in self.servers[who].refusals:
            raise self.servers[who].refusals[self.number]
        shape = rpc.METHODS[method][1]
        return msgspec.json.decode(msgspec.json.encode(self.servers[who].answers[self.number]), type=shape)

    def heard(self, name, method):
        return [item for _, told, item in self.servers[name].news if told == method]


@pytest.fixture
def office(monkeypatch):
    made = Office()
    clock = SimpleNamespace(time=lambda: made.now / 1000, monotonic=time.monotonic)
    monkeypatch.setattr("zerochat.agent.api.request_handlers.time", clock)
    for name in made.agents:
        made.call(name, "subscribe")
    return made


# --- connections ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_a_connection_from_its_offer_to_its_end(office, envelope):
    offer = office.call("alice", "offer", envelope=envelope, expires_s=3600)
    assert offer.url.startswith(ALICE) and offer.expires_at.startswith("2025-06-15T16:06:40")
    (offered,) = office.call("alice", "connections")
    assert (offered.id, offered.state, offered.did, offered.mediator) == (offer.connection, "offered", "", None)
    begun = office.call("bob", "connect", invitation=f" <{offer.url[:90]}\n{offer.url[90:]}> ", name="her")
    (hers,), (his,) = office.call("alice", "connections"), office.call("bob", "connections")
    assert (hers.state, his.state, his.id) == ("established", "established", begun.id)
    assert (hers.did, his.did) == (his.my_did, hers.my_did) and ":" not in his.did.removeprefix("did:peer:")
    assert hers.envelope == his.envelope == envelope
    assert office.heard("bob", "connection")[-1].state == "established"

    ping = office.call("bob", "ping", peer=begun.id)
    pong = next(one for one in office.heard("bob", "pong") if one.thread == ping.thread)
    assert pong.envelope.startswith(envelope) and pong.way == "web" and pong.their_key and pong.my_key
    asked = office.call("bob", "features", peer=begun.id, match="https://didcomm.org/trust-ping/*")
    (found,) = office.heard("bob", "features")
    assert found.thread == asked.thread and all("trust-ping" in one.id for one in found.features) and found.features
    told = office.call("bob", "tell", peer=begun.id, text="\x1b[2Jhello")
    assert told.id
    assert office.heard("alice", "told") == [rpc.ToldNews(hers.id, hers.label, "\x1b[2Jhello")]
    office.call("bob", "rotate", peer=begun.id)
    assert office.call("bob", "connections")[0].my_did != his.my_did
    office.call("bob", "disconnect", peer=begun.id)
    assert office.call("bob", "connections") == []


def test_what_cannot_be_asked_is_a_sentence(office):
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("new", {"group": "g", "envelope": "mime"}, "no envelopes called 'mime', only didcomm/v2 and didcomm/v1"),
        ("offer", {"envelope": "\x1b[2J"}, "no envelopes called '\\\\x1b"),
        ("offer", {"expires_s": 0}, "1 second to 30 days"),
        ("ping", {"peer": "nobody"}, "Nobody here is called nobody"),
        ("connect", {"invitation": "hello"}, "no invitation to connect with: it is not a link"),
    ]
    for method, params, error in asked:
        with pytest.raises(Exception, match=error) as refused:
            office.call("alice", method, **params)
        assert refused.type is not AssertionError
    with pytest.raises(BadRequest):
        office.call("alice", "new", group="g", envelope="didcomm/v3")
    with pytest.raises(BadInvitation):
        office.call("alice", "join", invitation="https://x/?_oob=e30")


def test_a_group_keeps_the_envelopes_that_it_was_made_with(office):
    assert office.call("alice", "new", group="old", envelope="didcomm/v1").envelope == "didcomm/v1"
    assert office.call("alice", "new", group="usual").envelope == "didcomm/v2"


def test_who_has_subscribed_to_one_group_hears_of_no_other(office):
    first, second = (office.call("alice", "new", group=name).id for name in ("one", "two"))
    office.servers["alice"].news.clear()
    subscribed = rpc.SubscribeParams([first])
    office.desks["alice"].stream.subscribe(2, subscribed, office.agents["alice"])
    me = office.agents["alice"].groups[second].me
    news = [notifications.Rotated(second, me, mine=True), notifications.ProblemReported("bob", "e.p", "why")]
    office.desks["alice"].tell(news, office.agents["alice"])
    heard = [(client, method) for client, method, _ in office.servers["alice"].news]
    assert heard == [(1, "rotated"), (1, "problem"), (2, "problem")]
    assert office.heard("alice", "rotated") == [rpc.RotatedNews(second, me, "alice", True)]


def test_news_of_a_connection_that_is_gone(office):
    office.desks["alice"].tell(
        [notifications.ConnectionChanged("c", "x"), notifications.Told("c", "y")], office.agents["alice"]
    )
    assert office.heard("alice", "connection") == [rpc.ConnectionNews(connection="c", text="x", state="ended")]
    assert office.heard("alice", "told") == [rpc.ToldNews("c", "", "y")]


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
        ("https://x/?_oob=e30", "does not say what kind"),
        ("https://x/?_oobid=1", "a short link"),
        ("https://x/?c_i=e30", "Connections protocol"),
        (link(expires_time=1000), "it expired at 1970-01-01 00:16 UTC"),
    ],
)
def test_what_is_no_invitation_is_refused_with_the_reason(text, why):
    with pytest.raises(BadLink, match=why):
        read_pasted(text, 1000)


def test_an_invitation_to_a_group_is_not_connected_with(office):
    office.call("alice", "new", group="hikers")
    invitation = office.call("alice", "invite", group="hikers")
    for text in (invitation.url, invitation.code, " " + invitation.code.lower()):
        with pytest.raises(ForAGroup):
            read_pasted(text, 0)


# --- who is reached, and how ----------------------------------------------------------------------------------------


def test_how_each_member_is_reached(monkeypatch):
    world = play(1, members=3, faults=Faults(0, 0, 1))
    agent, group = world.nodes["n0"].agent, world.group("n0")
    other, third = group.others
    now = world.now
    monkeypatch.setattr("zerochat.agent.views.delivery.time", SimpleNamespace(time=lambda: now / 1000))

    def told(agent):
        infos = core_state.member_infos(agent, agent.groups[group.id])
        assert infos[[one.did for one in infos].index(group.me)].connection == "self"
        ways = {one.did: (one.connection, one.via) for one in infos}
        return ways[other], core_state.group_info(agent, agent.groups[group.id]).connected

    assert told(agent) == (("connected", "link"), 2)
    away = replace(agent, up=frozenset())
    assert told(away) == (("unreachable", ""), 0)
    uri = "https://relay.example/"
    way = Route(uri, ("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK",), (), "final")
    peer = replace(group.peers[other], reach=Reach(bytes(32), None, None, (way,)))
    mailed = replace(away, groups={group.id: replace(group, peers={**group.peers, other: peer})})
    assert told(mailed) == (("connected", "mediator"), 1)
    both = replace(mailed, up=frozenset([peer.link]))
    assert told(both) == (("connected", "link"), 1)
    assert told(replace(mailed, faults={uri: Fault(1, now + 1000)})) == (("unreachable", ""), 0)
    assert told(replace(mailed, faults={uri: Fault(1, now)})) == (("connected", "mediator"), 1)
    stranger = replace(mailed.groups[group.id], relationships={third: group.relationships[third]})
    assert told(replace(mailed, up=frozenset([peer.link]), groups={group.id: stranger}))[0] in (
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
    info = core_state.invitation_info("g", hidden, 1)
    assert (info.code, info.endpoint) == ("", "https://relay.example/") and info.url.startswith("https://")
    direct = core_state.invitation_info("g", replace(hidden, endpoint=Endpoint("192.0.2.7", 4242), mail=()), 1)
    assert direct.code.startswith("ZC:") and direct.endpoint == "zmq+tcp://192.0.2.7:4242"


def test_an_invitation_has_a_short_link_where_one_is_served(office):
    """What is served leads to the very same invitation."""
    lent = {}

    def lend(url, expires):
        lent["http://192.0.2.1:8080/?_oobid=abc"] = url, expires
        return "http://192.0.2.1:8080/?_oobid=abc"

    office.desks["alice"].lend = lend
    offer = office.call("alice", "offer", expires_s=60)
    assert lent[offer.short][0] == offer.url


def test_a_link_of_another_kind_is_not_joined_with(office):
    """Whoever pastes it in the wrong place is told the right one."""
    offer = office.call("alice", "offer", expires_s=60)
    with pytest.raises(ForAConnection):
        office.call("bob", "join", invitation=offer.url)
    tree = json.loads(base64.urlsafe_b64decode(offer.url.partition("_oob=")[2] + "=="))
    tree["body"]["goal_code"] = "request-mediate"
    link = "https://relay.example/?_oob=" + b64url(json.dumps(tree).encode())
    with pytest.raises(ForAMediator):
        office.call("bob", "join", invitation=link)
    with pytest.raises(BadInvitation):
        office.call("bob", "join", invitation=link[:80])


def test_where_an_agent_is_reached(office, monkeypatch):
    office.call("bob", "connect", invitation=office.call("alice", "offer", expires_s=60).url, name="relay")
    agent = office.agents["bob"]
    (one,) = agent.connections.values()
    assert core_state.mediators(agent) == [] and core_state.connection_info(agent, one).reachable is None
    mediation = Mediated(one.relationship.theirs, one.relationship.mine.did, phase="granted")
    agent = replace(agent, connections={one.id: replace(one, mediation=mediation)})
    monkeypatch.setattr("zerochat.agent.views.core_state.live_uri", lambda one: "ws://192.0.2.9")
    for up, reachable in ((frozenset(), False), (frozenset(["ws://192.0.2.9"]), True)):
        (info,) = core_state.mediators(replace(agent, web_up=up))
        assert (info.label, info.mediator, info.reachable) == ("relay", "granted", reachable)
    assert core_state.hidden(replace(agent, reach=Reach(bytes(32), None, None)))
    assert not core_state.hidden(
        replace(agent, reach=Reach(bytes(32), Endpoint("192.0.2.1", 1), Endpoint("192.0.2.1", 2)))
    )
    assert not core_state.hidden(replace(agent, reach=None))
