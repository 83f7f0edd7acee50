"""A second opinion on what one member has handed over: another one is asked what it has in the last place of it.

Each event names the one before it by its hash, so one event stands for all that leads up to it: whoever has the same
one there has the same stretch. A second is no proof, for two members can lie together, or have it from the same hand,
and does not make anything the author's own word; a contradiction is told to a person, with the names of both. Nobody is
asked about what it has brought itself, or said.
"""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.group.event_log.event import Event
from zerochat.group.state import Chain, Group, Second, Spot
from zerochat.group.sync import fork_detection, pull_requests
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import WANT_MAX

SOON_MS = 3_000
"""How long after the last that was handed over a second is looked for: more of it may be on its way."""
LATER_MS = 60_000
"""Where nobody can be asked, as far as is known, who has that and is there."""
ASKED_MAX = 3
"""So many members are asked, until one has an answer. Who has a different one is not the last."""


def soon(turn: Turn, name: str) -> None:
    """Somebody has handed something over."""
    turn.timer("second", name, SOON_MS)


def seek(turn: Turn, name: str) -> None:
    """Ask somebody else about what has nobody but the one who brought it behind it."""
    pull_requests.give_up(turn, name)
    group = turn.group(name)
    seconds = {author: one for author in group.chains if (one := _renewed(group, author)) is not None}
    wants: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for author, one in seconds.items():
        whom = _whom(turn, group, author, one)
        if whom is not None and len(wants[whom]) < WANT_MAX:
            wants[whom].append((author, one.seq - 1, one.seq))
            seconds[author] = replace(one, asked=(*one.asked, whom))
    if seconds != group.seconds:
        turn.edit(name, seconds=seconds)
    for member, want in wants.items():
        pull_requests.ask_for(turn, name, member, want, len(want), purpose="second")
    if any(not one.member and len(one.asked) < ASKED_MAX for one in seconds.values()):
        turn.timer("second", name, pull_requests.PATIENCE_MS + 1 if wants else LATER_MS)


def hear(turn: Turn, name: str, member: str, events: Sequence[Event]) -> None:
    """What a member has in the places that we have asked it about."""
    group = turn.group(name)
    if member in group.quarantine:
        return
    seconds = dict(group.seconds)
    for event in events:
        one = _renewed(group, event.author)
        if one is None or one != seconds.get(event.author) or event.seq != one.seq:
            continue  # that has been settled, or there is more of it now
        if event.id == one.id:
            seconds[event.author] = replace(one, member=member)
        else:
            fork_detection.note(turn, name, event.author, event.seq, member, one.by)
    turn.edit(name, seconds=seconds)


def second_of(group: Group, author: str, seq: int) -> str:
    """The member that has the same event in this place of a chain as whoever has handed it over; empty: none has said
    so."""
    one = group.seconds.get(author)
    if one is None or _renewed(group, author) != one or one.member in group.quarantine or seq > one.seq:
        return ""
    return one.member


def _renewed(group: Group, author: str) -> Second | None:
    """Of whom we want to know about the newest of this chain that is vouched for, if there is any."""
    spot, by = _vouched(group.chain(author))
    if spot is None or not by:
        return None
    known = group.seconds.get(author)
    if known is not None and (known.seq, known.id, known.by) == (spot.seq, spot.tip, by):
        return known
    return Second(spot.seq, spot.tip, by)


def _vouched(chain: Chain) -> tuple[Spot | None, str]:
    """The newest event of it that somebody else has handed over, and who has."""
    if chain.own is not None and chain.seq > chain.own.seq:
        return Spot(chain.seq, chain.tip, chain.lamport), chain.by
    return (chain.past.top, chain.past.by) if chain.past is not None else (None, "")


def _whom(turn: Turn, group: Group, author: str, one: Second) -> str | None:
    if one.member or len(one.asked) >= ASKED_MAX:
        return None
    away = author not in group.view.members  # nobody says how far it has the chain of whoever is gone
    able = [
        member
        for member, peer in sorted(group.peers.items())
        if member not in (author, one.by, *one.asked, *group.quarantine)
        and (away or peer.acked.get(author, 0) >= one.seq)
        and pull_requests.free(turn, group.id, member)
    ]
    return able[turn.moment.random(1)[0] % len(able)] if able else None
