"""Twenty weaknesses of the thesis' program, each tried against our agent over real sockets.

The numbers are those of a list of that program's weaknesses. Alice and Bob are ordinary agents; the rogue has the keys
of Mallory, a real member whose own agent sleeps (`tests/support/rogue.py`). Each test states the weakness and why it is
absent here. `test_unauthenticated_connections.py` tests hostile peers on the wire, `test_hostile.py` without sockets.
"""

import json
import os
import random
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zmq
from msgspec.structs import replace

from tests.support.agents import meet, until
from tests.support.rogue import ROGUE_KEYS, UNHEARD_S, Rogue, Watched, at_rest, texts
from tests.support.sockets import Relay, strangers
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.loop_control import IDLE_MS
from zerochat.agent.network.zmq import bans
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.crypto.compression import compress
from zerochat.crypto.content_encryption import cbc_hs512_seal
from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public, ed25519_sign
from zerochat.didcomm.did import resolve, short_form
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import parse_invitation
from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import CommandDone, StoreEvent
from zerochat.group.event_log.event import ADD, LABEL, LEAVE, REMOVE, ROLE
from zerochat.group.inputs import Received
from zerochat.group.links.contact import (
    Reach,
    new_identity,
    sign_consent,
    sign_possession,
    transport_public,
)
from zerochat.group.wire.messages import EVENTS, JOIN_REQUEST, STATUS
from zerochat.rpc import JoinStatus


class Village:
    """Alice and Bob in one group with Mallory, who has lost her keys to a rogue, and Eve, who is in none."""

    def __init__(self, folder, make):
        self.alice, self.bob, self.eve, mallory = (Watched(folder, name).wake() for name in NAMES)
        try:
            meet(self.alice, self.bob, mallory, keys=ROGUE_KEYS)
            for person in (self.alice, self.bob, mallory):
                assert person.client.wait_for_delivery(
                    "friends", person.client.send_message("friends", "hello").id
                ).complete
            mallory.sleep()
            self.heard_before = self.alice.heard_over(
                next(peer.link for did, peer in self.alice.group.links.peers.items() if did == mallory.group.me)
            )
            self.eve.client.subscribe()
            self.rogue = Rogue(mallory, self.alice, make)
        except BaseException:
            at_rest(self.alice, self.bob, self.eve, mallory)
            raise

    def all_is_well(self):
        """What Bob says reaches Alice, and nothing in her has failed."""
        text = f"well {os.urandom(4).hex()}"
        assert self.bob.client.wait_for_delivery(
            "friends", self.bob.client.send_message("friends", text).id, count=1
        ).delivered
        return text in texts(self.alice) and self.alice.is_well()


UNREAD = ("Unauthentic", "Malformed")
"""What does not open as a member's word is read as the beginning of an exchange, and is none of these either."""
NAMES = ("alice", "bob", "eve", "mallory")


