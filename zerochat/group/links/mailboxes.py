"""Change of address: when a member is gone, our mediator mailbox of the group is replaced.

A former member knows the mailbox. It could fill it, and learn from mediator receipts whether we fetch our mail. So the
mailbox gets a successor, which only the present members are told:

    in use ── a member is gone ──> due ── DELAY_MS ──> registering ── the mediators have answered ──> in use
                                    └──── not before the end of the grace time of the last change

The mailbox before stays registered for a grace time, for members that were offline. What still arrives there later is
lost and retransmitted to the new address.

A change takes one registration for each mediator, and one message for each member. Members that go within DELAY_MS, or
within a grace time, share one change, so no member can cause more than one change in a grace time.
"""

from msgspec.structs import replace

from zerochat.group.links import mediator_mail, pairing
from zerochat.group.sync import acknowledgements
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

DELAY_MS = 10_000
"""Several members that are removed in a row share one change."""
GRACE_MS = 24 * 3_600_000
"""The longest time between two retransmissions to a member by mail (`acknowledgements.MAIL_RETRY_MS_MAX`)."""


def change_soon(tx: Transaction, name: str) -> None:
    """A member is gone: change our mailbox, unless no other member is left."""
    group = tx.group(name)
    if group.others and not group.links.mailbox.due:
        tx.update_links(name, mailbox=replace(group.links.mailbox, due=True))
        set_timer(tx, name)


def set_timer(tx: Transaction, name: str) -> None:
    """Set the timer for the next step of a change, also after a restart."""
    box = tx.group(name).links.mailbox
    if box.grace_until:
        tx.set_timer(TimerKind.MAILBOX, name, box.grace_until - tx.now)
    elif box.due:
        tx.set_timer(TimerKind.MAILBOX, name, DELAY_MS)


def run_timer(tx: Transaction, name: str) -> None:
    """End the grace time of the last change, and begin the one that is due."""
    box = tx.group(name).links.mailbox
    if box.grace_until <= tx.now:
        box = replace(box, grace_until=0)
    if box.due and not box.grace_until:
        box = replace(box, due=False, registering=True)
    tx.update_links(name, mailbox=box)
    finish_changes(tx)
    set_timer(tx, name)


def finish_changes(tx: Transaction) -> None:
    """Use the new mailboxes that our mediators have registered by now.

    Every mediator that can be reached must have answered, and one must have accepted: one that refuses does not keep us
    at the old address. Without a mediator there is nothing to wait for.
    """
    states = [one.mediation for one in tx.agent.connections.values() if one.mediation is not None]
    granted = [state for state in states if state.phase == "granted" and state.routing_did is not None]
    for name, group in tx.agent.groups.items():
        box = group.links.mailbox
        if not box.registering or group.state == "left":
            continue
        fresh = mediator_mail.mailbox(group.seed, box.number + 1)
        answered = all(fresh in state.registered | state.refused for state in granted if state.connected)
        if not granted or (answered and any(fresh in state.registered for state in granted)):
            until = tx.now + GRACE_MS
            tx.update_links(name, mailbox=replace(box, number=box.number + 1, registering=False, grace_until=until))
            set_timer(tx, name)
            announce(tx, name)


def announce(tx: Transaction, name: str) -> None:
    """Our routes have changed: inform every member."""
    for member in tx.group(name).links.peers:
        pairing.restart_request(tx, name, member)
    acknowledgements.announce_reach(tx, name)
