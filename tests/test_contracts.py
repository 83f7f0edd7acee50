"""One contract for each plug of the house; every implementation must pass it. (Packers have theirs in test_didcomm.)"""

import itertools
import random

import pytest

from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer4
from zerochat.errors import Malformed, RemoteError
from zerochat.group.modes.pairwise import PairwiseMulti
from zerochat.group.relationship import Relationship
from zerochat.group.stimuli import Moment
from zerochat.overlay import OVERLAYS
from zerochat.sim import TransparentPacker

MODES = [PairwiseMulti]
NAMES = ("alice", "bob", "carol")


class Circle:
    """Some members who have exchanged DIDs with each other, all from one seed."""

    def __init__(self, mode, seed=1):
        dice = random.Random(seed)
        self.moment = Moment(1_750_000_000_000, dice.randbytes)
        self.modes = {name: mode() for name in NAMES}
        dids = {(a, b): new_peer4(dice.randbytes, []) for a in NAMES for b in NAMES if a != b}
        self.pairs = {
            (a, b): Relationship(b, mine, dids[b, a].did, "thread", "", requester=a < b)
            for (a, b), mine in dids.items()
        }

    def seal(self, author, text, packer):
        to = [self.pairs[author, other] for other in NAMES if other != author]
        self.modes[author], sealed = self.modes[author].seal(
            "urn:test/1.0/say", {"text": text}, to, packer, self.moment
        )
        return {one.member: one.envelope for one in sealed}

    def open(self, reader, author, envelope, packer):
        self.modes[reader], _, message = self.modes[reader].open(envelope, self.pairs[reader, author], packer)
        return message.body["text"]


@pytest.mark.parametrize("packer", [*PACKERS.values(), TransparentPacker()], ids=lambda packer: packer.name)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode().name)
class TestMode:
    def test_everybody_hears_everybody_in_any_order(self, mode, packer):
        circle = Circle(mode)
        said = [(author, f"{author} {n}") for n in range(3) for author in NAMES]
        sealed = [(author, text, circle.seal(author, text, packer)) for author, text in said]
        for author, text, envelopes in reversed(sealed):
            assert set(envelopes) == set(NAMES) - {author}
            for reader, envelope in envelopes.items():
                assert circle.open(reader, author, envelope, packer) == text

    def test_a_hostile_byte_is_refused_and_changes_nothing(self, mode, packer):
        circle = Circle(mode)
        envelope = circle.seal("alice", "the truth", packer)["bob"]
        before = circle.modes["bob"]
        for place in range(0, len(envelope), 7):
            broken = bytearray(envelope)
            broken[place] ^= 1
            with pytest.raises(RemoteError):
                circle.open("bob", "alice", bytes(broken), packer)
            assert circle.modes["bob"] == before
        assert circle.open("bob", "alice", envelope, packer) == "the truth"

    def test_nobody_opens_what_is_for_another(self, mode, packer):
        circle = Circle(mode)
        envelope = circle.seal("alice", "for bob", packer)["bob"]
        with pytest.raises(RemoteError):
            circle.open("carol", "alice", envelope, packer)

    def test_a_member_cannot_pass_for_another(self, mode, packer):
        circle = Circle(mode)
        envelope = circle.seal("carol", "I am alice", packer)["bob"]
        with pytest.raises(RemoteError):
            circle.open("bob", "alice", envelope, packer)

    def test_what_is_too_long_for_a_message_is_not_sealed(self, mode, packer):
        circle = Circle(mode)
        with pytest.raises(Malformed):
            circle.seal("alice", "x" * 300_000, packer)


@pytest.mark.parametrize("overlay", OVERLAYS.values(), ids=OVERLAYS.keys())
@pytest.mark.parametrize("size", [1, 2, 3, 9, 64])
class TestOverlay:
    def members(self, size):
        return [did_key(ed25519_public(bytes([n]) * 32)) for n in range(size)]

    def test_every_envelope_arrives_and_then_goes_no_further(self, overlay, size):
        members = self.members(size)
        for origin, destination in itertools.islice(itertools.permutations(members, 2), 200):
            frontier, reached, hops = set(overlay.first_hops(origin, destination, members)), {origin}, 0
            while frontier:
                assert frontier <= set(members)
                reached |= frontier
                frontier = {
                    hop for at in frontier for hop in overlay.next_hops(at, origin, destination, members)
                } - reached
                hops += 1
                assert hops <= size, "an envelope that travels for ever"
            assert destination in reached

    def test_nobody_sends_to_itself_or_to_a_stranger(self, overlay, size):
        members = self.members(size)
        stranger = did_key(ed25519_public(b"\xff" * 32))
        assert overlay.first_hops(members[0], members[0], members) == ()
        assert overlay.first_hops(members[0], stranger, members) == ()
