"""The ring in rounds, vectorised with numpy: a million members, where events would take too long.

One round is one hop: all members that a message has reached in the last round forward it. The rule is written a second
time here, for arrays, so the hops of both are compared at a size that both can do. numpy comes with the extra
`analytics`; only the simulator imports it.
"""

from collections import Counter
from typing import Any

import numpy as np
from msgspec import Struct

from zerochat.overlay.forwarding import FAN_OUT
from zerochat.overlay.ring import SHORTCUT_RINGS


class RoundResult(Struct, frozen=True):
    """One message: how many members its first copy reached over so many hops, and all copies sent."""

    hops: dict[int, int]
    copies: int

    @property
    def deliveries(self) -> int:
        return sum(self.hops.values())

    @property
    def hops_mean(self) -> float:
        return sum(hops * members for hops, members in self.hops.items()) / max(1, self.deliveries)


class VectorRing:
    """The links of many members: the two ring neighbours, and the shortcuts by row, -1 where there is none. A random
    permutation is as good as the order of a hash."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.rng = np.random.default_rng([seed, nodes])
        self.ring = self._around(nodes)
        self.shortcuts = np.concatenate([self._around(nodes) for _ in range(SHORTCUT_RINGS)], axis=1)
        columns = self.shortcuts.shape[1]
        for column in range(columns):  # each link once, as in Links
            mine = self.shortcuts[:, column, None]
            taken = (self.ring == mine).any(axis=1) | (self.shortcuts[:, :column] == mine).any(axis=1)
            self.shortcuts[taken, column] = -1

    def _around(self, nodes: int) -> Any:
        """The next and the previous member of each on a random ring; int32, shape (nodes, 2)."""
        order = self.rng.permutation(nodes).astype(np.int32)
        links: Any = np.empty((nodes, 2), np.int32)
        links[order, 0], links[order, 1] = np.roll(order, -1), np.roll(order, 1)
        return links

    def disseminate(self, author: int, fan_out: int = FAN_OUT) -> RoundResult:
        """Send one message of this author to all."""
        seen: Any = np.zeros(len(self.ring), bool)
        seen[author] = True
        members, bearers = np.array([author], np.int32), np.array([-1], np.int32)
        hops, copies, round_ = Counter[int](), 0, 0
        while len(members):
            round_ += 1
            targets, senders = self._targets(members, bearers, fan_out)
            copies += len(targets)
            # Of the copies that come in one round, any may be the first.
            order = self.rng.permutation(len(targets))
            targets, first = np.unique(targets[order], return_index=True)
            new, first = ~seen[targets], order[first]
            members, bearers = targets[new], senders[first][new]
            seen[members] = True
            if len(members):
                hops[round_] = len(members)
        return RoundResult(dict(hops), copies)

    def _targets(self, members: Any, bearers: Any, fan_out: int) -> tuple[Any, Any]:
        """Whom these members send a message to that these have brought: targets, and the sender of each."""
        ring, shortcuts = self.ring[members], self.shortcuts[members]
        to_ring = ring != bearers[:, None]
        lots = self.rng.random(shortcuts.shape, np.float32)
        lots[(shortcuts == -1) | (shortcuts == bearers[:, None])] = 2
        ranks = np.argsort(np.argsort(lots, axis=1), axis=1)
        missing = fan_out - to_ring.sum(axis=1)
        to_shortcut = (ranks < missing[:, None]) & (lots < 2)
        senders = np.broadcast_to(members[:, None], ring.shape)[to_ring]
        others = np.broadcast_to(members[:, None], shortcuts.shape)[to_shortcut]
        return np.concatenate([ring[to_ring], shortcuts[to_shortcut]]), np.concatenate([senders, others])
