"""Determinism checks across processes."""

import os
import subprocess
import sys


def outputs_elsewhere(expression: str) -> set[str]:
    """The outputs of this expression about `zerochat.sim` (as `sim`) in other processes, which have other hash
    seeds."""
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
