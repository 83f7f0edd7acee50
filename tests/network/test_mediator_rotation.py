"""Pairwise DIDs of a mediator: one per recipient, despite any loss."""

from contextlib import suppress

import pytest
from msgspec.structs import replace

from tests.support import mediator_site
from tests.support.mediator_site import NOW, V2, Client, Site, forwarded, kind, letter, random, service
from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.mixing import parse_mediator_invitation
from zerochat.agent.mediator.pairwise_dids import service as pairwise_service
from zerochat.didcomm.did import new_peer2, new_peer4, resolve
from zerochat.didcomm.did.peer2 import peer2
from zerochat.didcomm.protocols import mediation, mediation_client, oob_write, pickup, ping, problem, routing
from zerochat.didcomm.protocols.mediation import Change
from zerochat.didcomm.rotation import Prior, from_prior
from zerochat.didcomm.service import routes
from zerochat.errors import RemoteError, Unauthentic
from zerochat.group.links.relationship import Relationship, unpack

path, site, bob = mediator_site.path, mediator_site.site, mediator_site.bob


def asked(client: Client, word: str | None = None) -> tuple[str, bool]:
    """The DID that answers a question, and whether with its old one's word."""
    client.ask(replace(pickup.status_request(random), from_prior=word))
    return client.theirs, client.word is not None


