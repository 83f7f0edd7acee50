"""Low limits in some runs, so that behaviour at the limits is tested.

Real limits (64 events per retransmission, 256 buffered events) are never reached within the seconds of an episode.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Concatenate, ParamSpec, TypeVar

from zerochat.group.event_log import delivery
from zerochat.group.files import download
from zerochat.group.joining import evidence
from zerochat.group.links import outbox
from zerochat.group.signed_streams import receiver
from zerochat.group.state import chains
from zerochat.group.sync import (
    acknowledgements,
    anti_entropy,
    backfill,
    fork_detection,
    history_requests,
    positions,
    stale_profile,
)
from zerochat.group.wire import files, messages

P = ParamSpec("P")
T = TypeVar("T")
LOW_LIMITS_EVERY = 6
"""One seed of so many."""
LOW: Mapping[object, Mapping[str, int]] = {
    acknowledgements: {"RETRANSMIT_EVENTS_MAX": 3},
    anti_entropy: {"VIEW_PEERS_MAX": 1},
    delivery: {"BUFFER_EVENTS_MAX": 6, "BLOCKED_MAX": 3, "BLOCKED_TOTAL_MAX": 6},
    outbox: {"RETRANSMISSION_BYTES_MAX": 600},
    history_requests: {"RESPONSE_EVENTS_MAX": 3},
    backfill: {"PEERS_MAX": 2},
    positions: {"WHOLE_MAX": 2, "PART_MAX": 1},
    chains: {"LATEST_AUTHORS_MAX": 1},
    stale_profile: {"EVENTS_MAX": 3},
    fork_detection: {"LOOKUPS_MAX": 3},
    receiver: {"EARLY_MAX": 2},
    download: {"DOWNLOADS_MAX": 1, "UNSTORED_MAX": 1},
    files: {"REQUEST_PARTS_MAX": 1},
    evidence: {"SLICE_WORK_US": 700},
    messages: {"RANGES_MAX": 2, "FORMER_MAX": 2, "WELCOME_BYTES_MAX": 2_000},
}
"""The low limits, by the module that defines them."""


def has_low_limits(seed: int) -> bool:
    return Random(f"narrow {seed}").randrange(LOW_LIMITS_EVERY) == 0


@contextmanager
def low_limits_for(seed: int) -> Iterator[None]:
    """Apply the low limits within the block, if this seed has them."""
    before = [
        (module, name, value)
        for owner, low in (LOW.items() if has_low_limits(seed) else ())
        for name in low
        for value in [getattr(owner, name)]
        for module in _modules_with_limit(name, value)
    ]
    low = {name: value for one in LOW.values() for name, value in one.items()}
    for module, name, _ in before:
        setattr(module, name, low[name])
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _modules_with_limit(name: str, value: int) -> list[object]:
    """The modules that define or import this limit."""
    modules = [module for key, module in sys.modules.items() if key.startswith(("zerochat.group", "zerochat.sim"))]
    return [module for module in modules if getattr(module, name, None) == value]


def with_low_limits(play: Callable[Concatenate[int, P], T]) -> Callable[Concatenate[int, P], T]:
    """Run a seed's history with its limits."""

    def played(seed: int, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with low_limits_for(seed):
            return play(seed, *args, **kwargs)

    return played
