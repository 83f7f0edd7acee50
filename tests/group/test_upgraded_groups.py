"""Groups whose keys are upgraded: posts before, beside and after it, and no way back."""

import random

import pytest
from msgspec.structs import replace

from tests.support.dcgka_world import Healing, live, talk
from zerochat.group.effects import StoreEvent
from zerochat.group.engine import step
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import UPGRADE, load_event
from zerochat.group.event_log.signing import must_be_signed
from zerochat.group.inputs import (
    BatchEnded,
    ChangeRole,
    Command,
    CommandInput,
    Input,
    LeaveGroup,
    RemoveMember,
    SendPost,
    StepContext,
    UpgradeKeys,
)
from zerochat.group.membership import Policy
from zerochat.group.membership.decisions import NoRight, NoUpgrade
from zerochat.group.wire.queue_names import data_queue
from zerochat.sim import SIMULATED_PACKERS, Faults

OLD = ("pairwise-multi", "pairwise-single", "sender-key")
old = pytest.mark.parametrize("keys", OLD)


def keys_of(world):
    return {world.group(name).keys for name in world.nodes}


def transport(world, member):
    return world.group("n0").view.members[member].transport


def signed_texts(world, name):
    """The text of each post in a member's log, and whether it is signed."""
    posts = [load_event(row.record) for row in world.nodes[name].log if row.type == "post"]
    return [(event.body["text"], bool(event.sig)) for event in posts]


@old
def test_posts_are_sealed_under_the_new_keys_after_an_upgrade(keys):
    world = Healing(keys=keys)
    before = talk(world, 2)
    assert not world.sealed
    world.says("n1", UpgradeKeys(world.id))
    assert keys_of(world) == {"dcgka"}
    after = talk(world, 2)
    assert world.converged() and len(world.sealed) >= len(after)
    for name in world.nodes:
        assert signed_texts(world, name) == [(text, False) for text in before] + [(text, True) for text in after]
    world.settle()
    assert live(world, 2), "nothing is retransmitted once the keys are agreed"


@old
def test_posts_are_subscribed_to_on_their_new_queue(keys):
    """One queue for all; what comes from before the upgrade still has its own."""
    world = Healing(keys=keys)
    links = {name: world.group(name).links.peers for name in world.nodes}
    before = world.nodes["n0"].dialled[links["n0"][world.did("n1")].link].queues
    world.says("n2", UpgradeKeys(world.id))
    for name in world.nodes:
        for member, peer in links[name].items():
            assert data_queue(world.id, member) in world.nodes[name].dialled[peer.link].queues
            assert (
                data_queue(world.id, world.did(name))
                in world.nodes[name].allowed_clients[transport(world, member)].queues
            )
    assert set(before) <= set(world.nodes["n0"].dialled[links["n0"][world.did("n1")].link].queues)


@old
def test_agreeing_after_the_upgrade_changes_nothing(keys):
    """Another member may have been faster."""
    world = Healing(keys=keys)
    world.says("n1", UpgradeKeys(world.id))
    events = world.group("n0").control.keys()
    world.says("n0", UpgradeKeys(world.id))
    assert world.group("n0").control.keys() == events and keys_of(world) == {"dcgka"}


def test_a_group_that_began_with_such_keys_has_no_upgrade():
    world = Healing(2, keys="dcgka")
    why = world.refuses("n0", UpgradeKeys(world.id), NoUpgrade)
    assert "they are dcgka, and a group stays on its path (mesh) for good" in why


def test_other_keys_have_no_upgrade():
    world = Healing(2, keys="deniable")
    assert "they are deniable" in world.refuses("n0", UpgradeKeys(world.id), NoUpgrade)


def test_only_admins_upgrade_where_there_are_admins():
    world = Healing(policy=Policy(remove="admins", quorum=0, roles="admins"), keys="pairwise-multi")
    world.refuses("n1", UpgradeKeys(world.id), NoRight)
    world.says("n0", ChangeRole(world.id, "n1", "admin"))
    world.says("n1", UpgradeKeys(world.id))
    assert keys_of(world) == {"dcgka"} and live(world)


