"""A hostile or failing endpoint over real HTTP: each message arrives exactly once, or is told as given up."""

import contextlib
import http.client
import socket
import ssl
import struct
import threading
from functools import partial
from urllib.parse import urlsplit

import pytest

from tests.support import web_peers
from tests.support.agents import until
from zerochat.agent.api.client import connect
from zerochat.agent.network.web import Limits
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.group.backoff import Backoff
from zerochat.group.external import outbox
from zerochat.rpc import MessageSettledNotification

tls = web_peers.tls

BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REJECTED = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REQUEST_S = 2.0
ANSWERS = {"busy": BUSY, "error": ERROR, "rejected": REJECTED}


class Front:
    """A reverse proxy before an agent, with faults. `served` counts the requests by fault."""

    def __init__(self, certificate=None):
        self.goal = self.fault = ""
        self.served = dict.fromkeys(("", "busy", "error", "rejected", "reset", "lost answer", "slow", "tls"), 0)
        self.ended = threading.Event()
        self._context = None
        if certificate is not None:
            self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._context.load_cert_chain(*certificate)
        self._socket = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if certificate is None else "https"
        self.uri = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        with peer, contextlib.suppress(OSError, http.client.HTTPException):
            if self.fault == "tls":
                self.served["tls"] += 1
                peer.sendall(b"this is no handshake")
                return
            stream = peer if self._context is None else self._context.wrap_socket(peer, server_side=True)
            with stream:
                self._answer(stream)

    def _answer(self, stream):
        fault = self.fault
        head, body = _request(stream)
        self.served[fault] += 1
        if fault in ANSWERS:
            stream.sendall(ANSWERS[fault])
            return
        if fault == "reset":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        if fault == "slow":
            self.ended.wait(2 * REQUEST_S)
        answer = self._forward(head, body)
        if fault == "lost answer":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            stream.sendall(answer)

    def _forward(self, head, body):
        goal = http.client.HTTPConnection(urlsplit(self.goal).netloc, timeout=20)
        goal.request("POST", "/", body, {"Content-Type": head["content-type"]})
        with goal.getresponse() as response:
            answer = response.read()
            kind = response.headers.get("Content-Type", "text/plain")
        goal.close()
        return web_peers.response(f"{response.status} x", answer, Content_Type=kind)

    def close(self):
        self.ended.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # or its thread would take one more
        self._socket.close()


def _request(stream):
    file = stream.makefile("rb")
    file.readline()
    head = http.client.parse_headers(file)
    return head, file.read(int(head["content-length"]))


class Person:
    def __init__(self, folder, name, config):
        self.places = profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(self.places, name, None)
        self.places.config.parent.mkdir(parents=True, exist_ok=True)
        self.places.config.write_text("[network]\n" + config)
        self.thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1")
        self.thread.start()
        self.client = connect(self.places, "test")
        self.client.subscribe()

    def stop(self):
        self.client.close()
        self.thread.stop()

    def connection(self):
        (one,) = self.client.call("list_connections")
        return one

    def messages(self):
        return self.client.call("list_connection_messages", peer=self.connection().id)


@pytest.fixture
def pair(tmp_path, tls, monkeypatch, request):
    """Alice behind a front, connected with Bob, who only goes out."""
    monkeypatch.setattr(outbox, "RETRY", Backoff(50, 400))
    monkeypatch.setattr("zerochat.agent.network.web.web.Limits", partial(Limits, request_s=REQUEST_S))
    authority, leaf, key = tls
    front = Front((leaf, key) if request.param == "https" else None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    alice = Person(tmp_path, "alice", f'web = "{address}"\nweb_public = "{front.uri}"\n')
    bob = Person(tmp_path, "bob", f'web_authorities = "{authority}"\n')
    try:
        front.goal = f"http://{address}"
        offer = alice.client.call("offer_connection", envelope="didcomm/v2", expires_s=600)
        bob.client.call("open_connection", invitation=offer.url)
        until(lambda: alice.connection().state == bob.connection().state == "established", "connecting")
        yield alice, bob, front
    finally:
        for each in (bob, alice, front):
            each.stop() if isinstance(each, Person) else each.close()


def statuses(person):
    return [each.status for each in person.messages() if each.mine]


FAULTS = [
    ("http", "error"),
    ("http", "busy"),
    ("http", "reset"),
    ("http", "lost answer"),
    ("http", "slow"),
    ("https", "tls"),
    ("https", "reset"),
]


@pytest.mark.parametrize(("pair", "fault"), FAULTS, indirect=["pair"], ids=[" ".join(one) for one in FAULTS])
def test_messages_arrive_exactly_once_after_a_fault(pair, fault):
    alice, bob, front = pair
    front.fault = fault
    texts = [f"{fault} {number}" for number in range(3)]
    for text in texts:
        bob.client.call("send_connection_message", peer=bob.connection().id, text=text)
    until(lambda: front.served[fault] >= (2 if fault == "slow" else 3), "some tries")
    if fault not in ("slow", "lost answer"):
        assert statuses(bob) == ["waiting"] * 3 and alice.messages() == []
    front.fault = ""
    until(lambda: statuses(bob) == ["received"] * 3, "acknowledgements")
    assert [each.text for each in alice.messages()] == texts


@pytest.mark.parametrize("pair", ["http"], indirect=True)
@pytest.mark.parametrize("fault", ["rejected", "error"])
def test_what_is_given_up_is_told(pair, fault, monkeypatch):
    alice, bob, front = pair
    monkeypatch.setattr(outbox, "GIVE_UP_MS", 0)
    front.fault = fault
    sent = bob.client.call("send_connection_message", peer=bob.connection().id, text="lost")
    until(lambda: statuses(bob) == ["failed"], "the end")
    while not isinstance((news := bob.client.next_notification(30)).params, MessageSettledNotification):
        pass
    assert (news.params.id, news.params.status) == (sent.id, "failed") and alice.messages() == []
