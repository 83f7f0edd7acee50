"""Helpers for tests of the telemetry pipeline: building a study, reading its gold tables."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.pipeline import run
from analytics.progress import Progress


def make_study(spark, exports: Path, out: Path, quiet: bool = True) -> dict:
    return run.run(spark, str(exports), str(out), run.Options(), Progress(run.STEPS, quiet))


def gold_rows(study: Path, name: str) -> list[str]:
    """All rows of a gold table, sorted."""
    table = pa.concat_tables([pq.read_table(file) for file in sorted((study / "gold" / name).glob("*.parquet"))])
    return sorted(map(repr, table.to_pylist()))
