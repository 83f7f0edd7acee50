"""Two parties with keys, for frames."""

import random

import pytest

from zerochat.didcomm.did import new_peer4
from zerochat.group.links.relationship import Relationship


@pytest.fixture
def dice():
    return random.Random(4)


def pair(dice, one, other):
    """A relationship, as each of the two has it."""
    mine, theirs = new_peer4(dice.randbytes, []), new_peer4(dice.randbytes, [])
    return (
        Relationship(other, mine, theirs.did, "t", "", requester=True),
        Relationship(one, theirs, mine.did, "t", "", requester=False),
    )
