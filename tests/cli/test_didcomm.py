"""`zerochat didcomm`: inspecting, unpacking and packing, and its error messages."""

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from zerochat.cli import main
from zerochat.cli.exit_codes import ExitCode
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import SecretKey, new_secret, public_jwk, public_of
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import Identity, did_key_of, new_peer4, resolve
from zerochat.didcomm.message import Message, dump

ALICE, BOB = new_peer4(os.urandom, []), new_peer4(os.urandom, [])
NOTE = {"id": "1f2e", "type": "https://didcomm.org/basicmessage/2.0/message", "body": {"content": "héllo"}, "x": [1]}


def jwk(kid: str, key: SecretKey) -> dict[str, str]:
    return {**public_jwk(public_of(key)), "d": b64url(key.data), "kid": kid}


def keys_of(identity: Identity) -> list[dict[str, str]]:
    return [
        jwk(identity.kid_signing, SecretKey("Ed25519", identity.signing_seed)),
        jwk(identity.kid_long, SecretKey("X25519", identity.agreement_secret)),
    ]


@pytest.fixture
def box(tmp_path, capsys, monkeypatch):
    """A folder with a note and both parties' secrets, and the verb in it."""

    class Box:
        def __init__(self) -> None:
            self.file("note.dcpm", json.dumps(NOTE))
            for name, identity in (("alice", ALICE), ("bob", BOB)):
                self.secrets(name, keys_of(identity))

        def file(self, name: str, text: str) -> None:
            (tmp_path / name).write_text(text)

        def secrets(self, name: str, keys: list[dict[str, str]]) -> None:
            self.file(f"{name}.jwks", json.dumps({"keys": keys}))
            (tmp_path / f"{name}.jwks").chmod(0o600)

        def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            code = main(["didcomm", *arguments])
            out, err = capsys.readouterr()
            return code, out, err

        def json(self, *arguments: str, stdin: bytes = b"") -> dict[str, Any]:
            code, out, err = self(*arguments, "--format", "jsonl", stdin=stdin)
            assert code == ExitCode.OK, err
            assert out.isascii()
            said: dict[str, Any] = json.loads(out)
            return said

    monkeypatch.chdir(tmp_path)
    return Box()


@pytest.mark.parametrize(
    ("text", "why"),
    [("hello", "it is not strict JSON"), ("[]", "it has the members of neither an envelope nor a message")],
)
def test_a_file_without_a_message_is_refused_in_one_sentence(box: Any, text: str, why: str) -> None:
    box.file("x", text)
    assert box("inspect", "x") == (ExitCode.INTEGRITY, "", f"zerochat: x is not a DIDComm message: {why}.\n")


def test_a_message_to_others_is_shown_with_a_warning(box):
    recipient = PACKERS["didcomm/v2"].their_key(resolve(BOB.did), BOB.did)
    plain = json.dumps({**NOTE, "to": ["did:example:carol"]}).encode()
    packed = PACKERS["didcomm/v2"].anoncrypt(plain, recipient=recipient, random=os.urandom)
    code, out, err = box("unpack", "-", "--secrets", "bob.jwks", stdin=packed)
    assert (code, err) == (ExitCode.OK, "Warning: the message's `to` names another recipient.\n")
    assert "héllo" in out


