"""The sources of inputs, for fair queueing: the link of the member that has caused one, or ourselves."""

from typing import Final

from zerochat.group.inputs import (
    HistoryRead,
    Input,
    LinkDown,
    LinkUp,
    OwnEventsRead,
    PartsRead,
    Received,
    Reconciled,
    WebPostDelivered,
    WebPostFailed,
    WebReceived,
    WebSocketDown,
    WebSocketUp,
)
from zerochat.group.state import Agent

OWN: Final = "own"
"""The source of all inputs that no peer has caused."""


def source_of(agent: Agent, input_: Input) -> bytes | str:
    """The link that has caused an input. The link of an invitation counts for all its holders, and everything that
    comes over the web is of one source."""
    match input_:
        case Received() | LinkUp() | LinkDown():
            return input_.link
        case HistoryRead() | OwnEventsRead() | Reconciled() | PartsRead():
            return link_of(agent, input_.group, input_.member)
        case WebReceived() | WebPostFailed() | WebPostDelivered() | WebSocketUp() | WebSocketDown():
            return "web"
        case _:
            return OWN


def link_of(agent: Agent, name: str, member: str) -> bytes | str:
    """The link of a member of a group; `OWN` if there is none."""
    group = agent.groups.get(name)
    peer = group.links.peers.get(member) if group is not None else None
    return OWN if peer is None else peer.link
