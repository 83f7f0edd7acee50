"""Invariants of private conversations: of two members only, one for each pair, with everything that both wrote."""

from collections.abc import Iterator, Mapping

from zerochat.group.event_log.event import POST
from zerochat.group.joining.private_conversations import is_over
from zerochat.group.state import Consent, Group
from zerochat.sim.node import Node, Violation


def missing_conversations(nodes: Mapping[str, Node], active: Mapping[str, Group]) -> Iterator[str]:
    """What pairs of members lack of their private conversations, as sentences. `active`: the members' groups, by
    node."""
    for one, group in active.items():
        for other, theirs in active.items():
            known = theirs.me in group.view.members and group.me in theirs.view.members
            if one < other and known and theirs.me in group.links.peers:
                yield from _missing_between(nodes[one], group, nodes[other], theirs)


def _missing_between(one: Node, group: Group, other: Node, theirs: Group) -> Iterator[str]:
    mine, his = _conversations(one, group, theirs.me), _conversations(other, theirs, group.me)
    if mine and his and mine.keys() != his.keys():
        yield f"{one.name} and {other.name} have two private conversations"
    if len(mine) > 1 or len(his) > 1:
        yield f"{one.name} or {other.name} keeps two private conversations with the other"
    if not mine and his and _has_accepted(group, theirs.me):
        yield f"{one.name} has accepted a private conversation with {other.name} and is not in it"
    if not his and mine and _has_accepted(theirs, group.me):
        yield f"{other.name} has accepted a private conversation with {one.name} and is not in it"
    for name in mine.keys() & his.keys():
        posts = [{row.id for row in node.log if row.group == name and row.type == POST} for node in (one, other)]
        if posts[0] != posts[1]:
            yield f"{one.name} and {other.name} have different messages of their private conversation"


def _conversations(node: Node, group: Group, member: str) -> dict[str, Group]:
    """The active private conversations of a node with this member, by id, without those that it has left."""
    return {
        name: each
        for name, each in node.agent.groups.items()
        if each.private is not None
        and each.state == "active"
        and not is_over(each)
        and (each.private.group, each.private.member) == (group.id, member)
    }


def _has_accepted(group: Group, member: str) -> bool:
    received = group.joining.private.get(member)
    return received is not None and received.consent is Consent.ACCEPTED


def check_private(seed: int, nodes: Mapping[str, Node]) -> None:
    """Raise Violation where a third node has anything of a private conversation, or a node has invited more members
    than one."""
    owners: dict[str, set[str]] = {}
    for name, node in nodes.items():
        for group in node.agent.groups.values():
            if group.private is not None:
                owners.setdefault(group.id, set()).add(name)
                if len(group.view.members | group.view.former) > 2:
                    raise Violation(f"seed {seed}: {name} has a private conversation with more than one member")
    for group_id, names in owners.items():
        readers = {name for name, node in nodes.items() if any(row.group == group_id for row in node.log)}
        if len(names) > 2 or not readers <= names:
            raise Violation(f"seed {seed}: a third node has messages of a private conversation of {sorted(names)}")
