"""The settings as the chat has them: read when it starts, changed by `/set`, and then true at once."""

import os
from collections.abc import Mapping
from contextlib import suppress

from zerochat.agent.settings.client_preferences import Preferences, load_preferences, preferences
from zerochat.agent.settings.config_file import BadSettings, from_environment, read_config, variable_of
from zerochat.agent.settings.reader import FACE, stopped
from zerochat.agent.storage.paths import Places


class Choices:
    """What holds now. Without `places` nothing is written, and a choice lasts as long as the chat."""

    def __init__(
        self,
        places: Places | None = None,
        said: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`said`: by the command line, for this run."""
        self.places = places
        self._said = dict(said or {})
        self._environ = os.environ if environ is None else environ
        self.now: Preferences = self._load()

    def _load(self) -> Preferences:
        return (
            preferences(self._said) if self.places is None else load_preferences(self.places, self._environ, self._said)
        )

    def value_of(self, name: str) -> str:
        """What holds, as the file would have it; empty: nothing."""
        from zerochat.agent.settings.options import (  # with what every setting means, after the first frame
            OPTIONS,
            written,
        )

        found: dict[str, object] = {}
        if self.places is not None:
            found = from_environment(self._environ)
            with suppress(BadSettings):
                found = read_config(self.places, self._environ)
        value = (found | self._said).get(name, OPTIONS[name].default)
        return "" if value is None else written(value)

    def set(self, name: str, value: object) -> str:
        """Let `name` be `value`, None: as if nothing had been said. Answers what stands against it, if something does.

        Raises a LocalError, and then nothing has changed.
        """
        from zerochat.agent.settings.config_writer import BadSetting, write_setting
        from zerochat.agent.settings.options import check_value

        if self.places is None:
            try:
                check_value(name, value)
            except ValueError as error:
                raise BadSetting(why=stopped(str(error))) from error
            self._said = {each: said for each, said in self._said.items() if each != name}
            if value is not None:
                self._said[name] = value
        else:
            write_setting(self.places, name, value)
        self.now = self._load()
        return self._in_the_way(name)

    def _in_the_way(self, name: str) -> str:
        if self.places is None:
            return ""
        if name in self._said:
            return "the command line says something else for this run"
        if name in from_environment(self._environ):
            return f"{variable_of(name)} says something else"
        from zerochat.agent.settings.reload import AT_ONCE

        return "" if name.startswith(FACE) or name in AT_ONCE else "the agent goes by it from its next start on"
