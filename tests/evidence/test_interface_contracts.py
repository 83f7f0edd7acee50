"""Contract tests of key modes; every implementation must pass them."""

import base64
import random
import re

import pytest

from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer4
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, RemoteError
from zerochat.group.inputs import StepContext
from zerochat.group.key_modes import MODES, OwnPlace, Recipient
from zerochat.group.links.relationship import Relationship
from zerochat.group.wire.messages import EVENTS
from zerochat.sim import TransparentPacker

NAMES = ("alice", "bob", "carol")


class Circle:
    """Members with exchanged DIDs, all from one seed."""

    def __init__(self, mode, seed=1):
        dice = random.Random(seed)
        self.moment = StepContext(1_750_000_000_000, dice.randbytes)
        self.mode = mode
        secrets = {name: dice.randbytes(32) for name in NAMES}
        self.places = {name: OwnPlace("group", name, secret) for name, secret in secrets.items()}
        self.transports = {name: x25519_public(secret) for name, secret in secrets.items()}
        dids = {(a, b): new_peer4(dice.randbytes, []) for a in NAMES for b in NAMES if a != b}
        self.pairs = {
            (a, b): Relationship(b, mine, dids[b, a].did, "thread", "", requester=a < b)
            for (a, b), mine in dids.items()
        }

    def seal(self, author, text, packer):
        to = [Recipient(self.pairs[author, other], self.transports[other]) for other in NAMES if other != author]
        return self.seal_for(author, text, to, packer)

    def seal_for(self, author, text, to, packer):
        """By reader, the envelope; each is on the queue that its reader would look for."""
        message = Message(type=EVENTS, id="1", body={"text": text})
        sealed = self.mode.seal(self.places[author], message, to, packer, self.moment)
        for one in sealed:
            for reader in one.members:
                place = self.places[reader]
                assert one.queue == self.mode.queue(place, author, reader, self.transports[author])
        return {reader: one.envelope for one in sealed for reader in one.members}

    def open(self, reader, author, envelope, packer):
        _, message = self.mode.open(self.places[reader], envelope, self.pairs[reader, author], packer)
        return message.body["text"]


@pytest.mark.parametrize("packer", [*PACKERS.values(), TransparentPacker()], ids=lambda packer: packer.name)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
class TestMode:
    def test_every_member_opens_all_messages_in_any_order(self, mode, packer):
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
        for place in range(0, len(envelope), 7):
            broken = bytearray(envelope)
            broken[place] ^= 1
            try:
                heard = circle.open("bob", "alice", bytes(broken), packer)
            except RemoteError:
                continue
            assert mode.name != "pairwise-multi" and heard == "the truth", "only what is for others does not matter"
        assert circle.open("bob", "alice", envelope, packer) == "the truth"

    def test_only_the_recipient_opens_an_envelope(self, mode, packer):
        circle = Circle(mode)
        bob = Recipient(circle.pairs["alice", "bob"], circle.transports["bob"])
        envelope = circle.seal_for("alice", "for bob", [bob], packer)["bob"]
        assert circle.open("bob", "alice", envelope, packer) == "for bob"
        with pytest.raises(RemoteError):
            circle.open("carol", "alice", envelope, packer)

    def test_nothing_on_an_envelope_for_all_names_a_reader(self, mode, packer):
        circle = Circle(mode)
        envelopes = circle.seal("alice", "hello", packer)
        if len(set(envelopes.values())) == 1:
            names = [one.mine.short for one in circle.pairs.values()] + [one.theirs for one in circle.pairs.values()]
            (envelope,) = set(envelopes.values())
            assert not any(name[-20:].encode() in envelope for name in [*names, *NAMES])
            assert {circle.open(name, "alice", envelope, packer) for name in envelopes} == {"hello"}

    def test_number_of_envelopes_and_size_of_one_more_recipient(self, mode, packer):
        """For content outside of streams, which signing key modes do not allow (`test_signed_streams.py`)."""
        circle = Circle(mode)
        bob = Recipient(circle.pairs["alice", "bob"], circle.transports["bob"])
        alone = circle.seal_for("alice", "hello", [bob], packer)["bob"]
        envelopes = circle.seal("alice", "hello", packer)
        count, more = len(set(envelopes.values())), len(envelopes["bob"]) - len(alone)
        assert (count, more) == ((2, 0) if mode.name == "pairwise-multi" else (1, 48))

    def test_an_envelope_for_one_recipient_reveals_no_others(self, mode, packer):
        circle = Circle(mode)
        envelopes = circle.seal("alice", "hello", packer)
        if len(set(envelopes.values())) == len(envelopes):
            shown = envelopes["bob"]
            for part in re.findall(rb"[\w-]{24,}", shown):
                shown += base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
            others = [pair for pair in circle.pairs if "carol" in pair]
            dids = [did for pair in others for did in (circle.pairs[pair].mine.short, circle.pairs[pair].theirs)]
            assert not [did for did in dids if did[-20:].encode() in shown]
            assert packer.name not in PACKERS or shown.count(b'"kid"') == 1, "there is one recipient"
            ours = {name: (circle.places[name], "alice", name, circle.transports["alice"]) for name in ("bob", "carol")}
            assert mode.queue(*ours["bob"]) != mode.queue(*ours["carol"])

    def test_a_member_cannot_impersonate_another(self, mode, packer):
        circle = Circle(mode)
        envelope = circle.seal("carol", "I am alice", packer)["bob"]
        with pytest.raises(RemoteError):
            circle.open("bob", "alice", envelope, packer)

    def test_an_oversized_message_is_not_sealed(self, mode, packer):
        circle = Circle(mode)
        with pytest.raises(Malformed):
            circle.seal("alice", "x" * 300_000, packer)
