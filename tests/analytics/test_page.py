"""Runs the commands of analytics/README.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark comes with the extra `analytics`: scripts/test --analytics")

from benchmarks.ours.exports import Plan, write

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.analytics, pytest.mark.long]


def test_commands_of_the_page(tmp_path):
    """In order, without the installation."""
    page = (ROOT / "analytics" / "README.md").read_text(encoding="utf-8")
    blocks = [text.splitlines() for text in re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    lines = [line.partition("   #")[0] for line in blocks[0][1:]]
    assert len(lines) == 5 and blocks[0][0].startswith("pip install")
    write(tmp_path / "exports", Plan(members=3, messages=60, hours=1))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "zerochat-analytics"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m analytics "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for line in lines:
        ended = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, (line, ended.stdout[-1000:], ended.stderr[-3000:])
    assert (tmp_path / "report.html").stat().st_size > 10_000
