"""The web transport against hostile peers and a slow owner."""

import contextlib
import re
import socket
import struct
import time
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import web_peers
from tests.support.web_peers import (
    PATIENCE_S,
    QUICK,
    UPGRADE,
    frame,
    hear,
    raw,
    request,
    response,
    until,
    wait,
    websocket,
)
from zerochat.agent.network.addresses import provider_prefix, source_prefix
from zerochat.agent.network.web import Arrived, Closed, Delivered, Failed, Limits, Opened
from zerochat.agent.network.web.events import ENCRYPTED
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX

nodes, scripted, tls = web_peers.nodes, web_peers.scripted, web_peers.tls

# --- those who do not -----------------------------------------------------------------------------------------------


MANY: dict[str, Any] = {f"X{number}": "a" for number in range(100)}
NO_ENVELOPE = {
    "no HTTP": (b"hello\r\n\r\n", 400),
    "something after it": (b"GET / HTTP/1.1\r\n\r\n\0\0\0", 400),
    "GET": (request(b"GET", Content_Type=""), 404),
    "GET a file": (request(b"GET", b"/etc/passwd", Content_Type=""), 404),
    "GET no link": (request(b"GET", b"/?_oobid=nobody", Content_Type=""), 404),
    "GET two links": (request(b"GET", b"/?_oobid=a&_oobid=b", Content_Type=""), 404),
    "GET a strange link": (request(b"GET", b"/?_oobid=%ff%00%c0&&=;", Content_Type=""), 404),
    "GET elsewhere": (request(b"GET", b"http://a.example/?_oobid=x", Content_Type=""), 404),
    "everything": (request(b"OPTIONS", b"*"), 405),
    "GET h2c": (request(b"GET", Upgrade="h2c", Connection="Upgrade", Content_Type=""), 404),
    "GET an old WebSocket": (
        request(b"GET", Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Version="1"),
        400,
    ),
    "PUT": (request(b"PUT", body=b"x"), 405),
    "DELETE": (request(b"DELETE"), 405),
    "OPTIONS": (request(b"OPTIONS"), 405),
    "CONNECT": (request(b"CONNECT", b"a.example:443"), 405),
    "text": (request(body=b"x", Content_Type="text/plain"), 415),
    "JSON": (request(body=b"x", Content_Type="application/json"), 415),
    "a plaintext": (request(body=b"x", Content_Type="application/didcomm-plain+json"), 415),
    "a signed message": (request(body=b"x", Content_Type="application/didcomm-signed+json"), 415),
    "a plaintext as an envelope": (request(body=b'{"id":"1","type":"a/b/1.0/c","body":{}}'), 415),
    "a signed message as an envelope": (request(body=b'{"payload":"e30","signatures":[{"signature":"eA"}]}'), 415),
    "no type": (request(body=b"x", Content_Type=""), 415),
    "gzip": (request(body=b"x", Content_Encoding="gzip"), 415),
    "nothing": (request(), 400),
    "too much": (request(Content_Length=str(ENVELOPE_BYTES_MAX + 1)), 413),
    "a length below nothing": (request(Content_Length="-1"), 400),
    "two lengths": (request(Content_Length="1, 2", body=b"xx"), 400),
    "a length and chunks": (request(body=b"0\r\n\r\n", Transfer_Encoding="chunked"), 400),
    "no chunks": (request(body=b"zz\r\n", Content_Length="", Transfer_Encoding="chunked"), 400),
    "a long header": (request(X="a" * 10_000), 400),
    "many headers": (request(**MANY), 400),
    "a long line": (b"POST /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n", 400),
}


@pytest.mark.parametrize(("sent", "status"), NO_ENVELOPE.values(), ids=NO_ENVELOPE)
def test_a_refusal_is_short(nodes, sent, status):
    b = nodes()
    answer = hear(raw(b, sent))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.") and head.split()[1] == b"%d" % status, answer
    assert not re.search(rb"(?i)aiohttp|python|zerochat|server:", answer)
    assert (status == 415) == (b"Accept: application/didcomm-encrypted+json," in head)
    assert not body or body.startswith(b"HTTP/1."), answer  # (what follows is the answer to what was sent after it)
    b.tx()
    assert not b.news


def test_every_content_type_of_an_envelope_is_taken(nodes):
    b = nodes()
    types = [
        "application/didcomm-enc-env",
        "application/didcomm-envelope-enc",
        "application/ssi-agent-wire",
        "application/jose",
        "Application/DIDComm-Encrypted+JSON; charset=utf-8",
    ]
    peers = [raw(b, request(body=b"x", Content_Type=name)) for name in types]
    until(lambda: len(b.envelopes()) == len(types), b)
    assert all(b" 202 " in hear(peer).partition(b"\r\n")[0] for peer in peers)


