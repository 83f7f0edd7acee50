"""Mediator receipts: what members' mediators have signed that they store, until the member fetches it.

An envelope posted to a member's mailbox may bring back the mediator's receipt
(`didcomm/protocols/mediator_receipt.py`). Receipts are shown to the user only: retransmission and delivery go by the
members' own acknowledgements, as a mediator may lie or lose data. A missing receipt has no consequence: each
retransmission is another envelope with another receipt.
"""

from msgspec.structs import replace

from zerochat.didcomm.did import resolve
from zerochat.didcomm.protocols import mediator_receipt
from zerochat.group.state import AwaitedReceipt, Group, StoredAtMediator
from zerochat.group.transaction import Transaction

AWAITED_MAX, AWAITED_EACH_MAX = 256, 32
"""Envelopes whose receipts are awaited, of all members and of one; the oldest are dropped."""
AWAITED_MS = 120_000
"""How long a receipt is awaited; its connection is closed by then."""


def await_receipt(tx: Transaction, envelope: bytes, awaited: AwaitedReceipt) -> None:
    """This envelope goes to a member's mediator now."""
    one, of = mediator_receipt.envelope_digest(envelope), (awaited.group, awaited.member)
    since = tx.now - AWAITED_MS
    rest = {digest: other for digest, other in tx.agent.awaited_receipts.items() if since < other.at <= tx.now}
    theirs = [digest for digest, other in rest.items() if (other.group, other.member) == of]
    for digest in [*theirs[: len(theirs) - AWAITED_EACH_MAX + 1], *[*rest][: len(rest) - AWAITED_MAX + 1]]:
        rest.pop(digest, None)
    tx.update_agent(awaited_receipts={**rest, one: awaited})


def receive_receipt(tx: Transaction, receipt: bytes) -> None:
    """A mediator's receipt; unexpected ones are ignored. Raises RemoteError for an invalid or foreign one."""
    claim = mediator_receipt.read(receipt)
    awaited = tx.agent.awaited_receipts
    about = awaited.get(claim.receipt.digest)
    if about is None:
        return  # an envelope without our events, or one of long ago
    held = mediator_receipt.check(claim, resolve(about.mediator))
    tx.update_agent(awaited_receipts={digest: one for digest, one in awaited.items() if digest != held.digest})
    group = tx.agent.groups.get(about.group)
    if group is None or about.member not in group.links.peers or group.me != about.me:
        return
    has, ends = _acknowledged(group, about.member), held.until * 1000
    known = group.links.peers[about.member].shown.mediator_receipt
    if known.upto <= has or known.until <= tx.now:
        known = StoredAtMediator(has, ends)
    if about.first <= has + 1 and about.upto >= known.upto:
        known = StoredAtMediator(about.upto, ends)
    elif about.first <= known.upto + 1 and about.upto > known.upto:
        known = replace(known, upto=about.upto, until=min(known.until, ends))
    if known.upto > has:
        tx.update_shown(about.group, about.member, mediator_receipt=known)


def invalidate(tx: Transaction, name: str, member: str) -> None:
    """Receipts of this member's mediator no longer count: the member lost data, restarts its relationship with us, or
    has another mediator."""
    tx.update_shown(name, member, mediator_receipt=StoredAtMediator())
    stop_awaiting(tx, name, member)


def stop_awaiting(tx: Transaction, name: str, member: str = "") -> None:
    """Await no receipts for envelopes to this member of a group, or to any."""
    of = {
        digest for digest, one in tx.agent.awaited_receipts.items() if one.group == name and member in ("", one.member)
    }
    if of:
        tx.update_agent(
            awaited_receipts={digest: one for digest, one in tx.agent.awaited_receipts.items() if digest not in of}
        )


def kept_until(group: Group, member: str, position: int, now: int) -> int:
    """Until when (UTC ms) this member's mediator stores our event at this position, by its receipt; 0: unknown."""
    peer = group.links.peers.get(member)
    if peer is None or not _acknowledged(group, member) < position <= peer.shown.mediator_receipt.upto:
        return 0
    return peer.shown.mediator_receipt.until if peer.shown.mediator_receipt.until > now else 0


def _acknowledged(group: Group, member: str) -> int:
    """Up to which position this member has acknowledged our events."""
    peer = group.links.peers[member]
    return max(peer.start_seq, group.links.acked(member, group.me))
