"""A log out of a file: what is missing comes in, as if a member had handed it over; and what does not, and why."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.agent.test_audit import checked, kept, pages
from tests.agent.test_request_handlers import Counter
from tests.cli import test_cli
from tests.cli.test_cli import BOB, HIKERS
from tests.group.test_history import Cut
from tests.group.test_restored_profile import older
from tests.support.tui_pilot import run as play
from tests.support.tui_pilot import scene, weekend
from zerochat import rpc
from zerochat.agent.api.request_handlers import Desk
from zerochat.agent.archive import log_file as archive
from zerochat.agent.views import core_state, event_pages
from zerochat.group.effects import Answer, Imported, Refuse
from zerochat.group.event_log import log
from zerochat.group.event_log.event import POST, foreign_event, load_event
from zerochat.group.inputs import ImportEvents, LeaveGroup
from zerochat.group.membership import Policy
from zerochat.group.notifications import Confirmed, HistoryFetched, Refuted
from zerochat.group.sync import archive_import, stale_profile
from zerochat.rpc import METHODS, Author, ConfirmedNews, RefutedNews, Request

run, agent, home = test_cli.run, test_cli.agent, test_cli.home
NOTHING = Policy(history="none")


class Shelf:
    """Files of what the members of a world have, and the verb that brings one in."""

    def __init__(self, tmp_path: Path, run: Any, agent: Any) -> None:
        self.path, self._run, self._agent, self._number = tmp_path, run, agent, 0

    def _journal(self, world: Cut, name: str) -> Any:
        self._number += 1
        folder = self.path / str(self._number)
        folder.mkdir()
        return kept(folder, world, name)

    def export(self, world: Cut, name: str) -> bytes:
        with self._journal(world, name) as journal:
            group = world.nodes[name].agent.groups[world.id]
            about = event_pages.ledger(journal, group)
            file = io.BytesIO()
            archive.write(
                archive.Header(exported_at="2026-07-01T12:00:00.000Z", ledger=about), pages(journal, group, about), file
            )
            return file.getvalue()

    def bring(self, world: Cut, name: str, data: bytes, code: int = 0, *, piped: bool = False) -> dict[str, Any]:
        """What `zerochat import` says in the end, with a desk and a core behind the control socket."""
        path: Path | str = self.path / "log.jsonl"
        if piped:
            path = "-"
        else:
            Path(path).write_bytes(data)

        def take(method: str) -> Callable[[Any], Any]:
            return lambda params: self._serve(world, name, method, params)

        double = self._agent(**{"groups": take("groups"), "import": take("import")})
        try:
            ended, out, self.err = self._run(f"import {path} --format jsonl", data if piped else b"")
        finally:
            double.stop()
        assert ended == code, (out, self.err)
        said: dict[str, Any] = json.loads(out) if out else {}
        return said

    def _serve(self, world: Cut, name: str, method: str, params: Any) -> Any:
        with self._journal(world, name) as journal:
            server = Counter()
            desk = Desk(server, journal, lambda agent: None)  # type: ignore[arg-type, return-value]
            given = {field: getattr(params, field) for field in params.__struct_fields__}
            ask = desk.take(1, Request(method=method, id=1, params=given, jsonrpc="2.0"), world.nodes[name].agent)
            if ask is not None:
                world.hear(name, ask)
                answer = world.nodes[name].answers.pop(ask.ticket)
                assert isinstance(answer, Answer | Refuse)
                desk.settle(answer, world.nodes[name].agent)
            if 1 in server.refusals:
                raise server.refusals[1]
            assert isinstance(server.answers[1], METHODS["import"][1] if method == "import" else list)  # type: ignore[arg-type]
            return server.answers[1]

    def is_sound(self, world: Cut, name: str) -> bool:
        with self._journal(world, name) as journal:
            group = world.nodes[name].agent.groups[world.id]
            about = event_pages.ledger(journal, group)
            verdict = checked(about, pages(journal, group, about))
            assert verdict.sound, verdict.breaks
            return True


@pytest.fixture
def shelf(tmp_path: Path, run: Any, agent: Any) -> Shelf:
    return Shelf(tmp_path, run, agent)


@pytest.fixture
def lonely() -> Cut:
    """n2 has heard nothing of what n0 has said to n1, and hears nobody."""
    world = Cut(3)
    world.bring_in("n1", "n2")
    world.post("n1", "before")
    world.run(for_ms=5_000)
    world.deaf |= {frozenset({"n0", "n2"}), frozenset({"n1", "n2"})}
    world.post("n0", "one", "two", "three")
    world.run(for_ms=1_000)
    assert world.texts("n2") == ["before"]
    return world


def spoilt(data: bytes, old: str, new: str, *, named: bool = False) -> bytes:
    """The file with another word in one record; `named`: under the id that goes with it."""
    lines = []
    for line in data.splitlines(keepends=True):
        if old.encode() in line and b'"ledger"' not in line:
            row = json.loads(line)
            row["record"]["body"]["text"] = new
            if named:
                row["id"] = foreign_event(json.dumps(row["record"]).encode()).id
            line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        lines.append(line)
    return b"".join(lines)


def state(world: Cut, name: str) -> Any:
    return world.nodes[name].agent, list(world.nodes[name].log)


# --- upwards ----------------------------------------------------------------------------------------------------------


def test_what_is_missing_comes_out_of_another_member_s_export(shelf: Shelf, lonely: Cut) -> None:
    world, data = lonely, shelf.export(lonely, "n1")
    said = shelf.bring(world, "n2", data)
    assert (said["new"], said["refused"], said["sound"]) == (3, 0, True) and said["known"] == data.count(b"\n") - 4
    assert "handed over by you" in shelf.err
    assert world.texts("n2") == ["before", "one", "two", "three"]
    assert {row.vouched for row in world.nodes["n2"].log if row.type == POST and row.author == world.did("n0")} == {
        world.did("n2")
    }
    assert shelf.is_sound(world, "n2")

    # Once more there is nothing to do.
    before = state(world, "n2")
    again = shelf.bring(world, "n2", data, piped=True)
    assert (again["new"], again["known"], again["refused"]) == (0, said["known"] + 3, 0)
    assert state(world, "n2") == before

    # The author's own word confirms it, and the faces hear of that at once.
    world.notices["n2"].clear()
    world.deaf.clear()
    world.post("n0", "four")
    world.run(for_ms=60_000)
    assert world.texts("n2", vouched=False) == ["before", "one", "two", "three", "four"]
    (told,) = [one for one in world.notices["n2"] if isinstance(one, Confirmed)]
    assert (told.author, told.upto - told.after) == (world.did("n0"), 3)
    method, group, item = core_state.news(told, world.nodes["n2"].agent, core_state.labels) or ("", "", None)
    assert (method, group) == ("confirmed", world.id) and isinstance(item, rpc.NEWS["confirmed"])
    assert isinstance(item, ConfirmedNews) and item.nick == "n0"


def test_of_whoever_has_gone_for_good(shelf: Shelf, lonely: Cut) -> None:
    world = lonely
    world.ask("n0", LeaveGroup(world.id))
    world.run(for_ms=1_000)
    data = shelf.export(world, "n1")
    said = shelf.bring(world, "n2", data)
    assert said["new"] == 4 and world.texts("n2", vouched=False) == ["before", "one", "two", "three"]
    assert world.did("n0") not in world.nodes["n2"].agent.groups[world.id].view.members, "the leave is signed"
    assert shelf.is_sound(world, "n2")


def test_what_whoever_has_left_has_signed_speaks_against_a_file(lonely: Cut) -> None:
    """Its last word, which is known here and need not be in the file, names what was before it."""
    lonely.ask("n0", LeaveGroup(lonely.id))
    lonely.run(for_ms=1_000)
    *_, one, two, three, leave = (load_event(row.record) for row in lonely.nodes["n0"].log)
    turn = lonely.turn("n2")
    log.hear_event(turn, lonely.id, lonely.did("n1"), leave)
    lonely.perform("n2", turn)
    forged = replace(three, body={"text": "forged"})
    answer = lonely.ask("n2", ImportEvents(lonely.id, tuple(event.record for event in (one, two, forged, three))))
    assert isinstance(answer.result, Imported)
    assert answer.result.outcomes == ("new", "new", "contradiction", "new")
    assert lonely.texts("n2") == ["before", "one", "two", "three"]


# --- downwards --------------------------------------------------------------------------------------------------------


def test_the_time_before_one_s_own_comes_out_of_a_file(shelf: Shelf) -> None:
    world = Cut(3, policy=NOTHING)
    world.bring_in("n1")
    world.post("n0", *(f"early {number}" for number in range(300)))
    world.post("n1", "mine")
    world.run(for_ms=5_000)
    world.kill("n1")
    world.bring_in("n2")
    world.post("n0", "now")
    world.run(for_ms=20_000)
    assert world.texts("n2") == ["now"]
    data = shelf.export(world, "n0")
    said = shelf.bring(world, "n2", data)
    assert (said["new"], said["refused"]) == (301, 0)
    assert world.texts("n2") == world.texts("n0")
    assert world.texts("n2", vouched=True) == ["mine"], "n0 itself names what leads up to what it has said"
    assert any(isinstance(one, HistoryFetched) for one in world.notices["n2"])
    assert shelf.is_sound(world, "n2")
    before = state(world, "n2")
    assert shelf.bring(world, "n2", data)["new"] == 0 and state(world, "n2") == before


def test_a_changed_word_does_not_get_past_the_author_s_own(shelf: Shelf) -> None:
    world = Cut(2, policy=NOTHING)
    world.post("n0", "one", "two", "three")
    world.bring_in("n1")
    world.post("n0", "now")
    world.run(for_ms=5_000)
    data = spoilt(shelf.export(world, "n0"), '"two"', "never", named=True)
    doubted = shelf.bring(world, "n1", data, code=7)
    assert doubted["new"] == 0 and set(doubted["why"]) == {"doubted"} and "In the file: n0" in shelf.err
    # Whoever does not look at the file first does not fare worse.
    records = [load_event(json.dumps(json.loads(line)["record"]).encode()) for line in data.splitlines()[1:]]
    mine = world.chain("n1", "n0").past.first
    page = tuple(event.record for event in reversed(records) if event.author == world.did("n0") and event.seq < mine)
    answer = world.ask("n1", ImportEvents(world.id, page, back=True))
    assert answer.result.outcomes == ("known", "new", "contradiction", "apart", "apart")
    assert world.texts("n1") == ["three", "now"]


# --- what is not so ---------------------------------------------------------------------------------------------------


def test_what_contradicts_what_is_here_is_said(shelf: Shelf, lonely: Cut) -> None:
    world = lonely
    forged = spoilt(shelf.export(world, "n1"), '"before"', "never", named=True)
    said = shelf.bring(world, "n2", forged, code=7)
    assert said["why"] == {"contradiction": 1} and said["new"] == 3
    assert "never" not in world.texts("n2") and "before" in world.texts("n2")


def test_a_spoilt_file_gives_what_is_beyond_doubt(shelf: Shelf, lonely: Cut) -> None:
    world = lonely
    world.post("n1", "after")
    world.run(for_ms=1_000)
    said = shelf.bring(world, "n2", spoilt(shelf.export(world, "n1"), '"two"', "never"), code=7)
    assert "its record is not the one that its id names" in shelf.err and not said["sound"]
    assert world.texts("n2") == ["before", "after"], "nothing of n0, and all of n1"
    assert shelf.is_sound(world, "n2")


def test_what_was_forged_whole_is_refuted_by_its_author(shelf: Shelf, lonely: Cut) -> None:
    """No file can show that its last word is not its author's; but then it is only vouched for."""
    world = lonely
    world.deaf.add(frozenset({"n0", "n1"}))
    data = spoilt(shelf.export(world, "n1"), '"three"', "never", named=True)
    shelf.bring(world, "n2", data, code=7)  # the state that goes with it says otherwise
    assert world.texts("n2", vouched=True) == ["one", "two", "never"]
    world.deaf.clear()
    world.post("n0", "four")
    world.run(for_ms=200_000)
    assert world.texts("n2") == ["before", "one", "two", "three", "four"]
    assert [load_event(row.record).body["text"] for row in world.nodes["n2"].refuted] == ["never"]
    assert world.nodes["n2"].agent.groups[world.id].chain(world.did("n0")).forked == 0
    told = {one.by for one in world.notices["n2"] if isinstance(one, Refuted)}
    assert told == {world.did("n2")}, "who has brought it is whoever imported it"


