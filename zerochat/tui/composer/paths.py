"""Paths as people type, paste and drop them, and how one that is begun can go on."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from zerochat.terminal_text import printable_line

COMPLETIONS_MAX = 200


def path_of(text: str) -> str:
    """The path that somebody has typed, pasted, or dropped on the terminal: with quotes, backslashes, `~` or file://,
    or as it is."""
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
    """What a path that is being typed can become, folders with their slash; hidden ones only when their dot is
    typed."""
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
