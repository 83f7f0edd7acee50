"""The search dialog: incremental search with paged results."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from zerochat.presentation.history_rules import nothing_found
from zerochat.presentation.search_query import with_zone
from zerochat.rpc import Found, HistoryStart, Hit, SearchParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.composer.composer import LineInput
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.style.text import local_time, name_of

DEBOUNCE_S: Final = 0.15
"""Delay from the last letter to the request."""
PAGE_HITS: Final = 50
HITS_MAX: Final = 1_000
"""Results held in the list."""
MATCH_STYLE: Final = "bold underline"
"""Style of matches, visible without colours too."""
HINT: Final = Printable('"exact phrase"  from:NAME  to:me  in:GROUP  after:DATE  before:DATE   Enter opens it')


class SearchDialog(Dialog[Hit | None]):
    """Returns the chosen message."""

    BINDING_GROUP_TITLE = "Search"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+f,f5", "close", "Close", id="search.close"),
        Binding("up", "move(-1)", "Newer result", show=False, priority=True, id="search.up"),
        Binding("down", "move(1)", "Older result", show=False, priority=True, id="search.down"),
        Binding("pageup", "page(-1)", "Page of results up", show=False, priority=True, id="search.page_up"),
        Binding("pagedown", "page(1)", "Page of results down", show=False, priority=True, id="search.page_down"),
    ]

    def __init__(
        self,
        search: Callable[[SearchParams], Awaitable[Found]],
        groups: Mapping[str, Printable],
        query: str = "",
        starts: Callable[[], Iterable[HistoryStart | None]] = tuple,
        byline: Callable[[Hit], Printable] = lambda hit: name_of(hit.author.nick),
    ) -> None:
        """`groups`: names by id. `query`: the initial query, run at once. `starts`: where the histories begin.
        `byline`: the author of a hit, as the chat shows it."""
        super().__init__()
        self._byline = byline
        self._starts = starts
        self._request, self._groups = search, groups
        self._query = query
        self._asked = 0
        """Number of the last query; responses to earlier ones are dropped."""
        self._hits: list[Hit] = []
        self._cursor: int | None = None
        self._reading = False
        self._timer: Timer | None = None
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self._line = LineInput(query, compact=True, id="search-query", select_on_focus=False)
        self._found = OptionList(id="search-results", markup=False, compact=True)
        self._status_text = Static(Content(""), id="search-status", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content("Search messages"), classes="title")
            yield self._line
            yield self._found
            yield self._status_text
            yield Static(Content(HINT), classes="hint")

    def on_mount(self) -> None:
        self._line.focus()
        if self._query.strip():
            self._search()

    # --- query -----------------------------------------------------------------------------------------------------

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value == self._query:
            return
        self._query = event.value
        self._asked += 1
        if self._timer is not None:
            self._timer.stop()
        if self._query.strip():
            self._timer = self.set_timer(DEBOUNCE_S, self._search)
        else:
            self._show(Found(hits=[]), anew=True)
            self._show_status(Printable(""))

    def _search(self) -> None:
        self._asked += 1
        self.run_worker(self._read(self._asked, None))

    async def _read(self, number: int, cursor: int | None) -> None:
        try:
            query = with_zone(self._query, int(time.time() * 1000))
            found = await self._request(SearchParams(query=query, limit=PAGE_HITS, cursor=cursor))
        except AgentError as error:
            if number == self._asked:
                self._show(Found(hits=[]), anew=True)
                self._show_status(printable_line(str(error)), trouble=True)
            return
        finally:
            self._reading = False
        if number == self._asked:
            self._show(found, anew=cursor is None)

    def _show(self, found: Found, *, anew: bool) -> None:
        if anew:
            self._hits = []
            self._found.clear_options()
        first = len(self._hits)
        self._hits += found.hits
        self._cursor = found.cursor if len(self._hits) < HITS_MAX else None
        self._found.add_options(Option(self._entry(hit), id=str(first + at)) for at, hit in enumerate(found.hits))
        if anew:
            self._found.highlighted = 0 if self._hits else None
        count = len(self._hits)
        more = " or more" if found.cursor is not None else ""
        none = nothing_found(self._starts()) if anew else ""
        self._show_status(printable_line(f"{count}{more} found" if count else none))

    def _show_status(self, sentence: Printable, *, trouble: bool = False) -> None:
        self._status_text.set_class(trouble, "-trouble")
        self._status_text.update(Content(sentence))

    def _entry(self, hit: Hit) -> Content:
        """Two lines: time, author and group; the text with its matches."""
        group = self._groups.get(hit.group, Printable("?"))
        head = Content.assemble(
            (time_text(min(hit.sent_at, hit.received_at)), "$text-muted"),
            "  ",
            (self._byline(hit), "bold"),
            ("  in " + group, "$text-muted"),
        )
        return Content("\n").join([head, highlighted(hit)])

    # --- choosing --------------------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        if step > 0:
            self._found.action_cursor_down()
        else:
            self._found.action_cursor_up()

    def action_page(self, step: int) -> None:
        lines = max(self._found.size.height // 2, 1)
        for _ in range(lines):
            at = self._found.highlighted
            if at is None or not 0 <= at + step < self._found.option_count:
                return
            self.action_move(step)

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        """Load the next page near the last result."""
        near = event.option_index >= len(self._hits) - PAGE_HITS // 5
        if near and self._cursor is not None and not self._reading:
            self._reading = True
            self.run_worker(self._read(self._asked, self._cursor))

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value == self._query and (at := self._found.highlighted) is not None:
            self.dismiss(self._hits[at])

    @on(OptionList.OptionSelected)
    def _select(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._hits[event.option_index])

    def action_close(self) -> None:
        self.dismiss(None)


def highlighted(hit: Hit) -> Content:
    """The excerpt of a message with highlighted matches."""
    parts: list[Content] = []
    at = 0
    for start, end in hit.spans:
        if not at <= start < end <= len(hit.text):
            continue
        word = Content.styled(printable_line(hit.text[start:end]), MATCH_STYLE)
        parts += [Content(printable_line(hit.text[at:start])), word]
        at = end
    return Content("").join([*parts, Content(printable_line(hit.text[at:]))])


def time_text(stamp: str) -> str:
    """As in "20 Nov 14:03", with the year if not the current one."""
    moment = local_time(stamp)
    if moment is None:
        return "?"
    year = "" if moment.year == datetime.now().astimezone().year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year} {moment:%H:%M}"
