"""The base of records that the journal stores field by field (`agent/storage/state_parts.py`)."""

from msgspec import Struct


class Composite(Struct, frozen=True):
    """A record whose fields are parts of the checkpoint. The order of its dicts is not kept."""


class SortedComposite(Composite, frozen=True):
    """A `Composite` whose dicts of records are in the order of their keys."""
