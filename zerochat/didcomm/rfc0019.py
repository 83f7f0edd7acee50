"""DIDComm v1 packer: Aries RFC 0019 envelopes with NaCl boxes and Ed25519 verkeys.

    protected   enc, typ JWM/1.0, alg Authcrypt or Anoncrypt, and for every recipient, by its verkey in base58:
                authcrypt   the content encryption key in a box; the sender's verkey in a sealed box
                anoncrypt   the content encryption key in a sealed box
    ciphertext  the message under that key, ChaCha20-Poly1305 with 12-byte nonces, whatever `enc` says; the header as it
                was sent is the additional data

Keys are the identities' Ed25519 signing keys, because this format names parties by verkeys; boxes use the X25519 keys
at the same points. `check_sender` verifies that a verkey belongs to the DID in the message's `~from`.

zerochat writes envelopes for a single recipient. With several, all share the content encryption key and the ciphertext
is not bound to the sender's boxes: every recipient can replace the content under the sender's name. Such envelopes are
read and marked `forgeable`; they prove no sender. The mark is not reliable, because a recipient can strip the other
recipients before forwarding.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

from zerochat.crypto.encoding import b64url_bytes, base58, base58_bytes, did_key, strict_json
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.nacl_boxes import (
    BOX_NONCE_BYTES,
    CHACHA_NONCE_BYTES,
    KEY_BYTES,
    MAC_BYTES,
    SEAL_BYTES,
    box,
    box_open,
    chacha20_poly1305_open,
    chacha20_poly1305_seal,
    seal,
    seal_open,
)
from zerochat.crypto.primitives import (
    KEYS_CACHED,
    ed25519_public,
    ed25519_to_x25519_public,
    ed25519_to_x25519_secret,
    x25519_public,
)
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import Document, Identity
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, OwnKey, TheirKey, Unpacked
from zerochat.didcomm.v1 import dump_v1, parse_v1
from zerochat.errors import Malformed, RemoteError, Unauthentic

RECIPIENTS_MAX = 64
"""As in v2: devices under one DID."""
HEADER_BYTES_MAX = 32 * 1024
"""The decoded protected header; a recipient takes about 350 bytes."""
_HEADER_CHARS_MAX = HEADER_BYTES_MAX * 4 // 3 + 4

TYP: Final = "JWM/1.0"
ENC: Final = "xchacha20poly1305_ietf"
_Enc: TypeAlias = Literal["xchacha20poly1305_ietf", "chacha20poly1305_ietf", "xchachapoly1305_ietf"]
_ENC_READ: tuple[str, ...] = get_args(_Enc)
"""The label says XChaCha, but the algorithm is ChaCha20; one library writes the true name, and an edition of the RFC
omitted some letters."""

_BOXED_BYTES = KEY_BYTES + MAC_BYTES
_BOXED_CHARS, _NONCE_CHARS, _IV_CHARS = (size // 3 * 4 for size in (_BOXED_BYTES, BOX_NONCE_BYTES, CHACHA_NONCE_BYTES))
"""These are whole base64 groups without padding, so they can be decoded together with the following text."""
_TAG_CHARS = 22
_TAG_END, _BOXES_AT = CHACHA_NONCE_BYTES + MAC_BYTES, CHACHA_NONCE_BYTES + MAC_BYTES + 2
_SEALED_AT = _BOXED_BYTES + BOX_NONCE_BYTES
_SEALED_BYTES = SEAL_BYTES + KEY_BYTES
_BOXES_BYTES = {
    "authcrypt": range(_SEALED_AT + SEAL_BYTES + 32, _SEALED_AT + SEAL_BYTES + 45),
    "anoncrypt": range(_SEALED_BYTES, _SEALED_BYTES + 1),
}
"""Sizes of a recipient's boxes. A verkey in base58 has 43 or 44 characters, fewer only with leading zeros."""
_JWE_ONLY = frozenset(("recipients", "unprotected", "header", "encrypted_key", "aad"))
"""Members that a JWE has outside its header (RFC 7516)."""


Kind: TypeAlias = Literal["authcrypt", "anoncrypt"]

# --- keys -----------------------------------------------------------------------------------------------------------


class _Own(Redacted, frozen=True):
    """An own key for boxes; 32 bytes each."""

    REDACTED = ("secret",)

    name: bytes
    """Verkey in base58."""
    public: bytes
    secret: bytes


def _own(key: SecretKey) -> _Own:
    if key.kind != "Ed25519":
        raise Unauthentic()
    return _own_of(key.data)


@lru_cache(maxsize=KEYS_CACHED)
def _own_of(seed: bytes) -> _Own:
    secret = ed25519_to_x25519_secret(seed)
    return _Own(base58(ed25519_public(seed)).encode(), x25519_public(secret), secret)


