"""The manual: generated references, parseable commands, installed pages."""

import re
from pathlib import Path

import pytest

import manual
from tests.support.doc_pages import commands
from zerochat import limits
from zerochat.cli.parser import parse
from zerochat.presentation import keep_rules

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "zerochat" / "manual").glob("*.md"))
TOPICS = {
    *("getting-started", "groups", "invitations", "keys", "commands", "settings", "delivery", "history", "files"),
    *("mediators", "network", "services", "bots", "bot-api", "json-rpc", "interop", "accountability", "telemetry"),
    *("security", "guarantees", "limits", "contributing", "nearby", "conformance"),
}
CALLS = {
    f"{page.stem}: {' '.join(call)}"[:80]: call
    for page in PAGES
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for call in commands(block)
    if call
}


def test_every_topic_has_its_page():
    assert {page.stem for page in PAGES} == TOPICS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_opens_with_its_title(page):
    assert page.read_text(encoding="utf-8").startswith("# ")


GENERATED = {path for path, _ in manual.files()}


@pytest.mark.parametrize("page", [one for one in PAGES if one not in GENERATED], ids=lambda page: page.stem)
def test_a_page_fits_in_120_columns_except_for_tables(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


@pytest.mark.parametrize("topic", ["limits", "history", "groups"])
def test_the_range_of_a_retention_is_stated(topic):
    (page,) = (one for one in PAGES if one.stem == topic)
    assert keep_rules.range_text() in " ".join(page.read_text(encoding="utf-8").split())


def test_the_limits_of_large_groups_are_stated():
    """In one place each, and where they are felt."""
    text = {page.stem: " ".join(page.read_text(encoding="utf-8").split()) for page in PAGES}
    assert f"groups of up to {limits.INDICATOR_MEMBERS_MAX} members: each costs an envelope" in text["limits"]
    assert f"`members`, `delivery`, JSON-RPC) | {limits.MEMBER_PAGE_MAX};" in text["limits"]
    assert f"{limits.RECEIPTS_MAX:,} for a member, {limits.RECEIPTS_GROUP_MAX:,} for a group" in text["limits"]
    assert f"in groups of at most {limits.INDICATOR_MEMBERS_MAX}." in text["settings"]
    assert f"in groups with more than {limits.INDICATOR_MEMBERS_MAX} members" in text["json-rpc"]
    assert f"In a group of more than {limits.MEMBER_PAGE_MAX} members, first the count" in text["delivery"]
    assert f"A list shows {limits.MEMBER_PAGE_MAX} members at once" in text["groups"]


def test_the_mark_void_is_explained():
    (page,) = (one for one in PAGES if one.stem == "delivery")
    assert "`void` marks a message that does not count" in page.read_text(encoding="utf-8")


def test_the_types_of_the_bot_api_are_explained():
    """Each type of a field, a result or an error has a section, here or in the reference of JSON-RPC."""
    page = (ROOT / "zerochat" / "manual" / "bot-api.md").read_text(encoding="utf-8")
    rpc = (ROOT / "zerochat" / "manual" / "json-rpc.md").read_text(encoding="utf-8")
    typed = " ".join(re.findall(r"(?:`: |→ )`([^`]+)`", page) + re.findall(r"Raises ([^.]+)\.", page))
    explained = set(re.findall(r"^##+ (\w+)$", page + rpc, re.MULTILINE))
    python = {*("Any", "Exception", "False", "Iterator", "Literal", "LocalError", "Mapping", "Match", "None", "Path")}
    python |= {"True", "ValueError"}
    ours = {"AgentError", "NoBotFile", "NoBotFound", "SeveralBots", "SimulatedGroup"}  # not for authors of bots
    assert set(re.findall(r"\b[A-Z]\w+", typed)) - python - ours - explained == set()


@pytest.mark.parametrize(("path", "text"), list(manual.files()), ids=lambda part: getattr(part, "name", ""))
def test_a_generated_file_matches_its_table(path, text):
    assert path.read_text(encoding="utf-8") == text, "run scripts/manual.py"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_command_in_the_manual_parses(call):
    parse(call)


def test_the_readme_is_short_and_names_every_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.encode()) <= 8 * 1024
    assert set(re.findall(r"zerochat/manual/([\w-]+)\.md", readme)) == TOPICS
