"""Verified members: which keys the user has verified by safety words, and later changes of their names.

A verification belongs to a key, not to a name. But a verified name raises an expectation: if another key uses it, a new
key of the same person or an impostor, the user must be warned.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Literal

from zerochat.group.membership import View

Trust = Literal["unverified", "verified", "changed"]
"""`changed`: this is not the member that was verified under the name that it uses now."""


def trust_of(view: View, verified: Mapping[str, str], did: str) -> Trust:
    """The trust in the member with this group key.

    `verified` maps the verified group keys to their names at the time. A verified member that still uses that name is
    `verified`. A member that uses a name of another verified member (the one at the time, or that member's later one)
    is `changed`, even if it was verified itself under another name: verifying it under its present name settles that. A
    new name that belongs to no other changes nothing.

    Names are compared without case and Unicode compatibility variants; look-alikes are up to the client. The result is
    local to one user, so different Unicode versions may disagree.
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
    """The present or last name of a member in comparable form; None: never a member."""
    member = view.members.get(did) or view.former.get(did)
    return None if member is None else _folded(member.label)


def _folded(label: str) -> str:
    return unicodedata.normalize("NFKC", label).casefold()
