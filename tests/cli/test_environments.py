"""Unusual environments: an optimising interpreter, closed streams, other encodings, a user without a home."""

import os
import pwd
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli_harness
from tests.support.agents import meet, people
from tests.support.cli_harness import SENT, of
from zerochat import errors
from zerochat.agent.storage.paths import path_from_wire, path_to_wire, profile_paths, user_path
from zerochat.cli import main
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output
from zerochat.cli.verbs.chat import NoUnicodeTerminal, chat

agent, run, home = cli_harness.agent, cli_harness.run, cli_harness.home
__all__ = ["people"]

EVERY_ERROR = """
import importlib, pkgutil, zerochat
from zerochat.errors import ZerochatError, docstring
for module in pkgutil.walk_packages(zerochat.__path__, "zerochat."):
    if not module.name.endswith(("__main__", "overlay.rounds")):  # which needs numpy
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("buffered", ["env -u PYTHONUNBUFFERED", "env PYTHONUNBUFFERED=1"])
def test_help_that_cannot_be_printed(home: Any, buffered: str) -> None:
    for words in ("--version", "send --help"):
        done = shell(f"{buffered} {ZEROCHAT} {words} >/dev/full")
        assert done.returncode == 10 and done.stderr.count("\n") == 1 and "no space left on device" in done.stderr
        done = shell(f"({buffered} {ZEROCHAT} {words}; echo $? >&2) | :")
        assert done.stderr == "0\n"


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_errors_keep_their_exit_code_whatever_stream_is_closed(home: Any, streams: str) -> None:
    for line, code in (("status", 6), ("send", 2)):
        done = shell(f"{ZEROCHAT} {line} {streams}")
        assert done.returncode == code and "internal error" not in done.stderr + done.stdout


# --- other encodings ------------------------------------------------------------------------------------------------

LATIN = os.fsdecode(b"caf\xe9.txt")


@pytest.mark.parametrize("words", [["search", LATIN], ["new", LATIN], ["send", LATIN, "-m", "x"]])
def test_arguments_that_are_no_text_are_refused(run: Any, agent: Any, words: list[str]) -> None:
    served = agent()
    code, out, err = run(words)
    assert (code, out) == (2, "") and "caf\ufffd.txt" in err and "Nothing was done" in err
    assert all(method in ("hello", "list_groups") for method, _ in served.asked)


def test_errors_contain_no_lone_surrogates() -> None:
    assert str(errors.UnknownGroup(group=LATIN)).startswith("Unknown group 'caf\ufffd.txt'")


@pytest.mark.parametrize("name", [LATIN, "é.txt", "a b.txt", "%C3.txt"])
def test_paths_reach_an_agent_with_another_encoding(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / name
    wire = path_to_wire(path)
    assert wire.encode() and path_from_wire(wire) == path
    # An agent in a Latin-1 locale finds the same bytes.
    monkeypatch.setattr(os, "fsdecode", lambda raw: raw.decode("latin-1"))
    assert str(path_from_wire(wire)).encode("latin-1") == os.fsencode(path)


def test_a_file_whose_name_is_no_text_is_sent_and_saved(people: Any, tmp_path: Path, monkeypatch: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    monkeypatch.setenv("ZEROCHAT_HOME", str(alice.places.config.parent))
    (tmp_path / LATIN).write_text("x")
    assert main(["--profile", "alice", "send", "friends", "--file", str(tmp_path / LATIN)]) == 0
    (file,) = alice.client.list_files("friends")
    to = tmp_path / os.fsdecode(b"b\xe9.txt")
    assert main(["--profile", "alice", "files", "save", "friends", file.file.id, "-o", str(to)]) == 0
    assert to.read_text() == "x"


def test_folder_that_the_database_cannot_open_is_refused(run: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / LATIN))
    code, _, err = run("status")
    assert code == 6 and "caf\ufffd" in err and "UTF-8" in err


def test_the_chat_needs_a_unicode_terminal(run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("zerochat.cli.verbs.chat._on_a_terminal", lambda: True)
    monkeypatch.setattr(sys, "stderr", TextIOWrapper(BytesIO(), encoding="iso-8859-1"))
    with pytest.raises(NoUnicodeTerminal, match="iso-8859-1"):
        chat(Options(), Output("text"))


# --- a user without a home ------------------------------------------------------------------------------------------


def test_a_user_without_a_home_gets_a_sentence(run: Any, monkeypatch: Any, tmp_path: Path) -> None:
    def unknown(_: object) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    for name in [name for name in os.environ if name == "HOME" or name.startswith(("XDG_", "ZEROCHAT_"))]:
        monkeypatch.delenv(name)
    code, _, err = run("status")
    assert code == 6 and "HOME is not set" in err and "ZEROCHAT_HOME" in err
    assert [str(user_path(text)) for text in ("~/x", "~nosuch/x")] == ["~/x", "~nosuch/x"]
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    assert profile_paths(None, os.environ).data == tmp_path / "DATA" / "zerochat" / "default"


def test_the_folders_of_another_user_get_a_sentence(run: Any, monkeypatch: Any) -> None:
    def closed(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    def connect(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_socket", closed)
    monkeypatch.setattr("socket.socket.connect", connect)
    code, _, err = run("send hikers -m x")
    assert code == 6 and err.startswith("zerochat: Cannot connect to the agent's control socket")
