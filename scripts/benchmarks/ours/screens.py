"""The programs whose panes are measured, each in a terminal of its own: ours, and Textual's widgets for the same.

`python screens.py ours SOCKET FILE` is the chat itself, over a control socket. `richlog N FILE` and `statics N FILE`
show the same messages, when `o` is pressed; `a` lets one arrive, `l` a late one, `b` a burst. On SIGUSR1 each writes to
FILE the longest stall of its event loop and its longest uninterrupted work since the last time: by wall clock and by
processor, in milliseconds.
"""

import asyncio
import signal
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parents[2])]

from benchmarks.ours.chatter import PEOPLE, author_of, text_of  # noqa: E402

BITE = 256
BEAT_S = 0.002


async def beat(file: Path) -> None:
    """Read the clock continuously; a delay of this loop also delays drawing."""
    longest, last = 0.0, time.perf_counter()
    hardest, spent = 0.0, time.process_time()

    def report() -> None:
        nonlocal longest, hardest
        unfinished = file.with_suffix(".new")
        unfinished.write_text(f"{longest * 1000:.3f} {hardest * 1000:.3f}")
        unfinished.replace(file)
        longest = hardest = 0.0

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, report)
    while True:
        await asyncio.sleep(BEAT_S)
        now = time.perf_counter()
        longest, last = max(longest, now - last - BEAT_S), now
        worked = time.process_time()
        hardest, spent = max(hardest, worked - spent), worked


def ours(socket: Path, file: Path) -> None:
    from zerochat.tui import app

    class Beating(app.ZerochatApp):
        CSS_PATH = str(Path(app.__file__).with_name("app.tcss"))

        def on_mount(self) -> None:
            super().on_mount()
            self.run_worker(beat(file), group="beat")

    Beating(socket).run()


def theirs(kind: str, messages: int, file: Path) -> None:
    from rich.text import Text
    from textual.app import App, ComposeResult
    from textual.containers import VerticalScroll
    from textual.widgets import RichLog, Static

    def line_of(number: int) -> Text:
        nick = PEOPLE[author_of(number)]
        return Text.assemble(("14:03 ", "dim"), (f"{nick:>8}", "bold cyan"), (" │ ", "dim"), text_of(number))

    class Shown(App[None]):
        BINDINGS = [("o", "open"), ("a", "say(1)"), ("b", "say(10000)"), ("l", "late"), ("c", "say(1000)")]  # noqa: RUF012
        count = messages

        def compose(self) -> ComposeResult:
            if kind == "richlog":
                yield RichLog(wrap=True, min_width=20, id="pane")
            else:
                yield VerticalScroll(id="pane")

        def on_mount(self) -> None:
            self.pane = self.query_one("#pane")
            self.pane.focus()
            self.run_worker(beat(file), group="beat")

        async def _put(self, numbers: range) -> None:
            if isinstance(self.pane, RichLog):
                for number in numbers:
                    self.pane.write(line_of(number))
            else:
                await self.pane.mount_all([Static(line_of(number)) for number in numbers])
                # A thousand of them are laid out long after they are mounted, and only then is there an end to go to.
                self.call_after_refresh(self.pane.scroll_end, animate=False)

        async def action_open(self) -> None:
            await self._put(range(self.count))

        def action_say(self, count: int) -> None:
            """In bites with a frame between them, as ours takes its news."""
            first, self.count = self.count, self.count + count

            async def bite() -> None:
                nonlocal first
                end = min(first + BITE, self.count)
                await self._put(range(first, end))
                first = end
                if first < self.count:
                    self.set_timer(1 / 60, bite)

            self.call_next(bite)

        def action_late(self) -> None:
            self.count += 1
            if isinstance(self.pane, VerticalScroll):
                self.pane.mount(Static(line_of(self.count - 1)), before=len(self.pane.children) - 5)
                self.call_after_refresh(self.pane.scroll_end, animate=False)  # else the end scrolls out of sight

    app = Shown()
    app.animation_level = "none"
    app.run()


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        ours(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        theirs(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
