"""The wire formats of the ZeroComm thesis, with real libsodium encryption; `analytics.thesis` has its published sizes.

Only the sizes matter: the thesis' own programs are not meant to read these messages.
"""

import base64
import json
import random
from typing import Any

import zstandard
from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_encrypt,
    crypto_box,
    crypto_box_keypair,
    crypto_box_seal,
)

from zerochat.crypto.encoding import base58

LEVEL = 19
TAG_BYTES = 16


def sections(members: int) -> int:
    """For how many members a state message is: the joiner is not among them. The text's 25 are counted without it."""
    return members if members == 25 else members - 1


def authcrypt(plain: bytes, dice: random.Random) -> bytes:
    """The envelope of one message for one member; the keys of both are made for it."""
    (public, _), (sender_public, sender_secret) = crypto_box_keypair(), crypto_box_keypair()
    cek = dice.randbytes(64)
    cek_iv, iv = (str(dice.getrandbits(63)).encode() for _ in range(2))  # decimal digits, not bytes
    recipient = {
        "encrypted_key": std(crypto_box(cek, cek_iv.ljust(24, b"0"), public, sender_secret)),
        "header": {"kid": base58(public), "iv": std(cek_iv), "sender": std(crypto_box_seal(sender_public, public))},
    }
    protected = compact(
        {"enc": "xchacha20poly1305_ietf", "typ": "JWM/1.0", "alg": "Authcrypt", "recipients": [recipient]}
    )
    sealed = crypto_aead_chacha20poly1305_ietf_encrypt(plain, protected, iv.ljust(12, b"0")[:12], cek[:32])
    parts = {
        "protected": protected,
        "iv": iv,
        "ciphertext": sealed[:-TAG_BYTES],
        "tag": sealed[-TAG_BYTES:],
    }
    return compact({name: std(part) for name, part in parts.items()})


def member(number: int, dice: random.Random) -> bytes:
    """One member's entry in a state message, which includes its whole invitation."""
    host, label = f"10.0.0.{number % 250 + 4}", f"bob-{number}"
    service = {
        "id": identifier(dice),
        "type": "did-exchange-service",
        "recipientKeys": [std(dice.randbytes(32))],
        "routingKeys": None,
        "serviceEndpoint": f"tcp://{host}:6001",
        "accept": None,
    }
    invitation = {
        "id": identifier(dice),
        "type": "https://didcomm.org/out-of-band/1.0/invitation",
        "from": "",
        "label": label,
        "body": {"goal_code": "", "goal": "", "accept": None},
        "Attachments": None,
        "services": [service],
    }
    url = f"tcp://{host}:6001?oob={base64.urlsafe_b64encode(compact(invitation)).decode()}"
    return compact({"active": True, "publisher": True, "label": label, "inv": url, "pubEndpoint": f"tcp://{host}:7001"})


def state(members: int, dice: random.Random) -> tuple[int, int]:
    """Bytes of one member's state message for all the others, before and after Zstandard: a map from the id of each
    relationship to an envelope, which is JSON once more and therefore escaped."""
    body = member(1, dice)
    envelopes = {identifier(dice): authcrypt(body, dice).decode() for _ in range(sections(members))}
    message = compact(
        {
            "@id": identifier(dice),
            "@type": "https://didcomm.org/pub-sub/1.0/status",
            "topic": "group",
            "auth_msgs": envelopes,
        }
    )
    return len(message), len(zstandard.ZstdCompressor(level=LEVEL).compress(message))


def identifier(dice: random.Random) -> str:
    digits = f"{dice.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def compact(tree: Any) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()


def std(data: bytes) -> str:
    return base64.b64encode(data).decode()
