"""Edits one setting in `config.toml` and preserves the rest of the file. Imports tomlkit only to write."""

import contextlib
import os
import stat
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, ClassVar, cast

from zerochat.agent.settings.config_file import SETTINGS_BYTES_MAX, BadSettings, flat, read_tables, read_text
from zerochat.agent.settings.options import GROUPS, KEYS, check_value
from zerochat.agent.settings.overview import commented
from zerochat.agent.settings.values import with_full_stop
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.errors import LocalError

MODE_NEW = 0o600


class BadSetting(LocalError):
    """{why} Nothing changed."""

    exit_code: ClassVar[int] = 2


class SettingsExist(LocalError):
    """The settings file {path} exists already. Nothing changed."""


def write_setting(places: ProfilePaths, name: str, value: object) -> None:
    """Set `name` for this profile; None removes it. The file is created where it is missing.

    Raises BadSetting or BadSettings without changing anything.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    if value is not None:
        try:
            check_value(name, value)
        except ValueError as error:
            raise BadSetting(why=with_full_stop(str(error))) from error
    said = dict(flat(read_tables(places)))
    try:
        document = tomlkit.parse(read_text(places))
        own = f"profiles.{places.profile}.{name}"
        path = ["profiles", places.profile, *_path(name)] if own in said else _path(name)
        if value is None:
            _take_out(document, path)
        else:
            _put(document, path, value)
        text = document.as_string()
    except TOMLKitError as error:
        raise BadSettings(path=places.config, why=f"it is not TOML ({error})") from error
    except (RecursionError, TypeError, AttributeError) as error:
        raise BadSetting(why=f"Cannot write {name} to {places.config}.") from error
    _look_again(places, text, path, value)
    _replace(places.config, text)


def write_commented(places: ProfilePaths) -> None:
    """Write a settings file with all defaults, completely or not at all. Raises SettingsExist, or an error of the
    disk."""
    from zerochat.agent.storage.database import disk_error

    path = places.config
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE_NEW)
    except FileExistsError:
        raise SettingsExist(path=path) from None
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(commented())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise disk_error(error, path) from error


def _path(name: str) -> list[str]:
    """The tables that lead to a setting, and its key. Names of actions and groups may contain dots."""
    if name.startswith(KEYS):
        return ["chat", "keys", name.removeprefix(KEYS)]
    if name.startswith(GROUPS):
        group, _, key = name.removeprefix(GROUPS).rpartition(".")
        return ["chat", "groups", group, key]
    return name.split(".", 1)


def _put(document: Any, path: list[str], value: object) -> None:
    import tomlkit

    table: MutableMapping[str, Any] = document
    for depth, key in enumerate(path[:-1]):
        if key not in table:
            # A table that only leads to others needs no heading of its own.
            table[key] = tomlkit.table(is_super_table=depth < len(path) - 2)
        table = cast(MutableMapping[str, Any], table[key])
    dotted = _dotted(table, path[-1])
    if dotted is not None:
        dotted[0][dotted[1]] = value
    else:
        table[path[-1]] = value


def _take_out(document: Any, path: list[str]) -> None:
    table: MutableMapping[str, Any] = document
    for key in path[:-1]:
        if key not in table:
            return
        table = cast(MutableMapping[str, Any], table[key])
    dotted = _dotted(table, path[-1])
    if dotted is not None:
        del dotted[0][dotted[1]]
    elif path[-1] in table:
        del table[path[-1]]


def _dotted(table: MutableMapping[str, Any], key: str) -> tuple[MutableMapping[str, Any], str] | None:
    """The table and key where a dotted key such as go.switch was written without quotes."""
    first, dot, rest = key.partition(".")
    if not dot or key in table or not isinstance(table.get(first), MutableMapping):
        return None
    inner = cast(MutableMapping[str, Any], table[first])
    return (inner, rest) if rest in inner else _dotted(inner, rest)


def _look_again(places: ProfilePaths, text: str, path: list[str], value: object) -> None:
    """Verify that the new text sets the value and changes nothing else. Raises BadSetting."""
    import tomllib

    before = dict(flat(read_tables(places)))
    name = ".".join(path)
    try:
        after = dict(flat(tomllib.loads(text)))
    except ValueError as error:
        raise BadSetting(why=f"Cannot write {name} to {places.config}.") from error
    wanted = {each: said for each, said in before.items() if each != name}
    if value is not None:
        wanted[name] = list(value) if isinstance(value, tuple) else value
    said = {each: found for each, found in after.items() if found != {}}
    if said != {each: found for each, found in wanted.items() if found != {}}:
        raise BadSetting(why=f"Cannot write {name} to {places.config}.")
    if len(text.encode()) > SETTINGS_BYTES_MAX:
        raise BadSetting(why=f"{places.config} would have more than {SETTINGS_BYTES_MAX} bytes.")


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically, keeping its mode and following symbolic links."""
    path = path.resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        mode = MODE_NEW
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
