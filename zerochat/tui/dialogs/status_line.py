"""The line of a sheet that says what has just come of something."""

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from zerochat.tui.panels.bars import SAID_S


class Said(Static):
    """What is told goes after some seconds, trouble not before something else is told; what lasts comes back."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._lasting = ""
        self._ends: Timer | None = None

    def last(self, sentence: str) -> None:
        """This is so from now on: a printable sentence, or nothing."""
        self._lasting = sentence
        self._show(sentence)

    def tell(self, sentence: str, *, trouble: bool = False) -> None:
        """Say a printable sentence for a while."""
        self._show(sentence, trouble=trouble)
        if not trouble:
            self._ends = self.set_timer(SAID_S, lambda: self._show(self._lasting))

    def _show(self, sentence: str, *, trouble: bool = False) -> None:
        if self._ends is not None:
            self._ends.stop()
            self._ends = None
        self.set_class(trouble, "-trouble")
        self.update(Content(sentence))
