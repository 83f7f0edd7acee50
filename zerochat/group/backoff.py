"""Exponential backoff: the delay doubles with each try, from a base up to a ceiling."""

from msgspec import Struct

_DOUBLINGS_MAX = 32
"""More doublings exceed every ceiling."""


class Backoff(Struct, frozen=True):
    """The delays of one kind of retry."""

    base_ms: int
    ceiling_ms: int

    def delay_ms(self, tries: int) -> int:
        """The delay after this many tries before the last one."""
        return min(self.base_ms << min(tries, _DOUBLINGS_MAX), self.ceiling_ms)
