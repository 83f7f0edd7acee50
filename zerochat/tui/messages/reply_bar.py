"""The composer's target: the message that it replies to, or the own message that it edits."""

from dataclasses import dataclass
from typing import Literal

from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.messages.row import Key, Row
from zerochat.tui.style.text import Names

CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class ComposeTarget:
    """`stash`: the draft replaced by the text of an edited message."""

    kind: Literal["reply", "edit"]
    key: Key
    author: str
    text: Printable
    stash: str = ""

    @classmethod
    def reply(cls, row: Row) -> "ComposeTarget":
        return cls("reply", row.key, row.author, printable_line(row.source[:CHARS_MAX]))

    @classmethod
    def edit(cls, row: Row, stash: str) -> "ComposeTarget":
        return cls("edit", row.key, row.author, printable_line(row.source[:CHARS_MAX]), stash)

    @property
    def id(self) -> str:
        return self.key[2]

    def unsent(self, text: str) -> str:
        """The draft to save for the composer's `text`; for an edit also the stash."""
        if self.kind == "reply":
            return text
        changed = text if printable_line(text[:CHARS_MAX]) != self.text else ""
        return "\n".join(part for part in (self.stash, changed) if part.strip())

    def sentence(self, names: Names) -> Printable:
        """The sentence above the composer."""
        if self.kind == "edit":
            return Printable(f"Editing: {self.text}")
        return Printable(f"Replying to {names.byline(self.author)}: {self.text}")
