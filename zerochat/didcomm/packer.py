"""What every packer does: a plaintext becomes an envelope for one recipient, and an envelope a plaintext again.

Packers are siblings, one file each, registered by name in `PACKERS`; one contract test runs them all.
A packer knows keys, not people: whose a key is, and whether it may be used, is for the caller's `secret_of` and
`public_of` to say. It also knows how its wire format writes a message, names a key and ties the two together.
"""

from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct

from zerochat.crypto.encoding import b64url_bytes, strict_json
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.did import Document, Identity, same_did
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, Unauthentic

ENVELOPE_BYTES_MAX = 512 * 1024
"""A plaintext of the greatest size (256 KiB) after base64, and generous headers."""

Profile = Literal["didcomm/v1", "didcomm/v2"]


class OwnKey(Veiled, frozen=True):
    """A key of ours under the id that its envelopes shall name."""

    VEILED = ("key",)

    kid: str
    key: SecretKey


class TheirKey(Struct, frozen=True):
    """A peer's key under the id that its envelopes shall name."""

    kid: str
    key: PublicKey


class Unpacked(NamedTuple):
    """What an envelope held. `sender_kid` is proven for authcrypt and None for anoncrypt; `enc` is the envelope's own
    name of the content encryption.

    A tuple is made in a quarter of the time of a frozen dataclass, which took 3 % of opening an envelope.
    """

    plain: bytes
    kind: Literal["authcrypt", "anoncrypt"]
    sender_kid: str | None
    recipient_kid: str
    enc: str
    forgeable: bool = False
    """Whether any other recipient could have put other content under the same sender's name: RFC 0019, to several."""

    def __repr__(self) -> str:
        """All but what was said."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items() if name != "plain")
        return f"Unpacked({shown})"


class Packer(Protocol):
    """One wire format for messages and their envelopes."""

    name: ClassVar[str]
    """The media type profile, as a service's `accept` names it: `didcomm/v2`."""
    media_type: ClassVar[str]
    """The media type of its envelopes."""

    def __hash__(self) -> int:
        """Packers have no state and may be keys of a cache."""
        ...

    def dump(self, message: Message) -> bytes:
        """The plaintext of a message."""
        ...

    def parse(self, plain: bytes) -> Message:
        """The message of a plaintext. Raises Malformed."""
        ...

    def own_key(self, identity: Identity, did: str) -> OwnKey:
        """The key of ours to agree with; named, where the format names keys by DIDs, under `did`, of either form."""
        ...

    def their_key(self, document: Document, did: str) -> TheirKey:
        """The key of a peer to agree with; named, where that can be, under `did`: either form of the document's DID.

        Raises Malformed for a document without a key that this format can use.
        """
        ...

    def authcrypt(self, plain: bytes, *, sender: OwnKey, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        """An envelope that only the recipient opens, and that proves to the recipient alone who sent it.

        Raises Malformed for a plaintext of more than MESSAGE_BYTES_MAX bytes, Unauthentic for a recipient's key of low
        order, or of another curve than the sender's.
        """
        ...

    def anoncrypt(self, plain: bytes, *, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        """An envelope that only the recipient opens, and that does not say who sent it. Raises like `authcrypt`."""
        ...

    def unpack(
        self,
        envelope: bytes,
        *,
        secret_of: Callable[[str], SecretKey | None],
        public_of: Callable[[str], PublicKey],
    ) -> Unpacked:
        """Open an envelope from a peer.

        `secret_of` gives the secret of a key id that is ours, None for any other; `public_of` gives the key of a
        sender's key id, and raises a RemoteError where it knows or wants none. Raises Malformed for what is no
        envelope, and one and the same Unauthentic for whatever does not open.
        """
        ...

    def check_sender(self, message: Message, unpacked: Unpacked, resolve: Callable[[str], Document]) -> str:
        """The DID that an authcrypted message is from, as its envelope proves it; in the form that the envelope has.

        Raises Unauthentic where the two do not fit, and for an envelope that proves no sender.
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


def envelope_kind(envelope: bytes) -> Profile:
    """Which wire format an envelope is in, by its shape alone. Raises Malformed for what is neither.

    RFC 0019 keeps the recipients in the protected header, under the type JWM/1.0. DIDComm v2 keeps them outside, or has
    a single one flattened into the envelope, and says ECDH.
    """
    return _recognized(envelope)[0]


def addressed_to(envelope: bytes) -> tuple[Profile, tuple[str, ...]]:
    """The wire format of an envelope, and the key ids that it says it is for. Nothing of it is trusted. Raises
    Malformed."""
    kind, tree = _recognized(envelope)
    listed = tree.get("recipients", [tree])
    kids = []
    for entry in listed if isinstance(listed, list) else []:
        kid = _members(_members(entry).get("header")).get("kid")
        if isinstance(kid, str):
            kids.append(kid)
    return kind, tuple(kids)


def _recognized(envelope: bytes) -> tuple[Profile, dict[str, object]]:
    """The wire format of an envelope, and the object of it in which the recipients stand."""
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
    raise Malformed(why="an envelope of neither format")


def _members(value: object) -> dict[str, object]:
    """The members that are not null: real libraries write null for absent."""
    if not isinstance(value, dict):
        raise Malformed(why="envelope: not an object")
    return {name: member for name, member in value.items() if member is not None}
