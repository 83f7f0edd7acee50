"""Typing notices and read receipts: told in passing, over live links, and only where a person wants it.

Neither is an event. What does not arrive is not said again, nothing of it goes over a mediator, and whoever comes later
never hears of it. That somebody is writing is passed on to the faces and kept nowhere; of what a member has read, one
number is kept, which never falls.
"""

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.effects import Dispatch, Notify
from zerochat.group.links.relationship import pack
from zerochat.group.membership import may_post
from zerochat.group.notifications import Typing
from zerochat.group.state import Group
from zerochat.group.transaction import Turn
from zerochat.group.wire.ephemeral import READ, TYPING, ReadBody, TypingBody

TOLD_MEMBERS_MAX = 32
"""In a larger group neither is told: each costs an envelope for every other member, from every member."""


def tell_typing(turn: Turn, group: Group) -> int:
    """Tell the others that we are writing. Returns how many were told: none, unless a person wants it."""
    if not turn.agent.sharing.typing or not may_post(group.view, group.me, group.seq + 1):
        return 0
    return _tell(turn, group, TYPING, {"group": group.id})


def tell_read(turn: Turn, group: Group, upto: int) -> int:
    """Tell the others that we have read whatever has this Lamport time or a lower one, and how many were told."""
    upto = min(upto, group.lamport)
    if not turn.agent.sharing.read_receipts or upto < 1:
        return 0
    return _tell(turn, group, READ, {"group": group.id, "upto": upto})


def _tell(turn: Turn, group: Group, kind: str, body: dict[str, object]) -> int:
    if group.state != "active" or len(group.view.members) > TOLD_MEMBERS_MAX:
        return 0
    readers = [member for member in group.others if _is_near(turn, group, member)]
    for member in readers:
        message = Message(type=kind, id=new_id(turn.moment.random), body=body)
        envelope = pack(group.relationships[member], message, turn.packer_of(group.id), turn.moment.random)
        turn.say(Dispatch(group.peers[member].link, envelope))
    return len(readers)


def _is_near(turn: Turn, group: Group, member: str) -> bool:
    """Whether there is a live link to a member with whom we have to do."""
    peer, relationship = group.peers.get(member), group.relationships.get(member)
    known = peer is not None and peer.link in turn.agent.up and member not in group.quarantine
    return known and relationship is not None and relationship.established


def hear_typing(turn: Turn, name: str, member: str, body: TypingBody) -> None:
    """A member is writing. Raises Refused."""
    if _counts(turn, name, member, body.group, turn.agent.sharing.typing):
        turn.say(Notify(Typing(name, member)))


def hear_read(turn: Turn, name: str, member: str, body: ReadBody) -> None:
    """A member has read up to somewhere. What it may have read and we do not know of does not count. Raises Refused."""
    if _counts(turn, name, member, body.group, turn.agent.sharing.read_receipts):
        group = turn.group(name)
        upto = min(body.upto, group.lamport)
        if upto > group.peers[member].read:
            turn.edit_peer(name, member, read=upto)


def _counts(turn: Turn, name: str, member: str, said: str, wanted: bool) -> bool:
    group = turn.group(name)
    if said != name:
        raise Refused(why="something of another group")
    return wanted and member in group.view.members and _is_near(turn, group, member)
