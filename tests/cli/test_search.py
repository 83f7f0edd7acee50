"""`zerochat search` against a fake agent: requests and output."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cli_harness import HIKERS, of
from zerochat.rpc import Author, Found, HistoryStart, Hit

home, agent, run = cli_harness.home, cli_harness.agent, cli_harness.run


def hit(number: int, text: str = "at the bridge", nick: str = "Bob") -> Hit:
    stamp = f"2026-03-01T12:{number % 60:02}:00.000Z"
    return Hit(
        group=HIKERS.id,
        id=f"{number:08}abcdef",
        author=Author("did:key:z6MkBob", nick),
        lamport=number,
        sent_at=stamp,
        received_at=stamp,
        text=text,
        spans=[(7, 13)],
    )


def pages(total: int) -> Any:
    def search(params: Any) -> Found:
        start = params.cursor or 0
        end = min(start + params.limit, total)
        return Found(hits=[hit(n) for n in range(start, end)], cursor=end if end < total else None)

    return search


def test_lines_of_text_newest_first(agent, run):
    asked = agent(search_messages=pages(3))
    code, out, err = run(["search", "bridge", "from:bob"])
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"2026-03-01 12:00  {HIKERS.name}  Bob: at the bridge" and len(out.splitlines()) == 3
    (params,) = of(asked, "search_messages")
    assert (params.query, params.group, params.author) == ("bridge from:bob", None, None)


def test_a_search_may_start_with_a_group_name(agent, run):
    asked = agent(search_messages=pages(1))
    run(["search", HIKERS.name, "bridge", "eight", "--from", "me", "--after", "2026-03-01", "--before", "soon"])
    run(["search", HIKERS.name])
    run(["search", "--from", "me"])
    in_group, name, who = of(asked, "search_messages")
    assert (in_group.query, in_group.group) == ("bridge eight", HIKERS.id)
    assert (in_group.author, in_group.after, in_group.before) == ("me", "2026-03-01T00:00:00.000+00:00", "soon")
    assert (name.query, name.group) == (HIKERS.name, None), "alone it is a word like any other"
    assert (who.query, who.author) == ("", "me")


@pytest.mark.parametrize(
    ("limit", "total", "calls"), [(20, 5, [20]), (250, 400, [100, 100, 50]), (250, 120, [100, 100])]
)
def test_no_more_than_the_limit_in_pages(agent, run, limit, total, calls):
    asked = agent(search_messages=pages(total))
    code, out, err = run(["search", "bridge", "--limit", str(limit)])
    assert code == 0 and len(out.splitlines()) == min(limit, total)
    assert [params.limit for params in of(asked, "search_messages")][: len(calls)] == calls[
        : len(of(asked, "search_messages"))
    ]
    assert ("--limit" in err) == (total >= limit)


def test_json_has_the_places_of_the_words(agent, run):
    agent(search_messages=pages(2))
    code, out, _ = run(["search", "bridge", "--format", "jsonl"])
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len(lines) == 2 and lines[0]["spans"] == [[7, 13]] and lines[0]["id"] == hit(0).id


def test_nothing_found(agent, run):
    agent(search_messages=lambda _: Found(hits=[]))
    assert run(["search", "bridge"]) == (0, "", "No messages found.\n")


def test_nothing_found_while_history_is_fetched(agent, run):
    young = replace(HIKERS, history_start=HistoryStart(state="fetching"))
    agent(search_messages=lambda _: Found(hits=[]), list_groups=lambda _: [young])
    assert "earlier ones are still being fetched." in run(["search", "bridge"])[2]


def test_hostile_text_is_printed_harmlessly(agent, run):
    agent(search_messages=lambda _: Found(hits=[hit(1, "a\x1b[2J\nb\u202ec", "B\x1b]0;x\x07")]))
    code, out, _ = run(["search", "a"])
    assert code == 0 and len(out.splitlines()) == 1 and not any(bad in out for bad in "\x1b\x07\u202e")
