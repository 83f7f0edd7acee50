"""The transport between honest agents: real CURVE sockets on loopback, lost and reconnected."""

import os
import socket
import sys

import pytest
import zmq

from tests.support.sockets import Peer, Relay, Stranger, befriend, curve, peers, pump, strangers, until
from zerochat.agent.network.addresses import source_prefix
from zerochat.agent.network.zmq import bans, socket_options, transport, zap
from zerochat.agent.network.zmq.bans import BAN_S, STRIKES_MAX, STRIKES_S, Bans
from zerochat.agent.network.zmq.listener import CannotListen, PortTaken
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.agent.network.zmq.tcp_control import BACKLOG_BYTES_MAX, HEARTBEAT_BYTES_PER_S, Connection
from zerochat.agent.network.zmq.transport import INPUTS_MAX, MEMBER_CONNECTIONS_MAX, Transport
from zerochat.agent.network.zmq.zap import ADDRESSES_MAX, REFUSALS_MAX, RefusalBuckets
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.group.effects import AllowClient, Dial, Disconnect, Publish, Reply, RevokeClient, SendEnvelope
from zerochat.group.inputs import LinkDown, LinkUp, Received

LINK, OTHER = b"l" * 16, b"m" * 16


def test_two_agents_exchange_on_pair_and_queue():
    with peers(2) as (a, b):
        of_a, of_b = befriend(a, b, LINK)
        a.do(SendEnvelope(LINK, b"pair to b"))
        b.do(SendEnvelope(LINK, b"pair to a"))
        until(lambda: len(a.envelopes()) == len(b.envelopes()) == 1, a, b)
        # The SUBs have shaken hands by themselves; publish until the subscription has landed.
        until(lambda: b.do(Publish(of_b, b"queue of b")) or b"queue of b" in a.envelopes(LINK), a, b)
        until(lambda: a.do(Publish(of_a, b"queue of a")) or b"queue of a" in b.envelopes(LINK), a, b)
        assert a.envelopes()[0] == b"pair to a" and b.envelopes()[0] == b"pair to b"
        assert [item for item in a.heard if isinstance(item, LinkUp | LinkDown)] == [LinkUp(LINK)]
        assert not any(name.startswith("dropped") for name in a.counts | b.counts)


def test_a_reply_uses_the_connection_of_its_request():
    with peers(3) as (a, b, c):
        for asker, key in ((b, b"b" * 32), (c, b"c" * 32)):
            a.do(AllowClient(LINK, public_key(key)))
            asker.dial(LINK, a, key)
            until(lambda asker=asker: asker.is_up(LINK), a, b, c)
        b.do(SendEnvelope(LINK, b"question"))
        until(a.envelopes, a, b, c)
        question = next(item for item in a.heard if isinstance(item, Received))
        assert question.handle is not None
        a.do(Reply(question.handle, b"answer"))
        until(b.envelopes, a, b, c)
        assert b.heard[-1] == Received(LINK, b"answer", host=a.transport.server_key) and not c.envelopes()
        a.do(Reply(b"nobody", b"answer"))
        assert a.counts["dropped.down"] == 1


def test_a_link_that_only_the_peer_has_dialled_carries_both_ways():
    with peers(2) as (a, b):
        a.do(AllowClient(LINK, public_key(b"k" * 32)))
        a.do(SendEnvelope(LINK, b"too early"))
        b.dial(LINK, a, b"k" * 32)
        until(lambda: a.is_up(LINK) and b.is_up(LINK), a, b)
        a.do(SendEnvelope(LINK, b"down the same line"))
        until(b.envelopes, a, b)
        assert b.envelopes() == [b"down the same line"] and a.counts["dropped.down"] == 1
        b.do(Disconnect(LINK))
        until(lambda: not a.is_up(LINK), a, b)
        assert not b.is_up(LINK)
        a.do(SendEnvelope(LINK, b"too late"))
        assert a.counts["dropped.down"] == 2


def test_an_early_client_is_held_and_need_not_redial(monkeypatch):
    monkeypatch.setattr(zap, "EARLY_S", 10.0)
    monkeypatch.setattr(socket_options, "HANDSHAKE_MS", 30_000)
    with peers(2) as (a, b):
        b.dial(LINK, a, b"k" * 32)
        until(lambda: a.transport._zap._early, a, b)
        assert not b.heard
        a.do(AllowClient(OTHER, public_key(b"x" * 32)))
        a.do(AllowClient(LINK, public_key(b"k" * 32)))
        until(lambda: a.is_up(LINK) and b.is_up(LINK), a, b)
        assert not b.counts["dial.handshake_failed"] and not a.counts["zap.refused"]
        assert a.counts["zap.early"] == 1 and not a.transport._zap._early


