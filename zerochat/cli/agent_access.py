"""Access of a verb to the profile's agent: attaches to the running one, or starts a temporary one."""

import os
from typing import TYPE_CHECKING

from zerochat.agent.storage.paths import profile_paths
from zerochat.cli.grammar import Options
from zerochat.cli.output import narrate
from zerochat.cli.prompts import passphrase_file, with_passphrase

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerochat.agent.api.attach import Attached
    from zerochat.agent.storage.paths import ProfilePaths

COMMAND = "cli"
"""The name of a command as a client of the agent."""


def paths_of(options: Options) -> "ProfilePaths":
    return profile_paths(options.profile, os.environ)


def attached(options: Options, name: str = COMMAND, *, prompt: bool = True) -> "Attached":
    """A context manager with a client of the profile's agent. `prompt`: a passphrase may be prompted for."""
    from zerochat.agent.api.attach import attach

    paths = paths_of(options)

    def attempt(source: "Callable[[], bytes] | None") -> "Attached":
        return attach(paths, source, listen=options.listen, advertise=options.advertise, name=name)

    agent = with_passphrase(attempt) if prompt else attempt(passphrase_file())
    if agent.own:
        warn_of_settings(paths)
    return agent


def warn_of_settings(paths: "ProfilePaths") -> None:
    """Print the warnings about the settings file."""
    from zerochat.agent.settings.reader import load_settings

    for warning in load_settings(paths).warnings:
        narrate(f"{paths.config}: {warning}")
