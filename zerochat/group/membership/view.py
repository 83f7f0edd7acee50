"""The members as one member believes them, and what each of them may do: the questions that the rights check asks, and
that a face asks before it tries."""

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Final

from msgspec import Struct

from zerochat.evidence.case import Rules
from zerochat.group.membership.bodies import Policy, TermsBody

MEMBERS_MAX = 64
"""Pairwise keys cost one envelope a member and message; beyond this the other kinds of keys are the right choice."""

NAMES_MAX = 3
"""So many of several members are named in a sentence."""

READER, WRITER, ADMIN, OWNER = "reader", "writer", "admin", "owner"
_RANK: Final = {READER: 0, WRITER: 1, ADMIN: 2, OWNER: 3}


class Member(Struct, frozen=True):
    """One member as the membership events describe it."""

    did: str
    label: str
    contact: str
    """Its contact, a did:peer:4 in the long form."""
    joined: int
    """Lamport time of the event that brought it in."""
    added_by: str | None
    transport: bytes
    """The CURVE public key with which it dials the others (32 bytes)."""
    roles: tuple[tuple[int, str], ...]
    """Its roles, each with the place in the member's own chain after which it counts; the first counts from 0 on."""
    role_by: str
    """Who gave it the last of them."""
    until: int | None = None
    """The last event of its chain that counts; None: it is a member still."""
    history: str = "all"
    """What it may have of what was said before it came, as far as the group's rule allows it (`Policy.history`)."""

    @property
    def role(self) -> str:
        """What it is now: reader, writer, admin or owner."""
        return self.roles[-1][1]

    def role_at(self, seq: int) -> str:
        """What it was when it made event `seq` of its chain."""
        return next((role for after, role in reversed(self.roles) if after < seq), self.roles[0][1])


class Terms(Struct, frozen=True):
    """Who keeps the group's log, and by what its members are judged."""

    id: str
    """Of the event that says so."""
    by: str
    lamport: int
    rules: Rules


class View(Struct, frozen=True):
    """The members as one member believes them."""

    members: dict[str, Member]
    former: dict[str, Member]
    """Who has left or was removed, and those who came in through somebody who was already on the way out."""
    checksum: str
    """Equal at two members exactly when they have heard the same membership events (base64url, 22 characters)."""
    policy: Policy
    removed: dict[str, int]
    """Of the former, those who did not go by themselves: their events up to this one count."""
    forked: dict[str, tuple[str, str]]
    """By author: two of its membership events (ids) in one place of its chain, or of which neither had seen the other.
    Both are signed, so that is proof."""
    ledger: bool = False
    """Whether the group wants a log with witnesses."""
    terms: Terms | None = None
    """Those in force; None: there are none, or its operator, or too many of its witnesses, have gone."""

    def known(self, did: str) -> Member | None:
        """Whoever is or was a member."""
        return self.members.get(did) or self.former.get(did)

    @property
    def keepers(self) -> list[str]:
        """Who keeps the history for the others: as many as the group wants, those who have been in it longest."""
        return self.eldest[: self.policy.keepers or None]

    @property
    def eldest(self) -> list[str]:
        """The members, those who have been in it longest first."""
        return sorted(self.members, key=lambda did: (self.members[did].joined, did))

    @property
    def eldest_witnesses(self) -> tuple[str, ...]:
        """Who witnesses the log where nobody may choose them: as many of the eldest as it takes for no liar among
        three, one among four, and two among seven. Fewer than three: nobody."""
        eldest = self.eldest
        return tuple(eldest[: next((count for count in (7, 4, 3) if len(eldest) >= count), 0)])


