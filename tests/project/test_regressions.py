"""Known failures of similar programs, each with a number and its tests.

`REGRESSIONS` is the table: by number, the failure and every test that covers it. What no other file tests is tested
here, under its number: `test_r01_...`.
"""

import ast
import json
import logging
import os
import random
import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
import zstandard
from msgspec.structs import replace

from tests.support.agents import meet, until
from tests.support.cut_world import Cut
from tests.support.frame_pair import pair
from tests.support.raw_curve import RawMember
from tests.support.rogue import ROGUE_KEYS, Rogue, Watched, at_rest, texts
from tests.support.small_world import Small
from tests.support.sockets import Relay, curve, peers, strangers
from tests.support.sockets import until as pumped_until
from zerochat.agent import loop
from zerochat.agent.clock import Clock
from zerochat.agent.network.zmq import bans, socket_options
from zerochat.agent.network.zmq.bans import EXCUSABLE, HASTY, STRIKES_MAX, STRIKES_S, strike_weight
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.crypto import compression, nacl_boxes
from zerochat.crypto.compression import decompress
from zerochat.crypto.content_encryption import CONTENTS, cbc_hs512_seal, xc20p_open, xc20p_seal
from zerochat.crypto.encoding import b64url, b64url_bytes, did_key
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify, key_unwrap, key_wrap
from zerochat.didcomm import PACKERS, jwe
from zerochat.didcomm.did import resolve
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.effects import AllowClient, Dial, Measure, SendEnvelope, StoreEvent
from zerochat.group.event_log.event import ADD, POST
from zerochat.group.inputs import AcceptInvitation, Received, SendPost, StepContext
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import own_keys, pack, unpack
from zerochat.group.membership import heads_of
from zerochat.group.membership.resolve import ViewBuilder
from zerochat.group.state import Agent, Chain
from zerochat.group.wire import frame
from zerochat.group.wire.frame import open_frame, seal_frame
from zerochat.group.wire.padding import padded_size

