"""Plaintext messages: headers, limits, attachments, and type URIs."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.crypto.encoding import SHA2_256, b64url, base58
from zerochat.crypto.primitives import sha256
from zerochat.didcomm.attachment import LINKS_MAX, NAME_CHARS_MAX, attachment_bytes, check_hash, parse_attachment
from zerochat.didcomm.message import (
    ACKS_MAX,
    ATTACHMENTS_MAX,
    DID_CHARS_MAX,
    LANGUAGES_MAX,
    MESSAGE_BYTES_MAX,
    TO_MAX,
    Attachment,
    Message,
    dump,
    new_id,
    parse,
    same_id,
)
from zerochat.didcomm.uri import (
    DIDCOMM_ORG,
    TYPE_CHARS_MAX,
    MessageType,
    Protocol,
    agreed_version,
    parse_protocol,
    parse_type,
    protocol_of,
    same_protocol,
    same_type,
)
from zerochat.errors import Malformed

Json = dict[str, Any]
TYPE = "https://example.org/chat/1.0/post"


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


# --- there and back -------------------------------------------------------------------------------------------------

identifiers = st.text(st.sampled_from("abcXYZ019-._~"), min_size=1, max_size=40)
people = st.sampled_from(["did:peer:4zQmd8:zM7", "did:example:123", "did:key:z6Mk", "did:web:example.org%3A80:a"])
bodies = st.dictionaries(
    st.text(max_size=5), st.text(max_size=20) | st.integers() | st.none() | st.booleans(), max_size=4
)
numbers = st.none() | st.integers(0, 2**53 - 1)
languages = st.sampled_from(["de", "en-GB", "zh-Hant-TW", "x-klingon"])
attachments = st.builds(
    Attachment,
    id=st.none() | identifiers,
    media_type=st.none() | st.just("text/plain"),
    format=st.none() | st.text(max_size=9),
    filename=st.none() | st.text(max_size=9),
    description=st.none() | st.text(max_size=9),
    base64=st.none() | st.text(max_size=9),
    json=st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    links=st.just(()) | st.just(("https://example.org/",)),
    hash=st.just("zQm"),
    jws=st.none() | st.just({"protected": "e30", "signature": "AA"}),
    lastmod_time=numbers,
    byte_count=numbers,
)
messages = st.builds(
    Message,
    type=st.just(TYPE),
    id=identifiers,
    body=bodies,
    from_=st.none() | people,
    to=st.lists(people, max_size=3).map(tuple),
    thid=st.none() | identifiers,
    pthid=st.none() | identifiers,
    created_time=numbers,
    expires_time=numbers,
    from_prior=st.none() | st.just("a.b.c"),
    attachments=st.lists(attachments, max_size=3).map(tuple),
    please_ack=st.lists(identifiers | st.just(""), max_size=3).map(tuple),
    ack=st.lists(identifiers, max_size=3).map(tuple),
    lang=st.none() | languages,
    accept_lang=st.lists(languages, max_size=3).map(tuple),
    return_route=st.sampled_from([None, "none", "all", "thread"]),
    delay_milli=st.none() | st.integers(-(2**53) + 1, 2**53 - 1),
)


@settings(deadline=None)
@given(messages)
def test_every_message_round_trips(message: Message) -> None:
    assert parse(dump(message)) == message
    assert json.loads(dump(message))["typ"] == "application/didcomm-plain+json"


def plain(**changes: Any) -> bytes:
    tree = {"id": "1", "type": TYPE, "body": {}} | changes
    return json.dumps({name: value for name, value in tree.items() if value is not ...}).encode()


def test_headers_have_the_specified_names() -> None:
    message = Message(
        TYPE,
        "1",
        from_="did:example:a",
        accept_lang=("fr", "en"),
        lang="fr",
        please_ack=("",),
        ack=("x",),
        return_route="all",
        delay_milli=-5,
        attachments=(Attachment(base64="QQ", lastmod_time=1, byte_count=1),),
    )
    assert json.loads(dump(message)) == {
        "typ": "application/didcomm-plain+json",
        "id": "1",
        "type": TYPE,
        "from": "did:example:a",
        "accept-lang": ["fr", "en"],
        "lang": "fr",
        "please_ack": [""],
        "ack": ["x"],
        "return_route": "all",
        "delay_milli": -5,
        "body": {},
        "attachments": [{"lastmod_time": 1, "byte_count": 1, "data": {"base64": "QQ"}}],
    }
    assert message.requested_acks == ("1",)


def test_null_counts_as_absent_and_unknown_headers_do_not_matter() -> None:
    bare = parse(plain(body=...))
    assert bare == Message(TYPE, "1")
    headers = {*json.loads(dump(Message(TYPE, "1"))), "from", "to", "thid", "pthid", "created_time", "expires_time"}
    headers |= {"from_prior", "attachments", "please_ack", "ack", "lang", "accept-lang", "return_route", "delay_milli"}
    assert parse(plain(**dict.fromkeys(headers - {"id", "type"}))) == bare
    assert parse(plain(sender_order=1, from_="x", accept_lang=["x"], web_redirect={"a": [1.5]}, trace=True)) == bare
    assert parse(plain(typ="didcomm-plain+json")) == bare
    assert bare.thread == "1" and replace(bare, thid="2").thread == "2"


@pytest.mark.parametrize(
    "hints",
    [
        *({"created_time": x, "expires_time": x} for x in ("1516269022", "1516269022.0", 1.5, True, -1, 2**53, [], {})),
        *({"delay_milli": x} for x in ("1", 1.5, True, 2**53, -(2**53))),
        *({"please_ack": x, "ack": x} for x in (True, "1", {"on": ["RECEIPT"]}, [], [1, None, "a b", "x" * 257])),
        *({"lang": x} for x in ("", "de_DE", "x" * 100, 1, ["de"], "de\n")),
        *({"accept-lang": x} for x in ("de", [], [1, "", None])),
        *({"return_route": x} for x in (True, "", "ALL", ["all"], {"all": 1})),
    ],
    ids=str,
)
def test_a_hint_that_makes_no_sense_counts_as_absent(hints: Json) -> None:
    assert parse(plain(**hints)) == Message(TYPE, "1")


@pytest.mark.parametrize(
    "changes",
    [
        {"id": ...},
        {"id": None},
        {"id": ""},
        {"id": 1},
        {"id": "a b"},
        {"id": "é"},
        {"id": "x\n"},
        {"id": "x" * 257},
        {"type": ...},
        {"type": 7},
        {"type": "x" * (TYPE_CHARS_MAX + 1)},
        {"typ": "application/didcomm-encrypted+json"},
        {"typ": ["application/didcomm-plain+json"]},
        {"body": []},
        {"body": "text"},
        {"from": "alice"},
        {"from": 5},
        {"from": ["did:example:alice"]},
        {"from": "did:example:alice#key-1"},
        {"from": "did:example:alice\n"},
        {"from": "did:example:" + "a" * DID_CHARS_MAX},
        {"to": "did:example:bob"},
        {"to": ["did:example:bob#key-1"]},
        {"to": [None]},
        {"to": ["did:example:bob"] * (TO_MAX + 1)},
        {"thid": 5},
        {"thid": ""},
        {"pthid": {"id": "x"}},
        {"from_prior": {}},
        {"from_prior": "x" * 100_000},
        {"please_ack": ["x"] * (ACKS_MAX + 1)},
        {"ack": ["x"] * (ACKS_MAX + 1)},
        {"accept-lang": ["de"] * (LANGUAGES_MAX + 1)},
        {"attachments": {}},
        {"attachments": [{"data": {"json": 1}}] * (ATTACHMENTS_MAX + 1)},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_messages_that_make_no_sense_are_refused(changes: Json) -> None:
    with pytest.raises(Malformed):
        parse(plain(**changes))


def test_messages_have_a_greatest_size_on_both_sides() -> None:
    small = Message(TYPE, "1", {"text": ""})
    room = MESSAGE_BYTES_MAX - len(dump(small))
    assert parse(dump(replace(small, body={"text": "x" * room}))).body["text"] == "x" * room
    with pytest.raises(Malformed):
        dump(replace(small, body={"text": "x" * (room + 1)}))
    with pytest.raises(Malformed):
        parse(plain(padding="x" * MESSAGE_BYTES_MAX))
    for bad in (b'{"id":"1","id":"2","type":"t"}', b"\xef\xbb\xbf{}", b"[" * 1000, b"1", b""):
        with pytest.raises(Malformed):
            parse(bad)


def test_ids_are_random_uuids_compared_without_case() -> None:
    ids = {new_id(dice(seed)) for seed in range(50)}
    assert len(ids) == 50
    assert all(len(name) == 36 and name[14] == "4" and name[19] in "89ab" for name in ids)
    assert same_id("ABC-def", "abc-DEF") and not same_id("abc", "abd")


def test_erratum_32_byte_ids_exclude_recommended_uuids() -> None:
    uuid = new_id(dice(1))
    assert len(uuid) == 36 and parse(plain(id=uuid, thid=uuid.upper())).thread == uuid.upper()
    assert parse(plain(id="0" * 32)).id == "0" * 32


# --- attachments ----------------------------------------------------------------------------------------------------

TEXT = b"Your hovercraft is full of eels"
DIGEST = SHA2_256 + sha256(TEXT)


def test_attachments_are_base64_or_json() -> None:
    """The padded text is the specification's own example."""
    assert attachment_bytes(Attachment(base64="WW91ciBob3ZlcmNyYWZ0IGlzIGZ1bGwgb2YgZWVscw==")) == TEXT
    assert attachment_bytes(Attachment(base64=b64url(TEXT), json={"not": "this"})) == TEXT
    assert attachment_bytes(Attachment(json={"b": ["é", 1]})) == '{"b":["é",1]}'.encode()
    for text, data in (("-_8", b"\xfb\xff"), ("+/8=", b"\xfb\xff"), ("+/8", b"\xfb\xff"), ("", b"")):
        assert attachment_bytes(Attachment(base64=text)) == data
    for text in ("-/8", "+_8", "qwerty", "Q Q", "QQ=", "QQ===", "Q", "QQ\n"):
        with pytest.raises(Malformed):
            attachment_bytes(Attachment(base64=text))
    with pytest.raises(Malformed, match="without inline content"):
        attachment_bytes(Attachment(links=("https://example.org/",), hash="zQm"))


