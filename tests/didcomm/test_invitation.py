"""Group invitations: links and codes are equivalent; other input is refused with the reason."""

import json
import random
import re
import string
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.crypto.encoding import BASE41, b64url, b64url_bytes, base45, base45_bytes, compact_json
from zerochat.crypto.keys import PublicKey
from zerochat.crypto.primitives import ed25519_public, ed25519_to_x25519_secret, sha256, x25519_public
from zerochat.didcomm.did import Method, resolve
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import (
    INVITATION_CHARS_MAX,
    URL_PREFIX,
    Invitation,
    bound_id,
    parse_invitation,
)
from zerochat.errors import BadInvitation, InvitationExpired, Malformed

NOW_S = 1_750_000_000
QR_ALPHANUMERIC = set("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:")
QR_CHARS_V5, QR_CHARS_V6 = 154, 195
"""Capacity of a QR code of 37 or 41 modules in alphanumeric mode, level L (ISO/IEC 18004, table 7)."""

SEED = random.Random(1).randbytes(32)


def invitation(endpoint: str = "zmq+tcp://192.0.2.7:5000", number: int = 0, expires: int = NOW_S + 3600) -> Invitation:
    dice = random.Random(number)
    server_key = x25519_public(dice.randbytes(32))
    return Invitation(dice.randbytes(16), ed25519_public(SEED), server_key, Endpoint.parse(endpoint), expires)


V4, V6 = invitation(), invitation("zmq+tcp://[2001:db8:85a3:8d3:1319:8a2e:370:7348]:65535")
FORMS = [
    pytest.param(form, id=name)
    for name, form in (("url-v4", V4.url()), ("code-v4", V4.code()), ("url-v6", V6.url()), ("code-v6", V6.code()))
]


# --- endpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "text", "tcp"),
    [
        ("zmq+tcp://192.168.1.5:5000", "zmq+tcp://192.168.1.5:5000", "tcp://192.168.1.5:5000"),
        ("tcp://10.0.0.1:1", "zmq+tcp://10.0.0.1:1", "tcp://10.0.0.1:1"),
        ("tcp://127.0.0.1:65535", "zmq+tcp://127.0.0.1:65535", "tcp://127.0.0.1:65535"),
        ("tcp://100.64.0.9:80", "zmq+tcp://100.64.0.9:80", "tcp://100.64.0.9:80"),
        ("zmq+tcp://[::1]:5000", "zmq+tcp://[::1]:5000", "tcp://[::1]:5000"),
        ("zmq+tcp://[2001:DB8:0:0::1]:5000", "zmq+tcp://[2001:db8::1]:5000", "tcp://[2001:db8::1]:5000"),
        ("tcp://[fd00::7]:5000", "zmq+tcp://[fd00::7]:5000", "tcp://[fd00::7]:5000"),
    ],
)
def test_endpoints_are_read_and_written_in_one_spelling(uri: str, text: str, tcp: str) -> None:
    endpoint = Endpoint.parse(uri)
    assert (str(endpoint), endpoint.tcp) == (text, tcp)
    assert Endpoint.parse(text) == Endpoint.parse(tcp) == endpoint


