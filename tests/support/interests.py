"""A hundred peers with four kinds of interests, as descriptors with BLIP filters."""

import random

from zerochat.overlay.blip import blip, bloom
from zerochat.overlay.cyclon import Descriptor

NOW = 1_000_000
KINDS = 4
_RNG = random.Random("interests")
TOPICS = [[_RNG.randbytes(8) for _ in range(100)] for _ in range(KINDS)]
"""By kind."""


def tags_of(number):
    """What a peer follows: 60 topics of its kind, which is its number modulo `KINDS`."""
    return random.Random(number).sample(TOPICS[number % KINDS], 60)


def descriptor(number, issued_at=NOW):
    return Descriptor(f"p{number}", issued_at, blip(tags_of(number), number.to_bytes(32, "big"), 0))


OWN = bloom(tags_of(0))
"""The true filter of the peer with the number 0."""
PEERS = [descriptor(number) for number in range(1, 101)]
KNOWN = {one.peer: one for one in PEERS}
ALIKE = {f"p{number}" for number in range(KINDS, 101, KINDS)}
"""Peers of the kind of number 0."""
