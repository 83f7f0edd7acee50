"""Invariants of one node at every moment: notifications, monotonic state, serialisation, limits.

`who`, in all of these: the seed and the node, for the message of a Violation.
"""

from zerochat.group.event_log.event import DELETE, EDIT, REACT
from zerochat.group.state import Agent, Group
from zerochat.sim.annotation_checks import check_current_message
from zerochat.sim.fast_crypto import event_of
from zerochat.sim.node import Node, Violation, round_trip
from zerochat.sim.relayed_checks import check_agent
from zerochat.sim.upgrade_checks import keys_kept

ANNOTATION_TYPES = frozenset((EDIT, DELETE, REACT))


def check_notified(who: str, node: Node, name: str) -> None:
    """Clients are notified of an event once, unless it was refuted in between, and annotations match the log."""
    if name in node.notified:
        raise Violation(f"{who} notifies clients twice of one event")
    node.notified[name] = None
    row = next((row for row in reversed(node.log) if row.id == name), None)
    if row is None:
        raise Violation(f"{who} notifies clients of an event that it has not stored")
    if row.type in ANNOTATION_TYPES:
        post = next((one for one in node.log if one.id == row.target), None)
        annotations = [event_of(one.record) for one in node.log if one.target == row.target]
        if post is not None and len(annotations) > 1:  # with one annotation there is no earlier state to return to
            check_current_message(who, node.agent.groups[row.group], event_of(post.record), annotations)


def check_monotonic(who: str, before: Agent, after: Agent) -> None:
    """The state of groups only grows, except for relayed events, so clients never see an earlier state."""
    for name, group in after.groups.items():
        former = before.groups.get(name)
        if former is None or former is group or former.me != group.me:
            continue  # a member that returns has a new identity
        if not _extends(former, group):
            raise Violation(f"{who} goes back to an earlier state")
        if not keys_kept(former, group):
            raise Violation(f"{who} goes back from {former.keys} to {group.keys}")


def _extends(former: Group, group: Group) -> bool:
    if group.log.lamport < former.log.lamport:
        return False
    if group.control is not former.control and not former.control.keys() <= group.control.keys():
        return False
    if group.log.chains is former.log.chains:
        return True
    now = group.log.chains
    return all(
        now.get(author) is chain or group.chain(author).seq >= chain.confirmed_seq
        for author, chain in former.log.chains.items()
    )


def check_state(who: str, node: Node) -> None:
    """The state survives serialisation and respects its limits."""
    if round_trip(node.agent) != node.agent:
        raise Violation(f"{who}: its state does not survive serialisation")
    check_agent(who, node.agent)
