"""Importing a log file: events enter as if relayed by a member, or are rejected with a reason."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.audited_logs import checked, kept, pages
from tests.support.cli_harness import BOB, HIKERS
from tests.support.cut_world import Cut
from tests.support.handler_offices import RecordingServer
from tests.support.restored_world import older
from tests.support.tui_pilot import run as play
from tests.support.tui_pilot import scene, weekend
from zerochat import rpc
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import decode_call
from zerochat.agent.archive import log_file as archive
from zerochat.agent.views import event_pages
from zerochat.agent.views.members import display_names
from zerochat.agent.views.notifications import notification_of
from zerochat.group.effects import CommandDone, CommandFailed, EventsImported
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import POST, foreign_event, load_event
from zerochat.group.inputs import ImportEvents, LeaveGroup
from zerochat.group.membership import Policy
from zerochat.group.notifications import EventsConfirmed, EventsRefuted, HistoryProgress
from zerochat.group.sync import archive_import, stale_profile
from zerochat.rpc import METHODS, Author, ConfirmedNotification, RefutedNotification, Request

run, agent, home = cli_harness.run, cli_harness.agent, cli_harness.home
NOTHING = Policy(history="none")


class Shelf:
    """Exports of the members of a world, and the import verb."""

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
            about = event_pages.log_summary(journal, group)
            file = io.BytesIO()
            archive.write(
                archive.Header(exported_at="2026-07-01T12:00:00.000Z", summary=about),
                pages(journal, group, about),
                file,
            )
            return file.getvalue()

    def bring(self, world: Cut, name: str, data: bytes, code: int = 0, *, piped: bool = False) -> dict[str, Any]:
        """The result of `zerochat import` with handlers and a core behind the control socket."""
        path: Path | str = self.path / "log.jsonl"
        if piped:
            path = "-"
        else:
            Path(path).write_bytes(data)

        def take(method: str) -> Callable[[Any], Any]:
            return lambda params: self._serve(world, name, method, params)

        double = self._agent(list_groups=take("list_groups"), import_events=take("import_events"))
        try:
            ended, out, self.err = self._run(f"import {path} --format jsonl", data if piped else b"")
        finally:
            double.stop()
        assert ended == code, (out, self.err)
        said: dict[str, Any] = json.loads(out) if out else {}
        return said

    def _serve(self, world: Cut, name: str, method: str, params: Any) -> Any:
        with self._journal(world, name) as journal:
            server = RecordingServer()
            handlers = RequestHandlers(server, journal, lambda agent: None)  # type: ignore[arg-type, return-value]
            given = {field: getattr(params, field) for field in params.__struct_fields__}
            ask = handlers.handle(
                decode_call(1, Request(method=method, id=1, params=given, jsonrpc="2.0")), world.nodes[name].agent
            )
            if ask is not None:
                world.process(name, ask)
                answer = world.nodes[name].answers.pop(ask.ticket)
                assert isinstance(answer, CommandDone | CommandFailed)
                handlers.complete(answer, world.nodes[name].agent)
            if 1 in server.refusals:
                raise server.refusals[1]
            assert isinstance(server.answers[1], METHODS["import_events"][1] if method == "import_events" else list)  # type: ignore[arg-type]
            return server.answers[1]

    def is_sound(self, world: Cut, name: str) -> bool:
        with self._journal(world, name) as journal:
            group = world.nodes[name].agent.groups[world.id]
            about = event_pages.log_summary(journal, group)
            verdict = checked(about, pages(journal, group, about))
            assert verdict.sound, verdict.violations
            return True


@pytest.fixture
def shelf(tmp_path: Path, run: Any, agent: Any) -> Shelf:
    return Shelf(tmp_path, run, agent)


@pytest.fixture
def lonely() -> Cut:
    """n2 has received nothing of n0's messages to n1, and is cut off."""
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
    """The file with another text in one record; `named`: under the matching id."""
    lines = []
    for line in data.splitlines(keepends=True):
        if old.encode() in line and b'"summary"' not in line:
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


