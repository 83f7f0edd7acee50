"""The key agreement step by step: concurrent changes, lost and forged messages, bounds, sizes, frozen answers."""

import random
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tests.support.key_agreement_model import NOW, Model, Violation, round_trip
from tests.support.membership_book import ANYONE, did, seed
from zerochat.crypto import two_party
from zerochat.crypto.encoding import b64url
from zerochat.crypto.prekeys import LIFETIME_MS, HeldPreKey
from zerochat.crypto.primitives import sha256, x25519_public
from zerochat.errors import Refused, Unauthentic
from zerochat.group.inputs import StepContext
from zerochat.group.key_agreement import key_schedule, message_keys
from zerochat.group.key_agreement.complaint import Complaint
from zerochat.group.key_agreement.erasure import OPERATION_MS, erase_expired, erase_members
from zerochat.group.key_agreement.key_event import ADOPTS_MAX, TO_MAX, Directs, pair_context, place_of
from zerochat.group.key_agreement.message_keys import (
    EPOCHS_MAX,
    JUMP_MAX,
    RETENTION_MS,
    SKIPPED_MAX,
    receiving_key,
    sending_key,
)
from zerochat.group.key_agreement.production import UPDATE_MESSAGES, UPDATE_MS, due, produce
from zerochat.group.key_agreement.reception import awaited, is_sent, process
from zerochat.group.key_agreement.state import Keys, Membership

GROUP = b64url(sha256(b"group"))


class Circle:
    """Members of one view that never changes unless it is set, in order of their names."""

    def __init__(self, size, start=1):
        self.random = random.Random(start).randbytes
        self.names = [did(f"m{at}") for at in range(size)]
        self.members = frozenset(self.names)
        self.now = NOW
        pairs = {(one, other): self.random(32) for one in self.names for other in self.names}
        self.keys = {
            one: Keys(
                GROUP,
                one,
                channels={
                    other: two_party.met(pairs[one, other], x25519_public(pairs[other, one]))
                    for other in self.names
                    if other != one
                },
            )
            for one in self.names
        }

    @property
    def membership(self):
        members = self.members
        return Membership(members, (b64url(sha256(b"heads")),), lambda heads: members)

    def __getitem__(self, at):
        return self.keys[self.names[at]]

    def produce(self, at, **options):
        name = self.names[at]
        made = produce(self.keys[name], self.membership, StepContext(self.now, self.random), **options)
        self.keys[name] = made.keys
        event = made.event.signed(seed(f"m{at}"))
        assert event.id == made.event.id
        return event, made.directs

    def process(self, at, made, direct=None):
        name, (event, directs) = self.names[at], made
        direct = directs.direct(name) if direct is None else direct
        done = process(self.keys[name], event, direct or None, self.membership, self.now)
        self.keys[name] = done.keys
        return done

    def speak(self, at, **options):
        """An event that all others process."""
        made = self.produce(at, **options)
        for other in range(len(self.names)):
            if other != at:
                assert self.process(other, made).follows
        return made

    def due(self, at):
        return due(self[at], self.membership, self.now)

    def say(self, at, *readers):
        """A message of a member, which these read."""
        sent = sending_key(self[at])
        self.keys[self.names[at]] = sent.keys
        for reader in readers:
            name = self.names[reader]
            keys, key = receiving_key(self.keys[name], self.names[at], sent.epoch, sent.number, self.now)
            assert key == sent.key
            self.keys[name] = keys
        return sent


def founded(size):
    """A circle in which all have spoken."""
    circle = Circle(size)
    for at in range(size):
        circle.speak(at)
    return circle


def test_an_author_that_its_heads_do_not_count_in_keeps_its_keys_secret():
    """A view at a part of the heads may lack it. Others refuse its event, and must not know its keys either."""
    circle = Circle(2)
    keys, membership = circle.keys[circle.names[0]], circle.membership
    at = frozenset(circle.names[1:])
    made = produce(keys, replace(membership, at=lambda heads: at), StepContext(NOW, circle.random), update=True)
    public = key_schedule.advanced(b"", place_of(GROUP, keys.me, made.event.number))
    assert made.keys.epoch.chain_key != public.epoch_key and made.keys.ratchet != public.ratchet


