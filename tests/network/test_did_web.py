"""Reading the document of a did:web over HTTPS, from servers that are not trusted."""

import contextlib
import socket
import ssl
import threading

import pytest

from tests.support import web_peers
from tests.support.web_peers import PATIENCE_S, response
from zerochat.agent.network.web.did_web import DidNotRead, fetch_document, url_of
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.did.pinned import DOCUMENT_BYTES_MAX

tls = web_peers.tls


@pytest.mark.parametrize(
    ("did", "url"),
    [
        ("did:web:example.org", "https://example.org/.well-known/did.json"),
        ("did:web:w3c-ccg.github.io:user:alice", "https://w3c-ccg.github.io/user/alice/did.json"),
        ("did:web:example.org%3A8443:a", "https://example.org:8443/a/did.json"),
    ],
)
def test_the_url_is_that_of_the_method(did, url):
    assert url_of(did) == url


@pytest.mark.parametrize(
    "did",
    [
        "did:web:",
        "did:web:127.0.0.1",
        "did:web:2130706433",
        "did:web:0x7f.1",
        "did:web:[::1]",
        "did:web:user@example.org",
        "did:web:example.org:..:x",
        "did:web:example.org/x",
        "did:web:example.org%2Fx",
        "did:web:example.org%3A1%3A2",
        "did:web:example.org:" + "a" * 600,
        "did:key:z6Mk",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(did):
    with pytest.raises(DidNotRead):
        url_of(did)


class Served:
    """An HTTPS server of this machine that gives one answer to all."""

    def __init__(self, certificate, key, answer):
        self.answer, self.asked = answer, []
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
        self.did = f"did:web:localhost%3A{self.socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                peer = self.socket.accept()[0]
            except ssl.SSLError:
                continue
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                self.asked.append(peer.recv(4096))
                peer.sendall(self.answer)


@pytest.fixture
def served(tls):
    _, certificate, key = tls
    made = []

    def serve(answer):
        made.append(Served(certificate, key, answer))
        return made[-1]

    yield serve
    for one in made:
        one.socket.close()


def read(one, tls, nearest=AddressKind.LOOPBACK):
    return fetch_document(one.did, ca_file=tls[0], nearest=nearest).result(PATIENCE_S)


def test_the_document_is_read_over_https(served, tls):
    one = served(response("200 OK", b'{"id":"x"}'))
    assert read(one, tls) == b'{"id":"x"}'
    (asked,) = one.asked
    assert asked.startswith(b"GET /.well-known/did.json HTTP/1.1\r\n") and b"User-Agent" not in asked


def test_near_addresses_are_not_dialled_unless_the_settings_permit(served, tls):
    one = served(response("200 OK", b"{}"))
    for nearest in (AddressKind.PUBLIC, AddressKind.PRIVATE):
        with pytest.raises(DidNotRead, match=r"network\.near_mediators"):
            read(one, tls, nearest)
    assert one.asked == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (response("302 F", Location="https://example.org/did.json"), "status 302"),
        (response("404 N"), "status 404"),
        (response("200 OK", b"x" * (DOCUMENT_BYTES_MAX + 1)), "too long"),
        (b"nonsense", "lost"),
    ],
)
def test_other_answers_are_refused(served, tls, answer, why):
    with pytest.raises(DidNotRead, match=why):
        read(served(answer), tls)


def test_a_certificate_that_is_not_trusted_is_refused(served):
    with pytest.raises(DidNotRead, match="not trusted"):
        fetch_document(served(b"").did, nearest=AddressKind.LOOPBACK).result(PATIENCE_S)
