"""The dialled links of all nodes, by what they lead to: a frame or a new link costs no scan of the whole world."""

from collections.abc import Iterator
from functools import lru_cache

from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.effects import AllowClient, Dial
from zerochat.sim.node import Node

public_of = lru_cache(4096)(x25519_public)
"""The public key of a secret; called for every frame."""

Order = tuple[int, int]
"""The number of the node and of the dial: a sorted scan visits the dials as a loop over all nodes would."""


class DialIndex:
    """Where each dial of each node leads.

    A node's `dialled` may lose entries at any time: what is no longer there is skipped, and dropped when it is found.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._serial = 0
        self._orders: dict[tuple[str, bytes], Order] = {}
        """By node and link."""
        self._dials: dict[Order, tuple[Node, Dial]] = {}
        self._by_queue: dict[bytes, set[Order]] = {}
        self._by_pair: dict[Endpoint, set[Order]] = {}
        self._by_client: dict[tuple[bytes, Endpoint], set[Order]] = {}
        """By the client's public key and the address that it dials."""
        self._client_keys: dict[tuple[str, bytes], set[bytes]] = {}
        """By node and link: the client keys that it has ever allowed for the link."""
        self._unsettled: set[Order] = set()
        self._refused: set[Order] = set()
        """Dials that lead to no node that accepts them: tried again once one does."""

    def add_node(self, node: Node) -> None:
        """One more node, with all that it has dialled and allows."""
        self._numbers.setdefault(node.name, len(self._numbers))
        for dial in node.dialled.values():
            self.add(node, dial)
        for allowed in node.allowed_clients.values():
            self.allow(node, allowed)

    def add(self, node: Node, dial: Dial) -> None:
        """A node dials. Called before its `dialled` has the link, which keeps its place there if it had it already."""
        name = node.name, dial.link
        order = self._orders.get(name)
        if order is not None:
            self._drop(order)
        if order is None or dial.link not in node.dialled:
            self._serial += 1
            order = self._numbers.setdefault(node.name, len(self._numbers)), self._serial
        self._orders[name], self._dials[order] = order, (node, dial)
        for places in self._places(dial):
            places.add(order)
        self._unsettle({order})

    def allow(self, node: Node, allowed: AllowClient) -> None:
        """A node allows a client: its dials may succeed now."""
        self._client_keys.setdefault((node.name, allowed.link), set()).add(allowed.client_key)
        self._unsettle(self._by_client.get((allowed.client_key, node.address), set()))

    def disconnected(self, node: Node, link: bytes) -> None:
        """A node has lost a connection: its dial, or one to it, may succeed again."""
        if (order := self._orders.get((node.name, link))) is not None:
            self._unsettle({order})
        self._unsettle(self._by_pair.get(node.address, set()))

    def settle(self, node: Node, link: bytes) -> None:
        """This dial is connected at both ends."""
        self._unsettled.discard(self._orders[node.name, link])

    def refuse(self, node: Node, link: bytes) -> None:
        """This dial leads to no node that accepts it now."""
        order = self._orders[node.name, link]
        self._unsettled.discard(order)
        self._refused.add(order)

    def retry(self) -> None:
        """Refused dials may succeed now, without a change that this index knows of."""
        self._unsettle(self._refused)

    def _unsettle(self, orders: set[Order]) -> None:
        self._unsettled |= orders
        self._refused -= orders

    def unsettled(self) -> list[tuple[Node, bytes]]:
        """The dials that may not be connected at both ends, without those refused, in order."""
        return list(self._live(self._unsettled))

    def subscribers(self, queue: bytes, queue_at: Endpoint) -> list[tuple[Node, bytes]]:
        """The dials that subscribe to a queue at this address."""
        found = self._live(self._by_queue.get(queue, set()))
        return [(node, link) for node, link in found if node.dialled[link].queue_at == queue_at]

    def of_client(self, client_key: bytes, pair: Endpoint) -> list[tuple[Node, bytes]]:
        """The dials with this key to this address."""
        return list(self._live(self._by_client.get((client_key, pair), set())))

    def over(self, node: Node, link: bytes) -> list[tuple[Node, bytes]]:
        """The dials of clients that a node has ever allowed for this link of its."""
        orders = set[Order]()
        for key in self._client_keys.get((node.name, link), ()):
            orders |= self._by_client.get((key, node.address), set())
        return list(self._live(orders))

    def _live(self, orders: set[Order]) -> Iterator[tuple[Node, bytes]]:
        for order in sorted(orders):
            node, dial = self._dials[order]
            if node.dialled.get(dial.link) is dial:
                yield node, dial.link
            else:
                del self._orders[node.name, dial.link]
                self._drop(order)

    def _drop(self, order: Order) -> None:
        _, dial = self._dials.pop(order)
        for places in self._places(dial):
            places.discard(order)
        self._unsettled.discard(order)
        self._refused.discard(order)

    def _places(self, dial: Dial) -> Iterator[set[Order]]:
        for queue in dial.queues:
            yield self._by_queue.setdefault(queue, set())
        yield self._by_pair.setdefault(dial.pair, set())
        yield self._by_client.setdefault((public_of(dial.client_secret), dial.pair), set())
