"""Reports that wait in the status line while a dialog is open."""

from zerochat.terminal_text import Printable

HELD_MAX = 3
"""Errors that wait; older ones are dropped."""


class HeldReports:
    """The newest errors, or the newest report that is none."""

    def __init__(self) -> None:
        self._held: list[Printable] = []
        self.trouble = False
        """Whether they are errors."""

    def add(self, sentence: Printable, trouble: bool) -> bool:
        """Add a report; False: errors are more important."""
        if self.trouble and not trouble:
            return False
        before = [each for each in self._held if self.trouble and each != sentence]
        self._held, self.trouble = [*before, sentence][-HELD_MAX:], trouble
        return True

    def take(self) -> Printable:
        """What waits, and then nothing does."""
        text = self.text
        self._held.clear()
        self.trouble = False
        return text

    @property
    def text(self) -> Printable:
        return Printable("\n".join(self._held))
