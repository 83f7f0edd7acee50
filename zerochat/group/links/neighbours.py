"""Neighbours on the ring: the members that this one is linked to, a function of the view (`overlay/ring.py`).

A member's place follows from the id of the event that admitted it, which its inviter has a part in: a joiner cannot try
keys until it stands next to a victim. All members compute the same links, so both ends of a link make it. A mesh group
has none of this.
"""

from collections.abc import Mapping
from typing import Final

from zerochat.group.links.contact import member_link
from zerochat.group.membership.resolve import RecentCache
from zerochat.group.state import Group
from zerochat.overlay.ring import Links, Ring

LINKS_ACCEPTED_MAX: Final = 24
"""Links of one member: its own neighbours, and members that have chosen it."""
AWAIT_MS: Final = 10_000
"""How long a member is awaited before others take its place."""
CACHED_MAX: Final = 32
"""Cached rings, of all groups and views."""
LINKS_CACHED_MAX: Final = 1024
"""Cached links of one member each: those of a whole group, so that a member can find ways through it."""

_rings: RecentCache[str, Ring] = RecentCache(CACHED_MAX)
"""By the checksum of the view."""
_links: RecentCache[tuple[str, str], Links] = RecentCache(LINKS_CACHED_MAX)
"""By checksum and member."""
_owners: RecentCache[tuple[str, str], Mapping[bytes, str]] = RecentCache(CACHED_MAX)
"""By checksum and member: the other members by their links to it."""


def is_ring(group: Group) -> bool:
    """Whether members are linked to their neighbours alone."""
    return group.view.path == "ring"


def is_forwarding(group: Group) -> bool:
    """Whether members forward messages: on the ring, unless it is so small that we are linked to all."""
    return is_ring(group) and not links_of(group, group.me).mesh


def ring_of(group: Group) -> Ring:
    """The members of the present view in ring order. Do not modify it."""
    return _rings.get(group.view.checksum, lambda: _ring(group))


def _ring(group: Group) -> Ring:
    members = group.view.members
    return Ring(group.id, members, {did: one.admission for did, one in members.items()})


def links_of(group: Group, member: str) -> Links:
    """The links of a member in the present view; none, where it is no member."""
    if member not in group.view.members:
        return Links()
    return _links.get((group.view.checksum, member), lambda: ring_of(group).links(member))


def is_neighbour(group: Group, member: str) -> bool:
    """Whether the view links us to this member."""
    return member in links_of(group, group.me).all


def owner_of(group: Group, link: bytes) -> str | None:
    """The member that this link of ours would lead to, linked or not; None: no member of a ring group."""
    if not is_ring(group):
        return None
    others = group.others
    key = group.view.checksum, group.me
    return _owners.get(key, lambda: {member_link(group.id, group.me, did): did for did in others}).get(link)


def is_introduced(group: Group, member: str) -> bool:
    """Whether one of us has admitted the other: they are linked at first, so that the joiner has a way into the
    group."""
    ours, theirs = group.view.members.get(group.me), group.view.members.get(member)
    return ours is not None and theirs is not None and (ours.added_by == member or theirs.added_by == group.me)


def awaited(group: Group) -> list[str]:
    """The members that we connect to after joining: all, or on the ring our neighbours."""
    return list(links_of(group, group.me).all) if is_ring(group) else group.others
