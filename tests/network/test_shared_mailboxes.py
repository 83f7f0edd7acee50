"""Shared mailboxes at a mediator: one post for all that share a key, from its holders alone, within limits."""

import pytest
from msgspec.structs import replace

from tests.support import mediator_site
from tests.support.mediator_site import BOB, KEY, V2, Client, Site, letter, random
from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.store import Store
from zerochat.didcomm.did import new_peer4, resolve
from zerochat.didcomm.protocols import mediation, problem, routing, shared_mailbox
from zerochat.didcomm.protocols.mediation import Change
from zerochat.didcomm.protocols.shared_mailbox import SHARES_MAX, Share
from zerochat.didcomm.service import Route
from zerochat.errors import Malformed, Unauthentic

path, site = mediator_site.path, mediator_site.site

SECRET = bytes(range(32))
DIDS = (BOB.did, new_peer4(random, []).did)


def seed_at(site, secret=SECRET):
    return shared_mailbox.shared_seed(secret, site.identity.did)


def shares(client, *secrets, mailbox=None):
    box = mailbox or client.mailbox.did
    seeds = [seed_at(client.site, one) for one in secrets or (SECRET,)]
    return [shared_mailbox.share(seed, box, client.identity.did, client.theirs) for seed in seeds]


def keep(client, *secrets, **options):
    """The keys that the mediator keeps for a recipient."""
    return shared_mailbox.read_kept(client.ask(shared_mailbox.keep(shares(client, *secrets, **options), random)))


def members(site, count):
    """Recipients that share the mailbox."""
    found = [Client(site).connect() for _ in range(count)]
    for one in found:
        assert keep(one) == {shared_mailbox.key_of(seed_at(site))}
    return found


def post(site, text="hello", seed=None, proof=None, **options):
    """What becomes of an envelope to the shared key."""
    seed = seed or seed_at(site)
    key = shared_mailbox.key_of(seed)
    plain = b'{"type":"https://example.org/x","id":"m","body":{"text":"%s"}}' % text.encode()
    draws = shared_mailbox.convergent(seed, plain)
    envelope = V2.anoncrypt(plain, recipient=V2.their_key(resolve(key), key), random=draws)
    shared = shared_mailbox.sign_post(seed, envelope) if proof is None else proof
    way = Route(site.uri, (site.identity.did,), (), "final")
    wrapped = routing.wrap(envelope, way, key, resolve=resolve, random=random, shared=shared, **options)
    return site.hear(wrapped), envelope


def waiting(site, client):
    number = site.store.recipient(client.identity.short).id
    return [site.store.envelope(one) for one in site.store.fetch(number, 100)]


# --- keys and proofs ------------------------------------------------------------------------------------------------


def test_a_shared_key_belongs_to_one_secret_and_one_mediator(site):
    keys = {shared_mailbox.key_of(shared_mailbox.shared_seed(one, did)) for one in (SECRET, bytes(32)) for did in DIDS}
    assert len(keys) == 4 and all(len(key) <= shared_mailbox.KEY_CHARS_MAX for key in keys)


def test_a_share_is_bound_to_its_recipient_mediator_and_mailbox():
    claim = shared_mailbox.share(SECRET, "did:example:box", *DIDS)
    shared_mailbox.check_share(claim, *DIDS)
    shared_mailbox.check_share(claim, BOB.short, DIDS[1])
    other = shared_mailbox.share(bytes(32), "did:example:box", *DIDS)
    for wrong, to in ((claim, DIDS[::-1]), (replace(claim, mailbox="x"), DIDS), (replace(claim, key=other.key), DIDS)):
        with pytest.raises(Unauthentic):
            shared_mailbox.check_share(wrong, *to)


def test_what_several_post_is_the_same_envelope_and_differs_for_each_content():
    one, again, other = (shared_mailbox.convergent(SECRET, text) for text in (b"a", b"a", b"b"))
    drawn = [one(40), one(40)]
    assert drawn == [again(40), again(40)] and drawn[0] != drawn[1] and other(40) not in drawn
    assert shared_mailbox.convergent(bytes(32), b"a")(40) not in drawn


@pytest.mark.parametrize(
    "rows",
    [
        [{"key": "k", "mailbox": "m"}],
        [{"key": "k", "mailbox": "m", "proof": "p"}],
        [{"key": "k", "mailbox": "m", "proof": "p" * 86}] * 2,
        [{"key": f"k{number}", "mailbox": "m", "proof": "p" * 86} for number in range(SHARES_MAX + 1)],
    ],
)
def test_a_list_of_another_form_is_malformed(rows):
    with pytest.raises(Malformed):
        shared_mailbox.read_keep(replace(shared_mailbox.keep((), random), body={"shares": rows}))


# --- fan-out --------------------------------------------------------------------------------------------------------


