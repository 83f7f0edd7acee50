"""Paths of a profile: settings, keys, journal, logs, cache, and the agent's control socket.

All programs of a profile must find the same socket, otherwise two agents would compete for it. So its path depends on
the environment as little as possible (a cron job has no XDG_RUNTIME_DIR, a desktop has one), and an existing socket
takes precedence.
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
"""Safe file names on every system: no separators, no `.` and `..`, not hidden, not like an option."""
DEFAULT_PROFILE = "default"
SHORT = Path("/tmp")  # noqa: S108  # see `_short`
SOCKET_PATH_BYTES_MAX = 100
"""The kernel's `sun_path` has 104 bytes on macOS and 108 on Linux, including the final zero."""


class BadProfile(LocalError):
    """Invalid profile name {profile}. Use 1 to 32 letters (A-Z, a-z), digits, dots, dashes and underscores, beginning
    with a letter or a digit."""

    exit_code: ClassVar[int] = 2


class FolderTaken(LocalError):
    """The folder {path} cannot be used for the control socket: {why}. Remove it, or set ZEROCHAT_HOME to a folder with
    a shorter path."""

    exit_code: ClassVar[int] = 6


class NoHome(LocalError):
    """There is no home folder: HOME is not set, and the system does not know user {uid}. Set HOME, or ZEROCHAT_HOME to
    a folder for all files of zerochat."""

    exit_code: ClassVar[int] = 6


class FolderNotUnicode(LocalError):
    """The folder {path} cannot be used: SQLite needs its name in UTF-8, and it has another encoding, or the locale has.
    Choose a locale with UTF-8 (LC_ALL=C.UTF-8), or set ZEROCHAT_HOME to another folder."""

    exit_code: ClassVar[int] = 6


class ProfilePaths(Struct, frozen=True):
    """The paths of one profile, which need not exist yet."""

    profile: str
    config: Path
    """The settings file, shared by all profiles of a user."""
    data: Path
    """The profile's private folder, for what must not be lost."""
    state: Path
    """The folder for what may be lost: the log file."""
    cache: Path
    socket: Path

    @property
    def journal(self) -> Path:
        return self.data / "journal.db"

    @property
    def key_file(self) -> Path:
        """The journal's plain key, in a profile without a passphrase."""
        return self.data / "key"

    @property
    def wrapped_key_file(self) -> Path:
        """The journal's key wrapped with the passphrase, in a profile with one."""
        return self.data / "wrapped-key"

    @property
    def keyring_file(self) -> Path:
        """The account in the system's keyring that has the journal's key, in a profile that uses it."""
        return self.data / "keyring"

    @property
    def files(self) -> Path:
        """The folder of encrypted file contents, which backups do not include."""
        return self.data / "files"

    @property
    def lock(self) -> Path:
        """The lock of the process that owns the profile (`profiles.lock_profile`)."""
        return self.data / "lock"

    @property
    def log(self) -> Path:
        return self.state / "agent.log"


def profile_paths(profile: str | None, environ: Mapping[str, str]) -> ProfilePaths:
    """The paths of the named profile, or of ZEROCHAT_PROFILE, or of `default`.

    ZEROCHAT_HOME puts everything into one folder; otherwise the XDG base directories are used, or their counterparts on
    macOS. Raises BadProfile, NoHome, FolderNotUnicode or FolderTaken.
    """
    name = profile or environ.get("ZEROCHAT_PROFILE") or DEFAULT_PROFILE
    if not PROFILE.fullmatch(name):
        raise BadProfile(profile=ascii(name[:64]))
    if home := environ.get("ZEROCHAT_HOME"):
        root = user_path(home).absolute()
        config, data, state, cache = root, root / "data", root / "state", root / "cache"
        runtime: Path | None = root / "run"
    else:
        config, data, state, cache = (folder / "zerochat" for folder in _base_folders(environ))
        runtime = _runtime_folder(environ)
    data = data / name
    if os.fsencode(data) != str(data).encode(errors="replace"):
        raise FolderNotUnicode(path=data)
    choices = [*([runtime / f"{name}.sock"] if runtime else []), data / "agent.sock"]
    return ProfilePaths(name, config / "config.toml", data, state / name, cache / name, _socket(choices, name))


def user_path(text: str | Path) -> Path:
    """A path that a user gave: `~` and `~NAME` stand for home folders, and for themselves where there is none."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  # that of `Path` raises an error


def path_to_wire(path: str | Path) -> str:
    """An absolute path for the other side of the control socket, whose locale may have another encoding: as UTF-8, or
    as a `file:` URI if its bytes are none."""
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        return Path(path).as_uri()


def path_from_wire(text: str) -> Path:
    """The path that `path_to_wire` has written."""
    if not text.startswith("file:///"):
        return Path(os.fsdecode(text.encode(errors="surrogateescape")))
    from urllib.parse import unquote_to_bytes

    return Path(os.fsdecode(unquote_to_bytes(text.removeprefix("file://"))))


def _base_folders(environ: Mapping[str, str]) -> list[Path]:
    """The XDG base directories for configuration, data, state and cache. Relative paths are ignored. Raises NoHome."""
    kinds = ("config", "data", "state", "cache")
    named = {kind: Path(environ.get(f"XDG_{kind.upper()}_HOME", "")) for kind in kinds}
    return [path if path.is_absolute() else system_folder(kind) for kind, path in named.items()]


def system_folder(kind: str) -> Path:
    """The system's default for a user's folder: config, data, state, cache or downloads. Raises NoHome."""
    from platformdirs import PlatformDirs

    try:
        folder: Path = getattr(PlatformDirs(), f"user_{kind}_path")
    except RuntimeError:
        raise NoHome(uid=os.geteuid()) from None
    return folder


def _runtime_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder for this user's sockets, if any.

    systemd's usual path is tried even when XDG_RUNTIME_DIR is not set. The folder must belong to this user: under `su`
    and `sudo` the variable may name another user's.
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
    """The path of an existing socket, or else the first choice."""
    fitting = [path if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX else _short(path, profile) for path in choices]
    return next((path for path in fitting if _is_socket(path)), fitting[0])


def _is_socket(path: Path) -> bool:
    """Whether there is a socket; no where this user may not look."""
    try:
        return path.is_socket()
    except OSError:
        return False


def _short(path: Path, profile: str) -> Path:
    """A short path for a socket whose own path is too long for the kernel: a folder named after a hash of that path.

    It is in /tmp regardless of TMPDIR, so that all programs find it; and it is created now, with mode 0700, so that no
    other user can create it first and impersonate the agent.
    """
    from hashlib import sha256  # loads OpenSSL, for a rare case

    uid = os.geteuid()
    mark = sha256(os.fsencode(path)).hexdigest()[:16]
    folder = SHORT / f"zerochat-{uid}-{mark}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise FolderTaken(
            path=folder, why=f"it cannot be created ({(error.strerror or str(error)).lower()})"
        ) from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != uid:
        raise FolderTaken(path=folder, why="it belongs to another user")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise FolderTaken(path=folder, why="other users can access it")
    return folder / f"{profile}.sock"
