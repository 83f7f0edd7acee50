"""Completeness: gaps, reports of members, confirmation, and where the history starts."""

from typing import Literal

from msgspec import Struct, field

GapState = Literal["waiting", "asked", "held", "lost", "filled"]
"""`waiting`: not requested yet. `asked`: requested, or about to be. `held`: refused for now, since its author has used
up its daily quota here (`storage.daily_max`). `lost`: no member that was queried has it; it is still requested, rarely.
`filled`: received."""


class GapInfo(Struct, frozen=True, kw_only=True):
    """A range of an author's chain that is known to exist and is missing."""

    author: str
    nick: str
    after: int
    upto: int
    """The missing positions are after `after`, up to this one."""
    missing: int
    """How many of them are missing; the others arrived early and wait in the reorder buffer."""
    state: GapState = "waiting"
    tries: int = 0
    """The number of requests."""
    since: str | None = None
    """When it was detected; null: unknown."""


class MemberReport(Struct, frozen=True, kw_only=True):
    """Another member's report about the log."""

    did: str
    nick: str
    at: str | None = None
    """When its last authentic message was received; null: never."""
    present: bool = False
    """It is connected, or has sent something in the last minutes; in a large group also true where I am not linked to
    it."""
    missing: int = 0
    """The number of its own events that are known to exist and are missing here."""
    view_matches: bool | None = None
    """Whether its view equals mine; null: not reported since my view changed."""


class Completeness(Struct, frozen=True, kw_only=True):
    """Which events since we joined are stored here, as far as members have reported them.

    Members that have not reported recently may have sent more.
    """

    complete: bool = True
    """No reported event is missing."""
    upto: int = 0
    """Every reported event up to this Lamport time (normally UTC milliseconds) is stored; 0: unknown."""
    upto_at: str | None = None
    """The same as a time."""
    at: str | None = None
    """The oldest of the last reports of members that are `present` and complete: the statement holds as of then."""
    members: list[MemberReport] = field(default_factory=list)
    """The other members in the order of joining, in a large group only as in `others`. If these are more than 64: 64 of
    them, first those with missing events or another view, then absent ones."""
    others: int = 0
    """The number of other members; in a large group of those that I am linked to, or whose events are missing here."""
    current: int = 0
    """How many of them are `present` and have no missing events."""
    absent: int = 0
    """How many of them are not `present`."""
    differing: int = 0
    """How many of them have another view."""
    gaps: list[GapInfo] = field(default_factory=list)
    """At most 64."""
    waiting: int = 0
    """The number of membership events that cannot take effect because their causes are missing."""


class GapNotification(Struct, frozen=True, kw_only=True):
    """Events are missing, were requested, are given up for now, or have arrived (`filled`)."""

    type: Literal["gap"] = "gap"
    group: str
    author: str
    nick: str
    after: int
    upto: int
    state: GapState


class LateNotification(Struct, frozen=True, kw_only=True):
    """An event was delivered after later ones, and is inserted before them."""

    type: Literal["late_event"] = "late_event"
    group: str
    id: str
    author: str
    nick: str
    sent_at: str
    received_at: str


class ForkNotification(Struct, frozen=True, kw_only=True):
    """An author has signed two events at one position; the first that arrived is kept."""

    type: Literal["fork"] = "fork"
    group: str
    author: str
    nick: str
    position: int


class CompleteNotification(Struct, frozen=True, kw_only=True):
    """No event is missing any more: every reported event up to `upto` is stored."""

    type: Literal["complete"] = "complete"
    group: str
    upto: int
    """Lamport time."""
    at: str


class ConfirmedNotification(Struct, frozen=True, kw_only=True):
    """The author has confirmed events that other members relayed."""

    type: Literal["confirmed"] = "confirmed"
    group: str
    author: str
    nick: str
    after: int
    upto: int
    """The positions after `after`, up to this one."""


class ExpiredNotification(Struct, frozen=True):
    """Messages have expired: those with an earlier Lamport time than `before` (UTC milliseconds) are erased here."""

    group: str
    before: int


class RefutedNotification(Struct, frozen=True, kw_only=True):
    """Relayed events are no longer shown: the author has signed other events there, or it is undecided. Events that
    turn out to be the author's are delivered again."""

    type: Literal["refuted"] = "refuted"
    group: str
    author: str
    nick: str
    by: str
    """The member that relayed them; empty: unknown."""
    by_nick: str
    after: int
    upto: int
    """The positions after `after`, up to this one."""


class ValidityNotification(Struct, frozen=True, kw_only=True):
    """Events of an author are no longer valid, or are valid again (`Event.void`). A `message_changed` follows for each
    message that this changes."""

    type: Literal["validity_changed"] = "validity_changed"
    group: str
    author: str
    nick: str
    mine: bool
    """The author is this profile."""
    author_removed: bool
    """The author is not a member any more."""
    after: int
    upto: int
    """The positions after `after`, up to this one."""
    valid: bool


class ChainDifferenceNotification(Struct, frozen=True, kw_only=True):
    """A member has other events of an author than I, from this position on: the author has forked its chain, or a
    member relays false events. This is no proof."""

    type: Literal["chain_difference"] = "chain_difference"
    group: str
    author: str
    nick: str
    position: int
    member: str
    member_nick: str
    mine: bool = False
    """The author is this profile: another copy of it may have sent events."""
    by: str = ""
    """The member that relayed my version, where the author has not confirmed it yet."""
    by_nick: str = ""


class HistoryStart(Struct, frozen=True, kw_only=True):
    """Where a group's log starts here, and why. `presentation/history_rules.py` describes it in a sentence."""

    state: Literal["whole", "fetching", "withheld", "gone", "ended"]
    """`whole`: with the group itself. `fetching`: earlier history is being fetched. `withheld`: the rules give no more.
    `gone`: no member that could be queried has it. `ended`: I left before it was complete."""
    rules: list[str] = field(default_factory=list)
    """The rules that limit the history, of the group and of my invitation; none for the founder."""
    joined: int = 0
    """The Lamport time (normally UTC milliseconds) of the event that admitted me."""
    received: int = 0
    """The number of earlier events that were fetched."""
    remaining: int = 0
    """The number of earlier events left, as far as known."""


class BackfillNotification(Struct, frozen=True, kw_only=True):
    """Earlier history was received."""

    type: Literal["backfill"] = "backfill"
    group: str
    received: int
    """Events in total."""
    remaining: int
    """The number left, as the last responder reported."""
    done: bool
