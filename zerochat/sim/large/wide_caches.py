"""Memos of the core that fit many agents: in reality each has a process, and memos, of its own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from zerochat.group.membership.resolve import RecentCache

ENTRIES_EACH = 2
"""Results that a memo keeps of each agent: the present one, and the one before."""


@contextmanager
def wide_caches(agents: int) -> Iterator[None]:
    """Let every `RecentCache` of the core fit so many agents within the block.

    With more groups in one process than a memo holds, each step of each agent would compute its membership anew.
    """
    caches = [
        value
        for name, module in list(sys.modules.items())
        if name.startswith("zerochat.group")
        for value in vars(module).values()
        if isinstance(value, RecentCache)
    ]
    sizes = {id(cache): cache.most for cache in caches}
    for cache in caches:
        cache.most = max(sizes[id(cache)], ENTRIES_EACH * agents)
    try:
        yield
    finally:
        for cache in caches:
            cache.most = sizes[id(cache)]
