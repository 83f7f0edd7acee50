"""Reads `config.toml` and the environment into one flat table by dotted names.

There is one file for all profiles of a user. A table under the name of a profile wins over the general one, and a
variable `ZEROCHAT_SECTION__KEY` wins over both.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from zerochat.agent.storage.paths import ProfilePaths
from zerochat.errors import LocalError

SETTINGS_BYTES_MAX = 64 * 1024
ENVIRONMENT: Final = "ZEROCHAT_"
PROFILES: Final = "profiles."


class BadSettings(LocalError):
    """Cannot use the settings file {path}: {why}."""

    exit_code: ClassVar[int] = 2


class BadVariable(BadSettings):
    """Cannot use the environment variable {variable}: {why}."""


def read_text(places: ProfilePaths) -> str:
    """The text of the settings file; empty where there is none. Raises BadSettings."""
    path = places.config
    try:
        with path.open("rb") as file:
            content = file.read(SETTINGS_BYTES_MAX + 1)
        if len(content) > SETTINGS_BYTES_MAX:
            raise BadSettings(path=path, why=f"it has more than {SETTINGS_BYTES_MAX} bytes")
        return content.decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadSettings(path=path, why=(error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise BadSettings(path=path, why=f"it is not TOML ({error})") from error


def read_tables(places: ProfilePaths) -> dict[str, Any]:
    """The parsed settings file. Raises BadSettings."""
    if not (text := read_text(places)):
        return {}
    import tomllib  # imported late: it slows the start, and most users have no file

    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise BadSettings(path=places.config, why=f"it is not TOML ({error})") from error
    except RecursionError as error:
        raise BadSettings(path=places.config, why="the TOML is nested too deeply") from error


def read_config(places: ProfilePaths, environ: Mapping[str, str]) -> dict[str, object]:
    """The settings of this profile by dotted name. Raises BadSettings."""
    return of_profile(dict(flat(read_tables(places))), places.profile) | from_environment(environ)


def of_profile(found: dict[str, object], profile: str) -> dict[str, object]:
    """The settings of one profile: those under `profiles.NAME` win over the general ones."""
    common = {name: value for name, value in found.items() if not name.startswith(PROFILES)}
    prefix = f"{PROFILES}{profile}."
    return common | {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """All values with their dotted names."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    """The settings from variables such as ZEROCHAT_CHAT__THEME, with two underscores for the dot."""
    found = {}
    for variable, text in sorted(environ.items()):
        section, dot, key = variable.removeprefix(ENVIRONMENT).partition("__")
        if variable.startswith(ENVIRONMENT) and section and dot and key:
            found[f"{section}.{key}".lower()] = value_of(text)
    return found


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT + name.replace(".", "__").upper()


def value_of(text: str) -> object:
    """The value that a user types: TOML, with optional quotes."""
    import tomllib

    text = text.strip()
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    simple = list(table) == ["value"] and isinstance(table["value"], (bool, int, str, list))
    return table["value"] if simple else text
