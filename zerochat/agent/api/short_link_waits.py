"""Requests for an invitation that wait until a mediator serves its short link, or has refused."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

from zerochat.agent.api.server import Call
from zerochat.group.state import Agent

ANSWER_S: Final = 5.0
"""How long to wait for the mediator; then the invitation is given out without a short link."""


class Wait(Struct, frozen=True):
    link: bytes
    """The link of the invitation."""
    call: Call
    respond: Callable[[Agent], None]
    deadline: float
    """Seconds on the monotonic clock."""


class ShortLinkWaits(Struct):
    """The requests that wait. Their number is limited by the number of open invitations."""

    open: list[Wait] = field(default_factory=list)

    def add(self, call: Call, link: bytes, respond: Callable[[Agent], None], now: float) -> None:
        """`now`: seconds on the monotonic clock."""
        self.open.append(Wait(link, call, respond, now + ANSWER_S))

    def answer_all(self, agent: Agent) -> None:
        """Answer all waiting requests: the agent stops, and their invitations exist."""
        for wait in self.open:
            wait.respond(agent)
        self.open.clear()

    def review(self, agent: Agent, now: float) -> float | None:
        """Answer the requests whose mediator has answered, or has taken too long; the next deadline."""
        open_, self.open = self.open, []
        for wait in open_:
            if is_pending(agent, wait.link) and now < wait.deadline:
                self.open.append(wait)
            else:
                wait.respond(agent)
        return min((wait.deadline for wait in self.open), default=None)


def is_pending(agent: Agent, link: bytes) -> bool:
    """Whether the mediator was asked for a short link of this invitation and has not answered."""
    open_ = agent.invitations.get(link)
    short = open_.short if open_ is not None else None
    return short is not None and bool(short.asked) and not short.page and not short.why
