"""The mouse, taken or left to the terminal while the chat is running.

Textual 8.2 decides that once, when it starts: its drivers have a flag and two functions, and nobody calls them later.
"""

from typing import Any


def take_mouse(driver: Any, wanted: bool) -> None:
    """Have the terminal report the mouse, or not. A driver without one (in tests, say) has none to take."""
    if not hasattr(driver, "_disable_mouse_support") or driver._mouse == wanted:
        return
    if not wanted:
        driver._disable_mouse_support()
    driver._mouse = wanted
    if wanted:
        driver._enable_mouse_support()
