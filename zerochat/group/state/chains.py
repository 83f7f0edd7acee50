"""Each author's chain, as far as it has come here."""

from typing import Self

from msgspec import Struct, field

from zerochat.crypto.redacted import Veiled


class Spot(Struct, frozen=True):
    """A place in an author's chain."""

    seq: int = 0
    tip: str = ""
    """The id of the event there; empty: unknown."""
    lamport: int = 0


class Past(Struct, frozen=True):
    """How far back an author's chain has been fetched, from where it began to come to us by itself."""

    first: int = 1
    """The first place of the unbroken stretch that we have."""
    before: str = ""
    """The id that the event before it must have; empty: nobody has said."""
    anchored: bool = False
    """Whether the author itself says so, by something that it has signed or said to us."""
    top: Spot | None = None
    """The newest of what was fetched, until the author's own word confirms it; None: there is nothing to confirm."""
    by: str = ""
    """Who has handed that over."""
    ours: bool = False
    """Whether some of it was said since we came in, and is for us in any group."""


class Chain(Struct, frozen=True):
    """How far one author's chain has been delivered here."""

    seq: int = 0
    tip: str = ""
    """The id of event `seq`; empty where the chain began before we were meant to hear it."""
    lamport: int = 0
    begun: bool = False
    """True once a post has been delivered, and not only membership events, which everybody gets."""
    forked: int = 0
    """The last place for which the author has been accused of two different events; 0: none."""
    own: Spot | None = None
    """Up to where this is the author's own word, where others have handed over what follows; None: all of it is."""
    by: str = ""
    """Who has handed over the last of that."""
    past: Past | None = None
    """None: it has come to us from its beginning."""
    untold: bool = False
    """Whether others have told us of it, and not yet its author from where on it is for us."""
    stale: bool = False
    """Whether others had handed over something before that, which may not lead up to this."""

    @classmethod
    def after(cls, since: int) -> Self:
        """One of which what comes after this place is for us."""
        return cls(since, past=Past(since + 1) if since else None)

    @property
    def sure(self) -> int:
        """Up to where this is the author's own word, or confirmed by it; 0 as long as it may want to begin earlier."""
        if self.untold:
            return 0
        return self.seq if self.own is None else self.own.seq


class Limbo(Veiled, frozen=True):
    """One author's events that came too early: their records by seq."""

    VEILED = ("records",)

    records: dict[int, bytes] = field(default_factory=dict)
