"""joserfc, a JOSE library for Python. Its `seal` writes an ephemeral key per recipient."""

import json
from typing import Any

from joserfc import jwe, jws
from joserfc.drafts.jwe_chacha20 import register_chacha20_poly1305
from joserfc.drafts.jwe_ecdh_1pu import register_ecdh_1pu
from joserfc.jwk import ECKey, KeySet, OKPKey

from . import apv_of, b64, unb64

register_chacha20_poly1305()
register_ecdh_1pu()
_ALGORITHMS = ["ECDH-1PU+A256KW", "ECDH-ES+A256KW", "A256CBC-HS512", "A256GCM", "XC20P"]
_REGISTRY = jwe.JWERegistry(algorithms=_ALGORITHMS, strict_check_header=False)
"""Not strict: strict mode refuses an `epk` in the protected header, where DIDComm requires it."""


def _key(jwk: dict[str, str]) -> Any:
    return (OKPKey if jwk["kty"] == "OKP" else ECKey).import_key(dict(jwk))


def seal(plain: str, recipients: list[dict[str, str]], sender: dict[str, str] | None, enc: str) -> str:
    header = {
        "typ": "application/didcomm-encrypted+json",
        "enc": enc,
        "apv": b64(apv_of([k["kid"] for k in recipients])),
    }
    header["alg"] = "ECDH-1PU+A256KW" if sender else "ECDH-ES+A256KW"
    if sender:
        header |= {"skid": sender["kid"], "apu": b64(sender["kid"].encode())}
    todo = jwe.GeneralJSONEncryption(header, unb64(plain))
    for jwk in recipients:
        todo.add_recipient({"kid": jwk["kid"]}, _key(jwk))
    return json.dumps(jwe.encrypt_json(todo, None, registry=_REGISTRY, sender_key=_key(sender) if sender else None))


def open(envelope: str, secret: dict[str, str], sender: dict[str, str] | None) -> str:
    tree = json.loads(envelope)
    tree["recipients"] = [entry for entry in tree["recipients"] if entry["header"]["kid"] == secret["kid"]]
    their_key = _key(sender) if sender else None
    opened = jwe.decrypt_json(tree, _key(secret), registry=_REGISTRY, sender_key=their_key)
    return b64(opened.plaintext or b"")


def sign(plain: str, signer: dict[str, str], alg: str) -> str:
    member = {"protected": {"typ": "application/didcomm-signed+json", "alg": alg}, "header": {"kid": signer["kid"]}}
    return json.dumps(jws.serialize_json([member], unb64(plain), _key(signer), algorithms=[alg]))


def verify(envelope: str, signer: dict[str, str], alg: str) -> str:
    return b64(jws.deserialize_json(json.loads(envelope), KeySet([_key(signer)]), algorithms=[alg]).payload)
