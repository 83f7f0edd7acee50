"""Drafts: stored by the agent in the journal, one per group and client."""

import msgspec
import pytest

from tests.support.handler_offices import Office
from zerochat.agent.api.handlers.context import BadRequest
from zerochat.agent.storage import drafts
from zerochat.agent.storage.drafts import DRAFT_BYTES_MAX, DraftTooLong
from zerochat.agent.storage.journal import Journal
from zerochat.errors import UnknownGroup
from zerochat.group.effects import DeleteLog
from zerochat.group.state import Agent
from zerochat.rpc import LINE_BYTES_MAX, Draft

KEY = bytes(32)


@pytest.fixture
def journal(tmp_path):
    with Journal.create(tmp_path / "journal.db", KEY) as made:
        yield made


def every(journal, groups):
    """All drafts, page by page, and how many pages there were."""
    found, after, pages = {}, "", 0
    while True:
        page = drafts.drafts_page(journal, groups, after)
        pages += 1
        assert len(msgspec.json.encode(page)) < LINE_BYTES_MAX
        found |= {one.group: one.text for one in page.drafts}
        if not page.more:
            return found, pages
        after = page.drafts[-1].group


def test_a_draft_lasts_until_it_is_empty(journal, tmp_path):
    drafts.store_draft(journal, "g", "At eigh")
    drafts.store_draft(journal, "h", " two\nlines\x1b[2J \ud800")
    drafts.store_draft(journal, "g", "At eight")
    journal.close()
    with Journal.open(tmp_path / "journal.db", KEY) as again:
        assert every(again, ["h", "g", "none"]) == ({"g": "At eight", "h": " two\nlines\x1b[2J ?"}, 1)
        drafts.store_draft(again, "g", " \n")
        assert every(again, ["g", "h"])[0].keys() == {"h"}
        drafts.store_draft(again, "g", "")


def test_many_drafts_are_paged(journal):
    text = "\x01" * DRAFT_BYTES_MAX  # six characters each in JSON: nothing is longer
    groups = [f"g{number}" for number in range(5)]
    for group in groups:
        drafts.store_draft(journal, group, text)
    assert every(journal, groups) == (dict.fromkeys(groups, text), 5)
    drafts.store_draft(journal, "g0", "short")
    drafts.store_draft(journal, "g1", "short")
    assert every(journal, groups)[1] == 4


def test_a_draft_that_is_too_long_keeps_the_previous_one(journal):
    drafts.store_draft(journal, "g", "before")
    with pytest.raises(DraftTooLong):
        drafts.store_draft(journal, "g", "é" * (DRAFT_BYTES_MAX // 2 + 1))
    assert every(journal, ["g"])[0] == {"g": "before"}


def test_a_draft_is_deleted_with_its_group(journal):
    drafts.store_draft(journal, "g", "a secret")
    drafts.store_draft(journal, "h", "another")
    journal.commit(Agent("n"), [DeleteLog("g")])
    assert every(journal, ["g", "h"])[0] == {"h": "another"}


def test_a_client_takes_over_the_drafts_of_ended_ones(journal):
    for client, text in (("a", "of a"), ("b", "of b"), ("c", "of a"), ("", "of an older one")):
        drafts.store_draft(journal, "g", text, client)
    drafts.store_draft(journal, "h", "too much together", "d")
    drafts.store_draft(journal, "h", "x" * DRAFT_BYTES_MAX, "a")
    drafts.store_draft(journal, "h", "fits", "c")
    drafts.take_over_drafts(journal, ["g", "h"], "d", {"b", "d"})
    assert drafts.drafts_page(journal, ["g", "h"], "", "d").drafts == [
        Draft("g", "of an older one\nof a"),
        Draft("h", "too much together\nfits"),
    ]
    assert drafts.drafts_page(journal, ["g"], "", "b").drafts == [Draft("g", "of b")]
    drafts.take_over_drafts(journal, ["g", "h"], "e", {"e"})
    assert drafts.drafts_page(journal, ["g"], "", "e").drafts[0].text.count("of") == 3
    left = {client: drafts.drafts_page(journal, ["h"], "", client).drafts for client in "ade"}
    assert [one.text for one in left["e"] + left["d"]] == ["x" * DRAFT_BYTES_MAX, "too much together\nfits"], (
        "none is lost"
    )


def test_the_drafts_of_all_clients_fit_one_line(journal):
    for client in range(20):
        drafts.store_draft(journal, "g", "\x01" * (DRAFT_BYTES_MAX - client), str(client))
    drafts.store_draft(journal, "h", "after it", "a")
    found, _ = every(journal, ["g", "h"])
    assert len(found["g"]) <= DRAFT_BYTES_MAX and found["h"] == "after it"


def test_two_clients_keep_their_own_drafts(tmp_path):
    office = Office()
    with Journal.create(tmp_path / "drafts.db", KEY) as journal:
        office.handlers["alice"].journal = journal
        group = office.call("alice", "create_group", group="hikers").id
        ask = lambda who, method, **params: office.call("alice", method, connection=who, client=f"chat{who}", **params)  # noqa: E731
        ask(1, "save_draft", group=group, text="of the first")
        assert ask(2, "list_drafts").drafts == []
        ask(2, "save_draft", group=group, text="of the second")
        ask(2, "save_draft", group=group, text="")
        assert ask(1, "list_drafts").drafts == [Draft(group, "of the first")], "a send in the other chat"
        office.servers["alice"].clients = {2}
        assert ask(2, "list_drafts").drafts == [Draft(group, "of the first")], "the first has ended"
        with pytest.raises(BadRequest):
            office.call("alice", "list_drafts", client="a/b")


def test_a_client_stores_a_draft(tmp_path):
    office = Office()
    with Journal.create(tmp_path / "drafts.db", KEY) as journal:
        office.handlers["alice"].journal = journal
        group = office.call("alice", "create_group", group="hikers").id
        office.call("alice", "save_draft", group="hikers", text="At eigh")
        found = office.call("alice", "list_drafts")
        assert (found.drafts, found.more) == ([Draft(group, "At eigh")], False)
        with pytest.raises(UnknownGroup):
            office.call("alice", "save_draft", group="nobody's", text="x")
        with pytest.raises(DraftTooLong):
            office.call("alice", "save_draft", group=group, text="x" * (DRAFT_BYTES_MAX + 1))
        office.call("alice", "save_draft", group=group, text="")
        assert office.call("alice", "list_drafts").drafts == []