def test_a_body_in_chunks_is_taken_up_to_the_limit(nodes):
    b = nodes()
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    chunked: dict[str, Any] = {"Content_Length": "", "Transfer_Encoding": "chunked", "Expect": "100-continue"}
    peer = raw(b, request(body=chunk * 16 + b"0\r\n\r\n", **chunked))
    until(b.envelopes, b)
    assert len(b.envelopes()[0]) == ENVELOPE_BYTES_MAX
    assert hear(peer).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 ")
    assert b"HTTP/1.1 413 " in hear(raw(b, request(body=chunk * 17, **chunked)))
    assert b.web._web_thread._events._bytes == 0


def test_a_slow_peer_times_out(nodes, tls):
    """Heads, bodies, frames and handshakes that are begun and never ended."""
    _, certificate, key = tls
    limits = Limits(idle_s=0.3, body_s=0.3, handshake_s=0.3, stop_s=0.5)
    b, secure = nodes(limits=limits), nodes(limits=limits, tls=(certificate, key))
    upgrade = request(b"GET", Content_Type="", **UPGRADE)
    peers = [
        raw(b),
        raw(b, b"POST / HTTP/1.1\r\nHost: x\r\nX-A: "),
        raw(b, request(body=b"x", Content_Length="100")),
        raw(b, upgrade + b"\x81\xfe\x10\x00abcd" + b"x"),
        raw(secure),
        raw(secure, b"\x16\x03\x01\x02\x00\x01"),
    ]
    answers = [hear(peer) for peer in peers]
    assert answers[0] == answers[1] == answers[4] == b""
    assert b" 408 " in answers[2] and b" 101 " in answers[3]
    until(lambda: b.web.counts["web.slow_writer"] == 1 and b.of(Closed), b)
    assert not b.envelopes()


def test_a_session_takes_text_and_binary_and_is_not_compressed(nodes, capfd):
    b = nodes()
    peer = websocket(b, Sec_WebSocket_Extensions="permessage-deflate", Sec_WebSocket_Protocol="red")
    peer.sendall(frame(1, b'{"text":1}') + frame(2, b"\xff binary") + frame(1, b"") + frame(9, b"ping"))
    until(lambda: len(b.envelopes()) == 2, b)
    assert b.envelopes() == [b'{"text":1}', b"\xff binary"]
    assert peer.recv(6) == b"\x8a\x04ping"
    assert b.web.counts["web.shape"] == 1
    peer.close()
    until(lambda: b.of(Closed), b)
    assert capfd.readouterr() == ("", "")


def test_a_message_that_is_too_long_ends_the_session(nodes):
    b = nodes()
    peer = websocket(b)
    peer.sendall(struct.pack("!BBQ", 0x82, 0xFF, ENVELOPE_BYTES_MAX + 1) + bytes(4))
    assert hear(peer)[2:4] == struct.pack("!H", 1009)
    until(lambda: b.of(Closed), b)


def test_a_reader_that_is_slow_fills_its_own_queue_and_is_cut(nodes):
    b = nodes(limits=Limits(confirm_s=0.5, queue_bytes=4 * ENVELOPE_BYTES_MAX, stop_s=0.5))
    slow, quick = websocket(b), nodes(None)
    until(lambda: b.of(Opened), b)
    handle = b.of(Opened)[0].handle
    sent = 0
    while b.web.answer(handle, b"x" * ENVELOPE_BYTES_MAX):
        sent += 1
        assert sent < 1000
    quick.web.hold(b.ws)
    until(lambda: len(b.of(Opened)) == 2, b, quick)
    assert b.web.answer(b.of(Opened)[1].handle, b"not in the way")
    until(quick.envelopes, b, quick)
    until(lambda: Closed(handle, None) in b.news, b, quick)
    assert b.web.counts["web.slow_reader"] + b.web.counts["web.unconfirmed"] == 1
    assert not b.web.answer(handle, b"x")
    slow.close()


def test_a_peer_that_does_not_answer_pings_is_disconnected(nodes):
    b = nodes(limits=Limits(ping_s=0.1, stop_s=0.5))
    peer = websocket(b)
    until(lambda: b.of(Closed), b)
    assert peer.recv(2) == b"\x89\x00"
    peer.close()


def test_a_flood_of_pings_is_not_queued(nodes):
    b = nodes()
    peer = websocket(b)
    peer.settimeout(0.5)
    with contextlib.suppress(TimeoutError, ConnectionError):
        for _ in range(200):
            peer.sendall(frame(9, b"x" * 100) * 1000)
    [session] = b.web._web_thread._sessions()
    assert len(session._outbox) <= 5000
    peer.close()


