"""The web transport through a proxy, and short links."""

import base64
import json
import re
import socket

import pytest

from tests.support import web_peers
from tests.support.web_peers import PATIENCE_S, Proxy, hear, raw, request, response, until
from zerochat.agent.network.web import Delivered, Failed, NoInvitationThere, Opened, Web, fetch_invitation
from zerochat.agent.network.web.event_loop import BadProxy
from zerochat.agent.network.web.events import ENCRYPTED
from zerochat.agent.network.web.limits import SHORT_LINKS_MAX
from zerochat.agent.network.web.short_links import ShortLinks
from zerochat.didcomm.protocols import short_links

nodes, scripted, tls = web_peers.nodes, web_peers.scripted, web_peers.tls


def test_a_proxy_is_used_for_everything_including_names(nodes, tls, monkeypatch):
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


def test_a_failing_proxy_is_never_bypassed(nodes):
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


# --- short links ----------------------------------------------------------------------------------------------------

INVITATION = {"type": "https://didcomm.org/out-of-band/2.0/invitation", "id": "1", "body": {}}
OOB = base64.urlsafe_b64encode(json.dumps(INVITATION).encode()).decode().rstrip("=")
LONG = f"https://zerochat.example/?_oob={OOB}"


def test_a_short_link_leads_to_its_invitation_until_used_up(nodes):
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


def test_short_links_expire():
    links = ShortLinks()
    for number in range(SHORT_LINKS_MAX + 9):
        links.publish(str(number), LONG, 10, None, 0)
    assert links.find("0", 1) is None and links.find("999", 1).url == LONG and len(links._links) == SHORT_LINKS_MAX
    assert links.find("999", 10) is None and links.find("999", 1) is None


def test_expired_links_make_room_before_others():
    links = ShortLinks()
    links.publish("own", LONG, 1e9, None, 0)
    for number in range(2 * SHORT_LINKS_MAX):
        links.publish(str(number), LONG, number + 1, None, number)
    assert links.find("own", 1e6).url == LONG


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


def test_a_sealed_invitation_needs_the_key_of_its_link(nodes):
    """The server of a link with a key can neither read the invitation nor replace it, not even by a redirect."""
    b, key = nodes(), bytes(range(16))
    sealed = short_links.seal(LONG, key)
    b.web.publish_document("sealed", short_links.document(sealed), 60)
    b.web.publish_invitation("open", LONG, 60)
    b.web.publish_document("other", short_links.document(short_links.seal(LONG, bytes(16))), 60)
    link = short_links.link(f"{b.uri}/", "sealed", key)
    assert fetch_invitation(link).result(PATIENCE_S) == LONG
    for url, why in {
        link.partition("#")[0]: "end of the link is missing",
        link.replace("sealed", "other"): "does not belong to this link",
        link.replace("sealed", "open"): "replaced",
    }.items():
        with pytest.raises(NoInvitationThere, match=why):
            fetch_invitation(url).result(PATIENCE_S)
    with pytest.raises(NoInvitationThere, match="cut off"):
        fetch_invitation(link[:-2])
    page = hear(raw(b, request(b"GET", b"/?_oobid=sealed", Content_Type="", Accept="text/html")))
    assert page.startswith(b"HTTP/1.1 200 ") and b"text/html" in page and b"F8" in page and b"sealed" not in page


def test_a_browser_gets_a_page_that_says_what_to_do(nodes):
    """It contains nothing of the request, and looking at it uses nothing up."""
    b = nodes()
    b.web.publish_invitation("one", LONG, 60, uses=1)
    html = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
    pages = {
        re.sub(rb"Date: [^\r]*\r\n", b"", hear(raw(b, request(b"GET", path, Content_Type="", Accept=html))))
        for path in (b"/?_oobid=one", b"/i?_oobid=one&x=%3Cscript%3E", f"/?_oob={OOB}".encode(), b"/?oob=%3Cscript%3E")
    }
    (page,) = pages
    assert page.startswith(b"HTTP/1.1 200 ") and b"zerochat join LINK" in page and b"script" not in page.lower()
    assert b"no-store" in page and b"default-src 'none'" in page
    for path in (b"/?_oobid=none", b"/"):
        assert b" 404 " in hear(raw(b, request(b"GET", path, Content_Type="", Accept=html)))
    found = hear(raw(b, request(b"GET", b"/?_oobid=one", Content_Type="", Accept="application/json, text/html")))
    assert json.loads(found.partition(b"\r\n\r\n")[2]) == INVITATION


NO_INVITATION = {
    "gone": (response("404 N"), "404"),
    "a page": (response("200 OK", b"<html>"), "is not an invitation"),
    "no text": (response("200 OK", b"{\xff"), "is not an invitation"),
    "long": (response("200 OK", b"{" + b" " * 70_000), "too large"),
    "endless": (response("200 OK", b"{" + b" " * 70_000, Content_Length=str(10**9)), "too large"),
    "a file": (response("302 F", Location="file:///etc/passwd"), "less secure"),
    "nobody there": (None, "server is unreachable"),
    "no HTTP": (b"nonsense", "lost"),
}


@pytest.mark.parametrize(("answer", "why"), NO_INVITATION.values(), ids=NO_INVITATION)
def test_an_invalid_short_link_is_refused(scripted, answer, why):
    server = scripted(answer or b"")
    if answer is None:
        server.close()
    with pytest.raises(NoInvitationThere, match=why):
        fetch_invitation(server.uri).result(PATIENCE_S)


def test_a_short_link_that_leads_in_circles(scripted):
    server = scripted()
    server._answers = [response("302 F", Location="/again")] * 20
    with pytest.raises(NoInvitationThere, match="too many redirects"):
        fetch_invitation(server.uri).result(PATIENCE_S)
    assert len(server.requests) == 4
    with pytest.raises(NoInvitationThere, match="not an http"):
        fetch_invitation("ftp://a.example/").result(PATIENCE_S)
