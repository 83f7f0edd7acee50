"""The list above the composer: what Tab can make of what stands before the cursor."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from zerochat.terminal_text import Printable

PADDING = 2
WIDTH_MIN = 16


class Offers(Static):
    """Takes no room while there is nothing to choose from."""

    def tell(self, labels: Sequence[Printable], at: int) -> None:
        """Show these, with number `at` (-1: none) as the one that was taken."""
        self.set_class(bool(labels), "-shown")
        if not labels:
            return
        from zerochat.tui.composer.completion import window

        width = max(self.app.size.width - PADDING - len(" …"), WIDTH_MIN)
        first, lines, more = window(labels, at, width)
        rows: list[Content] = []
        number = first
        for line in lines:
            parts: list[Content | tuple[str, str] | str] = []
            for label in line:
                parts += ["  "] if parts else []
                parts.append((label, "reverse") if number == at else label)
                number += 1
            rows.append(Content.assemble(*parts))
        rows[-1] = Content.assemble(rows[-1], " …") if more else rows[-1]
        self.update(Content("\n").join(rows))