def test_enough_members_agree_where_removals_take_votes():
    world = Healing(4, policy=Policy(quorum=3), keys="pairwise-single")
    for name in ("n0", "n1"):
        world.says(name, UpgradeKeys(world.id))
        world.says(name, UpgradeKeys(world.id))  # it counts once
        assert keys_of(world) == {"pairwise-single"}
    talk(world, 1)
    world.says("n2", UpgradeKeys(world.id))
    assert keys_of(world) == {"dcgka"} and live(world)


def test_members_that_agree_at_once_complete_it():
    world = Healing(policy=Policy(quorum=2), keys="pairwise-multi")
    for name in ("n0", "n1"):
        world.run_command(name, UpgradeKeys(world.id))
    world.settle()
    assert keys_of(world) == {"dcgka"} and live(world)


@old
def test_concurrent_upgrades_converge(keys):
    world = Healing(keys=keys)
    for name in world.nodes:
        world.run_command(name, UpgradeKeys(world.id))
        world.run_command(name, SendPost(world.id, f"{name} at once"))
    world.run(world.converged, for_ms=120_000)
    assert keys_of(world) == {"dcgka"} and world.converged() and len(world.texts("n0")) == 3
    world.settle()
    assert live(world, 2)


@old
def test_posts_beside_an_upgrade_keep_their_form(keys):
    """A member that does not know of it yet posts as before; what it posts afterwards is signed."""
    world = Healing(keys=keys)
    talk(world, 1)
    world.stop("n2")
    world.away = {"n2"}
    unsigned = talk(world, 1, ["n0", "n1"])
    world.says("n0", UpgradeKeys(world.id))
    talk(world, 1, ["n0", "n1"])
    world.away = set()
    world.start("n2")
    world.run_command("n2", SendPost(world.id, "I was away"))
    assert world.group("n2").keys == keys
    world.run(world.converged, for_ms=240_000)
    assert world.converged() and keys_of(world) == {"dcgka"}
    assert {(text, False) for text in (*unsigned, "I was away")} <= set(signed_texts(world, "n2"))
    talk(world, 1, ["n2"])
    world.settle()
    assert world.converged() and signed_texts(world, "n0")[-1][1]


@old
@pytest.mark.slow
def test_upgrades_converge_over_bad_lines(keys):
    world = Healing(keys=keys)
    world.faults = Faults(loss=0.3, duplication=0.2, delay_ms_max=400)
    talk(world, 3, pause_ms=100)
    world.run_command("n1", UpgradeKeys(world.id))
    talk(world, 5, pause_ms=100)
    world.run(lambda: world.converged() and len(world.texts("n0")) == 24, for_ms=900_000)
    assert world.converged() and len(world.texts("n0")) == 24 and keys_of(world) == {"dcgka"}
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=5)
    world.run(for_ms=240_000)
    assert live(world)


@old
def test_a_batch_with_an_upgrade_arrives_whole(keys):
    """Posts before and after it, published together."""
    world = Healing(keys=keys)
    node, moment, effects = world.nodes["n0"], StepContext(world.now, world.rng.randbytes), []
    commands: list[Command] = [SendPost(world.id, "before"), UpgradeKeys(world.id), SendPost(world.id, "after")]
    inputs: list[Input] = [*(CommandInput(-number, one) for number, one in enumerate(commands)), BatchEnded()]
    for input_ in inputs:
        node.agent, said = step(node.agent, input_, moment, SIMULATED_PACKERS)
        effects += said
    for effect in effects:
        world._perform(node, effect)
    world.run(lambda: len(world.texts("n1")) == len(world.texts("n2")) == 2, for_ms=240_000)
    assert signed_texts(world, "n1") == signed_texts(world, "n2") == [("before", False), ("after", True)]


