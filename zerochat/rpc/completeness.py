"""What is known to be missing of a group's log, and what everybody who was heard from has told of."""

from typing import Literal

from msgspec import Struct, field

GapState = Literal["waiting", "asked", "lost", "filled"]
"""`waiting`: nobody was asked for it yet. `asked`: somebody was, or is about to be. `lost`: nobody who was asked
has it; it goes on being asked for, rarely. `filled`: it is here now."""


class GapInfo(Struct, frozen=True, kw_only=True):
    """A stretch of an author's chain that is known to exist and is not here."""

    author: str
    nick: str
    after: int
    upto: int
    """The missing events have positions after `after`, up to this one."""
    missing: int
    """How many of them are not here: what lies between them may have come early, and waits."""
    state: GapState = "waiting"
    tries: int = 0
    """How often somebody was asked for it."""
    since: str | None = None
    """Since when it is known to be missing; None: that was not kept."""


class Heard(Struct, frozen=True, kw_only=True):
    """Another member's word on what there is."""

    did: str
    nick: str
    at: str | None = None
    """When its last authentic message came; None: never."""
    present: bool = False
    """Whether it is connected now, or was heard from in the last few minutes."""
    missing: int = 0
    """How many of its own events are known to exist and are not here."""
    agrees: bool | None = None
    """Whether it sees the same members as we do; None: it has not said since that last changed."""


class Completeness(Struct, frozen=True, kw_only=True):
    """How much of what was said in a group since we are in it is here, as far as the others have told us.

    Nobody can know more: whoever was not heard from may have said something since.
    """

    complete: bool = True
    """Nothing that anybody has told us of is missing."""
    upto: int = 0
    """Every event that anybody has told us of and that is not newer than this Lamport time (UTC milliseconds, as a
    rule) is here; 0: that cannot be said."""
    upto_at: str | None = None
    """The same as a time."""
    at: str | None = None
    """The oldest of the last words of those who are `present` and of whom nothing is missing: as of then it holds for
    all of them."""
    members: list[Heard] = field(default_factory=list)
    """The others, in the order in which they joined."""
    gaps: list[GapInfo] = field(default_factory=list)
    waiting: int = 0
    """Membership events that are here and cannot take effect, because what they rest on is missing."""


class GapNews(Struct, frozen=True, kw_only=True):
    """Something is known to be missing, was asked for, is given up for now, or has come (`filled`)."""

    type: Literal["gap"] = "gap"
    group: str
    author: str
    nick: str
    after: int
    upto: int
    state: GapState


class LateNews(Struct, frozen=True, kw_only=True):
    """An event has come after others that stand below it, and has taken its place above them."""

    type: Literal["late"] = "late"
    group: str
    id: str
    author: str
    nick: str
    sent_at: str
    received_at: str


class ForkNews(Struct, frozen=True, kw_only=True):
    """An author has said two different things in one place of its chain; the first that came stays."""

    type: Literal["fork"] = "fork"
    group: str
    author: str
    nick: str
    position: int


class CompleteNews(Struct, frozen=True, kw_only=True):
    """Whatever was known to be missing is here: every event that anybody has told us of, up to `upto`."""

    type: Literal["complete"] = "complete"
    group: str
    upto: int
    """Lamport time."""
    at: str


class ConfirmedNews(Struct, frozen=True, kw_only=True):
    """What others have handed over as an author's events is its own word now: it is vouched no more."""

    type: Literal["confirmed"] = "confirmed"
    group: str
    author: str
    nick: str
    after: int
    upto: int
    """The positions after `after`, up to this one."""


class RefutedNews(Struct, frozen=True, kw_only=True):
    """What was handed over as an author's events is shown no more: the author says something else, or nobody can tell
    yet. What turns out to be the author's comes anew."""

    type: Literal["refuted"] = "refuted"
    group: str
    author: str
    nick: str
    by: str
    """Who has handed over what the author has not said; empty: nobody is known to have."""
    by_nick: str
    after: int
    upto: int
    """The positions after `after`, up to this one."""


class RecountedNews(Struct, frozen=True, kw_only=True):
    """What an author has said does not count any more, or does again (`Event.void`). An `amended` follows for each
    message that stands otherwise by that."""

    type: Literal["recounted"] = "recounted"
    group: str
    author: str
    nick: str
    mine: bool
    """Whether the author is who asks."""
    out: bool
    """Whether the author is no member any more."""
    after: int
    upto: int
    """The positions after `after`, up to this one."""
    counts: bool


class DiffersNews(Struct, frozen=True, kw_only=True):
    """A member has something else of an author than I, from this position on: the author has said two things, or
    somebody says what is not so. That proves nothing to anybody."""

    type: Literal["differs"] = "differs"
    group: str
    author: str
    nick: str
    position: int
    member: str
    member_nick: str
    mine: bool = False
    """Whether I am the author: then another copy of my profile may have spoken."""
    by: str = ""
    """Who has handed over what I have, where the author has not confirmed it yet."""
    by_nick: str = ""


class Beginning(Struct, frozen=True, kw_only=True):
    """With what a group's log begins here, and why. `presentation/history_rules.py` puts it into a sentence."""

    state: Literal["whole", "fetching", "withheld", "gone", "ended"]
    """`whole`: with the group itself, as far as is known. `fetching`: more of what was said before I came is on its
    way. `withheld`: I may not have more. `gone`: I may, and nobody who could be asked has it. `ended`: I left before
    all of it had come."""
    rules: list[str] = field(default_factory=list)
    """What I may have of what was said before I came: by the group's rule, and by that of my invitation; none where I
    have founded the group."""
    joined: int = 0
    """Lamport time (UTC milliseconds, as a rule) of the event that brought me in."""
    got: int = 0
    """Events from before that which have been fetched."""
    left: int = 0
    """How many more there are, as far as that is known."""


class EarlierNews(Struct, frozen=True, kw_only=True):
    """More of what was said before we were in the group is here."""

    type: Literal["earlier"] = "earlier"
    group: str
    got: int
    """Events, in all."""
    left: int
    """How many more there are, as whoever was asked last says."""
    done: bool
