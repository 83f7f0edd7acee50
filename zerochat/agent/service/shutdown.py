"""What an agent that was told to end still waits for: see `AgentThread.drain`."""

from zerochat.group.state import Agent
from zerochat.group.sync.acknowledgements import lacks

OWED = "acknowledge "
"""How the names of the timers begin that put acknowledgements off (`group/sync/acknowledgements.py`)."""


def is_owed(timer: str) -> bool:
    """Whether this timer puts off what we owe somebody."""
    return timer.startswith(OWED)


def waits(agent: Agent) -> bool:
    """Whether somebody who is connected has not acknowledged everything of ours, or we owe somebody a word. Whoever is
    away gets it after the next start, and nobody else is waited for."""
    for group in agent.groups.values():
        if group.state == "left":
            continue
        if group.owed:
            return True
        for member in group.view.members:
            peer = group.peers.get(member)
            if peer is not None and peer.link in agent.up and lacks(group, member):
                return True
    return False
