"""Our ZMTP and CURVE client: against libzmq, against broken hosts, and against arbitrary bytes."""

import os
import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings

from tests.support.raw_curve import GREETING, Raw, RawHost, described, framed
from tests.support.sockets import Peer, Relay, befriend, peers, pump, until
from zerochat.agent.network.zmq import socket_options, zmtp
from zerochat.agent.network.zmq.client_session import FRAMES_KEPT, PONG_BYTES_MAX, SEND_BYTES_MAX, ClientSession
from zerochat.agent.network.zmq.dialer import (
    CONNECT_S,
    NUDGE_S,
    RECONNECT_S,
    REDIAL_S,
    REDIAL_S_MAX,
    DialedConnection,
    DialState,
)
from zerochat.agent.network.zmq.heartbeat import PIECE_BYTES, PING_BURST_MAX, PING_INTERVAL_S, Heartbeat
from zerochat.agent.network.zmq.poller import Poller
from zerochat.agent.network.zmq.socket_options import FRAME_BYTES_MAX, public_key
from zerochat.agent.network.zmq.socks5 import Socks5Handshake
from zerochat.agent.network.zmq.tcp_control import HEARTBEAT_BYTES_PER_S, wire_bytes
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed, RemoteError
from zerochat.group.effects import AllowClient, Dial, Publish, SendEnvelope
from zerochat.group.inputs import LinkDown

LINK, OTHER = b"l" * 16, b"m" * 16
SECRET, QUEUE = b"h" * 32, b"q" * 32
KEY = public_key(SECRET)
LOW_ORDER = (bytes(32), (1).to_bytes(32, "little"), (2**255 - 19).to_bytes(32, "little"))


# --- with libzmq ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", [0, 1], ids=["ROUTER", "XPUB"])
def test_the_first_message_is_in_our_third_flight(door):
    """Greeting and HELLO; INITIATE; the message. Each answers what the host has said, so none of them can be spared:
    libzmq takes nothing after INITIATE until its doorkeeper has answered."""
    with peers(2) as (a, b):
        relay = Relay(("127.0.0.1", a.ports[door]))
        through, direct = Endpoint("127.0.0.1", relay.port), a.pair
        a.do(AllowClient(LINK, public_key(b"k" * 32), (QUEUE,)))
        b.do(Dial(LINK, direct if door else through, a.transport.server_key, b"k" * 32, through, (QUEUE,) * door))
        if door:
            until(lambda: a.transport._queue.has_subscriber(QUEUE, LINK), a, b)
        else:
            until(lambda: a.is_up(LINK), a, b)
        assert relay.pieces.count("up") == 3
        relay.close()


def test_messages_of_one_step_are_written_at_once():
    with peers(2) as (a, b):
        relay = Relay(("127.0.0.1", a.ports[0]))
        a.do(AllowClient(LINK, public_key(b"k" * 32)))
        b.do(Dial(LINK, Endpoint("127.0.0.1", relay.port), a.transport.server_key, b"k" * 32))
        until(lambda: a.is_up(LINK) and b.is_up(LINK), a, b)
        before = relay.pieces.count("up")
        b.do(*(SendEnvelope(LINK, b"%d" % number) for number in range(100)))
        until(lambda: len(a.envelopes()) == 100, a, b)
        assert a.envelopes() == [b"%d" % number for number in range(100)]
        assert relay.pieces.count("up") - before <= 2  # a sign of life may be among them
        relay.close()


def test_messages_of_any_size_arrive_in_order_both_ways():
    with peers(2) as (a, b):
        of_a, _ = befriend(a, b, LINK)
        until(lambda: a.do(Publish(of_a, b"ready")) or b"ready" in b.envelopes(), a, b)
        sizes = (1, 221, 222, 223, 256, 65_535, 65_536, ENVELOPE_BYTES_MAX - 1, ENVELOPE_BYTES_MAX, 2)
        sent = [os.urandom(size) for size in sizes]
        for envelope in sent:
            b.do(SendEnvelope(LINK, envelope))
            a.do(SendEnvelope(LINK, envelope), Publish(of_a, envelope))
        until(lambda: len(a.envelopes()) == len(sent) and len(_but_ready(b)) == 2 * len(sent), a, b)
        assert a.envelopes() == sent and Counter(_but_ready(b)) == Counter(sent * 2)