BAD_ENDPOINTS = [
    "",
    "zmq+tcp://",
    "192.0.2.7:5000",
    "http://192.0.2.7:5000",
    "udp://192.0.2.7:5000",
    "ipc:///tmp/socket",
    "inproc://zeromq.zap.01",
    "ZMQ+TCP://192.0.2.7:5000",
    "zmq+tcp:192.0.2.7:5000",
    "zmq+tcp://192.0.2.7",
    "zmq+tcp://192.0.2.7:",
    "zmq+tcp://192.0.2.7:0",
    "zmq+tcp://192.0.2.7:00080",
    "zmq+tcp://192.0.2.7:65536",
    "zmq+tcp://192.0.2.7:99999",
    "zmq+tcp://192.0.2.7:-1",
    "zmq+tcp://192.0.2.7:٥٠٠٠",
    "zmq+tcp://192.0.2.7:*",
    "zmq+tcp://192.0.2.7:5000/",
    "zmq+tcp://192.0.2.7:5000?x",
    "zmq+tcp://192.0.2.7:5000\n",
    " zmq+tcp://192.0.2.7:5000",
    "zmq+tcp://user@192.0.2.7:5000",
    "zmq+tcp://eth0;192.0.2.7:5000",
    "zmq+tcp://*:5000",
    "zmq+tcp://localhost:5000",
    "zmq+tcp://example.org:5000",
    "zmq+tcp://192.0.2.7.nip.io:5000",
    "zmq+tcp://192.0.2.256:5000",
    "zmq+tcp://192.0.2:5000",
    "zmq+tcp://3221225991:5000",
    "zmq+tcp://0xC0000207:5000",
    "zmq+tcp://192.0.02.7:5000",
    "zmq+tcp://0.0.0.0:5000",
    "zmq+tcp://0.1.2.3:5000",
    "zmq+tcp://169.254.169.254:80",
    "zmq+tcp://224.0.0.1:5000",
    "zmq+tcp://239.255.255.250:5000",
    "zmq+tcp://240.0.0.1:5000",
    "zmq+tcp://255.255.255.255:5000",
    "zmq+tcp://2001:db8::1:5000",
    "zmq+tcp://[192.0.2.7]:5000",
    "zmq+tcp://[]:5000",
    "zmq+tcp://[2001:db8::1:5000",
    "zmq+tcp://[2001:db8::g]:5000",
    "zmq+tcp://[2001:db8::1%eth0]:5000",
    "zmq+tcp://[2001:db8::1%25eth0]:5000",
    "zmq+tcp://[::]:5000",
    "zmq+tcp://[::127.0.0.1]:5000",
    "zmq+tcp://[::ffff:169.254.169.254]:80",
    "zmq+tcp://[::ffff:c000:207]:5000",
    "zmq+tcp://[::ffff:0:c000:207]:5000",
    "zmq+tcp://[64:ff9b::a9fe:a9fe]:80",
    "zmq+tcp://[64:ff9b:1::7]:5000",
    "zmq+tcp://[2002:a9fe:a9fe::]:80",
    "zmq+tcp://[2001:0:4136:e378::]:80",
    "zmq+tcp://[fe80::1]:5000",
    "zmq+tcp://[fec0::1]:5000",
    "zmq+tcp://[ff02::1]:5000",
]


@pytest.mark.parametrize("uri", BAD_ENDPOINTS)
def test_bad_endpoints_are_refused_wherever_they_stand(uri: str) -> None:
    with pytest.raises(Malformed):
        Endpoint.parse(uri)
    link = oob(**{"from": peer2(uri=uri)})
    with pytest.raises(BadInvitation, match="damaged"):
        parse_invitation(link, NOW_S)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("example.org", 1),
        ("0.0.0.0", 5000),
        ("2001:DB8::1", 5000),
        ("[2001:db8::1]", 5000),
        ("fe80::1%eth0", 5000),
        ("", 5000),
        ("192.0.2.7", 0),
        ("192.0.2.7", 65536),
        ("192.0.2.7", True),
        ("192.0.2.7", "5000"),
    ],
)
def test_an_endpoint_cannot_be_made_wrong(host: str, port: Any) -> None:
    with pytest.raises(Malformed):
        Endpoint(host, port)


# --- writing --------------------------------------------------------------------------------------------------------


def test_the_did_holds_the_keys_and_the_endpoint() -> None:
    document = resolve(V4.did)
    assert document.authentication == (Method(V4.did + "#key-1", PublicKey("Ed25519", V4.key)),)
    agreement = PublicKey("X25519", x25519_public(ed25519_to_x25519_secret(SEED)))
    assert document.agreement == (Method(V4.did + "#key-2", agreement),)
    [service] = document.services
    assert service.type == "DIDCommMessaging"
    assert service.properties["serviceEndpoint"] == {"uri": "zmq+tcp://192.0.2.7:5000", "accept": ["didcomm/v2"]}
    assert service.properties["serverKey"] == b64url(V4.server_key)


def test_the_link_is_an_out_of_band_2_0_message() -> None:
    message = json.loads(b64url_bytes(V4.url().removeprefix(URL_PREFIX)))
    assert message == {
        "type": "https://didcomm.org/out-of-band/2.0/invitation",
        "id": b64url(V4.id),
        "from": V4.did,
        "expires_time": V4.expires,
        "body": {"goal_code": "org.zerochat.join", "accept": ["didcomm/v2"]},
    }
    assert V4.pthid == message["id"]
    assert len(V4.url()) < 700


