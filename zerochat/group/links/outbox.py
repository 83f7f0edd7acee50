"""The outbox: events on their way to members, over queues, links or mediators.

Whoever has subscribed to a queue of ours gets what is on it, whoever has not yet gets the same over the pair link; to
whoever is reached by mail it goes in an envelope of its own.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import Publish
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes.mode import Reader, Sealed
from zerochat.group.key_modes.pairwise import seal_status
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.group.state import Group
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import portions, squeezed, write_runs
from zerochat.group.wire.messages import EVENTS, HAVE_MAX, STATUS
from zerochat.overlay import OVERLAYS

REPAIR_BYTES_MAX = 8 * 1024
"""Records in one message of a repair. On a slow line nothing else gets through while one is under way, not even a sign
of life; so it must take less time than somebody may be silent."""


def have(group: Group) -> list[int]:
    """How far we have each member's chain by its own word, in the order of the view; of a view that is too large, the
    first ones. What others have handed over does not count: its author may still repeat it."""
    chains = group.chains
    return [chains[did].sure if did in chains else 0 for did in islice(group.view.members, HAVE_MAX)]


def publish(turn: Turn, name: str, events: Sequence[Event], audience: Sequence[str], *, status: bool) -> None:
    """Say these events, few enough for one message, to everybody in the audience who can be told already."""
    say(turn, name, _message(turn, name, events, status=status), audience, span_of(turn.group(name), events))


def say(
    turn: Turn, name: str, message: Message, audience: Sequence[str], span: mediator_mail.Span | None = None
) -> None:
    """Put a message on our queues for these members: a status on the state queue, events on the data queues. `span`:
    which of our own these are."""
    group, packer = turn.group(name), turn.packer_of(name)
    overlay = OVERLAYS[group.profile.path]
    hops = [hop for member in audience for hop in overlay.first_hops(group.me, member, group.peers.keys())]
    ready = [hop for hop in hops if hop in group.relationships and group.relationships[hop].established]
    near = [
        Reader(group.relationships[member], group.view.members[member].transport)
        for member in ready
        if not mediator_mail.by_mail(turn, name, member)
    ]
    sealed: Sequence[Sealed] = ()
    if near and message.type == STATUS:
        sealed = [seal_status(group.place, message, near, packer, turn.moment)]
    elif near:
        sealed = group.mode.seal(group.place, message, near, packer, turn.moment)
    for one in sealed:
        turn.say(Publish(one.queue, one.envelope, tuple(group.peers[member].link for member in one.members)))
    alone = squeezed(message) if message.type == EVENTS else message
    told = {reader.relationship.member for reader in near}
    for member in ready:
        if member not in told:
            mediator_mail.send(
                turn, name, member, pack(group.relationships[member], alone, packer, turn.moment.random), span
            )


def send(turn: Turn, name: str, member: str, events: Sequence[Event]) -> None:
    """Send events to one member alone, in as many envelopes as it takes; nothing happens if it cannot be reached."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    if member not in group.peers or relationship is None or not relationship.established:
        return
    if not mediator_mail.reachable(turn, name, member):
        return
    for portion in portions(events, REPAIR_BYTES_MAX):
        message = squeezed(_message(turn, name, portion, status=False))
        packed = pack(relationship, message, turn.packer_of(name), turn.moment.random)
        mediator_mail.send(turn, name, member, packed, span_of(group, portion))


def span_of(group: Group, events: Sequence[Event]) -> mediator_mail.Span | None:
    """The positions of those of these events that are our own; None: there are none, or one between them is not among
    them."""
    own = [event.seq for event in events if event.author == group.me]
    return (own[0], own[-1]) if own and own == [*range(own[0], own[-1] + 1)] else None


def events_body(group: Group, events: Sequence[Event]) -> dict[str, Any]:
    """What is said with these events (`messages.EventsBody`)."""
    return {"runs": write_runs(events, group.me), "view": group.view.checksum, "have": have(group)}


def _message(turn: Turn, name: str, events: Sequence[Event], *, status: bool) -> Message:
    group = turn.group(name)
    body = events_body(group, events)
    if status:
        body["group"] = name
    return Message(type=STATUS if status else EVENTS, id=new_id(turn.moment.random), body=body)
