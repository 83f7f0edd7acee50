"""Delivery status of a message: from the core and the journal to the clients."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness, served_world
from tests.support.cli_harness import ALICE, BOB, CAROL, HIKERS, MEMBERS
from tests.support.parted_world import Parted
from tests.support.served_world import Ears, Served
from tests.support.tui_pilot import run as play
from tests.support.tui_pilot import scene, weekend
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import decode_call
from zerochat.agent.storage.journal import Journal, NoSuchEvent
from zerochat.agent.views import event_pages
from zerochat.agent.views.groups import group_info
from zerochat.group.effects import RefuteEvents, StoreEvent
from zerochat.group.event_log.event import Event
from zerochat.group.inputs import LeaveGroup, SendContent, SendPost
from zerochat.group.lookup import UnknownMember
from zerochat.group.messages.bodies import Edit
from zerochat.group.state import MissingRange
from zerochat.presentation import delivery as telling
from zerochat.rpc import (
    METHODS,
    Author,
    Completeness,
    CompleteNotification,
    DeliveryReport,
    EventParams,
    ForkNotification,
    GapInfo,
    GapNotification,
    GroupParams,
    LateNotification,
    MemberDelivery,
    MemberReport,
    MessageStatus,
    RefutedNotification,
    RemovedNotification,
    Request,
)
from zerochat.rpc.common import timestamp
from zerochat.tui.actions.delivery import state_text

agent, home, run = cli_harness.agent, cli_harness.home, cli_harness.run

world = served_world.world

STAMP = "2026-07-01T12:04:00.000Z"


def sentences(fate: MessageStatus, nicks: dict[str, str]) -> str:
    return " ".join(telling.status_sentences(fate, nicks, lambda nick: nick, lambda stamp: stamp[11:16]))


# --- the data ---------------------------------------------------------------------------------------------------------


def test_a_messages_delivery_to_all_members(tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    """n0 posts while n2 is away; n1 has the post, and n3 has left meanwhile."""
    world.says("n0", SendPost("friends", "hello"))
    group = world.group("n0")
    one = group.chain(group.me)
    world.says("n3", LeaveGroup("friends"))
    world.part("n0", "n2")
    world.part("n1", "n2")
    world.run_command("n0", SendPost("friends", "is anybody there?"))
    world.run(for_ms=8_000)
    group = world.group("n0")
    served = Served(tmp_path, world, "n0", monkeypatch)
    n1, n3 = world.group("n1").me, world.group("n3").me

    def since(member: str, upto: int) -> str:
        first = next(one for one in world.nodes["n0"].receipts if one.member == member and one.upto >= upto)
        return timestamp(first.at)

    last = served.call("get_delivery", group="friends", id="last")
    assert (last.delivered, last.of, last.complete) == (1, 2, False)
    assert last.event.body["text"] == "is anybody there?" and last.event.id == last.id
    away, there = last.members
    assert (there.nick, there.state, there.at, there.via) == (
        *("n1", "delivered"),
        *(since(n1, group.seq), "link"),
    )
    assert (there.delivered, there.connection) == (True, "connected")
    assert (away.nick, away.delivered, away.state, away.at) == ("n2", False, "queued", None)
    assert away.connection == "unreachable" and away.via == ""
    assert away.last_seen == timestamp(group.links.peers[away.did].last_received_at)

    why = served.call("get_message_status", group="friends", id=last.id[:6])
    assert (why.provenance, why.first, why.here, why.known, why.former_members) == ("own", 1, group.seq, group.seq, [])
    nicks = {one.did: one.nick for one in last.members}
    text = sentences(why, nicks)
    assert text.startswith("You wrote this ") and "nothing before it is missing" in text
    assert "Delivered to 1 of 2 members." in text and f"n1 received it at {there.at[11:16]}, directly." in text
    assert f"n2 has not acknowledged it yet: not connected, last seen {away.last_seen[11:16]}." in text

    first = served.call("get_message_status", group="friends", id=one.head_id)
    assert first.report.members[0].at == since(n1, one.seq) and first.report.delivered == 2
    assert [(gone.nick, gone.state, gone.at) for gone in first.former_members] == [
        ("n3", "delivered", since(n3, one.seq))
    ]
    assert "Delivered to everyone." in sentences(first, nicks)

    # As soon as there is a way it is sent, and then it is there.
    world.meet()

    def n2() -> MemberDelivery:
        found: list[MemberDelivery] = served.call("get_delivery", group="friends", id="last").members
        return next(one for one in found if one.nick == "n2")

    world.run(until=lambda: n2().via != "", for_ms=60_000)
    assert n2().state in ("sent", "delivered")
    world.run(for_ms=60_000)
    assert served.call("get_delivery", group="friends", id="last").complete


def test_a_member_that_leaves_early_does_not_count_as_recipient(
    tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n3 misses n0's last message, announces its leave to n1 alone, and is gone before it could receive more."""
    for other in ("n0", "n1", "n2"):
        world.part("n3", other)
    world.run_command("n0", SendPost("friends", "is anybody there?"))
    world.run(for_ms=5_000)
    gone = world.group("n3").me
    world.run_command("n3", LeaveGroup("friends"))
    world.cut.remove(frozenset(("n1", "n3")))
    world._connect_all()
    assert world.run(until=lambda: gone not in world.group("n1").view.members, for_ms=60_000)
    world.stop("n3")
    assert "is anybody there?" not in world.texts("n3")
    world.run(for_ms=60_000)
    served = Served(tmp_path, world, "n0", monkeypatch)
    last = served.call("get_delivery", group="friends", id="last")
    assert (last.delivered, last.of) == (2, 2) and gone not in {one.did for one in last.members}
    (one,) = served.call("get_message_status", group="friends", id="last").former_members
    assert (one.nick, one.delivered, one.state, one.at) == ("n3", False, "left", None)


