"""What the bytes mean: DIDs, messages, envelopes, invitations, and the exchange that makes a relationship of them."""

from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.packer import PACKERS

__all__ = ["PACKERS"]

PACKERS[JwePacker.name] = JwePacker()