@old
def test_no_member_goes_back(keys):
    """A post of a chain that has the upgrade in its past is refused without a signature, from any member."""
    world = Healing(keys=keys)
    talk(world, 1)
    world.says("n0", UpgradeKeys(world.id))
    talk(world, 1)
    for author in ("n0", "n1"):
        post = world.next_post(author, "unsigned")
        assert post.sig and must_be_signed(world.group("n2"), post)
        assert not world.bring(author, "n2", replace(post, sig=""))
        assert not world.bring(author, "n2", post.signed(world.group("n2").seed))
        assert world.bring("n2" if author == "n1" else "n1", "n0" if author == "n1" else "n2", post)


def test_a_first_post_that_names_the_upgrade_is_signed():
    """Its author's chain had nothing from after the upgrade before."""
    world = Healing(keys="pairwise-multi")
    world.says("n0", UpgradeKeys(world.id))
    post = world.next_post("n1", "first")
    assert world.group("n2").chain(world.did("n1")).upgraded == 0 and must_be_signed(world.group("n2"), post)
    assert not world.bring("n1", "n2", replace(post, sig=""))
    assert world.bring("n1", "n2", post)
    assert world.group("n2").chain(world.did("n1")).upgraded == post.seq


def test_an_unsigned_post_that_overtakes_the_upgrade_is_refused():
    """It waits in the reorder buffer until it is known that it must be signed."""
    world = Healing(keys="pairwise-multi")
    talk(world, 1)
    world.stop("n2")
    world.says("n0", UpgradeKeys(world.id))
    (upgrade,) = (event for event in world.group("n1").control.values() if event.type == UPGRADE)
    post, author = world.next_post("n1", "signed for others only"), world.did("n1")
    for brought, expected in ((replace(post, sig=""), post.seq - 1), (post, post.seq)):
        tx = world.tx("n2")
        receiving.receive_event(tx, world.id, author, brought)
        assert brought.seq in tx.group(world.id).log.reorder_buffers[author].events
        receiving.receive_event(tx, world.id, world.did("n0"), upgrade)
        stored = [effect.id for effect in tx.effects if isinstance(effect, StoreEvent)]
        assert tx.group(world.id).chain(author).seq == expected and (post.id in stored) == bool(brought.sig)


def test_a_newcomer_knows_that_all_must_be_signed():
    """Chains begin for it after its admission, which has the upgrade in its past."""
    world = Healing(keys="pairwise-multi")
    before = talk(world, 1)
    world.says("n0", UpgradeKeys(world.id))
    talk(world, 1)
    world.come("n3")
    assert world.group("n3").keys == "dcgka" and set(before) <= set(world.texts("n3"))
    for author in ("n0", "n1", "n2"):
        chain = world.group("n3").chain(world.did(author))
        assert 0 < chain.upgraded <= chain.seq + 1
    assert live(world, 2)


@old
def test_a_joiner_signs_before_it_may_cite_the_upgrade(keys):
    """Its events omit what depends on the addition of an unconfirmed member."""
    world = Healing(keys=keys)
    world.run_command("n0", UpgradeKeys(world.id))
    world.run(lambda: world.group("n2").keys == "dcgka", for_ms=20_000)
    tx = world.tx("n2")
    tx.update_trust(world.id, quarantine=(world.did("n1"),))
    world.nodes["n2"].agent = tx.agent
    world.run_command("n2", SendPost(world.id, "I am new"))
    (upgrade,) = (event.id for event in world.group("n2").control.values() if event.type == UPGRADE)
    assert upgrade not in world.posts("n2")[-1].deps
    world.run(world.converged, for_ms=240_000)
    assert all(signed_texts(world, name) == [("I am new", True)] for name in world.nodes)


