"""A group on the ring under churn: crashes, cut lines, loss, renames and leaves; then all members have everything."""

import pytest

from tests.support.marks import others_slow
from tests.support.ring_world import RingWorld
from zerochat.group.inputs import ChangeLabel, LeaveGroup
from zerochat.group.links.neighbours import LINKS_ACCEPTED_MAX
from zerochat.sim import Faults

MEMBERS, ACTIONS = 26, 60
FAULTY, HEALED = Faults(loss=0.2, duplication=0.1, delay_ms_max=400), Faults(loss=0.05, duplication=0, delay_ms_max=100)


@pytest.fixture(scope="module")
def settled():
    return RingWorld(MEMBERS)


class Churn:
    """Random actions and failures; `posts` of all, `left` the members that are gone."""

    def __init__(self, world):
        self.world, self.posts, self.left = world, [], set()

    def act(self):
        world, dice = self.world, self.world.rng
        name = dice.choice([one for one in world.nodes if one not in world.down and one not in self.left])
        lot = dice.random()
        if lot < 0.6:
            self.posts.append(world.post(name, "hello"))
        elif lot < 0.75:
            world.random_failure(dice, name)
        elif lot < 0.85:
            world.run_command(name, ChangeLabel(world.id, f"{name} {dice.random()}"))
        elif lot < 0.9 and len(self.left) < MEMBERS // 8:
            world.run_command(name, LeaveGroup(world.id))
            self.left.add(name)
        else:
            world.kill(name, dice.randint(1, 60_000))
        world.run(for_ms=dice.randint(1, 3_000))

    @property
    def staying(self):
        return [name for name in self.world.nodes if name not in self.left]

    def has_converged(self):
        views = {self.world.group(name).view.checksum for name in self.staying}
        return len(views) == 1 and all(self.world.holders(post) >= {*self.staying} for post in self.posts)


@pytest.mark.parametrize("seed", others_slow(range(4)))
def test_all_members_have_everything_after_churn(settled, seed):
    world = settled.fork(seed, FAULTY)
    churn = Churn(world)
    for _ in range(ACTIONS):
        churn.act()
    world.heal()
    world.faults = HEALED
    assert world.run(churn.has_converged, for_ms=600_000, every_ms=1_000)
    for name in churn.staying:  # links to members that have left take a moment to close
        assert len(world.peers(name) & world.group(name).view.members.keys()) <= LINKS_ACCEPTED_MAX
