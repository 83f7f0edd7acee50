"""The mediator over real sockets: live delivery, kills, graceful termination."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from zerochat.agent.mediator import loop
from zerochat.agent.mediator.identity import BadPublicUri, BehindAnother, MediatorMoved, nearest_relay, public_uri
from zerochat.agent.mediator.limits import INVITATIONS_MAX
from zerochat.agent.mediator.loop import Service, ServiceOptions
from zerochat.agent.mediator.mixing import BadMixLink, MixPeers
from zerochat.agent.mediator.pairwise_dids import service as service_at
from zerochat.agent.network.web import Arrived, Closed, Delivered, Failed, Opened, Web, fetch_invitation
from zerochat.agent.network.web.events import ENCRYPTED
from zerochat.agent.network.web.limits import Limits as WebLimits
from zerochat.agent.storage.database import DiskFull
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import ProfileOwned, create_profile, unlock
from zerochat.crypto.keys import SecretKey
from zerochat.crypto.primitives import ed25519_to_x25519_secret
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.did import Identity, new_peer2, new_peer4, resolve
from zerochat.didcomm.layers import open_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.protocols import mediation_client, oob_read, oob_write, pickup, routing, shared_mailbox
from zerochat.didcomm.protocols.mediation_client import MediationState, MediationStep
from zerochat.didcomm.protocols.mixing import Mix
from zerochat.didcomm.rotation import verify_from_prior
from zerochat.didcomm.service import Route, deliverables, routes

random = Random(11).randbytes
V2 = PACKERS["didcomm/v2"]
DEADLINE_S = 30.0


class Wire:
    """A Web, used from the test's own thread, that waits for what the test wants to see."""

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self.web = Web(None, wake=self._ring, limits=WebLimits(redial_s=0.05, redial_s_max=0.2))
        self.web.start()

    def _ring(self) -> None:
        with suppress(OSError):
            self._bell.send(b"!")

    def take(self, wait_s: float = 0.05) -> list[Any]:
        if select.select([self._ear], [], [], wait_s)[0]:
            self._ear.recv(4096)
        return self.web.take()

    def close(self) -> None:
        self.web.stop()
        self._ear.close()
        self._bell.close()


def http_and_ws(did: str) -> tuple[str, str]:
    uris = [route.uri for route in routes(resolve(did))]
    return next(uri for uri in uris if uri.startswith("http")), next(uri for uri in uris if uri.startswith("ws"))


