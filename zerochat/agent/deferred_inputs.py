"""Connectivity changes of batches that could not be committed, until they are processed again."""

import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from zerochat.group.inputs import Input, LinkDown, LinkUp, Started, WebSocketDown, WebSocketUp

RETRY_MS: Final = 5_000
"""Delay before timers and link states of a batch that could not be committed (a full disk) are processed again."""

Connectivity: TypeAlias = LinkUp | LinkDown | WebSocketUp | WebSocketDown | Started
"""Inputs that no peer retransmits: the loop repeats them itself after a failed commit."""


class DeferredConnectivity:
    """The last connectivity input of each link that could not be committed, with the time of the next attempt."""

    def __init__(self) -> None:
        self._waiting: dict[bytes | str | None, tuple[float, Connectivity]] = {}

    def put(self, change: Connectivity) -> None:
        self._waiting[_link_of(change)] = time.monotonic() + RETRY_MS / 1000, change

    def supersede(self, newer: Input) -> None:
        """Forget a waiting change of the link that this input changes: it was in the queue, and is newer."""
        if isinstance(newer, LinkUp | LinkDown | WebSocketUp | WebSocketDown):
            self._waiting.pop(_link_of(newer), None)

    def replace_older(self, inputs: Iterable[Input]) -> Iterator[Input]:
        """The inputs without the changes of links that have an older change waiting: they take its place."""
        for each in inputs:
            if isinstance(each, LinkUp | LinkDown | WebSocketUp | WebSocketDown) and _link_of(each) in self._waiting:
                self._waiting[_link_of(each)] = self._waiting[_link_of(each)][0], each
            else:
                yield each

    def pop_due(self, now: float) -> list[Input]:
        """The changes of links that are due."""
        due = [link for link, (at, _) in self._waiting.items() if link is not None and at <= now]
        return [self._waiting.pop(link)[1] for link in due]

    def pop_start(self, now: float, *, needed: bool) -> list[Input]:
        """The `Started` input where it waits and is due or `needed`."""
        at, change = self._waiting.get(None, (0.0, None))
        if change is None or not (needed or at <= now):
            return []
        del self._waiting[None]
        return [change]


def _link_of(change: Connectivity) -> bytes | str | None:
    """The link that changed; None for `Started`."""
    match change:
        case Started():
            return None
        case WebSocketUp(uri) | WebSocketDown(uri):
            return uri
        case _:
            return change.link
