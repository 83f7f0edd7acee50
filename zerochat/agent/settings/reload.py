"""Reloads the settings of a running agent: which apply at once, and which at the next start."""

import logging
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.settings.options import CHECKS, applies_at_once
from zerochat.agent.settings.reader import Settings, load_settings
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.errors import LocalError
from zerochat.presentation.keep_rules import read_keep

if TYPE_CHECKING:
    from zerochat.group.settings import FileRules, Indicators, KeyRotation, MailRules, StorageRules
    from zerochat.group.state import Agent


class Reloaded(Struct, frozen=True):
    """The result of a reload, in names of settings."""

    applied: tuple[str, ...] = ()
    """Changed settings that apply now."""
    at_restart: tuple[str, ...] = ()
    """Changed settings that apply at the next start."""
    warnings: tuple[str, ...] = ()
    """One sentence per unknown name."""
    error: str = ""
    """Why the settings file was not used, as a sentence."""

    def sentences(self) -> list[str]:
        """For the user."""
        if self.error:
            return [f"The settings were not reloaded, and the old ones stay in effect: {self.error}"]
        lines = [*self.warnings]
        if self.applied:
            lines.append(f"Applied: {', '.join(self.applied)}.")
        if self.at_restart:
            lines.append(f"Applies at the next start of the agent: {', '.join(self.at_restart)}.")
        return lines if self.applied or self.at_restart else [*lines, "No setting has changed."]


def read_changes(paths: ProfilePaths, before: Settings, log: logging.Logger) -> tuple[Settings | None, Reloaded]:
    """Read the settings again: the new settings (None where the file cannot be used), and the result."""
    try:
        settings = load_settings(paths)
    except LocalError as error:
        log.error("the settings were not reloaded, and the old ones stay in effect: %s", error.code)
        return None, Reloaded(error=error.sentence())
    result = differences(before, settings)
    log.info("the settings were reloaded: %s", ", ".join(result.applied) or "nothing to apply")
    if result.at_restart:
        log.warning("these settings apply at the next start: %s", ", ".join(result.at_restart))
    return settings, result


def differences(before: Settings, after: Settings) -> Reloaded:
    """The settings that differ, by when they apply."""
    changed = [name for name in CHECKS if _value(before, name) != _value(after, name)]
    return Reloaded(
        tuple(name for name in changed if applies_at_once(name, _value(after, name))),
        tuple(name for name in changed if not applies_at_once(name, _value(after, name))),
        after.warnings,
    )


def _value(settings: Settings, name: str) -> object:
    value: object = getattr(settings, name.partition(".")[2])
    return value


def core_rules(settings: Settings) -> "tuple[FileRules, Indicators, KeyRotation, StorageRules]":
    """The settings that the core uses."""
    from zerochat.group.settings import FileRules, Indicators, KeyRotation, StorageRules

    return (
        FileRules(settings.auto_max << 20, settings.size_max << 20, settings.total_max << 20),
        Indicators(settings.read_receipts, settings.typing),
        KeyRotation(settings.key_messages, settings.key_days, settings.key_removals),
        StorageRules(settings.daily_max << 20),
    )


def mail_rules(settings: Settings) -> "MailRules":
    """What mediators are asked to do with the mail of this profile."""
    from zerochat.group.settings import MailRules

    return MailRules(settings.mail_delay * 1000, settings.mail_delay_random, settings.mail_mix / 100)


def with_core_rules(agent: "Agent", settings: Settings) -> "Agent":
    """The core's state with changed settings. `Started` gives it the same at a start; the next commit writes it."""
    files, indicators, rotation, storage = core_rules(settings)
    return replace(
        agent,
        file_rules=files,
        indicators=indicators,
        key_rotation=rotation,
        storage_rules=storage,
        mail_rules=mail_rules(settings),
        keep_ms=read_keep(settings.keep),
    )
