"""What a simulation works out once for all its members.

All of them are in one process, and each checks the same signatures of the same events. That costs every machine its
share and one process all of it, so here whatever was verified is remembered, also for the next history: many begin with
the same group. It is remembered by all that a verification depends on, and what is refused is refused anew each time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from zerochat.crypto import primitives
from zerochat.group.event_log.event import load_event

VERIFIED_MAX = 8192
"""Signed texts, of some hundred bytes: more than there are in a history."""
RECORDS_MAX = 4096
"""Records of logs, of some hundred bytes: more than there are in a history."""

event_of = lru_cache(RECORDS_MAX)(load_event)
"""The event of a record in a log: every check looks at all records of all members, who have the same ones."""


@contextmanager
def remembering() -> Iterator[None]:
    """Remember, until the end of the block, which signatures are good."""
    before = primitives.open_signed
    primitives.open_signed = _opened_before(before)
    try:
        yield
    finally:
        primitives.open_signed = before


@lru_cache(1)
def _opened_before(open_signed: Callable[[bytes, bytes], bytes]) -> Callable[[bytes, bytes], bytes]:
    return lru_cache(VERIFIED_MAX)(open_signed)
