"""Groups on the ring: founding, refused combinations, and versions that do not know the path."""

import pytest

from tests.support.membership_book import Book
from tests.support.small_world import Small
from zerochat.group.effects import CommandFailed
from zerochat.group.event_log import own_events
from zerochat.group.inputs import CreateGroup
from zerochat.group.joining.founding import UnknownAccountability, UnknownPath
from zerochat.group.key_modes import MODES
from zerochat.group.membership import AUTHOR_CONTROL_MAX, check_all, has_seat_for
from zerochat.limits import MEMBERS_MAX_BY_PATH, RING_KEYS
from zerochat.overlay.ring import MESH_MEMBERS_MAX
from zerochat.presentation.group_kinds import BY_NAME, check_axes
from zerochat.presentation.group_rules import BadRules


class SmallRing(Small):
    path = "ring"


def test_a_ring_group_is_founded_and_joined():
    world = SmallRing()
    group = world.found()
    for name in ("n1", "n2"):
        assert world.join(name, world.invite(group)).phase == "joined"
    for name in world.nodes:
        view = world.group(name).view
        assert (view.path, view.members_max, len(view.members)) == ("ring", MEMBERS_MAX_BY_PATH["ring"], 3)


@pytest.mark.parametrize("keys", sorted(MODES.keys() - {RING_KEYS}))
def test_the_ring_needs_keys_whose_messages_any_member_may_bring(keys):
    world = SmallRing(1)
    made = world.run_command("n0", CreateGroup("friends", "n0", world.envelope, keys, path="ring"))
    assert isinstance(made, CommandFailed) and isinstance(made.error, UnknownPath)
    assert not world.nodes["n0"].agent.groups


@pytest.mark.parametrize(
    ("path", "accountability", "error"),
    [("star", "acks", UnknownPath), ("ring", "tlog", UnknownAccountability)],
)
def test_an_unknown_path_or_a_log_on_the_ring_is_refused(path, accountability, error):
    world = SmallRing(1)
    founding = CreateGroup("friends", "n0", world.envelope, RING_KEYS, accountability=accountability, path=path)
    made = world.run_command("n0", founding)
    assert isinstance(made, CommandFailed) and isinstance(made.error, error)


def test_a_version_without_the_ring_does_not_join(monkeypatch):
    world = SmallRing(2)
    invitation = world.invite(world.found())
    monkeypatch.setattr(own_events, "MEMBERS_MAX_BY_PATH", {"mesh": 64})
    last = world.join("n1", invitation)
    assert last.phase == "failed" and "path (ring)" in last.text and "Update zerochat." in last.text
    assert not world.nodes["n1"].agent.groups


@pytest.mark.parametrize(("path", "seats"), MEMBERS_MAX_BY_PATH.items())
def test_the_path_decides_how_many_members_there_may_be(path, seats):
    book = Book(body={"path": path})
    assert book.view.members_max == seats
    for number in range(70):
        if has_seat_for(book.view, book.view.eldest[0]):
            book.add("a", f"m{number}")
    assert len(book.view.members) == min(seats, 71)


def test_the_founder_of_a_ring_group_may_admit_all_others_itself():
    book = Book(body={"path": "ring"})
    for number in range(AUTHOR_CONTROL_MAX + 8):
        book.add("a", f"m{number}")
    assert len(book.view.members) == AUTHOR_CONTROL_MAX + 9
    assert check_all(book.control.values()) == book.control


def test_the_kind_large_has_a_path_and_keys_that_can_be_founded():
    large = BY_NAME["large"]
    check_axes(large.accountability, large.keys, large.path)
    world = SmallRing(1)
    world.run_command("n0", CreateGroup("club", "n0", world.envelope, large.keys, path=large.path))
    [group] = world.nodes["n0"].agent.groups.values()
    assert (group.keys, group.view.path, group.profile.accountability) == ("dcgka", "ring", large.accountability)
    assert f"Up to {MESH_MEMBERS_MAX} members" in large.gives


@pytest.mark.parametrize(
    ("keys", "path", "said"),
    [("sender-key", "ring", "requires the keys `dcgka`"), ("dcgka", "star", "choose mesh or ring")],
)
def test_other_paths_and_keys_are_refused_before_a_group_is_founded(keys, path, said):
    with pytest.raises(BadRules) as refused:
        check_axes("acks", keys, path)
    assert said in refused.value.sentence()
