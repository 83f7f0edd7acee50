"""Draft persistence: unsent texts are written to the agent's journal within half a second.

Drafts are also saved when a conversation is left and when the application ends. A text being sent counts as a draft
until the agent has accepted it, so a crash in between never loses it. Each chat has its own drafts. At the start,
a chat takes over those of chats that have ended.
"""

import asyncio
import os
from collections.abc import Callable

from zerochat.rpc import Draft, Drafts, DraftsParams, NoParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.state.agent_link import AgentError, AgentLink, LinkLost

SAVE_DELAY_S = 0.5
"""Delay from a change to its save."""
END_S_MAX = 2.0
"""Timeout of the final save."""


class DraftSaver:
    """`unsent` returns the drafts by group id; `report_error` receives the reason of a failed save."""

    def __init__(
        self, link: AgentLink, unsent: Callable[[], dict[str, str]], complain: Callable[[Printable], None]
    ) -> None:
        self._link = link
        self._unsent = unsent
        self.client = os.urandom(9).hex()
        """The name under which the agent keeps the drafts of this chat."""
        self._report_error = complain
        self.saved: dict[str, str] = {}
        """Drafts in the journal by group id, as last acknowledged."""
        self._refused: dict[str, str] = {}
        """Rejected drafts by group id; not retried until they change."""
        self._last_error = ""
        self._sending: dict[str, list[str]] = {}
        self._ready = False
        self._again: set[str] = set()
        """Ids of groups whose drafts are saved again: another agent does not know whose they are."""
        self._lock = asyncio.Lock()

    async def read(self) -> dict[str, str]:
        """The stored drafts by group id; empty after the first call. Raises LinkLost."""
        if self._ready:
            self._again = set(self.saved)
            return {}
        found: dict[str, str] = {}
        after, more = "", True
        try:
            while more:
                page = await self._link.request("list_drafts", DraftsParams(after, self.client), Drafts)
                found |= {draft.group: draft.text for draft in page.drafts}
                more = page.more and bool(page.drafts)
                after = page.drafts[-1].group if page.drafts else ""
        except LinkLost:
            raise
        except AgentError as error:
            self._report(error)
        self._ready = True
        self.saved = dict(found)
        return found

    # --- texts being sent ------------------------------------------------------------------------------------------

    def sending(self, group: str, text: str) -> None:
        self._sending.setdefault(group, []).append(text)

    def sent(self, group: str, text: str) -> None:
        """The agent accepted or rejected the text."""
        under_way = self._sending.get(group, [])
        if text in under_way:
            under_way.remove(text)

    def current(self) -> dict[str, str]:
        """What must be on disk, by group id."""
        found = self._unsent()
        for group, texts in self._sending.items():
            if texts:
                found[group] = "\n".join([*texts, *([found[group]] if group in found else [])])
        return found

    # --- saving ----------------------------------------------------------------------------------------------------

    def unsaved(self) -> list[str]:
        """Ids of the groups whose current drafts are not on disk."""
        return [group for group, text in self.current().items() if self.saved.get(group) != text]

    async def save(self) -> None:
        """Save the changed drafts; rejected ones stay listed in `unsaved`."""
        async with self._lock:
            if not self._ready:
                return
            begun = self.current()
            for group in [*begun, *(self.saved.keys() - begun.keys())]:
                text = begun.get(group, "")
                changed = text not in (self.saved.get(group, ""), self._refused.get(group))
                if (changed or group in self._again) and not await self._save_one(group, text):
                    return

    async def _save_one(self, group: str, text: str) -> bool:
        """Save one draft; False: no connection."""
        try:
            await self._link.request("save_draft", Draft(group, text, self.client), NoParams)
        except LinkLost:
            return False
        except AgentError as error:
            if error.name != "UnknownGroup":  # a deleted group has no draft
                self._refused[group] = text
                if group in self._again:  # not retried for every letter of other drafts, but known to be unsaved
                    self._again.discard(group)
                    self.saved.pop(group, None)
                self._report(error)
                return True
            text = ""
        self._refused.pop(group, None)
        self._again.discard(group)
        self._last_error = ""
        if text:
            self.saved[group] = text
        else:
            self.saved.pop(group, None)
        return True

    async def save_now(self) -> None:
        """Save all drafts now, within END_S_MAX seconds."""
        self._refused.clear()
        try:
            async with asyncio.timeout(END_S_MAX):
                await self.save()
        except TimeoutError:
            pass

    def _report(self, error: AgentError) -> None:
        """Report an error once, not for every letter."""
        if str(error) != self._last_error:
            self._last_error = str(error)
            self._report_error(printable_line(f"Your draft is not saved: {error}"))
