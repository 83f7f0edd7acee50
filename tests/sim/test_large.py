"""Large groups of real cores: the guarantees hold under faults and churn, and each bound can fail."""

import json
from functools import lru_cache
from ipaddress import IPv4Address

import pytest
from msgspec.structs import replace

from zerochat.cli import main
from zerochat.group.inputs import CreateGroup
from zerochat.group.key_agreement.channel_reset import is_pending
from zerochat.group.membership import log
from zerochat.group.sync import acknowledgements
from zerochat.overlay.ring import MESH_MEMBERS_MAX
from zerochat.sim.fast_crypto import cached_signatures
from zerochat.sim.large import large_run
from zerochat.sim.large.founding import found
from zerochat.sim.large.large_run import COPIES_MAX, LINKS_MAX, MEMORY_MIB_MAX, LargeResult, bound_faults, run_large
from zerochat.sim.large.large_world import LargeWorld
from zerochat.sim.large.scenario import QUIET, LargePlan, Scenario
from zerochat.sim.large.wide_caches import wide_caches
from zerochat.sim.world import World

SMALL = LargePlan(members=12, messages=10, path="mesh")


@lru_cache(1)
def small() -> LargeResult:
    return run_large(SMALL, 1)


def test_a_small_large_group():
    one = small()
    assert one.violations == () and one.hit_ratio == 1.0 and one.outside == 0
    assert one.due >= 10 * 8 and one.copies == 1.0, "a mesh sends each member one copy, and retransmits by other means"
    assert [phase.name for phase in one.phases] == ["founded", "quiet", "faults", "calm"]
    assert all(phase.steps and phase.bytes for phase in one.phases)
    assert 11 <= one.links_max <= 14 and 0 < one.latency_p50 < one.latency_p95 <= one.latency_max


def test_a_seed_determines_a_run():
    assert run_large(SMALL, 1).digest == small().digest != run_large(SMALL, 2).digest


@pytest.mark.slow
@pytest.mark.parametrize(("members", "path", "joins"), [(24, "mesh", False), (24, "mesh", True), (32, "ring", False)])
def test_dozens_of_members(members, path, joins):
    one = run_large(LargePlan(members=members, messages=20, path=path, joins=joins), 3)
    assert one.violations == () and one.hit_ratio == 1.0
    if path == "ring":
        assert one.links_max <= LINKS_MAX and 2.9 < one.copies <= COPIES_MAX


@pytest.mark.sim
def test_many_large_groups(budget, figures):
    """Of several sizes, founded and joined: a mesh in every other one of the smaller, which are linked alike."""
    runs = budget(12)
    for seed in range(runs):
        members = (16, 24, 30, 40)[seed % 4]
        is_mesh = members <= MESH_MEMBERS_MAX and seed % 8 < 4
        plan = LargePlan(
            members=members,
            messages=30,
            loss=(0.0, 0.05, 0.2)[seed % 3],
            joins=seed % 5 == 0,
            path="mesh" if is_mesh else "ring",
        )
        assert run_large(plan, seed).violations == (), (plan, seed)
    figures(f"{runs} large groups: no guarantee was violated")


@pytest.mark.sim
@pytest.mark.parametrize(("members", "loss", "seed"), [(30, 0.2, 2), (40, 0.05, 3)])
def test_a_ring_on_bad_lines(members, loss, seed):
    """Members get later events of an author before the first one: they acknowledge none before they have all."""
    one = run_large(LargePlan(members=members, messages=30, loss=loss), seed)
    assert one.violations == () and one.unnotified == 0


# --- founding ---------------------------------------------------------------------------------------------------------


def gathered(joins: bool, members: int = 6) -> LargeWorld:
    scenario = Scenario(LargePlan(members=members, messages=2, path="mesh", joins=joins), 5)
    scenario._gather()
    scenario.world.run(for_ms=60_000)  # the comparison of a joiner ends
    return scenario.world


def shape(world: LargeWorld, name: str) -> object:
    """What does not depend on who has added whom, nor on keys."""
    group = world.group(name)
    names = {world.group(one).me: one for one in list(world.nodes)[:6]}
    return (
        sorted(names[did] for did in group.view.members),
        sorted(names[did] for did in group.links.peers),
        sorted(names[did] for did, one in group.links.relationships.items() if one.established),
        {did: one.role for did, one in zip(sorted(names.values()), group.view.members.values(), strict=True)},
        (group.state, group.trust.quarantine, group.trust.attestation_deadline, group.trust.dissenting),
        (len(group.control), len(group.log.heads), len(group.log.covered_heads) <= 1, bool(group.joining.event)),
        sorted(row.type for row in world.nodes[name].log),
    )


def test_a_founded_member_is_as_one_that_has_joined():
    founded, joined = gathered(joins=False), gathered(joins=True)
    for name in list(founded.nodes)[:6]:
        assert shape(founded, name) == shape(joined, name)
    assert founded.nodes["n1"].log[0].type == "genesis"


def test_founders_on_the_ring_have_each_others_pre_keys():
    scenario = Scenario(LargePlan(members=6, messages=2), 5)
    scenario._gather()
    for group in map(scenario.world.group, scenario.first):
        resets = group.dcgka.keys.resets
        assert resets.keys() == set(group.others) and not any(is_pending(group.dcgka.keys, one) for one in resets)


