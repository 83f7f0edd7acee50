"""Validation of setting values: each check returns the value in its canonical form or raises ValueError."""

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, cast, get_args
from urllib.parse import urlsplit

from zerochat.agent.network.addresses import BadAddress, parse_listen, split_address, split_host_port
from zerochat.errors import Malformed
from zerochat.presentation.keep_rules import BadKeep, forms_text, read_keep

Check: TypeAlias = Callable[[object], Any]
Level: TypeAlias = Literal["none", "mentions", "all"]
"""Which messages notify the user: none, those that mention the user, or all."""
Way: TypeAlias = Literal["bell", "desktop", "command"]
Trigger: TypeAlias = Literal["focused", "visible", "sent"]
"""When messages in the open conversation count as read: while the window has the focus, always, or after a reply."""

Hidden: TypeAlias = bool | Literal["always"]
"""Whether the agent announces no address; always: it also connects to its own mediators only."""

ALWAYS: Final = "always"
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
WAYS: Final[tuple[Way, ...]] = get_args(Way)
TRIGGERS: Final[tuple[Trigger, ...]] = get_args(Trigger)
KEYMAPS: Final = ("default", "vim", "emacs")
LETTERS: Final = ("type", "act")
NEARNESS: Final = ("public", "private", "loopback")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
OWN_THEMES: Final = ("dark", "light", "contrast", "ansi")
TEXTUAL_THEMES: Final = (
    *("textual-dark", "textual-light", "nord", "gruvbox", "catppuccin-mocha", "dracula", "tokyo-night", "monokai"),
    *("flexoki", "catppuccin-latte", "catppuccin-frappe", "catppuccin-macchiato", "solarized-light"),
    *("solarized-dark", "rose-pine", "rose-pine-moon", "rose-pine-dawn", "atom-one-dark", "atom-one-light"),
    *("ansi-dark", "ansi-light"),
)
"""The themes of the terminal toolkit, which this package does not import."""
THEMES: Final = (*OWN_THEMES, *TEXTUAL_THEMES)
COMMAND_WORDS_MAX: Final = 64
KEY_CHARS_MAX: Final = 256
TIME_DIRECTIVES: Final = "HIMSpdmyYab"
TIME_FORMAT_CHARS_MAX: Final = 24
_TIME_FORMAT: Final = re.compile(rf"([^%]|%[{TIME_DIRECTIVES}%])*")
SHORT_LIST_MAX: Final = 5
"""Lists of choices up to this length are printed in full; longer ones get a suggestion."""
SHOWN_CHARS_MAX: Final = 80
SUBSTRING_CHARS_MIN: Final = 3
"""A substring of a setting's name of at least this length suggests the setting."""


def checked(name: str, check: Check, value: object) -> Any:
    """The value in canonical form. Raises ValueError with a sentence without its full stop."""
    try:
        return check(value)
    except (ValueError, BadAddress) as error:
        why = error if isinstance(error, ValueError) else error.fields["why"]
        raise ValueError(f"Invalid value {shortened(value)} for {name}: {why}") from error


