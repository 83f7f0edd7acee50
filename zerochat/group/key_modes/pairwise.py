"""Pairwise keys: every secret is shared by exactly two members, with one queue per pair or one for all.

Multiple queues: every member gets an envelope of its own on a queue of its own, so members see nothing of each other's
traffic. Single queue: one frame for all (`wire/frame.py`) on one queue, of which each member opens its own section. The
second costs its author one encryption instead of one per member; the first costs each recipient's network less, and
hides the number of members from them. In both the envelope authenticates to its recipient alone; for deniability see
`group/event_log/event.py`.

Messages to one member, and status messages, travel the same way in both modes.
"""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.errors import Refused
from zerochat.group.inputs import StepContext
from zerochat.group.key_modes.mode import OwnPlace, Recipient, SealedEnvelope
from zerochat.group.links.relationship import Relationship, pack, unpack
from zerochat.group.wire.event_runs import compress_runs
from zerochat.group.wire.frame import is_frame, open_frame, seal_frame
from zerochat.group.wire.messages import STATUS
from zerochat.group.wire.queue_names import data_queue, pair_queue, state_queue


def seal_status(
    place: OwnPlace, message: Message, to: Sequence[Recipient], packer: Packer, context: StepContext
) -> SealedEnvelope:
    """The frame of a status message for all of these members."""
    return _frame(state_queue(place.group, place.me), place, message, to, packer, context)


def _frame(
    queue: bytes, place: OwnPlace, message: Message, to: Sequence[Recipient], packer: Packer, context: StepContext
) -> SealedEnvelope:
    relationships = [reader.relationship for reader in to]
    frame = seal_frame(packer.dump(message), place.group, place.me, relationships, context)
    return SealedEnvelope(queue, frame, tuple(one.member for one in relationships))


def _open(place: OwnPlace, envelope: bytes, sender: Relationship, packer: Packer) -> tuple[Relationship, Message]:
    if not is_frame(envelope):
        return unpack(sender, envelope, packer)
    plain, sender = open_frame(envelope, place.group, place.me, sender)
    return sender, packer.parse(plain)


class PairwiseMulti(Struct, frozen=True):
    """Multiple-queue mode: an envelope and a queue for each pair."""

    name: ClassVar[str] = "pairwise-multi"
    signs: ClassVar[bool] = False
    signs_events: ClassVar[bool] = False
    heals: ClassVar[bool] = False

    def queue(self, place: OwnPlace, publisher: str, subscriber: str, transport: bytes) -> bytes:
        return pair_queue(place.secret, transport, place.group, publisher, subscriber)

    def seal(
        self, place: OwnPlace, message: Message, to: Sequence[Recipient], packer: Packer, context: StepContext
    ) -> list[SealedEnvelope]:
        message = compress_runs(message)
        return [
            SealedEnvelope(
                self.queue(place, place.me, one.relationship.member, one.transport),
                pack(one.relationship, message, packer, context.random),
                (one.relationship.member,),
            )
            for one in to
        ]

    def open(
        self, place: OwnPlace, envelope: bytes, sender: Relationship, packer: Packer
    ) -> tuple[Relationship, Message]:
        relationship, message = _open(place, envelope, sender, packer)
        if is_frame(envelope) and message.type != STATUS:
            raise Refused(why="a shared frame in a group with pairwise envelopes")
        return relationship, message


class PairwiseSingle(Struct, frozen=True):
    """Single-queue mode: one frame for all members."""

    name: ClassVar[str] = "pairwise-single"
    signs: ClassVar[bool] = False
    signs_events: ClassVar[bool] = False
    heals: ClassVar[bool] = False

    def queue(self, place: OwnPlace, publisher: str, subscriber: str, transport: bytes) -> bytes:
        return data_queue(place.group, publisher)

    def seal(
        self, place: OwnPlace, message: Message, to: Sequence[Recipient], packer: Packer, context: StepContext
    ) -> list[SealedEnvelope]:
        return [_frame(data_queue(place.group, place.me), place, message, to, packer, context)] if to else []

    def open(
        self, place: OwnPlace, envelope: bytes, sender: Relationship, packer: Packer
    ) -> tuple[Relationship, Message]:
        return _open(place, envelope, sender, packer)