def test_early_clients_are_limited_in_total_and_per_prefix(monkeypatch):
    monkeypatch.setattr(zap, "EARLY_S", 60.0)
    monkeypatch.setattr(zap, "EARLY_MAX", 6)
    monkeypatch.setattr(zap, "EARLY_PER_PREFIX_MAX", 4)
    with peers(1) as (a,):
        asking = a.transport._context.socket(zmq.DEALER)
        asking.linger = 0
        asking.connect(zap.ZAP_ENDPOINT)

        def ask(number: int, address: bytes) -> None:
            who = [b"", b"1.0", b"%d" % number, zap.ZAP_DOMAIN, address, b"", b"CURVE"]
            asking.send_multipart([*who, bytes([number]) * 32])

        for number in range(10):
            ask(number, b"192.0.2.1")
        for number in range(10, 14):
            ask(number, b"192.0.2.2")
        answers = []

        def answered(count: int) -> bool:
            while asking.poll(0):
                answers.append(asking.recv_multipart())
            return len(answers) >= count

        until(lambda: answered(8), a)
        assert [int(answer[2]) for answer in answers] == [4, 5, 6, 7, 8, 9, 12, 13]
        assert len(a.transport._zap._early) == 6
        a.do(AllowClient(LINK, bytes([1]) * 32), AllowClient(OTHER, bytes([11]) * 32))
        until(lambda: answered(10), a)
        assert [(int(answer[2]), answer[3]) for answer in answers[8:]] == [(1, b"200"), (11, b"200")]
        assert b"200" not in {answer[3] for answer in answers[:8]}
        assert len(a.transport._zap._early) == 4
        asking.close()


def test_an_early_joiner_connects_once_admitted():
    with peers(2) as (a, b):
        b.dial(LINK, a, b"k" * 32, queue=b"q" * 32)
        until(lambda: a.counts["zap.refused"] >= 4, a, b)
        assert not b.heard
        a.do(AllowClient(LINK, public_key(b"k" * 32), (b"q" * 32,)))
        until(lambda: b.is_up(LINK), a, b)
        until(lambda: a.do(Publish(b"q" * 32, b"hear")) or b.envelopes(), a, b)


def test_a_restart_on_the_same_ports_restores_everything():
    with peers(2) as (a, b):
        keys, queue = (b"a" * 32, b"b" * 32), b"q" * 32

        def arrange(b: Peer) -> None:
            b.do(AllowClient(LINK, public_key(keys[0]), (queue,)))
            b.dial(LINK, a, keys[1])

        a.do(AllowClient(LINK, public_key(keys[1])))
        a.dial(LINK, b, keys[0], queue)
        arrange(b)
        until(lambda: a.is_up(LINK) and b.is_up(LINK), a, b)
        b.transport.close()
        until(lambda: not a.is_up(LINK), a)
        again = Peer(secret=b.secret, ports=b.ports)
        try:
            assert again.ports == b.ports
            arrange(again)
            until(lambda: a.is_up(LINK) and again.is_up(LINK), a, again)
            until(lambda: again.do(Publish(queue, b"queue")) or b"queue" in a.envelopes(), a, again)
            a.do(SendEnvelope(LINK, b"pair"))
            until(lambda: b"pair" in again.envelopes(), a, again)
        finally:
            again.transport.close()


def test_dialling_and_admitting_again_changes_nothing():
    with peers(2) as (a, b):
        befriend(a, b, LINK)
        state = a.transport.links.by_name[LINK]
        until(lambda: len(state.dialed) == 2, a, b)  # the line to its queue is dialled once the first one is up
        sockets_before, dial = list(state.dialed), state.dial
        assert dial is not None
        a.do(dial, AllowClient(LINK, public_key(b"z" * 32)), AllowClient(LINK, public_key(b"z" * 32)))
        pump(a, b)
        assert state.dialed == sockets_before
        assert not any(isinstance(item, LinkDown) for item in a.heard + b.heard)


def test_dialling_elsewhere_moves_the_link():
    with peers(3) as (a, b, c):
        for host in (b, c):
            host.do(AllowClient(LINK, public_key(b"k" * 32)))
        a.dial(LINK, b, b"k" * 32)
        until(lambda: a.is_up(LINK), a, b, c)
        a.dial(LINK, c, b"k" * 32)
        until(lambda: c.is_up(LINK) and not b.is_up(LINK), a, b, c)
        a.do(SendEnvelope(LINK, b"hello c"))
        until(c.envelopes, a, b, c)
        assert not b.envelopes()