@pytest.mark.parametrize(
    "text",
    [
        base58(DIGEST),
        "z" + base58(DIGEST),
        "u" + b64url(DIGEST),
        DIGEST.hex(),
        DIGEST.hex().upper(),
        "f" + DIGEST.hex(),
    ],
)
def test_a_hash_is_read_in_every_spelling_that_is_about(text: str) -> None:
    assert base58(DIGEST).startswith("Qm")
    linked = Attachment(links=("https://example.org/",), hash=text)
    check_hash(linked, TEXT)
    assert attachment_bytes(Attachment(base64=b64url(TEXT), hash=text)) == TEXT
    with pytest.raises(Malformed):
        check_hash(linked, TEXT + b".")
    with pytest.raises(Malformed):
        attachment_bytes(Attachment(base64=b64url(TEXT + b"."), hash=text))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "qwerty",
        sha256(TEXT).hex(),
        "1114" + sha256(TEXT).hex(),
        base58(SHA2_256 + sha256(TEXT)[:31]),
        "z" + base58(DIGEST + b"\0"),
        "Qm" + "1" * 300,
        "u" + b64url(DIGEST)[:-1] + "?",
        DIGEST.hex()[:-2] + "  ",
    ],
)
def test_unsupported_hashes_are_refused(text: str | None) -> None:
    with pytest.raises(Malformed):
        check_hash(Attachment(links=("https://example.org/",), hash=text), TEXT)


