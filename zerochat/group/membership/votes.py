"""Whose the votes are by which somebody is put out, and how many of them there have to be.

Whoever makes an event chooses what it had seen, so neither may rest on the author's choice alone. Therefore:

- *How many* is counted over everybody who is a member by any event that had not seen the removal, and not over the few
  of the past that its author has picked. Who comes in afterwards does not undo it.
- *Whose* follows from how the voters came in. Let the root be the last through whom all those members came in (mostly
  the founder, who need not be one of them). It, and whoever it brought in itself, has a vote of its own. Each of the
  latter is a branch, with all who came in through it; of them, one has a vote of its own where somebody outside of the
  branch had acted, before the removal, having seen it come in. Any other vote is taken as one of whoever brought the
  voter in. So a member gets no second vote from somebody whom it brings in unseen, back-dated or not.

In a group to which its founder has brought everybody, all votes count from the beginning. Where all others came in
through one member, that one is the root, so those others are not powerless. A vote never takes anything from another
one, and where others vote as well, their votes are what shows that they had seen everybody.

What this does not do: a puppet whom everybody has seen for a while is a member like any other; the founder is taken at
its word for whom it brings in; and members of two branches can vouch for each other's puppets. Where the quorum is
greater than the group, the group has two members, or all others came in through one whom it had brought in itself,
whoever is to go can keep itself in by bringing somebody in at the same time: in doubt nobody is put out. In the last of
these cases the next removal counts, for whoever has brought somebody in has seen the others by then; but the newcomer
stays until it is voted out itself.
"""

from collections.abc import Callable, Collection


class Standing:
    """Those who could have a say in a removal, and through whom they came in."""

    def __init__(self, adders: dict[str, str], others: Collection[str]) -> None:
        """`adders`: by member, former ones too, who brought it in; in the order in which they came, beginning with the
        founder, whose adder is empty. `others`: those who are members, but for whoever is to go."""
        self.adders, self.others = adders, others
        weight = {did: int(did in others) for did in adders}
        for did in reversed(adders):
            if adders[did]:
                weight[adders[did]] += weight[did]
        root = [did for did in adders if weight[did] == len(others)][-1]
        self.root = root
        """The last through whom all of them came in; it need not be one of them."""
        self.branch: dict[str, str] = {}
        """Empty for the root and whoever did not come in through it."""
        for did, adder in adders.items():
            self.branch[did] = did if adder == root else self.branch.get(adder, "")

    def counted(self, voters: Collection[str], seen: Callable[[str], bool]) -> set[str]:
        """For whom these votes count: no more of them than votes. `seen` says whether somebody outside of the branch
        of this member had acted having seen it come in; it is asked only where that matters."""
        parties = set()
        for voter in voters:
            if voter in self.others:
                party = voter
                while self.branch[party] not in ("", party) and not seen(party):
                    party = self.adders[party]
                parties.add(party)
        return parties
