"""Has the agent keep what is begun and not sent, so that neither a crash nor leaving loses it.

The agent writes it into its journal, encrypted like everything else. It is told half a second after a change at the
latest, and at once when a conversation is left and when the application ends. A text that is on its way to the others
counts as begun until the agent has taken it: whatever happens in between, it is in one place or in the other.
"""

import asyncio
from collections.abc import Callable

from zerochat.rpc import Draft, Drafts, DraftsParams, NoParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.state.agent_link import AgentError, Link, LinkLost

KEEP_S = 0.5
"""How long the agent may lack what was typed last."""
END_S_MAX = 2.0
"""How long an end waits for an agent that does not answer, before the person is asked."""


class DraftKeeper:
    """`unsent` answers what is begun in which group, by its id; `complain` says why something is not kept."""

    def __init__(self, link: Link, unsent: Callable[[], dict[str, str]], complain: Callable[[Printable], None]) -> None:
        self._link = link
        self._unsent = unsent
        self._complain = complain
        self.on_disk: dict[str, str] = {}
        """What the agent has written down, as far as it is known here."""
        self._refused: dict[str, str] = {}
        """What it would not take, which is not offered again until it has changed."""
        self._said = ""
        self._sending: dict[str, list[str]] = {}
        self._ready = False
        self._one = asyncio.Lock()

    async def read(self) -> dict[str, str]:
        """What was begun before this application, by group. Raises LinkLost."""
        if self._ready:
            return {}
        found: dict[str, str] = {}
        after, more = "", True
        try:
            while more:
                page = await self._link.ask("drafts", DraftsParams(after), Drafts)
                found |= {one.group: one.text for one in page.drafts}
                more = page.more and bool(page.drafts)
                after = page.drafts[-1].group if page.drafts else ""
        except LinkLost:
            raise
        except AgentError as error:
            self._tell(error)
        self._ready = True
        self.on_disk = dict(found)
        return found

    # --- what is on its way ----------------------------------------------------------------------------------------

    def sending(self, group: str, text: str) -> None:
        self._sending.setdefault(group, []).append(text)

    def sent(self, group: str, text: str) -> None:
        """The agent has taken it, or has given it back."""
        under_way = self._sending.get(group, [])
        if text in under_way:
            under_way.remove(text)

    def begun(self) -> dict[str, str]:
        """What is to be on disk, by group."""
        found = self._unsent()
        for group, texts in self._sending.items():
            if texts:
                found[group] = "\n".join([*texts, *([found[group]] if group in found else [])])
        return found

    # --- keeping ---------------------------------------------------------------------------------------------------

    def lost(self) -> list[str]:
        """The groups whose drafts are not on disk as they are."""
        return [group for group, text in self.begun().items() if self.on_disk.get(group) != text]

    async def keep(self) -> None:
        """Tell the agent what has changed; what it does not take stays here, and `lost` names it."""
        async with self._one:
            if not self._ready:
                return
            begun = self.begun()
            for group in [*begun, *(self.on_disk.keys() - begun.keys())]:
                text = begun.get(group, "")
                if text not in (self.on_disk.get(group, ""), self._refused.get(group)) and not await self._put(
                    group, text
                ):
                    return

    async def _put(self, group: str, text: str) -> bool:
        """False: there is nobody to tell now."""
        try:
            await self._link.ask("draft", Draft(group, text), NoParams)
        except LinkLost:
            return False
        except AgentError as error:
            if error.name != "UnknownGroup":  # it was forgotten, and its draft with it
                self._refused[group] = text
                self._tell(error)
                return True
            text = ""
        self._refused.pop(group, None)
        self._said = ""
        if text:
            self.on_disk[group] = text
        else:
            self.on_disk.pop(group, None)
        return True

    async def end(self) -> None:
        """Keep everything now, with a limit to the patience."""
        self._refused.clear()
        try:
            async with asyncio.timeout(END_S_MAX):
                await self.keep()
        except TimeoutError:
            pass

    def _tell(self, error: AgentError) -> None:
        """Say it once, and not for every letter."""
        if str(error) != self._said:
            self._said = str(error)
            self._complain(printable_line(f"Your draft is not kept on disk: {error}"))
