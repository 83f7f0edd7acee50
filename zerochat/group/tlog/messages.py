"""Sending transparency log messages to one member, and updating a log's state."""

import msgspec

from zerochat.didcomm.message import Message, new_id
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.group.state import TransparencyLog
from zerochat.group.transaction import Transaction

MAIL_ROUNDS = 16
"""A retransmission to a member reached over a mediator goes out in one of so many rounds, at random: the mediator
stores it anyway."""


def can_send(tx: Transaction, name: str, member: str) -> bool:
    """Whether a message can be sent to a member now."""
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    known = relationship is not None and relationship.established and member in group.view.members
    return known and tx.agent.reach is not None and mediator_mail.reachable(tx, name, member)


def send_tlog_message(tx: Transaction, name: str, member: str, kind: str, body: msgspec.Struct) -> bool:
    """Send a message to a member, if it is reachable; returns whether it is."""
    if not can_send(tx, name, member):
        return False
    relationship = tx.group(name).links.relationships[member]
    message = Message(type=kind, id=new_id(tx.context.random), body=msgspec.to_builtins(body))
    mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random))
    return True


def may_repeat(tx: Transaction, name: str, member: str) -> bool:
    """Whether to retransmit to this member now."""
    if not can_send(tx, name, member):
        return False
    return not mediator_mail.goes_by_mail(tx, name, member) or tx.context.random(1)[0] < 256 // MAIL_ROUNDS


def update_tlog(tx: Transaction, name: str, origin: str, **fields: object) -> TransparencyLog:
    """Change fields of one log."""
    group = tx.group(name)
    log = msgspec.structs.replace(group.tlogs.by_name[origin], **fields)
    tx.update_tlogs(name, by_name={**group.tlogs.by_name, origin: log})
    return log
