"""One simulated machine, and what must hold of what it has kept."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.effects import Admit, Dial, Effect, Remember
from zerochat.group.event import CONTROL, load_event
from zerochat.group.state import Agent


@dataclass(slots=True)
class Node:
    """One simulated machine: the core's state, its log, its timers and its connections."""

    name: str
    address: Endpoint
    queue_address: Endpoint
    server_key: bytes
    agent: Agent
    log: list[Remember] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)
    admitted: dict[bytes, Admit] = field(default_factory=dict)
    dialled: dict[bytes, Dial] = field(default_factory=dict)
    connected: dict[bytes, str] = field(default_factory=dict)
    """Our links that are up, with the node at the other end."""
    answers: dict[int, Effect] = field(default_factory=dict)
    audiences: dict[str, frozenset[str]] = field(default_factory=dict)
    """For each post of ours, the members that it was meant for when it was made."""
    places: dict[str, int] = field(default_factory=dict)
    """And its place in our chain."""
    dropped: dict[str, int] = field(default_factory=dict)
    hidden: bool = False


class Violation(AssertionError):
    """A promise was broken; the message says which, where and in which seed."""


def check_logs(seed: int, nodes: Sequence[Node], made: Collection[str]) -> None:
    """Raise Violation unless each of these nodes has what it has once, in one order, and of each other nothing
    but what was really said; `made` are the ids of that."""
    meant: dict[str, set[str]] = {}
    mine = {group.me for node in nodes for group in node.agent.groups.values()}
    for node in nodes:
        for group in node.agent.groups.values():
            for post, audience in node.audiences.items():
                meant[post] = {*audience, group.me}
    orders = {}
    for node in [node for node in nodes if node.agent.groups]:
        (group,) = node.agent.groups.values()
        ids = [row.id for row in node.log]
        if len(ids) != len(set(ids)):
            raise Violation(f"seed {seed}: {node.name} delivered an event twice")
        places: dict[str, int] = {}
        known: dict[str, int] = {}
        for row in node.log:
            event = load_event(row.record)
            if event.id != row.id:
                raise Violation(f"seed {seed}: {node.name} keeps a record under another name")
            if row.author in mine and row.id not in made:
                raise Violation(f"seed {seed}: {node.name} keeps what {row.author} never said")
            if row.type not in CONTROL:
                if row.seq <= places.get(row.author, 0):
                    raise Violation(f"seed {seed}: {node.name} broke the order of {row.author}")
                places[row.author] = row.seq
                if group.me not in meant.get(row.id, {group.me}):
                    raise Violation(f"seed {seed}: {node.name} got a post that was not meant for it")
            if any(known.get(cause, 0) >= row.lamport for cause in (event.pre, *event.deps)):
                raise Violation(f"seed {seed}: {node.name} shows an effect before its cause")
            if any(dep not in known for dep in event.deps):
                raise Violation(f"seed {seed}: {node.name} delivered before a cause")
            known[row.id] = row.lamport
        orders[node.name] = [
            row.id for row in sorted(node.log, key=lambda r: (r.lamport, r.author, r.id)) if row.type not in CONTROL
        ]
        _check_serialises(node.agent, seed)
    for one, first in orders.items():
        for other, second in orders.items():
            both = set(first) & set(second)
            if [i for i in first if i in both] != [i for i in second if i in both]:
                raise Violation(f"seed {seed}: {one} and {other} disagree about the order")


def _check_serialises(agent: Agent, seed: int) -> None:
    if msgspec.msgpack.decode(msgspec.msgpack.encode(agent), type=Agent) != agent:
        raise Violation(f"seed {seed}: a state does not survive serialisation")
