"""Proofs of what was said, in groups whose keys sign, line by line."""

from msgspec import Struct


class ProofParams(Struct, frozen=True):
    """The lines of a proof (`evidence/proof.py`): of one message, or, without `id`, that nothing was left out of an
    author's stream. `after`: go on behind the message with this time, as the answer before has said."""

    group: str
    id: str = ""
    """An event, by its id or the beginning of that; `last`, or `last:NAME`."""
    author: str = ""
    """A member, by name or key; empty: you."""
    after: int = 0


class ProofLines(Struct, frozen=True):
    lines: list[str]
    last: int | None = None
    """Where to go on; None: that was all."""
    left_out: int = 0
    """Members who have acknowledged it, too far behind it for one answer, or not since they began to hear it."""
