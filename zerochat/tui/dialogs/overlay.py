"""What lies over the chat."""

from typing import ClassVar, TypeVar

from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

Answer = TypeVar("Answer")


class Over(ModalScreen[Answer]):
    """A screen over the chat that goes once.

    A hand that is faster than the screen presses Enter twice; Textual would take away whatever lies below for the
    second time, and end the application where nothing does.
    """

    BINDING_GROUP_TITLE = "Over the chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        # The application's own: a modal screen hides it.
        Binding("ctrl+c", "app.interrupt", "Copy the selection; twice: quit", show=False, id="sheet.interrupt"),
    ]

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self in self.app.screen_stack else AwaitComplete()
