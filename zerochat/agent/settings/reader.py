"""Reads `config.toml`: what a person may set once instead of saying it each time.

A wrong value stops the agent with a sentence, because going on with another one would be a surprise; a name that does
not exist only warns, because the file may belong to a newer version too.
"""

import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from zerochat.agent.network.addresses import BadAddress, parse_listen
from zerochat.agent.settings.config_file import (
    SETTINGS_BYTES_MAX,
    BadSettings,
    BadVariable,
    from_environment,
    read_config,
    variable_of,
)
from zerochat.agent.storage.paths import Places
from zerochat.errors import Malformed

__all__ = ["SETTINGS_BYTES_MAX", "BadSettings", "Settings", "load_settings"]

MINUTES_MAX: Final = 7 * 24 * 60
DRAIN_S_MAX: Final = 60
HOOK_S_MAX: Final = 600
HOOK_WORDS_MAX: Final = 64
KEY_MESSAGES_MAX, KEY_DAYS_MAX, KEY_REMOVALS_MAX = 256, 90, 16
"""As in `group/key_rotation.py`, of which the first frame of the chat has nothing."""
TELEMETRY_MEBIBYTES_MAX, DAYS_MAX = 1 << 10, 366
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
FILE_MEBIBYTES_MAX: Final = 1 << 10
"""`FILE_BYTES_MAX` in group/files/hash_tree.py, which the chat does not load before its first frame."""
SHOWN_CHARS_MAX: Final = 80
FACE: Final = "chat."
"""How the names begin of what is for the faces alone (`preferences`); the agent does not look at it."""


class Settings(Struct, frozen=True):
    listen: str | None = None
    """`network.listen`: the address to accept peers on, HOST[:PORT[:PORT]] as for `--listen`; None: as it was last
    told, or all that there are."""
    advertise: str | None = None
    """`network.advertise`: the IP address under which peers reach this machine; None: as it was last told, or find
    out."""
    socks: str | None = None
    """`network.socks`: the address and port of a SOCKS5 proxy (Tor's, say) for every connection that we dial."""
    cover: bool = False
    """`network.cover`: send something that says nothing every now and then, so that silence is harder to see."""
    hidden: bool = False
    """`network.hidden`: nobody can dial this machine (it is behind NAT, say), so its address is told to nobody."""
    web: str | None = None
    """`network.web`: the address and port to take envelopes in over HTTP and WebSocket; None: do not."""
    web_public: str | None = None
    """`network.web_public`: the URI under which others reach that; None: as this machine sees itself."""
    web_certificate: str | None = None
    web_key: str | None = None
    """`network.web_certificate`, `network.web_key`: PEM files, for https and wss."""
    web_authorities: str | None = None
    """`network.web_authorities`: a PEM file of authorities to trust besides the system's."""
    lock_after: int = 0
    """`agent.lock_after`: in a profile whose passphrase a person has typed, the chat locks when nobody has touched it
    for so many minutes, and `zerochat agent` ends when for so long no face was attached to it. 0: never."""
    auto_max: int = 1
    """`files.auto_max`: a file of so many MiB or less is fetched when it is posted. 0: none is, unless you ask."""
    size_max: int = 64
    """`files.size_max`: a larger one, in MiB, is neither sent nor fetched."""
    total_max: int = 2_048
    """`files.total_max`: so many MiB are kept of all files, of all groups."""
    log_level: str = "info"
    """`agent.log_level`: what is written to the log: debug, info, warning or error, and what is worse."""
    drain: int = 5
    """`agent.drain`: how many seconds an agent that was told to end may take to send what waits."""
    on_message: tuple[str, ...] = ()
    """`hooks.on_message`: the program, with its arguments, that `zerochat agent` runs for each message of others."""
    on_mention: tuple[str, ...] = ()
    """`hooks.on_mention`: the same for those that call me by name."""
    timeout: int = 10
    """`hooks.timeout`: after so many seconds a hook is ended."""
    allowed: bool = True
    """`telemetry.allowed`: false forbids to record how messages fare, whatever a person answers. What is true allows is
    still off, unless a person turns it on."""
    megabytes: int = 64
    """`telemetry.megabytes`: so many MiB of that are kept, compressed; the oldest goes first."""
    days: int = 30
    """`telemetry.days`: for so long."""
    read_receipts: bool = False
    """`share.read_receipts`: tell the others up to where I have read, and be told the same."""
    typing: bool = False
    """`share.typing`: tell the others that I am writing, and be told the same."""
    key_messages: int = KEY_MESSAGES_MAX
    """`signing.key_messages`: in groups whose keys sign, I draw a new key after so many messages."""
    key_days: int = 7
    """`signing.key_days`: and after so many days."""
    key_removals: int = 1
    """`signing.key_removals`: and when so many members have left or were put out."""
    warnings: tuple[str, ...] = ()
    """One sentence for each name in the file that means nothing."""


def load_settings(places: Places, environ: Mapping[str, str] | None = None) -> Settings:
    """What the settings file and the environment (None: the process's own) say, with the defaults for the rest.

    Raises BadSettings.
    """
    path = places.config
    environ = os.environ if environ is None else environ
    found = read_config(places, environ)
    values: dict[str, Any] = {}
    for name, check in CHECKS.items():
        if name in found:
            try:
                values[name.partition(".")[2]] = checked(name, check, found[name])
            except ValueError as error:
                if name in from_environment(environ):
                    raise BadVariable(variable=variable_of(name), why=str(error)) from error
                raise BadSettings(path=path, why=str(error)) from error
    if (values.get("web_certificate") is None) != (values.get("web_key") is None):
        raise BadSettings(path=path, why=TOGETHER)
    strange = (name for name, value in found.items() if name not in CHECKS and not is_of_face(name, value))
    return Settings(**values, warnings=tuple(unknown(name, CHECKS) for name in strange))


