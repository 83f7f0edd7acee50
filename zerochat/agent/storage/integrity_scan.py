"""Integrity scan: verifies every page of the journal on disk, a little at a time, once a day.

A damaged page would otherwise be noticed only when it is needed, perhaps years later, when the last good backup is
gone. One megabyte per second takes a hundredth of that second.
"""

import logging
import time
from typing import Final

from zerochat.agent.storage.journal import Journal
from zerochat.errors import LocalError

PAGES: Final = 256
"""Pages per step: one megabyte."""
PAUSE_S, RETRY_S, DAY_S = 1.0, 60.0, 86_400.0
"""Pause between two steps, after an error, and after a whole scan."""


class IntegrityScan:
    """The scan of one journal."""

    def __init__(self, journal: Journal, log: logging.Logger) -> None:
        self._journal, self._log = journal, log
        self._page = 0
        self._due = 0.0

    def run_if_due(self) -> None:
        """Verify the next pages, if it is time. Damage is recorded in `Journal.damage` and ends the scan."""
        now = time.monotonic()
        if now < self._due or self._journal.damage:
            return
        self._due = now + PAUSE_S
        try:
            read = self._journal.verify_pages(self._page, PAGES)
        except LocalError as error:
            self._due = now + RETRY_S
            self._log.error("the integrity scan failed: %s", error.code)
            return
        if read == PAGES:
            self._page += PAGES
        else:
            self._page, self._due = 0, now + DAY_S
