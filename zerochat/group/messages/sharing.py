"""What others are told of what a person does besides what it says. A person sets it; by itself, nothing is told."""

from msgspec import Struct


class Sharing(Struct, frozen=True):
    """Each works both ways: whoever does not tell it is not told it either."""

    read_receipts: bool = False
    """Up to where it has read."""
    typing: bool = False
    """That it is writing."""