def test_receipts_are_independent_of_later_annotations(
    tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n3 has the one message and not its edit, and neither the other one nor its edit."""
    had = world.says("n0", SendPost("friends", "at eigth")).id
    for other in ("n0", "n1", "n2"):
        world.part("n3", other)
    lacked = world.says("n0", SendPost("friends", "by teh bridge")).id
    for of, text in ((had, "at eight"), (lacked, "by the bridge")):
        world.says("n0", SendContent("friends", Edit(of, text)))
    served = Served(tmp_path, world, "n0", monkeypatch)
    for of, text, marks in ((had, "at eight", (3, 3)), (lacked, "by the bridge", (2, 3))):
        told = served.call("get_delivery", group="friends", id=of)
        assert (told.delivered, told.of) == marks
        (shown,) = [one for one in served.call("get_history", group="friends", limit=9).events if one.id == of]
        assert shown.body["text"] == text and shown.edited_at and (shown.delivery.delivered, shown.delivery.of) == marks


def test_pending_retransmissions_are_reported(tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    world.says("n0", SendPost("friends", "hello"))
    served = Served(tmp_path, world, "n0", monkeypatch)
    group = world.group("n0")
    did = world.group("n1").me
    behind = replace(
        group.links.peers[did],
        acks=replace(group.links.peers[did].acks, upto={}),
        retransmission=replace(group.links.peers[did].retransmission, tries=3, retry_at=world.now + 5_000),
    )
    agent_ = world.nodes["n0"].agent
    world.nodes["n0"].agent = replace(
        agent_, groups={group.id: replace(group, links=replace(group.links, peers={**group.links.peers, did: behind}))}
    )
    why = served.call("get_message_status", group="friends", id="last")
    one = next(one for one in why.report.members if one.did == did)
    assert (one.state, one.via, one.tries, one.next_try) == ("sent", "link", 3, timestamp(world.now + 5_000))
    again = timestamp(world.now + 5_000)[11:16]
    assert f"n1 has not acknowledged it yet: retransmitted 3 times directly, next at {again};" in sentences(why, {})


def test_the_status_of_another_members_message(tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    world.part("n1", "n2")
    world.run_command("n2", SendPost("friends", "by others"))
    world.run(until=lambda: "by others" in world.texts("n1"), for_ms=600_000)
    served = Served(tmp_path, world, "n1", monkeypatch)
    fate = served.call("get_message_status", group="friends", id="last:n2")
    assert fate.event.author.nick == "n2" and fate.event.body["text"] == "by others"
    assert fate.provenance == "relayed" and fate.event.relayed_by.nick in ("n0", "n3")
    text = sentences(fate, {})
    assert f"It was relayed by {fate.event.relayed_by.nick}; n2 has not confirmed it yet." in text
    assert "received at " in text
    (me,) = [one for one in fate.report.members if one.connection == "self"]
    assert (me.at, me.delivered) == (fate.event.received_at, True), "it is here since it has come"
    # We do not retransmit it, so of members without a report nothing is known.
    assert {one.state for one in fate.report.members} <= {"delivered", "unknown"}

    # It may be more, and it may be another one's word.
    agent_, group = world.nodes["n1"].agent, world.group("n1")
    author = world.group("n2").me
    needy = replace(group, sync=replace(group.sync, gaps={author: MissingRange(group.chain(author).seq + 2)}))
    world.nodes["n1"].agent = replace(agent_, groups={group.id: needy})
    served.journal.commit(world.nodes["n1"].agent, [RefuteEvents(group.id, author, fate.event.position - 1, 99)])
    refuted = served.call("get_message_status", group="friends", id=fate.event.id)
    assert refuted.provenance == "refuted" and refuted.event.refuted
    assert "It is refuted" in sentences(refuted, {})
    membership = next(e for e in group.control.values() if e.type == "genesis")
    signed = served.call("get_message_status", group="friends", id=membership.id)
    assert (
        signed.provenance == "signed"
        and "has signed it" in sentences(signed, {})
        and "did this" in sentences(signed, {})
    )


def test_which_message_is_meant(tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(tmp_path, world, "n0", monkeypatch)
    group = world.group("n0")
    for wanted, error in (
        ("last", event_pages.NothingSaid),
        ("last:n1", event_pages.NothingSaid),
        ("last:nobody", UnknownMember),
        ("x" * 43, NoSuchEvent),
        ("abc", event_pages.TooFewLetters),
        ("", event_pages.TooFewLetters),
        ("last:", NoSuchEvent),
        ("é" * 9, NoSuchEvent),
        ("%%%%", NoSuchEvent),
    ):
        with pytest.raises(error):
            served.call("get_delivery", group="friends", id=wanted)

    def posted(id_: str, seq: int) -> StoreEvent:
        event = Event(group.id, "post", group.me, seq, "p" * 43, (), (), world.now + seq, 1, {"text": "x"})
        return StoreEvent(group.id, id_, group.me, seq, event.lamport, "post", event.record, 1, False)

    twins = [posted("abcdX" + "x" * 38, 7), posted("abcdY" + "y" * 38, 8), posted("-bcd" + "z" * 39, 9)]
    served.journal.commit(world.nodes["n0"].agent, twins)
    find = served.journal
    assert event_pages.find_row(find, group, "abcdX").id == twins[0].id
    assert event_pages.find_row(find, group, "-bcd").id == event_pages.find_row(find, group, "last").id == twins[2].id
    assert event_pages.find_row(find, group, twins[1].id).id == twins[1].id
    with pytest.raises(event_pages.SeveralEvents):
        event_pages.find_row(find, group, "abcd")
    with pytest.raises(NoSuchEvent):
        event_pages.find_row(find, group, "bcdx")


def test_a_late_event_is_notified(tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(tmp_path, world, "n0", monkeypatch)
    agent_, group = world.nodes["n0"].agent, world.group("n0")
    served.call("subscribe")
    author = world.group("n1").me
    event = Event(group.id, "post", author, 99, "p" * 43, (), (), 5, 7, {"text": "x"})
    row = StoreEvent(group.id, event.id, author, 99, 5, "post", event.record, world.now, True)
    served.journal.commit(agent_, [row])
    served.handlers.feed(agent_)
    (told,) = [item for _, method, item in served.server.news if method == "late_event"]
    assert told == LateNotification(
        group=group.id,
        id=event.id,
        author=author,
        nick="n1",
        sent_at=timestamp(7),
        received_at=timestamp(world.now),
    )
    assert [method for _, method, _ in served.server.news] == ["event", "late_event"]
    again = Ears()
    handlers = RequestHandlers(again, served.journal, lambda agent: None)  # type: ignore[arg-type, return-value]
    handlers.handle(decode_call(1, Request(method="subscribe", id=1, params={"since": 0}, jsonrpc="2.0")), agent_)
    handlers.feed(agent_)
    assert "late_event" not in [method for _, method, _ in again.news], "what was there before is no news"


def test_a_late_event_sorts_above_newer_ones(tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core detects a late event, and the handlers notify it."""
    for other in ("n0", "n2", "n3"):
        world.part("n1", other)
    early = world.run_command("n1", SendPost("friends", "said early")).result.id
    world.run(for_ms=5_000)
    later = world.says("n2", SendPost("friends", "said later")).id
    served = Served(tmp_path, world, "n0", monkeypatch)
    served.call("subscribe")
    before = len(world.nodes["n0"].log)
    world.meet()
    world.run(until=lambda: "said early" in world.texts("n0"), for_ms=120_000)
    fresh = world.nodes["n0"].log[before:]
    assert [row.late for row in fresh if row.id == early] == [True]
    assert not [row for row in world.nodes["n0"].log if row.id == later and row.late], "what comes in time is not"
    served.journal.commit(world.nodes["n0"].agent, fresh)
    served.handlers.feed(world.nodes["n0"].agent)
    assert [item.id for _, method, item in served.server.news if method == "late_event"] == [early]
    shown = [one.id for one in served.call("get_history", group="friends", limit=99).events if one.id in (early, later)]
    assert shown == [early, later]


def test_a_journal_without_receipts_reports_only_acks(
    tmp_path: Path, world: Parted, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.says("n0", SendPost("friends", "hello"))
    served = Served(tmp_path, world, "n0", monkeypatch)
    monkeypatch.setattr(Journal, "receipts_of", lambda *_: [])
    found = served.call("get_delivery", group="friends", id="last")
    assert found.complete and [(one.state, one.at, one.via) for one in found.members] == [("delivered", None, "")] * 3


# --- the verbs --------------------------------------------------------------------------------------------------------

POST = cli_harness.event(7, ALICE, "alice", id="-d7" + "x" * 40, self=True, body={"text": "hello\x1b"})
REPORT = DeliveryReport(
    "GROUPID",
    POST.id,
    1,
    3,
    False,
    [
        MemberDelivery(BOB, "bob", True, "delivered", STAMP, "link", "connected", STAMP),
        MemberDelivery(CAROL, "卡羅", False, "queued", last_seen=STAMP),
        MemberDelivery(CAROL + "2", "dave\n", False, "sent", None, "mediator", "connected", None, 2, STAMP),
    ],
    POST,
)
FATE = MessageStatus(event=POST, report=REPORT, provenance="own", first=1, here=9, known=9)


def test_delivery_on_the_command_line(run: Any, agent: Any) -> None:
    asked = agent(get_delivery=lambda _: REPORT, list_members=lambda _: MEMBERS)
    code, out, err = run("delivery hikers last")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2026-07-01 12:04  alice: hello␛  ✓1/2",
        "id " + POST.id,
        "",
        "delivered to 1 of 3",
        "NAME   STATE      SINCE             VIA       LAST SEEN",
        "bob    delivered  2026-07-01 12:04  direct    2026-07-01 12:04",
        "卡羅   queued     -                 -         2026-07-01 12:04",
        "dave⏎  sent       -                 mediator  never             2 retransmissions, next 2026-07-01 12:04",
    ]
    shown = json.loads(run("delivery hikers -d7xx --format jsonl")[1])
    assert [one["state"] for one in shown["members"]] == ["delivered", "queued", "sent"]
    assert [params for method, params in asked.asked if method == "get_delivery"] == [
        EventParams("hikers", "last"),
        EventParams("hikers", "-d7xx"),
    ]
    assert run("delivery hikers")[0] == 2


def test_why_of_a_member_that_is_no_neighbour(run: Any, agent: Any) -> None:
    unknown = replace(REPORT.members[1], nick="di", state="unknown", connection="indirect")
    agent(
        get_message_status=lambda _: replace(FATE, report=replace(REPORT, members=[unknown])), list_members=lambda _: []
    )
    assert "No member has reported that di has received it." in run("why hikers last")[1]


def test_why_on_the_command_line(run: Any, agent: Any) -> None:
    double = agent(get_message_status=lambda _: FATE, list_members=lambda _: MEMBERS)
    code, out, err = run(f"why hikers {POST.id}")
    assert (code, err) == (0, "") and "You wrote this at 2026-07-01 12:04." in out
    assert "It has position 7 in your chain; nothing before it is missing." in out and "\x1b" not in out
    double.answers["get_message_status"] = lambda _: replace(FATE, forked=True)
    code, out, err = run("why hikers last --format jsonl")
    assert code == 7 and json.loads(out)["forked"] and "inconsistent" in err


@pytest.mark.parametrize(
    ("why", "noted", "said"),
    [
        (
            "no_mediator",
            "no way to it: it has no mediator, and you are hidden",
            "and it has no mediator. It can add one",
        ),
        (
            "own_mediator",
            "no way from it: it is hidden, and you have no mediator",
            "you have no mediator. Add one with",
        ),
    ],
)
def test_a_missing_way_between_two_members_is_explained(run: Any, agent: Any, why: Any, noted: str, said: str) -> None:
    report = replace(REPORT, members=[MemberDelivery(CAROL, "carol", False, "queued", obstacle=why)])
    agent(
        get_delivery=lambda _: report,
        get_message_status=lambda _: replace(FATE, report=report),
        list_members=lambda _: MEMBERS,
    )
    assert noted in run("delivery hikers last")[1]
    told = " ".join(run("why hikers last")[1].split())
    assert (
        "carol has not acknowledged it: there is no way between you yet, as" in told
        and said in told
        and "/mediator LINK" in told
    )
    assert state_text(report.members[0]).strip() == noted


def test_every_place_in_a_chain_has_its_sentence() -> None:
    bob = replace(POST, self=False, author=Author(BOB, "bob"))

    def place(**fields: Any) -> str:
        return sentences(replace(FATE, **{"event": bob, "provenance": "author", **fields}), {})

    assert "position 7 in bob's chain; nothing before it is missing." in place()
    assert "nothing before it is missing back to position 3, where the chain starts here." in place(first=3)
    assert "earlier events are not here." in place(first=7)
    assert "the chain is complete here from position 8 on." in place(first=8)
    assert "the event before it is missing." in place(here=5)
    assert "it is unknown where the chain starts here." in place(first=0)
    assert "; 2 after position 9 are missing." in place(known=11)
    assert "; 1 after position 9 is missing." in place(known=10)
    alone = replace(REPORT, members=[], of=0, delivered=0)
    assert "It has no other recipients." in place(report=alone)
    gone = [MemberDelivery("x", "gina", False, "left"), MemberDelivery("y", "hugo", False, "unknown", last_seen=STAMP)]
    assert "gina left before acknowledging it. It is unknown whether hugo has received it;" in place(
        former_members=gone
    )
    vouched = replace(bob, relayed_by=Author(CAROL, "carol"))
    assert "It was relayed by carol; bob has not confirmed it yet. It has" in place(event=vouched, provenance="relayed")
    backed = place(event=vouched, provenance="relayed", corroborated_by=Author(CAROL + "2", "dave"))
    assert "not confirmed it yet. dave has the same. It has" in backed
    told = MemberDelivery("x", "gina", True, "delivered", STAMP, BOB)
    assert "gina received it at 12:04, according to bob." in sentences(
        replace(FATE, former_members=[told]), {BOB: "bob"}
    )


WHOLE = Completeness(
    complete=False,
    upto=5,
    at=STAMP,
    members=[
        MemberReport(did=BOB, nick="bob\x1b", at=STAMP, present=True),
        MemberReport(did=CAROL, nick="carol", at=STAMP, present=True, missing=2),
    ],
    gaps=[GapInfo(author=CAROL, nick="carol", after=3, upto=5, missing=2, state="asked", since=STAMP)],
)


def test_status_info_and_members_report_missing_events(run: Any, agent: Any) -> None:
    info = replace(HIKERS, completeness=WHOLE)
    members = [MEMBERS[0], replace(MEMBERS[1], last_seen=STAMP, missing=2)]
    agent(
        get_status=lambda _: replace(cli_harness.STATUS, groups=[info]),
        list_groups=lambda _: [info],
        list_members=lambda _: members,
    )
    said = "complete with bob␛ as of 2026-07-01 12:04; 2 messages from carol missing (requested since 2026-07-01 12:04)"
    assert f"\nhikers:  {said}\n" in run("status")[1]
    assert f"log             {said}\n" in run("info hikers")[1]
    assert "2026-07-01 12:04, 2 missing" in run("members hikers")[1]
    assert json.loads(run("info hikers --format jsonl")[1])["completeness"]["gaps"][0]["missing"] == 2


def test_tail_reports_missing_events(run: Any, agent: Any) -> None:
    told = [
        ("gap", GapNotification(group="GROUPID", author=BOB, nick="bob\x1b", after=3, upto=5, state="asked")),
        ("fork", ForkNotification(group="GROUPID", author=BOB, nick="bob", position=4)),
        ("complete", CompleteNotification(group="GROUPID", upto=9, at=STAMP)),
        ("removed", RemovedNotification("GROUPID", BOB, "bob")),
    ]
    out_by = replace(HIKERS, removed_by=Author(BOB, "bob"), state="left")

    def subscribe(_: Any) -> Any:
        for method, item in told:
            for client in double.server.clients:
                double.server.notify([client], method, item)
        return METHODS["subscribe"][1]()  # type: ignore[operator]

    double = agent(list_groups=lambda _: [out_by], subscribe=subscribe)
    code, out, _ = run("tail hikers -n 0 --format jsonl")
    assert code == 8
    shown = [json.loads(line) for line in out.splitlines()]
    assert [one["type"] for one in shown] == ["gap", "fork", "complete"]
    assert (shown[0]["after"], shown[0]["upto"], shown[0]["state"]) == (3, 5, "asked")
    _, out, err = run("tail hikers -n 0")
    assert out == "" and "2 messages from bob␛ are missing; requesting them from other members." in err
    assert "Warning: bob has sent two different events" in err


# --- the screen -------------------------------------------------------------------------------------------------------


def test_a_gap_is_shown_at_its_place(tmp_path: Path) -> None:
    async def look() -> None:
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            bob = group.members[1]
            said = it.agent.say(group, 1, "the first of three", minute=5)
            it.agent.say(group, 2, "did bob say something?", minute=6)
            gap = GapInfo(
                author=bob.did, nick="bob", after=said.position, upto=said.position + 2, missing=2, state="asked"
            )
            group.info = replace(group.info, completeness=replace(WHOLE, gaps=[gap]))
            news = GapNotification(
                group="g1", author=bob.did, nick="bob", after=gap.after, upto=gap.upto, state="asked"
            )
            it.agent.tell("gap", news)
            await it.shows("has 2 more entries that are", "2 missing")
            line = it.text.index("has 2 more")
            assert it.text.index("the first of three") < line < it.text.index("did bob say something?")
            # Once the events are there the line is gone.
            it.agent.say(group, 1, "the second", minute=5, lamport=said.lamport + 1)
            group.info = replace(group.info, completeness=replace(WHOLE, complete=True, gaps=[]))
            it.agent.tell("gap", replace(news, state="filled"))
            it.agent.tell("complete", CompleteNotification(group="g1", upto=1, at=STAMP))
            await it.gone("has 2 more")
            await it.shows("The log is complete", "the second")
            assert "2 missing" not in it.text
            await it.pilot.resize_terminal(100, 24)
            await it.shows("complete with bob", "as of 1 Jul 12:04")

    play(look())


def test_provenance_stands_beside_a_message(tmp_path: Path) -> None:
    async def look() -> None:
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            bob, carol = group.members[1:3]
            event = it.agent.post(group, 1, "so they say", minute=5)
            group.events[group.events.index(event)] = event = replace(event, relayed_by=Author(carol.did, "carol"))
            it.agent.tell("event", event)
            await it.shows("so they say", "relayed")
            it.agent.say(group, 2, "and I?", minute=6)
            await it.shows("and I?", "relayed")
            it.agent.tell(
                "refuted",
                RefutedNotification(
                    group="g1",
                    author=bob.did,
                    nick="bob",
                    by=carol.did,
                    by_nick="carol",
                    after=event.position - 1,
                    upto=event.position,
                ),
            )
            await it.gone("so they say")
            await it.shows("Warning: carol relayed messages")

            # The author's next event names it, and so confirms it.
            other = it.agent.post(group, 1, "I have heard", minute=7)
            group.events[group.events.index(other)] = other = replace(other, relayed_by=Author(carol.did, "carol"))
            it.agent.tell("event", other)
            await it.shows("I have heard", "relayed")
            it.agent.say(group, 1, "I say so myself", minute=8)
            await it.shows("I have heard", "I say so myself")
            await it.until(
                lambda: not any("I have heard" in line and "relayed" in line for line in it.text.splitlines())
            )

    play(look())


def test_delivery_and_why_on_the_screen(tmp_path: Path) -> None:
    async def look() -> None:
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            asked = []

            def delivery(params: EventParams) -> DeliveryReport:
                asked.append(params.id)
                return REPORT

            def why(params: EventParams) -> MessageStatus:
                asked.append(params.id)
                return FATE

            it.agent._get_delivery, it.agent._get_message_status = delivery, why
            group = it.agent.groups["g1"]
            mine = next(event for event in group.events if event.self and event.type == "message")
            theirs = it.agent.say(group, 1, "the last of bob", minute=8)
            await it.shows("the last of bob")
            await it.press("f9")
            await it.shows("Delivered to 1 of 3", "queued; last seen", "sent via a mediator")
            await it.press("escape")
            await it.say("/why bob")
            await it.shows("Delivery details", "It has position 7 in your chain", "id e0")
            assert asked == [mine.id, theirs.id]
            await it.press("escape")
            for line, meant in (("/why last", mine), ("/why last:bob", theirs)):  # as `zerochat why` has it
                await it.say(line)
                await it.shows("Delivery details", "id e0")
                assert asked[-1] == meant.id
                await it.press("escape")
            await it.say("/why nobody")
            await it.until(lambda: "No member is called nobody." in it.told())

    play(look())


def test_the_agent_s_own_reports_have_it(world: Parted) -> None:
    info = group_info(world.nodes["n1"].agent, world.group("n1"))
    assert info.completeness and [one.nick for one in info.completeness.members] == ["n0", "n2", "n3"]
    assert METHODS["get_log_summary"][0] is GroupParams
