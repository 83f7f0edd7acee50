"""DID rotation towards one peer, on request and at intervals.

A rotation replaces the key pair that envelopes to us are encrypted for. Its secret is erased once the peer has used the
new DID: envelopes to us that were recorded before cannot be opened with keys that are stolen later. This is forward
secrecy by intervals: within one, all envelopes to us depend on one key, and the peer has to rotate for those to it.
"""

from typing import ClassVar, Final

from msgspec.structs import replace

from zerochat.errors import LocalError, Retry
from zerochat.group.external import connections, sending, standard_protocols
from zerochat.group.links import pairing
from zerochat.group.lookup import find_peer
from zerochat.group.state import Agent, PeerRef
from zerochat.group.state.external import ConnectionState, RotationSchedule
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

EVERY_MS_MIN: Final = 3_600_000
EVERY_MS_MAX: Final = 366 * 24 * 3_600_000
RETRY_MS: Final = 600_000
"""The pause before an overdue rotation is tried again, because the last one is pending or the peer cannot be told."""


class NotReady(LocalError):
    """There is no relationship with {peer} yet, or it has ended. Try again when both are connected."""

    retry: ClassVar[Retry] = "later"


class RotationUnderWay(LocalError):
    """{peer} has not received your previous DID yet. You can rotate again as soon as it has been reachable."""

    retry: ClassVar[Retry] = "later"


def handle_command(tx: Transaction, reference: str, every_ms: int | None) -> PeerRef:
    """Rotate our DID towards a peer; `every_ms` as in RotateDid. Raises NotReady, RotationUnderWay, NotConnected, or as
    `find_peer` does."""
    peer = find_peer(tx.agent, reference)
    if every_ms != 0:
        _rotate(tx, peer, reference)
    if every_ms is not None:
        others = tuple(one for one in tx.agent.rotations if one.peer != peer)
        ours = (RotationSchedule(peer, every_ms, tx.now),) if every_ms else ()
        tx.update_agent(rotations=others + ours)
        schedule(tx)
    return peer


def interval_ms(agent: Agent, peer: PeerRef) -> int:
    """The interval at which our DID towards a peer is replaced; 0: on request only."""
    return next((one.every_ms for one in agent.rotations if one.peer == peer), 0)


# --- rounds -----------------------------------------------------------------------------------------------------------


def schedule(tx: Transaction) -> None:
    """Wait for the next rotation that is due."""
    if tx.agent.rotations:
        left = min(one.since + one.every_ms - tx.now for one in tx.agent.rotations)
        tx.set_timer(TimerKind.ROTATION, "", min(max(left, RETRY_MS), EVERY_MS_MIN))


def run_round(tx: Transaction) -> None:
    """Make all rotations that are due and possible, and forget the schedules of peers that are gone."""
    kept = []
    for one in tx.agent.rotations:
        if not _is_known(tx.agent, one.peer):
            continue
        if tx.now - one.since >= one.every_ms and _try(tx, one.peer):
            one = replace(one, since=tx.now)
        kept.append(one)
    tx.update_agent(rotations=tuple(kept))
    schedule(tx)


def _is_known(agent: Agent, peer: PeerRef) -> bool:
    if peer.connection:
        one = agent.connections.get(peer.connection)
        return one is not None and one.state is not ConnectionState.ENDED
    group = agent.groups.get(peer.group)
    return group is not None and group.state != "left" and peer.member in group.view.members


def _try(tx: Transaction, peer: PeerRef) -> bool:
    """Whether the rotation was made. A connection that has not confirmed the last one is told again by a ping."""
    try:
        _rotate(tx, peer, "")
    except RotationUnderWay:
        if peer.connection:
            _announce(tx, peer)
        return False
    except (NotReady, standard_protocols.NotConnected):
        return False
    return True


def _rotate(tx: Transaction, peer: PeerRef, reference: str) -> None:
    """Rotate our DID towards a peer, which learns of it at once or with our next message."""
    if peer.connection:
        relationship = tx.agent.connections[peer.connection].relationship
    else:
        found = tx.group(peer.group).links.relationships.get(peer.member)
        if found is None:
            raise NotReady(peer=reference)
        relationship = found
    if not relationship.established:
        raise NotReady(peer=reference)
    # A peer that has not confirmed our first DID could not verify the second one.
    if relationship.rotation is not None:
        raise RotationUnderWay(peer=reference)
    if peer.member and not relationship.acknowledged:
        raise NotReady(peer=reference)
    if peer.member:
        pairing.rotate_own_did(tx, peer.group, peer.member)
        return
    if not connections.can_rotate(tx, peer.connection):
        raise standard_protocols.NotConnected(peer=reference)
    connections.rotate_own_did(tx, peer.connection)
    _announce(tx, peer)


def _announce(tx: Transaction, peer: PeerRef) -> None:
    """Tell a connection of our new DID at once. V1 has announced it already, by a message that is sent until accepted
    (`external/outbox.py`)."""
    if tx.agent.connections[peer.connection].envelope != "didcomm/v1" and sending.reachable(tx, peer.connection):
        standard_protocols.send_ping(tx, peer)
