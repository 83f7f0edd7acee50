"""aries-askar, the Rust library under ACA-Py and credo: primitives, composed to envelopes here."""

import json
from typing import Any

import base58
from aries_askar import Key, KeyAlg, crypto_box, ecdh

from . import apv_of, b64, unb64

CONTENTS = {"A256CBC-HS512": KeyAlg.A256CBC_HS512, "A256GCM": KeyAlg.A256GCM, "XC20P": KeyAlg.XC20P}


def seal(plain: str, recipients: list[dict[str, str]], sender: dict[str, str] | None, enc: str) -> str:
    keys = {jwk["kid"]: Key.from_jwk(jwk) for jwk in recipients}
    apv = apv_of(list(keys))
    content, ephemeral = Key.generate(CONTENTS[enc]), Key.generate(next(iter(keys.values())).algorithm, ephemeral=True)
    protected: dict[str, Any] = {
        "typ": "application/didcomm-encrypted+json",
        "alg": "ECDH-1PU+A256KW" if sender else "ECDH-ES+A256KW",
        "enc": enc,
        "apv": b64(apv),
        "epk": json.loads(ephemeral.get_jwk_public()),
    }
    if sender:
        protected |= {"skid": sender["kid"], "apu": b64(sender["kid"].encode())}
    header = b64(json.dumps(protected).encode())
    sealed = content.aead_encrypt(unb64(plain), aad=header.encode())

    def wrapped(key: Key) -> str:
        if sender is None:
            agreement = ecdh.EcdhEs("ECDH-ES+A256KW", None, apv)
            return b64(agreement.sender_wrap_key(KeyAlg.A256KW, ephemeral, key, content).ciphertext)
        static = ecdh.Ecdh1PU("ECDH-1PU+A256KW", sender["kid"].encode(), apv)
        own = Key.from_jwk(sender)
        return b64(static.sender_wrap_key(KeyAlg.A256KW, ephemeral, own, key, content, cc_tag=sealed.tag).ciphertext)

    return json.dumps(
        {
            "protected": header,
            "recipients": [{"header": {"kid": kid}, "encrypted_key": wrapped(key)} for kid, key in keys.items()],
            "iv": b64(sealed.nonce),
            "ciphertext": b64(sealed.ciphertext),
            "tag": b64(sealed.tag),
        }
    )


def open(envelope: str, secret: dict[str, str], sender: dict[str, str] | None) -> str:
    tree = json.loads(envelope)
    protected = json.loads(unb64(tree["protected"]))
    (entry,) = [entry for entry in tree["recipients"] if entry["header"]["kid"] == secret["kid"]]
    ephemeral, own = Key.from_jwk(protected["epk"]), Key.from_jwk(secret)
    wrapped, tag, apv = unb64(entry["encrypted_key"]), unb64(tree["tag"]), unb64(protected["apv"])
    content = CONTENTS[protected["enc"]]
    if sender is None:
        agreement = ecdh.EcdhEs(protected["alg"], None, apv)
        key = agreement.receiver_unwrap_key(KeyAlg.A256KW, content, ephemeral, own, wrapped)
    else:
        assert protected["skid"] == sender["kid"]
        static = ecdh.Ecdh1PU(protected["alg"], unb64(protected["apu"]), apv)
        theirs = Key.from_jwk(sender)
        key = static.receiver_unwrap_key(KeyAlg.A256KW, content, ephemeral, theirs, own, wrapped, cc_tag=tag)
    aad = tree["protected"].encode()
    return b64(key.aead_decrypt(unb64(tree["ciphertext"]), nonce=unb64(tree["iv"]), tag=tag, aad=aad))


def sign(plain: str, signer: dict[str, str], alg: str) -> str:
    protected, payload = b64(json.dumps({"typ": "application/didcomm-signed+json", "alg": alg}).encode()), plain
    signature = Key.from_jwk(signer).sign_message(f"{protected}.{payload}".encode())
    entry = {"protected": protected, "signature": b64(signature), "header": {"kid": signer["kid"]}}
    return json.dumps({"payload": payload, "signatures": [entry]})


def verify(envelope: str, signer: dict[str, str], alg: str) -> str:
    tree = json.loads(envelope)
    (entry,) = tree["signatures"]
    assert json.loads(unb64(entry["protected"]))["alg"] == alg and entry["header"]["kid"] == signer["kid"]
    signed = f"{entry['protected']}.{tree['payload']}".encode()
    assert Key.from_jwk(signer).verify_signature(signed, unb64(entry["signature"])), "the signature is false"
    return str(tree["payload"])


# --- RFC 0019, the recipe of ACA-Py ----------------------------------------------------------------------------------


def _x25519(seed: str) -> tuple[str, Key]:
    key = Key.from_secret_bytes(KeyAlg.ED25519, unb64(seed))
    return base58.b58encode(key.get_public_bytes()).decode(), key.convert_key(KeyAlg.X25519)


def seal_v1(plain: str, recipients: list[str], sender: str | None) -> str:
    content = Key.generate(KeyAlg.C20P)
    entries = []
    for verkey in recipients:
        key = Key.from_public_bytes(KeyAlg.ED25519, base58.b58decode(verkey)).convert_key(KeyAlg.X25519)
        header = {"kid": verkey}
        if sender is None:
            boxed = crypto_box.crypto_box_seal(key, content.get_secret_bytes())
        else:
            name, own = _x25519(sender)
            nonce = crypto_box.random_nonce()
            boxed = crypto_box.crypto_box(key, own, content.get_secret_bytes(), nonce)
            header |= {"sender": b64(crypto_box.crypto_box_seal(key, name.encode())), "iv": b64(nonce)}
        entries.append({"encrypted_key": b64(boxed), "header": header})
    alg = "Authcrypt" if sender else "Anoncrypt"
    protected = {"enc": "xchacha20poly1305_ietf", "typ": "JWM/1.0", "alg": alg, "recipients": entries}
    header_text = b64(json.dumps(protected).encode())
    sealed = content.aead_encrypt(unb64(plain), aad=header_text.encode())
    parts = {"iv": sealed.nonce, "ciphertext": sealed.ciphertext, "tag": sealed.tag}
    return json.dumps({"protected": header_text} | {name: b64(part) for name, part in parts.items()})


def open_v1(envelope: str, secret: str) -> dict[str, str | None]:
    tree = json.loads(envelope)
    protected = json.loads(unb64(tree["protected"]))
    verkey, own = _x25519(secret)
    (entry,) = [entry for entry in protected["recipients"] if entry["header"]["kid"] == verkey]
    boxed, sender = unb64(entry["encrypted_key"]), None
    if protected["alg"] == "Anoncrypt":
        content = crypto_box.crypto_box_seal_open(own, boxed)
    else:
        sender = crypto_box.crypto_box_seal_open(own, unb64(entry["header"]["sender"])).decode()
        theirs = Key.from_public_bytes(KeyAlg.ED25519, base58.b58decode(sender)).convert_key(KeyAlg.X25519)
        content = crypto_box.crypto_box_open(own, theirs, boxed, unb64(entry["header"]["iv"]))
    key = Key.from_secret_bytes(KeyAlg.C20P, content)
    aad = tree["protected"].encode()
    plain = key.aead_decrypt(unb64(tree["ciphertext"]), nonce=unb64(tree["iv"]), tag=unb64(tree["tag"]), aad=aad)
    return {"plain": b64(plain), "sender": sender}
