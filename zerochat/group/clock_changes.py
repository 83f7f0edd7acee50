"""What happens when the clock of this machine is set.

A clock that is set may have been wrong before, or be wrong from now on, and nothing here can tell which. Were events
dated by a clock that is a year ahead, nobody would accept them for a year (`clock.check`), nor anything that follows
them; and a clock that is set back would have everything wait that was to happen later. So the time goes on as before
(`Turn.now`), until a member shows that it agrees with the new time (`clock.hear`): whichever clock was right, what we
say is accepted.

Then the time does jump, as it may from one process to the next. So nothing waits for longer after that than it would
have, had it begun to wait then.
"""

from msgspec.structs import replace

from zerochat.group.files import download
from zerochat.group.joining import joiner, member_connections
from zerochat.group.links import mediator_mail
from zerochat.group.state import Errand, Holding, Join, OpenInvitation, Peer
from zerochat.group.sync import acknowledgements, pull_requests
from zerochat.group.transaction import Turn

NEGLIGIBLE_MS = 60_000
"""By so much a clock may be set without a word: it is far less than clocks may differ (`clock.AHEAD_MS_MAX`)."""


def started(turn: Turn, anew: bool) -> None:
    """A process has begun. Its clock need not be what it was when the last one ended; after the machine itself has
    started `anew`, what was known of that clock says nothing any more."""
    if anew:
        turn.change(leap=0)
    settle(turn)


def was_set(turn: Turn, by_ms: int) -> None:
    """The clock says so many ms more than it would have, had nobody set it. Where there is nobody who could agree or
    disagree with the new time, it is taken as it is: a machine without a clock of its own learns the time so. Whoever
    is leaving still tells the others what time it is, and is told."""
    leap = turn.agent.leap + by_ms
    alone = not any(group.others for group in turn.agent.groups.values() if group.state != "left")
    turn.change(leap=0 if alone or abs(leap) <= NEGLIGIBLE_MS else leap)
    settle(turn)


def settle(turn: Turn) -> None:
    """The time may have jumped: no deadline is further away than it is when it is set, and nothing has happened in the
    future."""
    for name, group in turn.agent.groups.items():
        peers = {did: _peer(turn, name, did, peer) for did, peer in group.peers.items()}
        needs = {author: replace(need, at=min(need.at, turn.now)) for author, need in group.needs.items()}
        unheard = {author: replace(one, at=min(one.at, turn.now)) for author, one in group.unheard.items()}
        unmet = {author: replace(one, at=min(one.at, turn.now)) for author, one in group.unmet.items()}
        by = min(group.agree_by, turn.now + member_connections.AGREE_MS) if group.agree_by else 0
        asked = {did: _errand(turn, name, did, one) for did, one in group.errands.items()}
        files = {key: _holding(turn, name, one) for key, one in group.files.items()}
        turn.edit(name, peers=peers, needs=needs, unheard=unheard, unmet=unmet, agree_by=by, errands=asked, files=files)
    turn.change(
        faults={uri: one for uri, one in turn.agent.faults.items() if one.until <= turn.now},
        invitations={link: _invitation(turn, one) for link, one in turn.agent.invitations.items()},
        joins={link: _join(turn, one) for link, one in turn.agent.joins.items()},
    )


def _peer(turn: Turn, name: str, member: str, peer: Peer) -> Peer:
    now, by_mail = turn.now, mediator_mail.by_mail(turn, name, member)
    past = {at: min(getattr(peer, at), now) for at in ("less_at", "answered_at", "renewed_at", "offered_at", "heard")}
    retry_at = min(peer.retry_at, now + (acknowledgements.MAIL_RETRY_MS_MAX if by_mail else acknowledgements.RETRY_MS))
    return replace(peer, retry_at=retry_at, asked_at=0, **past)


def _errand(turn: Turn, name: str, member: str, one: Errand) -> Errand:
    known = member in turn.group(name).peers
    patience = pull_requests.patience(turn, name, member) if known else pull_requests.PATIENCE_MAIL_MS
    return replace(one, until=min(one.until, turn.now + patience))


def _holding(turn: Turn, name: str, one: Holding) -> Holding:
    """Whoever does not bring a part is not waited for until the end of another clock's time."""
    if one.haul is None:
        return one
    now, haul = turn.now, one.haul
    # Nobody is asked where only our own disk is waited for.
    known = haul.member in turn.group(name).peers
    until = min(haul.until, download.due_at(turn, name, haul) if known else now + download.PATIENCE_MAIL_MS)
    return replace(
        one, haul=replace(haul, until=until, asked=min(haul.asked, now), since=min(haul.since, now), came=now)
    )


def _invitation(turn: Turn, one: OpenInvitation) -> OpenInvitation:
    return replace(one, claims={who: replace(claim, welcomed=0) for who, claim in one.claims.items()})


def _join(turn: Turn, one: Join) -> Join:
    """Whoever waits for a person's answer does so for as long as its invitation lasts."""
    return one if one.pending else replace(one, deadline=min(one.deadline, turn.now + joiner.JOIN_MS_MAX))
