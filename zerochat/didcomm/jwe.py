"""The DIDComm v2.1 packer: JSON Web Encryption in its General JSON form, X25519 keys.

Authcrypt is ECDH-1PU+A256KW (draft-madden-jose-ecdh-1pu-04) with A256CBC-HS512, whose tag goes into the key derivation:
that is what keeps one recipient from re-using the key towards another. Anoncrypt is ECDH-ES+A256KW (RFC 7518) with
A256CBC-HS512 too, the only encryption that all must read; A256GCM and XC20P are read.

One envelope is for one recipient. Most of its cost is X25519, so what stays the same between two ends is kept: the
static-static secret, the header up to the ephemeral key, and the derivation's OtherInfo. Reading is strict: whatever a
reader could take in two ways is refused before any key is touched.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from zerochat.crypto.encoding import b64url, b64url_bytes, strict_json
from zerochat.crypto.primitives import (
    cbc_hs512_open,
    cbc_hs512_seal,
    gcm_open,
    key_unwrap,
    key_wrap,
    sha256,
    x25519,
    x25519_once,
    x25519_public,
    x25519_static,
    xc20p_open,
)
from zerochat.didcomm.message import MESSAGE_BYTES_MAX
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, Unpacked
from zerochat.errors import Malformed, Unauthentic

RECIPIENTS_MAX = 64
"""How many recipients an envelope may name: nobody has more devices under one DID, and each costs parsing."""
HEADER_BYTES_MAX = 32 * 1024
"""The protected header, decoded: the sender's key id stands in it twice, perhaps with a DID of the greatest length."""

AUTHCRYPT, ANONCRYPT = "ECDH-1PU+A256KW", "ECDH-ES+A256KW"
CBC_HS512 = "A256CBC-HS512"
TYP = "application/didcomm-encrypted+json"
_TYP_READ = (None, TYP, "didcomm-encrypted+json", "application/didcomm+encrypted")
"""The prefix may be left out (RFC 7515, section 4.1.9); the last one is what one widespread library writes."""

_KEK_BITS = 256


@dataclass(frozen=True, slots=True)
class _Content:
    """A content encryption as it is read: sizes in bytes."""

    key: int
    iv: int
    tag: int
    open: Callable[[bytes, bytes, bytes, bytes, bytes], bytes]


_CONTENTS = {
    CBC_HS512: _Content(64, 16, 32, cbc_hs512_open),
    "A256GCM": _Content(32, 12, 16, gcm_open),
    "XC20P": _Content(32, 24, 16, xc20p_open),
}


# --- key derivation -------------------------------------------------------------------------------------------------


def other_info(algorithm: str, apu: bytes, apv: bytes, bits: int = _KEK_BITS) -> bytes:
    """The OtherInfo of the Concat KDF (RFC 7518, section 4.6.2), up to where ECDH-1PU appends the tag."""
    head = algorithm.encode()
    return b"".join((_size(head), head, _size(apu), apu, _size(apv), apv, bits.to_bytes(4, "big")))


