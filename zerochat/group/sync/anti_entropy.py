"""Anti-entropy: exchange of differing views, state for random members, and cover traffic."""

import math
from collections.abc import Iterable, Sequence

from zerochat.group.backoff import Backoff
from zerochat.group.event_log.event import ADD
from zerochat.group.links import mediator_mail, neighbours, outbox, rate_limits
from zerochat.group.membership import add_of, attestation, missing
from zerochat.group.state import Group
from zerochat.group.sync import acknowledgements
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.overlay.forwarding import sample

VIEW_PEERS_MAX = 4
"""The members asked at once among those that reported another view than ours."""
ANSWER_EVENTS_MAX = 8 * acknowledgements.RETRANSMIT_EVENTS_MAX
"""Membership events in one answer: as many as a branch may have, since posts that name them wait for them."""
SCAN_WORK_US, EVENT_WORK_US = 2, 50
"""The work of finding what a member lacks, for each event that we know, and of sending one; us."""
ANSWER_BACKOFF, WHOLE_ROUNDS = Backoff(acknowledgements.SYNC_INTERVAL_MS, 64_000), 6
"""On the ring: the interval of answers to a member whose heads stay unknown. From the answer after so many on, what it
has said before does not count any more: its profile may be an older copy."""
VIEW_RETRIES, VIEW_BACKOFF = 8, Backoff(4_000, 64_000)
"""The interval of comparisons while views differ. It doubles after this many, since what a member lacks then may be
what it refuses."""
SOON_MS = 2_000
"""The delay, times 0.5 to 1.5, of an early round."""
COVER_MEAN_MS = 20_000
"""The mean interval of cover traffic."""
INTERVAL_MS = 60_000
"""The interval, times 0.5 to 1.5, at which our state goes to one random member although nothing seems to be missing."""


REPORT_MS = 2_000
"""The delay, times 0.5 to 1.5, of a report to neighbours after something new."""
REPORTED_MAX = 2
"""The neighbours that it goes to."""
ANSWER_INTERVAL_MS = 10_000


def reconcile_views(tx: Transaction, name: str, member: str, their_heads: Sequence[str]) -> None:
    """A member with another view reports its heads: send what it lacks, and request what we lack."""
    group = tx.group(name)
    control, peer = group.control, group.links.peers[member]
    unknown_heads = any(head not in control for head in their_heads)
    if neighbours.is_ring(group):
        _reconcile_on_ring(tx, name, member, their_heads, unknown_heads=unknown_heads)
        return
    if tx.now >= peer.anti_entropy.view_answered_at + acknowledgements.SYNC_INTERVAL_MS:
        tx.update_anti_entropy(name, member, view_answered_at=tx.now)
        first = unknown_heads and not peer.anti_entropy.view_answered_at
        with tx.attempt():
            _send_missing(tx, name, member, [*their_heads, *_join_events(group, member)] if first else their_heads)
    if unknown_heads:
        acknowledgements.request_missing(tx, name, member)


def _reconcile_on_ring(
    tx: Transaction, name: str, member: str, their_heads: Sequence[str], *, unknown_heads: bool
) -> None:
    """The same on the ring, where a neighbour with a new event has all that it had before it: one unknown head must not
    cause the whole membership log to be sent, by each neighbour. With exponential backoff while heads stay unknown."""
    peer = tx.peer(name, member)
    known = peer.anti_entropy
    if not unknown_heads:
        record_heads(tx, name, member, their_heads)
    if tx.now < known.view_answered_at + ANSWER_BACKOFF.delay_ms(known.unknown_rounds if unknown_heads else 0):
        return
    tx.update_anti_entropy(name, member, view_answered_at=tx.now)
    before = list[str]()
    if unknown_heads:
        tx.update_anti_entropy(name, member, unknown_rounds=known.unknown_rounds + 1)
        before += _join_events(tx.group(name), member)
        if known.unknown_rounds < WHOLE_ROUNDS:
            before += known.heads
    with tx.attempt():
        _send_missing(tx, name, member, [*their_heads, *before])
    if unknown_heads:
        acknowledgements.request_missing(tx, name, member)


def record_heads(tx: Transaction, name: str, member: str, their_heads: Sequence[str]) -> None:
    """On the ring, a member reports these heads: if we know all of them, remember what it has."""
    group = tx.group(name)
    known = group.links.peers[member].anti_entropy
    if not neighbours.is_ring(group) or any(head not in group.control for head in their_heads):
        return
    if known.unknown_rounds or known.heads != tuple(their_heads):
        tx.update_anti_entropy(name, member, heads=tuple(their_heads), unknown_rounds=0)


def _send_missing(tx: Transaction, name: str, member: str, heads: Sequence[str]) -> None:
    """Send membership events that are not in the past of these, at the member's expense. Raises TooMuchWork."""
    group = tx.group(name)
    rate_limits.charge_work(tx, name, member, SCAN_WORK_US * len(group.control))
    withheld = attestation.withheld_events(group)
    events = [event for event in missing(group.control, heads) if event.id not in withheld]
    if len(events) > ANSWER_EVENTS_MAX:
        # It may have much of this: it does not name all its heads, none of members in quarantine, and we may not know
        # those that it names. So what it really lacks may be anywhere: every other time begin at a random place, so
        # that it is not starved.
        start = int.from_bytes(tx.context.random(2), "big") % (2 * len(events))
        start = start if start < len(events) else 0
        events = (events[start:] + events[:start])[:ANSWER_EVENTS_MAX]
    rate_limits.charge_work(tx, name, member, EVENT_WORK_US * len(events))
    outbox.send_events(tx, name, member, events)


