"""`AgentLink`: the interface between a bot and its agent.

Implementations: the control socket (`socket_link.py`), a terminal (`console.py`) and a member of a simulated group
(`zerochat.testing`).
"""

import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from zerochat.agent.api.client_protocol import Notification
from zerochat.errors import LocalError

ANSWER_S_MAX = 30.0
"""Time limit for an answer of the agent, seconds."""


_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops CLOCK_MONOTONIC while the machine is suspended; macOS does not, and has no CLOCK_BOOTTIME."""


def steady() -> float:
    """The steady clock of this machine, seconds."""
    return time.clock_gettime(_STEADY)


class AgentLinkLost(LocalError):
    """The connection to the agent was lost ({why}). Reconnecting."""

    exit_code = 6


class AgentLink(Protocol):
    """A connection to an agent that can be reopened. All calls run in one event loop."""

    profile: str
    """Name of the agent's profile, for messages to the user."""

    async def open(self) -> None:
        """Connect or reconnect. Raises AgentLinkLost if a later attempt may succeed, another LocalError otherwise."""

    async def call(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        """The result of a request, in the type given by `rpc.METHODS`. Raises AgentError if the agent rejects the
        request, AgentLinkLost if the connection ends first or no answer comes within `within_s` seconds."""

    async def next_notification(self) -> Notification:
        """The next notification. Raises AgentLinkLost once the connection has ended and its last notification was
        returned."""

    def now(self) -> float:
        """UTC, seconds."""

    def steady(self) -> float:
        """Seconds on a clock that is never set. It counts while the machine is suspended, where the system can."""

    async def close(self) -> None:
        """Disconnect. Idempotent."""
