"""Having others hand on what we cannot bring to a member ourselves, because the two of us are not connected.

We tell two members who have all of ours whom we cannot reach, with a `sync`. Whoever is told so, and is connected with
that one, tells it in turn what of our chain there is, and it asks for that as for anything that is missing
(`sync/history_requests.py`). Nothing is handed to anybody who has not asked, and whoever is away costs a few messages for each
time that something is said.
"""

from collections.abc import Sequence

from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.state import Group
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import UNREACHED_MAX

RELAY_MS = 1_000
"""Who cannot be reached may be back so soon; then others are asked, and again after four times as long."""
ROUNDS_MAX = 3
"""So often, each time that something is said: whoever nobody reaches is not there."""
HELPERS = 2
"""Members who are asked in each round."""
ASK_BYTES = 2 * 1024
"""What it counts for in what a member may send that we tell another one something because of it."""


def soon(turn: Turn, name: str) -> None:
    """Something was said, or a member can help now that could not: see in a moment whether somebody cannot be told."""
    group = turn.group(name)
    if any(_is_unreached(turn, group, member) for member in group.peers):
        turn.timer("relay", f"{name} 1", RELAY_MS, keep=True)


def ask(turn: Turn, name: str, round_: int) -> None:
    """Ask others to hand it on, if there still is somebody whom we cannot reach, and see to the next round."""
    group = turn.group(name)
    unreached = [member for member in group.peers if _is_unreached(turn, group, member)]
    if group.state != "active" or not unreached:
        return
    able = [member for member in group.peers if _can_help(turn, group, member)]
    dice = int.from_bytes(turn.moment.random(4), "big")
    begin = dice % len(unreached)
    some = (unreached[begin:] + unreached[:begin])[:UNREACHED_MAX]
    for step in range(min(HELPERS, len(able))):
        acknowledgements.send_sync(turn, name, able[(dice + step) % len(able)], some)
    if round_ < ROUNDS_MAX:
        turn.timer("relay", f"{name} {round_ + 1}", RELAY_MS << 2 * round_, keep=True)


def _is_unreached(turn: Turn, group: Group, member: str) -> bool:
    return (
        member in group.view.members
        and member not in group.quarantine
        and acknowledgements.lacks(group, member)
        and not mediator_mail.reachable(turn, group.id, member)
    )


def _can_help(turn: Turn, group: Group, member: str) -> bool:
    return (
        member in group.view.members
        and mediator_mail.linked(turn, group.id, member)
        and not acknowledgements.lacks(group, member)
    )


def hear(turn: Turn, name: str, sender: str, view: str, unreached: Sequence[int]) -> None:
    """A member cannot reach some others (their places in the view that it has told): tell those with whom we are
    connected how far we have its chain, where that is further than they have it. What they have of it by others' hands
    they do not tell; so each may be told once more than it needs to be."""
    group = turn.group(name)
    if view != group.view.checksum:
        return
    places, upto = set(unreached), group.chain(sender).sure
    for place, member in enumerate(group.view.members):
        known = group.peers.get(member) if place in places and member != sender else None
        if known is not None and mediator_mail.linked(turn, name, member) and upto > known.acked.get(sender, 0):
            rate_limits.charge(turn, name, sender, ASK_BYTES)
            acknowledgements.ask(turn, name, member)
