"""The settings of a profile: one file for the agent and for every face."""

from msgspec import Struct


class SettingInfo(Struct, frozen=True):
    """One setting; answer of `set`, and one of the answer of `settings`."""

    name: str
    value: str
    """What holds, as the settings file would have it; empty: nothing."""
    source: str
    """Where that was said: `default`, `file`, `profile` (in the file, for this profile), or a variable's name."""
    note: str = ""
    """What stands against a change, or when it holds, where that is not at once; part of a sentence."""


class SetParams(Struct, frozen=True):
    """Write a setting into the settings file, where it holds for this profile. `chat.groups.NAME.notify` mutes a group.
    `value`: as the file would have it, or as a person would type it; null: as if nothing had been said."""

    name: str
    value: str | None = None
