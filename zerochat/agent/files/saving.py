"""Saves files to the user's folders: under safe names, atomically, without overwriting, with mode 0600."""

import errno
import hashlib
import os
import re
import secrets
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from zerochat.agent.storage.database import disk_error, sync_folder
from zerochat.agent.storage.paths import system_folder, user_path
from zerochat.errors import LocalError
from zerochat.names import without_hidden

NUMBERS_MAX: Final = 1_000
NAME_BYTES_MAX: Final = 200
"""Leaves room for a number and an extension within the limits of all file systems."""
ENDING_BYTES_MAX: Final = 16
NAMELESS: Final = "file"
_ODD: Final = re.compile(r'[<>:"|?*$`!\'&;]')
"""Characters that are invalid on some file systems or special in a shell."""
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)


class NoSuchFolder(LocalError):
    """The folder {path} does not exist. Create it, or choose another one (`--output`)."""


class NoNameLeft(LocalError):
    """{path} and all numbered variants of this name exist. Choose another name (`--output`)."""


class Saved(Struct, frozen=True):
    path: Path
    sha256: str
    """Hexadecimal, as printed by `sha256sum`."""


def downloads(environ: Mapping[str, str]) -> Path:
    """The user's download folder (XDG), or `downloads` under ZEROCHAT_HOME. Raises NoHome."""
    if home := environ.get("ZEROCHAT_HOME"):
        return user_path(home).absolute() / "downloads"
    return system_folder("downloads")


def save(name: str, parts: Iterable[bytes], target: str, folder: Path) -> Saved:
    """Save a file that its sender named `name`: as `target` (a file or a folder), or if that is empty into `folder`.

    Existing files are not overwritten. Raises NoSuchFolder, NoNameLeft, DiskFull, DiskReadOnly or DiskFailed.
    """
    wanted = Path(target) if target else folder / safe_name(name)
    if target and wanted.is_dir():
        wanted = wanted / safe_name(name)
    try:
        if not target:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not wanted.is_absolute() or not wanted.parent.is_dir():
            raise NoSuchFolder(path=wanted.parent)
        return _save(wanted, parts)
    except OSError as error:
        raise disk_error(error, wanted) from error


def _save(wanted: Path, parts: Iterable[bytes]) -> Saved:
    fresh = wanted.parent / f".zerochat-{secrets.token_hex(8)}"
    total = hashlib.sha256()
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            for part in parts:
                total.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        path = _named(fresh, wanted)
        sync_folder(wanted.parent)
        return Saved(path, total.hexdigest())
    finally:
        fresh.unlink(missing_ok=True)


def _named(fresh: Path, wanted: Path) -> Path:
    """Give the file the first free name."""
    for number in range(NUMBERS_MAX):
        path = wanted.with_name(numbered(wanted.name, number))
        with suppress(FileExistsError):
            try:
                os.link(fresh, path)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
                    raise
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                fresh.replace(path)  # a file system without links
            return path
    raise NoNameLeft(path=wanted)


# --- file names that other members chose ------------------------------------------------------------------------------


def safe_name(name: str) -> str:
    """A safe file name made from an untrusted one."""
    last = re.split(r"[/\\]", name)[-1]
    plain = without_hidden(unicodedata.normalize("NFC", last))
    plain = re.sub(r"\s+", " ", _ODD.sub("_", plain))
    plain = plain.lstrip(" .-~").rstrip(" .")
    if _RESERVED.fullmatch(plain):
        plain = f"_{plain}"
    return _shortened(plain) or NAMELESS


def _shortened(name: str) -> str:
    """The name cut to NAME_BYTES_MAX, keeping a short extension."""
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    stem, dot, ending = name.rpartition(".")
    if not (stem and len(ending.encode()) <= ENDING_BYTES_MAX):
        stem, dot, ending = name, "", ""
    room = NAME_BYTES_MAX - len((dot + ending).encode())
    return stem.encode()[:room].decode(errors="ignore").rstrip(" .") + dot + ending


def numbered(name: str, number: int) -> str:
    """The name with a number, as in `photo (1).jpg`; 0: unchanged."""
    if not number:
        return name
    stem, dot, ending = name.rpartition(".")
    return f"{stem} ({number}){dot}{ending}" if stem else f"{name} ({number})"
