"""Shared by TUI tests: a pilot over the fake agent, waiting, and the screen as text."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from textual._context import visible_screen_stack
from textual.app import App
from textual.events import Key, MouseMove, Paste
from textual.pilot import Pilot
from textual.strip import Strip

from tests.support.fake_agent import FakeAgent
from zerochat.tui.app import ZerochatApp

DEADLINE_S = 30.0
"""Far beyond the normal duration: reaching it means a hang."""
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
    return "\n".join(strip.text.rstrip() for strip in strips(app))


def strips(app: App[Any]) -> list[Strip]:
    """The screen line by line, as the application paints it: whoever paints a screen that lies over another one has to
    say which, and would else leave it over nothing."""
    visible_screen_stack.set(app._background_screens)
    return app.screen._compositor.render_strips()


def assert_harmless(text: str) -> None:
    """The shown text contains no control or bidi characters."""
    bad = {char for char in text if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160)}
    bad |= set(text) & set("\u202e\u200b\u2066")
    assert not bad, (bad, text)


# --- an application and its agent -----------------------------------------------------------------------------------

HOSTILE = "\x1b]52;c;aGk=\x07[@click=app.quit]x[/][/b]\x1b[2J\x9b1mé\u202ereversed\x00\u200b\nsecond"
"""Characters of names and posts that must never reach the screen."""


class Scene:
    """One application over one agent; `await scene.press("a", "enter")`, `await scene.shows("text")`."""

    def __init__(self, agent, app, pilot):
        self.agent, self.app, self.pilot = agent, app, pilot

    async def press(self, *keys):
        await self.pilot.press(*keys)

    async def type(self, text):
        """Type all letters at once, as in fast typing."""
        for letter in text:
            self.app.post_message(Key("space" if letter == " " else letter, letter))
        await self.pilot.pause()

    async def say(self, text):
        """Type a line and send it."""
        self.composer.set_text(text)
        await self.pilot.press("enter")

    async def paste(self, text):
        self.app.screen.focused.post_message(Paste(text))
        await self.pilot.pause()

    async def shows(self, *texts):
        for text in texts:
            await shows(self.pilot, text)

    async def gone(self, text):
        await gone(self.pilot, text)

    async def until(self, condition, what=""):
        await until(self.pilot, condition, what)

    @property
    def text(self):
        return screen(self.app)

    @property
    def composer(self):
        return self.app.chat.composer

    @property
    def open(self):
        return self.app.chat.conversations.open

    async def drag(self, x, y):
        """Move the mouse with its first button held."""
        await self.pilot._post_mouse_events([MouseMove], offset=(x, y), button=1)

    async def position(self, text):
        """(x, y) of `text` on the screen, as soon as two looks in a row show the same: a click needs a layout that
        stays."""
        await self.shows(text)
        before = None
        while before != (before := self.text):
            await self.pilot.pause()
        return next((line.index(text), y) for y, line in enumerate(before.split("\n")) if text in line)

    def told(self):
        """What the toasts and the status line say."""
        return " ".join([*(str(note.message) for note in self.app._notifications), self.app.chat.status_line.flash])


@asynccontextmanager
async def scene(tmp_path, size=(80, 24), setting=None, **options):
    """An agent with whatever `setting` puts into it, and the application at `size` on its socket."""
    async with FakeAgent(tmp_path / "agent.sock") as agent:
        if setting:
            setting(agent)
        app = ZerochatApp(agent.path, **options)
        app.animation_level = "none"
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Scene(agent, app, pilot)


def weekend(agent):
    """Two groups; three posts in the first."""
    group = agent.add_group("weekend", ["bob", "carol"])
    agent.post(group, 1, "shall we go?", minute=1)
    agent.post(group, 2, "yes", minute=2)
    agent.post(group, 0, "seven at the station", minute=3, delivered=1)
    agent.add_group("work", ["dave"])


def run(coroutine):
    return asyncio.run(coroutine)


def asked(agent, method):
    """The parameters of everything of this kind that the agent was asked."""
    return [params for each, params in agent.asked if each == method]


def completed(text: str, names: Sequence[str] = ()) -> str | None:
    """The text after one Tab; None: nothing to complete."""
    from zerochat.tui.composer.completion import common_prefix, completions

    found = completions(text, names)
    if not found:
        return None
    longer = found[0].text if len(found) == 1 else common_prefix(text, found)
    return longer if longer != text else None
