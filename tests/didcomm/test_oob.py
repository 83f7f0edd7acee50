"""Out-of-Band invitations of other agents: every version is read or refused; ours is written."""

import base64
import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, base58, compact_json
from zerochat.crypto.keys import PublicKey, SecretKey, new_secret, public_of
from zerochat.didcomm import jws
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import did_key_of, new_peer2, new_peer4, resolve
from zerochat.didcomm.message import Message, dump
from zerochat.didcomm.packer import OwnKey
from zerochat.didcomm.protocols import oob_read, oob_write
from zerochat.didcomm.protocols.didexchange import service_v1
from zerochat.didcomm.protocols.oob_read import OutOfBand, ShortLink, read_invitation
from zerochat.errors import Malformed, Refused, RemoteError

DICE = random.Random(7).randbytes
KEY = public_of(new_secret("Ed25519", DICE))
DID_KEY = did_key_of(KEY)
ID = "69212a3a-d068-4f9d-a2dd-4741bca89af3"
URI = "https://agent.example/inbox"

# The example of DIDComm v2.1, "Example Out-of-Band Message Encoding", and that of RFC 0434, both as they are printed.
SPEC_V2 = (
    "eyJ0eXBlIjoiaHR0cHM6Ly9kaWRjb21tLm9yZy9vdXQtb2YtYmFuZC8yLjAvaW52aXRhdGlvbiIsImlkIjoiNjkyMTJhM2EtZDA2OC00ZjlkLWEyZGQt"
    "NDc0MWJjYTg5YWYzIiwiZnJvbSI6ImRpZDpleGFtcGxlOmFsaWNlIiwiYm9keSI6eyJnb2FsX2NvZGUiOiIiLCJnb2FsIjoiIn0sImF0dGFjaG1lbnRz"
    "IjpbeyJpZCI6InJlcXVlc3QtMCIsIm1lZGlhX3R5cGUiOiJhcHBsaWNhdGlvbi9qc29uIiwiZGF0YSI6eyJqc29uIjoiPGpzb24gb2YgcHJvdG9jb2wg"
    "bWVzc2FnZT4ifX1dfQ"
)
SPEC_V1 = (
    "eyJAdHlwZSI6Imh0dHBzOi8vZGlkY29tbS5vcmcvb3V0LW9mLWJhbmQvMS4wL2ludml0YXRpb24iLCJAaWQiOiI2OTIxMmEzYS1kMDY4LTRmOWQtYTJk"
    "ZC00NzQxYmNhODlhZjMiLCJsYWJlbCI6IkZhYmVyIENvbGxlZ2UiLCJnb2FsX2NvZGUiOiJpc3N1ZS12YyIsImdvYWwiOiJUbyBpc3N1ZSBhIEZhYmVy"
    "IENvbGxlZ2UgR3JhZHVhdGUgY3JlZGVudGlhbCIsImhhbmRzaGFrZV9wcm90b2NvbHMiOlsiaHR0cHM6Ly9kaWRjb21tLm9yZy9kaWRleGNoYW5nZS8x"
    "LjAiLCJodHRwczovL2RpZGNvbW0ub3JnL2Nvbm5lY3Rpb25zLzEuMCJdLCJzZXJ2aWNlcyI6WyJkaWQ6c292OkxqZ3BTVDJyanNveFllZ1FEUm03RUwi"
    "XX0="
)


def inline(**more: Any) -> dict[str, Any]:
    return {"id": "#inline", "type": "did-communication", "recipientKeys": [DID_KEY], "serviceEndpoint": URI, **more}


def v1(**more: Any) -> dict[str, Any]:
    members = {
        "@type": "https://didcomm.org/out-of-band/1.1/invitation",
        "@id": ID,
        "label": "Faber College",
        "handshake_protocols": ["https://didcomm.org/didexchange/1.1"],
        "services": [inline()],
    }
    return {name: value for name, value in {**members, **more}.items() if value is not ...}


def v2(**more: Any) -> dict[str, Any]:
    members = {
        "type": "https://didcomm.org/out-of-band/2.0/invitation",
        "id": ID,
        "from": DID_KEY,
        "body": {"goal_code": "p2p-messaging", "accept": ["didcomm/v2"]},
    }
    return {name: value for name, value in {**members, **more}.items() if value is not ...}


def link(tree: dict[str, Any], name: str = "_oob") -> str:
    return f"https://agent.example/path?{name}={b64url(compact_json(tree))}"


def read(text: str) -> OutOfBand:
    found = read_invitation(text)
    assert isinstance(found, OutOfBand)
    return found


# --- the examples of the specifications -----------------------------------------------------------------------------


