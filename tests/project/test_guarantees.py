"""What is promised to those who use zerochat, checked against the tests that there are.

Each promise names some of them, and every one that is named is there; what something costs names its benchmark.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from zerochat.group.key_modes import MODES

ROOT = Path(__file__).parents[2]
GUARANTEES = ROOT / "zerochat" / "GUARANTEES.md"
PAGES = [ROOT / "README.md", GUARANTEES, *sorted((ROOT / "zerochat").rglob("README.md"))]
NAMED = re.compile(r"`(?:tests/)?(test_\w+)(?:\.py)?::([\w:]+)`")
"""A test as a page names it: `tests/sim/test_sim.py::test_name`, `tests/group/test_frame.py::TestFrames::test_name`, or the file
without folder and end."""
MEASURED = re.compile(r"`scripts/bench\.py ([\w-]+)`")
AREAS = {path.stem for path in (ROOT / "scripts" / "benchmarks").glob("[a-z]*.py")}
"""What `scripts/bench.py` can be asked for."""
PROMISES = [
    "Delivery",
    "Order",
    "Crashes, power and disks",
    "Clocks",
    "People and keys",
    "Who is in",
    "Your terminal",
    "Strangers",
    "What others can prove",
]
"""The headings of GUARANTEES.md under which every item is a promise."""


@cache
def names_in(file: str) -> frozenset[str]:
    """The tests in a file, those of a class as `Class::test_name`; nothing is imported."""
    path = ROOT / "tests" / f"{file}.py"
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else ():
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return frozenset(found)


def unknown(text: str) -> list[str]:
    """The tests that a page names and that are not there."""
    return sorted({f"{file}::{name}" for file, name in NAMED.findall(text) if name not in names_in(file)})


def sections(text: str) -> dict[str, str]:
    """What stands under each heading of the second level."""
    heads = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(heads[1::2], heads[2::2], strict=True))


def items(text: str) -> list[str]:
    """The items of the lists in a text, each with the lines that belong to it."""
    return re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)


def cells(text: str, column: int) -> list[str]:
    """One column of the table in a text, without its head."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [row[column].strip() for row in rows[2:]]


def anchors(text: str) -> set[str]:
    """Where a link may lead in a page: its headings, as forges write them."""
    heads = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


SECTIONS = sections(GUARANTEES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_is_there(page):
    assert unknown(page.read_text(encoding="utf-8")) == []


def test_a_test_that_is_not_there_is_noticed():
    named = "`tests/project/test_docs.py::test_one_version` `test_docs::test_one_version` `tests/group/test_frame.py::TestFrames::{}`"
    assert unknown(named.format("test_junk_is_refused")) == []
    assert unknown(named.format("test_nothing")) == ["test_frame::TestFrames::test_nothing"]
    assert unknown("`tests/project/test_docs.py::test_two_versions` `tests/test_nowhere.py::test_one_version`") == [
        "test_docs::test_two_versions",
        "test_nowhere::test_one_version",
    ]


def test_nothing_that_looks_like_a_test_is_passed_over():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(NAMED.findall(text)) == len(re.findall(r"test_\w+(?:\.py)?::", text)), page


@pytest.mark.parametrize("heading", PROMISES)
def test_every_promise_names_a_test(heading):
    promises = items(SECTIONS[heading])
    assert promises
    assert all(line.startswith(("- ", "  ")) for line in SECTIONS[heading].splitlines() if line), "all of it is a list"
    assert [one for one in promises if not NAMED.search(one.partition("Held by ")[2])] == []


def test_whatever_somebody_cannot_do_is_held_by_a_test():
    told = SECTIONS["Who can do what"]
    held = {one[2:].partition(":")[0]: one for one in items(told)}
    assert list(held) == cells(told, 0)
    assert all(NAMED.search(one) for one in held.values())


def test_the_readme_has_the_same_table_in_short():
    """Of the same adversaries, in fewer words, of which the last is the same."""
    short = sections((ROOT / "README.md").read_text(encoding="utf-8"))["What is promised, and what is not"]
    here, there = ([who.split()[-1] for who in cells(one, 0)] for one in (short, SECTIONS["Who can do what"]))
    assert here == there


def test_there_is_a_word_for_each_kind_of_keys():
    head = next(line for line in SECTIONS["Kinds of keys"].splitlines() if line.startswith("|"))
    assert re.findall(r"`([\w-]+)`", head) == list(MODES)


def test_what_differs_between_kinds_of_keys_is_held_by_tests_or_measured():
    """Each cell names a test or, where it says what something costs, the benchmark that prints that. Who is given a
    bare `yes` is promised nothing."""
    told = SECTIONS["Kinds of keys"]
    rows = cells(told, 0)
    assert len(rows) > 5
    for kind, column in zip(MODES, (1, 2, 3), strict=True):
        for row, cell in zip(rows, cells(told, column), strict=True):
            measured = MEASURED.findall(cell)
            assert set(measured) <= AREAS, (row, kind)
            assert NAMED.search(cell) or measured or cell == "yes", (row, kind)
            assert bool(measured) == ("costs" in row), (row, kind)


def test_what_holds_of_one_kind_of_keys_besides_is_held_by_tests():
    found = items(SECTIONS["Kinds of keys"])
    assert found and all(NAMED.search(one.partition("Held by ")[2]) for one in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in link:
            continue
        where, _, anchor = link.partition("#")
        target = page.parent / where if where else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link
