"""What a benchmark's agents have recorded of its runs (`--record DIR`), beside what it has measured of them itself.

    DIR/exports/NAME/     one export of telemetry for each agent, under a study key that is forgotten afterwards
    DIR/measured.json     the benchmark's own figures: a list of runs, in their order

`zerochat-analytics run --in DIR/exports --out STUDY` makes tables of it, and `zerochat-analytics thesis --in STUDY
--beside DIR/measured.json` sets both side by side. The two look from different places. A benchmark's clock runs from
when it asks until a face has been told; the recording's from when an agent says something (to the millisecond, rounded
down) until the last agent has it, which lies within that, but for the millisecond, or until it has told its face of it,
which it notes right after.
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
from zerochat.agent.telemetry.export import Name, Wanted, export
from zerochat.agent.telemetry.pseudonyms import Pseudonyms, new_phrase
from zerochat.agent.telemetry.schema import Fact

APART_S = 1.5
"""Between two runs, so that the recording shows them apart (`analytics.pipeline.batches.QUIET_US`)."""
SETTLE_S = 61.0
"""What was said less than a minute before an export does not count as lost in it (`analytics.pipeline.silver`)."""


def options(parser: argparse.ArgumentParser) -> None:
    """What every area takes that can be recorded."""
    parser.add_argument("--record", type=Path, metavar="DIR", help="a new folder for telemetry of the same runs")


class Recording:
    """The exports and the figures of one benchmark. `runs`: what it has measured, in order."""

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
        self._pseudonyms = Pseudonyms.of_phrase(new_phrase())
        self._on: dict[str, Client] = {}
        self.runs: list[dict[str, Any]] = []

    def begin(self, name: str, client: Client) -> None:
        """Have an agent record from now on, as somebody would who has read what that means."""
        if name not in self._on:
            consent = client.call("telemetry").consent
            status = client.call("telemetry_set", on=True, consent=consent)
            assert status.recording, status
            self._on[name] = client

    def end(self, name: str) -> None:
        """Export what an agent has recorded, if it has."""
        if name not in self._on:
            return
        call: Callable[..., Any] = self._on.pop(name).call
        self.export(name, collection.batches(call, collection.end_of(call)), collection.names(call))

    def export(self, name: str, batches: Iterable[Sequence[Fact]], names: Mapping[int, Name]) -> None:
        export(self._folder / "exports" / name, batches, names, self._pseudonyms, Wanted())

    def member(self, group: str, did: str) -> int:
        """The pseudonym of a member."""
        return self._pseudonyms.member(group, did)

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """Whoever still records at the end of this exports then, while its agent is there."""
        try:
            yield
        finally:
            time.sleep(self._settle_s if self._on else 0)
            for name in list(self._on):
                self.end(name)

    def pause(self) -> None:
        time.sleep(APART_S)

    def close(self, area: str) -> None:
        """Write what was measured."""
        self._folder.mkdir(parents=True, exist_ok=True)
        told = {"area": area, "runs": self.runs}
        (self._folder / "measured.json").write_text(json.dumps(told, indent=1) + "\n", encoding="ascii")
