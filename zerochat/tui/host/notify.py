"""Notifications about new messages: bell, desktop, or a command; rate limited by coalescing.

The first notification is sent at once; messages in the following seconds are combined into one per group. Commands
run without a shell and with a timeout; they receive the message as JSON, the desktop receives printable text.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.settings.client_preferences import Preferences
from zerochat.agent.settings.values import Level
from zerochat.rpc import Event, GroupInfo
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.host.programs import run_program
from zerochat.tui.style.text import Names, name_of

COALESCE_S: Final = 3.0
"""Messages within this time after a notification are combined."""
PROGRAM_S_MAX: Final = 10.0
PROGRAMS_MAX: Final = 4
"""Commands running at once; only hanging ones reach this number."""
TEXT_CHARS_MAX: Final = 200
"""Characters of a message in a desktop notification."""
JSON_TEXT_CHARS_MAX: Final = 8_192
MUTE_S_MAX: Final = 30 * 86_400

MARKS: Final[Mapping[Level, str]] = {"none": "∅", "mentions": "@", "all": "*"}
"""Marks in the list of conversations where the level differs from the default."""
_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}
_OSC_9: Final = ("iTerm.app", "WezTerm", "ghostty", "WarpTerminal")
_OSC_777: Final = ("xterm-kitty", "xterm-ghostty", "foot", "rxvt-unicode")
_OSASCRIPT: Final = (
    "osascript",
    *("-e", "on run argv", "-e", "display notification (item 3 of argv) with title (item 2 of argv)", "-e", "end run"),
    "zerochat",  # a peer's text must not be parsed as an option
)


class Notification(Struct, frozen=True):
    """The newest message of one group, and how many are combined."""

    group: str
    name: str
    author: str
    nick: str
    text: str
    mention: bool
    event: str
    sent_at: str
    count: int = 1
    byline: Printable = Printable("")
    """The name as the chat shows it; empty: `nick`."""

    def title(self) -> Printable:
        more = f" ({self.count} new)" if self.count > 1 else ""
        return printable_line(f"{self.byline or name_of(self.nick)} in {name_of(self.name)}{more}")

    def body(self) -> Printable:
        return Printable(printable_line(self.text)[:TEXT_CHARS_MAX])

    def as_json(self, profile: str) -> bytes:
        """One JSON line in ASCII for a command, with the raw text."""
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


class NotificationPolicy:
    """Decides what is notified and when. `emit` sends a notification; `later(seconds, callback)` sets a timer."""

    def __init__(
        self,
        preferences: Callable[[], Preferences],
        tell: Callable[[Notification], None],
        later: Callable[[float, Callable[[], None]], object],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._preferences, self._emit, self._later, self._clock = preferences, tell, later, clock
        self._muted_until: dict[str, float] = {}
        """Monotonic end of a temporary mute, by group id."""
        self._waiting: dict[str, Notification] = {}
        self._cooling_down = False

    def level(self, info: GroupInfo) -> Level:
        until = self._muted_until.get(info.id)
        if until is not None and self._clock() < until:
            return "none"
        self._muted_until.pop(info.id, None)
        return self._preferences().level_of(info.id, info.name)

    def mark(self, info: GroupInfo) -> str:
        """The mark in the list of conversations; empty: the default level."""
        level = self.level(info)
        return MARKS[level] if level != self._preferences().notify else ""

    def mute_for(self, group: str, seconds: float) -> None:
        self._muted_until[group] = self._clock() + seconds

    def unmute(self, group: str) -> None:
        self._muted_until.pop(group, None)

    def add(self, info: GroupInfo, events: Sequence[Event], names: Names | None = None) -> None:
        """Add new events of a group that the user is not looking at."""
        level = self.level(info)
        for event in events:
            mention = info.me in event.mentions
            allowed = level == "all" or (level == "mentions" and mention)
            is_message = event.type == "message" or (event.type == "message_edited" and mention)
            if not is_message or event.self or event.replayed or event.deleted or event.ignored or not allowed:
                continue
            before = self._waiting.get(info.id)
            notification = Notification(
                info.id,
                info.name,
                event.author.did,
                event.author.nick,
                str(event.body.get("text", "")),
                mention,
                str(event.body.get("target", event.id)),
                event.sent_at,
                byline=names.byline(event.author.did) if names is not None else Printable(""),
            )
            if before is not None:
                notification = replace(notification, count=before.count + 1, mention=mention or before.mention)
            self._waiting[info.id] = notification
        if not self._cooling_down:
            self._emit_next()

    def _emit_next(self) -> None:
        """Emit one waiting notification and start the cool-down."""
        self._cooling_down = bool(self._waiting)
        if self._cooling_down:
            self._emit(self._waiting.pop(next(iter(self._waiting))))
            self._later(COALESCE_S, self._emit_next)


# --- delivery -------------------------------------------------------------------------------------------------------


class Notifier:
    """Sends notifications. `write` writes raw sequences to the terminal."""

    def __init__(self, write: Callable[[str], None], complain: Callable[[Printable], None], profile: str = "") -> None:
        self._write, self._report_error, self._profile = write, complain, profile
        self._running = 0
        self._reported: set[str] = set()

    async def notify(self, notification: Notification, preferences: Preferences) -> None:
        """Notify by all methods that the user selected."""
        for way in preferences.notify_how:
            if way == "bell":
                self._write("\a")
            elif way == "desktop":
                await self._show(notification)
            elif preferences.notify_command:
                await self._run(preferences.notify_command, notification.as_json(self._profile), "chat.notify_command")

    async def _show(self, notification: Notification) -> None:
        if (sequence := osc(notification, os.environ)) is not None:
            self._write(sequence)
        elif (words := desktop(notification, sys.platform)) is not None:
            await self._run(words, b"", words[0])
        else:
            self._report_once("No desktop notifications: install notify-send or use a terminal that shows them.")

    async def _run(self, words: Sequence[str], given: bytes, called: str) -> None:
        """Run a command with a timeout."""
        if self._running >= PROGRAMS_MAX:
            self._report_once(f"{called} hangs: {PROGRAMS_MAX} of it are running, so no more are started.")
            return
        self._running += 1
        try:
            if code := await run_program(words, given, PROGRAM_S_MAX):
                self._report_once(f"{called} failed with exit code {code}.")
        except TimeoutError:
            self._report_once(f"{called} took longer than {PROGRAM_S_MAX:.0f} s and was stopped.")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._report_once(f"{called} could not be started: {why.lower()}.")
        finally:
            self._running -= 1

    def _report_once(self, sentence: str) -> None:
        """Report an error once, not for every message."""
        if sentence not in self._reported:
            self._reported.add(sentence)
            self._report_error(printable_line(sentence))


def osc(notification: Notification, environ: Mapping[str, str]) -> str | None:
    """The escape sequence that makes a known terminal show it; also works over SSH. None: unknown terminal."""
    if environ.get("TMUX") or environ.get("STY"):
        return None  # multiplexers do not pass it on
    title, body = (text.replace(";", ",") for text in (notification.title(), notification.body()))
    if environ.get("TERM_PROGRAM") in _OSC_9:
        return f"\x1b]9;{title}: {body}\x07"
    if environ.get("TERM", "").startswith(_OSC_777):
        return f"\x1b]777;notify;{title};{body}\x07"
    return None


def desktop(notification: Notification, platform: str) -> tuple[str, ...] | None:
    """The command that shows it on the desktop; None: none available."""
    if platform == "darwin" and shutil.which("osascript"):
        return (*_OSASCRIPT, notification.title(), notification.body())
    if shutil.which("notify-send"):
        # The body may be read as markup there.
        from html import escape

        return (
            "notify-send",
            "--app-name=zerochat",
            "--",
            notification.title(),
            escape(notification.body(), quote=False),
        )
    return None


# --- durations ------------------------------------------------------------------------------------------------------


def duration_s(text: str) -> int | None:
    """ "30m", "2h" or "1d" in seconds; None: not a duration, or above the maximum."""
    found = re.fullmatch(r"([0-9]{1,5})([mhd])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    return seconds if 0 < seconds <= MUTE_S_MAX else None


def duration_text(seconds: int) -> str:
    unit = next(each for each in ("d", "h", "m") if seconds % _UNITS[each] == 0)
    return f"{seconds // _UNITS[unit]} {unit if unit != 'm' else 'min'}"
