"""DIDComm: DIDs, messages, envelopes, invitations and the interoperable protocols."""

from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.rfc0019 import Rfc0019Packer

__all__ = ["PACKERS"]

PACKERS[JwePacker.name] = JwePacker()
PACKERS[Rfc0019Packer.name] = Rfc0019Packer()
