"""Who waits to be let into a group, with the words of each one's key, and a key for either answer.

An admission goes out at once. A refusal waits for a moment, in which it can be taken back: whoever is refused has to
find another invitation, and a wrong key is pressed easily.
"""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import OptionList, Static

from zerochat.rpc import RequestInfo
from zerochat.terminal_text import Printable, cells, printable, printable_line
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.dialogs.status_line import Said
from zerochat.tui.panels.lists import QuietList
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.state.hints import WANTS
from zerochat.tui.style.text import clip, clock_text, key_suffix, name_of

UNDO_S = 5.0
"""How long a refusal can be taken back."""
DEAF_S = 0.7
"""For this long no key answers to somebody who has just taken the place of another under it; longer than the pause
before a key that is held down begins to repeat."""
HOW = "Call them: these words must be the ones that they see."


class RequestsScreen(Over[None]):
    """`waiting` answers who waits now; `answer` tells the agent, and raises AgentError where it refuses."""

    BINDING_GROUP_TITLE = "Who asks to join"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "admit", "Let in", id="requests.admit"),
        Binding("r", "refuse", "Refuse", id="requests.refuse"),
        Binding("u", "undo", "Take a refusal back", id="requests.undo"),
        Binding("escape,f4", "close", "Close", id="requests.close"),
    ]

    def __init__(
        self,
        group: Printable,
        waiting: Callable[[], list[RequestInfo]],
        answer: Callable[[RequestInfo, bool], Awaitable[None]],
    ) -> None:
        super().__init__()
        self._group = group
        self._waiting = waiting
        self._answer = answer
        self._answered: set[str] = set()
        """Whom the agent has been told about, and who may stand in its list for a moment still."""
        self._refused: dict[str, tuple[RequestInfo, Timer]] = {}
        """The refusals that can still be taken back."""
        self._deaf_until = 0.0
        """Until then (monotonic clock) no key answers: what is looked at has only just been chosen, and not by hand."""
        # Held by name, not looked up: news may come when the screen is being taken down.
        self._list = QuietList(id="asking")
        self._about = Static(id="asking-about")
        self._said = Said(id="asking-said")
        self._keys = Static(classes="hint")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content(f"Who asks to join {self._group}"), classes="title")
            yield self._list
            yield self._about
            yield self._said
            yield self._keys

    def on_mount(self) -> None:
        self._list.again = self.renew
        self._list.focus()
        self.renew()
        if self._list.option_count:
            self._list.highlighted = 0
        self._deaf_until = 0.0

    def renew(self) -> None:
        """Show who waits now. Where the one that was looked at is gone, nobody is, unless only one is left: the next
        key must not answer to somebody else."""
        waiting = self._waiting()
        self._answered &= {one.did for one in waiting}
        self._list.put((one.did, self._line(one)) for one in waiting if one.did not in self._answered)
        if self._list.highlighted is None and self._list.option_count == 1:
            self._list.highlighted = 0
            self._deaf_until = monotonic() + DEAF_S
        self._show_keys()
        self._show()

    def _show_keys(self) -> None:
        undo = "   u takes that back" if self._refused else ""
        self._keys.update(Content(f"a lets in   r refuses{undo}   Esc closes"))

    def _heard(self) -> bool:
        """Whether a key can be meant for whom it would answer to: not while one is held down since before."""
        deaf = monotonic() < self._deaf_until
        if deaf:
            self._deaf_until = monotonic() + DEAF_S
        return not deaf

    def _line(self, one: RequestInfo) -> Content:
        width = max(self._list.size.width - 2, 12)
        mark = "✗ refused: " if one.did in self._refused else ""
        key = key_suffix(one.did)
        room = max(width - len(key) - 1, 4)
        left = clip(f"{mark}{name_of(one.nick)}, {WANTS.get(one.role, name_of(one.role))}", room)
        return Content.assemble(left, " " * max(room - cells(left) + 1, 1), (key, "$text-muted"))

    @on(OptionList.OptionHighlighted)
    def _show(self) -> None:
        one = self._chosen()
        if one is None:
            nobody = "Nobody waits." if not self._list.option_count else "Choose somebody with the arrows."
            self._about.update(Content(nobody))
            return
        words = [Content.styled(line, "bold") for line in in_lines(one.words)]
        facts = f"since {clock_text(one.asked_at)}, key …{key_suffix(one.did)}"
        self._about.update(Content("\n").join([*words, Content.styled(HOW, "$text-muted"), Content(facts)]))

    def _chosen(self) -> RequestInfo | None:
        option = self._list.highlighted_option
        return next((one for one in self._waiting() if option is not None and one.did == option.id), None)

    # --- answering -------------------------------------------------------------------------------------------------

    def action_admit(self) -> None:
        """Nobody is looked at afterwards, or the last one only: a key that is held down must not let everybody in."""
        if (one := self._chosen()) is not None and self._heard():
            self._forget(one.did)
            self._tell(one, True)

    def action_refuse(self) -> None:
        one = self._chosen()
        if one is None or one.did in self._refused or not self._heard():
            return
        self._refused[one.did] = (one, self.set_timer(UNDO_S, lambda: self._over(one)))
        self._say(f"{name_of(one.nick)} is refused. u takes it back.")
        self._go_on()
        self.renew()

    def action_undo(self) -> None:
        """The last refusal that has not gone out is none."""
        if not self._refused:
            self._say("There is nothing to take back.")
            return
        did = next(reversed(self._refused))
        one = self._refused[did][0]
        self._forget(did)
        self._say(f"{name_of(one.nick)} waits again.")
        self.renew()
        self._look_at(did)

    def _look_at(self, did: str) -> None:
        ids = [option.id for option in self._list.options]
        self._list.highlighted = ids.index(did) if did in ids else None

    def _forget(self, did: str) -> None:
        if did in self._refused:
            self._refused.pop(did)[1].stop()
            self._show_keys()

    def _over(self, one: RequestInfo) -> None:
        if one.did in self._refused:
            self._forget(one.did)
            if any(each.did == one.did for each in self._waiting()):
                self._tell(one, False)

    def _tell(self, one: RequestInfo, admit: bool) -> None:
        self._answered.add(one.did)
        self.renew()

        async def tell() -> None:
            try:
                await self._answer(one, admit)
            except AgentError as error:
                self._answered.discard(one.did)
                if not self.is_attached:
                    self.app.notify(printable(str(error)), severity="error", markup=False)
                    return
                self._say(printable(str(error)), trouble=True)
                self.renew()
                return
            self._say(f"{name_of(one.nick)} {'comes in now' if admit else 'does not come in'}.")

        self.app.run_worker(tell())

    def _go_on(self) -> None:
        """To the next one who waits for an answer, where the person has just refused one."""
        open = [one.did for one in self._waiting() if one.did not in self._answered | self._refused.keys()]
        ids = [str(option.id) for option in self._list.options]
        here = self._list.highlighted or 0
        later = [number for number, did in enumerate(ids) if did in open]
        if later:
            self._list.highlighted = next((number for number in later if number > here), later[0])

    def _say(self, sentence: str, *, trouble: bool = False) -> None:
        self._said.tell(printable_line(sentence), trouble=trouble)

    def action_close(self) -> None:
        for one, _ in list(self._refused.values()):
            self._over(one)
        self.dismiss(None)


def in_lines(words: list[str]) -> list[Printable]:
    """Words to compare, four in a line, as one reads them out."""
    return [printable_line(" ".join(words[start : start + 4])) for start in range(0, len(words), 4)]
