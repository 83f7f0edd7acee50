"""The README's screenshots and the tour captures are reproducible and complete."""

import asyncio
import re
from pathlib import Path

import pytest

from screens.tmux import NoTmux, Screen
from screens.tour import IN_COLOUR, SIZES, STATIONS, THEMES, neutral
from screenshots import BYTES_MAX, DRAWN, PICTURES, TOUR, asked_for, draw

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_screenshots_are_reproducible(tmp_path: Path) -> None:
    picture = next(one for one in DRAWN if one.name == "delivery")
    first, second = (asyncio.run(draw(picture, tmp_path)) for _ in range(2))
    assert first == second and "Delivered" in first and first.endswith("</svg>\n")
    assert "http://" not in re.sub(r'xmlns="[^"]*"', "", first), "it fetches nothing from anywhere"


def test_the_script_help_draws_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, code in ((["--help"], 0), (["no-such-picture"], 2), (["--nonsense"], 2)):
        with pytest.raises(SystemExit) as ended:
            asked_for(words)
        assert ended.value.code == code
    said = capsys.readouterr()
    assert "--tour" in said.out and "draws all of them" in said.out
    assert "there is no picture with no-such-picture in its name" in said.err
    assert asked_for([]).tour is None and asked_for(["--tour"]).tour == "" and asked_for(["invite"]).name == "invite"


def test_all_screenshots_exist_and_are_small() -> None:
    assert {path.stem for path in PICTURES.glob("*.svg")} == {one.name for one in DRAWN}
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) <= BYTES_MAX


def test_the_readme_links_existing_screenshots() -> None:
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(shown) >= 2 and all((ROOT / path).is_file() for path in shown)


def test_captures_contain_no_machine_or_time() -> None:
    folder = Path("/tmp/x1y2z3")  # nothing is put there
    said = f"""\x1b[38;2;1;2;3m09:58 on 23 Nov, {folder}/alice/config.toml  │ at zmq+tcp://127.0.0.1:43211
──── Monday 23 November 2026 ────"""
    told = neutral(said, folder)
    assert told.splitlines() == [
        f"\x1b[38;2;1;2;3m14:03 on  5 Mar, {'~/config.toml':31}│ at zmq+tcp://127.0.0.1:44444",
        "───── Thursday 5 March 2026 ─────",
    ]
    assert neutral(told, folder) == told


def test_the_tour_captures_are_complete_and_neutral() -> None:
    names = {f"{columns}x{lines}" for columns, lines in SIZES}
    coloured = {f"{size}-{theme}-{station}" for size in names for theme in THEMES for station in IN_COLOUR}
    assert {path.stem for path in TOUR.iterdir()} == names | coloured
    assert sum(path.stat().st_size for path in TOUR.iterdir()) <= BYTES_MAX
    for path in TOUR.iterdir():
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"(?<![\d:;])\d\d:\d\d", text)) <= {"14:03"}
        assert not re.search(r"/(tmp|home|root|Users|var)/", text)
    for columns, lines in SIZES:
        text = (TOUR / f"{columns}x{lines}.txt").read_text(encoding="utf-8")
        assert re.findall(r"^--- (\w+) ", text, re.MULTILINE) == [*(one.name for one in STATIONS), "plain", "first"]
        assert all(sign in text for sign in ("late", "not downloaded", " new ", "(edited)", "👍 2", "✓2/3"))


def test_a_missing_tmux_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoTmux, match="needs tmux"):
        Screen(tmp_path, ["true"], {}, 80, 24)
