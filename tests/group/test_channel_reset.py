"""Channels with members that never meet: the contact key, offers, resets after a loss, crossing and replayed ones."""

import random

import pytest
from msgspec.structs import replace

from tests.support.channel_model import NOW, ChannelModel
from zerochat.crypto import two_party
from zerochat.crypto.encoding import INTEGER_MAX
from zerochat.errors import Malformed
from zerochat.group.key_agreement.channel_reset import (
    PREKEYS_MAX,
    RESET_BYTES_MAX,
    ChannelReset,
    confirm,
    go_beyond,
    is_beyond,
    offer,
    parse_reset,
    pending_reset,
    receive_reset,
    reset,
    with_channels,
)
from zerochat.group.key_agreement.erasure import erase_members
from zerochat.group.key_agreement.state import ChannelResets, Keys

EVERYDAY, SLICE, ACTIONS = 6, 60, 120
A, B = "m0", "m1"


def pair(offers=True):
    return ChannelModel(1, members=2, offers=offers)


def talk(model, author, recipient):
    """One message; whether it opens."""
    model.send(author, recipient)
    return model.deliver(author, recipient)


def bring_all(model):
    for author, recipient in model.pairs:
        for wire in list(model.resets[author, recipient]):
            model.bring_reset(author, recipient, wire)


def keys_of(model, name):
    return model.sides[name].keys


def played(number, **options):
    model = ChannelModel(number, **options)
    for _ in range(ACTIONS):
        model.act()
    return model


def assert_whole(model):
    """After a while every pair talks in both directions, though every reset comes again, and no reset waits."""
    model.settle()
    bring_all(model)
    for author, recipient in model.pairs:
        assert talk(model, author, recipient), (author, recipient)
        assert pending_reset(keys_of(model, author), recipient) is None


# --- one pair -------------------------------------------------------------------------------------------------------


def test_a_channel_begins_with_the_contact_key():
    model = pair()
    assert talk(model, A, B) and talk(model, B, A)


def test_both_sides_may_begin_at_once():
    model = pair()
    for author, recipient in ((A, B), (B, A), (A, B), (B, A)):
        model.send(author, recipient)
    assert all(model.deliver(*one) for one in ((A, B), (B, A), (B, A), (A, B)))
    bring_all(model)
    assert talk(model, A, B) and talk(model, B, A)
    assert not model.broken


def test_an_offer_follows_a_first_message_and_moves_the_channel():
    model = pair()
    talk(model, A, B)
    [offer] = model.resets[B, A]
    assert not parse_reset(offer).lost
    model.send(A, B)  # on its way when the offer comes
    model.bring_reset(B, A, offer)
    assert pending_reset(keys_of(model, B), A) is None
    assert model.deliver(A, B)
    model.send(A, B)
    assert two_party.is_to(model.sent[A, B][-1][1], parse_reset(offer).prekey)
    assert model.deliver(A, B) and keys_of(model, B).resets[A].prekeys == ()
    assert model.resets[B, A] == [offer]


def test_an_offer_that_is_not_used_serves_again():
    keys = Keys("g", A)
    keys, first = offer(keys, B, NOW, random.randbytes)
    assert pending_reset(keys, B) == first and not first.lost
    again, second = offer(keys, B, NOW + 9, random.randbytes)
    assert (again, second) == (keys, first) and first.counter == NOW


def test_messages_under_way_do_not_undo_a_reset():
    """The member's earlier message names an offered key that it has lost with its state."""
    model = pair()
    talk(model, A, B)
    talk(model, B, A)
    model.send(B, A)
    delayed = model.on_way[B, A].copy()
    model.lose_state(B)
    bring_all(model)
    model.on_way[B, A] = delayed
    assert model.deliver(B, A)
    assert talk(model, A, B) and not model.broken


def test_a_lost_state_heals_in_both_directions():
    model = pair()
    for _ in range(3):
        talk(model, A, B), talk(model, B, A)
    model.lose_state(B)
    assert not talk(model, A, B)
    bring_all(model)
    assert talk(model, A, B) and talk(model, B, A)


def test_a_lost_message_costs_one_reset():
    model = pair(offers=False)
    talk(model, A, B)
    model.send(A, B)
    model.on_way[A, B].clear()
    assert not talk(model, A, B)
    [reset] = model.resets[B, A]
    assert parse_reset(reset).lost
    model.bring_reset(B, A, reset)
    assert talk(model, A, B) and talk(model, A, B) and talk(model, B, A)


