"""Unusual environments: an optimising interpreter, closed streams, other encodings, a user without a home."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli_harness
from tests.support.cli_harness import SENT, of
from zerochat import errors

agent, home = cli_harness.agent, cli_harness.home

EVERY_ERROR = """
import importlib, pkgutil, zerochat
from zerochat.errors import ZerochatError, docstring
for module in pkgutil.walk_packages(zerochat.__path__, "zerochat."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
kinds = [ZerochatError]
for kind in kinds:
    kinds += kind.__subclasses__()
print(len(kinds), [kind for kind in kinds if docstring(kind) in ("", kind.__name__)])
"""


def python(*arguments: str, **more: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, **more)  # type: ignore[call-overload, no-any-return]


# --- python -OO, which removes docstrings ---------------------------------------------------------------------------


def test_sentences_of_errors_without_docstrings() -> None:
    kinds: list[type] = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    assert len(kinds) > 10
    for kind in kinds:
        assert errors._docstring_in_source(kind) == kind.__doc__
    printed = "from zerochat.errors import *; print(UnknownGroup(group='hikers'))"
    assert python("-OO", "-c", printed).stdout == f"{errors.UnknownGroup(group='hikers')}\n"


@pytest.mark.slow
def test_every_error_has_a_sentence_without_docstrings() -> None:
    count, empty = python("-OO", "-c", EVERY_ERROR).stdout.split(maxsplit=1)
    assert int(count) > 200 and empty == "[]\n"


# --- standard streams that are closed, or cannot be written ---------------------------------------------------------

ZEROCHAT = f"{sys.executable} -m zerochat"


def shell(line: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_message_is_sent_once_whatever_stream_is_closed(agent: Any, streams: str) -> None:
    served = agent(send_message=lambda _: SENT)
    done = shell(f"{ZEROCHAT} send hikers -m x {streams}")
    assert done.returncode == 0 and "error" not in done.stdout + done.stderr
    assert len(of(served, "send_message")) == 1


def test_a_message_is_sent_and_reported_to_a_closed_pipe(agent: Any) -> None:
    served = agent(send_message=lambda _: SENT)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "zerochat", "send", "hikers", "-m", "x"], stdout=writing, stderr=subprocess.PIPE
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(of(served, "send_message")) == 1 and of(served, "list_groups"), "the verb has gone on"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_to_a_full_disk_is_no_reason_to_send_again(agent: Any) -> None:
    served = agent(send_message=lambda _: SENT)
    done = shell(f"{ZEROCHAT} send hikers -m x >/dev/full")
    assert done.returncode == 10 and len(of(served, "send_message")) == 1
    assert "no space left on device" in done.stderr and "Only the output is lost" in done.stderr
    assert of(served, "list_groups"), "the verb has gone on"
    done = shell(f"{ZEROCHAT} help >/dev/full")
    assert done.returncode == 10 and done.stderr.count("\n") == 1


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_errors_keep_their_exit_code_whatever_stream_is_closed(home: Any, streams: str) -> None:
    for line, code in (("status", 6), ("send", 2)):
        done = shell(f"{ZEROCHAT} {line} {streams}")
        assert done.returncode == code and "internal error" not in done.stderr + done.stdout