@pytest.fixture(scope="module")
def village(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, strangers() as make:
        patch.setattr(bans, "STRIKES_MAX", 1_000_000)  # or the rogue would be shut out after a few of these tests
        village = Village(tmp_path_factory.mktemp("village"), make)
        yield village
        at_rest(village.alice, village.bob, village.eve)


@pytest.fixture
def people(tmp_path):
    awake = []

    def make(*names, config=""):
        awake.extend(Watched(tmp_path, name, config).wake() for name in names)
        return awake[-len(names) :]

    yield make
    at_rest(*awake)


def snapshot(person):
    """All that a peer must not change: the log, the members and their rights, whom the door lets in, whom one dials."""
    group = person.group
    return (
        person.ids(),
        group.view,
        group.log.chains,
        dict(person.transport._admitted),
        {did: (peer.link, peer.reach) for did, peer in group.links.peers.items()},
        {did: one.theirs for did, one in group.links.relationships.items()},
    )


def end_of_join(person):
    """How a join of this person has ended."""
    while (news := person.client.next_notification(60)) is not None:
        if isinstance(news.params, JoinStatus) and news.params.phase in ("joined", "failed"):
            return news.params
    raise AssertionError("the join did not end")


def test_01_a_failed_decryption_is_not_read_as_zeros(village):
    """There, the result of opening a box was thrown away and a buffer of zeros used as the key: whoever encrypted
    under the zero key was read. Here every opening raises, so an envelope or a frame under the zero key is no news."""
    rogue, before = village.rogue, snapshot(village.alice)
    event = rogue.event(body={"text": "from nobody"})
    body = rogue.events([event])
    sender, recipient = rogue.relationship.mine, short_form(rogue.relationship.theirs)
    from_ = sender.short if rogue.relationship.acknowledged else sender.did
    plain = rogue.packer.dump(Message(type=EVENTS, id=new_id(os.urandom), body=body, from_=from_, to=(recipient,)))
    envelope = json.loads(rogue.packed(EVENTS, body))
    iv = os.urandom(16)
    ciphertext, tag = cbc_hs512_seal(bytes(64), iv, plain, envelope["protected"].encode())
    envelope |= {"iv": b64url(iv), "ciphertext": b64url(ciphertext), "tag": b64url(tag)}
    envelope["recipients"][0]["encrypted_key"] = b64url(os.urandom(72))
    assert rogue.send(json.dumps(envelope).encode()) in UNREAD
    status = Message(type=STATUS, id=new_id(os.urandom), body=body)
    content = b"\0" + rogue.packer.dump(status)
    assert rogue.send(rogue.frame(content, key=bytes(32), section=os.urandom(48))) in UNREAD
    assert snapshot(village.alice) == before
    assert rogue.send(rogue.frame(content)) == "Refused", "the same with its key is read; a status brings no posts"
    assert snapshot(village.alice) == before


def test_02_the_sender_is_the_holder_of_the_encryption_key(village):
    """There, the sender's key was dropped, and the recipient's key id said who was speaking. Here an envelope opens for
    the one relationship whose sender's key is in it, and `from` must be that sender."""
    rogue, alice = village.rogue, village.alice
    before, bob = snapshot(alice), village.bob.group
    hers_for_bob = alice.group.links.relationships[bob.me]
    as_bob = replace(rogue.relationship, member=alice.group.me, theirs=hers_for_bob.mine.did, acknowledged=False)
    body = rogue.events([rogue.event(author=bob.me)])
    assert rogue.say(EVENTS, body, relationship=as_bob) in UNREAD
    mine, to = rogue.relationship.mine, alice.group.links.relationships[rogue.me].mine
    message = Message(type=EVENTS, id=new_id(os.urandom), body=body, from_=hers_for_bob.theirs, to=(to.short,))
    envelope = rogue.packer.authcrypt(
        rogue.packer.dump(message),
        sender=rogue.packer.own_key(mine, mine.short),
        recipient=rogue.packer.their_key(resolve(to.did), to.short),
        random=os.urandom,
    )
    assert rogue.send(envelope) in UNREAD
    assert snapshot(alice) == before


def test_03_no_member_writes_in_the_name_of_another(village):
    """There, what a message said of its author was believed: anybody could unsubscribe, rename or subscribe anybody.
    Here posts are their sender's, membership events their signer's, and a status is for the group that it names."""
    rogue, alice = village.rogue, village.alice
    before, bob = snapshot(alice), village.bob.group.me
    assert rogue.say_event(rogue.event(author=bob, seq=alice.group.log.chains[bob].seq + 1)) == "Refused"
    leave = rogue.event(
        LEAVE, {}, author=bob, seq=alice.group.log.chains[bob].seq + 1, pre=alice.group.log.chains[bob].head_id
    )
    assert rogue.say_event(leave) in ("Refused", "Unauthentic", "Malformed")
    assert rogue.say_event(rogue.event(REMOVE, {"member": bob, "after": 0})) == "Refused"
    assert rogue.say_event(rogue.event(ROLE, {"member": bob, "role": "reader", "after": 0})) == "Refused"
    status = {"group": "g" * 43, "runs": [], "view": "", "have": []}
    assert rogue.say(STATUS, status) == "Malformed"
    assert snapshot(alice) == before and bob in alice.group.view.members


def test_03_no_joiner_is_admitted_with_foreign_keys(people):
    """Whoever comes in proves that it has the keys that it is known and let in by, for this group and this member: an
    accomplice under Alice's transport key, or under Mallory's own once more, is refused, however well all of it is
    signed. The same under keys of its own is a member."""
    alice, mallory = people("alice", "mallory")
    meet(alice, mallory, keys=ROGUE_KEYS)
    group = mallory.group
    theirs = [event.body["transport"] for event in group.control.values() if "transport" in event.body]
    assert len(theirs) == 2
    mallory.sleep()
    with strangers() as make:
        rogue = Rogue(mallory, alice, make)

        def add(transport, possession, name):
            seed = os.urandom(32)
            member = did_key(ed25519_public(seed))
            at = Endpoint("127.0.0.1", 9)
            contact = new_identity(os.urandom, Reach(public_key(os.urandom(32)), at, at), group.profile.envelope)
            transport, possession = transport or transport_public(seed), possession or sign_possession
            said = (member, name, contact.did, "writer", transport)
            body = dict(zip(("member", "label", "contact", "role", "transport"), said, strict=True))
            body["possession"] = possession(seed, group.id, member)
            body["consent"] = sign_consent(seed, group.id, rogue.me, *said)
            return rogue.say_event(rogue.event(ADD, body))

        def mallorys(_, *about):
            return sign_possession(rogue.seed, *about)

        before = snapshot(alice)
        for name in theirs:
            assert add(name, None, "eve") == "Unauthentic", "Eve signs for it"
            assert add(name, mallorys, "eve") in ("Unauthentic", "Refused"), "and Mallory does"
        assert add("", lambda seed, _, member: sign_possession(seed, "g" * 43, member), "eve") == "Unauthentic"
        assert snapshot(alice) == before
        assert add("", None, "eve") == "" and len(alice.group.view.members) == 3


def test_04_a_name_is_not_an_identity(village):
    """There, a connection request under a known label replaced that peer's keys and address. Here a member is a key,
    labels are decoration, and one that somebody has already is refused, whatever its spelling."""
    rogue, alice = village.rogue, village.alice
    before, bob = snapshot(alice), village.bob.group.me
    for label in ("bob", "BOB"):
        assert rogue.say_event(rogue.event(LABEL, {"label": label})) == "Refused"
    village.eve.client.join_group(alice.client.create_invitation("friends").url, name="Bob")
    end = end_of_join(village.eve)
    assert (end.phase, end.error) == ("failed", "JoinFailed")
    after = snapshot(alice)
    assert (after[1], after[4], after[5]) == (before[1], before[4], before[5])
    assert alice.group.view.members[bob].label == "bob"


COMMANDS = [
    b'internal-authenticate {"key":"x"}',
    b'internal-connect {"endpoint":"tcp://127.0.0.1:1"}',
    b"internal-subscribe x",
    b"internal-terminate",
    b'{"jsonrpc":"2.0","id":1,"method":"create_invitation","params":{"group":"friends"}}',
    b'{"jsonrpc":"2.0","id":2,"method":"stop_agent","params":{}}',
]


def test_05_the_network_reaches_no_control(village):
    """There, sockets that faced the network also took commands, so a peer could add keys to the allow-list. Here the
    agent's commands come over a Unix socket of its owner's alone, the network gives envelopes, and no address that a
    peer tells can name anything inside this process."""
    rogue, alice = village.rogue, village.alice
    before, invitations = snapshot(alice), len(alice.thread.loop.agent.invitations)
    answers = sum(isinstance(effect, CommandDone) for _, effects in list(alice.steps) for effect in effects)
    assert [rogue.send(word) for word in COMMANDS] == ["Malformed"] * len(COMMANDS)
    subscriber = rogue.socket(zmq.XSUB)
    for word in COMMANDS:
        subscriber.socket.send(b"\1" + word)
    for uri in ("inproc://zeromq.zap.01", "ipc:///tmp/x", "zmq+tcp://127.0.0.1:1;127.0.0.1:2", "zmq+tcp://host:1"):
        reach = {"pair": uri, "queue": uri, "at": int(time.time() * 1000)}
        assert rogue.sync(reach=reach) == "Malformed", uri
    until(lambda: alice.transport.counts["refused.subscription"] >= len(COMMANDS), "refusing the subscriptions")
    assert snapshot(alice) == before and len(alice.thread.loop.agent.invitations) == invitations
    assert answers == sum(isinstance(effect, CommandDone) for _, effects in list(alice.steps) for effect in effects)
    mode = alice.places.socket.lstat().st_mode
    assert stat.S_ISSOCK(mode) and not mode & 0o077
    assert village.all_is_well()


def test_06_no_remote_message_ends_an_agent(village):
    """There, a frame of type 9, or GET /kill, ended the server, and asked nobody's leave. Here no word that comes over
    the network ends anything but its own connection, be it a stranger's or a member's."""
    rogue, alice = village.rogue, village.alice
    assert rogue.send(b'{"type":9}') == "Malformed"
    shape = alice.transport.counts["dropped.shape"]
    rogue.dealer.socket.send_multipart([b'{"type":9}', b"terminate"])
    until(lambda: alice.transport.counts["dropped.shape"] > shape, "dropping two frames")
    for endpoint in (alice.thread.loop.pair, alice.thread.loop.queue):
        for word in (b'{"type":9}', b"GET /kill HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /kill HTTP/1.0\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", endpoint.port)) as stranger:
                stranger.sendall(word)
    assert village.all_is_well()


