"""Tells somebody who is not looking that there is something to read: a bell, the desktop, a program of their own.

The first notice goes out at once; what comes in the seconds after it is told together, so a flood rings no thousand
bells and starts no thousand programs. Programs are started from a list of words, never through a shell, and have a
few seconds; what others have written reaches them as JSON, and the desktop made printable.
"""

import asyncio
import contextlib
import os
import re
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.settings.client_preferences import Level, Preferences
from zerochat.rpc import Event, GroupInfo
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.host.programs import end
from zerochat.tui.style.text import name_of

TOGETHER_S: Final = 3.0
"""What comes within so long after a notice is told in one with what follows."""
PROGRAM_S_MAX: Final = 10.0
PROGRAMS_MAX: Final = 4
"""At once: with TOGETHER_S between them only those that hang become so many."""
TEXT_CHARS_MAX: Final = 200
"""Of a message on the desktop; a program gets four times as much as a screen holds."""
JSON_TEXT_CHARS_MAX: Final = 8_192
MUTE_S_MAX: Final = 30 * 86_400

MARKS: Final[Mapping[Level, str]] = {"none": "∅", "mentions": "@", "all": "*"}
"""In the list of conversations, where one differs from what holds elsewhere."""
_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}
_OSC_9: Final = ("iTerm.app", "WezTerm", "ghostty", "WarpTerminal")
_OSC_777: Final = ("xterm-kitty", "xterm-ghostty", "foot", "rxvt-unicode")
_OSASCRIPT: Final = (
    "osascript",
    *("-e", "on run argv", "-e", "display notification (item 3 of argv) with title (item 2 of argv)", "-e", "end run"),
    "zerochat",  # so that nothing of a peer's is taken for an option
)


class Tidings(Struct, frozen=True):
    """What somebody should hear of: the newest message of one group, and how many there are."""

    group: str
    name: str
    author: str
    nick: str
    text: str
    mention: bool
    event: str
    sent_at: str
    count: int = 1

    def title(self) -> Printable:
        more = f" ({self.count} new)" if self.count > 1 else ""
        return printable_line(f"{name_of(self.nick)} in {name_of(self.name)}{more}")

    def body(self) -> Printable:
        return Printable(printable_line(self.text)[:TEXT_CHARS_MAX])

    def as_json(self, profile: str) -> bytes:
        """One line for a program, the text as it was written, in ASCII."""
        about = {
            "v": 1,
            "type": "notification",
            "profile": profile,
            "group": self.group,
            "group_name": self.name,
            "author": {"did": self.author, "nick": self.nick},
            "id": self.event,
            "sent_at": self.sent_at,
            "text": self.text[:JSON_TEXT_CHARS_MAX],
            "mention": self.mention,
            "count": self.count,
        }
        import json

        return json.dumps(about, ensure_ascii=True).encode() + b"\n"


