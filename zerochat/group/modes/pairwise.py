"""The thesis' keys: every member has its own envelope, under the keys of its own pair.

O(n) envelopes a message, and no secret that more than two members share. Authcrypt alone says who speaks, so whatever
is said can be repudiated; and one envelope holds one recipient, because with several any of them could forge another
text for the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.packer import Packer
from zerochat.group.modes import Sealed
from zerochat.group.relationship import Relationship, pack, unpack
from zerochat.group.stimuli import Moment


@dataclass(frozen=True, slots=True)
class PairwiseMulti:
    """Multiple-queue mode: each pair has a queue of its own, so nobody opens what is for somebody else."""

    @property
    def name(self) -> str:
        return "pairwise-multi"

    def seal(
        self, kind: str, body: Mapping[str, Any], to: Sequence[Relationship], packer: Packer, moment: Moment
    ) -> tuple["PairwiseMulti", list[Sealed]]:
        message = Message(type=kind, id=new_id(moment.random), body=dict(body))
        return self, [Sealed(pair.member, pack(pair, message, packer, moment.random)) for pair in to]

    def open(
        self, envelope: bytes, sender: Relationship, packer: Packer
    ) -> tuple["PairwiseMulti", Relationship, Message]:
        return self, *unpack(sender, envelope, packer)
