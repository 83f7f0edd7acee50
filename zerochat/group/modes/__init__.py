"""The Mode protocol: how one message becomes the envelopes that a group needs, and back again.

A mode is what a group picked as its *keys*. It holds whatever secret state its keys have (pairwise keys: none beside
the relationships) and gives back a new mode with each use, so a failed envelope never leaves anything half changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.group.relationship import Relationship
from zerochat.group.stimuli import Moment


@dataclass(frozen=True, slots=True)
class Sealed:
    """One envelope, and the member that it is for."""

    member: str
    envelope: bytes


class Mode(Protocol):
    """One kind of keys."""

    @property
    def name(self) -> str:
        """What a genesis event calls it."""
        ...

    def seal(
        self, kind: str, body: Mapping[str, Any], to: Sequence[Relationship], packer: Packer, moment: Moment
    ) -> tuple[Self, list[Sealed]]:
        """The envelopes that carry one message (its type and body) to all of these members."""
        ...

    def open(self, envelope: bytes, sender: Relationship, packer: Packer) -> tuple[Self, Relationship, Message]:
        """The message in an envelope that came from this member, and the relationship after it.

        Raises Malformed or Unauthentic.
        """
        ...