def test_the_code_fits_a_small_qr() -> None:
    for each, chars in ((V4, QR_CHARS_V5), (V6, QR_CHARS_V6)):
        assert len(each.code()) <= chars
        assert set(each.code()) <= QR_ALPHANUMERIC
        assert set(each.code()[3:]) <= set(BASE41)


def test_the_id_is_bound_to_one_group() -> None:
    nonce = bytes(range(16))
    bound = bound_id(nonce, "A" * 43)
    assert len(bound) == 16 and bound == bound_id(nonce, "A" * 43)
    assert len({bound, bound_id(nonce, "A" * 42 + "E"), bound_id(bytes(16), "A" * 43)}) == 3


def test_the_id_is_a_secret_of_its_own_key() -> None:
    assert len(V4.join_secret_key()) == 32
    assert V4.join_secret_key() != V6.join_secret_key() or V4.id == V6.id
    assert V4.join_secret_key() != replace(V4, id=bytes(16)).join_secret_key()
    assert repr(V4.id) not in repr(V4)


@settings(deadline=None)
@given(
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    st.integers(1, 2**32 - 1),
    st.integers(1, 65535),
    st.integers(1, 0xDFFFFFFF) | st.integers(2**125 + 2**115, 2**126 - 1),
)
def test_link_and_code_are_the_same_invitation(
    name: bytes, seed: bytes, secret: bytes, expires: int, port: int, address: int
) -> None:
    host = str(IPv4Address(address) if address < 2**32 else IPv6Address(address))
    try:
        endpoint = Endpoint(host, port)
    except Malformed:
        return
    made = Invitation(name, ed25519_public(seed), x25519_public(secret), endpoint, expires)
    from_link, from_code = (parse_invitation(text, expires - 1) for text in (made.url(), made.code()))
    assert from_link == from_code == made
    assert from_link.did == from_code.did == made.did
    assert from_code.url() == made.url() and from_link.code() == made.code()


