#!/usr/bin/env python3
"""The one door to the benchmarks: `scripts/bench.py AREA [--json] [--quick]`.

Makes the scripts' environment first if it has to, like scripts/test. An area is a module in scripts/benchmarks; some
take further options, which their `options` names (`scripts/bench.py AREA -- --help`).
"""

import argparse
import importlib
import importlib.util
import json
import os
import pkgutil
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent


def main() -> int:
    modules = pkgutil.iter_modules([str(SCRIPTS / "benchmarks")])
    areas = sorted(module.name for module in modules if not module.name.startswith("_"))
    parser = argparse.ArgumentParser(description="Measure one area of zerochat beside its peers and its floor.")
    parser.add_argument("area", choices=areas, metavar="AREA", help=", ".join(areas))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under a minute, and less to believe")
    parser.add_argument("--smoke", action="store_true", help="as little as possible: only whether the area runs")
    arguments, others = parser.parse_known_args()
    enter_environment(arguments.area, others)
    importlib.import_module("benchmarks").Scale.smoke = arguments.smoke
    module = importlib.import_module(f"benchmarks.{arguments.area}")
    further = argparse.ArgumentParser(prog=f"scripts/bench.py {arguments.area}", allow_abbrev=False)
    if hasattr(module, "options"):
        module.options(further)
    settings = vars(further.parse_args([other for other in others if other != "--"]))

    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }
    report = module.measure(arguments.quick or arguments.smoke, **settings)
    rows = [row.as_json() for row in report.rows]
    if arguments.json:
        answer = {"area": arguments.area, "machine": machine, "rows": rows, "missing": list(report.missing)}
        if report.notes:
            answer["notes"] = list(report.notes)
        print(json.dumps(answer, indent=2))
    else:
        print_table(arguments.area, machine, report)
    return 0


def enter_environment(area: str = "", options: Sequence[str] = ()) -> None:
    """Continue in this interpreter if it has the packages that the area needs; otherwise restart in the scripts'
    environment."""
    needed = ["apsw", "cryptography", "msgspec", "nacl", "textual", "zmq"]
    if area == "analytics":
        needed += ["duckdb", "pyarrow", "pyspark"]
    records = any(option.startswith("--record") for option in options)
    if records:
        needed += ["pyarrow"]
    if sys.version_info >= (3, 11) and all(importlib.util.find_spec(name) for name in needed):
        sys.path.insert(0, str(ROOT))
        return
    kind = "analytics" if area == "analytics" or records else "dev"
    prepare = f'root=$1; shift; . "$root/scripts/environment.sh"; prepare {kind}; exec "$python" "$@"'
    os.execv("/bin/sh", ["sh", "-euc", prepare, "enter", str(ROOT), str(Path(sys.argv[0]).resolve()), *sys.argv[1:]])


def print_table(area: str, machine: "dict[str, Any]", report: Any) -> None:
    print(f"{area}: {machine['cores']} cores, Python {machine['python']}, load {machine['load']} at the start")
    print("Medians, with [min, max].")
    for note in report.notes:
        print(note)
    for row in report.rows:
        print(f"\n{row.case} ({row.unit}, {row.better} is better)")
        lines = [("ours", str(row.ours)), *((name, str(figure)) for name, figure in row.peers.items())]
        lines += row.absent.items()
        if row.floor is not None:
            ratio = row.ours.median / row.floor.median if row.floor.median else float("inf")
            lines.append((f"floor: {row.floor_is}", f"{row.floor}   ours is {ratio:.2f} times that"))
        if row.goal is not None:
            name = f"goal: {row.goal_is}" if row.goal_is else "goal"
            lines.append((name, f"{row.goal:.4g}   {'met' if row.met else 'NOT met'}"))
        for name, text in lines:
            print(f"  {name:<32} {text}")
    if report.missing:
        print(f"\nNot installed here, so not measured: {', '.join(report.missing)}")


if __name__ == "__main__":
    sys.exit(main())
