"""Members who change roles and remove each other concurrently."""

from tests.support.cut_world import Cut
from zerochat.group.inputs import ChangeRole, CreateGroup, RemoveMember
from zerochat.group.membership import Policy

RULES = Policy(remove="anyone", quorum=0, roles="admins")


def remove_each_other(keys=None, members=4, kind=Cut):
    """n0 has n1 only read, of which n1 has not heard when it says something and puts n0 out; the others hear of the
    role first, and n0 is gone."""
    world = kind(members, RULES)
    if keys:
        world.id = world.run_command("n0", CreateGroup("others", "n0", world.envelope, keys, RULES)).result.group
    world.bring_in(*list(world.nodes)[1:])
    world.run(for_ms=5_000)
    rest = [name for name in world.nodes if name != "n1"]
    world.deaf |= {frozenset({"n1", name}) for name in rest}
    world.run_command("n0", ChangeRole(world.id, world.did("n1"), "reader"))
    world.run(for_ms=3_000)
    world.post("n1", "what counts", "and so does this")
    world.run_command("n1", RemoveMember(world.id, world.did("n0")))
    world.run(for_ms=2_000)
    world.deaf = {frozenset({"n0", name}) for name in world.nodes if name != "n0"}
    return world


def cut_off(world, *names):
    return {frozenset({name, other}) for name in names for other in world.nodes if other != name}