@pytest.mark.slow
def test_07_a_bad_request_delays_no_other(village):
    """There, a request that could not be handled was never answered, and the one server thread waited for ever. Here
    a step takes in one envelope and is over; whoever comes after it is served."""
    rogue, alice = village.rogue, village.alice
    url = alice.client.create_invitation("friends", uses=2).url
    invitation = parse_invitation(url, int(time.time()))
    secret = invitation.join_secret_key()
    options = {
        zmq.CURVE_PUBLICKEY: public_key(secret),
        zmq.CURVE_SECRETKEY: secret,
        zmq.CURVE_SERVERKEY: alice.transport.server_key,
    }
    knocker = rogue.make(zmq.DEALER, options)
    knocker.socket.connect(alice.thread.loop.pair.tcp)
    words = [b"{}", rogue.packed(JOIN_REQUEST, {}), rogue.packed(EVENTS, {}), b'{"protected":"","recipients":[]}']
    for word in words:
        knocker.socket.send(word)
        assert alice.verdict(word) in ("Malformed", "Unauthentic")
    for kind in (JOIN_REQUEST, EVENTS, STATUS, "https://didcomm.org/no/1.0/such"):
        rogue.say(kind, {})
    # One that never comes to its end holds nobody up either.
    half = rogue.socket(zmq.DEALER)
    half.socket.send(b"the first part", zmq.SNDMORE | zmq.NOBLOCK)
    assert village.all_is_well()
    village.eve.client.join_group(url, name="eve the seventh")
    assert end_of_join(village.eve).phase == "joined"
    village.eve.client.leave_group("friends")
    until(lambda: len(alice.group.view.members) == 3 and len(village.bob.group.view.members) == 3, "Eve's leaving")


