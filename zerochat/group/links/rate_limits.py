"""How much we listen to one member, and to those who hold one invitation: whoever sends too much is not heard for a
moment.

What is passed over is not lost: its author repeats whatever is not acknowledged, ever more slowly. So a member who
really has that much to say gets it across, at a pace at which everybody else is heard too. So do joiners, who ask
again.
"""

from msgspec.structs import replace

from zerochat.errors import Refused
from zerochat.group.effects import Measure
from zerochat.group.membership import MEMBERS_MAX
from zerochat.group.transaction import Turn

ENVELOPES_PER_S, ENVELOPES_MAX = 100, 1_000
"""What a member may send for long, and at once. An envelope holds all that its author has said in one turn, so people
and busy bots stay far below."""
BYTES_PER_S, BYTES_MAX = 2 << 20, 16 << 20
KNOCKS_EACH, KNOCKS_MORE = 4, 26
"""What may be said at once under an invitation, for each person whom it is for and besides: who they are, that they
have heard us and what they want are three envelopes, and on a busy machine some are said twice."""
KNOCKS_PER_S = 2
"""The same for long; for many people as many as half of them, as each repeats itself every six seconds."""
KNOCK_BYTES = 16 * 1024
"""An envelope that is longer counts once more for each time so much. A request takes five thousand bytes."""

STATEMENTS_MAX, STATEMENT_EVERY_MS = 20, 5 * 60_000
"""Requests and answers about streams that a member may cause at once, and one more after each such time: up to three
signed statements are kept for each. A pair of members takes two, and another one or two when one has lost a key."""


class TooOften(Refused):
    """Too much was said under one invitation, so this was not opened."""


def spend(turn: Turn, name: str, member: str, size: int) -> bool:
    """Count an envelope of this many bytes; False when its sender has used up what it may send now."""
    one = turn.group(name).peers[member].conduct
    passed = max(0, turn.now - one.at)
    envelopes = min(ENVELOPES_MAX, one.envelopes + passed * ENVELOPES_PER_S // 1000)
    room = min(BYTES_MAX, one.bytes + passed * BYTES_PER_S // 1000)
    heard = envelopes > 0 and room > 0
    if heard:
        envelopes, room = envelopes - 1, room - size
    else:
        turn.say(Measure("throttled"))
    if heard or passed >= 1000 // ENVELOPES_PER_S or turn.now < one.at:  # a clock may have been set back
        turn.edit_peer(name, member, conduct=replace(one, envelopes=envelopes, bytes=room, at=turn.now))
    return heard


def give_back(turn: Turn, name: str, member: str, size: int) -> None:
    """Do not count an envelope of this many bytes: we have asked for what was in it, and were not sent too much."""
    peer = turn.group(name).peers.get(member)
    if peer is not None:
        one = peer.conduct
        envelopes, room = min(ENVELOPES_MAX, one.envelopes + 1), min(BYTES_MAX, one.bytes + size)
        turn.edit_peer(name, member, conduct=replace(one, envelopes=envelopes, bytes=room))


def charge(turn: Turn, name: str, member: str, size: int) -> None:
    """Count so many bytes more, of what an envelope held when it was opened: a few may stand for many."""
    peer = turn.group(name).peers.get(member)
    if peer is not None:
        turn.edit_peer(name, member, conduct=replace(peer.conduct, bytes=peer.conduct.bytes - size))


def spend_statement(turn: Turn, name: str, member: str) -> bool:
    """Count a request or an answer about streams that a member has caused; False: it has to wait for the next one."""
    one = turn.group(name).peers[member].conduct
    passed = max(0, turn.now - one.statements_at)
    more = passed // STATEMENT_EVERY_MS
    left = min(STATEMENTS_MAX, one.statements + more)
    if left > 0 or turn.now < one.statements_at:  # a clock may have been set back
        on_time = left < STATEMENTS_MAX and turn.now >= one.statements_at
        at = one.statements_at + more * STATEMENT_EVERY_MS if on_time else turn.now
        spent = replace(one, statements=max(0, left - 1), statements_at=at)
        turn.edit_peer(name, member, conduct=spent)
    return left > 0


def spend_knock(turn: Turn, link: bytes, size: int) -> bool:
    """Count an envelope of this many bytes that has come under the invitation on this link; False when its holders have
    used up what they may say now. Nobody can tell them apart before an envelope is opened, which is most of the work:
    so they have one share in common. What is not heard changes nothing, and so costs no writing."""
    open_ = turn.agent.invitations[link]
    one, people = open_.conduct, open_.uses or MEMBERS_MAX
    passed = max(0, turn.now - one.at)
    per_s, most = KNOCKS_PER_S + people // 2, KNOCKS_MORE + KNOCKS_EACH * people
    more = passed * per_s // 1000
    envelopes = min(most, one.envelopes + more)
    heard = envelopes > 0
    if heard or turn.now < one.at:  # a clock may have been set back
        # What has passed of the time until the next one is not lost, however often something comes.
        at = one.at + more * 1000 // per_s if one.at <= turn.now and envelopes < most else turn.now
        envelopes = max(0, envelopes - 1 - size // KNOCK_BYTES) if heard else envelopes
        open_ = replace(open_, conduct=replace(one, envelopes=envelopes, at=at))
        turn.change(invitations={**turn.agent.invitations, link: open_})
    return heard
