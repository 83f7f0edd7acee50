"""Envelopes of other libraries, timed in their own environment for the benchmark of the same name.

Reads requests as JSON lines and answers each with one line. The first request names the two parties and their keys;
every library then caches whatever it can: keys, documents, services. A library packs from Alice to Bob, and unpacks
zerochat's envelopes, so that all of them have the same work.
"""

import base64
import hashlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

Tree = dict[str, Any]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def once(coroutine: Any) -> Any:
    """The result of a coroutine that never waits for anything: without an event loop, which would cost extra."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("it waits for something")


class AskarV2:
    """aries-askar, ECDH-1PU: the recipe of ACA-Py and didcomm-messaging, with cached keys."""

    def __init__(self, alice: Tree, bob: Tree) -> None:
        askar = import_module("aries_askar")
        self.Key, self.algorithms = askar.Key, askar.KeyAlg
        kind = self.algorithms.X25519
        self.alice_kid, self.bob_kid = alice["kid"], bob["kid"]
        self.alice, self.bob = (self.Key.from_secret_bytes(kind, unb64(who["d"])) for who in (alice, bob))
        self.alice_public, self.bob_public = (self.Key.from_public_bytes(kind, unb64(who["x"])) for who in (alice, bob))
        self.apv = hashlib.sha256(self.bob_kid.encode()).digest()
        self.agreement = import_module("aries_askar.ecdh").Ecdh1PU("ECDH-1PU+A256KW", self.alice_kid, self.apv)

    def pack(self, plain: str) -> str:
        ephemeral = self.Key.generate(self.algorithms.X25519, ephemeral=True)
        key = self.Key.generate(self.algorithms.A256CBC_HS512)
        header = {
            "typ": "application/didcomm-encrypted+json",
            "alg": "ECDH-1PU+A256KW",
            "enc": "A256CBC-HS512",
            "skid": self.alice_kid,
            "apu": b64(self.alice_kid.encode()),
            "apv": b64(self.apv),
            "epk": json.loads(ephemeral.get_jwk_public()),
        }
        protected = b64(json.dumps(header).encode())
        sealed = key.aead_encrypt(plain.encode(), aad=protected.encode())
        wrapped = self.agreement.sender_wrap_key(
            self.algorithms.A256KW, ephemeral, self.alice, self.bob_public, key, cc_tag=sealed.tag
        )
        entry = {"header": {"kid": self.bob_kid}, "encrypted_key": b64(wrapped.ciphertext)}
        parts = {"iv": sealed.nonce, "ciphertext": sealed.ciphertext, "tag": sealed.tag}
        tree: Tree = {"protected": protected, "recipients": [entry]}
        return json.dumps(tree | {name: b64(part) for name, part in parts.items()})

    def unpack(self, envelope: str) -> str:
        tree = json.loads(envelope)
        header = json.loads(unb64(tree["protected"]))
        entry = next(entry for entry in tree["recipients"] if entry["header"]["kid"] == self.bob_kid)
        tag = unb64(tree["tag"])
        key = self.agreement.receiver_unwrap_key(
            self.algorithms.A256KW,
            self.algorithms.A256CBC_HS512,
            self.Key.from_jwk(header["epk"]),
            self.alice_public,
            self.bob,
            unb64(entry["encrypted_key"]),
            cc_tag=tag,
        )
        aad = tree["protected"].encode()
        plain: bytes = key.aead_decrypt(unb64(tree["ciphertext"]), nonce=unb64(tree["iv"]), tag=tag, aad=aad)
        return plain.decode()


class AskarV1:
    """aries-askar, RFC 0019: the recipe of ACA-Py, with cached keys."""

    def __init__(self, alice: Tree, bob: Tree) -> None:
        askar = import_module("aries_askar")
        self.Key, self.algorithms = askar.Key, askar.KeyAlg
        self.boxes = import_module("aries_askar.crypto_box")
        kind, x25519 = self.algorithms.ED25519, self.algorithms.X25519
        self.alice_name, self.bob_name = alice["verkey"], bob["verkey"]
        self.alice, self.bob = (
            self.Key.from_secret_bytes(kind, unb64(who["seed"])).convert_key(x25519) for who in (alice, bob)
        )
        self.publics = {
            who["verkey"]: self.Key.from_public_bytes(x25519, key.get_public_bytes())
            for who, key in ((alice, self.alice), (bob, self.bob))
        }

    def pack(self, plain: str) -> str:
        key, nonce, bob = (
            self.Key.generate(self.algorithms.C20P),
            self.boxes.random_nonce(),
            self.publics[self.bob_name],
        )
        header = {
            "kid": self.bob_name,
            "sender": b64(self.boxes.crypto_box_seal(bob, self.alice_name.encode())),
            "iv": b64(nonce),
        }
        boxed = self.boxes.crypto_box(bob, self.alice, key.get_secret_bytes(), nonce)
        tree = {
            "enc": "xchacha20poly1305_ietf",
            "typ": "JWM/1.0",
            "alg": "Authcrypt",
            "recipients": [{"encrypted_key": b64(boxed), "header": header}],
        }
        protected = b64(json.dumps(tree).encode())
        sealed = key.aead_encrypt(plain.encode(), aad=protected.encode())
        parts = {"iv": sealed.nonce, "ciphertext": sealed.ciphertext, "tag": sealed.tag}
        return json.dumps({"protected": protected} | {name: b64(part) for name, part in parts.items()})

    def unpack(self, envelope: str) -> str:
        tree = json.loads(envelope)
        protected = json.loads(unb64(tree["protected"]))
        entry = next(entry for entry in protected["recipients"] if entry["header"]["kid"] == self.bob_name)
        header = entry["header"]
        sender = self.publics[self.boxes.crypto_box_seal_open(self.bob, unb64(header["sender"])).decode()]
        key = self.boxes.crypto_box_open(self.bob, sender, unb64(entry["encrypted_key"]), unb64(header["iv"]))
        content = self.Key.from_secret_bytes(self.algorithms.C20P, key)
        ciphertext, nonce, tag = (unb64(tree[name]) for name in ("ciphertext", "iv", "tag"))
        plain: bytes = content.aead_decrypt(ciphertext, nonce=nonce, tag=tag, aad=tree["protected"].encode())
        return plain.decode()


class Messaging:
    """didcomm-messaging, RFC 0019: on PyNaCl, with functions that take keys as bytes."""

    def __init__(self, alice: Tree, bob: Tree) -> None:
        self.legacy = import_module("didcomm_messaging.legacy.crypto")
        pair = import_module("nacl.bindings").crypto_sign_seed_keypair
        self.alice, self.bob = (pair(unb64(who["seed"])) for who in (alice, bob))

    def pack(self, plain: str) -> str:
        return json.dumps(self.legacy.pack_message(plain, [self.bob[0]], *self.alice))

    def unpack(self, envelope: str) -> str:
        plain: str = self.legacy.unpack_message(envelope.encode(), *self.bob)[0]
        return plain


class Sicpa:
    """didcomm, by SICPA: it takes and gives messages; texts here are the plaintext messages as JSON."""

    def __init__(self, alice: Tree, bob: Tree) -> None:
        types, document = import_module("didcomm.common.types"), import_module("didcomm.did_doc.did_doc")
        resolvers, secrets = (
            import_module("didcomm.common.resolvers"),
            import_module("didcomm.secrets.secrets_resolver"),
        )
        self.packing, self.unpacking = import_module("didcomm.pack_encrypted"), import_module("didcomm.unpack")
        self.Message = import_module("didcomm.message").Message
        kind = types.VerificationMethodType.JSON_WEB_KEY_2020
        documents, kept = {}, {}
        for who in (alice, bob):
            jwk = {"kty": "OKP", "crv": "X25519", "x": who["x"], "kid": who["kid"]}
            public, secret = (
                types.VerificationMaterial(types.VerificationMaterialFormat.JWK, json.dumps(key))
                for key in (jwk, jwk | {"d": who["d"]})
            )
            documents[who["did"]] = document.DIDDoc(
                did=who["did"],
                key_agreement_kids=[who["kid"]],
                authentication_kids=[],
                verification_methods=[document.VerificationMethod(who["kid"], kind, who["did"], public)],
                didcomm_services=[],
            )
            kept[who["kid"]] = secrets.Secret(who["kid"], kind, secret)

        class Resolver:
            async def resolve(self, did: str) -> Any:
                return documents[did]

            async def get_key(self, kid: str) -> Any:
                return kept.get(kid)

            async def get_keys(self, kids: list[str]) -> list[str]:
                return [kid for kid in kids if kid in kept]

        self.config = resolvers.ResolversConfig(secrets_resolver=Resolver(), did_resolver=Resolver())
        self.options = self.packing.PackEncryptedConfig(forward=False)
        self.alice, self.bob = alice["did"], bob["did"]

    def pack(self, plain: str) -> str:
        tree = json.loads(plain)
        message = self.Message(
            id=tree["id"], type=tree["type"], body=tree["body"], frm=self.alice, to=[self.bob], from_prior=None
        )
        packed = once(
            self.packing.pack_encrypted(self.config, message, self.bob, frm=self.alice, pack_config=self.options)
        )
        return str(packed.packed_msg)

    def unpack(self, envelope: str) -> str:
        message = once(self.unpacking.unpack(self.config, envelope)).message
        return json.dumps({"id": message.id, "type": message.type, "body": message.body})


PEERS: dict[str, Callable[[Tree, Tree], Any]] = {
    "aries-askar v2": AskarV2,
    "aries-askar v1": AskarV1,
    "didcomm-messaging": Messaging,
    "didcomm": Sicpa,
}


def time_hot(call: Callable[[], object], count: int) -> float:
    """Microseconds for each of so many calls in a row."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def time_paced(call: Callable[[], object], count: int, pause_s: float) -> list[float]:
    """Microseconds of each of so many calls with pauses in between."""
    times = []
    for _ in range(count):
        time.sleep(pause_s)
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def main() -> None:
    warnings.showwarning = lambda *_, **__: None  # warnings of other code do not concern this benchmark
    made: dict[str, Any] = {}
    for line in sys.stdin:
        question = json.loads(line)
        answer: object
        match question["ask"]:
            case "meet":
                for name, peer in PEERS.items():
                    try:
                        made[name] = peer(question["alice"], question["bob"])
                    except ImportError as error:
                        print(f"{name}: {error}", file=sys.stderr)
                answer = list(made)
            case "call":
                answer = getattr(made[question["peer"]], question["does"])(question["text"])
            case _:
                call = partial(getattr(made[question["peer"]], question["does"]), question["text"])
                if question["ask"] == "hot":
                    answer = time_hot(call, question["count"])
                else:
                    answer = time_paced(call, question["count"], question["pause_s"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