def damaged(envelope: bytes):
    """The same envelope in many states of disrepair."""
    whole = json.loads(envelope)
    for name in whole:
        yield json.dumps({key: value for key, value in whole.items() if key != name}).encode()
        for value in (None, [], {}, "", "A", 7, "A" * 100_000):
            yield json.dumps({**whole, name: value}).encode()
    recipient = whole["recipients"][0]
    header = {"header": recipient["header"]}
    for entry in ({}, header, {**header, "encrypted_key": "AAAA"}, {**recipient, "header": {}}):
        yield json.dumps({**whole, "recipients": [entry]}).encode()
    dice = random.Random(8)
    for _ in range(20):
        yield envelope[: dice.randrange(1, len(envelope))]
        at = dice.randrange(len(envelope))
        yield envelope[:at] + bytes([envelope[at] ^ (1 << dice.randrange(8))]) + envelope[at + 1 :]
    yield from (b"[" * 60_000, b"\xff" * 500, b"\1", b"\1" * 60, b"\1" + bytes(24) + b"\xff" + os.urandom(900))


def test_08_malformed_messages_end_nothing(village):
    """There, an empty list of recipients, a key of another length or a bad address ended the process. Here what has not
    its shape is refused before anybody uses it, and the agent is as it was."""
    rogue, before = village.rogue, snapshot(village.alice)
    envelope = rogue.packed(EVENTS, rogue.events([rogue.event()]))
    verdicts = [rogue.send(word) for word in damaged(envelope) if word != envelope]
    assert len(verdicts) > 60 and set(verdicts) <= {"Malformed", "Unauthentic"}
    bodies: list[dict[str, object]] = [
        {},
        {"runs": None},
        {"runs": [{}]},
        {"runs": [{"author": "x"}]},
        {"runs": [], "view": [], "have": "no"},
    ]
    assert {rogue.say(kind, body) for kind in (EVENTS, STATUS) for body in bodies} == {"Malformed"}
    assert snapshot(village.alice) == before and village.all_is_well()


def once_only(envelope: bytes) -> list[bytes]:
    """What must be in no two envelopes: nonce, ephemeral key, wrapped key, tag."""
    if envelope[:1] == b"\1":
        return [envelope[1:25], *(envelope[26 + at : 74 + at] for at in range(0, 48 * envelope[25], 48))]
    one = json.loads(envelope)
    key = one["recipients"][0]["encrypted_key"]
    return [part.encode() for part in (one["iv"], one["tag"], key, one["protected"])]