def _size(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big")


def concat_kdf(secret: bytes, info: bytes, tag: bytes | None = None) -> bytes:
    """32 bytes of the Concat KDF with SHA-256. ECDH-1PU with key wrapping binds the content's tag (section 2.3)."""
    suffix = b"" if tag is None else _size(tag) + tag
    return sha256(b"\0\0\0\1" + secret + info + suffix)


# --- writing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Head:
    """What the envelopes from one key to another have in common."""

    protected: bytes
    """The protected header as JSON, up to the ephemeral key's text."""
    recipient: bytes
    """The envelope from after the protected header to the wrapped key."""
    info: bytes


@lru_cache(maxsize=1024)
def _head(sender_kid: str | None, recipient_kid: str) -> _Head:
    apu, apv = (sender_kid or "").encode(), _apv([recipient_kid])
    header: dict[str, object] = {"typ": TYP, "alg": AUTHCRYPT if sender_kid else ANONCRYPT, "enc": CBC_HS512}
    if sender_kid:
        header |= {"skid": sender_kid, "apu": b64url(apu)}
    header |= {"apv": b64url(apv), "epk": {"kty": "OKP", "crv": "X25519", "x": ""}}
    protected = json.dumps(header, separators=(",", ":")).encode().removesuffix(b'"}}')
    kid = json.dumps(recipient_kid).encode()
    recipient = b'","recipients":[{"header":{"kid":' + kid + b'},"encrypted_key":"'
    return _Head(protected, recipient, other_info(str(header["alg"]), apu, apv))


def _apv(kids: list[str]) -> bytes:
    """The recipients' key ids as one value (DIDComm v2.1, "ECDH-1PU key wrapping and common protected headers")."""
    return sha256(".".join(sorted(kids)).encode())


def _seal(
    plain: bytes,
    head: _Head,
    sender_secret: bytes | None,
    recipient_public: bytes,
    random: Callable[[int], bytes],
) -> bytes:
    if len(plain) > MESSAGE_BYTES_MAX:
        raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
    ephemeral, key, iv = random(32), random(64), random(16)
    protected = b64url(head.protected + b64url(x25519_public(ephemeral)).encode() + b'"}}').encode()
    ciphertext, tag = cbc_hs512_seal(key, iv, plain, protected)
    secret = x25519_once(ephemeral, recipient_public)
    if sender_secret is None:
        kek = concat_kdf(secret, head.info)
    else:
        kek = concat_kdf(secret + x25519_static(sender_secret, recipient_public), head.info, tag)
    return b"".join(
        (
            b'{"protected":"',
            protected,
            head.recipient,
            b64url(key_wrap(kek, key)).encode(),
            b'"}],"iv":"',
            b64url(iv).encode(),
            b'","ciphertext":"',
            b64url(ciphertext).encode(),
            b'","tag":"',
            b64url(tag).encode(),
            b'"}',
        )
    )


# --- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Recipient:
    kid: str
    wrapped: bytes
    ephemeral: bytes | None


@dataclass(frozen=True, slots=True)
class _Envelope:
    """An envelope whose every part has the right shape; nothing of it is trusted yet."""

    algorithm: str
    content: _Content
    sender_kid: str | None
    apu: bytes
    apv: bytes
    ephemeral: bytes | None
    recipients: tuple[_Recipient, ...]
    iv: bytes
    ciphertext: bytes
    tag: bytes
    aad: bytes


def _read(envelope: bytes) -> _Envelope:
    tree = _object(strict_json(envelope, ENVELOPE_BYTES_MAX), "envelope")
    if "unprotected" in tree:
        raise Malformed(why="envelope: headers that nothing protects")
    protected = _text(tree, "protected")
    header = _object(strict_json(b64url_bytes(protected), HEADER_BYTES_MAX), "protected header")
    if header.get("typ") not in _TYP_READ or "crit" in header or "zip" in header:
        raise Malformed(why="envelope: a header that is not supported")
    algorithm, enc = _text(header, "alg"), _text(header, "enc")
    content = _CONTENTS.get(enc)
    if content is None or (algorithm, enc) not in _ALLOWED:
        raise Malformed(why="envelope: an encryption that is not supported")
    sender_kid, apu = _sender(header, algorithm)
    recipients = _recipients(tree, content)
    apv = b64url_bytes(_text(header, "apv"))
    if apv != _apv([recipient.kid for recipient in recipients]):
        raise Malformed(why="envelope: apv does not name the recipients")
    ephemeral = _ephemeral(header)
    if any((recipient.ephemeral is None) == (ephemeral is None) for recipient in recipients):
        raise Malformed(why="envelope: not exactly one ephemeral key")
    iv, tag = b64url_bytes(_text(tree, "iv")), b64url_bytes(_text(tree, "tag"))
    if len(iv) != content.iv or len(tag) != content.tag:
        raise Malformed(why="envelope: an IV or a tag of the wrong length")
    aad = protected.encode()
    if "aad" in tree:
        extra = _text(tree, "aad")
        b64url_bytes(extra)
        aad += b"." + extra.encode()
    ciphertext = b64url_bytes(_text(tree, "ciphertext"))
    return _Envelope(algorithm, content, sender_kid, apu, apv, ephemeral, recipients, iv, ciphertext, tag, aad)


_ALLOWED = {(AUTHCRYPT, CBC_HS512), *((ANONCRYPT, enc) for enc in _CONTENTS)}
"""Authcrypt with an AEAD that does not commit to its key is not safe with several recipients, and not read."""


def _sender(header: dict[str, object], algorithm: str) -> tuple[str | None, bytes]:
    """The sender's key id and PartyUInfo. Where skid is absent, apu alone names the sender."""
    if algorithm == ANONCRYPT:
        if "skid" in header:
            raise Malformed(why="envelope: an anonymous one that names its sender")
        return None, b64url_bytes(_text(header, "apu")) if "apu" in header else b""
    apu = b64url_bytes(_text(header, "apu"))
    try:
        named = apu.decode()
    except UnicodeDecodeError:
        raise Malformed(why="envelope: apu is not a key id") from None
    if "skid" in header and _text(header, "skid") != named:
        raise Malformed(why="envelope: skid and apu name two senders")
    return named, apu


def _recipients(tree: dict[str, object], content: _Content) -> tuple[_Recipient, ...]:
    """The recipients, of the general form or (one only) of the flattened one; all of them keys of one DID."""
    listed = tree.get("recipients")
    if listed is None:
        listed = [{name: tree[name] for name in ("header", "encrypted_key") if name in tree}]
    elif "header" in tree or "encrypted_key" in tree:
        raise Malformed(why="envelope: general and flattened at once")
    if not isinstance(listed, list) or not 1 <= len(listed) <= RECIPIENTS_MAX:
        raise Malformed(why="envelope: no recipients, or too many")
    recipients = tuple(_recipient(_object(entry, "recipient"), content) for entry in listed)
    kids = {recipient.kid for recipient in recipients}
    if len(kids) != len(recipients) or len({kid.partition("#")[0] for kid in kids}) != 1:
        raise Malformed(why="envelope: a recipient twice, or recipients of several DIDs")
    return recipients


def _recipient(entry: dict[str, object], content: _Content) -> _Recipient:
    header = _object(entry.get("header"), "recipient's header")
    if not header.keys() <= {"kid", "epk"}:
        raise Malformed(why="envelope: a recipient with headers of its own")
    wrapped = b64url_bytes(_text(entry, "encrypted_key"))
    if len(wrapped) != content.key + 8:
        raise Malformed(why="envelope: a wrapped key of the wrong length")
    return _Recipient(_text(header, "kid"), wrapped, _ephemeral(header))


def _ephemeral(header: dict[str, object]) -> bytes | None:
    if "epk" not in header:
        return None
    key = _object(header["epk"], "ephemeral key")
    if key.get("kty") != "OKP" or key.get("crv") != "X25519" or "d" in key:
        raise Malformed(why="envelope: an ephemeral key of a type that is not supported")
    public = b64url_bytes(_text(key, "x"))
    if len(public) != 32:
        raise Malformed(why="envelope: an ephemeral key of the wrong length")
    return public


def _object(value: object, what: str) -> dict[str, object]:
    """The members of an object that are not null: real libraries write null for absent."""
    if not isinstance(value, dict):
        raise Malformed(why=f"envelope: the {what} is not an object")
    return {name: member for name, member in value.items() if member is not None}


def _text(tree: dict[str, object], name: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str):
        raise Malformed(why=f"envelope: no {name}")
    return value


# --- the packer -----------------------------------------------------------------------------------------------------


class JwePacker:
    """DIDComm v2.1 with X25519. It has no state."""

    name: ClassVar[str] = "didcomm/v2"

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
        assert sender_kid
        return _seal(plain, _head(sender_kid, recipient_kid), sender_secret, recipient_public, random)

    def anoncrypt(
        self, plain: bytes, *, recipient_kid: str, recipient_public: bytes, random: Callable[[int], bytes]
    ) -> bytes:
        return _seal(plain, _head(None, recipient_kid), None, recipient_public, random)

    def unpack(
        self, envelope: bytes, *, secret_of: Callable[[str], bytes | None], public_of: Callable[[str], bytes]
    ) -> Unpacked:
        jwe = _read(envelope)
        for recipient in jwe.recipients:
            secret = secret_of(recipient.kid)
            if secret is not None:
                break
        else:
            raise Unauthentic()
        ephemeral = jwe.ephemeral or recipient.ephemeral
        assert ephemeral is not None
        info = other_info(jwe.algorithm, jwe.apu, jwe.apv)
        if jwe.sender_kid is None:
            kek = concat_kdf(x25519(secret, ephemeral), info)
        else:
            static = x25519_static(secret, public_of(jwe.sender_kid))
            kek = concat_kdf(x25519(secret, ephemeral) + static, info, jwe.tag)
        key = key_unwrap(kek, recipient.wrapped)
        plain = jwe.content.open(key, jwe.iv, jwe.ciphertext, jwe.tag, jwe.aad)
        if len(plain) > MESSAGE_BYTES_MAX:
            raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
        return Unpacked(plain, "anoncrypt" if jwe.sender_kid is None else "authcrypt", jwe.sender_kid, recipient.kid)
