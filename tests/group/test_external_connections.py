"""Connections outside of any group, between two cores that post to each other."""

import random

import pytest
from msgspec.structs import replace

from zerochat.crypto.keys import SecretKey, new_secret, public_of
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer2, new_peer4, peer2, resolve, short_form
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.layers import seal_layers
from zerochat.didcomm.packer import OwnKey
from zerochat.didcomm.protocols import oob_write, ping
from zerochat.didcomm.protocols.basic import basic
from zerochat.didcomm.protocols.oob_read import OutOfBand, read_invitation
from zerochat.group.commands import NotReady, RotationUnderWay
from zerochat.group.effects import Answer, Answered, Notify, Post, Refuse
from zerochat.group.engine import step
from zerochat.group.external.connections import AlreadyConnected, CannotConnect, NoAddress, OwnInvitation
from zerochat.group.external.questions import LETTERS_MAX
from zerochat.group.inputs import (
    Ask,
    AskFeatures,
    Connect,
    EndConnection,
    Mailed,
    Moment,
    OfferConnection,
    PingPeer,
    PostFailed,
    RotateDid,
    Started,
    Tell,
    TimerFired,
)
from zerochat.group.links.relationship import pack, rotate
from zerochat.group.lookup import UnknownPeer, find_peer
from zerochat.group.notifications import ConnectionChanged, FeaturesDisclosed, Pong, Told
from zerochat.group.state import Agent, Whom

ALICE, BOB = "http://192.0.2.1:8080/", "http://192.0.2.2:8080/"


def invitation(link):
    read = read_invitation(link)
    assert isinstance(read, OutOfBand)
    return read


class Two:
    """Two agents and the web between them; what each is told is kept."""

    def __init__(self, alice=(ALICE,), bob=(BOB,)):
        self.dice = random.Random(7)
        self.now = 1_750_000_000_000
        self.agents = {"alice": Agent("alice"), "bob": Agent("bob")}
        self.at = {ALICE: "alice", BOB: "bob"}
        self.told = {"alice": [], "bob": []}
        self.sent = []
        self.down = set()
        self.handles = {}
        for number, (name, web) in enumerate((("alice", alice), ("bob", bob)), 1):
            host = f"10.0.0.{number}"
            key = x25519_public(self.dice.randbytes(32))
            self.hear(name, Started(Endpoint(host, 7000), Endpoint(host, 7001), key, tuple(web)))

    def hear(self, name, stimulus):
        self.agents[name], effects = step(self.agents[name], stimulus, Moment(self.now, self.dice.randbytes))
        answer = None
        for effect in effects:
            match effect:
                case Answer() | Refuse():
                    answer = effect
                case Notify(notice):
                    self.told[name].append(notice)
                case Post(uri, envelope):
                    self.sent.append(envelope)
                    if uri in self.down:
                        self.hear(name, PostFailed(uri))
                    else:
                        handle = len(self.handles) + 1
                        self.handles[handle] = name
                        self.hear(self.at[uri], Mailed(envelope, handle))
                case Answered(handle, envelope):
                    self.sent.append(envelope)
                    self.hear(self.handles[handle], Mailed(envelope))
        return answer

    def ask(self, name, command):
        answer = self.hear(name, Ask(1, command))
        if isinstance(answer, Refuse):
            raise answer.error
        return answer.result

    def connect(self, envelope="didcomm/v2"):
        offered = self.ask("alice", OfferConnection(envelope, "Alice", 3600))
        return self.ask("bob", Connect(invitation(offered.url), "alice"))

    def one(self, name):
        (connection,) = self.agents[name].connections.values()
        return connection

    def news(self, name, kind):
        return [notice for notice in self.told[name] if isinstance(notice, kind)]


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
@pytest.mark.parametrize("web", [(BOB,), ()], ids=["reachable", "only dials out"])
class TestConnecting:
    def test_an_invitation_leads_to_a_connection(self, envelope, web):
        two = Two(bob=web)
        two.connect(envelope)
        alice, bob = two.one("alice"), two.one("bob")
        assert alice.state == bob.state == "established"
        assert short_form(alice.relationship.theirs) == bob.relationship.mine.short
        assert short_form(bob.relationship.theirs) == alice.relationship.mine.short
        assert alice.relationship.mine.did != alice.relationship.asked, "the invitation's DID is rotated away"
        assert two.news("alice", ConnectionChanged) and two.news("bob", ConnectionChanged)

    def test_bob_pings_asks_and_tells(self, envelope, web):
        two = Two(bob=web)
        two.connect(envelope)
        name = two.one("bob").label
        ping = two.ask("bob", PingPeer(name))
        pong = next(notice for notice in two.news("bob", Pong) if notice.thread == ping.thread)
        assert pong.way == "web" and pong.rtt_ms == 0 and pong.envelope.startswith(envelope)
        asked = two.ask("bob", AskFeatures(name, "https://didcomm.org/*"))
        (disclosed,) = two.news("bob", FeaturesDisclosed)
        assert disclosed.thread == asked.thread
        listed = {feature for _, feature in disclosed.features}
        assert any("ping" in feature for feature in listed)
        assert not any("zerochat.org/group" in feature for feature in listed), "a stranger need not know"
        two.ask("bob", Tell(name, "hello"))
        assert [told.text for told in two.news("alice", Told)] == ["hello"]
        assert [(letter.mine, letter.text) for letter in two.one("alice").letters] == [(False, "hello")]
        assert [(letter.mine, letter.text) for letter in two.one("bob").letters] == [(True, "hello")]

    def test_nothing_is_said_in_clear(self, envelope, web):
        two = Two(bob=web)
        two.connect(envelope)
        two.ask("bob", Tell(two.one("bob").label, "a secret word"))
        assert two.sent and not any(b"a secret word" in sent or b"trust" in sent for sent in two.sent)


