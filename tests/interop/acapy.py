"""ACA-Py as a process on loopback, driven through its admin API, and a mailbox to talk to it."""

import json
import os
import queue
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.support.other_implementations import python_with

_T = TypeVar("_T")

PYTHON = os.environ.get("ZEROCHAT_ACAPY_PYTHON")
"""Read when this is imported: no such setting reaches a test."""

PATIENCE_S = 60.0
"""Loading takes three seconds on a fast machine; everything else takes milliseconds."""
OPTIONS = """
    --admin-insecure-mode --no-ledger --wallet-type askar --wallet-name peer --wallet-key peer --auto-provision
    --auto-accept-requests --auto-accept-invites --auto-ping-connection --auto-respond-messages --auto-disclose-features
    --monitor-ping --emit-new-didcomm-prefix --emit-new-didcomm-mime-type --experimental-didcomm-v2 --log-level warning
"""


class Acapy:
    """One agent. `endpoint`: where it receives messages; `news`: its webhook reports."""

    def __init__(self, python: str, folder: Path, news: "Mailbox", label: str = "Faber") -> None:
        self.news = news
        inbound, admin = free_port(), free_port()
        self.endpoint, self._admin = f"http://127.0.0.1:{inbound}", f"http://127.0.0.1:{admin}"
        self.log = folder / "acapy.log"
        starter = str(Path(__file__).with_name("run_acapy.py"))
        program = [python, starter, "start", "--label", label, *OPTIONS.split()]
        program += ["--inbound-transport", "http", "127.0.0.1", str(inbound), "--outbound-transport", "http"]
        program += ["--endpoint", self.endpoint, "--admin", "127.0.0.1", str(admin), "--webhook-url", news.uri]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                program, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "HOME": str(folder)}
            )
        try:
            self.until(self._is_ready)
        except BaseException:
            self.stop()
            raise

    def get(self, path: str) -> Any:
        return self._call(path, None)

    def post(self, path: str, **body: object) -> Any:
        return self._call(path, body)

    def invitation(self, **wishes: object) -> dict[str, Any]:
        """A new invitation, with its `url` beside it."""
        body = {"handshake_protocols": ["https://didcomm.org/didexchange/1.1"], "use_public_did": False, **wishes}
        answer = self.post("/out-of-band/create-invitation?auto_accept=true", **body)
        return {**answer["invitation"], "url": answer["invitation_url"]}

    def receive(self, invitation: dict[str, Any]) -> str:
        """The id of the connection that begins by this invitation."""
        answer = self.post("/out-of-band/receive-invitation?auto_accept=true", **invitation)
        return str(answer["connection_id"])

    def connection(self, invitation_id: str) -> str:
        """The id of the connection that was made by an invitation, once it is complete."""

        def complete() -> str | None:
            for entry in self.get(f"/connections?invitation_msg_id={invitation_id}")["results"]:
                if entry["rfc23_state"] == "completed":
                    return str(entry["connection_id"])
            return None

        return self.until(complete)

    def told(self, topic: str, **facts: str) -> dict[str, Any]:
        """Its next report on a topic with these values; others are dropped."""
        while True:
            letter = self.news.take()
            report = json.loads(letter.body)
            if letter.path == f"/topic/{topic}/" and facts.items() <= report.items():
                return dict(report)

    def until(self, condition: Callable[[], _T | None]) -> _T:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self._process.poll() is None:
            if (found := condition()) is not None:
                return found
            threading.Event().wait(0.05)
        raise AssertionError(f"ACA-Py did not get there; its last words:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool | None:
        try:
            return self.get("/status/ready")["ready"] or None
        except OSError:
            return None

    def _call(self, path: str, body: dict[str, object] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._admin + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path}: {error.code} {error.read().decode()[:500]}") from None


def post(uri: str, envelope: bytes, media_type: str) -> bytes:
    """Send an envelope; return the answer on the same connection."""
    request = urllib.request.Request(uri, envelope, {"Content-Type": media_type})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


class Letter(NamedTuple):
    """A received post."""

    path: str
    media_type: str
    body: bytes


class Mailbox:
    """An HTTP endpoint that stores posts."""

    def __init__(self) -> None:
        self.letters: queue.Queue[Letter] = queue.Queue()
        letters = self.letters

        class Slot(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()
                letters.put(Letter(self.path, self.headers["Content-Type"], body))

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Slot)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def take(self) -> Letter:
        return self.letters.get(timeout=PATIENCE_S)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def running(folder: Path) -> Iterator[Acapy]:
    """An agent in an existing or new environment; otherwise the test is skipped."""
    python = PYTHON or python_with("acapy")
    with mailbox() as news:
        agent = Acapy(python, folder, news)
        try:
            yield agent
        finally:
            agent.stop()


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    try:
        yield box
    finally:
        box.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
