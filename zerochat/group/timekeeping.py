"""What happens when the clock of this machine is set.

A clock that is set may have been wrong before, or be wrong from now on, and nothing here can tell which. Were events
dated by a clock that is a year ahead, nobody would accept them for a year (`clock.check`), nor anything that follows
them. So the time goes on as before for all that others see, until a member shows that it agrees with the new time
(`clock.hear`); whichever clock was right, what we say is accepted.

For the rest the new time holds at once: nothing waits for longer than it would have, had it begun to wait now.
"""

from dataclasses import replace

from zerochat.group import mail, sync
from zerochat.group.joining import seating
from zerochat.group.state import Peer
from zerochat.group.turn import Turn

NEGLIGIBLE_MS = 60_000
"""By so much a clock may be set without a word: it is far less than clocks may differ (`clock.AHEAD_MS_MAX`)."""


def started(turn: Turn) -> None:
    """The process has begun: its clock need not be what it was when the last one ended."""
    _wait_no_longer(turn)


def was_set(turn: Turn, by_ms: int) -> None:
    """The clock says so many ms more than it would have, had nobody set it."""
    leap = turn.agent.leap + by_ms
    turn.change(leap=leap if abs(leap) > NEGLIGIBLE_MS else 0)
    _wait_no_longer(turn)


def _wait_no_longer(turn: Turn) -> None:
    """No deadline is further away than it is when it is set, and nothing has happened in the future."""
    for name, group in turn.agent.groups.items():
        peers = {did: _peer(turn, name, did, peer) for did, peer in group.peers.items()}
        needs = {author: replace(need, at=min(need.at, turn.now)) for author, need in group.needs.items()}
        by = min(group.agree_by, turn.now + seating.AGREE_MS) if group.agree_by else 0
        turn.edit(name, peers=peers, needs=needs, agree_by=by)
    turn.change(faults={uri: one for uri, one in turn.agent.faults.items() if one.until <= turn.now})


def _peer(turn: Turn, name: str, member: str, peer: Peer) -> Peer:
    now, by_mail = turn.now, mail.by_mail(turn, name, member)
    past = {at: min(getattr(peer, at), now) for at in ("less_at", "renewed_at", "offered_at", "heard")}
    retry_at = min(peer.retry_at, now + (sync.MAIL_RETRY_MS_MAX if by_mail else sync.RETRY_MS))
    return replace(peer, retry_at=retry_at, asked_at=0, answered_at=0, **past)
