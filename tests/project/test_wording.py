"""Plain text for readers: a bound on roundabout words, and no retired term in a name."""

import ast
import gc
import re
from functools import cache
from pathlib import Path

import pytest

import wording
from tests.support.source_facts import facts

ROOT = Path(__file__).parents[2]
PER_THOUSAND_MAX = 1.5
"""The highest figure of five projects that this one learns from, by the same script: harlequin 1.5, h11 1.4,
magic-wormhole 0.5, aioquic 0.1, p2panda 0.04."""
PLACES = [
    *sorted(path for path in (ROOT / "zerochat").iterdir() if path.is_dir() and path.name != "__pycache__"),
    ROOT / "zerochat",
    ROOT / "analytics",
    ROOT / "scripts",
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
]
GLOSSARY = re.findall(
    r"^\| ([^|]+) \| [^|]+ \| ?([^|]*?) ?\|$",
    (ROOT / "zerochat" / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)[1:]
RETIRED = {word for _, instead in GLOSSARY for word in re.findall(r"`(\w+)`", instead)}


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_readers_meet_few_roundabout_words(path):
    counted = wording.count([path])
    assert counted.per_thousand <= PER_THOUSAND_MAX, counted.found[:20]


def test_the_counter_sees(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Whoever is put out is told what the group has.\n", encoding="utf-8")
    assert [word for _, _, word in wording.count([page]).found] == ["Whoever", "put out", "told", "what the group has"]


class ParsesInItsFinaliser:
    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        ast.parse("1 + 1")


def test_source_is_parsed_whatever_is_collected_meanwhile():
    """As the formatting of a traceback does, in a finaliser or in another thread."""
    before = gc.get_threshold()
    gc.set_threshold(100, 2, 2)
    try:
        for _ in range(5):
            ParsesInItsFinaliser()
            assert ast.parse((ROOT / "zerochat" / "agent" / "loop.py").read_text(encoding="utf-8")).body
    finally:
        gc.set_threshold(*before)


def test_the_glossary_has_one_line_a_term():
    terms = [term for term, _ in GLOSSARY]
    assert len(terms) > 60
    assert len(terms) == len(set(terms))
    assert not RETIRED & {word.lower() for term in terms for word in re.findall(r"\w+", term)}


@cache
def words_of(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name))


def words_in(module: str, names: frozenset[str]) -> set[str]:
    return set(re.split(r"[\W_]+", module)).union(*map(words_of, names))


def test_no_retired_term_is_a_name():
    found = {name: words_in(name, module.names) & RETIRED for name, module in facts().items()}
    assert {name: words for name, words in found.items() if words} == {}
