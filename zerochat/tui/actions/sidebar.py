"""The list of conversations: hiding it, and changing its width by keys or by dragging its border."""

from zerochat.tui.actions.settings import apply_setting
from zerochat.tui.base_app import app_of
from zerochat.tui.chat_layout import BREAKPOINTS, SIDEBAR_CELLS_MIN
from zerochat.tui.chat_view import ChatView

WIDTH_MAX = 60
"""The bound of `chat.sidebar_width`."""
_WIDE_ENOUGH = next(width for width, name in BREAKPOINTS if name == "-medium")


def toggle(chat: ChatView) -> None:
    """Show or hide the list. The setting keeps the choice, but not in a window too narrow for the list."""
    shown = chat.toggle_sidebar()
    if chat.size.width >= _WIDE_ENOUGH:
        apply_setting(chat, "chat.sidebar", "true" if shown else "false", quiet=True)


def width(chat: ChatView) -> int:
    """The width of the list, also before the last change of it is drawn."""
    drawn = chat.group_list.outer_size.width
    return min(app_of(chat).settings_store.current.sidebar_width or drawn, chat.size.width // 2)


def resize(chat: ChatView, width: int) -> None:
    """Set the width of the list, with its border, and keep it."""
    if chat.group_list.display:
        width = max(SIDEBAR_CELLS_MIN, min(width, WIDTH_MAX, chat.size.width // 2))
        apply_setting(chat, "chat.sidebar_width", str(width), quiet=True)
