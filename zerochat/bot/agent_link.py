"""What a bot needs of its agent: somebody to ask, and something to hear.

`Line` is all that the rest of this package knows of the world outside. `wire.py` puts it on the control socket,
`console.py` on a terminal, and `zerochat.testing` on a member of a simulated group.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from zerochat.agent.api.client import News
from zerochat.errors import LocalError

ANSWER_S_MAX = 30.0
"""How long an agent may think before we say that it does not answer."""


class LineLost(LocalError):
    """The connection with the agent is gone ({why}). It is tried again."""

    exit_code = 6


class Line(Protocol):
    """One connection with an agent after another. Everything is asked in one event loop."""

    profile: str
    """Whose agent it is; for people."""

    async def open(self) -> None:
        """Connect, or connect anew. Raises LineLost when that cannot be now, another LocalError when it never can."""

    async def call(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        """The answer, in the shape that `schema.METHODS` has for it. Raises AgentError when the agent refuses, LineLost
        when the connection ends before it has answered, or it does not answer within so many seconds."""

    async def news(self) -> News:
        """The next notification. Raises LineLost when the connection has ended and all that came over it was given."""

    def now(self) -> float:
        """UTC seconds."""

    async def close(self) -> None:
        """Hang up. Idempotent."""
