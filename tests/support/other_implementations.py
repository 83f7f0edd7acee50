"""Shared by interop tests: the oracle's process, keys, and a plaintext."""

import json
import os
import subprocess
import sys
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import KeyKind, PublicKey, SecretKey, new_secret, public_jwk, public_of
from zerochat.didcomm.message import Message, dump, parse

PYTHON = os.environ.get("ZEROCHAT_INTEROP_PYTHON")
"""Read when this is imported: no such setting reaches a test."""
ORACLE = Path(__file__).parents[1] / "interop" / "oracle.py"
MAKER = Path(__file__).parents[2] / "scripts" / "interop_environment.py"
ALICE, BOB, CAROL = "did:example:alice", "did:example:bob", "did:example:carol"
TEXT = "naïve – 日本語 ✓ 🐘"


JWE_PEERS = ("didcomm", "aries-askar", "Authlib", "joserfc", "jwcrypto", "didcomm-messaging")
"""The libraries with envelopes of DIDComm v2, by their names on PyPI."""
SIGNING_PEERS = tuple(peer for peer in JWE_PEERS if peer != "didcomm-messaging")


def lacks_jwe(peer: str, agreement: str, enc: str, curve: str, writing: bool) -> str | None:
    """Why a library has no envelope of this kind, if so."""
    if peer == "aries-askar" and curve == "P-521":
        return "aries-askar has no P-521"
    if peer == "jwcrypto" and agreement == "ECDH-1PU":
        return "jwcrypto has no ECDH-1PU"
    if peer == "jwcrypto" and enc == "XC20P":
        return "jwcrypto has no XC20P"
    if peer == "didcomm-messaging" and curve != "X25519":
        return "didcomm-messaging names keys by multikeys, and knows X25519 alone"
    if peer == "didcomm-messaging" and writing and agreement == "ECDH-ES" and enc != "XC20P":
        return "didcomm-messaging writes XC20P alone"
    return None


class Peers:
    """The oracle's process, and the versions of those who answer in it."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, ORACLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.found: dict[str, dict[str, str]] = self._say({"ask": "peers"})["is"]

    def ask(self, peer: str, function: str, **arguments: object) -> Any:
        """What the peer answers. A test that asks one that is not there is skipped."""
        if missing := self.found[peer].get("missing"):
            pytest.skip(f"{peer} is not in the environment: {missing}")
        reply = self._say({"peer": peer, "ask": function, "with": arguments})
        assert "error" not in reply, f"{peer} {self.found[peer]['version']}: {reply['error']}"
        return reply["is"]

    def refuses(self, peer: str, function: str, **arguments: object) -> bool:
        return "error" in self._say({"peer": peer, "ask": function, "with": arguments})

    def _say(self, question: dict[str, object]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply

    def stop(self) -> None:
        self._process.communicate(timeout=10)


def python_with(kind: str) -> str:
    """The Python of an environment with other people's programs, made if need be; else the test is skipped."""
    made = _making(kind)
    if made.returncode:
        _, _, why = f"\n{made.stderr}".partition("\n\n")  # what it says at last
        pytest.skip(f"the environment {kind!r} cannot be made: {why.strip().splitlines()[0]}")
    return made.stdout.strip()


@cache
def _making(kind: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, MAKER, kind], capture_output=True, text=True)


@contextmanager
def oracle() -> Iterator[Peers]:
    """The peers, in the environment that is there or can be made; else the test is skipped."""
    running = Peers(PYTHON or python_with("interop"))
    try:
        yield running
    finally:
        running.stop()


# --- keys -----------------------------------------------------------------------------------------------------------


@cache
def secret(kid: str, kind: KeyKind) -> SecretKey:
    return new_secret(kind, os.urandom)


def public(kid: str, kind: KeyKind) -> PublicKey:
    return public_of(secret(kid, kind))


def public_with_id(kid: str, kind: KeyKind) -> dict[str, str]:
    return {**public_jwk(public(kid, kind)), "kid": kid}


def secret_with_id(kid: str, kind: KeyKind) -> dict[str, str]:
    return {**public_with_id(kid, kind), "d": b64url(secret(kid, kind).data)}


def plaintext(**members: Any) -> bytes:
    return dump(
        Message(id="1f2e", type="https://didcomm.org/basicmessage/2.0/message", body={"content": TEXT}, **members)
    )


def bytes_of(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def same_message(one: bytes, other: bytes) -> bool:
    """Whether two plaintexts are one message: a library may write it anew."""
    return parse(one) == parse(other)