@pytest.mark.conformance
def test_the_example_of_version_2():
    found = read("https://example.com/path?_oob=" + SPEC_V2)
    assert (found.id, found.version, found.inviters[0].did) == (ID, (2, 0), "did:example:alice")
    assert found.requests[0].json == "<json of protocol message>" and found.goal_code == ""


@pytest.mark.conformance
def test_the_example_of_version_1():
    found = read("http://example.com/ssi?oob=" + SPEC_V1)
    assert (found.id, found.version, found.label) == (ID, (1, 0), "Faber College")
    assert (found.goal_code, found.goal) == ("issue-vc", "To issue a Faber College Graduate credential")
    assert found.inviters[0].did == "did:sov:LjgpST2rjsoxYegQDRm7EL" and found.inviters[0].route is None
    assert oob_read.handshake(found) == "1.0"


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_service_that_is_written_out():
    found = read(link(v1(services=[inline(routingKeys=[DID_KEY])]), "oob"))
    (route,) = oob_read.ways(found.inviters[0], resolve)
    assert (route.uri, route.recipient_keys, route.routing_keys, route.order) == (URI, (DID_KEY,), (DID_KEY,), "draft")
    assert route.takes("didcomm/v1") and oob_read.signers(found.inviters[0], resolve) == (KEY,)


def test_services_without_type_old_keys_and_unknown_types():
    old = {"id": "#inline", "recipientKeys": [base58(KEY.data)], "serviceEndpoint": URI, "routingKeys": None}
    found = read(link(v1(services=[{"id": "#x", "type": "pigeon", "serviceEndpoint": URI}, old, "did:sov:abc"]), "oob"))
    assert [inviter.did for inviter in found.inviters] == [None, "did:sov:abc"]
    assert oob_read.signers(found.inviters[0], resolve) == (KEY,)


def test_did_invitation_has_route_and_keys():
    identity = new_peer4(DICE, [service_v1(URI)])
    (inviter,) = read(link(v1(services=[identity.did]), "oob")).inviters
    assert oob_read.ways(inviter, resolve)[0].uri == URI
    assert oob_read.signers(inviter, resolve) == (PublicKey("Ed25519", identity.signing_public),)
    with pytest.raises(Malformed):
        oob_read.ways(read("https://example.com/ssi?oob=" + SPEC_V1).inviters[0], resolve)


def test_the_requests_of_either_version():
    asked = {"@id": "request-0", "mime-type": "application/json", "data": {"json": {"@type": "x"}}}
    found = read(link(v1(**{"requests~attach": [asked]}, handshake_protocols=...), "oob"))
    assert found.requests[0].id == "request-0" and found.requests[0].media_type == "application/json"
    assert oob_read.handshake(found) is None
    newer = {"id": "request-0", "data": {"base64": b64url(b"{}")}}
    assert read(link(v2(attachments=[newer]))).requests[0].base64 == b64url(b"{}")


@pytest.mark.parametrize(
    "kind", ["https://didcomm.org/out-of-band/%VER/invitation", "https://didcomm.org/out-of-band/0.1/invitation"]
)
@pytest.mark.parametrize("names", [("type", "id"), ("@type", "@id")])
def test_the_draft(kind, names):
    asked = {"@id": "request-0", "mime-type": "application/json", "data": {"json": {}}}
    tree = {names[0]: kind, names[1]: ID, "from": DID_KEY, "body": {"goal-code": "issue-vc", "request~attach": [asked]}}
    found = read(link(tree))
    assert (found.version, found.id, found.goal_code, found.inviters[0].did) == ((0, 1), ID, "issue-vc", DID_KEY)
    assert found.requests[0].media_type == "application/json"


@pytest.mark.parametrize("prefix", ["https://didcomm.org/", "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/"])
def test_either_prefix_of_types(prefix):
    assert read(link(v1(**{"@type": prefix + "out-of-band/1.1/invitation"}), "oob")).version == (1, 1)


def test_expiry_is_read_in_either_version():
    assert read(link(v2(expires_time=1769850300))).expires_time == 1769850300
    timing = {"expires_time": "2026-01-31T09:05:00Z"}
    assert read(link(v1(**{"~timing": timing}), "oob")).expires_time == 1769850300


@pytest.mark.parametrize(
    ("offered", "version"),
    [
        (["didexchange/1.1"], "1.1"),
        (["connections/1.0", "didexchange/1.0"], "1.0"),
        (["didexchange/1.9"], "1.1"),
        (["DID-Exchange/1.0/"], "1.0"),
    ],
)
def test_the_handshake_to_use(offered, version):
    protocols = ["nonsense", *("https://didcomm.org/" + name for name in offered)]
    assert oob_read.handshake(read(link(v1(handshake_protocols=protocols), "oob"))) == version