def test_a_replay_after_a_loss_serves_once_at_most():
    """The member has forgotten how far our resets count, and the last one names a pre-key that is used."""
    model = pair()
    model.offer(B, A)
    bring_all(model)
    talk(model, A, B), talk(model, B, A)
    model.lose_state(A)
    bring_all(model)
    assert len(model.resets[B, A]) == 2
    bring_all(model)
    assert talk(model, A, B) and talk(model, B, A)


@pytest.mark.parametrize("first", [A, B])
def test_crossing_resets_converge(first):
    model = pair()
    talk(model, A, B), talk(model, B, A)
    model.lose_state(A), model.lose_state(B)
    second = B if first == A else A
    model.send(first, second)
    model.bring_reset(first, second, model.resets[first, second][-1])
    model.bring_reset(second, first, model.resets[second, first][-1])
    model.on_way[first, second].clear()
    for author, recipient in ((A, B), (B, A), (B, A), (A, B)):
        assert talk(model, author, recipient)


def test_a_replayed_reset_changes_nothing():
    model = pair()
    model.offer(B, A)
    model.reset(B, A)
    older, newer = model.resets[B, A]
    model.bring_reset(B, A, newer)
    before = keys_of(model, A)
    model.bring_reset(B, A, older), model.bring_reset(B, A, newer)
    assert keys_of(model, A) is before and model.replays == 2
    assert talk(model, A, B)


def test_another_copy_of_a_profile_is_outdone():
    """A reset that a lost copy has made counts further than ours: the next one goes beyond it."""
    keys, _ = reset(Keys("g", B), A, NOW, random.randbytes)
    assert is_beyond(keys, A, NOW + 5) and not is_beyond(keys, A, NOW)
    _, made = reset(go_beyond(keys, A, NOW + 5), A, NOW + 1, random.randbytes)
    assert made.counter == NOW + 6
    _, last = reset(go_beyond(keys, A, 2**63), A, NOW + 1, random.randbytes)
    assert last.counter == INTEGER_MAX


def test_a_reset_is_confirmed_by_its_counter_alone():
    keys, made = reset(Keys("g", A), B, NOW, random.randbytes)
    assert pending_reset(keys, B) == made
    assert confirm(keys, B, NOW - 1, 0) is confirm(keys, "m2", NOW, 0) is keys
    assert pending_reset(confirm(keys, B, NOW, 0), B) is None


def test_what_was_sent_before_a_reset_was_taken_needs_no_other():
    keys, first = reset(Keys("g", A), B, NOW, random.randbytes)
    assert reset(keys, B, NOW + 1, random.randbytes, 7) == (keys, first)
    keys = confirm(keys, B, first.counter, 7)
    assert reset(keys, B, NOW + 1, random.randbytes, 7) == (keys, None)
    _, second = reset(keys, B, NOW + 1, random.randbytes, 8)
    assert second.counter > first.counter


def test_what_was_sent_before_an_offer_was_taken_is_asked_for_again():
    """Its author does not know that we have lost it, since an offer tells of no loss."""
    keys, made = offer(Keys("g", A), B, NOW, random.randbytes)
    after, none = reset(confirm(keys, B, made.counter, 7), B, NOW + 1, random.randbytes, 7)
    assert none is None and after.wanted == {B}


def test_a_loss_asks_for_our_ratchet_and_an_offer_does_not():
    keys = Keys("g", A, synced=frozenset({B, "m2"}))
    prekey = some_prekey()
    offer, loss = (ChannelReset(number, 0, lost, prekey) for number, lost in ((1, False), (2, True)))
    assert receive_reset(keys, B, offer).synced == {B, "m2"}
    assert receive_reset(keys, B, loss).synced == {"m2"}


def some_prekey():
    _, reset = offer(Keys("g", B), A, NOW, random.Random(1).randbytes)
    return reset.prekey


def test_what_is_kept_is_bounded_and_goes_with_the_member():
    keys = Keys("g", A)
    for at in range(5):
        keys, made = reset(keys, B, NOW + at, random.randbytes)
        keys = confirm(keys, B, made.counter, 0)
    assert len(keys.resets[B].prekeys) == PREKEYS_MAX
    assert erase_members(keys, [B]).resets == {}


def test_channels_to_members_with_unusable_keys_do_not_begin():
    usable = some_prekey()
    keys = with_channels(Keys("g", A), {B: usable, "m2": bytes(32)})
    assert keys.channels.keys() == {B}
    assert with_channels(keys, {B: usable}) is keys