@pytest.mark.parametrize(
    "changes",
    [
        {"id": bytes(15)},
        {"key": bytes(32)},
        {"key": bytes(31)},
        {"server_key": bytes(32)},
        {"server_key": bytes(31)},
        {"expires": 0},
        {"expires": 2**32},
        {"expires": 1.5},
    ],
)
def test_an_invitation_cannot_be_made_wrong(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        replace(V4, **changes)


# --- parsing --------------------------------------------------------------------------------------------------------


def why(text: str) -> str:
    with pytest.raises(BadInvitation) as caught:
        parse_invitation(text, NOW_S)
    return str(caught.value.fields["why"])


@pytest.mark.parametrize("form", FORMS)
def test_white_space_brackets_and_wrapping_do_not_matter(form: str) -> None:
    expected = parse_invitation(form, NOW_S)
    wrapped = "\n".join(form[at : at + 40] for at in range(0, len(form), 40))
    for text in (
        f"  {form}\n",
        f"<{form}>",
        f" < {form} > ",
        f'"{form}"',
        f"`{form}`",
        f"{form}.",
        wrapped,
        wrapped.replace("\n", "\r\n    "),
        "\u200b".join((form[:50], form[50:])),
        "\ufeff" + form,
        "\t".join(form),
    ):
        assert parse_invitation(text, NOW_S) == expected


def test_a_code_may_be_typed_in_lower_case() -> None:
    assert parse_invitation(V4.code().lower(), NOW_S) == V4


def test_a_link_may_be_decorated_and_padded() -> None:
    value = V4.url().removeprefix(URL_PREFIX)
    padding = "=" * (-len(value) % 4)
    for link in (
        f"https://zerochat.org/?utm_source=mail&_oob={value}&x=1#top",
        f"https://example.org/join?_oob={value}",
        f"didcomm://invite?_oob={value}",
        URL_PREFIX + value + padding,
        URL_PREFIX + value + padding.replace("=", "%3D"),
    ):
        assert parse_invitation(link, NOW_S) == V4


@pytest.mark.parametrize("form", FORMS)
def test_every_truncation_is_recognised(form: str) -> None:
    assert why("") == "there is nothing in it"
    for size in range(1, len(form)):
        assert why(form[:size]) == "it is cut off", size


@pytest.mark.parametrize("form", FORMS)
def test_a_lost_beginning_is_refused(form: str) -> None:
    """Only the part of a link before the question mark may be missing or different."""
    for size in range(form.find("?") + 1 or 1, len(form)):
        assert why(form[size:])


@pytest.mark.parametrize("code", [V4.code(), V6.code()])
def test_every_wrong_character_of_a_code_is_noticed(code: str) -> None:
    for at in range(3, len(code)):
        for other in "0Z-:":
            if code[at] != other:
                assert why(code[:at] + other + code[at + 1 :])
    assert why(code + "0") == "there is text after its end"
    assert why(code + code) == "there is text after its end"
    assert why(code[:-1] + "_") == "it is damaged (a character outside the alphabet)"


def test_only_an_intact_newer_code_is_reported_as_newer() -> None:
    """Only an intact code can be reported as newer; a damaged one is damaged."""
    data = b"\x34" + base45_bytes(V4.code()[3:], BASE41)[1:-3] + b"more"
    whole = "ZC:" + base45(data + sha256(data)[:3], BASE41)
    assert "a newer version of zerochat" in why(whole)
    short = b"\x34more"
    for text in (
        *("ZC:ABCDEF", "ZC:AAAA", "ZC:garbage"),
        *(whole[:-1], whole[:-3], whole + "0", "ZC:0" + whole[4:]),
        "ZC:" + base45(b"\x34" + base45_bytes(V4.code()[3:], BASE41)[1:], BASE41),
        "ZC:" + base45(short + sha256(short)[:3], BASE41),
    ):
        assert why(text) == "it is cut off or damaged", text


def test_a_code_with_a_right_checksum_is_checked_all_the_same() -> None:
    data = base45_bytes(V4.code()[3:], BASE41)[:-3]
    for at, bad in (
        (17, bytes(32)),
        (49, bytes(32)),
        (81, bytes(4)),
        (85, bytes(2)),
        (87, bytes([169, 254, 169, 254])),
        (87, bytes([224, 0, 0, 1])),
    ):
        changed = data[:at] + bad + data[at + len(bad) :]
        assert why("ZC:" + base45(changed + sha256(changed)[:3], BASE41)).startswith("it is damaged")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello", "neither a link nor a code"),
        ("did:peer:2.Ez6LS", "not a link to an invitation"),
        ("https://zerochat.org/", "cut off"),
        ("https://example.org/?page=2", "not a link to an invitation"),
        ("https://example.org/?oob=eyJ9", "an older kind"),
        ("https://example.org/?c_i=eyJ9", "an older kind"),
        ("https://example.org/?_oobid=69212a3a-d068-4f9d-a2dd-4741bca89af3", "a short link"),
        ("https://signal.group/#CjQKIAtLXzE", "not a link to an invitation"),
        ("https://example.org/?_oob=e30&_oob=e30", "not a link to an invitation"),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE", "neither a link nor a code"),
        ("javascript:alert(1)", "not a link to an invitation"),
        ("\udc80\udc81", "neither a link nor a code"),
        ("ZC:" + "\udc80" * 141, "damaged"),
        ("ZC;" + V4.code()[3:], "neither a link nor a code"),
        ("x" * (INVITATION_CHARS_MAX + 1), "more than 4096 characters"),
        (V4.url() + " " * INVITATION_CHARS_MAX, "more than 4096 characters"),
    ],
)
def test_other_links_are_not_invitations(text: str, reason: str) -> None:
    assert reason in why(text)


def oob(**changes: Any) -> str:
    message = json.loads(b64url_bytes(V4.url().removeprefix(URL_PREFIX))) | changes
    return URL_PREFIX + b64url(compact_json({name: value for name, value in message.items() if value is not ...}))


def peer2(uri: str = "zmq+tcp://192.0.2.7:5000", **changes: Any) -> str:
    service = {"t": "dm", "s": {"uri": uri, "a": ["didcomm/v2"]}, "serverKey": b64url(V4.server_key)} | changes
    return V4.did.partition(".S")[0] + ".S" + b64url(compact_json(service))


