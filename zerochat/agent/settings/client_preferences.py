"""The settings that clients use: `[chat]` in the settings file. An invalid value is a warning, not an error."""

import os
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.agent.settings import values
from zerochat.agent.settings.config_file import BadSettings, read_config
from zerochat.agent.settings.options import (
    CHAT,
    CHAT_CHECKS,
    KEYS,
    group_of,
    is_empty_table,
    is_group_setting,
)
from zerochat.agent.settings.values import Level, Trigger, Way, checked, unknown_setting, with_full_stop
from zerochat.agent.storage.paths import ProfilePaths

KEYS_MAX: Final = 256
GROUPS_MAX: Final = 1_024


class Preferences(Struct, frozen=True):
    """`options.py` has the meanings."""

    theme: str = "dark"
    keymap: str = "default"
    letters: str = "type"
    markdown: bool = True
    folded: bool = True
    mouse: bool = True
    time_format: str = "%H:%M"
    nick_width: int = 0
    sidebar: bool = True
    sidebar_width: int = 0
    read_trigger: Trigger = "focused"
    notify: Level = "mentions"
    notify_how: tuple[Way, ...] = ("bell",)
    notify_command: tuple[str, ...] = ()
    tour: bool = True
    keys: Mapping[str, str] = field(default_factory=dict)
    """`[chat.keys]`: the keys of an action, separated by commas, by its id."""
    groups: Mapping[str, Level] = field(default_factory=dict)
    """`[chat.groups.NAME]`: the level of a group, by its name or id."""
    warnings: tuple[str, ...] = ()

    def level_of(self, id: str, name: str) -> Level:
        """The notification level of a group."""
        return self.groups.get(id) or self.groups.get(name) or self.notify


def load_preferences(
    paths: ProfilePaths, environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> Preferences:
    """The preferences. `overrides` (the command line) win over `environ` (None: the process's), which wins over the
    file. Each invalid value is a sentence in `warnings`."""
    try:
        found = read_config(paths, os.environ if environ is None else environ)
    except BadSettings as error:
        return replace(preferences(overrides or {}), warnings=(error.sentence(),))
    return preferences(found | dict(overrides or {}))


def preferences(found: Mapping[str, object]) -> Preferences:
    """The preferences among settings by their dotted names."""
    valid: dict[str, Any] = {}
    keys: dict[str, str] = {}
    groups: dict[str, Level] = {}
    warnings = []
    for name, value in found.items():
        try:
            if name in CHAT_CHECKS:
                valid[name.removeprefix(CHAT)] = checked(name, CHAT_CHECKS[name], value)
            elif name.startswith(KEYS):
                keys[name.removeprefix(KEYS)] = checked(name, values.keys, value)
            elif is_group_setting(name):
                groups[group_of(name)] = checked(name, values.level, value)
            elif name.startswith(CHAT) and not is_empty_table(name, value):
                warnings.append(unknown_setting(name, CHAT_CHECKS))
        except ValueError as error:
            warnings.append(with_full_stop(str(error)))
    if len(keys) > KEYS_MAX or len(groups) > GROUPS_MAX:
        warnings.append(f"There are more than {KEYS_MAX} keys or {GROUPS_MAX} groups; all of them are ignored.")
        keys, groups = {}, {}
    made = Preferences(**valid, keys=keys, groups=groups)
    return replace(made, warnings=(*warnings, *contradictions(made)))


def contradictions(made: Preferences) -> list[str]:
    """Sentences about settings that are valid, but not together."""
    lacks_command = "command" in made.notify_how and not made.notify_command
    return ["chat.notify_how is command, but chat.notify_command is not set."] if lacks_command else []
