"""The table of the specification's requirements, and those that no other test holds."""

import json
import pkgutil
import random
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.keys import SecretKey
from zerochat.crypto.primitives import sha256
from zerochat.didcomm import jws, protocols
from zerochat.didcomm.did import new_peer4, resolve
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.message import Message, new_id, same_id
from zerochat.didcomm.packer import PACKERS, TheirKey
from zerochat.didcomm.protocols import (
    STANDARD,
    didexchange,
    exchange,
    features,
    mediation,
    pickup,
    ping,
    standard_answer,
)
from zerochat.didcomm.protocols.ack import empty
from zerochat.didcomm.protocols.problem import COMMENTS, problem
from zerochat.didcomm.uri import parse_protocol, parse_type
from zerochat.errors import Malformed
from zerochat.group.links.relationship import Relationship, pack, rotate
from zerochat.group.wire import messages

TABLE = tomllib.loads((Path(__file__).parent / "requirements.toml").read_text(encoding="utf-8"))["section"]
ROWS = [(section["title"], *row) for section in TABLE for row in section["rows"]]
V2 = PACKERS["didcomm/v2"]
DICE = random.Random(1).randbytes
ALICE, BOB = new_peer4(DICE, []), new_peer4(DICE, [])


# --- the table ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", TABLE, ids=lambda section: section["title"])
def test_no_requirement_of_a_section_is_missing(section):
    keywords = [word for row in section["rows"] for word in row[0].split()]
    assert {word: keywords.count(word) for word in set(keywords)} == section["counts"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[2]}"[:60])
def test_a_requirement_has_a_test_or_a_reason(row):
    """tests/project/test_guarantees.py finds the tests, since the manual names them."""
    _, keywords, text, tests, remark = row
    assert keywords and text and (tests or remark)
    assert all(re.fullmatch(r"\w+/test_\w+::(?:Test\w+::)?test_\w+", test) for test in tests.split())


# --- requirements ---------------------------------------------------------------------------------------------------


def protected(data: bytes) -> dict[str, Any]:
    tree = json.loads(data)
    text = tree["protected"] if "protected" in tree else tree["signatures"][0]["protected"]
    header: dict[str, Any] = json.loads(b64url_bytes(text))
    return header


def note(**headers: Any) -> Message:
    return Message(type=ping.PING, id=new_id(DICE), **headers)


def test_envelopes_name_their_media_type():
    sender, recipient = V2.own_key(ALICE, ALICE.short), V2.their_key(resolve(BOB.did), BOB.short)
    for envelope in (
        V2.authcrypt(b"{}", sender=sender, recipient=recipient, random=DICE),
        V2.anoncrypt(b"{}", recipient=recipient, random=DICE),
    ):
        assert protected(envelope)["typ"] == V2.media_type == "application/didcomm-encrypted+json"
    signed = jws.sign(b"{}", [(ALICE.kid_signing, SecretKey("Ed25519", ALICE.signing_seed))])
    assert protected(signed)["typ"] == "application/didcomm-signed+json"


def test_anoncrypt_headers_are_common_and_protected():
    key = V2.their_key(resolve(BOB.did), BOB.short).key
    recipients = [TheirKey(BOB.short + fragment, key) for fragment in ("#b", "#a")]
    envelope = JwePacker().seal_many(b"{}", recipients, sender=None, random=DICE)
    header = protected(envelope)
    assert header.keys() == {"typ", "alg", "enc", "apv", "epk"} and header["alg"] == "ECDH-ES+A256KW"
    assert header["apv"] == b64url(sha256(f"{BOB.short}#a.{BOB.short}#b".encode()))
    kids = [entry["header"] for entry in json.loads(envelope)["recipients"]]
    assert kids == [{"kid": BOB.short + "#a"}, {"kid": BOB.short + "#b"}]


IDENTIFIER = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
PIURI = re.compile(rf".+[?/&:;=]{IDENTIFIER}/\d+\.\d+")


def uris() -> list[str]:
    """All protocol and message type URIs among the constants of the protocols."""
    names = [f"{protocols.__name__}.{found.name}" for found in pkgutil.iter_modules(protocols.__path__)]
    modules = [*map(import_module, names), messages]
    constants = [value for module in modules for value in vars(module).values() if isinstance(value, str)]
    found = {value for value in constants if re.match(r"https://[a-z.]+/.+/\d", value)}
    return sorted(found)


def test_every_message_type_of_ours_is_a_type_uri():
    types = 0
    for uri in uris():
        try:
            parse_protocol(uri)
            protocol = uri.rstrip("/")
        except Malformed:
            parse_type(uri)
            protocol, _, name = uri.rpartition("/")
            assert re.fullmatch(IDENTIFIER, name), uri
            types += 1
        assert PIURI.fullmatch(protocol), uri
    assert types > 30


def test_a_rotation_keeps_its_time():
    """Each repetition of `from_prior` has the time of the rotation."""
    before = Relationship("", ALICE, BOB.did, "t", BOB.did, requester=True)
    rotated = rotate(before, new_peer4(DICE, []), 1000)
    document, key = resolve(rotated.mine.did), SecretKey("X25519", BOB.agreement_secret)
    tokens = set()
    for now in (1001, 2000):
        envelope = pack(rotated, note(created_time=now), V2, DICE)
        opened = V2.unpack(envelope, secret_of={BOB.kid_short: key}.get, public_of=document.agreement_key)
        tokens.add(V2.parse(opened.plain).from_prior)
    (token,) = tokens
    assert token is not None and json.loads(b64url_bytes(token.split(".")[1]))["iat"] == 1000


REQUESTS = [
    ping.ping(DICE),
    features.queries(DICE, features.ANYTHING),
    replace(empty(DICE), please_ack=("",)),
]


@pytest.mark.parametrize("asked", REQUESTS, ids=lambda message: message.type.rpartition("/")[2])
@pytest.mark.parametrize("thid", [None, "an-earlier-thread"])
def test_replies_stay_in_the_thread(asked, thid):
    reply = standard_answer(replace(asked, thid=thid), disclosed=STANDARD, random=DICE)
    assert reply is not None and same_id(reply.thid or "", thid or asked.id)


def test_replies_of_mediators_stay_in_the_thread():
    asked = replace(mediation.request(DICE, pthid="invitation"), thid="an-earlier-thread")
    for reply in (mediation.grant(asked, BOB.did, DICE), mediation.deny(asked, DICE)):
        assert (reply.thid, reply.pthid) == ("an-earlier-thread", "invitation")
    waiting = pickup.Waiting(0)
    assert pickup.status(pickup.status_request(DICE), waiting, 0, DICE).thid is not None


def test_child_threads_name_their_parent():
    """Each message that an invitation leads to, and a report about a message."""
    request = exchange.request(ALICE, BOB.did, "invitation", {}, DICE)
    assert request.pthid == "invitation" and request.thid == request.id
    requester, old = didexchange.request(ALICE.did, "Ann", [], DICE, pthid="invitation")
    assert old.pthid == "invitation" and requester
    assert mediation.request(DICE, pthid="invitation").pthid == "invitation"
    report = problem("e.m.msg", note(thid="an-earlier-thread"), DICE)
    assert report.pthid == "an-earlier-thread" and report.thid is None


@pytest.mark.parametrize("code", COMMENTS)
def test_a_code_has_one_comment(code):
    """Whatever the report is about."""
    said = {problem(code, note(), DICE, args).body["comment"] for args in ((), ("1",), ("2", "3"))}
    assert said == {COMMENTS[code]}
