"""The display names of a group's members, now and before any event: an index of the naming events."""

from bisect import bisect_left

from zerochat.group.event_log.event import ADD, GENESIS, LABEL
from zerochat.group.membership import add_of, genesis_of, label_of
from zerochat.group.state import Group


class DisplayNames(dict[str, str]):
    """By DID: the names of members and former members; in a private conversation also the other member's in the group
    from which it was begun. A name in the past is found by bisection."""

    def __init__(self, group: Group) -> None:
        awaited = {group.private.member: group.private.label} if group.private is not None else {}
        known = group.view.former | group.view.members
        super().__init__(awaited | {did: member.label for did, member in known.items()})
        self._group = group
        self._history: tuple[dict[str, str], dict[str, list[tuple[int, str]]]] | None = None
        """By DID: the first name, and the later ones with their Lamport times, sorted; None: not indexed yet."""

    def is_of(self, group: Group) -> bool:
        """Whether these are the names in this state of the group."""
        return self._group.view is group.view and self._group.control is group.control

    def before(self, did: str, lamport: int) -> str:
        """The display name of a member before the event with this Lamport time."""
        if self._history is None:
            self._history = _history(self._group)
        first, later = self._history
        names = later.get(did, [])
        at = bisect_left(names, (lamport, ""))
        return names[at - 1][1] if at else first.get(did, "")


def _history(group: Group) -> tuple[dict[str, str], dict[str, list[tuple[int, str]]]]:
    first: dict[str, str] = {}
    later: dict[str, list[tuple[int, str]]] = {}
    for event in group.control.values():
        if event.type == LABEL:
            later.setdefault(event.author, []).append((event.lamport, label_of(event).label))
        elif event.type == ADD:
            added = add_of(event)
            first[added.member] = added.label
        elif event.type == GENESIS:
            first[event.author] = genesis_of(event).label
    return first, {did: sorted(names) for did, names in later.items()}