@pytest.mark.parametrize("cut", [10, 0])
def test_a_cut_file_gives_what_it_has(shelf: Shelf, lonely: Cut, cut: int) -> None:
    world, data = lonely, shelf.export(lonely, "n1")
    shorter = data[:-cut] if cut else b"".join(data.splitlines(keepends=True)[:-1])
    said = shelf.bring(world, "n2", shorter, code=7)
    assert said["new"] == 2 and not said["sound"]
    assert ("is damaged: line" in shelf.err) is bool(cut) and "should be" in shelf.err
    assert world.texts("n2", vouched=True) == ["one", "two"]
    assert shelf.bring(world, "n2", data)["new"] == 1, "the whole file brings the rest"
    assert shelf.is_sound(world, "n2")


def test_where_something_is_left_out_the_rest_waits(shelf: Shelf, lonely: Cut) -> None:
    world, data = lonely, shelf.export(lonely, "n1")
    lines = data.splitlines(keepends=True)
    said = shelf.bring(world, "n2", b"".join(line for line in lines if b'"two"' not in line), code=7)
    assert (said["new"], said["why"]) == (1, {"apart": 1}) and world.texts("n2") == ["before", "one"]


# --- one's own, and others' -------------------------------------------------------------------------------------------


def test_one_s_own_words_only_where_they_may_be_lost(shelf: Shelf) -> None:
    world = Cut(2)
    world.bring_in("n1")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    backup, rows = state(world, "n0")
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    data = shelf.export(world, "n1")
    world.deaf.add(frozenset({"n0", "n1"}))
    older(world, "n0", backup, rows)
    said = shelf.bring(world, "n0", data)
    assert (said["new"], said["why"]) == (0, {"own": 2}) and world.texts("n0") == ["one"]

    turn = world.turn("n0")
    stale_profile.begin(turn, world.id)
    world.perform("n0", turn)
    said = shelf.bring(world, "n0", data)
    assert (said["new"], said["refused"]) == (2, 0) and world.texts("n0") == ["one", "two", "three"]
    world.deaf.clear()
    world.run(for_ms=200_000)
    world.post("n0", "four")
    world.run(for_ms=20_000)
    assert world.texts("n1") == world.texts("n0", vouched=False) == ["one", "two", "three", "four"]
    assert world.chain("n1", "n0").forked == 0


