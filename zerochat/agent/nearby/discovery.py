"""The table of announcers: who was heard, whom to open a session with, and what that cost. Pure, without sockets.

The work that strangers cause is bounded here: announcements are free to make, and their sources can be forged. A
session is opened with one announcer at a time for each source address, in turn over the addresses, and at most
`DIALS_PER_MINUTE` in all. An announcer without a match is a stranger until one of us has another key or set of hosts.
"""

from enum import Enum
from typing import Final

from msgspec import Struct

from zerochat.agent.nearby.announcement import Announcement

ANNOUNCE_S: Final = 5.0
ANNOUNCE_JITTER: Final = 0.4
"""Announcements come every `ANNOUNCE_S` seconds, give or take this part: else those of a room fall together."""
EXPIRES_S: Final = 20.0
"""An announcer that was not heard for so long is gone: after about three lost announcements."""
ANNOUNCERS_MAX: Final = 256
ADDRESS_MAX: Final = 16
"""Announcers at one address: the profiles of a machine of several users, and keys of yesterday."""
DIALS_PER_MINUTE: Final = 60
LISTENER_FIRST_S: Final = 3.0
"""The side with the greater key waits so long to be dialled, and then dials itself: it may not have been heard."""
RETRY_S: Final = 10.0
"""Time between two attempts with an announcer after a failure, doubled with each up to `RETRY_S_MAX`."""
RETRY_S_MAX: Final = 300.0


class State(Enum):
    """What is known of an announcer."""

    NEW = "new"
    """No session yet, or the last one failed."""
    IN_SESSION = "in session"
    STRANGER = "stranger"
    """The intersection was empty."""
    FOUND = "found"
    """It is a host that we know."""


TRANSITIONS: Final = {
    State.NEW: {State.IN_SESSION, State.STRANGER, State.FOUND},
    State.IN_SESSION: {State.NEW, State.STRANGER, State.FOUND},
    State.STRANGER: {State.NEW, State.FOUND},
    State.FOUND: {State.NEW, State.STRANGER},
}


class Announcer(Struct, eq=False):
    """One announced key at one address. Times in seconds, monotonic."""

    address: str
    announcement: Announcement
    heard_at: float
    due: float
    """Not dialled before."""
    state: State = State.NEW
    failures: int = 0
    host: bytes = b""
    """FOUND: its server key."""


class Announcers:
    """All announcers that were heard and are not gone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Announcer] = {}
        self._dialled: list[float] = []
        """When sessions were opened in the last minute."""
        self._last = ""
        """The address of the last one."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def all(self) -> list[Announcer]:
        return list(self._known.values())

    def hear(self, address: str, announcement: Announcement, own_key: bytes, now: float) -> bool:
        """Note an announcement; False: there is no room for its sender."""
        key = address, announcement.key
        known = self._known.get(key)
        if known is not None and known.announcement == announcement:
            known.heard_at = now
            return True
        self.expire(now)
        if known is None and len(self._known) >= ANNOUNCERS_MAX:
            return False
        if known is None and sum(one.address == address for one in self._known.values()) >= ADDRESS_MAX:
            return False
        waits = LISTENER_FIRST_S if own_key > announcement.key else 0.0
        self._known[key] = Announcer(address, announcement, now, now + waits)
        return True

    def expire(self, now: float) -> list[Announcer]:
        """Forget those that were not heard for `EXPIRES_S`; these."""
        gone = [one for one in self._known.values() if now - one.heard_at > EXPIRES_S]
        for one in gone:
            del self._known[one.address, one.announcement.key]
        return gone

    def take_due(self, now: float) -> Announcer | None:
        """The next announcer to open a session with, which is then IN_SESSION; None: none is due, or too many were
        opened in the last minute. The addresses take turns."""
        self._dialled = [at for at in self._dialled if now - at < 60]
        if len(self._dialled) >= DIALS_PER_MINUTE:
            return None
        busy = {one.address for one in self._known.values() if one.state is State.IN_SESSION}
        due = [
            one for one in self._known.values() if one.state is State.NEW and one.due <= now and one.address not in busy
        ]
        if not due:
            return None
        chosen = min(due, key=lambda one: (one.failures, one.address <= self._last, one.address))
        self._last = chosen.address
        self._dialled.append(now)
        enter(chosen, State.IN_SESSION)
        return chosen

    def failed(self, announcer: Announcer, now: float) -> None:
        """A session with it has failed: exponential backoff."""
        announcer.due = now + min(RETRY_S_MAX, RETRY_S * 2.0 ** min(announcer.failures, 16))
        announcer.failures += 1
        enter(announcer, State.NEW)

    def ended(self, announcer: Announcer, host: bytes | None) -> None:
        """A session with it has ended, with the server key that it has proved, or None."""
        announcer.host, announcer.failures = host or b"", 0
        enter(announcer, State.STRANGER if host is None else State.FOUND)

    def accepted(self, address: str, key: bytes, host: bytes) -> None:
        """The announcer of this key has opened a session with us and has proved this server key; we need not open one
        as well."""
        one = self._known.get((address, key))
        if one is not None and one.state in (State.NEW, State.STRANGER):
            self.ended(one, host)

    def knows(self, address: str) -> bool:
        """Whether an announcement came from there."""
        return any(one.address == address for one in self._known.values())

    def start_anew(self, now: float) -> None:
        """We know other hosts now: a stranger may be one of them."""
        for one in self._known.values():
            if one.state is State.STRANGER:
                one.due = now
                enter(one, State.NEW)

    def clear(self) -> list[Announcer]:
        """Forget all: we announce another key; those that were known."""
        gone = self.all
        self._known.clear()
        return gone


def enter(announcer: Announcer, state: State) -> None:
    assert state in TRANSITIONS[announcer.state], (announcer.state, state)
    announcer.state = state