def test_a_known_key_can_be_given_another_link_and_another_queue():
    old, new = b"o" * 32, b"n" * 32
    with peers(2) as (a, b):
        a.do(AllowClient(LINK, public_key(b"k" * 32), (old,)))
        b.dial(LINK, a, b"k" * 32, old)
        until(lambda: a.is_up(LINK), a, b)
        until(lambda: a.do(Publish(old, b"old")) or b.envelopes(), a, b)
        a.do(AllowClient(OTHER, public_key(b"k" * 32), (new,)))
        until(lambda: a.is_up(OTHER) and not a.is_up(LINK), a, b)
        b.do(SendEnvelope(LINK, b"who am I"))
        until(lambda: a.envelopes(OTHER), a, b)
        b.heard.clear()
        b.dial(LINK, a, b"k" * 32, new)
        until(lambda: a.do(Publish(old, b"old"), Publish(new, b"new")) or b.envelopes(), a, b)
        assert set(b.envelopes()) == {b"new"}


def test_a_revoked_client_is_disconnected_alone():
    with peers(3) as (a, b, c):
        queues = {peer: os.urandom(32) for peer in (b, c)}
        for peer, link, key in ((b, LINK, b"b" * 32), (c, OTHER, b"c" * 32)):
            a.do(AllowClient(link, public_key(key), (queues[peer],)))
            peer.dial(link, a, key, queues[peer])
            until(lambda peer=peer: a.do(Publish(queues[peer], b"in")) or b"in" in peer.envelopes(), a, b, c)
        a.do(RevokeClient(public_key(b"b" * 32)))
        assert a.transport.links.by_name.keys() == {OTHER}
        until(lambda: not b.is_up(LINK) and a.counts["zap.refused"] >= 2, a, b, c)
        b.heard.clear()
        a.do(Publish(queues[b], b"secret"), SendEnvelope(LINK, b"secret"), Publish(queues[c], b"still here"))
        until(lambda: b"still here" in c.envelopes(), a, b, c)
        until(lambda: a.counts["zap.refused"] >= 6, a, b, c)
        assert not b.envelopes() and not any(isinstance(item, LinkDown) for item in c.heard)
        assert a.is_up(OTHER) and not a.is_up(LINK)
        a.do(RevokeClient(public_key(b"b" * 32)))  # once more changes nothing


def test_a_peer_that_does_not_read_blocks_no_other():
    """Neither a full pair link nor a full queue blocks or raises; what is too much is dropped and counted."""
    with peers(3) as (a, b, c):
        of_a, _ = befriend(a, b, LINK)
        befriend(a, c, OTHER)
        until(lambda: a.do(Publish(of_a, b"ready")) or b"ready" in b.envelopes(), a, b, c)
        for _ in range(2000):
            a.do(SendEnvelope(LINK, bytes(20_000)), Publish(of_a, bytes(20_000)))
        assert a.counts["dropped.full"]
        a.do(SendEnvelope(OTHER, b"free lane"))
        until(lambda: b"free lane" in c.envelopes(), a, c)


def test_a_poll_is_bounded_and_fair():
    with peers(3) as (a, loud, quiet):
        befriend(a, loud, LINK)
        befriend(a, quiet, OTHER)
        a.heard.clear()
        quiet.do(SendEnvelope(OTHER, b"quiet"))
        sent = 0
        while sent < 3 * INPUTS_MAX:
            loud.do(SendEnvelope(LINK, b"loud"))
            pump(loud, quiet, timeout_ms=0)
            sent = 1 + sent - (loud.counts["dropped.full"] + loud.counts["dropped.down"])
            loud.counts.clear()
        first, _ = a.transport.poll(1000)
        second, _ = a.transport.poll(1000)
        assert Received(OTHER, b"quiet") in [Received(item.link, item.envelope) for item in first + second]
        assert max(len(first), len(second)) <= INPUTS_MAX
        until(lambda: len(first) + len(second) + len(a.envelopes(LINK)) == 3 * INPUTS_MAX + 1, a, loud, quiet)


def test_foreign_descriptors_are_reported():
    with peers(1) as (a,):
        near, far = socket.socketpair()
        with near, far:
            a.transport.watch(near.fileno())
            assert a.transport.poll(0) == ([], [])
            far.send(b"!")
            assert a.transport.poll(5000) == ([], [near.fileno()])
            a.transport.watch(near.fileno(), read=False, write=True)
            assert a.transport.poll(5000) == ([], [near.fileno()])
            a.transport.watch(near.fileno(), read=False, write=False)
            assert a.transport.poll(0) == ([], [])
            a.transport.unwatch(near.fileno())


