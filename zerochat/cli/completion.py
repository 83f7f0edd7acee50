"""The verbs completion and __complete: scripts for shells, and the names that they ask for.

For groups, their files and profiles such a script asks `zerochat __complete`, which says nothing where no agent answers
at once, starts none, and never asks for a passphrase. What others have named a group or a file is completed only where
the terminal can show it as it is, and is taken by no shell for anything but a name.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from zerochat.cli.agents import places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.outline import outline
from zerochat.cli.output import Output
from zerochat.cli.parser import Options, grammar
from zerochat.cli.shells import script
from zerochat.errors import LocalError, beginnings
from zerochat.terminal_text import printable_line

ANSWER_S_MAX: Final = 1.0
"""Nobody waits longer for a Tab key."""


def completion(options: Options, out: Output) -> ExitCode:
    out.exactly(script(options.shell, outline(grammar()), "zerochat").rstrip("\n"))
    return ExitCode.OK


# --- what there is now ----------------------------------------------------------------------------------------------


def complete(options: Options, out: Output) -> ExitCode:
    """Names, one a line; none where that would take long."""
    with suppress(LocalError, OSError):
        names = _profiles(options) if options.what == "profiles" else _of_the_agent(options)
        for name in sorted(set(names)):
            if name and name == printable_line(name) and not name.startswith("-"):  # else it would be an option
                out.exactly(name)
    return ExitCode.OK


def _of_the_agent(options: Options) -> list[str]:
    from zerochat.agent.api.client import Client

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(ANSWER_S_MAX)
        line.connect(os.fspath(places_of(options).socket))
        client = Client(line)
        if options.what == "posted":
            return [one.file.name for one in client.call("files", within_s=ANSWER_S_MAX, group=options.group).files]
        groups = client.call("groups", within_s=ANSWER_S_MAX)
        return _told_apart({group.id: group.name for group in groups if group.state != "left"})


def _told_apart(groups: dict[str, str]) -> list[str]:
    """What groups are asked for by: their names, and where several have one name, the first letters of their ids."""
    names = list(groups.values())
    shared = [group for group, name in groups.items() if names.count(name) > 1]
    return [*(name for name in names if names.count(name) == 1), *beginnings(shared)]


def _profiles(options: Options) -> list[str]:
    from zerochat.agent.storage.paths import PROFILE

    folder: Path = places_of(options).data.parent
    return [one.name for one in folder.iterdir() if one.is_dir() and PROFILE.fullmatch(one.name)]
