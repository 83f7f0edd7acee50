"""What members' mediators say that they keep: more than that it was sent, less than that the member has it.

Whatever we post to a member's mediator may bring back its signed receipt (`didcomm/protocols/held.py`). It counts for
people alone: what we repeat, and what is called delivered, goes by what members themselves acknowledge, as a mediator
may lie and may lose what it has. A receipt that does not come is missed by nobody; the next repetition asks again.
"""

from msgspec.structs import replace

from zerochat.didcomm.did import resolve
from zerochat.didcomm.protocols import held
from zerochat.errors import Refused
from zerochat.group.state import Custody, Group, Posted
from zerochat.group.turn import Turn

POSTED_MAX = 256
"""Envelopes for which receipts are awaited, of all groups; the oldest go first."""


def note(turn: Turn, digest: bytes, posted: Posted) -> None:
    """An envelope with this digest goes to a mediator now."""
    posts = {**turn.agent.posted, digest: posted}
    while len(posts) > POSTED_MAX:
        del posts[next(iter(posts))]
    turn.change(posted=posts)


def hear(turn: Turn, receipt: bytes) -> None:
    """A mediator says that it keeps something. Raises RemoteError for what is no receipt of one that was asked."""
    found = held.read(receipt, lambda digest: resolve(_posted(turn, digest).mediator.partition("#")[0]))
    posted = turn.agent.posted[found.digest]
    turn.change(posted={digest: one for digest, one in turn.agent.posted.items() if digest != found.digest})
    group = turn.agent.groups.get(posted.group)
    if group is None or posted.member not in group.peers:
        return
    until = found.until * 1000
    lacks_from = _acknowledged(group, posted.member) + 1
    known = group.peers[posted.member].custody
    if known.upto < lacks_from or known.until <= turn.now:
        known = Custody(lacks_from - 1, until)
    if posted.first <= lacks_from and posted.upto >= known.upto:
        known = Custody(posted.upto, until)
    elif posted.first <= known.upto + 1 and posted.upto > known.upto:
        known = replace(known, upto=posted.upto, until=min(known.until, until))
    if known.upto >= lacks_from:
        turn.edit_peer(posted.group, posted.member, custody=known)


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


def _posted(turn: Turn, digest: bytes) -> Posted:
    posted = turn.agent.posted.get(digest)
    if posted is None:
        raise Refused(why="a receipt for something that was not posted, or long ago")
    return posted