@pytest.mark.parametrize("hint", ["1", 1.5, True, -1, 2**53, []])
def test_invalid_attachment_hints_count_as_absent(hint: object) -> None:
    tree = {"lastmod_time": hint, "byte_count": hint, "id": None, "data": {"json": 1, "links": [], "jws": None}}
    assert parse_attachment(tree) == Attachment(json=1)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {},
        {"data": None},
        {"data": []},
        {"data": {}},
        {"data": {"json": None, "base64": None, "links": None}},
        {"data": {"links": [], "hash": "zQm"}},
        {"data": {"hash": "zQm"}},
        {"data": {"jws": {}}},
        {"data": {"links": ["https://example.org/"]}},
        {"data": {"links": [1], "hash": "zQm"}},
        {"data": {"links": "https://example.org/", "hash": "zQm"}},
        {"data": {"links": ["x"] * (LINKS_MAX + 1), "hash": "zQm"}},
        {"data": {"json": 1, "hash": 1}},
        {"data": {"json": 1, "jws": "a.b.c"}},
        {"data": {"json": 1, "jws": [{}]}},
        {"data": {"base64": 1}},
        {"id": "a b", "data": {"json": 1}},
        {"id": "", "data": {"json": 1}},
        {"id": 1, "data": {"json": 1}},
        {"filename": "x" * (NAME_CHARS_MAX + 1), "data": {"json": 1}},
        {"media_type": {}, "data": {"json": 1}},
        {"description": 7, "data": {"json": 1}},
    ],
    ids=lambda tree: str(tree)[:60],
)
def test_attachments_that_make_no_sense_are_refused(tree: object) -> None:
    with pytest.raises(Malformed):
        parse(plain(attachments=[tree]))


