"""A group's transparency logs, as this member has them."""

from msgspec import Struct, field

from zerochat.evidence.case import Rules
from zerochat.evidence.operator import OperatorLog
from zerochat.evidence.reader import ReaderLog
from zerochat.evidence.witness import WitnessLog
from zerochat.group.composite import Composite


class PendingEntry(Struct, frozen=True):
    """An entry of ours that is not in the log yet."""

    record: bytes
    since: int
    """When it was first submitted, UTC ms."""
    tries: int = 0
    retry_at: int = 0
    """When to submit it again, UTC ms."""


class WantedEntry(Struct, frozen=True):
    """An entry of the log whose blob is missing here."""

    record: bytes
    tries: int = 0
    retry_at: int = 0
    """When to request it next, UTC ms."""


class TransparencyLog(Struct, frozen=True):
    """One log, under one set of terms."""

    rules: Rules
    lamport: int
    """Of the terms with which it began."""
    followed: ReaderLog
    operated: OperatorLog | None = None
    """None: we do not operate it (any more)."""
    watched: WitnessLog | None = None
    """None: we are not a witness of it (any more)."""
    pending: dict[str, PendingEntry] = field(default_factory=dict)
    """Our pending entries, by base64url of SHA-256 of the record."""
    wanted: dict[str, WantedEntry] = field(default_factory=dict)
    """Entries with missing blobs, by the blob's hash."""
    read: int = 0
    """How many of its entries were checked for missing blobs."""
    size_at_join: int = 0
    """How many entries precede our membership: we cannot decrypt messages among these."""
    alias: bytes = b""
    """The stream of ours that `submitted_until` is about."""
    submitted_until: int = 0
    """All owed messages up to this `T` are in the log or pending."""
    witness_sizes: dict[str, int] = field(default_factory=dict)
    """As the operator: the size that each witness reports."""
    requested_at: int = 0
    """When we last requested an extension, UTC ms."""
    proven_at: int = 0
    """Its last checkpoint proves its content at this time (UTC ms, by the witnesses)."""
    refresh_at: int = 0
    """The defence period of its last accusation ends then; a later checkpoint has to prove that."""
    stall_notified_at: int = 0
    """When the user was last notified that it stalls, UTC ms; 0: it does not."""
    retired: bool = False
    """We may have signed more here than we remember, so we neither operate nor witness it."""
    split: tuple[str, str] | None = None
    """Two checkpoints that convict its operator: we neither post nor cosign there, but follow it."""


class EndedSubscription(Struct, frozen=True):
    """An ended subscription to our stream with messages that may still be owed."""

    member: str
    rules: str
    begun: int
    until: int
    """The `T` after which nothing more is owed."""
    close_key: str = ""
    """The pending entry that ends it: until it is in the log all is owed. Empty: none, or it is in the log."""


class Tlogs(Composite, frozen=True):
    """All transparency logs of a group, and what is owed to them (`group/tlog/`)."""

    by_name: dict[str, TransparencyLog] = field(default_factory=dict)
    """By name: the tlog of the terms in force, and its latest predecessors (`tlog/adoption.py`)."""
    abandoned: tuple[str, ...] = ()
    """The tlogs that we have given up: we sign nothing there again."""
    ended_subscriptions: tuple[EndedSubscription, ...] = ()
    """Replaced subscriptions to our stream whose obligations may not be in the tlog yet."""
    terms_due: tuple[str, int] = ("", 0)
    """Why new terms are due, and since when (UTC ms); empty: they are not."""
    stalled_terms: int = 0
    """How many tlogs in a row never reached a checkpoint."""
    retired_at: int = 0
    """We may have signed more than we remember in tlogs whose terms have at most this Lamport time; 0: none."""
