"""DIDComm over HTTP(S) and WebSocket between honest agents: real sockets on loopback."""

import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support import web_peers
from tests.support.marks import others_slow
from tests.support.web_peers import PATIENCE_S, Node, raw, request, response, until, wait, websocket
from zerochat.agent.network.addresses import BadAddress
from zerochat.agent.network.web import (
    Arrived,
    BadCertificate,
    CannotListenForWeb,
    Closed,
    Delivered,
    Failed,
    Limits,
    Opened,
    Web,
)
from zerochat.agent.network.web.event_loop import check_address
from zerochat.agent.network.web.events import ENCRYPTED
from zerochat.didcomm.address_kinds import AddressKind, effective_address, is_never_dialed
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX

nodes, scripted, tls = web_peers.nodes, web_peers.scripted, web_peers.tls

# --- those who mean well --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", others_slow(["ws", "http"]))
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


def test_https_and_wss_need_a_trusted_authority(nodes, tls):
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


def test_an_envelope_not_accepted_in_time_has_failed(nodes):
    a = nodes(None)
    b = nodes(accepting=False, limits=Limits(accept_s=0.2, stop_s=0.5))
    a.web.send(b.uri, b"one", ENCRYPTED, 1)
    a.web.send(b.ws, b"two", ENCRYPTED, 2)
    until(lambda: len(a.of(Failed)) == 2 and b.of(Closed), a, b)
    assert set(a.of(Failed)) == {Failed(1, "status 503"), Failed(2, "lost")}
    assert b.web.counts["web.unaccepted"] == 2 and not b.web._channels
    for item in b.of(Arrived):
        b.web.accept(item.handle)  # too late, and no harm


def test_a_refused_envelope_has_failed(nodes):
    a, b = nodes(None), nodes(accepting=False)
    a.web.send(b.uri, b"one", ENCRYPTED, 1)
    a.web.send(b.ws, b"two", ENCRYPTED, 2)
    until(lambda: len(b.envelopes()) == 2, a, b)
    for item in b.of(Arrived):
        b.web.refuse(item.handle)
    until(lambda: len(a.of(Failed)) == 2, a, b)
    assert set(a.of(Failed)) == {Failed(1, "status 503"), Failed(2, "lost")}


def test_a_requested_reply_uses_the_same_connection(nodes):
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
    assert reply == Arrived(0, b"re one", "application/ssi-agent-wire", "reply", b.uri, ticket=1)


def test_a_kept_session_carries_both_directions(nodes):
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


def test_a_kept_session_reconnects_after_the_server_was_killed(nodes):
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


def test_an_idle_session_for_one_envelope_closes(nodes):
    a, b = nodes(None, limits=Limits(linger_s=0.1, request_s=0.3, stop_s=0.5)), nodes()
    a.web.send(b.ws, b"one", ENCRYPTED, 1)
    until(lambda: a.of(Closed) and b.of(Closed), a, b)
    assert a.of(Delivered) and not b.web._channels
    a.web.hold(b.ws)
    until(lambda: len(a.of(Opened)) == 2, a, b)
    a.web.send(b.uri + "/slow", b"two", ENCRYPTED, 2)
    b.accepting = False
    until(lambda: Failed(2, "timeout") in a.news, a, b)
    assert len(a.of(Closed)) == 1  # longer than `linger_s` and `request_s`, and still there


def test_no_envelope_overtakes_a_failed_one(nodes, scripted):
    """A server that is busy or not there fails all that waits for it; one that dislikes one envelope does not."""
    server = scripted(response("200 OK"), response("413 Too Large"), response("503 Busy"), response("200 OK"))
    a, gate = nodes(None), threading.Event()
    a.web._web_thread.do(gate.wait, PATIENCE_S)
    for number in range(6):
        a.web.send(server.uri, b"%d" % number, ENCRYPTED, number)
    gate.set()
    until(lambda: len(a.news) == 6, a)
    failed = [(3, "status 503"), (4, "status 503"), (5, "status 503")]
    assert a.news == [Delivered(0), Failed(1, "status 413"), *(Failed(*item) for item in [(2, "status 503"), *failed])]
    assert server.heard == [b"0", b"1", b"2"]
    a.web.send(server.uri, b"again", ENCRYPTED, 7)
    until(lambda: Delivered(7) in a.news, a)


