"""The chat's settings: loaded at startup, changed by `/set`."""

import os
from collections.abc import Mapping
from contextlib import suppress

from zerochat.agent.settings.client_preferences import Preferences, load_preferences, preferences
from zerochat.agent.settings.config_file import BadSettings, from_environment, read_config, variable_of
from zerochat.agent.settings.options import CHAT
from zerochat.agent.settings.values import with_full_stop
from zerochat.agent.storage.paths import ProfilePaths


class SettingsStore:
    """Current settings and their file. Without `places` nothing is written, and changes last as long as the chat."""

    def __init__(
        self,
        places: ProfilePaths | None = None,
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`overrides`: settings from the command line, for this run."""
        self.places = places
        self._overrides = dict(overrides or {})
        self._environ = os.environ if environ is None else environ
        self.current: Preferences = self._load()

    def _load(self) -> Preferences:
        return (
            preferences(self._overrides)
            if self.places is None
            else load_preferences(self.places, self._environ, self._overrides)
        )

    def value_of(self, name: str) -> str:
        """The effective value in the file's notation; empty: unset."""
        from zerochat.agent.settings.options import OPTIONS, written

        found: dict[str, object] = {}
        if self.places is not None:
            found = from_environment(self._environ)
            with suppress(BadSettings):
                found = read_config(self.places, self._environ)
        value = (found | self._overrides).get(name, OPTIONS[name].default)
        return "" if value is None else written(value)

    def set(self, name: str, value: object) -> str:
        """Store a setting; None: reset it. Returns a note when the value is overridden or takes effect later, else
        empty.

        Raises a LocalError and changes nothing.
        """
        from zerochat.agent.settings.config_writer import BadSetting, write_setting
        from zerochat.agent.settings.options import check_value

        if self.places is None:
            try:
                if value is not None:
                    check_value(name, value)
            except ValueError as error:
                raise BadSetting(why=with_full_stop(str(error))) from error
            self._overrides = {each: kept for each, kept in self._overrides.items() if each != name}
            if value is not None:
                self._overrides[name] = value
        else:
            write_setting(self.places, name, value)
        self.current = self._load()
        return self._override_note(name, value)

    def _override_note(self, name: str, value: object) -> str:
        if self.places is None:
            return ""
        if name in self._overrides:
            return "the command line overrides it for this run"
        if name in from_environment(self._environ):
            return f"{variable_of(name)} overrides it"
        from zerochat.agent.settings.options import applies_at_once

        is_applied = name.startswith(CHAT) or applies_at_once(name, value)
        return "" if is_applied else "it takes effect when the agent restarts"
