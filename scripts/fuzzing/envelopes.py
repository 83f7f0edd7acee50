"""Fuzz targets: JWE, RFC 0019, signatures, and nested layers."""

from collections.abc import Callable
from random import Random
from typing import ClassVar

from fuzzing.nodes import Array, Base64, Bytes, Joined, Object, Part, as_text, utf8
from fuzzing.people import (
    ALICE,
    BOB,
    INVITER,
    KEYS,
    Dice,
    dice,
    known,
    own,
    public_key_of,
    secret_of,
    theirs,
)
from fuzzing.run import Form
from zerochat.crypto.keys import KeyKind, SecretKey, sign
from zerochat.crypto.nacl_boxes import chacha20_poly1305_seal
from zerochat.crypto.primitives import sha256
from zerochat.didcomm import jwe_parser, jws, rfc0019
from zerochat.didcomm.did import resolve
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.layers import Opened, open_layers, seal_layers
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Attachment, Message, dump
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, OwnKey, TheirKey, envelope_kind
from zerochat.didcomm.rfc0019 import Rfc0019Packer
from zerochat.didcomm.rotation import Prior, from_prior, prior_did, verify_from_prior
from zerochat.errors import RemoteError

TEXT = Message(
    type="https://didcomm.org/basicmessage/2.0/message",
    id="6f0a5b9e-6b0c-4c2e-9d6e-0f5c1a2b3c4d",
    body={"content": "See you at eight?"},
    from_=ALICE.short,
    to=(BOB.short,),
    created_time=1_800_000_000,
)
V1, V2 = Rfc0019Packer(), JwePacker()


class Jwe:
    """DIDComm v2's encrypted messages, all curves and content encryptions, to one key and to several."""

    name = "jwe"
    form: Form = "text"
    size_max = ENVELOPE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        """Each is opened too, so that the reader knows the likes of them, as it does after a while."""
        plain, random = dump(TEXT), dice(self.name)
        found = [
            *(V2.authcrypt(plain, sender=own("alice", k), recipient=theirs("bob", k), random=random) for k in _CURVES),
            *(V2.anoncrypt(plain, recipient=theirs("bob", "X25519"), random=random, enc=enc) for enc in _ENCS),
            V2.seal_many(
                plain,
                [theirs("bob", "X25519", number) for number in range(3)],
                sender=own("alice", "X25519"),
                random=random,
            ),
        ]
        for envelope in found:
            self.parse(envelope)
        return found

    def seal(self, tree: Part, dice: Random) -> Part:
        """Mostly with the `apv` that belongs to the recipients, which is compared before any key is used."""
        if dice.random() < 0.7 and isinstance(tree, Object):
            header, kids = _header(tree), [utf8(as_text(kid)) for kid in _kids(tree.get("recipients"))]
            if header is not None and kids:
                apv = Bytes(sha256(b".".join(sorted(kids))))
                return tree.put("protected", Base64([header.put("apv", apv)]))
        return tree

    def parse(self, data: bytes) -> object:
        """The shortcut for envelopes like one before must never see anything that the long way does not."""
        _check_shortcut(
            jwe_parser._read_by_template(data),
            lambda data: jwe_parser._read_general(data)._replace(from_template=True),
            data,
        )
        unpacked = V2.unpack(data, secret_of=secret_of, public_of=public_key_of)
        assert envelope_kind(data) == "didcomm/v2"
        return unpacked


def _check_shortcut(short: object, general: Callable[[bytes], object], data: bytes) -> None:
    if short is not None:
        try:
            assert general(data) == short
        except RemoteError:
            raise AssertionError("a shortcut reads what the long way refuses") from None


_CURVES: tuple[KeyKind, ...] = ("X25519", "P-256", "X25519", "P-384", "P-521")
_ENCS = ("A256CBC-HS512", "A256GCM", "XC20P")


def _header(tree: Object) -> Object | None:
    protected = tree.get("protected")
    inside = protected.parts[0] if isinstance(protected, Base64) and protected.parts else None
    return inside if isinstance(inside, Object) else None


