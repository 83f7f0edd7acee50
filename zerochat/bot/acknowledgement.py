"""Which items have been told, which are handled, and how far that may be acknowledged. Pure: no clock, no wire."""

from collections import deque


class Intake:
    """An acknowledgement says that *everything* up to a number is handled; groups are handled side by side. So what may
    be acknowledged is the last number before the first one that is not handled yet."""

    def __init__(self) -> None:
        self._told: deque[int] = deque()
        """Over this connection, and not acknowledged, in order."""
        self._begun: set[int] = set()
        """Given to a handler, and not yet handled."""
        self._done: set[int] = set()
        """Handled, and not acknowledged."""

    def reconnected(self) -> None:
        """From here on everything that is not acknowledged is told again."""
        self._told.clear()

    def told(self, seq: int) -> bool:
        """An item has come. True: somebody must handle it; False: it is at work, or handled, already."""
        if not self._told:
            self._done = {one for one in self._done if one >= seq}  # what is below was acknowledged
        self._told.append(seq)
        if seq in self._begun or seq in self._done:
            return False
        self._begun.add(seq)
        return True

    def handled(self, seq: int) -> None:
        self._begun.discard(seq)
        self._done.add(seq)

    def dropped(self, seq: int) -> None:
        """Nobody will handle it any more in this run: it is neither done, nor at work."""
        self._begun.discard(seq)

    def ready(self) -> int | None:
        """The highest number that may be acknowledged; None: nothing new. It is not given a second time."""
        upto = None
        while self._told and self._told[0] in self._done:
            upto = self._told.popleft()
        return upto

    def acknowledged(self, upto: int) -> None:
        """The agent has it on disk that everything up to this number is handled."""
        self._done = {one for one in self._done if one > upto}

    @property
    def held(self) -> int:
        """How many items were told, over this connection, that are not given out for acknowledgement."""
        return len(self._told)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last number of these; (0, 0): there is none."""
        return (self._told[0], self._told[-1]) if self._told else (0, 0)

    @property
    def idle(self) -> bool:
        """Nothing is told that is not handled and given out for acknowledgement."""
        return not self._told and not self._begun