def test_a_taken_port_is_refused_and_replaced_only_on_request():
    with peers(1) as (a,):
        with Transport(os.urandom(32), "127.0.0.1", *a.ports) as second, pytest.raises(PortTaken) as caught:
            second.bind()
        assert str(a.ports[0]) in str(caught.value)
        assert sys.platform != "linux" or f"process {os.getpid()} (" in str(caught.value)
        with Transport(os.urandom(32), "127.0.0.1", 0, a.ports[1]) as second, pytest.raises(PortTaken):
            second.bind((True, False))
        with Transport(os.urandom(32), "127.0.0.1", *a.ports) as second:
            assert not set(second.bind((True, True))) & set(a.ports)


def test_a_foreign_address_is_refused():
    stranger = Transport(os.urandom(32), "192.0.2.1", 0, 0)
    with stranger, pytest.raises(CannotListen, match=r"192\.0\.2\.1"):
        stranger.bind()


def test_a_dual_stack_listener_is_reached_both_ways():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with peers(1, "::") as (a,), peers(2) as (b, c):
        for caller, key, host in ((b, b"4" * 32, "127.0.0.1"), (c, b"6" * 32, "::1")):
            a.do(AllowClient(LINK, public_key(key)))
            caller.do(Dial(LINK, Endpoint(host, a.ports[0]), a.transport.server_key, key))
            until(lambda caller=caller: caller.is_up(LINK), a, b, c)


def test_envelopes_up_to_the_maximum_size_pass():
    with peers(2) as (a, b), strangers() as make:
        befriend(a, b, LINK)
        largest = os.urandom(ENVELOPE_BYTES_MAX)
        a.do(SendEnvelope(LINK, largest + b"!"), SendEnvelope(LINK, b""), SendEnvelope(LINK, largest))
        until(b.envelopes, a, b)
        assert b.envelopes() == [largest] and a.counts["dropped.size"] == 2
        # A member whose program is not ours: two frames, then one that is too large for libzmq.
        b.do(AllowClient(OTHER, public_key(b"x" * 32)))
        member: Stranger = make(zmq.DEALER, curve(b, b"x" * 32))
        member.connect(b)
        member.socket.send_multipart([b"one", b"two"])
        until(lambda: b.counts["dropped.shape"] == 1 and b.is_up(OTHER), b)
        member.socket.send(bytes(2 * ENVELOPE_BYTES_MAX))
        until(lambda: not b.is_up(OTHER), b)
        assert not b.envelopes(OTHER)


def test_connections_per_key_are_limited():
    with peers(1) as (a,), strangers() as make:
        a.do(AllowClient(LINK, public_key(b"k" * 32)))
        copies = [
            make(zmq.DEALER, curve(a, b"k" * 32) | {zmq.RECONNECT_IVL: -1}) for _ in range(MEMBER_CONNECTIONS_MAX + 3)
        ]
        for number, copy in enumerate(copies):
            copy.connect(a)
            copy.socket.send(b"%d" % number)
            until(lambda number=number: b"%d" % number in a.envelopes(), a)
        until(lambda: sum(copy.saw(zmq.EVENT_DISCONNECTED) for copy in copies) == 3, a)
        assert len(a.transport.links.by_name[LINK].inbound) == MEMBER_CONNECTIONS_MAX and a.is_up(LINK)


def test_one_invitation_admits_many_guests_at_once():
    """All of them have its key; so they are not counted as the connections of one member are."""
    with peers(1) as (a,), strangers() as make:
        a.do(AllowClient(LINK, public_key(b"k" * 32), guest=True))
        guests = [
            make(zmq.DEALER, curve(a, b"k" * 32) | {zmq.RECONNECT_IVL: -1}) for _ in range(4 * MEMBER_CONNECTIONS_MAX)
        ]
        for guest in guests:
            guest.connect(a)
        for number, guest in enumerate(guests):
            guest.socket.send(b"%d" % number)
        until(lambda: len(a.envelopes()) == len(guests), a)
        assert len(a.transport.links.by_name[LINK].inbound) == len(guests)
        assert not a.counts["cut.extra"] and not any(guest.saw(zmq.EVENT_DISCONNECTED) for guest in guests)


