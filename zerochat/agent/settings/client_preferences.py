"""What a person may choose of how a face looks and behaves: `[chat]` in the settings file.

The agent does nothing with it; it is here because every face may read it, and no face may look into another. A wrong
value costs nobody the chat: it is told, and the usual one holds.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.agent.settings.config_file import BadSettings, read_config
from zerochat.agent.settings.reader import FACE, checked, stopped, unknown
from zerochat.agent.storage.paths import Places

Level: TypeAlias = Literal["none", "mentions", "all"]
"""About what a person wants to be told who does not look: nothing, what calls them by name, everything."""
Way: TypeAlias = Literal["bell", "desktop", "command"]
Trigger: TypeAlias = Literal["focused", "visible", "sent"]
"""When what arrives in the open conversation counts as read: while the window has the focus, always, or not before
something was said there."""

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
WAYS: Final[tuple[Way, ...]] = get_args(Way)
TRIGGERS: Final[tuple[Trigger, ...]] = get_args(Trigger)
KEYMAPS: Final = ("default", "vim", "emacs")
OWN_THEMES: Final = ("dark", "light", "contrast", "ansi")
TEXTUAL_THEMES: Final = (
    *("textual-dark", "textual-light", "nord", "gruvbox", "catppuccin-mocha", "dracula", "tokyo-night", "monokai"),
    *("flexoki", "catppuccin-latte", "catppuccin-frappe", "catppuccin-macchiato", "solarized-light"),
    *("solarized-dark", "rose-pine", "rose-pine-moon", "rose-pine-dawn", "atom-one-dark", "atom-one-light"),
    *("ansi-dark", "ansi-light"),
)
"""Those that come with the toolkit of the terminal application, which this room does not import."""
THEMES: Final = (*OWN_THEMES, *TEXTUAL_THEMES)

KEYS: Final = "chat.keys."
GROUPS: Final = "chat.groups."
COMMAND_WORDS_MAX: Final = 64
KEYS_MAX: Final = 256
GROUPS_MAX: Final = 1_024
NAME_CHARS_MAX: Final = 256
CHOICES_FEW: Final = 5
"""So many are all said, where one of them is wanted."""


class Preferences(Struct, frozen=True):
    theme: str = "dark"
    keymap: str = "default"
    markdown: bool = True
    folded: bool = True
    """Whether joins, leaves and new names that follow each other stand in one line."""
    mouse: bool = True
    read_trigger: Trigger = "focused"
    notify: Level = "mentions"
    notify_how: tuple[Way, ...] = ("bell",)
    notify_command: tuple[str, ...] = ()
    """The program and its arguments, started as they stand, never through a shell."""
    tour: bool = True
    """Whether the first start of a profile shows what is where."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """`[chat.keys]`: by the id of an action, its keys with commas between them."""
    groups: Mapping[str, Level] = field(default_factory=dict)
    """`[chat.groups.NAME]`: what else than `notify` holds in one group, by its name or its id."""
    warnings: tuple[str, ...] = ()

    def level_of(self, id: str, name: str) -> Level:
        """What holds in one group."""
        return self.groups.get(id) or self.groups.get(name) or self.notify


def load_preferences(
    places: Places, environ: Mapping[str, str] | None = None, said: Mapping[str, object] | None = None
) -> Preferences:
    """What is said for the faces; `said` by the command line, which wins over the environment (None: the process's
    own) and the file. Whatever cannot be used is a sentence in `warnings`."""
    try:
        found = read_config(places, os.environ if environ is None else environ)
    except BadSettings as error:
        return replace(preferences(said or {}), warnings=(error.sentence(),))
    return preferences(found | dict(said or {}))


def preferences(found: Mapping[str, object]) -> Preferences:
    """The preferences among flat settings."""
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    groups: dict[str, Level] = {}
    warnings = []
    for name, value in found.items():
        try:
            if name in FACE_CHECKS:
                values[name.removeprefix(FACE)] = checked(name, FACE_CHECKS[name], value)
            elif name.startswith(KEYS):
                keys[name.removeprefix(KEYS)] = checked(name, keys_of, value)
            elif is_group(name):
                groups[group_of(name)] = checked(name, level_of, value)
            elif name.startswith(FACE) and not is_empty(name, value):
                warnings.append(unknown(name, FACE_CHECKS))
        except ValueError as error:
            warnings.append(stopped(str(error)))
    if len(keys) > KEYS_MAX or len(groups) > GROUPS_MAX:
        warnings.append(f"There are more than {KEYS_MAX} keys or {GROUPS_MAX} groups; none of them count.")
        keys, groups = {}, {}
    if "command" in values.get("notify_how", ()) and not values.get("notify_command"):
        warnings.append("chat.notify_how says command, and chat.notify_command does not say which.")
    return Preferences(**values, keys=keys, groups=groups, warnings=tuple(warnings))


def is_group(name: str) -> bool:
    """Whether it is the name of what holds in one group."""
    return name.startswith(GROUPS) and name.endswith(".notify") and bool(group_of(name))


def group_of(name: str) -> str:
    """The group in chat.groups.GROUP.notify."""
    return name.removeprefix(GROUPS).removesuffix("notify").removesuffix(".")


def is_empty(name: str, value: object) -> bool:
    """Whether it is a table of ours without anything in it, which says nothing."""
    return value == {} and (f"{name}." == KEYS or f"{name}.".startswith(GROUPS))


# --- values ---------------------------------------------------------------------------------------------------------


def _one_of(value: object, choices: Sequence[str]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    many = isinstance(value, str) and len(choices) > CHOICES_FEW
    from difflib import get_close_matches

    nearest = get_close_matches(str(value), choices, n=1) if many else []
    if nearest:
        raise ValueError(f"did you mean {nearest[0]}?")
    raise ValueError(f"it must be {', '.join(choices[:-1])} or {choices[-1]}")


def theme_of(value: object) -> str:
    return _one_of(value, THEMES)


def keymap_of(value: object) -> str:
    return _one_of(value, KEYMAPS)


def trigger_of(value: object) -> Trigger:
    return cast(Trigger, _one_of(value, TRIGGERS))


def level_of(value: object) -> Level:
    return cast(Level, _one_of(value, LEVELS))


def flag_of(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is neither true nor false")
    return value


def ways_of(value: object) -> tuple[Way, ...]:
    """One way, several with commas between them, or a list of them."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts:
        raise ValueError("it must be bell, desktop or command, or several of them")
    return tuple(dict.fromkeys(cast(Way, _one_of(part, WAYS)) for part in parts))


