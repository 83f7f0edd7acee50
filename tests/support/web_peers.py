"""Shared by tests of the web transport: owners of a Web, and hand-made peers."""

import base64
import contextlib
import datetime
import ipaddress
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from zerochat.agent.network.web import Arrived, Limits, Web
from zerochat.agent.network.web.events import ENCRYPTED

PATIENCE_S = 60
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
        self.accepting, self.dies = accepting, False
        self.news: list[object] = []
        self.web = Web(listen, wake=RUNG.set, **settings)
        self.uris = self.web.start()
        self.uri = self.uris[0] if self.uris else ""
        self.ws = self.uri.replace("http", "ws", 1)
        self.port = int(self.uri.rpartition(":")[2] or 0)

    def tx(self) -> None:
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
            node.tx()
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
    while OPEN:
        OPEN.pop().close()
    for node in made:
        begun = time.monotonic()
        node.web.stop()
        assert not node.web.alive and time.monotonic() - begun < 3
        assert node.web.counts["web.died"] == node.dies
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


OPEN: list[socket.socket] = []
"""Those that the test may have left open."""


def raw(node: Node, data: bytes = b"") -> socket.socket:
    """A connection by hand, with something said on it."""
    peer = socket.create_connection(("127.0.0.1", node.port), PATIENCE_S)
    OPEN.append(peer)
    if data:
        peer.sendall(data)
    return peer


def turned_away(node: Node) -> bool:
    """Whether a connection ends before anything was said on it."""
    try:
        return hear(raw(node)) == b""
    except ConnectionError:
        return True


def hear(peer: socket.socket) -> bytes:
    """Everything until the other side ends it."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := peer.recv(65536):
            data += more
    peer.close()
    return data


def request(method: bytes = b"POST", target: bytes = b"/", body: bytes = b"", **headers) -> bytes:
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
                    while b"\r\n\r\n" not in data and (piece := peer.recv(65536)):
                        data += piece
                    head, _, body = data.partition(b"\r\n\r\n")
                    length = re.search(rb"Content-Length: (\d+)", head)
                    while length and len(body) < int(length[1]) and (piece := peer.recv(65536)):
                        body += piece
                    self.requests.append(head)
                    self.heard.append(body)
                    if self._answers:
                        peer.sendall(self._answers.pop(0))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # or its thread would take one more
        self._socket.close()


def response(status: str, body: bytes = b"", **headers) -> bytes:
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
            if stream.read(3) != b"\5\1\0":
                return  # it has gone again, or speaks otherwise and then misses its answer
            peer.sendall(b"\5\0")
            request = stream.read(4)
            if len(request) < 4:
                return
            kind = request[3]
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


UPGRADE: dict[str, Any] = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": base64.b64encode(bytes(16)).decode(),
}


def frame(opcode: int, payload: bytes) -> bytes:
    """A frame as a client sends it; masked with zeros."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else struct.pack("!BQ", 0xFF, len(payload))
    return bytes([0x80 | opcode]) + size + bytes(4) + payload


def websocket(node: Node, **headers) -> socket.socket:
    peer = raw(node, request(b"GET", Content_Type="", **UPGRADE, **headers))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.recv(1)
    assert b" 101 " in head and not re.search(rb"(?i)aiohttp|server:|extensions", head), head
    return peer