def _but_ready(peer: Peer) -> list[bytes]:
    return [envelope for envelope in peer.envelopes() if envelope != b"ready"]


# --- hosts that break the rules -------------------------------------------------------------------------------------


class Host(RawHost):
    """One that may say something else at every step."""

    def __init__(self, listener: socket.socket, greeting: bytes = GREETING + b"\1" + bytes(31)):
        Raw.__init__(self, listener.accept()[0])
        with self.or_closed():
            self.socket.sendall(greeting)
            self.read(64)
            self.member_short = self.read_command()[80:112]

    def command(self, body: bytes) -> None:
        self.socket.sendall(framed(4, body))

    def welcome(self, short_public: bytes, secret: bytes = SECRET, more: bytes = b"") -> None:
        nonce = os.urandom(16)
        box = bindings.crypto_box(short_public + bytes(96) + more, b"WELCOME-" + nonce, self.member_short, secret)
        self.command(b"\x07WELCOME" + nonce + box)

    def shake(self, ready: bytes) -> None:
        """The rest of the handshake, with this metadata at its end."""
        short_public, short_secret = bindings.crypto_box_keypair()
        self.welcome(short_public)
        self.read_command()
        self.key = bindings.crypto_box_beforenm(self.member_short, short_secret)
        self.command(b"\x05READY" + self.seal(b"CurveZMQREADY---", ready))


def _mute(host: Host) -> None:
    host.socket.settimeout(10)
    host.read(1)


FAULTS_BEFORE: dict[str, Callable[[Host], object]] = {
    "silence": _mute,
    "an end": lambda host: None,
    "a refusal": lambda host: host.command(b"\x05ERROR\x03400"),
    "a key of low order": lambda host: [host.welcome(key) for key in LOW_ORDER[:1]],
    "another key of low order": lambda host: host.welcome(LOW_ORDER[1]),
    "a third key of low order": lambda host: host.welcome(LOW_ORDER[2]),
    "another host's key": lambda host: host.welcome(os.urandom(32), os.urandom(32)),
    "too long a cookie": lambda host: host.welcome(os.urandom(32), more=b"!"),
    "an empty command": lambda host: host.command(b""),
    "a command of another name": lambda host: host.command(b"\x07WELCOMF" + bytes(160)),
    "a message": lambda host: host.socket.sendall(framed(0, b"\x07WELCOME" + bytes(160))),
    "a frame of a terabyte": lambda host: host.socket.sendall(b"\x06" + (1 << 40).to_bytes(8)),
    "a frame larger than a handshake's": lambda host: host.socket.sendall(b"\x06" + (5000).to_bytes(8)),
    "READY that does not open": lambda host: (host.welcome(os.urandom(32)), host.command(b"\x05READY" + bytes(40))),
    "READY without a box": lambda host: (host.welcome(os.urandom(32)), host.command(b"\x05READY")),
    "a host of another kind": lambda host: host.shake(described(b"DEALER")),
    "metadata that ends too early": lambda host: host.shake(described(b"ROUTER")[:-1]),
}
FAULTS_AFTER: dict[str, Callable[[Host], object]] = {
    "junk": lambda host: host.socket.sendall(b"\xff" * 100),
    "a frame too large": lambda host: host.socket.sendall(b"\x02" + (FRAME_BYTES_MAX + 1).to_bytes(8)),
    "a box that does not open": lambda host: host.socket.sendall(
        framed(0, b"\x07MESSAGE" + (9).to_bytes(8) + bytes(20))
    ),
    "a frame with a flag that is none": lambda host: host.socket.sendall(b"\x08" + host.frame(b"y")[1:]),
    "a box that is none": lambda host: host.socket.sendall(framed(0, b"\x07MESSAGE")),
    "the same nonce again": lambda host: host.socket.sendall(host.frame(b"x") + framed(0, _repeated(host))),
    "a command without a name": lambda host: _say(host, b""),
    "a command that ends too early": lambda host: _say(host, b"\x04PIN"),
    "too long a PING": lambda host: _say(host, b"\x04PING\0\0" + bytes(17)),
    "a message without an end": lambda host: host.push(bytes(1000), FRAME_BYTES_MAX * 2),
    "a message without an end, of nothing": lambda host: host.push(b"", FRAME_BYTES_MAX * 2),
}