def test_missing_events_are_imported_from_an_export(shelf: Shelf, lonely: Cut) -> None:
    world, data = lonely, shelf.export(lonely, "n1")
    said = shelf.bring(world, "n2", data)
    assert (said["new"], said["refused"], said["sound"]) == (3, 0, True) and said["known"] == data.count(b"\n") - 4
    assert "relayed by you" in shelf.err
    assert world.texts("n2") == ["before", "one", "two", "three"]
    assert {row.relayed_by for row in world.nodes["n2"].log if row.type == POST and row.author == world.did("n0")} == {
        world.did("n2")
    }
    assert shelf.is_sound(world, "n2")

    # Once more there is nothing to do.
    before = state(world, "n2")
    again = shelf.bring(world, "n2", data, piped=True)
    assert (again["new"], again["known"], again["refused"]) == (0, said["known"] + 3, 0)
    assert state(world, "n2") == before

    # The author's own event confirms it, and clients are notified at once.
    world.notices["n2"].clear()
    world.deaf.clear()
    world.post("n0", "four")
    world.run(for_ms=60_000)
    assert world.texts("n2", relayed=False) == ["before", "one", "two", "three", "four"]
    (told,) = [one for one in world.notices["n2"] if isinstance(one, EventsConfirmed)]
    assert (told.author, told.upto - told.after) == (world.did("n0"), 3)
    method, group, item = notification_of(told, world.nodes["n2"].agent, display_names) or ("", "", None)
    assert (method, group) == ("confirmed", world.id) and isinstance(item, rpc.NOTIFICATIONS["confirmed"])
    assert isinstance(item, ConfirmedNotification) and item.nick == "n0"


def test_import_of_a_former_members_events(shelf: Shelf, lonely: Cut) -> None:
    world = lonely
    world.run_command("n0", LeaveGroup(world.id))
    world.run(for_ms=1_000)
    data = shelf.export(world, "n1")
    said = shelf.bring(world, "n2", data)
    assert said["new"] == 4 and world.texts("n2", relayed=False) == ["before", "one", "two", "three"]
    assert world.did("n0") not in world.nodes["n2"].agent.groups[world.id].view.members, "the leave is signed"
    assert shelf.is_sound(world, "n2")


def test_a_signed_leave_contradicts_a_file(lonely: Cut) -> None:
    """Its leave, which is known here and need not be in the file, names its predecessor."""
    lonely.run_command("n0", LeaveGroup(lonely.id))
    lonely.run(for_ms=1_000)
    *_, one, two, three, leave = (load_event(row.record) for row in lonely.nodes["n0"].log)
    tx = lonely.tx("n2")
    receiving.receive_event(tx, lonely.id, lonely.did("n1"), leave)
    lonely.perform("n2", tx)
    forged = replace(three, body={"text": "forged"})
    answer = lonely.run_command(
        "n2", ImportEvents(lonely.id, tuple(event.record for event in (one, two, forged, three)))
    )
    assert isinstance(answer.result, EventsImported)
    assert answer.result.outcomes == ("new", "new", "contradiction", "new")
    assert lonely.texts("n2") == ["before", "one", "two", "three"]


# --- downwards --------------------------------------------------------------------------------------------------------


def test_history_before_the_join_is_imported_from_a_file(shelf: Shelf) -> None:
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
    assert world.texts("n2", relayed=True) == ["mine"], "n0 itself names what leads up to what it has said"
    assert any(isinstance(one, HistoryProgress) for one in world.notices["n2"])
    assert shelf.is_sound(world, "n2")
    before = state(world, "n2")
    assert shelf.bring(world, "n2", data)["new"] == 0 and state(world, "n2") == before


def test_a_changed_event_does_not_replace_the_authors(shelf: Shelf) -> None:
    world = Cut(2, policy=NOTHING)
    world.post("n0", "one", "two", "three")
    world.bring_in("n1")
    world.post("n0", "now")
    world.run(for_ms=5_000)
    data = spoilt(shelf.export(world, "n0"), '"two"', "never", named=True)
    doubted = shelf.bring(world, "n1", data, code=7)
    assert doubted["new"] == 0 and set(doubted["why"]) == {"doubted"} and "File: n0" in shelf.err
    # An import without a check of the file fares no worse.
    records = [load_event(json.dumps(json.loads(line)["record"]).encode()) for line in data.splitlines()[1:]]
    mine = world.chain("n1", "n0").backfill.first
    page = tuple(event.record for event in reversed(records) if event.author == world.did("n0") and event.seq < mine)
    answer = world.run_command("n1", ImportEvents(world.id, page, backwards=True))
    assert answer.result.outcomes == ("known", "new", "contradiction", "detached", "detached")
    assert world.texts("n1") == ["three", "now"]


