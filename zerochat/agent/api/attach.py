"""Connects to a profile's agent, and starts one in this process where none is running.

Clients work the same with a running agent and with their own: both are used through the control socket. The agent's own
modules are only imported to start one.
"""

import secrets
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

from msgspec.structs import replace

from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import ANSWER_S_MAX, AgentGone, AgentSilent, NoAgent
from zerochat.agent.api.client_protocol import AgentError, Notification
from zerochat.errors import LocalError
from zerochat.rpc import METHODS, READING, Event, Item, Sent, StoppingNotification

if TYPE_CHECKING:
    from zerochat.agent.storage.paths import ProfilePaths
    from zerochat.agent.thread import AgentThread

OWNER_S_MAX = 20.0
"""Time until another process must have started its agent, so that its control socket listens, or have ended it."""
RESTART_S_MAX = 10.0
"""How long the restart of an agent that outlives its clients is awaited, before another one takes its place: a service
restarts after five seconds."""
REPEATS_MAX = 3
"""How many further agents get a request at whose answer one has ended: it may be the cause."""
RETRY_S = 0.02
KEYED: Final = frozenset(name for name, (params, _) in METHODS.items() if "key" in params.__struct_fields__)
"""The methods with an idempotency key."""

Access: TypeAlias = "tuple[Client, AgentThread | None]"
"""A client, and the agent that was started for it."""


class NotAnswered(AgentGone):
    """{why} It is not known whether the request was carried out. Repeated with the idempotency key {key} (option --key
    of a command), it is carried out once."""

    facts: ClassVar[tuple[str, ...]] = ("key",)


class AttachedClient(Client):
    """A client that attaches again, or starts an agent, when the agent has gone. It waits for the restart of an agent
    that outlives its clients, lest it keep the restarted one from starting.

    A request that reads or has an idempotency key, which is made if need be, is then repeated; other ones fail with
    AgentGone. A temporary agent also says which requests it has not carried out, and these are repeated; after its end
    a subscription continues with the next agent.
    """

    def __init__(self, opened: Access, open_again: Callable[[], Access], connect_again: Callable[[], Client]) -> None:
        """`connect_again` raises NoAgent where no agent runs; `open_again` starts one then."""
        self._open_again, self._connect_again = open_again, connect_again
        self._subscribed: dict[str, object] | None = None
        self._seq = 0
        """The local seq of the last event that the subscription has brought."""
        self._ended = False
        """The agent has reported its end."""
        self.thread: AgentThread | None = None
        self._adopt(*opened)

    def _adopt(self, client: Client, thread: "AgentThread | None") -> None:
        super().__init__(client._socket)
        self._protocol, self.owner, self.thread, self._ended = client._protocol, client.owner, thread, False

    def call(self, method: str, *, within_s: float = ANSWER_S_MAX, **params: object) -> Any:
        keyed = self.thread is None and method in KEYED
        own_key = keyed and params.get("key") is None
        if own_key:
            params["key"] = f"once:{secrets.token_urlsafe(16)}"
        since = params.get("since")
        if method == "subscribe":
            self._seq = since if isinstance(since, int) else 0
        result = self._call_until_answered(method, within_s, params, keyed=keyed)
        if method == "subscribe":
            self._subscribed = params
            if since is None:
                self._seq = max(self._seq, result.latest)
        return replace(result, duplicate=False) if own_key and isinstance(result, Sent) else result

    def _call_until_answered(self, method: str, within_s: float, params: dict[str, object], *, keyed: bool) -> Any:
        deadline, is_unclear, repeats = time.monotonic() + within_s, False, 0
        while True:
            try:
                return super().call(method, within_s=max(deadline - time.monotonic(), 0.0), **params)
            except (AgentGone, AgentSilent, AgentError) as error:
                is_unclear = keyed and (is_unclear or not isinstance(error, AgentError))
                failed_at = time.monotonic()
                try:
                    if repeats == REPEATS_MAX or not self._is_repeated(method, error.code):
                        raise
                    repeats += error.code == "AgentGone"
                    self._attach_again()
                except LocalError as failure:
                    if is_unclear and (failure.code == "AgentStopping" or not isinstance(failure, AgentError)):
                        raise NotAnswered(why=failure.sentence(), key=params["key"]) from failure
                    raise
                deadline += time.monotonic() - failed_at
                if "timeout_s" in params:
                    params["timeout_s"] = max(deadline - ANSWER_S_MAX - time.monotonic(), 0.0)

    def next_notification(self, within_s: float | None = None) -> Notification | None:
        deadline = None if within_s is None else time.monotonic() + within_s
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                news = super().next_notification(left)
            except AgentGone:
                if not self._foreign:
                    raise
                self._attach_again()
                continue
            if news is None or not (isinstance(news.params, StoppingNotification) and self._foreign):
                return news

    def _is_repeated(self, method: str, code: str) -> bool:
        """Whether to repeat a request that was refused or has no answer."""
        if code == "AgentStopping":
            return self._foreign
        can_repeat = method in KEYED or method.startswith(READING) or (self._foreign and self._ended)
        return code == "AgentGone" and self.thread is None and can_repeat

    @property
    def _foreign(self) -> bool:
        """Whether the agent is the temporary one of another process."""
        return bool(self.owner) and self.thread is None

    def _attach_again(self) -> None:
        """Attach to another agent, or start one, and continue the subscription; a consumer, where it acknowledged."""
        consumer = self._subscribed is not None and self._subscribed.get("consumer") is not None
        outdated = (StoppingNotification, Item) if consumer else StoppingNotification
        unread = [each for each in self._notifications if not isinstance(each.params, outdated)]
        outlives = self.thread is None and not self.owner
        self.close()
        restarted = self._await_restart() if outlives else None
        self._adopt(*((restarted, None) if restarted is not None else self._open_again()))
        self._notifications.extend(unread)
        if self._subscribed is not None:
            again = {**self._subscribed, "since": None if consumer else self._seq}
            super().call("subscribe", within_s=ANSWER_S_MAX, **again)

    def _await_restart(self) -> Client | None:
        """A client of the next agent; None: there is none after `RESTART_S_MAX`."""
        deadline = time.monotonic() + RESTART_S_MAX
        while time.monotonic() < deadline:
            try:
                return self._connect_again()
            except NoAgent:
                time.sleep(RETRY_S)
        return None

    def _read(self, deadline: float | None) -> bool:
        before = len(self._notifications)
        found = super()._read(deadline)
        for index in range(before, len(self._notifications)):
            match self._notifications[index].params:
                case Event(seq=seq):
                    self._seq = max(self._seq, seq)
                case StoppingNotification(within_s=0):
                    self._ended = True
        return found


