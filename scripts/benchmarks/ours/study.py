"""One engine makes one study, in a process of its own: `python -m benchmarks.ours.study ENGINE EXPORTS OUT`.

Prints one line of JSON: how long it took without starting (s), the most memory that it had (MB; of Spark's Java machine
apart), and how long each step took.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


def peak_mb() -> float:
    """Of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def peak_of(process: int | None) -> float | None:
    """Of another process (MB), where the system reports it."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return None
    return next(int(line.split()[1]) / 2**10 for line in status.splitlines() if line.startswith("VmHWM:"))


def with_spark(engine: str, exports: Path, out: Path) -> dict[str, Any]:
    from analytics.cli import is_small
    from analytics.file_scan import background_scan
    from analytics.pipeline.run import STEPS, Options, run
    from analytics.progress import Progress
    from analytics.session import SparkSettings, java_process, spark_session

    progress = Progress(STEPS, quiet=True)
    # The naive one gets more: with as little as the real one needs, it would not end.
    small = is_small(str(exports))
    wanted = SparkSettings(short=small) if engine == "spark" or small else SparkSettings(memory="4g")
    with background_scan(exports) as ahead, spark_session(wanted) as (spark, _):
        begun = time.monotonic()
        if engine == "spark":
            run(spark, str(exports), str(out), Options(deliveries=True), progress, ahead)
        else:
            from benchmarks.ours import naive

            naive.study(spark, exports, out, 2 if small else 200)
        took = time.monotonic() - begun
        return {"inner_s": took, "java_mb": peak_of(java_process(spark)), "steps": progress.took_s}


def main() -> int:
    engine, exports, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    told: dict[str, Any]
    if engine in ("spark", "naive"):
        told = with_spark(engine, exports, out)
    else:
        begun = time.monotonic()
        from benchmarks.peers import delivery_duckdb

        delivery_duckdb.study(exports, out)
        told = {"inner_s": time.monotonic() - begun, "java_mb": None, "steps": {}}
    print(json.dumps(told | {"mb": peak_mb()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