def _join_events(group: Group, member: str) -> list[str]:
    """The events that admitted a member, or us. A new member has received the past of the one, and knows the other or
    has made it itself. So the first answer to a member with unknown heads leaves out what it began with; the next
    answer leaves out nothing, since two events may have admitted one member."""
    members = member, group.me
    return [name for name, event in group.control.items() if event.type == ADD and add_of(event).member in members]


def compare_views(tx: Transaction, name: str) -> None:
    """Send our state to some members whose view may differ: a few of those that reported another one since ours
    changed, or one that has reported none.

    At random and not all at once: after a change no member knows which others have it, and all-to-all messages would
    cost the square of the members. Mostly its author has every report soon, and every member the author's.
    """
    group = tx.group(name)
    checksum = group.view.checksum
    uncertain = [
        m
        for m, peer in group.links.peers.items()
        if peer.anti_entropy.view != checksum and mediator_mail.reachable(tx, name, m)
    ]
    differing = [member for member in uncertain if group.links.peers[member].anti_entropy.view]
    lot = int.from_bytes(tx.context.random(4), "big")
    targets = differing or uncertain
    # More in a small group: it costs little, and few others could bring it to the rest.
    count = VIEW_PEERS_MAX if differing else max(1, 2 * VIEW_PEERS_MAX // max(1, len(uncertain)))
    for offset in range(min(count, len(targets))):
        acknowledgements.send_sync(tx, name, targets[(lot + offset) % len(targets)])
    if uncertain:
        tries = group.sync.view_comparisons
        tx.update_sync(name, view_comparisons=tries + 1)
        tx.set_timer(TimerKind.VIEWS, name, VIEW_BACKOFF.delay_ms(max(0, tries - VIEW_RETRIES)))


def run_round(tx: Transaction, name: str) -> None:
    """Send our state to one random member: it reveals a loss at the very end of a conversation."""
    group = tx.group(name)
    reachable = [member for member in group.links.peers if mediator_mail.seek(tx, name, member)]
    lot = int.from_bytes(tx.context.random(4), "big")
    if reachable:
        acknowledgements.send_sync(tx, name, reachable[lot % len(reachable)])
    tx.set_timer(TimerKind.ANTI_ENTROPY, name, INTERVAL_MS // 2 + lot % INTERVAL_MS)


def run_soon(tx: Transaction, name: str) -> None:
    """The same in a moment, before its time."""
    tx.set_timer(
        TimerKind.ANTI_ENTROPY,
        name,
        SOON_MS // 2 + int.from_bytes(tx.context.random(2), "big") % SOON_MS,
    )


def report_soon(tx: Transaction, name: str) -> None:
    """Something new has come: tell some neighbours soon how far we have the chains, so that they request what they
    lack. On the ring acknowledgements go to an author's own neighbours alone."""
    if neighbours.is_forwarding(tx.group(name)):
        lot = int.from_bytes(tx.context.random(2), "big")
        tx.set_timer(TimerKind.REPORT, name, REPORT_MS // 2 + lot % REPORT_MS, if_unset=True)


def report(tx: Transaction, name: str) -> None:
    """Send our state to some random neighbours."""
    group = tx.group(name)
    reachable = [member for member in group.links.peers if mediator_mail.reachable(tx, name, member)]
    for member in sample(reachable, REPORTED_MAX, tx.context.random):
        acknowledgements.send_sync(tx, name, member, whole=False)


def answer_report(tx: Transaction, name: str, member: str, positions: Iterable[tuple[str, int]]) -> None:
    """A neighbour on the ring reports how far it has these authors' chains: where we have more, send it our state, so
    that it requests that; at most once per `ANSWER_INTERVAL_MS`, since it may not want it."""
    group = tx.group(name)
    if not neighbours.is_forwarding(group):
        return
    peer = group.links.peers[member]
    if tx.now < peer.anti_entropy.sync_sent_at + ANSWER_INTERVAL_MS:
        return
    others = {did: upto for did, upto in positions if did not in (member, group.me)}
    if any(upto < group.chain(did).complete_seq for did, upto in others.items()):
        acknowledgements.request_missing(tx, name, member)


def send_cover_traffic(tx: Transaction) -> None:
    """Send every member an empty status, in a frame as long as that of a short post.

    An observer of the network still sees who is connected with whom, but not for certain who is silent.
    """
    for name, group in tx.agent.groups.items():
        if group.state == "active":
            acknowledgements.send_status(tx, name, {})
    tx.set_timer(TimerKind.COVER_TRAFFIC, "", cover_delay(tx))


def cover_delay(tx: Transaction) -> int:
    """The time until the next cover traffic, in ms: exponentially distributed, so the last one does not predict it."""
    lot = (int.from_bytes(tx.context.random(4), "big") + 1) / 2**32
    return int(-math.log(lot) * COVER_MEAN_MS)