def test_an_invitation_is_for_one():
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))
    with pytest.raises(OwnInvitation):
        two.ask("alice", Connect(invitation(offered.url), ""))
    two.ask("bob", Connect(invitation(offered.url), "alice"))
    with pytest.raises(AlreadyConnected):
        two.ask("bob", Connect(invitation(offered.url), "alice again"))
    before = two.one("alice")
    two.agents["bob"] = replace(two.agents["bob"], connections={})
    two.ask("bob", Connect(invitation(offered.url), "somebody else"))
    assert two.one("alice") == before


def test_an_invitation_that_nobody_answers_is_forgotten():
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))
    two.now += 3_600_000
    two.hear("alice", TimerFired(f"offer {offered.connection}"))
    assert not two.agents["alice"].connections


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_both_rotate_and_go_on(envelope):
    two = Two()
    two.connect(envelope)
    for name, other in (("bob", "alice"), ("alice", "bob"), ("bob", "alice")):
        old = two.one(name).relationship.mine.short
        two.ask(name, RotateDid(two.one(name).id))
        assert two.one(name).relationship.mine.short != old
        assert short_form(two.one(other).relationship.theirs) == two.one(name).relationship.mine.short
        assert two.one(name).relationship.handover is None, "the other side has answered to the new DID"
        two.ask(other, Tell(two.one(other).id, f"still here, {name}"))
        assert two.news(name, Told)[-1].text == f"still here, {name}"


def test_a_second_rotation_waits_until_the_first_is_known():
    two = Two()
    two.connect()
    two.down = {ALICE}
    two.ask("bob", RotateDid(two.one("bob").id))
    with pytest.raises(RotationUnderWay):
        two.ask("bob", RotateDid(two.one("bob").id))


def test_what_the_old_did_says_is_not_heard():
    two = Two()
    two.connect()
    two.ask("bob", Tell(two.one("bob").id, "before"))
    recorded = two.sent[-1]
    two.ask("bob", RotateDid(two.one("bob").id))
    before, told = two.agents["alice"], len(two.told["alice"])
    two.hear("alice", Mailed(recorded))
    assert two.agents["alice"] == before and len(two.told["alice"]) == told


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_a_rotation_to_nothing_ends_it(envelope):
    two = Two()
    two.connect(envelope)
    two.ask("bob", EndConnection(two.one("bob").id))
    assert not two.agents["bob"].connections
    assert two.one("alice").state == "ended" and "ended" in two.news("alice", ConnectionChanged)[-1].text
    with pytest.raises(NotReady):
        two.ask("alice", Tell(two.one("alice").id, "are you there?"))


def test_junk_and_foreign_mail_change_nothing():
    two = Two()
    two.connect()
    two.ask("bob", Tell(two.one("bob").id, "hello"))
    envelope = two.sent[-1]
    before = two.agents["alice"]
    for junk in (b"", b"{}", b"[]", b"\xff" * 40, envelope[:-1], envelope[:200] + b"AAAA" + envelope[204:]):
        two.hear("alice", Mailed(junk, 3))
        assert two.agents["alice"] == before


def test_without_an_address_nobody_is_invited():
    two = Two(alice=())
    with pytest.raises(NoAddress):
        two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))


def test_an_invitation_without_a_way_is_refused():
    two = Two()
    offered = invitation(two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600)).url)
    stranger = replace(offered.inviters[0], did="did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK")
    with pytest.raises(CannotConnect):
        two.ask("bob", Connect(replace(offered, inviters=(stranger,)), "x"))