def command_of(value: object) -> tuple[str, ...]:
    listed = isinstance(value, list) and all(isinstance(word, str) and "\0" not in word for word in value)
    if not listed:
        raise ValueError('it must be a list of words, such as ["notify-send", "zerochat"]; no shell reads it')
    words = cast(list[str], value)
    if len(words) > COMMAND_WORDS_MAX or (words and not words[0]):
        raise ValueError(f"it must begin with a program and have at most {COMMAND_WORDS_MAX} words")
    return tuple(words)


def keys_of(value: object) -> str:
    """Keys as the toolkit writes them, "ctrl+g" or "f5,alt+m"."""
    if not isinstance(value, str) or not (0 < len(value) <= NAME_CHARS_MAX) or not value.isprintable():
        raise ValueError('it must be a key, such as "ctrl+g", or several with commas between them')
    parts = [part.strip() for part in value.split(",")]
    if not all(parts) or any(" " in part for part in parts):
        raise ValueError('it must be a key, such as "ctrl+g", or several with commas between them')
    return ",".join(part if len(part) == 1 else part.lower() for part in parts)


FACE_CHECKS: Final = {
    "chat.theme": theme_of,
    "chat.keymap": keymap_of,
    "chat.markdown": flag_of,
    "chat.folded": flag_of,
    "chat.mouse": flag_of,
    "chat.read_trigger": trigger_of,
    "chat.notify": level_of,
    "chat.notify_how": ways_of,
    "chat.notify_command": command_of,
    "chat.tour": flag_of,
}
"""What brings each into its own form, or refuses it."""
