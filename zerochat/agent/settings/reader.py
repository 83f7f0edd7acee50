"""Reads the settings of the agent. An invalid value is an error; an unknown name is a warning."""

import os
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from zerochat.agent.settings.config_file import BadSettings, BadVariable, from_environment, read_config, variable_of
from zerochat.agent.settings.options import CHAT, CHECKS
from zerochat.agent.settings.values import Hidden, checked, unknown_setting
from zerochat.agent.storage.paths import ProfilePaths

TOGETHER: Final = "network.web_certificate and network.web_key must be set together"


class Settings(Struct, frozen=True):
    """The settings by their names without section. `options.py` has the meanings."""

    listen: str | None = None
    """None: as at the last start, or all addresses."""
    advertise: str | None = None
    """None: as at the last start, or detected."""
    port_fallback: bool = False
    socks: str | None = None
    cover: bool = False
    hidden: Hidden = False
    web: str | None = None
    web_public: str | None = None
    web_certificate: str | None = None
    web_key: str | None = None
    web_authorities: str | None = None
    near_mediators: str = "public"
    mail_delay: int = 0
    """Seconds."""
    mail_delay_random: bool = True
    mail_mix: int = 0
    """Percent."""
    lock_after: int = 0
    """Minutes; `zerochat agent` also ends after this time without a client."""
    auto_max: int = 1
    """MiB, like the next three."""
    size_max: int = 64
    total_max: int = 2_048
    daily_max: int = 1_024
    keep: str = "forever"
    log_level: str = "info"
    drain: int = 5
    """Seconds."""
    protect_memory: bool = True
    on_message: tuple[str, ...] = ()
    on_mention: tuple[str, ...] = ()
    timeout: int = 10
    """Seconds until a hook is killed."""
    allowed: bool = True
    """Telemetry may be turned on."""
    megabytes: int = 64
    days: int = 30
    read_receipts: bool = False
    typing: bool = False
    key_messages: int = 256
    key_days: int = 7
    key_removals: int = 1
    warnings: tuple[str, ...] = ()
    """One sentence per unknown name."""


def load_settings(paths: ProfilePaths, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings from the file and the environment (None: the process's), with defaults. Raises BadSettings."""
    environ = os.environ if environ is None else environ
    found = read_config(paths, environ)
    valid: dict[str, Any] = {}
    for name, check in CHECKS.items():
        if name in found:
            try:
                valid[name.partition(".")[2]] = checked(name, check, found[name])
            except ValueError as error:
                if name in from_environment(environ):
                    raise BadVariable(variable=variable_of(name), why=str(error)) from error
                raise BadSettings(path=paths.config, why=str(error)) from error
    if (valid.get("web_certificate") is None) != (valid.get("web_key") is None):
        raise BadSettings(path=paths.config, why=TOGETHER)
    unknown = (name for name, value in found.items() if name not in CHECKS and not _is_chat(name, value))
    return Settings(**valid, warnings=tuple(unknown_setting(name, CHECKS) for name in unknown))


def _is_chat(name: str, value: object) -> bool:
    return name.startswith(CHAT) or (name == "chat" and value == {})