@lru_cache(maxsize=KEYS_CACHED)
def _name(key: PublicKey) -> bytes:
    """The base58 name of a verkey. Raises Unauthentic for a key of another kind."""
    if key.kind != "Ed25519":
        raise Unauthentic()
    return base58(key.data).encode()


@lru_cache(maxsize=KEYS_CACHED)
def _verkey(name: str) -> bytes:
    """The verkey of a base58 name. Raises Malformed."""
    verkey = base58_bytes(name, KEY_BYTES)
    if len(verkey) != KEY_BYTES:
        raise Malformed(why="a verkey of the wrong length")
    return verkey


@lru_cache(maxsize=KEYS_CACHED)
def _sender(name: bytes) -> tuple[str, bytes]:
    """The sender named in a sealed box: the verkey in base58 and its X25519 key. Raises Unauthentic."""
    try:
        verkey = name.decode("ascii")
        return verkey, ed25519_to_x25519_public(_verkey(verkey))
    except (UnicodeDecodeError, RemoteError):
        raise Unauthentic() from None


# --- writing --------------------------------------------------------------------------------------------------------

_START = f'{{"enc":"{ENC}","typ":"{TYP}","alg":'.encode()
_AUTHCRYPT = _START + b'"Authcrypt","recipients":[{"encrypted_key":"'
_ANONCRYPT = _START + b'"Anoncrypt","recipients":[{"encrypted_key":"'
"""The header is assembled from text: base64url and base58 need no escaping."""


def _seal(plain: bytes, header: bytes, key: bytes, nonce: bytes) -> bytes:
    """The envelope, with padded base64url, which old implementations require."""
    if len(plain) > MESSAGE_BYTES_MAX:
        raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
    protected = urlsafe_b64encode(header)
    sealed = chacha20_poly1305_seal(key, nonce, plain, protected)
    return b'{"protected":"%b","iv":"%b","ciphertext":"%b","tag":"%b"}' % (
        protected,
        urlsafe_b64encode(nonce),
        urlsafe_b64encode(sealed[:-MAC_BYTES]),
        urlsafe_b64encode(sealed[-MAC_BYTES:]),
    )


# --- reading --------------------------------------------------------------------------------------------------------


class _Recipient(msgspec.Struct, frozen=True, gc=False):
    """A recipient with its boxes."""

    kid: str
    boxes: bytes
    """Authcrypt: box, nonce and sealed box. Anoncrypt: sealed box. Empty if invalid, which only the recipient itself
    reports."""


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    kind: Kind
    enc: str
    recipients: tuple[_Recipient, ...]
    aad: bytes
    iv: bytes
    sealed: bytes
    """Ciphertext and tag together, because some implementations split them wrongly."""


def _read(envelope: bytes) -> _Envelope:
    """Parse an envelope. Raises Malformed."""
    return _usual(envelope) or _general(envelope)


def _general(envelope: bytes) -> _Envelope:
    tree = _object(strict_json(envelope, ENVELOPE_BYTES_MAX))
    if not _JWE_ONLY.isdisjoint(tree):
        raise Malformed(why="envelope: a misplaced member outside the header")
    protected = _text(tree, "protected")
    if len(protected) > _HEADER_CHARS_MAX:
        raise Malformed(why=f"envelope: a header of more than {HEADER_BYTES_MAX} bytes")
    header = _object(strict_json(b64url_bytes(protected), HEADER_BYTES_MAX))
    enc, kind = header.get("enc"), _KINDS.get(_text(header, "alg").lower())
    if header.get("typ") != TYP or enc not in _ENC_READ or kind is None or "crit" in header or "zip" in header:
        raise Malformed(why="envelope: a type or an algorithm that is not supported")
    listed = header.get("recipients")
    if not isinstance(listed, list) or not 1 <= len(listed) <= RECIPIENTS_MAX:
        raise Malformed(why="envelope: no recipients, or too many")
    recipients = tuple(_recipient(entry, kind) for entry in listed)
    if len({recipient.kid for recipient in recipients}) != len(recipients):
        raise Malformed(why="envelope: a recipient twice")
    ciphertext = b64url_bytes(_text(tree, "ciphertext")) if "ciphertext" in tree else b""
    iv, tag = b64url_bytes(_text(tree, "iv")), b64url_bytes(_text(tree, "tag"))
    if len(iv) != CHACHA_NONCE_BYTES or len(tag) < MAC_BYTES:
        raise Malformed(why="envelope: a nonce or a tag of the wrong length")
    return _Envelope(kind, str(enc), recipients, protected.encode(), iv, ciphertext + tag)