class Attached:
    """A client of the profile's agent. Leaving the context stops the agent if it is `own`."""

    def __init__(self, client: AttachedClient) -> None:
        self.client = client

    @property
    def own(self) -> bool:
        """True: this process started the agent."""
        return self.client.thread is not None

    @property
    def owner(self) -> str:
        """The client that has started the agent for itself, as `Hello.owner`."""
        return self.client.owner

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        thread = self.client.thread
        if isinstance(error, AgentGone) and thread is not None and thread.failure is not None:
            raise thread.failure from error

    def close(self) -> None:
        self.client.close()
        if self.client.thread is not None:
            self.client.thread.stop()


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
    opened = partial(_open, places, passphrase, listen, advertise, name)
    return Attached(AttachedClient(opened(), opened, partial(connect, places, name)))


def _open(
    places: "ProfilePaths",
    passphrase: Callable[[], bytes] | None,
    listen: str | None,
    advertise: str | None,
    name: str,
) -> Access:
    try:
        return connect(places, name), None
    except NoAgent:
        pass
    from zerochat.agent.storage.profiles import ProfileOwned, unlock

    key = unlock(places, passphrase)  # says at once when there is no such profile
    from zerochat.agent.thread import AgentThread

    deadline = time.monotonic() + OWNER_S_MAX
    while True:
        thread = AgentThread(places, key, listen=listen, advertise=advertise, owner=name or "client")
        try:
            thread.start()
            return connect(places, name), thread
        except ProfileOwned:
            # Another process was faster, and will answer soon; or was about to end, and leaves the profile to us.
            try:
                return connect(places, name), None
            except NoAgent:
                if time.monotonic() > deadline:
                    raise
        except BaseException:
            thread.stop()
            raise
        time.sleep(RETRY_S)