class Recipient:
    """Somebody behind a mediator, who dials out and nothing else."""

    def __init__(self, link: str, *, learns: bool = True) -> None:
        """Without `learns` it goes on writing to the DID in the invitation."""
        invitation = oob_read.read_invitation(link)
        assert isinstance(invitation, oob_read.OutOfBand) and invitation.inviters[0].did is not None
        self.did: str = invitation.inviters[0].did
        self.theirs, self.learns = self.did, learns
        """Under which DID the mediator speaks."""
        self.identity = new_peer4(random, [])
        endpoint = {"uri": self.did, "accept": ["didcomm/v2"]}
        self.mailbox = new_peer4(random, [{"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": endpoint}])
        state = MediationState(self.did, self.identity.did, invitation.id)
        self.state = mediation_client.set_dids(state, [self.mailbox.did], random).state
        self.names: dict[str, set[str]] = {}
        """The mediator's ids of each text."""
        self.parcels = 0
        self.shared: frozenset[str] = frozenset()
        """The shared keys that the mediator keeps."""
        self.shared_secrets: dict[str, SecretKey] = {}
        """By shared key."""
        self.left: int | None = None
        """What the mediator's last status on this connection said is waiting."""
        self.wire = Wire()
        self.uri = http_and_ws(self.did)[1]
        self.wire.web.hold(self.uri)
        self.ticket = 0

    def step(self, wait_s: float = 0.05) -> None:
        for item in self.wire.take(wait_s):
            match item:
                case Opened():
                    self._say(mediation_client.connected(self.state, random))
                case Closed():
                    self.state, self.left = mediation_client.disconnected(self.state), None
                case Arrived(handle=handle):
                    self._hear(item.envelope)
                    self.wire.web.accept(handle)

    def _hear(self, envelope: bytes) -> None:
        opened = open_layers(envelope, secret_of=self._secret_of, resolve=resolve)
        assert opened.sender is not None
        if opened.sender != self.theirs:
            assert opened.message.from_prior is not None
            verify_from_prior(opened.message.from_prior, resolve(self.theirs), opened.sender)
            self.theirs = opened.sender if self.learns else self.theirs
        if shared_mailbox.kind_of(opened.message) == "kept":
            self.shared = shared_mailbox.read_kept(opened.message)
        if pickup.kind_of(opened.message) == "status":
            self.left = pickup.read_status(opened.message).count
        said = mediation_client.receive(self.state, opened.message, random)
        self._say(said)
        if said.parcels:
            for parcel in said.parcels:
                self._read(parcel.id, parcel.envelope)
            self._say(mediation_client.acknowledge(self.state, [parcel.id for parcel in said.parcels], random))

    def share(self, seed: bytes) -> None:
        """Have what comes to this shared key put into the mailbox."""
        claim = shared_mailbox.share(seed, self.mailbox.did, self.identity.did, self.theirs)
        self.shared_secrets[claim.key] = SecretKey("X25519", ed25519_to_x25519_secret(seed))
        message = replace(shared_mailbox.keep([claim], random), from_=self.identity.did)
        self._say(MediationStep(self.state, (message,)))

    def _read(self, name: str, envelope: bytes) -> None:
        self.parcels += 1
        text = open_layers(envelope, secret_of=self._mailbox_secret_of, resolve=resolve).message.body["text"]
        self.names.setdefault(text, set()).add(name)

    @property
    def got(self) -> list[str]:
        return list(self.names)

    def _say(self, said: MediationStep) -> None:
        self.state = said.state
        for message in said.messages:
            mine = V2.own_key(self.identity, self.identity.did)
            theirs = V2.their_key(resolve(self.theirs), self.theirs)
            envelope = V2.authcrypt(
                V2.dump(replace(message, to=(self.theirs,))), sender=mine, recipient=theirs, random=random
            )
            self.ticket += 1
            self.wire.web.send(self.uri, envelope, ENCRYPTED, self.ticket, return_route=True)

    def _secret_of(self, kid: str) -> SecretKey | None:
        return SecretKey("X25519", self.identity.agreement_secret) if kid == self.identity.kid_long else None

    def _mailbox_secret_of(self, kid: str) -> SecretKey | None:
        own = SecretKey("X25519", self.mailbox.agreement_secret)
        return self.shared_secrets.get(kid.partition("#")[0], own)


