"""Members that name other machines as their mediators, over real sockets: bounds in connections, requests and bytes."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import zmq

from tests.support.agents import meet, until
from tests.support.rogue import ROGUE_KEYS, Rogue, Watched, at_rest
from tests.support.shared_files import write
from tests.support.sockets import strangers
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.group.links import mediator_mail
from zerochat.group.wire.files import FILE_REQUEST

pytestmark = pytest.mark.slow

KEY = did_key(ed25519_public(b"\x07" * 32))


class Bystander(ThreadingHTTPServer):
    """A web server that has nothing to do with zerochat."""

    def __init__(self, status=404):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.connections, self.paths, self.bytes = status, 0, [], 0
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def uri(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def process_request(self, request, client_address):
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request, client_address):
        pass

    def stop(self):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Bystander
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        size = int(self.headers.get("Content-Length", 0))
        self.rfile.read(size)
        self.server.paths.append(self.path)
        self.server.bytes += size + len(self.requestline) + len(bytes(self.headers))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *about):
        pass


@pytest.fixture
def bystander():
    server = Bystander()
    yield server
    server.stop()


class Pair:
    """Alice and Mallory in one group; Mallory's keys are a rogue's."""

    def __init__(self, folder, make, config=""):
        self.alice, mallory = Watched(folder, "alice").wake(), Watched(folder, "mallory").wake()
        self.everyone = (self.alice, mallory)
        try:
            meet(self.alice, mallory, keys=ROGUE_KEYS)
            mallory.sleep()
            self.alice.sleep()
            self.alice.places.config.parent.mkdir(parents=True, exist_ok=True)
            self.alice.places.config.write_text(config)
            self.alice.steps.clear()
            self.alice.wake()
            self.rogue = Rogue(mallory, self.alice, make)
        except BaseException:
            at_rest(*self.everyone)
            raise

    def announce(self, *uris, key=KEY):
        """Mallory cannot be dialled any more, but has these mediators."""
        box = mediator_mail.mailbox(self.rogue.seed)
        mail = [{"uri": uri, "keys": [key, box]} for uri in uris]
        reach = {"pair": "", "queue": "", "at": int(time.time() * 1000), "mail": mail}
        return self.rogue.sync(reach=reach)

    def vanish(self):
        """The link goes down, so that everything for Mallory is mail."""
        self.rogue.dealer.close()
        peer = self.alice.group.links.peers[self.rogue.me]
        until(lambda: peer.link not in self.alice.thread.loop.agent.links_up, "the end of the link")


@pytest.fixture
def pair(tmp_path):
    made = []
    with strangers() as make:

        def start(config=""):
            made.append(Pair(tmp_path, make, config))
            return made[-1]

        yield start
        for each in made:
            at_rest(*each.everyone)


def quiet(alice, for_s=2.5):
    """Time in which an agent could do what it must not."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        alice.client.list_groups()
        time.sleep(0.05)


PUBLIC = '[network]\nadvertise = "8.8.8.8"\n'


def test_a_public_agent_connects_to_nothing_near(pair, bystander):
    """By numbers, by embedded numbers, and by a name whose address is checked when it is dialled."""
    both = pair(PUBLIC)
    port = bystander.server_port
    for host in ("127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "127.1"):
        assert both.announce(f"http://{host}:{port}/a", f"ws://{host}:{port}/b") == ""
        both.vanish()
        both.alice.client.send_message("friends", f"for {host}")
        quiet(both.alice)
        both.rogue.dealer = both.rogue.socket(zmq.DEALER)
    assert bystander.connections == 0
    assert both.alice.is_well()


def test_an_agent_on_this_machine_probes_a_mediator_on_it(pair, bystander):
    """The other tests of this module would pass if nothing were ever posted."""
    both = pair()
    assert both.announce(bystander.uri) == ""
    both.vanish()
    both.alice.client.send_message("friends", "hm")
    until(lambda: bystander.paths, "a post")


def test_a_query_is_no_address_of_a_mediator(pair, bystander):
    both = pair()
    assert both.announce(bystander.uri + "?do=it") == "Malformed"
    both.vanish()
    both.alice.client.send_message("friends", "hm")
    quiet(both.alice, 1)
    assert bystander.connections == 0


@pytest.mark.parametrize("status", [404, 405, 200])
def test_a_member_cannot_have_files_sent_to_a_bystander(pair, tmp_path, status):
    """1.27 MiB of requests made 6,627 posts with 376 MiB to a third party, as its path changed each time."""
    bystander = Bystander(status)
    both, sent = pair(), 0
    try:
        path, _ = write(tmp_path, "large.bin", 4 << 20)
        both.alice.client.send_files("friends", [str(path)])
        (key, entry) = until(lambda: next(iter(both.alice.group.files.items()), None), "the file")
        until(lambda: both.alice.group.files[key].state == "here", "hashing")
        whole = {"group": both.rogue.group.id, "file": key, "first": 0, "count": min(16, entry.file.parts)}
        for number in range(10):
            assert both.announce(*(f"{bystander.uri}{number}/{path}" for path in range(4))) == ""
            requests = [both.rogue.packed(FILE_REQUEST, whole) for _ in range(20)]
            for envelope in requests:
                both.rogue.dealer.socket.send(envelope)
            sent += sum(map(len, requests))
            both.alice.effects_of(requests[-1])
            both.vanish()
            both.alice.client.send_message("friends", f"{number} " + "x" * 10_000)
            quiet(both.alice, 0.5)
            both.rogue.dealer = both.rogue.socket(zmq.DEALER)
        quiet(both.alice)
        print(f"{sent >> 10} KiB asked, {len(bystander.paths)} posts, {bystander.bytes} bytes")
        assert 0 < bystander.bytes <= min(2 * sent, 64 * 1024)
        assert both.alice.is_well()
    finally:
        bystander.stop()