def rotated(client: Client) -> str:
    """The client has a new DID; its old one's word for that."""
    old, client.identity = client.identity, new_peer4(random, [])
    return from_prior(Prior(old.did, old.kid_signing, old.signing_seed), client.identity.did, NOW // 1000)


def test_each_recipient_gets_a_different_did(site, bob):
    carol = Client(site).connect()
    assert len({bob.theirs, carol.theirs, site.identity.did}) == 3
    assert [route.uri for route in routes(resolve(bob.theirs))] == [site.uri]
    assert bob.state.routing_did == carol.state.routing_did == site.identity.did, "routes are not about relationships"
    assert bob.mailbox.did in mediation.read_listing(bob.ask(mediation.query(random))).dids


def test_the_rotation_is_repeated_until_the_new_did_is_used(site):
    bob = Client(site)
    bob.ask(mediation.request(random, pthid="the-invitation"))
    new, bob.theirs = bob.theirs, site.identity.did  # as if the answer were lost
    for _ in range(2):
        assert asked(bob) == (new, True)
        bob.theirs = site.identity.did
    bob.connect()
    assert bob.theirs == new and bob.word is None
    site.hear(forwarded(site, bob.mailbox, "pushed"))
    bob.pushed()
    assert len(bob.got) == 1 and bob.word is None
    bob.theirs = site.identity.did  # as if put back from a backup
    assert asked(bob) == (new, True)
    assert asked(bob) == (new, False)


def test_pushed_messages_carry_the_rotation(site):
    bob = Client(site, learns=False).connect()
    site.hear(forwarded(site, bob.mailbox, "pushed"))
    bob.word = None
    bob.pushed()
    assert len(bob.got) == 1 and bob.word is not None


@pytest.mark.parametrize("heard", [False, True])
def test_a_restart_changes_nothing(site, heard):
    bob = Client(site)
    bob.ask(mediation.request(random, pthid="the-invitation"))
    new, word = bob.theirs, bob.word
    if heard:
        bob.ask(pickup.status_request(random))
    else:
        bob.theirs = site.identity.did
    site.restart()
    assert asked(bob) == (new, not heard) and bob.word == (None if heard else word)
    site.restart()
    assert asked(bob) == (new, False)


def test_a_recipient_that_never_learns_the_rotation_is_served(site):
    bob = Client(site, learns=False).connect()
    for number in range(3):
        envelope = forwarded(site, bob.mailbox, f"{number}")
        assert site.hear(envelope).what == "kept"
        bob.pushed()
        bob.acknowledge()
        assert len(bob.got) == number + 1 and bob.theirs == site.identity.did
    site.restart()
    assert not bob.connect().got[3:] and not site.store.usage.total.messages


def test_both_sides_rotate(site):
    """The recipient's word and the mediator's cross; each hears the other's, and it is the same recipient after it."""
    bob = Client(site)
    bob.ask(mediation.request(random, pthid="the-invitation"))
    new, bob.theirs = bob.theirs, site.identity.did
    assert asked(bob, rotated(bob)) == (new, True), "both are new, and each has its old one's word"
    assert asked(bob) == (new, False) and site.store.recipients() == 1
    bob.connect()
    assert asked(bob, rotated(bob)) == (new, False)
    site.hear(forwarded(site, bob.mailbox, "for the new one"))
    bob.pushed()
    assert len(bob.got) == 1, "what is pushed goes to the new DID, on the connection that is open"


def test_a_forgotten_recipient_is_answered_from_the_known_did(site, bob):
    with site.store.transaction():
        site.mediator.sweep(NOW // 1000 + Limits().recipient_idle_s)
    assert not site.store.recipients()
    known = bob.theirs
    assert problem.is_problem(bob.ask(pickup.status_request(random)))
    assert bob.theirs == known and bob.word is None
    bob.connect()
    bob.session = site.session()
    again = bob.ask(mediation.request(random, pthid="the-invitation"))
    assert kind(again) == "grant" and bob.theirs == known and bob.word is None
    assert site.store.recipients() == 1


def test_the_pairwise_did_of_another_recipient_gives_no_access(site, bob):
    """Eve has heard of the DID that is for Bob: she gets one of her own, with the public one's word."""
    eve = Client(site)
    eve.theirs = bob.theirs
    outcome = site.hear(eve.seal(mediation.request(random, pthid="the-invitation")), eve.session)
    eve.theirs = site.identity.did
    assert kind(eve.read(outcome.answer)) == "grant"
    assert eve.theirs not in (site.identity.did, bob.theirs) and eve.word is not None


def test_strangers_get_no_did(path):
    """As many DIDs as recipients, and of those there is a limit."""
    site = Site(path, Limits(recipients=1))
    stranger, bob = Client(site, pthid=None), Client(site).connect()
    late = Client(site)
    assert kind(stranger.ask(mediation.request(random))) == "deny"
    assert kind(late.ask(mediation.request(random, pthid="the-invitation"))) == "deny"
    assert problem.is_problem(stranger.ask(pickup.status_request(random)))
    assert stranger.ask(replace(ping.ping(random), return_route="all"))
    assert stranger.theirs == late.theirs == site.identity.did != bob.theirs
    assert stranger.word is late.word is None
    site.store.close()


def test_the_keys_of_a_did_stay_with_their_mediator(site, bob, tmp_path):
    """Another mediator, or somebody who puts the same number into a DID with other keys, opens nothing."""
    other = Site(tmp_path / "other.db")
    status = bob.seal(pickup.status_request(random))
    assert site.hear(status, site.session()).answer is not None
    assert other.hear(status).what == "unreadable"
    tag = resolve(bob.theirs).services[0].id.partition("#")[2]
    forged = new_peer2(random, [{**service(site.uri), "id": "#" + tag}])
    bob.theirs = forged.did
    assert site.hear(bob.seal(pickup.status_request(random))).what == "unreadable"
    other.store.close()


def test_a_did_with_our_keys_and_a_changed_document_is_refused(site, bob):
    ours, pairwise = bob.theirs, site.mediator._pairwise
    document = resolve(ours)
    signing, agreement = document.authentication[0].key, document.agreement[0].key
    tag = document.services[0].id.partition("#")[2]
    first, elsewhere = pairwise_service(site.uri, tag), "https://elsewhere.example"
    assert peer2([signing], [agreement], [first]) == ours and pairwise.identity(ours) is not None
    others = [
        peer2([signing], [agreement], [pairwise_service(elsewhere, tag)]),
        peer2([signing], [agreement], [first, pairwise_service(elsewhere)]),
        peer2([signing], [agreement], [pairwise_service(site.uri, tag, (site.identity.did,))]),
        f"{ours}.A{ours.split('.')[1][1:]}",
    ]
    for did in others:
        assert pairwise.identity(did) is None and not pairwise.is_ours(did), did
        bob.theirs = did
        assert site.hear(bob.seal(pickup.status_request(random))).what == "unreadable"


def test_the_did_may_stand_in_routes_and_cannot_be_taken(site, bob):
    """A recipient of another maker may name the DID that it talks to, and not the one that was granted."""
    box = new_peer4(random, [service(bob.theirs)])
    update = bob.ask(mediation.update([Change(box.did, "add"), Change(bob.theirs, "add")], random))
    assert [row.result for row in mediation.read_update_response(update)] == ["success", "client_error"]
    assert site.hear(forwarded(site, box, "hello")).what == "kept", "it waits, and is not sent on to ourselves"
    key = V2.their_key(resolve(bob.theirs), bob.theirs)
    plain = routing.forward(letter(box, "further"), bob.mailbox.did, to=bob.theirs, random=random)
    around = routing.rewrap(
        V2.anoncrypt(plain, recipient=key, random=random), bob.theirs, resolve=resolve, random=random
    )
    assert site.hear(around).what == "unwrapped" and site.store.usage.total.messages == 2


# --- forged words ---------------------------------------------------------------------------------------------------


def forgeries(site, bob, mallory):
    """Words for Mallory's DID by everybody but the mediator's public one."""
    public, signer = site.identity, Prior(mallory.did, mallory.kid_signing, mallory.signing_seed)
    yield from_prior(replace(signer, did=public.did, kid=public.kid_signing), mallory.did, NOW // 1000)
    yield from_prior(signer, new_peer4(random, []).did, NOW // 1000)
    right = Prior(public.did, public.kid_signing, public.signing_seed)
    yield from_prior(right, bob.theirs, NOW // 1000)
    yield None


def test_a_forged_rotation_is_refused(site, bob):
    """Nobody else can take the mediator's place: not at an agent of ours, and not at another mediator."""
    mallory = new_peer2(random, [service("http://mallory.example")])
    node = parse_mediator_invitation(oob_write.link(site.uri, oob_write.invitation(site.identity.did, random)))
    public, recipient = site.identity.did, bob.identity
    known = Relationship("", recipient, public, "t", public, requester=True)
    for word in forgeries(site, bob, mallory):
        grant = mediation.grant(mediation.request(random), mallory.did, random)
        forged = replace(grant, from_=mallory.did, to=(recipient.did,), from_prior=word)
        mine = V2.own_key(mallory, mallory.did)
        theirs = V2.their_key(resolve(recipient.did), recipient.did)
        envelope = V2.authcrypt(V2.dump(forged), sender=mine, recipient=theirs, random=random)
        with pytest.raises(RemoteError):
            unpack(known, envelope, V2, layered=True)
        with suppress(Unauthentic):
            assert not node.is_by(forged, mallory.did)
        assert node.speaks == public
    word = replace(pickup.status_request(random), from_prior=next(forgeries(site, bob, recipient)))
    site.hear(bob.seal(word), bob.session)
    assert mallory.did not in asked(bob) and site.store.recipients() == 1


def test_the_mediators_own_rotation_is_accepted(site, bob):
    """By an agent of ours, and by another mediator, which goes on with the DID that it has heard of."""
    carol = Client(site, learns=False)
    outcome = site.hear(carol.seal(mediation.request(random, pthid="the-invitation")), carol.session)
    known = Relationship("", carol.identity, site.identity.did, "t", site.identity.did, requester=True)
    relationship, message = unpack(known, outcome.answer, V2, layered=True)
    assert relationship.theirs not in (site.identity.did, bob.theirs) and message.from_ == relationship.theirs
    node = parse_mediator_invitation(oob_write.link(site.uri, oob_write.invitation(site.identity.did, random)))
    assert node.is_by(message, relationship.theirs) and node.speaks == relationship.theirs
    assert node.is_by(replace(message, from_prior=None), relationship.theirs)
    assert not node.is_by(replace(message, from_prior=None), site.identity.did)
    said = mediation_client.receive(carol.state, message, random)
    assert said.state.phase == "granted" and said.state.routing_did == site.identity.did
