"""What members' mediators say that they keep: more than that it was sent, less than that the member has it.

Whatever we post to a member's mailbox may bring back the mediator's held receipt (`didcomm/protocols/mediator_receipt.py`). It
counts for people alone: what we repeat, and what is called delivered, goes by what members themselves acknowledge, as a
mediator may lie and may lose what it has. A receipt that does not come is missed by nobody: each repetition is another
envelope, for which another one is given.
"""

from msgspec.structs import replace

from zerochat.didcomm.did import resolve
from zerochat.didcomm.protocols import mediator_receipt
from zerochat.group.state import Awaited, Custody, Group
from zerochat.group.transaction import Turn

AWAITED_MAX, AWAITED_EACH_MAX = 256, 32
"""Envelopes for which receipts are awaited, of all members and of one; the oldest go first."""
AWAITED_MS = 120_000
"""So long a receipt is awaited; the connection on which it would come is closed by then."""


def expect(turn: Turn, envelope: bytes, awaited: Awaited) -> None:
    """This envelope goes to a member's mediator now."""
    one, of = mediator_receipt.digest_of(envelope), (awaited.group, awaited.member)
    since = turn.now - AWAITED_MS
    rest = {digest: other for digest, other in turn.agent.awaited.items() if since < other.at <= turn.now}
    theirs = [digest for digest, other in rest.items() if (other.group, other.member) == of]
    for digest in [*theirs[: len(theirs) - AWAITED_EACH_MAX + 1], *[*rest][: len(rest) - AWAITED_MAX + 1]]:
        rest.pop(digest, None)
    turn.change(awaited={**rest, one: awaited})


def hear(turn: Turn, receipt: bytes) -> None:
    """A mediator says that it keeps something; what was not asked for is passed over. Raises RemoteError for what is no
    receipt, or one of somebody else's."""
    claim = mediator_receipt.read(receipt)
    awaited = turn.agent.awaited
    about = awaited.get(claim.held.digest)
    if about is None:
        return  # of something in which nothing of ours was said, or of long ago
    said = mediator_receipt.check(claim, resolve(about.mediator))
    turn.change(awaited={digest: one for digest, one in awaited.items() if digest != said.digest})
    group = turn.agent.groups.get(about.group)
    if group is None or about.member not in group.peers or group.me != about.me:
        return
    has, ends = _acknowledged(group, about.member), said.until * 1000
    known = group.peers[about.member].custody
    if known.upto <= has or known.until <= turn.now:
        known = Custody(has, ends)
    if about.first <= has + 1 and about.upto >= known.upto:
        known = Custody(about.upto, ends)
    elif about.first <= known.upto + 1 and about.upto > known.upto:
        known = replace(known, upto=about.upto, until=min(known.until, ends))
    if known.upto > has:
        turn.edit_peer(about.group, about.member, custody=known)


def lose(turn: Turn, name: str, member: str) -> None:
    """What this member's mediator was said to keep is nothing to go by any more: the member has lost something that it
    had, begins anew with us, or has another mediator."""
    turn.edit_peer(name, member, custody=Custody())
    forget(turn, name, member)


def forget(turn: Turn, name: str, member: str = "") -> None:
    """No receipts are awaited any more for what went to this member of a group, or to any."""
    of = {digest for digest, one in turn.agent.awaited.items() if one.group == name and member in ("", one.member)}
    if of:
        turn.change(awaited={digest: one for digest, one in turn.agent.awaited.items() if digest not in of})


def until(group: Group, member: str, position: int, now: int) -> int:
    """Until when (UTC ms) this member's mediator keeps the event of ours in this position, by its own word; 0: nothing
    is known of that."""
    peer = group.peers.get(member)
    if peer is None or not _acknowledged(group, member) < position <= peer.custody.upto:
        return 0
    return peer.custody.until if peer.custody.until > now else 0


def _acknowledged(group: Group, member: str) -> int:
    """Up to where this member has what was said to it, by its own word."""
    peer = group.peers[member]
    return max(peer.base, peer.acked.get(group.me, 0))
