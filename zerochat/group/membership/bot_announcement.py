"""What a member announces of itself: that it is a bot, and the commands that it listens to.

It is the member's own word and binds nobody: whoever is shown it knows what can be asked, and who may ask that the bot
decides. Only what a member has announced last counts; an empty announcement takes it back.
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
"""Of its body as JSON: every member of a full group may announce as much, and all of it fits a line of the control
protocol."""
NAME_CHARS_MAX, USAGE_CHARS_MAX, HELP_CHARS_MAX = 32, 128, 256

_NAME = re.compile(f"[a-z0-9][a-z0-9_-]{{0,{NAME_CHARS_MAX - 1}}}")
"""What is typed behind a `!`: letters that no other ones look like."""
_ROLE = re.compile("[a-z]{0,16}")
"""A later version may know others."""
_ROLES = ("", READER, WRITER, ADMIN, OWNER)
_CONTROLS = re.compile("[\u0000-\u001f\u007f-\u009f\u2028\u2029\ud800-\udfff]")


class BadAnnouncement(LocalError):
    """This cannot be announced: {why}."""


class BotCommand(Struct, frozen=True):
    """One command of a bot: a message that begins with `!` and this name."""

    name: str
    usage: str = ""
    """What is typed behind the name, as in `ENVIRONMENT [--dry]`."""
    help: str = ""
    """What it does, in one line."""
    role: str = ""
    """What one has to be at least for the bot to listen; empty: a member."""

    def body(self) -> dict[str, str]:
        return {"name": self.name, "usage": self.usage, "help": self.help, "role": self.role}


class Announcement(Struct, frozen=True):
    """Whether its author is a bot, and which commands it listens to."""

    bot: bool = False
    commands: tuple[BotCommand, ...] = ()

    kind = ANNOUNCE

    @property
    def body(self) -> dict[str, Any]:
        return {"bot": self.bot, "commands": [one.body() for one in self.commands]}


def fault_of_announcement(what: Announcement) -> str:
    """What is wrong with an announcement of our own, or nothing."""
    strange = next((one.role for one in what.commands if one.role not in _ROLES), "")
    if strange:
        return f"there is no role called {strange[:16]!a}"
    return _fault(what)


def _fault(what: Announcement) -> str:
    if len(what.commands) > COMMANDS_MAX:
        return f"it has at most {COMMANDS_MAX} commands"
    names: set[str] = set()
    for one in what.commands:
        if not _NAME.fullmatch(one.name):
            return f"a command is called by at most {NAME_CHARS_MAX} of a-z, 0-9, - and _, and not {one.name[:32]!a}"
        if one.name in names:
            return f"there are two commands called {one.name}"
        names.add(one.name)
        for text, most in ((one.usage, USAGE_CHARS_MAX), (one.help, HELP_CHARS_MAX)):
            if len(text) > most or _CONTROLS.search(text):
                return f"the usage and the help of {one.name} are one line each, of at most {most} characters"
    if len(compact_json(what.body)) > ANNOUNCEMENT_BYTES_MAX:
        return f"it has at most {ANNOUNCEMENT_BYTES_MAX} bytes in all"
    return ""


def read_announcement(body: Mapping[str, Any]) -> Announcement:
    """What a member announces. Fields that this version does not know are passed over. Raises Malformed."""
    commands = body.get("commands")
    if not isinstance(commands, list) or len(commands) > COMMANDS_MAX:
        raise Malformed(why="announce: no commands, or too many")
    found = Announcement(body.get("bot") is True, tuple(_commands(commands)))
    if _fault(found) or not all(_ROLE.fullmatch(one.role) for one in found.commands):
        raise Malformed(why="announce: no commands that can be shown")
    return found


def _commands(commands: list[Any]) -> Iterable[BotCommand]:
    for one in commands:
        match one:
            case {"name": str(name), "usage": str(usage), "help": str(what), "role": str(role)}:
                yield BotCommand(name, usage, what, role)
            case _:
                raise Malformed(why="announce: no command")
