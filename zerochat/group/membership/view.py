"""The view: the members of a group and their permissions, as far as one member knows."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Final

from msgspec import Struct

from zerochat.evidence.case import Rules
from zerochat.group.composite import SortedComposite
from zerochat.group.membership.bodies import Policy, TermsBody
from zerochat.limits import MEMBERS_MAX, MEMBERS_MAX_BY_PATH

NAMES_MAX = 3
"""How many of several members a sentence names."""

READER, WRITER, ADMIN, OWNER = "reader", "writer", "admin", "owner"
_RANK: Final = {READER: 0, WRITER: 1, ADMIN: 2, OWNER: 3}


class Member(Struct, frozen=True):
    """One member, by the membership events."""

    did: str
    label: str
    contact: str
    """Its contact, a did:peer:4 in the long form."""
    joined: int
    """Lamport time of the event that added it."""
    added_by: str | None
    transport: bytes
    """The CURVE public key with which it dials the others (32 bytes)."""
    roles: tuple[tuple[int, str], ...]
    """Its roles, each with the position in the member's chain after which it applies; the first applies from 0 on."""
    role_by: str
    """The member that gave it the last role."""
    until: int | None = None
    """The position of the last event of its chain that counts; None: it is a member."""
    history: str = "all"
    """The history that it may read, as far as the group's rule allows (`Policy.history`)."""
    admission: str = ""
    """The id of the event that added it."""

    @property
    def role(self) -> str:
        """Its present role: reader, writer, admin or owner."""
        return self.roles[-1][1]

    def role_at(self, seq: int) -> str:
        """Its role when it created event `seq` of its chain."""
        return next((role for after, role in reversed(self.roles) if after < seq), self.roles[0][1])


class Terms(Struct, frozen=True):
    """Who operates and witnesses the transparency log, and the rules by which members are judged."""

    id: str
    """Of the terms event."""
    author: str
    lamport: int
    rules: Rules


class View(SortedComposite, frozen=True, dict=True):
    """The members of a group and its rules, by one member's membership events."""

    members: dict[str, Member]
    former: dict[str, Member]
    """Members that have left or were removed, and those whose admission is void."""
    checksum: str
    """Equal for two members exactly if they have the same membership events (base64url, 22 characters)."""
    policy: Policy
    removed: dict[str, int]
    """Former members that were removed: their events up to this position count."""
    forked: dict[str, tuple[str, str]]
    """By author: two of its membership events (ids) at one position of its chain, or two concurrent ones. Both are
    signed, which proves equivocation."""
    has_tlog: bool = False
    """Whether the group keeps a transparency log."""
    terms: Terms | None = None
    """The terms in force; None: there are none, or the operator or too many witnesses have left."""
    keys: str = ""
    """The key mode: that of the genesis event, or of an upgrade."""
    path: str = "mesh"
    """Who is linked to whom: `mesh` or `ring`."""

    @property
    def members_max(self) -> int:
        """The seats of the group."""
        return seats_of(self.path)

    def known(self, did: str) -> Member | None:
        """A current or former member."""
        return self.members.get(did) or self.former.get(did)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The members by their places: in the order of their DIDs."""
        return tuple(self.members)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The members' places in `order`."""
        return {did: place for place, did in enumerate(self.order)}

    @property
    def keepers(self) -> list[str]:
        """The members that keep the history for the others: as many as the policy says, those who joined first."""
        return self.eldest[: self.policy.keepers or None]

    @cached_property
    def eldest(self) -> list[str]:
        """The members in order of joining. Not for a view that still changes (`resolve.ViewBuilder.current`)."""
        return self._by_joining()

    def _by_joining(self) -> list[str]:
        return sorted(self.members, key=lambda did: (self.members[did].joined, did))

    @property
    def eldest_witnesses(self) -> tuple[str, ...]:
        """The witnesses where they cannot be chosen: as many of the first members as tolerate no, one or two faulty
        ones among three, four or seven. Fewer than three members: none."""
        eldest = self._by_joining()  # also asked while the view changes
        return tuple(eldest[: next((count for count in (7, 4, 3) if len(eldest) >= count), 0)])


def seats_of(path: str) -> int:
    """How many members a group with this path may have; with an unknown one, as few as any."""
    return MEMBERS_MAX_BY_PATH.get(path, MEMBERS_MAX)