def test_09_no_nonce_is_used_twice_in_either_direction(village):
    """There, nonces came from an unseeded generator: every process made the same ones, and both directions of a pair
    used them under one key. Here every envelope has a key, an IV and an ephemeral key of the system's dice. (R2 does
    the same a hundred thousand times.)"""
    village.alice.client.create_group("nine", keys="pairwise-single")  # where one envelope is for all readers
    village.bob.client.subscribe()
    village.bob.client.join_group(village.alice.client.create_invitation("nine").url)
    until(lambda: any(m.connection == "connected" for m in village.alice.client.list_members("nine")), "meeting again")
    for group in ("friends", "nine"):
        for n in range(10):
            village.alice.client.send_message(group, f"out {n}")
            village.bob.client.send_message(group, f"back {n}")
        for person, last in ((village.alice, "back 9"), (village.bob, "out 9")):
            until(lambda group=group, person=person, last=last: last in texts(person, group), "ten posts each way")
    envelopes = {
        stimulus.envelope
        for person in (village.alice, village.bob)
        for stimulus, effects in list(person.steps)
        if isinstance(stimulus, Received) and stimulus.envelope[:1] in (b"{", b"\1") and len(effects) > 1
    }
    parts = [part for envelope in envelopes for part in once_only(envelope)]
    assert len(envelopes) > 20 and len(set(parts)) == len(parts)
    assert sum(envelope[:1] == b"\1" for envelope in envelopes) > 2, "frames are among them"


@pytest.mark.slow
def test_10_an_admitted_client_reads_only_its_own_queues(village):
    """There, one allow-list for everything was filled before anybody asked who came, and a subscription to the empty
    topic gave all queues of all groups. Here a key is admitted by a membership event, for one link, and gets the queues
    that were named with it; the rest is refused, prefixes and the empty one first of all."""
    rogue, alice = village.rogue, village.alice
    alice.client.create_group("another group")
    village.bob.client.subscribe()
    village.bob.client.join_group(alice.client.create_invitation("another group").url)
    until(lambda: any(m.connection == "connected" for m in alice.client.list_members("another group")), "meeting again")
    admissions = list(alice.transport._admitted.items())
    mine = next(a for _, a in admissions if a.link == alice.group.links.peers[rogue.me].link)
    others = {queue for _, a in admissions for queue in a.queues} - set(mine.queues)
    assert len(others) >= 3
    refused = alice.transport.counts["refused.subscription"]
    subscriber = rogue.socket(zmq.XSUB)
    asked = [b"", *others, *(queue[:n] for queue in others for n in (1, 31))]
    for queue in (*asked, *mine.queues):
        subscriber.socket.send(b"\1" + queue)
    until(lambda: alice.transport.counts["refused.subscription"] == refused + len(asked), "refusing the others")
    until(lambda: alice.transport._queue.has_subscriber(mine.queues[1], mine.link), "giving its own")
    alice.client.send_message("another group", "among two")
    got = []

    def heard():
        alice.client.send_message("friends", "for all three")
        while subscriber.socket.poll(0):
            got.append(subscriber.socket.recv_multipart())
        return len(got) >= 3

    until(heard, "hearing one's own queue")
    assert {queue for queue, _ in got} <= set(mine.queues)

    def only_these():
        agent = alice.thread.loop.agent
        members = {member.transport for group in agent.groups.values() for member in group.view.members.values()}
        knocks = {open_.client_key for open_ in agent.invitations.values()}
        return {zmq.utils.z85.decode(user) for user in dict(alice.transport._admitted)} <= members | knocks

    until(only_these, "that nobody has a key but members and invitations")  # who has just left can be told so


