"""At-most-once deliveries of Message Pickup 1.0: it has no acknowledgement, so what is delivered is deleted.

A replayed request must not delete further messages.
"""

from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Literal

from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.sessions import Session
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.tables import QueuedMessage, Recipient
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import pickup
from zerochat.didcomm.protocols.pickup import DELIVERY_BYTES_MAX, Parcel

BYTES_PER_REQUEST = 16 * 1024
"""Bytes of delivered envelopes that are charged as one request more."""
LISTED_MAX = 1_024
"""The oldest messages of a recipient, of which a request can name some by id."""


class Batches:
    """Deliveries of version 1.0."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        charge: Callable[[Recipient, int, int], bool],
        counts: Counter[str],
        random: Callable[[int], bytes],
    ) -> None:
        """`charge`: charges a cost to a recipient (at a time, UTC seconds); False: it exceeds its rate."""
        self._store, self._limits, self._charge = store, limits, charge
        self._counts, self._random = counts, random

    def batch(self, message: Message, recipient: Recipient, session: Session, now_s: int) -> Message | None:
        """The oldest messages, possibly none; None: it is a replay, or exceeds the rate. Raises Malformed."""
        found = self._store.fetch(recipient.id, pickup.read_delivery_request(message).limit)
        return self._deliver(message, recipient, fitting(found), "delivery", now_s, session)

    def listed(self, message: Message, recipient: Recipient, session: Session, now_s: int) -> Message | None:
        """The same with the messages of the requested ids."""
        names = set(pickup.read_list_request(message))
        found = [kept for kept in self._store.fetch(recipient.id, LISTED_MAX) if kept.id in names]
        return self._deliver(message, recipient, fitting(found), "list", now_s, session)

    def next_envelope(self, message: Message, recipient: Recipient, session: Session, now_s: int) -> bytes | None:
        """The oldest message itself; None: there is none, or as for `batch`."""
        found = self._store.fetch(recipient.id, 1)
        if not found or not self._is_paid(message, recipient, found, now_s, session):
            return None
        envelope = self._store.envelope(found[0])
        self._delete(recipient, [found[0].id], now_s)
        return envelope

    def _deliver(
        self,
        message: Message,
        recipient: Recipient,
        found: list[QueuedMessage],
        kind: Literal["delivery", "list"],
        now_s: int,
        session: Session,
    ) -> Message | None:
        if not self._is_paid(message, recipient, found, now_s, session):
            return None
        parcels = [Parcel(kept.id, self._store.envelope(kept)) for kept in found]
        while not pickup.is_deliverable(
            answer := pickup.delivery(parcels, self._random, thid=message.thread, version="1.0", kind=kind)
        ):
            parcels = parcels[
                : len(parcels) // 2
            ]  # fractions may be longer when they are encoded again; one envelope fits
        self._delete(recipient, [parcel.id for parcel in parcels], now_s)
        return answer

    def _is_paid(
        self, message: Message, recipient: Recipient, found: list[QueuedMessage], now_s: int, session: Session
    ) -> bool:
        """What cannot be returned on the same connection would be lost."""
        if not session.may_answer(message) or not self._store.is_fresh(recipient.id, message.id, now_s):
            return False
        return self._charge(recipient, sum(kept.bytes for kept in found) // BYTES_PER_REQUEST, now_s)

    def _delete(self, recipient: Recipient, names: list[str], now_s: int) -> None:
        self._counts["delivered"] += self._store.acknowledge(recipient.id, names, now_s + self._limits.dedupe_s)


def fitting(found: list[QueuedMessage]) -> list[QueuedMessage]:
    """The first ones that fit one delivery, at least one."""
    sizes = accumulate(pickup.delivery_size(kept.bytes) for kept in found)
    return found[: max(1, sum(size <= DELIVERY_BYTES_MAX for size in sizes))]
