"""Documentation against the program: help, README, changelog, error sentences, the lock file."""

import contextlib
import importlib
import io
import os
import pkgutil
import re
import string
import tomllib
from collections import Counter

import pytest

import zerochat
from tests.support.doc_pages import README, README_BLOCKS, ROOT, commands
from zerochat.cli.parser import parse
from zerochat.errors import LocalError, ZerochatError

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def help_of(*words: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit) as end:
        parse([*words, "--help"])
    assert end.value.code == 0
    return text.getvalue()


def verbs() -> list[str]:
    """The verbs, as `zerochat --help` lists them."""
    _, _, listing = help_of().partition("\ncommands:\n")
    return re.findall(r"^ {4}([a-z][a-z-]*)(?: |$)", listing.partition("\n\n")[0], re.MULTILINE)


VERBS = verbs()


README_COMMANDS = [call for block in README_BLOCKS for call in commands(block) if call]  # but for files called so
MODULES = sorted(module.name for module in pkgutil.walk_packages(zerochat.__path__, "zerochat."))


def test_the_verbs_are_found():
    assert {"chat", "demo", "init", "agent", "new", "invite", "join", "send", "tail", "history"} <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb):
    text = help_of(verb)
    _, heading, examples = text.partition("\nexamples:\n")
    assert heading, f"zerochat {verb} --help shows no example"
    calls = commands(examples)
    assert any(verb in call for call in calls) or (verb == "chat" and [] in calls)
    for call in calls:
        parse(call)  # raises SystemExit when the grammar does not know it


@pytest.mark.parametrize("call", README_COMMANDS, ids=" ".join)
def test_the_readme_s_commands_are_understood(call):
    parse(call)


def test_the_readme_begins_with_two_commands():
    first = [line.split()[0] for line in README_BLOCKS[0].splitlines()]
    assert first == ["scripts/demo", "scripts/test"]
    assert all(os.access(ROOT / command, os.X_OK) for command in first)


def test_the_readme_s_paths_exist():
    paths = re.findall(r"`((?:scripts|zerochat|tests|analytics|assets)/[\w./-]*)", README)
    paths += [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert paths
    missing = {path for path in paths if not (ROOT / path).exists()}
    assert not missing


@pytest.mark.parametrize("name", MODULES)
def test_an_error_is_a_sentence_or_two(name):
    """An error's docstring is what a person reads: it says what is wrong, then what to do."""
    if name.startswith("zerochat.contract."):
        pytest.importorskip("vyper", reason="vyper and py-evm come with the extra `evm`")
    if name == "zerochat.sim.overlay.rounds":
        pytest.importorskip("numpy", reason="numpy comes with the extra `analytics`")
    for kind in vars(importlib.import_module(name)).values():
        if not (isinstance(kind, type) and issubclass(kind, ZerochatError) and kind.__module__ == name):
            continue
        text = vars(kind).get("__doc__")
        assert text, f"{kind.__qualname__} says nothing of its own"
        fields = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
        sentence = " ".join(text.split()).format_map(dict.fromkeys(fields, "something"))
        sentence = re.sub(r"`[^`]*`", "this", sentence)
        assert re.search(r"([.!?]|something)$", sentence), sentence  # a field may be a sentence of its own
        assert len(re.findall(r"[.!?](?= [A-Z]|$)", sentence)) <= 2, sentence
        assert len(sentence) <= 300, sentence


def test_the_changelog_has_this_version():
    assert re.findall(r"^## \[(.*?)\]", CHANGELOG, re.MULTILINE)[0] == zerochat.__version__


def test_one_version():
    assert PROJECT["version"] == zerochat.__version__


@pytest.mark.parametrize("name", ["run", "dev"])
def test_the_lock_is_whole(name):
    """It has every dependency at one version with hashes, and says nothing about where packages come from."""
    text = (ROOT / "scripts" / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    assert "://" not in text
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    locked = {re.split(r"==", entry)[0]: entry for entry in entries}
    assert all(re.match(r"[\w.-]+==\S+", entry) and "--hash=sha256:" in entry for entry in entries)
    wanted = PROJECT["dependencies"] + (PROJECT["optional-dependencies"]["dev"] if name == "dev" else [])
    assert {re.split(r"[^\w.-]", want)[0] for want in wanted} <= locked.keys(), "run scripts/lock"


def test_the_manual_has_every_rule_of_a_group():
    page = (ROOT / "zerochat" / "manual" / "groups.md").read_text(encoding="utf-8")
    table = page.partition("| rule | values |")[2].partition("\n\n")[0]
    others = {"--help", "--profile", "--format", "--quorum"}
    rules = set(re.findall(r"(?m)^  (?:-h, )?(--[a-z]+)", help_of("new"))) - others
    assert {"--join", "--keepers"} < rules == set(re.findall(r"(?m)^\| `(--[a-z]+)` \|", table))


def test_no_page_installs_zerochat_from_the_public_index() -> None:
    """That name is somebody else's program on the public index, and `zerochat[pictures]` means that one wherever no
    installed package satisfies it (in an environment of our scripts none does)."""
    named = re.compile(
        r"""\b(?:pip|pipx|uv|tool) (?:install|inject)(?:[\s"]+-\S+)*(?:\\n|[\s"])+['`]?zerochat\b|`zerochat\["""
    )
    assert named.search("pip install zerochat") and named.search("`pip install\n    'zerochat[pictures]'`")
    assert named.search('"pip install\\n"\n  "\'zerochat[analytics]\'."'), "in two pieces of a program's text"
    folders = ("zerochat", "analytics", "scripts")
    texts = [
        ROOT / "README.md",
        *(one for each in folders for kind in ("py", "md") for one in (ROOT / each).rglob(f"*.{kind}")),
    ]
    told = [str(one.relative_to(ROOT)) for one in texts if named.search(one.read_text(encoding="utf-8"))]
    assert len(texts) > 100 and told == []


def test_an_error_code_has_one_meaning():
    """The name of an error's class is its code. (The SDK refuses the keys that the agent refuses: `BadKey`.)"""
    codes = [
        kind.__name__
        for name in MODULES
        if not name.startswith(("zerochat.contract.", "zerochat.sim."))
        for kind in vars(importlib.import_module(name)).values()
        if isinstance(kind, type) and issubclass(kind, LocalError) and kind.__module__ == name
    ]
    assert [code for code, count in Counter(codes).items() if count > 1] == ["BadKey"]
