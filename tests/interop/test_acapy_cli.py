"""zerochat and ACA-Py, each driven through its own interface.

Ours through the command line, theirs through the admin API and webhooks; test_acapy.py lists unsupported features.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.acapy import Acapy, running
from tests.interop.our_agent import Zerochat

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

TEXT = "naïve – 日本語 ✓"


@pytest.fixture(scope="module")
def acapy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acapy]:
    with running(tmp_path_factory.mktemp("acapy")) as agent:
        yield agent


@pytest.fixture(scope="module")
def zerochat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zerochat]:
    agent = Zerochat(tmp_path_factory.mktemp("zerochat"))
    yield agent
    agent.stop()


def talk(zerochat: Zerochat, acapy: Acapy, name: str, connection: str) -> None:
    """Trust ping, discover features and basic message, begun by either side."""
    (pong,) = zerochat.said("ping", name)
    assert pong["their_key"]
    assert "https://didcomm.org/trust_ping/1.0" in {entry["id"] for entry in zerochat.said("features", name)}
    exchange_texts(zerochat, acapy, name, connection)
    thread = acapy.post(f"/connections/{connection}/send-ping", comment="hi")["thread_id"]
    acapy.told("ping", thread_id=thread, state="response_received")
    asked = acapy.get(f"/discover-features-2.0/queries?connection_id={connection}&query_protocol=*")

    def disclosed() -> Any:
        for entry in acapy.get(f"/discover-features-2.0/records?connection_id={connection}")["results"]:
            if entry["discovery_exchange_id"] == asked["discovery_exchange_id"]:
                return entry.get("disclosures")
        return None

    protocols = {entry["id"] for entry in acapy.until(disclosed)["disclosures"]}
    assert "https://didcomm.org/trust_ping/1.0" in protocols


def exchange_texts(zerochat: Zerochat, acapy: Acapy, name: str, connection: str) -> None:
    zerochat("message", name, TEXT)
    assert acapy.told("basicmessages", connection_id=connection)["content"] == TEXT
    acapy.post(f"/connections/{connection}/send-message", content=TEXT)
    zerochat.hears(TEXT)


@pytest.mark.parametrize("method", [None, "did:peer:2", "did:peer:4"])
def test_zerochat_accepts_their_invitation(zerochat, acapy, method):
    invitation = acapy.invitation(**({"use_did_method": method} if method else {}))
    name = f"faber-{method or 'inline'}".replace(":", "-")
    (connection,) = zerochat.said("connect", invitation["url"], "--name", name)
    assert (connection["state"], connection["envelope"]) == ("established", "didcomm/v1")
    talk(zerochat, acapy, name, acapy.connection(invitation["@id"]))


def test_they_accept_zerochats_invitation(zerochat, acapy):
    (offer,) = zerochat.said("connect", "--invite", "--envelope", "didcomm/v1", "--name", "student")
    text = offer["url"].partition("oob=")[2]
    invitation = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    connection = acapy.receive(invitation)
    acapy.until(lambda: acapy.get(f"/connections/{connection}")["rfc23_state"] == "completed" or None)
    talk(zerochat, acapy, offer["connection"], connection)


def test_both_rotate(zerochat, acapy):
    invitation = acapy.invitation()
    zerochat("connect", invitation["url"], "--name", "rotates")
    connection = acapy.connection(invitation["@id"])

    def their_dids() -> dict[str, str]:
        return dict(acapy.get(f"/connections/{connection}"))

    for _ in range(2):
        before = their_dids()["their_did"]
        zerochat("rotate", "rotates")
        acapy.until(lambda: their_dids()["their_did"] != before or None)  # noqa: B023 - called in this round
        exchange_texts(zerochat, acapy, "rotates", connection)
        new = acapy.post("/wallet/did/create", method="did:peer:4")["result"]["did"]
        acapy.post(f"/did-rotate/{connection}/rotate", to_did=new)
        acapy.until(lambda: their_dids()["my_did"] == new or None)  # noqa: B023 - called in this round
        exchange_texts(zerochat, acapy, "rotates", connection)
