"""The upgrade of a group's keys, and their renewal, as sentences."""

from collections.abc import Mapping
from typing import Any, Final

from zerochat.presentation.group_kinds import SIGNED
from zerochat.presentation.group_rules import number
from zerochat.rpc import GroupInfo, UpgradeInfo
from zerochat.terminal_text import printable_line

PAIRWISE: Final = ("pairwise-multi", "pairwise-single")
KEYS_CELLS_MAX: Final = 20
LASTS: Final = "It cannot be undone."


def question(info: GroupInfo, upgrade: UpgradeInfo, name: str) -> str:
    """What one agrees to. `name`: of the group, sanitised."""
    costs = (
        f"Messages can no longer be denied. {SIGNED}"
        if info.keys in PAIRWISE
        else "Acknowledgements are no longer signed, so that nothing proves who has received a message."
    )
    gains = "Every message gets a key of its own, and the keys heal after a theft."
    return f"Upgrade the keys of {name} from {info.keys} to {upgrade.keys}? {gains} {costs} {LASTS}"


def agreement(upgrade: UpgradeInfo) -> str:
    """How many members agree, without a full stop."""
    left = max(upgrade.needed - upgrade.votes, 0)
    yours = ", with you" if upgrade.voted else ""
    members = "member" if upgrade.needed == 1 else "members"
    return f"{upgrade.votes} of {upgrade.needed} {members} agree{yours}; {number(left)} more needed"


def state(info: GroupInfo) -> str:
    """The upgrade that is under way or was made, without a full stop; empty: neither."""
    if info.upgraded_from:
        return f"upgraded from {info.upgraded_from}, for good"
    if info.upgrade is not None and info.upgrade.votes:
        return f"to {info.upgrade.keys}: {agreement(info.upgrade)}"
    return ""


def result(info: GroupInfo, name: str) -> str:
    """What has become of one's agreement. `name`: of the group, sanitised."""
    if info.upgrade is None:
        return f"The upgrade of {name} is done: its keys are {info.keys}, for good."
    return f"{name}: {agreement(info.upgrade)}."


def renewed(name: str) -> str:
    """What `rekey` has done. `name`: of the group, sanitised."""
    return f"New keys for {name}: your messages have them from now on, the others' once they have received them."


def event_text(body: Mapping[str, Any]) -> str:
    """What the author of a `keys_upgraded` with this body has done; any part of it may be missing."""
    keys, final = printable_line(str(body.get("keys", "")), KEYS_CELLS_MAX), bool(body.get("final"))
    return f"upgraded the keys to {keys}, for good" if final else f"agrees to upgrade the keys to {keys}"