class Sender:
    """Somebody who knows nothing but DIDs, and repeats what was not accepted."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.waiting: dict[int, tuple[str, bytes]] = {}
        self.ticket = self.failures = 0

    def wrapped(self, recipient: Identity, text: str, name: str | None = None, **wishes: Any) -> tuple[str, bytes]:
        """Where to, and what; `name`: under which the recipient is not known."""
        letter = self.sealed(recipient.did, text)
        way = deliverables(routes(resolve(recipient.did))[0], resolve)[0]
        return way.uri, routing.wrap(letter, way, name or recipient.did, resolve=resolve, random=random, **wishes)

    @staticmethod
    def sealed(recipient: str, text: str) -> bytes:
        plain = V2.dump(Message("https://example.org/chat/1.0/post", "m", {"text": text}))
        return V2.anoncrypt(plain, recipient=V2.their_key(resolve(recipient), recipient), random=random)

    def send(self, recipient: Identity, text: str, **wishes: Any) -> None:
        self._post(*self.wrapped(recipient, text, **wishes))

    def _post(self, uri: str, envelope: bytes) -> None:
        self.ticket += 1
        self.waiting[self.ticket] = uri, envelope
        assert self.wire.web.send(uri, envelope, ENCRYPTED, self.ticket)

    def step(self, wait_s: float = 0.05) -> None:
        failed = []
        for item in self.wire.take(wait_s):
            match item:
                case Delivered(ticket):
                    del self.waiting[ticket]
                case Failed(ticket):
                    self.failures += 1
                    failed.append(self.waiting.pop(ticket))
        for uri, envelope in failed:
            self._post(uri, envelope)


def until(done: Callable[[], bool], *steps: Callable[[float], None]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        for step in steps:
            step(0.01)


@pytest.fixture
def home(tmp_path: Path) -> ProfilePaths:
    found = profile_paths("mediator", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(found, "mediator", None)
    return found


class Running:
    """A service in a thread."""

    def __init__(self, home: ProfilePaths, wishes: ServiceOptions, **more: Any) -> None:
        self.service = Service(home, unlock(home, None), wishes, **more)
        self.service.start()
        self.link = self.service.identity.link
        self._thread = threading.Thread(target=self.service.serve)
        self._thread.start()

    def stop(self) -> None:
        self.service.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self.service.close()


@pytest.fixture
def start(home: ProfilePaths) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def go(wishes: ServiceOptions | None = None, at: ProfilePaths | None = None, **more: Any) -> Running:
        running.append(Running(at or home, wishes or ServiceOptions("127.0.0.1"), **more))
        return running[-1]

    yield go
    for each in running:
        each.stop()


@pytest.fixture
def people() -> Iterator[list[Recipient | Sender]]:
    found: list[Recipient | Sender] = []
    yield found
    for each in found:
        each.wire.close()


def test_live_and_after_a_restart(start, people, home):
    first = start()
    bob, sender = Recipient(first.link), Sender()
    people += [bob, sender]
    until(lambda: bool(bob.state.registered), bob.step)
    sender.send(bob.mailbox, "one")
    until(lambda: bob.got == ["one"], bob.step, sender.step)
    first.stop()
    port = first.service.identity.uri.rpartition(":")[2]
    second = start(ServiceOptions(f"127.0.0.1:{port}"))
    assert second.link == first.link, "it is the same mediator"
    sender.send(bob.mailbox, "two")
    until(lambda: bob.got == ["one", "two"], bob.step, sender.step)


def test_one_post_to_a_shared_mailbox_reaches_all_also_after_a_restart(start, people):
    """Each shares with the key of its own secret: the sender needs no other."""
    first = start()
    three, sender = [Recipient(first.link) for _ in range(3)], Sender()
    people += [*three, sender]
    seed = shared_mailbox.shared_seed(bytes(32), three[0].did)
    key = shared_mailbox.key_of(seed)
    until(lambda: all(one.state.registered for one in three), *(one.step for one in three))
    for one in three:
        one.share(seed)
    until(lambda: all(one.shared == {key} for one in three), *(one.step for one in three))

    def post(text):
        letter = sender.sealed(key, text)
        way = Route(http_and_ws(three[0].did)[0], (three[0].did,), (), "final")
        proof = shared_mailbox.sign_post(seed, letter)
        sender._post(way.uri, routing.wrap(letter, way, key, resolve=resolve, random=random, shared=proof))

    post("one")
    until(lambda: all(one.parcels for one in three), *(one.step for one in three), sender.step)
    first.stop()
    assert first.service.mediator.counts["shared"] == 1
    second = start(ServiceOptions(f"127.0.0.1:{first.service.identity.uri.rpartition(':')[2]}"))
    post("two")
    until(lambda: all(one.parcels >= 2 for one in three), *(one.step for one in three), sender.step)
    assert second.service.mediator.counts["shared"] == 1


def test_all_senders_get_the_same_response(start, people):
    """Kept, for nobody, or no envelope at all: 202 and nothing in it."""
    running = start()
    bob, sender = Recipient(running.link), Sender()
    people += [bob, sender]
    until(lambda: bool(bob.state.registered), bob.step)
    host, port = running.service.identity.uri.removeprefix("http://").split(":")
    nobody = new_peer4(random, [])
    known, unknown = sender.wrapped(bob.mailbox, "?"), sender.wrapped(bob.mailbox, "?", name=nobody.short)
    for envelope in (known[1], unknown[1], known[1], known[1][:-9] + b'AAAAAAA"}', b"{}", b"\xff\xfe"):
        connection = HTTPConnection(host, int(port), timeout=DEADLINE_S)
        connection.request("POST", "/", envelope, {"Content-Type": ENCRYPTED})
        response = connection.getresponse()
        assert (response.status, response.read()) == (202, b"")
        connection.close()
    counts = running.service.mediator.counts
    assert (counts["kept"], counts["dropped.unknown"], counts["dropped.twice"], counts["unreadable"]) == (1, 1, 1, 3)


def test_a_disk_that_fails_accepts_nothing(start, people, monkeypatch):
    """While nothing can be written nobody is told that it was; afterwards everything arrives."""
    said: list[str] = []
    running = start(notify=lambda event, text, facts: said.append(event))
    bob, sender = Recipient(running.link), Sender()
    people += [bob, sender]
    until(lambda: bool(bob.state.registered), bob.step)
    store = running.service._store
    with monkeypatch.context() as patch:

        def full() -> None:
            raise DiskFull(path=store.path)

        patch.setattr(store, "transaction", full)
        sender.send(bob.mailbox, "patience")
        until(lambda: sender.failures > 1, sender.step)
        assert said == ["failing"] and sender.waiting and not store.usage.total.messages
    until(lambda: bob.got == ["patience"] and not sender.waiting, sender.step, bob.step)


def test_an_internal_error_affects_no_other_recipient(start, people, monkeypatch):
    """Whoever found one could end the mediator with it, again and again."""
    said: list[str] = []
    running = start(notify=lambda event, text, facts: said.append(event))
    bob, sender = Recipient(running.link), Sender()
    people += [bob, sender]
    until(lambda: bool(bob.state.registered), bob.step)
    hear = running.service.mediator.receive

    def stumble(envelope, session, now_ms):
        if envelope == b"{}":
            raise ZeroDivisionError
        return hear(envelope, session, now_ms)

    monkeypatch.setattr(running.service.mediator, "receive", stumble)
    for _ in range(2):
        host, port = running.service.identity.uri.removeprefix("http://").split(":")
        connection = HTTPConnection(host, int(port), timeout=DEADLINE_S)
        connection.request("POST", "/", b"{}", {"Content-Type": ENCRYPTED})
        assert connection.getresponse().status == 503
        connection.close()
    assert said in (["failing"], ["failing"] * 2)  # it may have done something else in between, without a fault
    sender.send(bob.mailbox, "still there")
    until(lambda: bob.got == ["still there"], sender.step, bob.step)


@pytest.mark.slow
def test_unfinished_requests_stop_neither_senders_nor_recipients(start, people):
    """512 of them, which come again all the time: 20 of 20 messages arrive, on the connection that was there before."""
    running = start()
    bob, sender = Recipient(running.link), Sender()
    people += [bob, sender]
    until(lambda: bool(bob.state.registered), bob.step)
    host, port = running.service.identity.uri.removeprefix("http://").split(":")
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: {ENCRYPTED}\r\nContent-Length: 1000\r\n\r\nx".encode()

    def unfinished(count: int) -> list[socket.socket]:
        peers = [socket.create_connection((host, int(port)), DEADLINE_S) for _ in range(count)]
        for peer in peers:
            peer.sendall(head)
        return peers

    crowd = unfinished(512)
    for number in range(20):
        crowd += unfinished(16)
        sender.send(bob.mailbox, str(number))
        until(lambda number=number: len(bob.got) == number + 1, bob.step, sender.step)
    assert running.service._web.counts["web.connections"] >= 320 and sender.failures == 0
    assert bob.state.connected and list(map(int, bob.got)) == list(range(20))
    for peer in crowd:
        peer.close()


@pytest.mark.slow
def test_a_flooded_mailbox_delays_no_other(start, people):
    """A former member of one group posts 443 envelopes with 34 MiB while the recipient is away."""
    running = start()
    bob, sender = Recipient(running.link), Sender()
    people += [bob, sender]
    endpoint = {"uri": bob.did, "accept": ["didcomm/v2"]}
    flooded = new_peer4(random, [{"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": endpoint}])
    bob.state = mediation_client.set_dids(bob.state, [bob.mailbox.did, flooded.did], random).state
    until(lambda: len(bob.state.registered) == 2, bob.step)
    sender.send(bob.mailbox, "early")
    until(lambda: not sender.waiting, sender.step)
    host, port = running.service.identity.uri.removeprefix("http://").split(":")
    connection, size = HTTPConnection(host, int(port), timeout=DEADLINE_S), 0
    for number in range(443):
        _, envelope = sender.wrapped(bob.mailbox, f"{number:03}" + "x" * 44_000, name=flooded.short)
        size += len(envelope)
        connection.request("POST", "/", envelope, {"Content-Type": ENCRYPTED})
        assert connection.getresponse().read() == b""
    connection.close()
    sender.send(bob.mailbox, "late")
    until(lambda: not sender.waiting, sender.step)
    usage = running.service._store.usage.total
    assert size > 34 << 20 and usage.bytes < 17 << 20
    until(lambda: {"early", "late"} <= set(bob.got), bob.step)


@pytest.mark.slow
def test_connections_of_strangers_are_closed(start, people, monkeypatch):
    monkeypatch.setattr(loop, "UNKNOWN_CLIENT_S", 0.0)
    monkeypatch.setattr(loop, "SWEEP_S", 0.05)
    running = start()
    bob, stranger = Recipient(running.link), Sender()
    people += [bob, stranger]
    until(lambda: bool(bob.state.registered), bob.step)
    stranger.wire.web.hold(bob.uri)
    news: list[Any] = []
    until(lambda: any(isinstance(item, Closed) for item in news), lambda wait: news.extend(stranger.wire.take(wait)))
    assert running.service.mediator.counts["unknown_clients"]
    stranger.send(bob.mailbox, "by POST")
    until(lambda: bob.got == ["by POST"], bob.step, stranger.step)


def test_the_short_link_leads_to_the_invitation(start):
    running = start()
    found = fetch_invitation(running.service.identity.short_link).result(DEADLINE_S)
    assert oob_read.read_invitation(found) == oob_read.read_invitation(running.link)


def test_a_mediator_keeps_its_address(start, home, tmp_path):
    start()
    with pytest.raises(ProfileOwned):
        Service(home, unlock(home, None), ServiceOptions("127.0.0.1")).start()
    other = profile_paths("other", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(other, "mediator", None)
    running = start(ServiceOptions("127.0.0.1", public_uri="https://relay.example.org/"), other)
    running.stop()
    assert running.service.identity.uris == ("https://relay.example.org", "wss://relay.example.org")
    with pytest.raises(MediatorMoved):
        Service(other, unlock(other, None), ServiceOptions("127.0.0.1", public_uri="https://elsewhere.example")).start()
    old = running.link
    running = start(ServiceOptions("127.0.0.1", new_invitation=True), other)
    assert running.service.identity.identity.did == oob_read.read_invitation(old).inviters[0].did
    assert oob_read.read_invitation(running.link).id != oob_read.read_invitation(old).id


def test_a_mediator_listens_where_it_did_before(start, home, monkeypatch):
    heard = []

    class Listening(Web):
        def __init__(self, listen, **options):
            heard.append(listen)
            super().__init__(listen, **options)

    monkeypatch.setattr("zerochat.agent.mediator.loop.Web", Listening)
    first = start()
    first.stop()
    port = first.service.identity.uri.rpartition(":")[2]
    for options in (ServiceOptions(), ServiceOptions(f"[::1]:{port}"), ServiceOptions(), ServiceOptions("127.0.0.1")):
        start(options).stop()
    kept = f"127.0.0.1:{port}"
    assert heard == ["127.0.0.1:0", kept, f"[::1]:{port}", f"[::1]:{port}", kept]


def test_further_invitations_leave_the_earlier_ones_valid(start):
    def started(**options):
        running = start(ServiceOptions("127.0.0.1", **options))
        identity = running.service.identity
        for one in identity.invitations:
            found = fetch_invitation(oob_write.short_link(identity.page, one.oobid)).result(DEADLINE_S)
            assert oob_read.read_invitation(found).id == one.id
        assert oob_read.read_invitation(running.link).id == identity.invitation.id
        running.stop()
        return [(one.id, one.uses) for one in identity.invitations]

    [(first, _)] = started(uses=5)
    [(second, _), before] = started(further_invitation=True)
    assert before == (first, 5)
    assert started(uses=7) == [(second, 7), (first, 5)]
    many = [started(further_invitation=True) for _ in range(INVITATIONS_MAX)][-1]
    assert len(dict(many)) == INVITATIONS_MAX and second not in dict(many)
    assert len(started(new_invitation=True)) == 1


def outer_home(folder: Path) -> ProfilePaths:
    found = profile_paths("outer", {"ZEROCHAT_HOME": str(folder)})
    create_profile(found, "mediator", None)
    return found


def test_a_mediator_stays_behind_its_mediator(start, home, tmp_path):
    outer = start(ServiceOptions("127.0.0.1"), outer_home(tmp_path))
    start(ServiceOptions("127.0.0.1", behind=outer.link)).stop()
    again = start()
    assert again.service.identity.behind == outer.link
    again.stop()
    wrong = oob_write.link(
        "http://x.example", oob_write.invitation(new_peer2(random, [service_at("http://x")]).did, random)
    )
    for behind, error in ((again.link, BadMixLink), ("http://x.example", BadMixLink), (wrong, BehindAnother)):
        with pytest.raises(error):
            Service(home, unlock(home, None), ServiceOptions("127.0.0.1", behind=behind)).start()
    fresh = profile_paths("fresh", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(fresh, "mediator", None)
    with pytest.raises(BadMixLink, match="WebSocket"):
        Service(fresh, unlock(fresh, None), ServiceOptions("127.0.0.1", behind=wrong)).start()
    start(ServiceOptions("127.0.0.1"), fresh).stop()
    with pytest.raises(BehindAnother):
        Service(fresh, unlock(fresh, None), ServiceOptions("127.0.0.1", behind=outer.link)).start()


@pytest.mark.slow
def test_an_envelope_that_could_not_be_stored_is_fetched_again(start, people, monkeypatch, tmp_path):
    """The inner mediator's disk is full when the outer one has something for it."""
    outer = start(ServiceOptions("127.0.0.1"), outer_home(tmp_path))
    inner = start(ServiceOptions("127.0.0.1", behind=outer.link))
    bob, sender = Recipient(inner.link), Sender()
    people += [bob, sender]
    until(lambda: bool(bob.state.registered) and outer.service._store.registration(bob.did) is not None, bob.step)
    store = inner.service._store
    for number in range(3):
        with monkeypatch.context() as patch:

            def full() -> None:
                raise DiskFull(path=store.path)

            patch.setattr(store, "transaction", full)
            sender.send(bob.mailbox, f"patience {number}")
            until(lambda: inner.service._failing and not sender.waiting, sender.step)
            assert len(bob.got) == number and outer.service._store.usage.total.messages == 1
        until(lambda number=number: len(bob.got) == number + 1, bob.step)
    until(lambda: not outer.service._store.usage.total.messages, bob.step)
    assert bob.got == [f"patience {number}" for number in range(3)]
    assert not outer.service.mediator.counts["relayed"], "it was fetched"


