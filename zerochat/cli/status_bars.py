"""Unread counts in one line for status bars: waybar (JSON) and tmux."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

import msgspec

from zerochat.cli.formatting import name_of
from zerochat.rpc import GroupInfo, Status

if TYPE_CHECKING:
    from zerochat.agent.settings.client_preferences import Preferences

ICON: Final = "✉"


def unread_groups(status: Status, preferences: "Preferences") -> list[GroupInfo]:
    """The groups with unread messages or mentions, without muted ones."""
    return [
        group
        for group in status.groups
        if (group.unread or group.mentions) and preferences.level_of(group.id, group.name) != "none"
    ]


def counts(unread: int, mentions: int) -> str:
    """As in "14 @2"."""
    return " ".join([str(unread)] * bool(unread) + [f"@{mentions}"] * bool(mentions))


def _totals(groups: Sequence[GroupInfo]) -> str:
    return counts(sum(group.unread for group in groups), sum(group.mentions for group in groups))


def waybar(groups: Sequence[GroupInfo] | None) -> str:
    """A JSON object with text, tooltip and class; Pango reads text and tooltip as markup. None: no agent runs."""
    if groups is None:
        found = {"text": "", "tooltip": "No agent is running.", "class": "offline"}
    elif not groups:
        found = {"text": "", "tooltip": "No unread messages.", "class": "read"}
    else:
        lines = [f"{name_of(group.name)} {counts(group.unread, group.mentions)}" for group in groups]
        kind = "mention" if any(group.mentions for group in groups) else "unread"
        found = {"text": f"{ICON} {_totals(groups)}", "tooltip": escape("\n".join(lines), quote=False), "class": kind}
    return msgspec.json.encode(found).decode()


def tmux(groups: Sequence[GroupInfo] | None) -> str:
    """Counts only: tmux reads `#` in names as commands. Empty where nothing is unread."""
    return f"{ICON} {_totals(groups)}" if groups else ""


BARS: Final[Mapping[str, Callable[[Sequence[GroupInfo] | None], str]]] = {"waybar": waybar, "tmux": tmux}