def _kids(recipients: Part) -> list[Part]:
    entries = recipients.parts if isinstance(recipients, Array) else ()
    headers = [entry.get("header") for entry in entries if isinstance(entry, Object)]
    return [header.get("kid") for header in headers if isinstance(header, Object)]


class Rfc0019:
    """DIDComm v1's envelopes."""

    name = "rfc0019"
    form: Form = "text"
    size_max = ENVELOPE_BYTES_MAX

    _KEY = b"k" * 32
    _ALICE, _BOB = V1.own_key(ALICE, ALICE.did), V1.own_key(BOB, BOB.did)

    def seeds(self) -> list[bytes]:
        """All have one and the same content encryption key, so that another header can be sealed under it."""
        plain, to = b'{"@id":"1","@type":"x"}', V1.their_key(known(BOB.did), BOB.did)
        return [
            V1.authcrypt(plain, sender=self._ALICE, recipient=to, random=self._dice()),
            V1.anoncrypt(plain, recipient=to, random=self._dice()),
        ]

    def _dice(self) -> Dice:
        first, other = [self._KEY], dice(self.name)
        return lambda size: first.pop() if first else other(size)

    def seal(self, tree: Part, dice: Random) -> Part:
        if dice.random() < 0.7 and isinstance(tree, Object):
            aad, iv = tree.get("protected"), tree.get("iv")
            if isinstance(iv, Bytes) and len(iv.data) == 12:
                sealed = chacha20_poly1305_seal(self._KEY, iv.data, b"{}", utf8(as_text(aad)))
                tree = tree.put("ciphertext", Bytes(sealed[:-16], True)).put("tag", Bytes(sealed[-16:], True))
        return tree

    def parse(self, data: bytes) -> object:
        """The shortcut for the usual spelling must never see anything that the long way does not."""
        _check_shortcut(rfc0019._usual(data), rfc0019._general, data)
        unpacked = V1.unpack(data, secret_of=lambda kid: self._BOB.key if kid == self._BOB.kid else None)
        assert unpacked.sender_kid in (None, self._ALICE.kid)
        assert envelope_kind(data) == "didcomm/v1"
        return unpacked


class Jws:
    """Signed messages of all kinds of signature, and the tokens that rotate a DID."""

    name = "jws"
    form: Form = "text"
    size_max = jws.SIGNED_BYTES_MAX

    _KINDS: tuple[KeyKind, ...] = ("Ed25519", "P-256", "secp256k1")

    def seeds(self) -> list[bytes]:
        plain = dump(TEXT)
        signers = [(own("alice", kind).kid, KEYS[kind]) for kind in self._KINDS]
        prior = Prior(INVITER.did, INVITER.kid_signing, INVITER.signing_seed)
        return [
            *(jws.sign(plain, [signer]) for signer in signers),
            jws.sign(plain, signers[:1], flattened=True),
            jws.sign(plain, signers),
            from_prior(prior, ALICE.did, 1_800_000_000).encode(),
            from_prior(prior, ALICE.short, 1_800_000_000).encode(),
        ]

    def seal(self, tree: Part, dice: Random) -> Part:
        if dice.random() < 0.5:
            return tree
        if isinstance(tree, Joined) and len(tree.parts) == 3:
            key = SecretKey("Ed25519", INVITER.signing_seed)
            signed = utf8(as_text(tree.parts[0]) + "." + as_text(tree.parts[1]))
            return Joined([*tree.parts[:2], Bytes(sign(key, signed))], ".")
        if not isinstance(tree, Object):
            return tree
        payload, listed = as_text(tree.get("payload")), tree.get("signatures")
        if isinstance(listed, Array):
            return tree.put("signatures", Array([self._signed(entry, payload) for entry in listed.parts[:8]]))
        return self._signed(tree, payload)

    def _signed(self, entry: Part, payload: str) -> Part:
        header = entry.get("header") if isinstance(entry, Object) else None
        if not isinstance(entry, Object) or not isinstance(header, Object):
            return entry
        kind = as_text(header.get("kid")).rpartition("#")[2]
        key = next((key for name, key in KEYS.items() if name == kind and name in self._KINDS), None)
        if key is None:
            return entry
        return entry.put("signature", Bytes(sign(key, utf8(f"{as_text(entry.get('protected'))}.{payload}"))))

    def parse(self, data: bytes) -> object:
        if data[:1] == b"{":
            return jws.verify(data, public_key_of)
        text = data.decode(errors="surrogateescape")
        return prior_did(text), verify_from_prior(text, resolve(INVITER.did), ALICE.did)


