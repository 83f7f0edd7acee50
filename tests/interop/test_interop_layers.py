"""All legal layers of DIDComm v2, on each curve and with each kind of signature, in both directions.

A library of envelopes and signatures opens and writes one layer after the other; SICPA's didcomm has whole messages.
See test_interop.py.
"""

import json
import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.support.other_implementations import (
    ALICE,
    BOB,
    JWE_PEERS,
    Peers,
    bytes_of,
    lacks_jwe,
    oracle,
    public,
    public_with_id,
    secret,
    secret_with_id,
)
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import AGREEMENT_KINDS, ALGORITHM_OF, KeyKind
from zerochat.didcomm.did import Document
from zerochat.didcomm.did.document import Method
from zerochat.didcomm.layers import open_layers, seal_layers
from zerochat.didcomm.message import Message, dump, parse
from zerochat.didcomm.packer import OwnKey, TheirKey

pytestmark = [pytest.mark.conformance, pytest.mark.slow]


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    with oracle() as running:
        yield running


OURS = ("sign", "auth", "anon", "anon(sign)", "anon(auth)")
THEIRS = (*OURS, "auth(sign)")
"""auth(sign) is read and never written."""
NAMES = {"sign": "signed", "auth": "authcrypt", "anon": "anoncrypt"}
MESSAGE = Message(id="1f2e", type="https://didcomm.org/empty/1.0/empty", body={}, from_=ALICE, to=(BOB,), thid="77")


def names(nesting: str) -> list[str]:
    """The layers, outermost first."""
    return nesting.rstrip(")").split("(")


def encryption(peer: str, layer: str) -> tuple[str, str]:
    if layer == "auth":
        return "ECDH-1PU", "A256CBC-HS512"
    return "ECDH-ES", "XC20P" if peer == "didcomm-messaging" else "A256CBC-HS512"


def lacks(peer: str, nesting: str, curve: str | None, writing: bool) -> str | None:
    """Why this cell of the matrix is empty, if it is."""
    for layer in names(nesting):
        if layer == "sign":
            if peer == "didcomm-messaging":
                return "didcomm-messaging has no signatures"
        elif reason := lacks_jwe(peer, *encryption(peer, layer), curve or "", writing):
            return reason
    return None


def cells(nestings: tuple[str, ...], writing: bool) -> list[Any]:
    found = []
    for peer, nesting in product(JWE_PEERS, nestings):
        curves = [None] if nesting == "sign" else AGREEMENT_KINDS
        signing = ALGORITHM_OF if "sign" in nesting else [None]
        for curve, kind in product(curves, signing):
            reason = lacks(peer, nesting, curve, writing)
            name = "-".join(part for part in (peer, nesting, curve, kind) if part)
            found.append(
                pytest.param(
                    peer, nesting, curve, kind, id=name, marks=[pytest.mark.skip(reason=reason)] if reason else []
                )
            )
    return found


def x(did: str) -> str:
    return f"{did}#agreement"


SIGNER = f"{ALICE}#signing"


def documents(curve: KeyKind | None, kind: KeyKind | None) -> dict[str, Document]:
    def methods(kid: str, of: KeyKind | None) -> tuple[Method, ...]:
        return () if of is None else (Method(kid, public(f"{kid}-{of}", of)),)

    signing = methods(SIGNER, kind)
    return {did: Document(did, methods(x(did), curve), signing if did == ALICE else (), ()) for did in (ALICE, BOB)}


def jwk(kid: str, kind: KeyKind, private: bool = False) -> dict[str, str]:
    return {**(secret_with_id if private else public_with_id)(f"{kid}-{kind}", kind), "kid": kid}


def jwks(did: str, curve: KeyKind | None, kind: KeyKind | None, private: bool = False) -> list[dict[str, str]]:
    found = [] if curve is None else [jwk(x(did), curve, private)]
    return found if kind is None or did != ALICE else [*found, jwk(SIGNER, kind, private)]


