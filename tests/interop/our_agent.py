"""zerochat's agent and mediator as processes, driven through the command line, for talks with other agents."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop.acapy import PATIENCE_S, free_port
from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.rpc import ConnectionMessageNotification

ROOT = Path(__file__).parents[2]


class Zerochat:
    """A profile with a running agent. `web`: it takes in envelopes over HTTP."""

    def __init__(self, folder: Path, web: bool = True) -> None:
        self._environ = {**os.environ, "ZEROCHAT_HOME": str(folder), "PYTHONUNBUFFERED": "1"}
        self("init", "--name", "alice")
        settings = Path(self("paths", "config").strip())
        settings.parent.mkdir(parents=True, exist_ok=True)
        if web:
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
        raise AssertionError(f"no report of {text!r}")

    def stop(self) -> None:
        self._client.close()
        self._agent.terminate()
        self._agent.communicate(timeout=20)


class Mediator:
    """`zerochat mediator`, which relays on this machine too. `link`: its invitation for agents of v1."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "zerochat", "mediator", "--listen", f"127.0.0.1:{port}"]
        command += ["--public-uri", f"http://127.0.0.1:{port}", "--relay-near", "loopback", "--format", "jsonl"]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "ZEROCHAT_HOME": str(folder), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.link = str(json.loads(self._process.stdout.readline())["link_v1"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=20)
