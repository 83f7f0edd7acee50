"""The members of one group, indexed: what the screen needs of them is known without going through all of them."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct, field

from zerochat.presentation.lookalikes import is_mixed, likenesses, warning_text
from zerochat.rpc import MemberInfo
from zerochat.tui.style.text import name_of

Rank = tuple[bool, bool, str, str]
"""Sort key of the member list."""


def rank_of(member: MemberInfo) -> Rank:
    """Members with warnings first, then reachable ones, by name."""
    doubtful = member.trust == "changed" or member.forked or bool(member.verdicts)
    return not doubtful, member.connection == "unreachable", member.nick.casefold(), member.did


class Members(Struct):
    """Each change of a member takes time logarithmic in their number; `ranked` is moved in memory only."""

    by_did: dict[str, MemberInfo] = field(default_factory=dict)
    """In the order of joining, as far as the agent listed them so."""
    ranked: list[Rank] = field(default_factory=list)
    """The order of the member list; the last item of each is the DID."""
    trust: Counter[str] = field(default_factory=Counter)
    """How many other members have each trust."""
    mailed: set[str] = field(default_factory=set)
    """Members reached through a mediator; for these the last contact is shown."""
    changed: dict[str, str] = field(default_factory=dict)
    """The names of members whose key differs from the verified one."""
    convicted: set[str] = field(default_factory=set)
    bots: dict[str, MemberInfo] = field(default_factory=dict)
    """Members that announce commands."""
    bearers: Counter[str] = field(default_factory=Counter)
    """How many members have each likeness of a name."""
    own: str = ""
    """The DID of this profile's entry."""
    revision: int = 0
    """Grows with every change."""

    def __len__(self) -> int:
        return len(self.by_did)

    def __iter__(self) -> Iterator[MemberInfo]:
        return iter(self.by_did.values())

    def __contains__(self, did: object) -> bool:
        return did in self.by_did

    def get(self, did: str) -> MemberInfo | None:
        return self.by_did.get(did)

    @property
    def myself(self) -> list[MemberInfo]:
        """The entry of this profile; none: unknown."""
        return [self.by_did[self.own]] if self.own in self.by_did else []

    @property
    def others(self) -> int:
        return self.trust.total()

    def update(self, found: Iterable[MemberInfo]) -> list[MemberInfo]:
        """Add or replace members; those that differ from before."""
        fresh = [one for one in found if self.by_did.get(one.did) != one]
        for one in fresh:
            if (before := self.by_did.get(one.did)) is not None:
                self._unlist(before)
            self.by_did[one.did] = one
            self._list(one)
        self.revision += bool(fresh)
        return fresh

    def remove(self, dids: Iterable[str]) -> bool:
        """Remove members that have left; whether there were any."""
        gone = [one for did in dids if (one := self.by_did.pop(did, None)) is not None]
        for one in gone:
            self._unlist(one)
        self.revision += bool(gone)
        return bool(gone)

    def _list(self, one: MemberInfo) -> None:
        insort(self.ranked, rank_of(one))
        for likeness in likenesses(name_of(one.nick), one.did):
            self.bearers[likeness] += 1
        if one.connection == "self":
            self.own = one.did
        else:
            self.trust[one.trust] += 1
        if one.via == "mediator":
            self.mailed.add(one.did)
        if one.trust == "changed":
            self.changed[one.did] = one.nick
        if one.verdicts:
            self.convicted.add(one.did)
        if one.commands:
            self.bots[one.did] = one

    def _unlist(self, one: MemberInfo) -> None:
        del self.ranked[bisect_left(self.ranked, rank_of(one))]
        self.bearers.subtract(likenesses(name_of(one.nick), one.did))
        if one.connection != "self":
            self.trust[one.trust] -= 1
        self.mailed.discard(one.did)
        self.changed.pop(one.did, None)
        self.convicted.discard(one.did)
        self.bots.pop(one.did, None)

    def name_warning(self, one: MemberInfo) -> str:
        """What is deceptive about a member's name, as the end of a sentence; empty: nothing."""
        nick = name_of(one.nick)
        shared = any(self.bearers[likeness] > 1 for likeness in likenesses(nick, one.did))
        return warning_text(is_mixed(nick), shared)

    def page(self, word: str, limit: int) -> tuple[list[MemberInfo], int]:
        """The first `limit` members in the order of the list, and how many more there are. `word`: only those whose
        name contains it, in any case, or whose DID starts or ends with it; this goes through all members."""
        if not word:
            dids: Sequence[str] = [rank[-1] for rank in islice(self.ranked, limit)]
            return [self.by_did[did] for did in dids], max(len(self.ranked) - limit, 0)
        wanted = word.casefold()
        found = [did for *_, nick, did in self.ranked if wanted in nick or did.startswith(word) or did.endswith(word)]
        return [self.by_did[did] for did in found[:limit]], max(len(found) - limit, 0)