@pytest.mark.parametrize(
    "text",
    ["relay.example.org", "ftp://x", "http://", "http://x:0", "http://x/?q", "http://u@x", "http://ü", "http://a b"],
)
def test_no_public_uri(text):
    with pytest.raises(BadPublicUri):
        public_uri(text)


def test_an_invalid_mediator_link_is_refused(start):
    bare = new_peer4(random, [])
    for link in ("", "https://example.org/?_oobid=abc", "https://example.org/?_oob=e30"):
        with pytest.raises(BadMixLink):
            MixPeers((link,), bare.did, random)


def test_detours_between_mediators(start, people, tmp_path):
    """A sender asks for mixing: the message goes home, away and home again, over three POSTs."""
    away_home = profile_paths("away", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(away_home, "mediator", None)
    away = start(ServiceOptions("127.0.0.1"), away_home)
    main = start(ServiceOptions("127.0.0.1", mix_with=(away.link,), noise_chance=1.0))
    bob, sender = Recipient(main.link), Sender()
    people += [bob, sender]
    until(lambda: bool(bob.state.registered and main.service.mediator.mix_nodes), bob.step)
    sender.send(bob.mailbox, "the long way", mix=Mix(1.0))
    until(lambda: bob.got == ["the long way"], bob.step, sender.step)
    assert main.service.mediator.counts["detoured"] == 1 == away.service.mediator.counts["relayed"]


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        *((f"http://{host}:80", AddressKind.PUBLIC) for host in ("8.8.8.8", "relay.example.org", "[2606:4700::1]")),
        *((f"http://{host}", AddressKind.PRIVATE) for host in ("10.0.0.1", "relay.lan", "relay", "100.64.0.1")),
        *((f"http://{host}", AddressKind.LOOPBACK) for host in ("127.0.0.1", "[::1]", "localhost", "a.localhost.")),
    ],
)
def test_a_mediator_relays_to_addresses_of_its_own_kind(uri, kind):
    assert nearest_relay(uri) == kind