def with_full_stop(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def shortened(value: object) -> str:
    """The value for a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def unknown_setting(name: str, names: Iterable[str]) -> str:
    """The error sentence for an unknown setting, with a suggestion."""
    from difflib import get_close_matches

    known = list(names)
    containing = [each for each in known if name.lower() in each] if len(name) >= SUBSTRING_CHARS_MIN else []
    nearest = containing if len(containing) == 1 else get_close_matches(name, known, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return f'Unknown setting "{name}".{hint}'


# --- general ----------------------------------------------------------------------------------------------------------


def keep(value: object) -> str:
    """A retention such as 30d, or `forever`."""
    if not isinstance(value, str):
        raise ValueError(f"it must be {forms_text()}")
    try:
        read_keep(value)
    except BadKeep as error:
        raise ValueError(error.fields["why"]) from None
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it must be true or false")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a text in quotes")
    return value


def _number(unit: str, least: int, most: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it must be a number of {unit} between {least} and {most}")
    return value


def number(unit: str, least: int, most: int) -> Check:
    """Checks for an integer within these bounds."""
    return partial(_number, unit, least, most)


def _choice(choices: Sequence[str], value: object) -> str:
    if isinstance(value, str) and value in choices:
        return value
    if isinstance(value, str) and len(choices) > SHORT_LIST_MAX:
        from difflib import get_close_matches

        if nearest := get_close_matches(value, choices, n=1):
            raise ValueError(f"did you mean {nearest[0]}?")
    raise ValueError(f"it must be {', '.join(choices[:-1])} or {choices[-1]}")


def choice(choices: Sequence[str]) -> Check:
    return partial(_choice, choices)


def command(value: object) -> tuple[str, ...]:
    """A program with its arguments; empty: none."""
    listed = isinstance(value, list | tuple) and all(isinstance(word, str) and "\0" not in word for word in value)
    if not listed:
        raise ValueError('it must be a list of words such as ["notify-send", "zerochat"], because no shell reads it')
    words = tuple(cast(Sequence[str], value))
    if len(words) > COMMAND_WORDS_MAX or (words and not words[0]):
        raise ValueError(f"it must start with a program and have at most {COMMAND_WORDS_MAX} words")
    return words


# --- clients ----------------------------------------------------------------------------------------------------------


def ways(value: object) -> tuple[Way, ...]:
    """One way, several separated by commas, or a list."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts:
        raise ValueError("it must be one or more of bell, desktop or command")
    return tuple(dict.fromkeys(cast(Way, _choice(WAYS, part)) for part in parts))


def time_format(value: object) -> str:
    """A subset of strftime that is the same everywhere and fits one line."""
    written = text(value).strip()
    if len(written) > TIME_FORMAT_CHARS_MAX or not written.isprintable() or not _TIME_FORMAT.fullmatch(written):
        raise ValueError(
            f'it must be a format such as "%H:%M", with at most {TIME_FORMAT_CHARS_MAX} characters and only'
            f" {', '.join(f'%{letter}' for letter in TIME_DIRECTIVES)}"
        )
    return written


def level(value: object) -> Level:
    return cast(Level, _choice(LEVELS, value))


def keys(value: object) -> str:
    """Keys as the toolkit writes them, "ctrl+g" or "f5,alt+m"."""
    if not isinstance(value, str) or not (0 < len(value) <= KEY_CHARS_MAX) or not value.isprintable():
        raise ValueError('it must be a key such as "ctrl+g", or several separated by commas')
    parts = [part.strip() for part in value.split(",")]
    if not all(parts) or any(" " in part for part in parts):
        raise ValueError('it must be a key such as "ctrl+g", or several separated by commas')
    return ",".join(part if len(part) == 1 else part.lower() for part in parts)


# --- network ----------------------------------------------------------------------------------------------------------


def listen(value: object) -> str:
    parse_listen(text(value))
    return text(value)


def advertise(value: object) -> str:
    return advertise_address(text(value))


def advertise_address(address: str) -> str:
    """The address in canonical form. Raises ValueError with a sentence where peers could not use it."""
    try:
        from zerochat.didcomm.endpoint import Endpoint  # imports the whole of cryptography

        host, ports = split_address(address)
        if ports:
            raise ValueError
        return Endpoint(str(ipaddress.ip_address(host)), 1).host
    except Malformed as error:
        raise ValueError(f"it is {error.fields['why']}") from None
    except ValueError:
        raise ValueError(
            "it must be an IP address without a port, such as 203.0.113.7 or 2001:db8::7, because peers do not look"
            " up names"
        ) from None


def hidden(value: object) -> Hidden:
    """true, false, or `always`."""
    if isinstance(value, bool) or value == ALWAYS:
        return value
    raise ValueError('it must be true, false or "always"')


def socks(value: object) -> str:
    host, port = split_host_port(text(value))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def web_listen(value: object) -> str:
    if parse_listen(text(value))[2]:
        raise ValueError("it must have one port, such as 0.0.0.0:8080")
    return text(value)


def web_uri(value: object) -> str:
    uri = text(value)
    parts = urlsplit(uri)
    odd = parts.username or parts.password or parts.query or parts.fragment or " " in uri or not uri.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or odd or not uri.isascii():
        raise ValueError("it must start with http:// or https:// and name a host, such as https://chat.example.org")
    return uri
