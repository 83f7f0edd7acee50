"""The effective settings with their sources, validation of the whole file, and its template."""

from collections.abc import Iterator, Mapping

from zerochat.agent.settings.client_preferences import contradictions, preferences
from zerochat.agent.settings.config_file import (
    BadSettings,
    flat,
    from_environment,
    of_profile,
    read_config,
    read_tables,
    variable_of,
)
from zerochat.agent.settings.options import (
    GROUPS,
    KEYS,
    OPTIONS,
    SECTIONS,
    check_value,
    is_empty_table,
    written,
)
from zerochat.agent.settings.reader import TOGETHER
from zerochat.agent.settings.values import unknown_setting, with_full_stop
from zerochat.agent.storage.paths import ProfilePaths

COMMENT_CHARS_MAX = 100


def shown(paths: ProfilePaths, environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(name, value, source) of all effective settings. Raises BadSettings."""
    tables = dict(flat(read_tables(paths)))
    own = of_profile(tables, paths.profile)
    variables = from_environment(environ)
    found = read_config(paths, environ)
    further = [name for name in found if name.startswith((KEYS, GROUPS))]
    for name in [*OPTIONS, *further]:
        if name in variables:
            source = variable_of(name)
        elif name in own:
            source = "profile" if f"profiles.{paths.profile}.{name}" in tables else "file"
        else:
            source = "default"
        value = found.get(name, OPTIONS[name].default if name in OPTIONS else None)
        yield name, "" if value is None else written(value), source


def said_by_variables(environ: Mapping[str, str]) -> str:
    """The environment variables that set something, as a sentence; empty: none."""
    found = [f"{variable_of(name)} sets {name}" for name in from_environment(environ) if name in OPTIONS]
    return f"{', '.join(found)}." if found else ""


def complaints(paths: ProfilePaths, environ: Mapping[str, str]) -> list[str]:
    """The errors in the settings file, for all profiles, and in the environment, as sentences."""
    try:
        tables = read_tables(paths)
    except BadSettings as error:
        return [error.sentence()]
    profiles = tables.pop("profiles", {})
    errors = list(_errors(dict(flat(tables)), ""))
    for profile, table in profiles.items() if isinstance(profiles, dict) else ():
        if isinstance(table, dict):
            errors += _errors(dict(flat(table)), f"profiles.{profile}: ")
        else:
            errors.append(unknown_setting(f"profiles.{profile}", ()))
    return errors + list(_errors(from_environment(environ), "The environment: "))


def _errors(found: Mapping[str, object], where: str) -> Iterator[str]:
    for name, value in found.items():
        if is_empty_table(name, value) or (value == {} and name in SECTIONS):
            continue
        try:
            check_value(name, value)
        except ValueError as error:
            yield where + with_full_stop(str(error))
    if ("network.web_certificate" in found) != ("network.web_key" in found):
        yield f"{where}{TOGETHER}."
    yield from (f"{where}{each}" for each in contradictions(preferences(found)))


def commented() -> str:
    """A settings file with all settings, their meanings and defaults."""
    lines = [
        "# The settings of zerochat. `zerochat config check` validates this file; /set in the chat edits it and keeps",
        "# your comments. A table such as [profiles.work.chat] applies to that profile only.",
    ]
    section = ""
    for option in OPTIONS.values():
        if option.section != section:
            section = option.section
            lines += ["", f"# {SECTIONS[section]}", f"[{section}]"]
        lines.append(f"# {option.key}: {option.meaning}.")
        if option.choices and not option.is_flag:
            lines += _listed(option.choices)
        if option.default is None or option.default == []:
            lines.append(f"# {option.key} = {written(option.example)}")
        else:
            lines.append(f"{option.key} = {written(option.default)}")
    lines += [
        "",
        "# For one group, by its name or its id.",
        '# [chat.groups."hikers"]',
        '# notify = "all"',
        "",
        "# Key bindings, by the name of the action; /set in the chat lists the names.",
        "[chat.keys]",
        '# "go.switch" = "ctrl+g"',
    ]
    return "\n".join(lines) + "\n"


def _listed(choices: tuple[str, ...]) -> list[str]:
    """The choices in comment lines."""
    lines, line = [], "#  "
    for value in choices:
        if len(line) + len(value) + 1 > COMMENT_CHARS_MAX:
            lines.append(line)
            line = "#  "
        line += f" {value}"
    return [*lines, line]
