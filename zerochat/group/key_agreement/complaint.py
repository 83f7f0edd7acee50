"""A complaint: the proof that an insider has sent a member another seed than it has committed to.

The event's signature covers the commitment and the root of the direct messages, so event, direct message and the
AEAD key of that message prove it to any third party. The AEAD key opens no other message. A direct message that
does not open at all proves nothing; the recipient asks the other members for their ratchets.
"""

from msgspec import Struct

from zerochat.crypto.primitives import equal
from zerochat.crypto.two_party import body_of
from zerochat.errors import Refused
from zerochat.group.key_agreement.key_event import Direct, KeyEvent
from zerochat.group.key_agreement.key_schedule import commitment


class Complaint(Struct, frozen=True):
    """An update, a direct message of it, and the AEAD key of that message."""

    event: KeyEvent
    direct: Direct
    key: bytes

    def check(self) -> str:
        """The author that the proof convicts. Raises Unauthentic, Malformed, or Refused where it proves nothing."""
        self.event.check_signature()
        self.direct.check(self.event)
        seed = body_of(self.direct.message, self.key)
        if not self.event.is_update or equal(commitment(seed), self.event.commitment):
            raise Refused(why="a complaint about a correct seed")
        return self.event.author
