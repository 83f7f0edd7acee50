"""How much we listen to one member: whoever sends too much is not heard for a moment.

What is passed over is not lost: its author repeats whatever is not acknowledged, ever more slowly. So a member who
really has that much to say gets it across, at a pace at which everybody else is heard too.
"""

from msgspec.structs import replace

from zerochat.group.effects import Measure
from zerochat.group.turn import Turn

ENVELOPES_PER_S, ENVELOPES_MAX = 100, 1_000
"""What a member may send for long, and at once. An envelope holds all that its author has said in one turn, so people
and busy bots stay far below."""
BYTES_PER_S, BYTES_MAX = 2 << 20, 16 << 20


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