def test_founding_fills_all_seats():
    world = World(1, 64, QUIET)
    with cached_signatures():
        found(world, list(world.nodes), CreateGroup("sim", "n0", world.envelope))
    views = {group.view.checksum for node in world.nodes.values() for group in node.agent.groups.values()}
    assert len(views) == 1 and len(world.group("n63").view.members) == 64


def test_more_nodes_than_a_byte_counts_have_addresses():
    hosts = [node.address.host for node in World(1, 300, QUIET).nodes.values()]
    assert len({IPv4Address(host) for host in hosts}) == 300


def test_memos_fit_all_agents_for_the_time_of_a_run():
    before = log._logs.most
    with wide_caches(200):
        assert log._logs.most >= 400
    assert log._logs.most == before < 400


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({"hit_ratio": 0.99}, "0.990000 of "),
        ({"outside": 2}, "2 copies went to nodes that never were members"),
        ({"links_max": LINKS_MAX + 1}, f"had {LINKS_MAX + 1} links"),
        ({"copies": COPIES_MAX + 0.1}, f"took {COPIES_MAX + 0.1:.2f} copies"),
        ({"unnotified": 1}, "1 deliveries to members of the time came as history"),
        ({"memory_mib": MEMORY_MIB_MAX + 1.0}, "MiB"),
    ],
)
def test_each_bound_can_fail(figures, says):
    ring = replace(small(), plan=LargePlan(members=40), violations=())
    assert list(bound_faults(ring)) == []
    (fault,) = bound_faults(replace(ring, **figures))
    assert says in fault


def test_a_group_that_retransmits_nothing_is_found_out(monkeypatch):
    monkeypatch.setattr(acknowledgements, "retransmit", lambda *given, **more: None)
    one = run_large(replace(SMALL, loss=0.3), 1)
    assert any("messages are missing" in fault for fault in one.violations), one.violations


def test_a_partition_that_never_ends_is_found_out(monkeypatch):
    monkeypatch.setattr(LargeWorld, "end_partition", lambda world: None)
    one = run_large(SMALL, 1)
    assert any("not all has arrived" in fault for fault in one.violations), one.violations


def test_a_partition_drops_frames_and_is_noticed():
    world = gathered(joins=False)
    world.partition(["n0", "n1"], 20_000)
    world.run(for_ms=10_000)
    ends = {name: set(world.nodes[name].connected.values()) for name in ("n0", "n1", "n2")}
    assert ends["n0"] == {"n1"} and ends["n1"] == {"n0"} and ends["n2"] == {"n3", "n4", "n5"}
    world.run(for_ms=20_000)
    assert len(world.nodes["n0"].connected) == 5


def test_copies_to_strangers_are_counted(monkeypatch):
    monkeypatch.setattr(LargeWorld, "_is_member", lambda world, name, sender: name != "n3")
    one = run_large(SMALL, 1)
    assert one.outside > 5 and any("never were members" in fault for fault in one.violations)


# --- the verb ---------------------------------------------------------------------------------------------------------


def test_the_verb_prints_a_table(capsys):
    line = "sim --large --members 8 --messages 6 --seed 2"
    assert main(line.split()) == 0
    out = capsys.readouterr().out
    assert "Seed 2: 8 members, ring, founded together; " in out and "1.000000 of " in out
    assert "1 large group run in " in out and "No guarantee was violated." in out
    for word in ("links", "copies", "latency", "cost", "memory", "founded", "quiet", "faults", "calm"):
        assert f"  {word} " in out
    assert main(["--format", "jsonl", *line.split()]) == 0
    run, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert run["seed"] == 2 and run["plan"]["members"] == 8 and run["hit_ratio"] == 1.0
    assert total["kind"] == "large group" and total["played"] == 1 and not total["broken"]


def test_the_verb_fails_where_a_bound_does(capsys, monkeypatch):
    monkeypatch.setattr(large_run, "MEMORY_MIB_MAX", 1)
    assert main(["sim", "--large", "--members", "8", "--messages", "6", "--jobs", "1"]) == 7
    out = capsys.readouterr().out
    assert "violated " in out and "1 violated a guarantee." in out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--members 20", "only allowed with argument --large"),
        ("--messages 20", "only allowed with argument --overlay or --large"),
        ("--large --members 3", "not between 4 and 1,000"),
        ("--large --path mesh --members 64", "at most 64 members, and 2 join these 64"),
        ("--large --loss 0.6", "A loss of 0.6 is too high"),
        ("--large --overlay", "not allowed with argument --large"),
        ("--large --byzantine", "not allowed with argument --large"),
    ],
)
def test_invalid_options_are_refused(line, says, capsys):
    assert main(["sim", *line.split()]) == 2
    assert says in capsys.readouterr().err


def test_the_help_tells_the_defaults(capsys):
    assert main(["sim", "--help"]) == 0
    text, plan = " ".join(capsys.readouterr().out.split()), LargePlan()
    assert f"members of the group (default: {plan.members})" in text and f"with --large {plan.messages}" in text
    assert f"(default: {plan.path})" in text
