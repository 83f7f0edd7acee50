"""Published RFC 0019 envelopes of six implementations: valid ones open, invalid ones do not."""

import json

import pytest

from tests.support.vectors import Json, cases, load
from zerochat.crypto.encoding import b64url_bytes, base58_bytes
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm.packer import envelope_kind
from zerochat.didcomm.rfc0019 import Rfc0019Packer
from zerochat.errors import RemoteError, Unauthentic

pytestmark = pytest.mark.conformance

FILE = "rfc0019_pack.json"


def wire(case: Json) -> bytes:
    packed = case["packed"]
    return json.dumps(packed).encode() if packed is not None else case["packed_raw"].encode()


def nobody(kid: str) -> PublicKey:
    raise AssertionError("a verkey is its own name")


@pytest.mark.parametrize("case", cases(FILE, "cases"))
def test_rfc0019_pack(case: Json) -> None:
    pair = base58_bytes(case["recipient_sign_key_b58_64"], 64)
    own = {case["recipient_verkey"]: SecretKey("Ed25519", pair[:32])}
    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(RemoteError):
            Rfc0019Packer().unpack(wire(case), secret_of=own.get, public_of=nobody)
        return
    unpacked = Rfc0019Packer().unpack(wire(case), secret_of=own.get, public_of=nobody)
    assert unpacked.plain.decode() == expect["plaintext"]
    assert unpacked.kind == expect["alg"].lower()
    assert unpacked.sender_kid == expect["sender_verkey"]
    assert unpacked.recipient_kid == expect["recipient_verkey"]
    assert unpacked.forgeable == ("multi" in case["id"])
    assert envelope_kind(wire(case)) == "didcomm/v1"


def test_the_examples_in_the_rfc_are_well_formed() -> None:
    """Their keys are unpublished: they are parsed, each recipient is looked up, and none is found."""
    for packed in load(FILE)["rfc_readme_examples_structure_only"]["messages"]:
        asked: list[str] = []
        with pytest.raises(Unauthentic):
            Rfc0019Packer().unpack(json.dumps(packed).encode(), secret_of=asked.append, public_of=nobody)
        header = json.loads(b64url_bytes(packed["protected"]))
        assert asked == [recipient["header"]["kid"] for recipient in header["recipients"]]
