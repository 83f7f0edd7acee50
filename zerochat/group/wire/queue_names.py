"""The names of queues: 32 bytes that say nothing to whoever is not meant to read them.

All of one length, so that no name is a prefix of another's (ZeroMQ subscriptions are prefixes), and all known from the
membership events alone, so that a newcomer subscribes with the first packet that it sends anybody.
"""

from functools import lru_cache

from zerochat.crypto.encoding import canonical_json
from zerochat.crypto.primitives import hkdf_sha256, sha256, x25519_static


@lru_cache(maxsize=1024)
def state_queue(group: str, publisher: str) -> bytes:
    """What a publisher says to everybody about the group itself. Its name follows from the group's id, which is known
    to members and to whoever they have invited."""
    return sha256(canonical_json(["zerochat/queue/1", "state", group, publisher]))


@lru_cache(maxsize=1024)
def data_queue(group: str, publisher: str) -> bytes:
    """Where a publisher posts for all members at once (the thesis' single-queue mode)."""
    return sha256(canonical_json(["zerochat/queue/1", "data", group, publisher]))


@lru_cache(maxsize=8192)
def pair_queue(secret: bytes, public: bytes, group: str, publisher: str, subscriber: str) -> bytes:
    """Where a publisher posts for one member alone (multiple-queue mode): derived from what the two members' transport
    keys share, `secret` our own and `public` the other one's, so that no third member knows the name."""
    shared = x25519_static(secret, public)
    return hkdf_sha256(shared, f"zerochat/queue/1\n{group}\n{publisher}\n{subscriber}".encode())