def test_resets_as_bytes():
    _, made = reset(Keys("g", A, number=INTEGER_MAX), B, INTEGER_MAX, random.randbytes)
    assert parse_reset(made.wire) == made and len(made.wire) <= RESET_BYTES_MAX
    low = replace(made, prekey=bytes(32))
    short = replace(made, prekey=bytes(31))
    for wrong in (made.wire + b"\x00", made.wire[:-1], b"", low.wire, short.wire, replace(made, counter=0).wire):
        with pytest.raises(Malformed):
            parse_reset(wrong)


# --- secrecy --------------------------------------------------------------------------------------------------------


def test_a_stolen_contact_key_opens_messages_until_an_offer_came():
    """The limit that the module states."""
    model = pair()
    talk(model, A, B), talk(model, A, B)
    bring_all(model)
    talk(model, A, B), talk(model, A, B)
    side = model.sides[B]
    assert model.readable(side.keys, side.contact, A, B) == {1, 2}
    assert model.readable(side.keys, b"", A, B) == set()


def test_an_offer_in_time_leaves_nothing_to_a_thief():
    model = pair()
    model.offer(A, B), model.offer(B, A)
    bring_all(model)
    for _ in range(3):
        talk(model, A, B), talk(model, B, A)
    for author, recipient in model.pairs:
        side = model.sides[recipient]
        assert model.readable(side.keys, side.contact, author, recipient) == set()


def test_without_offers_a_stolen_contact_key_opens_a_whole_direction():
    model = pair(offers=False)
    for _ in range(4):
        talk(model, A, B)
    side = model.sides[B]
    assert model.readable(side.keys, side.contact, A, B) == {1, 2, 3, 4}


def test_a_stolen_state_heals_by_a_reset():
    model = pair()
    talk(model, A, B), talk(model, B, A)
    bring_all(model)
    stolen, contact = keys_of(model, B), model.sides[B].contact
    talk(model, A, B)
    model.reset(B, A)
    bring_all(model)
    first = len(model.sent[A, B]) + 1
    talk(model, A, B)
    [*_, number] = sorted(model.opened[A, B])
    assert len(model.sent[A, B]) == first and number not in model.readable(stolen, contact, A, B)


# --- the search -----------------------------------------------------------------------------------------------------


def play(numbers):
    models = [played(number) for number in numbers]
    for model in models:
        assert_whole(model)
    return models


def test_random_histories_heal():
    models = play(range(EVERYDAY))
    assert all(sum(getattr(model, name) for model in models) for name in ("broken", "replays", "losses"))


@pytest.mark.sim
@pytest.mark.keys
def test_search(budget, figures):
    models = play(range(EVERYDAY, EVERYDAY + budget(SLICE)))
    figures(
        f"{len(models)} histories, {sum(one.broken for one in models)} messages that did not open, "
        f"{sum(one.losses for one in models)} lost states, {sum(one.replays for one in models)} replays"
    )


def accepts_replays(keys, member, reset):
    known = keys.resets.get(member, ChannelResets())
    return receive_reset(replace(keys, resets={**keys.resets, member: replace(known, received=0)}), member, reset)


def ignores(keys, member, reset):
    return replace(keys, resets={member: ChannelResets(), **keys.resets})


def forgets_the_number(keys, member, reset):
    return receive_reset(keys, member, replace(reset, number=0))


def ablated(monkeypatch, rule):
    monkeypatch.setattr("tests.support.channel_model.receive_reset", rule)


def test_without_counters_the_search_finds_a_replay_that_breaks_a_channel(monkeypatch):
    ablated(monkeypatch, accepts_replays)
    with pytest.raises(AssertionError):
        play(range(EVERYDAY))


def test_without_resets_the_search_finds_a_broken_channel(monkeypatch):
    ablated(monkeypatch, ignores)
    with pytest.raises(AssertionError):
        play(range(EVERYDAY))


def test_without_the_number_a_message_under_way_undoes_a_reset(monkeypatch):
    ablated(monkeypatch, forgets_the_number)
    with pytest.raises(AssertionError):
        test_messages_under_way_do_not_undo_a_reset()


def test_a_prekey_that_is_not_erased_is_found(monkeypatch):
    """The oracle of secrecy bites."""
    monkeypatch.setattr(two_party, "is_to", lambda message, prekey: False)
    model = pair()
    model.offer(B, A)
    bring_all(model)
    talk(model, A, B)
    side = model.sides[B]
    assert model.readable(side.keys, b"", A, B)