HERE = Path(__file__).parents[1]
REGRESSIONS = {
    "R01 copies that never arrive": [
        "project/test_regressions::test_r01_every_copy_of_every_burst_arrives",
        "network/test_endurance::test_all_members_of_a_large_group_receive_a_burst",
    ],
    "R02 a nonce used twice": [
        "project/test_regressions::test_r02_nothing_is_used_twice",
        "network/test_security_list::test_09_no_nonce_is_used_twice_in_either_direction",
    ],
    "R03 an ignored decryption failure": [
        "project/test_regressions::test_r03_whatever_fails_to_open_raises",
        "project/test_regressions::test_r03_with_zeros_for_failures_it_would_be_noticed",
        "network/test_security_list::test_01_a_failed_decryption_is_not_read_as_zeros",
    ],
    "R04 a foreign key id comes first": [
        "project/test_regressions::test_r04_a_foreign_key_id_comes_first",
        "didcomm/test_jwe::test_every_recipient_opens_a_shared_envelope",
        "didcomm/test_rfc0019::test_an_envelope_that_names_two_of_our_keys_is_refused",
    ],
    "R05 equal labels in the view": [
        "project/test_regressions::test_r05_equal_labels_are_not_equal_views",
        "group/test_join::test_checksum_covers_keys_not_labels",
        "network/test_security_list::test_04_a_name_is_not_an_identity",
    ],
    "R06 an absurd timestamp": [
        "project/test_regressions::test_r06_an_absurd_time_is_refused",
        "group/test_hostile::test_lamport_time_cannot_be_exhausted",
    ],
    "R07 a removed member stays connected": [
        "network/test_security_list::test_16_a_removed_member_is_disconnected_at_once"
    ],
    "R08 an open listener without ZAP authenticator": [
        "network/test_unauthenticated_connections::test_without_zap_authenticator_existing_links_stay"
    ],
    "R09 a temporary refusal that is permanent": [
        "project/test_regressions::test_r09_a_client_refused_with_400_connects_once_admitted",
        "network/test_transport::test_an_early_joiner_connects_once_admitted",
    ],
    "R10 a dead connection that stays open": [
        "project/test_regressions::test_r10_both_ends_notice_a_dead_connection",
        "network/test_transport::test_a_flipped_bit_costs_one_connection_and_not_the_link",
        "network/test_transport::test_a_vanished_peer_is_noticed_and_reconnected",
    ],
    "R11 a host name that does not resolve": [
        "project/test_regressions::test_r11_an_agent_queries_no_name_server_for_a_peer",
        "didcomm/test_invitation::test_bad_endpoints_are_refused_wherever_they_stand",
        "network/test_web::test_a_silent_name_server_blocks_no_other_lookup",
    ],
    "R12 a topic of 200 kB": ["project/test_regressions::test_r12_an_enormous_topic_costs_one_connection"],
    "R13 floods of subscriptions and of parts": [
        "network/test_unauthenticated_connections::test_unlimited_subscriptions_cut_their_member",
        "network/test_unauthenticated_connections::test_an_endless_message_cuts_its_member",
    ],
    "R14 unclosed markup": [
        "crypto/test_terminal::test_hostile_text_becomes_printable",
        "tui/test_hostile::test_peer_text_never_reaches_the_terminal_raw",
    ],
    "R15 a name with terminal control sequences": [
        "crypto/test_terminal::test_printable_text_contains_no_control_sequence",
        "network/test_security_list::test_20_peer_text_gives_no_orders_to_a_terminal",
    ],
    "R16 a message of line ends only": ["crypto/test_terminal::test_long_texts_are_truncated_visibly"],
    "R17 a decompression bomb": [
        "project/test_regressions::test_r17_a_bomb_is_refused_before_it_is_opened",
        "group/test_frame::test_a_decompression_bomb_is_refused_by_its_claimed_size",
        "network/test_security_list::test_14_a_decompression_bomb_is_refused_by_its_claimed_size",
    ],
    "R18 keys of low order": [
        "project/test_regressions::test_r18_a_low_order_key_is_refused_without_side_effects",
        "crypto/test_crypto::test_x25519_refuses_low_order_points",
        "crypto/test_crypto::test_boxes_with_low_order_keys_are_refused",
        "didcomm/test_packers::test_a_key_of_low_order_is_never_written_to",
    ],
    "R19 settings that lose committed data": [
        "agent/test_power::test_with_other_settings_a_loss_is_noticed",
        "agent/test_power::test_no_committed_data_is_lost",
    ],
    "R20 a rolled-back own log": [
        "group/test_restored_profile::test_r20_a_restored_profile_sends_nothing_before_recovery",
        "agent/test_backup::test_a_restored_profile_repeats_no_message",
        "agent/test_backup::test_a_profile_restored_by_hand_is_noticed",
    ],
}


@cache
def names_in(name):
    tree = ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("failure", REGRESSIONS)
def test_the_test_of_a_known_failure_is_there(failure):
    for place in REGRESSIONS[failure]:
        name, _, test = place.partition("::")
        assert test in names_in(name), place


def test_every_number_and_every_numbered_test_is_in_the_table():
    assert [failure[:3] for failure in REGRESSIONS] == [f"R{n:02}" for n in range(1, 21)]
    listed = {place.partition("::")[2]: failure for failure, places in REGRESSIONS.items() for place in places}
    for test in names_in("project/test_regressions"):
        if test.startswith("test_r") and test[6:8].isdigit():
            assert listed[test].startswith(f"R{test[6:8]} "), test


@pytest.fixture
def both():
    """A relationship, as Alice and as Bob have it."""
    return pair(random.Random(), "alice", "bob")


@pytest.fixture
def people(tmp_path):
    awake = []

    def make(*names):
        awake.extend(Watched(tmp_path, name).wake() for name in names)
        return awake[-len(names) :]

    yield make
    at_rest(*awake)


PACKER = PACKERS["didcomm/v2"]
GROUP = "g" * 43
HELLO = Message(type="https://zerochat.org/test/1.0/hello", id="1", body={"text": "hello"})


def moment():
    return StepContext(1_750_000_000_000, os.urandom)


