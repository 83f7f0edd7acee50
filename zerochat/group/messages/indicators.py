"""Typing indicators and read receipts: ephemeral messages over live links, both off by default.

Neither is an event: they are not retransmitted, stored for others, or sent over a mediator. A typing indicator only
notifies the clients; of a member's read receipts one number is kept, which never falls.
"""

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.effects import Notify, SendEnvelope
from zerochat.group.links.relationship import pack
from zerochat.group.membership import may_post
from zerochat.group.notifications import Typing
from zerochat.group.state import Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import READ, TYPING, ReadBody, TypingBody
from zerochat.limits import INDICATOR_MEMBERS_MAX


def send_typing(tx: Transaction, group: Group) -> int:
    """Send a typing indicator to the connected members; returns their number, 0 if indicators are off."""
    if not tx.agent.indicators.typing or not may_post(group.view, group.me, group.seq + 1):
        return 0
    return _send_to_connected(tx, group, TYPING, {"group": group.id})


def send_read_receipt(tx: Transaction, group: Group, upto: int) -> int:
    """Send a read receipt up to this Lamport time to the connected members; returns their number."""
    upto = min(upto, group.log.lamport)
    if not tx.agent.indicators.read_receipts or upto < 1:
        return 0
    return _send_to_connected(tx, group, READ, {"group": group.id, "upto": upto})


def _send_to_connected(tx: Transaction, group: Group, kind: str, body: dict[str, object]) -> int:
    if group.state != "active" or len(group.view.members) > INDICATOR_MEMBERS_MAX:
        return 0
    recipients = [member for member in group.others if _is_connected(tx, group, member)]
    for member in recipients:
        message = Message(type=kind, id=new_id(tx.context.random), body=body)
        envelope = pack(group.links.relationships[member], message, tx.packer_of(group.id), tx.context.random)
        tx.emit(SendEnvelope(group.links.peers[member].link, envelope))
    return len(recipients)


def _is_connected(tx: Transaction, group: Group, member: str) -> bool:
    """Whether there is a live link and an established relationship with a member outside quarantine."""
    peer, relationship = group.links.peers.get(member), group.links.relationships.get(member)
    has_link = peer is not None and peer.link in tx.agent.links_up and member not in group.trust.quarantine
    return has_link and relationship is not None and relationship.established


def receive_typing(tx: Transaction, name: str, member: str, body: TypingBody) -> None:
    """A member is typing. Raises Refused."""
    if _is_accepted(tx, name, member, body.group, tx.agent.indicators.typing):
        tx.emit(Notify(Typing(name, member)))


def receive_read_receipt(tx: Transaction, name: str, member: str, body: ReadBody) -> None:
    """A member has read up to a Lamport time, capped at the latest event that we have. Raises Refused."""
    if _is_accepted(tx, name, member, body.group, tx.agent.indicators.read_receipts):
        group = tx.group(name)
        upto = min(body.upto, group.log.lamport)
        if upto > group.links.peers[member].shown.read_upto:
            tx.update_shown(name, member, read_upto=upto)


def _is_accepted(tx: Transaction, name: str, member: str, named_group: str, enabled: bool) -> bool:
    group = tx.group(name)
    if named_group != name:
        raise Refused(why="an indicator of another group")
    return enabled and member in group.view.members and _is_connected(tx, group, member)
