"""The Mode protocol, and what goes in and comes out."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from msgspec import Struct

from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.group.inputs import Moment
from zerochat.group.links.relationship import Relationship


class Place(Veiled, frozen=True):
    """Our own place in a group."""

    VEILED = ("secret",)

    group: str
    me: str
    secret: bytes
    """The X25519 secret of our transport key in this group."""


class Reader(Struct, frozen=True):
    """A member whom a message is for."""

    relationship: Relationship
    transport: bytes
    """Its transport key, an X25519 public key."""


class Sealed(Struct, frozen=True):
    """One envelope, the queue of ours that it goes to, and the members that it is for."""

    queue: bytes
    envelope: bytes
    members: tuple[str, ...]


class Mode(Protocol):
    """One kind of keys."""

    name: ClassVar[str]
    """What a genesis event calls it."""
    signs: ClassVar[bool]
    """Whether everything that is said stands in its author's stream of signed messages (`streams/`). What does not say
    anything to the group travels as below in any case."""

    def queue(self, place: Place, publisher: str, subscriber: str, transport: bytes) -> bytes:
        """Where `publisher` posts for `subscriber`: one of them is us, and the transport key is that of the other."""
        ...

    def seal(
        self, place: Place, message: Message, to: Sequence[Reader], packer: Packer, moment: Moment
    ) -> list[Sealed]:
        """The envelopes that carry one message to all of these members. Raises Malformed for one that is too long."""
        ...

    def open(self, place: Place, envelope: bytes, sender: Relationship, packer: Packer) -> tuple[Relationship, Message]:
        """The message in an envelope that came from this member, and the relationship after it.

        Raises Malformed, Unauthentic or Refused.
        """
        ...