# --- R1 -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["pairwise-single", "pairwise-multi"])
@pytest.mark.parametrize("sizes", [(1, 2, 4), pytest.param((8, 16), marks=pytest.mark.long)])
def test_r01_every_copy_of_every_burst_arrives(people, keys, sizes):
    """The thesis' table of bursts, by readers and by posts at once, over real sockets: all copies arrive, once and in
    order, where its implementation lost up to 58 of 100. (With 64 readers: `test_endurance.py`.)"""
    (host,) = people("host")
    host.client.create_group("friends", keys=keys)
    readers, said = [], []
    for size in sizes:
        for person in people(*(f"m{n}" for n in range(len(readers), size))):
            person.client.subscribe()
            person.client.join_group(host.client.create_invitation("friends").url)
            until(lambda person=person: connected(person, len(readers) + 1), "joining")
            readers.append(person)
        until(lambda: connected(host, len(readers)), "meeting")
        for batch in (1, 10, 50, 100):
            said += [f"{size} readers, {batch} at once: {n}" for n in range(batch)]
            sent = [host.client.send_message("friends", text) for text in said[-batch:]]
            report = host.client.wait_for_delivery("friends", sent[-1].id, timeout_s=60)
            assert (report.complete, report.delivered, report.of) == (True, size, size)
        for person in (host, *readers):
            assert texts(person) == said, (person.name, size)


def connected(person, others):
    if not any(group.state == "active" for group in person.client.list_groups()):
        return False
    members = person.client.list_members("friends")
    return sum(member.connection == "connected" for member in members) == others == len(members) - 1


