"""Low limits: in some histories there is room for little, so that what happens at a limit does happen.

What is lacking is sent again 64 events at a time, and what comes too early waits in a place for 256: nobody says as
much within the seconds of an episode. A mistake that shows only there would be found by no seed.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Concatenate, ParamSpec, TypeVar

from zerochat.group.event_log import log
from zerochat.group.files import download
from zerochat.group.links import outbox
from zerochat.group.signed_streams import receiver
from zerochat.group.sync import acknowledgements, backfill, fork_detection, history_requests, stale_profile
from zerochat.group.wire import files, messages

P = ParamSpec("P")
T = TypeVar("T")
NARROW_EVERY = 6
"""One in so many seeds."""
LOW: Mapping[object, Mapping[str, int]] = {
    acknowledgements: {"REPAIR_EVENTS_MAX": 3, "COMPARE_MAX": 1},
    log: {"LIMBO_EVENTS_MAX": 6, "WAITING_MAX": 3, "WAITING_ALL_MAX": 6},
    outbox: {"REPAIR_BYTES_MAX": 600},
    history_requests: {"SHARE_EVENTS_MAX": 3},
    backfill: {"ASKED_MAX": 2},
    stale_profile: {"EVENTS_MAX": 3},
    fork_detection: {"LOOKED_UP_MAX": 3},
    receiver: {"EARLY_MAX": 2},
    download: {"HAULS_MAX": 1, "UNSTORED_MAX": 1},
    files: {"ASK_PARTS_MAX": 1},
    messages: {"WANT_MAX": 2, "HEIGHTS_MAX": 2, "WELCOME_BYTES_MAX": 2_000},
}
"""What limits are then, by the module that has them."""


def is_narrow(seed: int) -> bool:
    return Random(f"narrow {seed}").randrange(NARROW_EVERY) == 0


@contextmanager
def room_for(seed: int) -> Iterator[None]:
    """Until the end of the block limits are low, if this seed is one of those."""
    before = [
        (module, name, value)
        for owner, low in (LOW.items() if is_narrow(seed) else ())
        for name in low
        for value in [getattr(owner, name)]
        for module in _who_goes_by(name, value)
    ]
    low = {name: value for one in LOW.values() for name, value in one.items()}
    for module, name, _ in before:
        setattr(module, name, low[name])
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _who_goes_by(name: str, value: int) -> list[object]:
    """Modules take the names of others' limits over."""
    modules = [module for key, module in sys.modules.items() if key.startswith(("zerochat.group", "zerochat.sim"))]
    return [module for module in modules if getattr(module, name, None) == value]


def narrowed(play: Callable[Concatenate[int, P], T]) -> Callable[Concatenate[int, P], T]:
    """Play a seed's history with the limits that it has."""

    def played(seed: int, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with room_for(seed):
            return play(seed, *args, **kwargs)

    return played
