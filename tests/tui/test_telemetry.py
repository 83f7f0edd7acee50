"""/telemetry: the consent dialog, and nothing recorded before consent."""

import base64
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.support.fake_agent import FakeAgent
from tests.support.marks import others_slow
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.telemetry.consent import question
from zerochat.agent.telemetry.schema import Ack, Record, pack_rows
from zerochat.rpc.telemetry import (
    TelemetryBatch,
    TelemetryName,
    TelemetryNames,
    TelemetryNamesParams,
    TelemetryRows,
    TelemetryRowsParams,
    TelemetryStatus,
)
from zerochat.tui.dialogs.dialog import ConfirmDialog
from zerochat.tui.state.preferences import SettingsStore

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

    for method in ("get_telemetry", "set_telemetry", "delete_telemetry"):
        monkeypatch.setattr(FakeAgent, f"_{method}", answer, raising=False)
    return told


def test_nothing_is_recorded_before_consent(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/telemetry on")
            await it.until(lambda: isinstance(it.app.screen, ConfirmDialog))
            await it.shows("ever sent", "30 days", "Record delivery telemetry on this machine?")
            await it.press("escape")
            await it.until(lambda: "Telemetry stays off." in it.told())
            assert asked(it.agent, "set_telemetry") == []
            await it.say("/telemetry on")
            await it.until(lambda: isinstance(it.app.screen, ConfirmDialog))
            await it.press("y")
            await it.until(lambda: asked(it.agent, "set_telemetry"))
            assert asked(it.agent, "set_telemetry") == [{"on": True, "consent": 1}]

    run(play())


@pytest.mark.parametrize("size", others_slow([(80, 24), (60, 15), (32, 8), (200, 50)]))
def test_the_consent_text_starts_visible_at_any_size(tmp_path, size):
    async def play():
        async with scene(tmp_path, size=size, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/telemetry on")
            await it.shows("What: when each", "Record delivery telemetry on", "Cancel")
            await it.press(*["pagedown"] * 20)
            await it.shows("export", "Record delivery telemetry on", "Cancel")
            await it.press(*["up"] * 50)
            await it.shows("What: when each")
            await it.press("y")
            await it.until(lambda: asked(it.agent, "set_telemetry") != [])

    run(play())


@pytest.mark.slow
def test_forbidden_telemetry_can_be_shown_and_deleted(tmp_path, status):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            status["now"] = structs.replace(STATUS, forbidden="Telemetry is off because DO_NOT_TRACK is set")
            await it.say("/telemetry on")
            await it.until(lambda: "DO_NOT_TRACK is set" in it.told())
            await it.say("/telemetry")
            await it.shows("1,234", "no one", "DO_NOT_TRACK")
            await it.press("escape")
            await it.say("/telemetry delete")
            await it.until(lambda: isinstance(it.app.screen, ConfirmDialog))
            await it.press("n")
            assert asked(it.agent, "delete_telemetry") == [] == asked(it.agent, "set_telemetry")
            await it.say("/telemetry sell")
            await it.until(lambda: "Usage: /telemetry" in it.told())

    run(play())


@pytest.mark.slow
def test_stopped_recording_is_shown_and_restarted(tmp_path, status):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            status["now"] = structs.replace(STATUS, on=True, fault="The disk is full.")
            await it.say("/telemetry")
            await it.shows("no: The disk is full.")
            await it.press("escape")
            await it.say("/telemetry on")
            await it.until(lambda: asked(it.agent, "set_telemetry"))
            assert asked(it.agent, "set_telemetry") == [{"on": True, "consent": 1}]

    run(play())


FACTS: list[Record] = [Ack(2, 3, 4, number, 1_795_348_800_000_000 + number, "direct") for number in range(5)]
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

    monkeypatch.setattr(FakeAgent, "_get_telemetry_rows", rows, raising=False)
    monkeypatch.setattr(FakeAgent, "_get_telemetry_names", names, raising=False)


def at(tmp_path: Path) -> SettingsStore:
    """Of a profile whose agent is the double."""
    home = replace(profile_paths("alice", {"ZEROCHAT_HOME": str(tmp_path / "home")}), socket=tmp_path / "agent.sock")
    return SettingsStore(home, environ={})


def test_an_export_never_overwrites(tmp_path, recorded):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow comes with the extra `analytics`")
    out = tmp_path / "my week"

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend, settings_store=at(tmp_path)) as it:
            await it.shows("seven at the station")
            await it.say(f"/telemetry export {out}")
            await it.until(lambda: "Exported 5 rows without names" in it.told())
            (file,) = out.glob("ack/*/*.parquet")
            written = parquet.ParquetFile(file).read().to_pylist()
            assert [row["upto"] for row in written] == [0, 1, 2, 3, 4] and (out / "manifest.json").exists()
            assert not {row["member"] for row in written} & {2, 3, 4}
            assert "did:a" not in (out / "manifest.json").read_text()
            before = file.read_bytes()
            await it.say(f"/telemetry export {out}")
            await it.until(lambda: "Give the path of a new folder" in it.told())
            assert file.read_bytes() == before
            await it.say("/telemetry show")
            await it.shows("upto=4", "member=4")

    run(play())


@pytest.mark.slow
def test_no_export_when_forbidden_or_without_a_path(tmp_path, recorded, status):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend, settings_store=at(tmp_path)) as it:
            await it.shows("seven at the station")
            await it.say("/telemetry export")
            await it.until(lambda: "Usage: /telemetry" in it.told())
            status["now"] = structs.replace(STATUS, forbidden="Telemetry is off because DO_NOT_TRACK is set")
            await it.say(f"/telemetry export {tmp_path / 'out'}")
            await it.until(lambda: "DO_NOT_TRACK is set" in it.told())
            assert asked(it.agent, "get_telemetry_names") == [] and not (tmp_path / "out").exists()

    run(play())


def test_the_chat_environment_can_forbid_telemetry(tmp_path, recorded, monkeypatch):
    monkeypatch.setenv("DO_NOT_TRACK", "1")

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend, settings_store=at(tmp_path)) as it:
            await it.shows("seven at the station")
            await it.say("/telemetry on")
            await it.until(lambda: "DO_NOT_TRACK is set. Telemetry stays off" in it.told())
            await it.say(f"/telemetry export {tmp_path / 'out'}")
            await it.until(lambda: it.told().endswith("Telemetry is off because DO_NOT_TRACK is set"))
            assert asked(it.agent, "set_telemetry") == [] == asked(it.agent, "get_telemetry_names")
            assert not (tmp_path / "out").exists()

    run(play())
