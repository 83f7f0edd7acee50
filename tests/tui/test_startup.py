"""What is not loaded before an agent is ready, and before the chat's first frame: what costs no module costs no time.

`scripts/bench.py startup` measures the times; here stands what keeps them, without a clock.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zerochat.cli.parser import FAMILIES, grammar

ROOT = Path(__file__).parents[2]

AGENT = """
import os, sys
from zerochat.agent.storage.paths import places
from zerochat.agent.loop import AgentThread
from zerochat.agent.storage.profiles import unlock
from zerochat.cli.parser import parse
from zerochat.cli import running

home = places(None, os.environ)
parse(["agent", "--listen", "127.0.0.1"])
with AgentThread(home, unlock(home, None), listen="127.0.0.1"):
    print(*sys.modules)
"""

FIRST_FRAME = """
import os, sys
from zerochat.agent.storage.paths import places
from zerochat.cli.parser import parse
from zerochat.tui.app import ZerochatApp
from zerochat.tui.state.preferences import Choices

parse([])
home = places(None, os.environ)
ZerochatApp._go_on = lambda self: self.exit(" ".join(sys.modules))  # what comes behind the first frame
print(ZerochatApp(home.socket, choices=Choices(home)).run(headless=True))
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
def test_an_agent_is_ready_without_what_hardly_anybody_asks_for(tmp_path: Path) -> None:
    loaded = loaded_by(AGENT, tmp_path)
    assert "zerochat.agent.api.request_handlers" in loaded
    rare = {
        "tuning",
        "rewriting",
        "options",
        "preferences",
        "reloading",
        "backup",
        "finding",
        "files.clerk",
        "mediator",
    }
    assert not loaded & {f"zerochat.agent.{each}" for each in (*rare, "telemetry", "checkup", "web")}
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
        "zerochat.agent.settings.options",
        "zerochat.agent.settings.config_writer",
    }
    assert not loaded & {"zerochat.tui.composer.completion", "zerochat.tui.actions.commands"}
    assert not [each for each in loaded if each.startswith("zerochat.tui.dialogs.")]


@pytest.mark.slow
@pytest.mark.parametrize("script", [AGENT, FIRST_FRAME], ids=["agent", "chat"])
def test_no_verb_costs_more_than_its_family(script: str, tmp_path: Path) -> None:
    loaded = {each for each in loaded_by(script, tmp_path) if each.startswith("zerochat.cli.parser_")}
    assert len(loaded) <= 2


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(dict(each.choices) for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def test_a_family_alone_says_of_its_verbs_what_the_whole_grammar_says() -> None:
    whole = verbs_of(grammar())
    assert list(whole) == [verb for verbs in FAMILIES.values() for verb in verbs]
    for verbs in FAMILIES.values():
        alone = verbs_of(grammar(verbs[-1]))
        assert tuple(alone) == verbs
        for verb in verbs:
            assert alone[verb].format_help() == whole[verb].format_help()
    assert list(verbs_of(grammar("nonsense"))) == list(whole)