@pytest.mark.parametrize("near", [AddressKind.PUBLIC, AddressKind.LOOPBACK])
def test_a_recipient_cannot_have_posts_sent_nearby(start, people, home, near):
    """A recipient registers any DID, and its address gets what strangers write to it."""
    running = start(ServiceOptions("127.0.0.1", relay_near=near))
    running.service._nearest = near  # its own address is on this machine
    with socket.create_server(("127.0.0.1", 0)) as bystander:
        bystander.settimeout(0.01)
        bob, sender = Recipient(running.link), Sender()
        people += [bob, sender]
        endpoint = {"uri": f"http://127.0.0.1:{bystander.getsockname()[1]}/path", "accept": ["didcomm/v2"]}
        target = new_peer4(random, [{"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": endpoint}])
        bob.state = mediation_client.set_dids(bob.state, [target.did], random).state
        until(lambda: bool(bob.state.registered), bob.step)
        letter = sender.wrapped(target, "any")[1]
        to = Route(http_and_ws(bob.did)[0], (bob.did,), (), "final")
        sender._post(to.uri, routing.wrap(letter, to, target.did, resolve=resolve, random=random))
        counts, connections = running.service.mediator.counts, []

        def accepted(wait_s):
            with suppress(TimeoutError):
                connections.append(bystander.accept())

        until(lambda: bool(counts["unsent"] or connections), sender.step, accepted)
        assert counts["relayed"] == 1 and bool(connections) == (near is AddressKind.LOOPBACK)
        for connection, _ in connections:
            connection.close()


