"""Finding what a person or a program means: a group, or a peer, by name, id, or the beginning of an id."""

from collections.abc import Iterable

from zerochat.errors import AmbiguousGroup, LocalError, UnknownGroup
from zerochat.group.membership import Member
from zerochat.group.state import Agent, Group, Whom

PREFIX_MIN = 4
"""The letters of an id or a DID that may stand for all of it."""


class UnknownPeer(LocalError):
    """Nobody here is called {peer}. `zerochat members GROUP` lists a group's members, `zerochat connections` all
    others."""


class UnknownMember(LocalError):
    """Nobody in {group} is called {member}. `zerochat members {group}` lists who is in it."""


class AmbiguousPeer(LocalError):
    """More than one answers to {peer}. Say which one: GROUP/NAME for a member, or the first letters of an id."""


class NotAConnection(LocalError):
    """{peer} is a member of a group, and not a connection. `zerochat connections` lists those."""


def find_group(agent: Agent, wanted: str) -> Group:
    """The group with this name, this id, or an id that begins so. Raises UnknownGroup or AmbiguousGroup."""
    if wanted in agent.groups:
        return agent.groups[wanted]
    named = [group for group in agent.groups.values() if group.name == wanted]
    # A group that one has left keeps its name only as long as nobody else needs it.
    found = [group for group in named if group.state != "left"] or named
    if not found and len(wanted) >= PREFIX_MIN:
        found = [group for name, group in agent.groups.items() if name.startswith(wanted)]
    if not found:
        raise UnknownGroup(group=wanted)
    if len(found) > 1:
        raise AmbiguousGroup(group=wanted)
    return found[0]


def find_peer(agent: Agent, wanted: str) -> Whom:
    """The member or connection that is meant. Raises UnknownPeer, AmbiguousPeer, or as `find_group` does."""
    if wanted in agent.connections:
        return Whom(connection=wanted)
    connections = [one for one in agent.connections.values() if one.label == wanted != ""]
    if not connections and len(wanted) >= PREFIX_MIN:
        connections = [one for one in agent.connections.values() if one.id.startswith(wanted)]
    found = [Whom(connection=one.id) for one in connections]
    for group in agent.groups.values():
        if group.state == "active":
            found += _members(group, wanted)
    name, slash, member = wanted.rpartition("/")
    if slash and not found:
        found = _members(find_group(agent, name), member)
    if not found:
        raise UnknownPeer(peer=wanted)
    if len(found) > 1:
        raise AmbiguousPeer(peer=wanted)
    return found[0]


def _members(group: Group, wanted: str) -> list[Whom]:
    return [Whom(group.id, did) for did in _matching(group, wanted) if did != group.me]


def _matching(group: Group, wanted: str) -> list[str]:
    return _called(group.view.members.values(), wanted)


def _called(members: Iterable[Member], wanted: str) -> list[str]:
    long = len(wanted) >= len("did:key:z6Mk") + PREFIX_MIN
    return [
        member.did
        for member in members
        if member.label.casefold() == wanted.casefold() or (long and member.did.startswith(wanted))
    ]


def find_member(group: Group, wanted: str) -> str:
    """The DID of the member with this label, this DID, or one that begins so. Raises UnknownMember or AmbiguousPeer."""
    found = [wanted] if wanted in group.view.members else _matching(group, wanted)
    if not found:
        raise UnknownMember(group=group.name, member=wanted)
    if len(found) > 1:
        raise AmbiguousPeer(peer=wanted)
    return found[0]


def find_author(group: Group, wanted: str) -> str:
    """The same of whoever has been a member: of two with one name, whoever still is one is meant."""
    if wanted in group.view.former:
        return wanted
    try:
        return find_member(group, wanted)
    except UnknownMember:
        found = _called(group.view.former.values(), wanted)
        if not found:
            raise
    if len(found) > 1:
        raise AmbiguousPeer(peer=wanted)
    return found[0]


def find_connection(agent: Agent, wanted: str) -> str:
    """The id of the connection that is meant. Raises NotAConnection, or as `find_peer` does."""
    whom = find_peer(agent, wanted)
    if not whom.connection:
        raise NotAConnection(peer=wanted)
    return whom.connection
