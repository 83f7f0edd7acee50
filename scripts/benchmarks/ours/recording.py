"""Telemetry that a benchmark's agents record (`--record DIR`), beside the benchmark's own figures.

    DIR/exports/NAME/     one export of telemetry for each agent, with a study passphrase that is discarded
    DIR/measured.json     the benchmark's own figures: a list of runs, in their order

`zerochat-analytics run --in DIR/exports --out STUDY` makes tables of it, and `zerochat-analytics thesis --in STUDY
--benchmark DIR/measured.json` compares the two. They look from different places. A benchmark's clock runs from the
request until a client is notified. The recording's runs from when an agent sends a message (to the millisecond, rounded
down) until the last agent has it, which lies within the former apart from the rounding, or until it has notified its
client.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zerochat.agent.api.client import Client
from zerochat.agent.telemetry import collection
from zerochat.agent.telemetry.export import Selection, Subject, export
from zerochat.agent.telemetry.pseudonyms import Pseudonyms, new_passphrase
from zerochat.agent.telemetry.schema import Record

APART_S = 1.5
"""Between two runs, so that the recording shows them apart (`analytics.pipeline.bursts.QUIET_US`)."""
SETTLE_S = 61.0
"""A message sent less than a minute before an export does not count as lost in it (`analytics.pipeline.silver`)."""


def options(parser: argparse.ArgumentParser) -> None:
    """The options of every area that can be recorded."""
    parser.add_argument("--record", type=Path, metavar="DIR", help="a new folder for telemetry of the same runs")


class Recording:
    """The exports and the figures of one benchmark. `runs`: its measurements, in order."""

    def __init__(self, folder: Path, settle_s: float = SETTLE_S) -> None:
        """`settle_s`: from the last run to the exports. Raises SystemExit where the folder is taken, or nothing could
        be exported in the end."""
        try:
            import pyarrow  # noqa: F401 - only to see whether it is there
        except ImportError:
            sys.exit("--record needs pyarrow: pip install pyarrow")
        if folder.exists() and any(folder.iterdir()):
            sys.exit(f"--record: {folder} is not empty")
        self._folder, self._settle_s = folder, settle_s
        self._pseudonyms = Pseudonyms.from_passphrase(new_passphrase())
        self._on: dict[str, Client] = {}
        self.runs: list[dict[str, Any]] = []

    def begin(self, name: str, client: Client) -> None:
        """Turn on recording for an agent, with consent."""
        if name not in self._on:
            consent = client.call("get_telemetry").consent
            status = client.call("set_telemetry", on=True, consent=consent)
            assert status.recording, status
            self._on[name] = client

    def end(self, name: str) -> None:
        """Export an agent's telemetry, if it has recorded any."""
        if name not in self._on:
            return
        call: Callable[..., Any] = self._on.pop(name).call
        self.export(name, collection.batches(call, collection.last_batch(call)), collection.names(call))

    def export(self, name: str, batches: Iterable[Sequence[Record]], names: Mapping[int, Subject]) -> None:
        export(self._folder / "exports" / name, batches, names, self._pseudonyms, Selection())

    def member(self, group: str, did: str) -> int:
        """The pseudonym of a member."""
        return self._pseudonyms.member(group, did)

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """Agents that still record at the end of this context export then, while they run."""
        try:
            yield
        finally:
            time.sleep(self._settle_s if self._on else 0)
            for name in list(self._on):
                self.end(name)

    def pause(self) -> None:
        time.sleep(APART_S)

    def close(self, area: str) -> None:
        """Write the measurements."""
        self._folder.mkdir(parents=True, exist_ok=True)
        told = {"area": area, "runs": self.runs}
        (self._folder / "measured.json").write_text(json.dumps(told, indent=1) + "\n", encoding="ascii")
