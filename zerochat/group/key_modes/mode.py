"""The Mode protocol, its inputs and its outputs."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from msgspec import Struct

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.group.inputs import StepContext
from zerochat.group.links.relationship import Relationship


class OwnPlace(Redacted, frozen=True):
    """Our own identity in a group."""

    REDACTED = ("secret",)

    group: str
    me: str
    secret: bytes
    """The X25519 secret of our transport key in this group."""


class Recipient(Struct, frozen=True):
    """A recipient of a message."""

    relationship: Relationship
    transport: bytes
    """Its transport key, an X25519 public key."""


class SealedEnvelope(Struct, frozen=True):
    """One envelope, our queue that it goes to, and its recipients."""

    queue: bytes
    envelope: bytes
    members: tuple[str, ...]


class Mode(Protocol):
    """One kind of keys."""

    name: ClassVar[str]
    """The name in the genesis event."""
    signs: ClassVar[bool]
    """Whether posts are signed messages in their author's stream (`signed_streams/`). Protocol messages travel as below
    in any case."""
    signs_events: ClassVar[bool]
    """Whether each post and annotation is signed by its author (`Event.sig`), as membership events are in every mode.
    Any member may bring a signed event."""
    heals: ClassVar[bool]
    """Whether messages are sealed under the key ratchets of DCGKA (`group/dcgka/`): signed events as they are, others
    with a tag for each recipient (`deniable.py`)."""

    def queue(self, place: OwnPlace, publisher: str, subscriber: str, transport: bytes) -> bytes:
        """The queue on which `publisher` posts for `subscriber`: one of them is us, and the transport key is the
        other's."""
        ...

    def seal(
        self, place: OwnPlace, message: Message, to: Sequence[Recipient], packer: Packer, context: StepContext
    ) -> list[SealedEnvelope]:
        """The envelopes that carry one message to all of these members. Raises Malformed for one that is too long."""
        ...

    def open(
        self, place: OwnPlace, envelope: bytes, sender: Relationship, packer: Packer
    ) -> tuple[Relationship, Message]:
        """The message in an envelope from this member, and the relationship after it.

        Raises Malformed, Unauthentic or Refused.
        """
        ...
