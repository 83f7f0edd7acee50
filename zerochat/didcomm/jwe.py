"""DIDComm v2.1 packer: JSON Web Encryption, General JSON serialization.

Authcrypt is ECDH-1PU+A256KW (draft-madden-jose-ecdh-1pu-04) with A256CBC-HS512; its tag enters the key derivation, so a
recipient cannot reuse the key towards another. Anoncrypt is ECDH-ES+A256KW (RFC 7518), by default with A256CBC-HS512,
the only mandatory encryption; A256GCM and XC20P on request. Keys are X25519, P-256, P-384 or P-521, one curve per
envelope.

Key agreement dominates the cost, so per-pair values are cached: the static-static secret, the header up to the
ephemeral key, and the derivation's OtherInfo. `jwe_parser.py` parses an envelope; `JwePacker.unpack` decrypts it.
"""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar, NamedTuple

from zerochat.crypto.content_encryption import CBC_HS512, CONTENTS
from zerochat.crypto.encoding import b64url, b64url_ascii
from zerochat.crypto.keys import (
    AGREEMENT_KINDS,
    KeyKind,
    PublicKey,
    SecretKey,
    agree,
    agree_static,
    new_secret,
    once,
    public_jwk,
)
from zerochat.crypto.primitives import concat_kdf, key_unwrap, key_wrap, other_info
from zerochat.didcomm import message as plaintext
from zerochat.didcomm.did import Document, Identity
from zerochat.didcomm.jwe_parser import ANONCRYPT, AUTHCRYPT, RECIPIENTS_MAX, TYP, apv_of, cache_template, read
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.didcomm.packer import OwnKey, TheirKey, Unpacked, check_addressing
from zerochat.errors import Malformed, Unauthentic

# --- writing --------------------------------------------------------------------------------------------------------


class _Head(NamedTuple):
    """The common part of envelopes from one key to the same recipients."""

    protected: bytes
    """base64 of the protected header before the ephemeral key."""
    before_x: bytes
    """The header's JSON from there up to the ephemeral key's x."""
    recipients: tuple[bytes, ...]
    """The envelope's text before each wrapped key."""
    info: bytes


@lru_cache(maxsize=1024)
def _head(sender_kid: str | None, kids: tuple[str, ...], kind: KeyKind, enc: str) -> _Head:
    algorithm = AUTHCRYPT if sender_kid else ANONCRYPT
    apu, apv = (sender_kid or "").encode(), apv_of(list(kids))
    header: dict[str, object] = {"typ": TYP, "alg": algorithm, "enc": enc}
    if sender_kid:
        header |= {"skid": sender_kid, "apu": b64url(apu)}
    kty = "OKP" if kind == "X25519" else "EC"
    header |= {"apv": b64url(apv), "epk": {"kty": kty, "crv": kind, "x": ""}}
    text = json.dumps(header, separators=(",", ":")).encode().removesuffix(b'"}}')
    whole = len(text) // 3 * 3
    starts = (b'"},{"header":{"kid":' + json.dumps(kid).encode() + b'},"encrypted_key":"' for kid in kids)
    recipients = tuple((b'","recipients":[' + start[3:] if n == 0 else start) for n, start in enumerate(starts))
    return _Head(b64url_ascii(text[:whole]), text[whole:], recipients, other_info(algorithm, apu, apv))


def _epk(public: PublicKey) -> bytes:
    """The end of the protected header, from the ephemeral key's x on."""
    if public.kind == "X25519":
        return b64url_ascii(public.data) + b'"}}'
    jwk = public_jwk(public)
    return f'{jwk["x"]}","y":"{jwk["y"]}"}}}}'.encode()


def _seal(
    plain: bytes,
    sender: OwnKey | None,
    recipients: Sequence[TheirKey],
    enc: str,
    random: Callable[[int], bytes],
) -> bytes:
    """`recipients` sorted by key id."""
    if len(plain) > MESSAGE_BYTES_MAX:
        raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
    content, kind = CONTENTS[enc], recipients[0].key.kind
    assert sender is None or (sender.kid and content.commits)
    head = _head(sender.kid if sender else None, tuple(recipient.kid for recipient in recipients), kind, enc)
    ephemeral, agree_with = once(new_secret(kind, random))
    key, iv = random(content.key), random(content.iv)
    protected = head.protected + b64url_ascii(head.before_x + _epk(ephemeral))
    ciphertext, tag = content.seal(key, iv, plain, protected)
    parts = [b'{"protected":"', protected]
    for recipient, before in zip(recipients, head.recipients, strict=True):
        secret = agree_with(recipient.key)
        if sender is None:
            kek = concat_kdf(secret, head.info)
        else:
            kek = concat_kdf(secret + agree_static(sender.key, recipient.key), head.info, tag)
        parts += (before, b64url_ascii(key_wrap(kek, key)))
    parts += (b'"}],"iv":"', b64url_ascii(iv), b'","ciphertext":"', b64url_ascii(ciphertext))
    parts += (b'","tag":"', b64url_ascii(tag), b'"}')
    return b"".join(parts)


