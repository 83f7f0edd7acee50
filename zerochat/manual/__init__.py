"""The user's manual: one Markdown page per topic, shown by `zerochat help TOPIC` and in the chat.

The topic is the name of the file, the title its first heading.
"""

from importlib.resources import files
from typing import Final

FIRST: Final = "getting-started"


def topics() -> dict[str, str]:
    """The titles of all pages by topic: getting-started first, the others in alphabetical order."""
    names = sorted(page.name.removesuffix(".md") for page in files(__name__).iterdir() if page.name.endswith(".md"))
    return {name: _title(read_page(name)) for name in sorted(names, key=lambda name: name != FIRST)}


def read_page(topic: str) -> str:
    """The text of a page. Raises FileNotFoundError for an unknown topic."""
    return files(__name__).joinpath(f"{topic}.md").read_text(encoding="utf-8")


def _title(text: str) -> str:
    return next((line.removeprefix("# ").strip() for line in text.splitlines() if line.startswith("# ")), "")