# --- what is due ----------------------------------------------------------------------------------------------------


def test_a_member_begins_with_an_update():
    circle = Circle(3)
    assert circle.due(0) == "update"
    event, directs = circle.speak(0)
    assert event.is_update and len(directs.messages) == 2 and circle.due(0) == ""
    circle.say(0, 1, 2)


def test_one_update_heals_all_who_adopt_it():
    circle = founded(3)
    for at in range(3):
        circle.speak(at)
    assert circle.due(1) == "" or circle.speak(1)
    update, _ = circle.speak(0, update=True)
    assert [circle.due(at) for at in range(3)] == ["", "other", "other"]
    before = circle[1].ratchet
    event, directs = circle.speak(1)
    assert not event.is_update and event.adopts[-1] == update.id and not directs.messages
    assert circle[1].ratchet != before
    circle.say(1, 0, 2)


def test_updates_by_time_and_count():
    circle = founded(2)
    circle.speak(0)
    assert circle.due(0) == ""
    circle.now += UPDATE_MS
    assert circle.due(0) == "update"
    circle.speak(0)
    assert circle.due(0) == ""
    for _ in range(UPDATE_MESSAGES):
        assert circle.due(0) == ""
        circle.say(0, 1)
    assert circle.due(0) == "update"


def test_after_a_clock_was_set_back_an_update_is_due():
    """It would wait for as long as the clock was ahead."""
    circle = founded(2)
    circle.speak(0)
    circle.now -= UPDATE_MS
    assert circle.due(0) == "update"
    circle.speak(0)
    assert circle.due(0) == ""


def test_a_departure_makes_an_update_due():
    circle = founded(4)
    for at in range(4):
        circle.speak(at)
    circle.members -= {circle.names[3]}
    assert {circle.due(at) for at in range(3)} == {"update"}
    made = circle.produce(0)
    assert set(made[1].messages) == {circle.names[1], circle.names[2]}
    for at in (1, 2):
        circle.process(at, made)
        assert circle.due(at) == "other"  # adopting is enough: the seed excludes the one that left


def test_many_newcomers_get_an_update():
    circle = founded(2)
    circle.speak(0)
    everyone = [did(f"x{at}") for at in range(TO_MAX + 1)]
    channels = {one: two_party.reached(x25519_public(seed(one))) for one in everyone}
    keys = replace(circle[0], channels={**circle[0].channels, **channels})
    for count, expected in ((1, "other"), (TO_MAX, "other"), (TO_MAX + 1, "update")):
        members = circle.members | set(everyone[:count])
        membership = Membership(members, (), lambda heads, members=members: members)
        assert due(keys, membership, NOW) == expected
        made = produce(keys, membership, StepContext(NOW, circle.random))
        assert len(made.directs.messages) == count + (expected == "update")


# --- concurrent changes: the two stories of the paper, and crossing removals -----------------------------------------


def story(founders=3):
    model = Model(1, founders=founders, policy=ANYONE)
    for node in list(model.nodes.values()):
        model.speak_keys(node)
    model.drain()
    return model, list(model.nodes.values())


def everyone_speaks(model):
    model.drain()
    for node in model.nodes.values():
        model.send(node)
    model.drain()
    assert model.leaks() == (0, 0)


def test_update_and_removal_concurrent_with_an_addition():
    model, (one, two, three) = story()
    model.speak_keys(one, update=True)
    model.remove(one, three.did)
    model.add(two)
    everyone_speaks(model)
    assert model.checks >= 6


def test_two_concurrent_additions():
    model, (one, two, _) = story()
    model.add(one)
    model.add(two)
    everyone_speaks(model)
    assert model.checks >= 20


def test_two_members_remove_each_other():
    model, (one, two, *_) = story(4)
    model.remove(one, two.did)
    model.remove(two, one.did)
    everyone_speaks(model)
    assert sum(model.is_member(node) for node in model.nodes.values()) == 2 and model.checks


def test_a_member_whose_removal_is_void_reads_again():
    model, (one, two, three, four) = story(4)
    model.remove(one, two.did)  # void: its author was removed concurrently
    model.remove(three, one.did)
    model.deliver_some(four, 0)
    for at, thing in reversed(list(enumerate(four.queue))):
        if getattr(thing, "author", "") == one.did or getattr(getattr(thing, "event", None), "author", "") == one.did:
            model.deliver(four, at)
    model.send(four)
    everyone_speaks(model)
    assert model.returns and model.is_member(two)
    before = model.checks
    model.send(four)
    model.drain()
    assert model.checks == before + 2


