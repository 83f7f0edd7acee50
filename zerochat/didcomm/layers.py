"""The layers around a message: which of them may lie in which, and whether they agree on who speaks to whom.

DIDComm v2.1 knows seven forms and no others ("IANA Media Types"): plain, sign, anon, auth, anon(sign), auth(sign) and
anon(auth). Here the plain one is opened only on request, and auth(sign), which adds nothing, is read and not written.
What a packer or a signature proves is a key; this module asks the DIDs' documents whether the key may be used so, and
compares the answers with the message's `from` and `to` ("Message Layer Addressing Consistency").

To the outside all of that has one error. Malformed is only what anybody can see: that the outermost layer has not the
shape of one. Whatever comes after, a wrong key, an inner layer that makes no sense, a `from` that does not fit, is the
same Unauthentic; its cause is kept for whoever debugs.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import strict_json
from zerochat.crypto.keys import PublicKey, SecretKey, public_of
from zerochat.didcomm import jws
from zerochat.didcomm.did import Document, same_did
from zerochat.didcomm.message import Message, dump, parse
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, PACKERS, OwnKey, Packer, Profile, TheirKey, Unpacked
from zerochat.errors import Malformed, RemoteError, Unauthentic

SecretOf: TypeAlias = Callable[[str], SecretKey | None]
Resolve: TypeAlias = Callable[[str], Document]


class MediaType(StrEnum):
    """The formats of a message, each with its IANA media type."""

    PLAIN = "application/didcomm-plain+json"
    SIGNED = "application/didcomm-signed+json"
    ENCRYPTED = "application/didcomm-encrypted+json"
    ENCRYPTED_V1 = "application/didcomm-envelope-enc"
    """RFC 0019 (Aries RFC 0044 has the media type)."""


EXTENSION_OF: Mapping[MediaType, str] = {
    MediaType.PLAIN: ".dcpm",
    MediaType.SIGNED: ".dcsm",
    MediaType.ENCRYPTED: ".dcem",
    MediaType.ENCRYPTED_V1: ".dcem",
}
"""What a file is called that holds a message. The content decides what it is, not the name."""


def media_type_of(data: bytes) -> MediaType:
    """What the bytes are, by their outermost members alone. Raises Malformed for what is none of the formats."""
    if data.startswith(_ENVELOPE) and data.startswith(_RECIPIENTS, data.find(b'"', len(_ENVELOPE))):
        return MediaType.ENCRYPTED
    tree = strict_json(data, ENVELOPE_BYTES_MAX)
    members = {name for name, value in tree.items() if value is not None} if isinstance(tree, dict) else set()
    if "protected" in members and members & {"recipients", "encrypted_key"}:
        return MediaType.ENCRYPTED
    if {"protected", "iv"} <= members:
        return MediaType.ENCRYPTED_V1
    if "payload" in members and members & {"signatures", "signature"}:
        return MediaType.SIGNED
    if {"id", "type"} <= members:
        return MediaType.PLAIN
    raise Malformed(why="no message in any of DIDComm's formats")


_ENVELOPE, _RECIPIENTS = b'{"protected":"', b'","recipients":[{'
"""How most libraries begin an encrypted message: to see that much takes no parsing, which is for the packer to do."""


# --- opening --------------------------------------------------------------------------------------------------------


class Layer(Struct, frozen=True):
    """One layer that was taken off, with what it proved."""

    kind: Literal["authcrypt", "anoncrypt", "signed"]
    algorithm: str
    """The content encryption, or the kind of signature: `A256CBC-HS512`, `EdDSA`."""
    sender_kid: str | None
    """The sender's or signer's key id; None for anoncrypt."""
    recipient_kid: str | None


class Opened(Struct, frozen=True):
    """A message without its layers, the outermost first, and what they prove.

    `message.from_` is proven if, and only if, there is a `sender` or a `signer`; a message of version 1 may have a
    sender and no `from`.
    """

    message: Message
    layers: tuple[Layer, ...]
    sender: str | None = None
    """The DID whose key encrypted the message (authcrypt), in the form in which the envelope has it."""
    signer: str | None = None
    """The DID whose key signed it: anybody may be shown that. In the form in which the signature has it."""
    recipient_kid: str | None = None
    """The key id of ours that opened it."""
    profile: Profile = "didcomm/v2"
    addressed: bool | None = None
    """Whether `to` names us; None where there is no `to`, or no envelope that says who we are. False deserves a
    warning. A signed message without encryption is for the caller to check: it may have been meant for others."""
    forgeable: bool = False
    """Whether another recipient could have written it (see `Unpacked`); then it proves no sender."""


def open_layers(
    data: bytes, *, secret_of: SecretOf, resolve: Resolve, allow_plain: bool = False, lenient: bool = False
) -> Opened:
    """Take all layers off a message from a peer, and check that they agree.

    `secret_of` gives the secret of a key id that is ours, None for any other; `resolve` the document of any DID, our
    own included, and raises a RemoteError where there is none. `allow_plain` also opens what nothing protects, and
    `lenient` anon(auth(sign)), which the specification forbids and gives as an example (Appendix C.3). Raises Malformed
    for what is no message in any format, and one and the same Unauthentic for all else.
    """
    kind = media_type_of(data)
    if kind is MediaType.PLAIN:
        if not allow_plain:
            raise Unauthentic()
        return Opened(parse(data), ())
    if kind is MediaType.SIGNED:
        signed = jws.read(data)
        try:
            return _signed(signed, resolve)
        except RemoteError as error:
            raise Unauthentic() from error
    packer = PACKERS["didcomm/v1" if kind is MediaType.ENCRYPTED_V1 else "didcomm/v2"]
    outer = _unpack(packer, data, secret_of, resolve)
    try:
        if packer.name == "didcomm/v1":
            return _encrypted(packer.parse(outer.plain), packer, outer, resolve)
        return _inside(packer, outer, secret_of, resolve, lenient)
    except RemoteError as error:
        raise Unauthentic() from error


def _unpack(packer: Packer, envelope: bytes, secret_of: SecretOf, resolve: Resolve) -> Unpacked:
    """Open one envelope, in version 2 with keys that their owners' documents have for key agreement.

    A key id of version 1 is the key itself; whose it is shows in the message, and the packer looks.
    """

    def theirs(kid: str) -> PublicKey:
        try:
            return resolve(_owner(kid)).agreement_key(kid)
        except RemoteError as error:
            raise Unauthentic() from error

    def ours(kid: str) -> SecretKey | None:
        secret = secret_of(kid)
        if secret is not None and theirs(kid) != public_of(secret):
            raise Unauthentic()
        return secret

    v1 = packer.name == "didcomm/v1"
    return packer.unpack(envelope, secret_of=secret_of if v1 else ours, public_of=theirs)


def _inside(packer: Packer, outer: Unpacked, secret_of: SecretOf, resolve: Resolve, lenient: bool) -> Opened:
    """What an encrypted layer of version 2 may hold: a message, a signed one, or (if anonymous) an authcrypted one."""
    message = _message(packer, outer.plain)
    if message is not None:
        return _encrypted(message, packer, outer, resolve)
    kind = media_type_of(outer.plain)
    if kind is MediaType.SIGNED:
        return _signed_inside(packer, outer, resolve)
    if kind is not MediaType.ENCRYPTED or outer.kind != "anoncrypt":
        raise Unauthentic()
    inner = _unpack(packer, outer.plain, secret_of, resolve)
    if inner.kind != "authcrypt" or not same_did(_owner(inner.recipient_kid), _owner(outer.recipient_kid)):
        raise Unauthentic()
    message = _message(packer, inner.plain)
    if message is not None:
        opened = _encrypted(message, packer, inner, resolve)
    elif lenient:
        opened = _signed_inside(packer, inner, resolve)
    else:
        raise Unauthentic()
    return replace(opened, layers=(_layer(outer), *opened.layers))


def _message(packer: Packer, plain: bytes) -> Message | None:
    """The message in a plaintext, or None where that is another layer. Raises Malformed for a message that is wrong."""
    try:
        return packer.parse(plain)
    except Malformed:
        if media_type_of(plain) is MediaType.PLAIN:
            raise
        return None


def _encrypted(message: Message, packer: Packer, unpacked: Unpacked, resolve: Resolve) -> Opened:
    proven = unpacked.kind == "authcrypt" and not unpacked.forgeable
    sender = packer.check_sender(message, unpacked, resolve) if proven else None
    addressed = None
    if message.to and packer.name == "didcomm/v2":
        recipient = _owner(unpacked.recipient_kid)
        addressed = any(same_did(did, recipient) for did in message.to)
    return Opened(
        message,
        (_layer(unpacked),),
        sender=sender,
        recipient_kid=unpacked.recipient_kid,
        profile="didcomm/v1" if packer.name == "didcomm/v1" else "didcomm/v2",
        addressed=addressed,
        forgeable=unpacked.forgeable,
    )


def _signed_inside(packer: Packer, unpacked: Unpacked, resolve: Resolve) -> Opened:
    """A signed message in an envelope: it must name us in `to`, or somebody else could have put it in there."""
    signed = _signed(jws.read(unpacked.plain), resolve)
    opened = _encrypted(signed.message, packer, unpacked, resolve)
    if not opened.addressed:
        raise Unauthentic()
    return replace(opened, layers=opened.layers + signed.layers, signer=signed.signer)


def _signed(signed: jws.Jws, resolve: Resolve) -> Opened:
    """A message that its own `from` signed, with a key for authentication; other signatures do not count."""
    message = parse(signed.payload)
    sender = message.from_
    if sender is None:
        raise Unauthentic()
    document = resolve(sender)

    def key_of(kid: str) -> PublicKey | None:
        return document.authentication_key(kid) if same_did(_owner(kid), sender) else None

    kids = jws.check(signed, key_of)
    algorithm_of = {signature.kid: signature.algorithm for signature in signed.signatures}
    layers = tuple([Layer("signed", algorithm_of[kid], kid, None) for kid in kids[:1]])
    return Opened(message, layers, signer=_owner(kids[0]))


def _layer(unpacked: Unpacked) -> Layer:
    return Layer(unpacked.kind, unpacked.enc, unpacked.sender_kid, unpacked.recipient_kid)


def _owner(kid: str) -> str:
    """The DID in a key id."""
    return kid.partition("#")[0]


# --- sealing --------------------------------------------------------------------------------------------------------


def seal_layers(
    message: Message,
    *,
    random: Callable[[int], bytes],
    sender: OwnKey | None = None,
    signer: OwnKey | None = None,
    recipient: TheirKey | None = None,
    protect_sender: bool = False,
) -> bytes:
    """A message in DIDComm v2 layers: sign, auth, anon, anon(sign), or anon(auth) to `protect_sender`.

    `from` and `to` are filled in where they are empty; raises ValueError where they name others than the keys' owners,
    and for layers that must not be written. Raises as the packer does, too.
    """
    if sender is not None and signer is not None:
        raise ValueError("auth(sign) says nothing that anon(sign) does not, and is not written")
    if recipient is None and (signer is None or sender is not None):
        raise ValueError("nobody to seal for, and nobody to sign")
    if protect_sender and sender is None:
        raise ValueError("no sender to protect")
    plain = dump(_with_addresses(message, sender or signer, recipient))
    if signer is not None:
        plain = jws.sign(plain, [(signer.kid, signer.key)])
    packer = PACKERS["didcomm/v2"]
    if recipient is None:
        return plain
    if sender is not None:
        plain = packer.authcrypt(plain, sender=sender, recipient=recipient, random=random)
        if not protect_sender:
            return plain
    return packer.anoncrypt(plain, recipient=recipient, random=random)


def _with_addresses(message: Message, author: OwnKey | None, recipient: TheirKey | None) -> Message:
    if author is not None:
        own = _owner(author.kid)
        if message.from_ is not None and not same_did(message.from_, own):
            raise ValueError("a message from another DID than its key's")
        message = message if message.from_ is not None else replace(message, from_=own)
    if recipient is not None:
        theirs = _owner(recipient.kid)
        if message.to and not any(same_did(did, theirs) for did in message.to):
            raise ValueError("a message to other DIDs than its key's")
        message = message if message.to else replace(message, to=(theirs,))
    return message
