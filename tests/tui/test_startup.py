"""Modules that must not load before an agent is ready or before the chat's first frame.

`scripts/bench.py startup` measures the times; these tests need no clock.
"""

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from zerochat.cli.parser import VERBS as FAMILIES
from zerochat.cli.parser import grammar

ROOT = Path(__file__).parents[2]

AGENT = """
import os, sys
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.thread import AgentThread
from zerochat.agent.storage.profiles import unlock
from zerochat.cli.parser import parse
from zerochat.cli.verbs import agent

home = profile_paths(None, os.environ)
parse(["agent", "--listen", "127.0.0.1"])
with AgentThread(home, unlock(home, None), listen="127.0.0.1"):
    print(*sys.modules)
"""

FIRST_FRAME = """
import os, sys
from zerochat.agent.storage.paths import profile_paths
from zerochat.cli.parser import parse
from zerochat.tui.app import ZerochatApp
from zerochat.tui.state.preferences import SettingsStore

parse([])
home = profile_paths(None, os.environ)
ZerochatApp._after_first_frame = lambda self: self.exit(" ".join(sys.modules))  # what comes behind the first frame
print(ZerochatApp(home.socket, settings_store=SettingsStore(home)).run(headless=True))
"""


def loaded_by(script: str, home: Path) -> set[str]:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "ZEROCHAT_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    run("-m", "zerochat", "init", "--name", "Alice")
    return set(run("-c", script).split())


@pytest.mark.slow
def test_an_agent_starts_without_rarely_used_modules(tmp_path: Path) -> None:
    loaded = loaded_by(AGENT, tmp_path)
    assert "zerochat.agent.api.request_handlers" in loaded
    rare = {
        "settings.handlers",
        "settings.config_writer",
        "settings.client_preferences",
        "storage.backup",
        "views.search",
        "files.jobs",
        "mediator",
        "doctor",
        "network.web",
    }
    assert all(find_spec(f"zerochat.agent.{each}") for each in rare), "a module was renamed"
    assert not loaded & {f"zerochat.agent.{each}" for each in rare}
    assert {each for each in loaded if each.startswith("zerochat.agent.telemetry.")} == {
        "zerochat.agent.telemetry.switch"
    }
    assert not loaded & {"tarfile", "tempfile", "difflib", "mimetypes", "pkgutil"}
    assert not loaded & {"asyncio", "ssl", "http", "email", "subprocess", "textual", "rich", "qrcode", "PIL", "keyring"}
    # What argparse asks for the width of a terminal that nobody looks at.
    assert not loaded & {"shutil", "bz2", "lzma", "zlib"}
    # With these comes the system's OpenSSL, beside the one that is there already.
    assert not loaded & {"hashlib", "hmac", "secrets", "_hashlib"}
    # With it come all formats of keys that there are.
    assert "cryptography.hazmat.primitives.serialization" not in loaded


@pytest.mark.slow
def test_the_first_frame_waits_for_nothing(tmp_path: Path) -> None:
    loaded = loaded_by(FIRST_FRAME, tmp_path)
    assert "zerochat.tui.chat_view" in loaded
    assert not loaded & {"zmq", "apsw", "nacl", "cryptography", "zstandard", "zerochat.agent.loop", "zerochat.group"}
    assert not loaded & {
        "hashlib",
        "zerochat.slash_commands",
        "zerochat.agent.settings.handlers",
        "zerochat.agent.settings.config_writer",
        "zerochat.agent.settings.overview",
    }
    assert not loaded & {"zerochat.tui.composer.completion", "zerochat.tui.actions.commands"}
    assert not [each for each in loaded if each.startswith("zerochat.tui.dialogs.")]


@pytest.mark.slow
@pytest.mark.parametrize("script", [AGENT, FIRST_FRAME], ids=["agent", "chat"])
def test_a_verb_loads_only_its_family(script: str, tmp_path: Path) -> None:
    loaded = {each for each in loaded_by(script, tmp_path) if each.startswith("zerochat.cli.verbs.")}
    assert len(loaded) <= 2


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(dict(each.choices) for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def test_family_parsers_match_the_full_grammar() -> None:
    whole = verbs_of(grammar())
    assert list(whole) == [verb for verbs in FAMILIES.values() for verb in verbs]
    for verbs in FAMILIES.values():
        alone = verbs_of(grammar(verbs[-1]))
        assert tuple(alone) == verbs
        for verb in verbs:
            assert alone[verb].format_help() == whole[verb].format_help()
    assert list(verbs_of(grammar("nonsense"))) == list(whole)
