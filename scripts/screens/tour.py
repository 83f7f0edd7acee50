"""A tour through the chat: real agents, the real program in tmux, each place at three sizes in two themes.

The captures are the screens as they were. Parts that change between runs or reveal the machine (times of day, dates,
ports, folders) are replaced by text of the same width.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from screens.people import GROUP, People
from screens.tmux import Screen

SIZES = ((80, 24), (100, 30), (200, 50))
THEMES = ("dark", "light")

DAY = r"[A-Z][a-z]+day \d{1,2} [A-Z][a-z]+ \d{4}"
DATE = r"(?<![\d;])\d{1,2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b"
ZEROCHAT = (sys.executable, "-P", "-m", "zerochat")
IN_COLOUR = ("chat", "hit")


@dataclass(frozen=True, slots=True)
class Capture:
    """The screen at one station; `coloured`: with escape sequences."""

    station: str
    size: tuple[int, int]
    theme: str
    plain: str
    coloured: str


@dataclass(frozen=True, slots=True)
class Station:
    """One place: the keys to press (`:` text to type, `?` text to wait for), the text to capture, and the way back."""

    name: str
    steps: tuple[str, ...]
    sign: str
    back: tuple[str, ...] = ("Escape",)


STATIONS = (
    Station("chat", (), "Packed already.", ()),
    Station("unread", ("M-u",), "new", ("C-End",)),
    Station("completion", (":/re", "Tab"), "/remove", ("Escape", "C-c")),
    Station("writing", (":First line of a draft", "C-j", ":and a second one 🎉"), "second one", ("C-c",)),
    Station("selected", ("F6", "Up", "Up", "Up"), "▌", ()),
    Station("message", ("i",), "Message info", ("Escape",)),
    Station("reaction", ("+",), "React with", ("Escape", "Escape")),
    Station("delivery", ("F9",), "Delivered to"),
    Station("offered", (":/files", "Enter"), "the ridge from above"),
    Station("who", ("F2",), "(you)", ("F2",)),
    Station("search", (":/search bridge", "Enter"), "found", ()),
    Station("hit", ("Enter",), "A message is selected", ("Escape", "C-End")),
    Station("invite", ("F3",), "Invitation to"),
    Station("verify", (":/verify bob", "Enter"), "admitted by"),
    Station("settings", (":/set", "Enter"), "theme"),
    Station("help", ("F1",), "Help"),
    Station("palette", ("C-p",), "Search"),
    Station("switcher", ("C-k",), "Go to"),
    Station("new", ("F7", "?Name of the new group", ":climbers", "F7"), "joining", ("Escape",)),
    Station("status", ("F12",), "queue address"),
)
"""In this order, in one conversation that is never left, so that its unread line stays."""


def neutral(text: str, folder: Path) -> str:
    """Without the hour, the day, the ports, and the homes in `folder`, in the same number of cells."""
    text = re.sub(r"(?<![\d:;])\d\d:\d\d(:\d\d)?(?!\d)", lambda found: "14:03:00"[: len(found[0])], text)
    text = re.sub(DATE, lambda found: "5 Mar".rjust(len(found[0])), text)
    text = re.sub(rf"─+ {DAY} ─+", lambda found: " Thursday 5 March 2026 ".center(len(found[0]), "─"), text)
    text = re.sub(r"(?<!\w)1[78]\d{11}(?!\w)", "1772719380000", text)
    text = re.sub(rf"{re.escape(str(folder))}/\w+(\S*) *", lambda found: f"~{found[1]}".ljust(len(found[0])), text)
    text = re.sub(r"(process )(\d+)", lambda found: found[1] + "4" * len(found[2]), text)
    return re.sub(r"(127\.0\.0\.1:)(\d+)", lambda found: found[1] + "4" * len(found[2]), text)


def write(folder: Path, *, everything: bool) -> list[Path]:
    """Run the tour; returns the files written. One with all screens for each size, and some in colour, or
    `everything`."""
    texts: dict[str, list[str]] = {}
    written = []
    with tempfile.TemporaryDirectory() as temporary:
        for one in tour(Path(temporary), everything=everything):
            size = f"{one.size[0]}x{one.size[1]}"
            if one.theme == THEMES[0]:
                texts.setdefault(size, []).append(f"--- {one.station} " + "-" * 40 + f"\n\n{one.plain.rstrip()}\n")
            if everything or one.station in IN_COLOUR:
                path = folder / f"{size}-{one.theme}-{one.station}.ansi"
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(one.coloured, encoding="utf-8")
                written.append(path)
    for size, pieces in texts.items():
        path = folder / f"{size}.txt"
        path.write_text("\n".join(pieces), encoding="utf-8")
        written.append(path)
    return written


def tour(folder: Path, *, everything: bool) -> Iterator[Capture]:
    """`folder`: a temporary one. `everything`: all stations in the second theme too."""
    with People(folder) as people:
        yield from _chat(people, folder, everything)
        for size in SIZES:
            for name, home, words, sign in (
                ("plain", people.alice.home, ["--profile", "alice", "chat", "--plain", GROUP], "Packed already."),
                ("first", folder / "newcomer", ["--profile", "newcomer"], "Welcome"),
            ):
                with Screen(folder, [*ZEROCHAT, *words], _environment(home), *size) as screen:
                    screen.shows(sign)
                    yield _capture(screen, name, size, THEMES[0])


def _environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "ZEROCHAT_HOME": str(home),
        "ZEROCHAT_CHAT__TOUR": "false",
        "COLORTERM": "truecolor",
        "TZ": "UTC",
        "TEXTUAL_ANIMATIONS": "none",
    }


def _capture(screen: Screen, station: str, size: tuple[int, int], theme: str) -> Capture:
    plain, coloured = (neutral(screen.text(colours=each), screen.folder) for each in (False, True))
    return Capture(station, size, theme, plain, coloured)


def _chat(people: People, folder: Path, everything: bool) -> Iterator[Capture]:
    command = [*ZEROCHAT, "--profile", "alice", "chat", "work"]
    with Screen(folder, command, _environment(people.alice.home), *SIZES[0]) as screen:
        screen.shows("The build is green")
        screen.type("/read all")
        screen.press("Enter")
        screen.gone("unread elsewhere")
        people.say(people.bob, "Carol, is there room for the big rucksack?")
        people.say(people.carol, "For two of them.")
        screen.shows("2 unread elsewhere")
        screen.press("C-k")
        screen.shows("Go to")
        screen.type(GROUP)
        screen.shows("2 hikers")
        screen.press("Enter")
        for theme in THEMES:
            all_of_them = everything or theme == THEMES[0]
            screen.shows("Packed already.")
            screen.type(f"/set theme {theme}")
            screen.press("Enter")
            for size in SIZES:
                screen.resize(*size)
                screen.shows("^Q quit", columns=size[0])
                for station in [each for each in STATIONS if all_of_them or each.name in (*IN_COLOUR, "search")]:
                    for step in station.steps:
                        if step.startswith(":"):
                            screen.shows()
                            screen.type(step[1:])
                        elif step.startswith("?"):
                            screen.shows(step[1:])
                        else:
                            screen.press(step)
                    screen.shows(station.sign)
                    yield _capture(screen, station.name, size, theme)
                    screen.press(*station.back)
