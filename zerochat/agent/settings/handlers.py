"""Handlers of settings: the effective settings, and changes in the settings file.

The environment of the agent wins over the file here too.
"""

import os
from typing import ClassVar

from zerochat.agent.settings.config_file import from_environment, variable_of
from zerochat.agent.settings.config_writer import write_setting
from zerochat.agent.settings.options import CHAT, applies_at_once, full_name, typed
from zerochat.agent.settings.overview import shown
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.errors import LocalError
from zerochat.rpc import ChangeSettingParams, SettingInfo


class NoSettings(LocalError):
    """This agent has no settings file."""

    exit_code: ClassVar[int] = 6


def settings(places: ProfilePaths | None) -> list[SettingInfo]:
    """All effective settings. Raises NoSettings or BadSettings."""
    if places is None:
        raise NoSettings
    return [SettingInfo(name, value, source) for name, value, source in shown(places, os.environ)]


def change(places: ProfilePaths | None, params: ChangeSettingParams) -> SettingInfo:
    """Change a setting in the file. Raises NoSettings, BadSetting or BadSettings without changing anything."""
    if places is None:
        raise NoSettings
    name = full_name(params.name)
    value = None if params.value is None else typed(name, params.value)
    try:
        write_setting(places, name, value)
    except OSError as error:
        from zerochat.agent.storage.database import disk_error

        raise disk_error(error, places.config) from error
    note = ""
    if name in from_environment(os.environ):
        note = f"the environment variable {variable_of(name)} overrides it"
    elif not name.startswith(CHAT) and not applies_at_once(name, value):
        note = "it applies at the next start of the agent"
    held = next((one for one in settings(places) if one.name == name), SettingInfo(name, "", "default"))
    return SettingInfo(held.name, held.value, held.source, note)