# --- URIs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "doc_uri"),
    [
        ("https://didcomm.org/lets_do_lunch/1.0/proposal", "https://didcomm.org/"),
        ("https://example.com/protocols?which=lets_do_lunch/1.0/proposal", "https://example.com/protocols?which="),
        ("did:example:1234567890;spec/lets_do_lunch/1.0/proposal", "did:example:1234567890;spec/"),
        (
            "https://github.com/myorg/myproject/tree/master/docs/lets_do_lunch/1.0/proposal",
            "https://github.com/myorg/myproject/tree/master/docs/",
        ),
        ("did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/lets_do_lunch/1.0/proposal", DIDCOMM_ORG),
        ("HTTPS://Example.COM/Docs/Lets-Do.Lunch/1.0.7/PROPOSAL", "https://example.com/Docs/"),
        ("lets_do_lunch/1/proposal", ""),
    ],
)
def test_types_are_taken_apart(uri: str, doc_uri: str) -> None:
    assert parse_type(uri) == MessageType(doc_uri, "letsdolunch", 1, 0, "proposal")
    piuri = protocol_of(uri)
    assert parse_protocol(piuri) == parse_protocol(piuri + "/") == Protocol(doc_uri, "letsdolunch", 1, 0)


def test_erratum_a_protocol_uri_example_is_a_type_uri() -> None:
    with pytest.raises(Malformed):
        parse_protocol("did:example:1234567890;spec/lets_do_lunch/1.0/ping")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/",
        "///",
        "https://didcomm.org/trust-ping/ping",
        "https://didcomm.org/trust-ping/x2.0/ping",
        "https://didcomm.org/trust-ping/2.0/",
        "https://didcomm.org/trust-ping/2.0/p ng",
        "https://didcomm.org/trust-ping/2.0/ping\n",
        "https://didcomm.org//2.0/ping",
        "https://didcomm.org/trust-ping/2x/ping",
        "https://didcomm.org/trust-ping/٢.٠/ping",
        "https://didcomm.org/trust-ping/" + "9" * 400 + "/ping",
        "https://didcomm.org/trust-ping/2.0/" + "x" * TYPE_CHARS_MAX,
    ],
)
def test_invalid_types_are_refused_and_equal_nothing(uri: str) -> None:
    with pytest.raises(Malformed):
        parse_type(uri)
    assert same_type(uri, uri) and not same_type(uri, "https://didcomm.org/trust-ping/2.0/ping")