def test_a_connection_closed_by_the_server_is_replaced_silently(nodes):
    a, b = nodes(None), nodes(limits=Limits(idle_s=0.05, stop_s=0.5))
    for number in range(5):
        a.web.send(b.uri, b"%d" % number, ENCRYPTED, number)
        until(lambda number=number: len(a.of(Delivered)) == number + 1, a, b)
        deadline = time.monotonic() + PATIENCE_S
        while b.web._web_thread._server._listening_socket.connections() and time.monotonic() < deadline:
            wait()
    assert len(b.envelopes()) == 5 and not a.of(Failed)


def test_no_redirect_of_a_post_is_followed(nodes, scripted):
    """The target would get what its own address has not been checked for, and has not proved itself."""
    goal = scripted(response("202 Accepted"))
    a = nodes(None)
    for number, status in enumerate(("301 M", "302 F", "303 S", "307 T", "308 P")):
        a.web.send(scripted(response(status, Location=goal.uri + "/x")).uri, b"body", ENCRYPTED, number)
    until(lambda: len(a.news) == 5, a)
    assert sorted(each.why for each in a.of(Failed)) == [f"status {code}" for code in (301, 302, 303, 307, 308)]
    assert not goal.heard and not goal.requests


def test_redirects_never_lead_from_https_to_http(nodes, tls, scripted):
    from yarl import URL

    from zerochat.agent.network.web.http_client import redirected

    assert redirected(URL("https://a.example/x"), "http://a.example/") is None
    assert redirected(URL("https://a.example/x"), "/y") == URL("https://a.example/y")
    assert redirected(URL("http://a.example/"), "https://b.example/") == URL("https://b.example/")
    goal = nodes()
    a = nodes(None)
    a.web.send(scripted(response("302 F", Location=goal.uri)).uri.replace("http", "ws"), b"x", ENCRYPTED, 1)
    until(lambda: Failed(1, "redirect") in a.news, a, goal)
    assert not goal.of(Opened)


def test_our_requests_do_not_identify_us(nodes, scripted):
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
def test_an_invalid_uri_fails(nodes, uri):
    a = nodes(None)
    assert a.web.send(uri, b"x", ENCRYPTED, 5)
    until(lambda: a.news, a)
    assert a.news == [Failed(5, "uri")]


@pytest.mark.parametrize(
    "uri", ["http://169.254.169.254/", "ws://[fe80::1]/", "http://0.0.0.0:1/", "http://224.0.0.1/"]
)
def test_unusable_addresses_are_not_dialled(nodes, uri):
    a = nodes(None)
    a.web.send(uri, b"x", ENCRYPTED, 5)
    until(lambda: a.news, a)
    assert a.news == [Failed(5, "unreachable")]
    assert not any(
        is_never_dialed(effective_address(address)) for address in ("192.168.1.1", "::1", "fd00::1", "2001:db8::1")
    )


@pytest.mark.parametrize(
    "address",
    [
        *("::ffff:169.254.169.254", "2002:a9fe:a9fe::1", "64:ff9b::a9fe:a9fe", "::a9fe:a9fe", "fe80::1%1", "::"),
        *("fd00:ec2::254", "100.100.100.200", "::ffff:168.63.129.16", "192.0.0.192"),
    ],
)
def test_cloud_metadata_addresses_are_not_dialled(address):
    assert is_never_dialed(effective_address(address))


NEARER = {
    AddressKind.PUBLIC: ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "[2002:0a00:0001::1]", "100.64.0.1"),
    AddressKind.PRIVATE: ("127.0.0.1", "127.9.9.9", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]"),
}


@pytest.mark.parametrize("nearest", NEARER)
@pytest.mark.parametrize("proxy", [None, "127.0.0.1:9"])
def test_no_nearer_address_is_dialled(nodes, proxy, nearest):
    """By a name too: the number that is dialled is checked. A connection that is kept open is not used either."""
    b = nodes()
    a = nodes(None, socks=proxy)
    if not proxy:
        a.web.send(b.uri, b"near", ENCRYPTED, 0)
        a.web.send(b.ws, b"near", ENCRYPTED, 0)
        until(lambda: len(a.of(Delivered)) == 2, a, b)
    accepted = len(b.envelopes())
    uris = [b.uri, b.ws, *(f"http://{host}:{b.port}" for host in NEARER[nearest])]
    uris += (
        [] if proxy else [f"{scheme}://{host}:{b.port}" for scheme in ("http", "ws") for host in ("localhost", "127.1")]
    )
    for number, uri in enumerate(uris):
        a.web.send(uri, b"x", ENCRYPTED, number, nearest=nearest)
    until(lambda: len(a.of(Failed)) == len(uris), a, b)
    assert {failed.why for failed in a.of(Failed)} <= {"unreachable", "uri"} and len(b.envelopes()) == accepted
    check_address("1.1.1.1", nearest)