def test_11_joining_needs_a_valid_invitation(village):
    """There, the check of a joiner always said yes, and one invitation was good for ever and for all. Here a guess does
    not get as far as a handshake, and an invitation admits as many as it was made for."""
    rogue, alice, bob = village.rogue, village.alice, village.bob
    alice.client.create_group("eleven")
    info = alice.client.create_invitation("eleven")
    guess = replace(parse_invitation(info.url, int(time.time())), id=os.urandom(16)).join_secret_key()
    options = {
        zmq.CURVE_PUBLICKEY: public_key(guess),
        zmq.CURVE_SECRETKEY: guess,
        zmq.CURVE_SERVERKEY: alice.transport.server_key,
    }
    stranger = rogue.make(zmq.DEALER, options)
    stranger.socket.connect(alice.thread.loop.pair.tcp)
    until(lambda: stranger.saw(zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL), "a refusal")
    assert not stranger.saw(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    bob.client.subscribe()
    bob.client.join_group(info.url)
    until(lambda: any(g.name == "eleven" and g.state == "active" for g in bob.client.list_groups()), "the first use")
    village.eve.client.join_group(info.url)
    end = end_of_join(village.eve)
    assert (end.phase, end.error) == ("failed", "JoinFailed") and "used" in end.text
    assert len(alice.client.list_members("eleven")) == 2
    with pytest.raises(AgentError):
        village.eve.client.join_group(alice.client.create_invitation("eleven", expires_s=60).url[:-8] + "AAAAAAAA")


class Tap(Relay):
    """A relay that keeps what passes, piece by piece."""

    def __init__(self, target=None):
        self.passed: list[tuple[str, bytes]] = []
        super().__init__(target)

    def _read(self, way, piece):
        self.passed.append((way, piece))


def test_12_a_join_reveals_nothing_on_the_wire(village, people):
    """There, joins and DID exchanges ran over plain sockets: label, DID and thread ids for all to read. Here a joiner's
    first byte after the greeting is already encrypted for the inviter's key."""
    alice = village.alice
    alice.client.create_group("a secret name")
    tap = Tap()
    (eva,) = people("eva", config=f'[network]\nsocks = "127.0.0.1:{tap.port}"\n')
    try:
        info = alice.client.create_invitation("a secret name")
        invitation = parse_invitation(info.url, int(time.time()))
        eva.client.subscribe()
        eva.client.join_group(info.url, name="eve of the join")
        assert end_of_join(eva).phase == "joined"
        for way in ("up", "down"):
            passed = b"".join(piece for to, piece in tap.passed if to == way)
            assert len(passed) > 4_000 and b"CURVE" in passed
            words = ["a secret name", "eve of the join", "alice", "did:", "didexchange", "zerochat.org", "protected"]
            words += [eva.group.id, invitation.pthid, *eva.group.view.members]
            assert not [word for word in words if word.encode() in passed]
            assert invitation.id not in passed and b64url(invitation.id).encode() not in passed
    finally:
        tap.close()


def test_13_a_member_cannot_add_to_the_view(village):
    """There, whoever let a joiner in told it who was in the group, and whether it should check. Here each member of the
    view has signed that it is one, and the view follows from the signed events alone: whoever is put in without its own
    signature is refused, and nobody ever dials it."""
    rogue, alice = village.rogue, village.alice
    assert rogue.sync() == ""
    before = snapshot(alice)
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(UNHEARD_S)
        seed, at = os.urandom(32), Endpoint("127.0.0.1", trap.getsockname()[1])
        member = did_key(ed25519_public(seed))
        contact = new_identity(os.urandom, Reach(public_key(os.urandom(32)), at, at), rogue.group.profile.envelope)
        body = {
            "member": member,
            "label": "sybil",
            "contact": contact.did,
            "role": "writer",
            "transport": transport_public(seed),
            "possession": sign_possession(seed, rogue.group.id, member),
            "consent": b64url(ed25519_sign(rogue.seed, b"it wants to, believe me")),
        }
        assert rogue.say_event(rogue.event(ADD, body)) in ("Refused", "Unauthentic", "Malformed")
        assert rogue.sync(view="x" * 22, have=[9] * 5) == "", "what it says of its own view is its own affair"
        with pytest.raises(TimeoutError):
            trap.accept()
    assert snapshot(alice) == before
    views = {m.nick: m.view_matches for m in alice.client.list_members("friends")}
    assert views["mallory"] is False and views["bob"] is not False
    assert rogue.sync() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to measure")
def test_14_a_decompression_bomb_is_refused_by_its_claimed_size(village):
    """There, a compressed status was unpacked whatever came of it: 22 kB made 200 MB. Here the size that a frame claims
    is looked at before a byte is unpacked, and no envelope is larger than half a megabyte."""
    rogue = village.rogue
    compressed = compress(bytes(256 << 20))
    bomb = rogue.frame(b"\1" + compressed)
    assert len(bomb) < 64 * 1024

    def peak_kib():
        with Path("/proc/self/status").open() as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    Path("/proc/self/clear_refs").write_text("5")
    before = peak_kib()
    assert rogue.send(bomb) == "Malformed"
    assert rogue.say(EVENTS, {**rogue.events([]), "packed": b64url(compressed)}) == "Malformed"
    assert peak_kib() - before < 64 * 1024
    assert village.all_is_well()


def test_15_a_replay_changes_nothing(village):
    """There, nothing remembered what had been said: a recorded leave removed a member again. Here each event has one
    place in its author's chain, a response belongs to the request that asked, and what comes again is known already.
    Mallory's whole past, as Alice has heard it, is said three times over in any order."""
    rogue, alice = village.rogue, village.alice
    envelopes = [received.envelope for received in village.heard_before] * 3
    assert len(envelopes) > 9
    random.Random(15).shuffle(envelopes)
    before = snapshot(alice)
    heard = len(alice.steps)
    for envelope in envelopes:
        rogue.dealer.socket.send(envelope)
    assert rogue.send(b"the end") == "Malformed"
    said = [effect for _, effects in alice.steps[heard:] for effect in effects]
    assert not any(isinstance(effect, StoreEvent) for effect in said)
    after = snapshot(alice)
    assert (after[:4], after[5]) == (before[:4], before[5])


def test_16_a_removed_member_is_disconnected_at_once(people):
    """There, a member who was removed kept its connections and its keys, and each receiver had to forget it by itself.
    Here the votes are signed events, the last of which cuts its connections, closes the door to its key and ends the
    relationships. (Also R7.)"""
    alice, bob, mallory = people("alice", "bob", "mallory")
    meet(alice, bob, mallory, keys=ROGUE_KEYS)
    out = mallory.group.me
    key = alice.group.view.members[out].transport
    with strangers() as make:
        alice.client.remove_member("friends", "mallory")
        rogue_secret, group_of_mallory = mallory.group.own_place.secret, mallory.group
        mallory.sleep()  # so that nothing but the keys is left of her, and no good will
        rogue = Rogue(mallory, alice, make)
        assert group_of_mallory.me == rogue.me and rogue.post("one last word") == ""
        until(lambda: "one last word" in texts(alice), "what a member says before")
        subscriber = rogue.socket(zmq.XSUB)
        for queue in alice.transport._admitted[zmq.utils.z85.encode(key).decode()].queues:
            subscriber.socket.send(b"\1" + queue)
        until(lambda: len(alice.transport._queue.of(zmq.utils.z85.encode(key).decode())), "her subscription")
        bob.client.remove_member("friends", "mallory")
        decided = time.monotonic()
        until(lambda: out not in alice.group.view.members and out not in alice.group.links.peers, "the removal")
        until(lambda: rogue.dealer.saw(zmq.EVENT_DISCONNECTED) and subscriber.saw(zmq.EVENT_DISCONNECTED), "the cut")
        print(f"both of her connections were cut {time.monotonic() - decided:.2f} s after the last vote (aim: 1 s)")
        assert zmq.utils.z85.encode(key).decode() not in alice.transport._zap.admitted
        while subscriber.socket.poll(0):
            subscriber.socket.recv_multipart()
        before, heard = snapshot(alice)[1:], len(alice.steps)
        again = [rogue.socket(zmq.DEALER), rogue.socket(zmq.XSUB)]
        for one in again:
            until(lambda one=one: one.saw(zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_DISCONNECTED), "being refused")
        assert public_key(rogue_secret) == key
        assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "among us").id).complete
        assert "among us" in texts(alice) and snapshot(alice)[1:2] == before[:1]
        assert not any(one.saw(zmq.EVENT_HANDSHAKE_SUCCEEDED) for one in again)
        assert not any(one.socket.poll(0) for one in (*again, subscriber))
        gone = group_of_mallory.links.peers[alice.group.me].link
        links = {stimulus.link for stimulus, _ in alice.steps[heard:] if isinstance(stimulus, Received)}
        assert gone not in links and links <= {alice.group.links.peers[bob.group.me].link}