def test_a_handshake_that_is_not_spoken():
    protocols = ["https://didcomm.org/connections/1.0", "https://didcomm.org/didexchange/2.0"]
    with pytest.raises(Refused, match="no handshake protocol"):
        oob_read.handshake(read(link(v1(handshake_protocols=protocols), "oob")))


# --- links ----------------------------------------------------------------------------------------------------------


def spellings() -> dict[str, str]:
    plain = compact_json(v2(body={"goal": "??>>~~ÿÿ"}))
    encoded = base64.b64encode(plain).decode()
    assert "+" in encoded and "/" in encoded and encoded.endswith("=")
    url = base64.urlsafe_b64encode(plain).decode()
    page = "https://agent.example/path?"
    return {
        "padded": page + "_oob=" + url,
        "unpadded": page + "_oob=" + url.rstrip("="),
        "the older alphabet": page + "_oob=" + encoded,
        "escaped": page + "_oob=" + encoded.replace("=", "%3D").replace("+", "%2B").replace("/", "%2f"),
        "among other parameters": page + "utm=1&_oob=" + url.rstrip("=") + "&c=2#top",
        "in brackets, wrapped": f"  <{page}_oob={url[:40]}\n {url[40:]}>\u200b",
        "another scheme": "didcomm://invite?_oob=" + url,
        "JSON": "\n" + json.dumps(v2(body={"goal": "??>>~~ÿÿ"}), indent=2),
    }


@pytest.mark.parametrize("name", spellings())
def test_links_in_every_spelling(name):
    assert read(spellings()[name]).goal == "??>>~~ÿÿ"


def test_short_link_has_the_url_to_fetch():
    url = "https://agent.example:8080/path?_oobid=5f0e3ffb-3f92-4648-9868-0d6f8889e6f3"
    assert read_invitation(f" {url}\n") == ShortLink(url)
    for other in (url.replace("https", "ftp"), url.replace("https", "file"), url + "a" * 3000):
        with pytest.raises(Refused):
            read_invitation(other)


# --- refusals -------------------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[str, type[RemoteError], str]] = {
    "nothing": (" \n", Malformed, "there is nothing in it"),
    "no link": ("hello there", Malformed, "it is not a link"),
    "another link": ("https://example.com/?q=1", Malformed, "there is no invitation in the link"),
    "two": (link(v2()) + "&oob=" + SPEC_V1, Malformed, "there is more than one invitation in the link"),
    "cut off": (link(v2())[:-7], Malformed, "it is cut off or damaged"),
    "damaged": (link(v2())[:60] + "!" + link(v2())[60:], Malformed, "it is cut off or damaged"),
    "no object": ("https://example.com/?_oob=" + b64url(b"[]"), Malformed, "it does not contain a message"),
    "no type": (link({"id": ID}), Malformed, "it has no message type"),
    "another message": (
        link(v2(type="https://didcomm.org/trust-ping/2.0/ping")),
        Refused,
        "it is a message, but not an invitation",
    ),
    "the future": (
        link(v2(type="https://didcomm.org/out-of-band/3.0/invitation")),
        Refused,
        "it is an invitation of version 3, which this version of zerochat does not support",
    ),
    "no sender": (link(v2(**{"from": ...})), Malformed, "the invitation does not say who it is from"),
    "no services": (link(v1(services=[]), "oob"), Malformed, "the invitation does not say who it is from"),
    "no way": (
        link(v1(services=["pigeon", inline(serviceEndpoint=7)]), "oob"),
        Refused,
        "the invitation contains no supported address of its sender",
    ),
    "no purpose": (
        link(v1(handshake_protocols=...), "oob"),
        Malformed,
        "the invitation contains neither a handshake protocol nor a request",
    ),
    "too long": ("https://example.com/?_oob=" + "A" * 70_000, Malformed, "it has more than 65536 characters"),
    "RFC 0160": (
        link({"@type": "https://didcomm.org/connections/1.0/invitation", "@id": ID, "recipientKeys": ["x"]}, "c_i"),
        Refused,
        "it is an invitation of the Connections protocol (RFC 0160), which zerochat does not support",
    ),
    "RFC 0160 elsewhere": (
        link({"@type": "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/connections/1.0/invitation", "@id": ID}, "oob"),
        Refused,
        "it is an invitation of the Connections protocol (RFC 0160), which zerochat does not support",
    ),
    "an old draft": (
        link({"from": DID_KEY, "@type": "https://didcomm.org/out-of-band/0.1/invitation"}),
        Malformed,
        "no id",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_state_the_defect(name):
    text, kind, why = REFUSALS[name]
    with pytest.raises(kind) as caught:
        read_invitation(text)
    assert why in str(caught.value.fields["why"])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*v1(), *v2(), "requests~attach", "attachments", "expires_time"]), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from([DID_KEY, URI, v1()["@type"]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*inline(), "data", "json"]), inner),
    max_leaves=8,
)), st.sampled_from(["0.1", "1.0", "1.1", "2.0"]))  # fmt: skip
def test_any_invitation_is_read_or_refused(members, version):
    kind = f"https://didcomm.org/out-of-band/{version}/invitation"
    tree = {**(v2() if version == "2.0" else v1()), **members, "@type": kind, "type": kind}
    with contextlib.suppress(RemoteError):
        read_invitation(link(tree))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.sampled_from(["", "https://x.example/?_oob=", "https://x.example/?oob=", "{"]))