# --- false files ------------------------------------------------------------------------------------------------------


def test_contradictions_with_the_log_are_reported(shelf: Shelf, lonely: Cut) -> None:
    world = lonely
    forged = spoilt(shelf.export(world, "n1"), '"before"', "never", named=True)
    said = shelf.bring(world, "n2", forged, code=7)
    assert said["why"] == {"contradiction": 1} and said["new"] == 3
    assert "never" not in world.texts("n2") and "before" in world.texts("n2")


def test_a_damaged_file_yields_its_valid_events(shelf: Shelf, lonely: Cut) -> None:
    world = lonely
    world.post("n1", "after")
    world.run(for_ms=1_000)
    said = shelf.bring(world, "n2", spoilt(shelf.export(world, "n1"), '"two"', "never"), code=7)
    assert "its id is not the hash of its record" in shelf.err and not said["sound"]
    assert world.texts("n2") == ["before", "after"], "nothing of n0, and all of n1"
    assert shelf.is_sound(world, "n2")


def test_a_forged_import_is_refuted_by_its_author(shelf: Shelf, lonely: Cut) -> None:
    """No file can show that its last word is not its author's; but then it is only vouched for."""
    world = lonely
    world.deaf.add(frozenset({"n0", "n1"}))
    data = spoilt(shelf.export(world, "n1"), '"three"', "never", named=True)
    shelf.bring(world, "n2", data, code=7)  # the state that goes with it says otherwise
    assert world.texts("n2", relayed=True) == ["one", "two", "never"]
    world.deaf.clear()
    world.post("n0", "four")
    world.run(for_ms=200_000)
    assert world.texts("n2") == ["before", "one", "two", "three", "four"]
    assert [load_event(row.record).body["text"] for row in world.nodes["n2"].refuted] == ["never"]
    assert world.nodes["n2"].agent.groups[world.id].chain(world.did("n0")).fork_seq == 0
    told = {one.relayed_by for one in world.notices["n2"] if isinstance(one, EventsRefuted)}
    assert told == {world.did("n2")}, "who has brought it is whoever imported it"


@pytest.mark.parametrize("cut", [10, 0])
def test_a_truncated_file_yields_its_events(shelf: Shelf, lonely: Cut, cut: int) -> None:
    world, data = lonely, shelf.export(lonely, "n1")
    shorter = data[:-cut] if cut else b"".join(data.splitlines(keepends=True)[:-1])
    said = shelf.bring(world, "n2", shorter, code=7)
    assert said["new"] == 2 and not said["sound"]
    assert ("is damaged: line" in shelf.err) is bool(cut) and "the state expects" in shelf.err
    assert world.texts("n2", relayed=True) == ["one", "two"]
    assert shelf.bring(world, "n2", data)["new"] == 1, "the whole file brings the rest"
    assert shelf.is_sound(world, "n2")


def test_an_event_after_an_omitted_one_is_detached(shelf: Shelf, lonely: Cut) -> None:
    world, data = lonely, shelf.export(lonely, "n1")
    lines = data.splitlines(keepends=True)
    said = shelf.bring(world, "n2", b"".join(line for line in lines if b'"two"' not in line), code=7)
    assert (said["new"], said["why"]) == (1, {"detached": 1}) and world.texts("n2") == ["before", "one"]


# --- one's own, and others' -------------------------------------------------------------------------------------------


def test_own_events_are_imported_only_after_a_restore(shelf: Shelf) -> None:
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

    tx = world.tx("n0")
    stale_profile.start(tx, world.id)
    world.perform("n0", tx)
    said = shelf.bring(world, "n0", data)
    assert (said["new"], said["refused"]) == (2, 0) and world.texts("n0") == ["one", "two", "three"]
    world.deaf.clear()
    world.run(for_ms=200_000)
    world.post("n0", "four")
    world.run(for_ms=20_000)
    assert world.texts("n1") == world.texts("n0", relayed=False) == ["one", "two", "three", "four"]
    assert world.chain("n1", "n0").fork_seq == 0


def test_events_of_an_unknown_group_are_not_imported(shelf: Shelf, lonely: Cut) -> None:
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
        assert set(lonely.run_command("n2", ImportEvents(lonely.id, page)).result.outcomes) == {"invalid"}

    lonely.deaf.clear()
    lonely.run_command("n2", LeaveGroup(lonely.id))
    lonely.run(for_ms=20_000)
    shelf.bring(lonely, "n2", shelf.export(lonely, "n1"), code=8)
    assert "You are no longer a member of friends" in shelf.err