@pytest.mark.slow
def test_17_sizes_and_names_on_the_wire_reveal_little(people):
    """There, sizes grew by four bytes for three, and queue names held group and member. Here queues are named by hashes
    inside CURVE, and envelopes are padded: posts of 0 to 4096 bytes make no more than six sizes on the wire, and those
    of 1 to 50 one. An acknowledgement is not hidden by its size. (Also T1: both agents dial through a relay that
    counts.)"""
    tap = Tap()
    alice, bob = people("alice", "bob", config=f'[network]\nsocks = "127.0.0.1:{tap.port}"\n')
    try:
        meet(alice, bob)
        until(
            lambda: (
                bob.client.wait_for_delivery(
                    "friends", bob.client.send_message("friends", "ready").id, timeout_s=2
                ).complete
            ),
            "peace",
        )
        sizes = {}
        for length in (1, 10, 50, 100, 200, 400, 700, 1000, 1500, 2000, 3000, 4000, 4096):
            seen = len(alice.steps)
            text = random.Random(length).randbytes(length).hex()[:length]
            assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", text).id).complete
            to_alice = [s.envelope for s, _ in alice.steps[seen:] if isinstance(s, Received)]
            sizes[length] = max(map(len, to_alice))
        # A few characters differ with the JSON that holds a ciphertext of one size.
        steps = {round(size / 64) for size in sizes.values()}
        assert 2 <= len(steps) <= 6, sizes
        assert max(sizes[length] - sizes[1] for length in (10, 50)) < 32, sizes
        passed = b"".join(piece for _, piece in tap.passed)
        assert len(passed) > 20_000
        queues = [queue for one in alice.transport._admitted.values() for queue in one.queues]
        assert queues and not [queue for queue in queues if queue in passed]
        words = ["friends", "alice", "bob", "did:", "#key", "protected", "kid", "ready", alice.group.id]
        assert not [word for word in words if word.encode() in passed]
    finally:
        tap.close()


