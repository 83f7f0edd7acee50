"""Verbs completion and __complete: shell completion scripts, and the names that they request.

The scripts call `zerochat __complete` for groups, files and profiles. It prints nothing if no agent answers at once,
starts none, and never prompts. Names chosen by other members are completed only if a terminal shows them unchanged and
a shell takes them for nothing but a name.
"""

import argparse
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zerochat.cli.agent_access import paths_of
from zerochat.cli.command_tree import command_tree
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output
from zerochat.cli.parser import grammar
from zerochat.cli.shells import SHELLS, script
from zerochat.errors import LocalError, unique_prefixes
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client
    from zerochat.rpc import GroupInfo

CANDIDATES = ("groups", "members", "connections", "profiles", "sent-files", "bots")


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "completion",
        "print a shell completion script",
        "Print a script that completes commands, options and their values, profiles, and the groups and files of a\n"
        "running agent (it never starts one and never prompts for a passphrase).",
        """
zerochat completion bash >~/.local/share/bash-completion/completions/zerochat
zerochat completion zsh >~/.zfunc/_zerochat
zerochat completion fish >~/.config/fish/completions/zerochat.fish
""",
        run=completion,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell")
    # Only for the scripts: without `help`, the verb is not listed.
    parser = verbs.add_parser("__complete", add_help=False, allow_abbrev=False)
    parser.set_defaults(run=complete)
    parser.add_argument("--profile", default=argparse.SUPPRESS)
    parser.add_argument("candidates", choices=CANDIDATES)
    parser.add_argument("group", nargs="?", default="")


ANSWER_S_MAX: Final = 1.0
"""Time limit for a completion."""


def completion(options: Options, out: Output) -> ExitCode:
    out.exactly(script(options.shell, command_tree(grammar()), "zerochat").rstrip("\n"))
    return ExitCode.OK


def complete(options: Options, out: Output) -> ExitCode:
    """Print the candidates, one per line; none if that takes too long."""
    with suppress(LocalError, OSError):
        names = _profiles(options) if options.candidates == "profiles" else _agent_names(options)
        for name in sorted(set(names)):
            if name and name == printable_line(name) and not name.startswith("-"):  # not an option
                out.exactly(name)
    return ExitCode.OK


def _agent_names(options: Options) -> list[str]:
    from zerochat.agent.api.client import Client

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S_MAX)
        connection.connect(os.fspath(paths_of(options).socket))
        client = Client(connection)
        if options.candidates == "sent-files":
            return [
                one.file.name for one in client.call("list_files", within_s=ANSWER_S_MAX, group=options.group).files
            ]
        if options.candidates == "bots":
            return [one.consumer for one in client.call("list_consumers", within_s=ANSWER_S_MAX)]
        if options.candidates == "connections":
            return [one.label for one in client.call("list_connections", within_s=ANSWER_S_MAX)]
        groups = client.call("list_groups", within_s=ANSWER_S_MAX)
        if options.candidates == "members":
            return _members(client, groups, options.group)
        return _unambiguous({group.id: group.name for group in groups if group.state != "left"})


def _members(client: "Client", groups: "list[GroupInfo]", wanted: str) -> list[str]:
    """The names of the other members of a group; without one, of all groups."""
    here = [one.id for one in groups if one.state == "active" and wanted in ("", one.name, one.id)]
    members = [each for group in here for each in client.list_members(group, within_s=ANSWER_S_MAX)]
    return [one.nick for one in members if one.connection != "self"]


def _unambiguous(groups: dict[str, str]) -> list[str]:
    """The names of groups; for groups that share a name, prefixes of their ids."""
    names = list(groups.values())
    shared = [group for group, name in groups.items() if names.count(name) > 1]
    return [*(name for name in names if names.count(name) == 1), *unique_prefixes(shared)]


def _profiles(options: Options) -> list[str]:
    from zerochat.agent.storage.paths import PROFILE

    folder: Path = paths_of(options).data.parent
    return [one.name for one in folder.iterdir() if one.is_dir() and PROFILE.fullmatch(one.name)]
