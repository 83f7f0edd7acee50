"""Resolution of what a user types: a group or a peer by name, id, or prefix of an id."""

from collections.abc import Iterable

from zerochat.errors import AmbiguousGroup, LocalError, UnknownGroup
from zerochat.group.membership import Member
from zerochat.group.state import Agent, Group, PeerRef
from zerochat.names import matching_ids

PREFIX_MIN = 4
"""The shortest accepted prefix of an id or a DID."""


class UnknownPeer(LocalError):
    """No member or connection is called {peer}. `zerochat members GROUP` lists a group's members, `zerochat
    connections` lists your connections."""


class UnknownMember(LocalError):
    """No member of {group} is called {member}. `zerochat members {group}` lists the members."""


class AmbiguousPeer(LocalError):
    """More than one member or connection is called {peer}. Use GROUP/NAME for a member, or a prefix of an id."""


class NotAConnection(LocalError):
    """{peer} is a member of a group, not a connection. `zerochat connections` lists your connections."""


def find_group(agent: Agent, reference: str) -> Group:
    """The group with this name, id, or prefix of an id. Raises UnknownGroup or AmbiguousGroup."""
    found = matching_ids({group.id: (group.name,) for group in agent.groups.values()}, reference)
    # A group that we left gives way to an active one of the same name.
    matches = [name for name in found if agent.groups[name].state != "left"] or found
    if not matches:
        raise UnknownGroup(group=reference)
    if len(matches) > 1:
        raise AmbiguousGroup(group=reference, ids=matches)
    return agent.groups[matches[0]]


def find_peer(agent: Agent, reference: str) -> PeerRef:
    """The member or connection that `reference` names. Raises UnknownPeer, AmbiguousPeer, or as `find_group` does."""
    if reference in agent.connections:
        return PeerRef(connection=reference)
    labels = {one.id: (one.label,) if one.label else () for one in agent.connections.values()}
    matches = [PeerRef(connection=name) for name in matching_ids(labels, reference)]
    for group in agent.groups.values():
        if group.state == "active":
            matches += _members(group, reference)
    name, slash, member = reference.rpartition("/")
    if slash and not matches:
        matches = _members(find_group(agent, name), member)
    if not matches:
        raise UnknownPeer(peer=reference)
    if len(matches) > 1:
        raise AmbiguousPeer(peer=reference)
    return matches[0]


def _members(group: Group, reference: str) -> list[PeerRef]:
    return [PeerRef(group.id, did) for did in _matching(group, reference) if did != group.me]


def _matching(group: Group, reference: str) -> list[str]:
    return _called(group.view.members.values(), reference)


def _called(members: Iterable[Member], reference: str) -> list[str]:
    is_long = len(reference) >= len("did:key:z6Mk") + PREFIX_MIN
    return [
        member.did
        for member in members
        if member.label.casefold() == reference.casefold() or (is_long and member.did.startswith(reference))
    ]


def find_member(group: Group, reference: str) -> str:
    """The DID of the member with this display name, DID, or prefix of a DID. Raises UnknownMember or AmbiguousPeer."""
    matches = [reference] if reference in group.view.members else _matching(group, reference)
    if not matches:
        raise UnknownMember(group=group.name, member=reference)
    if len(matches) > 1:
        raise AmbiguousPeer(peer=reference)
    return matches[0]


def find_member_anywhere(agent: Agent, reference: str) -> tuple[Group, str]:
    """The only member of this name in the groups that we are in, and its group. Raises UnknownPeer or AmbiguousPeer, or
    as `find_group` does."""
    found = [
        (group, did)
        for group in agent.groups.values()
        if group.state == "active" and group.private is None
        for did in _matching(group, reference)
        if did != group.me
    ]
    name, slash, member = reference.rpartition("/")
    if slash and not found:
        group = find_group(agent, name)
        return group, find_member(group, member)
    if not found:
        raise UnknownPeer(peer=reference)
    if len(found) > 1:
        raise AmbiguousPeer(peer=reference)
    return found[0]


def find_author(group: Group, reference: str) -> str:
    """The same among present and former members; a present member takes precedence over a former one of the same
    name."""
    if reference in group.view.former:
        return reference
    try:
        return find_member(group, reference)
    except UnknownMember:
        matches = _called(group.view.former.values(), reference)
        if not matches:
            raise
    if len(matches) > 1:
        raise AmbiguousPeer(peer=reference)
    return matches[0]


def find_connection(agent: Agent, reference: str) -> str:
    """The id of the connection that `reference` names. Raises NotAConnection, or as `find_peer` does."""
    peer = find_peer(agent, reference)
    if not peer.connection:
        raise NotAConnection(peer=reference)
    return peer.connection