def test_an_oracle_of_agreement():
    model, (one, *_) = story()
    model.speak_keys(one)
    model.drain()
    one.keys = replace(one.keys, epoch=replace(one.keys.epoch, chain_key=bytes(32)))
    model.send(one)
    with pytest.raises(Violation):
        model.drain()


# --- lost and forged messages ---------------------------------------------------------------------------------------


def test_a_withheld_direct_message_is_asked_for():
    circle = founded(3)
    for at in range(3):
        circle.speak(at)
    made = circle.produce(0, update=True)
    assert is_sent(circle[1], made[0], circle.membership)
    assert not circle.process(1, made, direct=False).follows
    assert circle.process(2, made).follows
    assert circle.due(1) == "other"
    asked = circle.produce(1)
    assert asked[0].wants == (circle.names[0],)
    assert circle.due(1) == ""  # asked once
    circle.process(2, asked)
    circle.process(0, asked)
    answer, directs = circle.produce(0)
    assert answer.to == (circle.names[1],) and not answer.is_update
    assert awaited(circle[1], answer, circle.membership) == ()
    # The withheld message has moved the channel on, so the answer comes by a key that is not there.
    assert circle.process(1, (answer, directs)).broken
    assert circle.process(2, (answer, directs)).follows
    channels = {one: two_party.reached(x25519_public(seed(one))) for one in circle.names if one != circle.names[1]}
    for at in (0, 2):
        held = HeldPreKey(seed(circle.names[at]), NOW + 1)
        circle.keys[circle.names[at]] = replace(circle[at], held=(held,))
    circle.keys[circle.names[1]] = replace(circle[1], channels=channels)
    circle.speak(1, reset=True)
    circle.speak(0)
    circle.say(0, 1)


def test_an_unknown_adoption_is_asked_for():
    circle = founded(3)
    for at in range(3):
        circle.speak(at)
    update = circle.produce(0, update=True)
    circle.process(2, update)
    adoption = circle.produce(2)
    assert awaited(circle[1], adoption[0], circle.membership) == (update[0].id,)
    assert not circle.process(1, adoption).follows
    asked = circle.produce(1)
    circle.process(2, asked)
    assert circle.process(1, circle.produce(2)).follows
    circle.say(2, 1)


@pytest.mark.parametrize("update", [True, False])
def test_a_gap_in_the_events_is_survived(update):
    """Key events are pruned; a member whose removal has become void may lack some."""
    circle = founded(3)
    for at in range(3):
        circle.speak(at)
    circle.produce(1)  # is lost
    assert circle.process(2, circle.produce(1, update=update)).follows is update
    if not update:
        circle.process(1, circle.produce(2))
        assert circle.process(2, circle.produce(1)).follows
    circle.say(1, 2)


def test_a_forged_seed_convicts_its_author():
    circle = founded(3)
    author, victim = circle.names[:2]
    event, directs = circle.produce(0, update=True)
    other, _ = Circle(3, start=2).produce(0, update=True)
    forged = replace(event, commitment=other.commitment, sig=b"").signed(seed("m0"))
    done = circle.process(1, (forged, directs))
    assert not done.follows and done.complaint.check() == author
    assert victim not in repr(done.keys.channels) or done.keys.wanted == {author}


def test_false_complaints_convict_no_author():
    circle = founded(3)
    event, directs = circle.produce(0, update=True)
    direct, keys = directs.direct(circle.names[1]), circle[1]
    context = pair_context(GROUP, circle.names[0], circle.names[1])
    opened = two_party.receive(keys.channels[circle.names[0]], context, direct.message)
    with pytest.raises(Refused):
        Complaint(event, direct, opened.key).check()
    with pytest.raises(Unauthentic):
        Complaint(event, direct, bytes(44)).check()
    with pytest.raises(Unauthentic):
        Complaint(event, replace(direct, recipient=circle.names[2]), opened.key).check()
    with pytest.raises(Unauthentic):
        Complaint(replace(event, commitment=bytes(32)), direct, opened.key).check()


