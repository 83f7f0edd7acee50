#!/usr/bin/env python3
"""Draw the pictures in assets/screenshots: the chat at three sizes, dark and light, and some of its dialogs.

The content is scripted: a double of the agent (tests/support/fake_agent.py) serves Alice, Bob and Carol with fixed
times and keys, so that a picture changes only if the chat's appearance changes.

    scripts/screenshots.py                  draws all of them
    scripts/screenshots.py invite           draws those with this in their name
    scripts/screenshots.py --tour           screens of real agents in tmux, into assets/tour
    scripts/screenshots.py --tour FOLDER    the same, with every screen in colour too (`cat` shows one)
"""

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
if __name__ == "__main__":
    from bench import enter_environment

    enter_environment()

from msgspec.structs import replace  # noqa: E402

from tests.support.fake_agent import CODE, STAMP, FakeAgent, FakeGroup  # noqa: E402
from tests.support.tui_pilot import Scene  # noqa: E402
from zerochat import rpc  # noqa: E402
from zerochat.errors import LocalError  # noqa: E402
from zerochat.tui.app import ZerochatApp  # noqa: E402
from zerochat.tui.state.preferences import SettingsStore  # noqa: E402

PICTURES = ROOT / "assets" / "screenshots"
TOUR = ROOT / "assets" / "tour"
BYTES_MAX = 400_000
"""Of all pictures together, and of the tour's captures: they are a part of every clone."""
LINK = "https://zerochat.org/?_oob=" + "eyJ0eXBlIjoiaHR0cHM6Ly9kaWRjb21tLm9yZy9vdXQtb2YtYmFuZC8yLjAvaW52aXRhdGlvbiI" * 5
KEYS = {"alice": "did:key:z6MkhTq7RkW9", "bob": "did:key:z6MkvN3fXb4T", "carol": "did:key:z6MkpL8cJd2H"}
SAID = (
    (1, "Morning! Is anybody up for the **ridge** on Saturday?", 1),
    (2, "Yes, if it stays dry. The forecast says so.", 3),
    (0, "It does: https://weather.example/ridge", 4),
    (1, "Then at eight, by the bridge. I bring the map,\nand coffee for three.", 6),
    (2, "Who drives?", 9),
    (0, "I do. Carol, may I pick you up at half past seven?", 11),
    (2, "Perfect, thank you!", 12),
    (1, "See you there. Do not forget the ropes this time.", 15),
    (0, "Packed already.", 16),
)


class Agent(FakeAgent):
    """It knows since when bob has a message, and what carol waits for."""

    def _get_delivery(self, params: rpc.EventParams) -> rpc.DeliveryReport:
        report = super()._get_delivery(params)
        bob, carol = report.members
        bob = replace(bob, state="delivered", at=STAMP.format(minute=16), via="link")
        carol = replace(carol, state="queued", last_seen=STAMP.format(minute=9))
        return replace(report, members=[bob, carol])


def furnish(agent: FakeAgent) -> None:
    """The content of the pictures."""
    hikers = agent.add_group("hikers", ["bob", "carol"])
    hikers.members[:] = [replace(one, did=KEYS[one.nick]) for one in hikers.members]
    hikers.info, first = replace(hikers.info, me=KEYS["alice"]), hikers.events[0]
    hikers.events[0] = replace(first, author=replace(first.author, did=KEYS["alice"]))
    hikers.positions = {KEYS["alice"]: 1}
    for who, text, minute in SAID:
        agent.post(hikers, who, text, minute=minute, delivered=2 if minute < 16 else 1)
    _mark(hikers)
    heard = [
        rpc.MemberReport(did=one.did, nick=one.nick, at=STAMP.format(minute=17), present=True)
        for one in hikers.members[1:]
    ]
    hikers.members[1] = replace(hikers.members[1], trust="verified", verified=True, last_seen=STAMP.format(minute=17))
    hikers.info = replace(
        hikers.info,
        topic="Saturday: the ridge",
        completeness=rpc.Completeness(at=STAMP.format(minute=17), members=heard),
    )
    work = agent.add_group("work", ["bob"])
    agent.post(work, 1, "The build is green again.", minute=5)
    family = agent.add_group("family", ["carol"])
    agent.post(family, 1, "Dinner on Sunday?", minute=7)
    agent.url, agent.code = LINK, CODE


def _mark(group: FakeGroup) -> None:
    """An answer with its question, a reaction, and an edit."""
    posts = [at for at, event in enumerate(group.events) if event.type == "message"]
    asked, answered, last = group.events[posts[5]], posts[6], posts[3]
    quote = rpc.Quote(id=asked.id, author=asked.author, text=str(asked.body["text"]))
    group.events[answered] = replace(group.events[answered], reply_to=asked.id, quoted=quote)
    group.events[last] = replace(
        group.events[last],
        reactions=[rpc.Reaction("☕", [group.members[0].did, group.members[2].did])],
        edited_at=STAMP.format(minute=7),
    )