def test_nothing_of_a_group_that_one_is_not_in(shelf: Shelf, lonely: Cut) -> None:
    other = Cut(1)
    other.post("n0", "elsewhere")
    before = state(lonely, "n2")
    data = shelf.export(other, "n0").replace(other.id.encode(), other.id[::-1].encode())
    assert shelf.bring(lonely, "n2", data, code=1) == {} and "that this profile is not in" in shelf.err
    # Nor under this group's name.
    named = data.replace(other.id[::-1].encode(), lonely.id.encode())
    said = shelf.bring(lonely, "n2", named, code=7)
    assert said["new"] == 0 and state(lonely, "n2") == before
    page = tuple(row.record for row in other.nodes["n0"].log)
    if other.id != lonely.id:
        assert set(lonely.ask("n2", ImportEvents(lonely.id, page)).result.outcomes) == {"invalid"}

    lonely.deaf.clear()
    lonely.ask("n2", LeaveGroup(lonely.id))
    lonely.run(for_ms=20_000)
    shelf.bring(lonely, "n2", shelf.export(lonely, "n1"), code=1)
    assert "You are no longer in friends" in shelf.err


def test_a_page_has_its_limits_and_rubbish_changes_nothing(lonely: Cut) -> None:
    before = state(lonely, "n2")
    for large in ((b"{}",) * 257, (b" " * 600_000,) * 2):
        for back in (False, True):
            refused = lonely.ask("n2", ImportEvents(lonely.id, large, back))
            assert isinstance(refused, Refuse) and isinstance(refused.error, archive_import.PageTooLarge)
    template = next(load_event(row.record) for row in lonely.nodes["n2"].log if row.type == POST)
    chain = lonely.chain("n2", "n1")
    follows = replace(template, seq=chain.seq + 1, pre=chain.tip, lamport=chain.lamport + 1)
    wrong = {
        "invalid": [b"{}", b"\xff", replace(follows, lamport=1).record, replace(follows, group="x" * 43).record],
        "stranger": [replace(follows, author="did:key:z6Mk" + "2" * 44).record],
        "apart": [replace(follows, seq=chain.seq + 7).record],
        "contradiction": [replace(follows, pre="p" * 43).record],
        "causes": [replace(follows, deps=("q" * 43,)).record],
        "own": [replace(follows, author=lonely.did("n2"), seq=99).record],
        "taken": [replace(template, body={"text": "never"}).record],
    }
    page = tuple(record for records in wrong.values() for record in records)
    answer = lonely.ask("n2", ImportEvents(lonely.id, page))
    assert isinstance(answer.result, Imported)
    assert answer.result.outcomes == tuple(why for why, records in wrong.items() for _ in records)
    below = lonely.ask("n2", ImportEvents(lonely.id, page, back=True)).result.outcomes
    assert not {"new"} & {*below} and state(lonely, "n2") == before


