"""The settings of a profile: one file for the agent and all clients."""

from msgspec import Struct


class SettingInfo(Struct, frozen=True):
    """One setting."""

    name: str
    value: str
    """The effective value in TOML; empty: none."""
    source: str
    """`default`, `file`, `profile` (in the file, for this profile), or the name of an environment variable."""
    note: str = ""
    """Why a change has no effect yet; part of a sentence."""


class ChangeSettingParams(Struct, frozen=True):
    """Write a setting to the settings file, where it applies to this profile. `chat.groups.NAME.notify` mutes a
    group."""

    name: str
    value: str | None = None
    """In TOML, or as a user types it; null: remove the setting."""
