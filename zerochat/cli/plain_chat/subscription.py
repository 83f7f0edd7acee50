"""The second line to the agent: what comes over it is printed, between two lines of the person and never inside one.

It has a connection and a thread of its own, because the first ones wait for the person. The thread also has the agent
keep what is typed and not sent: nothing that happens to this process, or to the terminal, loses more than a moment.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from zerochat.agent.api.client import Client, connect
from zerochat.cli.output import narrate
from zerochat.errors import LocalError
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from msgspec import Struct

    from zerochat.agent.storage.paths import Places

LOOK_S = 0.2
"""How often it is looked whether the person has finished a line, or typed at one."""
LAST_S = 0.1
"""How long it listens on at the end when there is nothing more to come."""
KEEP_S = 0.5
STATUS_S = 20.0
"""How often the agent is asked whether something needs attention."""
HELD_MAX = 2_000
"""Lines that wait for the person to finish one; beyond that the oldest are left to `/history`."""
STOP_S_MAX = 5.0


class Voice:
    """Prints when nobody is in the middle of a line. Any thread may use it."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._lock = threading.Lock()
        self._held: deque[Callable[[], None]] = deque(maxlen=HELD_MAX)

    def say(self, print_it: Callable[[], None]) -> None:
        self._held.append(print_it)
        self.flush()

    def flush(self, *, now: bool = False) -> None:
        """Print what waits, if that disturbs nobody; `now`: the caller knows that it does not."""
        with self._lock:
            while self._held and (now or not self._busy()):
                self._held.popleft()()


class Ear(threading.Thread):
    """`heard` gets every piece of news, in this thread; `begun` answers what is to be kept: a group's id and a text."""

    def __init__(
        self,
        places: "Places",
        voice: Voice,
        heard: Callable[["Struct"], None],
        begun: Callable[[], tuple[str, str]],
        since: Callable[[], int | None],
    ) -> None:
        super().__init__(name="zerochat-ear", daemon=True)
        self._places, self._voice = places, voice
        self._heard, self._begun, self._since = heard, begun, since
        self._stop_asked = threading.Event()
        self._listens = threading.Event()
        self._warned = ""
        self._kept: dict[str, str] = {}
        self._kept_at = 0.0

    def listen(self) -> None:
        """Start, and return once nothing can be missed."""
        self.start()
        self._listens.wait(STOP_S_MAX)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(STOP_S_MAX)

    def kept(self, group: str, text: str) -> None:
        """The agent was told this already."""
        self._kept[group] = text

    def run(self) -> None:
        told = False
        while not self._stop_asked.is_set():
            try:
                with connect(self._places, "plain") as client:
                    client.subscribe(since=self._since())
                    self._listens.set()
                    told = False
                    self._serve(client)
            except LocalError as error:
                sentence = error.sentence()
                if not told:
                    told = True
                    self._voice.say(lambda sentence=sentence: narrate(sentence))  # type: ignore[misc]
                self._listens.set()
                self._stop_asked.wait(1.0)
            except OSError:  # whoever read what was printed has seen enough
                return

    def _serve(self, client: Client) -> None:
        looked = time.monotonic()
        while True:
            stopping = self._stop_asked.is_set()
            while (news := client.next_news(LAST_S if stopping else LOOK_S)) is not None:
                self._heard(news.item)
            self._voice.flush()
            if stopping:
                return
            self._keep(client)
            if time.monotonic() - looked > STATUS_S:
                looked = time.monotonic()
                self._look(client)

    def _keep(self, client: Client) -> None:
        group, text = self._begun()
        now = time.monotonic()
        if not group or text == self._kept.get(group, "") or now - self._kept_at < KEEP_S:
            return
        self._kept[group], self._kept_at = text, now
        client.draft(group, text)

    def _look(self, client: Client) -> None:
        status = client.status()
        warning = "The agent's gatekeeper has died: nobody new can connect." if status.closed else status.warning
        if warning and warning != self._warned:
            self._voice.say(lambda: narrate(f"Careful: {printable_line(warning)}"))
        self._warned = warning
