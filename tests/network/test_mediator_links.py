"""Short links at a mediator: quotas, owners, replays, restarts."""

import pytest
from msgspec.structs import replace

from tests.support import mediator_site
from tests.support.mediator_site import NOW, Client, Site, random
from zerochat.agent.mediator.limits import Limits
from zerochat.didcomm.protocols import problem, short_links
from zerochat.didcomm.protocols.short_links import Publication
from zerochat.errors import Malformed

path = mediator_site.path
PAGE = "https://mediator.example/"
UNTIL = NOW // 1000 + 3600


class LinkSite(Site):
    """A mediator whose page is known; `changes` are the changes for its web server."""

    def start(self) -> None:
        super().start()
        handlers = self.mediator.handlers
        handlers._policy = replace(handlers._policy, page=PAGE)

    def changes(self):
        changed = dict(self.mediator.handlers.links_changed)
        self.mediator.handlers.links_changed.clear()
        return changed


@pytest.fixture
def site(path):
    made = LinkSite(path, Limits(links=3, links_total=12, link_age_s=7200))
    yield made
    made.store.close()


def publication(number: int, sealed: bytes = b"sealed", until: int = UNTIL) -> Publication:
    return Publication(f"{number:016}", sealed, until)


def publish(client: Client, *arguments, **options):
    return short_links.read_answer(client.ask(short_links.publish(publication(*arguments, **options), random)))


def test_a_recipient_publishes_and_withdraws(site):
    bob = Client(site).connect()
    assert publish(bob, 1).page == PAGE and publish(bob, 2, until=UNTIL + 10**9).page == PAGE
    latest = NOW // 1000 + 7200
    assert site.changes() == {f"{1:016}": (b"sealed", UNTIL), f"{2:016}": (b"sealed", latest)}
    site.restart()
    assert sorted(site.store.links()) == [(f"{1:016}", b"sealed", UNTIL), (f"{2:016}", b"sealed", latest)]
    bob.tell(short_links.keep([f"{2:016}"], random))
    assert site.changes() == {f"{1:016}": None} and len(site.store.links()) == 1
    site.now = (latest + 1) * 1000
    with site.store.transaction():
        site.mediator.sweep(site.now // 1000)
    assert not site.store.links()


def test_each_recipient_has_a_quota_and_all_together_one(site):
    clients = [Client(site).connect() for _ in range(5)]
    counts = [
        [publish(client, 10 * mine + each).why for each in range(4)].count("") for mine, client in enumerate(clients)
    ]
    assert counts[0] == 3 and sum(counts) <= 12 and min(counts) >= 1, "room is left for the later ones"
    assert publish(clients[0], 0, b"again").page == PAGE, "its own may be replaced"
    assert publish(clients[0], 0, bytes(short_links.SEALED_BYTES_MAX + 1)).why == "large"


def test_a_link_belongs_to_its_recipient(site):
    bob, eve = Client(site).connect(), Client(site).connect()
    publish(bob, 1)
    site.changes()
    assert publish(eve, 1, b"another").why == "full"
    eve.tell(short_links.keep([], random))
    assert not site.changes() and site.store.links() == [(f"{1:016}", b"sealed", UNTIL)]
    stranger = Client(site)
    assert problem.is_problem(stranger.ask(short_links.publish(publication(2), random)))


def test_a_replay_changes_nothing(site):
    bob = Client(site).connect()
    published, kept = short_links.publish(publication(1), random), short_links.keep([], random)
    for message in (published, kept, published):
        bob.tell(message)
    assert not site.store.links()
    publish(bob, 2)
    bob.tell(kept)
    assert len(site.store.links()) == 1


def test_a_mediator_behind_another_one_refuses(path):
    site = Site(path)
    assert publish(Client(site).connect(), 1).why == "behind"
    site.store.close()


def test_no_recipient_replaces_the_mediators_own_invitation():
    """Its id is longer than every id that a recipient may choose."""
    from zerochat.crypto.encoding import b64url

    assert len(b64url(bytes(16))) > short_links.ID_CHARS


@pytest.mark.parametrize(
    "page",
    [
        "http://a.example/';ls;'",
        "http://a.example/?x=1",
        "http://a.example/#",
        "ws://a.example/",
        "http://" + "a" * 300,
    ],
)
def test_a_mediator_cannot_choose_a_page_that_is_no_plain_address(page):
    asked = short_links.publish(publication(1), random)
    with pytest.raises(Malformed):
        short_links.read_answer(short_links.answer(asked, short_links.Answer(page), random))
