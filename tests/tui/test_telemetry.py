"""/telemetry: the question as a question, and nothing recorded before somebody has said yes to it."""

import base64
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.support.fake_agent import FakeAgent
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.agent.storage.paths import places
from zerochat.agent.telemetry.consent import question
from zerochat.agent.telemetry.schema import Ack, Fact, pack_rows
from zerochat.rpc.telemetry import (
    TelemetryBatch,
    TelemetryName,
    TelemetryNames,
    TelemetryNamesParams,
    TelemetryRows,
    TelemetryRowsParams,
    TelemetryStatus,
)
from zerochat.tui.dialogs.dialog import Confirm
from zerochat.tui.state.preferences import Choices

STATUS = TelemetryStatus(
    on=False,
    recording=False,
    forbidden="",
    question=list(question(30, 64)),
    consent=1,
    since=None,
    rows=1_234,
    bytes=99_000,
    first="2026-11-20T12:00:00.000Z",
    last="2026-11-21T12:00:00.000Z",
    mebibytes_max=64,
    days_max=30,
)


@pytest.fixture(autouse=True)
def status(monkeypatch: pytest.MonkeyPatch) -> dict[str, TelemetryStatus]:
    """What the agent answers."""
    told = {"now": STATUS}

    def answer(agent: FakeAgent, params: Any) -> TelemetryStatus:
        return told["now"]

    for method in ("telemetry", "telemetry_set", "telemetry_delete"):
        monkeypatch.setattr(FakeAgent, f"_{method}", answer, raising=False)
    return told