@old
def test_no_removal_takes_it_back(keys):
    """Its author is removed concurrently; others have posted under the new keys."""
    world = Healing(4, keys=keys)
    world.run_command("n3", RemoveMember(world.id, world.did("n1")))
    world.run_command("n1", UpgradeKeys(world.id))
    world.run(for_ms=30_000)
    rest = [name for name in world.nodes if name != "n1"]
    assert {world.group(name).keys for name in rest} <= {"dcgka", keys}
    assert len({world.group(name).keys for name in rest}) == 1
    talk(world, 1, rest)
    texts = {tuple(sorted(world.texts(name))) for name in rest}
    assert len(texts) == 1


def test_an_upgraded_group_goes_on_after_a_restart():
    world = Healing(keys="sender-key")
    talk(world, 1)
    world.says("n0", UpgradeKeys(world.id))
    for name in world.nodes:
        world.restart(name)
    world.run(for_ms=15_000)
    assert keys_of(world) == {"dcgka"}
    talk(world, 1)
    world.settle()
    assert world.converged() and live(world)


def test_members_of_an_upgraded_group_leave():
    world = Healing(keys="sender-key")
    world.says("n0", UpgradeKeys(world.id))
    talk(world, 1)
    world.run_command("n2", LeaveGroup(world.id))
    world.run(for_ms=30_000)
    assert sum(one.type == UPGRADE for one in world.group("n0").control.values()) == 1
    talk(world, 1, ["n0", "n1"])
    assert world.texts("n0") == world.texts("n1")


def test_a_forged_signature_in_history_is_refused():
    """Whatever the keys are: it would make a relayed post its author's own word."""
    world = Healing(keys="pairwise-multi")
    world.post("n1", "before I go")
    world.stop("n1")
    world.away = {"n1"}
    for name in ("n0", "n2"):
        log = world.nodes[name].log
        forged = [load_event(row.record).signed(world.group("n0").seed).record for row in log]
        log[:] = [replace(row, record=one) if row.type == "post" else row for row, one in zip(log, forged, strict=True)]
    world.come("n3")
    world.run(for_ms=60_000)
    assert world.texts("n3") == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_histories_with_upgrades_converge(seed):
    """Posts, concurrent upgrades, absences and restarts over bad lines, from each kind of older keys."""
    rng = random.Random(seed)
    keys, policy = OLD[seed % 3], rng.choice((None, Policy(quorum=2)))
    world = Healing(4, policy=policy, keys=keys)
    world.faults = Faults(loss=0.15, duplication=0.1, delay_ms_max=300)
    upgraders = rng.sample(["n0", "n1", "n2"], 2)
    said, absent = 0, ""
    for number in range(30):
        here = [name for name in ("n0", "n1", "n2", "n3") if name != absent]
        name = rng.choice(here)
        if number in (8, 12) and upgraders:
            who = upgraders.pop()
            if who != absent and world.group(who).keys == keys:
                world.run_command(who, UpgradeKeys(world.id))
        elif number == 5:
            absent = rng.choice(["n1", "n2", "n3"])
            world.stop(absent)
            world.away = {absent}
        elif number == 18 and absent:
            world.away = set()
            world.start(absent)
            absent = ""
        elif number == 22:
            world.restart(name)
        else:
            world.run_command(name, SendPost(world.id, f"{name} {number}"))
            said += 1
        world.run(for_ms=rng.choice((10, 200, 2_000)))
    for name in ("n0", "n1"):  # a member that was absent at its turn
        if world.group(name).keys == keys:
            world.run_command(name, UpgradeKeys(world.id))
    world.run(lambda: world.converged() and len(world.texts("n0")) == said, for_ms=900_000)
    assert world.converged() and len(world.texts("n0")) == said
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=5)
    world.run(lambda: keys_of(world) == {"dcgka"}, for_ms=120_000)
    assert keys_of(world) == {"dcgka"}
    forms = [signed_texts(world, name) for name in world.nodes]
    assert all(sorted(one) == sorted(forms[0]) for one in forms), "one event has one form everywhere"
    world.run(for_ms=240_000)
    talk(world, 1)  # a member that has lost track of an author is given its ratchet with the next message
    world.settle()
    assert live(world, 2)
