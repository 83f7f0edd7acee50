"""Queue names: 32 pseudorandom bytes, derived from keys, that only the intended subscribers can compute.

All have one length, so none is a prefix of another (ZeroMQ subscriptions are prefixes), and follow from the membership
events alone, so a joiner subscribes with its first packet.
"""

from functools import lru_cache

from zerochat.crypto.encoding import canonical_json
from zerochat.crypto.primitives import hkdf_sha256, sha256, x25519_static


@lru_cache(maxsize=1024)
def state_queue(group: str, publisher: str) -> bytes:
    """The queue of a publisher's status broadcasts. Its name follows from the group's id, which members and invitees
    know."""
    return sha256(canonical_json(["zerochat/queue/1", "state", group, publisher]))


@lru_cache(maxsize=1024)
def data_queue(group: str, publisher: str) -> bytes:
    """The queue of a publisher's posts for all members (the thesis' single-queue mode)."""
    return sha256(canonical_json(["zerochat/queue/1", "data", group, publisher]))


@lru_cache(maxsize=8192)
def pair_queue(secret: bytes, public: bytes, group: str, publisher: str, subscriber: str) -> bytes:
    """The queue of a publisher's posts for one member (multiple-queue mode). `secret` is our transport key and `public`
    the other's: no third member can compute the name."""
    shared = x25519_static(secret, public)
    return hkdf_sha256(shared, f"zerochat/queue/1\n{group}\n{publisher}\n{subscriber}".encode())
