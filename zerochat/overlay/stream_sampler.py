"""Uniform sampling of a biased stream of peers, with a count-min sketch (URPS).

After Anceaume, Busnel and Sericola, "Uniform Node Sampling Service Robust against Collusions of Malicious Nodes" (DSN
2013), the knowledge-free strategy: a count-min sketch (Cormode and Muthukrishnan, 2005) estimates how often each id has
occurred, and an id enters a small memory with a probability that falls with its estimate. So an attacker that repeats
its ids gains nothing. Changed:

- An id enters with the least count of the non-zero cells over its estimate. The paper takes the least of all cells,
  which stays zero until every cell is hit, and so keeps the first ids for ever.
- That holds while the memory has room, too: or frequent ids would take the places of those that do not answer.
- The hashes are keyed: an attacker cannot choose ids that share the cells of a victim.
- An id enters once. Those that do not answer are forgotten, and counts are halved from time to time, so that the sample
  follows peers that come and go.

The share is per id: this does not stop an attacker with many identities. The sketch needs a quarter of a column for
each peer, so the default is for about 4,000.
"""

from array import array
from collections.abc import Callable
from struct import Struct
from typing import Final

from zerochat.crypto.primitives import blake2b_keyed
from zerochat.overlay.forwarding import sample

MEMORY: Final = 20
ROWS: Final = 10
COLUMNS: Final = 1024
"""40 kB of counters."""
DECAY_MS: Final = 3_600_000
"""Between two calls of `decay`."""
PURPOSE: Final = b"zerochat/urps/1"
COUNT_MAX: Final = 2**31
"""The counters are halved before one has more."""


class StreamSampler:
    """A count-min sketch and a memory of ids. `key`: 32 secret bytes; `random(n)` returns n random bytes."""

    def __init__(
        self,
        key: bytes,
        random: Callable[[int], bytes],
        memory: int = MEMORY,
        rows: int = ROWS,
        columns: int = COLUMNS,
    ) -> None:
        """At most 16 rows."""
        self.peers: list[str] = []
        """The sample, without repetition, in no order."""
        self._key, self._random, self._memory, self._columns = key, random, memory, columns
        self._hashes = Struct(f">{rows}I")
        self._cells = array("I", bytes(4 * rows * columns))
        self._least, self._with_least = 0, 0

    def observe(self, peer: str) -> bool:
        """Count one occurrence of an id in the stream; whether it has entered the sample."""
        estimate = self._count(peer)
        if peer in self.peers:
            return False
        if int.from_bytes(self._random(4), "big") * estimate >= self.least << 32:
            return False
        if len(self.peers) < self._memory:
            self.peers.append(peer)
        else:
            self.peers[int.from_bytes(self._random(4), "big") % len(self.peers)] = peer
        return True

    @property
    def least(self) -> int:
        """The least count of a cell that is not zero; 0 before the first id."""
        return self._least

    def _count(self, peer: str) -> int:
        """Add one to the cells of an id; its estimated number of occurrences."""
        cells, columns, least = self._cells, self._columns, self._least
        hashes = self._hashes.unpack(blake2b_keyed(self._key, PURPOSE, peer.encode(), length=self._hashes.size))
        places = [row * columns + lot % columns for row, lot in enumerate(hashes)]
        counts = [cells[place] + 1 for place in places]
        for place, count in zip(places, counts, strict=True):
            cells[place] = count
        if 1 in counts and least != 1:
            self._least, self._with_least = 1, counts.count(1)
        else:
            self._with_least += counts.count(1) * (least == 1) - counts.count(least + 1)
            if not self._with_least:
                self._find_least()
        estimate: int = min(counts)
        if estimate >= COUNT_MAX:
            self.decay()
        return estimate

    def _find_least(self) -> None:
        self._least = min(filter(None, self._cells), default=0)
        self._with_least = self._cells.count(self._least)

    def decay(self) -> None:
        """Halve all counts: what was long ago counts less."""
        self._cells = array("I", (count >> 1 for count in self._cells))
        self._find_least()

    def forget(self, peer: str) -> None:
        """Drop an id that does not answer. Without effect on one that is not in the sample."""
        if peer in self.peers:
            self.peers.remove(peer)

    def sample(self) -> str | None:
        """A random id of the sample; None while it is empty."""
        return next(iter(sample(list(self.peers), 1, self._random)), None)