def names(view: View, members: Iterable[str]) -> str:
    """Some members by their names, for a sentence."""
    labels = [one.label for did in members if (one := view.known(did)) is not None]
    more = len(labels) - NAMES_MAX
    shown = labels[:NAMES_MAX] + ([f"{more} more"] if more > 0 else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def may_post(view: View, author: str, seq: int) -> bool:
    """Whether a post of this author in this place of its chain counts."""
    member = view.known(author)
    if member is None or (member.until is not None and seq > member.until):
        return False
    return member.role_at(seq) != READER


def recounted(before: View, after: View, author: str, upto: int) -> Iterator[tuple[int, int, bool]]:
    """Which of the places in an author's chain, up to `upto`, count or do not count since the view has changed: each
    time those after a first one, up to a last one, and whether they do."""
    known = [member for view in (before, after) if (member := view.known(author)) is not None]
    if len(known) < 2 or (known[0].roles, known[0].until) == (known[1].roles, known[1].until):
        return
    cuts = {place for member in known for place in (*(at for at, _ in member.roles), member.until or 0)}
    cuts = {0, upto} | {place for place in cuts if 0 < place < upto}
    changed: list[tuple[int, int, bool]] = []
    for first, last in pairwise(sorted(cuts)):
        if (counts := may_post(after, author, last)) != may_post(before, author, last):
            joined = bool(changed) and changed[-1][1:] == (first, counts)
            begin = changed.pop()[0] if joined else first
            changed.append((begin, last, counts))
    yield from changed


def label_free(view: View, label: str, but: str = "") -> bool:
    """Whether no member goes by this name, `but` perhaps this one."""
    folded = label.casefold()
    return all(did == but or member.label.casefold() != folded for did, member in view.members.items())


def may_add(view: View, actor: str, member: str, label: str, transport: bytes) -> bool:
    """Whether the actor can bring in somebody who consents: new, under a free name, with keys of its own, and there is
    room."""
    return (
        actor in view.members
        and view.known(member) is None
        and len(view.members) < MEMBERS_MAX
        and label_free(view, label)
        and all(one.transport != transport for one in view.members.values())
    )


def may_label(view: View, actor: str, label: str) -> bool:
    return actor in view.members and label_free(view, label, but=actor)


def may_vote(view: View, actor: str, target: str) -> bool:
    both = actor in view.members and target in view.members
    return both and actor != target and view.policy.remove == "quorum"


def votes_needed(view: View) -> int:
    """How many members have to want somebody out: the quorum, or everybody else where that is fewer. 0: nobody votes
    in this group."""
    return min(view.policy.quorum, len(view.members) - 1)


def quorum_met(view: View, votes: Collection[str]) -> bool:
    """Whether these votes of members are enough."""
    return view.policy.remove == "quorum" and len(votes) >= max(1, votes_needed(view))


def may_set_terms(view: View, actor: str, terms: TermsBody) -> bool:
    """Whether the actor can say who keeps the log. Where all are equal it is the eldest, and for the usual times: so
    nobody fills it with friends."""
    me = view.members.get(actor)
    if me is None or not view.ledger or not {terms.operator, *terms.witnesses} <= view.members.keys():
        return False
    if view.policy.roles == "admins":
        return me.role in (ADMIN, OWNER)
    return terms.usual and terms.witnesses == view.eldest_witnesses and terms.operator in terms.witnesses


def may_remove(view: View, actor: str, target: str, votes: Collection[str] = ()) -> bool:
    """Whether the actor can put the target out; `votes` are the members who want it (`votes_for`)."""
    me, whom = view.members.get(actor), view.members.get(target)
    if me is None or whom is None or actor == target:
        return False
    match view.policy.remove:
        case "anyone":
            return True
        case "admins":
            return me.role in (ADMIN, OWNER) and whom.role != OWNER
        case "quorum":
            return quorum_met(view, votes)


def may_change_role(view: View, actor: str, target: str, role: str) -> bool:
    """Whether the actor can make the target a reader, writer or admin."""
    me, whom = view.members.get(actor), view.members.get(target)
    if me is None or whom is None or role not in (READER, WRITER, ADMIN):
        return False
    if view.policy.roles == "flat":
        return actor == target and role != ADMIN
    if whom.role == OWNER:
        return False
    if actor == target:
        lifts = (whom.role, role) == (READER, WRITER) and whom.role_by == actor
        return lifts or _RANK[role] < _RANK[whom.role]
    return me.role == OWNER or (me.role == ADMIN and ADMIN not in (whom.role, role))