def _say(host: Raw, command: bytes) -> None:
    host.socket.sendall(framed(0, b"\x07MESSAGE" + host.seal(host.nonce_prefix, b"\2" + command)))


def _repeated(host: Host) -> bytes:
    host.nonce -= 1
    return b"\x07MESSAGE" + host.seal(host.nonce_prefix, b"\0y")


@contextmanager
def hosting(act: Callable[[Host], object], greeting: bytes = GREETING + b"\1" + bytes(31)) -> Iterator[int]:
    """Its port. Every connection gets the greeting and then this act, in a thread; then it ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while listener.fileno() >= 0:
                with suppress(OSError, EOFError):
                    host = Host(listener, greeting)
                    with suppress(OSError, EOFError):
                        act(host)
                        host.socket.shutdown(socket.SHUT_WR)
                        host.read(1)
                    host.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(11)


@pytest.mark.parametrize("fault", FAULTS_BEFORE)
def test_a_host_with_a_bad_handshake_is_redialled_alone(fault, monkeypatch):
    monkeypatch.setattr(socket_options, "HANDSHAKE_MS", 300)
    with peers(2) as (a, b), hosting(FAULTS_BEFORE[fault]) as port:
        befriend(a, b, LINK)
        a.do(Dial(OTHER, Endpoint("127.0.0.1", port), KEY, b"k" * 32))
        until(lambda: a.counts["dial.handshake_failed"] >= 2, a, b)
        b.do(SendEnvelope(LINK, b"all is well"))
        until(a.envelopes, a, b)
        assert not a.is_up(OTHER) and not any(isinstance(item, LinkDown) for item in a.heard)


@pytest.mark.parametrize(
    "greeting",
    [os.urandom(64), GREETING[:12] + b"NULL".ljust(52, b"\0"), b"\xff" + bytes(8) + b"\x7f\1" + bytes(53)],
    ids=["noise", "another mechanism", "another version"],
)
def test_a_host_of_another_protocol_is_redialled(greeting):
    with peers(1) as (a,), hosting(lambda host: None, greeting) as port:
        a.do(Dial(OTHER, Endpoint("127.0.0.1", port), KEY, b"k" * 32))
        until(lambda: a.counts["dial.handshake_failed"] >= 2, a)


@pytest.mark.parametrize("fault", FAULTS_AFTER)
def test_a_host_that_breaks_the_protocol_later_is_redialled(fault, monkeypatch):
    monkeypatch.setattr(socket_options, "FRAME_BYTES_MAX", 100_000)

    def act(host: Host) -> None:
        host.shake(described(b"ROUTER"))
        FAULTS_AFTER[fault](host)

    with peers(1) as (a,), hosting(act) as port:
        a.do(Dial(OTHER, Endpoint("127.0.0.1", port), KEY, b"k" * 32))
        until(lambda: a.counts["dial.broken"] >= 2, a)
        assert set(a.envelopes()) <= {b"x"} and not a.counts["dial.handshake_failed"]


@pytest.mark.parametrize("key", LOW_ORDER)
def test_a_peer_with_an_invalid_key_is_never_reached(key):
    with peers(2) as (a, b):
        a.do(Dial(OTHER, b.pair, key, b"k" * 32))
        until(lambda: a.counts["dial.handshake_failed"] >= 2, a, b)
        befriend(a, b, LINK)


def test_a_message_of_too_many_frames_is_dropped_alone():
    with peers(1) as (a,), socket.create_server(("127.0.0.1", 0)) as listener:
        a.do(Dial(OTHER, Endpoint("127.0.0.1", listener.getsockname()[1]), KEY, b"k" * 32))
        host, thread = _accepted(listener)
        until(lambda: a.is_up(OTHER), a)
        thread.join()
        host[0].send(b"one", b"two")
        host[0].send(*(b"%d" % number for number in range(100)))
        host[0].send(b"three", b"")
        host[0].send(b"as it should be")
        until(a.envelopes, a)
        assert a.envelopes() == [b"as it should be"] and a.counts["dropped.shape"] == 3
        host[0].close()


def test_a_ping_is_answered_and_a_silent_host_is_pinged():
    with peers(1) as (a,), socket.create_server(("127.0.0.1", 0)) as listener:
        a.do(Dial(OTHER, Endpoint("127.0.0.1", listener.getsockname()[1]), KEY, b"k" * 32))
        host, thread = _accepted(listener)
        until(lambda: a.is_up(OTHER), a)
        thread.join()
        question = b"\2\x04PING" + struct.pack(
            ">H", (socket_options.HEARTBEAT_MS + socket_options.HEARTBEAT_TIMEOUT_MS) // 100
        )
        assert _heard(host[0]) == b"\0"  # hello
        assert _heard(host[0]) == question
        _say(host[0], b"\x04PONG")
        _say(host[0], b"\x04PING\0\x0acontext")
        _say(host[0], b"\x07UNKNOWNxyz")
        pump(a, timeout_ms=100)
        answer = _heard(host[0])
        while answer == question:  # on a machine that is slow it is asked once more
            answer = _heard(host[0])
        assert answer == b"\2\x04PONGcontext"
        host[0].socket.settimeout(0.01)
        asked = b""

        def was_asked() -> bytes:
            nonlocal asked
            with suppress(TimeoutError):
                asked = _heard(host[0])
            return asked

        until(was_asked, a)
        assert asked == question
        _say(host[0], b"\x04PONG")
        host[0].close()


def test_a_silent_host_is_left_unless_we_were_not_reading(monkeypatch):
    monkeypatch.setattr(socket_options, "HEARTBEAT_MS", 100)
    monkeypatch.setattr(socket_options, "HEARTBEAT_TIMEOUT_MS", 300)
    with peers(1) as (a,), socket.create_server(("127.0.0.1", 0)) as listener:
        a.do(Dial(OTHER, Endpoint("127.0.0.1", listener.getsockname()[1]), KEY, b"k" * 32))
        host, thread = _accepted(listener)
        until(lambda: a.is_up(OTHER), a)
        thread.join()
        (line,) = a.transport.links.dialed
        host[0].send(b"an answer")
        assert line._socket is not None
        select.select([line._socket], [], [], 5)
        line.run_timers(line.due())
        assert line.up
        until(a.envelopes, a)
        until(lambda: not a.is_up(OTHER), a)
        assert a.counts["dial.lost"] == 1
        host[0].close()


def test_an_unread_host_is_slowed_down_by_tcp():
    """By TCP: an agent that is busy keeps no more than the kernel does."""
    with peers(1) as (a,), socket.create_server(("127.0.0.1", 0)) as listener:
        a.do(Dial(OTHER, Endpoint("127.0.0.1", listener.getsockname()[1]), KEY, b"k" * 32))
        host, thread = _accepted(listener)
        until(lambda: a.is_up(OTHER), a)
        thread.join()
        host[0].socket.settimeout(0.3)
        sent = 0
        with suppress(TimeoutError):
            while sent < 2000:
                host[0].send(bytes(60_000))
                sent += 1
        assert sent < 2000
        until(lambda: len(a.envelopes()) == sent, a)
        host[0].close()


def _accepted(listener: socket.socket) -> tuple[list[RawHost], threading.Thread]:
    """A host that shakes hands in a thread while we poll; it is there when the thread has ended."""
    found: list[RawHost] = []
    thread = threading.Thread(target=lambda: found.append(RawHost(listener, SECRET, b"ROUTER")), daemon=True)
    thread.start()
    return found, thread


def _heard(host: Raw) -> bytes:
    """Flags and content of the next MESSAGE from us."""
    body = host.read_command()
    return bytes(bindings.crypto_box_open_afternm(body[16:], b"CurveZMQMESSAGEC" + body[8:16], host.key))


# --- round and round ------------------------------------------------------------------------------------------------


def test_backoff_grows_and_a_nudge_ends_it():
    dial, counts = Dial(LINK, Endpoint("127.0.0.1", 9), KEY, b"k" * 32), Counter[str]()
    ears = Poller()
    line = DialedConnection(ears, dial, counts, 0.0, lambda line: 0, lambda line: None)
    assert line.due() == CONNECT_S and not counts
    line.run_timers(CONNECT_S)
    assert counts == {"dial.unreachable": 1} and CONNECT_S + RECONNECT_S / 2 <= line.due() <= CONNECT_S + RECONNECT_S
    line.run_timers(CONNECT_S + RECONNECT_S)
    assert counts == {"dial.unreachable": 1, "dial.retried": 1}
    line._failures = 0
    waits = []
    for _ in range(12):
        if line.state is DialState.WAITING:
            line._connect(100.0)
        line._fail(100.0, "dial.unreachable", RECONNECT_S)
        waits.append(line.due() - 100.0)
    for number, wait in enumerate(waits):
        longest = min(REDIAL_S_MAX, RECONNECT_S * 2**number)
        assert longest / 2 <= wait <= longest
    line.nudge(NUDGE_S / 2)
    assert line.due() > 100.0
    line.nudge(200.0)
    assert line.due() == 200.0
    line._failures = 0
    line._connect(300.0)
    line._fail(300.0, "dial.handshake_failed", REDIAL_S)
    assert 300.0 + REDIAL_S / 2 <= line.due() <= 300.0 + REDIAL_S
    line.close(300.0)
    ears.close()


def test_a_reused_descriptor_number_is_a_new_connection():
    """As an hour of faults found it: a face hung up, and in the same turn somebody was dialled."""
    ears, (face, other) = Poller(), socket.socketpair()
    number = face.fileno()
    ears.watch(number, read=True, write=False)
    face.close()
    dial, counts = Dial(LINK, Endpoint("127.0.0.1", 9), KEY, b"k" * 32), Counter[str]()
    line = DialedConnection(ears, dial, counts, 0.0, lambda line: 0, lambda line: None)
    assert line._socket is not None and line._socket.fileno() == number
    ears.unwatch(number)  # what was closed is forgotten only now
    while not counts:
        ears.wait(1.0)
    assert counts == {"dial.unreachable": 1}
    line.close(300.0)
    ears.close()
    other.close()


def test_a_connection_without_traffic_times_out():
    patience = socket_options.HEARTBEAT_TIMEOUT_MS / 1000
    pulse, other = Heartbeat(100.0, 1500), Heartbeat(100.1, 1500)
    assert 100.0 < pulse.due() <= 101.5 and pulse.due() in (other.due(), other.due() - 1.5), "all are asked at once"
    assert not pulse.must_ping(100.0) and not pulse.timed_out(200.0)
    assert pulse.must_ping(102.0)
    pulse.ping_sent(102.0)
    assert not pulse.must_ping(104.0), "once is enough"
    assert (
        pulse.due() == 102.0 + patience and not pulse.timed_out(101.9 + patience) and pulse.timed_out(102.0 + patience)
    )
    pulse.bytes_received(PIECE_BYTES - 1)
    assert pulse.timed_out(102.0 + patience), "a trickle is no life"
    pulse.bytes_received(1)
    assert not pulse.timed_out(110.0) and pulse.must_ping(110.0)
    pulse.ping_sent(110.0)
    pulse.ping_sent(111.0)
    assert pulse.due() == 110.0 + patience, "it counts from the first question that was not answered"
    pulse.frame_received()
    assert not pulse.timed_out(120.0) and 111.0 < pulse.due() <= 112.5


def test_pings_are_limited_while_much_is_sent():
    pulse, asked = Heartbeat(0.0, 1500), 0
    for number in range(10_000):
        if pulse.may_ping(number / 100):
            pulse.ping_sent(number / 100)
            asked += 1
    assert 100 / PING_INTERVAL_S <= asked <= 100 / PING_INTERVAL_S + PING_BURST_MAX + 1
    assert wire_bytes(len(zmtp.ping(0))) / PING_INTERVAL_S <= HEARTBEAT_BYTES_PER_S, "the host forgives it"


# --- bytes in, bytes out --------------------------------------------------------------------------------------------


class Sealed:
    """A host that writes down what it would say to one session."""

    def __init__(self, session: ClientSession, kind: bytes):
        hello = bytes(session.outgoing)[64:]
        self.nonce, self.member_short = 1, hello[2 + 80 : 2 + 112]
        self.short_public, short_secret = bindings.crypto_box_keypair()
        self.key = bindings.crypto_box_beforenm(self.member_short, short_secret)
        nonce = os.urandom(16)
        box = bindings.crypto_box(self.short_public + bytes(96), b"WELCOME-" + nonce, self.member_short, SECRET)
        self.said = GREETING + b"\1" + bytes(31) + framed(4, b"\x07WELCOME" + nonce + box)
        self.said += framed(4, b"\x05READY" + self._seal(b"CurveZMQREADY---", described(kind)))

    def say(self, flags: int, plain: bytes) -> None:
        self.said += framed(0, b"\x07MESSAGE" + self._seal(b"CurveZMQMESSAGES", bytes([flags]) + plain))

    def _seal(self, prefix: bytes, plain: bytes) -> bytes:
        self.nonce += 1
        short = self.nonce.to_bytes(8)
        return short + bytes(bindings.crypto_box_afternm(plain, prefix + short, self.key))


def session(kind: bytes = b"DEALER", words: tuple[bytes, ...] = (b"",)) -> ClientSession:
    return ClientSession(kind, KEY, b"k" * 32, words, os.urandom)


def fed(one: ClientSession, data: bytes, cuts: list[int]) -> list[list[bytes]]:
    """All messages, with the bytes fed in pieces."""
    messages = []
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in pairwise(edges):
        one.feed(data[start:end])
        while found := one.next():
            assert found[1] > 0
            if found[0] is not None:
                messages.append(found[0])
    return messages


@settings(deadline=None)
@given(
    st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=5), max_size=6),
    st.lists(st.integers(0), max_size=30),
)
def test_messages_are_parsed_at_any_split(messages, cuts):
    one = session(b"XSUB", (b"\1" + QUEUE,))
    host = Sealed(one, b"XPUB")
    for message in messages:
        host.say(2, b"\x04PING\0\x0a!")
        for at, frame in enumerate(message):
            host.say(at < len(message) - 1, frame)
    assert fed(one, host.said, cuts) == [message[:FRAMES_KEPT] for message in messages] and one.up


@settings(deadline=None)
@given(st.data())
def test_no_input_of_a_host_does_more_than_disconnect(data):
    one = session()
    host = Sealed(one, b"ROUTER")
    words = data.draw(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=40)), max_size=4))
    for flags, plain in words:
        host.say(flags, plain)
    at = data.draw(st.integers(0, len(host.said)))
    kept = data.draw(st.integers(at, min(len(host.said), at + 20)))
    changed = host.said[:at] + data.draw(st.binary(max_size=20)) + host.said[kept:]
    with suppress(RemoteError):
        for message in fed(one, changed, data.draw(st.lists(st.integers(0), max_size=5))):
            assert all(any(frame == plain for _, plain in words) for frame in message), "nothing that was not said"


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_metadata_and_commands_of_any_bytes_are_read_or_refused(data):
    with suppress(Malformed):
        properties = zmtp.split_metadata(data)
        assert all(name and name in data.lower() and value in data for name, value in properties.items())
    with suppress(Malformed):
        name, rest = zmtp.split_command(data)
        assert zmtp.command(name, rest) == data
    with suppress(Malformed):
        assert zmtp.pong(data) == b"\x04PONG" + data[2:]


@settings(deadline=None)
@given(st.dictionaries(st.binary(min_size=1, max_size=255).map(bytes.lower), st.binary(max_size=400), max_size=5))
def test_metadata_is_read_as_it_was_written(properties):
    assert zmtp.split_metadata(zmtp.metadata(properties)) == properties


def test_buffers_of_a_session_are_bounded():
    one = session()
    host = Sealed(one, b"ROUTER")
    fed(one, host.said, [])
    while one.send(bytes(60_000)):
        assert len(one.outgoing) < 2 * SEND_BYTES_MAX
    one.outgoing.clear()
    host.said = b""
    for _ in range(3000):
        host.say(2, b"\x04PING\0\x0a" + bytes(16))
    fed(one, host.said, [])
    assert PONG_BYTES_MAX < len(one.outgoing) < PONG_BYTES_MAX + 100
    frames = zmtp.Frames(100)
    frames.feed(b"\x02" + (101).to_bytes(8))
    with pytest.raises(Malformed):
        frames.next()


def test_the_counted_size_is_the_size_on_the_wire():
    one = session()
    host = Sealed(one, b"ROUTER")
    before = len(host.said)
    fed(one, host.said, [])
    host.say(0, bytes(300))
    one.feed(host.said[before:])
    assert one.next() == ([bytes(300)], len(host.said) - before) == ([bytes(300)], wire_bytes(300))


# --- through a proxy ------------------------------------------------------------------------------------------------


def test_a_proxy_takes_and_returns_either_address_family():
    four, six = Endpoint("192.0.2.7", 5000), Endpoint("2001:db8::7", 65535)
    for endpoint, asked in (
        (four, b"\5\1\0\1\xc0\0\2\7\x13\x88"),
        (six, b"\5\1\0\4" + bytes.fromhex("20010db8000000000000000000000007") + b"\xff\xff"),
    ):
        for bound in (b"\1" + bytes(4), b"\4" + bytes(16), b"\3\x04tor!"):
            detour, answer = Socks5Handshake(endpoint), b"\5\0" + b"\5\0\0" + bound + b"\0\0" + b"\xff\0"
            rests = [detour.feed(answer[at : at + 1]) for at in range(len(answer) - 2)]
            assert set(rests[:-1]) == {None} and rests[-1] == b"" and detour.outgoing == b"\5\1\0" + asked
            assert Socks5Handshake(endpoint).feed(answer) == b"\xff\0"


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_no_input_of_a_proxy_does_more_than_disconnect(data):
    with suppress(RemoteError):
        rest = Socks5Handshake(Endpoint("192.0.2.7", 5000)).feed(data)
        assert rest is None or data.startswith(b"\5\0\5\0")


@pytest.mark.parametrize("answer", [b"\5\xff", b"\4\0", b"\5\0\5\5\0\1" + bytes(6), b"\5\0\5\0\0\2" + bytes(6)])
def test_a_refusal_by_a_proxy_is_an_error(answer):
    with pytest.raises(RemoteError):
        Socks5Handshake(Endpoint("192.0.2.7", 5000)).feed(answer)
