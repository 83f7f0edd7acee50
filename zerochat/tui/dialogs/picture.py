"""A picture in half blocks: two pixels per cell, foreground and background of `▀`."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Vertical
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from zerochat.rpc import Picture
from zerochat.terminal_text import Printable
from zerochat.tui.dialogs.dialog import Dialog

FRAME_COLUMNS, FRAME_ROWS = 8, 8
"""Cells of the dialog around a picture."""
UPPER = "▀"


def room(columns: int, rows: int) -> tuple[int, int]:
    """(width, height) in pixels that fit on the screen."""
    return max(2, columns - FRAME_COLUMNS), max(2, (rows - FRAME_ROWS) * 2)


def half_blocks(picture: Picture) -> Content:
    """The picture as lines of text."""
    lines = []
    for y in range(0, picture.height, 2):
        cells = []
        for x in range(picture.width):
            upper, lower = _pixel(picture, x, y), _pixel(picture, x, min(y + 1, picture.height - 1))
            cells.append((UPPER, Style(background=lower, foreground=upper)))
        lines.append(Content.assemble(*cells))
    return Content("\n").join(lines)


def _pixel(picture: Picture, x: int, y: int) -> Color:
    at = (y * picture.width + x) * 3
    return Color(*picture.pixels[at : at + 3])


class PictureDialog(Dialog[None]):
    """Shows one picture."""

    BINDING_GROUP_TITLE = "Pictures"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,p", "close", "Close", id="picture.close")]

    def __init__(self, title: Printable, picture: Picture) -> None:
        super().__init__()
        self._title, self._picture = title, picture

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content(self._title), classes="title")
            yield Static(half_blocks(self._picture), id="picture")
            yield Static(Content("Esc closes"), classes="hint")

    def action_close(self) -> None:
        self.dismiss(None)