@pytest.mark.parametrize("form", ["anon(auth)", "anon(sign)", "sign"])
def test_what_others_protect_in_other_ways_is_heard(form):
    two = Two()
    two.connect()
    mine = two.one("bob").relationship.mine
    theirs = two.one("alice").relationship.mine
    packer = PACKERS["didcomm/v2"]
    message = replace(basic("wrapped", two.now // 1000, two.dice.randbytes), from_=mine.short, to=(theirs.short,))
    signer = OwnKey(mine.short + "#key-1", SecretKey("Ed25519", mine.signing_seed))
    envelope = seal_layers(
        message,
        sender=packer.own_key(mine, mine.short) if form == "anon(auth)" else None,
        signer=None if form == "anon(auth)" else signer,
        recipient=None if form == "sign" else packer.their_key(resolve(theirs.did), theirs.short),
        protect_sender=form == "anon(auth)",
        random=two.dice.randbytes,
    )
    two.hear("alice", Mailed(envelope))
    heard = [told.text for told in two.news("alice", Told)]
    assert heard == ([] if form == "sign" else ["wrapped"]), "what is not encrypted is not for anybody"


def test_an_id_is_that_connection_whatever_others_call_themselves():
    two = Two()
    two.connect()
    mine = two.one("bob")
    impostor = replace(mine, id="x" * 12, label=mine.id)
    agent = replace(two.agents["bob"], connections={mine.id: mine, impostor.id: impostor})
    assert find_peer(agent, mine.id) == Whom(connection=mine.id)
    slashed = replace(impostor, label="a/b")
    assert find_peer(replace(agent, connections={slashed.id: slashed}), "a/b") == Whom(connection=slashed.id)
    nameless = replace(mine, label="")
    with pytest.raises(UnknownPeer):
        find_peer(replace(agent, connections={nameless.id: nameless}), "")


def test_a_mediator_must_take_websockets_and_v2():
    two = Two()
    for envelope in ("didcomm/v2", "didcomm/v1"):
        offered = two.ask("alice", OfferConnection(envelope, "Alice", 3600))
        with pytest.raises(CannotConnect):
            two.ask("bob", Connect(invitation(offered.url), "", mediate=True))


def test_letters_are_kept_once_and_not_without_end():
    two = Two()
    two.connect()
    two.ask("bob", Tell(two.one("bob").id, "once"))
    two.hear("alice", Mailed(two.sent[-1]))
    assert [letter.text for letter in two.one("alice").letters] == ["once"]
    for number in range(LETTERS_MAX + 5):
        two.ask("bob", Tell(two.one("bob").id, f"{number}"))
    assert len(two.one("alice").letters) == len(two.one("bob").letters) == LETTERS_MAX
    assert two.one("alice").letters[-1].text == f"{LETTERS_MAX + 4}"
    for _ in range(10):
        two.ask("bob", Tell(two.one("bob").id, "x" * 60_000))
    assert sum(len(letter.text) for letter in two.one("alice").letters) <= 256 * 1024


# --- hostile peers --------------------------------------------------------------------------------------------------

BAD_KEYS = [["did:key:zgarbage"], ["x"], ["did:web:example.org"] * 3]


def _service(**fields):
    return {
        "id": "#x",
        "type": "DIDCommMessaging",
        "serviceEndpoint": {"uri": ALICE, "accept": ["didcomm/v2"], **fields},
    }


def _of(envelope, two, agreement, authentication, service):
    """An invitation from a DID with these keys."""
    did = peer2(authentication, agreement, [service])
    if envelope == "didcomm/v2":
        return invitation(oob_write.link(ALICE, oob_write.invitation(did, two.dice.randbytes)))
    return invitation(oob_write.link(ALICE, oob_write.invitation_v1([did], "x", two.dice.randbytes)))


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
@pytest.mark.parametrize("keys", ["none", "P-256"])
def test_an_inviter_that_cannot_be_written_to_is_refused(envelope, keys):
    two = Two()
    key = public_of(new_secret("P-256", two.dice.randbytes))
    service = _service()
    if envelope == "didcomm/v1":
        did_key = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
        service = {"type": "did-communication", "recipientKeys": [did_key], "serviceEndpoint": ALICE}
    service.pop("id", None)
    found = _of(envelope, two, [key] if keys == "P-256" else [], [key] if keys == "P-256" else [], service)
    before = two.agents["bob"]
    with pytest.raises(CannotConnect):
        two.ask("bob", Connect(found, "x"))
    assert two.agents["bob"] == before


@pytest.mark.parametrize("bad", BAD_KEYS, ids=range(len(BAD_KEYS)))
def test_an_invitation_over_keys_that_are_none_is_refused(bad):
    two = Two()
    did = new_peer2(two.dice.randbytes, [{**_service(routingKeys=bad), "id": "#x"}]).did
    found = invitation(oob_write.link(ALICE, oob_write.invitation(did, two.dice.randbytes)))
    with pytest.raises(CannotConnect):
        two.ask("bob", Connect(found, "x"))


@pytest.mark.parametrize("bad", BAD_KEYS, ids=range(len(BAD_KEYS)))
def test_a_peer_that_moves_behind_keys_that_are_none_can_still_be_left(bad):
    two = Two()
    two.connect()
    two.ask("bob", Tell(two.one("bob").id, "hello"))
    fresh = new_peer4(two.dice.randbytes, [_service(routingKeys=bad)])
    moved = rotate(two.one("alice").relationship, fresh, two.now // 1000)
    message = ping.ping(two.dice.randbytes, response_requested=False)
    two.hear("bob", Mailed(pack(moved, message, PACKERS["didcomm/v2"], two.dice.randbytes)))
    assert two.one("bob").relationship.theirs == fresh.did
    name = two.one("bob").id
    for command in (PingPeer(name), Tell(name, "are you there?"), RotateDid(name)):
        two.ask("bob", command)
    two.ask("bob", EndConnection(name))
    assert not two.agents["bob"].connections
