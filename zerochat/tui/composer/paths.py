"""Parsing of typed, pasted and dropped paths; path completion."""

import os
from urllib.parse import unquote, urlsplit

from zerochat.agent.storage.paths import user_path
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
    path = user_path(text)
    if not path.exists() and "\\" in text:
        path = user_path(text.replace("\\ ", " ").replace("\\(", "(").replace("\\)", ")"))
    return str(path.absolute())


def paths_for(typed: str) -> list[str]:
    """Completions of a path, folders with a slash; hidden ones only after a typed dot."""
    folder, _, start = typed.rpartition("/")
    place = user_path(f"{folder}/" if typed.startswith("/") or folder else ".")
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