class Process:
    """`zerochat mediator` as a process of its own."""

    def __init__(self, folder: Path, listen: str) -> None:
        command = [sys.executable, "-m", "zerochat", "mediator", "--listen", listen, "--format", "jsonl"]
        environ = {**os.environ, "ZEROCHAT_HOME": str(folder)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, cwd=Path(__file__).parents[2]
        )
        assert self.process.stdout is not None
        while True:
            line = json.loads(self.process.stdout.readline())
            if line["event"] == "ready":
                break
        self.ready: dict[str, Any] = line

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.mark.slow
@pytest.mark.parametrize("total", [300, pytest.param(1000, marks=pytest.mark.long)])
def test_a_mediator_killed_at_work_loses_nothing(total, tmp_path, people):
    """Two behind the mediator, one before it, and the process killed several times: all arrive, none is stored twice,
    nothing that was acknowledged comes back, and the disk holds nothing readable."""
    running = Process(tmp_path, "127.0.0.1")
    link, port = running.ready["link"], running.ready["uri"].rpartition(":")[2]
    try:
        bob, carol, sender = Recipient(link), Recipient(link, learns=False), Sender()
        people += [bob, carol, sender]
        steps = bob.step, carol.step, sender.step
        until(lambda: bool(bob.state.registered and carol.state.registered), *steps)
        kills = 0
        for number in range(total):
            sender.send((bob if number % 2 else carol).mailbox, f"message {number}")
            if number in (total // 3, total * 2 // 3):
                until(lambda half=number // 2: len(bob.got) + len(carol.got) > half, *steps)
                assert len(sender.waiting) > 0, "it is in the middle of it"
                assert running.end(signal.SIGKILL) == -signal.SIGKILL
                running, kills = Process(tmp_path, f"127.0.0.1:{port}"), kills + 1
            elif number % 20 == 0:
                for step in steps:
                    step(0)
        until(lambda: len(bob.got) + len(carol.got) == total and not sender.waiting, *steps)
        assert kills == 2 and running.ready["link"] == link
        assert bob.theirs != bob.did == carol.theirs, "one of them has heard what the mediator's other DID is"
        assert set(bob.got) | set(carol.got) == {f"message {number}" for number in range(total)}
        assert all(len(ids) == 1 for each in (bob, carol) for ids in each.names.values()), "none was taken in twice"
        until(lambda: bob.left == 0 == carol.left, *steps)
        disk = b"".join(path.read_bytes() for path in (tmp_path / "data" / "mediator").glob("mediator.db*"))
        for telling in (b"ECDH", b"did:peer", bob.mailbox.short.encode(), b"didcomm", b"message 9"):
            assert telling not in disk
        assert running.end(signal.SIGTERM) == 0
        until(lambda: not bob.state.connected and not carol.state.connected, *steps)
        before = bob.parcels + carol.parcels
        running = Process(tmp_path, f"127.0.0.1:{port}")
        until(lambda: bob.left == 0 == carol.left, *steps)
        assert bob.parcels + carol.parcels == before, "nothing acknowledged comes back"
        assert running.end(signal.SIGTERM) == 0
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGKILL)