_KINDS: dict[str, Kind] = {"authcrypt": "authcrypt", "anoncrypt": "anoncrypt"}
"""Lower case in the RFC's schema, capitalised in practice."""


def _recipient(entry: object, kind: Kind) -> _Recipient:
    tree = _object(entry)
    header = _object(tree.get("header"))
    kid = _text(header, "kid")
    if not kid:
        raise Malformed(why="envelope: a recipient without a name")
    boxed = _text(tree, "encrypted_key")
    if kind == "authcrypt":
        sender, nonce = _text(header, "sender"), _text(header, "iv")
        fits = len(boxed) == _BOXED_CHARS and len(nonce) == _NONCE_CHARS
        boxed += nonce + sender
    elif "sender" in header or "iv" in header:
        raise Malformed(why="envelope: an anonymous one that names its sender")
    else:
        fits = True
    try:
        boxes = b64url_bytes(boxed) if fits else b""
    except Malformed:
        boxes = b""
    return _Recipient(kid, boxes if len(boxes) in _BOXES_BYTES[kind] else b"")


def _object(value: object) -> dict[str, object]:
    """The non-null members of an object: common libraries write null for absent."""
    if not isinstance(value, dict):
        raise Malformed(why="envelope: something is not an object")
    return {name: member for name, member in value.items() if member is not None}


def _text(tree: dict[str, object], name: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str):
        raise Malformed(why=f"envelope: no {name}")
    return value


# --- fast path for the usual shape ------------------------------------------------------------------------------------


class _Names(msgspec.Struct, gc=False):
    kid: str
    sender: str = ""
    iv: str = ""


class _OnlyRecipient(msgspec.Struct, gc=False):
    encrypted_key: str
    header: _Names


class _Header(msgspec.Struct, gc=False):
    enc: _Enc
    typ: Literal["JWM/1.0"]
    alg: Literal["Authcrypt", "Anoncrypt"]
    recipients: tuple[_OnlyRecipient]


class _Outside(msgspec.Struct, gc=False):
    protected: str
    iv: str
    ciphertext: str
    tag: str


_decode_outside, _decode_header = msgspec.json.Decoder(_Outside).decode, msgspec.json.Decoder(_Header).decode
_BARE_BYTES = len(b'{"protected":"","iv":"","ciphertext":"","tag":""}')
"""Length of an envelope without its values; a longer remainder contains something else."""
_QUOTES_OUTSIDE, _QUOTES = 16, {"Authcrypt": 32, "Anoncrypt": 24}
"""Quotation marks of an envelope and of a header with exactly the expected members: four per member."""


def _usual(envelope: bytes) -> _Envelope | None:
    """Fast path: an envelope for one recipient with a 16-byte tag and the usual members only; None for any other.

    Parsed directly into its members in three quarters of the time. Any deviation falls back to the general parser, with
    the same result.
    """
    if len(envelope) > ENVELOPE_BYTES_MAX:
        return None
    try:
        outside = _decode_outside(envelope)
        protected, iv, ciphertext, tag = outside.protected, outside.iv, outside.ciphertext, outside.tag
        if len(protected) > _HEADER_CHARS_MAX:
            return None
        decoded = b64url_bytes(protected)
        header = _decode_header(decoded)
        [entry] = header.recipients
        names, boxed = entry.header, entry.encrypted_key
        kid, sender, nonce = names.kid, names.sender, names.iv
        if header.alg == "Authcrypt":
            kind: Kind = "authcrypt"
            fits = len(boxed) == _BOXED_CHARS and len(nonce) == _NONCE_CHARS
        else:
            kind = "anoncrypt"
            fits = not (sender or nonce)
        if (
            not fits
            or len(iv) != _IV_CHARS
            or len(tag.removesuffix("==")) != _TAG_CHARS
            or decoded.count(b'"') != _QUOTES[header.alg]
            or (
                len(envelope) != _BARE_BYTES + len(protected) + len(iv) + len(ciphertext) + len(tag)
                and envelope.count(b'"') != _QUOTES_OUTSIDE
            )
            or len(decoded) > HEADER_BYTES_MAX
            or not (kid and kid.isascii())
        ):
            return None
        # The tag's last group is padded with zero bits; after decoding, non-zero bits mean left-over bits.
        short = b64url_bytes(f"{iv}{tag[:_TAG_CHARS]}AA{boxed}{nonce}{sender}")
        content = b64url_bytes(ciphertext)
    except (ValueError, RecursionError, Malformed):
        return None
    boxes, content_iv = short[_BOXES_AT:], short[:CHACHA_NONCE_BYTES]
    if len(boxes) not in _BOXES_BYTES[kind] or short[_TAG_END:_BOXES_AT] != bytes(2):
        return None
    sealed = content + short[CHACHA_NONCE_BYTES:_TAG_END]
    return _Envelope(kind, header.enc, (_Recipient(kid, boxes),), protected.encode(), content_iv, sealed)


