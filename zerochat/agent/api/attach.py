"""Reaches the agent of a profile, and starts one in this very process when nobody owns the profile.

So every verb and every face works the same whether or not an agent is running: it talks to the control socket either
way, and only who stops the agent in the end differs. Nothing of the agent itself is imported before it is needed.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from zerochat.agent.api.client import AgentGone, Client, NoAgent, connect

if TYPE_CHECKING:
    from zerochat.agent.loop import AgentThread
    from zerochat.agent.storage.paths import Places

OWNER_S_MAX = 5.0
"""How long another process that has just taken the profile may need until its control socket listens."""
RETRY_S = 0.02


class Attached:
    """A client of the profile's agent. Leaving the context stops the agent if it is `own`, that is, of this process."""

    def __init__(self, client: Client, thread: "AgentThread | None" = None) -> None:
        self.client = client
        self._thread = thread

    @property
    def own(self) -> bool:
        """True: this process had to start the agent, and takes it along when it ends."""
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
    places: "Places",
    passphrase: Callable[[], bytes] | None = None,
    *,
    listen: str | None = None,
    advertise: str | None = None,
    name: str = "",
) -> Attached:
    """Connect to the profile's agent, or become it.

    `passphrase` is asked only when an agent must be started and the profile has one; `listen` and `advertise` are for
    that case too. `name` tells the agent who calls. Raises what `connect`, `unlock` and `AgentThread.start` raise.
    """
    try:
        return Attached(connect(places, name))
    except NoAgent:
        pass
    from zerochat.agent.storage.profiles import ProfileOwned, unlock

    key = unlock(places, passphrase)  # says at once when there is no such profile
    from zerochat.agent.loop import AgentThread

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
