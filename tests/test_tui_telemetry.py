"""/telemetry: the question as a question, and nothing recorded before somebody has said yes to it."""

from typing import Any

import pytest

from tests.fake_agent import FakeAgent
from tests.pilot import asked, run, scene, weekend
from zerochat.agent.schema.telemetry import TelemetryStatus
from zerochat.agent.telemetry.consent import question
from zerochat.tui.sheets.sheet import Confirm

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
            await it.until(lambda: "Nothing is recorded." in it.told())
            assert asked(it.agent, "telemetry_set") == []
            await it.say("/telemetry on")
            await it.until(lambda: isinstance(it.app.screen, Confirm))
            await it.press("y")
            await it.until(lambda: asked(it.agent, "telemetry_set"))
            assert asked(it.agent, "telemetry_set") == [{"on": True, "consent": 1}]

    run(play())


def test_what_forbids_it_is_said_and_what_there_is_can_be_seen_and_deleted(tmp_path, status):
    async def play():
        async with scene(tmp_path, size=(100, 40), setting=weekend) as it:
            await it.shows("seven at the station")
            status["now"] = TelemetryStatus(
                **{name: getattr(STATUS, name) for name in STATUS.__struct_fields__ if name != "forbidden"},
                forbidden="Telemetry is off because DO_NOT_TRACK is set",
            )
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
