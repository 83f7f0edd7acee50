"""How much room files get on this machine. A person sets it, and nothing that a peer sends changes it."""

from msgspec import Struct


class FileRules(Struct, frozen=True):
    """In bytes."""

    auto_max: int = 1 << 20
    """What is not larger is fetched when it is posted; 0: nothing is, unless a person asks."""
    size_max: int = 64 << 20
    """What is larger is neither sent nor fetched."""
    total_max: int = 2 << 30
    """For all files that are here, of all groups."""
