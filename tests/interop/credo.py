"""credo-ts as a process on loopback (credo/agent.mjs), driven by lines of JSON."""

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.acapy import PATIENCE_S
from tests.support.other_implementations import python_with

PROGRAM = Path(__file__).with_name("credo") / "agent.mjs"


class Credo:
    """One agent. `hidden`: it has no endpoint. `trouble`: what it said about messages that it could not process."""

    def __init__(self, python: str, folder: Path, label: str, hidden: bool) -> None:
        environment = Path(python).parents[1]
        (library,) = environment.glob("lib/python3*/site-packages/aries_askar")
        self.trouble: list[str] = []
        self._log = folder / f"{label}.log"
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._lines: queue.Queue[str] = queue.Queue()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["node", PROGRAM, environment, label, *(["hidden"] if hidden else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "HOME": str(folder), "LIB_ASKAR_PATH": str(library)},
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.told("ready")

    def __call__(self, action: str, **arguments: object) -> Any:
        """Do one of the actions of agent.mjs, and return what it returns."""
        number = len(self._answers)
        self._answers[number] = {}
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"id": number, "do": action, "with": arguments}) + "\n")
        self._process.stdin.flush()
        self._until(lambda: bool(self._answers[number]), action)
        answer = self._answers[number]
        assert "error" not in answer, (action, answer["error"], self.trouble)
        return answer["is"]

    def told(self, event: str, **facts: object) -> dict[str, Any]:
        """The first event with these values that no other call has taken."""

        def found() -> dict[str, Any] | None:
            for known in self._events:
                if known["event"] == event and facts.items() <= known.items():
                    return known
            return None

        self._until(lambda: found() is not None, f"{event} {facts}")
        known = found()
        assert known is not None
        self._events.remove(known)
        return known

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _until(self, condition: Any, wanted: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                line = ""
            if not line:
                raise AssertionError(
                    f"credo did not get to: {wanted}\nevents: {self._events}\ntrouble: {self.trouble}\n"
                    f"{self._log.read_text()[-2000:]}"
                )
            said = json.loads(line)
            if "id" in said:
                self._answers[said["id"]] = said
            elif said["event"] == "trouble":
                self.trouble.append(said["why"])
            else:
                self._events.append(said)


@contextmanager
def running(folder: Path, label: str = "Faber", hidden: bool = False) -> Iterator[Credo]:
    """An agent in an existing or new environment; otherwise the test is skipped."""
    agent = Credo(python_with("node"), folder, label, hidden)
    try:
        yield agent
    finally:
        agent.stop()
