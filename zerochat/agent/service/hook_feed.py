"""Feeds the hooks with the events of the log, page by page, from where they were last."""

from contextlib import suppress
from dataclasses import dataclass

from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.service.hooks import ON_MENTION, ON_MESSAGE, Hooks
from zerochat.agent.settings.reader import Settings
from zerochat.agent.storage.journal import Journal
from zerochat.errors import LocalError
from zerochat.group.state import Agent


@dataclass
class HookFeed:
    """The hooks of an agent, and how far they have run. Owned by the agent loop."""

    hooks: Hooks
    handlers: RequestHandlers
    journal: Journal
    is_allowed: bool
    """Whether this agent runs the hooks of its settings; a temporary one does not."""
    _seq: int = 0
    """The local seq up to which the hooks have run."""

    def set(self, settings: Settings) -> None:
        """Apply the settings of hooks. Hooks that start do not run for earlier events."""
        if not self.hooks.wanted:
            self._seq = self.journal.last_seq()
        programs = {ON_MESSAGE: settings.on_message, ON_MENTION: settings.on_mention} if self.is_allowed else {}
        self.hooks.set(programs, float(settings.timeout))

    def run(self, agent: Agent) -> None:
        """Run the hooks for the events since the last run."""
        if not self.hooks.wanted:
            return
        with suppress(LocalError):  # the status reports it
            self._seq, events = self.handlers.events_since(agent, self._seq)
            if events:
                self.hooks.hear(events, {group.id: group.me for group in agent.groups.values()})
