"""What a file is called that comes from somebody else: a name that does nothing by itself, wherever it is used.

It becomes a name in a folder of a person's, an argument of commands that they type, and text on their screen.
"""

import re
import unicodedata
from typing import Final

from zerochat.names import without_hidden

NAME_BYTES_MAX: Final = 200
"""Room for a number and an ending within what every file system takes."""
ENDING_BYTES_MAX: Final = 16
NAMELESS: Final = "file"
_ODD: Final = re.compile(r'[<>:"|?*$`!\'&;]')
"""What is no name on some file systems, or means something to a shell."""
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)


def safe_name(name: str) -> str:
    """A file's name, from somebody else's words, with what is left of them."""
    last = re.split(r"[/\\]", name)[-1]
    plain = without_hidden(unicodedata.normalize("NFC", last))
    plain = re.sub(r"\s+", " ", _ODD.sub("_", plain))
    plain = plain.lstrip(" .-~").rstrip(" .")
    if _RESERVED.fullmatch(plain):
        plain = f"_{plain}"
    return _shortened(plain) or NAMELESS


def _shortened(name: str) -> str:
    """At most so many bytes, with its ending where it has a short one."""
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    stem, dot, ending = name.rpartition(".")
    if not (stem and len(ending.encode()) <= ENDING_BYTES_MAX):
        stem, dot, ending = name, "", ""
    room = NAME_BYTES_MAX - len((dot + ending).encode())
    return stem.encode()[:room].decode(errors="ignore").rstrip(" .") + dot + ending


def numbered(name: str, number: int) -> str:
    """The same with a number, as `photo (1).jpg`; 0: as it is."""
    if not number:
        return name
    stem, dot, ending = name.rpartition(".")
    return f"{stem} ({number}){dot}{ending}" if stem else f"{name} ({number})"