async def chat(it: Any) -> None:
    """A message arrives in another conversation; no dialog is open."""
    it.agent.say(it.agent.groups["g2"], 1, "Release at noon.", minute=18)
    await it.until(lambda: it.app.chat.status_line.elsewhere)


async def invitation(it: Any) -> None:
    await it.press("f3")
    await it.shows("Not used yet")


async def delivery(it: Any) -> None:
    await it.press("f9")
    await it.shows("Delivered to 1 of 2")


async def search(it: Any) -> None:
    await it.say("/search bridge")
    await it.shows("1 found")


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    size: tuple[int, int]
    show: Callable[[Any], Awaitable[None]]
    theme: str = "dark"


DRAWN = (
    *(
        Picture(f"chat-{columns}x{lines}-{theme}", (columns, lines), chat, theme)
        for columns, lines in ((80, 24), (100, 30), (200, 50))
        for theme in ("dark", "light")
    ),
    Picture("invite", (100, 30), invitation),
    Picture("delivery", (80, 24), delivery),
    Picture("search", (100, 30), search),
)


async def draw(picture: Picture, folder: Path) -> str:
    """One picture, as the SVG that Textual makes of a screen."""
    async with Agent(folder / f"{picture.name}.sock") as agent:
        furnish(agent)
        app = ZerochatApp(agent.path, settings_store=SettingsStore(overrides={"chat.theme": picture.theme}))
        app.animation_level = "none"
        async with app.run_test(size=picture.size) as pilot:
            app.chat.composer.cursor_blink = False
            scene: Any = Scene  # a helper of the tests, without annotations
            it = scene(agent, app, pilot)
            await it.shows("Packed already.")
            await it.until(lambda: app.chat.group_list.highlighted == 0 and app.focused is app.chat.composer)
            await it.until(lambda: app.chat.top_bar.verified)
            await picture.show(it)
            svg = ""
            while svg != (svg := slim(app.export_screenshot(title="zerochat"))):
                await pilot.pause()  # until nothing moves any more
            return svg


def slim(svg: str) -> str:
    """Without fonts from the network, and without metadata that changes nothing visible."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "monospace")
    svg = re.sub(r' clip-path="url\(#[\w-]+-line-\d+\)"', "", svg)
    svg = re.sub(r'<clipPath id="[\w-]+-line-\d+">.*?</clipPath>', "", svg, flags=re.DOTALL)
    svg = re.sub(r"<text [^>]*>\s*</text>", "", svg)
    svg = re.sub(r"terminal-\d+-", "t-", svg).replace("&#160;", "\u00a0")
    svg = re.sub(r"(\d+\.\d{2})\d+", r"\1", svg)
    svg = re.sub(r">\s+<", "><", svg)
    return re.sub(r"\n\s+", "\n", svg).strip() + "\n"


def go_round(folder: str) -> int:
    from screens.tour import write

    try:
        for path in write(Path(folder or TOUR), everything=bool(folder)):
            print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}: {path.stat().st_size:,} bytes")
    except LocalError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def asked_for(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's values: `name`, and `tour`, which is None unless requested."""
    said, _, examples = (__doc__ or "").partition("\n\n    ")
    parser = argparse.ArgumentParser(
        prog="scripts/screenshots.py",
        description=said,
        epilog=f"    {examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", default="", help="draw only those whose name has this in it")
    parser.add_argument(
        "--tour", nargs="?", const="", metavar="FOLDER", help="what real agents show in tmux (FOLDER: all in colour)"
    )
    found = parser.parse_args(words)
    if found.name and not any(found.name in picture.name for picture in DRAWN):
        parser.error(f"there is no picture with {found.name} in its name")
    return found


def main() -> int:
    asked = asked_for()
    if asked.tour is not None:
        return go_round(asked.tour)
    wanted = asked.name
    os.environ["TZ"] = "UTC"
    time.tzset()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for picture in DRAWN:
            if wanted in picture.name:
                svg = asyncio.run(draw(picture, Path(folder)))
                path = PICTURES / f"{picture.name}.svg"
                path.write_text(svg, encoding="utf-8")
                print(f"{path.relative_to(ROOT)}: {len(svg.encode()):,} bytes")
    total = sum(path.stat().st_size for path in PICTURES.glob("*.svg"))
    print(f"together {total:,} bytes")
    return 0 if total <= BYTES_MAX else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
