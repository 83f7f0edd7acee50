"""didcomm-messaging, the library behind ACA-Py's DIDComm v2 (X25519 only), and its RFC 0019."""

import asyncio
import json

import base58
import nacl.bindings
from aries_askar import Key
from didcomm_messaging.crypto.backend.askar import AskarCryptoService, AskarKey, AskarSecretKey
from didcomm_messaging.legacy import crypto as legacy

from . import b64, unb64

_service = AskarCryptoService()


def seal(plain: str, recipients: list[dict[str, str]], sender: dict[str, str] | None, enc: str) -> str:
    keys = [AskarKey(Key.from_jwk(jwk), jwk["kid"]) for jwk in recipients]
    if sender is None:
        return str(asyncio.run(_service.ecdh_es_encrypt(keys, unb64(plain))), "ascii")
    own = AskarSecretKey(Key.from_jwk(sender), sender["kid"])
    return str(asyncio.run(_service.ecdh_1pu_encrypt(keys, own, unb64(plain))), "ascii")


def open(envelope: str, secret: dict[str, str], sender: dict[str, str] | None) -> str:
    own = AskarSecretKey(Key.from_jwk(secret), secret["kid"])
    if sender is None:
        return b64(asyncio.run(_service.ecdh_es_decrypt(envelope.encode(), own)))
    theirs = AskarKey(Key.from_jwk(sender), sender["kid"])
    return b64(asyncio.run(_service.ecdh_1pu_decrypt(envelope.encode(), own, theirs)))


def _pair(seed: str) -> tuple[bytes, bytes]:
    return nacl.bindings.crypto_sign_seed_keypair(unb64(seed))


def seal_v1(plain: str, recipients: list[str], sender: str | None) -> str:
    verkey, signing_key = _pair(sender) if sender else (None, None)
    keys = [base58.b58decode(name) for name in recipients]
    return json.dumps(legacy.pack_message(unb64(plain).decode(), keys, verkey, signing_key))


def open_v1(envelope: str, secret: str) -> dict[str, str | None]:
    plain, sender, _ = legacy.unpack_message(envelope.encode(), *_pair(secret))
    return {"plain": b64(plain.encode()), "sender": sender}