def test_flooding_one_invitation_blocks_no_other_invitation(monkeypatch):
    monkeypatch.setattr(transport, "GUEST_CONNECTIONS_MAX", 6)
    with peers(1) as (a,), strangers() as make:
        invited, flood = b"x" * 32, b"k" * 32
        a.do(AllowClient(OTHER, public_key(invited), guest=True), AllowClient(LINK, public_key(flood), guest=True))
        first: Stranger = make(zmq.DEALER, curve(a, invited) | {zmq.RECONNECT_IVL: -1})
        copies = [make(zmq.DEALER, curve(a, flood) | {zmq.RECONNECT_IVL: -1}) for _ in range(8)]
        for number, guest in enumerate((first, *copies)):
            guest.connect(a)
            guest.socket.send(b"%d" % number)
            until(lambda number=number: b"%d" % number in [*a.envelopes(), *a.envelopes(OTHER)], a)
        until(lambda: sum(copy.saw(zmq.EVENT_DISCONNECTED) for copy in copies) == 3, a)
        assert [copy.saw(zmq.EVENT_DISCONNECTED) for copy in copies] == [True] * 3 + [False] * 5, "the oldest first"
        assert len(a.transport.links.by_name[OTHER].inbound) == 1 and a.is_up(OTHER)


def test_a_guest_holds_no_queue_connection():
    with peers(1) as (a,), strangers() as make:
        a.do(AllowClient(LINK, public_key(b"k" * 32), guest=True))
        guest: Stranger = make(zmq.SUB, curve(a, b"k" * 32) | {zmq.RECONNECT_IVL: -1})
        guest.socket.setsockopt(zmq.SUBSCRIBE, b"q" * 32)
        guest.connect(a)
        until(lambda: a.counts["cut.guest"] == 1 and guest.saw(zmq.EVENT_DISCONNECTED), a)


def test_a_taken_routing_id_receives_no_mail_of_another():
    with peers(1) as (a,), strangers() as make:
        for link, key in ((LINK, b"k" * 32), (OTHER, b"x" * 32)):
            a.do(AllowClient(link, public_key(key)))
        name = {zmq.ROUTING_ID: b"alice"}
        alice: Stranger = make(zmq.DEALER, curve(a, b"k" * 32) | name)
        alice.connect(a)
        alice.socket.send(b"I am alice")
        until(lambda: a.envelopes(LINK), a)
        alice.close()
        until(lambda: not a.is_up(LINK), a)
        thief = make(zmq.DEALER, curve(a, b"x" * 32) | name)
        thief.connect(a)
        thief.socket.send(b"I am alice, too")
        until(lambda: a.envelopes(OTHER), a)
        a.do(SendEnvelope(LINK, b"for alice"), SendEnvelope(OTHER, b"for the thief"))
        assert thief.socket.poll(5000) and thief.socket.recv() == b"for the thief"
        assert a.counts["dropped.down"] == 1


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_flipped_bit_costs_one_connection_and_not_the_link(way):
    with peers(2) as (a, b):
        relay = Relay(("127.0.0.1", a.ports[0]))
        a.do(AllowClient(LINK, public_key(b"k" * 32)))
        b.do(Dial(LINK, Endpoint("127.0.0.1", relay.port), a.transport.server_key, b"k" * 32))
        until(lambda: a.is_up(LINK) and b.is_up(LINK), a, b)
        relay.flip = way
        (b if way == "up" else a).do(SendEnvelope(LINK, b"damaged"))
        until(lambda: any(isinstance(item, LinkDown) for item in b.heard), a, b)
        until(lambda: a.is_up(LINK) and b.is_up(LINK), a, b)
        b.do(SendEnvelope(LINK, b"whole"))
        until(a.envelopes, a, b)
        assert a.envelopes() == [b"whole"] and not b.envelopes()
        relay.close()


@pytest.mark.parametrize("speaks", [False, True], ids=["silent", "speaking"])
def test_a_vanished_peer_is_noticed_and_reconnected(monkeypatch, speaks):
    """A host forgets with each word how long it wanted to wait for the next; so the last of all is a question."""
    monkeypatch.setattr(socket_options, "HEARTBEAT_MS", 100)
    monkeypatch.setattr(socket_options, "HEARTBEAT_TIMEOUT_MS", 300)
    monkeypatch.setattr(socket_options, "SPARE_HEARTBEAT_MS", 3_600_000)
    with peers(2) as (a, b):
        relay = Relay(("127.0.0.1", a.ports[0]))
        a.do(AllowClient(LINK, public_key(b"k" * 32)))
        b.do(Dial(LINK, Endpoint("127.0.0.1", relay.port), a.transport.server_key, b"k" * 32))
        until(lambda: a.is_up(LINK) and b.is_up(LINK), a, b)
        if speaks:
            b.do(SendEnvelope(LINK, b"last words"))
            until(a.envelopes, a, b)
        relay.deaf = True
        until(lambda: not a.is_up(LINK), a)
        until(lambda: not b.is_up(LINK), a, b)
        relay.deaf = False
        until(lambda: a.is_up(LINK) and b.is_up(LINK), a, b)
        relay.close()


