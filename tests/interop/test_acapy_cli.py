"""zerochat and ACA-Py, each driven through its own interface.

Ours through the command line, theirs through the admin API and webhooks; test_acapy.py lists unsupported features.
"""

import json
import os
import subprocess
import sys
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.acapy import PATIENCE_S, Acapy, free_port, running
from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.rpc import ConnectionMessageNotification

pytestmark = [pytest.mark.conformance, pytest.mark.long]

ROOT = Path(__file__).parents[2]
TEXT = "naïve – 日本語 ✓"


class Zerochat:
    """A profile with a running agent that takes in envelopes over HTTP."""

    def __init__(self, folder: Path) -> None:
        self._environ = {**os.environ, "ZEROCHAT_HOME": str(folder), "PYTHONUNBUFFERED": "1"}
        self("init", "--name", "alice")
        settings = Path(self("paths", "config").strip())
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(f'[network]\nweb = "127.0.0.1:{free_port()}"\n')
        command = [sys.executable, "-m", "zerochat", "agent", "--listen", "127.0.0.1"]
        self._agent = subprocess.Popen(
            command, cwd=ROOT, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self._agent.stdout is not None
        assert self._agent.stdout.readline(), "the agent says when it is ready"
        self._client = connect(profile_paths(None, self._environ))
        self._client.subscribe()

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "zerochat", *words],
            cwd=ROOT,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def said(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*words, "--format", "jsonl").splitlines()]

    def hears(self, text: str) -> None:
        """Wait for this report of a connection."""
        while (news := self._client.next_notification(PATIENCE_S)) is not None:
            if isinstance(news.params, ConnectionMessageNotification) and news.params.text == text:
                return
        raise AssertionError(f"nobody told us {text!r}")

    def stop(self) -> None:
        self._client.close()
        self._agent.terminate()
        self._agent.communicate(timeout=20)


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
    zerochat("message", name, TEXT)
    assert acapy.told("basicmessages", connection_id=connection)["content"] == TEXT
    acapy.post(f"/connections/{connection}/send-message", content=TEXT)
    zerochat.hears(TEXT)
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