# --- opening --------------------------------------------------------------------------------------------------------


def _open_key(kind: Kind, boxes: bytes, own: _Own) -> tuple[bytes, str | None]:
    """The content encryption key and the sender's verkey in base58. Raises Malformed for wrong lengths, Unauthentic
    otherwise."""
    if not boxes:
        raise Malformed(why="envelope: a key, a nonce or a sender that is not base64url, or of the wrong length")
    if kind == "anoncrypt":
        return seal_open(boxes, own.public, own.secret), None
    sender, public = _sender(seal_open(boxes[_SEALED_AT:], own.public, own.secret))
    return box_open(boxes[:_BOXED_BYTES], boxes[_BOXED_BYTES:_SEALED_AT], public, own.secret), sender


# --- the packer -----------------------------------------------------------------------------------------------------


class Rfc0019Packer:
    """DIDComm v1, profile `didcomm/aip2;env=rfc19`, stateless."""

    name: ClassVar[str] = "didcomm/v1"
    media_type: ClassVar[str] = "application/didcomm-envelope-enc"
    """Defined in RFC 0044."""

    def dump(self, message: Message) -> bytes:
        return dump_v1(message)

    def parse(self, plain: bytes) -> Message:
        return parse_v1(plain)

    def own_key(self, identity: Identity, did: str) -> OwnKey:
        """The identity's Ed25519 signing key, named by its verkey in base58 regardless of `did`."""
        return OwnKey(base58(identity.signing_public), SecretKey("Ed25519", identity.signing_seed))

    def their_key(self, document: Document, did: str) -> TheirKey:
        for method in document.authentication:
            if method.key.kind == "Ed25519":
                return TheirKey(base58(method.key.data), method.key)
        raise Malformed(why="a DID document without an Ed25519 key to authenticate with")

    def authcrypt(self, plain: bytes, *, sender: OwnKey, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        own, public = _own(sender.key), ed25519_to_x25519_public(recipient.key.data)
        key, iv, nonce, ephemeral = random(KEY_BYTES), random(CHACHA_NONCE_BYTES), random(BOX_NONCE_BYTES), random(32)
        header = b'%b%b","header":{"kid":"%b","sender":"%b","iv":"%b"}}]}' % (
            _AUTHCRYPT,
            urlsafe_b64encode(box(key, nonce, public, own.secret)),
            _name(recipient.key),
            urlsafe_b64encode(seal(own.name, public, ephemeral)),
            urlsafe_b64encode(nonce),
        )
        return _seal(plain, header, key, iv)

    def anoncrypt(self, plain: bytes, *, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        name, public = _name(recipient.key), ed25519_to_x25519_public(recipient.key.data)
        key, iv, ephemeral = random(KEY_BYTES), random(CHACHA_NONCE_BYTES), random(32)
        boxed = urlsafe_b64encode(seal(key, public, ephemeral))
        return _seal(plain, b'%b%b","header":{"kid":"%b"}}]}' % (_ANONCRYPT, boxed, name), key, iv)

    def unpack(
        self,
        envelope: bytes,
        *,
        secret_of: Callable[[str], SecretKey | None],
        public_of: Callable[[str], PublicKey] | None = None,
    ) -> Unpacked:
        """Open an envelope that names exactly one own key.

        `public_of` is unused: a verkey is its own key id. `check_sender` verifies its owner.
        """
        read = _read(envelope)
        ours = [(one, secret) for one in read.recipients if (secret := secret_of(one.kid)) is not None]
        if len(ours) != 1:
            raise Unauthentic()
        [(recipient, own)] = ours
        key, sender = _open_key(read.kind, recipient.boxes, _own(own))
        plain = chacha20_poly1305_open(key, read.iv, read.sealed, read.aad)
        if len(plain) > MESSAGE_BYTES_MAX:
            raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
        return Unpacked(plain, read.kind, sender, recipient.kid, read.enc, len(read.recipients) > 1)

    def check_sender(self, message: Message, unpacked: Unpacked, resolve: Callable[[str], Document]) -> str:
        """The DID in `~from`; its document must contain the sender's verkey as an authentication key.

        A message without `~from`, as other implementations write it, is from the verkey's did:key.
        """
        if unpacked.sender_kid is None or unpacked.forgeable:
            raise Unauthentic()
        verkey = _verkey(unpacked.sender_kid)
        if message.from_ is None:
            return did_key(verkey)
        if PublicKey("Ed25519", verkey) not in [method.key for method in resolve(message.from_).authentication]:
            raise Unauthentic()
        return message.from_