def test_a_page_is_limited_and_malformed_input_ignored(lonely: Cut) -> None:
    before = state(lonely, "n2")
    for large in ((b"{}",) * 257, (b" " * 600_000,) * 2):
        for back in (False, True):
            refused = lonely.run_command("n2", ImportEvents(lonely.id, large, back))
            assert isinstance(refused, CommandFailed) and isinstance(refused.error, archive_import.PageTooLarge)
    template = next(load_event(row.record) for row in lonely.nodes["n2"].log if row.type == POST)
    chain = lonely.chain("n2", "n1")
    follows = replace(template, seq=chain.seq + 1, pre=chain.head_id, lamport=chain.lamport + 1)
    wrong = {
        "invalid": [b"{}", b"\xff", replace(follows, lamport=1).record, replace(follows, group="x" * 43).record],
        "not-a-member": [replace(follows, author="did:key:z6Mk" + "2" * 44).record],
        "detached": [replace(follows, seq=chain.seq + 7).record],
        "contradiction": [replace(follows, pre="p" * 43).record],
        "missing-causes": [replace(follows, deps=("q" * 43,)).record],
        "own": [replace(follows, author=lonely.did("n2"), seq=99).record],
        "occupied": [replace(template, body={"text": "never"}).record],
    }
    page = tuple(record for records in wrong.values() for record in records)
    answer = lonely.run_command("n2", ImportEvents(lonely.id, page))
    assert isinstance(answer.result, EventsImported)
    assert answer.result.outcomes == tuple(why for why, records in wrong.items() for _ in records)
    below = lonely.run_command("n2", ImportEvents(lonely.id, page, backwards=True)).result.outcomes
    assert not {"new"} & {*below} and state(lonely, "n2") == before


# --- that it is confirmed ---------------------------------------------------------------------------------------------


def test_tail_prints_confirmations(run: Any, agent: Any) -> None:
    news = ConfirmedNotification(group="GROUPID", author=BOB, nick="bob\x1b", after=3, upto=5)
    single = ConfirmedNotification(group="GROUPID", author=BOB, nick="bob", after=5, upto=6)
    gone = replace(HIKERS, removed_by=Author(BOB, "bob"), state="left")

    def subscribe(_: Any) -> Any:
        for item in (news, single):
            for client in double.server.clients:
                double.server.notify([client], "confirmed", item)
        return rpc.NoParams()

    double = agent(list_groups=lambda _: [gone], subscribe=subscribe)
    _, out, _ = run("tail hikers -n 0 --format jsonl")
    shown = [json.loads(line) for line in out.splitlines()]
    assert [(one["type"], one["after"], one["upto"]) for one in shown] == [("confirmed", 3, 5), ("confirmed", 5, 6)]
    _, out, err = run("tail hikers -n 0")
    assert out == "" and err.count("confirmed") == 2
    assert "2 messages from bob␛ relayed by others are now confirmed." in err


def test_the_screen_drops_its_mark_at_once(tmp_path: Path) -> None:
    async def look() -> None:
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            bob, carol = group.members[1:3]

            def relayed(text: str, minute: int) -> Any:
                event = it.agent.post(group, 1, text, minute=minute)
                found = replace(event, relayed_by=Author(carol.did, "carol"))
                group.events[group.events.index(event)] = found
                it.agent.tell("event", found)
                return found

            def told(method: str, shape: Any, event: Any, **others: str) -> None:
                at = event.position
                it.agent.tell(method, shape(group="g1", author=bob.did, nick="bob", after=at - 1, upto=at, **others))

            event = relayed("so they say", 5)
            await it.shows("so they say", "relayed")
            told("confirmed", ConfirmedNotification, event)
            await it.gone("relayed")
            assert "so they say" in it.text
            # It may be the author's or not: it is hidden, and no member is blamed.
            event = relayed("perhaps", 6)
            told("refuted", RefutedNotification, event, by="", by_nick="")
            await it.gone("perhaps")
            assert "Warning" not in it.text
            # Here a member is blamed.
            event = relayed("what nobody has said", 7)
            await it.shows("what nobody has said")
            told("refuted", RefutedNotification, event, by=carol.did, by_nick="carol")
            await it.shows("Warning: carol")
            await it.gone("what nobody has said")

    play(look())
