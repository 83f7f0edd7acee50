"""The message pane as plain lines."""

import asyncio
from contextlib import asynccontextmanager

from textual.app import App

import zerochat.tui
from zerochat.rpc import History
from zerochat.terminal_text import Printable
from zerochat.tui.messages.pane import MessagePane
from zerochat.tui.messages.timeline import Row
from zerochat.tui.state.conversation import Conversation


def a_row(lamport, author="did:key:z6MkBob", text="hello", **details):
    id = details.pop("id", f"e{lamport:06}")
    known = {"day": "Thursday 20 November 2025", "time": "12:00", "position": lamport, "of": 2, "line": 1}
    return Row(
        key=(lamport, author, id),
        kind=details.pop("kind", "post"),
        author=author,
        nick=Printable("bob"),
        text=Printable(text),
        **{**known, **details},
    )


def conversation(agent, group):
    known = Conversation(group.info)
    known.learn_members(group.members)
    known.add_first_page(History(group.events, more=False), line=1)
    return known


class PaneApp(App[None]):
    CSS_PATH = zerochat.tui.__path__[0] + "/app.tcss"
    CSS = "MessagePane { padding: 0; }"

    def compose(self):
        yield MessagePane(id="pane")


@asynccontextmanager
async def shown(known, size):
    app = PaneApp()
    async with app.run_test(size=size) as pilot:
        pane = app.query_one(MessagePane)
        pane.tail = known.tail
        pane.show(known.timeline, known.names, known.place)
        await pilot.pause()
        yield pilot, pane


def lines(pane):
    return [pane.render_line(y).text.rstrip() for y in range(pane.size.height)]


def golden(known, size):
    async def look():
        async with shown(known, size) as (_, pane):
            return "\n".join(lines(pane)).rstrip()

    return asyncio.run(look())
