"""Exported secrets: what the members that an update was for share, for uses beside messages (RFC 9420, section 8.5).

An exported secret is *valid* while each member that knows it is one still. Members that need a common one *prefer* the
one that most members know, in classes of about an eighth, and in a class the one with the greatest id. So all come to
prefer the same without a message, and few joins change it. Another one may cause messages of all members, so only those
of updates that are adopted count. A member that has none, or another, does without: nothing may depend on it but cost.
"""

from collections.abc import Mapping
from typing import Final

from zerochat.group.key_agreement.key_event import KeyEvent
from zerochat.group.key_agreement.key_schedule import exported
from zerochat.group.key_agreement.state import ExportedSecret, Membership

EXPORTED_MAX: Final = 8
"""Exported secrets that are kept: the preferred ones."""


def with_exported(
    known: Mapping[str, ExportedSecret], event: KeyEvent, seed: bytes, membership: Membership, now: int
) -> dict[str, ExportedSecret]:
    """The exported secrets with that of an update, in the order of preference; without those that are invalid."""
    found = {**known, event.id: ExportedSecret(exported(seed), event.control, now)}
    return {name: found[name] for name in _preferred(found, membership)[:EXPORTED_MAX]}


def preferred(known: Mapping[str, ExportedSecret], membership: Membership) -> tuple[str, ...]:
    """The updates with a valid secret, the preferred one first."""
    return tuple(_preferred(known, membership))


def secret_of(known: Mapping[str, ExportedSecret], membership: Membership, update: str) -> bytes:
    """The secret of an update; empty: it is unknown here, or invalid."""
    one = known.get(update)
    return one.secret if one is not None and membership.at(one.control) <= membership.members else b""


def unexpired(known: Mapping[str, ExportedSecret], now: int, lifetime_ms: int) -> dict[str, ExportedSecret]:
    """The exported secrets whose time is not over, also after the clock was set back."""
    return {name: one for name, one in known.items() if abs(now - one.at) < lifetime_ms}


def _preferred(known: Mapping[str, ExportedSecret], membership: Membership) -> list[str]:
    audiences = {name: membership.at(one.control) for name, one in known.items()}
    valid = [name for name, audience in audiences.items() if audience <= membership.members]
    return sorted(valid, key=lambda name: (*_class(len(audiences[name])), name), reverse=True)


def _class(size: int) -> tuple[int, int]:
    """The class of a number of members: its first three bits, and how many follow."""
    more = max(0, size.bit_length() - 3)
    return more, size >> more
