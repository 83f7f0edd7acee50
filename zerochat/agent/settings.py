"""Reads `config.toml`: what a person may set once instead of saying it each time.

A wrong value stops the agent with a sentence, because going on with another one would be a surprise; a name that does
not exist only warns, because the file may belong to a newer version too.
"""

import difflib
import ipaddress
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from zerochat.agent.address import BadAddress, parse_listen
from zerochat.agent.places import Places
from zerochat.didcomm.endpoint import Endpoint
from zerochat.errors import LocalError, Malformed

SETTINGS_BYTES_MAX = 64 * 1024
"""Far more than anybody writes by hand."""
MINUTES_MAX: Final = 7 * 24 * 60


class BadSettings(LocalError):
    """The settings file {path} cannot be used: {why}."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Settings:
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
    warnings: tuple[str, ...] = ()
    """One sentence for each name in the file that means nothing."""


def load_settings(places: Places) -> Settings:
    """What the settings file says, with the defaults for the rest. Raises BadSettings."""
    path = places.config
    try:
        with path.open("rb") as file:
            text = file.read(SETTINGS_BYTES_MAX + 1)
        if len(text) > SETTINGS_BYTES_MAX:
            raise BadSettings(path=path, why=f"it has more than {SETTINGS_BYTES_MAX} bytes")
        found = _of_profile(dict(_flat(tomllib.loads(text.decode()))), places.profile)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise BadSettings(path=path, why=(error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise BadSettings(path=path, why=f"it is not TOML ({error})") from error
    except RecursionError as error:
        raise BadSettings(path=path, why="it is not TOML that anybody would write") from error
    values: dict[str, Any] = {}
    for name, check in CHECKS.items():
        if name in found:
            try:
                values[name.partition(".")[2]] = check(found[name])
            except (ValueError, BadAddress) as error:
                why = error if isinstance(error, ValueError) else error.fields["why"]
                raise BadSettings(path=path, why=f"{name} = {found[name]!r} cannot be used: {why}") from error
    if (values.get("web_certificate") is None) != (values.get("web_key") is None):
        raise BadSettings(path=path, why="network.web_certificate and network.web_key belong together")
    warnings = tuple(_warning(name) for name in found if name not in CHECKS)
    return Settings(**values, warnings=warnings)


def _listen(value: object) -> str:
    text = _text(value)
    parse_listen(text)
    return text


def advertise_address(text: str) -> str:
    """The address in its one spelling. Raises ValueError, with a sentence, when peers could not use it."""
    try:
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
}
"""Every setting there is, with what brings it into its own form or refuses it."""


def _of_profile(found: dict[str, object], profile: str) -> dict[str, object]:
    """What counts for one profile: what stands under `profiles.NAME` wins over what is for all of them."""
    common = {name: value for name, value in found.items() if not name.startswith("profiles.")}
    prefix = f"profiles.{profile}."
    return common | {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every value with its dotted name."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _warning(name: str) -> str:
    nearest = difflib.get_close_matches(name, CHECKS, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return f"There is no setting {name}.{hint}"