# --- that it is confirmed ---------------------------------------------------------------------------------------------


def test_tail_prints_what_is_confirmed(run: Any, agent: Any) -> None:
    news = ConfirmedNews(group="GROUPID", author=BOB, nick="bob\x1b", after=3, upto=5)
    single = ConfirmedNews(group="GROUPID", author=BOB, nick="bob", after=5, upto=6)
    gone = replace(HIKERS, removed_by=Author(BOB, "bob"), state="left")

    def subscribe(_: Any) -> Any:
        for item in (news, single):
            for client in double.server.clients:
                double.server.notify([client], "confirmed", item)
        return rpc.NoParams()

    double = agent(groups=lambda _: [gone], subscribe=subscribe)
    _, out, _ = run("tail hikers -n 0 --format jsonl")
    shown = [json.loads(line) for line in out.splitlines()]
    assert [(one["type"], one["after"], one["upto"]) for one in shown] == [("confirmed", 3, 5), ("confirmed", 5, 6)]
    _, out, err = run("tail hikers -n 0")
    assert out == "" and err.count("confirmed") == 2
    assert "2 messages of bob␛ that others had handed over are confirmed." in err


def test_the_screen_drops_its_mark_at_once(tmp_path: Path) -> None:
    async def look() -> None:
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            bob, carol = group.members[1:3]

            def vouched(text: str, minute: int) -> Any:
                event = it.agent.post(group, 1, text, minute=minute)
                found = replace(event, vouched=Author(carol.did, "carol"))
                group.events[group.events.index(event)] = found
                it.agent.tell("event", found)
                return found

            def told(method: str, shape: Any, event: Any, **others: str) -> None:
                at = event.position
                it.agent.tell(method, shape(group="g1", author=bob.did, nick="bob", after=at - 1, upto=at, **others))

            event = vouched("so they say", 5)
            await it.shows("so they say", "vouched")
            told("confirmed", ConfirmedNews, event)
            await it.gone("vouched")
            assert "so they say" in it.text
            # It may be its author's, or not: it goes, and nobody is blamed.
            event = vouched("perhaps", 6)
            told("refuted", RefutedNews, event, by="", by_nick="")
            await it.gone("perhaps")
            assert "Careful" not in it.text
            # But here somebody is.
            event = vouched("what nobody has said", 7)
            await it.shows("what nobody has said")
            told("refuted", RefutedNews, event, by=carol.did, by_nick="carol")
            await it.shows("Careful: carol")
            await it.gone("what nobody has said")

    play(look())
