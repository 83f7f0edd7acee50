"""Parsing of typed, pasted and dropped paths; path completion."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from zerochat.terminal_text import printable_line

COMPLETIONS_MAX = 200


def path_of(text: str) -> str:
    """The absolute path of a typed, pasted or dropped text: quoted, escaped, with `~` or file://, or plain."""
    text = text.strip()
    if text.startswith("file://"):
        return unquote(urlsplit(text).path)
    for quote in ("'", '"'):
        if len(text) > 1 and text.startswith(quote) and text.endswith(quote):
            text = text[1:-1]
    path = Path(text).expanduser()
    if not path.exists() and "\\" in text:
        path = Path(text.replace("\\ ", " ").replace("\\(", "(").replace("\\)", ")")).expanduser()
    return str(path.absolute())


def paths_for(typed: str) -> list[str]:
    """Completions of a path, folders with a slash; hidden ones only after a typed dot."""
    folder, _, start = typed.rpartition("/")
    place = Path(f"{folder}/" if typed.startswith("/") or folder else ".").expanduser()
    before = f"{folder}/" if "/" in typed else ""
    try:
        with os.scandir(place) as entries:
            found = [
                f"{before}{each.name}{'/' if each.is_dir() else ''}"
                for each in entries
                if each.name.startswith(start) and (start.startswith(".") or not each.name.startswith("."))
            ]
    except (OSError, ValueError):
        return []
    return sorted(each for each in found if printable_line(each) == each)[:COMPLETIONS_MAX]
