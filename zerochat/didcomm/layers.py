"""Message layers (sign, authcrypt, anoncrypt): opening, nesting rules, and consistency of sender and recipient.

DIDComm v2.1 defines seven forms ("IANA Media Types"): plain, sign, anon, auth, anon(sign), auth(sign) and anon(auth).
Plain messages are opened on request only; auth(sign) is read but not written. Packers and signatures prove keys; this
module checks against DID documents that a key may be used that way, and against the message's `from` and `to` ("Message
Layer Addressing Consistency").

Externally there is one error: Malformed only for an invalid outermost layer, which is publicly visible. Every later
failure (wrong key, invalid inner layer, inconsistent `from`) is the same Unauthentic, with the cause chained for
debugging.
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
    """Message formats by IANA media type."""

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
"""File name extensions by format; on reading, the content decides."""


def media_type_of(data: bytes) -> MediaType:
    """The format, by the outermost members only. Raises Malformed for an unknown one."""
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
    raise Malformed(why="it has the members of neither an envelope nor a message")


def is_signed(data: bytes) -> bool:
    """Whether this is a signed message, by its outermost members only; False for what is none at all."""
    try:
        return media_type_of(data) is MediaType.SIGNED
    except Malformed:
        return False


_ENVELOPE, _RECIPIENTS = b'{"protected":"', b'","recipients":[{'
"""The usual beginning of an encrypted message; recognising it avoids parsing."""


# --- opening --------------------------------------------------------------------------------------------------------


class Layer(Struct, frozen=True):
    """A removed layer and its proof."""

    kind: Literal["authcrypt", "anoncrypt", "signed"]
    algorithm: str
    """Content encryption or signature algorithm: `A256CBC-HS512`, `EdDSA`."""
    sender_kid: str | None
    """The sender's or signer's key id; None for anoncrypt."""
    recipient_kid: str | None


class Opened(Struct, frozen=True):
    """An opened message with its layers, outermost first, and the proven identities.

    `message.from_` is proven if and only if there is a `sender` or a `signer`; a version 1 message may have a sender
    and no `from`.
    """

    message: Message
    layers: tuple[Layer, ...]
    sender: str | None = None
    """The DID whose key encrypted the message (authcrypt), in the envelope's form."""
    signer: str | None = None
    """The DID whose key signed the message (transferable proof), in the signature's form."""
    recipient_kid: str | None = None
    """The own key id that decrypted it."""
    profile: Profile = "didcomm/v2"
    addressed: bool | None = None
    """Whether `to` names the recipient; None without `to` or envelope. False deserves a warning. For a signed
    message without encryption, the caller has to check the recipient."""
    forgeable: bool = False
    """Whether another recipient could have forged it (see `Unpacked`); then no sender is proven."""


def open_layers(
    data: bytes, *, secret_of: SecretOf, resolve: Resolve, allow_plain: bool = False, lenient: bool = False
) -> Opened:
    """Open all layers of a message from a peer and check their consistency.

    `secret_of` returns the secret of an own key id, None for others; `resolve` returns the document of any DID, own
    ones included, or raises a RemoteError. `allow_plain` accepts unprotected messages; `lenient` accepts
    anon(auth(sign)), which the specification forbids and yet gives as an example (Appendix C.3). Raises Malformed for
    an unknown format, and the same Unauthentic for all other failures.
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
    """Open one envelope; in version 2 the keys must be key agreement keys of their owners' documents.

    A key id of version 1 is the key itself; the packer checks its owner.
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
    """Content of an encrypted version 2 layer: a message, a signed message, or (in anoncrypt) an authcrypted one."""
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
    """The message in a plaintext; None: another layer. Raises Malformed for an invalid message."""
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
    """A signed message in an envelope; `to` must name the recipient, otherwise a third party could have re-encrypted
    it."""
    signed = _signed(jws.read(unpacked.plain), resolve)
    opened = _encrypted(signed.message, packer, unpacked, resolve)
    if not opened.addressed:
        raise Unauthentic()
    return replace(opened, layers=opened.layers + signed.layers, signer=signed.signer)


def _signed(signed: jws.Jws, resolve: Resolve) -> Opened:
    """A message signed by its own `from` with an authentication key; other signatures are ignored."""
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
    """Encode a message in DIDComm v2 layers: sign, auth, anon, anon(sign), or anon(auth) to `protect_sender`.

    Fills in empty `from` and `to`. Raises ValueError if they contradict the keys' owners, and for layers that must not
    be written; otherwise raises like the packer.
    """
    if sender is not None and signer is not None:
        raise ValueError("auth(sign) is not written; use anon(sign)")
    if recipient is None and (signer is None or sender is not None):
        raise ValueError("neither a recipient nor a signer")
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