SPECIFIED = re.compile(r"(.*?)([a-z0-9._-]+)/(\d[^/]*)/([a-z0-9._-]+)$", re.IGNORECASE)
"""The expression that the specification gives for a Message Type URI."""


@settings(deadline=None)
@given(st.text(max_size=60) | st.text(st.sampled_from("aB./:;-_?=12"), max_size=60))
@example("did:x;spec/a-b/1.0/c_d")
@example("?" * 300 + "a/1/b")
def test_types_parse_like_the_specified_regex(text: str) -> None:
    try:
        found = parse_type(text)
    except Malformed:
        return
    match = SPECIFIED.fullmatch(text)
    assert match is not None
    doc_uri, protocol, version, name = match.groups()
    assert same_type(text, f"{doc_uri}{protocol}/{version}/{name}")
    assert found.doc_uri.lower() == doc_uri.lower()
    names = [re.sub(r"[._-]", "", part).lower() for part in (protocol, name)]
    assert [found.protocol, found.name] == names
    assert version.startswith((str(found.major), "0"))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("https://didcomm.org/trust-ping/2.0/ping", True),
        ("https://didcomm.org/trust-ping/2.7/ping", True),
        ("https://didcomm.org/trust-ping/2.0.9/ping", True),
        ("https://didcomm.org/Trust_Ping/2/PING", True),
        ("https://DIDComm.org/trustping/2.0/p.i-n_g", True),
        ("did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/trust_ping/2.0/ping", True),
        ("did:sov:bzcbsnyhmrjhiqzdtuashg;spec/trust_ping/2.0/ping", False),
        ("did:example:BzCbsNYhMrjHiqZDTUASHg;spec/trust_ping/2.0/ping", False),
        ("https://didcomm.org/Docs/trust-ping/2.0/ping", False),
        ("http://didcomm.org/trust-ping/2.0/ping", False),
        ("https://didcomm.org/trust-ping/1.0/ping", False),
        ("https://didcomm.org/trust-ping/20.0/ping", False),
        ("https://didcomm.org/trust-ping/2.0/ping-response", False),
        ("https://example.org/trust-ping/2.0/ping", False),
        ("https://didcomm.org/trust-ping/ping", False),
        ("trust-ping/2.0/ping", False),
        ("", False),
    ],
)
def test_message_types_compare_as_specified(other: str, same: bool) -> None:
    assert same_type("https://didcomm.org/trust-ping/2.0/ping", other) is same
    assert same_type(other, "https://didcomm.org/trust-ping/2.0/ping") is same


def test_the_lower_minor_version_is_agreed() -> None:
    assert agreed_version("https://didcomm.org/chat/1.4", "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/Chat/1.2/") == (1, 2)
    assert agreed_version("https://didcomm.org/chat/1.12", "https://didcomm.org/chat/1.9") == (1, 9)
    assert agreed_version("https://didcomm.org/chat/1.0", "https://didcomm.org/chat/2.0") is None
    assert agreed_version("https://didcomm.org/chat/1.0", "https://didcomm.org/chess/1.0") is None
    assert agreed_version("chat", "chat") is None
    assert same_protocol("https://didcomm.org/chat/1.4", "https://didcomm.org/chat/1.0")
    assert same_protocol("?", "?") and not same_protocol("https://didcomm.org/chat/1.4", "?")
