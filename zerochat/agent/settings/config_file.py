"""Reads `config.toml` and the environment into one flat table: "chat.theme" and what it shall be.

There is one file for all profiles of a user. What stands in it under a profile's name wins over what is for all of
them, and a variable `ZEROCHAT_SECTION__KEY` wins over both. What a value means is not decided here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from zerochat.agent.storage.paths import Places
from zerochat.errors import LocalError

SETTINGS_BYTES_MAX = 64 * 1024
"""Far more than anybody writes by hand."""
ENVIRONMENT: Final = "ZEROCHAT_"
PROFILES: Final = "profiles."


class BadSettings(LocalError):
    """The settings file {path} cannot be used: {why}."""

    exit_code: ClassVar[int] = 2


class BadVariable(BadSettings):
    """The variable {variable} cannot be used: {why}."""


def read_text(places: Places) -> str:
    """The settings file as it stands; empty where there is none. Raises BadSettings."""
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


def read_tables(places: Places) -> dict[str, Any]:
    """The settings file as TOML has it. Raises BadSettings."""
    if not (text := read_text(places)):
        return {}
    import tomllib  # Most people have no such file, and every start would pay for it.

    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise BadSettings(path=places.config, why=f"it is not TOML ({error})") from error
    except RecursionError as error:
        raise BadSettings(path=places.config, why="it is not TOML that anybody would write") from error


def read_config(places: Places, environ: Mapping[str, str]) -> dict[str, object]:
    """What is said for this profile, by dotted name. Raises BadSettings."""
    return of_profile(dict(flat(read_tables(places))), places.profile) | from_environment(environ)


def of_profile(found: dict[str, object], profile: str) -> dict[str, object]:
    """What counts for one profile: what stands under `profiles.NAME` wins over what is for all of them."""
    common = {name: value for name, value in found.items() if not name.startswith(PROFILES)}
    prefix = f"{PROFILES}{profile}."
    return common | {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every value with its dotted name."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    """What variables such as ZEROCHAT_CHAT__THEME say: two underscores where the file has a dot."""
    found = {}
    for variable, text in sorted(environ.items()):
        section, dot, key = variable.removeprefix(ENVIRONMENT).partition("__")
        if variable.startswith(ENVIRONMENT) and section and dot and key:
            found[f"{section}.{key}".lower()] = value_of(text)
    return found


def variable_of(name: str) -> str:
    """The variable that says what the file says under `name`."""
    return ENVIRONMENT + name.replace(".", "__").upper()


def value_of(text: str) -> object:
    """A value as somebody types it: TOML, with or without the quotes round a text."""
    import tomllib

    text = text.strip()
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    simple = list(table) == ["value"] and isinstance(table["value"], (bool, int, str, list))
    return table["value"] if simple else text