def test_nothing_is_recorded_before_a_person_has_read_what_and_said_yes(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/telemetry on")
            await it.until(lambda: isinstance(it.app.screen, Confirm))
            await it.shows(
                "Nothing is ever sent to anybody", "30 days", "Record on this machine how your messages fare?"
            )
            await it.press("escape")
            await it.until(lambda: "Nothing is recorded from now on either." in it.told())
            assert asked(it.agent, "telemetry_set") == []
            await it.say("/telemetry on")
            await it.until(lambda: isinstance(it.app.screen, Confirm))
            await it.press("y")
            await it.until(lambda: asked(it.agent, "telemetry_set"))
            assert asked(it.agent, "telemetry_set") == [{"on": True, "consent": 1}]

    run(play())


@pytest.mark.parametrize("size", [(80, 24), (60, 15), (32, 8), (200, 50)])
def test_the_question_is_read_from_its_beginning_in_any_terminal(tmp_path, size):
    async def play():
        async with scene(tmp_path, size=size, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/telemetry on")
            await it.shows("What: when each", "Record on this machine how", "Do not")
            await it.press(*["pagedown"] * 20)
            await it.shows("you give", "Record on this machine how", "Do not")
            await it.press(*["up"] * 50)
            await it.shows("What: when each")
            await it.press("y")
            await it.until(lambda: asked(it.agent, "telemetry_set") != [])

    run(play())


@pytest.mark.slow
def test_what_forbids_it_is_said_and_what_there_is_can_be_seen_and_deleted(tmp_path, status):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            status["now"] = structs.replace(STATUS, forbidden="Telemetry is off because DO_NOT_TRACK is set")
            await it.say("/telemetry on")
            await it.until(lambda: "DO_NOT_TRACK is set" in it.told())
            await it.say("/telemetry")
            await it.shows("1,234", "nobody", "DO_NOT_TRACK")
            await it.press("escape")
            await it.say("/telemetry delete")
            await it.until(lambda: isinstance(it.app.screen, Confirm))
            await it.press("n")
            assert asked(it.agent, "telemetry_delete") == [] == asked(it.agent, "telemetry_set")
            await it.say("/telemetry sell")
            await it.until(lambda: "/telemetry takes on, off" in it.told())

    run(play())


def test_what_has_ended_by_itself_is_said_and_begun_again(tmp_path, status):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            status["now"] = structs.replace(STATUS, on=True, fault="The disk is full.")
            await it.say("/telemetry")
            await it.shows("no: The disk is full.")
            await it.press("escape")
            await it.say("/telemetry on")
            await it.until(lambda: asked(it.agent, "telemetry_set"))
            assert asked(it.agent, "telemetry_set") == [{"on": True, "consent": 1}]

    run(play())


FACTS: list[Fact] = [Ack(2, 3, 4, number, 1_795_348_800_000_000 + number, "direct") for number in range(5)]
NAMES = [
    TelemetryName(1, "", "me"),
    TelemetryName(2, "g", "did:a"),
    TelemetryName(3, "g", ""),
    TelemetryName(4, "g", "b"),
]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent has something that could be exported."""

    def rows(agent: FakeAgent, params: TelemetryRowsParams) -> TelemetryRows:
        data = base64.b64encode(pack_rows(FACTS)).decode()
        there = [TelemetryBatch(1, len(FACTS), FACTS[0].t_ack_us, FACTS[-1].t_ack_us, data)]
        return TelemetryRows(there if params.after < 1 else [], more=False)

    def names(agent: FakeAgent, params: TelemetryNamesParams) -> TelemetryNames:
        return TelemetryNames(NAMES, more=False)

    monkeypatch.setattr(FakeAgent, "_telemetry_rows", rows, raising=False)
    monkeypatch.setattr(FakeAgent, "_telemetry_names", names, raising=False)


def at(tmp_path: Path) -> Choices:
    """Of a profile whose agent is the double."""
    home = replace(places("alice", {"ZEROCHAT_HOME": str(tmp_path / "home")}), socket=tmp_path / "agent.sock")
    return Choices(home, environ={})


def test_an_export_is_written_where_it_was_asked_for_and_never_over_anything(tmp_path, recorded):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow comes with the extra `analytics`")
    out = tmp_path / "my week"

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend, choices=at(tmp_path)) as it:
            await it.shows("seven at the station")
            await it.say(f"/telemetry export {out}")
            await it.until(lambda: "5 rows, and nobody's name" in it.told())
            (file,) = out.glob("ack/*/*.parquet")
            written = parquet.ParquetFile(file).read().to_pylist()
            assert [row["upto"] for row in written] == [0, 1, 2, 3, 4] and (out / "manifest.json").exists()
            assert not {row["member"] for row in written} & {2, 3, 4}
            assert "did:a" not in (out / "manifest.json").read_text()
            before = file.read_bytes()
            await it.say(f"/telemetry export {out}")
            await it.until(lambda: "Name a folder that does not exist" in it.told())
            assert file.read_bytes() == before
            await it.say("/telemetry show")
            await it.shows("upto=4", "member=4")

    run(play())


def test_no_export_is_made_where_it_is_forbidden_or_nothing_says_where_to(tmp_path, recorded, status):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend, choices=at(tmp_path)) as it:
            await it.shows("seven at the station")
            await it.say("/telemetry export")
            await it.until(lambda: "/telemetry takes on, off" in it.told())
            status["now"] = structs.replace(STATUS, forbidden="Telemetry is off because DO_NOT_TRACK is set")
            await it.say(f"/telemetry export {tmp_path / 'out'}")
            await it.until(lambda: "DO_NOT_TRACK is set" in it.told())
            assert asked(it.agent, "telemetry_names") == [] and not (tmp_path / "out").exists()

    run(play())


def test_what_the_chat_was_told_counts_though_its_agent_was_not(tmp_path, recorded, monkeypatch):
    monkeypatch.setenv("DO_NOT_TRACK", "1")

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend, choices=at(tmp_path)) as it:
            await it.shows("seven at the station")
            await it.say("/telemetry on")
            await it.until(lambda: "DO_NOT_TRACK is set. Nothing is recorded" in it.told())
            await it.say(f"/telemetry export {tmp_path / 'out'}")
            await it.until(lambda: it.told().endswith("Telemetry is off because DO_NOT_TRACK is set"))
            assert asked(it.agent, "telemetry_set") == [] == asked(it.agent, "telemetry_names")
            assert not (tmp_path / "out").exists()

    run(play())
