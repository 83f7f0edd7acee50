"""jwcrypto: another JOSE library for Python, without ECDH-1PU and XC20P."""

import json

from jwcrypto import jwe, jwk, jws

from . import apv_of, b64, unb64


def seal(plain: str, recipients: list[dict[str, str]], sender: None, enc: str) -> str:
    header = {"typ": "application/didcomm-encrypted+json", "alg": "ECDH-ES+A256KW", "enc": enc}
    header["apv"] = b64(apv_of([key["kid"] for key in recipients]))
    todo = jwe.JWE(unb64(plain), json.dumps(header))
    for key in recipients:
        todo.add_recipient(jwk.JWK(**key), json.dumps({"kid": key["kid"]}))
    return str(todo.serialize())


def open(envelope: str, secret: dict[str, str], sender: None) -> str:
    tree = json.loads(envelope)
    tree["recipients"] = [entry for entry in tree["recipients"] if entry["header"]["kid"] == secret["kid"]]
    todo = jwe.JWE()
    todo.deserialize(json.dumps(tree), jwk.JWK(**secret))
    return b64(todo.payload)


def sign(plain: str, signer: dict[str, str], alg: str) -> str:
    todo = jws.JWS(unb64(plain))
    todo.allowed_algs = [alg]
    protected = {"typ": "application/didcomm-signed+json", "alg": alg}
    todo.add_signature(jwk.JWK(**signer), None, json.dumps(protected), json.dumps({"kid": signer["kid"]}))
    return str(todo.serialize())


def verify(envelope: str, signer: dict[str, str], alg: str) -> str:
    todo = jws.JWS()
    todo.allowed_algs = [alg]
    todo.deserialize(envelope, jwk.JWK(**signer))
    return b64(todo.payload)