class Layers:
    """Whatever an agent gets, sealed as it should be around a message, or a layer, that is not as it should be."""

    name = "layers"
    form: Form = "sealed"
    size_max = MESSAGE_BYTES_MAX

    _V2_ALICE, _V1_ALICE = V2.own_key(ALICE, ALICE.short), V1.own_key(ALICE, ALICE.short)
    _V2_BOB, _V1_BOB = (packer.their_key(known(BOB.did), BOB.short) for packer in (V2, V1))
    _SIGNER = OwnKey(ALICE.short + "#key-1", SecretKey("Ed25519", ALICE.signing_seed))
    _SECRETS: ClassVar[dict[str, SecretKey]] = {
        key.kid: key.key for key in (V2.own_key(BOB, BOB.short), V2.own_key(BOB, BOB.did), V1.own_key(BOB, BOB.did))
    }

    def seeds(self) -> list[bytes]:
        random = dice(self.name)
        return [
            dump(TEXT),
            V1.dump(TEXT),
            seal_layers(TEXT, signer=self._SIGNER, random=random),
            seal_layers(TEXT, sender=self._V2_ALICE, recipient=self._V2_BOB, random=random),
            seal_layers(TEXT, signer=self._SIGNER, recipient=self._V2_BOB, random=random),
            dump(Message(type="x", id="1", attachments=(Attachment(base64="aGk", filename="a"),))),
        ]

    def seal(self, tree: Part, dice: Random) -> Part:
        plain, random = utf8(as_text(tree)), dice.randbytes
        if len(plain) > MESSAGE_BYTES_MAX:
            return tree
        match dice.randrange(8):
            case 0 | 1:
                sealed = V2.authcrypt(plain, sender=self._V2_ALICE, recipient=self._V2_BOB, random=random)
            case 2:
                sealed = V2.anoncrypt(plain, recipient=self._V2_BOB, random=random)
            case 3:
                inner = V2.authcrypt(plain, sender=self._V2_ALICE, recipient=self._V2_BOB, random=random)
                sealed = inner if len(inner) > MESSAGE_BYTES_MAX else _anonymous(inner, self._V2_BOB, dice)
            case 4:
                inner = jws.sign(plain, [(self._SIGNER.kid, self._SIGNER.key)])
                sealed = inner if len(inner) > MESSAGE_BYTES_MAX else _anonymous(inner, self._V2_BOB, dice)
            case 5:
                sealed = V1.authcrypt(plain, sender=self._V1_ALICE, recipient=self._V1_BOB, random=random)
            case 6:
                sealed = jws.sign(plain, [(self._SIGNER.kid, self._SIGNER.key)])
            case _:
                return tree
        return sealed.decode()

    def parse(self, data: bytes) -> Opened:
        opened = open_layers(data, secret_of=self._SECRETS.get, resolve=known, allow_plain=True, lenient=True)
        if opened.sender is not None or opened.signer is not None:
            assert opened.message.from_ in (ALICE.short, ALICE.did) or opened.profile == "didcomm/v1"
        return opened


def _anonymous(inner: bytes, recipient: TheirKey, dice: Random) -> bytes:
    return V2.anoncrypt(inner, recipient=recipient, random=dice.randbytes)
