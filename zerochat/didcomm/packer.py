"""What every packer does: a plaintext becomes an envelope for one recipient, and an envelope a plaintext again.

Packers are siblings, one file each, registered by name in `PACKERS`; one contract test runs them all.
A packer knows keys, not people: whose a key is, and whether it may be used, is for the caller's `secret_of` and
`public_of` to say.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from zerochat.didcomm.did import same_did
from zerochat.didcomm.message import Message
from zerochat.errors import Unauthentic

ENVELOPE_BYTES_MAX = 512 * 1024
"""A plaintext of the greatest size (256 KiB) after base64, and generous headers."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What an envelope held. `sender_kid` is proven for authcrypt and None for anoncrypt."""

    plain: bytes = field(repr=False)
    kind: Literal["authcrypt", "anoncrypt"]
    sender_kid: str | None
    recipient_kid: str


class Packer(Protocol):
    """One wire format for envelopes."""

    name: ClassVar[str]
    """The media type profile, as a service's `accept` names it: `didcomm/v2`."""

    def authcrypt(
        self,
        plain: bytes,
        *,
        sender_kid: str,
        sender_secret: bytes,
        recipient_kid: str,
        recipient_public: bytes,
        random: Callable[[int], bytes],
    ) -> bytes:
        """An envelope that only the recipient opens, and that proves to the recipient alone who sent it.

        Raises Malformed for a plaintext of more than MESSAGE_BYTES_MAX bytes, Unauthentic for a recipient's key of low
        order.
        """
        ...

    def anoncrypt(
        self, plain: bytes, *, recipient_kid: str, recipient_public: bytes, random: Callable[[int], bytes]
    ) -> bytes:
        """An envelope that only the recipient opens, and that does not say who sent it. Raises like `authcrypt`."""
        ...

    def unpack(
        self, envelope: bytes, *, secret_of: Callable[[str], bytes | None], public_of: Callable[[str], bytes]
    ) -> Unpacked:
        """Open an envelope from a peer.

        `secret_of` gives the X25519 secret of a key id that is ours, None for any other; `public_of` gives the X25519
        key of a sender's key id, and raises a RemoteError where it knows or wants none. Raises Malformed for what is no
        envelope, and one and the same Unauthentic for whatever does not open.
        """
        ...


PACKERS: dict[str, Packer] = {}
"""Every packer by its name. The package registers those that it has, and simulations add their own."""


def check_addressing(message: Message, unpacked: Unpacked) -> None:
    """Raise Unauthentic unless an authcrypted message is `from` the DID whose key encrypted it.

    DIDComm v2.1, "Message Layer Addressing Consistency". An anoncrypted message proves no sender, whatever its `from`
    says. That `to` names us is not demanded: the specification asks for a warning only.
    """
    if unpacked.sender_kid is None:
        return
    sender = unpacked.sender_kid.partition("#")[0]
    if message.from_ is None or not same_did(message.from_, sender):
        raise Unauthentic()
