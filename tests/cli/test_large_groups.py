"""Members and recipients of a group of a thousand on the command line and in the plain chat: counts, search, pages."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cli_harness import ALICE, HIKERS, event, of
from zerochat.cli.output import Output
from zerochat.cli.plain_chat.members import NoMemberFound, show_delivery, show_members, show_overlay
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.presentation.delivery import completeness_text
from zerochat.presentation.overlay import structure
from zerochat.rpc import (
    Completeness,
    DeliveryReport,
    EventParams,
    GroupInfo,
    History,
    LinkInfo,
    ListMembersParams,
    MemberDelivery,
    MemberInfo,
    MemberReport,
    OverlayInfo,
)

agent, alone, home, run = cli_harness.agent, cli_harness.alone, cli_harness.home, cli_harness.run

COUNT = 1_000
CLUB: GroupInfo = replace(HIKERS, members=COUNT, connected=12)
PEOPLE = [
    MemberInfo(did=ALICE, nick="alice", connection="self", joined_at="x"),
    *(
        MemberInfo(did=f"did:key:z6Mk{at:04}", nick=f"member {at:03}", connection="connected", joined_at="x")
        for at in range(1, COUNT)
    ),
]


def list_members(params: ListMembersParams) -> list[MemberInfo]:
    start = next((at for at, one in enumerate(PEOPLE, 1) if one.did == params.after), 0)
    matching = [one for one in PEOPLE[start:] if params.query.casefold() in one.nick]
    return matching[: min(params.limit, MEMBER_PAGE_MAX)]


def get_delivery(params: EventParams) -> DeliveryReport:
    found = [
        MemberDelivery(one.did, one.nick, at > 700, "delivered" if at > 700 else "queued")
        for at, one in enumerate(PEOPLE[1:], 1)
        if params.query in one.nick
    ]
    start = int(params.after or 0)
    page = found[start : start + min(params.limit, MEMBER_PAGE_MAX)]
    more = str(start + len(page)) if start + len(page) < len(found) else ""
    return DeliveryReport("GROUPID", "EVENTID", 299, COUNT - 1, False, page, event(1, ALICE, self=True), next=more)


def served(agent: Any) -> Any:
    return agent(
        list_groups=lambda _: [CLUB],
        list_members=list_members,
        get_delivery=get_delivery,
        get_history=lambda _: History([event(1, ALICE, self=True)], False),
    )


def names(out: str) -> list[str]:
    return [line.partition("  ")[0] for line in out.splitlines() if "connected" in line or "(you)" in line]


LINKS = [
    LinkInfo(did="did:key:z6Mk0001", nick="ann", place="successor", connection="connected", via="link", sent=1_200),
    LinkInfo(
        did="did:key:z6Mk0002",
        nick="bo\x1b[2J",
        place="shortcut",
        connection="connected",
        via="mediator",
        received_bytes=3_000,
        duplicates=4,
        repaired=2,
        repaired_at="2026-11-20T12:00:00.000Z",
    ),
    LinkInfo(did="did:key:z6Mk0003", nick="cy", place="guest", connection="unreachable"),
]
RING = OverlayInfo(
    group="GROUPID",
    path="ring",
    forwards=True,
    members=300,
    since="2026-11-20T11:00:00.000Z",
    own=10,
    forwarded=90,
    copies=290,
    links=LINKS,
)


def test_the_overlay_lists_every_link_and_the_load(run: Any, agent: Any) -> None:
    asked = agent(get_overlay=lambda _: RING)
    code, out, _ = run("overlay hikers")
    lines = out.splitlines()
    assert code == 0 and [params.group for params in of(asked, "get_overlay")] == ["hikers"]
    assert lines[0] == "Ring of 300 members: you are linked to 3, 2 connected, and they forward messages."
    assert lines[1].endswith(": 10 own messages and 90 forwarded, 290 copies sent, 2.9 a message.")
    assert lines[3] == "MEMBER  PLACE      STATE         SENT   BYTES  RECEIVED  BYTES   NEW  DUPLICATES  REPAIRED"
    assert lines[4].split()[:5] == ["ann", "successor", "connected", "1,200", "0"]
    assert "via mediator" in lines[5] and "3.0 kB" in lines[5] and "2, last" in lines[5]
    assert "unreachable" in lines[6] and "\x1b" not in out
    assert json.loads(run(["overlay", "hikers", "--format", "json"])[1])["links"][1]["duplicates"] == 4


def test_members_that_are_no_neighbours_are_listed_as_such(run: Any, agent: Any) -> None:
    distant = MemberInfo(did="did:key:z6Mk0009", nick="di", connection="indirect", joined_at="x")
    club = replace(CLUB, forwards=True, path="ring")
    agent(list_groups=lambda _: [club], list_members=lambda _: [*PEOPLE[:2], distant])
    assert run("members hikers")[1].splitlines()[3].split()[:4] == ["di", "writer", "indirect", "-"]
    assert "\nmembers         1,000 members over 12 links\n" in run("info hikers")[1]


def test_the_overlay_of_a_mesh_says_so(run: Any, agent: Any) -> None:
    agent(get_overlay=lambda _: replace(RING, path="mesh", forwards=False, members=4, forwarded=0, copies=30))
    lines = run("overlay hikers")[1].splitlines()
    assert lines[0] == "Mesh: direct connections to all 3 others, 2 connected."
    assert lines[1].endswith(": 10 own messages, 30 copies sent, 3.0 a message.")
    assert (
        structure(replace(RING, forwards=False, members=1, links=[]))
        == "No other members. From 25 members on it is a ring."
    )
    assert structure(replace(RING, path="mesh", forwards=False, members=2, links=LINKS[:1])) == (
        "Mesh: direct connections to the other member, 1 connected."
    )
    assert "PLACE" not in lines[3] and "NEW" not in lines[3]


def test_the_overlay_in_the_plain_chat_is_a_sentence_a_link(capsys: Any) -> None:
    show_overlay(Output("text"), RING)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("ann: successor, connected; sent 1,200 (0 B), received 0 (0 B), 0 new, 0 duplicates.")
    assert "4 duplicates, repaired 2, last" in lines[3]


def test_a_page_of_members_is_listed_and_the_rest_on_request(run: Any, agent: Any) -> None:
    asked = served(agent)
    code, out, err = run("members hikers")
    assert code == 0 and len(out.splitlines()) == 1 + MEMBER_PAGE_MAX
    last = PEOPLE[MEMBER_PAGE_MAX - 1].did
    assert err == (
        f"Only 64 are listed, of 1,000 members in total. For the others: --after {last}, --all, or a WORD.\n"
    )
    again = run(["members", "hikers", "--limit", "3", "--after", last])[1]
    assert names(again) == ["member 064", "member 065", "member 066"]
    assert len(run("members hikers --all --format jsonl")[1].splitlines()) == COUNT
    assert max(params.limit for params in of(asked, "list_members")) <= MEMBER_PAGE_MAX
    assert run("members hikers --all")[2] == ""


def test_members_are_listed_by_a_part_of_the_name(run: Any, agent: Any) -> None:
    served(agent)
    code, out, err = run(["members", "hikers", "BER 99"])
    assert (code, err) == (0, "") and names(out) == [f"member 99{digit}" for digit in range(10)]
    assert run(["members", "hikers", "zzz"])[2] == "No member is found.\n"
    found = [
        json.loads(line)["nick"] for line in run(["members", "hikers", "ber 99", "--format", "jsonl"])[1].splitlines()
    ]
    assert len(found) == 10


def test_the_recipients_that_lack_a_message_come_first(run: Any, agent: Any) -> None:
    served(agent)
    code, out, err = run("delivery hikers last")
    lines = out.splitlines()
    assert code == 0 and "delivered to 299 of 999" in lines
    assert lines.index("delivered to 299 of 999") < next(at for at, line in enumerate(lines) if "member 001" in line)
    assert sum("queued" in line for line in lines) == MEMBER_PAGE_MAX
    assert err == "935 more recipients are not listed. For the others: --all, --limit N, or a WORD.\n"
    told = json.loads(run("delivery hikers last --all --format jsonl")[1])
    assert len(told["members"]) == COUNT - 1 and told["next"] == ""
    assert len(json.loads(run("delivery hikers last --limit 100 --format jsonl")[1])["members"]) == 100
    assert [line for line in run(["delivery", "hikers", "last", "ber 99"])[1].splitlines() if "member" in line][9:]


def test_shell_completion_has_all_members(run: Any, agent: Any) -> None:
    served(agent)
    assert len(run("__complete members hikers")[1].splitlines()) == COUNT - 1


def test_the_plain_chat_counts_finds_and_lists_few(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(word: str) -> list[str]:
        found = [one for one in PEOPLE if word in one.nick]
        show_members(Output("text"), found, CLUB, word, "hikers")
        return capsys.readouterr().out.splitlines()

    lines = shown("")
    assert lines[0] == "1,000 members, 12 connected." and len(lines) == MEMBER_PAGE_MAX + 2
    assert lines[-1] == "936 more are not listed. /members WORD finds members by a part of the name."
    assert [line.partition(":")[0] for line in shown("member 123")] == ["member 123"]
    assert len(shown("ber 99")) == 10 and shown("ber")[0] == "999 found."
    with pytest.raises(NoMemberFound):
        shown("zzz")
    show_delivery(Output("text"), get_delivery(EventParams("hikers", "last")))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Delivered to 299 of 999 members.", "member 001: not delivered, queued."]
    assert lines[-1].startswith("935 more recipients are not listed.") and len(lines) == MEMBER_PAGE_MAX + 2


def test_a_log_is_complete_with_a_number_of_members() -> None:
    here = [MemberReport(did=f"d{at}", nick=f"m{at}", at="T", present=True) for at in range(3)]
    away = [MemberReport(did=f"e{at}", nick=f"n{at}", at=f"T{at}", view_matches=False) for at in range(61)]
    found = Completeness(at="T", members=[*here, *away], others=999, current=200, absent=799, differing=61)
    assert completeness_text(found, str, str) == (
        "complete with 200 members as of T; 799 members absent; 61 members have a different member list"
    )
    few = Completeness(at="T", members=[*here, *away[:2]], others=5, current=3, absent=2, differing=2)
    assert completeness_text(few, str, str) == (
        "complete with m0, m1 and m2 as of T; n0 last seen T0; n1 last seen T1; n0 and n1 have a different member list"
    )
