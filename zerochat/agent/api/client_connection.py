"""A blocking connection to the agent's control socket: requests, replies and notifications."""

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

from zerochat.agent.api.client_protocol import AgentError, ClientProtocol, Notification
from zerochat.closing import Closing
from zerochat.errors import LocalError, Retry

ANSWER_S_MAX: Final = 30.0
"""Time limit of an answer."""
BACKUP_S_MAX: Final = 3_600.0
FILES_S_MAX: Final = 600.0
"""Time limit for reading or writing large files."""
CONNECT_S_MAX: Final = 5.0
READ_BYTES_MAX: Final = 1 << 16


class NoAgent(LocalError):
    """No agent is running for the profile {profile}. Start one with `zerochat --profile {profile} agent`, or open the
    chat with `zerochat --profile {profile}`."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"


class AgentUnreachable(LocalError):
    """Cannot connect to the agent's control socket {path}: {why}."""

    exit_code: ClassVar[int] = 6


class AgentGone(LocalError):
    """The agent has closed the connection. If you did not stop it, its log has the reason (`zerochat paths log`);
    restart it with `zerochat agent`."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class AgentSilent(LocalError):
    """The agent has not answered {method} for {seconds} seconds. Restart it; nothing is lost."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class ClientConnection(Closing):
    """A connection to the agent, for one thread.

    Every method raises AgentError where the agent refuses, AgentGone, AgentSilent or AgentUnclear where it fails.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._protocol = ClientProtocol()
        self._notifications: deque[Notification] = deque()
        self._replies: dict[int, object | AgentError] = {}
        self.observers: dict[str, Callable[[Any], object]] = {}
        """Functions that get the params of notifications with this name, which `notifications` then does not bring."""
        self.owner = ""
        """The client with which the agent ends; empty: none."""

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def call(self, method: str, *, within_s: float = ANSWER_S_MAX, **params: object) -> Any:
        """Send a request and wait for its result, which has the type of `rpc.METHODS[method]`.

        Notifications that arrive meanwhile are kept for `notifications`.
        """
        deadline = time.monotonic() + within_s
        request_id, line = self._protocol.request(method, params)
        try:
            self._socket.settimeout(within_s)
            self._socket.sendall(line)
        except TimeoutError:
            raise AgentSilent(method=method, seconds=round(within_s)) from None
        except OSError:
            pass  # an error of the agent may still be there to read
        while request_id not in self._replies:
            if not self._read(deadline):
                raise AgentSilent(method=method, seconds=round(within_s))
        result = self._replies.pop(request_id)
        self._replies.clear()  # late answers to requests that timed out
        if isinstance(result, AgentError):
            raise result
        return result

    def next_notification(self, within_s: float | None = None) -> Notification | None:
        """The next notification; None after `within_s` seconds without one (None: no limit)."""
        deadline = None if within_s is None else time.monotonic() + within_s
        while not self._notifications:
            if not self._read(deadline):
                return None
        return self._notifications.popleft()

    def notifications(self, within_s: float | None = None) -> Iterator[Notification]:
        """Notifications until there is none for `within_s` seconds (None: no limit). Call `subscribe` first."""
        while (item := self.next_notification(within_s)) is not None:
            yield item

    def _read(self, deadline: float | None) -> bool:
        """Read once. False: the deadline passed."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        try:
            self._socket.settimeout(left)  # fails on a closed socket
            data = self._socket.recv(READ_BYTES_MAX)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            raise AgentGone
        for message in self._protocol.receive(data):
            if not isinstance(message, Notification):
                self._replies[message.id] = message.result
            elif message.method in self.observers:
                self.observers[message.method](message.params)
            else:
                self._notifications.append(message)
        return True