def test_test_builders_match_the_implementation() -> None:
    assert oob() == V4.url()
    assert peer2() == V4.did


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "https://didcomm.org/basicmessage/2.0/message"}, "another application"),
        ({"type": "https://didcomm.org/out-of-band/1.1/invitation"}, "another application"),
        ({"body": {"goal_code": "issue-vc", "goal": "To issue a credential"}}, "another application"),
        ({"body": {}}, "another application"),
        ({"body": ...}, "another application"),
        ({"type": ...}, "damaged"),
        ({"type": 7}, "damaged"),
        ({"id": ...}, "damaged"),
        ({"id": "7f62f655-9cac-4728-854a-775ba6944593"}, "damaged"),
        ({"id": b64url(bytes(15))}, "damaged"),
        ({"from": ...}, "damaged"),
        ({"from": "did:web:example.org"}, "damaged"),
        ({"from": V4.did.partition(".S")[0]}, "damaged"),
        ({"from": V4.did + V4.did[V4.did.index(".S") :]}, "damaged"),
        ({"from": V4.did.replace(".Vz", ".Az")}, "damaged"),
        ({"from": peer2(serverKey=b64url(bytes(32)))}, "damaged"),
        ({"from": peer2(serverKey="AAAA")}, "damaged"),
        ({"from": peer2(serverKey=None)}, "damaged"),
        ({"from": peer2(s="zmq+tcp://192.0.2.7:5000")}, "damaged"),
        ({"from": peer2(s={"uri": "zmq+tcp://192.0.2.7:5000", "a": ["didcomm/v2"], "r": ["did:key:x"]})}, "damaged"),
        ({"from": peer2(uri="tcp://192.0.2.7:5000")}, "damaged"),
        ({"from": peer2(more="x")}, "damaged"),
        ({"expires_time": ...}, "damaged"),
        ({"expires_time": True}, "damaged"),
        ({"expires_time": 2.5e9}, "damaged"),
        ({"expires_time": 2**32}, "damaged"),
        ({"expires_time": str(NOW_S + 9)}, "damaged"),
    ],
)
def test_links_that_only_look_like_ours_are_refused(changes: dict[str, Any], reason: str) -> None:
    assert reason in why(oob(**changes))


def test_a_link_with_mismatched_keys_is_refused() -> None:
    other = replace(V4, key=ed25519_public(bytes(32)))
    mixed = V4.did.partition(".E")[0] + ".E" + other.did.partition(".E")[2]
    assert "damaged" in why(oob(**{"from": mixed}))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "e30",
        "W10",
        "bnVsbA",
        "AAAA",
        b64url(b'{"a":1,"a":2}'),
        b64url(b"[" * 2000),
        b64url(b"{}{}"),
        b64url(b"\xff\xfe"),
    ],
)
def test_links_that_hold_something_else_are_refused(value: str) -> None:
    assert why("https://example.org/?_oob=" + value)


def test_changed_link_characters_never_change_the_inviter() -> None:
    """A link has no checksum (another id, key, endpoint or time may result), but contains its key twice."""
    url, noticed = V4.url(), 0
    for at in range(len(URL_PREFIX), len(url)):
        try:
            parsed = parse_invitation(url[:at] + ("A" if url[at] != "A" else "B") + url[at + 1 :], NOW_S)
        except (BadInvitation, InvitationExpired):
            noticed += 1
        else:
            assert parsed.key == V4.key
    assert noticed > len(url) // 2


@pytest.mark.parametrize("form", ["url", "code"])
def test_expired_invitation_states_the_time(form: str) -> None:
    text = getattr(V4, form)()
    assert parse_invitation(text, V4.expires - 1) == V4
    for now in (V4.expires, V4.expires + 10**9):
        with pytest.raises(InvitationExpired, match=re.escape("expired on 2025-06-15 16:06 UTC")):
            parse_invitation(text, now)


@given(st.integers(1, 2**32 - 1))
def test_iso_time_matches_the_calendar(expires: int) -> None:
    with pytest.raises(InvitationExpired) as caught:
        parse_invitation(replace(V4, expires=expires).code(), expires)
    assert caught.value.fields["when"] == datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d %H:%M UTC")


@settings(deadline=None)
@given(st.text(string.printable, max_size=60), st.sampled_from(["", "ZC:", URL_PREFIX, "https://x/?_oob=", "<"]))
def test_any_pasted_text_is_answered_with_a_sentence(text: str, prefix: str) -> None:
    with pytest.raises(BadInvitation) as caught:
        parse_invitation(prefix + text, NOW_S)
    assert "zerochat invite GROUP" in str(caught.value)
