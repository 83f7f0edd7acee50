"""Sanitises the file names of other members for folders, shells and terminals."""

import re
import unicodedata
from typing import Final

from zerochat.names import without_hidden

NAME_BYTES_MAX: Final = 200
"""Leaves room for a number and an extension within the limits of all file systems."""
ENDING_BYTES_MAX: Final = 16
NAMELESS: Final = "file"
_ODD: Final = re.compile(r'[<>:"|?*$`!\'&;]')
"""Characters that are invalid on some file systems or special in a shell."""
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)


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
