"""Whether a seed gives the same history everywhere."""

import os
import subprocess
import sys


def told_elsewhere(expression: str) -> set[str]:
    """What this expression about `zerochat.sim` (as `sim`) prints in other processes: sets of strings iterate in
    another order in each of them, and that must not show."""
    code = f"from zerochat import sim; print({expression})"
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "3", "4")
    }
