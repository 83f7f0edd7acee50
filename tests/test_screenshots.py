"""The pictures that the README shows: that they can be drawn anew, always come out the same, and are there."""

import asyncio
import re
from pathlib import Path

from screenshots import BYTES_MAX, DRAWN, PICTURES, draw

ROOT = Path(__file__).parents[1]


def test_a_picture_comes_out_the_same_each_time(tmp_path: Path) -> None:
    picture = next(one for one in DRAWN if one.name == "delivery")
    first, second = (asyncio.run(draw(picture, tmp_path)) for _ in range(2))
    assert first == second and "Delivered" in first and first.endswith("</svg>\n")
    assert "http://" not in re.sub(r'xmlns="[^"]*"', "", first), "it fetches nothing from anywhere"


def test_all_pictures_are_there_and_small() -> None:
    assert {path.stem for path in PICTURES.glob("*.svg")} == {one.name for one in DRAWN}
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) <= BYTES_MAX


def test_the_readme_shows_pictures_that_there_are() -> None:
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(shown) >= 2 and all((ROOT / path).is_file() for path in shown)
