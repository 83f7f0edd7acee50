"""Many updates at once: all members follow all others afterwards, and no author displaces the updates of others."""

import pytest
from msgspec.structs import replace

from tests.support.key_agreement_model import BYTES, NOW, ROUNDS_MAX, Model
from tests.support.membership_book import ANYONE, did
from zerochat.group.key_agreement import production
from zerochat.group.key_agreement.member_secrets import TAG_BYTES, MemberSecrets, secrets_of
from zerochat.group.key_agreement.production import with_operation
from zerochat.group.key_agreement.state import (
    AUTHOR_ADOPTED_MAX,
    AUTHOR_INTERVAL_MS,
    AUTHOR_OPERATIONS_MAX,
    Operation,
)

SEED = bytes(range(BYTES))


def crowd(size):
    """A group whose members have all spoken."""
    model = Model(1, founders=size, policy=ANYONE, crashes=0, path="ring")
    everyone_sends(model)
    return model


def everyone_sends(model):
    """One message of each member, before any of them comes to another. Returns the direct messages that it takes."""
    before = len(model.key_events)
    for node in model.nodes.values():
        model.send(node)
    model.drain()
    return sum(len(sent.directs.messages) for sent in model.key_events[before:])


def everyone_updates(model):
    """An update of each member, which come to each other member in an order of its own."""
    for node in model.nodes.values():
        if model.is_member(node):
            model.speak_keys(node, update=True)
    for node in model.nodes.values():
        model.random.shuffle(node.queue)
    model.drain()


def reads(model):
    """The messages that members have opened in one round of messages, and the direct messages that it took."""
    before = model.checks
    return everyone_sends(model), model.checks - before


@pytest.mark.parametrize("size", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_all_read_all_after_updates_of_all_members(size):
    model = crowd(size)
    everyone_updates(model)
    assert reads(model) == (0, size * (size - 1)), "an update takes no further direct message"
    assert reads(model) == (0, size * (size - 1))
    kept = next(iter(model.nodes.values())).keys.operations.values()
    assert len(kept) >= size
    assert all(one.secrets.size <= size * (TAG_BYTES + BYTES // 2) for one in kept)


def test_all_read_all_after_the_updates_that_a_removal_causes():
    size = 40
    model = crowd(size)
    first, *_, last = model.nodes.values()
    model.remove(first, last.did)
    for node in model.nodes.values():  # the removal comes before the update of its author
        for at, thing in enumerate(node.queue):
            if getattr(thing, "type", "") == "remove":
                model.deliver(node, at)
    everyone_updates(model)
    directs, read = reads(model)
    assert read == (size - 1) * (size - 2) and directs == 0


def test_members_that_have_erased_updates_ask_for_ratchets(monkeypatch):
    """More updates at once than there is room for: what was erased costs each pair a few direct messages."""
    size = 16
    model = crowd(size)
    monkeypatch.setattr(production, "OPERATIONS_BYTES_MAX", 800)
    model.strict = False
    everyone_updates(model)
    assert len(next(iter(model.nodes.values())).keys.operations) < size // 2
    cost, read = reads(model)
    assert read < size * (size - 1)
    for _ in range(ROUNDS_MAX):
        directs, read = reads(model)
        cost += directs
        if read == size * (size - 1):
            break
    assert read == size * (size - 1) and cost <= 3 * size * size


def test_an_author_without_end_displaces_no_other():
    model = crowd(6)
    hostile, honest, reader, *_ = model.nodes.values()
    model.rogue = hostile.did  # its own clock goes on, so it keeps later updates of its own than others do
    model.speak_keys(honest, update=True)
    event = model.key_events[-1].event
    for _ in range(10 * AUTHOR_OPERATIONS_MAX):
        model.speak_keys(hostile, update=True)
    model.drain()
    assert event.id in reader.keys.operations and event.id in reader.keys.pending
    of_hostile = [name for name, one in reader.keys.operations.items() if one.author == hostile.did]
    assert len(of_hostile) == AUTHOR_OPERATIONS_MAX
    assert len({*of_hostile}.intersection(reader.keys.pending)) <= AUTHOR_ADOPTED_MAX
    further = {one.event.id for one in model.key_events if one.event.author == hostile.did} - {*reader.keys.pending}
    assert further.isdisjoint(reader.keys.exported), "each could cause a message of each member"
    directs, read = reads(model)
    assert directs == 0 and read >= 5 * 5, "all others follow all"


def operations(*times):
    """The updates of one author that are kept, which came at these times."""
    keys = crowd(2).nodes[did("n0")].keys
    keys = replace(keys, operations={})
    for at in times:
        keys = with_operation(keys, f"at {at}", Operation(did("n1"), (), secrets_of(SEED, frozenset([keys.me])), at))
    return [*keys.operations]


def test_an_old_update_makes_room_for_its_authors_next():
    times = [NOW + at for at in range(AUTHOR_OPERATIONS_MAX)]
    early, due_again = NOW + AUTHOR_INTERVAL_MS - 1, NOW + AUTHOR_INTERVAL_MS
    assert operations(*times, early) == operations(*times)
    assert operations(*times, due_again) == operations(*times[1:], due_again)
    back = NOW - AUTHOR_INTERVAL_MS
    assert operations(*times, back) == operations(*times[1:], back), "the clock was set back"


# --- the tree of member secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 33])
def test_member_secrets_are_erased_one_by_one(size):
    members = [did(f"n{at}") for at in range(size)]
    whole = secrets_of(SEED, frozenset(members))
    expected = {member: whole.of(member) for member in members}
    assert len({*expected.values()}) == size and all(expected.values())
    left, gone = whole, []
    for member in members:
        left = left.without([member])
        gone.append(member)
        for one in members:
            assert left.of(one) == (b"" if one in gone else expected[one])
            assert left.holds(one) is (one not in gone)
        assert len(left.nodes) <= (size + 1) // 2
    assert left == MemberSecrets()
    assert whole.without(gone) == left and whole.without([did("stranger")]) is whole
    assert whole.of(did("stranger")) == b"" and not whole.holds(did("stranger"))


def test_what_is_left_derives_no_erased_secret():
    members = [did(f"n{at}") for at in range(9)]
    whole = secrets_of(SEED, frozenset(members))
    left = whole.without(members[::2])
    gone = {whole.of(member) for member in members[::2]}
    roots = {at: secrets_of(key, frozenset(members)) for at, key in left.nodes.items()}
    assert SEED not in left.nodes.values()
    assert not gone & {tree.of(member) for tree in roots.values() for member in members}


def test_member_secrets_stay_out_of_logs():
    assert repr(SEED) not in repr(Operation(did("n0"), (), secrets_of(SEED, frozenset([did("n0")])), NOW))