def test_foreign_and_repeated_events_are_refused():
    circle = founded(3)
    made = circle.produce(0, update=True)
    event, directs = made
    wrong = replace(directs.direct(circle.names[1]), message=bytes(200))
    with pytest.raises(Unauthentic):
        circle.process(1, made, wrong)
    with pytest.raises(Refused):
        circle.process(1, made, directs.direct(circle.names[2]))
    circle.process(1, made)
    for again in (event, replace(event, number=event.number - 1), replace(event, group=b64url(bytes(32)))):
        with pytest.raises(Refused):
            circle.process(1, (again, directs))
    circle.members -= {circle.names[0]}
    with pytest.raises(Refused):
        circle.process(2, made)


# --- message keys ---------------------------------------------------------------------------------------------------


def overtaken(count):
    """Two members, and the places of this many messages of the first that the second has not read."""
    circle = founded(2)
    circle.speak(0)
    return circle, [circle.say(0) for _ in range(count)]


def test_messages_in_any_order_open_once():
    circle, sent = overtaken(40)
    order = random.Random(1).sample(sent, len(sent))
    keys = circle[1]
    for one in order:
        keys, key = receiving_key(round_trip(keys), circle.names[0], one.epoch, one.number, NOW)
        assert key == one.key
        with pytest.raises(Refused):
            receiving_key(keys, circle.names[0], one.epoch, one.number, NOW)
    [epoch] = keys.receiving[circle.names[0]]
    assert epoch.skipped == () and epoch.next == 40


def test_overtaken_messages_are_bounded_and_timed():
    circle, sent = overtaken(SKIPPED_MAX + 3)
    author = circle.names[0]
    keys, _ = receiving_key(circle[1], author, sent[-1].epoch, sent[-1].number, NOW)
    assert len(keys.receiving[author][0].skipped) == SKIPPED_MAX
    with pytest.raises(Refused):
        receiving_key(keys, author, sent[1].epoch, 1, NOW)
    assert receiving_key(keys, author, sent[2].epoch, 2, NOW)[1] == sent[2].key
    kept = erase_expired(keys, NOW + RETENTION_MS - 1)
    assert kept.receiving[author][0].skipped
    gone = erase_expired(keys, NOW + RETENTION_MS)
    assert gone.receiving[author][0].skipped == () and gone.receiving[author][0].until == 0
    with pytest.raises(Refused):
        receiving_key(keys, author, sent[0].epoch, SKIPPED_MAX + 4 + JUMP_MAX, NOW)


def test_an_ended_epoch_goes_with_its_last_message():
    circle, sent = overtaken(3)
    author = circle.names[0]
    circle.speak(0, update=True)
    assert [one.total for one in circle[1].receiving[author]] == [3, None]
    keys = circle[1]
    for one in (sent[2], sent[0], sent[1]):
        keys, key = receiving_key(keys, author, one.epoch, one.number, NOW)
        assert key == one.key
    assert [one.total for one in keys.receiving[author]] == [None]
    with pytest.raises(Refused):
        receiving_key(circle[1], author, sent[0].epoch, 3, NOW)
    late = erase_expired(circle[1], NOW + RETENTION_MS)
    assert [one.total for one in late.receiving[author]] == [None]


def test_epochs_are_bounded():
    circle, _ = overtaken(1)
    for _ in range(EPOCHS_MAX + 3):
        circle.speak(0, update=True)
        circle.say(0)
    assert len(circle[1].receiving[circle.names[0]]) == EPOCHS_MAX


# --- bounds and erasure ---------------------------------------------------------------------------------------------


def test_updates_kept_are_bounded_and_timed():
    circle = founded(ADOPTS_MAX + 3)
    for at in range(ADOPTS_MAX + 3):
        circle.speak(at, update=True)
    keys = circle[0]
    assert len(keys.operations) >= ADOPTS_MAX + 3
    event, _ = circle.speak(0)
    assert len(event.adopts) == ADOPTS_MAX and circle[0].pending == ()
    assert erase_expired(keys, NOW + OPERATION_MS - 1).operations
    assert erase_expired(keys, NOW + OPERATION_MS).operations == {}
    assert erase_expired(keys, NOW + OPERATION_MS).pending == ()


