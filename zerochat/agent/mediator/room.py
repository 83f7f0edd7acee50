"""Room for stored messages: the shares of a recipient's DIDs, and the eviction of the oldest."""

from collections import Counter

from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.tables import Registration


class Room:
    def __init__(self, store: Store, limits: Limits, counts: Counter[str]) -> None:
        self._store, self._limits, self._counts = store, limits, counts

    def make(self, registration: Registration, size: int, *, stays: bool, is_delayed: bool) -> bool:
        """Whether a message of so many bytes may be stored for a DID, after evicting the oldest messages of the same
        DID. Delayed and relayed messages (`stays`) evict none.

        The result depends on this DID and the mediator's total only, never on other DIDs of the recipient: otherwise
        the receipts would reveal to a sender which DIDs belong together. Where they exceed the recipient's limits
        together, as when it has registered more since they were filled, the largest one shrinks: of its delayed and
        relayed messages, as long as all of these take more than one part in `delayed_part`.
        """
        store, limits, did = self._store, self._limits, registration.did
        shares = max(limits.shares_min, 1 << (store.shares(registration.recipient) - 1).bit_length())
        left = max(limits.total_bytes - store.usage.total.bytes + store.usage.of_did(did).bytes, 0)
        share = max(limits.bytes // shares, min(limits.envelope_bytes, limits.bytes))
        share = min(share, share * 4 * left // limits.total_bytes, left)
        messages = max(limits.messages // shares, 1)
        aside, part = store.usage.delayed_of_did(did), limits.delayed_part
        if size > share or (
            is_delayed and (aside.messages >= max(messages // part, 1) or aside.bytes + size > share // part)
        ):
            return False
        while (used := store.usage.of_did(did)).bytes + size > share or used.messages >= messages:
            if stays or not store.evict_oldest(registration):
                return False
            self._counts["dropped.oldest"] += 1
        whole, waiting = (used[registration.recipient] for used in (store.usage.recipients, store.usage.delayed))
        while whole.bytes + size > limits.bytes or whole.messages >= limits.messages:
            crowded = waiting.bytes * part > limits.bytes or waiting.messages * part > limits.messages
            if not store.evict_from_largest(registration.recipient, delayed=crowded):
                break
            self._counts["dropped.oldest"] += 1
        return True
