"""Ablations of the stream sampler."""

from zerochat.overlay.stream_sampler import COUNT_MAX, MEMORY, StreamSampler


class LeastOfAllCells(StreamSampler):
    """As in the paper: the memory takes the first ids; then the least of all cells counts, also of those with zero."""

    @property
    def least(self):
        if len(self.peers) < MEMORY:
            return COUNT_MAX
        return 0 if 0 in self._cells else self._least


class AlwaysEnters(StreamSampler):
    """Without a sketch: ids enter as often as they occur."""

    least = 1

    def _count(self, peer):
        return 1


class NoSampler(StreamSampler):
    """CYCLON alone: nothing is sampled, so its view serves as the sample."""

    def observe(self, peer):
        return False
