"""The promises in the manual: each row names tests that exist, and every link leads somewhere."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from zerochat.group.key_modes import OFFERED

ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "zerochat" / "manual"
GUARANTEES = MANUAL / "guarantees.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "zerochat").rglob("*.md"))]
NAMED = re.compile(r"`((?:\w+/)?test_\w+)(?:\.py)?::([\w:]+)`")
"""A test in a page: `sim/test_sim::test_name`, `group/test_frame::TestFrames::test_name`."""
MEASURED = re.compile(r"`scripts/bench\.py ([\w-]+)`")
AREAS = {path.stem for path in (ROOT / "scripts" / "benchmarks").glob("[a-z]*.py")}
PROMISES = [
    "Delivery",
    "Order",
    "Crashes, power and disks",
    "Clocks",
    "Confidentiality and identity",
    "Membership",
    "Your terminal",
    "Unauthenticated peers and floods",
    "Proofs",
]
"""The headings under which every row is a promise."""


@cache
def names_in(file: str) -> frozenset[str]:
    """The tests in a file, those of a class as `Class::test_name`; nothing is imported."""
    found = set()
    for path in (ROOT / "tests").glob(f"{file}.py" if "/" in file else f"*/{file}.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
    return frozenset(found)


def unknown(text: str) -> list[str]:
    """The tests that a page names and that do not exist."""
    return sorted({f"{file}::{name}" for file, name in NAMED.findall(text) if name not in names_in(file)})


def sections(text: str) -> dict[str, str]:
    """The text under each heading of the second level."""
    heads = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(heads[1::2], heads[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The rows of the table in a text, without its head."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return found[2:]


def anchors(text: str) -> set[str]:
    """The targets of links in a page: its headings, as forges write them."""
    heads = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


SECTIONS = sections(GUARANTEES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(page):
    assert unknown(page.read_text(encoding="utf-8")) == []


def test_a_missing_test_is_noticed():
    named = "`project/test_docs::test_one_version` `test_docs::test_one_version` `group/test_frame::TestFrames::{}`"
    assert unknown(named.format("test_junk_is_refused")) == []
    assert unknown(named.format("test_nothing")) == ["group/test_frame::TestFrames::test_nothing"]
    assert unknown("`project/test_docs::test_two_versions`") == ["project/test_docs::test_two_versions"]


def test_every_text_that_looks_like_a_test_id_is_checked():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(NAMED.findall(text)) == len(re.findall(r"test_\w+(?:\.py)?::", text)), page


@pytest.mark.parametrize("heading", PROMISES)
def test_every_promise_names_a_test(heading):
    promises = rows(SECTIONS[heading])
    assert promises
    assert [row for row in promises if len(row) != 3 or not NAMED.search(row[2])] == []


def test_no_section_is_skipped():
    assert set(SECTIONS) - set(PROMISES) == {"Kinds of keys", "Adversaries", "Not promised"}


def test_every_guarantee_for_developers_names_a_test():
    page = sections((ROOT / "zerochat" / "group" / "README.md").read_text(encoding="utf-8"))
    found = rows(page["Guarantees beyond the manual"])
    assert found and all(NAMED.search(row[1]) for row in found)


def test_every_cell_of_the_key_modes_is_tested_or_measured():
    """A cost names the benchmark that prints it, every other cell a test of that key mode."""
    table = sections((MANUAL / "groups.md").read_text(encoding="utf-8"))["Kinds of keys"].strip().partition("\n\n")[0]
    assert re.findall(r"`([\w-]+)`", table.partition("\n")[0]) == list(OFFERED)
    cells = [(row[0], mode) for row in rows(table) for mode in OFFERED]
    held = [(row[0], mode) for row in rows(SECTIONS["Kinds of keys"]) for mode in re.findall(r"`([\w-]+)`", row[1])]
    assert len(cells) > 15 and held == cells
    for difference, _, checks in rows(SECTIONS["Kinds of keys"]):
        measured = MEASURED.findall(checks)
        assert set(measured) <= AREAS and bool(measured) == ("cost" in difference), difference
        assert measured or NAMED.search(checks), difference


def test_every_adversary_has_tests():
    security = sections((MANUAL / "security.md").read_text(encoding="utf-8"))
    held = rows(SECTIONS["Adversaries"])
    assert [row[0] for row in held] == [row[0] for row in rows(security["Who can do what"])]
    assert all(NAMED.search(row[1]) for row in held)


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
