"""What the tests of the terminal application share: waiting for what must come, and reading the screen as text."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.pilot import Pilot

DEADLINE_S = 10.0
"""Far beyond what anything needs; whoever reaches it has hung."""
POLL_S = 0.005
"""Between two looks: Textual's own pause waits for an idle processor, five times as long."""


async def until(pilot: Pilot[Any], condition: Callable[[], object], what: str = "") -> None:
    """Let the application run until `condition` holds; show the screen when it does not come to that."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what or 'this'} did not happen; the screen:\n{screen(pilot.app)}"
        await asyncio.sleep(POLL_S)


async def shows(pilot: Pilot[Any], text: str) -> None:
    """Wait until `text` can be read on the screen, in one line."""
    await until(pilot, lambda: text in screen(pilot.app), repr(text))


async def gone(pilot: Pilot[Any], text: str) -> None:
    await until(pilot, lambda: text not in screen(pilot.app), f"the end of {text!r}")


def screen(app: App[Any]) -> str:
    """Every line of the screen, without the blanks at its end."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)
