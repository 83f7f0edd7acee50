"""What was wrong with the exports: counted while they are read, and told in full.

Files that are set aside are named with the reason (`read`); rows that cannot be believed are counted by kind; exports
that claim one pseudonym for two people are set aside both, as nobody can say whose is whose.
"""

from collections import defaultdict
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from analytics.pipeline.read import Aside, Bronze, Export, read_files
from analytics.pipeline.silver import believable, code

CLASH = "claims a pseudonym that another export of the same study claims for other messages: {other}"


def same_observer(bronze: Bronze) -> list[list[Export]]:
    """Exports that say that they are of one observer in one study, together; only where there are several."""
    by_whom = defaultdict(list)
    for export in bronze.exports:
        by_whom[export.study, export.observer].append(export)
    return [exports for exports in by_whom.values() if len(exports) > 1]


def set_clashes_aside(spark: SparkSession, bronze: Bronze) -> None:
    """Leave out exports of one pseudonym that tell of different messages by the same number: they are two people's."""
    clashing: dict[str, str] = {}
    for exports in same_observer(bronze):
        tables = [
            read_files(spark, "send", [file.path for file in export.files if file.kind == "send"])
            .select("group", "seq", "t_send_us", "plain_b")
            .withColumn("place", f.lit(export.place))
            for export in exports
        ]
        rows = tables[0]
        for table in tables[1:]:
            rows = rows.unionByName(table)
        two = f.count_distinct(f.struct("t_send_us", "plain_b")) > 1
        told = rows.groupBy("group", "seq").agg(two.alias("two"), f.collect_set("place").alias("places")).where("two")
        places = sorted({place for row in told.select("places").distinct().collect() for place in row["places"]})
        if len(places) > 1:
            clashing |= {place: next(other for other in places if other != place) for place in places}
    for export in [export for export in bronze.exports if export.place in clashing]:
        bronze.exports.remove(export)
        bronze.aside.append(Aside(export.place, CLASH.format(other=clashing[export.place])))


def tell_twice(bronze: Bronze) -> bool:
    """Whether two exports of one observer cover the same time, so that the same rows may be in both."""
    for exports in same_observer(bronze):
        spans = sorted((export.from_us, export.to_us) for export in exports)
        if any(after[0] < before[1] for before, after in pairwise(spans)):
            return True
    return False


class Watch:
    """Counts rows in the same pass in which they are read for something else."""

    def __init__(self) -> None:
        self._running: dict[str, Observation] = {}
        self.counts: dict[str, int] = {}

    def rows(self, table: DataFrame, kind: str) -> DataFrame:
        """`table`, whose next reading to the end is counted as rows of this kind."""
        told = Observation(f"rows of {kind}")
        self._running[kind] = told
        counts = [
            f.count(f.lit(1)).alias("rows"),
            f.count_if(~believable(kind)).alias("unbelievable"),
        ]
        if kind == "send":
            counts.append(f.count_if((code(kind, "keys") < 0) | (code(kind, "path") < 0)).alias("unknown_words"))
        return table.observe(told, *counts)

    def gather(self) -> None:
        """After what was watched has been read: its counts."""
        for kind, told in self._running.items():
            self.counts |= {f"{kind}.{name}": int(value or 0) for name, value in told.get.items()}
        self._running.clear()


OF_OTHERS = "sender != observer"
"""Of pairs: nobody hears itself, but for two people of one pseudonym."""


def of_receipts(pairs: DataFrame, rows: int) -> dict[str, int]:
    """The same counts of `recv`, from its pairs (`skew.pairs`) and from how many rows there are: what is observed goes
    through no compiled code, which for millions of rows is the most of what they cost."""
    sums = {
        "believable": f.sum("rows"),
        "from_oneself": f.sum(f.when(f.col("sender") == f.col("observer"), f.col("rows"))),
        "before_sent": f.sum("before_sent"),
        "unknown_words": f.sum("unknown_words"),
    }
    [told] = pairs.agg(*(value.alias(name) for name, value in sums.items())).collect()
    counts = {f"recv.{name}": int(told[name] or 0) for name in sums}
    return {"recv.rows": rows, "recv.unbelievable": rows - counts.pop("recv.believable"), **counts}


def report(bronze: Bronze, counts: dict[str, int], notes: list[str]) -> dict[str, Any]:
    """The quality report, as quality.json has it."""
    return {
        "place": bronze.place,
        "exports": [
            {
                "place": export.place,
                "software": export.software,
                "study": "together" if export.together else "alone",
                "study_fingerprint": export.study,
                "observer": str(export.observer),
                "time_unit_us": export.time_unit_us,
                "files": len(export.files),
                "rows": sum(file.rows for file in export.files),
            }
            for export in bronze.exports
        ],
        "aside": [asdict(one) for one in bronze.aside],
        "counts": counts,
        "notes": notes,
    }
