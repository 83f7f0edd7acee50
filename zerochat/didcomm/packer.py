"""Packer interface: plaintext to envelope for one recipient, and back.

Packers register by name in `PACKERS` and share a contract test. A packer handles keys, not identities: `secret_of` and
`public_of` of the caller decide on ownership and use. It also defines the encoding of messages, key ids and their
binding.
"""

from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct

from zerochat.crypto.encoding import b64url_bytes, strict_json
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import Document, Identity, same_did
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, Unauthentic

ENVELOPE_BYTES_MAX = 512 * 1024
"""The largest plaintext (256 KiB) in base64, with headers."""

Profile = Literal["didcomm/v1", "didcomm/v2"]


class OwnKey(Redacted, frozen=True):
    """An own key with the key id that envelopes name."""

    REDACTED = ("key",)

    kid: str
    key: SecretKey


class TheirKey(Struct, frozen=True):
    """A peer's key with the key id that envelopes name."""

    kid: str
    key: PublicKey


class Unpacked(NamedTuple):
    """Content of an envelope. `sender_kid` is proven for authcrypt and None for anoncrypt; `enc`: the envelope's name
    of the content encryption.

    A tuple for speed: a frozen dataclass took 3 % of the time of opening an envelope.
    """

    plain: bytes
    kind: Literal["authcrypt", "anoncrypt"]
    sender_kid: str | None
    recipient_kid: str
    enc: str
    forgeable: bool = False
    """Whether another recipient could have forged the content (RFC 0019 with several recipients)."""

    def __repr__(self) -> str:
        """Everything except the plaintext."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items() if name != "plain")
        return f"Unpacked({shown})"


class Packer(Protocol):
    """A wire format of messages and envelopes."""

    name: ClassVar[str]
    """Media type profile in a service's `accept`: `didcomm/v2`."""
    media_type: ClassVar[str]
    """Media type of the envelopes."""

    def __hash__(self) -> int:
        """Packers are stateless and may be cache keys."""
        ...

    def dump(self, message: Message) -> bytes:
        """Encode a message."""
        ...

    def parse(self, plain: bytes) -> Message:
        """Decode a plaintext. Raises Malformed."""
        ...

    def own_key(self, identity: Identity, did: str) -> OwnKey:
        """The own agreement key, named under `did` (either form) where the format names keys by DIDs."""
        ...

    def their_key(self, document: Document, did: str) -> TheirKey:
        """A peer's agreement key, named under `did` where possible: either form of the document's DID.

        Raises Malformed for a document without a usable key.
        """
        ...

    def authcrypt(self, plain: bytes, *, sender: OwnKey, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        """Encrypt for the recipient with sender authentication that only the recipient can verify.

        Raises Malformed for a plaintext of more than MESSAGE_BYTES_MAX bytes, Unauthentic for a recipient's key of low
        order, or of another curve than the sender's.
        """
        ...

    def anoncrypt(self, plain: bytes, *, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        """Encrypt for the recipient without naming the sender. Raises like `authcrypt`."""
        ...

    def unpack(
        self,
        envelope: bytes,
        *,
        secret_of: Callable[[str], SecretKey | None],
        public_of: Callable[[str], PublicKey],
    ) -> Unpacked:
        """Open an envelope from a peer.

        `secret_of` returns the secret of an own key id, None for others; `public_of` returns a sender's key by key id,
        or raises a RemoteError. Raises Malformed for an invalid envelope, and the same Unauthentic for every decryption
        failure.
        """
        ...

    def check_sender(self, message: Message, unpacked: Unpacked, resolve: Callable[[str], Document]) -> str:
        """The proven DID of the sender of an authcrypted message, in the envelope's form.

        Raises Unauthentic if message and envelope contradict, or the envelope proves no sender.
        """
        ...


PACKERS: dict[str, Packer] = {}
"""Packers by name. The package registers its own; simulations add others."""


def check_addressing(message: Message, unpacked: Unpacked) -> None:
    """Raise Unauthentic unless an authcrypted message is `from` the DID whose key encrypted it.

    DIDComm v2.1, "Message Layer Addressing Consistency". An anoncrypted message proves no sender, regardless of its
    `from`. `to` is not checked: the specification asks for a warning only.
    """
    if unpacked.sender_kid is None:
        return
    sender = unpacked.sender_kid.partition("#")[0]
    if message.from_ is None or not same_did(message.from_, sender):
        raise Unauthentic()


def envelope_kind(envelope: bytes) -> Profile:
    """The wire format of an envelope, by its shape only. Raises Malformed for an unknown one.

    RFC 0019 has the recipients in the protected header, with type JWM/1.0; DIDComm v2 has them outside, or a single
    flattened one, with an ECDH algorithm.
    """
    return _recognized(envelope)[0]


def addressed_to(envelope: bytes) -> tuple[Profile, tuple[str, ...]]:
    """The wire format and the recipients' key ids of an envelope, unauthenticated. Raises Malformed."""
    kind, tree = _recognized(envelope)
    listed = tree.get("recipients", [tree])
    kids = []
    for entry in listed if isinstance(listed, list) else []:
        kid = _members(_members(entry).get("header")).get("kid")
        if isinstance(kid, str):
            kids.append(kid)
    return kind, tuple(kids)


def _recognized(envelope: bytes) -> tuple[Profile, dict[str, object]]:
    """The wire format, and the JSON object with the recipients."""
    tree = _members(strict_json(envelope, ENVELOPE_BYTES_MAX))
    protected = tree.get("protected")
    if not isinstance(protected, str):
        raise Malformed(why="envelope: no protected header")
    header = _members(strict_json(b64url_bytes(protected), ENVELOPE_BYTES_MAX))
    outside, inside = "recipients" in tree or "encrypted_key" in tree, "recipients" in header
    algorithm = header.get("alg")
    if outside and not inside and isinstance(algorithm, str) and algorithm.startswith("ECDH-"):
        return "didcomm/v2", tree
    if inside and not outside and header.get("typ") == "JWM/1.0":
        return "didcomm/v1", header
    raise Malformed(why="an envelope of an unknown format")


def _members(value: object) -> dict[str, object]:
    """The non-null members: common libraries write null for absent."""
    if not isinstance(value, dict):
        raise Malformed(why="envelope: not an object")
    return {name: member for name, member in value.items() if member is not None}
