"""Whom a person has verified, by comparing words, and what became of the name since.

The mark sticks to a key and never to a name. A name that was verified raises an expectation, though: when somebody else
bears it, be it the same person with a new key or an impostor, the person must hear of it.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Literal

from zerochat.group.membership import View

Trust = Literal["unverified", "verified", "changed"]
"""`changed`: this is not who was verified under the name that it now bears."""


def trust_of(view: View, verified: Mapping[str, str], did: str) -> Trust:
    """How far to trust that the member with this group key is whom its name says.

    `verified` has the group keys that were verified, each with the name under which that was. Whoever still bears that
    name is `verified`. Whoever bears a name of somebody else who was verified (the one from then, or the one that this
    other member has given itself since) is `changed`, even if it was verified itself, under a name of its own: to
    verify it anew under the name that it bears now settles it. A new name that is nobody's changes nothing.

    Names are compared without case and without the several ways of writing one text in Unicode; names that only look
    alike are for whoever shows them. This is one person's own opinion, so two versions of Unicode may disagree on it.
    """
    label = _label(view, did)
    if did in verified and label in (None, _folded(verified[did])):
        return "verified"
    if label is not None and label in _names_of_others(view, verified, did):
        return "changed"
    return "verified" if did in verified else "unverified"


def _names_of_others(view: View, verified: Mapping[str, str], did: str) -> Iterator[str]:
    for other, label in verified.items():
        if other != did:
            yield _folded(label)
            yield _label(view, other) or _folded(label)


def _label(view: View, did: str) -> str | None:
    """The name that somebody bears now, or bore last, as it is compared; None: never a member."""
    member = view.members.get(did) or view.former.get(did)
    return None if member is None else _folded(member.label)


def _folded(label: str) -> str:
    return unicodedata.normalize("NFKC", label).casefold()
