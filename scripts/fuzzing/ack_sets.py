"""Fuzz target of the ring: acknowledgement sets that a neighbour reports in a large group."""

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

from msgspec.structs import replace

from fuzzing.group import NOW, place
from fuzzing.nodes import Part
from fuzzing.people import dice
from fuzzing.run import Form
from zerochat.crypto.encoding import b64url, compact_json, strict_json
from zerochat.didcomm import PACKERS
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.errors import Malformed
from zerochat.group.inputs import StepContext
from zerochat.group.state import Chain, Group
from zerochat.group.sync import aggregation
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import ACK_SETS, AckSetsBody, read_body
from zerochat.overlay.ack_sets import SETS_MAX, bits_of

MEMBERS = 300
_VIEW = "A" * 22


@cache
def _large() -> Group:
    """The small group with so many members on the ring, each with another length of its chain."""
    group, view = place().group, place().group.view
    others = {f"did:key:m{number:03}": view.members[group.me] for number in range(MEMBERS - len(view.members))}
    chains = {did: Chain(seq, "e", seq) for seq, did in enumerate(others)}
    log = replace(group.log, chains={**group.log.chains, **chains})
    return replace(group, view=replace(view, members={**view.members, **others}, path="ring", checksum=_VIEW), log=log)


class AckSets:
    """Whatever a neighbour reports: the sets stay bounded, and say nothing of chains or members that there are not."""

    name = "ack-sets"
    form: Form = "text"
    size_max = MESSAGE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        group = _large()
        some = [[200, 190, b64url(b"\xff" * 38)], [200, 176, ""], [group.view.places[group.me], 3, b64url(b"\x01")]]
        many = [[number, number - 4, b64url(bytes([number % 256]) * 37)] for number in range(100, 132)]
        made: Sequence[Sequence[object]] = ([], some, many, [[299, 2**53 - 1, ""], [0, 1, ""]])
        return [compact_json(self._body(sets)) for sets in made]

    def _body(self, sets: object) -> Mapping[str, object]:
        return {"group": _large().id, "view": _VIEW, "have": [], "ack_sets": sets}

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        content = strict_json(data, self.size_max)
        if not isinstance(content, dict):
            raise Malformed(why="no body")
        body, before = read_body(Message(type=ACK_SETS, id="1", body=content), AckSetsBody), _large()
        agent = replace(place().agent, groups={before.id: before})
        tx = Transaction(agent, StepContext(NOW, dice("sets")), PACKERS)
        aggregation.receive(tx, before.id, place().sender, body.view, body.ack_sets)
        after = tx.group(before.id)
        assert len(after.acks.sets) <= aggregation.AUTHORS_MAX
        for author, sets in after.acks.sets.items():
            assert len(sets) <= SETS_MAX and author in after.view.members
            assert all(one.seq <= after.chain(author).seq for one in sets)
            assert all(bits_of(one.members).bit_length() <= MEMBERS for one in sets)
        assert all(upto <= after.seq for upto in after.acks.own)
        assert replace(after, acks=before.acks, links=before.links) == before
        return after.acks