def test_any_text_is_read_or_refused(text, before):
    with contextlib.suppress(RemoteError):
        read_invitation(before + text)


# --- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [new_peer2, new_peer4])
def test_an_invitation_2_of_ours(make):
    identity = make(DICE, [{"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": URI}}])
    request = Attachment(id="r", media_type="application/json", json={"type": "x"})
    made = oob_write.invitation(
        identity.did, DICE, goal_code="chat", goal="To chat", expires_time=9, requests=[request]
    )
    found = read(oob_write.link("https://agent.example/", made))
    assert (found.id, found.goal_code, found.goal, found.accept) == (made.id, "chat", "To chat", ("didcomm/v2",))
    assert found.expires_time == 9 and found.requests == (request,)
    assert oob_read.ways(found.inviters[0], resolve)[0].uri == URI


def test_an_invitation_1_of_ours():
    identity = new_peer2(DICE, [service_v1(URI)])
    services: list[Any] = [oob_write.inline_service(URI, KEY, [DID_KEY]), identity.did]
    request = Attachment(id="r", media_type="application/json", json={"@type": "x"})
    made = oob_write.invitation_v1(services, "Zoë", DICE, goal_code="chat", expires_time=1769850300, requests=[request])
    found = read(oob_write.link("https://agent.example/?a=b", made))
    assert (found.id, found.label, found.version, found.expires_time) == (made.id, "Zoë", (1, 1), 1769850300)
    assert (found.goal_code, found.goal) == ("chat", "chat") and oob_read.handshake(found) == "1.1"
    assert found.inviters[0].route.routing_keys == (DID_KEY,) and found.inviters[1].did == identity.did
    assert found.requests == (request,)


def test_a_short_link_of_ours():
    assert read_invitation(oob_write.short_link("http://192.0.2.1:80/", "abc")) == ShortLink(
        "http://192.0.2.1:80/?_oobid=abc"
    )


def test_our_links_have_no_more_than_they_need():
    made = oob_write.invitation("did:example:a", DICE)
    assert oob_write.link("https://x.example", made) == "https://x.example?_oob=" + b64url(dump(made))


def test_a_connection_is_used_again():
    asked = oob_write.reuse(ID, DICE)
    reply = oob_write.reuse_accepted(asked, DICE)
    assert oob_write.is_reuse(asked) and oob_write.is_reuse_accepted(reply, asked) and reply.pthid == ID
    assert not oob_write.is_reuse_accepted(reply, oob_write.reuse(ID, DICE))


# --- signed invitations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [new_peer2, new_peer4])
def test_a_signed_invitation_is_verified(new):
    inviter, other = new(DICE, []), new(DICE, [])
    message = oob_write.invitation(inviter.did, DICE, goal="Alice")

    def link(signer, kid):
        return oob_write.link(URI, message, OwnKey(kid, SecretKey("Ed25519", signer.signing_seed)))

    good = link(inviter, inviter.kid_signing)
    found = read_invitation(good)
    assert isinstance(found, OutOfBand) and found.signed and found.goal == "Alice"
    assert replace(found, signed=False) == read_invitation(oob_write.link(URI, message))
    tree = json.loads(base64.urlsafe_b64decode(good.partition("_oob=")[2] + "=="))
    forged = {**tree, "payload": b64url(compact_json({**v2(), "from": inviter.did}))}
    for bad in (
        link(other, inviter.kid_signing),
        link(other, other.kid_signing),
        f"{URI}?_oob={b64url(compact_json(forged))}",
        f"{URI}?_oob={b64url(compact_json({**tree, 'signature': ''}))}",
    ):
        with pytest.raises(Refused, match="signature"):
            read_invitation(bad)
    flat = {name: tree[name] for name in ("protected", "header", "signature")}
    general = {"payload": tree["payload"], "signatures": [flat]}
    assert read_invitation(json.dumps(general)) == found
    ping = Message(type="https://didcomm.org/trust-ping/2.0/ping", id="1", from_=inviter.did)
    signed = jws.sign(dump(ping), [(inviter.kid_signing, SecretKey("Ed25519", inviter.signing_seed))])
    with pytest.raises(Refused, match="not an invitation"):
        read_invitation(signed.decode())
