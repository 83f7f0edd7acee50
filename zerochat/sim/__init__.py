"""Deterministic simulation of many cores in virtual time under a fault schedule.

The core is the real one (`group/engine.py`); clock, randomness, links, queues, disks, mediators (`mediator.py`) and the
web (`web.py`) are simulated. A seed determines a run to the last byte, so every failure can be replayed: `zerochat sim
--seed 7 --trace`.

An *episode* starts with an existing group, takes some milliseconds and contains at least four faults. A *history* runs
from the creation of a group to its end; in one of four, some members are behind simulated mediators. Some seeds use
real encryption instead of the transparent packer, and one of six uses low limits. Invariants are checked at the end, on
every notification and restart, and at random times.

    episode             short runs of an existing group: a script of actions and faults
    initial_groups      the groups that episodes start with
    history             whole histories with honest members
    byzantine           whole histories with malicious members (byzantine_world: their world and its invariants)
    retention_histories groups whose content expires
    tlog_histories      groups with a transparency log and malicious witnesses
    actions             what the simulated users do
    fault_schedule      a world in which lines, machines, disks and clocks fail (failing_world: a simpler one)
    adversary           a malicious member
    attacks             its attacks (forgeries, relayed_attacks, forged_evidence: further ones)
    floods              genuine messages that are cheap to send and costly to answer
    world               nodes, their network and their clock
    node                one node (file_store, tlog_store: what its disk holds)
    invariants          invariants over all nodes (node_checks, annotation_checks, relayed_checks, stream_checks)
    low_limits          runs with low limits
    fast_crypto         transparent packer and cached verification
    trace               notifications as sentences
    batch               many seeds in several processes; shrinking of scripts
    overlay             dissemination among thousands of nodes that are not whole cores
    large               one large group of real cores
"""

from zerochat.sim.byzantine import play_byzantine
from zerochat.sim.episode import play_episode
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.history import play_history
from zerochat.sim.retention_histories import play_retention
from zerochat.sim.tlog_histories import play_accountable
from zerochat.sim.world import EPOCH_MS, SIMULATED_PACKERS, Faults, Node, Violation, World

__all__ = [
    "EPOCH_MS",
    "SIMULATED_PACKERS",
    "Faults",
    "Node",
    "TransparentPacker",
    "Violation",
    "World",
    "play_accountable",
    "play_byzantine",
    "play_episode",
    "play_history",
    "play_retention",
]
