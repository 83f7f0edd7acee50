"""Verified members: which keys the user has verified by safety words, and later changes of their names.

A verification belongs to a key, not to a name. But a verified name raises an expectation: if another key uses it, a new
key of the same person or an impostor, the user must be warned.
"""

import unicodedata
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

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
    if label is not None and _bearers(view, verified).get(label, frozenset()) - {did}:
        return "changed"
    return "verified" if did in verified else "unverified"


class _Bearers(Struct):
    """The verified members by the names that they had at the time, or have now, in comparable form."""

    verified: Mapping[str, str]
    by_name: dict[str, frozenset[str]] = field(default_factory=dict)


def _bearers(view: View, verified: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    """Kept with the view: the trust in each author of a page of events is asked for."""
    known: _Bearers | None = view.__dict__.get("bearers")
    if known is None or known.verified is not verified:
        known = view.__dict__["bearers"] = _Bearers(verified)
        for did, label in verified.items():
            for name in {_folded(label), _label(view, did) or _folded(label)}:
                known.by_name[name] = known.by_name.get(name, frozenset()) | {did}
    return known.by_name


def _label(view: View, did: str) -> str | None:
    """The present or last name of a member in comparable form; None: never a member."""
    member = view.members.get(did) or view.former.get(did)
    return None if member is None else _folded(member.label)


def _folded(label: str) -> str:
    return unicodedata.normalize("NFKC", label).casefold()
