"""Overlay routing: the Overlay protocol and the full mesh (one hop).

An overlay selects neighbours and hops by DID; it sees neither keys nor content.
"""

from collections.abc import Collection
from typing import Protocol


class Overlay(Protocol):
    """Routes an envelope through a group, hop by hop."""

    name: str

    def first_hops(self, me: str, destination: str, members: Collection[str]) -> tuple[str, ...]:
        """First hops of an envelope from author `me` to `destination`."""
        ...

    def next_hops(self, me: str, origin: str, destination: str, members: Collection[str]) -> tuple[str, ...]:
        """Next hops of an envelope that `me` relays; empty: it ends here."""
        ...


class Mesh:
    """Full mesh: one hop from publisher to subscriber, no relaying."""

    name = "mesh"

    def first_hops(self, me: str, destination: str, members: Collection[str]) -> tuple[str, ...]:
        return (destination,) if destination in members and destination != me else ()

    def next_hops(self, me: str, origin: str, destination: str, members: Collection[str]) -> tuple[str, ...]:
        return ()


OVERLAYS: dict[str, Overlay] = {Mesh.name: Mesh()}
"""Overlays by the name in a group's genesis event."""
