"""Acknowledgements in a view with more members than fit one message: each is covered in time."""

from itertools import permutations

import pytest

from tests.support.small_world import Small
from zerochat.group.inputs import SendPost
from zerochat.group.links import outbox
from zerochat.group.sync import chain_heads


class Four(Small):
    def __init__(self):
        super().__init__(4)
        self.id = self.found()
        for name in list(self.nodes)[1:]:
            assert self.join(name, self.invite(self.id)).phase == "joined"
        self.run(for_ms=60_000)


@pytest.fixture
def world(monkeypatch):
    """Four members, of whom two fit."""
    monkeypatch.setattr(outbox, "HAVE_MAX", 2)
    monkeypatch.setattr(chain_heads, "HAVE_MAX", 2)
    return Four()


def test_every_member_learns_how_far_each_other_has_every_chain(world):
    for name in world.nodes:
        world.run_command(name, SendPost(world.id, f"from {name}"))

    def acknowledged(reader, author, other):
        """Whether the reader knows how far the other has the author's chain."""
        group = world.group(reader)
        upto = group.links.peers[world.group(other).me].acks.upto
        return upto.get(world.group(author).me, 0) == world.group(author).seq

    def complete():
        return all(acknowledged(*three) for three in permutations(world.nodes, 3))

    assert world.run(complete, for_ms=6 * 3_600_000)


def test_digests_are_compared_in_the_order_of_have(world):
    group = world.group("n0")
    other = world.group("n1").me
    for first in range(4):
        have = [group.chain(did).confirmed_seq for did in group.members_from(first)][:2]
        digests = chain_heads.head_digests(group, "salt", first)
        assert list(chain_heads.differing_authors(group, other, "salt", have, digests, first)) == []
    assert group.members_from(5) == [*group.view.members][1:] + [*group.view.members][:1]