def member_names(view: View, members: Iterable[str]) -> str:
    """The display names of some members, for a sentence."""
    labels = [one.label for did in members if (one := view.known(did)) is not None]
    more = len(labels) - NAMES_MAX
    shown = labels[:NAMES_MAX] + ([f"{more} more"] if more > 0 else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def may_post(view: View, author: str, seq: int) -> bool:
    """Whether a post of this author at this position of its chain counts."""
    member = view.known(author)
    if member is None or (member.until is not None and seq > member.until):
        return False
    return member.role_at(seq) != READER


def validity_changes(before: View, after: View, author: str, upto: int) -> Iterator[tuple[int, int, bool]]:
    """The ranges of an author's chain, up to `upto`, whose posts begin or cease to count with a change of the view:
    positions after the first, up to the last, and whether they count."""
    if before.known(author) is after.known(author):  # for nearly all
        return
    known = [member for view in (before, after) if (member := view.known(author)) is not None]
    if len(known) < 2 or (known[0].roles, known[0].until) == (known[1].roles, known[1].until):
        return
    boundaries = {place for member in known for place in (*(at for at, _ in member.roles), member.until or 0)}
    boundaries = {0, upto} | {place for place in boundaries if 0 < place < upto}
    changed: list[tuple[int, int, bool]] = []
    for first, last in pairwise(sorted(boundaries)):
        if (counts := may_post(after, author, last)) != may_post(before, author, last):
            joined = bool(changed) and changed[-1][1:] == (first, counts)
            begin = changed.pop()[0] if joined else first
            changed.append((begin, last, counts))
    yield from changed


def label_free(view: View, label: str, but: str = "") -> bool:
    """Whether no member uses this name, except `but`."""
    folded = label.casefold()
    return all(did == but or member.label.casefold() != folded for did, member in view.members.items())


def may_add(view: View, actor: str, member: str, label: str, transport: bytes) -> bool:
    """Whether the actor may add a consenting joiner: a new key, and an unused name and transport key. Whether there is
    a seat: `rights.has_seat_for`."""
    return (
        actor in view.members
        and view.known(member) is None
        and label_free(view, label)
        and all(one.transport != transport for one in view.members.values())
    )


def may_label(view: View, actor: str, label: str) -> bool:
    return actor in view.members and label_free(view, label, but=actor)


def may_vote(view: View, actor: str, target: str) -> bool:
    both = actor in view.members and target in view.members
    return both and actor != target and view.policy.remove == "quorum"


def votes_needed(view: View) -> int:
    """How many votes a removal takes: the quorum, or all other members if they are fewer. 0: no votes in this group."""
    return min(view.policy.quorum, len(view.members) - 1)


def quorum_met(view: View, votes: Collection[str]) -> bool:
    """Whether these votes of members are enough."""
    return view.policy.remove == "quorum" and len(votes) >= max(1, votes_needed(view))


def may_set_terms(view: View, actor: str, terms: TermsBody) -> bool:
    """Whether the actor may set the terms of the log. In a group without admins only the first members can be
    witnesses, with the default periods, so that no member can fill the roles with friends."""
    me = view.members.get(actor)
    if me is None or not view.has_tlog or not {terms.operator, *terms.witnesses} <= view.members.keys():
        return False
    if view.policy.roles == "admins":
        return me.role in (ADMIN, OWNER)
    return terms.has_default_times and terms.witnesses == view.eldest_witnesses and terms.operator in terms.witnesses


def may_remove(view: View, actor: str, target: str, votes: Collection[str] = ()) -> bool:
    """Whether the actor may remove the target; `votes` are the counted voters (`votes_for`)."""
    me, target_member = view.members.get(actor), view.members.get(target)
    if me is None or target_member is None or actor == target:
        return False
    match view.policy.remove:
        case "anyone":
            return True
        case "admins":
            return me.role in (ADMIN, OWNER) and target_member.role != OWNER
        case "quorum":
            return quorum_met(view, votes)


def may_change_role(view: View, actor: str, target: str, role: str) -> bool:
    """Whether the actor may make the target a reader, writer or admin, or its successor as the owner."""
    me, target_member = view.members.get(actor), view.members.get(target)
    if me is None or target_member is None or role not in _RANK:
        return False
    if view.policy.roles == "flat":
        return actor == target and role in (READER, WRITER)
    if target_member.role == OWNER:
        return False
    if role == OWNER:
        return me.role == OWNER
    if actor == target:
        lifts = (target_member.role, role) == (READER, WRITER) and target_member.role_by == actor
        return lifts or _RANK[role] < _RANK[target_member.role]
    return me.role == OWNER or (me.role == ADMIN and ADMIN not in (target_member.role, role))
