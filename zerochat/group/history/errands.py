"""Errands: what we have asked a member for. One thing at a time of each, and only the answer to that is listened to."""

from collections.abc import Sequence

from zerochat.didcomm.message import Message, new_id
from zerochat.group import mail
from zerochat.group.relationship import pack
from zerochat.group.state import Errand
from zerochat.group.turn import Turn
from zerochat.group.wire.messages import NEED

PATIENCE_MS, PATIENCE_MAIL_MS = 5_000, 120_000
"""How long one member has to answer, over a link and over a mediator, before another one is asked."""


def free(turn: Turn, name: str, member: str) -> bool:
    """Whether this member can be asked for something now."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    return (
        member in group.view.members
        and member not in group.errands
        and relationship is not None
        and relationship.established
        and mail.reachable(turn, name, member)
    )


def ask_for(
    turn: Turn,
    name: str,
    member: str,
    want: Sequence[tuple[str, int, int]],
    limit: int,
    *,
    back: bool = False,
) -> None:
    """Ask a member for stretches of chains; only this answer is listened to, until it is too late."""
    group = turn.group(name)
    body = {"group": name, "want": [list(one) for one in want], "limit": limit}
    if back:
        body["back"] = True
    message = Message(type=NEED, id=new_id(turn.moment.random), body=body)
    patience = PATIENCE_MAIL_MS if mail.by_mail(turn, name, member) else PATIENCE_MS
    errand = Errand(message.id, tuple(want), turn.now + patience, back)
    turn.edit(name, errands={**group.errands, member: errand})
    mail.send(turn, name, member, pack(group.relationships[member], message, turn.packer_of(name), turn.moment.random))


def give_up(turn: Turn, name: str) -> None:
    """Wait no longer for those who had their time."""
    group = turn.group(name)
    waiting = {member: one for member, one in group.errands.items() if one.until > turn.now}
    if waiting != group.errands:
        turn.edit(name, errands=waiting)
