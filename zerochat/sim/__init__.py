"""Many cores in one process, in virtual time, over a network that loses, repeats, delays and reorders.

The core is the one that runs behind the sockets (`group/engine.py`); what is simulated is the machine room around it:
clock, dice, links, queues and the log on disk, and beside it mediators (`mediator.py`) and the web (`web.py`). One seed
gives one history, to the last byte, so whatever goes wrong can be played again: `zerochat sim --seed 7 --trace`.

An *episode* begins with a group that stands already, takes some milliseconds, and has at least four faults in it, from
a cut line to a clock that is a year wrong; in a tenth of them somebody posts a file, and in a twentieth two act
against each other at the same time. In a sixth of all that is played limits are low, or no mistake at one would ever
show. A *history* goes from the founding of a group to its end; in one of four, some members only dial out, behind
simulated mediators. There, and in a tenth of the others or more, envelopes are really encrypted; elsewhere a
transparent packer of the same shape stands in for them.

What must hold is looked at in the end and while it happens: whenever faces are told something, somebody is known to
have something, or a process starts again, and at moments that are drawn by lot.

    episode     what goes wrong in an episode and what people do meanwhile, as a script
    beginnings  the groups that episodes begin with
    ordeal      a world in which lines, machines, disks and clocks fail
    shrink      what of a script it takes to break a promise
    history     histories in which everybody keeps the rules (`--byzantine`: those of byzantine.py)
    doings      what people do in them
    byzantine   those in which some members break the rules
    arena       their world, and what must hold for the others all the same
    fragile     a world in which processes die and lines are cut, for the honest of some of them
    adversary   a member that breaks the rules
    attacks     what it tries (forgeries.py: that of it which forges; hearsay.py: that which is about others' words)
    accountable those of groups that keep a log, whose witnesses lie up to their bound (logbook.py: a disk's part)
    world       nodes, their network and their clock
    checks      what must hold of all nodes together
    shown       what must hold of one node at every moment (remarks.py: of how messages stand; signed.py: of streams)
    node        one node, and what must hold of what it has kept (handed.py: of what others have handed it, and
                its limits; filing.py: the contents of files)
    narrow      limits that are low
    shortcuts   what all members may work out once
    story       what nodes notice, in sentences
    batch       many of them, in several processes
"""

from zerochat.sim.byzantine import play_byzantine
from zerochat.sim.episode import play_episode
from zerochat.sim.history import play
from zerochat.sim.null_packer import TransparentPacker
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
    "play",
    "play_accountable",
    "play_byzantine",
    "play_episode",
]
