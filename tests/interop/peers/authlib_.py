"""Authlib: the JOSE library under SICPA's didcomm, used here without it."""

import json
from typing import Any

from authlib.jose import ECKey, JsonWebEncryption, JsonWebSignature, OKPKey
from authlib.jose.drafts import register_jwe_draft

from . import apv_of, b64, unb64

register_jwe_draft(JsonWebEncryption)
_ALGORITHMS = ["EdDSA", "ES256", "ES256K"]


def _key(jwk: dict[str, str]) -> Any:
    return (OKPKey if jwk["kty"] == "OKP" else ECKey).import_key(dict(jwk))


def seal(plain: str, recipients: list[dict[str, str]], sender: dict[str, str] | None, enc: str) -> str:
    kids = [jwk["kid"] for jwk in recipients]
    protected = {"typ": "application/didcomm-encrypted+json", "enc": enc, "apv": b64(apv_of(kids))}
    protected["alg"] = "ECDH-1PU+A256KW" if sender else "ECDH-ES+A256KW"
    if sender:
        protected |= {"skid": sender["kid"], "apu": b64(sender["kid"].encode())}
    header = {"protected": protected, "recipients": [{"header": {"kid": kid}} for kid in kids]}
    keys, own = [_key(jwk) for jwk in recipients], _key(sender) if sender else None
    return json.dumps(JsonWebEncryption().serialize_json(header, unb64(plain), keys, sender_key=own))


def open(envelope: str, secret: dict[str, str], sender: dict[str, str] | None) -> str:
    own, theirs = (secret["kid"], _key(secret)), _key(sender) if sender else None
    return b64(JsonWebEncryption().deserialize_json(json.loads(envelope), own, sender_key=theirs)["payload"])


def sign(plain: str, signer: dict[str, str], alg: str) -> str:
    header = {"protected": {"typ": "application/didcomm-signed+json", "alg": alg}, "header": {"kid": signer["kid"]}}
    return json.dumps(JsonWebSignature(_ALGORITHMS).serialize_json([header], unb64(plain), _key(signer)))


def verify(envelope: str, signer: dict[str, str], alg: str) -> str:
    return b64(JsonWebSignature([alg]).deserialize_json(json.loads(envelope), _key(signer))["payload"])