def test_one_post_reaches_all_that_share_and_no_other(site):
    three, other = members(site, 3), Client(site).connect()
    outcome, envelope = post(site)
    assert (outcome.what, outcome.answer) == ("shared", None) and site.mediator.counts["kept"] == 3
    assert [waiting(site, one) for one in three] == [[envelope]] * 3 and waiting(site, other) == []
    site.restart()
    assert [waiting(site, one) for one in three] == [[envelope]] * 3
    assert post(site, "after a restart")[0].what == "shared" and len(waiting(site, three[2])) == 2


def test_it_is_delivered_live(site):
    [one] = members(site, 1)
    _, envelope = post(site)
    one.pushed()
    assert one.got == [envelope]


def test_what_several_members_post_is_stored_once_also_after_it_was_fetched(site):
    one, other = members(site, 2)
    site.mediator.closed(other.session)
    assert [post(site)[0].what for _ in range(3)] == ["shared", "dropped.twice", "dropped.twice"]
    assert site.store.usage.total.messages == 2
    one.pushed()
    one.acknowledge()
    assert post(site)[0].what == "dropped.twice" and waiting(site, one) == []
    site.now += (Limits().dedupe_s + 1) * 1000
    with site.store.transaction():
        site.mediator.sweep(site.now // 1000)
    assert post(site)[0].what == "shared", "the digests do not stay for ever"


def test_a_member_that_posts_first_does_not_decide_when_the_message_ends(site):
    """All post the same envelope, and the copies of later ones are dropped."""
    [one] = members(site, 1)
    _, envelope = post(site, expires_time=site.now // 1000 + 2)
    site.now += 3_000
    with site.store.transaction():
        site.mediator.sweep(site.now // 1000)
    post(site)
    assert waiting(site, one) == [envelope]


def test_only_holders_of_the_key_post(site):
    [one] = members(site, 1)
    other = bytes(32)
    envelope = letter(BOB, "forged")
    for proof in (shared_mailbox.sign_post(other, envelope), shared_mailbox.sign_post(seed_at(site), b"x"), "x" * 86):
        assert post(site, proof=proof)[0].what == "dropped.unproven"
    assert post(site, proof="")[0].what == "dropped.unknown", "a forward without a proof is for one recipient"
    assert post(site, seed=other)[0].what == "dropped.unknown", "a key that is not shared here"
    assert waiting(site, one) == []


def test_delays_and_detours_are_left_out_and_an_expiry_counts(site):
    [one] = members(site, 1)
    assert post(site, delay_milli=60_000)[0].what == "shared" and len(waiting(site, one)) == 1
    assert post(site, "old", expires_time=site.now // 1000)[0].what == "dropped.expired"
    assert post(site, "receipt", wants_receipt=True)[0].answer is None


def test_each_mailbox_has_its_own_limits(path):
    site = Site(path, Limits(messages=8, shares_min=4))
    one, other = members(site, 2)
    site.mediator.closed(other.session)
    for number in range(3):
        post(site, f"{number}")
    one.pushed()
    one.acknowledge()
    post(site, "3")
    assert len(waiting(site, one)) == 1 and len(waiting(site, other)) == 2, "of a full one the oldest goes"
    site.store.close()


def test_the_copies_of_one_shared_mailbox_are_limited(path):
    site = Site(path, Limits(copies_burst=10, copies_per_s=2))
    members(site, 3)
    assert [post(site, f"{number}")[0].what for number in range(5)] == ["shared"] * 3 + ["dropped.rate"] * 2
    other = seed_at(site, bytes(32))
    keep(Client(site).connect(), bytes(32))
    assert post(site, "x", other)[0].what == "shared", "others have a rate of their own"
    site.now += 3_000
    assert [post(site, f"{number}")[0].what for number in range(3, 6)] == ["shared"] * 2 + ["dropped.rate"]
    assert len(site.mediator.copies) == 2
    site.now += 60_000
    with site.store.transaction():
        site.mediator.sweep(site.now // 1000)
    assert len(site.mediator.copies) == 0
    site.store.close()


def test_the_copies_of_all_shared_mailboxes_are_limited(path):
    site = Site(path, Limits(copies_burst=6, copies_per_s=3, total_copies_burst=9, total_copies_per_s=3))
    members(site, 3)
    other = seed_at(site, bytes(32))
    for _ in range(3):
        keep(Client(site).connect(), bytes(32))
    assert [post(site, f"{number}")[0].what for number in range(2)] == ["shared"] * 2
    assert [post(site, f"{number}", other)[0].what for number in range(2)] == ["shared", "dropped.rate"]
    site.now += 1_000
    assert post(site, "2", other)[0].what == "shared"
    assert post(site, "3")[0].what == "dropped.rate"
    site.store.close()


def test_a_clock_that_is_set_back_stops_no_copies(path):
    site = Site(path, Limits(copies_burst=3, copies_per_s=1))
    members(site, 3)
    assert [post(site, f"{number}")[0].what for number in range(2)] == ["shared", "dropped.rate"]
    site.now -= 3_600_000
    assert [post(site, f"{number}")[0].what for number in range(2, 4)] == ["shared", "dropped.rate"]
    site.now += 3_000
    assert post(site, "4")[0].what == "shared"
    site.store.close()


def test_a_long_envelope_counts_as_several_copies(path):
    site = Site(path, Limits(copies_burst=8, copies_per_s=0))
    members(site, 1)
    assert post(site, "x" * 100_000)[0].what == "dropped.rate"
    assert post(site, "x" * 50_000)[0].what == "shared"

    site.store.close()


# --- who shares -----------------------------------------------------------------------------------------------------


def test_a_list_replaces_the_one_before(site):
    [one] = members(site, 1)
    assert keep(one, bytes(32)) == {shared_mailbox.key_of(seed_at(site, bytes(32)))}
    assert post(site)[0].what == "dropped.unknown"
    assert post(site, seed=seed_at(site, bytes(32)))[0].what == "shared"
    assert shared_mailbox.read_kept(one.ask(shared_mailbox.keep((), random))) == frozenset()
    assert post(site, "again", seed_at(site, bytes(32)))[0].what == "dropped.unknown"


def test_a_replayed_list_changes_nothing(site):
    [one] = members(site, 1)
    request = one.seal(shared_mailbox.keep((), random))
    assert site.hear(request, one.session).answer is not None and post(site)[0].what == "dropped.unknown"
    keep(one)
    assert site.hear(request, one.session).answer is None
    assert post(site)[0].what == "shared"


def test_a_share_needs_a_proof_and_a_mailbox_of_its_own(site):
    bob, eve = members(site, 1)[0], Client(site).connect()
    stolen = shares(bob)
    assert shared_mailbox.read_kept(eve.ask(shared_mailbox.keep(stolen, random))) == frozenset()
    assert keep(eve, mailbox=bob.mailbox.did) == frozenset(), "another recipient's mailbox would be filled"
    assert keep(eve, mailbox=new_peer4(random, []).did) == frozenset() and keep(eve, mailbox="did:x") == frozenset()
    broken = Share("did:key:zz", eve.mailbox.did, "x" * 86)
    assert shared_mailbox.read_kept(eve.ask(shared_mailbox.keep([broken], random))) == frozenset()
    assert problem.is_problem(Client(site).ask(shared_mailbox.keep(stolen, random))), "a stranger"
    assert site.mediator.counts["unshared"] == 5


def test_nothing_is_fanned_out_to_other_addresses(site):
    """A relayed DID would let one post cause many requests elsewhere."""
    eve = Client(site)
    away = new_peer4(random, [mediator_site.service("http://victim.example/")])
    eve.connect(eve.mailbox.did, away.did)
    assert site.store.registration(away.short).relay
    assert keep(eve, mailbox=away.did) == frozenset()


def test_a_mailbox_that_is_given_up_gets_nothing(site):
    one, other = members(site, 2)
    one.ask(mediation.update([Change(one.mailbox.did, "remove")], random))
    assert post(site)[0].what == "shared" and waiting(site, one) == [] and len(waiting(site, other)) == 1


def test_a_mailbox_that_goes_to_another_recipient_is_no_longer_shared(site):
    [one], other = members(site, 1), Client(site).connect()
    one.ask(mediation.update([Change(one.mailbox.did, "remove")], random))
    other.ask(mediation.update([Change(one.mailbox.did, "add")], random))
    assert post(site)[0].what == "dropped.unknown" and waiting(site, other) == []


def test_the_users_of_a_shared_mailbox_are_limited(path):
    site = Site(path, Limits(share_users=2))
    members(site, 2)
    third = Client(site).connect()
    assert keep(third) == frozenset() and keep(third, bytes(32))
    site.store.close()


def test_a_list_is_charged_by_its_length(path):
    site = Site(path, Limits(requests_burst=150, requests_per_s=0))
    eve = Client(site).connect()
    claims = shares(eve, *(bytes([number]) * 32 for number in range(SHARES_MAX)))
    answers = [eve.tell(shared_mailbox.keep(claims, random)) for _ in range(4)]
    assert [one is not None for one in answers] == [True, True, False, False]
    site.store.close()


def test_a_deleted_recipient_shares_nothing(site):
    [one] = members(site, 1)
    site.now += (Limits().recipient_idle_s + 1) * 1000
    with site.store.transaction():
        site.mediator.sweep(site.now // 1000)
    assert site.store.recipient(one.identity.short) is None and post(site)[0].what == "dropped.unknown"


def test_a_file_of_an_older_version_gets_the_table(site, path):
    with site.store.transaction():
        site.store._write("DROP TABLE sharers", ())
    site.restart()
    members(site, 1)
    assert post(site)[0].what == "shared"


def test_the_disk_holds_no_secret_of_the_group(site, path):
    members(site, 2)
    post(site)
    site.store.close()
    kept = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert SECRET not in kept and seed_at(site) not in kept
    site.store = Store.open(path, KEY)