def checked(name: str, check: Callable[[object], Any], value: object) -> Any:
    """The value in its own form. Raises ValueError with a sentence without its full stop."""
    try:
        return check(value)
    except (ValueError, BadAddress) as error:
        why = error if isinstance(error, ValueError) else error.fields["why"]
        raise ValueError(f"{name} = {shortened(value)} cannot be used: {why}") from error


def stopped(text: str) -> str:
    """A sentence with its full stop, where it has no other end."""
    return text if text.endswith((".", "?")) else f"{text}."


def shortened(value: object) -> str:
    """A value in a sentence, its beginning when it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def is_of_face(name: str, value: object) -> bool:
    return name.startswith(FACE) or (name == "chat" and value == {})


def _listen(value: object) -> str:
    text = _text(value)
    parse_listen(text)
    return text


def advertise_address(text: str) -> str:
    """The address in its one spelling. Raises ValueError, with a sentence, when peers could not use it."""
    try:
        from zerochat.didcomm.endpoint import Endpoint  # and with it all of cryptography

        return Endpoint(str(ipaddress.ip_address(text)), 1).host
    except Malformed as error:
        raise ValueError(f"it is {error.fields['why']}") from None
    except ValueError:
        raise ValueError(
            "it must be an IP address without a port, such as 203.0.113.7 or 2001:db8::7, because peers do not look"
            " up names"
        ) from None


def _advertise(value: object) -> str:
    return advertise_address(_text(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it is not a text in quotes")
    return value


def _socks(value: object) -> str:
    host, _, port = _text(value).rpartition(":")
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise ValueError("it must be an IP address and a port, such as 127.0.0.1:9050") from None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("it must end in a port, such as 127.0.0.1:9050")
    return f"{host}:{port}"


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is neither true nor false")
    return value


def _minutes(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MINUTES_MAX:
        raise ValueError(f"it is no number of minutes between 0 (never) and {MINUTES_MAX}")
    return value


def _mebibytes(least: int, most: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it is no number of MiB between {least} and {most}")
    return value


def _seconds(least: int, most: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it is no number of seconds between {least} and {most}")
    return value


def _days(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= DAYS_MAX:
        raise ValueError(f"it is no number of days between 1 and {DAYS_MAX}")
    return value


def _whole(least: int, most: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it is no whole number between {least} and {most}")
    return value


def _log_level(value: object) -> str:
    if value not in LOG_LEVELS:
        raise ValueError(f"it is none of {', '.join(LOG_LEVELS)}")
    return str(value)


def _hook(value: object) -> tuple[str, ...]:
    """The words of a command; none: no command."""
    words = value if isinstance(value, list | tuple) else None
    if words is None or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError('it is no list of words, such as ["notify-send", "zerochat"]')
    if len(words) > HOOK_WORDS_MAX or (words and not words[0]):
        raise ValueError(f"it must begin with a program, and have no more than {HOOK_WORDS_MAX} words")
    return tuple(words)


def _web(value: object) -> str:
    text = _text(value)
    if parse_listen(text)[2]:
        raise ValueError("it must have one port, such as 0.0.0.0:8080")
    return text


def _public(value: object) -> str:
    text = _text(value)
    parts = urlsplit(text)
    odd = parts.username or parts.password or parts.query or parts.fragment or " " in text or not text.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or odd or not text.isascii():
        raise ValueError("it must begin with http:// or https:// and name a host, such as https://chat.example.org")
    return text


CHECKS: Final[Mapping[str, Callable[[object], Any]]] = {
    "network.listen": _listen,
    "network.advertise": _advertise,
    "network.socks": _socks,
    "network.cover": _flag,
    "network.hidden": _flag,
    "network.web": _web,
    "network.web_public": _public,
    "network.web_certificate": _text,
    "network.web_key": _text,
    "network.web_authorities": _text,
    "agent.lock_after": _minutes,
    "agent.log_level": _log_level,
    "agent.drain": partial(_seconds, 0, DRAIN_S_MAX),
    "hooks.on_message": _hook,
    "hooks.on_mention": _hook,
    "hooks.timeout": partial(_seconds, 1, HOOK_S_MAX),
    "telemetry.allowed": _flag,
    "telemetry.megabytes": partial(_mebibytes, 1, TELEMETRY_MEBIBYTES_MAX),
    "telemetry.days": _days,
    "share.read_receipts": _flag,
    "share.typing": _flag,
    "signing.key_messages": partial(_whole, 1, KEY_MESSAGES_MAX),
    "signing.key_days": partial(_whole, 1, KEY_DAYS_MAX),
    "signing.key_removals": partial(_whole, 1, KEY_REMOVALS_MAX),
    "files.auto_max": partial(_mebibytes, 0, FILE_MEBIBYTES_MAX),
    "files.size_max": partial(_mebibytes, 1, FILE_MEBIBYTES_MAX),
    "files.total_max": partial(_mebibytes, 1, 1 << 24),
}
"""Every setting there is, with what brings it into its own form or refuses it."""


TOGETHER: Final = "network.web_certificate and network.web_key belong together"


PART_LETTERS_MIN = 3
"""So many letters that stand somewhere in a setting's name may mean it."""


def unknown(name: str, names: Iterable[str]) -> str:
    """What to say of a setting that there is not, with the name that may be meant."""
    from difflib import get_close_matches

    known = list(names)
    part = [each for each in known if name.lower() in each] if len(name) >= PART_LETTERS_MIN else []
    nearest = part if len(part) == 1 else get_close_matches(name, known, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return f"There is no setting {name}.{hint}"