def sicpa_documents(curve: KeyKind | None, kind: KeyKind | None) -> list[dict[str, Any]]:
    return [
        {
            "did": did,
            "agreement": jwks(did, curve, None),
            "authentication": [jwk(SIGNER, kind)] if kind and did == ALICE else [],
        }
        for did in (ALICE, BOB)
    ]


# --- ours -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("peer", "nesting", "curve", "kind"), cells(OURS, writing=False))
def test_they_open_our_layers(peers, peer, nesting, curve, kind):
    data = seal_layers(
        MESSAGE,
        random=os.urandom,
        sender=OwnKey(x(ALICE), secret(f"{x(ALICE)}-{curve}", curve)) if "auth" in nesting else None,
        signer=OwnKey(SIGNER, secret(f"{SIGNER}-{kind}", kind)) if "sign" in nesting else None,
        recipient=TheirKey(x(BOB), public(f"{x(BOB)}-{curve}", curve)) if curve else None,
        protect_sender=nesting == "anon(auth)",
    ).decode()
    if peer == "didcomm":
        said = peers.ask(
            peer, "read", envelope=data, documents=sicpa_documents(curve, kind), secrets=jwks(BOB, curve, None, True)
        )
        assert parse(json.dumps(said["message"]).encode()) == MESSAGE
        assert said["from"] == (x(ALICE) if "auth" in nesting else None)
        assert said["signed_by"] == (SIGNER if "sign" in nesting else None)
        assert said["anonymous"] == ("anon" in nesting)
        return
    for layer in names(nesting):
        if layer == "sign":
            data = peers.ask(peer, "verify", envelope=data, signer=jwk(SIGNER, kind), alg=ALGORITHM_OF[kind])
        else:
            sender = jwk(x(ALICE), curve) if layer == "auth" else None
            data = peers.ask(peer, "open", envelope=data, secret=jwk(x(BOB), curve, True), sender=sender)
        data = bytes_of(data).decode()
    assert parse(data.encode()) == MESSAGE


# --- theirs ---------------------------------------------------------------------------------------------------------


def written(peers: Peers, peer: str, nesting: str, curve: Any, kind: Any) -> bytes:
    if peer == "didcomm":
        tree = {"id": MESSAGE.id, "type": MESSAGE.type, "body": {}, "from": ALICE, "to": [BOB], "thid": MESSAGE.thid}
        packed: str = peers.ask(
            peer,
            "pack",
            message=tree,
            documents=sicpa_documents(curve, kind),
            secrets=jwks(ALICE, curve, kind, True),
            to=BOB if curve else None,
            sender=ALICE if "auth" in nesting else None,
            signer=ALICE if "sign" in nesting else None,
            protect_sender=nesting == "anon(auth)",
        )
        return packed.encode()
    data = dump(MESSAGE)
    for layer in reversed(names(nesting)):
        if layer == "sign":
            text = peers.ask(peer, "sign", plain=b64url(data), signer=jwk(SIGNER, kind, True), alg=ALGORITHM_OF[kind])
        else:
            sender = jwk(x(ALICE), curve, True) if layer == "auth" else None
            _, enc = encryption(peer, layer)
            text = peers.ask(peer, "seal", plain=b64url(data), recipients=[jwk(x(BOB), curve)], sender=sender, enc=enc)
        data = text.encode()
    return data


@pytest.mark.parametrize(("peer", "nesting", "curve", "kind"), cells(THEIRS, writing=True))
def test_we_open_their_layers(peers, peer, nesting, curve, kind):
    opened = open_layers(
        written(peers, peer, nesting, curve, kind),
        secret_of=lambda kid: secret(f"{kid}-{curve}", curve) if kid == x(BOB) else None,
        resolve=documents(curve, kind).__getitem__,
    )
    assert opened.message == MESSAGE
    assert opened.sender == (ALICE if "auth" in nesting else None)
    assert opened.signer == (ALICE if "sign" in nesting else None)
    assert [layer.kind for layer in opened.layers] == [NAMES[name] for name in names(nesting)]
    algorithms = [layer.algorithm for layer in opened.layers if layer.kind == "signed"]
    assert algorithms == ([ALGORITHM_OF[kind]] if kind else [])
