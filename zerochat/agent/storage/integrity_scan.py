"""The agent's round through its journal: every page is read from the disk again, whether anybody needs it or not.

A page that the disk has damaged is else noticed only when it is needed, which for an old message may be never; and by
then the last good backup may be gone. The first round begins with the agent, and the next one a day after it; a
megabyte a second takes a hundredth of that second.
"""

import logging
import time
from typing import Final

from zerochat.agent.storage.journal import Journal
from zerochat.errors import LocalError

PAGES: Final = 256
"""How many are read at once: a megabyte."""
PAUSE_S, AGAIN_S, DAY_S = 1.0, 60.0, 86_400.0
"""How long it rests in between, after a failure, and after a whole round."""


class Rounds:
    """Remembers how far it has come."""

    def __init__(self, journal: Journal, log: logging.Logger) -> None:
        self._journal, self._log = journal, log
        self._page = 0
        self._due = 0.0

    def go_on(self) -> None:
        """Read some pages, if it is time. `Journal.damage` says what was found, and then that is all."""
        now = time.monotonic()
        if now < self._due or self._journal.damage:
            return
        self._due = now + PAUSE_S
        try:
            read = self._journal.reread(self._page, PAGES)
        except LocalError as error:
            self._due = now + AGAIN_S
            self._log.error("the journal could not be read again: %s", error.code)
            return
        if read == PAGES:
            self._page += PAGES
        else:
            self._page, self._due = 0, now + DAY_S
