"""Subscription to notifications in a second thread, printed between two input lines and never inside one.

The first connection and thread wait for input. This thread also saves the draft, so that a crash or a closed terminal
loses at most half a second of typing.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import NoAgent
from zerochat.cli.output import OutputFailed, narrate
from zerochat.errors import LocalError
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from msgspec import Struct

    from zerochat.agent.storage.paths import ProfilePaths

POLL_S = 0.2
"""Interval of the check whether the input line is finished or has changed."""
DRAIN_S = 0.1
"""Time to wait for further notifications at the end."""
SAVE_S = 0.5
"""Minimum interval between two saves of the draft."""
STATUS_S = 20.0
"""Interval of the status check."""
HELD_MAX = 2_000
"""Maximum number of waiting lines; older ones are available with `/history`."""
STOP_S_MAX = 5.0
BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Delays before connecting again, until a connection has lasted for the longest of them."""
WAITS_FOR_ANOTHER = 2
"""Attempts for which another program may start the agent."""
WAITS_FOR_RESTART = 6
"""The same after the end of an agent that outlives its clients: about 14 seconds, for its service manager restarts it
after five, and one started here would keep the restarted one from starting."""


class DeferredOutput:
    """Output that waits while the user is typing a line; thread-safe."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque(maxlen=HELD_MAX)

    def add(self, action: Callable[[], None]) -> None:
        self._waiting.append(action)
        self.flush()

    def flush(self, *, now: bool = False) -> None:
        """Print the waiting output unless the user is typing; `now`: in any case."""
        with self._lock:
            while self._waiting and (now or not self._busy()):
                self._waiting.popleft()()


class Subscription(threading.Thread):
    """Passes notifications to `on_notification`, in this thread, and saves the draft that `draft` returns (group id and
    text) under the name `draft_client`. `since`: number of the last event received, for a resumed subscription.
    `take_read`: the id of the group whose messages were printed since the last call; empty: none. `start_agent` starts
    an agent where none runs, without a prompt."""

    def __init__(
        self,
        paths: "ProfilePaths",
        output: DeferredOutput,
        on_notification: Callable[["Struct"], None],
        draft: Callable[[], tuple[str, str]],
        since: Callable[[], int | None],
        draft_client: str,
        take_read: Callable[[], str],
        start_agent: Callable[[], None],
    ) -> None:
        super().__init__(name="zerochat-subscription", daemon=True)
        self._paths, self._output = paths, output
        self._on_notification, self._draft, self._since = on_notification, draft, since
        self._draft_client, self._take_read, self._start_agent = draft_client, take_read, start_agent
        self.failure: OutputFailed | None = None
        """Why nothing more can be printed."""
        self._outlives = False
        """The agent of the last connection outlives its clients."""
        self._reported: set[str] = set()
        """The codes of the errors that were reported since the last connection."""
        self._stopping = threading.Event()
        self._subscribed = threading.Event()
        self._warned = ""
        self._saved: dict[str, str] = {}
        self._saved_at = 0.0

    def open(self) -> None:
        """Start the thread and wait until the subscription is active."""
        self.start()
        self._subscribed.wait(STOP_S_MAX)

    def stop(self) -> None:
        self._stopping.set()
        self.join(STOP_S_MAX)

    def set_saved(self, group: str, text: str) -> None:
        """Record that the agent already has this draft."""
        self._saved[group] = text

    def run(self) -> None:
        try:
            self._keep_connected()
        except OutputFailed as error:
            self.failure = error
        except OSError:  # the reader of standard output has closed it
            pass
        finally:
            self._subscribed.set()

    def _keep_connected(self) -> None:
        """Serve connections until stopped. Raises OutputFailed and OSError."""
        tries = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                with self._connect(tries) as client:
                    self._outlives = not client.owner
                    client.subscribe(since=self._since())
                    self._subscribed.set()
                    if self._reported:
                        self._reported.clear()
                        self._output.add(lambda: narrate("Connected to the agent again."))
                    self._serve(client)
            except OutputFailed:
                raise
            except LocalError as error:
                self._report(error)
                self._subscribed.set()
            if time.monotonic() - began > BACKOFF_S[-1]:
                tries = 0
            self._stopping.wait(BACKOFF_S[min(tries, len(BACKOFF_S) - 1)])
            tries += 1

    def _connect(self, tries: int) -> Client:
        try:
            return connect(self._paths, "plain")
        except NoAgent:
            if tries < (WAITS_FOR_RESTART if self._outlives else WAITS_FOR_ANOTHER):
                raise
        self._start_agent()
        return connect(self._paths, "plain")

    def _report(self, error: LocalError) -> None:
        """Report an error once; that no agent runs, only if nothing else was reported."""
        sentence, known = error.sentence(), error.code in self._reported
        if not known and not (self._reported and isinstance(error, NoAgent)):
            self._reported.add(error.code)
            self._output.add(lambda: narrate(sentence))

    def _serve(self, client: Client) -> None:
        checked_at = time.monotonic()
        while True:
            stopping = self._stopping.is_set()
            while (news := client.next_notification(DRAIN_S if stopping else POLL_S)) is not None:
                self._on_notification(news.params)
            self._output.flush()
            if group := self._take_read():
                client.mark_read(group, self._since())
            if stopping:
                return
            self._save_draft(client)
            if time.monotonic() - checked_at > STATUS_S:
                checked_at = time.monotonic()
                self._check_status(client)

    def _save_draft(self, client: Client) -> None:
        group, text = self._draft()
        now = time.monotonic()
        if not group or text == self._saved.get(group, "") or now - self._saved_at < SAVE_S:
            return
        self._saved[group], self._saved_at = text, now
        client.save_draft(group, text, self._draft_client)

    def _check_status(self, client: Client) -> None:
        status = client.get_status()
        warning = "The agent's authenticator has stopped: no new peer can connect." if status.closed else status.warning
        if warning and warning != self._warned:
            self._output.add(lambda: narrate(f"Warning: {printable_line(warning)}"))
        self._warned = warning
