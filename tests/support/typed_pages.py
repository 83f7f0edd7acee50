"""Shell blocks of the documentation, run line by line."""

import os
import shlex
import sys

import pytest

from tests.support.doc_pages import PAGES, blocks


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder to work in, with profiles of its own, and with `zerochat` on the PATH."""
    command = tmp_path / "bin" / "zerochat"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m zerochat "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DOWNLOAD_DIR", str(tmp_path / "downloads"))
    monkeypatch.delenv("ZEROCHAT_PROFILE", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def block(begins: str) -> str:
    """The one shell block of the README and the manual that holds this text."""
    [found] = [block for page in PAGES for block in blocks(page) if begins in block]
    return found


def typed(lines: str) -> list[str]:
    """The lines to type: without comments."""
    return [found for line in lines.splitlines() if (found := line.partition("   #")[0].strip()) and found[0] != "#"]
