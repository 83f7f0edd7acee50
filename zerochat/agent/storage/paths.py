"""Where a profile's things are: settings, keys and journal, logs, cache, and its agent's control socket.

Every program of the profile must come to the same socket, or two agents would want one profile: so where it is depends
as little as possible on the environment that a program happens to be started with. A cron job knows no
XDG_RUNTIME_DIR and a desktop does; whichever place a socket has already been put in is the one.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from zerochat.errors import LocalError

PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
"""What is a safe file name on every system: no separators, no `.` and `..`, nothing hidden, nothing like an option."""
DEFAULT_PROFILE = "default"
SHORT = Path("/tmp")  # noqa: S108  # see `_short`
SOCKET_PATH_BYTES_MAX = 100
"""The kernel's `sun_path` has 104 bytes on macOS and 108 on Linux, one of them for the closing zero."""


class BadProfile(LocalError):
    """{profile} cannot be the name of a profile. Use 1 to 32 of the letters A-Z and a-z, digits, dots, dashes and
    underscores, beginning with a letter or a digit."""

    exit_code: ClassVar[int] = 2


class FolderTaken(LocalError):
    """The folder {path} is needed for the control socket, but {why}. Remove it, or set ZEROCHAT_HOME to a folder with
    a shorter path."""

    exit_code: ClassVar[int] = 6


class Places(Struct, frozen=True):
    """The paths of one profile. None of them need exist yet."""

    profile: str
    config: Path
    """The settings file, the same for all profiles of a user."""
    data: Path
    """The profile's own folder, closed to others: what must not be lost."""
    state: Path
    """The folder for what may be lost without harm: the log."""
    cache: Path
    socket: Path

    @property
    def journal(self) -> Path:
        return self.data / "journal.db"

    @property
    def key_file(self) -> Path:
        """The journal's raw key, in a profile without a passphrase."""
        return self.data / "key"

    @property
    def vault(self) -> Path:
        """The journal's key, locked with the passphrase, in a profile that has one."""
        return self.data / "vault"

    @property
    def ring(self) -> Path:
        """Says under which account the system's keyring has the journal's key, in a profile that uses it."""
        return self.data / "keyring"

    @property
    def files(self) -> Path:
        """The folder of the contents of files, encrypted. Not in a backup."""
        return self.data / "files"

    @property
    def lock(self) -> Path:
        """Held by whichever process owns the profile (`vault.lock_profile`)."""
        return self.data / "lock"

    @property
    def log(self) -> Path:
        return self.state / "agent.log"


def places(profile: str | None, environ: Mapping[str, str]) -> Places:
    """The places of a profile: the one named, or ZEROCHAT_PROFILE, or `default`.

    ZEROCHAT_HOME puts everything under one folder; otherwise the XDG base directories hold it, or their counterparts
    on macOS. Raises BadProfile or FolderTaken.
    """
    name = profile or environ.get("ZEROCHAT_PROFILE") or DEFAULT_PROFILE
    if not PROFILE.fullmatch(name):
        raise BadProfile(profile=ascii(name[:64]))
    if home := environ.get("ZEROCHAT_HOME"):
        root = Path(home).expanduser().absolute()
        config, data, state, cache = root, root / "data", root / "state", root / "cache"
        runtime: Path | None = root / "run"
    else:
        config, data, state, cache = (folder / "zerochat" for folder in _base_folders(environ))
        runtime = _runtime_folder(environ)
    data = data / name
    choices = [*([runtime / f"{name}.sock"] if runtime else []), data / "agent.sock"]
    return Places(name, config / "config.toml", data, state / name, cache / name, _socket(choices, name))


def _base_folders(environ: Mapping[str, str]) -> list[Path]:
    """The XDG base directories for configuration, data, state and cache. A relative path there does not count."""
    from platformdirs import PlatformDirs

    system = PlatformDirs()
    usual = (system.user_config_path, system.user_data_path, system.user_state_path, system.user_cache_path)
    named = (Path(environ.get(f"XDG_{kind}_HOME", "")) for kind in ("CONFIG", "DATA", "STATE", "CACHE"))
    return [path if path.is_absolute() else default for path, default in zip(named, usual, strict=True)]


def _runtime_folder(environ: Mapping[str, str]) -> Path | None:
    """Where this user's sockets belong, if there is such a place.

    It is looked for where systemd puts it even when the variable is not set, and must be the user's own: under `su`
    and `sudo` the variable may still name somebody else's.
    """
    uid = os.geteuid()
    for name in (environ.get("XDG_RUNTIME_DIR"), f"/run/user/{uid}"):
        folder = Path(name or "")
        if folder.is_absolute():
            try:
                facts = folder.stat()
            except OSError:
                continue
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == uid:
                return folder / "zerochat"
    return None


def _socket(choices: list[Path], profile: str) -> Path:
    """The place where an agent's socket already is, or else the first choice."""
    fitting = [path if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX else _short(path, profile) for path in choices]
    return next((path for path in fitting if path.is_socket()), fitting[0])


def _short(path: Path, profile: str) -> Path:
    """A place for a socket whose own path is too long for the kernel: a folder of ours, named after that path.

    It is in /tmp whatever TMPDIR says, so that every program finds the same one; and it is made here and now, closed
    to others, so that nobody else can make it first and listen there in our place.
    """
    from hashlib import sha256  # and with it all of OpenSSL, for a path that hardly anybody has

    uid = os.geteuid()
    mark = sha256(os.fsencode(path)).hexdigest()[:16]
    folder = SHORT / f"zerochat-{uid}-{mark}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise FolderTaken(path=folder, why=f"it cannot be made ({(error.strerror or str(error)).lower()})") from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != uid:
        raise FolderTaken(path=folder, why="it is somebody else's")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise FolderTaken(path=folder, why="it is open to other users")
    return folder / f"{profile}.sock"