WAYS = {
    "auth": (["--from", ALICE.did], ["authcrypt"]),
    "anon(auth)": (["--from", ALICE.did, "--anon", "--enc", "XC20P"], ["anoncrypt", "authcrypt"]),
    "anon": (["--anon", "--enc", "A256GCM"], ["anoncrypt"]),
    "anon(sign)": (["--from", ALICE.did, "--sign"], ["anoncrypt", "signed"]),
    "v1 auth": (["--from", ALICE.did, "--envelope", "didcomm/v1"], ["authcrypt"]),
    "v1 anon": (["--anon", "--envelope", "didcomm/v1"], ["anoncrypt"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_packed_message_can_be_opened(box, way):
    options, layers = WAYS[way]
    code, packed, err = box("pack", "note.dcpm", "--to", BOB.did, "--secrets", "alice.jwks", *options)
    assert code == ExitCode.OK, err
    said = box.json("unpack", "-", "--secrets", "bob.jwks", "--did", ALICE.did, stdin=packed.encode())
    assert [layer["kind"] for layer in said["layers"]] == layers
    proven = {"sender": "auth" in way, "signer": "sign" in way}
    assert {name: said[name] is not None for name in proven} == proven
    assert ("forgeable" in said) == any(proven.values())
    if way.startswith("v1"):
        assert (said["profile"], said["message"]["content"]) == ("didcomm/v1", "héllo")
    else:
        sender = {"from": ALICE.did} if "--from" in options else {}
        assert said["message"] == {**NOTE, "to": [BOB.did], **sender}  # and nothing was lost that we do not know


def test_a_forgeable_message_has_an_anonymous_sender(box):
    code, out, err = box("unpack", "note.dcpm")
    assert code == ExitCode.OK, err
    assert re.search(r"^sender +anonymous$", out, re.MULTILINE) and "forgeable" not in out


def test_a_signed_message_shows_itself(box):
    code, _, err = box(
        "pack", "note.dcpm", "--sign", "--from", ALICE.did, "--secrets", "alice.jwks", "--output", "note.dcsm"
    )
    assert (code, err) == (
        ExitCode.OK,
        f"note.dcsm: application/didcomm-signed+json, {Path('note.dcsm').stat().st_size} bytes\n",
    )
    seen = box.json("inspect", "note.dcsm")
    assert seen["signatures"][0]["header"] == {"kid": ALICE.kid_signing}
    assert seen["inside"]["headers"]["from"] == ALICE.did
    said = box.json("unpack", "note.dcsm")
    assert (said["signer"], said["message"]["body"]) == (ALICE.did, NOTE["body"])
    code, out, _ = box("unpack", "note.dcsm", "--output", "again.dcpm")
    assert code == ExitCode.OK
    assert "signed EdDSA" in out and '"content": "héllo"' in out
    assert json.loads(Path("again.dcpm").read_bytes()) == {**NOTE, "from": ALICE.did}
    assert Path("again.dcpm").stat().st_mode & 0o777 == 0o600


def test_inspect_shows_an_envelope_without_keys(box):
    _, packed, _ = box("pack", "note.dcpm", "--to", BOB.did, "--from", ALICE.did, "--secrets", "alice.jwks")
    seen = box.json("inspect", "-", stdin=packed.encode())
    assert seen["protected"]["alg"] == "ECDH-1PU+A256KW"
    assert seen["protected"]["skid"] == ALICE.kid_long
    assert [entry["header"]["kid"] for entry in seen["recipients"]] == [BOB.kid_long]
    assert seen["problem"] is None and "inside" not in seen
    code, out, _ = box("inspect", "-", stdin=packed.encode())
    assert code == ExitCode.OK
    assert out.endswith(" yes\n")


def test_inspect_reports_errors_and_continues(box):
    _, packed, _ = box("pack", "note.dcpm", "--to", BOB.did, "--anon")
    tree = json.loads(packed)
    tree["recipients"][0]["header"]["kid"] = "did:example:\x1b[31mred"
    code, out, _ = box("inspect", "-", stdin=json.dumps(tree).encode())
    assert code == ExitCode.OK
    assert "no: envelope: apv does not name the recipients" in out
    assert "\x1b" not in out


def test_inspect_an_rfc_0019_envelope(box):
    _, packed, _ = box("pack", "note.dcpm", "--to", BOB.did, "--anon", "--envelope", "didcomm/v1")
    seen = box.json("inspect", "-", stdin=packed.encode())
    assert (seen["profile"], seen["protected"]["alg"], seen["problem"]) == ("didcomm/v1", "Anoncrypt", None)
    kid = PACKERS["didcomm/v1"].their_key(resolve(BOB.did), BOB.did).kid
    assert [entry["header"] for entry in seen["recipients"]] == [{"kid": kid}]


def test_a_short_did_opens_when_its_long_form_is_known(box):
    packer = PACKERS["didcomm/v2"]
    envelope = packer.authcrypt(
        dump(Message(id="1", type="https://didcomm.org/empty/1.0/empty", body={}, from_=ALICE.short, to=(BOB.short,))),
        sender=packer.own_key(ALICE, ALICE.short),
        recipient=packer.their_key(resolve(BOB.did), BOB.short),
        random=os.urandom,
    )
    code, _, err = box("unpack", "-", "--secrets", "bob.jwks", stdin=envelope)
    assert (code, "Cannot open" in err) == (ExitCode.INTEGRITY, True)
    said = box.json("unpack", "-", "--secrets", "bob.jwks", "--did", ALICE.did, stdin=envelope)
    assert (said["sender"], said["addressed"]) == (ALICE.short, True)


def test_a_did_of_another_method_needs_its_document(box):
    keys = {name: new_secret("P-384", os.urandom) for name in ("carol", "dave")}
    for name, key in keys.items():
        did = f"did:example:{name}"
        method = {"id": "#1", "type": "JsonWebKey2020", "controller": did, "publicKeyJwk": public_jwk(public_of(key))}
        box.file(f"{name}.json", json.dumps({"id": did, "keyAgreement": [method]}))
        box.secrets(name, [jwk(f"{did}#1", key)])
    documents = ["--document", "carol.json", "--document", "dave.json"]
    ends = ["--to", "did:example:dave", "--from", "did:example:carol", "--secrets", "carol.jwks"]
    _, packed, err = box("pack", "note.dcpm", *ends, *documents)
    assert packed, err
    said = box.json("unpack", "-", "--secrets", "dave.jwks", *documents, stdin=packed.encode())
    assert said["sender"] == "did:example:carol"


def test_a_missing_key_names_the_recipients(box):
    box("pack", "note.dcpm", "--to", BOB.did, "--anon", "--output", "note.dcem")
    code, out, err = box("unpack", "note.dcem", "--secrets", "alice.jwks")
    assert (code, out) == (ExitCode.REFUSED, "")
    assert f"Recipients: {BOB.kid_long}" in err
    code, _, err = box("unpack", "note.dcem")
    assert (code, "--secrets FILE" in err) == (ExitCode.USAGE, True)


def test_a_false_sender_is_reported(box):
    packer = PACKERS["didcomm/v2"]
    envelope = packer.authcrypt(
        dump(Message(id="1", type="https://didcomm.org/empty/1.0/empty", body={}, from_=BOB.did)),
        sender=packer.own_key(ALICE, ALICE.did),
        recipient=packer.their_key(resolve(BOB.did), BOB.did),
        random=os.urandom,
    )
    code, out, err = box("unpack", "-", "--secrets", "bob.jwks", stdin=envelope)
    assert (code, out) == (ExitCode.INTEGRITY, "")
    assert "agents must reject it" in err


def test_secrets_that_others_can_read_are_refused(box):
    Path("bob.jwks").chmod(0o640)
    box("pack", "note.dcpm", "--to", BOB.did, "--anon", "--output", "note.dcem")
    code, out, err = box("unpack", "note.dcem", "--secrets", "bob.jwks")
    assert (code, out) == (ExitCode.REFUSED, "")
    assert "chmod 600 bob.jwks" in err


@pytest.mark.parametrize("text", ["[]", '{"keys": [{"kty": "OKP"}]}', '{"keys": 1}', "no", '{"keys": [1]}'])
def test_a_bad_file_of_secrets_is_named_and_not_quoted(box, text):
    box.file("bob.jwks", text)
    code, _, err = box("unpack", "note.dcpm", "--secrets", "bob.jwks")
    assert code == ExitCode.USAGE
    assert "bob.jwks does not contain a set of secret keys" in err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "use --to DID to encrypt"),
        (["--to", BOB.did], "use --from DID"),
        (["--sign"], "--sign requires --from"),
        (["--sign", "--from", ALICE.did, "--anon"], "--anon and --enc require --to"),
        (["--to", BOB.did, "--anon", "--envelope", "didcomm/v1", "--enc", "XC20P"], "didcomm/v1 supports"),
        (["--to", BOB.did, "--from", ALICE.did, "--enc", "XC20P"], "authcrypt always uses"),
        (["--to", "did:web:example.com", "--anon"], "There is no DID document for did:web:example.com"),
        (["--to", BOB.did, "--from", BOB.did], "No secret key"),
        (["--to", did_key_of(public_of(new_secret("secp256k1", os.urandom))), "--anon"], "without a key"),
    ],
)
def test_a_message_that_cannot_be_packed_is_explained(box, options, why):
    code, out, err = box("pack", "note.dcpm", "--secrets", "alice.jwks", *options)
    assert (code in (ExitCode.USAGE, ExitCode.REFUSED), out) == (True, "")
    assert why in err


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"protected":1,"iv":2,"tag":3}', b"[" * 100_000])
@pytest.mark.parametrize("action", ["inspect", "unpack", "pack"])
def test_no_input_causes_a_traceback(box, action, data):
    more = {"inspect": [], "unpack": ["--secrets", "bob.jwks"], "pack": ["--to", BOB.did, "--anon"]}
    code, _, err = box(action, "-", *more[action], stdin=data)
    assert (code in (ExitCode.OK, ExitCode.INTEGRITY, ExitCode.REFUSED), "Traceback" in err) == (True, False)


def test_a_missing_file_and_one_that_is_too_large(box):
    code, _, err = box("inspect", "none.dcem")
    assert (code, err) == (ExitCode.REFUSED, "zerochat: No such file or directory: none.dcem\n")
    code, _, err = box("inspect", "-", stdin=b" " * (1 << 21))
    assert (code, "larger than" in err) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize(
    "recipient",
    [
        {"header": "x"},
        {"header": {"kid": 7}},
        {"header": {"kid": "did:peer:4zQmd:z2#key-2"}},
    ],
)
def test_an_invalid_recipient_gives_no_traceback(box, recipient):
    envelope = json.dumps({"protected": "x", "recipients": [recipient]})
    code, _, err = box("unpack", "-", "--secrets", "bob.jwks", stdin=envelope.encode())
    assert code != ExitCode.OK and err and "Traceback" not in err and "fault" not in err


def test_an_overwritten_output_file_becomes_private(box, tmp_path):
    box.file("old.json", "{}")
    (tmp_path / "old.json").chmod(0o644)
    code, _, err = box("unpack", "note.dcpm", "--output", str(tmp_path / "old.json"))
    assert code == ExitCode.OK, err
    assert (tmp_path / "old.json").stat().st_mode & 0o777 == 0o600