def test_no_key_is_kept_for_longer_after_a_clock_was_set_back():
    circle, sent = overtaken(3)
    author, back = circle.names[0], NOW - 100 * OPERATION_MS
    keys, _ = receiving_key(circle[1], author, sent[-1].epoch, sent[-1].number, NOW)
    keys = replace(keys, held=(HeldPreKey(bytes(32), NOW + LIFETIME_MS),))
    assert erase_expired(keys, NOW) == keys
    corrected = erase_expired(keys, back)
    assert corrected.operations.keys() == keys.operations.keys() and corrected.receiving[author][0].skipped
    assert corrected.held == (), "no sender accepts a pre-key that is valid for so long"
    later = erase_expired(corrected, back + RETENTION_MS)
    assert later.operations and not any(one.skipped for one in later.receiving[author])
    assert not erase_expired(corrected, back + OPERATION_MS).operations


def test_a_former_member_is_erased():
    circle = founded(3)
    gone = circle.names[2]
    keys = erase_members(circle[0], [gone])
    assert gone not in {*keys.channels, *keys.ratchets, *keys.receiving, *keys.synced}
    assert not any(operation.secrets.holds(gone) for operation in keys.operations.values())
    assert gone in keys.numbers


def test_states_survive_a_restore():
    circle = founded(3)
    circle.speak(0, update=True)
    for keys in circle.keys.values():
        assert round_trip(keys) == keys


def test_secrets_stay_out_of_logs():
    circle = founded(2)
    shown = repr(circle[0]) + repr(circle.produce(0, update=True)[1])
    for secret in message_keys_of(circle[0]):
        assert repr(secret) not in shown


def message_keys_of(keys):
    ratchets = [keys.ratchet, keys.epoch.chain_key, *keys.ratchets.values()]
    return [*ratchets, *(epoch.chain_key for epochs in keys.receiving.values() for epoch in epochs)]


# --- sizes and frozen answers ---------------------------------------------------------------------------------------


def sizes(size):
    """Bytes of one update: for all, and for a member that takes its own direct message alone."""
    circle = SimpleNamespace(names=[did(f"m{at}") for at in range(size)])
    channels = {name: two_party.reached(x25519_public(seed(name))) for name in circle.names[1:]}
    members = frozenset(circle.names)
    membership = Membership(members, (GROUP,), lambda heads: members)
    keys = Keys(GROUP, circle.names[0], number=1000, channels=channels)
    keys = replace(keys, epoch=replace(keys.epoch, sent=100))
    made = produce(keys, membership, StepContext(NOW, random.Random(1).randbytes))
    event = len(made.event.record) + 64
    direct = made.directs.direct(circle.names[1])
    direct.check(made.event)
    return event + sum(map(len, made.directs.messages.values())), event + len(direct.message) + 32 * len(direct.path)


@pytest.mark.parametrize(
    ("size", "all_most", "slice_most"),
    [(8, 2_389, 717), (64, 20_198, 717), (128, 25_600, 717), pytest.param(1000, 160_000, 717, marks=pytest.mark.slow)],
)
def test_sizes_of_an_update(size, all_most, slice_most):
    """The limits up to 128 are what the paper's implementation sends, or less."""
    everything, own = sizes(size)
    assert everything <= all_most and own <= slice_most


def test_frozen_history():
    circle = Circle(3)
    records = []
    for at in (0, 1, 2, 0, 2):
        event, directs = circle.speak(at, update=at == 2)
        records += [event.record, event.sig, *(directs.messages[one] for one in sorted(directs.messages))]
    keys = [circle.say(at, *({0, 1, 2} - {at})).key for at in (0, 1, 2, 0)]
    assert b64url(sha256(b"".join(records))) == "VnNAMMMj0-keF9B0pt_42FBOW3_ev96YnT98ey6d9-E"
    assert b64url(sha256(b"".join(keys))) == "E6IWj9nN3SpPuJxO-6C-dlXlsJiVfY1F7X5CxIYtSYw"


def test_no_direct_messages_have_no_root():
    assert Directs({}).root == b"" and Directs({}).direct(did("m0")) is None
    assert message_keys.expired((), NOW) == ()
