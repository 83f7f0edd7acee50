"""Taking an invitation back before its time is over: nobody gets in with it any more, and whoever waits to be let in
because of it is told no. Whoever is in stays."""

from zerochat.errors import LocalError
from zerochat.group.effects import Changed
from zerochat.group.joining import invitations, requests
from zerochat.group.lookup import find_group
from zerochat.group.transaction import Turn

PREFIX_MIN = 4
"""The letters of an invitation's name that may stand for all of it."""


class NoSuchInvitation(LocalError):
    """No invitation of yours to {group} is open as {which}. `zerochat invite {group} --list` shows those that are."""


def name_of(link: bytes) -> str:
    """What an open invitation of ours is called at this machine: nothing that its secret could be guessed from."""
    return link.hex()[:16]


def revoke(turn: Turn, wanted: str, which: str) -> Changed:
    """Close the invitation to a group that is called so. Raises NoSuchInvitation."""
    group = find_group(turn.agent, wanted)
    ours = [link for link, open_ in turn.agent.invitations.items() if open_.group == group.id]
    found = [link for link in ours if len(which) >= PREFIX_MIN and name_of(link).startswith(which.lower())]
    if len(found) != 1:
        raise NoSuchInvitation(group=group.name, which=ascii(which[:32]))
    (link,) = found
    requests.revoke(turn, group.id, link)
    invitations.close(turn, link)
    return Changed(group.id)
