"""Posts that a mediator makes for its recipients: for them alone, within limits, and with their result."""

import pytest
from msgspec.structs import replace

from tests.support import mediator_site
from tests.support.mediator_site import BOB, Client, Site, letter, random
from zerochat.agent.mediator import protocol_handlers
from zerochat.agent.mediator.limits import Limits
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.didcomm.protocols import ping, problem, relayed_post
from zerochat.didcomm.protocols.relayed_post import PostRequest, PostResult
from zerochat.errors import Malformed

bob, path, site = mediator_site.bob, mediator_site.path, mediator_site.site

WANTED = PostRequest("http://other.example/", letter(BOB, "hello"), "application/x", AddressKind.PRIVATE)


def request(wanted=WANTED):
    return relayed_post.post(wanted, random)


def settle(site, ticket, why=""):
    return site.mediator.settle_post(ticket, why)


def test_an_envelope_is_posted_unchanged_and_its_answer_comes_back(site, bob):
    asked = request()
    assert bob.tell(asked) is None, "the answer comes when the post is done"
    [(ticket, wanted)] = site.mediator.handlers.posts.take()
    assert wanted == WANTED and site.mediator.handlers.posts.take() == []
    back = letter(bob.identity, "an answer")
    assert site.mediator.handlers.posts.answered(ticket, back)
    push = settle(site, ticket)
    assert push.handle == bob.session.handle
    answer = bob.read(push.envelope)
    assert answer.thid == asked.id and relayed_post.read_posted(answer) == PostResult("", back)
    assert settle(site, ticket) is None and not site.mediator.handlers.posts.answered(ticket, back)


def test_a_failure_is_reported_with_its_reason_and_charged(site, bob):
    bob.tell(request())
    work = site.store.usage.work[site.store.recipient(bob.identity.short).id]
    before = work.allowance
    [(ticket, _)] = site.mediator.handlers.posts.take()
    assert relayed_post.read_posted(bob.read(settle(site, ticket, "status 404").envelope)) == PostResult("status 404")
    assert work.allowance == before - protocol_handlers.FAILED_POST_REQUESTS
    work.allowance = 1.0
    bob.tell(request())
    [(ticket, _)] = site.mediator.handlers.posts.take()
    settle(site, ticket, "timeout")
    assert work.allowance == 0.0


def test_nothing_is_posted_for_others(site):
    """A sender that is not a recipient, and a recipient without a connection for the result."""
    stranger = Client(site)
    assert problem.is_problem(stranger.ask(request()))
    passing = Client(site, stays=False)
    passing.connect()
    passing.session = site.session(stays=False)
    assert passing.tell(request()) is None
    assert site.mediator.handlers.posts.take() == []


def test_posts_of_one_recipient_are_limited_and_leave_room_for_others(path):
    site = Site(path, Limits(posts_each=3, posts_at_once=4))
    bob, carol, dave = (Client(site).connect() for _ in range(3))
    assert [bob.tell(request()) for _ in range(3)] == [None] * 3
    refused = bob.ask(request())
    assert relayed_post.read_posted(refused) == PostResult(relayed_post.BUSY)
    assert carol.tell(request()) is None
    assert relayed_post.read_posted(dave.ask(request())).why == relayed_post.BUSY
    [(first, _), *_] = site.mediator.handlers.posts.take()
    settle(site, first)
    assert bob.tell(request()) is None, "a settled post makes room"
    site.store.close()


def test_posts_are_charged_by_their_size(path):
    site = Site(path, Limits(requests_burst=40, requests_per_s=0, posts_each=100, posts_at_once=100))
    bob = Client(site).connect()
    large = replace(WANTED, envelope=letter(BOB, "x" * 100_000))
    for _ in range(6):
        bob.tell(request(large))
    accepted = len(site.mediator.handlers.posts.take())
    assert accepted == 4, "9 requests each, of 40"
    site.store.close()


def test_a_repeated_request_is_posted_once(site, bob):
    sealed = bob.seal(request())
    for _ in range(3):
        site.hear(sealed, bob.session)
    assert len(site.mediator.handlers.posts.take()) == 1


def test_a_failed_transaction_posts_nothing(site, bob):
    in_flight = site.mediator.in_flight()
    bob.tell(request())
    site.mediator.undo(in_flight)
    assert site.mediator.handlers.posts.take() == []
    assert site.mediator.handlers.posts._pending == {}


@pytest.mark.parametrize(
    "uri",
    [
        "ws://other.example/",
        "file:///etc/passwd",
        "http://other.example/?q=1",
        "http://other.example/#f",
        "http://me:secret@other.example/",
        "http://other.example/a b",
        "http://other.example/\r\n",
        "http://öther.example/",
        "http://other.example/" + "x" * relayed_post.URI_CHARS_MAX,
    ],
)
def test_an_address_that_no_member_may_announce_is_refused(site, bob, uri):
    asked = request(replace(WANTED, uri=uri))
    with pytest.raises(Malformed):
        relayed_post.read_post(asked)
    bob.tell(asked)
    assert site.mediator.handlers.posts.take() == []


def test_only_envelopes_are_posted(site, bob):
    for content in (b'{"any":"json"}', b"[1]"):
        bob.tell(request(replace(WANTED, envelope=content)))
    bob.tell(replace(request(), attachments=()))
    bob.tell(Message(f"{relayed_post.PROTOCOL}/post", "id", {"uri": WANTED.uri, "media_type": "x", "nearest": 9}))
    assert site.mediator.handlers.posts.take() == []
    with pytest.raises(Malformed):
        request(replace(WANTED, envelope=b'"' + b"x" * MESSAGE_BYTES_MAX + b'"'))


def test_an_answer_that_fits_no_message_is_dropped(site, bob):
    bob.tell(request())
    [(ticket, _)] = site.mediator.handlers.posts.take()
    site.mediator.handlers.posts.answered(ticket, b'"' + b"x" * MESSAGE_BYTES_MAX + b'"')
    assert settle(site, ticket) is None
    assert bob.ask(ping.ping(random)) is not None
