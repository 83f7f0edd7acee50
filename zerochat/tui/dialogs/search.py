"""The search: words, and what was said with them, while they are typed."""

from collections.abc import Awaitable, Callable, Mapping
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

from zerochat.rpc import Found, Hit, SearchParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.composer.composer import LineInput
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.style.text import local_time, name_of

WAIT_S: Final = 0.15
"""After the last letter, before the agent is asked."""
PAGE_HITS: Final = 50
HITS_MAX: Final = 1_000
"""What one list holds; with more, some other words narrow it down."""
FOUND: Final = "bold underline"
"""The words that were looked for: to be seen without colours too."""
HINT: Final = Printable('"in quotes": just so  from:NAME  to:me  in:GROUP  after:DATE  before:DATE   Enter goes there')


class SearchScreen(Over[Hit | None]):
    """Answers the message to go to."""

    BINDING_GROUP_TITLE = "Search"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+f,f5", "close", "Close", id="search.close"),
        Binding("up", "move(-1)", "Newer hit", show=False, priority=True, id="search.up"),
        Binding("down", "move(1)", "Older hit", show=False, priority=True, id="search.down"),
        Binding("pageup", "page(-1)", "A screen of hits up", show=False, priority=True, id="search.page_up"),
        Binding("pagedown", "page(1)", "A screen of hits down", show=False, priority=True, id="search.page_down"),
    ]

    def __init__(
        self, ask: Callable[[SearchParams], Awaitable[Found]], groups: Mapping[str, Printable], query: str = ""
    ) -> None:
        """`groups`: their names, by id. `query`: what is looked for at once."""
        super().__init__()
        self._ask, self._groups = ask, groups
        self._query = query
        self._asked = 0
        """Counts the questions: what answers an earlier one comes too late."""
        self._hits: list[Hit] = []
        self._cursor: int | None = None
        self._reading = False
        self._timer: Timer | None = None
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._line = LineInput(query, compact=True, id="sought", select_on_focus=False)
        self._found = OptionList(id="hits", markup=False, compact=True)
        self._said = Static(Content(""), id="search-said", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content("Search what was said"), classes="title")
            yield self._line
            yield self._found
            yield self._said
            yield Static(Content(HINT), classes="hint")

    def on_mount(self) -> None:
        self._line.focus()
        if self._query.strip():
            self._search()

    # --- asking ----------------------------------------------------------------------------------------------------

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
            self._timer = self.set_timer(WAIT_S, self._search)
        else:
            self._show(Found(hits=[]), anew=True)
            self._tell(Printable(""))

    def _search(self) -> None:
        self._asked += 1
        self.run_worker(self._read(self._asked, None))

    async def _read(self, number: int, cursor: int | None) -> None:
        try:
            found = await self._ask(SearchParams(query=self._query, limit=PAGE_HITS, cursor=cursor))
        except AgentError as error:
            if number == self._asked:
                self._show(Found(hits=[]), anew=True)
                self._tell(printable_line(str(error)), trouble=True)
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
        self._tell(Printable(f"{count}{more} found" if count else "Nothing like this was said." if anew else ""))

    def _tell(self, sentence: Printable, *, trouble: bool = False) -> None:
        self._said.set_class(trouble, "-trouble")
        self._said.update(Content(sentence))

    def _entry(self, hit: Hit) -> Content:
        """Two lines: when, where and who; and what was said, with the words that were found."""
        group = self._groups.get(hit.group, Printable("?"))
        head = Content.assemble(
            (moment_text(min(hit.sent_at, hit.received_at)), "$text-muted"),
            "  ",
            (name_of(hit.author.nick), "bold"),
            ("  in " + group, "$text-muted"),
        )
        return Content("\n").join([head, marked(hit)])

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
        """Near the last one, the next page is read."""
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


def marked(hit: Hit) -> Content:
    """The piece of a message in one line, with what was found in it."""
    parts: list[Content] = []
    at = 0
    for start, end in hit.spans:
        if not at <= start < end <= len(hit.text):
            continue
        word = Content.styled(printable_line(hit.text[start:end]), FOUND)
        parts += [Content(printable_line(hit.text[at:start])), word]
        at = end
    return Content("").join([*parts, Content(printable_line(hit.text[at:]))])


def moment_text(stamp: str) -> str:
    """As in "20 Nov 14:03", with the year where it is another one."""
    moment = local_time(stamp)
    if moment is None:
        return "?"
    year = "" if moment.year == datetime.now().astimezone().year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year} {moment:%H:%M}"
