"""Errands: what we have asked a member for. One thing at a time of each, and only the answer to that is listened to."""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id
from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.group.state import Errand
from zerochat.group.sync import head_claims
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import NEED

PATIENCE_MS, PATIENCE_MAIL_MS = 5_000, 120_000
"""How long one member has to answer, over a link and over a mediator, before another one is asked."""


def free(turn: Turn, name: str, member: str) -> bool:
    """Whether this member can be asked for something now, other than our own words."""
    group = turn.group(name)
    return member not in group.errands and member not in head_claims.asking(group) and there(turn, name, member)


def there(turn: Turn, name: str, member: str) -> bool:
    """Whether this member can be asked at all."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    return (
        member in group.view.members
        and relationship is not None
        and relationship.established
        and mediator_mail.reachable(turn, name, member)
    )


def ask_for(
    turn: Turn,
    name: str,
    member: str,
    want: Sequence[tuple[str, int, int]],
    limit: int,
    *,
    back: bool = False,
    purpose: Literal["", "compare", "second", "unheard", "unmet"] = "",
    pages: int = 1,
) -> None:
    """Ask a member for stretches of chains; only this answer is listened to, until it is too late."""
    group = turn.group(name)
    body = {"group": name, "want": [list(one) for one in want], "limit": limit}
    if back:
        body["back"] = True
    if pages > 1:
        body["pages"] = pages
    message = Message(type=NEED, id=new_id(turn.moment.random), body=body)
    until = turn.now + patience(turn, name, member)
    errand = Errand(message.id, tuple(want), until, back, purpose=purpose, pages=pages)
    turn.edit(name, errands={**group.errands, member: errand})
    mediator_mail.send(
        turn, name, member, pack(group.relationships[member], message, turn.packer_of(name), turn.moment.random)
    )


def patience(turn: Turn, name: str, member: str) -> int:
    """How long this member has to answer now, in ms."""
    return PATIENCE_MAIL_MS if mediator_mail.by_mail(turn, name, member) else PATIENCE_MS


def answered(turn: Turn, name: str, member: str, found: Iterable[Event], *, more: bool) -> None:
    """An answer has come with these events: wait for the next one, or for nothing any more."""
    group = turn.group(name)
    errand = group.errands[member]
    left = {did: one for did, one in group.errands.items() if did != member}
    if more and errand.page + 1 < errand.pages:
        until = turn.now + patience(turn, name, member)
        rest = replace(errand, want=below(errand.want, found), until=until, page=errand.page + 1)
        left[member] = rest
    turn.edit(name, errands=left)


def below(want: Sequence[tuple[str, int, int]], found: Iterable[Event]) -> tuple[tuple[str, int, int], ...]:
    """What is left of these stretches where, from their ends back, these events have been given."""
    lowest: dict[str, int] = {}
    for event in found:
        lowest[event.author] = min(event.seq, lowest.get(event.author, event.seq))
    rest = ((author, after, min(upto, lowest.get(author, upto + 1) - 1)) for author, after, upto in want)
    return tuple((author, after, upto) for author, after, upto in rest if upto > after)


def forget(turn: Turn, name: str) -> None:
    """We have just started: nobody answers any more over a link that was there before."""
    group = turn.group(name)
    asked = {member: one for member, one in group.errands.items() if member in group.peers}  # a version left others
    left = {member: one for member, one in asked.items() if mediator_mail.by_mail(turn, name, member)}
    if left != group.errands:
        turn.edit(name, errands=left)


def give_up(turn: Turn, name: str) -> None:
    """Wait no longer for those who had their time: for whoever was asked by mail and is connected again, not as long
    as mail may take."""
    group = turn.group(name)
    waiting = {}
    for member, one in group.errands.items():
        until = min(one.until, turn.now + PATIENCE_MS) if mediator_mail.linked(turn, name, member) else one.until
        if until > turn.now:
            waiting[member] = replace(one, until=until)
    if waiting != group.errands:
        turn.edit(name, errands=waiting)
