"""The key agreement in random histories under the real membership rules, against adversaries who keep everything."""

from collections import Counter

import pytest
from msgspec.structs import replace

from tests.support import key_agreement_model
from tests.support.key_agreement_model import POLICIES, Model, Violation
from tests.support.marks import others_slow
from zerochat.crypto import two_party
from zerochat.group.key_agreement import message_keys, production, reception
from zerochat.group.key_agreement.key_schedule import adopted

EVERYDAY, SLICE, ABLATED = 4, 16, 6
CHECKS_MIN = 100
"""Compared keys of a history, at least on average."""


def overlooks_departures(knowers, audiences, members):
    """Without H1: a departure counts only if an update is adopted."""
    if not audiences:
        return knowers & members
    return next((one for one in reversed(audiences) if one <= members), None)


def overlooks_audiences(knowers, audiences, members):
    """Without H2: an adopted update is taken to be known to members alone."""
    if audiences:
        return audiences[-1] & members
    return knowers if knowers <= members else None


def overlooks_both(knowers, audiences, members):
    return audiences[-1] & members if audiences else knowers & members


def play(numbers, **options):
    """Histories by number, every other one eager: keys compared, messages read by outsiders alone and together."""
    checks = single = pooled = 0
    for number in numbers:
        model = Model(number, eager=number % 2 == 1, **options).run()
        alone, together = model.leaks()
        checks, single, pooled = checks + model.checks, single + alone, pooled + together
    return checks, single, pooled


def test_members_agree_and_outsiders_read_nothing():
    checks, single, pooled = play(range(EVERYDAY))
    assert checks >= EVERYDAY * CHECKS_MIN
    assert (single, pooled) == (0, 0)


@pytest.mark.sim
@pytest.mark.keys
@pytest.mark.parametrize("part", range(3))
def test_search(part, budget, figures):
    histories = budget(SLICE)
    first = EVERYDAY + part * histories
    checks, single, pooled = play(range(first, first + histories))
    figures(f"{histories} histories, {checks:,} keys compared, {single} and {pooled} messages read by outsiders")
    assert checks >= histories * CHECKS_MIN
    assert (single, pooled) == (0, 0)


@pytest.mark.sim
@pytest.mark.keys
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.remove}-{policy.roles}-{policy.quorum}")
def test_large_groups(policy, budget):
    for number in range(budget(1)):
        model = Model(number, founders=8, policy=policy).run(120)
        assert model.leaks() == (0, 0)


@pytest.mark.sim
@pytest.mark.keys
def test_histories_have_every_kind_of_event(figures):
    """Otherwise the search proves less than it says."""
    types: Counter[str] = Counter()
    returned = persons = 0
    for number in range(12):
        model = Model(number).run()
        types.update(event.type for event in model.book.control.values())
        returned += model.returns
        persons += len(model.nodes) - len({node.person for node in model.nodes.values()})
    figures(f"{dict(types)}, {returned} returns by a void removal, {persons} rejoins")
    assert min(types[kind] for kind in ("add", "remove", "vote", "leave", "role")) >= 5
    assert returned and persons