def test_an_unresponsive_peer_is_gone_despite_its_own_connection(monkeypatch):
    """As where it has said much just before its program froze: then nothing but our own question finds out."""
    monkeypatch.setattr(socket_options, "HEARTBEAT_MS", 100)
    monkeypatch.setattr(socket_options, "HEARTBEAT_TIMEOUT_MS", 1000)
    monkeypatch.setattr(socket_options, "SPARE_HEARTBEAT_MS", 3_600_000)
    with peers(2) as (a, b):
        relay = Relay(("127.0.0.1", b.ports[0]))
        a.do(AllowClient(LINK, public_key(b"b" * 32)))
        b.do(AllowClient(LINK, public_key(b"a" * 32)))
        b.do(Dial(LINK, Endpoint("127.0.0.1", a.ports[0]), a.transport.server_key, b"b" * 32))
        (theirs,) = b.transport.links.dialed
        monkeypatch.setattr(theirs._session, "ping", lambda ttl_ms: None)
        until(lambda: a.is_up(LINK), a, b)
        a.do(Dial(LINK, Endpoint("127.0.0.1", relay.port), b.transport.server_key, b"a" * 32))
        (ours,) = a.transport.links.dialed
        until(lambda: ours.up, a, b)
        relay.deaf = True
        until(lambda: not a.is_up(LINK), a)  # b does nothing any more
        assert a.counts["cut.silent"]
        relay.deaf = False
        until(lambda: a.is_up(LINK), a, b)
        relay.close()


@pytest.mark.slow
def test_after_a_lost_pair_link_its_host_is_pinged_on_the_queue(monkeypatch):
    monkeypatch.setattr(socket_options, "HEARTBEAT_MS", 100)
    monkeypatch.setattr(socket_options, "HEARTBEAT_TIMEOUT_MS", 2000)
    monkeypatch.setattr(socket_options, "QUEUE_HEARTBEAT_MS", 3_600_000)
    with peers(2) as (a, b):
        relays = [Relay(("127.0.0.1", port)) for port in a.ports]
        a.do(AllowClient(LINK, public_key(b"k" * 32), (b"q" * 32,)))
        pair, queue = (Endpoint("127.0.0.1", relay.port) for relay in relays)
        b.do(Dial(LINK, pair, a.transport.server_key, b"k" * 32, queue, (b"q" * 32,)))
        until(lambda: len(b.transport.links.dialed) == 2 and all(line.up for line in b.transport.links.dialed), a, b)
        relays[1].deaf = True
        for _ in range(100):
            pump(a, b, timeout_ms=5)
        assert all(line.up for line in b.transport.links.dialed), "it is seldom asked"
        relays[0].deaf = True
        until(lambda: not any(line.up for line in b.transport.links.dialed), a, b)
        assert b.counts["dial.lost"] == 2
        for relay in relays:
            relay.close()


def test_a_peer_can_be_dialled_through_a_socks_proxy():
    proxy = Relay()
    with peers(1) as (a,):
        b = Peer(socks=f"127.0.0.1:{proxy.port}")
        try:
            a.do(AllowClient(LINK, public_key(b"k" * 32), (b"q" * 32,)))
            b.dial(LINK, a, b"k" * 32, b"q" * 32)
            until(lambda: b.is_up(LINK), a, b)
            until(lambda: a.do(Publish(b"q" * 32, b"far away")) or b.envelopes(), a, b)
            assert set(proxy.asked) == {("127.0.0.1", port) for port in a.ports}
        finally:
            b.transport.close()
            proxy.close()


def test_closing_does_not_wait_for_a_peer_that_does_not_read():
    with peers(2) as (a, b):
        befriend(a, b, LINK)
        for _ in range(100):
            a.do(SendEnvelope(LINK, bytes(ENVELOPE_BYTES_MAX)))
        a.transport.close()
        assert not a.transport.accepts_connections
        a.transport.close()


# --- without sockets ------------------------------------------------------------------------------------------------


