"""Clusters by interests: similar peers find each other, fingers hold the clusters together, joins find subscribers."""

import random
from functools import lru_cache

import pytest

from zerochat.overlay import clustering
from zerochat.overlay.join_routing import HOPS_MAX
from zerochat.sim.overlay import cluster_world
from zerochat.sim.overlay.cluster_world import ClusterWorld
from zerochat.sim.overlay.sampling_world import SamplingPlan

NODES, ROUNDS, JOINS = 300, 15, 60


@lru_cache
def clustered(nodes=NODES, rounds=ROUNDS, *, fingers=True):
    world = ClusterWorld(SamplingPlan(nodes=nodes, columns=64), 1, fingers=fingers)
    world.run(rounds)
    return world


def joined(world, joins=JOINS):
    """The part of the joins that find a subscriber, each over random contacts that are none, and their mean hops."""
    rng = random.Random(1)
    topics = sorted({tag for one in world.interests.values() for tag in one.tags})
    found = []
    for tag in rng.sample([tag for tag in topics if len(world.subscribers(tag)) >= 3], joins):
        contacts = [name for name in world.nodes if tag not in world.interests[name].tags]
        found.append(world.join(tag, rng.sample(contacts, 4)))
    hops = [one for one in found if one is not None]
    return len(hops) / joins, sum(hops) / max(1, len(hops))


def test_clusters_are_twice_as_similar_as_chance(figures):
    found = clustered().cluster_figures()
    figures(f"{NODES} nodes, {ROUNDS} rounds: similarity {found.similarity:.3f}, by chance {found.by_chance:.3f}")
    assert found.similarity >= 2 * found.by_chance and found.connected == found.unbridged == 1


def test_a_join_finds_a_subscriber_though_others_are_gone(figures):
    """A twentieth of the nodes, the inviters among them, has died by then."""
    world = ClusterWorld(SamplingPlan(nodes=NODES, columns=64), 2)
    world.run(ROUNDS)
    world.kill(list(world.nodes)[::20])
    part, hops = joined(world)
    figures(f"{JOINS} joins among {NODES} nodes: {part:.0%} find a subscriber, over {hops:.1f} hops")
    assert part >= 0.95 and hops <= 3


def test_joins_at_random_do_not_find_one(monkeypatch):
    """The ablation, with a single walk each."""
    world = clustered()
    monkeypatch.setattr(cluster_world, "WALKS", 1)
    assert joined(world)[0] >= 0.9

    def at_random(tag, neighbours, fingers, passed, random_bytes):
        able = [one.peer for one in (*neighbours, *fingers) if one.peer not in passed]
        return None if len(passed) > HOPS_MAX else world.rng.choice(able)

    monkeypatch.setattr(cluster_world, "next_hop", at_random)
    assert joined(world)[0] < 0.6


@pytest.mark.slow
def test_without_fingers_clusters_hang_on_weak_bridges():
    """A few nodes with interests in two communities are all that connects them."""
    found = {fingers: clustered(400, 20, fingers=fingers).cluster_figures() for fingers in (True, False)}
    assert found[True].unbridged == 1.0 and found[False].unbridged < 0.7


@pytest.mark.slow
def test_clusters_without_random_candidates_stay_by_chance(monkeypatch):
    """The ablation: VICINITY without peer sampling below it."""
    updated = clustering.updated
    monkeypatch.setattr(
        clustering,
        "updated",
        lambda me, own, cluster, found, view, now: updated(me, own, {}, [*found][:1], {}, now),
    )
    world = ClusterWorld(SamplingPlan(nodes=NODES, columns=64), 1)
    world.run(ROUNDS)
    found = world.cluster_figures()
    assert found.similarity < 2 * found.by_chance


@pytest.mark.sim
def test_a_thousand_nodes(figures):
    found = clustered(1_000, 20).cluster_figures()
    part, hops = joined(clustered(1_000, 20))
    figures(
        f"1,000 nodes, 20 rounds: similarity {found.similarity:.3f}, by chance {found.by_chance:.3f};"
        f" {part:.0%} of the joins find a subscriber, over {hops:.1f} hops"
    )
    assert found.similarity >= 2 * found.by_chance and found.unbridged == 1.0 and part >= 0.95
