"""Relaying: when we cannot reach a member, others that can announce our chain to it.

We name the unreachable members in a `sync` to two members that have all of our events. Each of them that is connected
to such a member sends it its own state; that member then requests our events like any gap (`history_requests.py`).
Nothing is sent unrequested, and an absent member costs a few messages per batch.
"""

from collections.abc import Sequence

from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.state import Group
from zerochat.group.sync import acknowledgements
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import UNREACHABLE_MAX

RELAY_MS = 1_000
"""The delay of the first round, in which a member may come back; each further one waits four times as long."""
ROUNDS_MAX = 3
"""Rounds per batch: a member that no other reaches is offline."""
RELAYS_PER_ROUND = 2
"""Members asked per round."""
REQUEST_COST_BYTES = 2 * 1024
"""The rate-limit cost for the requester of one state that we send for it."""


def schedule(tx: Transaction, name: str) -> None:
    """After a batch, or when a member becomes able to relay: check soon for unreachable members."""
    group = tx.group(name)
    if any(_is_unreachable(tx, group, member) for member in group.links.unlinked(tx.agent.links_up)):
        tx.set_timer(TimerKind.RELAY, f"{name} 1", RELAY_MS, if_unset=True)


def request_relay(tx: Transaction, name: str, round_: int) -> None:
    """Ask others to relay to unreachable members, and schedule the next round."""
    group = tx.group(name)
    unreached = [member for member in group.links.peers if _is_unreachable(tx, group, member)]
    if group.state != "active" or not unreached:
        return
    candidates = [member for member in group.links.peers if _can_relay(tx, group, member)]
    lot = int.from_bytes(tx.context.random(4), "big")
    start = lot % len(unreached)
    selected = (unreached[start:] + unreached[:start])[:UNREACHABLE_MAX]
    for step in range(min(RELAYS_PER_ROUND, len(candidates))):
        acknowledgements.send_sync(tx, name, candidates[(lot + step) % len(candidates)], selected)
    if round_ < ROUNDS_MAX:
        tx.set_timer(TimerKind.RELAY, f"{name} {round_ + 1}", RELAY_MS << 2 * round_, if_unset=True)


def _is_unreachable(tx: Transaction, group: Group, member: str) -> bool:
    return (
        member in group.view.members
        and member not in group.trust.quarantine
        and acknowledgements.is_behind(group, member)
        and not mediator_mail.reachable(tx, group.id, member)
    )


def _can_relay(tx: Transaction, group: Group, member: str) -> bool:
    return (
        member in group.view.members
        and mediator_mail.is_connected(tx, group.id, member)
        and not acknowledgements.is_behind(group, member)
    )


def receive_request(tx: Transaction, name: str, sender: str, view: str, unreached: Sequence[int]) -> None:
    """A member cannot reach some others (their places in its view): send our state to those that we are connected to
    and that have less of its chain than we. Members do not report unconfirmed events, so one announcement may be
    redundant."""
    group = tx.group(name)
    if view != group.view.checksum:
        return
    upto = group.chain(sender).complete_seq
    for place in sorted(set(unreached)):
        member = group.view.order[place] if place < len(group.view.order) else sender
        if member == sender or member not in group.links.peers:
            continue
        if mediator_mail.is_connected(tx, name, member) and upto > group.links.acked(member, sender):
            rate_limits.charge_bytes(tx, name, sender, REQUEST_COST_BYTES)
            acknowledgements.request_missing(tx, name, member)