@pytest.mark.parametrize(
    ("rule", "needs"),
    [(overlooks_departures, "H1"), (overlooks_audiences, "H2"), (overlooks_both, "both")],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.sim
@pytest.mark.keys
def test_without_a_heal_the_search_finds_readers(rule, needs, monkeypatch, figures):
    monkeypatch.setattr(production, "witness", rule)
    _, single, pooled = play(range(ABLATED))
    figures(f"without {needs}: {single} messages read by one outsider, {pooled} by all together")
    assert single and pooled


@pytest.mark.sim
@pytest.mark.keys
def test_a_newcomer_needs_a_seed_of_its_own(figures):
    _, single, pooled = play(range(ABLATED), own_seeds=False)
    figures(f"without H3: {single} messages read by one outsider, {pooled} by all together")
    assert single and pooled


def test_a_heal_is_needed(monkeypatch):
    """The everyday part of the ablations."""
    monkeypatch.setattr(production, "witness", overlooks_both)
    assert Model(0).run().leaks() > (0, 0)


@pytest.mark.sim
@pytest.mark.keys
def test_eager_and_lazy_adoption_agree(budget):
    """Members that adopt at once and members that adopt before they speak keep the same promises, restored at every
    boundary."""
    checks = 0
    for number in range(budget(4)):
        for eager in (False, True):
            model = Model(number, eager=eager, crashes=1.0).run()
            checks += model.checks
            assert model.leaks() == (0, 0)
    assert checks >= budget(4) * CHECKS_MIN


@pytest.mark.parametrize("number", others_slow(range(3)))
def test_members_that_lost_their_keys_read_again(number):
    """Resets at any moment, crossing ones too: after three rounds every member reads every other one."""
    model = Model(number, eager=number % 2 == 1, resets=True).run()
    assert any(sent.event.prekey for sent in model.key_events)
    assert model.leaks() == (0, 0)


@pytest.mark.parametrize("number", others_slow(range(3)))
@pytest.mark.parametrize("resets", [False, True], ids=["", "resets"])
def test_members_that_never_meet_read_each_other(number, resets):
    """Channels begin with contact keys; offers and resets come in any order, and again."""
    model = Model(number, eager=number % 2 == 1, meet=False, resets=resets).run()
    assert model.to_contact and model.checks and model.replays
    assert model.leaks() == (0, 0)


@pytest.mark.sim
@pytest.mark.keys
@pytest.mark.parametrize("resets", [False, True], ids=["", "resets"])
def test_many_histories_of_members_that_never_meet(resets, budget, figures):
    checks = first = 0
    for number in range(3, 3 + budget(SLICE)):
        model = Model(number, eager=number % 2 == 1, meet=False, resets=resets).run()
        assert model.leaks() == (0, 0)
        checks, first = checks + model.checks, first + model.to_contact
    figures(f"{budget(SLICE)} histories, {checks:,} keys compared, {first} messages to contact keys")


@pytest.mark.sim
@pytest.mark.keys
@pytest.mark.parametrize("resets", [False, True], ids=["", "resets"])
def test_an_insider_who_sends_other_secrets_is_convicted(resets, budget, figures):
    """It also withholds direct messages. Honest members read each other, and only the insider is accused."""
    checks = complaints = 0
    for number in range(budget(8)):
        model = Model(number, eager=number % 2 == 1, rogue=True, resets=resets).run()
        assert all(complaint.check() == model.rogue for complaint in model.complaints)
        checks, complaints = checks + model.checks, complaints + len(model.complaints)
    figures(f"{checks:,} keys compared, {complaints} complaints")
    assert complaints >= budget(8) / 4


# --- theft ----------------------------------------------------------------------------------------------------------


def theft(number, **options):
    """A member's whole state is copied in the middle of a history; after a while every member makes an update.

    Returns how many of the messages read before, and of those sent after the updates, the thief opens; and how many of
    each there are, and how many it opens in between.
    """
    model = Model(number, **options)
    for _ in range(50):
        model.act()
    thief = model.steal(model.random.choice([node for node in model.nodes.values() if model.is_member(node)]))
    for _ in range(15):
        model.act()
    model.drain()
    for node in model.nodes.values():
        model.speak_keys(node, update=True)
    model.drain()
    healed = len(model.messages)
    for _ in range(50):
        model.act()
    model.drain()
    for node in model.nodes.values():
        model.send(node)
    before, after = model.stolen(thief, healed)
    between = sum(map(model.readable(thief.memory), model.messages[:healed])) - before
    return Counter(before=before, after=after, between=between, read=len(thief.read), sent=len(model.messages) - healed)


def thefts(numbers, **options):
    return sum((theft(number, **options) for number in numbers), Counter())


def test_a_theft_opens_nothing_earlier_and_heals():
    found = thefts(range(3), last_resort=0.0)
    assert (found["before"], found["after"]) == (0, 0)
    assert found["between"] and found["read"] and found["sent"]


@pytest.mark.sim
@pytest.mark.keys
def test_many_thefts(budget, figures):
    found = thefts(range(3, 3 + budget(12)), last_resort=0.0)
    figures(f"thefts: {dict(found)}")
    assert (found["before"], found["after"]) == (0, 0)


@pytest.mark.sim
@pytest.mark.keys
def test_a_stolen_last_resort_key_opens_first_messages(figures):
    """The limit: last-resort pre-keys are shared, so they open first messages until they are erased."""
    found = thefts(range(8), last_resort=1.0)
    figures(f"with last-resort pre-keys alone: {dict(found)}")
    assert found["before"]


@pytest.mark.sim
@pytest.mark.keys
def test_thefts_among_members_that_never_meet(budget, figures):
    """The limit: a stolen contact key opens first messages, before and after the theft. Without it, and with every
    other key, a thief opens nothing earlier, and the channels heal."""
    found = thefts(range(budget(6)), meet=False, steals_contact=False)
    with_contact = thefts(range(budget(6)), meet=False)
    figures(f"thefts without the contact key: {dict(found)}; with it: {dict(with_contact)}")
    assert (found["before"], found["after"]) == (0, 0) and found["between"]
    assert with_contact["before"]


def keeps_channel_keys(receive):
    def kept(channel, *rest):
        opened = receive(channel, *rest)
        return replace(opened, channel=replace(opened.channel, own=channel.own))

    return kept


def keeps_chain_keys(take):
    def kept(epoch, *rest):
        after, key = take(epoch, *rest)
        return replace(after, skipped=((-1, epoch.chain_key), *after.skipped)), key

    return kept


def keeps_ratchets(advance):
    def kept(ratchet, place):
        return replace(advance(ratchet, place), ratchet=ratchet)

    return kept


@pytest.mark.sim
@pytest.mark.keys
@pytest.mark.parametrize(
    ("places", "name", "spoilt"),
    [
        ((two_party,), "receive", keeps_channel_keys),
        ((message_keys,), "_taken", keeps_chain_keys),
        ((production, reception, key_agreement_model), "advanced", keeps_ratchets),
    ],
    ids=["channel key", "chain key", "ratchet"],
)
def test_a_key_that_is_not_erased_is_found(places, name, spoilt, monkeypatch):
    changed = spoilt(getattr(places[0], name))
    for place in places:
        monkeypatch.setattr(place, name, changed)
    assert any(theft(number, last_resort=0.0)["before"] for number in range(60))


@pytest.mark.sim
@pytest.mark.keys
def test_a_wrong_key_is_found(monkeypatch):
    """The oracle of agreement bites: a receiver that mixes the adoptions in another order has other keys."""
    monkeypatch.setattr(reception, "adopted", lambda ratchet, secret: adopted(secret, ratchet))
    with pytest.raises(Violation):
        play(range(ABLATED))
