"""The thesis' keys: no secret that more than two members share, in its two modes.

Multiple queues: every member has an envelope of its own, on a queue of its own, so nobody sees anything of what is for
somebody else. Single queue: one frame for all (`wire/frame.py`), on one queue, of which each opens its own section. The
second costs its author one encryption instead of one for each member; the first costs each reader's network less, and
hides from the members how many others there are. Either way the envelope of what is said convinces its reader alone;
how long it can be repudiated, `group/event_log/event.py` says.

In both, what goes to one member alone, and what says something of the group itself, travels the same way.
"""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.errors import Refused
from zerochat.group.inputs import Moment
from zerochat.group.key_modes.mode import Place, Reader, Sealed
from zerochat.group.links.relationship import Relationship, pack, unpack
from zerochat.group.wire.event_runs import squeezed
from zerochat.group.wire.frame import is_frame, open_frame, seal_frame
from zerochat.group.wire.messages import STATUS
from zerochat.group.wire.queue_names import data_queue, pair_queue, state_queue


def seal_status(place: Place, message: Message, to: Sequence[Reader], packer: Packer, moment: Moment) -> Sealed:
    """The frame that says something of the group itself to all of these members."""
    return _frame(state_queue(place.group, place.me), place, message, to, packer, moment)


def _frame(
    queue: bytes, place: Place, message: Message, to: Sequence[Reader], packer: Packer, moment: Moment
) -> Sealed:
    relationships = [reader.relationship for reader in to]
    frame = seal_frame(packer.dump(message), place.group, place.me, relationships, moment)
    return Sealed(queue, frame, tuple(one.member for one in relationships))


def _open(place: Place, envelope: bytes, sender: Relationship, packer: Packer) -> tuple[Relationship, Message]:
    if not is_frame(envelope):
        return unpack(sender, envelope, packer)
    plain, sender = open_frame(envelope, place.group, place.me, sender)
    return sender, packer.parse(plain)


class PairwiseMulti(Struct, frozen=True):
    """Multiple-queue mode: an envelope and a queue for each pair."""

    name: ClassVar[str] = "pairwise-multi"
    signs: ClassVar[bool] = False

    def queue(self, place: Place, publisher: str, subscriber: str, transport: bytes) -> bytes:
        return pair_queue(place.secret, transport, place.group, publisher, subscriber)

    def seal(
        self, place: Place, message: Message, to: Sequence[Reader], packer: Packer, moment: Moment
    ) -> list[Sealed]:
        message = squeezed(message)
        return [
            Sealed(
                self.queue(place, place.me, one.relationship.member, one.transport),
                pack(one.relationship, message, packer, moment.random),
                (one.relationship.member,),
            )
            for one in to
        ]

    def open(self, place: Place, envelope: bytes, sender: Relationship, packer: Packer) -> tuple[Relationship, Message]:
        relationship, message = _open(place, envelope, sender, packer)
        if is_frame(envelope) and message.type != STATUS:
            raise Refused(why="one frame for several in a group where everybody has an envelope")
        return relationship, message


class PairwiseSingle(Struct, frozen=True):
    """Single-queue mode: one frame for everybody."""

    name: ClassVar[str] = "pairwise-single"
    signs: ClassVar[bool] = False

    def queue(self, place: Place, publisher: str, subscriber: str, transport: bytes) -> bytes:
        return data_queue(place.group, publisher)

    def seal(
        self, place: Place, message: Message, to: Sequence[Reader], packer: Packer, moment: Moment
    ) -> list[Sealed]:
        return [_frame(data_queue(place.group, place.me), place, message, to, packer, moment)] if to else []

    def open(self, place: Place, envelope: bytes, sender: Relationship, packer: Packer) -> tuple[Relationship, Message]:
        return _open(place, envelope, sender, packer)