def test_a_connection_is_judged_by_its_unread_bytes():
    member = Connection(0, ((), ()), 0.0, user="member")
    member.message_read(10 * BACKLOG_BYTES_MAX)
    assert not member.exceeds_backlog(11 * BACKLOG_BYTES_MAX, 0.0)
    assert member.exceeds_backlog(11 * BACKLOG_BYTES_MAX + 1, 0.0)
    quiet = Connection(0, ((), ()), 0.0, user="quiet")
    hours = range(400)
    assert not any(quiet.exceeds_backlog(hour * 3600 * 100, hour * 3600.0) for hour in hours), (
        "heartbeats of sixteen days"
    )
    silent = Connection(0, ((), ()), 0.0, user="silent")
    assert not any(silent.exceeds_backlog(0, hour * 3600.0) for hour in hours)
    just_now = hours[-1] * 3600.0 + 1
    assert silent.exceeds_backlog(BACKLOG_BYTES_MAX + HEARTBEAT_BYTES_PER_S + 1, just_now), "silence earns no credit"


def test_refusals_are_counted_by_source_prefix_and_expire():
    refusals = RefusalBuckets()

    def take(address: str, now: float) -> bool:
        return refusals.take(source_prefix(address), now)

    polite = [take(address, 0.0) for address in ("192.0.2.1", "::ffff:192.0.2.1") * REFUSALS_MAX]
    assert polite == [True] * REFUSALS_MAX + [False] * REFUSALS_MAX
    assert take("192.0.2.2", 0.0) and take("192.0.2.1", 60.0)
    assert all(take(f"2001:db8::{n:x}", 0.0) for n in range(REFUSALS_MAX))
    assert not take("2001:db8::ffff", 0.0) and take("2001:db8:0:1::1", 0.0)
    assert take("no address", 0.0)
    for n in range(2 * ADDRESSES_MAX):
        take(f"10.0.{n >> 8}.{n & 255}", 0.0)
    assert len(refusals._buckets) == ADDRESSES_MAX


def test_peers_without_subscription_receive_over_the_link():
    queue = b"q" * 32
    with peers(3) as (a, b, c):
        for peer, link, key in ((b, LINK, b"k" * 32), (c, OTHER, b"x" * 32)):
            a.do(AllowClient(link, public_key(key), (queue,)))
            peer.dial(link, a, key, queue if peer is b else None)
        until(lambda: a.is_up(LINK) and a.is_up(OTHER), a, b, c)
        until(lambda: a.do(Publish(queue, b"ready")) or b.envelopes(), a, b, c)
        a.do(Publish(queue, b"for both", (LINK, OTHER)))
        until(lambda: b"for both" in b.envelopes() and c.envelopes(), a, b, c)
        pump(a, b, c, timeout_ms=50)
        assert b.envelopes().count(b"for both") == 1
        assert c.envelopes() == [b"for both"]


def test_one_subscriber_can_have_two_queues():
    state, data = b"s" * 32, b"d" * 32
    with peers(2) as (a, b):
        a.do(AllowClient(LINK, public_key(b"k" * 32), (state, data)))
        b.do(Dial(LINK, a.pair, a.transport.server_key, b"k" * 32, a.queue, (state, data)))
        for queue in (state, data):
            until(lambda queue=queue: a.do(Publish(queue, queue)) or queue in b.envelopes(), a, b)


# --- shut out for a while -------------------------------------------------------------------------------------------


def complain(peer: Peer, link: bytes, times: int = STRIKES_MAX + 1) -> list[bool]:
    return [peer.transport.strike(link) for _ in range(times)]


def test_repeated_rejections_lead_to_a_temporary_ban(monkeypatch):
    monkeypatch.setattr(bans, "BAN_S", 1.0)
    with peers(3) as (a, b, c):
        of_a, _ = befriend(a, b, LINK)
        befriend(a, c, OTHER)
        until(lambda: a.do(Publish(of_a, b"ready")) or b"ready" in b.envelopes(), a, b, c)
        assert not any(complain(a, LINK, STRIKES_MAX)) and a.is_up(LINK)
        assert a.transport.strike(LINK) and a.transport.banned_links == 1
        assert not any(complain(a, LINK)), "it is told once"
        assert a.counts["banned"] == 1 and a.counts["cut.banned"] == 2, "both of its connections"
        until(lambda: not (a.is_up(LINK) or b.is_up(LINK)), a, b, c)
        until(lambda: a.counts["zap.refused"] >= 2, a, b, c)
        b.heard.clear()
        a.do(SendEnvelope(LINK, b"unheard"), Publish(of_a, b"unheard", (LINK,)))
        a.do(SendEnvelope(OTHER, b"all is well"))
        until(c.envelopes, a, b, c)
        assert not b.envelopes() and not any(isinstance(item, LinkDown) for item in c.heard)
        until(lambda: a.is_up(LINK) and b.is_up(LINK) and not a.transport.banned_links, a, b, c)
        a.do(SendEnvelope(LINK, b"pair again"))
        until(lambda: a.do(Publish(of_a, b"queue again")) or b"queue again" in b.envelopes(), a, b, c)
        b.do(SendEnvelope(LINK, b"and back"))
        until(lambda: b"pair again" in b.envelopes() and b"and back" in a.envelopes(LINK), a, b, c)