# --- R2 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [500, pytest.param(100_000, marks=pytest.mark.long)])
def test_r02_nothing_is_used_twice(monkeypatch, both, times):
    """Both directions of one pair, envelopes and frames: no content key, no nonce under a key and no ephemeral key
    occurs twice. The sizes of the random parts are those that the encryptions ask for, so nothing is stretched."""
    keys, under_keys, ephemeral = [], [], []

    def recorded_seal(key, iv, plain, aad):
        under_keys.append((key, iv))
        assert len(key) == 32 and len(iv) == 24
        return xc20p_seal(key, iv, plain, aad)

    def recorded_wrap(kek, key):
        keys.append(key)
        return key_wrap(kek, key)

    monkeypatch.setattr(frame, "xc20p_seal", recorded_seal)
    monkeypatch.setattr(jwe, "key_wrap", recorded_wrap)
    ivs, frames = [], []
    for n in range(times // 2):
        for relationship, me in zip(both, ("alice", "bob"), strict=True):
            if n % 2:
                one = seal_frame(b"the same words", GROUP, me, [relationship], moment())
                frames.append(one[1:25])
            else:
                envelope = json.loads(pack(relationship, HELLO, PACKER, os.urandom))
                ivs.append(envelope["iv"])
                ephemeral.append(envelope["protected"])
    assert len(set(keys)) == len(keys) == len(ivs) >= times // 2 - 1
    assert len(set(under_keys)) == len(under_keys) == 2 * len(frames)
    for parts in (ivs, frames, ephemeral):
        assert len(set(parts)) == len(parts)
    assert {len(key) for key in keys} == {64}


# --- R3 -------------------------------------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def openings():
    """Everything in `crypto` that opens, with what would open but for one bit."""
    for content in CONTENTS.values():
        key, iv = os.urandom(content.key), os.urandom(content.iv)
        sealed, tag = content.seal(key, iv, b"secret", b"")
        yield content.name, lambda c=content, k=key, i=iv, s=sealed, t=tag: c.open(k, i, flipped(s), t, b"")
        yield f"{content.name}'s tag", lambda c=content, k=key, i=iv, s=sealed, t=tag: c.open(k, i, s, flipped(t), b"")
    kek, wrapped = os.urandom(32), key_wrap(bytes(32), os.urandom(64))
    yield "key wrap", lambda: key_unwrap(kek, wrapped)
    seed = os.urandom(32)
    signature = ed25519_sign(seed, b"word")
    yield "Ed25519", lambda: ed25519_verify(ed25519_public(seed), flipped(signature), b"word")
    mine, theirs, nonce = os.urandom(32), os.urandom(32), os.urandom(24)
    boxed = nacl_boxes.box(b"secret", nonce, public_key(theirs), mine)
    yield "box", lambda: nacl_boxes.box_open(flipped(boxed), nonce, public_key(mine), theirs)
    sealed_box = nacl_boxes.seal(b"secret", public_key(theirs), os.urandom(32))
    yield "sealed box", lambda: nacl_boxes.seal_open(flipped(sealed_box), public_key(theirs), theirs)
    key, sealed = os.urandom(32), nacl_boxes.chacha20_poly1305_seal(bytes(32), bytes(12), b"secret", b"")
    yield "ChaCha20-Poly1305", lambda: nacl_boxes.chacha20_poly1305_open(key, bytes(12), sealed, b"")


@pytest.mark.parametrize("name", [name for name, _ in openings()])
def test_r03_whatever_fails_to_open_raises(name):
    with pytest.raises((Unauthentic, Malformed)):
        print("it opened:", dict(openings())[name]())


def under_zeros(relationship):
    """An envelope and a frame whose content is under the zero key, made by somebody who has no other key."""
    plain = PACKER.dump(HELLO)
    envelope = json.loads(pack(relationship, HELLO, PACKER, os.urandom))
    iv = os.urandom(16)
    ciphertext, tag = cbc_hs512_seal(bytes(64), iv, PACKER.dump(PACKER.parse(plain)), envelope["protected"].encode())
    envelope |= {"iv": b64url(iv), "ciphertext": b64url(ciphertext), "tag": b64url(tag)}
    envelope["recipients"][0]["encrypted_key"] = b64url(os.urandom(72))
    content = (len(plain) + 1).to_bytes(4) + b"\0" + plain
    nonce = os.urandom(24)
    head = frame.VERSION + nonce + b"\1"
    body = b"".join(xc20p_seal(bytes(32), nonce, content.ljust(padded_size(len(content)), b"\0"), head))
    return json.dumps(envelope).encode(), head + os.urandom(48) + body


def test_r03_with_zeros_for_failures_it_would_be_noticed(monkeypatch, both):
    """The forgery of `test_01` is one: with openings that give zeros where they fail, it is read."""
    to_bob, bobs = both
    envelope, one = under_zeros(to_bob)
    with pytest.raises(Unauthentic):
        PACKER.unpack(envelope, **keys_of(bobs))
    with pytest.raises(Unauthentic):
        open_frame(one, GROUP, "bob", bobs)

    def careless(opening, zeros):
        def opened(*arguments):
            try:
                return opening(*arguments)
            except Unauthentic:
                return bytes(zeros)

        return opened

    monkeypatch.setattr(frame, "xc20p_open", careless(xc20p_open, 32))
    monkeypatch.setattr(jwe, "key_unwrap", careless(key_unwrap, 64))
    assert PACKER.parse(PACKER.unpack(envelope, **keys_of(bobs)).plain).body == HELLO.body
    assert PACKER.parse(open_frame(one, GROUP, "bob", bobs)[0]).body == HELLO.body


def keys_of(relationship):
    mine = own_keys(PACKER, relationship.mine)
    theirs = resolve(relationship.theirs)
    return {"secret_of": mine.get, "public_of": theirs.agreement_key}


# --- R4, R5, R6 -----------------------------------------------------------------------------------------------------


def test_r04_a_foreign_key_id_comes_first(both):
    """Whose an envelope is does not follow from the first key id in it, and nobody is taken for somebody else."""
    to_bob, bobs = both
    to_carol, carols = pair(random.Random(4), "alice", "carol")
    mine, hers = (json.loads(pack(one, HELLO, PACKER, os.urandom)) for one in (to_bob, to_carol))
    assert unpack(bobs, json.dumps(mine).encode(), PACKER)[1].body == HELLO.body
    both_first = {**mine, "recipients": [*hers["recipients"], *mine["recipients"]]}
    renamed = {**mine, "recipients": [{**mine["recipients"][0], "header": hers["recipients"][0]["header"]}]}
    for envelope in (both_first, renamed, hers):
        for reader in (bobs, carols):
            if (envelope, reader) != (hers, carols):
                with pytest.raises(RemoteError):
                    unpack(reader, json.dumps(envelope).encode(), PACKER)


def test_r05_equal_labels_are_not_equal_views():
    """Two newcomers who call themselves the same come in by two doors that do not hear of each other. Everybody ends
    with one view, in which they are two; and with another key under the same label it would be another view."""
    world = Cut(4)
    world.bring_in("n1")
    world.deaf = {frozenset(pair) for pair in (("n0", "n1"), ("n0", "n3"), ("n1", "n2"), ("n2", "n3"))}
    for name, host in (("n2", "n0"), ("n3", "n1")):
        world.run_command(name, AcceptInvitation(world.invite(world.id, host), "the same"))
    world.run(for_ms=5_000)
    assert world.group("n2").view.checksum != world.group("n3").view.checksum
    world.deaf.clear()
    world.run(for_ms=300_000)
    views = [world.group(name).view for name in world.nodes]
    assert len({view.checksum for view in views}) == 1 and views[0] == views[-1]
    assert [member.label for member in views[0].members.values()].count("the same") == 2
    assert len(views[0].members) == 4
    control, heads = world.group("n0").control, heads_of(world.group("n0").control)
    added = next(event for event in control.values() if event.type == ADD and event.body["label"] == "the same")
    other = did_key(ed25519_public(bytes(32)))
    for change, equal in (({"label": "another"}, True), ({"member": other}, False)):
        changed = {**control, added.id: replace(added, body={**added.body, **change})}
        view = ViewBuilder.of(changed).view(heads)  # `resolve_view` remembers views by their heads
        assert (view.checksum == views[0].checksum) is equal, change


def test_r06_an_absurd_time_is_refused(people):
    """Over sockets: no time of a peer's moves Alice's clock further than five minutes, and none wraps it around."""
    alice, mallory = people("alice", "mallory")
    meet(alice, mallory, keys=ROGUE_KEYS)
    mallory.sleep()
    with strangers() as make:
        rogue = Rogue(mallory, alice, make)
        now = int(time.time() * 1000)
        for lamport in (2**63 - 1, 2**63, -(2**63), -1, 0, 2**53 - 1, 2**53, now + 10**12):
            assert rogue.say_event(rogue.event(lamport=lamport)) in ("Malformed", "AheadOfTime"), lamport
            assert rogue.say_event(rogue.event(time=lamport)) in ("Malformed", ""), lamport
            chain = alice.group.log.chains.get(rogue.me, Chain())
            if chain.seq > rogue.seq:  # its own time, which nothing is ordered by, is for its author to say
                rogue.seq, rogue.tip = chain.seq, chain.head_id
        assert rogue.post("now") == "" and alice.group.log.lamport <= int(time.time() * 1000) + 5 * 60_000
        alice.client.send_message("friends", "still in time")
        assert texts(alice)[-1] == "still in time" and alice.is_well()


# --- R9 to R12 ------------------------------------------------------------------------------------------------------


def test_r09_a_client_refused_with_400_connects_once_admitted():
    """libzmq's own client takes a 400 for good and never dials again; ours does, as often as it takes."""
    with peers(2) as (a, b), strangers() as make:
        libzmqs = make(zmq.DEALER, curve(a, b"k" * 32))
        libzmqs.connect(a)
        pumped_until(lambda: libzmqs.saw(zmq.EVENT_HANDSHAKE_FAILED_AUTH), a)
        b.dial(b"l" * 16, a, b"k" * 32)
        pumped_until(lambda: b.counts["dial.handshake_failed"] >= 3, a, b)
        refused = a.counts["zap.refused"]
        assert refused >= 4 and not a.counts["zap.admitted"], "one of them is libzmq's"
        a.do(AllowClient(b"l" * 16, public_key(b"k" * 32)))
        pumped_until(lambda: a.is_up(b"l" * 16) and b.is_up(b"l" * 16), a, b)
        assert a.counts["zap.admitted"] == 1 and not libzmqs.saw(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        b.do(SendEnvelope(b"l" * 16, b"let in"))
        pumped_until(a.envelopes, a, b)


class Void(Relay):
    """A relay that, once it is deaf, does not even tell that somebody has hung up: the cable is out."""

    def _copy(self, source, sink, way):
        relay = self

        class End(socket.socket):
            def shutdown(self, how):
                if not relay.deaf:
                    super().shutdown(how)

        with End(fileno=os.dup(source.fileno())) as one, End(fileno=os.dup(sink.fileno())) as other:
            super()._copy(one, other, way)


@pytest.mark.parametrize("noticing", ["whoever has dialled", "whoever was dialled"])
def test_r10_both_ends_notice_a_dead_connection(noticing, monkeypatch):
    """Each end alone, with nothing to send: the other one's hanging up never arrives, and no error ever comes."""
    monkeypatch.setattr(socket_options, "HEARTBEAT_MS", 100)
    monkeypatch.setattr(socket_options, "HEARTBEAT_TIMEOUT_MS", 300)
    link = b"l" * 16
    with peers(2) as (a, b):
        relay = Void(("127.0.0.1", a.ports[0]))
        a.do(AllowClient(link, public_key(b"k" * 32)))
        b.do(Dial(link, Endpoint("127.0.0.1", relay.port), a.transport.server_key, b"k" * 32))
        pumped_until(lambda: a.is_up(link) and b.is_up(link), a, b)
        relay.deaf = True
        one = b if noticing == "whoever has dialled" else a
        pumped_until(lambda: not one.is_up(link), one)
        pumped_until(lambda: not a.is_up(link) and not b.is_up(link), a, b)
        relay.deaf = False
        pumped_until(lambda: a.is_up(link) and b.is_up(link), a, b)
        relay.close()


def test_r11_an_agent_queries_no_name_server_for_a_peer(people, monkeypatch):
    """A name server that never answers stopped all traffic of a libzmq context. Ours is never asked: what a member says
    of where it is reached is a literal address, or is refused; and everything goes on meanwhile."""
    asked, asking = [], socket.getaddrinfo

    def recorded(host, *more, **also):
        asked.append(host)
        return asking(host, *more, **also)

    monkeypatch.setattr(socket, "getaddrinfo", recorded)
    alice, bob, mallory = people("alice", "bob", "mallory")
    meet(alice, bob, mallory, keys=ROGUE_KEYS)
    mallory.sleep()
    with strangers() as make:
        rogue = Rogue(mallory, alice, make)
        where = alice.group.links.peers[rogue.me].reach
        for host in ("black-hole.example", "localhost", "127.1", "2130706433", "0x7f.0.0.1"):
            uri = f"zmq+tcp://{host}:5000"
            reach = {"pair": uri, "queue": uri, "at": int(time.time() * 1000)}
            assert rogue.sync(reach=reach) == "Malformed", host
        assert bob.client.wait_for_delivery(
            "friends", bob.client.send_message("friends", "no name was asked for").id, count=1
        ).delivered
        assert alice.group.links.peers[rogue.me].reach == where and alice.is_well()
    assert [host for host in asked if host not in (None, "127.0.0.1", "::1")] == []


def test_r12_an_enormous_topic_costs_one_connection():
    """libzmq keeps topics in a tree that it takes apart by recursion: one of 200 kB would end the process."""
    with peers(1) as (a,):
        a.do(AllowClient(b"l" * 16, public_key(b"k" * 32), (b"q" * 32,)))
        heard, honour = [], a.transport._queue._apply

        def honoured(subscriber, word):
            heard.append(len(word))
            return honour(subscriber, word)

        a.transport._queue._apply = honoured  # type: ignore[method-assign]
        for size in (5_000, 200_000, 1_000_000):
            member = RawMember(a.ports[1], b"k" * 32, a.transport.server_key, b"SUB")
            member.socket.settimeout(0.01)
            with suppress(OSError):  # the buffers are full, or it is cut in the middle of it
                member.send(b"\1" + b"q" * size)
            pumped_until(lambda member=member: gone(member), a)
            member.close()
        pumped_until(lambda: not a.transport._queue.connections, a)
        assert not heard, "none of them gets as far as the tree"


def gone(member):
    try:
        return not member.socket.recv(4096)
    except TimeoutError:
        return False
    except OSError:
        return True


# --- R17, R18 -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_r17_a_bomb_is_refused_before_it_is_opened(monkeypatch):
    """What it says of itself is enough, however small a window it needs."""
    small = zstandard.ZstdCompressionParameters.from_level(3, window_log=20)
    bomb = zstandard.ZstdCompressor(compression_params=small).compress(bytes(256 << 20))
    claimed = zstandard.get_frame_parameters(bomb)
    assert len(bomb) < 64 * 1024 and (claimed.content_size, claimed.window_size) == (256 << 20, 1 << 20)
    with monkeypatch.context() as patched:
        patched.setattr(zstandard, "ZstdDecompressor", None)
        patched.setattr(compression, "_DECOMPRESSORS", None)
        for size_max in (0, 65_536, (256 << 20) - 1):
            with pytest.raises(Malformed):
                decompress(bomb, size_max)
    assert len(decompress(bomb, 256 << 20)) == 256 << 20, "it is a whole frame"


LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]
"""The points of Curve25519 whose product with any secret is zero (RFC 7748, section 6.1; the two long ones have order
8), with those that are spelt above the prime."""


def test_r18_a_low_order_key_is_refused_without_side_effects(people):
    """Over sockets: as the ephemeral key of an envelope, and as the CURVE key at which a member says that it is
    reached. The library raises an error of its own kind for these, which must not get through as one."""
    alice, bob, mallory = people("alice", "bob", "mallory")
    meet(alice, bob, mallory, keys=ROGUE_KEYS)
    mallory.sleep()
    with strangers() as make:
        rogue = Rogue(mallory, alice, make)
        assert rogue.post("before") == ""
        where = alice.group.links.peers[rogue.me].reach
        for point in LOW_ORDER:
            envelope = json.loads(rogue.packed("https://zerochat.org/test/1.0/hello", {}))
            header = json.loads(b64url_bytes(envelope["protected"]))
            header["epk"]["x"] = b64url(point)
            envelope["protected"] = b64url(json.dumps(header, separators=(",", ":")).encode())
            assert rogue.send(json.dumps(envelope).encode()) in ("Unauthentic", "Malformed"), point.hex()
            at = {"pair": "zmq+tcp://127.0.0.1:9", "queue": "zmq+tcp://127.0.0.1:9", "at": int(time.time() * 1000)}
            assert rogue.sync(reach={**at, "key": b64url(point)}) == "Malformed", point.hex()
        assert alice.group.links.peers[rogue.me].reach == where
        assert rogue.post("after") == "" and texts(alice) == ["before", "after"]
        assert bob.client.wait_for_delivery(
            "friends", bob.client.send_message("friends", "still here").id, count=1
        ).delivered
        assert alice.is_well()


# --- floods, replays, and who is shut out ---------------------------------------------------------------------------


def test_a_recorded_session_changes_nothing_in_any_order():
    """T2: every frame that the three have sent each other, ten times over, in any order."""

    frames = []

    class Recording(Small):
        def _frame(self, name, stimulus):
            frames.append((name, stimulus))
            super()._frame(name, stimulus)

    world = Recording(envelope="didcomm/v2")
    group = world.found()
    world.join("n1", world.invite(group))
    world.join("n2", world.invite(group, "n1"))
    for name in world.nodes:
        world.run_command(name, SendPost(group, f"from {name}"))
    world.run(for_ms=10_000)
    assert all(sum(row.type == POST for row in node.log) == 3 for node in world.nodes.values())
    logs = {name: list(node.log) for name, node in world.nodes.items()}
    views = {name: (world.group(name).view, world.group(name).log.chains) for name in world.nodes}
    again = [one for one in frames if isinstance(one[1], Received)] * 10
    assert len(again) > 200
    random.Random(2).shuffle(again)
    for name, stimulus in again:
        world.process(name, stimulus)
    world.run(for_ms=60_000)
    assert {name: node.log for name, node in world.nodes.items()} == logs
    assert {name: (world.group(name).view, world.group(name).log.chains) for name in world.nodes} == views


def test_a_flooding_member_is_limited_and_others_are_served(people):
    """T10: what is too much is passed over, not refused; it does not shut anybody out, and Bob is heard meanwhile."""
    alice, bob, mallory = people("alice", "bob", "mallory")
    meet(alice, bob, mallory, keys=ROGUE_KEYS)
    mallory.sleep()
    with strangers() as make:
        rogue = Rogue(mallory, alice, make)
        event = rogue.event(body={"text": "flood"})
        flood = [rogue.sync_envelope() for _ in range(50)]
        sent, looked = 0, 0
        while not any(Measure("throttled") in effects for _, effects in alice.steps[looked:]):
            assert sent < 10 * rate_limits.ENVELOPES_MAX
            looked = len(alice.steps)
            for _ in range(100):
                rogue.dealer.socket.send(flood[sent % len(flood)])
                sent += 1
            until(lambda looked=looked: len(alice.steps) >= looked + 100, "hearing some of it")
        assert sent >= rate_limits.ENVELOPES_MAX
        assert bob.client.wait_for_delivery(
            "friends", bob.client.send_message("friends", "can you hear me?").id, count=1
        ).delivered
        assert texts(alice) == ["can you hear me?"] and alice.transport.banned_links == 0
        until(lambda: rogue.say_event(event) == "" and "flood" in texts(alice), "being heard again")
        assert alice.is_well()


@pytest.mark.slow
def test_a_member_that_sends_malformed_messages_is_banned(people, monkeypatch):
    assert bans.BAN_S == 10 * 60, "and not as short as here"
    monkeypatch.setattr(bans, "BAN_S", 2.0)
    alice, bob, mallory = people("alice", "bob", "mallory")
    meet(alice, bob, mallory, keys=ROGUE_KEYS)
    mallory.sleep()
    with strangers() as make:
        rogue = Rogue(mallory, alice, make)
        assert rogue.post("before") == ""
        for n in range(STRIKES_MAX):
            rogue.dealer.socket.send(b'{"junk":%d}' % n)
        rogue.dealer.socket.send(b"the one too many")
        until(lambda: alice.transport.counts["banned"] == 1 and rogue.dealer.saw(zmq.EVENT_DISCONNECTED), "the cut")
        assert "refused" in alice.client.get_status().warning
        assert bob.client.wait_for_delivery(
            "friends", bob.client.send_message("friends", "meanwhile").id, count=1
        ).delivered
        until(lambda: not alice.transport.banned_links, "the end of the ban")
        assert not alice.client.get_status().warning
        again = Rogue(mallory, alice, make)
        again.seq, again.tip = rogue.seq, rogue.tip
        assert again.post("after") == "" and texts(alice) == ["before", "meanwhile", "after"]
        assert alice.places.log.read_text().count("is banned for a while") == 1
        assert not any(isinstance(e, StoreEvent) and b"junk" in e.record for _, effects in alice.steps for e in effects)


def test_errors_an_honest_member_may_cause_weigh_little():
    world = Small(envelope="didcomm/v2")
    group = world.found()
    world.join("n1", world.invite(group))
    alice, bob = world.nodes["n0"].agent, world.group("n1")
    link = alice.groups[group].links.peers[bob.me].link
    junk, dropped = Received(link, b"{}"), [Measure("dropped", "Unauthentic")]
    assert strike_weight(alice, junk, dropped) == 1
    for code in ("Malformed", "Refused"):
        assert strike_weight(alice, junk, [Measure("dropped", code)]) == 1
    assert strike_weight(alice, junk, [Measure("dropped", "AheadOfTime")]) == EXCUSABLE
    assert strike_weight(alice, junk, [Measure("dropped", "RateLimited")]) == HASTY, (
        "many who come at once are kept waiting"
    )
    for effects in (
        [],
        [Measure("throttled")],
        [Measure("dropped", "ReorderBufferFull")],
        [Measure("dropped", "ReadOnly")],
    ):
        assert not strike_weight(alice, junk, effects), "what was not refused"
    relationship = bob.links.relationships[alice.groups[group].me]
    for_others = seal_frame(b"x", group, bob.me, [relationship], moment())
    assert strike_weight(alice, Received(link, for_others), dropped) == EXCUSABLE, "a frame may be for the others"
    half = replace(alice.groups[group], links=replace(alice.groups[group].links, relationships={}))
    half_met = replace(alice, groups={group: half})
    assert strike_weight(half_met, junk, dropped) == EXCUSABLE, "whoever is not known yet goes on talking"
    assert strike_weight(alice, Received(b"?" * 16, b"{}"), dropped) == 1, "a link of nobody's"
    allowed = rate_limits.ENVELOPES_MAX + rate_limits.ENVELOPES_PER_S * STRIKES_S
    assert allowed * EXCUSABLE < STRIKES_MAX, "who keeps to its share never comes near it"


def test_a_failure_of_our_core_counts_against_the_sender(monkeypatch):
    """Else the same envelope would be worked through as often as it is sent."""
    minded = []
    agent: Any = object.__new__(loop.AgentLoop)
    agent.clock, agent.agent, agent.log = Clock(), Agent("n"), logging.getLogger("nowhere")
    agent.transport = SimpleNamespace(strike=lambda link, weight: minded.append((link, weight)))
    monkeypatch.setattr(agent.log, "disabled", True)
    monkeypatch.setattr(loop, "step", lambda *_: 1 // 0)
    assert agent._step(Received(b"link", b"envelope")) == []
    assert minded == [(b"link", HASTY)]