def test_a_name_is_checked_by_the_number_that_is_dialled(nodes, monkeypatch):
    """DNS rebinding: the name has a public address when it is looked up first, and then one of this machine."""
    b = nodes()
    a = nodes(None)
    answers = iter(["198.18.0.1", "127.0.0.1", "127.0.0.1"])
    real = socket.getaddrinfo

    def rebinding(host, *more, **named):
        return real(next(answers) if host == "rebound.example" else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    for number in range(2):
        a.web.send(f"http://rebound.example:{b.port}/", b"x", ENCRYPTED, number, nearest=AddressKind.PUBLIC)
        until(lambda number=number: len(a.of(Failed)) == number + 1, a, b)
    assert {failed.why for failed in a.of(Failed)} == {"unreachable"} and not b.envelopes()


def test_send_reports_at_once_when_there_is_no_room(nodes):
    b = nodes()
    a = nodes(None, limits=Limits(queue_messages=3, queue_bytes=1000, outbox_bytes=1500, stop_s=0.5))
    assert [a.web.send(b.uri, b"x", ENCRYPTED, n) for n in range(4)] == [True, True, True, False]
    assert [a.web.send(b.uri + "/b", b"x" * 600, ENCRYPTED, n) for n in range(2)] == [True, False]
    assert [a.web.send(b.uri + "/c", b"x" * 900, ENCRYPTED, 9)] == [False]
    until(lambda: len(a.of(Delivered)) == 4, a, b)
    assert a.web.send(b.uri + "/c", b"x" * 900, ENCRYPTED, 9)


def test_a_silent_name_server_blocks_no_other_lookup(nodes, monkeypatch):
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


# --- beginning and end ----------------------------------------------------------------------------------------------


def test_a_failed_start_explains_why(nodes, tmp_path, tls):
    b = nodes()
    with pytest.raises(CannotListenForWeb, match=rf"127\.0\.0\.1:{b.port}: .* uses this port"):
        nodes(f"127.0.0.1:{b.port}")
    with pytest.raises(BadAddress, match="one port"):
        Web("127.0.0.1:1:2", wake=lambda: None)
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    with pytest.raises(BadCertificate, match=r"broken\.pem"):
        Web(None, tls=(str(broken), str(broken)), wake=lambda: None)
    with pytest.raises(BadCertificate, match="no such file"):
        Web(None, ca_file=str(tmp_path / "nowhere"), wake=lambda: None)


def test_addresses_of_both_families(nodes):
    b = nodes("[::]")
    assert b.uri == f"http://[::]:{b.port}"
    a = nodes(None)
    a.web.send(f"http://127.0.0.1:{b.port}", b"four", ENCRYPTED, 1)
    a.web.send(f"ws://[::1]:{b.port}", b"six", ENCRYPTED, 2)
    until(lambda: len(a.of(Delivered)) == 2, a, b)


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_stopping_at_work_leaves_no_descriptor_and_no_thread(tls):
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
    a.tx()
    assert len(a.of(Delivered)) + len(a.of(Failed)) == 40 and not a.web._sent
    assert not a.web.send(b.uri, b"x", ENCRYPTED, 1) or a.web.take() == [Failed(1, "stopped")]
    for peer in peers:
        peer.close()
    assert (len(list(Path("/proc/self/fd").iterdir())), set(threading.enumerate())) == before


def test_a_dead_thread_is_noticed(nodes):
    a, b = nodes(None), nodes(accepting=False)
    a.web.send(b.uri, b"x", ENCRYPTED, 1)
    until(b.envelopes, a, b)

    a.dies = True
    a.web._web_thread.do(a.web._web_thread._loop.stop)
    until(lambda: not a.web.alive, a)
    until(lambda: Failed(1, "stopped") in a.news, a)


def test_importing_the_web_package_loads_no_http_library():
    code = "import sys, zerochat.agent.network.web; print(sorted({'aiohttp', 'yarl'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