def test_a_busy_owner_makes_senders_wait(nodes):
    """What has not been taken is bounded: POSTs get 503, and a session is not read any further."""
    b = nodes(accepting=False, limits=Limits(inbox_messages=4, unaccepted=1000, accept_s=60, stop_s=0.5))
    session = websocket(b)
    session.sendall(b"".join(frame(1, b"%d" % number) for number in range(100)))
    deadline = time.monotonic() + PATIENCE_S
    while b.web._web_thread._events._messages < 4 and time.monotonic() < deadline:
        wait()
    answer = hear(raw(b, request(body=b"x")))
    assert b" 503 " in answer and b"Retry-After" in answer
    assert len(b.web._events.pending) == 5  # opened, and four
    b.accepting = True
    until(lambda: len(b.envelopes()) == 100, b)
    assert b.envelopes() == [b"%d" % number for number in range(100)]
    peer = raw(b, request(body=b"x"))
    until(lambda: len(b.envelopes()) == 101, b)
    assert b" 202 " in hear(peer)
    session.close()


def test_a_session_with_much_unaccepted_input_is_not_read(nodes):
    b = nodes(accepting=False, limits=Limits(unaccepted=8, accept_s=60, stop_s=0.5))
    peer = websocket(b)
    peer.sendall(b"".join(frame(1, b"%d" % number) for number in range(20)) + frame(9, b"all"))
    until(lambda: len(b.envelopes()) == 8, b)
    other = raw(b, request(body=b"x"))
    until(lambda: b"x" in b.envelopes(), b)
    assert len(b.envelopes()) == 9
    b.accepting = True
    for item in b.of(Arrived):
        b.web.accept(item.handle)
    until(lambda: len(b.envelopes()) == 21, b)
    assert peer.recv(5) == b"\x8a\x03all"
    peer.close()
    assert b" 202 " in hear(other)


def open_connections(node) -> int:
    return len(node.web._web_thread._server._listening_socket.connections())


def ended(peer: socket.socket) -> bool:
    """Whether the other side has closed this connection."""
    peer.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionResetError):
        return peer.recv(1) == b""
    return True


def test_one_address_prefix_cannot_take_every_connection(nodes):
    b = nodes(limits=Limits(connections=6, connections_per_prefix=3, loopback_counts=True, stop_s=0.5))
    peers = [raw(b) for _ in range(3)]
    until(lambda: open_connections(b) == 3, b)
    assert b" 404 " in hear(raw(b, request(b"GET", Content_Type="")))
    assert ended(peers[0]) and b.web.counts["web.prefix_limit"] == 1
    until(lambda: open_connections(b) == 2, b)
    full = nodes(limits=Limits(connections=6, stop_s=0.5))
    crowd = [raw(full) for _ in range(6)]
    until(lambda: open_connections(full) == 6, full)
    assert b" 404 " in hear(raw(full, request(b"GET", Content_Type="")))
    assert ended(crowd[0]) and full.web.counts["web.connections"] == 1
    for peer in (*peers, *crowd):
        peer.close()


@pytest.mark.slow
@pytest.mark.parametrize("sources", [1, 16])
def test_unfinished_requests_keep_no_honest_post_out(nodes, sources):
    """512 that are never finished, from one address (a proxy that forwards connections) or sixteen; all come again."""
    b = nodes(limits=replace(QUICK, loopback_counts=True))
    part = request(body=b"x", Content_Length="1000")

    def open_one(number: int) -> socket.socket:
        peer = socket.create_connection(
            ("127.0.0.1", b.port), PATIENCE_S, source_address=(f"127.1.{number % sources}.1", 0)
        )
        peer.sendall(part)
        return peer

    crowd = [open_one(number) for number in range(512)]
    until(lambda: open_connections(b) == (32 if sources == 1 else 512), b)
    for number in range(20):
        crowd += [open_one(sources * number) for _ in range(8)]
        source = ("127.1.0.1" if sources == 1 else "127.2.0.1", 0)
        honest = socket.create_connection(("127.0.0.1", b.port), PATIENCE_S, source_address=source)
        honest.sendall(request(body=b"%d" % number))
        until(lambda number=number: len(b.envelopes()) == number + 1, b)
        assert b" 202 " in hear(honest)
        honest.close()
    assert open_connections(b) <= 512 and len(b.envelopes()) == 20
    for peer in crowd:
        peer.close()


