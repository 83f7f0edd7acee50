"""What the text in the composer is about: a message that it answers, or one of one's own that it changes."""

from dataclasses import dataclass
from typing import Literal

from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.messages.row import Key, Row
from zerochat.tui.style.text import Names

CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class About:
    """`stash`: what stood in the composer before a message was put there to be changed."""

    kind: Literal["reply", "edit"]
    key: Key
    author: str
    text: Printable
    stash: str = ""

    @classmethod
    def reply(cls, row: Row) -> "About":
        return cls("reply", row.key, row.author, printable_line(row.source[:CHARS_MAX]))

    @classmethod
    def edit(cls, row: Row, stash: str) -> "About":
        return cls("edit", row.key, row.author, printable_line(row.source[:CHARS_MAX]), stash)

    @property
    def id(self) -> str:
        return self.key[2]

    def unsent(self, text: str) -> str:
        """What is to be kept of the composer's `text`: where it is to change a message, what waits behind it too."""
        if self.kind == "reply":
            return text
        changed = text if printable_line(text[:CHARS_MAX]) != self.text else ""
        return "\n".join(part for part in (self.stash, changed) if part.strip())

    def sentence(self, names: Names) -> Printable:
        """What stands above the composer."""
        if self.kind == "edit":
            return Printable(f"Editing: {self.text}")
        return Printable(f"Answering {names.byline(self.author)}: {self.text}")