@pytest.mark.slow
def test_changes_during_a_ban_apply_afterwards(monkeypatch):
    monkeypatch.setattr(bans, "BAN_S", 1.0)
    monkeypatch.setattr(zap, "EARLY_S", 0.0)  # or ten refusals would take longer than a test may
    links = dict(
        zip(("admitted", "revoked", "dialled", "hung up", "moved"), (bytes([n]) * 16 for n in range(5)), strict=True)
    )
    keys = {name: name.encode().ljust(32) for name in links}
    with peers(2) as (a, b):
        for name in ("revoked", "moved"):
            a.do(AllowClient(links[name], public_key(keys[name])))
        b.do(*(AllowClient(links[name], public_key(keys[name])) for name in ("dialled", "hung up")))
        a.dial(links["hung up"], b, keys["hung up"])
        for name in ("admitted", "revoked", "moved"):
            b.dial(links[name], a, keys[name])
        until(lambda: all(a.is_up(links[name]) for name in ("revoked", "moved", "hung up")), a, b)
        for link in links.values():
            assert any(complain(a, link))
        assert a.transport.banned_links == len(links)
        a.do(AllowClient(links["admitted"], public_key(keys["admitted"])), RevokeClient(public_key(keys["revoked"])))
        a.do(Disconnect(links["hung up"]), AllowClient(OTHER, public_key(keys["moved"])))
        a.dial(links["dialled"], b, keys["dialled"])
        pump(a, b)
        assert not a.transport.links.dialed, "nobody is dialled before the time is over"
        until(lambda: a.is_up(OTHER), a, b)  # another link is another matter
        until(lambda: a.is_up(links["admitted"]) and a.is_up(links["dialled"]), a, b)
        assert not a.transport.banned_links
        until(lambda: a.counts["zap.refused"] > 10, a, b)
        assert not (a.is_up(links["revoked"]) or a.is_up(links["hung up"]) or a.is_up(links["moved"]))
        assert a.transport._zap.admitted == a.transport._admitted


def test_strikes_are_forgiven_and_bounded(monkeypatch):
    one, now = Bans(), 0.0
    for minute in range(5):
        now = minute * (STRIKES_S + 1)
        assert not any(one.strike(LINK, now) for _ in range(STRIKES_MAX))
    assert one.strike(LINK, now) and LINK in one and one.due == now + BAN_S
    assert not one.strike(LINK, now) and not one.lift_expired(one.due - 1) and one.lift_expired(one.due) == [LINK]
    assert LINK not in one and not one.strike(LINK, now + BAN_S), "and everything begins anew"
    monkeypatch.setattr(bans, "LINKS_MAX", 3)
    many = Bans()
    for n in range(10):
        for _ in range(STRIKES_MAX):
            many.strike(bytes([n]) * 16, 0.0)
    assert len(many._strikes) == 3
    for n in range(10):
        for _ in range(STRIKES_MAX + 1):
            many.strike(bytes([n]) * 16, 0.0)
    assert len(many) == 3 and len(many._strikes) <= 3


def test_a_link_that_gets_queues_keeps_its_connection():
    queue = b"q" * 32
    with peers(2) as (a, b):
        a.do(AllowClient(LINK, public_key(b"k" * 32), (queue,)))
        b.dial(LINK, a, b"k" * 32)
        until(lambda: b.is_up(LINK), a, b)
        b.heard.clear()
        b.dial(LINK, a, b"k" * 32, queue)
        b.do(SendEnvelope(LINK, b"still there"))
        until(lambda: a.envelopes(), a, b)
        until(lambda: a.do(Publish(queue, b"heard")) or b.envelopes(), a, b)
        assert not any(isinstance(item, LinkUp | LinkDown) for item in b.heard)
        b.heard.clear()
        b.dial(LINK, a, b"k" * 32)  # and loses them again
        pump(a, b, timeout_ms=20)
        a.do(Publish(queue, b"to nobody"))
        pump(a, b, timeout_ms=20)
        assert not b.heard
