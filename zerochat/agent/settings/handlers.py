"""The settings at the control socket: what holds and why, and changing it in the settings file.

Every face could read and write the file itself; a program that only has the control protocol cannot. What is said in
the environment of the agent wins here, too, over what the file says.
"""

import os
from typing import ClassVar

from zerochat.agent.settings.config_file import from_environment, variable_of
from zerochat.agent.settings.config_writer import write_setting
from zerochat.agent.settings.options import full_name, shown, typed
from zerochat.agent.settings.reader import FACE
from zerochat.agent.settings.reload import AT_ONCE
from zerochat.agent.storage.paths import Places
from zerochat.errors import LocalError
from zerochat.rpc import SetParams, SettingInfo


class NoSettings(LocalError):
    """This agent has no settings file."""

    exit_code: ClassVar[int] = 6


def settings(places: Places | None) -> list[SettingInfo]:
    """All that holds. Raises NoSettings or BadSettings."""
    if places is None:
        raise NoSettings
    return [SettingInfo(name, value, source) for name, value, source in shown(places, os.environ)]


def change(places: Places | None, params: SetParams) -> SettingInfo:
    """Let a setting be something else. Raises NoSettings, BadSetting or BadSettings, and then nothing has changed."""
    if places is None:
        raise NoSettings
    name = full_name(params.name)
    try:
        write_setting(places, name, None if params.value is None else typed(name, params.value))
    except OSError as error:
        from zerochat.agent.storage.database import fault_of_disk

        raise fault_of_disk(error, places.config) from error
    note = ""
    if name in from_environment(os.environ):
        note = f"{variable_of(name)} says something else"
    elif not name.startswith(FACE) and not holds_at_once(name):
        note = "the agent goes by it from its next start on"
    held = next((one for one in settings(places) if one.name == name), SettingInfo(name, "", "default"))
    return SettingInfo(held.name, held.value, held.source, note)


def holds_at_once(name: str) -> bool:
    """Whether a running agent that reads its settings again goes by this one from then on."""
    return name in AT_ONCE