# --- the packer -----------------------------------------------------------------------------------------------------


class JwePacker:
    """DIDComm v2.1, stateless."""

    name: ClassVar[str] = "didcomm/v2"
    media_type: ClassVar[str] = TYP

    def dump(self, message: Message) -> bytes:
        return plaintext.dump(message)

    def parse(self, plain: bytes) -> Message:
        return plaintext.parse(plain)

    def own_key(self, identity: Identity, did: str) -> OwnKey:
        kid = identity.kid_long if did == identity.did else identity.kid_short
        assert kid.startswith(did + "#"), "an identity has no other DIDs"
        return OwnKey(kid, SecretKey("X25519", identity.agreement_secret))

    def their_key(self, document: Document, did: str) -> TheirKey:
        """An X25519 key if there is one, like our own; else the first supported agreement key."""
        for kinds in (("X25519",), AGREEMENT_KINDS):
            for method in document.agreement:
                if method.key.kind in kinds:
                    return TheirKey(did + "#" + method.kid.rpartition("#")[2], method.key)
        raise Malformed(why="a DID document without a key to encrypt to")

    def authcrypt(self, plain: bytes, *, sender: OwnKey, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        return _seal(plain, sender, (recipient,), CBC_HS512.name, random)

    def anoncrypt(
        self, plain: bytes, *, recipient: TheirKey, random: Callable[[int], bytes], enc: str = CBC_HS512.name
    ) -> bytes:
        return _seal(plain, None, (recipient,), enc, random)

    def seal_many(
        self,
        plain: bytes,
        recipients: Sequence[TheirKey],
        *,
        sender: OwnKey | None,
        random: Callable[[int], bytes],
        enc: str = CBC_HS512.name,
    ) -> bytes:
        """One envelope for several keys of one DID and one curve; `sender` None: anonymous.

        Raises Malformed for any other set of keys, and like `authcrypt`.
        """
        kids = {recipient.kid for recipient in recipients}
        if not recipients or len(kids) != len(recipients) or len(kids) > RECIPIENTS_MAX:
            raise Malformed(why="no recipients, too many, or a duplicate")
        if len({kid.partition("#")[0] for kid in kids}) != 1 or len({entry.key.kind for entry in recipients}) != 1:
            raise Malformed(why="recipients of several DIDs, or of several curves")
        return _seal(plain, sender, sorted(recipients, key=lambda entry: entry.kid), enc, random)

    def unpack(
        self,
        envelope: bytes,
        *,
        secret_of: Callable[[str], SecretKey | None],
        public_of: Callable[[str], PublicKey],
    ) -> Unpacked:
        jwe = read(envelope)
        for recipient in jwe.recipients:
            secret = secret_of(recipient.kid)
            if secret is not None:
                break
        else:
            raise Unauthentic()
        sender_kid = jwe.sender_kid
        if sender_kid is None:
            kek = concat_kdf(agree(secret, recipient.ephemeral), jwe.info)
        else:
            static = agree_static(secret, public_of(sender_kid))
            kek = concat_kdf(agree(secret, recipient.ephemeral) + static, jwe.info, jwe.tag)
        key = key_unwrap(kek, recipient.wrapped)
        plain = jwe.content.open(key, jwe.iv, jwe.ciphertext, jwe.tag, jwe.aad)
        if len(plain) > MESSAGE_BYTES_MAX:
            raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
        cache_template(envelope, jwe)
        return Unpacked(plain, "authcrypt" if sender_kid else "anoncrypt", sender_kid, recipient.kid, jwe.content.name)

    def check_sender(self, message: Message, unpacked: Unpacked, resolve: Callable[[str], Document]) -> str:
        """`from` must be the DID of the sender's key id ("Message Layer Addressing Consistency")."""
        if unpacked.sender_kid is None:
            raise Unauthentic()
        check_addressing(message, unpacked)
        return unpacked.sender_kid.partition("#")[0]
