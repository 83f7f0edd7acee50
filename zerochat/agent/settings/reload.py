"""Which settings a running agent takes over when it reads them again, and which wait for its next start."""

from typing import Final

from msgspec import Struct

from zerochat.agent.settings.reader import CHECKS, Settings

AT_ONCE: Final = frozenset(
    {
        *("agent.log_level", "agent.drain"),
        *("hooks.on_message", "hooks.on_mention", "hooks.timeout"),
        *("telemetry.allowed", "telemetry.megabytes", "telemetry.days"),
        *("files.auto_max", "files.size_max", "files.total_max"),
        *("share.read_receipts", "share.typing"),
        *("signing.key_messages", "signing.key_days", "signing.key_removals"),
    }
)
"""All others are about sockets that are open and addresses that were told, or belong to whoever started the agent."""


class Reloaded(Struct, frozen=True):
    """What has come of it, in names of settings."""

    taken: tuple[str, ...] = ()
    """These hold from now on."""
    waiting: tuple[str, ...] = ()
    """These are other than they were, and hold from the next start on."""
    warnings: tuple[str, ...] = ()
    """One sentence for each name that means nothing."""
    fault: str = ""
    """Why nothing was taken over, in a sentence; empty: it was."""

    def sentences(self) -> list[str]:
        """For a person."""
        if self.fault:
            return [f"The settings were not taken over, and the old ones hold: {self.fault}"]
        said = [*self.warnings]
        if self.taken:
            said.append(f"Taken over: {', '.join(self.taken)}.")
        if self.waiting:
            said.append(f"From the next start of the agent on: {', '.join(self.waiting)}.")
        return said if self.taken or self.waiting else [*said, "No setting has changed."]


def differences(before: Settings, after: Settings) -> Reloaded:
    """What is another in `after`, by what can be done about it now."""
    changed = [name for name in CHECKS if _of(before, name) != _of(after, name)]
    return Reloaded(
        tuple(name for name in changed if name in AT_ONCE),
        tuple(name for name in changed if name not in AT_ONCE),
        after.warnings,
    )


def _of(settings: Settings, name: str) -> object:
    value: object = getattr(settings, name.partition(".")[2])
    return value
