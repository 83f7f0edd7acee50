"""Bot announcements: a member declares that it is a bot and which commands it accepts.

An announcement is informative: the bot itself decides which requests it accepts. Only a member's latest announcement
counts; an empty one withdraws it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from zerochat.crypto.encoding import compact_json
from zerochat.errors import LocalError, Malformed
from zerochat.group.event_log.event import ANNOUNCE
from zerochat.group.membership.view import ADMIN, OWNER, READER, WRITER

COMMANDS_MAX = 32
ANNOUNCEMENT_BYTES_MAX = 4 * 1024
"""The body as JSON. The announcements of a full group must fit one line of the control protocol."""
NAME_CHARS_MAX, USAGE_CHARS_MAX, HELP_CHARS_MAX = 32, 128, 256

_NAME = re.compile(f"[a-z0-9][a-z0-9_-]{{0,{NAME_CHARS_MAX - 1}}}")
"""The name after the `!`: unambiguous letters only."""
_ROLE = re.compile("[a-z]{0,16}")
"""A later version may know other roles."""
_ROLES = ("", READER, WRITER, ADMIN, OWNER)
_CONTROLS = re.compile("[\u0000-\u001f\u007f-\u009f\u2028\u2029\ud800-\udfff]")


class BadAnnouncement(LocalError):
    """This announcement is invalid: {why}."""


class BotCommand(Struct, frozen=True):
    """One command of a bot: a message that begins with `!` and this name."""

    name: str
    usage: str = ""
    """The arguments after the name, as in `ENVIRONMENT [--dry]`."""
    help: str = ""
    """What the command does, in one line."""
    role: str = ""
    """The minimum role of the caller; empty: member."""

    def body(self) -> dict[str, str]:
        return {"name": self.name, "usage": self.usage, "help": self.help, "role": self.role}


class Announcement(Struct, frozen=True):
    """Whether the author is a bot, and the commands that it accepts."""

    bot: bool = False
    commands: tuple[BotCommand, ...] = ()

    kind = ANNOUNCE

    @property
    def body(self) -> dict[str, Any]:
        return {"bot": self.bot, "commands": [one.body() for one in self.commands]}


def announcement_error(announcement: Announcement) -> str:
    """The fault of an announcement of our own, or an empty string."""
    strange = next((one.role for one in announcement.commands if one.role not in _ROLES), "")
    if strange:
        return f"there is no role called {strange[:16]!a}"
    return _fault(announcement)


def _fault(announcement: Announcement) -> str:
    if len(announcement.commands) > COMMANDS_MAX:
        return f"a bot has at most {COMMANDS_MAX} commands"
    names: set[str] = set()
    for one in announcement.commands:
        if not _NAME.fullmatch(one.name):
            return f"a command name has at most {NAME_CHARS_MAX} of a-z, 0-9, - and _; not {one.name[:32]!a}"
        if one.name in names:
            return f"there are two commands called {one.name}"
        names.add(one.name)
        for text, most in ((one.usage, USAGE_CHARS_MAX), (one.help, HELP_CHARS_MAX)):
            if len(text) > most or _CONTROLS.search(text):
                return f"the usage and the help of {one.name} are one line each, of at most {most} characters"
    if len(compact_json(announcement.body)) > ANNOUNCEMENT_BYTES_MAX:
        return f"an announcement has at most {ANNOUNCEMENT_BYTES_MAX} bytes"
    return ""


def read_announcement(body: Mapping[str, Any]) -> Announcement:
    """A received announcement. Unknown fields are ignored. Raises Malformed."""
    commands = body.get("commands")
    if not isinstance(commands, list) or len(commands) > COMMANDS_MAX:
        raise Malformed(why="announce: no commands or too many")
    found = Announcement(body.get("bot") is True, tuple(_commands(commands)))
    if _fault(found) or not all(_ROLE.fullmatch(one.role) for one in found.commands):
        raise Malformed(why="announce: commands that cannot be displayed")
    return found


def _commands(commands: list[Any]) -> Iterable[BotCommand]:
    for one in commands:
        match one:
            case {"name": str(name), "usage": str(usage), "help": str(what), "role": str(role)}:
                yield BotCommand(name, usage, what, role)
            case _:
                raise Malformed(why="announce: not a command")
