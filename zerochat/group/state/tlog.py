"""What a member remembers of a group's log."""

from msgspec import Struct, field

from zerochat.evidence.case import Rules
from zerochat.evidence.operator import Operated
from zerochat.evidence.reader import Followed
from zerochat.evidence.witness import Watched


class Mine(Struct, frozen=True):
    """An entry of ours that has no place in the log yet."""

    record: bytes
    since: int
    """When it was posted first, UTC ms."""
    tries: int = 0
    at: int = 0
    """When it is to be posted again, UTC ms."""


class Wanted(Struct, frozen=True):
    """An entry of the log, of which the bytes behind it are not here."""

    record: bytes
    tries: int = 0
    at: int = 0
    """When somebody is asked for them next, UTC ms."""


class Log(Struct, frozen=True):
    """One log, by one set of terms, as this member has it."""

    rules: Rules
    lamport: int
    """Of the terms with which it began."""
    followed: Followed
    operated: Operated | None = None
    """None: another one operates it, or we do not any more."""
    watched: Watched | None = None
    """None: we are no witness of it, or not any more."""
    mine: dict[str, Mine] = field(default_factory=dict)
    """What of ours waits for its place, by base64url of SHA-256 of the record."""
    wanted: dict[str, Wanted] = field(default_factory=dict)
    """What we fetch, by the hash of the bytes."""
    read: int = 0
    """So many of its entries we have looked at for something that we lack."""
    past: int = 0
    """So many of them were there before we came: messages among these nobody here could open."""
    alias: bytes = b""
    """The stream of ours of which `posted` tells."""
    posted: int = 0
    """All that was owed of it, up to this `T`, is in the log or in `mine`."""
    reached: dict[str, int] = field(default_factory=dict)
    """Where we operate it: how far each witness says that it is."""
    asked_at: int = 0
    """When we have last asked somebody for more of it, UTC ms."""
    shown_at: int = 0
    """Its last checkpoint shows all that was in it at this time (UTC ms, by the witnesses)."""
    refresh_at: int = 0
    """The time for defending of the last accusation in it is over then: a later checkpoint has to show that."""
    told: int = 0
    """When somebody here was last told that it stands still, UTC ms; 0: it does not."""
    retired: bool = False
    """We may have signed more here than we remember, so we neither operate nor witness it."""
    split: tuple[str, str] | None = None
    """Two checkpoints that convict its operator: we neither post there nor cosign, and read on."""


class Ended(Struct, frozen=True):
    """A subscription to our stream that is over, for which something may still be owed."""

    member: str
    rules: str
    begun: int
    until: int
    """The `T` after which nothing more is owed by it."""
    close: str = ""
    """Which of `Log.mine` says that it is over: until that has its place all is owed. Empty: none, or it has."""
