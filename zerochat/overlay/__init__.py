"""Who carries the bytes: the Overlay protocol, and the full mesh in which everybody reaches everybody directly.

An overlay decides only between neighbours and hops; it sees neither keys nor content, and knows members by their DID.
"""

from collections.abc import Collection
from typing import Protocol


class Overlay(Protocol):
    """The way of one envelope through a group, hop by hop."""

    name: str

    def first_hops(self, me: str, destination: str, members: Collection[str]) -> tuple[str, ...]:
        """The neighbours to which the author `me` hands an envelope meant for `destination`."""
        ...

    def next_hops(self, me: str, origin: str, destination: str, members: Collection[str]) -> tuple[str, ...]:
        """The neighbours to which `me` passes on an envelope that is not its own; empty where it ends."""
        ...


class Mesh:
    """The thesis' path: one hop, from the publisher to the subscriber; nobody carries for anybody else."""

    name = "mesh"

    def first_hops(self, me: str, destination: str, members: Collection[str]) -> tuple[str, ...]:
        return (destination,) if destination in members and destination != me else ()

    def next_hops(self, me: str, origin: str, destination: str, members: Collection[str]) -> tuple[str, ...]:
        return ()


OVERLAYS: dict[str, Overlay] = {Mesh.name: Mesh()}
"""Every overlay by the name that a group's genesis event gives."""
