"""Connects to a profile's agent, and starts one in this process where none is running.

Clients work the same with a running agent and with their own: both are used through the control socket. The agent's own
modules are only imported to start one.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import AgentGone, NoAgent

if TYPE_CHECKING:
    from zerochat.agent.storage.paths import ProfilePaths
    from zerochat.agent.thread import AgentThread

OWNER_S_MAX = 5.0
"""Time until the control socket of an agent that another process has just started must listen."""
RETRY_S = 0.02


class Attached:
    """A client of the profile's agent. Leaving the context stops the agent if it is `own`."""

    def __init__(self, client: Client, thread: "AgentThread | None" = None) -> None:
        self.client = client
        self._thread = thread

    @property
    def own(self) -> bool:
        """True: this process started the agent."""
        return self._thread is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, AgentGone) and self._thread is not None and self._thread.failure is not None:
            raise self._thread.failure from error

    def close(self) -> None:
        self.client.close()
        if self._thread is not None:
            self._thread.stop()


def attach(
    places: "ProfilePaths",
    passphrase: Callable[[], bytes] | None = None,
    *,
    listen: str | None = None,
    advertise: str | None = None,
    name: str = "",
) -> Attached:
    """Connect to the profile's agent, or start it in this process.

    `passphrase` is called only to start an agent of a profile with a passphrase; `listen` and `advertise` are for that
    case too. `name` identifies the client to the agent. Raises what `connect`, `unlock` and `AgentThread.start` raise.
    """
    try:
        return Attached(connect(places, name))
    except NoAgent:
        pass
    from zerochat.agent.storage.profiles import ProfileOwned, unlock

    key = unlock(places, passphrase)  # says at once when there is no such profile
    from zerochat.agent.thread import AgentThread

    deadline = time.monotonic() + OWNER_S_MAX
    while True:
        thread = AgentThread(places, key, listen=listen, advertise=advertise)
        try:
            thread.start()
            return Attached(connect(places, name), thread)
        except ProfileOwned:
            # Somebody else was faster, and will answer soon; or was about to end, and leaves the profile to us.
            try:
                return Attached(connect(places, name))
            except NoAgent:
                if time.monotonic() > deadline:
                    raise
        except BaseException:
            thread.stop()
            raise
        time.sleep(RETRY_S)