def test_a_kept_session_is_not_evicted(nodes):
    b = nodes(limits=Limits(connections=3, kept_sessions=1, stop_s=0.5))
    kept, other = websocket(b), websocket(b)
    until(lambda: len(b.of(Opened)) == 2, b)
    for opened in b.of(Opened):
        b.web.keep(opened.handle)
    crowd = [raw(b) for _ in range(8)]
    assert ended(other), "one more than may be kept"
    until(lambda: open_connections(b) == 4, b)
    kept.sendall(frame(2, b"alive"))
    until(lambda: b.envelopes() == [b"alive"], b)
    for peer in (kept, *crowd):
        peer.close()


def test_pipelined_requests_are_answered_one_after_the_other(nodes):
    b = nodes()
    flow = b"".join(request(body=b"%d" % number, Connection="keep-alive") for number in range(50))
    peer = raw(b, flow + request(body=b"last"))
    until(lambda: len(b.envelopes()) == 51, b)
    assert b.envelopes() == [*(b"%d" % number for number in range(50)), b"last"]
    assert hear(peer).count(b"HTTP/1.1 202 ") == 51


def test_a_response_without_end_is_not_read(nodes, scripted):
    endless = response("200 OK", b"x" * 100_000, Content_Type=ENCRYPTED, Content_Length=str(10**9))
    large = response("200 OK", b"x" * (ENVELOPE_BYTES_MAX + 1), Content_Type=ENCRYPTED)
    other = response("200 OK", b"<html>", Content_Type="text/html")
    a = nodes(None)
    for number, answer in enumerate((endless, large, other)):
        a.web.send(scripted(answer).uri, b"x", ENCRYPTED, number, return_route=number > 0)
    until(lambda: len(a.of(Delivered)) == 3, a)
    assert not a.envelopes()


def test_unfinished_bodies_use_no_room_of_others(nodes):
    """Two houses that send a part and then wait could otherwise keep everybody out."""
    b = nodes(limits=replace(QUICK, inbox_bytes=100_000, reading_bytes=300_000))
    part = request(body=b"x" * 90_000, Content_Length="100000")
    peers = [raw(b, part) for _ in range(3)]
    until(lambda: b.web._web_thread._events._reading == 270_000, b)
    peer = raw(b, request(body=b"whole"))
    until(lambda: b.envelopes() == [b"whole"], b)
    assert b" 202 " in hear(peer)
    assert b" 503 " in hear(raw(b, part)), "but all of them have a limit too"
    for each in peers:
        each.close()
    until(lambda: not b.web._web_thread._events._reading, b)


def test_addresses_without_end_do_not_take_every_descriptor(nodes):
    """A member, or a mediator's recipient, may name as many addresses as it likes."""
    b = nodes()
    a = nodes(None, limits=replace(QUICK, sessions_out=4))
    lines = a.web._web_thread._dialer._targets
    for number in range(4):
        a.web.send(f"{b.ws}/{number}", b"x", ENCRYPTED, number)
    until(lambda: len(a.of(Delivered)) == 4, a, b)
    for number in range(4, 40):
        a.web.send(f"{b.ws}/{number}", b"x", ENCRYPTED, number)
        until(lambda: not a.web._sent, a, b)  # one after the other, each takes the place of one that is quiet
    assert len(a.of(Delivered)) == 40 and len(lines) <= 5
    silent = socket.create_server(("127.0.0.1", 0))
    for number in range(10):
        a.web.send(f"ws://127.0.0.1:{silent.getsockname()[1]}/{number}", b"x", ENCRYPTED, 100 + number)
    until(lambda: sum(failed.why == "busy" for failed in a.of(Failed)) == 6, a, b)
    silent.close()


def test_an_idle_session_ends(nodes):
    """Pongs alone are no reason to hold a place."""
    b = nodes(limits=replace(QUICK, quiet_s=0.1))
    peer = websocket(b)
    until(lambda: b.of(Closed), b)
    assert b.web.counts["web.quiet"] == 1
    peer.close()


def test_one_provider_prefix_cannot_take_every_connection(nodes):
    assert (
        provider_prefix(source_prefix("203.0.113.7"))
        == provider_prefix(source_prefix("203.0.113.250"))
        != provider_prefix(source_prefix("203.0.114.7"))
    )
    assert (
        provider_prefix(source_prefix("2001:db8:1:2::3"))
        == provider_prefix(source_prefix("2001:db8:1:ffff::"))
        != provider_prefix(source_prefix("2001:db8:2::"))
    )
    b = nodes(limits=replace(QUICK, connections_per_provider=2, loopback_counts=True))
    peers = [raw(b) for _ in range(2)]
    until(lambda: open_connections(b) == 2, b)
    assert b" 404 " in hear(raw(b, request(b"GET", Content_Type="")))
    assert ended(peers[0]) and b.web.counts["web.provider_limit"] == 1
    for each in peers:
        each.close()
