"""DIDComm over HTTP(S) and WebSocket: real sockets on loopback, peers that mean well and peers that do not."""

import base64
import contextlib
import datetime
import ipaddress
import json
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from zerochat.agent.address import BadAddress
from zerochat.agent.web import (
    Arrived,
    BadCertificate,
    CannotListenForWeb,
    Closed,
    Delivered,
    Failed,
    Limits,
    NoInvitationThere,
    Opened,
    Web,
    fetch_invitation,
)
from zerochat.agent.web.loop import BadProxy, leads_nowhere
from zerochat.agent.web.news import ENCRYPTED
from zerochat.agent.web.shortlink import ShortLinks
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX

PATIENCE_S = 10
QUICK = Limits(redial_s=0.05, redial_s_max=0.2, stop_s=0.5)


RUNG = threading.Event()
"""Some node has news."""


def wait() -> None:
    RUNG.wait(0.02)
    RUNG.clear()


class Node:
    """A Web with an owner that takes what there is whenever it is asked for something."""

    def __init__(self, listen: str | None = "127.0.0.1", *, accepting: bool = True, **settings) -> None:
        settings.setdefault("limits", QUICK)
        self.accepting = accepting
        self.news: list[object] = []
        self.web = Web(listen, wake=RUNG.set, **settings)
        self.uris = self.web.start()
        self.uri = self.uris[0] if self.uris else ""
        self.ws = self.uri.replace("http", "ws", 1)
        self.port = int(self.uri.rpartition(":")[2] or 0)

    def turn(self) -> None:
        for item in self.web.take():
            self.news.append(item)
            if isinstance(item, Arrived) and self.accepting:
                self.web.accept(item.handle)

    def of(self, kind: type) -> list:
        return [item for item in self.news if isinstance(item, kind)]

    def envelopes(self) -> list[bytes]:
        return [item.envelope for item in self.of(Arrived)]


def until(condition: Callable[[], object], *nodes: Node) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for node in nodes:
            node.turn()
        if condition():
            return
        assert time.monotonic() < deadline, [(node.news[-5:], node.web.counts) for node in nodes]
        wait()


@pytest.fixture
def nodes() -> Iterator[Callable[..., Node]]:
    made: list[Node] = []

    def make(*arguments, **settings) -> Node:
        made.append(Node(*arguments, **settings))
        return made[-1]

    before = set(threading.enumerate())
    yield make
    for node in made:
        begun = time.monotonic()
        node.web.stop()
        assert not node.web.alive and time.monotonic() - begun < 3
        assert node.web.counts["web.died"] == (node.web._engine.ready.exception() is not None)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "zerochat-web"]


USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> tuple[str, str, str]:
    """An authority of our own: its certificate, and one that it has signed for this machine, with its key."""
    folder = tmp_path_factory.mktemp("tls")
    now = datetime.datetime.now(datetime.UTC)

    def certificate(name: str, key, issuer: str, signer, *, authority: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        usage = dict.fromkeys(USAGES, False) | {"key_cert_sign": authority, "digital_signature": not authority}
        builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
        if not authority:
            names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(signer, hashes.SHA256())

    root, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    paths = [folder / name for name in ("ca.pem", "leaf.pem", "key.pem")]
    paths[0].write_bytes(certificate("root", root, "root", root, authority=True).public_bytes(pem))
    paths[1].write_bytes(certificate("leaf", leaf, "root", root, authority=False).public_bytes(pem))
    paths[2].write_bytes(leaf.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return str(paths[0]), str(paths[1]), str(paths[2])


def raw(node: Node, data: bytes = b"") -> socket.socket:
    """A connection by hand, with something said on it."""
    peer = socket.create_connection(("127.0.0.1", node.port), PATIENCE_S)
    peer.sendall(data)
    return peer


def hear(peer: socket.socket) -> bytes:
    """Everything until the other side ends it."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := peer.recv(65536):
            data += more
    peer.close()
    return data


def request(method: bytes = b"POST", target: bytes = b"/", body: bytes = b"", **headers: str) -> bytes:
    lines = {"Host": "x", "Content-Type": ENCRYPTED, "Content-Length": str(len(body)), "Connection": "close"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return method + b" " + target + b" HTTP/1.1\r\n" + head.encode() + b"\r\n" + body


class Scripted:
    """A server that answers each request with what the test has put in, and remembers what it heard."""

    def __init__(self, *answers: bytes) -> None:
        self.heard: list[bytes] = []
        self.requests: list[bytes] = []
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._socket.accept()
                with peer:
                    data = b""
                    while b"\r\n\r\n" not in data:
                        data += peer.recv(65536)
                    head, _, body = data.partition(b"\r\n\r\n")
                    length = re.search(rb"Content-Length: (\d+)", head)
                    while length and len(body) < int(length[1]):
                        body += peer.recv(65536)
                    self.requests.append(head)
                    self.heard.append(body)
                    if self._answers:
                        peer.sendall(self._answers.pop(0))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # or its thread would take one more
        self._socket.close()


def response(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = {"Content_Length": str(len(body)), "Connection": "close", **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    made: list[Scripted] = []

    def make(*answers: bytes) -> Scripted:
        made.append(Scripted(*answers))
        return made[-1]

    yield make
    for server in made:
        server.close()


# --- those who mean well --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_thousand_envelopes_arrive_in_order(nodes, scheme):
    a, b = nodes(None), nodes()
    uri = b.uri.replace("http", scheme, 1) + "/some/path?and=query"
    wanted = [b"%d" % number for number in range(1000)]
    for number, envelope in enumerate(wanted):
        assert a.web.send(uri, envelope, ENCRYPTED, number)
    until(lambda: len(a.of(Delivered)) == 1000, a, b)
    assert b.envelopes() == wanted
    assert [item.ticket for item in a.of(Delivered)] == list(range(1000)) and not a.of(Failed)
    assert {item.media_type for item in b.of(Arrived)} == {ENCRYPTED}
    assert not a.web._uris and not a.web._total and not a.web._sent


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_the_largest_envelope_fits_and_a_larger_one_is_not_sent(nodes, scheme):
    a, b = nodes(None), nodes()
    uri = b.uri.replace("http", scheme, 1)
    largest = b"\xff" * ENVELOPE_BYTES_MAX
    a.web.send(uri, largest, ENCRYPTED, 1)
    a.web.send(uri, largest + b"x", ENCRYPTED, 2)
    a.web.send(uri, b"", ENCRYPTED, 3)
    until(lambda: len(a.of(Failed)) == 2 and a.of(Delivered), a, b)
    assert b.envelopes() == [largest]
    assert {Delivered(1), Failed(2, "size"), Failed(3, "size")} <= set(a.news)


def test_https_and_wss_with_an_authority_that_is_trusted_and_with_one_that_is_not(nodes, tls):
    authority, certificate, key = tls
    server = nodes(tls=(certificate, key))
    assert server.uri.startswith("https://127.0.0.1:")
    friend, stranger = nodes(None, ca_file=authority), nodes(None)
    for node in (friend, stranger):
        node.web.send(server.uri, b"posted", ENCRYPTED, 1)
        node.web.send(server.ws, b"framed", ENCRYPTED, 2)
        node.web.send(server.uri.replace("127.0.0.1", "localhost"), b"named", ENCRYPTED, 3)
    until(lambda: len(friend.of(Delivered)) == 3 and len(stranger.of(Failed)) == 3, friend, stranger, server)
    assert sorted(server.envelopes()) == [b"framed", b"named", b"posted"]
    assert {item.why for item in stranger.of(Failed)} == {"tls"}


def test_old_tls_is_refused(nodes, tls):
    authority, certificate, key = tls
    server = nodes(tls=(certificate, key))
    context = ssl.create_default_context(cafile=authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with raw(server) as peer, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(peer, server_hostname="127.0.0.1")


def test_202_comes_only_when_the_owner_has_accepted(nodes):
    a, b = nodes(None), nodes(accepting=False)
    a.web.send(b.uri, b"one", ENCRYPTED, 1)
    a.web.send(b.ws, b"two", ENCRYPTED, 2)
    until(lambda: len(b.envelopes()) == 2, a, b)
    # A whole turn of both threads lies between: whatever would have answered by itself has done so.
    a.web.send(b.uri + "/other", b"three", ENCRYPTED, 3)
    until(lambda: len(b.envelopes()) == 3, a, b)
    assert not a.of(Delivered)
    for item in b.of(Arrived):
        b.web.accept(item.handle)
    until(lambda: len(a.of(Delivered)) == 3, a, b)


def test_what_the_owner_does_not_accept_in_time_has_failed(nodes):
    a = nodes(None)
    b = nodes(accepting=False, limits=Limits(accept_s=0.2, stop_s=0.5))
    a.web.send(b.uri, b"one", ENCRYPTED, 1)
    a.web.send(b.ws, b"two", ENCRYPTED, 2)
    until(lambda: len(a.of(Failed)) == 2 and b.of(Closed), a, b)
    assert set(a.of(Failed)) == {Failed(1, "status 503"), Failed(2, "lost")}
    assert b.web.counts["web.unaccepted"] == 2 and not b.web._partners
    for item in b.of(Arrived):
        b.web.accept(item.handle)  # too late, and no harm


def test_what_the_owner_refuses_has_failed(nodes):
    a, b = nodes(None), nodes(accepting=False)
    a.web.send(b.uri, b"one", ENCRYPTED, 1)
    a.web.send(b.ws, b"two", ENCRYPTED, 2)
    until(lambda: len(b.envelopes()) == 2, a, b)
    for item in b.of(Arrived):
        b.web.refuse(item.handle)
    until(lambda: len(a.of(Failed)) == 2, a, b)
    assert set(a.of(Failed)) == {Failed(1, "status 503"), Failed(2, "lost")}


def test_an_answer_goes_back_on_the_same_connection_if_it_was_asked_for(nodes):
    a, b = nodes(None), nodes(accepting=False)
    a.web.send(b.uri, b"one", ENCRYPTED, 1, return_route=True)
    a.web.send(b.ws, b"two", ENCRYPTED, 2, return_route=True)
    a.web.send(b.uri + "/deaf", b"three", ENCRYPTED, 3)
    until(lambda: len(b.envelopes()) == 3, a, b)
    for item in b.of(Arrived):
        assert b.web.answer(item.handle, b"re " + item.envelope, "application/ssi-agent-wire")
        b.web.accept(item.handle)
        assert b.web.answer(item.handle, b"again") is (item.way == "session")
    until(lambda: len(a.of(Delivered)) == 3 and len(a.envelopes()) == 3, a, b)
    assert sorted(a.envelopes()) == [b"again", b"re one", b"re two"]
    [reply] = [item for item in a.of(Arrived) if item.way == "reply"]
    assert reply == Arrived(0, b"re one", "application/ssi-agent-wire", "reply", b.uri)


def test_a_held_session_carries_both_ways_and_the_owner_hears_of_it(nodes):
    member, mediator = nodes(None), nodes()
    assert member.web.hold(mediator.ws)
    until(lambda: member.of(Opened) and mediator.of(Opened), member, mediator)
    assert member.of(Opened)[0].uri == mediator.ws and mediator.of(Opened)[0].uri is None
    [session] = mediator.of(Opened)
    for number in range(100):
        assert mediator.web.answer(session.handle, b"%d" % number, ticket=number)
    until(lambda: len(mediator.of(Delivered)) == 100, member, mediator)
    assert member.envelopes() == [b"%d" % number for number in range(100)]
    assert {item.uri for item in member.of(Arrived)} == {mediator.ws}
    member.web.send(mediator.ws, b"up", ENCRYPTED, 1)
    until(lambda: mediator.envelopes() == [b"up"] and member.of(Delivered), member, mediator)
    assert len(mediator.of(Opened)) == 1  # the held one was used
    member.web.release(mediator.ws)
    member.web.cut(member.of(Opened)[0].handle)
    until(lambda: member.of(Closed) and mediator.of(Closed), member, mediator)
    assert not mediator.web.answer(session.handle, b"too late")


def test_a_held_session_comes_back_after_the_server_was_killed(nodes):
    member, first = nodes(None), nodes()
    member.web.hold(first.ws)
    until(lambda: member.of(Opened), member, first)
    first.web.stop()
    until(lambda: member.of(Closed), member)
    member.web.send(first.ws, b"into the void", ENCRYPTED, 1)
    until(lambda: Failed(1, "unreachable") in member.news, member)
    second = nodes(f"127.0.0.1:{first.port}")
    until(lambda: len(member.of(Opened)) == 2, member, second)
    member.web.send(first.ws, b"back", ENCRYPTED, 2)
    until(lambda: Delivered(2) in member.news, member, second)
    assert second.envelopes() == [b"back"]


def test_a_session_for_one_envelope_goes_when_nobody_uses_it(nodes):
    a, b = nodes(None, limits=Limits(linger_s=0.1, request_s=0.3, stop_s=0.5)), nodes()
    a.web.send(b.ws, b"one", ENCRYPTED, 1)
    until(lambda: a.of(Closed) and b.of(Closed), a, b)
    assert a.of(Delivered) and not b.web._partners
    a.web.hold(b.ws)
    until(lambda: len(a.of(Opened)) == 2, a, b)
    a.web.send(b.uri + "/slow", b"two", ENCRYPTED, 2)
    b.accepting = False
    until(lambda: Failed(2, "timeout") in a.news, a, b)
    assert len(a.of(Closed)) == 1  # longer than `linger_s` and `request_s`, and still there


def test_nothing_overtakes_what_has_failed(nodes, scripted):
    """A server that is busy or not there fails all that waits for it; one that dislikes one envelope does not."""
    server = scripted(response("200 OK"), response("404 Not Found"), response("503 Busy"), response("200 OK"))
    a, gate = nodes(None), threading.Event()
    a.web._engine.do(gate.wait, PATIENCE_S)
    for number in range(6):
        a.web.send(server.uri, b"%d" % number, ENCRYPTED, number)
    gate.set()
    until(lambda: len(a.news) == 6, a)
    failed = [(3, "status 503"), (4, "status 503"), (5, "status 503")]
    assert a.news == [Delivered(0), Failed(1, "status 404"), *(Failed(*item) for item in [(2, "status 503"), *failed])]
    assert server.heard == [b"0", b"1", b"2"]
    a.web.send(server.uri, b"again", ENCRYPTED, 7)
    until(lambda: Delivered(7) in a.news, a)


def test_a_kept_connection_that_the_server_has_closed_is_replaced_without_a_word(nodes):
    a, b = nodes(None), nodes(limits=Limits(idle_s=0.05, stop_s=0.5))
    for number in range(5):
        a.web.send(b.uri, b"%d" % number, ENCRYPTED, number)
        until(lambda number=number: len(a.of(Delivered)) == number + 1, a, b)
        deadline = time.monotonic() + PATIENCE_S
        while b.web._engine._server._doorstep.guests() and time.monotonic() < deadline:
            wait()
    assert len(b.envelopes()) == 5 and not a.of(Failed)


def test_only_307_is_followed_and_never_far(nodes, scripted):
    goal = scripted(*[response("202 Accepted")] * 3)
    a = nodes(None)
    cases = {
        "one step": (response("307 T", Location=goal.uri + "/x"), None),
        "another": (response("302 F", Location=goal.uri), "status 302"),
        "nowhere": (response("307 T"), "redirect"),
        "a file": (response("307 T", Location="file:///etc/passwd"), "redirect"),
        "a name and password": (response("307 T", Location=goal.uri.replace("//", "//me:pw@")), "redirect"),
    }
    for number, (answer, _) in enumerate(cases.values()):
        a.web.send(scripted(answer).uri, b"body", ENCRYPTED, number)
    loop = scripted()
    loop._answers = [response("307 T", Location=loop.uri)] * 10
    a.web.send(loop.uri, b"round", ENCRYPTED, 99)
    until(lambda: len(a.news) == len(cases) + 1, a)
    wanted = {Delivered(n) if why is None else Failed(n, why) for n, (_, why) in enumerate(cases.values())}
    assert set(a.news) == {*wanted, Failed(99, "redirect")}
    assert goal.heard == [b"body"] and len(loop.heard) == 4


def test_https_is_not_redirected_to_http_nor_a_session_to_anywhere(nodes, tls, scripted):
    from yarl import URL

    from zerochat.agent.web.caller import redirected

    assert redirected(URL("https://a.example/x"), "http://a.example/") is None
    assert redirected(URL("https://a.example/x"), "/y") == URL("https://a.example/y")
    assert redirected(URL("http://a.example/"), "https://b.example/") == URL("https://b.example/")
    goal = nodes()
    a = nodes(None)
    a.web.send(scripted(response("302 F", Location=goal.uri)).uri.replace("http", "ws"), b"x", ENCRYPTED, 1)
    until(lambda: Failed(1, "redirect") in a.news, a, goal)
    assert not goal.of(Opened)


def test_our_requests_do_not_say_whose_they_are(nodes, scripted):
    server = scripted(response("202 Accepted", Set_Cookie="a=b"), response("202 Accepted"))
    a = nodes(None)
    a.web.send(server.uri, b"x", "application/ssi-agent-wire", 1)
    a.web.send(server.uri, b"y", ENCRYPTED, 2)
    until(lambda: len(a.of(Delivered)) == 2, a)
    for head in server.requests:
        assert not re.search(rb"(?i)user-agent|aiohttp|python|zerochat|cookie|accept-encoding", head), head
    assert b"Content-Type: application/ssi-agent-wire" in server.requests[0]


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://127.0.0.1/",
        "http://",
        "http://me@127.0.0.1/",
        "ws:///x",
        "http://127.0.0.1:99999/",
        "http://x/" + "y" * 3000,
    ],
)
def test_a_uri_that_is_none_fails(nodes, uri):
    a = nodes(None)
    assert a.web.send(uri, b"x", ENCRYPTED, 5)
    until(lambda: a.news, a)
    assert a.news == [Failed(5, "uri")]


@pytest.mark.parametrize(
    "uri", ["http://169.254.169.254/", "ws://[fe80::1]/", "http://0.0.0.0:1/", "http://224.0.0.1/"]
)
def test_addresses_that_stand_for_nobody_are_not_dialled(nodes, uri):
    a = nodes(None)
    a.web.send(uri, b"x", ENCRYPTED, 5)
    until(lambda: a.news, a)
    assert a.news == [Failed(5, "unreachable")]
    assert not leads_nowhere("192.168.1.1") and not leads_nowhere("::1") and leads_nowhere("::ffff:169.254.0.1")


def test_send_says_at_once_when_there_is_no_room(nodes):
    b = nodes(accepting=False)
    a = nodes(None, limits=Limits(queue_messages=3, queue_bytes=1000, outbox_bytes=1500, stop_s=0.5))
    assert [a.web.send(b.uri, b"x", ENCRYPTED, n) for n in range(4)] == [True, True, True, False]
    assert [a.web.send(b.uri + "/b", b"x" * 600, ENCRYPTED, n) for n in range(2)] == [True, False]
    assert [a.web.send(b.uri + "/c", b"x" * 900, ENCRYPTED, 9)] == [False]
    b.accepting = True
    until(lambda: len(b.envelopes()) == 4 or b.web.take(), a, b)
    for item in b.of(Arrived):
        b.web.accept(item.handle)
    until(lambda: len(a.of(Delivered)) == 4, a, b)
    assert a.web.send(b.uri + "/c", b"x" * 900, ENCRYPTED, 9)


def test_names_are_looked_up_aside_and_a_name_server_that_is_silent_keeps_nobody(nodes, monkeypatch):
    silence = threading.Event()

    def never(*arguments):
        assert threading.current_thread().daemon
        silence.wait(PATIENCE_S)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    a, b = nodes(None), nodes()
    a.web.send("http://nowhere.example/", b"x", ENCRYPTED, 1)
    a.web.send(b.uri, b"x", ENCRYPTED, 2)
    until(lambda: Delivered(2) in a.news, a, b)
    assert not a.of(Failed)
    c = nodes(None)
    c.web.send("wss://nowhere.example/", b"x", ENCRYPTED, 1)
    c.web.stop()
    until(lambda: Failed(1, "stopped") in c.news, c)
    silence.set()
    until(lambda: Failed(1, "name") in a.news, a)


class Proxy:
    """A SOCKS5 proxy that connects everything to one place and remembers what it was asked for."""

    def __init__(self, port: int, reply: int = 0) -> None:
        self.asked: list[tuple[int, bytes]] = []
        self._port, self._reply = port, reply
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._socket.accept()[0],), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            stream = peer.makefile("rb")
            assert stream.read(3) == b"\5\1\0"
            peer.sendall(b"\5\0")
            kind = stream.read(4)[3]
            host = stream.read({1: 4, 4: 16}.get(kind) or stream.read(1)[0])
            stream.read(2)
            self.asked.append((kind, host))
            peer.sendall(bytes([5, self._reply, 0, 1]) + bytes(6))
            if self._reply:
                return
            with socket.socket() as goal:
                goal.connect(("127.0.0.1", self._port))

                def back() -> None:
                    with contextlib.suppress(OSError):
                        while data := goal.recv(65536):
                            peer.sendall(data)
                        peer.shutdown(socket.SHUT_WR)

                threading.Thread(target=back, daemon=True).start()
                while data := stream.read1(65536):
                    goal.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # or its thread would take one more
        self._socket.close()


def test_with_a_proxy_everything_goes_through_it_names_too(nodes, tls, monkeypatch):
    authority, certificate, key = tls
    server = nodes(tls=(certificate, key))
    proxy = Proxy(server.port)

    def never(*arguments):
        raise AssertionError("a name was looked up around the proxy")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    a = nodes(None, socks=proxy.address, ca_file=authority)
    a.web.send("https://localhost/x", b"one", ENCRYPTED, 1)
    a.web.send("wss://localhost:1234", b"two", ENCRYPTED, 2)
    a.web.send(server.uri, b"three", ENCRYPTED, 3)
    a.web.send("https://[::1]:5/", b"never", ENCRYPTED, 4)  # another name than the certificate's
    until(lambda: len(a.news) == 5, a, server)
    assert {Delivered(1), Delivered(2), Delivered(3), Failed(4, "tls")} <= set(a.news)
    wanted = [(1, bytes([127, 0, 0, 1])), (3, b"localhost"), (3, b"localhost"), (4, bytes(15) + b"\1")]
    assert sorted(proxy.asked) == wanted
    proxy.close()


def test_a_proxy_that_refuses_or_is_not_there_is_never_gone_round(nodes):
    server, refusing = nodes(), Proxy(0, reply=5)
    gone = Proxy(0)
    gone.close()
    for proxy in (refusing, gone):
        a = nodes(None, socks=proxy.address)
        a.web.send(server.uri, b"x", ENCRYPTED, 1)
        a.web.send(server.ws, b"x", ENCRYPTED, 2)
        until(lambda a=a: len(a.of(Failed)) == 2, a, server)
        assert {item.why for item in a.of(Failed)} == {"unreachable"}
    refusing.close()
    assert not server.envelopes() and not server.of(Opened)
    with pytest.raises(BadProxy):
        Web(None, socks="localhost:9050", wake=lambda: None)


# --- those who do not -----------------------------------------------------------------------------------------------


NO_ENVELOPE = {
    "no HTTP": (b"hello\r\n\r\n", 400),
    "something after it": (b"GET / HTTP/1.1\r\n\r\n\0\0\0", 400),
    "GET": (request(b"GET", Content_Type=""), 404),
    "GET a file": (request(b"GET", b"/etc/passwd", Content_Type=""), 404),
    "GET no link": (request(b"GET", b"/?_oobid=nobody", Content_Type=""), 404),
    "GET two links": (request(b"GET", b"/?_oobid=a&_oobid=b", Content_Type=""), 404),
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
    "no type": (request(body=b"x", Content_Type=""), 415),
    "gzip": (request(body=b"x", Content_Encoding="gzip"), 415),
    "nothing": (request(), 400),
    "too much": (request(Content_Length=str(ENVELOPE_BYTES_MAX + 1)), 413),
    "a length below nothing": (request(Content_Length="-1"), 400),
    "two lengths": (request(Content_Length="1, 2", body=b"xx"), 400),
    "a length and chunks": (request(body=b"0\r\n\r\n", Transfer_Encoding="chunked"), 400),
    "no chunks": (request(body=b"zz\r\n", Content_Length="", Transfer_Encoding="chunked"), 400),
    "a long header": (request(X="a" * 10_000), 400),
    "many headers": (request(**{f"X{number}": "a" for number in range(100)}), 400),
    "a long line": (b"POST /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n", 400),
}


@pytest.mark.parametrize(("sent", "status"), NO_ENVELOPE.values(), ids=NO_ENVELOPE)
def test_what_is_refused_is_refused_in_a_word(nodes, sent, status):
    b = nodes()
    answer = hear(raw(b, sent))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.") and head.split()[1] == b"%d" % status, answer
    assert not re.search(rb"(?i)aiohttp|python|zerochat|server:", answer)
    assert not body or body.startswith(b"HTTP/1."), answer  # (what follows is the answer to what was sent after it)
    b.turn()
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
    chunked = {"Content_Length": "", "Transfer_Encoding": "chunked", "Expect": "100-continue"}
    peer = raw(b, request(body=chunk * 16 + b"0\r\n\r\n", **chunked))
    until(b.envelopes, b)
    assert len(b.envelopes()[0]) == ENVELOPE_BYTES_MAX
    assert hear(peer).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 ")
    assert b"HTTP/1.1 413 " in hear(raw(b, request(body=chunk * 17, **chunked)))
    assert b.web._engine._inbox._bytes == 0


def test_whoever_is_slow_is_not_waited_for(nodes, tls):
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


UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": base64.b64encode(bytes(16)).decode(),
}


def frame(opcode: int, payload: bytes) -> bytes:
    """A frame as a client sends it; masked with zeros."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else struct.pack("!BQ", 0xFF, len(payload))
    return bytes([0x80 | opcode]) + size + bytes(4) + payload


def websocket(node: Node, **headers: str) -> socket.socket:
    peer = raw(node, request(b"GET", Content_Type="", **UPGRADE, **headers))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.recv(1)
    assert b" 101 " in head and not re.search(rb"(?i)aiohttp|server:|extensions", head), head
    return peer


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


def test_a_peer_that_does_not_answer_pings_is_gone(nodes):
    b = nodes(limits=Limits(ping_s=0.1, stop_s=0.5))
    peer = websocket(b)
    until(lambda: b.of(Closed), b)
    assert peer.recv(2) == b"\x89\x00"
    peer.close()


def test_a_flood_of_pings_is_not_kept(nodes):
    b = nodes()
    peer = websocket(b)
    peer.settimeout(0.5)
    with contextlib.suppress(TimeoutError, ConnectionError):
        for _ in range(200):
            peer.sendall(frame(9, b"x" * 100) * 1000)
    [session] = b.web._engine._sessions()
    assert len(session._outbox) <= 5000
    peer.close()


def test_an_owner_that_is_busy_makes_senders_wait(nodes):
    """What has not been taken is bounded: POSTs get 503, and a session is not read any further."""
    b = nodes(accepting=False, limits=Limits(inbox_messages=4, unaccepted=1000, accept_s=60, stop_s=0.5))
    session = websocket(b)
    session.sendall(b"".join(frame(1, b"%d" % number) for number in range(100)))
    deadline = time.monotonic() + PATIENCE_S
    while b.web._engine._inbox._messages < 4 and time.monotonic() < deadline:
        wait()
    answer = hear(raw(b, request(body=b"x")))
    assert b" 503 " in answer and b"Retry-After" in answer
    assert len(b.web._inbox.notes) == 5  # opened, and four
    b.accepting = True
    until(lambda: len(b.envelopes()) == 100, b)
    assert b.envelopes() == [b"%d" % number for number in range(100)]
    peer = raw(b, request(body=b"x"))
    until(lambda: len(b.envelopes()) == 101, b)
    assert b" 202 " in hear(peer)
    session.close()


def test_a_session_is_not_read_while_much_of_it_is_not_accepted(nodes):
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


def test_one_house_cannot_take_every_place(nodes):
    b = nodes(limits=Limits(connections=6, connections_per_house=3, loopback_counts=True, stop_s=0.5))
    peers = [raw(b) for _ in range(3)]
    assert hear(raw(b)) == b""
    peers[0].close()
    until(lambda: len(b.web._engine._server._doorstep.guests()) == 2, b)
    assert b" 404 " in hear(raw(b, request(b"GET", Content_Type="")))
    assert b.web.counts["web.house"] == 1
    full = nodes(limits=Limits(connections=6, stop_s=0.5))
    crowd = [raw(full) for _ in range(6)]
    assert hear(raw(full)) == b"" and full.web.counts["web.connections"] == 1
    for peer in (*peers, *crowd):
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


# --- short links ----------------------------------------------------------------------------------------------------

INVITATION = {"type": "https://didcomm.org/out-of-band/2.0/invitation", "id": "1", "body": {}}
OOB = base64.urlsafe_b64encode(json.dumps(INVITATION).encode()).decode().rstrip("=")
LONG = f"https://zerochat.example/?_oob={OOB}"


def test_a_short_link_leads_to_the_invitation_until_it_is_used_up(nodes):
    b = nodes()
    b.web.publish_invitation("one", LONG, 60, uses=2)
    b.web.publish_invitation("many", LONG, 60)
    b.web.publish_invitation("late", LONG, 0)
    ask = request(b"GET", b"/i/x?_oobid=one", Content_Type="")
    first = hear(raw(b, ask))
    assert first.startswith(b"HTTP/1.1 302 ") and f"Location: {LONG}\r\n".encode() in first
    assert b"no-store" in first and b"no-referrer" in first
    second = hear(raw(b, request(b"GET", b"/?_oobid=one", Content_Type="", Accept="application/json")))
    assert second.startswith(b"HTTP/1.1 200 ") and json.loads(second.partition(b"\r\n\r\n")[2]) == INVITATION
    gone = hear(raw(b, ask))
    never = hear(raw(b, request(b"GET", b"/?_oobid=never", Content_Type="")))
    late = hear(raw(b, request(b"GET", b"/?_oobid=late", Content_Type="")))
    undated = {re.sub(rb"Date: [^\r]*\r\n", b"", answer) for answer in (gone, never, late)}
    assert len(undated) == 1 and b" 404 " in undated.pop()
    b.web.withdraw("many")
    assert b" 404 " in hear(raw(b, request(b"GET", b"/?_oobid=many", Content_Type="")))


def test_short_links_are_not_kept_for_ever():
    links = ShortLinks()
    for number in range(1000):
        links.publish(str(number), LONG, 10, None)
    assert links.find("0", 1) is None and links.find("999", 1).url == LONG and len(links._links) == 256
    assert links.find("999", 10) is None and links.find("999", 1) is None


def test_fetching_an_invitation(nodes, scripted, tls):
    authority, certificate, key = tls
    b = nodes(tls=(certificate, key))
    b.web.publish_invitation("one", LONG, 60)
    short = f"{b.uri}/?_oobid=one"
    assert json.loads(fetch_invitation(short, ca_file=authority).result(PATIENCE_S)) == INVITATION
    assert fetch_invitation(LONG).result(0) == LONG
    there = scripted(response("302 F", Location=LONG))
    there = scripted(response("301 M", Location=there.uri))
    assert fetch_invitation(there.uri).result(PATIENCE_S) == LONG
    with pytest.raises(NoInvitationThere, match="not trusted"):
        fetch_invitation(short).result(PATIENCE_S)


NO_INVITATION = {
    "gone": (response("404 N"), "404"),
    "a page": (response("200 OK", b"<html>"), "is no invitation"),
    "no text": (response("200 OK", b"{\xff"), "is no invitation"),
    "long": (response("200 OK", b"{" + b" " * 70_000), "too long"),
    "endless": (response("200 OK", b"{" + b" " * 70_000, Content_Length=str(10**9)), "too long"),
    "a file": (response("302 F", Location="file:///etc/passwd"), "less secure"),
    "nobody there": (None, "nobody answers"),
    "no HTTP": (b"nonsense", "lost"),
}


@pytest.mark.parametrize(("answer", "why"), NO_INVITATION.values(), ids=NO_INVITATION)
def test_what_is_no_invitation_is_refused(scripted, answer, why):
    server = scripted(answer or b"")
    if answer is None:
        server.close()
    with pytest.raises(NoInvitationThere, match=why):
        fetch_invitation(server.uri).result(PATIENCE_S)


def test_a_short_link_that_leads_in_circles(scripted):
    server = scripted()
    server._answers = [response("302 F", Location="/again")] * 20
    with pytest.raises(NoInvitationThere, match="one place to the next"):
        fetch_invitation(server.uri).result(PATIENCE_S)
    assert len(server.requests) == 4
    with pytest.raises(NoInvitationThere, match="no http"):
        fetch_invitation("ftp://a.example/").result(PATIENCE_S)


# --- beginning and end ----------------------------------------------------------------------------------------------


def test_what_cannot_start_says_why(nodes, tmp_path, tls):
    b = nodes()
    with pytest.raises(CannotListenForWeb, match=f"127.0.0.1:{b.port}: address already in use"):
        nodes(f"127.0.0.1:{b.port}")
    with pytest.raises(BadAddress, match="one port"):
        Web("127.0.0.1:1:2", wake=lambda: None)
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    with pytest.raises(BadCertificate, match=r"broken\.pem"):
        Web(None, tls=(str(broken), str(broken)), wake=lambda: None)
    with pytest.raises(BadCertificate, match="no such file"):
        Web(None, ca_file=str(tmp_path / "nowhere"), wake=lambda: None)


def test_both_kinds_of_addresses(nodes):
    b = nodes("[::]")
    assert b.uri == f"http://[::]:{b.port}"
    a = nodes(None)
    a.web.send(f"http://127.0.0.1:{b.port}", b"four", ENCRYPTED, 1)
    a.web.send(f"ws://[::1]:{b.port}", b"six", ENCRYPTED, 2)
    until(lambda: len(a.of(Delivered)) == 2, a, b)


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_an_end_in_the_middle_of_everything_leaves_nothing(tls):
    _, certificate, key = tls
    before = len(list(Path("/proc/self/fd").iterdir())), set(threading.enumerate())
    b = Node(accepting=False)
    secure = Node(tls=(certificate, key), accepting=False)
    a = Node(None, ca_file=tls[0])
    peers = [raw(b), raw(b, b"POST / HT"), raw(b, request(body=b"x", Content_Length="9")), websocket(b), raw(secure)]
    for node in (b, secure):
        a.web.hold(node.ws)
        for number in range(10):
            a.web.send(node.uri, b"x" * 100_000, ENCRYPTED, number)
            a.web.send(node.ws, b"x" * 100_000, ENCRYPTED, number)
    until(lambda: len(b.envelopes()) >= 10 and len(secure.envelopes()) >= 10, a, b, secure)
    b.web.answer(b.of(Opened)[0].handle, b"x" * ENVELOPE_BYTES_MAX)
    for node in (b, secure, a):
        begun = time.monotonic()
        node.web.stop()
        assert not node.web.alive and time.monotonic() - begun < 3
    a.turn()
    assert len(a.of(Delivered)) + len(a.of(Failed)) == 40 and not a.web._sent
    assert not a.web.send(b.uri, b"x", ENCRYPTED, 1) or a.web.take() == [Failed(1, "stopped")]
    for peer in peers:
        peer.close()
    assert (len(list(Path("/proc/self/fd").iterdir())), set(threading.enumerate())) == before


def test_a_thread_that_dies_is_noticed(nodes):
    a, b = nodes(None), nodes(accepting=False)
    a.web.send(b.uri, b"x", ENCRYPTED, 1)
    until(b.envelopes, a, b)

    a.web._engine.do(a.web._engine._loop.stop)
    until(lambda: not a.web.alive, a)
    until(lambda: Failed(1, "stopped") in a.news, a)


def test_asking_for_nothing_loads_nothing():
    code = "import sys, zerochat.agent.web; print(sorted({'aiohttp', 'yarl'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
