"""Messages about a log to one member."""

import msgspec

from zerochat.didcomm.message import Message, new_id
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.group.state import Log
from zerochat.group.transaction import Turn

MAIL_LOT = 16
"""What is said again to somebody who is reached over a mediator goes out once in so many rounds, by lot: a mediator
keeps it anyway."""


def can_say(turn: Turn, name: str, member: str) -> bool:
    """Whether a member can be told something now."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    known = relationship is not None and relationship.established and member in group.view.members
    return known and turn.agent.reach is not None and mediator_mail.reachable(turn, name, member)


def say(turn: Turn, name: str, member: str, kind: str, body: msgspec.Struct) -> bool:
    """Send a message to a member, if it can be reached; whether it can."""
    if not can_say(turn, name, member):
        return False
    relationship = turn.group(name).relationships[member]
    message = Message(type=kind, id=new_id(turn.moment.random), body=msgspec.to_builtins(body))
    mediator_mail.send(turn, name, member, pack(relationship, message, turn.packer_of(name), turn.moment.random))
    return True


def may_repeat(turn: Turn, name: str, member: str) -> bool:
    """Whether it is time to say something again to this member, which it may have heard."""
    if not can_say(turn, name, member):
        return False
    return not mediator_mail.by_mail(turn, name, member) or turn.moment.random(1)[0] < 256 // MAIL_LOT


def edit_log(turn: Turn, name: str, origin: str, **fields: object) -> Log:
    """Change what is remembered of one log."""
    group = turn.group(name)
    log = msgspec.structs.replace(group.logs[origin], **fields)
    turn.edit(name, logs={**group.logs, origin: log})
    return log