def test_18_posts_of_a_reader_are_rejected_by_the_recipients(people):
    """There, only the program of a read-only member kept it from writing. Here every member checks the role that the
    signed events give the author at that place of its chain: what a reader writes is passed over."""
    alice, bob = people("alice", "bob")
    alice.client.create_group("friends", keys=ROGUE_KEYS)
    bob.client.subscribe()
    bob.client.join_group(alice.client.create_invitation("friends").url, role="reader")
    until(lambda: any(m.connection == "connected" for m in alice.client.list_members("friends")), "joining as a reader")
    until(lambda: any(each.state == "active" for each in bob.client.list_groups()), "the welcome")
    until(lambda: alice.group.links.relationships[bob.group.me].established, "the exchange")
    with pytest.raises(AgentError):
        bob.client.send_message("friends", "his own program will not have it")
    bob.sleep()
    with strangers() as make:
        rogue = Rogue(bob, alice, make)
        assert rogue.post("another program will") in ("", "ReadOnly")
        assert alice.group.log.chains[rogue.me].seq == rogue.seq, "his chain goes on"
        assert texts(alice) == []
        writer = rogue.event(ROLE, {"member": rogue.me, "role": "writer", "after": rogue.seq + 1})
        assert rogue.say_event(writer) == "" and alice.group.view.members[rogue.me].role == "writer"
        rogue.seq, rogue.tip = writer.seq, writer.id
        assert rogue.post("now I may") == ""
        assert texts(alice) == ["now I may"], "where all are equal everybody chooses for itself"


@pytest.mark.slow
def test_19_a_waiting_agent_sleeps(village):
    """There, waiting for somebody was a loop without a pause, and each request left a thread behind. Here an agent that
    has nothing to do takes a turn or two a second, and what was asked of it in vain leaves no thread."""
    alice, rogue = village.alice, village.rogue
    threads = threading.active_count()
    for _ in range(30):
        rogue.say("https://didcomm.org/no/1.0/such", {})
        with socket.create_connection(("127.0.0.1", alice.thread.loop.pair.port)) as stranger:
            stranger.sendall(b"junk")
    with pytest.raises(AgentError):
        village.eve.client.join_group("https://example.org/?oob=nonsense")
    assert threading.active_count() <= threads
    turns, wait = [], alice.thread.loop._wait

    def counted():
        turns.append(None)
        return wait()

    alice.thread.loop._wait = counted
    try:
        threading.Event().wait(3 * IDLE_MS / 1000)
    finally:
        del alice.thread.loop._wait
    assert 0 < len(turns) < 300


def test_20_peer_text_gives_no_orders_to_a_terminal(village):
    """There, peers' text was printed as it came, some of it as a format. Here it is made showable on the way out, and a
    name that could not be shown is refused at the door."""
    rogue, alice = village.rogue, village.alice
    for label in ("\x1b[2Jmallory", "mal\u202elory", "m\nallory", "\x9b31m"):
        assert rogue.say_event(rogue.event(LABEL, {"label": label})) in ("Refused", "Malformed"), label
    hostile = "%s%n%x \x1b]52;c;aGk=\x07\x1b[2J\x9b31m\x08\x00\r\u202eabc [/] [bold] {0}"
    assert rogue.post(hostile) == ""
    assert hostile in texts(alice), "it is kept as it was said"
    environ = {**os.environ, "ZEROCHAT_HOME": alice.home}
    for words in (["history", "friends"], ["members", "friends"]):
        command = [sys.executable, "-m", "zerochat", "--profile", "alice", *words]
        shown = subprocess.run(command, env=environ, capture_output=True, timeout=60)
        assert shown.returncode == 0, shown.stderr
        out = shown.stdout.decode()
        assert "mallory" in out and not [c for c in out if c in "\x1b\x07\x08\x00\r\x9b\u202e"]