class Herald:
    """Decides what is told, and when. `tell` does it; `later(seconds, work)` comes back for what has to wait."""

    def __init__(
        self,
        preferences: Callable[[], Preferences],
        tell: Callable[[Tidings], None],
        later: Callable[[float, Callable[[], None]], object],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._preferences, self._tell, self._later, self._clock = preferences, tell, later, clock
        self._until: dict[str, float] = {}
        """Until when a group is told nothing of, by its id."""
        self._waiting: dict[str, Tidings] = {}
        self._resting = False

    def level(self, info: GroupInfo) -> Level:
        until = self._until.get(info.id)
        if until is not None and self._clock() < until:
            return "none"
        self._until.pop(info.id, None)
        return self._preferences().level_of(info.id, info.name)

    def mark(self, info: GroupInfo) -> str:
        """What the list of conversations shows of it; empty: what holds everywhere."""
        level = self.level(info)
        return MARKS[level] if level != self._preferences().notify else ""

    def mute_for(self, group: str, seconds: float) -> None:
        self._until[group] = self._clock() + seconds

    def unmute(self, group: str) -> None:
        self._until.pop(group, None)

    def hear(self, info: GroupInfo, events: Sequence[Event]) -> None:
        """These have come into a group that nobody is looking at."""
        level = self.level(info)
        for event in events:
            mention = info.me in event.mentions
            told = level == "all" or (level == "mentions" and mention)
            said = event.type == "message" or (event.type == "message_edited" and mention)
            if not said or event.self or event.replayed or event.deleted or not told:
                continue
            before = self._waiting.get(info.id)
            tidings = Tidings(
                info.id,
                info.name,
                event.author.did,
                event.author.nick,
                str(event.body.get("text", "")),
                mention,
                str(event.body.get("of", event.id)),
                event.sent_at,
            )
            if before is not None:
                tidings = replace(tidings, count=before.count + 1, mention=mention or before.mention)
            self._waiting[info.id] = tidings
        if not self._resting:
            self._go()

    def _go(self) -> None:
        """Tell one of those that wait, and rest."""
        self._resting = bool(self._waiting)
        if self._resting:
            self._tell(self._waiting.pop(next(iter(self._waiting))))
            self._later(TOGETHER_S, self._go)


# --- how it is told -------------------------------------------------------------------------------------------------


class Crier:
    """Rings, shows, starts. `write` sends to the terminal what is no part of the picture."""

    def __init__(self, write: Callable[[str], None], complain: Callable[[Printable], None], profile: str = "") -> None:
        self._write, self._complain, self._profile = write, complain, profile
        self._running = 0
        self._complained: set[str] = set()

    async def tell(self, tidings: Tidings, preferences: Preferences) -> None:
        """In every way that the person has chosen."""
        for way in preferences.notify_how:
            if way == "bell":
                self._write("\a")
            elif way == "desktop":
                await self._show(tidings)
            elif preferences.notify_command:
                await self._run(preferences.notify_command, tidings.as_json(self._profile), "chat.notify_command")

    async def _show(self, tidings: Tidings) -> None:
        if (sequence := osc(tidings, os.environ)) is not None:
            self._write(sequence)
        elif (words := desktop(tidings, sys.platform)) is not None:
            await self._run(words, b"", words[0])
        else:
            self._once("Nothing here can show a notification: neither notify-send nor a terminal that does.")

    async def _run(self, words: Sequence[str], given: bytes, called: str) -> None:
        """Start a program, and end it when it takes too long."""
        if self._running >= PROGRAMS_MAX:
            self._once(f"{called} does not end; it is not started while {PROGRAMS_MAX} of it run.")
            return
        self._running += 1
        try:
            program = await asyncio.create_subprocess_exec(
                *words, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
            )
            try:
                async with asyncio.timeout(PROGRAM_S_MAX):
                    with contextlib.suppress(ConnectionError):
                        await program.communicate(given)
            finally:
                await end(program)
            if program.returncode:
                self._once(f"{called} has ended with {program.returncode}.")
        except TimeoutError:
            self._once(f"{called} did not end within {PROGRAM_S_MAX:.0f} s and was ended.")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._once(f"{called} cannot be started: {why.lower()}.")
        finally:
            self._running -= 1

    def _once(self, sentence: str) -> None:
        """Say what does not work, and not with every message again."""
        if sentence not in self._complained:
            self._complained.add(sentence)
            self._complain(printable_line(sentence))


def osc(tidings: Tidings, environ: Mapping[str, str]) -> str | None:
    """What has a terminal show it, where one is known to; far from the desktop that is the only way."""
    if environ.get("TMUX") or environ.get("STY"):
        return None  # which would not pass it on
    title, body = (text.replace(";", ",") for text in (tidings.title(), tidings.body()))
    if environ.get("TERM_PROGRAM") in _OSC_9:
        return f"\x1b]9;{title}: {body}\x07"
    if environ.get("TERM", "").startswith(_OSC_777):
        return f"\x1b]777;notify;{title};{body}\x07"
    return None


def desktop(tidings: Tidings, platform: str) -> tuple[str, ...] | None:
    """The program that has the desktop show it, and its words."""
    if platform == "darwin" and shutil.which("osascript"):
        return (*_OSASCRIPT, tidings.title(), tidings.body())
    if shutil.which("notify-send"):
        # The body may be read as markup there.
        from html import escape

        return ("notify-send", "--app-name=zerochat", "--", tidings.title(), escape(tidings.body(), quote=False))
    return None


# --- how long -------------------------------------------------------------------------------------------------------


def duration_s(text: str) -> int | None:
    """ "30m", "2h" or "1d" in seconds; None: it is none, or too much."""
    found = re.fullmatch(r"([0-9]{1,5})([mhd])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    return seconds if 0 < seconds <= MUTE_S_MAX else None


def duration_text(seconds: int) -> str:
    unit = next(each for each in ("d", "h", "m") if seconds % _UNITS[each] == 0)
    return f"{seconds // _UNITS[unit]} {unit if unit != 'm' else 'min'}"
