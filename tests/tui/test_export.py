"""`/export` in the terminal application."""

import pytest

from tests.support.fake_agent import ME, Refusal
from tests.support.tui_pilot import asked, completed, run, scene, weekend
from zerochat.agent.archive import log_file
from zerochat.rpc import LogRow
from zerochat.tui.actions import export as exporting


def logged(agent, count=250):
    weekend(agent)
    agent.log_rows = [
        LogRow(seq=n, id=f"e{n}", author=ME, position=n, lamport=n, type="post", record=b'{"n":1}', received=n)
        for n in range(1, count + 1)
    ]


def test_an_export_is_written_and_overwrites_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "PROGRESS_S", 0.0)
    target = tmp_path / "my log.jsonl"

    async def play():
        async with scene(tmp_path, size=(120, 24), setting=logged) as it:
            await it.shows("seven at the station")
            seen, flash = [], it.app.chat.flash
            it.app.chat.flash = lambda sentence, **more: (seen.append(sentence), flash(sentence, **more))
            await it.say(f"/export {target}")
            await it.until(lambda: "250 events of weekend saved to" in it.told())
            assert str(target) in it.told() and "is not encrypted" in it.told() and it.composer.text == ""
            assert "Exporting weekend: 100 of 250 events…" in seen
            assert target.stat().st_mode & 0o777 == 0o600
            with target.open("rb") as file:
                header, rows = log_file.read(target, file)
                assert header.summary.name == "weekend" and [row.seq for row in rows] == list(range(1, 251))
            before = target.read_bytes()
            await it.say(f"/export {target}")
            await it.until(lambda: "exists already, and was not overwritten" in it.told())
            assert it.composer.text == f"/export {target}" and target.read_bytes() == before
            await it.say(f"/export {tmp_path}")
            await it.until(lambda: (tmp_path / "weekend.jsonl").exists() and "saved to" in it.told())
            await it.say("/export /nowhere/at/all")
            await it.until(lambda: "does not exist. Create it" in it.told())

    run(play())


def test_a_failed_export_leaves_no_file(tmp_path):
    target = tmp_path / "log.jsonl"

    async def play():
        async with scene(tmp_path, setting=logged) as it:
            await it.shows("seven at the station")
            it.agent.refuse["get_event_page"] = Refusal("The journal is damaged.")
            await it.say(f"/export {target}")
            await it.shows("The journal is damaged.")
            assert not target.exists() and it.composer.text == f"/export {target}"

    run(play())


def test_without_a_path_an_export_asks(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))

    async def play():
        async with scene(tmp_path, size=(120, 24), setting=logged) as it:
            await it.shows("seven at the station")
            await it.say("/export")
            await it.shows("Save the export as", "not encrypted")
            assert it.app.screen.query_one("#answer").value.endswith("/downloads/weekend.jsonl")
            assert asked(it.agent, "get_event_page") == []
            await it.press("enter")
            await it.until(lambda: (tmp_path / "downloads" / "weekend.jsonl").exists() and "saved to" in it.told())
            await it.say("/export")
            await it.shows("Save the export as")
            await it.press("enter")
            await it.until(lambda: "exists already" in it.told())
            assert it.composer.text.startswith("/export /"), "to be corrected"

    run(play())


@pytest.mark.parametrize("command", ["/export", "/send"])
def test_paths_are_completed(tmp_path, command):
    (tmp_path / "letters").mkdir()
    assert completed(f"{command} {tmp_path}/let") == f"{command} {tmp_path}/letters/"
