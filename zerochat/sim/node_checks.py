"""What must hold of one node at every moment: it tells nothing twice, shows nothing older than it has, loses nothing
that it knew, and what it is can be written down.

`who`, in all of these: the seed and the node, as a Violation names them.
"""

from zerochat.group.event_log.event import DELETE, EDIT, REACT
from zerochat.group.state import Agent, Group
from zerochat.sim.annotation_checks import check_standing
from zerochat.sim.crypto_cache import event_of
from zerochat.sim.node import Node, Violation, stored
from zerochat.sim.relayed_checks import check_agent

REMARKS = frozenset((EDIT, DELETE, REACT))


def check_told(who: str, node: Node, name: str) -> None:
    """The node's faces are told of this event: for the first time, or it has been refuted since. Where it is about a
    post, that stands from now on as the log says."""
    if name in node.told:
        raise Violation(f"{who} tells its faces twice of one event")
    node.told[name] = None
    row = next((row for row in reversed(node.log) if row.id == name), None)
    if row is None:
        raise Violation(f"{who} tells its faces of what it has not kept")
    if row.type in REMARKS:
        post = next((one for one in node.log if one.id == row.target), None)
        remarks = [event_of(one.record) for one in node.log if one.target == row.target]
        if post is not None and len(remarks) > 1:  # else there is nothing that it could go back to
            check_standing(who, node.agent.groups[row.group], event_of(post.record), remarks)


def check_onward(who: str, before: Agent, after: Agent) -> None:
    """What an agent knows of its groups only grows, and so nothing of it is shown again as it was: names, roles, topics
    and posts are all worked out from that. What others have handed over may be given up."""
    for name, group in after.groups.items():
        former = before.groups.get(name)
        if former is None or former is group or former.me != group.me:
            continue  # whoever comes back is somebody else, and begins anew
        if not _leads_on(former, group):
            raise Violation(f"{who} goes back to what it was before")


def _leads_on(former: Group, group: Group) -> bool:
    if group.lamport < former.lamport:
        return False
    if group.control is not former.control and not former.control.keys() <= group.control.keys():
        return False
    if group.chains is former.chains:
        return True
    return all(group.chain(author).seq >= chain.sure for author, chain in former.chains.items())


def check_state(who: str, node: Node) -> None:
    """What the node is survives being written down, and has its limits."""
    if stored(node.agent) != node.agent:
        raise Violation(f"{who}: its state does not survive serialisation")
    check_agent(who, node.agent)
